"""PostgreSQL is killed or frozen under load: nothing hangs, no answer is wrong, no write is repeated, and everything
recovers.
"""

import contextlib
import os
import pathlib
import random
import signal
import time

import psycopg
import pytest

from support import load_during_faults
from support.waiting import eventually


@pytest.fixture
def durable(cluster):
    """The cluster keeps what it has acknowledged, even if its processes are killed."""
    with cluster.superuser() as db:
        db.execute("ALTER ROLE app SET synchronous_commit = on")
    yield cluster
    cluster.wait_until_up()
    with cluster.superuser() as db:
        db.execute("ALTER ROLE app RESET synchronous_commit")


def settings(**more):
    return {"max_size": 5, "max_wait_time": "8s", "unavailable_wait_time": "8s", "workers": 2, **more}


def postmaster(cluster):
    return int((cluster.data / "postmaster.pid").read_text().splitlines()[0])


def processes(cluster):
    """The cluster's processes: their working directory is its data directory. Dead processes have none."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            if entry.readlink() == cluster.data:
                found.append(int(entry.parent.name))
    return found


@pytest.mark.poolhouse_only
def test_backends_killed_by_the_kernel_again_and_again(start, durable):
    pooler = start(**settings())
    with load_during_faults.load(durable, pooler.port) as load:
        for _ in range(3):
            with contextlib.suppress(ProcessLookupError, IndexError, psycopg.OperationalError):
                durable.kill_backend(random.choice(durable.backends()).pid)
            durable.wait_until_up()
            load.flows()


@pytest.mark.poolhouse_only
def test_single_servers_terminated_all_the_time(start, cluster):
    pooler = start(**settings())
    with load_during_faults.load(cluster, pooler.port) as load:
        for _ in range(30):
            if backends := cluster.backends():
                cluster.query("SELECT pg_terminate_backend(%s)", random.choice(backends).pid)
            time.sleep(0.05)
        load.flows()
    assert load.answered() > 10 * load.counts["lost"]


@pytest.mark.poolhouse_only
def test_the_postmaster_killed_and_started_again(start, durable):
    pooler = start(**settings())
    with load_during_faults.load(durable, pooler.port) as load:
        os.kill(postmaster(durable), signal.SIGKILL)
        eventually("its sessions notice and end", lambda: not processes(durable), 15)
        # If no init process reaps orphans, their process ids look alive to pg_ctl.
        for lock in (durable.data / "postmaster.pid", durable.directory / f".s.PGSQL.{durable.port}.lock"):
            lock.unlink()
        durable.start()
        load.flows()


@pytest.mark.poolhouse_only
def test_a_server_that_is_stopped_for_a_while(start, cluster):
    """SIGSTOP of the postmaster and all its sessions, longer than query_time."""
    pooler = start(**settings(query_time="1s"))
    with load_during_faults.load(cluster, pooler.port) as load:
        stopped = [postmaster(cluster), *(backend.pid for backend in cluster.backends())]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            time.sleep(3)
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        load.flows()
