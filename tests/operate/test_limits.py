"""What happens at each limit of clients, waiters and servers."""

import concurrent.futures
import time

import pytest

from support import postgres_wire as w
from support.silent_clients import silent_clients, wait_for_no_clients
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.quick
def test_above_the_hard_limit_clients_are_refused_with_53300_and_others_do_not_notice(start):
    pooler = start(soft_limit=5, hard_limit=5, evict_min_idle="1h", newcomer_wait_time="100ms", max_size=2)
    clients = [pooler.wire() for _ in range(5)]
    for _ in range(10):
        with pooler.open() as sixth, pytest.raises((w.ServerError, w.Closed)) as raised:
            sixth.login("app", "app secret")
        assert isinstance(raised.value, w.ServerError), "closed without a word"
        assert raised.value.sqlstate == "53300" and raised.value.severity == "FATAL"
    for client in clients:
        assert client.query("SELECT 1") == [["1"]]
    assert pooler.metric("poolhouse_client_rejections_total") >= 10
    clients.pop().close()
    eventually("there is room again", lambda: pooler.metric("poolhouse_clients") <= 4)
    clients.append(pooler.wire())
    assert clients[-1].query("SELECT 1") == [["1"]]
    for client in clients:
        client.close()


@pytest.mark.timing
def test_above_the_soft_limit_the_longest_idle_is_evicted(start):
    pooler = start(soft_limit=4, hard_limit=8, evict_min_idle="500ms", max_size=2)
    clients = [pooler.wire() for _ in range(4)]
    for client in clients:
        client.query("SELECT 1")
        time.sleep(0.05)
    clients[0].query("SELECT 1")
    time.sleep(0.7)
    fresh = pooler.wire()
    # The second client has been idle longest.
    gone = clients.pop(1)
    error = gone.error()
    assert error.sqlstate == "57P05", error
    assert gone.closed_within(5)
    assert all(client.query("SELECT 1") == [["1"]] for client in [*clients, fresh])
    assert pooler.metric("poolhouse_client_evictions_total") == 1
    for client in [*clients, fresh]:
        client.close()


def test_a_listener_full_of_idle_clients_opens_again_and_newcomers_wait_for_that(start):
    pooler = start(soft_limit=8, hard_limit=10, evict_min_idle="1s", max_size=2)
    clients = [pooler.wire() for _ in range(10)]
    for client in clients:
        assert client.query("SELECT 1") == [["1"]]
    for _ in range(2):
        with pooler.wire(timeout=20) as newcomer:
            assert newcomer.query("SELECT 1") == [["1"]]
    assert pooler.metric("poolhouse_client_rejections_total") == 0
    eventually("there are no more than the soft limit", lambda: pooler.metric("poolhouse_clients") <= 8)
    for client in clients:
        client.close()


def test_clients_that_come_back_as_fast_as_they_are_evicted_are_reported(start):
    pooler = start(soft_limit=3, hard_limit=12, evict_min_idle="10ms", max_size=2)
    connections = [pooler.connect() for _ in range(4)]
    for _ in range(12):
        time.sleep(0.05)
        connections.append(pooler.connect())
    eventually("the loop is seen", lambda: pooler.metric("poolhouse_eviction_loops_total") == 1)
    assert "come back as fast as they are evicted" in pooler.log()
    for connection in connections:
        connection.close()


def test_clients_in_transactions_and_recently_active_ones_are_not_evicted(start):
    pooler = start(soft_limit=3, hard_limit=6, evict_min_idle="30s", newcomer_wait_time="off", max_size=4)
    busy = pooler.wire()
    busy.query("BEGIN")
    clients = [pooler.wire() for _ in range(5)]
    assert all(client.query("SELECT 1") == [["1"]] for client in clients)
    assert busy.query("SELECT 1") == [["1"]]
    assert pooler.metric("poolhouse_client_evictions_total") == 0
    with pytest.raises(w.ServerError) as raised:
        pooler.wire()
    assert raised.value.sqlstate == "53300"
    for client in [busy, *clients]:
        client.close()


@pytest.mark.timing
def test_clients_that_never_log_in_count_too_and_give_way(start):
    pooler = start(soft_limit=5, hard_limit=10, login_time="1s", max_size=2)
    silent = [pooler.open() for _ in range(10)]
    time.sleep(1.8)
    with pooler.wire() as client:
        assert client.query("SELECT 1") == [["1"]]
    for client in silent:
        client.close()


