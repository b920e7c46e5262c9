"""Which server and which host are next, and when a failed connect is tried again: beside PgBouncer."""

import collections
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

import psycopg
import pytest

from support.postgres_cluster import PASSWORDS
from support.waiting import eventually


def pid(db):
    return db.execute("SELECT pg_backend_pid()").fetchone()[0]


def filled(pooler, count):
    """Opens that number of servers."""
    with contextlib.ExitStack() as clients:
        for _ in range(count):
            clients.enter_context(pooler.connect(autocommit=False)).execute("SELECT 1")


@pytest.mark.parametrize("turns", [True, False])
def test_servers_take_turns_if_that_is_wanted(start_either, turns):
    pooler = start_either(max_size=3, round_robin=turns)
    filled(pooler, 3)
    with pooler.connect() as db:
        used = collections.Counter(pid(db) for _ in range(9))
    assert sorted(used.values()) == ([3, 3, 3] if turns else [9])


@pytest.mark.poolhouse_only
def test_round_robin_follows_a_reload(start):
    pooler = start(max_size=3)
    filled(pooler, 3)
    pooler.rewrite(max_size=3, round_robin=True)
    assert pooler.post("/api/reload")[0] == 200
    with pooler.connect() as db:
        assert len({pid(db) for _ in range(3)}) == 3


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("order, ports", [("round-robin", [0, 1, 0, 1]), ("disable", [0, 0, 0, 0])])
def test_connections_begin_with_one_host_after_the_other(start, cluster, order, ports):
    password = PASSWORDS["app"].replace(" ", "%20")
    hosts = [("127.0.0.1", cluster.port), ("localhost", cluster.port)]
    names = ",".join(f"{host}:{port}" for host, port in hosts)
    url = f"postgres://app:{password}@{names}/bench?load_balance_hosts={order}"
    pooler = start(databases={"bench": {"url": url}}, max_size=4, max_connecting=1)
    filled(pooler, 4)
    servers = sorted(pooler_servers(pooler), key=lambda server: -server["age_ms"])
    assert [["127.0.0.1", "localhost"].index(server["address"].rsplit(":", 1)[0]) for server in servers] == ports


def pooler_servers(pooler):
    return json.loads(pooler.get("/api/servers")[1])["servers"]


@pytest.mark.poolhouse_only
@pytest.mark.timing
def test_a_failed_connect_is_tried_again_after_a_fixed_time(start):
    times = []

    def refuse(listening):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                times.append(time.monotonic())
                connection.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=refuse, args=(listening,), daemon=True).start()
        url = f"postgres://app:x@127.0.0.1:{listening.getsockname()[1]}/bench"
        pooler = start(databases={"bench": {"url": url}}, login_retry_time="1s", unavailable_wait_time="4s")
        with pytest.raises(psycopg.OperationalError):
            pooler.connect()
        listening.shutdown(socket.SHUT_RDWR)
    pauses = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert len(pauses) >= 2 and all(0.9 < pause < 1.8 for pause in pauses), pauses


@pytest.mark.poolhouse_only
@pytest.mark.timing
def test_a_cancel_request_that_takes_too_long_costs_the_server_it_was_for(start, cluster):
    """The database is stopped, so that it takes no cancel request and goes on after all."""
    pooler = start(cancel_wait_time="300ms", max_size=1)
    with pooler.connect() as db, pooler.connect() as other:
        before = pid(db)
        failed = []

        def sleep():
            with contextlib.suppress(psycopg.Error):
                db.execute("SELECT pg_sleep(2)")
            failed.append(True)

        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        eventually("it runs", lambda: pooler.pools()[0]["servers"]["in_use"] == 1)
        postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
        os.kill(postmaster, signal.SIGSTOP)
        try:
            threading.Thread(target=db.cancel, daemon=True).start()
            sleeper.join(10)
        finally:
            os.kill(postmaster, signal.SIGCONT)
        assert failed
        eventually("another server is there", lambda: pid(other) != before)


@pytest.mark.poolhouse_only
def test_connections_have_the_options_that_are_configured(start, cluster):
    options = {"keep_idle": "7s", "keep_interval": "3s", "keep_count": 2, "user_timeout": "11s", "socket_buffer": 65536}
    pooler = start(**options)
    with pooler.connect() as db:
        db.execute("SELECT 1")

        def timers():
            # While bytes are not acknowledged, another timer runs.
            return kernel_timers(f"sport = :{pooler.port}") + kernel_timers(f"dport = :{cluster.port}")

        eventually("both connections are silent", lambda: len(timers()) == 2)
        assert all(timer <= 7.1 for timer in timers()), timers()


def kernel_timers(ends):
    """The seconds until the kernel probes the connections with such ends."""
    text = subprocess.run(["ss", "-tnoH", ends], capture_output=True, text=True, timeout=10).stdout
    found = [re.search(r"timer:\(keepalive,([0-9.]+)(ms|sec|min)", line) for line in text.splitlines()]
    unit = {"ms": 0.001, "sec": 1, "min": 60}
    return [float(match[1]) * unit[match[2]] for match in found if match]
