"""Session state that outlives a transaction follows its client, or keeps the server for that client. It reaches no
other client.
"""

import contextlib
import json
import threading
import time

import psycopg
import pytest

from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only


def pins(pooler):
    """The reasons why clients keep their servers."""
    clients = json.loads(pooler.get("/api/clients")[1])["clients"]
    return [client["pinned"] for client in clients if client["pinned"]]


@pytest.mark.quick
def test_settings_that_are_not_reported_follow_their_client(start):
    pooler = start(max_size=1)
    with pooler.wire() as one, pooler.wire() as other:
        one.query("SET search_path = pg_catalog, public")
        one.query("SET statement_timeout = '5s'")
        one.query("SELECT set_config('app.tenant', 'seven', false)")
        for _ in range(3):
            assert other.query("SHOW search_path") == [['"$user", public']]
            assert other.query("SHOW statement_timeout") == [["0"]]
            assert one.query("SHOW search_path") == [["pg_catalog, public"]]
            assert one.query("SHOW statement_timeout") == [["5s"]]
            assert one.query("SELECT current_setting('app.tenant')") == [["seven"]]


@pytest.mark.parametrize("name", ['U&"set\\005fconfig"', "U&\"set!005fconfig\" UESCAPE '!'"])
def test_a_setting_by_a_name_with_escapes_follows_its_client(start, name):
    pooler = start(max_size=1)
    with pooler.wire() as one, pooler.wire() as other:
        one.query(f"SELECT {name} ('app.tenant', 'seven', false)")
        for _ in range(2):
            assert other.query("SELECT coalesce(current_setting('app.tenant', true), '')") == [[""]]
            assert one.query("SELECT current_setting('app.tenant')") == [["seven"]]


def test_reset_leads_back_to_what_the_client_asked_for_at_connect(start):
    pooler = start(max_size=1)
    with pooler.wire(TimeZone="Asia/Tokyo") as client, pooler.wire() as other:
        for reset in ("RESET TimeZone", "RESET ALL", "SET TimeZone TO DEFAULT", "DISCARD ALL"):
            client.query("SET TimeZone = 'Europe/Paris'")
            other.query("SELECT 1")
            client.query(reset)
            assert client.parameters["TimeZone"] == "Asia/Tokyo", reset
            assert client.query("SHOW TimeZone") == [["Asia/Tokyo"]], reset


def test_what_cannot_follow_keeps_the_server_until_it_is_gone(start):
    pooler = start(max_size=2)
    with pooler.wire() as owner, pooler.wire() as other:
        for begin, end, reason in [
            ("CREATE TEMP TABLE mine (a int)", "DROP TABLE mine", "temporary_object"),
            ('CREATE COLLATION pg_temp.mine FROM "C"', "DROP COLLATION pg_temp.mine", "temporary_object"),
            ("SELECT pg_advisory_lock(7)", "SELECT pg_advisory_unlock(7)", "advisory_lock"),
            ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", "CLOSE c", "with_hold_cursor"),
            ("PREPARE mine AS SELECT 1", "DEALLOCATE mine", "sql_prepare"),
        ]:
            owner.query(begin)
            own = owner.query("SELECT pg_backend_pid()")
            for _ in range(5):
                assert other.query("SELECT pg_backend_pid()") != own, reason
                assert owner.query("SELECT pg_backend_pid()") == own, reason
            assert pins(pooler) == [reason]
            owner.query(end)
            deadline = time.monotonic() + 5
            while pins(pooler):
                assert time.monotonic() < deadline, f"still pinned by {reason}"
                time.sleep(0.01)


def test_pins_are_bounded_with_a_clear_error(start):
    pooler = start(max_size=2)
    with pooler.wire() as one, pooler.wire() as other:
        one.query("CREATE TEMP TABLE mine ()")
        # Poolhouse asks for the remaining state after this answer, and knows it when the next one comes.
        one.query("SELECT 1")
        with pytest.raises(Exception, match="max_pinned = 1"):
            other.query("CREATE TEMP TABLE mine ()")
        assert other.query("SELECT 1") == [["1"]]
        with pytest.raises(Exception, match="max_pinned = 1"):
            other.query("SELECT pg_advisory_lock(1)")
        assert other.closed_within(15)
        assert one.query("SELECT 1") == [["1"]]


def test_a_client_that_leaves_takes_its_state_along(start):
    pooler = start(max_size=1)
    with pooler.wire() as one:
        one.query("CREATE TEMP TABLE mine (a int)")
        one.query("SET work_mem = '7MB'")
    with pooler.wire() as other:
        assert other.query("SELECT to_regclass('pg_temp.mine')::text") == [[None]]
        assert other.query("SHOW work_mem") == [["4MB"]]


