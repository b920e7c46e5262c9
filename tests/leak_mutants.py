#!/usr/bin/env python3
"""Puts defects back, one at a time, and lets the leak hunter (tests/leaks.py) look for each: how many statements until it is found?

    tests/leak_mutants.py                              every mutant that has a patch
    tests/leak_mutants.py stale-plan large-bind        only these
    tests/leak_mutants.py --binary PATH                no patches: the hunter is let loose on this binary, with each mutant's features
    tests/leak_mutants.py --none                       the same with today's build, in which nothing may be found

tests/leaking/mutants.json lists the defects with the features of the hunter that find them; tests/mutants/NAME.patch puts one back (git
apply), and is built in a temporary worktree. Exit status 0: all were found (--none: nothing was); 1: not so.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/leaking/mutants.json"
PATCHES = ROOT / "tests/mutants"
TABLE = PATCHES / "found.md"


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; none are all that have a patch")
    parser.add_argument("--binary", type=pathlib.Path, metavar="PATH", help="hunt on this binary instead of building mutants")
    parser.add_argument("--none", action="store_true", help="hunt on today's build, where nothing may be found")
    parser.add_argument("--statements", type=int, default=50_000, metavar="N", help="give up after so many (default %(default)s)")
    parser.add_argument("--seeds", default="1", metavar="S,...", help="one hunt for each (default %(default)s)")
    parser.add_argument("--all-features", action="store_true", help="with all of the hunter's features, not only those that are meant to find it")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target/mutants", metavar="DIR", help="CARGO_TARGET_DIR of all builds (default %(default)s)")
    parser.add_argument("--table", type=pathlib.Path, default=TABLE, metavar="FILE", help="what was found, as a table (default %(default)s)")
    return parser.parse_args(argv)


class Mutant:
    """One defect of the list. `patch` may not be there yet."""

    def __init__(self, name, features, database, defect, test, mode="transaction", settings=(), environment=None):
        self.name, self.features, self.database, self.defect, self.test = name, features, database, defect, test
        self.mode, self.settings, self.environment = mode, settings, environment or {}
        self.patch = PATCHES / f"{name}.patch"

    def build(self, target):
        """The binary with the patch; a text instead if it cannot be made."""
        tree = pathlib.Path(tempfile.mkdtemp(prefix="mutant-")) / "tree"
        try:
            git("worktree", "add", "--detach", str(tree), "HEAD")
            if problem := git("apply", str(self.patch), tree=tree, may_fail=True):
                return f"the patch does not apply: {problem.strip().splitlines()[0]}"
            built = subprocess.run(["cargo", "build", "--release", "--locked", "-p", "poolhouse"], cwd=tree, env={**os.environ, "CARGO_TARGET_DIR": str(target)},
                                   capture_output=True, text=True)
            if built.returncode:
                return f"does not build: {next((l for l in built.stderr.splitlines() if l.startswith('error')), built.stderr[-200:])}"
            # The next build overwrites it.
            binary = target / f"poolhouse-{self.name}"
            shutil.copy2(target / "release/poolhouse", binary)
            return binary
        finally:
            git("worktree", "remove", "--force", str(tree), may_fail=True)
            shutil.rmtree(tree.parent, ignore_errors=True)

    def hunt(self, binary, seed, chosen):
        """The hunter's record of one run."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, ROOT / "tests/leaks.py", "--seed", seed, "--statements", chosen.statements, "--database", self.database, "--mode", self.mode,
                       "--json", file.name, "--no-shrink"]
            if not chosen.all_features:
                command += ["--with", self.features]
            for setting in self.settings:
                command += ["--set", setting]
            ended = subprocess.run([str(part) for part in command], env={**os.environ, **self.environment, "POOLHOUSE": str(binary)}, capture_output=True, text=True)
            if ended.returncode not in (0, 1) or not pathlib.Path(file.name).stat().st_size:
                return {"found": None, "statements": 0, "seconds": 0, "problem": (ended.stderr.strip().splitlines() or ["?"])[-1]}
            return json.loads(pathlib.Path(file.name).read_text())


def git(*command, tree=ROOT, may_fail=False):
    ended = subprocess.run(["git", "-C", str(tree), *command], capture_output=True, text=True)
    if ended.returncode and not may_fail:
        sys.exit(f"git {' '.join(command)}: {ended.stderr}")
    return ended.stderr if ended.returncode else ""


def listed(names):
    mutants = {entry["name"]: Mutant(**entry) for entry in json.loads(LIST.read_text())}
    if unknown := set(names) - set(mutants):
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}; there are {', '.join(mutants)}")
    for patch in sorted(PATCHES.glob("*.patch")):
        if patch.stem not in mutants:
            sys.exit(f"{patch} is not in {LIST}")
    return [mutant for name, mutant in mutants.items() if name in names or not names]


def write_table(path, rows):
    lines = ["# What the leak hunter finds", "", "Statements until a leak is found with that defect in the code, by `tests/leak_mutants.py`.", "",
             "| defect | features | statements | seconds | what was seen |", "|-|-|-|-|-|"]
    for mutant, records in rows:
        for record in records:
            what = record.get("problem") or (record["found"] or "nothing")[:120]
            count = record["statements"] if record["found"] else f"not in {record['statements']}"
            lines.append(f"| {mutant.name}: {cell(mutant.defect)} | {mutant.features} | {count} | {record['seconds']} | {cell(what)} |")
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def cell(text):
    return " ".join(text.replace("|", "\\|").split())


def main(argv=None):
    chosen = arguments(argv)
    binary = chosen.binary or (os.environ.get("POOLHOUSE") or ROOT / "target/release/poolhouse" if chosen.none else None)
    rows, good = [], True
    for mutant in listed(chosen.names):
        where = binary
        if where is None:
            if not mutant.patch.exists():
                if mutant.name in chosen.names:
                    sys.exit(f"{mutant.patch} is not there")
                print(f"{mutant.name}: no patch")
                continue
            where = mutant.build(chosen.target)
        if isinstance(where, str) and binary is None:
            records = [{"found": None, "statements": 0, "seconds": 0, "problem": where}]
        else:
            records = [mutant.hunt(where, seed, chosen) for seed in chosen.seeds.split(",")]
        rows.append((mutant, records))
        for record in records:
            good &= bool(record["found"]) != chosen.none and not record.get("problem")
            print(f"{mutant.name}: {record.get('problem') or ('found after ' + str(record['statements']) if record['found'] else 'not found in ' + str(record['statements']))}"
                  f" statements, {record['seconds']} s{': ' + record['found'][:100] if record['found'] else ''}", flush=True)
        write_table(chosen.table, rows)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
