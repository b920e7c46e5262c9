#!/usr/bin/env python3
"""Puts defects back, one at a time, and lets the leak hunter (tests/hunts/leaks.py) look for each: how many statements
until it is found?

    tests/hunts/leak_mutants.py                              every mutant
    tests/hunts/leak_mutants.py stale-plan large-bind        only these; the other rows of the table stay as they are
    tests/hunts/leak_mutants.py --binary PATH                no patches: the hunter is let loose on this binary, with each mutant's features
    tests/hunts/leak_mutants.py --none                       the same with today's build, in which nothing may be found

tests/hunts/leaking/mutants.json lists the defects with the features of the hunter that find them;
crates/proof/mutants/leaks/NAME.patch puts one back (git apply). Where the hunter has none, the named test is run
instead: it has to fail. All are built of HEAD, in one worktree of their own, so that only what a patch touches is built
again; the next is built while the hunter looks for the one before. Exit status 0: all were found (--none: nothing was);
1: not so.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/hunts/leaking/mutants.json"
PATCHES = ROOT / "crates/proof/mutants/leaks"
TABLE = PATCHES / "found.md"
# A profile of Cargo.toml that builds quickly, because each mutant is built.
PROFILE = "mutants"
# The sources of a binary.
SOURCES = ("crates", "Cargo.toml", "Cargo.lock")


def arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of mutants; none are all")
    parser.add_argument("--binary", type=pathlib.Path, metavar="PATH", help="hunt on this binary instead of building mutants")
    parser.add_argument("--none", action="store_true", help="hunt on today's build, where nothing may be found")
    parser.add_argument("--statements", type=int, default=50_000, metavar="N", help="give up after N statements (default %(default)s)")
    parser.add_argument("--seeds", default="1", metavar="S,...", help="one hunt for each (default %(default)s)")
    parser.add_argument("--all-features", action="store_true", help="with all of the hunter's features, not only those that are meant to find it")
    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "target/mutants", metavar="DIR", help="where they are built (default %(default)s)")
    parser.add_argument("--table", type=pathlib.Path, default=None, metavar="FILE", help=f"what was found, as a table (default {TABLE.relative_to(ROOT)}; none with --binary or --none)")
    return parser.parse_args(argv)


class Mutant:
    """One defect of the list. `note`: the other layer that the patch also disables for this way, because it would catch
    the defect."""

    def __init__(self, name, features, database, defect, test, mode="transaction", servers=1, settings=(), environment=None, note=""):
        self.name, self.features, self.database, self.defect, self.test = name, features, database, defect, test
        self.mode, self.servers, self.settings, self.environment, self.note = mode, servers, settings, environment or {}, note
        self.patch = PATCHES / f"{name}.patch"

    def hunt(self, binary, seed, chosen):
        """The hunter's record of one run."""
        if not self.features:
            return self.run_test(binary)
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [sys.executable, ROOT / "tests/hunts/leaks.py", "--seed", seed, "--statements", chosen.statements, "--database", self.database, "--mode", self.mode,
                       "--servers", self.servers, "--json", file.name, "--no-shrink"]
            if not chosen.all_features:
                command += ["--with", self.features]
            for setting in self.settings:
                command += ["--set", setting]
            ended = subprocess.run([str(part) for part in command], env={**os.environ, **self.environment, "POOLHOUSE": str(binary.resolve())}, capture_output=True, text=True)
            if ended.returncode not in (0, 1) or not pathlib.Path(file.name).stat().st_size:
                return failed((ended.stderr.strip().splitlines() or ["?"])[-1])
            return json.loads(pathlib.Path(file.name).read_text())

    def run_test(self, binary):
        """The same record for a test."""
        began = time.monotonic()
        environment = {**os.environ, **self.environment, "POOLHOUSE": str(binary.resolve())}
        ended = run(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", ROOT / "tests" / self.test, cwd=ROOT, env=environment)
        if ended.returncode not in (0, 1):
            return failed((ended.stdout.strip().splitlines() or ["?"])[-1])
        seen = [line for line in ended.stdout.splitlines() if line.startswith("E  ")] or ["it fails"]
        found = " ".join(seen[0][1:].split()) if ended.returncode else None
        return {"found": found, "statements": "its test", "seconds": round(time.monotonic() - began)}


def failed(problem):
    return {"found": None, "statements": 0, "seconds": 0, "problem": problem}


class Workshop:
    """The worktree in which mutants are built, and their binaries. `package` is the crate of the binary, which has the
    same name."""

    def __init__(self, target, package="poolhouse"):
        self.package, self.target, self.tree = package, target.resolve(), target.resolve() / "tree"
        self.target.mkdir(parents=True, exist_ok=True)
        if git("rev-parse", "--show-toplevel", tree=self.tree, may_fail=True).strip() != str(self.tree):
            # The worktree is missing or damaged.
            shutil.rmtree(self.tree, ignore_errors=True)
            git("worktree", "prune")
            git("worktree", "add", "--detach", str(self.tree), "HEAD")
        self.clean()
        git("checkout", "--quiet", "--detach", git("rev-parse", "HEAD").strip(), tree=self.tree)
        self.sources = git("rev-parse", *(f"HEAD:{path}" for path in SOURCES), tree=self.tree)

    def clean(self):
        git("checkout", "--quiet", "--", ".", tree=self.tree)

    def build(self, mutant):
        """The binary with the defect. Raises Unbuildable."""
        binary, key = (self.target / f"{self.package}-{mutant.name}{end}" for end in ("", ".key"))
        wanted = hashlib.sha256(self.sources.encode() + mutant.patch.read_bytes()).hexdigest()
        if binary.exists() and key.exists() and key.read_text() == wanted:
            return binary
        try:
            applied = run("git", "-C", self.tree, "apply", mutant.patch)
            if applied.returncode:
                raise Unbuildable(f"the patch does not apply: {applied.stderr.strip().splitlines()[0]}")
            built = run("cargo", "build", "--profile", PROFILE, "--locked", "-p", self.package, cwd=self.tree, env={**os.environ, "CARGO_TARGET_DIR": str(self.target)})
            if built.returncode:
                raise Unbuildable(f"does not build: {next((line for line in built.stderr.splitlines() if line.startswith('error')), built.stderr[-200:])}")
            # The next build overwrites it.
            key.unlink(missing_ok=True)
            shutil.copy2(self.target / PROFILE / self.package, binary)
            key.write_text(wanted)
            return binary
        finally:
            self.clean()


class Unbuildable(Exception):
    """The patch does not apply or the result does not build."""


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)


