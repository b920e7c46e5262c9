#!/usr/bin/env python3
"""Puts defects back, one at a time, and lets the simulator look for each: how many schedules until it is found?

    tests/hunts/sim_mutants.py                        every mutant
    tests/hunts/sim_mutants.py handed-on-dirty        only these; the other rows of the table stay as they are

crates/proof/mutants/sim/mutants.json lists the defects; NAME.patch beside it puts one back (git apply). All are built
of HEAD, in a worktree of their own. Exit status 0: all were found; 1: not so.
"""

import argparse
import json
import pathlib
import re
import sys
import time
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from hunts.leak_mutants import ROOT, Unbuildable, Workshop, cell, run

# Of the simulator: some defects never let a schedule end.
MAX_MEMORY_BYTES = 4 << 30
FOLDER = ROOT / "crates/proof/mutants/sim"
TABLE = FOLDER / "found.md"
HEADING = ["# What the simulator finds", "", "How many schedules, from seed 1 on, `make sim-mutants` plays until the simulator finds each defect.", "",
           "| defect | schedules | seconds | what was seen |", "|-|-|-|-|"]


def hunt(binary, verb, most):
    """(The number of schedules until something was found, or None; seconds; what was seen.) Which seed is found first
    depends on the processors a little: they take turns.
    """
    began = time.monotonic()
    ended = run("prlimit", f"--as={MAX_MEMORY_BYTES}", binary, verb, "--schedules", most, "--seed", 1)
    seconds = time.monotonic() - began
    seed = re.search(r"^seed (\d+); replay with:", ended.stderr, re.MULTILINE)
    if not seed:
        return None, seconds, "nothing"
    seen = ended.stderr[: seed.start()].strip().splitlines()[-1]
    return int(seed[1]), seconds, seen


def row(mutant, found, seconds, seen, most):
    count = found if found else f"not in {most}"
    return f"| {mutant.name}: {cell(mutant.defect)} | {count} | {round(seconds)} | {cell(seen)[:160]} |"


def write_table(rows, mutants):
    kept = {}
    if TABLE.exists():
        for line in TABLE.read_text().splitlines():
            if known := re.match(r"\| ([a-z-]+): ", line):
                kept[known[1]] = line
    kept.update(rows)
    TABLE.write_text("\n".join(HEADING + [kept[mutant.name] for mutant in mutants if mutant.name in kept]) + "\n")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; none are all")
    parser.add_argument("--schedules", type=int, default=50_000, metavar="N", help="give up after N schedules (default %(default)s)")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target/mutants", metavar="DIR", help="where they are built (default %(default)s)")
    chosen = parser.parse_args(argv)
    mutants = [types.SimpleNamespace(**entry, patch=FOLDER / f"{entry['name']}.patch") for entry in json.loads((FOLDER / "mutants.json").read_text())]
    if unknown := set(chosen.names) - {mutant.name for mutant in mutants}:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    workshop, rows, good = Workshop(chosen.target, "sim"), {}, True
    for mutant in mutants:
        if chosen.names and mutant.name not in chosen.names:
            continue
        try:
            found, seconds, seen = hunt(workshop.build(mutant), mutant.verb, chosen.schedules)
        except Unbuildable as problem:
            found, seconds, seen = None, 0, str(problem)
        good &= found is not None
        rows[mutant.name] = row(mutant, found, seconds, seen, chosen.schedules)
        print(rows[mutant.name], flush=True)
        write_table(rows, mutants)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
