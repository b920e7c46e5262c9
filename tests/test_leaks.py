"""What a client leaves in its server's session is met by nobody else, however it was put there. Each test is a way to put it there
that is easy to overlook; tests/leaks.py writes such ways by the thousand."""

import struct
import time

import psycopg
import pytest

import wire as w
from leaking import look, world
from leaking.sharing import NO_SERVER, Sharing, do, strictly

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def share(start, cluster):
    """Makes clients that share one server, with the database and the settings given."""
    return lambda *arguments, **settings: Sharing(start, cluster, *arguments, **settings)


def hidden(share, **settings):
    return share(world.HIDDEN, **settings)


# -- temporary objects

@pytest.mark.parametrize("name", ['"pg_temp"."orders"', '"pg_temp" . orders', 'U&"pg\\005ftemp".orders', 'U&"pg!005ftemp" UESCAPE \'!\'.orders',
                                  "pg_temp/* */.orders", "PG_TEMP.orders"])
def test_a_temporary_table_under_a_quoted_schema_name_is_met_by_nobody(share, name):
    share().nobody_meets(strictly(f"CREATE TABLE {name} (LIKE public.orders)"))


def test_a_temporary_table_made_by_a_search_path_is_met_by_nobody(share):
    share().nobody_meets(strictly("BEGIN"), strictly("SET LOCAL search_path = 'pg_temp'"), strictly("CREATE TABLE orders (LIKE public.orders)"),
                         strictly("COMMIT"))


def test_a_temporary_table_made_by_a_search_path_of_set_config_is_met_by_nobody(share):
    share().nobody_meets(strictly("BEGIN"), strictly("SELECT set_config('search_path', 'pg_temp', true)"),
                         strictly("CREATE TABLE orders (LIKE public.orders)"), strictly("COMMIT"))


@pytest.mark.parametrize("sql", ['CREATE VIEW "pg_temp".orders AS SELECT 1 AS id', 'CREATE SEQUENCE "pg_temp".orders', 'SELECT 1 AS id INTO "pg_temp".orders',
                                 'CREATE TABLE "pg_temp".orders AS SELECT 1 AS id', 'CREATE TYPE "pg_temp".orders AS ENUM (\'a\')',
                                 'CREATE DOMAIN "pg_temp".orders AS int', "CREATE FUNCTION \"pg_temp\".f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
                                 'CREATE TABLE IF NOT EXISTS "pg_temp".orders (id int)'])
def test_other_temporary_objects_under_a_quoted_schema_name_are_met_by_nobody(share, sql):
    share().nobody_meets(strictly(sql))


# -- settings

def test_what_a_statement_prepared_in_sql_sets_is_met_by_nobody(share):
    share().nobody_meets(strictly("PREPARE p AS SELECT set_config('app.tenant', 'evil', false)"), strictly("EXECUTE p"), strictly("DEALLOCATE p"))


def test_what_it_sets_in_the_text_that_gives_it_up_is_met_by_nobody(share):
    share().nobody_meets(strictly("PREPARE p AS SELECT set_config('app.tenant', 'evil', false)"), strictly("EXECUTE p; DEALLOCATE p"))


@pytest.mark.parametrize("view", ["pg_settings", "pg_catalog.pg_settings", '"pg_settings"', 'U&"pg\\005fsettings"'])
def test_a_setting_changed_by_an_update_of_pg_settings_is_met_by_nobody(share, view):
    share().nobody_meets(strictly(f"UPDATE {view} SET setting = 'evil' WHERE name = 'search_path'"))


def test_a_setting_larger_than_is_remembered_is_met_by_nobody(share):
    share().nobody_meets(strictly("SELECT set_config('search_path', 'evil' || repeat(', public', 9000), false)"))


def test_a_custom_setting_larger_than_is_remembered_is_met_by_nobody(share):
    share().nobody_meets(strictly("SELECT set_config('app.tenant', repeat('evil', 30000), false)"))


def test_a_setting_of_a_role_remains_with_its_client_after_a_large_one(share):
    share().nobody_meets(strictly("SET ROLE leaks_reader"), strictly("SELECT set_config('app.tenant', repeat('evil', 30000), false)"))


