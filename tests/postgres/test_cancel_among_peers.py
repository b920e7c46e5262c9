"""Cancel requests among several processes behind one address: each reaches the process that has its query."""

import contextlib
import signal
import socket
import threading
import time

import pytest

from support import postgres_wire as w
from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS, free_port
from support.waiting import eventually, query_under_way

pytestmark = pytest.mark.poolhouse_only


def address(pooler):
    return f"127.0.0.1:{pooler.port}"


@pytest.fixture
def group(start):
    """Starts processes with the numbers 1, 2 and so on, each a peer of all."""
    def begin(count=2, place=address, **settings):
        made = [start.unstarted() for _ in range(count)]
        peers = [{"node_id": number, "address": place(pooler)} for number, pooler in enumerate(made, 1)]
        for number, pooler in enumerate(made, 1):
            listen = [address(pooler), *([f"unix:{place(pooler)}"] if place is not address else [])]
            pooler.start(node_id=number, peers=peers, listen=listen, **settings)
        return made
    return begin


def cancel(pooler, key, seconds=8):
    """Cancels as libpq does. Returns how long it took until the other side closed the connection."""
    began = time.monotonic()
    with pooler.open() as other:
        other.send(w.request(w.CANCEL_REQUEST, key))
        assert other.closed_within(seconds)
    return time.monotonic() - began


def outcome(client):
    """Reads up to ReadyForQuery: the SQLSTATE of an error, or None."""
    answers, _ = client.until_ready()
    return next((w.error_fields(body)["C"] for kind, body in answers if kind == b"E"), None)


def delivered(pooler, outcome="delivered"):
    return pooler.metric("poolhouse_peer_cancels_total", outcome=outcome)


def for_node(key, number):
    return key[:1] + number.to_bytes(2, "little") + key[3:]


@pytest.mark.parametrize("version", [w.PROTOCOL_3_0, w.PROTOCOL_3_2])
@pytest.mark.parametrize("place", [address, lambda pooler: f"{pooler.directory}/s", lambda pooler: f"@{pooler.directory}"],
                         ids=["tcp", "unix", "abstract"])
def test_a_request_that_comes_to_the_wrong_process_is_handed_on(group, place, version, cluster):
    one, two = group(place=place)
    with two.open() as client:
        client.login("app", PASSWORDS["app"], version=version)
        for _ in range(3):
            client.send(w.query("SELECT pg_sleep(30)"))
            query_under_way(cluster, "pg_sleep(30)")
            assert cancel(one, client.key) < 3
            assert outcome(client) == "57014"
            # The request has been dealt with, so this query is not hit.
            assert client.query("SELECT 1") == [["1"]]
    assert (delivered(one), delivered(two)) == (3, 0)


