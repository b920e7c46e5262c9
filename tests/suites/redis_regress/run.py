#!/usr/bin/env python3
"""Redis's own tests, first against a Redis and then through a Poolhouse in front of it.

    tests/suites/redis_regress/run.py [UNIT ...] [--write]        UNIT: type/list

Each file has a fresh Redis, and a fresh Poolhouse. What passes directly has to pass through Poolhouse, except for what
`known.json` names, with the reason. Exit status 1: something else failed, or passes though it is named. The tests are
fetched by `fetch.sh`.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from support.postgres_cluster import free_port
from support.redis_server import RedisPoolhouse, RedisServer

TESTS = HERE.parents[2] / "regress" / "redis"
# Left out: clusters, modules, TLS, replication, and the process itself (its memory, its start and its end).
UNITS = """
    dump auth protocol keyspace scan info info-command type/string type/incr type/list type/list-2 type/list-3 type/set type/zset type/hash
    type/stream type/stream-cgroups sort expire other multi quit acl acl-v2 latency-monitor pubsub pubsubshard slowlog scripting functions
    maxmemory introspection introspection-2 limits obuf-limits bitops bitfield geo memefficiency hyperloglog lazyfree wait pause querybuf
    pendingquerybuf tracking networking client-eviction violations replybufsize
""".split()
# As the tests start their own servers.
SETTINGS = {
    "enable-debug-command": "yes", "enable-protected-configs": "yes", "enable-module-command": "yes", "notify-keyspace-events": "KEA",
    "latency-monitor-threshold": "1", "repl-diskless-sync-delay": "0", "propagation-error-behavior": "panic",
}
# How the reason begins of a test that would never end, or that would have the next ones fail.
LEFT_OUT = "left out: "
# And of one that depends on what else happens to be connected.
SOMETIMES = "now and then: "
# A file that has not ended by then does not come to its end.
SECONDS = 240
AT_A_TIME = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", nargs="*", metavar="UNIT", help="such as type/list; default: all")
    parser.add_argument("--write", action="store_true", help="write results.json, or the part of it that was run")
    parser.add_argument("--logs", type=pathlib.Path, help="keep what the tests say in this directory")
    chosen = parser.parse_args()
    known = json.loads((HERE / "known.json").read_text())
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as at_once:
        results = dict(at_once.map(lambda unit: (unit, both(unit, chosen.logs, known.get(unit, {}))), chosen.units or UNITS))
    wrong = report(results, known)
    if chosen.write:
        written = HERE / "results.json"
        results = {unit: found | {"missing": sorted(found["missing"])} for unit, found in results.items()}
        results = (json.loads(written.read_text()) if written.exists() else {}) | results
        written.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return int(wrong > 0)


def both(unit, logs, named):
    """What passes directly, and of that what does not through Poolhouse."""
    left_out = [name for name, why in named.items() if why.startswith(LEFT_OUT)]
    direct, through = (passed(unit, False, logs), passed(unit, True, logs, left_out))
    missing = direct[0] - through[0]
    return {
        "direct": direct[0].total(), "through": (direct[0] & through[0]).total(), "ends": through[1], "ends_directly": direct[1],
        "missing": {name: through[2].get(name, "not reached") for name in sorted(missing)},
    }


def passed(unit, pooled, logs, left_out=()):
    """The names of tests that pass and how often, whether the file came to its end, and what was said of others."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-redis-regress-"))
    (directory / "redis").mkdir()
    (directory / "pool").mkdir()
    server = RedisServer(directory / "redis", **SETTINGS).start()
    poolhouse = RedisPoolhouse(directory / "pool", server).start(max_size=100) if pooled else None
    try:
        port = poolhouse.port if pooled else server.port
        text, ends = play(unit, port, left_out)
    finally:
        if poolhouse:
            poolhouse.stop()
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if logs:
        logs.mkdir(exist_ok=True)
        (logs / f"{unit.replace('/', '-')}.{'through' if pooled else 'direct'}").write_text(text)
    names = collections.Counter(re.sub(r" \(\d+ ms\)$", "", line) for line in re.findall(r"^\[ok\]: (.*)$", text, re.MULTILINE))
    failed = re.findall(r"^\[(?:err|exception)\]: (.*?) in tests/unit/\S+\n(.*)$", text, re.MULTILINE)
    return names, ends, {name: why[:200] for name, why in failed}


def play(unit, port, left_out):
    """Runs a file of tests, but for those left out; what it said, and whether it came to its end."""
    command = ["./runtest", "--host", "127.0.0.1", "--port", str(port), "--tags", "-needs:repl -slow", "--single", f"unit/{unit}", "--durable",
               "--baseport", str(free_port()), "--timeout", str(SECONDS)]
    for name in left_out:
        command += ["--skiptest", name]
    environment = {**os.environ, "TERM": "dumb"}
    running = subprocess.Popen(command, cwd=TESTS, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               start_new_session=True)
    try:
        output, _ = running.communicate(timeout=SECONDS)
        ends = True
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        output, _ = running.communicate()
        ends = False
    text = output.decode(errors="replace")
    return text, ends and "[exception]" not in text


def report(results, known):
    """Prints what there is to say; how much of it is wrong."""
    wrong = 0
    for unit, found in results.items():
        print(f"{unit}: {found['through']} of {found['direct']}{'' if found['ends'] else ', does not come to its end'}")
        named = known.get(unit, {})
        for name, why in found["missing"].items():
            if name not in named:
                wrong += 1
                print(f"    fails: {name}\n        {why}")
        for name in (name for name, why in named.items() if name not in found["missing"] and not why.startswith(SOMETIMES)):
            wrong += 1
            print(f"    passes, though known.json names it: {name}")
    print(f"{sum(found['through'] for found in results.values())} of {sum(found['direct'] for found in results.values())}, {wrong} unexpected")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
