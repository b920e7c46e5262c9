"""Each time-out ends what it is meant to end, with an error message, and nothing else."""

import json
import socket
import time

import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.timing


def ends_between(client, low, high):
    """The other side closes within these seconds. Returns the error before that, if any."""
    began = time.monotonic()
    error = None
    client.socket.settimeout(high + 5)
    try:
        error = client.error()
    except w.Closed:
        pass
    assert client.closed_within(high + 5)
    took = time.monotonic() - began
    assert low <= took <= high, f"after {took:.2f} s"
    return error


@pytest.mark.parametrize("start_of_it", [b"", b"\0", w.startup(user="app", database="bench")[:11],
                                         w.request(w.SSL_REQUEST)], ids=["silent", "a byte", "half", "ssl request"])
@pytest.mark.poolhouse_only
def test_a_login_that_does_not_come_to_an_end_is_ended(start, start_of_it):
    pooler = start(login_time="1s")
    with pooler.open() as client, pooler.wire() as other:
        if start_of_it:
            client.send(start_of_it)
        if len(start_of_it) == 8:
            assert client.receive(1) == b"N"
        ends_between(client, 0.5, 4)
        assert other.query("SELECT 1") == [["1"]]


def test_a_login_by_single_bytes_does_not_prolong_its_time(start):
    pooler = start(login_time="1s")
    with pooler.open() as client:
        began = time.monotonic()
        with pytest.raises((OSError, w.Closed)):
            for byte in w.startup(user="app", database="bench", application_name="x" * 200):
                client.send(bytes([byte]))
                time.sleep(0.1)
                # All of it would take 25 s. A client that is refused has 5 s to read the error and close.
                assert time.monotonic() - began < 15, "it goes on and on"
            client.receive(1)


@pytest.mark.poolhouse_only
def test_a_password_that_never_comes_is_not_waited_for(start):
    pooler = start(login_time="1s")
    with pooler.open() as client:
        client.send(w.startup(user="app", database="bench"))
        client.expect(b"R")
        error = ends_between(client, 0.5, 4)
        assert error is None or error.sqlstate in ("08006", "57014", "28000", "08P01", "57P05", "57P03"), error


def test_a_client_waits_for_a_busy_server_no_longer_than_max_wait_time(start):
    pooler = start(max_size=1, max_wait_time="1s")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        waiter.send(w.query("SELECT 1"))
        began = time.monotonic()
        error = waiter.error()
        assert 0.7 < time.monotonic() - began < 4
        if pooler.is_poolhouse:
            assert error.sqlstate.startswith("53") or error.sqlstate in ("57014", "08000", "55000"), error
            # The connection stays open: the client may try again.
            waiter.expect(b"Z")
            holder.query("COMMIT")
            assert waiter.query("SELECT 2") == [["2"]]


@pytest.mark.poolhouse_only
def test_what_follows_a_failed_wait_in_one_batch_is_not_executed(start):
    pooler = start(max_size=1, max_wait_time="500ms")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("DROP TABLE IF EXISTS t_wait; CREATE TABLE t_wait (v int)")
        holder.query("BEGIN")
        batch = (w.parse("INSERT INTO t_wait VALUES (1)"), w.bind(), w.execute(), w.SYNC)
        waiter.send(*batch)
        assert waiter.error().sqlstate
        waiter.expect(b"Z")
        holder.query("COMMIT")
        assert waiter.query("SELECT count(*) FROM t_wait") == [["0"]]
        waiter.query("DROP TABLE t_wait")


def test_an_idle_client_is_closed_after_client_idle_time(start):
    pooler = start(client_idle_time="1s")
    with pooler.wire() as client:
        client.query("SELECT 1")
        error = ends_between(client, 0.5, 4)
        if pooler.is_poolhouse:
            assert error.sqlstate == "57P05", error


@pytest.mark.poolhouse_only
def test_client_idle_time_does_not_count_while_something_is_going_on(start):
    pooler = start(client_idle_time="1s")
    with pooler.wire() as client:
        assert client.query("SELECT pg_sleep(1.6), 'done'")[0][1] == "done"
        client.query("BEGIN")
        time.sleep(1.6)
        assert client.query("SELECT 1") == [["1"]]
        client.query("COMMIT")


