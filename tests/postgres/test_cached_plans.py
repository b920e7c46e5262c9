"""The plan that a server keeps for a client is not one made under the settings, or with the temporary tables, of
another client.
"""

import contextlib
import threading

import pytest

from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only

MADE = """DROP TABLE IF EXISTS t_days; CREATE TABLE t_days (who text, since timestamptz, due date);
CREATE OR REPLACE FUNCTION f_days() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN NEW.since := '2020-06-01 00:00'; NEW.due := '01/02/2020'; RETURN NEW; END $$;
CREATE TRIGGER days BEFORE INSERT ON t_days FOR EACH ROW EXECUTE FUNCTION f_days();
CREATE OR REPLACE FUNCTION f_day() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN to_char(date '01/02/2020', 'YYYY-MM-DD'); END $$;
CREATE OR REPLACE FUNCTION f_sql_day() RETURNS text LANGUAGE sql STABLE AS $$ SELECT to_char('01/02/2020'::date, 'YYYY-MM-DD') $$;
CREATE OR REPLACE FUNCTION f_path() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN 'C:\\new'; END $$;
DROP TABLE IF EXISTS t_front; CREATE TABLE t_front (a text);
CREATE OR REPLACE FUNCTION f_front(a text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN INSERT INTO t_front VALUES (a); END $$;
GRANT ALL ON t_days, t_front TO PUBLIC"""
GONE = "DROP TABLE IF EXISTS t_days, t_front; DROP FUNCTION IF EXISTS f_days(), f_day(), f_sql_day(), f_path(), f_front(text)"


@pytest.fixture
def made(cluster):
    with cluster.superuser("bench") as db:
        db.execute(MADE)
        yield db
        db.execute(GONE)


@pytest.fixture(params=["auto", "always", "never"])
def pooler(start, made, request):
    return start(max_size=1, reset=request.param)


def run(session, name, values=()):
    session.send(w.bind(values, name=name), w.execute(), w.SYNC)
    return [w.row(body) for kind, body in session.until_ready()[0] if kind == b"D"]


def prepare(session, sql, name="s"):
    session.send(w.parse(sql, name), w.SYNC)
    assert [kind for kind, _ in session.until_ready()[0]] == [b"1"]


@pytest.mark.parametrize("begin, end", [
    (["SET DateStyle = 'ISO, DMY'", "SET TimeZone = 'Asia/Tokyo'"], []),
    (["BEGIN; SET LOCAL DateStyle = 'ISO, DMY'; SET LOCAL TimeZone = 'Asia/Tokyo'"], ["COMMIT"]),
    (["BEGIN", "SET DateStyle = 'ISO, DMY'", "SET TimeZone = 'Asia/Tokyo'"], ["ROLLBACK"]),
    (["BEGIN", "SELECT set_config('DateStyle', 'ISO, DMY', true), set_config('TimeZone', 'Asia/Tokyo', true)"], ["COMMIT"]),
])
def test_a_trigger_reads_its_constants_by_the_settings_of_the_client_that_fires_it(pooler, made, begin, end):
    with pooler.wire() as one, pooler.wire() as other:
        for sql in [*begin, "INSERT INTO t_days VALUES ('one')", *end]:
            one.query(sql)
        other.query("INSERT INTO t_days VALUES ('other')")
        one.query("INSERT INTO t_days VALUES ('one again')")
    rows = dict((who, (since, due)) for who, since, due in made.execute(
        "SELECT who, extract(epoch FROM since)::int, to_char(due, 'YYYY-MM-DD') FROM t_days"))
    tokyo, utc = (1590937200, "2020-02-01"), (1590969600, "2020-01-02")
    assert rows.pop("one", tokyo) == tokyo
    assert rows == {"other": utc, "one again": utc if end else tokyo}


def test_a_shared_statement_is_not_planned_by_what_one_client_has_set_for_a_transaction(pooler):
    with pooler.wire() as one, pooler.wire() as other:
        for session in (one, other):
            prepare(session, "SELECT f_sql_day(), f_day()")
        one.query("BEGIN; SET LOCAL DateStyle = 'ISO, DMY'")
        assert run(one, "s") == [["2020-02-01"] * 2]
        one.query("COMMIT")
        assert run(other, "s") == [["2020-01-02"] * 2]


@pytest.mark.parametrize("setting", ["standard_conforming_strings", "Standard_Conforming_Strings"])
def test_a_function_reads_backslashes_by_the_settings_of_its_caller(pooler, setting):
    with pooler.wire() as one, pooler.wire() as other:
        one.query(f"SET {setting} = off")
        for _ in range(3):
            assert one.query("SELECT f_path()") == [["C:\new"]]
            assert other.query("SELECT f_path()") == [["C:\\new"]]
        one.query(f"SET {setting} = on")
        assert one.query("SELECT f_path()") == [["C:\\new"]]
        other.query(f"BEGIN; SET LOCAL {setting} = off; SELECT f_path(); COMMIT")
        assert one.query("SELECT f_path()") == [["C:\\new"]]


