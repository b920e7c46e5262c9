"""A CancelRequest reaches the query it is meant for, and no other."""

import threading
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually


def cancel(pooler, key):
    """Sends a CancelRequest. The other side answers it by closing the connection."""
    with pooler.open() as other:
        other.send(w.request(w.CANCEL_REQUEST, key))
        assert other.closed_within(5)


def running(cluster):
    return lambda: any("pg_sleep" in b.query and b.state == "active" for b in cluster.backends())


@pytest.mark.quick
@pytest.mark.timing
def test_a_running_query_is_cancelled(start, cluster):
    pooler = start(max_size=2)
    with pooler.wire() as client:
        client.send(w.query("SELECT pg_sleep(20)"))
        eventually("it runs", running(cluster))
        began = time.monotonic()
        cancel(pooler, client.key)
        client.expect(b"T")
        assert client.error().sqlstate == "57014"
        assert time.monotonic() - began < 5
        client.expect(b"Z")
        assert client.query("SELECT 1") == [["1"]]


def test_psycopg_cancels_as_it_would_on_a_server(start, cluster):
    pooler = start(max_size=2)
    with pooler.connect() as connection:
        threading.Timer(0.3, connection.cancel).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(20)")
        assert connection.execute("SELECT 1").fetchone() == (1,)


LONG = "SELECT 1 AS one, pg_sleep(20)"
WAYS = {"simple": [w.query(LONG)], "extended": [w.parse(LONG), w.bind(), w.describe_portal(), w.execute(), w.SYNC]}


@pytest.mark.timing
@pytest.mark.parametrize("kept", [False, True], ids=["whole", "statements kept"])
@pytest.mark.parametrize("way", WAYS)
def test_the_first_query_on_a_server_that_was_another_clients_is_cancelled(start, cluster, way, kept):
    """The query is sent in one write with the cleaning of the server, whose answers the database keeps back until it
    has answered the query."""
    pooler = start(max_size=1, reset="always")
    prepared = (w.parse("SELECT 1", "s"), w.bind(name="s"), w.execute(), w.SYNC) if kept else (w.query("SELECT 1"),)
    with pooler.wire() as one, pooler.wire() as client:
        for _ in range(2):
            one.send(*prepared)
            one.rows()
            prepared = prepared[1:] if len(prepared) > 3 else prepared
            client.send(*WAYS[way])
            eventually("it runs", running(cluster))
            began = time.monotonic()
            cancel(pooler, client.key)
            answers, status = client.until_ready()
            assert [w.error_fields(body)["C"] for kind, body in answers if kind == b"E"] == ["57014"] and status == "I"
            assert time.monotonic() - began < 5
            assert client.query("SELECT 1") == [["1"]]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_a_cancel_at_any_moment_of_a_change_of_hands_hits_its_query_or_nothing(start, way, workers):
    """A cancel that comes during the cleaning ends the query that waits behind it, which is answered once; no other
    client is hit.
    """
    pooler = start(max_size=1, reset="always", workers=workers)
    outcomes = set()
    short = [part.replace(b"pg_sleep(20)", b"pg_sleep(.2)") for part in WAYS[way]]
    with pooler.wire() as one, pooler.wire() as client:
        for n in range(60):
            assert one.query(f"SELECT {n}") == [[str(n)]]
            client.send(*short)
            time.sleep(n / 60 * 0.004)
            cancel(pooler, client.key)
            answers, status = client.until_ready()
            failed = [w.error_fields(body)["C"] for kind, body in answers if kind == b"E"]
            assert status == "I" and failed in ([], ["57014"])
            outcomes.update(failed)
            assert client.query("SELECT 'next'") == [["next"]]
    assert outcomes == {"57014"}


@pytest.mark.parametrize("spoil", [lambda key: key[:4] + bytes(b ^ 0xFF for b in key[4:]), lambda key: bytes(8),
                                   lambda key: b"\xff" * 8], ids=["wrong secret", "zeros", "ones"])
def test_a_cancel_with_a_wrong_key_does_nothing(start, cluster, spoil):
    pooler = start(max_size=2)
    with pooler.wire() as client:
        client.send(w.query("SELECT pg_sleep(0.6), 'undisturbed'"))
        eventually("it runs", running(cluster))
        cancel(pooler, spoil(client.key))
        assert client.rows()[0][1] == "undisturbed"


