#!/usr/bin/env python3
"""Drivers of MongoDB that others wrote, each in its own language, through a Poolhouse with 12 servers.

    tests/suites/mongodb_clients/run.py [NAME ...] [--direct] [--options TEXT]

Each program reads HOST, PORT and OPTIONS (what stands behind the `?` of a URL) from its environment, does what its
checks are called, on many connections at once, and prints `version X`, and `ok CHECK` or `failed CHECK: why` for each.
Downloads what the programs and the server are built with. A run through Poolhouse brings results.json and the table in
docs/mongodb.md up to date. Exit status 1: something failed.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from support import generated_docs
from support.mongodb_server import FERRETDB, FerretServer, MongoPoolhouse

CHECKS = ["crud", "bulk", "cursors", "aggregations", "sessions", "large", "errors", "hundreds", "monitoring"]
OPTIONS = ["", "directConnection=true", "loadBalanced=true"]
# FerretDB itself does not let in a driver that believes in a balancer: it gives no serviceId.
DIRECTLY = OPTIONS[:2]
# Its language, what a program needs, how it is built (one command after the other), how it is run.
PROGRAMS = {
    "go-driver": ("Go", ["go"], [["go", "build", "-o", "program", "."]], ["./program"]),
    "node": ("JavaScript", ["node", "npm"], [["npm", "ci", "--no-audit", "--no-fund"]], ["node", "main.mjs"]),
    "java-driver": ("Java", ["java", "javac", "mvn"], [["rm", "-rf", "lib", "classes"],
                                                       ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
                                                       ["sha256sum", "--check", "--quiet", "jars.sha256"],
                                                       ["javac", "-cp", "lib/*", "-d", "classes", "Main.java"]],
                    ["java", "-Xmx1g", "-cp", "classes:lib/*", "Main"]),
    "rust-driver": ("Rust", ["cargo"], [["cargo", "build", "--quiet", "--locked"]], ["target/debug/mongodb-client"]),
    "pymongo-async": ("Python", [], [], [sys.executable, "main.py"]),
}
SERVERS = 12
SECONDS = 300
RESULTS = HERE / "results.json"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of programs; default: all")
    parser.add_argument("--direct", action="store_true", help="FerretDB itself: what fails there is the program's mistake, or FerretDB's")
    parser.add_argument("--options", help="these only, and no results are written")
    chosen = parser.parse_args()
    if not FERRETDB.exists():
        subprocess.run([FERRETDB.parent / "build.sh"], check=True)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-mongodb-clients-"))
    results, failures = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}, 0
    try:
        for name in chosen.names or PROGRAMS:
            _, needs, build, command = PROGRAMS[name]
            lacking = [program for program in needs if shutil.which(program) is None]
            if lacking:
                print(f"{name}: not run, because {', '.join(lacking)} is not installed")
                continue
            for step in build:
                subprocess.run(step, cwd=HERE / name, check=True, stdout=subprocess.DEVNULL)
            found = {}
            for options in [chosen.options] if chosen.options is not None else DIRECTLY if chosen.direct else OPTIONS:
                version, found[options] = served(directory, name, command, options, chosen.direct)
                failures += sum(why is not None for why in found[options].values())
            results[name] = {"version": version, "checks": found}
            if not chosen.direct and chosen.options is None:
                RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
                generated_docs.put("mongodb-clients", table(results), "mongodb.md")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return min(failures, 1)


def served(directory, name, command, options, direct):
    """Runs a program beside a server and a Poolhouse of its own."""
    place = directory / f"{name}-{options}"
    (place / "server").mkdir(parents=True)
    (place / "pool").mkdir()
    server = FerretServer(place / "server").start()
    try:
        poolhouse = MongoPoolhouse(place / "pool", server).start(max_size=SERVERS, max_wait_time="20s")
        try:
            return one(name, command, server.port if direct else poolhouse.port, options)
        finally:
            poolhouse.stop()
    finally:
        server.stop()
        shutil.rmtree(place, ignore_errors=True)


def one(name, command, port, options):
    """Runs a program: its driver's version, and for each check None, or why it failed."""
    environment = {**os.environ, "HOST": "127.0.0.1", "PORT": str(port), "OPTIONS": options}
    try:
        done = subprocess.run(command, cwd=HERE / name, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=SECONDS)
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace") + f"\nnot done within {SECONDS} s"
    passed = re.findall(r"^ok (\w+)$", output, re.MULTILINE)
    failed = {check: "it was not heard of" for check in CHECKS if check not in passed} | dict(re.findall(r"^failed (\w+): (.*)$", output, re.MULTILINE))
    found = re.search(r"^version v?(\S+)", output, re.MULTILINE)
    version = found[1] if found else "?"
    print(f"{name} {version}, {options or 'an ordinary URI'}: {', '.join(check for check in passed if check not in failed)}", flush=True)
    for check, why in failed.items():
        print(f"   FAILED {check}: {why}")
    if failed:
        print(output[-2000:])
    return version, {check: failed.get(check) for check in CHECKS}


def table(results):
    """What docs/mongodb.md says of these results."""
    lines = [f"| driver | version | language | {' | '.join(f'`{options}`' if options else 'ordinary URI' for options in OPTIONS)} |", "|-|-|-|-|-|-|"]
    failures = []
    for name, (language, *_) in PROGRAMS.items():
        if name not in results:
            continue
        cells = []
        for options in OPTIONS:
            checks = results[name]["checks"][options]
            cells.append(f"{sum(why is None for why in checks.values())} of {len(checks)}")
            failures += [f"- {name}, `{options or 'ordinary URI'}`, {check}: failed with `{why[:150]}`.\n" for check, why in checks.items() if why is not None]
        lines.append(f"| {name} | {results[name]['version']} | {language} | {' | '.join(cells)} |")
    intro = paragraph(f"""`make mongodb-clients` runs drivers that others wrote through a Poolhouse with {SERVERS} servers of FerretDB,
        and counts the checks that pass. Many tasks at once make each check. A task reads only what holds the random value that it
        wrote itself, so an answer to the wrong client is found. The checks are: {", ".join(CHECKS)}.""")
    notes = paragraph("""*cursors*: 200 cursors of four batches are open at once, with a driver pool of 1, 10 and 100 connections.
        With `loadBalanced=true` a driver keeps a connection for each open cursor, so there are as many as the pool has. *large*: documents
        of 4 to 15 MB. *hundreds*: 300 tasks at once. A check also fails if a driver clears its pool, or takes Poolhouse for a server that
        is gone; *monitoring* is idle for 2 seconds. Transactions and causal consistency are not checked: FerretDB has neither.""")
    return "\n".join([intro, *lines, "", notes]) + ("\n" + "".join(failures) if failures else "")


def paragraph(text):
    return textwrap.fill(" ".join(text.split()), 120, break_long_words=False, break_on_hyphens=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
