#!/usr/bin/env python3
"""What `poolhouse doctor` says of trouble that is made on purpose, and of healthy runs that resemble it: real servers,
real clients, every case many times with other numbers each time. Prints the confusion matrix, and writes it.

    tests/hunts/doctor_matrix.py --runs 20                       all cases
    tests/hunts/doctor_matrix.py --runs 5 postgres:leak          only these
    tests/hunts/doctor_matrix.py --render FILE.json              the tables of a result file

A case draws its numbers (clients, pauses, sizes) from its name and a seed. `--first-seed` says where the seeds begin:
thresholds were set on seeds below 1000, and what is committed was judged on those from 1000 on. Right is what names
exactly the faults that were made: nothing on a healthy run, both on a run with two. Undetermined is wrong, except where
a case is ambiguous by design. Exit status 0: no false alarm on a healthy run, and 95% right on the rest.

Environment: POOLHOUSE=path of the binary, PGBOUNCER=path.
"""

import argparse
import collections
import contextlib
import datetime
import json
import os
import pathlib
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from hunts import doctor_cases

ROOT = pathlib.Path(__file__).resolve().parents[2]
WATCHER, SECRET = "watcher", "watcher-secret"
AMBIGUOUS = "ambiguous"
JOIN_TIMEOUT = 60


class Load:
    """Clients that go on until the run is over. An error that is not the end's is a broken run."""

    def __init__(self, stack):
        self.over, self.problems, self.threads = threading.Event(), [], []
        stack.callback(self.end)

    def begin(self, work, after=0.0, may_fail=False):
        def run():
            if self.over.wait(after):
                return
            try:
                work()
            except Exception as problem:  # whatever it is, it is told
                if not self.over.is_set() and not may_fail:
                    self.problems.append(repr(problem))

        self.threads.append(threading.Thread(target=run, daemon=True))
        self.threads[-1].start()

    def crowd(self, connect, many, what, after=0.0, may_fail=False):
        """Runs `many` clients that stay connected and each repeat `what(client)`."""
        def work():
            with connect() as client:
                while not self.over.is_set():
                    what(client)

        for _ in range(many):
            self.begin(work, after, may_fail)

    def visitors(self, connect, many, what, after=0.0, until=None):
        """Runs `many` clients at a time that connect, do `what(client)` and leave."""
        def work():
            end = time.monotonic() + until if until else float("inf")
            while not self.over.is_set() and time.monotonic() < end:
                with connect() as client:
                    what(client)

        for _ in range(many):
            self.begin(work, after)

    def end(self, timeout=JOIN_TIMEOUT):
        self.over.set()
        deadline = time.monotonic() + timeout
        for thread in self.threads:
            thread.join(max(0, deadline - time.monotonic()))


class Lane:
    """A PostgreSQL of its own, and what stands in front of it for one run."""

    def __init__(self, directory):
        from support import pooler, postgres_cluster

        self.module, self.directory = pooler, pathlib.Path(directory)
        self.passwords = postgres_cluster.PASSWORDS
        self.cluster = postgres_cluster.Cluster(self.directory / "pg")
        self.cluster.directory.mkdir()
        self.cluster.make()
        with self.cluster.superuser() as db:
            db.execute(f"CREATE ROLE {WATCHER} LOGIN PASSWORD '{SECRET}' IN ROLE pg_monitor")
        with self.direct() as db:
            db.query("CREATE TABLE wanted (n int)")
            db.query("INSERT INTO wanted VALUES (0)")
        self.number = 0

    def direct(self, **parameters):
        """A connection to the database itself."""
        from support.postgres_wire import Wire
        return Wire(self.cluster.port, 30).login("app", self.passwords["app"], "bench", **parameters)

    @property
    def url(self):
        return f"postgres://{WATCHER}:{SECRET}@127.0.0.1:{self.cluster.port}/postgres"

    def pooler(self, stack, kind, **settings):
        self.number += 1
        directory = self.directory / f"p{self.number}"
        directory.mkdir()
        made = {"poolhouse": self.module.Poolhouse, "pgbouncer": self.module.PgBouncer}[kind](directory, self.cluster)
        if kind == "pgbouncer":
            settings["users"] = {"app": self.passwords["app"], WATCHER: SECRET}
            settings["ini"] = {"stats_users": WATCHER, "admin_users": "app"}
        stack.callback(stopped, made)
        made.start(**settings)
        made.look_at = made.admin_url if kind == "poolhouse" else f"postgres://{WATCHER}:{SECRET}@127.0.0.1:{made.port}/pgbouncer"
        return made

    def clear(self):
        """Waits until no session is left from the run before."""
        if not self.cluster.running():
            self.cluster.start()
        deadline = time.monotonic() + 10
        while self.cluster.backends():
            self.cluster.terminate()
            if time.monotonic() > deadline:
                raise RuntimeError("sessions of the run before do not end")
            time.sleep(0.05)