@pytest.mark.quick
def test_prepared_statements_work_on_whichever_server_comes(start):
    pooler = start(max_size=3)
    connections = [pooler.connect(prepare_threshold=0, autocommit=True) for _ in range(12)]
    try:
        for turn in range(20):
            for number, connection in enumerate(connections):
                with connection.transaction():
                    answer = connection.execute("SELECT %s::int, %s::text", [number, f"turn {turn}"]).fetchone()
                assert answer == (number, f"turn {turn}")
    finally:
        for connection in connections:
            connection.close()


@contextlib.contextmanager
def changing_table(pooler):
    """A connection that prepares all its statements, another connection, and a table for both."""
    with pooler.connect(prepare_threshold=0) as one, pooler.connect() as other:
        other.execute("DROP TABLE IF EXISTS t_changing; CREATE TABLE t_changing (a int)")
        yield one, other
        other.execute("DROP TABLE t_changing")


def test_a_table_that_changes_under_a_statement_is_not_noticed(start):
    """The driver gets the columns with each answer. The statement is parsed again and used again."""
    pooler = start(max_size=2)
    with changing_table(pooler) as (one, other):
        for _ in range(4):
            one.execute("SELECT * FROM t_changing").fetchall()
        other.execute("ALTER TABLE t_changing ADD b text")
        for _ in range(8):
            assert len(one.execute("SELECT * FROM t_changing").description) == 2


def test_a_write_whose_table_changes_is_done_once(start):
    pooler = start(max_size=2)
    with changing_table(pooler) as (one, other):
        for number in range(6):
            if number in (2, 4):
                other.execute(f"ALTER TABLE t_changing ADD b{number} text")
            assert one.execute("INSERT INTO t_changing VALUES (%s) RETURNING *", [number]).fetchone()[0] == number
        assert other.execute("SELECT array_agg(a) FROM t_changing").fetchone() == (list(range(6)),)


def test_in_a_transaction_a_table_that_changes_is_noticed_once(start):
    pooler = start(max_size=2)
    with changing_table(pooler) as (one, other):
        for _ in range(4):
            one.execute("SELECT * FROM t_changing").fetchall()
        other.execute("ALTER TABLE t_changing ADD b text")
        failures = 0
        for _ in range(8):
            try:
                with one.transaction():
                    assert len(one.execute("SELECT * FROM t_changing").description) == 2
            except psycopg.errors.FeatureNotSupported:
                failures += 1
        assert failures <= 1, "every server parses it again after the first error"


def test_a_client_told_the_columns_before_is_told_that_they_have_changed(start):
    pooler = start(max_size=1)
    with pooler.wire() as one:
        one.query("DROP TABLE IF EXISTS t_changing; CREATE TABLE t_changing (a int)")
        one.send(w.parse("SELECT * FROM t_changing", "s"), w.message(b"D", b"Ss\0"), w.SYNC)
        one.until_ready()
        one.query("ALTER TABLE t_changing ADD b text")
        kinds = []
        for _ in range(2):
            one.send(w.bind(name="s"), w.execute(), w.SYNC)
            kinds.append([kind for kind, _ in one.until_ready()[0]])
        one.send(w.message(b"C", b"Ss\0"), w.parse("SELECT * FROM t_changing", "s"), w.bind(name="s"), w.execute(), w.SYNC)
        kinds.append([kind for kind, _ in one.until_ready()[0]])
        assert kinds == [[b"E"], [b"E"], [b"3", b"1", b"2", b"C"]], "an error as from PostgreSQL, until it is prepared anew"
        one.query("DROP TABLE t_changing")


def test_a_client_that_asks_for_last_values_meets_its_own_alone(start):
    pooler = start(max_size=1)
    with pooler.wire() as one, pooler.wire() as other:
        one.query("DROP SEQUENCE IF EXISTS s_one, s_other; CREATE SEQUENCE s_one; CREATE SEQUENCE s_other START 100")
        for _ in range(3):
            other.query("SELECT nextval('s_other')")
            # The first time because Poolhouse did not know, then because the client has advanced none.
            with pytest.raises(w.ServerError, match="not yet defined"):
                one.query("SELECT lastval()")
        assert pins(pooler) == []
        one.query("DROP SEQUENCE s_one, s_other")


