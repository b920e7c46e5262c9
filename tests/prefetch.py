#!/usr/bin/env python3
"""Fetches and builds what tests with programs in other languages need, where that was not done: `.ci/run` does it while the compiler works, so
that no test waits for it. What cannot be fetched is said, and its tests are skipped."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "mongodb_suite")]

import fetching
import java_programs
import mongodb_server
from _pytest.outcomes import Skipped

WANTED = {
    "mongo-java-server": mongodb_server.JavaServer.prepare,
    "HikariCP": lambda: java_programs.prepare(HERE / "hikaricp", "HikariCP"),
    "the service of the cases": lambda: subprocess.run([HERE.parent / "examples/telemetry/build.sh"], check=True),
    "the tests of pymongo": fetching.suite,
}

for name, fetch in WANTED.items():
    try:
        fetch()
    except (Skipped, OSError, subprocess.CalledProcessError) as missing:
        print(f"{name}: not fetched: {missing}")