def test_a_setting_hidden_by_strings_that_do_not_conform_is_met_by_nobody(share):
    share().nobody_meets(strictly("SET standard_conforming_strings = off"), strictly(r"select 'O\'Brien'; set app.tenant to 'evil'; select ''"))


def test_a_setting_hidden_by_them_in_the_text_that_switches_them_is_met_by_nobody(share):
    """PostgreSQL reads a text as a whole before it carries out the first statement, so both ways to read it must be thought of."""
    share().nobody_meets(r"SET standard_conforming_strings = off; select 'a\'; SET app.tenant = 'evil'; --'")


def test_a_setting_hidden_by_a_string_continued_on_the_next_line_is_met_by_nobody(share):
    share().nobody_meets(strictly("SELECT E'a'\n'b\\''; SET app.tenant = evil; SELECT ''"))


@pytest.mark.parametrize("between", ["\n", "\r", " \n\t ", "\n-- a comment\n", " -- a comment\n", "\f\n", "\r\n\r\n"])
def test_a_setting_hidden_by_any_continued_string_is_met_by_nobody(share, between):
    share().nobody_meets(f"SELECT E'a'{between}'b\\''; SET app.tenant = evil; SELECT ''")


@pytest.mark.parametrize("name", [r'U&"app\002eTenant"', r'app.U&"t\0065nant"', """app.U&"t!0065nant" UESCAPE '!'""", 'app."tenant"', "APP/* */.Tenant"])
def test_a_setting_under_an_escaped_identifier_is_met_by_nobody(share, name):
    share().nobody_meets(strictly(f"SET {name} = 'evil'"))


@pytest.mark.parametrize("local", ["NOT true", "false OR NOT true", "'f'", "E'f'", "1 = 2", "(SELECT false)", "true AND false", "true IS NULL",
                                   "CASE WHEN true THEN false END", "NULL IS NOT NULL OR false", "'tr' = 'true'"])
def test_a_setting_that_is_local_only_at_first_sight_is_met_by_nobody(share, local):
    share().nobody_meets(strictly(f"select set_config('app.tenant', 'evil', {local})"))


@pytest.mark.parametrize("function", ['"set_config"', 'pg_catalog."set_config"', 'U&"set\\005fconfig"', '"pg_catalog" . "set_config"', "SET_CONFIG",
                                      "pg_catalog./* */set_config"])
def test_a_setting_by_a_function_named_otherwise_is_met_by_nobody(share, function):
    share().nobody_meets(strictly(f"SELECT {function}('app.tenant', 'evil', false)"))


@pytest.mark.parametrize("name", [r"E'app\x2etenant'", r"U&'app\002etenant'", r"E'\141pp.tenant'", r"E'app\u002Etenant'", "$$app.tenant$$", "$a$app.tenant$a$",
                                  "'app'\n'.tenant'", "'app.' || 'tenant'", "'APP.Tenant'", "N'app.tenant'", "'app.tenant'::text", "cast('app.tenant' as text)"])
def test_a_setting_whose_name_is_escaped_is_met_by_nobody(share, name):
    share().nobody_meets(strictly(f"SELECT set_config({name}, 'evil', false)"))


@pytest.mark.parametrize("block", [r"DO E'BEGIN PERFORM \x73et_config(\'app.tenant\', \'evil\', false); END'",
                                   r"DO U&'BEGIN PERFORM \0073et_config(''app.tenant'', ''evil'', false); END'",
                                   "DO 'BEGIN PERFORM set_'\n'config(''app.tenant'', ''evil'', false); END'",
                                   r"DO U&'BEGIN \0053ET app.tenant = evil; END'", "DO $$BEGIN EXECUTE 'S' || 'ET app.tenant = evil'; END$$",
                                   r"DO LANGUAGE plpgsql E'BEGIN EXEC\125TE ''S'' || ''ET app.tenant = evil''; END'",
                                   "DO $$DECLARE c refcursor; BEGIN OPEN c FOR EXECUTE 'SELECT set' || '_config(''app.tenant'', ''evil'', false)'; MOVE c; END$$"])