def test_a_client_that_asks_for_the_first_time_within_a_pipeline_meets_its_own_alone(start):
    pooler = start(max_size=1)
    with pooler.wire() as one, pooler.wire() as other:
        other.query("DROP SEQUENCE IF EXISTS s_other; CREATE SEQUENCE s_other")
        other.query("SELECT nextval('s_other')")
        one.send(w.parse("BEGIN"), w.bind(), w.execute(), w.parse("SELECT currval('s_other')"), w.bind(), w.execute(), w.SYNC)
        answers = one.until_ready()[0]
        assert [kind for kind, _ in answers] == [b"1", b"2", b"C", b"E"]
        assert w.error_fields(answers[-1][1])["C"] == "55000"
        one.query("ROLLBACK")
        other.query("DROP SEQUENCE s_other")


def test_a_client_that_has_asked_for_last_values_gets_them_from_then_on(start):
    pooler = start(max_size=2)
    with pooler.wire() as one, pooler.wire() as other:
        one.query("DROP SEQUENCE IF EXISTS s_one; CREATE SEQUENCE s_one")
        assert one.query("SELECT nextval('s_one')") == [["1"]]
        with pytest.raises(w.ServerError):
            one.query("SELECT lastval()")
        for value in ("2", "4"):
            assert one.query("SELECT nextval('s_one')") == [[value]]
            other.query("SELECT nextval('s_one')")
            assert one.query("SELECT lastval(), currval('s_one')") == [[value, value]]
            assert pins(pooler) == ["sequence"]
        one.query("DISCARD ALL")
        with pytest.raises(w.ServerError):
            one.query("SELECT lastval()")
        assert pins(pooler) == []
        one.query("DROP SEQUENCE s_one")


def test_a_question_that_was_ended_and_asked_again_changes_no_setting(start, cluster):
    """Poolhouse sets a parameter so that its question is not ended a second time. The client has not set that."""
    pooler = start(max_size=1, max_wait_time="10s")
    ask = "SELECT current_setting('lock_timeout'), current_setting('jit'), current_setting('statement_timeout')"
    with pooler.wire() as one, pooler.wire() as other:
        one.query("SET lock_timeout = '7s'")
        one.query("SET jit = on")
        # The question takes longer than the client's time-out.
        with questions_wait(cluster):
            one.query("SET statement_timeout = '100ms'")
        before = other.query(ask)
        assert one.query(ask) == [["7s", "on", "100ms"]]
        other.query("SELECT pg_advisory_xact_lock(1)")
        assert one.query(ask) == [["7s", "on", "100ms"]]
        assert other.query(ask) == before


START = {"options": "-c work_mem=5MB", "application_name": "mine"}
# A backslash may or may not end a literal: such a text is forwarded, and its effect is asked for afterwards.
HIDDEN_RESETS = [r"SELECT '\'; RESET work_mem", "DO $$ BEGIN RESET work_mem; END $$"]


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("text", HIDDEN_RESETS)
def test_a_reset_that_is_committed_before_an_error_leads_back_to_the_clients_start(start, mode, text):
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(**START) as client:
        with pytest.raises(w.ServerError, match="division by zero"):
            client.query(f"{text}; COMMIT; SELECT 1/0")
        assert client.query("SHOW work_mem") == [["5MB"]]
        # A setting that the error reverts changes nothing.
        client.query("SET work_mem = '6MB'")
        with pytest.raises(w.ServerError, match="division by zero"):
            client.query(f"{text}; SELECT 1/0")
        assert client.query("SHOW work_mem") == [["6MB"]]


