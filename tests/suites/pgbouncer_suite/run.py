#!/usr/bin/env python3
"""Runs PgBouncer's own tests with Poolhouse in its place, and beside it with PgBouncer itself.

    tests/suites/pgbouncer_suite/run.py [poolhouse] [pgbouncer] [--only PATTERN] [--at-once NUMBER] [--log FOLDER] [--no-table]

The tests are downloaded into /regress. Most of their time is sleep, so several run at once, each with a PostgreSQL of
its own; what fails is run once more, alone. Exit status 1: a test fails with Poolhouse, and `reasons.py` does not say
why; 77: the tests cannot be had here.
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
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import fetching
import reasons
import table

from support import pooler
from support.postgres_cluster import give_away, program, unprivileged

RESULTS = HERE / "results.json"
RIVAL = pooler.ROOT / ".venv/pgbouncer"
VARIANTS = ("poolhouse", "pgbouncer")
# The exit status when the tests cannot be had.
NOT_RUN = 77
AT_ONCE = 6
# For a test with what it sets up, a server of PostgreSQL first of all.
TEST_SECONDS = 90
# The tests make certificates of X.509 version 1, which Poolhouse refuses; with this `openssl` in front of the system's they
# are of version 3, so that all else about TLS is tested.
OPENSSL = """#!/bin/sh
test "$1" = ca || exec {openssl} "$@"
shift
exec {openssl} ca -extfile "$(dirname "$0")/extensions" "$@"
"""
EXTENSIONS = "basicConstraints = critical,CA:FALSE\n"
SUITE_SECONDS = 3600


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=f"default: {' '.join(VARIANTS)}")
    parser.add_argument("--only", metavar="PATTERN", help="no other tests, as pytest -k takes it; leaves the table alone")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="tests at the same time")
    parser.add_argument("--log", type=pathlib.Path, metavar="FOLDER", help="write there what the tests say")
    parser.add_argument("--no-table", action="store_true", help="leave results.json and docs/suites.md alone")
    chosen = parser.parse_args()
    names = chosen.variants or list(VARIANTS)
    if unknown := [name for name in names if name not in VARIANTS]:
        parser.error(f"no such variant: {', '.join(unknown)}")
    try:
        suite, version, packages = fetching.suite()
    except fetching.Unavailable as reason:
        print(f"not run: PgBouncer's source of Debian's suite {fetching.SUITE}, or what its tests need, cannot be had: {reason}")
        return NOT_RUN
    found = {}
    for name in names:
        if name == "pgbouncer" and not (RIVAL / "run").exists():
            print("pgbouncer: not run, since scripts/pgbouncer.sh could not have it")
            continue
        found[name] = outcomes_of(name, suite, packages, chosen)
        show(name, found[name])
    # Read only now: the other variant may have been run meanwhile.
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"variants": {}}
    results |= {"version": version, "variants": results["variants"] | {name: counted(outcomes) for name, outcomes in found.items()}}
    if not (chosen.only or chosen.no_table):
        results["variants"] = {name: results["variants"][name] for name in VARIANTS if name in results["variants"]}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        table.write(results)
    failed = [test for test, outcome in found.get("poolhouse", {}).items() if outcome not in ("pass", "skip")]
    unexplained = [test for test in failed if not reasons.why(test)]
    print(f"{len(unexplained)} failures without a known reason" + "".join(f"\n  {test}" for test in unexplained))
    return min(len(unexplained), 1)


def counted(outcomes):
    """For each file how many tests pass and are skipped, and which fail."""
    files = {}
    for test, outcome in outcomes.items():
        file, name = test.split("::", 1)
        counts = files.setdefault(file, {"passed": 0, "skipped": 0, "failed": []})
        match outcome:
            case "pass":
                counts["passed"] += 1
            case "skip":
                counts["skipped"] += 1
            case _:
                counts["failed"].append(name)
    return files


def show(name, outcomes):
    for file, counts in counted(outcomes).items():
        print(f"{name}, {file}: {counts['passed']} passed, {len(counts['failed'])} failed, {counts['skipped']} skipped")
        for test in (f"{file}::{test}" for test in counts["failed"]):
            known = reasons.why(test) if name == "poolhouse" else None
            print(f"    {test}: {known or outcomes[test]}", flush=True)


def outcomes_of(name, suite, packages, chosen):
    """Each test with "pass", "skip", or what it failed with."""
    with tempfile.TemporaryDirectory(prefix="pgbouncer-suite-", ignore_cleanup_errors=True) as temporary:
        place = pathlib.Path(temporary)
        shutil.copytree(suite, place / "suite")
        # Any user may read what the tests run with, wherever this checkout is.
        shutil.copytree(packages, place / "packages")
        install(name, place / "suite")
        programs = place / "programs"
        programs.mkdir()
        (programs / "openssl").write_text(OPENSSL.format(openssl=shutil.which("openssl")))
        (programs / "openssl").chmod(0o755)
        (programs / "extensions").write_text(EXTENSIONS)
        for path in (place, *place.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                give_away(path)
        outcomes = play(place, chosen, ["-n", str(chosen.at_once)], f"{name}.log")
        again = [test for test, outcome in outcomes.items() if outcome not in ("pass", "skip") and not reasons.why(test)]
        if again:
            tests = [f"{test.split('::')[0]}.py::{test.split('::', 1)[1]}" for test in again]
            outcomes |= play(place, chosen, ["-n", "0"], f"{name}-again.log", tests)
    if not outcomes:
        raise SystemExit("no test was run")
    return dict(sorted(outcomes.items()))


def install(name, folder):
    """Puts the program where the tests look for it."""
    if name == "pgbouncer":
        shutil.copytree(RIVAL, folder / "rival")
        (folder / "pgbouncer").symlink_to("rival/run")
        return
    built = pathlib.Path(pooler.BINARY)
    try:
        os.link(built, folder / "pgbouncer")
    except OSError:
        shutil.copy(built, folder / "pgbouncer")


def python():
    """A Python of this version that the user can run as whom PostgreSQL runs; this one may be in a private folder."""
    said = "import sys; print(sys.version_info[:2])"
    for path in (os.path.realpath(sys.executable), "/usr/bin/python3"):
        try:
            done = subprocess.run([path, "-c", said], cwd="/", text=True, capture_output=True, **unprivileged())
        except OSError:
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return path
    raise SystemExit(f"no Python {sys.version_info[0]}.{sys.version_info[1]} that an unprivileged user can run")


def play(place, chosen, options, log, tests=("",)):
    """Plays these tests, all by default."""
    results = place / "results.xml"
    results.unlink(missing_ok=True)
    command = [python(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:logging", "--tb=native", "--no-showlocals", f"--basetemp={place / 'tests'}",
               f"--junitxml={results}", "-o", "junit_family=xunit1", f"--timeout={TEST_SECONDS}", *(["-k", chosen.only] if chosen.only else []), *options,
               # The tests change the current folder.
               *(f"{place}/suite/test/{test}" for test in tests)]
    path = f"{place / 'programs'}:{pathlib.Path(program('initdb')).parent}:{os.environ['PATH']}:/usr/sbin"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "PYTEST", "PYTHON"))}
    variables = {**kept, "PATH": path, "PYTHONPATH": str(place / "packages"), "PYTHONDONTWRITEBYTECODE": "1", "HOME": str(place), "LC_ALL": "C.UTF-8"}
    if pathlib.Path("/proc/net/if_inet6").exists() and pathlib.Path("/proc/net/if_inet6").read_text().strip():
        variables["HAVE_IPV6_LOCALHOST"] = "1"
    (place / "tests").mkdir(exist_ok=True)
    give_away(place / "tests")
    done = subprocess.run(command, cwd=place / "suite", env=variables, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=SUITE_SECONDS, **unprivileged())
    if chosen.log:
        chosen.log.mkdir(parents=True, exist_ok=True)
        (chosen.log / log).write_text(done.stdout)
    if not results.exists():
        raise SystemExit(f"the tests do not come to their end: {done.stdout[-3000:]}")
    return dict(read(results))


def read(results):
    for case in xml.etree.ElementTree.parse(results).iter("testcase"):
        name = f"{case.get('classname').rsplit('.', 1)[-1]}::{case.get('name')}"
        problems = [problem for kind in ("failure", "error") for problem in case.findall(kind)]
        if problems:
            yield name, " ".join(re.sub(r"\s+", " ", problem.get("message", "")) for problem in problems)[:300] or "it failed"
        else:
            yield name, "pass" if case.find("skipped") is None else "skip"


if __name__ == "__main__":
    sys.exit(main())
