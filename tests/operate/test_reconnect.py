"""Reconnect replaces all servers, and no client notices."""

import pytest

from support.background_load import no_failure
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def pids(cluster):
    return {backend.pid for backend in cluster.backends()}


def test_idle_servers_are_replaced_at_once_and_busy_ones_at_the_end_of_their_transaction(start, cluster):
    pooler = start(max_size=3)
    with pooler.wire() as idle, pooler.wire() as busy:
        busy.query("BEGIN")
        idle.query("SELECT 1")
        (pid,) = busy.query("SELECT pg_backend_pid()")[0]
        before = pids(cluster)
        status, answer = pooler.post("/api/reconnect")
        assert status == 200 and answer["reconnecting"]
        eventually("idle ones are gone", lambda: pids(cluster) & before == {int(pid)})
        assert busy.query("SELECT pg_backend_pid()") == [[pid]]
        busy.query("COMMIT")
        eventually("all are gone", lambda: not pids(cluster) & before)
        assert busy.query("SELECT pg_backend_pid()") != [[pid]]
    assert pooler.metric("poolhouse_servers_closed_total", reason="stale") == 2


def test_twenty_reconnects_under_load_fail_no_client(start):
    pooler = start(max_size=3)
    with no_failure(pooler, clients=6):
        for _ in range(20):
            assert pooler.post("/api/reconnect?database=bench")[0] == 200