def test_a_query_that_takes_longer_than_query_time_is_ended(start, cluster):
    pooler = start(query_time="1s", max_size=1, max_wait_time="500ms")
    with pooler.wire() as client:
        client.send(w.query("SELECT pg_sleep(30)"))
        began = time.monotonic()
        answer, body = client.take()
        if answer == b"T":
            answer, body = client.take()
        assert answer == b"E" and 0.7 < time.monotonic() - began < 5
        if pooler.is_poolhouse:
            assert w.error_fields(body)["C"] in ("57014", "57P01", "57P05"), w.error_fields(body)
    if not pooler.is_poolhouse:
        cluster.terminate()
    eventually("the query is gone from the server", lambda: not any(
        "pg_sleep" in b.query and b.state == "active" for b in cluster.backends()), 10)
    with pooler.wire() as other:
        assert other.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_query_time_does_not_end_many_short_queries(start):
    pooler = start(query_time="1s", max_size=1)
    with pooler.wire() as client:
        client.query("BEGIN")
        for n in range(20):
            assert client.query(f"SELECT pg_sleep(0.1), {n}")[0][1] == str(n)
        client.query("COMMIT")


def test_a_transaction_left_idle_is_ended_and_its_locks_with_it(start, cluster):
    pooler = start(transaction_idle_time="1s", max_size=1, max_wait_time="10s")
    with pooler.wire() as client:
        client.query("BEGIN")
        client.query("SELECT pg_advisory_xact_lock(42)")
        error = ends_between(client, 0.5, 5)
        if pooler.is_poolhouse:
            assert error.sqlstate == "25P03", error
    with pooler.wire() as other:
        assert other.query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [["0"]]


@pytest.mark.poolhouse_only
def test_a_server_that_accepts_and_says_nothing_is_given_up(start):
    """A firewall, or a frozen database: connect_time ends the attempt."""
    with socket.create_server(("127.0.0.1", 0)) as hole:
        url = f"postgres://app:x@127.0.0.1:{hole.getsockname()[1]}/bench"
        pooler = start(databases={"bench": {"url": url}}, connect_time="1s", unavailable_wait_time="2s",
                       max_wait_time="10s")
        with pooler.open(15) as client:
            began = time.monotonic()
            with pytest.raises(w.ServerError) as raised:
                client.login("app", "app secret")
                client.query("SELECT 1")
            assert 0.7 < time.monotonic() - began < 8
            assert raised.value.sqlstate.startswith(("08", "57P")), raised.value


LONG = w.query(f"SELECT length('{'x' * 200_000}')")
HALF = {
    "half a query": [LONG[:100_000]],
    "half a query in a transaction": [w.query("BEGIN"), LONG[:100_000]],
    "half a parse": [w.parse(f"SELECT '{'x' * 200_000}'")[:100_000]],
    "no sync": [w.parse("SELECT 1"), w.bind(), w.execute()],
    "a flush and no sync": [w.parse("SELECT 1"), w.bind(), w.execute(), w.FLUSH],
    "no sync behind an error": [w.parse("SELECT 1/0"), w.bind(), w.execute(), w.FLUSH],
    "no data for a copy": [w.query("COPY copied FROM STDIN")],
    "half the data for a copy": [w.query("COPY copied FROM STDIN"), w.copy_data(b"1\n"), w.copy_data(b"1\n" * 100_000)[:100_000]],
    "data for a copy in the extended protocol": [w.parse("COPY copied FROM STDIN"), w.bind(), w.execute(), w.FLUSH],
}


def make_copy_tables(cluster):
    with cluster.superuser("bench") as database:
        database.execute("DROP TABLE IF EXISTS copied, copied_slowly")
        database.execute("CREATE TABLE copied (n int)")
        database.execute("CREATE TABLE copied_slowly (n int CHECK (pg_sleep(3) IS NOT NULL))")
        database.execute("GRANT ALL ON copied, copied_slowly TO PUBLIC")


def told_at_last(client):
    """The error that ends a connection, after any other answers."""
    client.socket.settimeout(20)
    while True:
        kind, body = client.message()
        if kind == b"E" and w.error_fields(body)["S"] == "FATAL":
            return w.error_fields(body)


