"""A server dies: its client is told, all others are served, and the pool recovers by itself."""

import concurrent.futures
import threading
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.waiting import eventually


def works(pooler):
    """Whether a new client is served."""
    try:
        with pooler.connect() as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.Error:
        return False


@pytest.mark.timing
def test_an_idle_server_that_died_is_not_handed_out(start, cluster):
    pooler = start(max_size=2)
    with pooler.connect() as connection:
        connection.execute("SELECT 1")
        for _ in range(3):
            cluster.terminate()
            eventually("the servers are gone", lambda: not cluster.backends())
            time.sleep(0.1)
            assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.quick
def test_the_client_of_a_server_that_dies_is_told_so(start, cluster):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        client.query("BEGIN")
        client.send(w.query("SELECT pg_sleep(20)"))
        eventually("it runs", lambda: any("pg_sleep" in b.query and b.state == "active" for b in cluster.backends()))
        cluster.terminate()
        client.expect(b"T")
        error = client.error()
        assert error.sqlstate in ("57P01", "08006", "57P02", "08P01"), error
    assert works(pooler)


@pytest.mark.timing
def test_the_client_of_a_server_that_dies_between_two_statements_is_told_so(start, cluster):
    pooler = start(max_size=1)
    with pooler.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT 1")
        cluster.terminate()
        with pytest.raises(psycopg.OperationalError):
            for _ in range(5):
                connection.execute("SELECT 2")
                time.sleep(0.1)
    assert works(pooler)


@pytest.mark.timing
def test_waiters_are_served_by_a_new_server(start, cluster):
    pooler = start(max_size=1, max_wait_time="10s")
    with pooler.wire() as holder, concurrent.futures.ThreadPoolExecutor(10) as threads:
        holder.query("BEGIN")
        others = [pooler.wire() for _ in range(10)]
        waiting = [threads.submit(other.query, f"SELECT {n}") for n, other in enumerate(others)]
        time.sleep(0.2)
        cluster.terminate()
        assert [future.result(timeout=10) for future in waiting] == [[[str(n)]] for n in range(10)]
        for other in others:
            other.close()


def test_a_backend_killed_by_the_kernel_takes_all_along_and_all_come_back(start, cluster):
    pooler = start(max_size=3, max_wait_time="15s")
    connections = [pooler.wire(timeout=20) for _ in range(6)]
    for connection in connections:
        connection.query("SELECT 1")
    cluster.kill_backend(cluster.backends()[0].pid)
    cluster.wait_until_up()
    eventually("new clients are served", lambda: works(pooler), 10)
    for connection in connections:
        # An idle client has lost nothing and should not notice; at worst it gets a proper error.
        try:
            assert connection.query("SELECT 2") == [["2"]]
        except w.ServerError as error:
            assert error.sqlstate.startswith(("57P", "08"))
        connection.close()