def test_a_setting_within_a_block_is_met_by_nobody(share, block):
    share().nobody_meets(strictly(block))


@pytest.mark.parametrize("sql", [
    "SELECT query_to_xml('SELECT set' || '_config(''app.tenant'', ''evil'', false)', false, false, '')",
    "SELECT * FROM ts_stat('SELECT to_tsvector(set' || '_config(''app.tenant'', ''evil'', false))')",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT set' || '_config(''app.tenant'', ''evil'', false)::tsquery, ''b''::tsquery')",
])
def test_a_setting_by_a_function_of_postgresql_that_runs_a_text_is_met_by_nobody(share, sql):
    share().nobody_meets(strictly(sql))


def test_a_setting_by_a_function_made_in_the_same_text_is_met_by_nobody(share):
    shared = share()
    with shared.cluster.superuser(world.QUIET) as db:
        try:
            shared.nobody_meets("CREATE FUNCTION public.later() RETURNS text LANGUAGE plpgsql AS "
                                "$$ BEGIN RETURN set_config('app.tenant', 'evil', false); END $$; SELECT later()", strictly("SELECT later()"))
        finally:
            db.execute("DROP FUNCTION IF EXISTS public.later()")


@pytest.mark.parametrize("size", [16, 64, 256, 1024])
@pytest.mark.parametrize("by", ["query", "parse", "bind"])
def test_a_setting_in_a_message_of_any_size_is_met_by_nobody(share, size, by):
    """Around each bound that the pooler has."""
    padding = "/*" + "x" * (size * 1024) + "*/"

    def bound(session):
        values = ["app.tenant", "evil", "x" * (size * 1024)]
        session.send(w.parse("SELECT set_config($1, $2, false), length($3)"), w.bind(values), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    def parsed(session):
        session.send(w.parse(f"{padding} SELECT set_config('app.tenant', 'evil', false)"), w.bind(), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    share().nobody_meets({"query": strictly(f"{padding} SELECT set_config('app.tenant', 'evil', false)"), "parse": parsed, "bind": bound}[by])


def function_call(oid, *arguments):
    """FunctionCall, all arguments and the result as text."""
    body = struct.pack("!IHH", oid, 0, len(arguments))
    for argument in arguments:
        body += struct.pack("!I", len(argument.encode())) + argument.encode()
    return w.message(b"F", body + struct.pack("!H", 0))


def test_a_custom_setting_by_a_function_call_is_met_by_nobody(share):
    def call(session):
        session.send(function_call(2078, "app.tenant", "evil", "f"))
        assert [kind for kind, _ in session.until_ready()[0]] == [b"V"]

    share().nobody_meets(call)


def test_a_setting_by_a_large_function_call_is_met_by_nobody(share):
    def call(session):
        session.send(function_call(2078, "app.tenant", "evil" * 50_000, "f"))
        assert [kind for kind, _ in session.until_ready()[0]] == [b"V"]

    share().nobody_meets(call)


@pytest.mark.parametrize("encoding, value", [("LATIN1", "é".encode("latin1")), ("SJIS", "表".encode("shift_jis")), ("BIG5", "功".encode("big5")),
                                             ("GBK", "誠".encode("gbk")), ("SJIS", "ソ".encode("shift_jis")), ("EUC_JP", "表".encode("euc_jp"))])
def test_a_setting_that_is_not_ascii_follows_its_client_and_nobody_else(share, encoding, value):
    """The second byte of some of these letters is a backslash."""
    shared = share()
    with shared.session(client_encoding=encoding) as one, shared.session() as other:
        rows = strictly(b"SELECT set_config('app.tenant', '" + value + b"', false)")(one)
        assert rows, "it was set"
        for _ in range(2):
            assert other.query("SELECT current_setting('app.tenant', true)") in ([[None]], [[""]])
            do(one, "SELECT current_setting('app.tenant')")
            one.send(w.query("SELECT encode(convert_to(current_setting('app.tenant'), 'UTF8'), 'hex')"))
            known = {"LATIN1": "latin1", "SJIS": "shift_jis", "BIG5": "big5", "GBK": "gbk", "EUC_JP": "euc_jp"}[encoding]
            assert look.rows(one.until_ready()[0]) == [(value.decode(known).encode().hex(),)]
            other.query("SET client_encoding = 'LATIN1'")
            other.query("SET client_encoding = 'UTF8'")
    assert not shared.met(patient=True)


def test_a_setting_set_in_one_encoding_is_replayed_in_another(share):
    """SET in SJIS, then the client changes its encoding, then it is handed another's server and its own again."""
    shared = share()
    with shared.session() as one, shared.session(client_encoding="SJIS") as other:
        one.query("SET client_encoding = 'SJIS'")
        do(one, b"SET app.tenant = '" + "表".encode("shift_jis") + b"'")
        other.query("SELECT 1")
        one.query("SET client_encoding = 'BIG5'")
        other.query("SET app.person = 'other'")
        one.query("SET client_encoding = 'UTF8'")
        other.query("SELECT 1")
        assert strictly("SELECT current_setting('app.tenant')")(one) == [("表",)]
        assert strictly("SELECT current_setting('app.person')")(other) == [("other",)]
    assert not shared.met(patient=True)


def test_a_setting_after_a_letter_that_ends_in_a_backslash_is_met_by_nobody(share):
    """To who reads bytes the string goes on; to PostgreSQL it does not."""
    shared = share()
    text = b"SET standard_conforming_strings = off; SELECT 1"
    trick = b"SELECT E'" + "表".encode("shift_jis") + b"'; SET app.tenant = 'evil'; SELECT ''"
    shared.nobody_meets(text, trick, client_encoding="SJIS")


# -- what functions, triggers and views do out of sight

HIDDEN_WAYS = {
    "a function": "SELECT hide.tenant('evil')",
    "a function in SQL": "SELECT hide.in_sql()",
    "a function that sets the role": "SELECT hide.role()",
    "a function that sets the search_path": "SELECT hide.path()",
    "a function with a setting of its own": "SELECT hide.with_set()",
    "a procedure": "CALL hide.call()",
    "a procedure that commits": "CALL hide.call_and_commit()",
    "a trigger": "INSERT INTO hide.triggered VALUES (1)",
    "a trigger of the statement": "INSERT INTO hide.statement_triggered VALUES (1)",
    "a trigger at the end of the transaction": "INSERT INTO hide.deferred VALUES (1)",
    "a trigger that sets the role": "INSERT INTO hide.role_triggered VALUES (1)",
    "a trigger of rows copied": lambda session: copy(session, "hide.triggered"),
    "a view": "SELECT * FROM hide.viewed",
    "a view that sets the role": "SELECT * FROM hide.viewed_role",
    "a view of pg_settings": "UPDATE hide.viewed_settings SET setting = 'evil' WHERE name = 'search_path'",
    "a rule": "INSERT INTO hide.ruled VALUES (1)",
    "a default": "INSERT INTO hide.defaulted (a) VALUES (1)",
    "a check": "INSERT INTO hide.checked VALUES (1)",
    "a domain": "SELECT 1::hide.checking",
    "an operator": "SELECT 1 OPERATOR(hide.+@+) 2",
    "a cast": "SELECT CAST('sad'::hide.mood AS int)",
    "an aggregate": "SELECT hide.gather(v) FROM (VALUES ('a'), ('b')) AS v(v)",
    "a policy": "SELECT * FROM hide.guarded",
    "an index": "INSERT INTO hide.indexed VALUES (1)",
    "a generated column": "INSERT INTO hide.generated VALUES (1)",
    "a function that locks": "SELECT hide.lock()",
    "a function that makes a temporary table": "SELECT hide.table()",
    "a function that listens": "SELECT hide.listen()",
    "a function that opens a cursor": "SELECT hide.cursor()",
    "a function that prepares": "SELECT hide.statement()",
    "a function that advances a sequence": "SELECT hide.next()",
    "crosstab": "SELECT * FROM crosstab('SELECT ''a'', ''b'', set' || '_config(''app.tenant'', ''evil'', false)') AS t(a text, b text)",
}


def copy(session, table):
    session.send(w.query(f"COPY {table} FROM STDIN"), w.copy_data(b"1\n"), w.COPY_DONE)
    return look.rows(session.until_ready()[0])


@pytest.mark.parametrize("way", HIDDEN_WAYS)
def test_what_is_set_out_of_sight_is_met_by_nobody(share, way):
    act = HIDDEN_WAYS[way]
    hidden(share).nobody_meets(act if callable(act) else strictly(act))


@pytest.mark.parametrize("way", ["a function", "a trigger", "a function that makes a temporary table"])
def test_what_is_set_out_of_sight_by_the_extended_protocol_is_met_by_nobody(share, way):
    def act(session):
        session.send(w.parse(HIDDEN_WAYS[way], "s"), w.bind(name="s"), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    hidden(share).nobody_meets(act)


@pytest.mark.parametrize("way", ["a function", "a trigger", "a function that makes a temporary table"])
def test_nor_with_reset_always(share, way):
    hidden(share, reset="always").nobody_meets(strictly(HIDDEN_WAYS[way]))


def test_a_seed_is_met_by_nobody(share):
    shared = hidden(share)
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    for seeding in ("SELECT setseed(0.25)", "SELECT hide.seed()", 'SELECT "setseed"(0.25)', "SET seed = 0.25"):
        with shared.session() as one, shared.session() as other:
            strictly(seeding)(one)
            assert strictly("SELECT random()::text")(other)[0][0] not in known, seeding


def test_a_connection_of_dblink_is_met_by_nobody(share):
    shared = hidden(share)
    shared.nobody_meets(strictly("SELECT dblink_connect('mine', 'itself')"))


def test_a_library_that_was_loaded_is_met_by_nobody(share):
    shared = share()
    with shared.session(world.ADMIN) as one, shared.session(world.ADMIN) as other:
        strictly("LOAD 'auto_explain'")(one)
        strictly("SET auto_explain.log_min_duration = 0")(one)
        one.query("SELECT 1")
        found = strictly("SELECT setting FROM pg_settings WHERE name = 'auto_explain.log_min_duration'")(other)
        assert found in ([], [("-1",)])


def test_a_replication_slot_of_a_session_is_met_by_nobody(share):
    shared = share()
    try:
        shared.nobody_meets(strictly("SELECT pg_create_physical_replication_slot('leaks_mine', true, true)"), user=world.ADMIN)
    finally:
        shared.pooler.stop()


# -- locks, cursors

@pytest.mark.parametrize("sql", ['SELECT "pg_advisory_lock"(1)', 'SELECT U&"pg\\005fadvisory\\005flock"(1)', 'SELECT pg_catalog."pg_try_advisory_lock_shared"(1, 2)',
                                 "SELECT PG_ADVISORY_LOCK(1)", "SELECT * FROM query_to_xml('SELECT pg_adv' || 'isory_lock(1)', false, false, '')",
                                 "PREPARE p AS SELECT pg_advisory_lock(1); EXECUTE p; DEALLOCATE p", "SELECT pg_advisory_lock(oid::int) FROM pg_class WHERE relname = 'orders'"])
def test_an_advisory_lock_is_met_by_nobody(share, sql):
    share().nobody_meets(strictly(sql))


def test_an_advisory_lock_by_a_function_call_is_met_by_nobody(share):
    def call(session):
        session.send(w.message(b"F", struct.pack("!IHHHIqH", 2880, 1, 1, 1, 8, 5, 1)))
        assert [kind for kind, _ in session.until_ready()[0]] == [b"V"]

    share().nobody_meets(call)


@pytest.mark.parametrize("sql", ["DECLARE c CURSOR WITH /* */ HOLD FOR SELECT 1", "DECLARE \"c\" NO SCROLL CURSOR WITH -- why\nHOLD FOR SELECT 1",
                                 "DECLARE c BINARY CURSOR WITH HOLD FOR SELECT 1"])
def test_a_cursor_is_met_by_nobody(share, sql):
    share().nobody_meets(sql)


# -- the pooler's own statements

STATEMENTS = ("0", "00", *range(1, 12))


def mine(session, answer="mine"):
    session.send(w.parse(f"SELECT '{answer}'", "s"), w.bind(name="s"), w.execute(), w.message(b"C", b"Ss\0"), w.SYNC)
    assert look.rows(session.until_ready()[0]) == [(answer,)]


def large(session, name):
    session.send(w.parse(f"SELECT 'evil' /* {'x' * 70_000} */", name), w.SYNC)
    session.until_ready()


def close(session, name):
    session.send(w.message(b"C", b"S" + w.cstr(name)), w.SYNC)
    session.until_ready()


TAMPERING = {
    "deallocated": lambda one, name: do(one, f"DEALLOCATE {name}"),
    "deallocated within a text": lambda one, name: do(one, f"SELECT 1; DEALLOCATE {name}"),
    "deallocated within a block": lambda one, name: do(one, f"DO $$ BEGIN DEALLOCATE {name}; END $$"),
    "replaced": lambda one, name: (do(one, f"DEALLOCATE {name}"), do(one, f"PREPARE {name} AS SELECT 'evil'")),
    "replaced in one text": lambda one, name: do(one, f"DEALLOCATE {name}; PREPARE {name} AS SELECT 'evil'"),
    "replaced and given up": lambda one, name: do(one, f"DEALLOCATE {name}; PREPARE {name} AS SELECT 'evil'; DEALLOCATE {name}"),
    "prepared": lambda one, name: do(one, f"PREPARE {name} AS SELECT 'evil'"),
    "replaced by a large one": lambda one, name: (do(one, f"DEALLOCATE {name}"), large(one, name)),
    "prepared as a large one": large,
    "prepared as a large one and closed": lambda one, name: (large(one, name), close(one, name)),
    "closed": close,
}


TAMPERING["replaced out of sight"] = lambda one, name: do(one, "SELECT hide.replace()")
TAMPERING["deallocated out of sight"] = lambda one, name: do(one, "SELECT hide.forget()")


@pytest.mark.parametrize("tampering", TAMPERING)
def test_a_statement_under_a_name_of_the_poolers_own_is_nobody_elses(share, tampering):
    """Who has prepared a text keeps it, and who prepares it anew gets its answers, whatever others do under the names that the pooler uses."""
    shared = share(world.HIDDEN if "out of sight" in tampering else world.QUIET)
    with shared.session() as other:
        other.send(w.parse("SELECT 'kept'", "kept"), w.SYNC)
        other.until_ready()
        with shared.session() as one:
            for n in STATEMENTS:
                TAMPERING[tampering](one, f"poolhouse_{n}")
            # Neither does it stumble over it itself: it cannot know which names the pooler uses.
            mine(one, "its own")
            try:
                mine(other)
            except w.ServerError as error:
                assert error.sqlstate in NO_SERVER, f"the statement of another: {error}"
        for n in range(12):
            mine(other, f"mine {n}")
        other.send(w.bind(name="kept"), w.execute(), w.SYNC)
        assert look.rows(other.until_ready()[0]) == [("kept",)]
    assert not shared.met(patient=True)


def test_a_large_statement_is_met_by_nobody_when_its_client_leaves(share):
    def parse(session):
        session.send(w.parse(f"SELECT 'evil' /* {'x' * 70_000} */", "large"), w.SYNC)
        session.until_ready()

    share().nobody_meets(parse)


# -- session mode

def test_in_session_mode_what_a_client_leaves_is_met_by_nobody(share):
    """Its time-out is too small for throwing its temporary tables away."""
    shared = share(mode="session", wait="8s")
    for _ in range(5):
        with shared.session() as one:
            do(one, "; ".join(f"CREATE TEMP TABLE secret{n} (a text PRIMARY KEY, b text UNIQUE)" for n in range(30)))
            do(one, "CREATE TEMP TABLE orders (LIKE public.orders); SELECT pg_advisory_lock(1); SET statement_timeout = '1ms'; RESET work_mem /* \\ */")
        assert not shared.met(patient=True)


def test_in_session_mode_each_of_it_is_met_by_nobody(share):
    shared = share(mode="session")
    for sql in ("CREATE TEMP TABLE orders (LIKE public.orders)", "SELECT pg_advisory_lock(1)", "SET app.tenant = 'evil'", "SET ROLE leaks_reader", "LISTEN c",
                "DECLARE c CURSOR WITH HOLD FOR SELECT 1", "PREPARE p AS SELECT 1", "SET search_path = evil", 'CREATE TABLE "pg_temp".orders (LIKE public.orders)'):
        shared.nobody_meets(strictly(sql))


def test_in_session_mode_a_client_that_vanishes_leaves_nothing(share):
    shared = share(mode="session")
    one = shared.session()
    do(one, "BEGIN; CREATE TEMP TABLE orders (LIKE public.orders); SET app.tenant = 'evil'; COMMIT; BEGIN; SET app.person = 'evil'")
    one.vanish()
    assert not shared.met(patient=True)


# -- small time-outs

def test_a_client_with_a_small_time_out_is_not_cut_off(share):
    """Its time-out is for its own statements, not for those of the pooler."""
    shared = share(max_size=2)
    with shared.session() as one:
        one.query("SET statement_timeout = '1ms'")
        for n in range(150):
            do(one, f"CREATE TEMP TABLE t{n} (a int)")
            do(one, f"DROP TABLE t{n}")
        assert strictly("SHOW statement_timeout")(one) == [("1ms",)]
    assert not shared.met(patient=True)


@pytest.mark.parametrize("setting", ["statement_timeout = '1ms'", "lock_timeout = '1ms'", "idle_session_timeout = '50ms'", "idle_in_transaction_session_timeout = '1ms'"])
def test_a_small_time_out_is_met_by_nobody(share, setting):
    shared = share()
    with shared.session() as one:
        do(one, f"SET {setting}")
        for _ in range(3):
            assert not shared.met()
    assert not shared.met(patient=True)


@pytest.mark.parametrize("setting", ["statement_timeout = '1ms'", "idle_session_timeout = '200ms'", "search_path = evil", "ROLE leaks_reader", "app.tenant = evil"])
def test_the_setting_of_one_listener_is_not_that_of_the_server_all_listen_on(share, setting):
    shared = share(max_size=3)
    with shared.session() as one, shared.session() as other:
        do(one, f"SET {setting}")
        do(one, "LISTEN one")
        strictly("LISTEN other")(other)
        time.sleep(0.5)
        strictly("NOTIFY other, 'hello'")(other)
        kind, body = other.take()
        assert kind == b"A" and body[4:] == b"other\0hello\0"
        strictly("UNLISTEN *")(other)
    assert not shared.met(patient=True)


# -- what is promised to a client of its own

def test_a_client_keeps_what_it_has_set_whoever_comes_between(share):
    shared = share()
    with shared.session() as one, shared.session() as other:
        for sql in ("select set_config('app.tenant','mine', NOT true)", "UPDATE pg_settings SET setting = 'mine' WHERE name = 'application_name'",
                    r"SELECT set_config(E'app\x2euser', 'mine', false)"):
            try:
                do(one, sql)
                other.query("SELECT 1")
            except w.ServerError as error:
                # Kept by its owner: no other is served.
                assert error.severity == "FATAL" or error.sqlstate == "53300"
                other = shared.session()
        assert strictly("SELECT current_setting('app.tenant'), current_setting('app.person'), current_setting('application_name')")(one) == [("mine",) * 3]


def test_an_error_of_a_driver_shows_that_the_connection_is_whole(share):
    """psycopg in the place of the raw protocol: what is set in a transaction that fails is nobody's."""
    shared = share()
    with shared.pooler.connect(database=world.QUIET) as one:
        with pytest.raises(psycopg.errors.DivisionByZero), one.transaction():
            one.execute("UPDATE pg_settings SET setting = 'evil' WHERE name = 'search_path'")
            one.execute("SELECT 1/0")
        assert not shared.met()
        assert one.execute("SHOW search_path").fetchone() == ('"$user", public',)
