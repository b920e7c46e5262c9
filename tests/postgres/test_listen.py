"""LISTEN in transaction mode: clients that listen share one server of their pool."""

import asyncio
import json
import time

import asyncpg
import psycopg
import pytest

from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only


def listening_servers(pooler):
    servers = json.loads(pooler.get("/api/servers")[1])["servers"]
    return [server for server in servers if server["pinned"] == "listen"]


def heard(client, count, timeout=10):
    """The next notifications, as channel and payload."""
    return [(note.channel, note.payload) for note in client.notifies(timeout=timeout, stop_after=count)]


def eventually(what, holds, seconds=5):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.mark.quick
def test_many_listen_on_one_server_and_miss_nothing(start):
    pooler = start(max_size=4, workers=2)
    clients = [pooler.connect() for _ in range(60)]
    try:
        for number, client in enumerate(clients):
            client.execute("LISTEN everybody")
            client.execute(f"LISTEN only_{number % 3}")
        assert len(listening_servers(pooler)) == 1
        with pooler.connect() as teller:
            for turn in range(50):
                teller.execute("SELECT pg_notify('everybody', %s)", (f"e{turn}",))
                teller.execute("SELECT pg_notify(%s, %s)", (f"only_{turn % 3}", f"o{turn}"))
        for number, client in enumerate(clients):
            expected = []
            for turn in range(50):
                expected.append(("everybody", f"e{turn}"))
                if turn % 3 == number % 3:
                    expected.append((f"only_{number % 3}", f"o{turn}"))
            assert heard(client, len(expected)) == expected
            # Listening clients can do everything else, too.
            assert client.execute("SELECT 1").fetchone() == (1,)
        assert sum(pool["servers"]["total"] for pool in pooler.pools()) <= 4
    finally:
        for client in clients:
            client.close()
    eventually("no client listens any more", lambda: not listening_servers(pooler))


def test_nothing_is_missed_after_listen_has_returned(start):
    """A notification that another session sends right after LISTEN is answered arrives once."""
    pooler = start(max_size=4)
    with pooler.connect() as teller:
        for turn in range(40):
            with pooler.connect() as client:
                client.execute("LISTEN news")
                teller.execute("SELECT pg_notify('news', %s)", (str(turn),))
                assert heard(client, 1) == [("news", str(turn))]
                assert heard(client, 1, timeout=0.01) == []


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("pin, then", [
    ("CREATE TEMP TABLE t ()", "DROP TABLE t"),
    ("CREATE TEMP TABLE t ()", "CREATE TEMP TABLE u ()"),
    ("SELECT pg_advisory_lock(1)", "SELECT pg_advisory_unlock(1)"),
    ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "CLOSE c"),
])
def test_a_client_that_began_to_listen_while_it_was_pinned_misses_nothing(start, pin, then, shared):
    pooler = start(max_size=8)
    with pooler.connect() as teller, pooler.connect() as other:
        if shared:
            other.execute("LISTEN news")
        for _ in range(5):
            with pooler.connect() as client:
                for text in (pin, "LISTEN news", then):
                    client.execute(text)
                told = [("news", str(number)) for number in range(4)]
                for note in told:
                    teller.execute("SELECT pg_notify(%s, %s)", note)
                assert heard(client, 4, timeout=3) == told
                assert heard(client, 1, timeout=0.01) == []


def test_a_client_may_listen_again_to_most_of_the_channels_that_it_may_have(start):
    pooler = start(max_size=2)
    text = "; ".join(f"LISTEN c{number}" for number in range(600))
    with pooler.wire() as client:
        for _ in range(2):
            client.query(f"BEGIN; {text}; COMMIT")
        client.query("NOTIFY c599")
        # A thousand is the most.
        with pytest.raises(w.ServerError, match="1000 channels at most"):
            client.query("; ".join(f"LISTEN d{number}" for number in range(401)))


def test_a_client_hears_itself_after_its_transaction(start):
    pooler = start(max_size=3)
    with pooler.connect(autocommit=False) as client:
        client.execute("LISTEN mine")
        client.commit()
        client.execute("NOTIFY mine, 'a'")
        assert heard(client, 1, timeout=0.2) == []
        client.commit()
        assert heard(client, 1) == [("mine", "a")]
        # A client in a transaction hears no others either.
        client.execute("SELECT 1")
        with pooler.connect() as other:
            other.execute("NOTIFY mine, 'b'")
        assert heard(client, 1, timeout=0.2) == []
        client.commit()
        assert heard(client, 1) == [("mine", "b")]


def test_what_is_rolled_back_was_not_said(start):
    pooler = start(max_size=3)
    with pooler.connect(autocommit=False) as client, pooler.connect() as other:
        client.execute("LISTEN never")
        client.rollback()
        other.execute("NOTIFY never")
        client.execute("LISTEN news")
        client.commit()
        client.execute("UNLISTEN news")
        client.rollback()
        other.execute("NOTIFY news, 'still'")
        assert heard(client, 1) == [("news", "still")]
        client.execute("UNLISTEN news")
        client.commit()
        other.execute("NOTIFY news, 'gone'")
        assert heard(client, 1, timeout=0.2) == []
        eventually("no client listens any more", lambda: not listening_servers(pooler))


@pytest.mark.parametrize("failing", ["before", "behind"])
def test_an_error_beside_an_unlisten_in_a_pipeline_is_not_its_own(start, failing):
    pooler = start(max_size=2)
    with pooler.wire() as client:
        client.query("LISTEN news")
        eventually("it is heard elsewhere", lambda: listening_servers(pooler))
        pipeline = [w.query("SELECT 1/0"), w.query("UNLISTEN news")]
        client.send(*(pipeline if failing == "before" else reversed(pipeline)))
        failures = [any(kind == b"E" for kind, _ in client.until_ready()[0]) for _ in pipeline]
        assert sorted(failures) == [False, True]
        eventually("no client listens any more", lambda: not listening_servers(pooler))