LONG_KEY_SPOILERS = {
    "another secret": lambda key: key[:4] + bytes(b ^ 0x7F for b in key[4:]), "its first half": lambda key: key[:8], "its second half": lambda key: key[:4] + key[8:],
    "cut short": lambda key: key[:-1], "too long": lambda key: key + bytes(1), "far too long": lambda key: key + bytes(300), "no secret": lambda key: key[:4],
}


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("spoil", LONG_KEY_SPOILERS.values(), ids=LONG_KEY_SPOILERS.keys())
def test_with_protocol_3_2_only_the_whole_long_key_cancels(start, cluster, spoil):
    pooler = start(max_size=2)
    with pooler.open() as client:
        client.login("app", PASSWORDS["app"], version=w.PROTOCOL_3_2)
        client.send(w.query("SELECT pg_sleep(2), 'undisturbed'"))
        eventually("it runs", running(cluster))
        cancel(pooler, spoil(client.key))
        assert client.rows()[0][1] == "undisturbed"
        client.send(w.query("SELECT pg_sleep(20)"))
        eventually("it runs", running(cluster))
        cancel(pooler, client.key)
        with pytest.raises(w.ServerError, match="57014"):
            client.rows()


@pytest.mark.poolhouse_only
def test_libpq_cancels_with_protocol_3_2(start, cluster):
    if psycopg.pq.version() < 180000:
        pytest.skip("libpq is too old")
    pooler = start(max_size=1)
    with pooler.connect(min_protocol_version="3.2", max_protocol_version="3.2") as connection:
        threading.Timer(0.3, connection.cancel_safe).start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute("SELECT pg_sleep(20)")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_cancel_for_an_idle_client_harms_no_client(start, cluster):
    """The server that the idle client used last now works for another client."""
    pooler = start(max_size=1)
    with pooler.wire() as idle, pooler.wire() as busy:
        assert idle.query("SELECT 1") == [["1"]]
        busy.send(w.query("SELECT pg_sleep(0.6), 'undisturbed'"))
        eventually("it runs", running(cluster))
        cancel(pooler, idle.key)
        assert busy.rows()[0][1] == "undisturbed"


def test_late_cancels_never_hit_the_next_clients_query(start, cluster):
    """A cancel takes its own connection to the database, and may arrive there after the query that it was meant for."""
    pooler = start(max_size=1, max_wait_time="30s")
    stop = threading.Event()
    trouble = []

    def innocent():
        with pooler.wire() as client:
            while not stop.is_set():
                try:
                    assert client.query("SELECT pg_sleep(0.001), 'mine'")[0][1] == "mine"
                except w.ServerError as error:
                    trouble.append(error)
                    return

    thread = threading.Thread(target=innocent)
    thread.start()
    try:
        with pooler.wire() as client:
            for _ in range(60):
                client.send(w.query("SELECT pg_sleep(0.002)"))
                with pooler.open() as other:
                    other.send(w.request(w.CANCEL_REQUEST, client.key))
                    answers, _ = client.until_ready()
                    errors = [w.error_fields(body)["C"] for kind, body in answers if kind == b"E"]
                    assert errors in ([], ["57014"])
                    # The owner of the key may be hit late as well, on a server of its own; but not in its next query.
                    other.closed_within(5)
    finally:
        stop.set()
        thread.join()
    assert not trouble if pooler.is_poolhouse else True, trouble


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_a_client_that_waits_for_a_server_can_be_cancelled(start, cluster):
    pooler = start(max_size=1, max_wait_time="30s")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        waiter.send(w.query("SELECT 'never run'"))
        time.sleep(0.2)
        cancel(pooler, waiter.key)
        assert waiter.error().sqlstate == "57014"
        waiter.expect(b"Z")
        holder.query("COMMIT")
        assert waiter.query("SELECT 2") == [["2"]]


def test_the_statement_of_a_client_that_has_gone_at_once_is_cancelled(start, cluster):
    """The client's end arrives with its statement, so a first cancel request may reach the server before that has read
    the statement."""
    pooler = start(max_size=2)
    for _ in range(8):
        with pooler.wire() as client:
            client.send(w.query("SELECT pg_sleep(60)"))
    eventually("none of them runs on", lambda: not running(cluster)())
    with pooler.wire() as client:
        assert client.query("SELECT 1") == [["1"]]
