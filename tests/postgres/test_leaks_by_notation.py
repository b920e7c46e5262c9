"""A function that is called without parentheses, as if it were a column (`(x).f`, `t.f`), leaves nothing to other
clients."""

import pathlib
import time

import pytest

from hunts.leaking import look, world
from hunts.leaking.fixtures import removed, share  # noqa: F401
from hunts.leaking.sharing import strictly
from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only

HARMLESS = pathlib.Path(__file__).resolve().parents[2] / "crates/pooler/postgres-session/src/sql/harmless"
LOCKS = {
    "behind a parenthesis": "SELECT (5::bigint).pg_advisory_lock",
    "behind an alias": "SELECT x.pg_advisory_lock FROM generate_series(7::bigint, 7) AS x",
    "quoted": 'SELECT x."pg_advisory_lock" FROM generate_series(7::bigint, 7) AS x',
    "behind spaces and comments": "SELECT (5::bigint) /* . */ . -- .\n PG_Advisory_Lock_Shared",
    "of an element": "SELECT (ARRAY[5::bigint])[1].pg_advisory_lock",
    "behind a star": "SELECT y.* FROM (SELECT x.pg_try_advisory_lock FROM generate_series(7::bigint, 7) AS x) AS y",
}
TEXTS = ("'select to_tsvector(set_config(''search_path'', ''t1'', false) || set_config(''app.tenant'', ''evil'', false) || "
         "set_config(''role'', ''leaks_reader'', false))'::text")
# Ways to use functions -> what is made, the text that calls it, and what is dropped.
OWN = {
    "a function with a lock in it": ("CREATE FUNCTION public.noted() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM (99::bigint).pg_advisory_lock; END $$",
                                     "SELECT noted()"),
    "a function by notation": ("CREATE FUNCTION public.noted(bigint) RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant', 'evil', false) $$",
                               "SELECT (1::bigint).noted"),
    "a function with a default by notation": ("CREATE FUNCTION public.noted(bigint, text DEFAULT 'evil') RETURNS text LANGUAGE sql AS "
                                              "$$ SELECT set_config('app.tenant', $2, false) $$", "SELECT x.noted FROM generate_series(1::bigint, 1) AS x"),
}


@pytest.mark.parametrize("where", LOCKS)
def test_a_lock_taken_by_notation_reaches_no_other_client(share, where):
    share().nobody_meets(strictly(LOCKS[where]))


def test_a_lock_taken_by_notation_of_a_parameter_reaches_no_other_client(share):
    def act(session):
        session.send(w.parse("SELECT $1.pg_advisory_lock", types=(20,)), w.bind(values=(5,)), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    share().nobody_meets(act)


@pytest.mark.parametrize("reset", ["auto", "always"])
@pytest.mark.parametrize("sql", [f"SELECT ({TEXTS}).ts_stat", f"SELECT x.ts_stat FROM CAST({TEXTS} AS text) AS x"])
def test_what_a_text_sets_that_is_run_by_notation_reaches_no_other_client(share, sql, reset):
    share(reset=reset).nobody_meets(sql)


def test_two_clients_do_not_both_have_a_lock_taken_by_notation(share):
    shared = share(max_size=3, wait="5s")
    with shared.session() as one, shared.session() as other:
        assert strictly("SELECT (42::bigint).pg_try_advisory_lock")(one) == [("t",)]
        assert strictly("SELECT (42::bigint).pg_try_advisory_lock")(other) == [("f",)]


def test_a_lock_taken_by_notation_is_refused_where_state_is(share):
    shared = share(on_session_state="reject")
    with shared.session() as one:
        with pytest.raises(w.ServerError) as error:
            strictly(LOCKS["behind a parenthesis"])(one)
        assert error.value.sqlstate == "0A000"


@pytest.mark.parametrize("mode, reset", [("transaction", "auto"), ("transaction", "always"), ("session", "auto")])
def test_a_seed_by_notation_reaches_no_other_client(share, mode, reset):
    shared = share(mode=mode, reset=reset, wait="8s")
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    with shared.session() as one:
        strictly("SELECT (0.25::float8).setseed")(one)
        if mode == "session":
            one.close()
        with shared.session() as other:
            assert strictly("SELECT random()::text")(other)[0][0] not in known


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("act", ["SELECT (0.25::float8).noted", "SELECT (1::int).noted_too"])
def test_a_seed_by_notation_of_the_databases_own_functions_reaches_no_other_client(share, cluster, removed, mode, act):
    world.make(cluster)
    removed("DROP FUNCTION public.noted_too(int); DROP FUNCTION public.noted(float8)")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE FUNCTION public.noted(float8) RETURNS void LANGUAGE sql AS $$ SELECT setseed($1) $$;"
                   "CREATE FUNCTION public.noted_too(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM (0.25::float8).noted; RETURN 1; END $$")
    shared = share(mode=mode, wait="8s")
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    with shared.session() as one:
        for extended in (False, True):
            if extended:
                one.send(w.parse(act, "s"), w.bind(name="s"), w.execute(), w.SYNC)
                look.rows(one.until_ready()[0])
            else:
                strictly(act)(one)
            if mode == "transaction":
                with shared.session() as other:
                    assert strictly("SELECT random()::text")(other)[0][0] not in known
        one.close()
        with shared.session() as other:
            assert strictly("SELECT random()::text")(other)[0][0] not in known