def test_a_value_that_is_also_the_servers_own_survives_a_reset_that_failed(start):
    pooler = start(max_size=1)
    with pooler.wire(**START) as client, pooler.wire() as other:
        client.query("SET application_name = ''")
        # The server is cleaned, so nothing there shows that it was set.
        other.query("DO $$ BEGIN PERFORM 1; END $$")
        with pytest.raises(w.ServerError, match="DISCARD ALL cannot run"):
            client.query("BEGIN; DISCARD ALL")
        client.query("ROLLBACK")
        assert client.query("SHOW application_name") == [[""]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("end", ["; COMMIT AND CHAIN", "; COMMIT; BEGIN", "; SAVEPOINT a"])
def test_a_reset_whose_text_goes_on_with_what_is_rolled_back_leads_back_to_the_clients_start(start, mode, end):
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(**START, TimeZone="Asia/Tokyo") as client:
        client.query("BEGIN")
        client.query("DO $$ BEGIN RESET ALL; END $$" + end)
        client.query("ROLLBACK TO a" if "SAVEPOINT" in end else "ROLLBACK")
        client.query("COMMIT")
        assert client.query("SHOW work_mem") == [["5MB"]]
        assert client.parameters["TimeZone"] == "Asia/Tokyo"
        assert client.query("SHOW TimeZone") == [["Asia/Tokyo"]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_value_that_is_the_servers_own_survives_a_question_within_a_transaction(start, mode):
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(options="-c statement_timeout=7s -c work_mem=5MB") as client:
        client.query("SET statement_timeout = 0")
        client.query("BEGIN")
        client.query("DO $$ BEGIN RESET work_mem; END $$")
        assert client.query("SHOW statement_timeout") == [["0"]]
        client.query("COMMIT")
        assert client.query("SHOW statement_timeout") == [["0"]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_null_for_the_transaction_only_sets_nothing_back_for_longer(start, mode):
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(**START) as client:
        client.query("SET work_mem = '6MB'")
        client.query("BEGIN; SELECT set_config('work_mem', NULL, true); COMMIT")
        assert client.query("SHOW work_mem") == [["6MB"]]


def test_a_start_up_value_under_a_parameters_old_name_gives_way_to_a_set(start):
    pooler = start(max_size=2)
    with pooler.wire(options="-c sort_mem=5MB") as client:
        client.query("SET work_mem = '7MB'")
        assert client.query("SHOW work_mem") == [["7MB"]]


def test_the_unnamed_statement_of_a_session_outlives_the_question_what_was_reset(start):
    pooler = start(max_size=2, mode="session")
    with pooler.wire(**START) as client:
        client.send(w.parse("ROLLBACK", name="back"), w.SYNC)
        client.until_ready()
        client.query("BEGIN; DO $$ BEGIN RESET ALL; END $$; COMMIT AND CHAIN")
        client.send(w.parse("SELECT 7"), w.SYNC)
        client.until_ready()
        client.send(w.bind(name="back"), w.execute(), w.SYNC)
        client.until_ready()
        client.send(w.bind(), w.execute(), w.SYNC)
        answers, status = client.until_ready()
        assert status == "I" and [kind for kind, _ in answers if kind in (b"D", b"E")] == [b"D"], answers


@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("transaction", "SELECT set_config('work_mem', NULL, false)"),
        ("session", "SELECT set_config('work_mem', NULL, false)"),
        ("transaction", "DO $$ BEGIN PERFORM set_config('work_mem', NULL, false); END $$"),
        ("session", "DO $$ BEGIN PERFORM set_config('work_mem', NULL, false); END $$"),
        ("transaction", "SELECT f_reset()"),
        ("transaction", "CALL p_reset()"),
    ],
)
def test_what_is_set_back_without_a_reset_in_the_text_leads_back_to_the_clients_start(start, cluster, mode, text):
    pooler = start(max_size=2, mode=mode)
    body = "LANGUAGE plpgsql AS $$ BEGIN RESET work_mem; END $$"
    with cluster.superuser("bench") as db:
        db.execute(f"CREATE FUNCTION f_reset() RETURNS void {body}; CREATE PROCEDURE p_reset() {body}")
        try:
            with pooler.wire(**START) as client:
                client.query(text)
                assert client.query("SHOW work_mem") == [["5MB"]]
        finally:
            db.execute("DROP FUNCTION f_reset; DROP PROCEDURE p_reset")


@pytest.mark.parametrize(
    "text",
    [
        "DO $$ BEGIN IF false THEN RESET TimeZone; END IF; END $$",
        "DO $$ BEGIN BEGIN RESET TimeZone; PERFORM 1/0; EXCEPTION WHEN OTHERS THEN NULL; END; END $$",
        r"BEGIN; SELECT '\'; RESET TimeZone; ROLLBACK",
    ],
)
def test_a_value_that_is_also_the_servers_own_survives_a_reset_that_comes_to_nothing(start, text):
    pooler = start(max_size=2)
    with pooler.wire() as other:
        own = other.query("SHOW TimeZone")
        with pooler.wire(TimeZone="Asia/Tokyo") as client:
            client.query(f"SET TimeZone = '{own[0][0]}'")
            # The other client takes the server on which it was set.
            other.query("BEGIN")
            other.query("SELECT 1")
            client.query(text)
            assert client.query("SHOW TimeZone") == own
            client.query("RESET TimeZone")
            assert client.query("SHOW TimeZone") == [["Asia/Tokyo"]]
            other.query("COMMIT")


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_behind_a_committed_reset_and_an_error_the_next_transaction_of_a_chain_can_still_be_set_up(start, mode):
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(**START) as client:
        client.query("BEGIN")
        with pytest.raises(w.ServerError, match="division by zero"):
            client.query(rf"{HIDDEN_RESETS[0]}; COMMIT AND CHAIN; SELECT 1/0")
        client.query("ROLLBACK AND CHAIN")
        client.query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        client.query("COMMIT")
        assert client.query("SHOW work_mem") == [["5MB"]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("limit", ["statement_timeout", "lock_timeout"])
@pytest.mark.parametrize("text", HIDDEN_RESETS)
def test_no_time_out_of_the_clients_ends_what_is_asked_within_its_transaction(start, cluster, mode, limit, text):
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(**START) as client:
        client.query("BEGIN")
        client.query("SAVEPOINT poolhouse")
        client.query(f"SET LOCAL {limit} = '50ms'")
        # The question takes longer than the client's time-out.
        with questions_wait(cluster):
            client.query(text)
        ask = f"SELECT current_setting('work_mem'), current_setting('{limit}')"
        assert client.query(ask) == [["5MB", "50ms"]]
        client.query("ROLLBACK TO poolhouse")
        assert client.query("SHOW work_mem") == [["5MB"]]
        client.query("COMMIT")
        assert client.query(ask) == [["5MB", "0"]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_cancel_of_what_is_asked_within_a_transaction_fails_that_and_leaves_the_connection(start, cluster, mode):
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(**START) as client:
        client.query("BEGIN")
        (pid,), = client.query("SELECT pg_backend_pid()")
        with questions_wait(cluster, then=f"SELECT pg_cancel_backend({pid})"):
            with pytest.raises(w.ServerError, match="canceling statement due to user request"):
                client.query(HIDDEN_RESETS[1])
        with pytest.raises(w.ServerError, match="current transaction is aborted"):
            client.query("SELECT 1")
        client.query("ROLLBACK")
        assert client.query("SHOW work_mem") == [["5MB"]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_what_takes_the_place_of_a_reset_is_told_as_what_it_is(start, mode):
    """A RESET may not use the name of a portal or a statement that is in use."""
    pooler = start(max_size=2, mode=mode)
    with pooler.wire(**START) as client:
        client.send(w.parse("SELECT generate_series(1,3)", "s"), w.parse("RESET work_mem", "r"), w.SYNC)
        client.until_ready()
        client.send(w.query("BEGIN"), w.bind(portal="p", name="s"), w.execute("p", 1), w.SYNC, w.query("SAVEPOINT s"),
                    w.bind(portal="p", name="r"), w.SYNC, w.query("ROLLBACK TO s"), w.execute("p", 1), w.SYNC)
        kinds = []
        for _ in range(6):
            kinds += [kind for kind, _ in client.until_ready()[0]]
        assert kinds.count(b"s") == 2 and kinds.count(b"E") == 1, kinds
        client.query("ROLLBACK")
        # An existing statement is not replaced either.
        client.send(w.parse("COMMIT", "c"), w.SYNC, w.parse("RESET work_mem", "c"), w.SYNC)
        client.until_ready()
        client.until_ready()
        client.send(w.query("BEGIN"), w.bind(name="c"), w.execute(), w.SYNC)
        told = client.until_ready()[0] + client.until_ready()[0]
        assert (b"C", b"COMMIT\0") in told, told


def test_a_reset_is_not_forgotten_because_its_name_is_refused_to_another_statement(start):
    pooler = start(max_size=4, mode="session")
    with pooler.wire(**START) as client:
        client.send(w.parse("RESET ALL", "a"), w.SYNC, w.parse("SELECT 1", "a"), w.SYNC)
        client.until_ready()
        client.until_ready()
        client.send(w.bind(name="a"), w.execute(), w.SYNC)
        assert (b"C", b"RESET\0") in client.until_ready()[0]
        assert client.query("SHOW work_mem") == [["5MB"]]


@contextlib.contextmanager
def questions_wait(cluster, then="ROLLBACK"):
    """Makes Poolhouse's question about a session's state wait for a lock. After 0.3 s the client that holds the lock
    runs `then`."""
    with cluster.superuser("bench") as db:
        db.execute("BEGIN; LOCK TABLE pg_catalog.pg_depend IN ACCESS EXCLUSIVE MODE")
        timer = threading.Timer(0.3, lambda: db.execute(then))
        timer.start()
        try:
            yield
        finally:
            timer.join()
            db.execute("ROLLBACK")
