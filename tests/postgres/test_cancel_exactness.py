"""A cancel that arrives just as its query ends stops that query or none. It never stops a query of another client, nor
the next query of the same client once the request has been answered.
"""

import os
import random
import signal
import threading
import time

import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def ask_to_cancel(pooler, key):
    """Cancels as libpq does: it waits until the other side closes the connection, because the request has been handled
    then."""
    with pooler.open() as other:
        other.send(w.request(w.CANCEL_REQUEST, key))
        assert other.closed_within(8)


def outcome(client):
    """Reads up to ReadyForQuery: the SQLSTATE of an error, or None."""
    answers, _ = client.until_ready()
    codes = [w.error_fields(body)["C"] for kind, body in answers if kind == b"E"]
    assert len(codes) <= 1
    return codes[0] if codes else None


@pytest.mark.parametrize("workers", [1, 2])
def test_many_clients_cancel_at_the_moment_their_queries_end_and_no_other_is_hit(start, cluster, workers):
    pooler = start(max_size=3, max_wait_time="60s", workers=workers)
    trouble, cancelled, until = [], [0], time.monotonic() + 6

    def bystander():
        with pooler.wire(timeout=60) as client:
            while time.monotonic() < until and not trouble:
                client.send(w.query("SELECT pg_sleep(0.002)"))
                if code := outcome(client):
                    trouble.append(f"a bystander was hit: {code}")

    def canceller(seed):
        dice = random.Random(seed)
        with pooler.wire(timeout=60) as client:
            while time.monotonic() < until and not trouble:
                client.send(w.query("SELECT pg_sleep(0.004)"))
                time.sleep(dice.uniform(0, 0.012))
                asking = threading.Thread(target=ask_to_cancel, args=[pooler, client.key])
                asking.start()
                code = outcome(client)
                cancelled[0] += code == "57014"
                asking.join()
                # The cancel request has been handled, so this query must not be hit.
                client.send(w.query("SELECT 1"))
                if code not in (None, "57014") or (code := outcome(client)):
                    trouble.append(f"the canceller's own next query was hit: {code}")

    threads = [threading.Thread(target=bystander) for _ in range(6)]
    threads += [threading.Thread(target=canceller, args=[seed]) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble, trouble
    assert cancelled[0] > 0, "some must hit what they are meant for"


def test_inside_a_transaction_the_next_query_is_not_hit(start, cluster):
    """The client keeps its server, so its next query is protected only because it waits for the cancel."""
    pooler = start(max_size=1)
    with pooler.wire() as client:
        hits = 0
        for n in range(150):
            client.query("BEGIN")
            client.send(w.query("SELECT pg_sleep(0.002)"))
            with pooler.open() as other:
                time.sleep(0.0001 * (n % 30))
                other.send(w.request(w.CANCEL_REQUEST, client.key))
                # The next query waits only for the answer to the first.
                hits += outcome(client) == "57014"
                assert other.closed_within(8)
            client.send(w.query("SELECT 2"))
            assert outcome(client) in (None, "25P02")
            client.query("ROLLBACK")
        assert hits > 0


def test_clients_that_vanish_while_they_are_cancelled_harm_no_other(start, cluster):
    pooler = start(max_size=2, max_wait_time="60s")
    stop, trouble = threading.Event(), []

    def bystander():
        with pooler.wire(timeout=60) as client:
            while not stop.is_set():
                client.send(w.query("SELECT pg_sleep(0.001)"))
                if code := outcome(client):
                    trouble.append(code)

    threads = [threading.Thread(target=bystander) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(60):
        client = pooler.wire(timeout=60)
        client.send(w.query("SELECT pg_sleep(0.003)"))
        time.sleep(0.0002 * (n % 25))
        with pooler.open() as other:
            other.send(w.request(w.CANCEL_REQUEST, client.key))
            client.close()
    stop.set()
    for thread in threads:
        thread.join()
    assert not trouble, trouble


def test_a_key_looks_like_a_process_id_and_carries_the_node(start, cluster):
    pooler = start(node_id=0x1234)
    with pooler.wire() as client:
        number = int.from_bytes(client.key[:4], "big", signed=True)
        assert number > 0 and client.key[1:3] == b"\x34\x12" and client.key[7] & 3 == 3


def test_a_cancel_for_another_node_is_logged_and_nothing_else(start, cluster):
    pooler = start(node_id=5)
    with pooler.wire() as client:
        client.send(w.query("SELECT pg_sleep(0.5), 'undisturbed'"))
        time.sleep(0.1)
        ask_to_cancel(pooler, client.key[:1] + b"\6\0" + client.key[3:])
        assert client.rows()[0][1] == "undisturbed"
    eventually("a line in the log", lambda: "node 6 came to node 5" in pooler.log())
    assert pooler.metric("poolhouse_foreign_cancels_dropped_total") == 1


@pytest.mark.parametrize("stopped_for", [1, 7], ids=["answered late", "given up"])
def test_a_cancel_that_is_stuck_withholds_its_server_until_it_cannot_do_harm(start, cluster, stopped_for):
    """A stopped postmaster accepts connections and reads nothing, while its backends continue."""
    pooler = start(max_size=1, max_wait_time="30s", unavailable_wait_time="30s")
    postmaster = int((cluster.data / "postmaster.pid").read_text().split()[0])
    with pooler.wire(timeout=30) as cancelled, pooler.wire(timeout=30) as other:
        backend = cancelled.query("SELECT pg_backend_pid()")
        cancelled.send(w.query("SELECT pg_sleep(0.4), 'done'"))
        time.sleep(0.1)
        os.kill(postmaster, signal.SIGSTOP)
        try:
            asking = threading.Thread(target=ask_to_cancel, args=[pooler, cancelled.key])
            asking.start()
            assert cancelled.rows()[0][1] == "done"
            other.send(w.query("SELECT pg_backend_pid(), pg_sleep(0.3)"))
            time.sleep(stopped_for - 0.5)
        finally:
            os.kill(postmaster, signal.SIGCONT)
        asking.join()
        assert (other.rows()[0][:1] == backend[0]) == (stopped_for == 1)
