"""What a client leaves in its server's session reaches no other client, however the text is written that does it. Each
test is one way that is easy to overlook; tests/hunts/leaks.py writes thousands.
"""

import pytest

from hunts.leaking import look, requests
from hunts.leaking.fixtures import share  # noqa: F401
from hunts.leaking.sharing import do, strictly
from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only


# -- temporary objects

@pytest.mark.quick
@pytest.mark.parametrize("name", ['"pg_temp"."orders"', '"pg_temp" . orders', 'U&"pg\\005ftemp".orders', 'U&"pg!005ftemp" UESCAPE \'!\'.orders',
                                  "pg_temp/* */.orders", "PG_TEMP.orders"])
def test_a_temporary_table_under_a_quoted_schema_name_reaches_no_other_client(share, name):
    share().nobody_meets(strictly(f"CREATE TABLE {name} (LIKE public.orders)"))


def test_a_temporary_table_made_by_a_search_path_reaches_no_other_client(share):
    share().nobody_meets(strictly("BEGIN"), strictly("SET LOCAL search_path = 'pg_temp'"), strictly("CREATE TABLE orders (LIKE public.orders)"),
                         strictly("COMMIT"))


def test_a_temporary_table_made_by_a_search_path_of_set_config_reaches_no_other_client(share):
    share().nobody_meets(strictly("BEGIN"), strictly("SELECT set_config('search_path', 'pg_temp', true)"),
                         strictly("CREATE TABLE orders (LIKE public.orders)"), strictly("COMMIT"))


@pytest.mark.parametrize("sql", ['CREATE VIEW "pg_temp".orders AS SELECT 1 AS id', 'CREATE SEQUENCE "pg_temp".orders', 'SELECT 1 AS id INTO "pg_temp".orders',
                                 'CREATE TABLE "pg_temp".orders AS SELECT 1 AS id', 'CREATE TYPE "pg_temp".orders AS ENUM (\'a\')',
                                 'CREATE DOMAIN "pg_temp".orders AS int', "CREATE FUNCTION \"pg_temp\".f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
                                 'CREATE TABLE IF NOT EXISTS "pg_temp".orders (id int)'])
def test_other_temporary_objects_under_a_quoted_schema_name_reach_no_other_client(share, sql):
    share().nobody_meets(strictly(sql))


@pytest.mark.parametrize("to", [r"SET LOCAL search_path = E'pg\x5ftemp'", "SET LOCAL search_path = 'pg_te'\n'mp'", "SET LOCAL search_path = \"pg_temp\"",
                                r"SELECT set_config('search_path', E'pg\x5ftemp', true)", "SELECT set_config('search_path', 'pg_t'\n'emp', true)",
                                r"SELECT set_config('search_path', U&'pg\005ftemp', true)", "SELECT set_config('search_path', concat('pg_', 'temp'), true)"])
def test_a_table_selected_into_a_temporary_schema_reaches_no_other_client(share, to):
    """The text of SELECT INTO says no more about the place of its table than a SELECT does."""
    share().nobody_meets(strictly("BEGIN"), strictly(to), strictly("SELECT * INTO orders FROM public.orders"), strictly("COMMIT"))


