"""SIGTERM drains: Poolhouse finishes what has begun and starts nothing new. A second SIGTERM ends it at once."""

import signal
import socket
import subprocess
import time

import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def refuses(pooler):
    """Whether new clients are refused in any way."""
    try:
        with pooler.wire() as client:
            client.query("SELECT 1")
        return False
    except (w.ServerError, w.Closed, OSError):
        return True


@pytest.mark.timing
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_without_clients_it_ends_at_once(start, cluster, number):
    pooler = start(min_size=2)
    with pooler.wire() as client:
        client.query("SELECT 1")
    assert cluster.backends()
    began = time.monotonic()
    pooler.signal(number)
    assert pooler.wait(5) == 0
    assert time.monotonic() - began < 3
    eventually("no server is left", lambda: not cluster.backends())


def test_idle_clients_are_told_and_closed(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("SELECT 1")
        pooler.signal()
        assert client.error().sqlstate == "57P01"
        assert client.closed_within(5)
    assert pooler.wait(5) == 0


@pytest.mark.quick
@pytest.mark.timing
def test_a_transaction_is_finished_first(start, cluster):
    pooler = start(drain_time="20s")
    with pooler.wire() as client:
        client.query("DROP TABLE IF EXISTS t_drain; CREATE TABLE t_drain (v int)")
        client.query("BEGIN")
        pooler.signal()
        eventually("new clients are turned away", lambda: refuses(pooler))
        client.query("INSERT INTO t_drain VALUES (1)")
        time.sleep(0.3)
        client.query("COMMIT")
        assert client.closed_within(5)
    assert pooler.wait(5) == 0
    assert cluster.query("SELECT v FROM t_drain", database="bench") == [(1,)]
    with cluster.superuser("bench") as db:
        db.execute("DROP TABLE t_drain")


@pytest.mark.timing
def test_a_running_query_is_finished_first(start):
    pooler = start(drain_time="20s")
    with pooler.wire() as client:
        client.send(w.query("SELECT pg_sleep(1), 'finished'"))
        time.sleep(0.2)
        pooler.signal()
        assert client.rows()[0][1] == "finished"
    assert pooler.wait(5) == 0


@pytest.mark.timing
def test_a_second_signal_ends_at_once(start, cluster):
    pooler = start(drain_time="60s")
    with pooler.wire() as client:
        client.query("BEGIN")
        pooler.signal()
        assert pooler.wait(0.5) is None
        pooler.signal()
        status = pooler.wait(3)
        assert status is not None, "it goes on draining"
        assert client.closed_within(3)
        pooler.expected_status = status
        assert status in (0, 1)
    eventually("no transaction is left open", lambda: not cluster.backends())


@pytest.mark.parametrize("by", ["second signal", "drain_time"])
def test_a_client_that_is_cut_at_the_end_is_told_and_its_statement_cancelled(start, cluster, by):
    pooler = start(drain_time="60s" if by == "second signal" else "500ms")
    with pooler.wire(timeout=30) as runs, pooler.wire(timeout=30) as begun, pooler.wire(timeout=30) as writes:
        runs.query("DROP TABLE IF EXISTS t_cut; CREATE TABLE t_cut (v int)")
        begun.query("BEGIN")
        writes.query("BEGIN")
        runs.send(w.query("SELECT pg_sleep(600)"))
        writes.send(w.query("INSERT INTO t_cut SELECT 1 FROM pg_sleep(600)"))
        eventually("both run", lambda: [b.state for b in cluster.backends()].count("active") == 2)
        pooler.signal()
        if by == "second signal":
            eventually("new clients are turned away", lambda: refuses(pooler))
            pooler.signal()
        for client in (runs, begun, writes):
            assert client.error().sqlstate == "57P01"
            assert client.closed_within(15)
        assert pooler.wait(15) == 0
    eventually("nothing goes on in the database", lambda: not cluster.backends())
    assert cluster.query("SELECT v FROM t_cut", database="bench") == []
    with cluster.superuser("bench") as db:
        db.execute("DROP TABLE t_cut")


@pytest.mark.timing
def test_drain_time_ends_the_waiting(start):
    pooler = start(drain_time="1s")
    with pooler.wire() as client:
        client.query("BEGIN")
        began = time.monotonic()
        pooler.signal()
        status = pooler.wait(6)
        assert status is not None and 0.7 < time.monotonic() - began < 5
        pooler.expected_status = status
        assert client.closed_within(3)


@pytest.mark.timing
def test_waiters_are_not_forgotten(start):
    pooler = start(max_size=1, max_wait_time="20s", drain_time="20s")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        waiter.send(w.query("SELECT 'served'"))
        time.sleep(0.2)
        pooler.signal()
        time.sleep(0.2)
        holder.query("COMMIT")
        # Each client is served or gets an error; none hangs.
        try:
            assert waiter.rows() == [["served"]]
        except w.ServerError as error:
            assert error.sqlstate == "57P01", error
    assert pooler.wait(8) == 0


def test_the_service_manager_is_notified(start):
    pooler = start.unstarted()
    path = str(pooler.directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(5)
        command, _ = pooler.command({})
        pooler.launch(command, {"NOTIFY_SOCKET": path})
        assert "READY=1" in manager.recv(4096).decode().split("\n")
        pooler.signal()
        said = ""
        while "STOPPING=1" not in said:
            said += manager.recv(4096).decode() + "\n"
    assert pooler.wait(5) == 0


def test_from_the_moment_it_has_a_socket_it_ends_in_order(start, workspace):
    pooler = start()
    pooler.signal()
    assert pooler.wait(5) == 0
    path = workspace / "early.sock"
    for _ in range(10):
        command, _ = pooler.command({"listen": [str(path), f"127.0.0.1:{pooler.port}"]})
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not path.exists():
                assert process.poll() is None
            process.terminate()
            assert process.wait(5) == 0
        assert not path.exists()