def stopped(made):
    """Ends a pooler, in whatever state its database is."""
    if made.process is None:
        return
    made.process.terminate()
    try:
        made.process.wait(5)
    except subprocess.TimeoutExpired:
        made.process.kill()
        made.process.wait()


# -- what clients do


def sleep(seconds):
    return lambda client: client.query(f"SELECT pg_sleep({seconds})")


def now_and_then(load, rng, seconds=0.005):
    pause = rng.uniform(0.05, 0.15)

    def once(client):
        client.query(f"SELECT pg_sleep({seconds})")
        load.over.wait(pause)
    return once


def pauses(load, seconds):
    """A transaction that is left open for a while."""
    def once(client):
        client.query("BEGIN")
        client.query("SELECT 1")
        load.over.wait(seconds)
        client.query("COMMIT")
        load.over.wait(0.01)
    return once


def one(client):
    client.query("SELECT 1")


def contended(seconds):
    return lambda client: client.query(f"UPDATE wanted SET n = n + 1 WHERE pg_sleep({seconds}) IS NOT NULL")


def keep(load, connect, many, sql, **parameters):
    """Connections on which one query was sent."""
    def work():
        clients = [connect(**parameters) for _ in range(many)]
        for client in clients:
            client.query(sql)
        load.over.wait()
        for client in clients:
            client.close()
    load.begin(work)


# -- cases: each begins its load and returns what to look at, with which further arguments, for how long. `made` is the
# pooler, if there is one.


def too_small(lane, kind, rng, load, stack):
    size = rng.randint(3, 5)
    made = lane.pooler(stack, kind, max_size=size)
    work = sleep(rng.uniform(0.008, 0.02))
    load.crowd(made.wire, 1, work)
    load.crowd(made.wire, rng.randint(3 * size, 4 * size), work, after=2.5)
    return made.look_at, [], "8s"


def saturated_slowly(lane, kind, rng, load, stack):
    made = lane.pooler(stack, kind, max_size=rng.randint(7, 9))
    work = contended(rng.uniform(0.008, 0.012))
    for n, more in enumerate((1, 1, 2, 2, 10)):
        load.crowd(made.wire, more, work, after=1.8 * n)
    return made.look_at, [], "12s"


def left_open(lane, kind, rng, load, stack):
    size = rng.randint(3, 6)
    made = lane.pooler(stack, kind, max_size=size)
    load.crowd(made.wire, 3 * size, pauses(load, rng.uniform(0.35, 0.9)))
    time.sleep(1)
    return made.look_at, [], "5s"