@pytest.mark.parametrize("what", OWN)
def test_what_the_databases_own_functions_leave_by_notation_reaches_no_other_client(share, cluster, removed, what):
    make, use = OWN[what]
    world.make(cluster)
    removed("DROP FUNCTION public.noted")
    with cluster.superuser(world.QUIET) as db:
        db.execute(make)
    share().nobody_meets(strictly(use))


def test_a_clients_own_lock_by_notation_of_a_function_stays_with_it(share, cluster, removed):
    world.make(cluster)
    removed("DROP FUNCTION public.noted")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE FUNCTION public.noted(bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT pg_try_advisory_lock($1) $$")
    shared = share(max_size=3, wait="5s")
    with shared.session() as one, shared.session() as other:
        assert strictly("SELECT (42::bigint).noted")(one) == [("t",)]
        assert strictly("SELECT (42::bigint).noted")(other) == [("f",)]


def test_columns_of_any_name_but_those_keep_no_server(share):
    shared = share()
    with shared.session() as one, shared.session() as other:
        strictly("SELECT 1")(other)
        time.sleep(0.3)
        for sql in ("SELECT x.set, (x).listen, x.\"load\" FROM (SELECT 1, 2, 3) AS x(set, listen, load)", "SELECT (ARRAY[c])[1].relname FROM pg_class AS c LIMIT 1"):
            pid = strictly("SELECT pg_backend_pid()")(other)
            strictly(sql)(one)
            assert strictly("SELECT pg_backend_pid()")(other) == pid


def test_functions_of_one_argument_that_are_not_known_to_be_harmless_are_looked_for_behind_dots(share):
    """All volatile functions, except those whose argument no SQL value can be, and those that change nothing in a
    session."""
    known = {*(HARMLESS / "functions.txt").read_text().split(), *(HARMLESS / "of_one_argument.txt").read_text().split()}
    harmless = {"amvalidate", "pg_import_system_collations", "pg_drop_replication_slot", "pg_promote", "pg_replication_origin_create",
                "pg_replication_origin_drop", "pg_replication_origin_session_progress", "plpgsql_validator",
                "pg_restore_relation_stats", "pg_restore_attribute_stats",
                # New in PostgreSQL 18.
                "pg_stat_reset_backend_stats", "pg_get_sequence_data", "pg_stat_get_xact_tuples_newpage_updated", "pg_stat_get_backend_io",
                "pg_stat_get_backend_wal"}
    with share().direct() as direct:
        found = strictly("SELECT DISTINCT proname FROM pg_proc WHERE oid < 16384 AND pronargs > 0 AND pronargs - pronargdefaults <= 1 AND provolatile = 'v' "
                         "AND proargtypes[0] NOT IN ('internal'::regtype, 'cstring'::regtype) AND proname !~ '^binary_upgrade_'")(direct)
    assert {name for (name,) in found} - known <= harmless
