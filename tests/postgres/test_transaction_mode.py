"""Transaction mode, the default: a server belongs to a client for one transaction."""

import concurrent.futures

import psycopg
import pytest

from support import postgres_wire as w
from support.waiting import eventually


def pid(connection):
    return connection.execute("SELECT pg_backend_pid()").fetchone()[0]


@pytest.mark.quick
def test_many_clients_share_few_servers(start, cluster):
    pooler = start(max_size=3)
    connections = [pooler.connect() for _ in range(40)]
    with concurrent.futures.ThreadPoolExecutor(20) as threads:
        pids = set(threads.map(pid, connections * 3))
    assert 1 <= len(pids) <= 3
    assert len(cluster.backends()) <= 3
    for connection in connections:
        connection.close()


@pytest.mark.timing
def test_a_transaction_keeps_its_server_and_gives_it_back_at_its_end(start):
    pooler = start(max_size=1, max_wait_time="20s")
    with pooler.connect() as first, pooler.connect() as second, concurrent.futures.ThreadPoolExecutor(1) as thread:
        with first.transaction():
            first.execute("SELECT 1")
            waiting = thread.submit(second.execute, "SELECT 2")
            with pytest.raises(concurrent.futures.TimeoutError):
                waiting.result(timeout=0.3)
            assert first.execute("SELECT 3").fetchone() == (3,)
        assert waiting.result(timeout=5).fetchone() == (2,)


@pytest.mark.quick
def test_what_a_transaction_did_is_there_after_commit_and_gone_after_rollback(start):
    pooler = start(max_size=2)
    with pooler.connect() as one, pooler.connect() as other:
        one.execute("DROP TABLE IF EXISTS t_commit")
        one.execute("CREATE TABLE t_commit (v int)")
        with one.transaction():
            one.execute("INSERT INTO t_commit VALUES (1)")
            assert other.execute("SELECT count(*) FROM t_commit").fetchone() == (0,)
        assert other.execute("SELECT count(*) FROM t_commit").fetchone() == (1,)
        with one.transaction(force_rollback=True):
            one.execute("INSERT INTO t_commit VALUES (2)")
        assert other.execute("SELECT count(*) FROM t_commit").fetchone() == (1,)
        one.execute("DROP TABLE t_commit")


def test_an_error_in_a_transaction_keeps_the_server_until_rollback(start):
    pooler = start(max_size=1, max_wait_time="500ms")
    with pooler.connect() as connection, pooler.connect() as other:
        connection.autocommit = False
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT 1/0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        if pooler.is_poolhouse:
            with pytest.raises(psycopg.Error, match="(?i)wait|busy|servers"):
                other.execute("SELECT 1")
        connection.rollback()
        assert connection.execute("SELECT 5").fetchone() == (5,)
        connection.rollback()
    with pooler.connect() as other:
        assert other.execute("SELECT 6").fetchone() == (6,)