def test_requests_that_come_at_the_moment_their_queries_end_hit_no_other_query(group):
    one, two = group(max_size=2, max_wait_time="60s")
    until, trouble = time.monotonic() + 4, []

    def canceller(number):
        with two.wire(timeout=60) as client:
            while time.monotonic() < until and not trouble:
                client.send(w.query("SELECT pg_sleep(0.005)"))
                time.sleep(0.002 * (number + 1))
                asking = threading.Thread(target=cancel, args=[one, client.key])
                asking.start()
                code = outcome(client)
                asking.join()
                client.send(w.query("SELECT 1"))
                if code not in (None, "57014") or outcome(client):
                    trouble.append(code)

    threads = [threading.Thread(target=canceller, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble and delivered(one) > 20


def test_a_request_goes_in_no_circle_when_peers_have_each_other_wrongly_configured(start):
    one, two = start.unstarted(), start.unstarted()
    for number, pooler, other in ((1, one, two), (2, two, one)):
        pooler.start(node_id=number, peers=[{"node_id": 3, "address": address(other)}])
    with one.wire() as client:
        assert cancel(one, for_node(client.key, 3)) < 3
    assert delivered(one) + delivered(two) == 3
    assert "handed on too often" in two.log()


def test_a_peer_that_is_gone_is_counted_and_logged(start):
    dead = free_port()
    pooler = start(node_id=1, peers=[{"node_id": 2, "address": f"127.0.0.1:{dead}"}, {"node_id": 3, "address": "/nowhere"}])
    with pooler.wire() as client:
        for number in (2, 3):
            assert cancel(pooler, for_node(client.key, number)) < 3
    assert delivered(pooler, "failed") == 2
    assert f"not handed on to peer 2 at 127.0.0.1:{dead}" in pooler.log()


def test_a_silent_peer_takes_as_many_requests_at_a_time_as_configured(start):
    accepted = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        def accept():
            with contextlib.suppress(OSError):
                while True:
                    accepted.append(silent.accept()[0])

        threading.Thread(target=accept, daemon=True).start()
        peers = [{"node_id": 2, "address": f"127.0.0.1:{silent.getsockname()[1]}", "max_size": 2}]
        pooler = start(node_id=1, peers=peers, cancel_wait_time="6s", console={"name": "pgbouncer", "admins": ["app"]})
        with pooler.wire() as client, pooler.connect(database="pgbouncer") as console:
            key = for_node(client.key, 2)
            asking = [threading.Thread(target=cancel, args=[pooler, key]) for _ in range(5)]
            for thread in asking:
                thread.start()
            eventually("two are on their way", lambda: len(accepted) == 2)
            eventually("three wait", lambda: console.execute("SHOW PEER_POOLS").fetchall() == [(2, 2, 3, 2, 0)])
            assert console.execute("SHOW PEERS").fetchall() == [(2, "127.0.0.1", silent.getsockname()[1], 2)]
            time.sleep(1)
            assert len(accepted) == 2
            for thread in asking:
                thread.join()
            assert client.query("SELECT 1") == [["1"]]
        assert delivered(pooler, "failed") == 5


def test_a_reload_changes_the_peers(group, start):
    one, two = group()
    with two.wire() as client:
        one.rewrite(node_id=1)
        one.signal(signal.SIGHUP)
        eventually("it knows no peers", lambda: cancel(one, client.key) and one.metric("poolhouse_foreign_cancels_dropped_total"))
        one.rewrite(node_id=1, peers=[{"node_id": 2, "address": address(two)}])
        one.signal(signal.SIGHUP)
        eventually("it knows the peer", lambda: cancel(one, client.key) and delivered(one))


def shared(start, count):
    """Processes that share a port, each with a Unix socket of its own."""
    made = [start.unstarted() for _ in range(count)]
    peers = [{"node_id": number, "address": f"{pooler.directory}/own"} for number, pooler in enumerate(made, 1)]
    for number, pooler in enumerate(made, 1):
        pooler.port = made[0].port
        pooler.start(**settings(pooler, number, peers))
    return made, peers


def settings(pooler, number, peers):
    listen = [address(pooler), f"unix:{pooler.directory}/own"]
    return {"node_id": number, "peers": peers, "reuse_port": True, "listen": listen}


def test_processes_that_share_a_port_find_each_others_queries(start, cluster):
    made, _ = shared(start, 3)
    seen = set()
    for _ in range(30):
        with made[0].wire() as client:
            client.send(w.query("SELECT pg_sleep(30)"))
            query_under_way(cluster, "pg_sleep(30)")
            assert cancel(made[0], client.key) < 5
            assert outcome(client) == "57014"
            seen.add(client.key[1])
    assert seen == {1, 2, 3}
    assert sum(delivered(pooler) for pooler in made) > 5 and not any(delivered(pooler, "failed") for pooler in made)


def test_a_process_that_takes_over_among_several_takes_the_place_of_its_own_number(start, cluster):
    made, peers = shared(start, 2)
    for number, pooler in enumerate(made, 1):
        old, before = pooler.process, pooler.process.pid
        pooler.launch([BINARY, "serve", "--config", str(pooler.config_path), "--take-over"])
        assert old.wait(10) == 0, f"process {before} of node {number} was not taken over from"
    for pooler in made:
        eventually("it serves", lambda: pooler.get("/health")[0] == 200)
    for number, pooler in enumerate(made, 1):
        with w.Wire(f"{pooler.directory}/own").login("app", PASSWORDS["app"]) as client:
            assert client.key[1] == number
            client.send(w.query("SELECT pg_sleep(30)"))
            query_under_way(cluster, "pg_sleep(30)")
            with w.Wire(f"{made[2 - number].directory}/own") as other:
                other.send(w.request(w.CANCEL_REQUEST, client.key))
                assert other.closed_within(5)
            assert outcome(client) == "57014"
