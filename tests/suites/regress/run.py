#!/usr/bin/env python3
"""Runs PostgreSQL's own regression suite through Poolhouse, and beside it directly and through PgBouncer.

    tests/suites/regress/run.py [VARIANT ...] [--only FILE,...] [--diffs FOLDER] [--no-table]

Downloads the suite into /regress. Exit status 1: a file fails through Poolhouse only, and
tests/suites/regress/reasons.py does not say why.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import reasons
import sources
import superuser
import table
from suite import AT_ONCE, DATABASE, Suite, prepare

from support import pooler

RESULTS = HERE / "results.json"
# The rival that `make setup-bench` unpacks, unless another one is named or it could not be had.
UNPACKED = HERE.parents[2] / ".venv/pgbouncer/run"
if UNPACKED.exists():
    os.environ.setdefault("PGBOUNCER", str(UNPACKED))
# Every file of a group may need a server of its own.
POOL = {"max_size": 2 * AT_ONCE, "max_wait_time": "60s"}
PINNED = {"max_pinned": 2 * AT_ONCE}
# name: (what is between, its settings, those of the database's entry in poolhouse.toml)
VARIANTS = {
    "direct": (None, {}, {}),
    "transaction": (pooler.Poolhouse, {**POOL, "mode": "transaction"}, PINNED),
    "transaction-reset-always": (pooler.Poolhouse, {**POOL, "mode": "transaction"}, {**PINNED, "reset": "always"}),
    "transaction-pool-of-6": (pooler.Poolhouse, {"max_size": 6, "max_wait_time": "60s", "mode": "transaction"}, {"max_pinned": 6}),
    "session": (pooler.Poolhouse, {**POOL, "mode": "session"}, {}),
    "pgbouncer-session": (pooler.PgBouncer, {**POOL, "mode": "session"}, {}),
    "pgbouncer-transaction": (pooler.PgBouncer, {**POOL, "mode": "transaction"}, {}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", metavar="VARIANT", help=f"default: {' '.join(VARIANTS)}")
    parser.add_argument("--only", metavar="FILE,...", default="", help="no other files (test_setup always)")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="files of a group at the same time")
    parser.add_argument("--diffs", type=pathlib.Path, metavar="FOLDER", help="write there what differs, one file each")
    parser.add_argument("--no-table", action="store_true", help="leave results.json and docs/suites.md alone")
    chosen = parser.parse_args()
    only = [name for name in chosen.only.split(",") if name]
    names = chosen.variants or list(VARIANTS)
    if unknown := [name for name in names if name not in VARIANTS]:
        parser.error(f"no such variant: {', '.join(unknown)}")
    try:
        source, libraries = sources.fetch()
    except sources.Unavailable as reason:
        print(f"not run: {reason}")
        return 0
    found = {}
    for name in names:
        outcomes = run(name, source, libraries, only, chosen)
        failed = sorted(file for file, difference in outcomes.items() if difference)
        found[name] = {"files": len(outcomes), "failed": failed}
        print(f"{name}: {len(outcomes) - len(failed)} of {len(outcomes)} passed", flush=True)
    # Read only now: other variants may have been run meanwhile.
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results |= {"version": source.parent.name, "pgbouncer": pgbouncer_version(), "variants": results.get("variants", {}) | found}
    if not (only or chosen.no_table):
        results["variants"] = {name: results["variants"][name] for name in VARIANTS if name in results["variants"]}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        table.write(results, AT_ONCE)
    unexplained = [f"{file} ({name})" for name in names for file in unexpected(results, name)]
    print(f"{len(unexplained)} failures without a known reason" + "".join(f"\n  {one}" for one in unexplained))
    return min(len(unexplained), 1)


def pgbouncer_version():
    said = subprocess.run([pooler.PgBouncer.binary(), "--version"], text=True, capture_output=True).stdout
    return " ".join(said.split()[:2])


def unexpected(results, name):
    """Files that fail through Poolhouse but not directly, and that nobody has explained."""
    if VARIANTS[name][0] is not pooler.Poolhouse:
        return []
    direct = results["variants"].get("direct", {"failed": []})["failed"]
    return [file for file in results["variants"][name]["failed"] if file not in direct and not reasons.why(file)]


def run(name, source, libraries, only, chosen):
    kind, settings, entry = VARIANTS[name]
    print(f"== {name}", flush=True)

    def told(file, difference):
        if difference:
            print(f"   differs: {file}", flush=True)
            if chosen.diffs:
                (chosen.diffs / name).mkdir(parents=True, exist_ok=True)
                (chosen.diffs / name / f"{file}.diff").write_text(difference)

    with superuser.way_to_a_server(DATABASE, kind, settings, entry, prepare) as (target, directory):
        # Each of them may need a server of its own.
        at_once = min(chosen.at_once, settings.get("max_size", chosen.at_once))
        return Suite(source, libraries, directory).run(target, only, at_once, told)


if __name__ == "__main__":
    sys.exit(main())