def leak(lane, kind, rng, load, stack):
    size = rng.randint(3, 6)
    made = lane.pooler(stack, kind, max_size=size)
    keep(load, made.wire, rng.randint((2 * size + 2) // 3, size - 1), "BEGIN")
    time.sleep(0.5)
    load.crowd(made.wire, size + 4, sleep(0.01))
    time.sleep(4)
    return made.look_at, ["--database", lane.url] if kind == "pgbouncer" else [], "4s"


def leak_without_the_database(lane, kind, rng, load, stack):
    return leak(lane, kind, rng, load, stack)[0], [], "4s"


def held_by_idle(lane, kind, rng, load, stack):
    size = rng.randint(2, 5)
    made = lane.pooler(stack, kind, max_size=size, mode="session", max_wait_time="60s")
    keep(load, made.wire, size, "SELECT 1")
    time.sleep(0.5)
    load.crowd(lambda: made.wire(timeout=60), rng.randint(1, 4), one, may_fail=True)
    time.sleep(1)
    return made.look_at, ["--database", lane.url] if kind == "pgbouncer" else [], "4s"


def another_limit(lane, kind, rng, load, stack):
    made = lane.pooler(stack, kind, max_size=10, max_connections=rng.randint(2, 3))
    load.crowd(made.wire, rng.randint(8, 14), sleep(rng.uniform(0.01, 0.03)))
    time.sleep(0.5)
    return made.look_at, [], "4s"


def paused(lane, kind, rng, load, stack):
    made = lane.pooler(stack, kind, max_size=4, max_wait_time="60s")
    load.crowd(lambda: made.wire(timeout=60), rng.randint(2, 8), sleep(0.01), may_fail=True)
    time.sleep(0.5)
    if kind == "poolhouse":
        assert made.ctl("pause").returncode == 0
    else:
        with contextlib.closing(made.wire(database="pgbouncer")) as console:
            console.query("PAUSE bench")
    return made.look_at, [], "3s"


def ephemeral(lane, kind, rng, load, stack):
    made = lane.pooler(stack, kind, max_size=4)
    load.visitors(made.wire, rng.randint(2, 4), one)
    return made.look_at, [], "5s"


def idle_churn(lane, kind, rng, load, stack):
    """Connections that cost something, as they do from one machine to another."""
    size = rng.randint(6, 10)
    bench = {"url": lane.cluster.url("bench"), "connect_query": "SELECT pg_sleep(0.03)"}
    made = lane.pooler(stack, kind, max_size=size, max_idle_time="300ms", databases={"bench": bench})

    def bursts():
        while not load.over.is_set():
            crowd = [threading.Thread(target=lambda: burst_of_one(made)) for _ in range(size)]
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join()
            load.over.wait(rng.uniform(0.9, 1.3))

    load.begin(bursts)
    time.sleep(6)
    return made.look_at, [], "6s"


def burst_of_one(made):
    with contextlib.closing(made.wire()) as client:
        for _ in range(8):
            client.query("SELECT pg_sleep(0.02)")


def out_of_reach(lane, kind, rng, load, stack):
    made = lane.pooler(stack, kind, max_size=2, max_wait_time="60s", **({"unavailable_wait_time": "60s"} if kind == "poolhouse" else {}))
    with contextlib.closing(made.wire()) as client:
        client.query("SELECT 1")
    lane.cluster.stop("immediate")
    load.crowd(lambda: made.wire(timeout=60), rng.randint(1, 5), one, may_fail=True)
    time.sleep(2)
    return made.look_at, [], "4s"


def crowded_out(lane, kind, rng, load, stack):
    """Others have the connections that the database allows."""
    made = lane.pooler(stack, kind, max_size=20)
    load.crowd(made.wire, rng.randint(2, 4), sleep(0.01))
    time.sleep(0.5)
    taken, all_taken = rng.randint(2, 3), threading.Event()

    def take():
        clients = []
        with contextlib.suppress(Exception):
            while len(clients) < 100:
                clients.append(lane.direct(application_name=f"other-{len(clients) % taken}"))
        all_taken.set()
        load.over.wait()
        for client in clients:
            client.close()

    load.begin(take)
    if not all_taken.wait(20):
        raise RuntimeError("the others do not get all connections")
    load.crowd(made.wire, rng.randint(8, 14), sleep(rng.uniform(0.01, 0.03)))
    time.sleep(0.5)
    return made.look_at, [], "5s"


def stampede(lane, kind, rng, load, stack):
    """The database goes and comes back while it is looked at, and the pool makes all its connections at once. Each
    costs some work.
    """
    many = rng.randint(12, 18)
    bench = {"url": lane.cluster.url("bench"), "connect_query": f"SELECT count(*) FROM generate_series(1, {rng.randint(300_000, 500_000)})"}
    made = lane.pooler(stack, kind, max_size=20, max_connecting=20, max_wait_time="60s", unavailable_wait_time="60s", databases={"bench": bench})
    time.sleep(persistent(load, made, many))
    outage(lane, load, 2)
    return made.look_at, [], "12s"


def persistent(load, made, many):
    """Clients who come one after the other, and come again if their connection ends. Returns when all are there."""
    def work():
        while not load.over.is_set():
            with contextlib.suppress(Exception), made.wire(timeout=60) as client:
                while not load.over.is_set():
                    client.query("SELECT pg_sleep(0.05)")

    for n in range(many):
        load.begin(work, after=0.3 * n)
    return 0.3 * many + 1


def outage(lane, load, after):
    """The database goes, and comes back two seconds later."""
    def go():
        lane.cluster.stop("immediate")
        time.sleep(2)
        lane.cluster.start()

    load.begin(go, after)


def zombies(lane, kind, rng, load, stack):
    """Clients that say nothing any more, not even goodbye."""
    made = lane.pooler(stack, kind, max_size=4, client_idle_time="1s")
    load.crowd(made.wire, 2, now_and_then(load, rng))
    keep(load, made.wire, rng.randint(8, 20), "SELECT 1")
    return made.look_at, [], "9s"


def pool_of_pools(lane, kind, rng, load, stack):
    connect = lane.direct if kind == "postgres" else lane.pooler(stack, kind, max_size=4).wire
    each = rng.randint(4, 6)

    def pools():
        clients = []
        for _ in range(66 // each + 1):
            clients += [connect() for _ in range(each)]
            load.over.wait(2.0 if kind == "pgbouncer" else 0.5)
        load.over.wait()
        for client in clients:
            client.close()

    load.begin(pools)
    time.sleep((66 // each + 1) * (2.0 if kind == "pgbouncer" else 0.6) + 1)
    return lane.url if kind == "postgres" else stack.made.look_at, [], "3s"


# Of the database alone.


def d_ephemeral(lane, kind, rng, load, stack):
    load.visitors(lane.direct, rng.randint(2, 4), one)
    load.crowd(lane.direct, 2, now_and_then(load, rng))
    return lane.url, [], "5s"


def d_left_open(lane, kind, rng, load, stack):
    load.crowd(lane.direct, rng.randint(4, 10), pauses(load, rng.uniform(0.35, 0.9)))
    load.crowd(lambda: lane.direct(application_name="other"), 2, now_and_then(load, rng))
    time.sleep(1)
    return lane.url, [], "5s"


def d_leak(lane, kind, rng, load, stack):
    keep(load, lane.direct, rng.randint(3, 8), "BEGIN", application_name="leaky")
    load.crowd(lane.direct, 3, now_and_then(load, rng))
    time.sleep(1)
    return lane.url, [], "4s"


def d_locks(lane, kind, rng, load, stack):
    load.crowd(lane.direct, rng.randint(5, 12), contended(rng.uniform(0.01, 0.03)))
    time.sleep(0.5)
    return lane.url, [], "4s"


def d_processors(lane, kind, rng, load, stack):
    many = rng.randint(200_000, 400_000)
    load.crowd(lane.direct, rng.randint(7, 10), lambda client: client.query(f"SELECT sum(n * n) FROM generate_series(1::bigint, {many}) AS n"))
    time.sleep(0.5)
    return lane.url, ["--processors", "2"], "5s"


def d_kept(lane, kind, rng, load, stack):
    for n in range(4):
        keep(load, lane.direct, rng.randint(21, 22), "SELECT 1", application_name=f"web-{n}")
    load.crowd(lane.direct, rng.randint(1, 4), now_and_then(load, rng))
    time.sleep(2)
    return lane.url, [], "4s"


def d_churn(lane, kind, rng, load, stack):
    many = rng.randint(6, 10)

    def bursts():
        while not load.over.is_set():
            clients = [lane.direct() for _ in range(many)]
            for _ in range(10):
                for client in clients:
                    client.query("SELECT 1")
            load.over.wait(1.5)
            for client in clients:
                client.close()
            load.over.wait(rng.uniform(0.3, 0.6))

    load.begin(bursts)
    return lane.url, [], "11s"


def d_added_up(lane, kind, rng, load, stack):
    applications = rng.randint(2, 4)
    for n in range(applications):
        load.crowd(lambda n=n: lane.direct(application_name=f"web-{n}"), 95 // applications + (n < 95 % applications), sleep(rng.uniform(0.3, 0.5)))
    time.sleep(4)
    return lane.url, [], "4s"


def d_not_taken(lane, kind, rng, load, stack):
    """Clients that take no answer: they may be gone, or slow."""
    def ask():
        from support.postgres_wire import query
        clients = [lane.direct() for _ in range(rng.randint(2, 5))]
        for client in clients:
            client.send(query("SELECT repeat('x', 1000) FROM generate_series(1, 200000)"))
        load.over.wait()
        for client in clients:
            client.close()

    load.begin(ask)
    load.crowd(lane.direct, 2, now_and_then(load, rng))
    time.sleep(8)
    return lane.url, [], "4s"


# -- healthy runs


def place(lane, kind, stack, **settings):
    """Where clients connect, and what is looked at."""
    if kind == "postgres":
        return lane.direct, lane.url
    made = lane.pooler(stack, kind, **{"max_size": 5, **settings})
    return made.wire, made.look_at


def quiet(lane, kind, rng, load, stack):
    connect, look_at = place(lane, kind, stack)
    load.crowd(connect, rng.randint(2, 5), now_and_then(load, rng))
    return look_at, [], "4s"


def cron(lane, kind, rng, load, stack):
    """Every minute, or here once, many come at once, work for a moment, and are gone."""
    connect, look_at = place(lane, kind, stack)
    load.crowd(connect, 2, now_and_then(load, rng))
    load.visitors(connect, 20, lambda client: [client.query("SELECT pg_sleep(0.01)") for _ in range(6)], after=rng.uniform(1, 3), until=0.05)
    return look_at, [], "6s"


def deployment(lane, kind, rng, load, stack):
    """One instance after the other goes, and a new one comes, with a pool of six each."""
    connect, look_at = place(lane, kind, stack)
    load.crowd(connect, 2, now_and_then(load, rng))
    instances = [[connect() for _ in range(6)] for _ in range(4)]

    def deploy():
        for instance in instances:
            if load.over.wait(rng.uniform(0.6, 1.0)):
                break
            for client in instance:
                client.close()
            instance[:] = [connect() for _ in range(6)]
            for client in instance:
                client.query("SELECT 1")
        load.over.wait()
        for client in sum(instances, []):
            client.close()

    load.begin(deploy)
    return look_at, [], "5s"


def cold_start(lane, kind, rng, load, stack):
    """All clients connect at the beginning."""
    connect, look_at = place(lane, kind, stack)
    load.crowd(connect, rng.randint(15, 30), now_and_then(load, rng, 0.002), after=0.5)
    return look_at, [], "5s"


def listeners(lane, kind, rng, load, stack):
    """Many who only listen. PgBouncer has that in session mode only."""
    many = rng.randint(3, 12)
    connect, look_at = place(lane, kind, stack, **({"mode": "session", "max_size": many + 5} if kind == "pgbouncer" else {}))
    keep(load, connect, many, "LISTEN news")
    load.crowd(connect, 3, now_and_then(load, rng))
    time.sleep(0.5)
    return look_at, [], "4s"


def monitors(lane, kind, rng, load, stack):
    """Pools that ask each connection now and then whether it lives, and a monitoring that connects for each question.
    """
    connect, look_at = place(lane, kind, stack)

    def alive(client):
        client.query("SELECT 1")
        load.over.wait(1)

    load.crowd(connect, rng.randint(10, 20), alive)

    def watch():
        while not load.over.wait(0.5):
            with contextlib.closing(connect()) as client:
                client.query("SELECT count(*) FROM pg_stat_activity")

    load.begin(watch)
    return look_at, [], "5s"


def report(lane, kind, rng, load, stack):
    """A few statements that take long, beside ordinary work."""
    connect, look_at = place(lane, kind, stack)
    load.crowd(connect, rng.randint(1, 3), sleep(rng.uniform(2, 4)))
    load.crowd(connect, 2, now_and_then(load, rng))
    return look_at, [], "5s"


def transactions(lane, kind, rng, load, stack):
    """An ORM: a transaction of several statements, with a moment of its own work between them."""
    connect, look_at = place(lane, kind, stack)
    think = rng.uniform(0.003, 0.01)

    def work(client):
        client.query("BEGIN")
        for _ in range(4):
            client.query("SELECT 1")
            load.over.wait(think)
        client.query("COMMIT")
        load.over.wait(0.05)

    load.crowd(connect, rng.randint(3, 6), work)
    return look_at, [], "4s"


def restart(lane, kind, rng, load, stack):
    """The database goes and comes back, and the pool makes its connections again, few at a time."""
    made = lane.pooler(stack, kind, max_size=20, max_wait_time="60s", unavailable_wait_time="60s")
    time.sleep(persistent(load, made, rng.randint(8, 16)))
    outage(lane, load, 2)
    return made.look_at, [], "12s"


# -- two faults


def d_ephemeral_and_leak(lane, kind, rng, load, stack):
    d_leak(lane, kind, rng, load, stack)
    return d_ephemeral(lane, kind, rng, load, stack)


def d_ephemeral_and_left_open(lane, kind, rng, load, stack):
    load.visitors(lane.direct, 3, one)
    return d_left_open(lane, kind, rng, load, stack)


def d_kept_and_ephemeral(lane, kind, rng, load, stack):
    d_kept(lane, kind, rng, load, stack)
    load.visitors(lane.direct, 3, one)
    return lane.url, [], "5s"


def ephemeral_and_leak(lane, kind, rng, load, stack):
    look_at, more, window = leak(lane, kind, rng, load, stack)
    load.visitors(stack.made.wire, 6, one)
    return look_at, more, "6s"


FAULTS = {
    "poolhouse": {
        "pool_too_small": too_small, "server_saturated": saturated_slowly, "transactions_left_open": left_open, "leak": leak,
        "held_by_idle_clients": held_by_idle, "another_limit": another_limit, "paused": paused, "ephemeral_clients": ephemeral,
        "idle_churn": idle_churn, "out_of_reach": out_of_reach, "limits_add_up": crowded_out, "stampede": stampede, "zombies": zombies,
    },
    "pgbouncer": {
        "pool_too_small": too_small, "transactions_left_open": left_open, "leak": leak, "held_by_idle_clients": held_by_idle,
        "paused": paused, "ephemeral_clients": ephemeral,
    },
    "postgres": {
        "ephemeral_clients": d_ephemeral, "transactions_left_open": d_left_open, "leak": d_leak, "server_saturated": d_locks,
        "server_saturated (processors)": d_processors, "over_provisioned": d_kept, "idle_churn": d_churn,
        "limits_add_up": d_added_up,
    },
    **doctor_cases.FAULTS,
}
HEALTHY = {"quiet": quiet, "cron": cron, "deployment": deployment, "cold start": cold_start, "listeners": listeners, "monitors": monitors,
           "report": report, "transactions": transactions}
# Healthy runs of one source alone.
OWN = {"poolhouse": {"restart": restart}}
PAIRS = {
    "poolhouse": {"ephemeral_clients + leak": ephemeral_and_leak},
    "postgres": {"ephemeral_clients + leak": d_ephemeral_and_leak, "ephemeral_clients + transactions_left_open": d_ephemeral_and_left_open,
                 "ephemeral_clients + over_provisioned": d_kept_and_ephemeral},
}
# What cannot be known from there; of a database out of reach that is so before PgBouncer had SHOW STATE.
OPEN = {"poolhouse": {"pool_of_pools": pool_of_pools}, "pgbouncer": {"leak": leak_without_the_database, "out_of_reach": out_of_reach}, "postgres": {"pool_of_pools": pool_of_pools, "zombies": d_not_taken}}


def cases():
    """Name -> (source, function, what is right)."""
    found = {}
    for kind, faults in FAULTS.items():
        found |= {f"{kind}:{name}": (kind, case, name.split(" (")[0]) for name, case in faults.items()}
        own = {**doctor_cases.HEALTHY.get(kind, HEALTHY), **OWN.get(kind, {})}
        found |= {f"{kind}:healthy {name}": (kind, case, "healthy") for name, case in own.items()}
        found |= {f"{kind}:{name}": (kind, case, name) for name, case in PAIRS.get(kind, {}).items()}
        found |= {f"{kind}:{name}, {AMBIGUOUS}": (kind, case, "undetermined") for name, case in OPEN.get(kind, {}).items()}
    return found


class Stack(contextlib.ExitStack):
    """Remembers the pooler that was made in it."""

    made = None


def one_run(lane, name, seed):
    kind, case, right = cases()[name]
    rng = random.Random(f"{name} {seed}")
    if kind not in doctor_cases.FAULTS:
        lane.clear()
    with Stack() as stack:
        load = Load(stack)
        make = lane.pooler

        def noted(*arguments, **settings):
            stack.made = make(*arguments, **settings)
            return stack.made

        lane.pooler = noted
        try:
            look_at, more, window = case(lane, kind, rng, load, stack)
            command = [lane.module.BINARY, "doctor", look_at, "--window", window, "--every", "100ms", "--json", "-", *more]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        finally:
            lane.pooler = make
            problems = list(load.problems)
            # What still waits for an answer ends with the pooler.
            load.end(2)
    said = json.loads(done.stdout) if done.stdout else None
    result = {"case": name, "seed": seed, "right": right, "said": told(said), "problems": problems}
    if said is None:
        result["problems"].append(done.stderr.strip())
    if result["said"] != right:
        result["evidence"] = said and [*(one["evidence"] for one in said["findings"]), *(one["seen"] for one in said["undecided"])]
    return result


def told(said):
    if said is None:
        return "nothing"
    found = sorted({finding["symptom"] for finding in said["findings"]})
    if said["undecided"]:
        found.append("undetermined")
    return " + ".join(found) or "healthy"


def work_through(jobs):
    """One lane: a line of JSON for each run. It takes its servers with it when it is told to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-"))
    directory.chmod(0o755)
    lane = Lane(directory)
    try:
        for name, seed in jobs:
            try:
                result = one_run(lane, name, seed)
            except Exception as problem:  # a run that could not be made is told as that
                result = {"case": name, "seed": seed, "right": cases()[name][2], "said": "nothing", "problems": [repr(problem)]}
            print(json.dumps(result), flush=True)
    finally:
        if lane.cluster.running():
            lane.cluster.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)


# -- the whole


def run_all(names, options, made):
    """All runs: those that were made before, and those that are missing, as far as the time goes."""
    before = {(run["case"], run["seed"]) for run in made if not run["problems"]}
    jobs = [(name, options.first_seed + n) for n in range(options.runs) for name in names]
    jobs = [job for job in jobs if job not in before]
    random.Random(1).shuffle(jobs)
    lanes = [jobs[lane::options.lanes] for lane in range(options.lanes)]
    results, lock = [], threading.Lock()
    deadline = time.monotonic() + options.minutes * 60

    def drive(number, own):
        environment = {**os.environ, "PYTEST_XDIST_WORKER": f"gw{number}", "PYTEST_XDIST_WORKER_COUNT": str(options.lanes)}
        child = subprocess.Popen([sys.executable, __file__, "--lane", json.dumps(own)], stdout=subprocess.PIPE, text=True, env=environment)
        for line in child.stdout:
            result = json.loads(line)
            with lock:
                results.append(result)
                mark = "broken" if result["problems"] else "ok" if result["said"] == result["right"] else "WRONG"
                print(f"{len(results)}/{len(jobs)} {result['case']} {result['seed']}: {result['said']} {mark}", file=sys.stderr, flush=True)
            if time.monotonic() > deadline:
                child.terminate()
                break
        child.wait()

    threads = [threading.Thread(target=drive, args=lane) for lane in enumerate(lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = [run for run in made if (run["case"], run["seed"]) not in {(new["case"], new["seed"]) for new in results}]
    return sorted(kept + results, key=lambda result: (result["case"], result["seed"]))


def judged(results):
    """Right and all of healthy runs, of faults, of two faults and of what is ambiguous; broken runs count in neither.
    """
    counts = {kind: [0, 0] for kind in ("healthy", "one fault", "two faults", "ambiguous by design")}
    for result in results:
        if result["problems"]:
            continue
        right = result["right"]
        kind = {"healthy": "healthy", "undetermined": "ambiguous by design"}.get(right, "two faults" if " + " in right else "one fault")
        counts[kind][1] += 1
        counts[kind][0] += result["said"] == right
    return counts


def table(result):
    rows = collections.defaultdict(collections.Counter)
    for run in result["runs"]:
        if not run["problems"]:
            rows[run["case"]][run["said"], run["said"] == run["right"]] += 1
    lines = ["| case | runs | right | said instead |", "|-|-|-|-|"]
    for case, said in sorted(rows.items()):
        right = sum(count for (_, is_right), count in said.items() if is_right)
        wrong = ", ".join(f"{what} {count}" for (what, is_right), count in sorted(said.items()) if not is_right)
        lines.append(f"| {case} | {sum(said.values())} | {right} | {wrong} |")
    lines += ["", "| runs | right | of |", "|-|-|-|"]
    lines += [f"| {kind} | {right} | {all_} |" for kind, (right, all_) in judged(result["runs"]).items()]
    broken = sum(bool(run["problems"]) for run in result["runs"])
    lines += ["", f"{broken} further runs could not be made as intended, and count in neither column."]
    return "\n".join(lines)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="CASE", help="none are all")
    parser.add_argument("--runs", type=int, default=5, help="of each case")
    parser.add_argument("--first-seed", type=int, default=1000)
    parser.add_argument("--lanes", type=int, default=2, help="runs side by side, each with a PostgreSQL of its own")
    parser.add_argument("--minutes", type=float, default=600, help="no run begins after so long")
    parser.add_argument("--json", metavar="FILE", help="write the result there; runs that it has are not made again")
    parser.add_argument("--render", metavar="FILE", help="print the tables of a result file")
    parser.add_argument("--list", action="store_true", help="list the cases")
    parser.add_argument("--lane", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.lane:
        work_through(json.loads(options.lane))
        return 0
    if options.list:
        print("\n".join(cases()))
        return 0
    if options.render:
        print(table(json.loads(pathlib.Path(options.render).read_text())))
        return 0
    if unknown := [name for name in options.names if name not in cases()]:
        parser.error(f"no such case: {', '.join(unknown)}; --list lists them")
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    earlier = json.loads(pathlib.Path(options.json).read_text()) if options.json and os.path.exists(options.json) else {"runs": []}
    result = {
        "command": " ".join(["tests/hunts/doctor_matrix.py", *(argv or sys.argv[1:])]),
        "date": datetime.date.today().isoformat(),
        "commits": sorted({commit, *earlier.get("commits", [])}),
        "machine": {"processors": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()},
        "runs": run_all(options.names or list(cases()), options, earlier["runs"]),
    }
    print(table(result))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")
    counts = judged(result["runs"])
    right, all_ = (sum(counts[kind][n] for kind in counts if kind != "healthy") for n in (0, 1))
    return 0 if counts["healthy"][0] == counts["healthy"][1] and right >= 0.95 * all_ else 1


if __name__ == "__main__":
    sys.exit(main())