def test_savepoints_work(start):
    pooler = start(max_size=1)
    with pooler.connect() as connection, connection.transaction():
        with pytest.raises(psycopg.errors.DivisionByZero), connection.transaction():
            connection.execute("SELECT 1/0")
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_multi_statement_query_is_one_request(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        client.send(w.query("SELECT 1; BEGIN; SELECT 2; COMMIT; SELECT 3"))
        answers, status = client.until_ready()
        assert [w.row(body) for kind, body in answers if kind == b"D"] == [["1"], ["2"], ["3"]]
        assert status == "I"
        client.send(w.query("SELECT 1; BEGIN; SELECT 2"))
        assert client.until_ready()[1] == "T"
        client.send(w.query("COMMIT"))
        assert client.until_ready()[1] == "I"
        client.send(w.query(""))
        answers, status = client.until_ready()
        assert [kind for kind, _ in answers] == [b"I"] and status == "I"


def test_several_queries_sent_at_once_are_answered_in_order(start):
    pooler = start(max_size=1)
    with pooler.wire() as client, pooler.wire() as other:
        client.send(*(w.query(f"SELECT {n}") for n in range(200)))
        assert [client.rows() for _ in range(200)] == [[[str(n)]] for n in range(200)]
        assert other.query("SELECT 'x'") == [["x"]]


@pytest.mark.quick
def test_copy_in_both_directions(start):
    pooler = start(max_size=1)
    count = 50_000
    with pooler.connect() as connection, pooler.connect() as other:
        connection.execute("DROP TABLE IF EXISTS t_copy")
        connection.execute("CREATE TABLE t_copy (n int, s text)")
        cursor = connection.cursor()
        with cursor.copy("COPY t_copy FROM STDIN") as copy:
            for n in range(count):
                copy.write_row((n, "x" * (n % 100)))
        assert cursor.rowcount == count
        assert other.execute("SELECT count(*), sum(length(s)) FROM t_copy").fetchone() == (count, count * 99 // 2)
        with cursor.copy("COPY t_copy TO STDOUT") as copy:
            copy.set_types(["int4", "text"])
            assert sum(1 for _ in copy.rows()) == count
        assert other.execute("SELECT 1").fetchone() == (1,)
        connection.execute("DROP TABLE t_copy")


@pytest.mark.poolhouse_only
def test_copy_data_after_a_failed_copy_is_discarded_and_takes_no_server(start, cluster):
    pooler = start(max_size=1)
    with pooler.wire() as client, pooler.wire() as other:
        client.query("CREATE TABLE IF NOT EXISTS t_bad (n int); DELETE FROM t_bad")
        client.send(w.query("COPY t_bad FROM STDIN"))
        client.expect(b"G")
        client.send(w.copy_data(b"no number\n"))
        assert client.error().sqlstate == "22P02"
        client.expect(b"Z")
        assert other.query("SELECT 1") == [["1"]]
        client.send(*[w.copy_data(b"7\n")] * 50, w.COPY_DONE)
        # The rest of the copy reaches no server: the next client is answered at once and correctly.
        assert other.query("SELECT 2") == [["2"]]
        assert client.query("SELECT count(*) FROM t_bad") == [["0"]]
        assert len(cluster.backends()) == 1


def test_a_client_may_call_its_own_copy_off(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        client.query("CREATE TEMP TABLE IF NOT EXISTS t_off (n int)")
        client.send(w.query("COPY t_off FROM STDIN"))
        client.expect(b"G")
        client.send(w.copy_data(b"1\n"), w.copy_fail("changed my mind"))
        assert client.error().sqlstate == "57014"
        client.expect(b"Z")
        assert client.query("SELECT 1") == [["1"]]


def test_pipeline_mode(start):
    pooler = start(max_size=1)
    with pooler.connect() as connection, pooler.connect() as other:
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", [n]) for n in range(100)]
        assert [cursor.fetchone() for cursor in cursors] == [(n,) for n in range(100)]
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_an_error_in_a_pipeline_skips_to_the_next_sync(start):
    pooler = start(max_size=1)
    with pooler.wire() as client, pooler.wire() as other:
        good, bad = (w.parse("SELECT 41+1"), w.bind(), w.execute()), (w.parse("SELECT 1/0"), w.bind(), w.execute())
        client.send(*good, *bad, *good, w.SYNC, *good, w.SYNC)
        first, status = client.until_ready()
        assert [k for k, _ in first] == [b"1", b"2", b"D", b"C", b"1", b"E"] or [k for k, _ in first][-1] == b"E"
        assert status == "I"
        second, status = client.until_ready()
        assert [k for k, _ in second] == [b"1", b"2", b"D", b"C"] and status == "I"
        assert other.query("SELECT 3") == [["3"]]


def test_flush_without_sync_keeps_the_server(start, cluster):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        client.send(w.parse("SELECT generate_series(1,3)"), w.bind(), w.execute(rows=1), w.FLUSH)
        for kind in (b"1", b"2", b"D", b"s"):
            client.expect(kind)
        client.send(w.execute(rows=1), w.FLUSH)
        assert w.row(client.expect(b"D")) == ["2"]
        client.expect(b"s")
        client.send(w.SYNC)
        client.expect(b"Z")


def test_a_server_is_not_given_back_with_a_sync_outstanding(start):
    """Two batches at once: after the first ReadyForQuery the second batch is still in progress."""
    pooler = start(max_size=1)
    with pooler.wire() as client, pooler.wire() as other:
        batch = (w.parse("SELECT pg_sleep(0.15), 'mine'"), w.bind(), w.execute(), w.SYNC)
        client.send(*batch, *batch)
        other.send(w.query("SELECT 'theirs'"))
        for _ in range(2):
            answers, _ = client.until_ready()
            assert [w.row(body)[1] for kind, body in answers if kind == b"D"] == ["mine"]
        assert other.rows() == [["theirs"]]


def test_server_side_cursors_live_within_a_transaction(start):
    pooler = start(max_size=2)
    with pooler.connect() as connection, connection.transaction():
        with connection.cursor("rows") as cursor:
            cursor.itersize = 100
            cursor.execute("SELECT generate_series(1, 1000)")
            assert sum(n for (n,) in cursor) == 500_500


def test_function_call_messages_work(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        oid = int(client.query("SELECT 'pg_backend_pid()'::regprocedure::oid")[0][0])
        client.send(w.message(b"F", w.struct.pack("!IHHH", oid, 0, 0, 0)))
        result = client.expect(b"V")
        client.expect(b"Z")
        assert result[4:].decode() == client.query("SELECT pg_backend_pid()")[0][0]


def test_notices_arrive_and_follow_the_client(start):
    pooler = start(max_size=1)
    with pooler.wire() as client, pooler.wire() as other:
        client.query("DO $$ BEGIN RAISE NOTICE 'for you only'; END $$")
        other.query("SELECT 1")
        assert [notice["M"] for notice in client.notices] == ["for you only"]
        assert other.notices == []


@pytest.mark.poolhouse_only
def test_a_bind_never_reaches_the_unnamed_statement_of_another_client(start):
    """Some drivers parse the unnamed statement in one round trip and bind it in the next. Between the two, another
    client may have used the server. The client must then get the right answer or an error, and never the other client's
    query."""
    pooler = start(max_size=1)
    with pooler.wire() as client, pooler.wire() as other:
        client.send(w.parse("SELECT 'mine'"), w.SYNC)
        client.until_ready()
        other.send(w.parse("SELECT 'theirs'"), w.bind(), w.execute(), w.SYNC)
        other.until_ready()
        client.send(w.bind(), w.execute(), w.SYNC)
        answers, status = client.until_ready()
        rows = [w.row(body) for kind, body in answers if kind == b"D"]
        errors = [body for kind, body in answers if kind == b"E"]
        assert rows == [["mine"]] or (rows == [] and errors), answers
        assert status == "I"


def test_an_idle_client_holds_no_server(start, cluster):
    pooler = start(max_size=5)
    with pooler.connect() as connection, pooler.connect() as other:
        connection.execute("SELECT 1")
        other.execute("SELECT 1")
        assert len(eventually("servers are idle", lambda: [b for b in cluster.backends() if b.state == "idle"])) == 1


def test_ten_thousand_small_transactions_leave_nothing_behind(start, cluster):
    pooler = start(max_size=4)

    def work(_):
        with pooler.wire() as client:
            for n in range(250):
                client.send(w.query("BEGIN"), w.query(f"SELECT {n}"), w.query("COMMIT"))
                client.rows()
                assert client.rows() == [[str(n)]]
                client.rows()

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(40)))
    assert all(b.state == "idle" and b.xact_start is None for b in cluster.backends())