@pytest.mark.timing
def test_a_restart_of_the_whole_database_is_survived_by_waiting_clients(start, cluster):
    pooler = start(max_size=2, max_wait_time="20s", unavailable_wait_time="20s")
    with pooler.wire(timeout=25) as client, concurrent.futures.ThreadPoolExecutor(5) as threads:
        client.query("SELECT 1")
        others = [pooler.wire(timeout=25) for _ in range(5)]
        cluster.stop()
        try:
            waiting = [threads.submit(other.query, "SELECT 'served'") for other in others]
            time.sleep(0.5)
            assert not any(future.done() for future in waiting if pooler.is_poolhouse)
        finally:
            cluster.start()
        if pooler.is_poolhouse:
            assert [future.result(timeout=20) for future in waiting] == [[["served"]]] * 5
            assert client.query("SELECT 2") == [["2"]]
        for other in others:
            other.close()
    eventually("new clients are served", lambda: works(pooler), 10)


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_with_the_database_down_clients_get_a_clear_error_after_unavailable_wait_time(start, cluster):
    pooler = start(max_size=2, max_wait_time="10s", unavailable_wait_time="1s")
    with pooler.wire() as client:
        client.query("SELECT 1")
        cluster.stop()
        try:
            began = time.monotonic()
            with pytest.raises(w.ServerError) as raised:
                client.query("SELECT 2")
            took = time.monotonic() - began
            assert 0.7 < took < 5, took
            assert raised.value.sqlstate.startswith(("08", "57P")), raised.value
            assert str(cluster.port) in raised.value.text or "refused" in raised.value.text.lower() or \
                "reach" in raised.value.text.lower(), raised.value
        finally:
            cluster.start()
    eventually("it recovers by itself", lambda: works(pooler), 15)


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_attempts_to_connect_back_off_and_stay_below_max_connecting(start, cluster):
    pooler = start(max_size=20, max_connecting=2, max_wait_time="10s", unavailable_wait_time="2s")
    cluster.stop()
    try:
        stop = threading.Event()

        def knock(_):
            while not stop.is_set():
                with pytest.raises((w.ServerError, w.Closed)), pooler.wire() as client:
                    client.query("SELECT 1")

        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            done = [threads.submit(knock, n) for n in range(20)]
            time.sleep(2.5)
            stop.set()
            for future in done:
                future.result(timeout=15)
        attempts = pooler.metric("poolhouse_servers_closed_total")
        assert attempts <= 120, f"{attempts} attempts in a few seconds"
    finally:
        cluster.start()
    eventually("it recovers by itself", lambda: works(pooler), 15)


def test_it_starts_while_the_database_is_down_and_serves_when_it_comes(start, cluster):
    cluster.stop()
    try:
        pooler = start(max_size=2, unavailable_wait_time="1s")
    finally:
        cluster.start()
    eventually("clients are served", lambda: works(pooler), 15)


@pytest.mark.poolhouse_only
def test_a_wrong_password_upstream_is_told_to_the_client_and_the_log(start, cluster):
    wrong = f"postgres://app:wrong@127.0.0.1:{cluster.port}/bench"
    pooler = start(databases={"bench": {"url": wrong}}, unavailable_wait_time="1s", max_wait_time="3s")
    with pytest.raises((w.ServerError, w.Closed)) as raised, pooler.wire() as client:
        client.query("SELECT 1")
    assert isinstance(raised.value, w.ServerError), "closed without a word"
    assert "password" in raised.value.text.lower() or "28P01" in raised.value.text, raised.value
    assert "28P01" in pooler.log() or "password" in pooler.log()


@pytest.mark.poolhouse_only
def test_a_database_that_is_missing_upstream_is_told_to_the_client(start, cluster):
    missing = f"postgres://app:app%20secret@127.0.0.1:{cluster.port}/no_such_database"
    pooler = start(databases={"bench": {"url": missing}}, unavailable_wait_time="1s", max_wait_time="3s")
    with pytest.raises(w.ServerError, match="no_such_database"), pooler.wire() as client:
        client.query("SELECT 1")


def test_an_old_server_is_replaced(start, cluster):
    pooler = start(max_size=1, max_life_time="1s")
    with pooler.connect() as connection:
        first = connection.execute("SELECT pg_backend_pid()").fetchone()
        eventually("another server", lambda: connection.execute("SELECT pg_backend_pid()").fetchone() != first, 5, 0.1)


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_an_idle_server_is_closed_but_never_below_min_size(start, cluster):
    pooler = start(max_size=6, min_size=2, max_idle_time="1s")
    connections = [pooler.connect(autocommit=False) for _ in range(6)]
    for connection in connections:
        connection.execute("SELECT 1")
    assert len(cluster.backends()) == 6
    for connection in connections:
        connection.close()
    eventually("idle servers are closed", lambda: len(cluster.backends()) == 2, 10, 0.1)
    time.sleep(1.5)
    assert len(cluster.backends()) == 2
