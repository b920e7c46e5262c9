#!/usr/bin/env python3
"""Hundreds of clients change their sessions in every way they can, and after every statement compare all that they can
see with a reference session connected to PostgreSQL directly that was told the same.

    tests/hunts/adversary.py --statements 100000 --clients 200 --seed 7
    tests/hunts/adversary.py --without listen,temp --pinners 0
    tests/hunts/adversary.py --subject direct          PostgreSQL beside itself: what differs then is this program's mistake

Starts a PostgreSQL of its own, and Poolhouse (POOLHOUSE=path names the binary). Exit status 0: no difference; 1: one
was found, and is printed with the client's history and the command that plays it again; 2: wrong usage.
"""

import argparse
import asyncio
import pathlib
import random
import resource
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from hunts.adversarial import world
from hunts.adversarial.comparison import Difference, Sides, compare
from hunts.adversarial.statements import FEATURES, OFF_BY_DEFAULT, PINNING
from support import pooler
from support.postgres_cluster import Cluster

HOST = "127.0.0.1"


def arguments(argv):
    listed = "\n".join(f"  {name:14}{what}" for name, what in FEATURES.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"features:\n{listed}", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--statements", type=int, default=20_000, metavar="N", help="in all (default %(default)s)")
    parser.add_argument("--clients", type=int, default=100, metavar="C", help="at once (default %(default)s)")
    parser.add_argument("--seed", type=int, default=None, metavar="S", help="default: a random one, which is printed")
    parser.add_argument("--client", type=int, action="append", metavar="NUMBER", help="play only this one (again for more)")
    parser.add_argument("--with", dest="features", type=names, default=set(FEATURES) - OFF_BY_DEFAULT, metavar="FEATURE,...", help="only these")
    parser.add_argument("--without", type=names, default=set(), metavar="FEATURE,...", help="all but these")
    parser.add_argument("--also", type=names, default=set(), metavar="FEATURE,...", help="these, too, which are off by default")
    parser.add_argument("--subject", choices=["pooler", "direct"], default="pooler", help="what is compared with PostgreSQL")
    parser.add_argument("--mode", default="transaction", help="the pooler's (default %(default)s)")
    parser.add_argument("--servers", type=int, default=8, metavar="N", help="the pooler's max_size (default %(default)s)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="the pooler's threads (default %(default)s)")
    parser.add_argument("--pinners", type=int, default=None, metavar="N",
                        help="clients that may use what needs a server of their own (default: a quarter of the servers; direct: all)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a further setting of the database in poolhouse.toml")
    chosen = parser.parse_args(argv)
    if chosen.seed is None:
        chosen.seed = random.randrange(1 << 31)
    if chosen.pinners is None:
        # Two pools, of the ordinary role and of the superuser: pinners of one may all be in the same.
        chosen.pinners = chosen.clients if chosen.subject == "direct" else chosen.servers // 4
    return chosen


def names(text):
    found = {name for name in text.split(",") if name}
    if unknown := found - set(FEATURES):
        raise argparse.ArgumentTypeError(f"no such feature: {', '.join(sorted(unknown))}")
    return found


def make_cluster(directory, clients):
    """PostgreSQL with the two databases, and room for that many sessions on each side."""
    cluster = Cluster(directory)
    cluster.make()
    with (cluster.data / "postgresql.conf").open("a") as conf:
        # Temporary tables leave dead rows in the catalogs, which would slow down every look at them. Who switches
        # sequential scans off makes plans look dear, and every new session would load the compiler for them.
        conf.write(f"max_connections = {2 * clients + 60}\nautovacuum = on\nautovacuum_naptime = 5s\nlog_min_messages = fatal\n"
                   f"log_min_error_statement = panic\njit_above_cost = -1\n")
    cluster.stop("immediate")
    cluster.start()
    with cluster.superuser() as db:
        for sql in world.make_roles():
            db.execute(sql)
    for name in (world.SUBJECT, world.REFERENCE):
        with cluster.superuser(name) as db:
            for sql in world.make_objects(clients):
                db.execute(sql)
    return cluster


class Settled(pooler.Poolhouse):
    """Poolhouse with further settings of the database, which may be newer than the tests' other settings."""

    further = ()

    def config(self, settings):
        text = super().config(settings)
        return text.replace("[[database]]\n", "[[database]]\n" + "".join(f"{line}\n" for line in self.further))


def start_pooler(directory, cluster, chosen):
    made = Settled(directory, cluster) if pooler.KIND == "poolhouse" else pooler.make(directory, cluster)
    made.further = chosen.set
    url = f"postgres://{HOST}:{cluster.port}/{world.SUBJECT}"
    return made.start(users={world.APP: world.PASSWORD, world.ADMIN: world.PASSWORD}, databases={world.SUBJECT: {"url": url}},
                      mode=chosen.mode, max_size=chosen.servers, workers=chosen.workers, max_wait_time="50s", max_auth_failures=1_000_000)


def replay_command(chosen, client=None):
    parts = [f"tests/hunts/adversary.py --seed {chosen.seed} --statements {chosen.statements} --clients {chosen.clients}",
             f"--pinners {chosen.pinners} --subject {chosen.subject}"]
    if chosen.features != set(FEATURES) - OFF_BY_DEFAULT:
        parts.append(f"--with {','.join(sorted(chosen.features))}")
    if chosen.without:
        parts.append(f"--without {','.join(sorted(chosen.without))}")
    if chosen.also:
        parts.append(f"--also {','.join(sorted(chosen.also))}")
    if chosen.subject == "pooler":
        parts.append(f"--mode {chosen.mode} --servers {chosen.servers} --workers {chosen.workers}")
        parts += [f"--set '{setting}'" for setting in chosen.set]
    if client is not None:
        parts.append(f"--client {client}")
    return " ".join(parts)


def run(chosen, say=print):
    """Plays it all; returns the Progress, or raises Difference."""
    features = (chosen.features | chosen.also) - chosen.without
    pinning = sorted(features & PINNING) if chosen.pinners else []
    say(f"seed {chosen.seed}: {chosen.clients} clients, {chosen.pinners} of them with {', '.join(pinning) or 'nothing that pins'}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="adversary-"))
    directory.chmod(0o755)
    cluster = subject = None
    try:
        for name in ("pg", "pooler"):
            (directory / name).mkdir()
        cluster = make_cluster(directory / "pg", chosen.clients)
        port = cluster.port
        if chosen.subject == "pooler":
            subject = start_pooler(directory / "pooler", cluster, chosen)
            port = subject.port
        sides = Sides((HOST, port, world.SUBJECT), (HOST, cluster.port, world.REFERENCE))
        began = time.monotonic()

        def report(progress):
            rate = progress.statements / (time.monotonic() - began)
            say(f"  {progress.statements} statements, {progress.connections} connections, {rate:.0f} statements a second")

        def stuck():
            """What all clients do while one of them gets no answer."""
            with cluster.superuser() as db:
                rows = db.execute("SELECT datname, pid, state, wait_event_type, wait_event, now() - state_change, pg_blocking_pids(pid), left(query, 200) "
                                  "FROM pg_stat_activity WHERE state <> 'idle' AND pid <> pg_backend_pid() ORDER BY state_change").fetchall()
            for row in rows:
                say(f"  {row}")
            if chosen.subject == "pooler" and pooler.KIND == "poolhouse":
                for path in ("/api/pools", "/api/clients?limit=200", "/api/servers"):
                    say(f"  {path}: {subject.get(path)[1]}")
                say(subject.log()[-3000:])

        numbers = chosen.client or range(chosen.clients)
        each = chosen.statements // chosen.clients
        progress = asyncio.run(compare(numbers, each * len(numbers), chosen.seed, features, chosen.pinners, sides, report, stuck))
        report(progress)
        if subject:
            subject.stop()
        return progress
    finally:
        if subject and subject.process:
            subject.process.kill()
            subject.process.wait()
        if cluster and cluster.running():
            cluster.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)


def main(argv=None):
    chosen = arguments(argv)
    # Ended from outside, it takes along what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        run(chosen)
    except Difference as difference:
        print(f"DIFFERENCE, seed {chosen.seed}, {difference}")
        print(f"  again:        {replay_command(chosen)}")
        print(f"  it alone:     {replay_command(chosen, difference.client)}")
        return 1
    print("no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