@pytest.mark.parametrize("name", HALF)
@pytest.mark.poolhouse_only
def test_a_client_that_leaves_its_request_half_sent_keeps_no_server(start, cluster, name):
    """The client sends nothing while its server waits for the rest. That counts as idle, as in an open transaction."""
    make_copy_tables(cluster)
    pooler = start(transaction_idle_time="1s", max_size=1, max_wait_time="20s")
    with pooler.wire() as client, pooler.wire() as other:
        client.send(*HALF[name])
        time.sleep(0.2)
        assert other.query("SELECT 1") == [["1"]]
        assert told_at_last(client)["C"] == "25P03"
        assert client.closed_within(10)


@pytest.mark.parametrize("name", HALF)
@pytest.mark.poolhouse_only
def test_a_client_that_leaves_its_request_half_sent_is_shown_as_idle_in_a_transaction(start, cluster, name):
    make_copy_tables(cluster)
    pooler = start(max_size=1)

    def idles():
        clients = json.loads(pooler.get("/api/clients")[1])["clients"]
        return any(each["state"] == "transaction" and each["state_ms"] > 1000 for each in clients)

    with pooler.wire() as client:
        client.send(*HALF[name])
        eventually("it is idle", idles, 10)


WORKS = {
    "a query": [w.query("SELECT pg_sleep(3)")],
    "a pipeline": [w.parse("SELECT pg_sleep(3)"), w.bind(), w.execute(), w.SYNC],
    "a flush": [w.parse("SELECT pg_sleep(3)"), w.bind(), w.execute(), w.FLUSH],
    "a query with half another": [w.query("SELECT pg_sleep(3)"), LONG[:100_000]],
    "the end of a copy": [w.query("COPY copied_slowly FROM STDIN"), w.copy_data(b"1\n"), w.COPY_DONE],
}
REST = {"a flush": [w.SYNC], "a query with half another": [LONG[100_000:]]}


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.poolhouse_only
def test_transaction_idle_time_does_not_count_while_the_server_works(start, cluster, name):
    make_copy_tables(cluster)
    pooler = start(transaction_idle_time="1s", max_size=1)
    with pooler.wire() as client:
        client.send(*WORKS[name])
        client.socket.settimeout(20)
        if name in REST:
            done = b"Z" if name == "a query with half another" else b"C"
            while client.message()[0] != done:
                pass
            client.send(*REST[name])
        while client.message()[0] != b"Z":
            pass
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_a_client_that_sends_its_request_slowly_is_not_idle(start):
    pooler = start(transaction_idle_time="2s", max_size=1)
    with pooler.wire() as client:
        client.send(LONG[:100_000])
        for at in range(100_000, 112_000, 1_000):
            time.sleep(0.5)
            client.send(LONG[at:at + 1_000])
        client.send(LONG[112_000:])
        assert client.rows() == [["200000"]]


@pytest.mark.poolhouse_only
def test_query_time_goes_on_while_a_request_is_half_sent(start):
    pooler = start(query_time="2s", max_size=1)
    with pooler.wire() as client, pooler.wire() as other:
        client.send(LONG[:100_000])
        time.sleep(0.2)
        assert other.query("SELECT 1") == [["1"]]
        assert told_at_last(client)["C"] == "57014"


@pytest.mark.poolhouse_only
def test_a_login_for_which_no_server_can_be_reached_is_told_why_within_login_time(start, cluster):
    pooler = start(databases={"bench": {"url": "postgres://app:x@127.0.0.1:1/bench"}}, login_time="2s", unavailable_wait_time="60s")
    with pytest.raises(w.ServerError) as refused:
        pooler.wire(timeout=30)
    assert refused.value.sqlstate == "57P03" and "127.0.0.1:1: Connection refused" in str(refused.value.fields), refused.value.fields
    eventually("it is counted", lambda: pooler.metric("poolhouse_client_evictions_total", reason="login_time") == 1)
    assert pooler.metric("poolhouse_checkout_failed_total", reason="unavailable") == 1
    pooler.post("/api/pause?database=bench&time=10ms")
    with pytest.raises(w.ServerError) as refused:
        pooler.wire(timeout=30)
    assert refused.value.sqlstate == "57P03" and "an operator has paused it" in str(refused.value.fields), refused.value.fields