def test_silent_clients_in_all_places_lock_no_client_out(start):
    pooler = start(soft_limit=10, hard_limit=10, login_time="60s", newcomer_wait_time="off", max_size=2)
    # Ten clients get the error at once, when they send something.
    with silent_clients(pooler, 20):
        eventually("all places are taken", lambda: pooler.metric("poolhouse_clients", state="login") >= 20)
        # The last one has as many clients as the new one, and would have to be connected for a while.
        clients = [pooler.wire() for _ in range(9)]
        assert all(client.query("SELECT 1") == [["1"]] for client in clients)
        eventually("nine have heard of it", lambda: pooler.metric("poolhouse_client_evictions_total", reason="not_logged_in") == 9)
        assert pooler.metric("poolhouse_client_evictions_total") == 9
        assert "one that has not logged in gives way to another" in pooler.log()
        for client in clients:
            client.close()


@pytest.mark.timing
def test_a_client_that_shares_an_address_with_a_silent_crowd_gets_in_when_that_takes_too_long(start):
    pooler = start(soft_limit=4, hard_limit=5, login_time="60s", newcomer_wait_time="off", max_size=2)
    wait_for_no_clients(pooler)
    silent = [pooler.open() for _ in range(5)]
    time.sleep(2.2)
    clients = [pooler.wire() for _ in range(5)]
    assert all(client.query("SELECT 1") == [["1"]] for client in clients)
    for client in silent:
        error = client.error()
        assert error.sqlstate == "53300" and client.closed_within(5), error
    for client in clients:
        client.close()


def test_max_server_connections_holds_over_databases(start, cluster):
    pooler = start(max_size=10, max_server_connections=4, max_wait_time="20s", databases={"bench": {}, "other": {}})
    seen = []

    def work(n):
        with pooler.wire(database=("bench", "other")[n % 2], timeout=30) as client:
            for _ in range(5):
                client.query("SELECT pg_sleep(0.02)")
                seen.append(len(cluster.backends()))

    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        list(threads.map(work, range(20)))
    assert max(seen) <= 4


def test_an_idle_server_of_one_database_gives_way_to_a_waiter_of_another(start, cluster):
    pooler = start(max_size=4, max_server_connections=4, max_wait_time="5s", databases={"bench": {}, "other": {}})
    holders = [pooler.wire() for _ in range(4)]
    for client in holders:
        client.query("BEGIN")
    for client in holders:
        client.query("COMMIT")
    assert len(cluster.backends()) == 4
    with pooler.wire(database="other") as client:
        assert client.query("SELECT current_database()") == [["other"]]
    assert len(cluster.backends()) <= 4
    for client in holders:
        client.close()


def test_max_connections_of_a_database_holds_over_its_users(start, cluster):
    url = cluster.url(user=None)
    users = {"app": "app secret", "app2": "app2-secret"}
    pooler = start(users=users, databases={"bench": {"url": url, "max_connections": 3}}, max_size=3, max_wait_time="20s")

    def work(n):
        with pooler.wire(("app", "app2")[n % 2], timeout=30) as client:
            for _ in range(5):
                client.query("SELECT pg_sleep(0.02)")
                assert len(cluster.backends("app")) + len(cluster.backends("app2")) <= 3

    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        list(threads.map(work, range(12)))


@pytest.mark.timing
def test_more_waiters_than_max_waiters_are_refused_at_once(start):
    pooler = start(max_size=1, max_waiters=2, max_wait_time="20s")
    clients = [pooler.wire() for _ in range(4)]
    clients[0].query("BEGIN")
    for client in clients[1:]:
        client.send(w.query("SELECT 1"))
        time.sleep(0.1)
    began = time.monotonic()
    error = clients[3].error()
    assert time.monotonic() - began < 2 and error.sqlstate.startswith("53"), error
    clients[0].query("COMMIT")
    for client in clients[1:3]:
        assert client.rows() == [["1"]]
    for client in clients:
        client.close()


def test_the_servers_own_limit_is_not_the_end(start, cluster):
    """PostgreSQL refuses further connections; the existing ones serve all clients."""
    pooler = start(max_size=150, max_connecting=10, max_wait_time="20s", unavailable_wait_time="20s")

    def work(n):
        with pooler.wire(timeout=30) as client:
            assert client.query(f"SELECT pg_sleep(0.1), {n}")[0][1] == str(n)

    with concurrent.futures.ThreadPoolExecutor(130) as threads:
        list(threads.map(work, range(130)))
