#!/usr/bin/env python3
"""Runs the tests of pgx, Go's driver for PostgreSQL, through Poolhouse, and beside it directly.

    tests/suites/regress/pgx.py [VARIANT ...] [--only PATTERN] [--log FILE] [--no-table]

Its module, of the version that tests/suites/clients/pgx uses, is downloaded and copied into /regress. Exit status 1: a
test fails through Poolhouse only, and tests/suites/regress/pgx_reasons.py does not say why.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import pgx_reasons
import superuser

from support import generated_docs, pooler

RESULTS = HERE / "pgx_results.json"
PLACE = pooler.ROOT / "regress"
MODULE = "github.com/jackc/pgx/v5"
PACKAGES = (".", "./pgconn", "./pgtype", "./stdlib", "./pgxpool")
DATABASE = "pgx_test"
POOL = {"max_size": 20, "max_wait_time": "60s"}
PINNED = {"max_pinned": 20}
VARIANTS = {
    "direct": (None, {}, {}),
    "transaction": (pooler.Poolhouse, {**POOL, "mode": "transaction"}, PINNED),
    "session": (pooler.Poolhouse, {**POOL, "mode": "session"}, {}),
}
NAMES = {"direct": "directly", "transaction": "Poolhouse, transaction mode", "session": "Poolhouse, session mode"}
# What pgx's own testsetup/postgresql_setup.sql makes, but for the roles of logins that are not tested.
PREPARATION = (
    "CREATE EXTENSION hstore", "CREATE EXTENSION ltree", "CREATE DOMAIN uint64 AS numeric(20,0)",
    """CREATE USER " tricky, ' } "" \\ test user " SUPERUSER PASSWORD 'secret'""", "CREATE USER root SUPERUSER",
)

INTRODUCTION = """`make pgx-suite` runs pgx {version}'s own tests (the packages `{packages}`). Subtests
count, too. Tests that need logins of other kinds skip themselves.

| | pass | fail | skipped |
|-|-|-|-|
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=f"default: all of {' '.join(VARIANTS)}")
    parser.add_argument("--only", metavar="PATTERN", help="no other tests, as go test -run takes it; leaves the table alone")
    parser.add_argument("--log", type=pathlib.Path, metavar="FOLDER", help="write there what the tests say")
    parser.add_argument("--no-table", action="store_true", help="leave pgx_results.json and docs/suites.md alone")
    chosen = parser.parse_args()
    names = chosen.variants or list(VARIANTS)
    if unknown := [name for name in names if name not in VARIANTS]:
        parser.error(f"no such variant: {', '.join(unknown)}")
    if shutil.which("go") is None:
        print("not run: no Go")
        return 0
    source, version = module()
    found = {}
    for name in names:
        outcomes = run(name, source, chosen)
        counted = {what: sorted(test for test, outcome in outcomes.items() if outcome == what) for what in ("pass", "fail", "skip")}
        found[name] = {"passed": len(counted["pass"]), "skipped": len(counted["skip"]), "failed": counted["fail"]}
        print(f"{name}: {len(counted['pass'])} passed, {len(counted['fail'])} failed, {len(counted['skip'])} skipped", flush=True)
        print("".join(f"   failed: {test}\n" for test in counted["fail"]), end="", flush=True)
    # Read only now: other variants may have been run meanwhile.
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"variants": {}}
    results |= {"version": version, "variants": results["variants"] | found}
    results["variants"] = {name: results["variants"][name] for name in VARIANTS if name in results["variants"]}
    if not (chosen.only or chosen.no_table):
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        write(results)
    unexplained = [f"{test} ({name})" for name in names for test in only_through_poolhouse(results, name) if not pgx_reasons.why(test)]
    print(f"{len(unexplained)} failures without a known reason" + "".join(f"\n  {one}" for one in unexplained))
    return min(len(unexplained), 1)


def only_through_poolhouse(results, name):
    direct = results["variants"].get("direct", {"failed": []})["failed"]
    return [test for test in results["variants"][name]["failed"] if name != "direct" and test not in direct]


def module():
    """A copy of the module's source that may be written to, and its version."""
    version = re.search(rf"{MODULE} v(\S+)", (pooler.ROOT / "tests/suites/clients/pgx/go.mod").read_text())[1]
    place = PLACE / f"pgx-{version}"
    if not place.exists():
        said = subprocess.run(["go", "mod", "download", "-json", f"{MODULE}@v{version}"], check=True, text=True, stdout=subprocess.PIPE).stdout
        PLACE.mkdir(exist_ok=True)
        shutil.copytree(json.loads(said)["Dir"], place, copy_function=shutil.copyfile)
        for path in [place, *place.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
    return place, version


def prepare(cluster):
    with cluster.superuser() as db:
        db.execute(f"CREATE DATABASE {DATABASE}")
    with cluster.superuser(DATABASE) as db:
        for statement in PREPARATION:
            db.execute(statement)


def run(name, source, chosen):
    """Each test with "pass", "fail" or "skip"."""
    kind, settings, entry = VARIANTS[name]
    print(f"== {name}", flush=True)
    with superuser.way_to_a_server(DATABASE, kind, settings, entry, prepare) as (target, _):
        words = " ".join(f"{key}='{value}'" for key, value in target.items())
        environment = {**os.environ, "PGX_TEST_DATABASE": words, "GOFLAGS": "-mod=mod"}
        command = ["go", "test", "-json", "-count=1", "-p=1", "-timeout=400s", *(["-run", chosen.only] if chosen.only else []), *PACKAGES]
        done = subprocess.run(command, cwd=source, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if chosen.log:
        chosen.log.mkdir(parents=True, exist_ok=True)
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        (chosen.log / name).write_text("".join(event.get("Output", "") for event in events))
    return outcomes_of(done.stdout)


def outcomes_of(text):
    outcomes = {}
    for line in text.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Action") in ("run", "pass", "fail", "skip") and "Test" in event:
            package = event["Package"].removeprefix(MODULE).strip("/") or "pgx"
            # A test that has begun and does not end has failed.
            outcomes[f"{package}: {event['Test']}"] = {"run": "fail"}.get(event["Action"], event["Action"])
    if not outcomes:
        raise SystemExit(f"no test was run:\n{text[-3000:]}")
    return outcomes


def write(results):
    text = INTRODUCTION.format(version=results["version"], packages=" ".join(PACKAGES))
    for name, outcome in results["variants"].items():
        text += f"| {NAMES[name]} | {outcome['passed']} | {len(outcome['failed'])} | {outcome['skipped']} |\n"
    reasons = {}
    for name in results["variants"]:
        for test in only_through_poolhouse(results, name):
            reasons.setdefault(pgx_reasons.why(test) or "not known yet", {}).setdefault(test, []).append(NAMES[name].removeprefix("Poolhouse, "))
    if reasons:
        text += "\nThese tests fail through Poolhouse and pass directly:\n\n| because | tests |\n|-|-|\n"
    for reason, tests in sorted(reasons.items()):
        text += f"| {reason} | {', '.join(f'`{test}` ({modes_of(modes)})' for test, modes in sorted(tests.items()))} |\n"
    generated_docs.put("pgx", text)


def modes_of(modes):
    return modes[0] if len(modes) == 1 else "both modes"


if __name__ == "__main__":
    sys.exit(main())
