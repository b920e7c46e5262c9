#!/usr/bin/env python3
"""The tests of MongoDB's driver teams, first against a stand-in for MongoDB and then through a Poolhouse in front of
it.

    tests/suites/mongodb_suite/run.py [WAY ...] [--files transactions_unified ...] [--only PATTERN] [--logs FOLDER] [--no-table]

They are the tests of pymongo, with the specifications' own files that all drivers share. Each file of tests has a fresh
server and a fresh Poolhouse. What passes directly has to pass through Poolhouse, except for what `reasons.py` explains.
Exit status 1: something else fails; 77: what this needs is not installed, or cannot be fetched.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import fetching
import reasons
import table

from support.mongodb_server import JavaServer, MongoPoolhouse, StandIn

RESULTS = HERE / "results.json"
# Each way through Poolhouse: what stands behind it, how drivers come, and what it is compared with: the same drivers
# directly, in front of a mongos, for which they take Poolhouse.
WAYS = {"replica-set": "direct", "sharded": "direct", "load-balanced": "load-balanced-direct"}
# Files that ask a server, and nothing that the stand-in has not: encryption, TLS, logins, search, several data centres.
FILES = """
    retryable_writes retryable_writes_unified retryable_reads retryable_reads_unified transactions transactions_unified session
    sessions_unified load_balancer crud_unified versioned_api versioned_api_integration command_monitoring command_logging
    read_write_concern_spec collection_management run_command unified_format change_stream::TestCollectionChangeStream
    discovery_and_monitoring connection_monitoring sdam_monitoring_spec monitoring cursor gridfs gridfs_bucket gridfs_spec
""".split()
AT_A_TIME = 2
# The exit status when what it needs is not installed, or cannot be fetched.
NOT_RUN = 77
# For a test, and for a file of tests.
TEST_SECONDS, FILE_SECONDS = 20, 900
LONG_WAIT_TIMES = {"max_size": 20, "max_wait_time": "10s", "unavailable_wait_time": "10s"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"default: all of {' '.join(WAYS)}")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="such as transactions_unified; the table keeps the others as they were")
    parser.add_argument("--only", metavar="PATTERN", help="as pytest -k takes it; leaves the table alone")
    parser.add_argument("--logs", type=pathlib.Path, metavar="FOLDER", help="write there what the tests say")
    parser.add_argument("--no-table", action="store_true", help="leave results.json and docs/mongodb.md alone")
    chosen = parser.parse_args()
    ways = chosen.ways or list(WAYS)
    if unknown := [way for way in ways if way not in WAYS]:
        parser.error(f"no such way: {', '.join(unknown)}")
    try:
        JavaServer.prepare()
        suite = fetching.suite()
    except (pytest.skip.Exception, subprocess.CalledProcessError) as missing:
        print(f"not run: {missing}")
        return NOT_RUN
    files = chosen.files or FILES
    jobs = [(way, file) for file in files for way in sorted({*ways, *(WAYS[way] for way in ways)})]
    with concurrent.futures.ThreadPoolExecutor(AT_A_TIME) as at_once:
        outcomes = dict(zip(jobs, at_once.map(lambda job: outcomes_of(suite, *job, chosen), jobs)))
    results = {way: {file: compared(outcomes[WAYS[way], file], outcomes[way, file]) for file in files} for way in ways}
    wrong = report(results)
    if not (chosen.only or chosen.no_table):
        keep(results)
    return int(wrong > 0)


def keep(results):
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for way, files in results.items():
        for file, found in files.items():
            kept.setdefault(way, {})[file] = found | {"missing": sorted(found["missing"])}
    kept = {way: {file: kept[way][file] for file in FILES if file in kept[way]} for way in WAYS if way in kept}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    table.write(fetching.VERSION, kept)


def compared(direct, through):
    """What passes directly, and of that what does not through Poolhouse."""
    passed = [test for test, outcome in direct.items() if outcome == "pass"]
    return {"direct": len(passed), "missing": {test: through.get(test, "not run") for test in passed if through.get(test) != "pass"}}


def outcomes_of(suite, way, file, chosen):
    """Each test with "pass", "skip", or why it failed."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-mongodb-suite-"))
    for name in ("server", "pool"):
        (directory / name).mkdir()
    server = StandIn(directory / "server", sharded=way != "replica-set" and way != "load-balanced").start()
    poolhouse = None
    try:
        if way in WAYS:
            poolhouse = MongoPoolhouse(directory / "pool", server).start(**LONG_WAIT_TIMES)
        return play(suite, way, file, (poolhouse or server).port, directory, chosen.only, chosen.logs)
    finally:
        if poolhouse:
            poolhouse.stop()
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def play(suite, way, file, port, directory, only=None, logs=None):
    folder, python = suite
    environment = {**os.environ, "DB_IP": "127.0.0.1", "DB_PORT": str(port)}
    if way.startswith("load-balanced"):
        uri = f"mongodb://127.0.0.1:{port}/?loadBalanced=true"
        environment |= {"TEST_LOAD_BALANCER": "1", "SINGLE_MONGOS_LB_URI": uri, "MULTI_MONGOS_LB_URI": uri}
    results = directory / "results.xml"
    name, _, only_class = file.partition("::")
    tests = f"test/test_{name}.py" + (f"::{only_class}" if only_class else "")
    # What Python finds when it collects garbage belongs to no particular test.
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-m", "default or load_balancer",
               "--tb=native", f"--timeout={TEST_SECONDS}", f"--junitxml={results}", *(["-k", only] if only else []), tests]
    with tempfile.TemporaryFile("w+") as said:
        running = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        try:
            running.wait(FILE_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
        said.seek(0)
        text = said.read()
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
        (logs / f"{file.replace('::', '-')}.{way}").write_text(text)
    if not results.exists():
        print(f"{file}, {way}: does not come to its end: {text[-500:]}", flush=True)
        return {}
    return dict(read(results))


def read(results):
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        name = f"{case.get('classname').rsplit('.', 1)[-1]}.{case.get('name')}"
        failed = case.find("failure") if case.find("failure") is not None else case.find("error")
        if failed is not None:
            yield name, " ".join(failed.get("message", "").split())[:300] or "it failed"
        else:
            yield name, "pass" if case.find("skipped") is None else "skip"


def report(results):
    """Prints what there is to say; how much of it is wrong."""
    wrong = 0
    for way, files in results.items():
        for file, found in files.items():
            print(f"{way}, {file}: {found['direct'] - len(found['missing'])} of {found['direct']}")
            for test, why in found["missing"].items():
                if not reasons.why(way, file, test):
                    wrong += 1
                    print(f"    fails: {test}\n        {why}")
    if not any(found["direct"] for files in results.values() for found in files.values()):
        wrong += 1
        print("no test passes directly")
    print(f"{wrong} failures without a known reason")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
