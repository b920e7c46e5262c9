"""A client that disappears in the middle of something leaves nothing of it to the next client."""

import concurrent.futures
import contextlib
import os
import random
import subprocess
import time

import pytest

from support import postgres_wire as w
from support.departures import DEPARTURES, leave  # noqa: F401  (a fixture)
from support.network_namespace import inside, namespace  # noqa: F401
from support.waiting import eventually

RELAY = """
import asyncio, sys

async def pass_on(reader, writer):
    while part := await reader.read(65536):
        writer.write(part)

async def serve(reader, writer):
    from_database, to_database = await asyncio.open_unix_connection(sys.argv[2])
    await asyncio.gather(pass_on(reader, to_database), pass_on(from_database, writer))

async def main():
    server = await asyncio.start_server(serve, sys.argv[1], 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
"""


def nobody_in_a_transaction(cluster):
    return lambda: all(b.state == "idle" and b.xact_start is None for b in cluster.backends())


def test_in_a_transaction(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    with pooler.wire() as other:
        other.query("DROP TABLE IF EXISTS t_gone; CREATE TABLE t_gone (v int)")
        client = pooler.wire()
        client.query("BEGIN")
        client.query("INSERT INTO t_gone VALUES (1)")
        client.query("SELECT pg_advisory_xact_lock(1)")
        leave(client)
        assert other.query("SELECT count(*) FROM t_gone") == [["0"]]
        assert other.status == "I"
        eventually("the transaction is over", nobody_in_a_transaction(cluster))
        assert other.query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == [["0"]]
        other.query("DROP TABLE t_gone")


def test_in_a_failed_transaction(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.query("BEGIN")
    with pytest.raises(w.ServerError):
        client.query("SELECT 1/0")
    leave(client)
    with pooler.wire() as other:
        assert other.query("SELECT 1") == [["1"]]
        eventually("the transaction is over", nobody_in_a_transaction(cluster))


def test_while_it_sends_a_copy(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    with pooler.wire() as other:
        other.query("DROP TABLE IF EXISTS t_gone_copy; CREATE TABLE t_gone_copy (v text)")
        client = pooler.wire()
        client.send(w.query("COPY t_gone_copy FROM STDIN"))
        client.expect(b"G")
        client.send(*[w.copy_data(b"row\n")] * 1000)
        leave(client)
        assert other.query("SELECT count(*) FROM t_gone_copy") == [["0"]]
        eventually("the copy is over", nobody_in_a_transaction(cluster))
        other.query("DROP TABLE t_gone_copy")


def test_in_the_middle_of_a_message(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.query("BEGIN")
    client.send(w.query("SELECT 'never finished'")[:-9])
    leave(client)
    with pooler.wire() as other:
        assert other.query("SELECT 1") == [["1"]]
        assert other.status == "I"


def test_in_the_middle_of_a_large_copy_message(start, cluster, leave):
    """The server has been promised more bytes than will ever come."""
    pooler = start(max_size=1, max_wait_time="10s")
    with pooler.wire() as other:
        other.query("DROP TABLE IF EXISTS t_gone_part; CREATE TABLE t_gone_part (v text)")
        client = pooler.wire()
        client.send(w.query("COPY t_gone_part FROM STDIN"))
        client.expect(b"G")
        client.send(w.copy_data(b"x" * 4_000_000 + b"\n")[:1_000_000])
        leave(client)
        assert other.query("SELECT count(*) FROM t_gone_part") == [["0"]]
        other.query("DROP TABLE t_gone_part")


def test_in_the_middle_of_a_result(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.send(w.query("SELECT repeat('x', 1000) FROM generate_series(1, 100000)"))
    client.expect(b"T")
    leave(client)
    with pooler.wire() as other:
        assert other.query("SELECT 'clean'") == [["clean"]]


def test_while_its_query_runs(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.send(w.query("SELECT pg_sleep(1.5), 'for nobody'"))
    eventually("the query runs", lambda: any("pg_sleep" in b.query and b.state == "active" for b in cluster.backends()))
    leave(client)
    with pooler.wire() as other:
        assert other.query("SELECT 'mine'") == [["mine"]]


def test_while_it_waits_for_a_server(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    with pooler.wire() as holder, pooler.wire() as other:
        holder.query("BEGIN")
        client = pooler.wire()
        client.send(w.query("CREATE TABLE must_not_exist (v int)"))
        time.sleep(0.2)
        leave(client)
        time.sleep(0.2)
        holder.query("COMMIT")
        assert other.query("SELECT to_regclass('must_not_exist') IS NULL") == [["t"]]


def test_with_a_batch_that_lacks_its_sync(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.send(w.parse("SELECT 'unsynced'"), w.bind(), w.execute(), w.FLUSH)
    client.expect(b"1")
    leave(client)
    with pooler.wire() as other:
        assert other.query("SELECT 'clean'") == [["clean"]]
        assert other.status == "I"


def test_with_a_batch_that_lacks_its_sync_in_session_mode(start, cluster, leave):
    pooler = start(mode="session", max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.send(w.query("BEGIN"), w.parse("SELECT 'unsynced'"), w.bind(), w.execute(), w.FLUSH)
    client.until_ready()
    leave(client)
    with pooler.wire() as other:
        assert other.query("SELECT 'clean'") == [["clean"]]
        assert other.status == "I"


def test_hundreds_of_clients_that_vanish_at_random_moments_leave_all_servers_clean(start, cluster):
    pooler = start(max_size=3, max_wait_time="20s")
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
    print(f"replay with TEST_SEED={seed}")
    pieces = [w.query("BEGIN"), w.query("SELECT 1/0"), w.query("SELECT generate_series(1, 2000)"), w.query("COMMIT"),
              w.parse("SELECT 1"), w.bind(), w.execute(), w.SYNC, w.FLUSH, w.query("COPY (SELECT 1) TO STDOUT"),
              w.query("CREATE TEMP TABLE IF NOT EXISTS t_r (v text) ON COMMIT DELETE ROWS"), w.query("COPY t_r FROM STDIN"),
              w.copy_data(b"x\n"), w.COPY_DONE]

    def work(number):
        chance = random.Random(f"{seed} {number}")
        client = pooler.wire(timeout=30)
        data = b"".join(chance.choices(pieces, k=chance.randrange(1, 8)))
        client.send(data[: chance.randrange(1, len(data) + 1)])
        time.sleep(chance.random() * 0.02)
        chance.choice(list(DEPARTURES.values()))(client)

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(300)))
    with pooler.wire(timeout=30) as last:
        for n in range(20):
            assert last.query(f"SELECT {n}") == [[str(n)]]
            assert last.status == "I"
    eventually("no transaction is left open", nobody_in_a_transaction(cluster))
    assert len(cluster.backends()) <= 3


@contextlib.contextmanager
def relay_in(namespace, address, cluster):
    """A relay to the database in a network namespace: its port there."""
    path = cluster.directory / f".s.PGSQL.{cluster.port}"
    command = [*inside(namespace), "-c", RELAY, address, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        yield int(relay.stdout.readline())
        relay.kill()


@pytest.mark.parametrize("behind", [b"SELECT 1", b"SELECT '" + b"x" * 600_000 + b"'"],
                         ids=["read by the database", "more than the database reads"])
def test_the_server_counts_until_the_database_has_ended_it(start, cluster, leave, behind):
    """Statements after the first are not cancelled, so the session continues until they have ended."""
    pooler = start(max_size=1, max_wait_time="20s")
    client = pooler.wire()
    client.query("SELECT 1")
    client.send(w.query("SELECT pg_sleep(4)"), w.query(behind.decode()))
    eventually("the statement runs", lambda: any(b.state == "active" for b in cluster.backends()))
    leave(client)
    with pooler.wire() as other, concurrent.futures.ThreadPoolExecutor() as pool:
        asked = pool.submit(other.query, "SELECT pg_sleep(0.5)")
        most = 0
        while not asked.done():
            most = max(most, len(cluster.backends()))
            time.sleep(0.05)
        assert asked.result() == [[""]]
    assert most == 1


def test_the_server_of_a_host_that_vanishes_does_not_count_for_long(start, cluster, namespace):
    name, ours, theirs, cut = namespace
    with relay_in(name, theirs, cluster) as port:
        url = cluster.url("bench").replace(f"127.0.0.1:{cluster.port}", f"{theirs}:{port}")
        pooler = start(databases={"bench": {"url": url}}, max_size=1)
        client = pooler.wire()
        client.send(w.query("SELECT pg_sleep(600)"), w.query("SELECT 1"))
        eventually("the statement runs", lambda: any(b.state == "active" for b in cluster.backends()))
        cut()
        client.close()
        eventually("it is not counted any more", lambda: pooler.metric("poolhouse_servers") == 0, seconds=30)
    cluster.terminate()


@pytest.mark.poolhouse_only
def test_logins_that_failed_do_not_crowd_out_clients_that_are_sent_away(start):
    """A worker watches a limited number of closed connections for the client's answer, and prefers clients that had
    logged in."""
    pooler = start(client_idle_time="1s", workers=1)
    others = []
    with pooler.wire():
        for _ in range(300):
            others.append(pooler.open())
            others[-1].send(w.startup(database="bench"))
        for other in others:
            assert other.error().severity == "FATAL"
        eventually("it was watched, and has not answered", lambda: pooler.metric(
            "poolhouse_client_closes_unanswered_total", reason="client_idle_time") == 1, 20)
    for other in others:
        other.close()
