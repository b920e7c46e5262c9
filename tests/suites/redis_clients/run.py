#!/usr/bin/env python3
"""Clients of Redis that others wrote, each in its own language, through a Poolhouse with few servers.

    tests/suites/redis_clients/run.py [NAME ...] [--direct]

Each program reads HOST, PORT and RESP from its environment, does what its checks are called, on 8 connections at once,
and prints `version X`, and `ok CHECK` or `failed CHECK: why` for each. Downloads what the programs are built with. Exit
status 1: something failed.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from support.redis_server import RedisPoolhouse, RedisServer

CHECKS = ["types", "pipelines", "transactions", "watching", "blocking", "subscriptions", "scanning", "scripts", "large", "streams", "databases", "errors"]
# What a program needs, how it is built (one command after the other), how it is run.
PROGRAMS = {
    "ioredis": (["node", "npm"], [["npm", "ci", "--no-audit", "--no-fund"]], ["node", "main.mjs"]),
    "node-redis": (["node", "npm"], [["npm", "ci", "--no-audit", "--no-fund"]], ["node", "main.mjs"]),
    "go-redis": (["go"], [["go", "build", "-o", "program", "."]], ["./program"]),
    "jedis": (["java", "javac", "mvn"], [["rm", "-rf", "lib", "classes"],
                                         ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
                                         ["sha256sum", "--check", "--quiet", "jars.sha256"],
                                         ["javac", "-cp", "lib/*", "-d", "classes", "Main.java"]], ["java", "-cp", "classes:lib/*", "Main"]),
    "redis-rs": (["cargo"], [["cargo", "build", "--locked", "--target-dir", "target"]], ["target/debug/poolhouse-client-redis-rs"]),
}
SECONDS = 120


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of programs; default: all")
    parser.add_argument("--direct", action="store_true", help="Redis itself: what fails there is the program's mistake")
    chosen = parser.parse_args()
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-redis-clients-"))
    (directory / "redis").mkdir()
    (directory / "pool").mkdir()
    server, failures = RedisServer(directory / "redis").start(), 0
    try:
        poolhouse = RedisPoolhouse(directory / "pool", server).start(max_size=12, max_wait_time="20s")
        for name in chosen.names or PROGRAMS:
            needs, build, command = PROGRAMS[name]
            lacking = [program for program in needs if shutil.which(program) is None]
            if lacking:
                print(f"{name}: not run, because {', '.join(lacking)} is not installed")
                continue
            for step in build:
                subprocess.run(step, cwd=HERE / name, check=True, stdout=subprocess.DEVNULL)
            for version in ("2", "3"):
                server.connect().flushall()
                failures += one(name, command, server.port if chosen.direct else poolhouse.port, version)
        poolhouse.stop()
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
    return min(failures, 1)


def one(name, command, port, version):
    """Runs a program; how many of its checks failed."""
    environment = {**os.environ, "HOST": "127.0.0.1", "PORT": str(port), "RESP": version}
    try:
        done = subprocess.run(command, cwd=HERE / name, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=SECONDS)
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace") + f"\nnot done within {SECONDS} s"
    passed = re.findall(r"^ok (\w+)$", output, re.MULTILINE)
    failed = {check: "it was not heard of" for check in CHECKS if check not in passed} | dict(re.findall(r"^failed (\w+): (.*)$", output, re.MULTILINE))
    found = re.search(r"^version v?(\S+)", output, re.MULTILINE)
    print(f"{name} {found[1] if found else '?'}, RESP{version}: {', '.join(passed)}")
    for check, why in failed.items():
        print(f"   FAILED {check}: {why}")
    if failed:
        print(output[-2000:])
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
