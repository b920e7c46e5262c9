"""PostgreSQL's connection limit of a role: Poolhouse opens no connection before the session that it replaces has ended.
"""

import concurrent.futures

import pytest

from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only
MAX_SESSIONS = 4


@pytest.fixture
def limited(cluster):
    """A role that may have MAX_SESSIONS sessions."""
    with cluster.superuser() as db:
        db.execute(f"ALTER ROLE app2 CONNECTION LIMIT {MAX_SESSIONS}")
        yield "app2"
        db.execute("ALTER ROLE app2 CONNECTION LIMIT -1")


def serve(start, cluster, role, **settings):
    databases = {name: {"url": cluster.url(name, role)} for name in ("bench", "other")}
    eventually("no session of an earlier test is left", lambda: not cluster.backends(role))
    return start(
        max_size=MAX_SESSIONS, max_connecting=MAX_SESSIONS, max_server_connections=MAX_SESSIONS, max_wait_time="30s", databases=databases, **settings
    )


def assert_no_refusal(pooler):
    assert "too many connections" not in pooler.log()
    assert pooler.metric("poolhouse_servers_closed_total", reason="error") == 0


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_servers_that_change_hands_are_never_too_many_for_their_role(start, cluster, limited, mode):
    """Clients of two databases in turns, so that servers of one are constantly closed for the other."""
    pooler = serve(start, cluster, limited, mode=mode)

    def work(n):
        for i in range(12):
            with pooler.wire(database=("bench", "other")[(n + i) % 2], timeout=30) as client:
                assert client.query("SELECT 1") == [["1"]]

    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(12)))
    assert pooler.metric("poolhouse_servers_created_total") >= 2
    assert_no_refusal(pooler)


def test_servers_that_are_made_anew_are_never_too_many_for_their_role(start, cluster, limited):
    """Clients that leave in the middle of a transaction's request, and an operator who replaces all servers."""
    pooler = serve(start, cluster, limited, on_session_state="pin")

    def work(n):
        for i in range(8):
            with pooler.wire(database="bench", timeout=30) as client:
                client.query("BEGIN")
                client.query("SELECT pg_sleep(0.01)")
                if n % 2:
                    client.query("COMMIT")
            if n == 0:
                pooler.ctl("reconnect")

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert pooler.metric("poolhouse_servers_created_total") > MAX_SESSIONS
    assert_no_refusal(pooler)
