#!/usr/bin/env python3
"""Downloads and builds the programs in other languages that tests need. `.ci/run` runs it while the compiler works, so
that no test waits for it. It reports what cannot be fetched; the tests that need that are skipped.
"""

import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "suites/mongodb_suite")]

import fetching
from _pytest.outcomes import Skipped

from support import java_programs, mongodb_server

WANTED = {
    "mongo-java-server": mongodb_server.JavaServer.prepare,
    "HikariCP": lambda: java_programs.prepare(TESTS / "suites/hikaricp", "HikariCP"),
    "the service of the cases": lambda: subprocess.run([TESTS.parent / "examples/telemetry/build.sh"], check=True),
    "the tests of pymongo": fetching.suite,
}

for name, fetch in WANTED.items():
    try:
        fetch()
    except (Skipped, OSError, subprocess.CalledProcessError) as missing:
        print(f"{name}: not fetched: {missing}")