@pytest.mark.parametrize("name", ["Plain", '"a""b"', '"%s"' % ("x" * 62 + "é"), "x" * 70])
def test_a_channel_is_left_by_the_name_by_which_it_was_entered(start, name):
    pooler = start(max_size=3)
    with pooler.connect() as client, pooler.connect() as other:
        client.execute(f"LISTEN {name}")
        client.execute("LISTEN last")
        client.execute(f"UNLISTEN {name}")
        other.execute(f"NOTIFY {name}")
        other.execute("NOTIFY last")
        assert heard(client, 1) == [("last", "")]


@pytest.mark.parametrize("goodbye", ["UNLISTEN *", "DISCARD ALL"])
def test_a_client_can_stop_listening_to_all(start, goodbye):
    pooler = start(max_size=3)
    with pooler.connect() as client, pooler.connect() as other:
        client.execute('LISTEN "Odd ""Name"')
        client.execute("LISTEN b")
        other.execute('NOTIFY "Odd ""Name", \'x\'')
        assert heard(client, 1) == [('Odd "Name', "x")]
        client.execute(goodbye)
        other.execute("NOTIFY b")
        assert heard(client, 1, timeout=0.2) == []
        eventually("no client listens any more", lambda: not listening_servers(pooler))


def test_clients_that_listen_are_told_when_the_server_that_listens_dies(start, cluster):
    pooler = start(max_size=4)
    clients = [pooler.connect() for _ in range(5)]
    other = pooler.connect()
    for client in clients:
        client.execute("LISTEN news")
    (server,) = listening_servers(pooler)
    other.execute("SELECT pg_terminate_backend(%s)", (server["backend"],))
    for client in clients:
        with pytest.raises(psycopg.OperationalError):
            while True:
                heard(client, 1, timeout=5)
                client.execute("SELECT 1")
    told = "the server that listens for this client was lost"
    eventually("each is in the log", lambda: pooler.log().count(told) == len(clients))
    # All other clients continue, and so does a client that listens again.
    assert other.execute("SELECT 1").fetchone() == (1,)
    with pooler.connect() as again:
        again.execute("LISTEN news")
        other.execute("NOTIFY news, 'x'")
        assert heard(again, 1) == [("news", "x")]
    other.close()


@pytest.mark.parametrize("limit", ["max_connections", "max_server_connections"])
def test_the_only_server_that_limits_leave_is_not_taken_for_listening(start, limit):
    of_a_database = limit == "max_connections"
    pooler = start(max_size=5, databases={"bench": {limit: 1} if of_a_database else {}}, **({} if of_a_database else {limit: 1}))
    with pooler.connect() as client:
        client.execute("LISTEN news")
        client.execute("UNLISTEN *")
    with pooler.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("order", ["reconnect", "reload"])
def test_clients_do_not_go_on_listening_where_servers_are_made_no_more(start, cluster, order):
    pooler = start(databases={"bench": {}}, max_size=4)
    client = pooler.connect()
    client.execute("LISTEN news")
    (before,) = listening_servers(pooler)
    if order == "reload":
        pooler.rewrite(databases={"bench": {"url": cluster.url("template1")}}, max_size=4)
    assert pooler.ctl(order).returncode == 0
    with pytest.raises(psycopg.OperationalError):
        while True:
            heard(client, 1, timeout=1)
            client.execute("SELECT 1")
    with pooler.connect() as again, pooler.connect() as other:
        again.execute("LISTEN news")
        (after,) = listening_servers(pooler)
        assert after["backend"] != before["backend"]
        other.execute("NOTIFY news, 'x'")
        assert heard(again, 1) == [("news", "x")]


def test_asyncpg_listens_and_its_pool_cleans_up(start):
    pooler = start(max_size=3)

    async def main():
        target = pooler.target()
        target["database"] = target.pop("dbname")
        client, other = await asyncpg.connect(**target), await asyncpg.connect(**target)
        queue = asyncio.Queue()

        def tell(_connection, _pid, channel, payload):
            queue.put_nowait((channel, payload))

        await client.add_listener("news", tell)
        for turn in range(20):
            await other.execute("SELECT pg_notify('news', $1)", str(turn))
            assert await asyncio.wait_for(queue.get(), 10) == ("news", str(turn))
            assert await client.fetchval("SELECT $1::int", turn) == turn
        await client.remove_listener("news", tell)
        await client.reset()
        eventually("no client listens any more", lambda: not listening_servers(pooler))
        await client.close()
        await other.close()

    asyncio.run(main())


def test_a_pool_of_one_server_keeps_it_for_the_client(start):
    """The pool would have no server left to work with."""
    pooler = start(max_size=1)
    with pooler.connect() as client:
        client.execute("LISTEN news")
        client.execute("NOTIFY news, 'x'")
        assert heard(client, 1) == [("news", "x")]
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_a_client_that_does_not_read_is_cut_off_and_the_others_hear_everything(start):
    pooler = start(max_size=4, workers=2)
    deaf = pooler.wire()
    deaf.query("LISTEN news")
    before = pooler.resident_kib()
    with pooler.connect() as client, pooler.connect() as teller:
        client.execute("LISTEN news")
        payload = "x" * 7900
        for turn in range(3000):
            teller.execute("SELECT pg_notify('news', %s)", (f"{turn} {payload}",))
            assert heard(client, 1) == [("news", f"{turn} {payload}")]
        connected = json.loads(pooler.get("/api/clients")[1])["clients"]
        assert len(connected) == 2, "4 MB have waited for the third"
    assert pooler.resident_kib() - before < 32 * 1024
    deaf.close()