def test_a_table_selected_into_the_temporary_schema_of_a_bound_search_path_reaches_no_other_client(share):
    def act(session):
        session.send(w.parse("BEGIN"), w.bind(), w.execute(), w.parse("SELECT set_config('search_path', $1, true)"), w.bind(["pg_temp"]), w.execute(),
                     w.parse("SELECT * INTO orders FROM public.orders"), w.bind(), w.execute(), w.parse("COMMIT"), w.bind(), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    share().nobody_meets(act)


def test_a_table_selected_into_the_temporary_schema_of_the_start_reaches_no_other_client(share):
    share().nobody_meets(strictly("SELECT * INTO orders FROM public.orders"), options="-c search_path=pg_temp")


# -- one after the other

def test_what_is_left_by_a_request_that_comes_with_the_cleaning_reaches_no_other_client(share):
    """The request that is sent together with the cleaning can leave as much as any other."""
    shared = share()
    with shared.session() as one, shared.session() as other:
        for session in (one, other):
            strictly("SELECT query_to_xml('SELECT set' || '_config(''app.tenant'', ''evil'', false)', false, false, '')")(session)
        assert not shared.met()
    assert not shared.met(patient=True)


def test_a_setting_is_reset_by_the_statements_that_a_server_keeps_for_it(share):
    """If clients have prepared statements, those of the cleaning are prepared, too: the second time they are only
    executed."""
    shared = share(reset="always")
    with shared.session() as one, shared.session() as other:
        for _ in range(3):
            for session in (one, other):
                session.send(w.parse("SELECT 1"), w.bind(), w.execute(), w.parse("SELECT 2", name="kept"), w.SYNC, w.bind(name="kept"), w.execute(), w.SYNC)
                session.until_ready(), session.until_ready()
                session.send(w.message(b"C", b"Skept\0"), w.SYNC)
                session.until_ready()
        strictly("SET app.tenant = 'evil'")(one)
        assert strictly("SELECT current_setting('app.tenant', true)")(other) in ([("",)], [(None,)])
        assert not shared.met()
        assert strictly("SHOW app.tenant")(one) == [("evil",)]


# -- settings

@pytest.mark.parametrize("name", ["session", "local", "transaction", "constraints", "role", "time", '"local"', '"session"', '"transaction"', "session session", "session local"])
def test_a_setting_whose_name_begins_with_a_word_of_set_reaches_no_other_client(share, name):
    share().nobody_meets(strictly(f"SET {name}.tenant = 'evil'"))


@pytest.mark.parametrize("columns", ["", " (id)"])
def test_a_setting_in_the_condition_of_copy_reaches_no_other_client(share, columns):
    def act(session):
        session.send(w.query(f"COPY orders{columns} FROM STDIN WHERE set_config('app.tenant', 'evil', false) = 'none'"),
                     w.copy_data(b"1\n" if columns else b"1\tx\ty\tz\n"), w.COPY_DONE)
        return look.rows(session.until_ready()[0])

    share().nobody_meets(act)


@pytest.mark.parametrize("sql", ["SELECT set_config(values, 'evil', false) FROM (SELECT 'app.tenant'::text) AS t(values)",
                                 "SELECT pg_advisory_lock(values) FROM (SELECT 5::bigint) AS t(values)", "VALUES (set_config('app.tenant', 'evil', false))",
                                 "SELECT * FROM ROWS FROM (set_config('app.tenant', 'evil', false)) AS x", "SELECT DISTINCT ON (set_config('app.tenant', 'evil', false)) 1",
                                 "SELECT 'a' LIKE ('b') ESCAPE set_config('app.tenant', 'e', false)", "EXPLAIN (ANALYZE) (SELECT set_config('app.tenant', 'evil', false))",
                                 "EXPLAIN (ANALYZE) SELECT * INTO \"pg_temp\".orders FROM public.orders", "SELECT 1 ORDER BY (set_config('app.tenant', 'evil', false)) USING <"])
def test_a_setting_in_an_unusual_place_reaches_no_other_client(share, sql):
    share().nobody_meets(strictly(sql))


def test_what_a_statement_prepared_in_sql_sets_reaches_no_other_client(share):
    share().nobody_meets(strictly("PREPARE p AS SELECT set_config('app.tenant', 'evil', false)"), strictly("EXECUTE p"), strictly("DEALLOCATE p"))


@pytest.mark.parametrize("end", ["DEALLOCATE p", "Close"])
def test_what_a_statement_prepared_in_sql_and_bound_sets_reaches_no_other_client(share, end):
    def bind(session):
        session.send(w.bind(name="p"), w.execute(), *([w.message(b"C", b"Sp\0")] if end == "Close" else []), w.SYNC)
        return look.rows(session.until_ready()[0])

    share().nobody_meets(strictly("PREPARE p AS SELECT set_config('app.tenant', 'evil', false)"), strictly("SELECT 1"), bind,
                         strictly(end if end != "Close" else "SELECT 1"))


@pytest.mark.parametrize("sql", ["SET search_path = evil", "SET app.tenant = 'evil'"])
def test_what_a_large_statement_sets_that_is_closed_at_once_reaches_no_other_client(share, sql):
    def act(session):
        session.send(w.parse(f"/*{'x' * 70_000}*/ {sql}", "large"), w.bind(name="large"), w.execute(), w.message(b"C", b"Slarge\0"), w.SYNC)
        return look.rows(session.until_ready()[0])

    share().nobody_meets(act)


def test_what_it_sets_in_the_text_that_gives_it_up_reaches_no_other_client(share):
    share().nobody_meets(strictly("PREPARE p AS SELECT set_config('app.tenant', 'evil', false)"), strictly("EXECUTE p; DEALLOCATE p"))


@pytest.mark.parametrize("view", ["pg_settings", "pg_catalog.pg_settings", '"pg_settings"', 'U&"pg\\005fsettings"'])
def test_a_setting_changed_by_an_update_of_pg_settings_reaches_no_other_client(share, view):
    share().nobody_meets(strictly(f"UPDATE {view} SET setting = 'evil' WHERE name = 'search_path'"))


def test_a_setting_larger_than_is_remembered_reaches_no_other_client(share):
    share().nobody_meets(strictly("SELECT set_config('search_path', 'evil' || repeat(', public', 9000), false)"))


def test_a_custom_setting_larger_than_is_remembered_reaches_no_other_client(share):
    share().nobody_meets(strictly("SELECT set_config('app.tenant', repeat('evil', 30000), false)"))


def test_a_setting_of_a_role_remains_with_its_client_after_a_large_one(share):
    share().nobody_meets(strictly("SET ROLE leaks_reader"), strictly("SELECT set_config('app.tenant', repeat('evil', 30000), false)"))


@pytest.mark.parametrize("text", [r"select 'O\'Brien'; set app.tenant to 'evil'; select ''", r"select 'a\''; SET app.tenant = 'evil'; --'"])
def test_a_setting_hidden_by_strings_that_do_not_conform_reaches_no_other_client(share, text):
    share().nobody_meets(strictly("SET standard_conforming_strings = off"), strictly(text))


def test_a_setting_hidden_by_them_in_the_text_that_switches_them_reaches_no_other_client(share):
    """PostgreSQL reads a text as a whole before it executes the first statement, so both readings must be considered.
    """
    share().nobody_meets(r"SET standard_conforming_strings = off; select 'a\'; SET app.tenant = 'evil'; --'")


@pytest.mark.parametrize("end", ["evil; SELECT ''", "'evil'; --'"])
def test_a_setting_hidden_by_a_string_continued_on_the_next_line_reaches_no_other_client(share, end):
    share().nobody_meets(strictly(f"SELECT E'a'\n'b\\''; SET app.tenant = {end}"))


@pytest.mark.parametrize("between", ["\n", "\r", " \n\t ", "\n-- a comment\n", " -- a comment\n", "\f\n", "\r\n\r\n"])
def test_a_setting_hidden_by_any_continued_string_reaches_no_other_client(share, between):
    share().nobody_meets(f"SELECT E'a'{between}'b\\''; SET app.tenant = evil; SELECT ''")


@pytest.mark.parametrize("name", [r'U&"app\002eTenant"', r'app.U&"t\0065nant"', """app.U&"t!0065nant" UESCAPE '!'""", 'app."tenant"', "APP/* */.Tenant"])
def test_a_setting_under_an_escaped_identifier_reaches_no_other_client(share, name):
    share().nobody_meets(strictly(f"SET {name} = 'evil'"))


@pytest.mark.parametrize("local", ["NOT true", "false OR NOT true", "'f'", "E'f'", "1 = 2", "(SELECT false)", "true AND false", "true IS NULL",
                                   "CASE WHEN true THEN false END", "NULL IS NOT NULL OR false", "'tr' = 'true'"])
def test_a_setting_that_is_local_only_at_first_sight_reaches_no_other_client(share, local):
    share().nobody_meets(strictly(f"select set_config('app.tenant', 'evil', {local})"))


@pytest.mark.parametrize("function", ['"set_config"', 'pg_catalog."set_config"', 'U&"set\\005fconfig"', '"pg_catalog" . "set_config"', "SET_CONFIG",
                                      "pg_catalog./* */set_config"])
def test_a_setting_by_a_function_named_otherwise_reaches_no_other_client(share, function):
    share().nobody_meets(strictly(f"SELECT {function}('app.tenant', 'evil', false)"))


@pytest.mark.parametrize("name", [r"E'app\x2etenant'", r"U&'app\002etenant'", r"E'\141pp.tenant'", r"E'app\u002Etenant'", "$$app.tenant$$", "$a$app.tenant$a$",
                                  "'app'\n'.tenant'", "'app.' || 'tenant'", "'APP.Tenant'", "N'app.tenant'", "'app.tenant'::text", "cast('app.tenant' as text)"])
def test_a_setting_whose_name_is_escaped_reaches_no_other_client(share, name):
    share().nobody_meets(strictly(f"SELECT set_config({name}, 'evil', false)"))


@pytest.mark.parametrize("block", [r"DO E'BEGIN PERFORM \x73et_config(\'app.tenant\', \'evil\', false); END'",
                                   r"DO U&'BEGIN PERFORM \0073et_config(''app.tenant'', ''evil'', false); END'",
                                   "DO 'BEGIN PERFORM set_'\n'config(''app.tenant'', ''evil'', false); END'",
                                   r"DO U&'BEGIN \0053ET app.tenant = evil; END'", "DO $$BEGIN EXECUTE 'S' || 'ET app.tenant = evil'; END$$",
                                   r"DO LANGUAGE plpgsql E'BEGIN EXEC\125TE ''S'' || ''ET app.tenant = evil''; END'",
                                   "DO $$DECLARE c refcursor; BEGIN OPEN c FOR EXECUTE 'SELECT set' || '_config(''app.tenant'', ''evil'', false)'; MOVE c; END$$"])
def test_a_setting_within_a_block_reaches_no_other_client(share, block):
    share().nobody_meets(strictly(block))


@pytest.mark.parametrize("sql", [
    "SELECT query_to_xml('SELECT set' || '_config(''app.tenant'', ''evil'', false)', false, false, '')",
    "SELECT * FROM ts_stat('SELECT to_tsvector(set' || '_config(''app.tenant'', ''evil'', false))')",
    "SELECT ts_rewrite('a'::tsquery, 'SELECT set' || '_config(''app.tenant'', ''evil'', false)::tsquery, ''b''::tsquery')",
])
def test_a_setting_by_a_function_of_postgresql_that_runs_a_text_reaches_no_other_client(share, sql):
    share().nobody_meets(strictly(sql))


@pytest.mark.parametrize("sql", [f"SET app.{'t' * 63} = 'evil'", f"SET app.{'t' * 64} = 'evil'", f"SET app.{'t' * 300} = 'evil'", f"SELECT set_config('app.{'n' * 300}', 'evil', false)",
                                 'SET "app"."länge" = 1', "SELECT set_config('app.länge', 'evil', false)"], ids=["63", "64", "300", "string of 300", "not ASCII", "string not ASCII"])
def test_a_setting_with_an_unusual_name_reaches_no_other_client(share, sql):
    """An identifier is cut after 63 bytes, a string is not, and a name of several identifiers may be longer than one.
    """
    share().nobody_meets(strictly(sql))


@pytest.mark.parametrize("by", ["bind", "function call"])
@pytest.mark.parametrize("encoding, name", [("UTF8", "app." + "t" * 63), ("UTF8", "app." + "n" * 300), ("UTF8", "app.länge"), ("LATIN1", "app.länge")],
                         ids=["63", "300", "not ASCII", "other bytes"])
def test_a_setting_with_an_unusual_name_that_is_bound_reaches_no_other_client(share, encoding, name, by):
    """UTF-8's bytes, read as LATIN1, are the name of another parameter."""
    def act(session):
        if by == "bind":
            session.send(w.parse("SELECT set_config($1, $2, false)"), w.bind([name, "evil"]), w.execute(), w.SYNC)
        else:
            session.send(requests.call(2078, name, "evil", "f").data)
        answers, _ = session.until_ready()
        assert [kind for kind, _ in answers] == ([b"V"] if by == "function call" else [b"1", b"2", b"D", b"C"])

    share().nobody_meets(act, client_encoding=encoding)


def test_a_setting_with_a_long_name_remains_with_its_client(share):
    shared, name = share(), "app." + "t" * 63
    with shared.session() as one, shared.session() as other, shared.session(options=f"-c {name}=start") as third:
        strictly(f"SET {name} = 'mine'")(one)
        assert strictly(f"SELECT current_setting('{name}', true)")(other) in ([(None,)], [("",)])
        assert strictly(f"SELECT current_setting('{name}', true)")(third) == [("start",)]
        assert strictly(f"SELECT current_setting('{name}', true)")(one) == [("mine",)]


@pytest.mark.parametrize("trap", ["select 1 as é$a$", "select 1 as x1$a$", "select 1 -- '\r", "select 2 */* ' */ 3", "select $é$ ' $é$", "select 1 as \"a\"\"'\"",
                                  "select U&'a!0027' uescape '!'", "select 'a' -- '\n 'b\\'", "select /* /* */ ' */ 1"])
def test_a_setting_behind_something_that_is_easily_misread_reaches_no_other_client(share, trap):
    share().nobody_meets(strictly(f"{trap}; SET app.tenant = 'evil'"))


@pytest.mark.parametrize("startup", ["-c standard_conforming_strings=off", "-cstandard_conforming_strings=0", "--standard-conforming-strings=off"])
def test_a_setting_hidden_by_strings_that_do_not_conform_since_the_start_reaches_no_other_client(share, startup):
    share().nobody_meets(strictly(r"select 'O\'Brien'; set app.tenant to 'evil'; select ''"), options=startup)


@pytest.mark.parametrize("first", ["SET standard_conforming_strings = off", "SET client_encoding = 'SJIS'"])
def test_a_setting_in_a_text_that_is_sent_before_its_meaning_is_answered_for_reaches_no_other_client(share, first):
    trick = rb"select 'O\'Brien'; set app.tenant to 'evil'; select ''" if "strings" in first else b"SELECT E'" + "表".encode("shift_jis") + b"'; SET app.tenant = 'evil'; SELECT ''"

    def act(session):
        session.send(w.query(first), w.message(b"Q", trick + b"\0"))
        session.until_ready()
        session.until_ready()

    share().nobody_meets(act)


@pytest.mark.parametrize("size", [16, 64, 256, 1024])
@pytest.mark.parametrize("by", ["query", "parse", "bind", "bind later"])
def test_a_setting_in_a_message_of_any_size_reaches_no_other_client(share, size, by):
    """Sizes around each limit of the pooler."""
    padding = "/*" + "x" * (size * 1024) + "*/"

    def bound(session):
        values = ["app.tenant", "evil", "x" * (size * 1024)]
        session.send(w.parse("SELECT set_config($1, $2, false), length($3)"))
        if by == "bind later":
            session.send(w.SYNC)
            session.until_ready()
        session.send(w.bind(values), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    def parsed(session):
        session.send(w.parse(f"{padding} SELECT set_config('app.tenant', 'evil', false)"), w.bind(), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    share().nobody_meets({"query": strictly(f"{padding} SELECT set_config('app.tenant', 'evil', false)"), "parse": parsed}.get(by, bound))


def test_a_custom_setting_by_a_function_call_reaches_no_other_client(share):
    def call(session):
        session.send(requests.call(2078, "app.tenant", "evil", "f").data)
        assert [kind for kind, _ in session.until_ready()[0]] == [b"V"]

    share().nobody_meets(call)


def test_a_setting_by_a_large_function_call_reaches_no_other_client(share):
    def call(session):
        session.send(requests.call(2078, "app.tenant", "evil" * 50_000, "f").data)
        assert [kind for kind, _ in session.until_ready()[0]] == [b"V"]

    share().nobody_meets(call)


@pytest.mark.parametrize("encoding, value", [("LATIN1", "é".encode("latin1")), ("SJIS", "表".encode("shift_jis")), ("BIG5", "功".encode("big5")),
                                             ("GBK", "誠".encode("gbk")), ("SJIS", "ソ".encode("shift_jis")), ("EUC_JP", "表".encode("euc_jp"))])
def test_a_setting_that_is_not_ascii_follows_its_client_and_no_other(share, encoding, value):
    """The second byte of some of these letters is a backslash."""
    shared = share()
    with shared.session(client_encoding=encoding) as one, shared.session() as other:
        rows = strictly(b"SELECT set_config('app.tenant', '" + value + b"', false)")(one)
        assert rows, "it was set"
        for _ in range(2):
            assert other.query("SELECT current_setting('app.tenant', true)") in ([[None]], [[""]])
            other.query("SET client_encoding = 'LATIN1'")
            do(one, "SELECT current_setting('app.tenant')")
            one.send(w.query("SELECT encode(convert_to(current_setting('app.tenant'), 'UTF8'), 'hex')"))
            known = {"LATIN1": "latin1", "SJIS": "shift_jis", "BIG5": "big5", "GBK": "gbk", "EUC_JP": "euc_jp"}[encoding]
            assert look.rows(one.until_ready()[0]) == [(value.decode(known).encode().hex(),)]
            other.query("SET client_encoding = 'UTF8'")
    assert not shared.met(patient=True)


def test_a_setting_set_in_one_encoding_is_replayed_in_another(share):
    """SET in SJIS, then the client changes its encoding, then it gets another client's server and its own again."""
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


@pytest.mark.parametrize("strings", ["on", "off"])
@pytest.mark.parametrize("end", ["SELECT ''", "--'"])
def test_a_setting_after_a_letter_that_ends_in_a_backslash_reaches_no_other_client(share, end, strings):
    """For a reader of bytes the string continues; for PostgreSQL it does not."""
    shared = share()
    texts = ["SET standard_conforming_strings = off; SELECT 1"] if strings == "off" else []
    trick = b"SELECT E'" + "表".encode("shift_jis") + f"'; SET app.tenant = 'evil'; {end}".encode()
    shared.nobody_meets(*texts, strictly(trick), client_encoding="SJIS")


@pytest.mark.parametrize("encoding", ["GB18030", "SJIS", "LATIN1", "SQL_ASCII"])
def test_a_setting_whose_name_is_not_ascii_reaches_no_other_client_after_another_encoding(share, encoding):
    """In the other encoding the same name has other bytes."""
    share().nobody_meets(strictly("SET app.länge = 'evil'"), strictly(f"SET client_encoding = '{encoding}'"), strictly("SELECT 2"))