def git(*command, tree=ROOT, may_fail=False):
    ended = run("git", "-C", tree, *command)
    if ended.returncode and not may_fail:
        sys.exit(f"git {' '.join(command)}: {ended.stderr}")
    return ended.stdout


def listed(names):
    mutants = {entry["name"]: Mutant(**entry) for entry in json.loads(LIST.read_text())}
    if unknown := set(names) - set(mutants):
        sys.exit(f"no such mutant: {', '.join(sorted(unknown))}; there are {', '.join(mutants)}")
    for patch in sorted(PATCHES.glob("*.patch")):
        if patch.stem not in mutants:
            sys.exit(f"{patch} is not in {LIST}")
    if missing := [name for name, mutant in mutants.items() if not mutant.patch.exists()]:
        sys.exit(f"no patch for {', '.join(missing)}")
    return list(mutants.values())


HEADING = ["# What the leak hunter finds", "",
           "Statements until a leak is found with that defect in the code, by `make adversary-mutants`. Where another layer would catch the defect,",
           "the patch takes that away for the same way only, as the last column says. Where the hunter has no features for it, its test fails.", "",
           "| defect | features | statements | seconds | what was seen | taken away, too |", "|-|-|-|-|-|-|"]


def write_table(path, mutants, found):
    """Rows of mutants that are not in `found` stay as they are."""
    rows = {}
    if path.exists():
        for line in path.read_text().splitlines():
            if known := re.match(r"\| ([a-z-]+): ", line):
                rows.setdefault(known[1], []).append(line)
    for mutant, records in found:
        rows[mutant.name] = [row(mutant, record) for record in records]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(HEADING + [line for mutant in mutants for line in rows.get(mutant.name, [])]) + "\n")


def row(mutant, record):
    what = record.get("problem") or (record["found"] or "nothing")[:120]
    count = record["statements"] if record["found"] else f"not in {record['statements']}"
    return f"| {mutant.name}: {cell(mutant.defect)} | {mutant.features or 'none'} | {count} | {round(record['seconds'])} | {cell(what)} | {cell(mutant.note)} |"


def cell(text):
    return " ".join(text.replace("|", "\\|").split())


def say(mutant, record):
    tried = f"after {record['statements']} statements" if mutant.features else "by its test"
    if problem := record.get("problem"):
        outcome = problem
    elif record["found"]:
        outcome = f"found {tried}, {record['seconds']} s: {record['found'][:100]}"
    else:
        outcome = f"not found {tried}, {record['seconds']} s"
    print(f"{mutant.name}: {outcome}", flush=True)


def records(mutant, binary, build, chosen):
    """The records for this binary, or for the one that is being built, one for each seed."""
    try:
        where = binary or build.result()
    except Unbuildable as problem:
        return [failed(str(problem))]
    return [mutant.hunt(where, seed, chosen) for seed in chosen.seeds.split(",")]


def main(argv=None):
    chosen = arguments(argv)
    mutants = listed(chosen.names)
    wanted = [mutant for mutant in mutants if not chosen.names or mutant.name in chosen.names]
    binary = chosen.binary or (pathlib.Path(os.environ.get("POOLHOUSE") or ROOT / "target/release/poolhouse") if chosen.none else None)
    table = chosen.table or (None if binary else TABLE)
    found, good = [], True
    with concurrent.futures.ThreadPoolExecutor(1) as builder:
        workshop = None if binary else Workshop(chosen.target)
        builds = [None if binary else builder.submit(workshop.build, mutant) for mutant in wanted]
        try:
            for mutant, build in zip(wanted, builds):
                found.append((mutant, records(mutant, binary, build, chosen)))
                for record in found[-1][1]:
                    good &= bool(record["found"]) != chosen.none and not record.get("problem")
                    say(mutant, record)
                if table:
                    write_table(table, mutants, found)
        finally:
            builder.shutdown(cancel_futures=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