def test_in_session_mode_a_function_reads_its_constants_anew_for_the_next_client(start, made):
    pooler = start(max_size=1, mode="session")
    for setting in ("SET DateStyle = 'ISO, DMY'", "SET standard_conforming_strings = off"):
        with pooler.wire() as one:
            one.query(setting)
            one.query("SELECT f_day(), f_path()")
        with pooler.wire() as other:
            assert other.query("SELECT f_day(), f_path()") == [["2020-01-02", "C:\\new"]]


def test_where_all_have_the_same_settings_plans_are_kept(start, made):
    """Drivers set parameters at connect that have that value already. And work_mem, a role or a search_path do not
    change how constants are read."""
    made.execute("""CREATE OR REPLACE FUNCTION f_drawn() RETURNS float LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN random(); END $$;
        CREATE OR REPLACE FUNCTION f_planned() RETURNS float LANGUAGE plpgsql AS $$ BEGIN RETURN f_drawn(); END $$""")
    pooler = start(max_size=1)
    seen = set()
    with pooler.wire(DateStyle="ISO, DMY") as one, pooler.wire(DateStyle="ISO, DMY") as other:
        for session in (one, other) * 5:
            for sql in ("SET TimeZone = 'Etc/UTC'", "SET work_mem = '8MB'", "BEGIN; SET LOCAL search_path = public; SET LOCAL ROLE app; COMMIT"):
                session.query(sql)
            seen.add(session.query("SELECT f_planned()")[0][0])
        assert len(seen) == 1
        one.query("SET DateStyle = 'ISO, MDY'")
        assert other.query("SELECT f_planned()")[0][0] not in seen
    made.execute("DROP FUNCTION f_planned(), f_drawn()")


def test_a_statement_is_about_the_temporary_table_that_stands_before_another(pooler, made):
    insert = "INSERT INTO t_front VALUES ($1)"
    with pooler.wire() as other, pooler.wire() as one:
        other.query("BEGIN; CREATE TEMP TABLE t_once (a int) ON COMMIT DROP; COMMIT")
        prepare(other, insert)
        run(other, "s", ["other"])
        other.query("SELECT f_front('other')")
        prepare(one, insert, "before")
        one.query("CREATE TEMP TABLE t_front (a text)")
        prepare(one, insert, "behind")
        for _ in range(2):
            run(one, "before", ["before"])
            run(one, "behind", ["behind"])
        one.send(w.parse(insert), w.bind(["unnamed"]), w.execute(), w.SYNC)
        one.until_ready()
        one.query("SELECT f_front('function')")
        assert one.query("SELECT string_agg(a, ' ') FROM t_front") == [["before behind before behind unnamed function"]]
        one.query("DROP TABLE t_front")
        for name in ("before", "behind"):
            run(one, name, ["dropped"])
        run(other, "s", ["other"])
        with contextlib.closing(made.execute("SELECT string_agg(a, ' ') FROM public.t_front")) as found:
            assert found.fetchone() == ("other other dropped dropped other",)


def test_in_one_transaction_a_statement_is_about_the_temporary_table_too(pooler, made):
    insert = "INSERT INTO t_front VALUES ($1)"
    with pooler.wire() as other, pooler.wire() as one:
        other.query("BEGIN; CREATE TEMP TABLE t_once (a int) ON COMMIT DROP; COMMIT")
        for session in (other, one):
            prepare(session, insert)
            run(session, "s", ["public"])
        other.query("SELECT f_front('public')")
        one.query("BEGIN")
        one.send(w.parse("CREATE TEMP TABLE t_front (a text) ON COMMIT DROP"), w.bind(), w.execute(), w.SYNC)
        one.until_ready()
        run(one, "s", ["mine"])
        one.query("SELECT f_front('mine')")
        assert one.query("TABLE t_front") == [["mine"], ["mine"]]
        one.query("COMMIT")
        run(other, "s", ["public"])
    assert made.execute("SELECT count(*), min(a), max(a) FROM t_front").fetchone() == (4, "public", "public")


def test_a_client_that_can_use_no_server_of_others_gets_the_next_connection(start, made):
    """It is not given, again and again, a server that another client has used in the meantime and that must be closed.
    """
    pooler = start(max_size=3)
    requests, over = 30, threading.Event()

    def call():
        with pooler.wire() as session:
            while not over.is_set():
                session.query("SELECT f_path(), pg_sleep(0.002)")

    callers = [threading.Thread(target=call) for _ in range(20)]
    for caller in callers:
        caller.start()
    try:
        with pooler.wire() as odd:
            odd.query("SET standard_conforming_strings = off")
            for _ in range(requests):
                odd.query("SELECT 'it\\'s'")
    finally:
        over.set()
        for caller in callers:
            caller.join()
    # Each of the client's requests spoils one server, and no other client may use the one that it has used.
    assert pooler.pools()[0]["closed"]["discarded"] <= 2 * requests + 20
