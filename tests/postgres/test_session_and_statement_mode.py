"""In session mode a server belongs to a client until the client leaves, in statement mode for one statement."""

import threading

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS


def test_in_session_mode_a_client_keeps_its_server_and_its_state(start):
    pooler = start(mode="session", max_size=2)
    with pooler.connect() as one, pooler.connect() as other:
        pids = {one.execute("SELECT pg_backend_pid()").fetchone()[0] for _ in range(5)}
        other.execute("SELECT 1")
        assert len(pids) == 1
        one.execute("SET work_mem = '7MB'")
        one.execute("CREATE TEMP TABLE mine (v int)")
        one.execute("PREPARE p AS SELECT 'prepared'")
        other.execute("SELECT 1")
        assert one.execute("SHOW work_mem").fetchone() == ("7MB",)
        assert one.execute("EXECUTE p").fetchone() == ("prepared",)
        assert one.execute("SELECT count(*) FROM mine").fetchone() == (0,)


def test_in_session_mode_the_next_client_finds_a_clean_server(start):
    pooler = start(mode="session", max_size=1)
    with pooler.connect() as one:
        pid = one.execute("SELECT pg_backend_pid()").fetchone()
        one.execute("SET work_mem = '7MB'")
        one.execute("CREATE TEMP TABLE mine (v int)")
        one.execute("PREPARE p AS SELECT 1")
        one.execute("SELECT pg_advisory_lock(4711)")
    with pooler.connect() as other:
        assert other.execute("SELECT pg_backend_pid()").fetchone() == pid or pooler.is_poolhouse
        assert other.execute("SHOW work_mem").fetchone() != ("7MB",)
        assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
        assert other.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").fetchone() == (0,)
        with pytest.raises(psycopg.errors.UndefinedTable):
            other.execute("SELECT * FROM mine")


def test_in_session_mode_named_statements_work(start):
    pooler = start(mode="session", max_size=1)
    with pooler.connect(prepare_threshold=0) as connection:
        for n in range(20):
            assert connection.execute("SELECT %s::int", [n]).fetchone() == (n,)
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", [n]) for n in range(20)]
        assert [cursor.fetchone() for cursor in cursors] == [(n,) for n in range(20)]


def test_in_session_mode_notifications_arrive(start):
    pooler = start(mode="session", max_size=2)
    with pooler.connect() as listener, pooler.connect() as notifier:
        listener.execute("LISTEN news")
        threading.Timer(0.2, lambda: notifier.execute("NOTIFY news, 'hello'")).start()
        heard = [n.payload for n in listener.notifies(timeout=5, stop_after=1)]
        assert heard == ["hello"]


def test_in_session_mode_a_waiting_client_gets_the_server_when_its_holder_leaves(start):
    pooler = start(mode="session", max_size=1, max_wait_time="20s")
    with pooler.wire() as first:
        first.query("SELECT 1")
        second = pooler.open()
        second.send(w.startup(user="app", database="bench"))
        done = threading.Event()
        result = []

        def work():
            second.authenticate("app", PASSWORDS["app"])
            second.until_ready()
            result.append(second.query("SELECT 2"))
            done.set()

        thread = threading.Thread(target=work)
        thread.start()
        assert not done.wait(0.3)
        first.send(w.TERMINATE)
        assert done.wait(5)
        thread.join()
        assert result == [[["2"]]]
        second.close()


def test_in_statement_mode_single_statements_work(start):
    pooler = start(mode="statement", max_size=2)
    with pooler.connect() as connection:
        for n in range(20):
            assert connection.execute("SELECT %s::int", [n]).fetchone() == (n,)


def test_in_statement_mode_a_transaction_is_refused_and_takes_no_server(start):
    pooler = start(mode="statement", max_size=1, max_wait_time="2s")
    with pooler.connect() as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("BEGIN")
            connection.execute("SELECT 1")
            connection.execute("COMMIT")
    with pooler.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_databases_of_one_process_may_have_different_modes(start):
    pooler = start(databases={"bench": {"mode": "transaction"}, "other": {"mode": "session"}}, max_size=2)
    with pooler.connect(database="other") as connection:
        connection.execute("SET work_mem = '9MB'")
        assert connection.execute("SHOW work_mem").fetchone() == ("9MB",)
    with pooler.connect(database="bench") as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("bench",)
