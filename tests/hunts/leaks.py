#!/usr/bin/env python3
"""Clients do to their sessions whatever may outlive a transaction, written in every way there is, and others who come
to the same few servers look whether they can see it.

    tests/hunts/leaks.py --statements 100000 --seed 7
    tests/hunts/leaks.py --with temp,path --servers 1 --mode session
    tests/hunts/leaks.py --seed 7 --turns 12,80           only these turns of that run

Starts a PostgreSQL of its own, and Poolhouse (POOLHOUSE=path names the binary). Exit status 0: nothing was found; 1: a
leak was found, and is printed as a short history with the command that plays it again; 2: wrong usage.
"""

import argparse
import contextlib
import json
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from hunts.leaking import world
from hunts.leaking.deeds import FEATURES, OFF_BY_DEFAULT
from hunts.leaking.hunt import ERA, Leak, Stage, make_turn
from hunts.leaking.sharing import Sharing
from hunts.leaking.shrink import shrink
from support import pooler
from support.postgres_cluster import PASSWORDS, Cluster

# Turns on one pooler before the next is started: what the pooler has learned may hide what it would do at first.
# do at first.
TURNS_PER_POOLER = 400


def arguments(argv):
    listed = "\n".join(f"  {name:12}{what}" for name, what in FEATURES.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"features:\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=20_000, metavar="N", help="ends after N statements (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="default: a random one, which is printed")
    parser.add_argument("--turns", type=numbers, default=None, metavar="T,...", help="play only these, on one pooler")
    parser.add_argument("--with", dest="features", type=names, default=set(FEATURES) - OFF_BY_DEFAULT, metavar="FEATURE,...", help="only these")
    parser.add_argument("--without", type=names, default=set(), metavar="FEATURE,...", help="all but these")
    parser.add_argument("--also", type=names, default=set(), metavar="FEATURE,...", help="these, too, which are off by default")
    parser.add_argument("--database", choices=["quiet", "hidden", "both"], default="both",
                        help="without functions that change sessions, with them, or both (default)")
    parser.add_argument("--mode", choices=["transaction", "session", "statement"], default="transaction", help="the pooler's (default %(default)s)")
    parser.add_argument("--servers", type=int, default=1, metavar="N", help="the pooler's max_size (default %(default)s)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="the pooler's threads (default %(default)s)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a further setting of the databases, such as reset=\"always\"")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a shorter history")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="writes what was found, or that nothing was")
    chosen = parser.parse_args(argv)
    if chosen.seed is None:
        chosen.seed = random.randrange(1 << 31)
    chosen.all_features = (chosen.features | chosen.also) - chosen.without
    if not chosen.all_features:
        parser.error("no features are left")
    return chosen


def names(text):
    found = {name for name in text.split(",") if name}
    if unknown := found - set(FEATURES):
        raise argparse.ArgumentTypeError(f"no such feature: {', '.join(sorted(unknown))}")
    return found


def numbers(text):
    return [int(part) for part in text.split(",")]


def setting(text):
    """KEY=VALUE of TOML; the quotes of the value may be missing."""
    key, _, value = (part.strip() for part in text.partition("="))
    with contextlib.suppress(ValueError):
        return key, json.loads(value)
    return key, value


@contextlib.contextmanager
def make_cluster():
    """PostgreSQL with the two databases."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="leaks-"))
    directory.chmod(0o755)
    (directory / "pg").mkdir()
    cluster = Cluster(directory / "pg")
    try:
        cluster.make()
        with (cluster.data / "postgresql.conf").open("a") as conf:
            # Temporary tables leave dead rows in the catalogs, which would slow down every look at them.
            conf.write("autovacuum = on\nautovacuum_naptime = 5s\nmax_replication_slots = 100\nlog_min_messages = fatal\nlog_min_error_statement = panic\n")
        cluster.stop("immediate")
        cluster.start()
        world.make(cluster)
        yield cluster
    finally:
        if cluster.running():
            cluster.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def stage(cluster, chosen):
    """A pooler that has just been started and has no clients yet."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="leaks-"))
    directory.chmod(0o755)
    made = pooler.make(directory, cluster)
    stage = None
    if chosen.all_features & {"objects", "made", "plans", "phases", "meanwhile"}:
        world.tidy(cluster)

    def start(**settings):
        return made.start(workers=chosen.workers, **settings)

    try:
        Sharing(start, cluster, mode=chosen.mode, max_size=chosen.servers, wait="150ms", **dict(setting(s) for s in chosen.set))
        stage = Stage(made, cluster, Sharing.password, chosen.mode)
        yield stage
    finally:
        if stage:
            stage.close()
        if made.process:
            made.process.kill()
            made.process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def command(chosen, turns=None):
    """The command that repeats these turns."""
    parts = [f"tests/hunts/leaks.py --seed {chosen.seed} --statements {chosen.statements} --database {chosen.database} --mode {chosen.mode}",
             f"--servers {chosen.servers} --workers {chosen.workers}"]
    if chosen.features != set(FEATURES) - OFF_BY_DEFAULT:
        parts.append(f"--with {','.join(sorted(chosen.features))}")
    if chosen.without:
        parts.append(f"--without {','.join(sorted(chosen.without))}")
    if chosen.also:
        parts.append(f"--also {','.join(sorted(chosen.also))}")
    parts += [f"--set '{text}'" for text in chosen.set]
    if turns:
        parts.append(f"--turns {','.join(map(str, turns))}")
    return " ".join(parts)


def played(cluster, chosen, turns):
    """Runs these turns on a pooler of their own: the Leak or None, and the counts of the stage."""
    with stage(cluster, chosen) as there:
        try:
            for turn in turns:
                there.play(turn)
        except Leak as leak:
            return leak, there
        return None, there


class Found:
    """The outcome of a run: `leak` is None if nothing was found; `turns` is the history that leads to it."""

    def __init__(self, statements, checks, seconds, leak=None, turns=()):
        self.statements, self.checks, self.seconds, self.leak, self.turns = statements, checks, seconds, leak, turns

    def record(self, chosen):
        return {"seed": chosen.seed, "statements": self.statements, "checks": self.checks, "seconds": round(self.seconds, 1),
                "found": self.leak and self.leak.what, "features": sorted({turn.feature for turn in self.turns} - {""}),
                "again": command(chosen, [turn.number for turn in self.turns]) if self.leak else command(chosen)}


def hunt(cluster, chosen, say=print):
    """Runs until a leak is found or the number of statements is reached; returns Found."""
    databases = {"quiet": [world.QUIET], "hidden": [world.HIDDEN], "both": [world.QUIET, world.HIDDEN]}[chosen.database]
    say(f"seed {chosen.seed}: {', '.join(sorted(chosen.all_features))}")
    began, statements, checks, number = time.monotonic(), 0, 0, 0
    while statements < chosen.statements:
        if chosen.turns:
            wanted = chosen.turns
        else:
            count = ERA if "objects" in chosen.all_features else TURNS_PER_POOLER
            wanted = range(number, number + count)
            number += count
        turns = [make_turn(chosen.seed, n, chosen.all_features, databases) for n in wanted]
        leak, there = played(cluster, chosen, turns)
        statements, checks = statements + there.statements, checks + there.checks
        seconds = time.monotonic() - began
        if leak:
            say(f"  found after {statements} statements and {seconds:.1f} s: {leak.what}")
            turns = [turn for turn in turns if turn.number <= leak.number] if not chosen.turns else turns[: 1 + chosen.turns.index(leak.number)]
            if not chosen.no_shrink:
                turns, leak = shrink(turns, leak, lambda some: played(cluster, chosen, some)[0])
            return Found(statements, checks, seconds, leak, turns)
        say(f"  {statements} statements, {checks} looks, {statements / seconds:.0f} statements a second, {there.unserved} unserved")
        if chosen.turns:
            break
    return Found(statements, checks, time.monotonic() - began)


def main(argv=None):
    chosen = arguments(argv)
    # If the hunt is ended by a signal, it ends the processes that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with make_cluster() as cluster:
        found = hunt(cluster, chosen)
    if chosen.json:
        chosen.json.write_text(json.dumps(found.record(chosen), indent=2) + "\n")
    if found.leak:
        print(f"LEAK, seed {chosen.seed}: {found.leak.what}")
        for turn in found.turns:
            print(f"  {turn}")
        print(f"  again: {command(chosen, [turn.number for turn in found.turns])}")
        return 1
    print(f"no leak in {found.statements} statements")
    return 0


if __name__ == "__main__":
    sys.exit(main())
