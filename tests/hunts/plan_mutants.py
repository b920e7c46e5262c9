#!/usr/bin/env python3
"""Puts other rules into the pool, one at a time, and sees whether the planner's tests notice: the plan follows the real
pool.

    tests/hunts/plan_mutants.py                       every mutant
    tests/hunts/plan_mutants.py equal-lives           only these

crates/proof/mutants/plan/mutants.json lists the rules; NAME.patch beside it puts one in (git apply). All are built of
HEAD, in a worktree of their own. Exit status 0: each made a test of the planner fail; 1: not so.
"""

import argparse
import json
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from hunts.leak_mutants import PROFILE, ROOT, Workshop, run

FOLDER = ROOT / "crates/proof/mutants/plan"


def judge(workshop, patch):
    """The tests that fail with this rule, or what kept them from being run."""
    try:
        applied = run("git", "-C", workshop.tree, "apply", patch)
        if applied.returncode:
            return None, f"the patch does not apply: {applied.stderr.strip()}"
        ended = run("cargo", "test", "--profile", PROFILE, "--locked", "-p", "planner", "--test", "planner", "rules", cwd=workshop.tree,
                    env={**os.environ, "CARGO_TARGET_DIR": str(workshop.target)})
        if "test result: " not in ended.stdout:
            return None, f"it does not build: {ended.stderr[-300:]}"
        return sorted(set(re.findall(r"^test (\S+) \.\.\. FAILED$", ended.stdout, re.MULTILINE))), ""
    finally:
        workshop.clean()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; none are all")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target/mutants", metavar="DIR", help="where they are built (default %(default)s)")
    chosen = parser.parse_args(argv)
    mutants = json.loads((FOLDER / "mutants.json").read_text())
    if unknown := set(chosen.names) - {mutant["name"] for mutant in mutants}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    workshop, good = Workshop(chosen.target, "planner"), True
    for mutant in mutants:
        if chosen.names and mutant["name"] not in chosen.names:
            continue
        failed, problem = judge(workshop, FOLDER / f"{mutant['name']}.patch")
        good &= bool(failed)
        seen = problem or ", ".join(name.removeprefix("rules::") for name in failed) or "NOT NOTICED"
        print(f"{mutant['name']}: {mutant['rule']}\n    {seen}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
