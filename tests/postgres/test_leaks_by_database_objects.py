"""What functions, triggers, views, defaults and the like do to a session cannot be seen in the texts of statements. It
reaches no other client, nor does what only superusers can do.
"""

import pathlib
import re
import time

import pytest

from hunts.leaking import look, requests, world
from hunts.leaking.fixtures import removed, share  # noqa: F401
from hunts.leaking.sharing import Sharing, strictly
from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only

# Seconds after which the pooler has noticed an object that was created past it.
NOTICED_AFTER_SECONDS = 11


def hidden(share, **settings):
    return share(world.HIDDEN, **settings)


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
def test_what_is_set_out_of_sight_reaches_no_other_client(share, way):
    act = HIDDEN_WAYS[way]
    hidden(share).nobody_meets(act if callable(act) else strictly(act))


@pytest.mark.parametrize("way", ["a function", "a trigger", "a function that makes a temporary table"])
def test_what_is_set_out_of_sight_by_the_extended_protocol_reaches_no_other_client(share, way):
    def act(session):
        session.send(w.parse(HIDDEN_WAYS[way], "s"), w.bind(name="s"), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    hidden(share).nobody_meets(act)


@pytest.mark.parametrize("way", ["a function", "a trigger", "a function that makes a temporary table", "a function that prepares"])
def test_nor_with_reset_always(share, way):
    hidden(share, reset="always").nobody_meets(strictly(HIDDEN_WAYS[way]))


def test_a_seed_reaches_no_other_client(share):
    shared = hidden(share)
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    for seeding in ("SELECT setseed(0.25)", "SELECT hide.seed()", 'SELECT "setseed"(0.25)', "SET seed = 0.25"):
        with shared.session() as one, shared.session() as other:
            strictly(seeding)(one)
            assert strictly("SELECT random()::text")(other)[0][0] not in known, seeding


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_seed_by_a_function_call_reaches_no_other_client(share, mode):
    shared = share(mode=mode, wait="8s")
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    with shared.session() as one:
        one.send(requests.call(1599, "0.25").data)
        assert [kind for kind, _ in one.until_ready()[0]] == [b"V"]
        if mode == "session":
            one.close()
        with shared.session() as other:
            assert strictly("SELECT random()::text")(other)[0][0] not in known


def test_functions_that_keep_something_in_the_connection_have_the_numbers_that_are_looked_for(share):
    looked_for = {1599, 2172, 2173, 2739, 3779, 3786, *range(4220, 4225), 6006}
    with share().direct() as direct:
        rows = strictly("SELECT oid::int4, proname FROM pg_proc WHERE oid < 16384 AND proname IN ('setseed', 'pg_backup_start', 'pg_backup_stop', "
                        "'pg_start_backup', 'pg_stop_backup', 'pg_create_logical_replication_slot', 'pg_create_physical_replication_slot', "
                        "'pg_copy_logical_replication_slot', 'pg_copy_physical_replication_slot', 'pg_replication_origin_session_setup')")(direct)
    assert len(rows) >= 8
    assert {int(row[0]) for row in rows} <= looked_for


SEEDS = "CREATE FUNCTION public.seeds() RETURNS void LANGUAGE sql AS $$ SELECT setseed(0.25) $$"
# How random numbers are seeded without the text showing it -> what is made for it, and the text.
HIDDEN_SEEDS = {
    "a function": (SEEDS, "SELECT public.seeds()"),
    "a function of a function": (f"{SEEDS}; CREATE FUNCTION public.seeds_too() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM seeds(); RETURN 1; END $$",
                                 "SELECT * FROM public.seeds_too()"),
    "a function with a seed of its own": ("CREATE FUNCTION public.seeds() RETURNS int LANGUAGE sql SET seed = 0.25 AS 'SELECT 1'", "SELECT public.seeds()"),
    "a function with a seed that another calls": (
        "CREATE FUNCTION public.seeds() RETURNS int LANGUAGE sql SET \"SEED\" = 0.25 AS 'SELECT 1';"
        "CREATE FUNCTION public.seeds_too() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RETURN public.seeds(); END $$", "SELECT public.seeds_too()"),
    "a function that reads texts otherwise": (
        r"CREATE FUNCTION public.seeds() RETURNS text LANGUAGE sql SET standard_conforming_strings = off AS "
        r"$$ SELECT concat('x\'', setseed(0.25)::text --'" "\n, 1) $$", "SELECT public.seeds()"),
    "a trigger": (f"{SEEDS}; CREATE TABLE public.seeded (a int); GRANT ALL ON public.seeded TO PUBLIC; CREATE FUNCTION public.seeds_too() RETURNS trigger "
                  "LANGUAGE plpgsql AS $$ BEGIN PERFORM seeds(); RETURN NEW; END $$; "
                  "CREATE TRIGGER t BEFORE INSERT ON public.seeded FOR EACH ROW EXECUTE FUNCTION public.seeds_too()", "INSERT INTO public.seeded VALUES (1)"),
}


@pytest.mark.parametrize("reset", ["auto", "always"])
@pytest.mark.parametrize("mode, way", [(mode, way) for mode in ("session", "transaction") for way in HIDDEN_SEEDS if (mode, way) != ("transaction", "a trigger")])
def test_a_seed_out_of_sight_reaches_no_other_client(share, cluster, removed, mode, reset, way):
    make, act = HIDDEN_SEEDS[way]
    world.make(cluster)
    removed("DROP TABLE IF EXISTS public.seeded; DROP FUNCTION IF EXISTS public.seeds_too(); DROP FUNCTION IF EXISTS public.seeds()")
    with cluster.superuser(world.QUIET) as db:
        if "SET seed" in make or 'SET "SEED"' in make:
            version = db.execute("SHOW server_version_num").fetchone()[0]
            if int(version) >= 160000:
                pytest.skip("no function has a seed of its own from PostgreSQL 16 on")
        db.execute(make)
    shared = share(mode=mode, reset=reset, wait="8s")
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    with shared.session() as one:
        strictly(act)(one)
        if mode == "session":
            one.close()
        with shared.session() as other:
            assert strictly("SELECT random()::text")(other)[0][0] not in known


def set_bound(session):
    session.send(w.parse("SELECT set_config($1, $2, false)"), w.bind(values=("Seed", "0.25")), w.execute(), w.SYNC)
    return look.rows(session.until_ready()[0])


@pytest.mark.parametrize("mode", ["transaction", "session"])
@pytest.mark.parametrize("how", [set_bound, "SELECT set_config('se' || 'ed', '0.25', false)", "SELECT set_config('se' || 'ed', '0.25', true)",
                                 'SELECT U&"setsee\\0064"(0.25)', "DO $$ BEGIN EXECUTE 'SET se' || 'ed = 0.25'; END $$"])
def test_a_seed_that_no_text_names_reaches_no_other_client(share, mode, how):
    if how is set_bound and mode == "session":
        pytest.skip("in session mode values are not looked at")
    shared = share(mode=mode, wait="8s")
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    with shared.session() as one, shared.session() as other:
        other.close()
        time.sleep(0.3)
        (how if callable(how) else strictly(how))(one)
        if how is not set_bound:
            one.close()
        with shared.session() as other:
            assert strictly("SELECT random()::text")(other)[0][0] not in known


@pytest.mark.parametrize("mode, reset", [("transaction", "auto"), ("transaction", "always"), ("session", "auto")])
@pytest.mark.parametrize("asked", [{"options": "-c seed=0.25"}, {"Seed": "0.25"}])
def test_a_seed_of_the_start_has_no_effect_as_without_a_pooler(share, mode, reset, asked):
    shared = share(mode=mode, reset=reset, wait="8s")
    with shared.direct() as fresh:
        known = look.randoms(fresh)
    with shared.direct(**asked) as one:
        assert strictly("SELECT random()::text")(one)[0][0] not in known
    with shared.session(**asked) as one:
        assert strictly("SELECT random()::text")(one)[0][0] not in known
        if mode == "session":
            one.close()
        with shared.session() as other:
            assert strictly("SELECT random()::text")(other)[0][0] not in known


EVIL = "SELECT set_config('app.tenant', 'evil', false), set_config('search_path', 't1', false)"
# How functions of the database deceive a reader of their source -> what is made, and the text that calls it.
DECEPTIONS = {
    "texts that are read otherwise in PL/pgSQL": (
        r"CREATE FUNCTION public.odd() RETURNS void LANGUAGE plpgsql SET standard_conforming_strings = off AS "
        r"$x$ BEGIN PERFORM 'x\'', set_config($a$app.tenant$a$, $b$evil$b$, false) --'" "\n, 1; END $x$", "SELECT public.odd()"),
    "texts that are read otherwise in SQL": (
        r"CREATE FUNCTION public.odd() RETURNS text LANGUAGE sql SET standard_conforming_strings = off AS "
        r"$x$ SELECT concat('x\'', set_config($a$app.tenant$a$, $b$evil$b$, false) --'" "\n, 1) $x$", "SELECT public.odd()"),
    "a member of an extension that is known": (
        f"CREATE EXTENSION hstore; CREATE FUNCTION public.odd() RETURNS record LANGUAGE sql AS $$ {EVIL} $$; ALTER EXTENSION hstore ADD FUNCTION public.odd()",
        "SELECT public.odd()"),
    "a trigger of an extension whose functions are to be called": (
        "CREATE EXTENSION tablefunc; CREATE TABLE public.odd_table (a int); GRANT ALL ON public.odd_table TO PUBLIC;"
        f"CREATE FUNCTION public.odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM {EVIL.removeprefix('SELECT ')}; RETURN NEW; END $$;"
        "CREATE TRIGGER t BEFORE INSERT ON public.odd_table FOR EACH ROW EXECUTE FUNCTION public.odd();"
        "ALTER EXTENSION tablefunc ADD FUNCTION public.odd()", "INSERT INTO public.odd_table VALUES (1)"),
}


@pytest.mark.parametrize("what", DECEPTIONS)
def test_what_a_function_does_that_deceives_its_reader_reaches_no_other_client(share, cluster, removed, what):
    make, use = DECEPTIONS[what]
    world.make(cluster)
    removed("DROP EXTENSION hstore CASCADE")
    removed("DROP EXTENSION tablefunc CASCADE")
    removed("DROP TABLE public.odd_table CASCADE")
    removed("DROP FUNCTION public.odd()")
    with cluster.superuser(world.QUIET) as db:
        db.execute(make)
    share().nobody_meets(strictly(use))


def test_extensions_that_are_known_are_no_reason_for_cleaning(share, cluster):
    """All extensions that the server has, except isn's operators. Their functions in SQL are read like any others."""
    reading = (pathlib.Path(__file__).resolve().parents[2] / "crates/pooler/postgres-session/src/sql/catalogue/reading.rs").read_text()
    names = re.findall(r'^    "([^"]+)",$', reading.split("const TRUSTED")[1].split("];")[0], re.MULTILINE)
    world.make(cluster)
    with cluster.superuser(world.QUIET) as db:
        there = [name for (name,) in db.execute("SELECT name FROM pg_available_extensions WHERE installed_version IS NULL").fetchall()]
        made = [name for name in (*names, "dblink", "postgres_fdw", "tablefunc", "xml2") if name in there]
        try:
            for name in made:
                db.execute(f'CREATE EXTENSION IF NOT EXISTS "{name}" CASCADE')
            shared = share()
            with shared.session() as one:
                strictly("SELECT 1")(one)
            time.sleep(0.5)
            assert len(made) > 20
            assert "servers are cleaned" not in shared.pooler.log()
        finally:
            for name in made:
                db.execute(f'DROP EXTENSION IF EXISTS "{name}" CASCADE')


def test_in_session_mode_a_function_that_leaves_nothing_behind_costs_no_server(share, cluster, removed):
    world.make(cluster)
    removed("DROP FUNCTION public.seeds_not()")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE FUNCTION public.seeds_not() RETURNS double precision LANGUAGE sql AS $$ SELECT random() $$")
    shared = share(mode="session", wait="8s")
    pids = set()
    for _ in range(3):
        with shared.session() as one:
            strictly("SELECT public.seeds_not()")(one)
            pids.add(strictly("SELECT pg_backend_pid()")(one)[0][0])
    assert len(pids) == 1


def test_a_connection_of_dblink_reaches_no_other_client(share):
    shared = hidden(share)
    shared.nobody_meets(strictly("SELECT dblink_connect('mine', 'itself')"))


def test_a_library_that_was_loaded_reaches_no_other_client(share):
    shared = share()
    with shared.session(world.ADMIN) as one, shared.session(world.ADMIN) as other:
        strictly("LOAD 'auto_explain'")(one)
        strictly("SET auto_explain.log_min_duration = 0")(one)
        one.query("SELECT 1")
        found = strictly("SELECT setting FROM pg_settings WHERE name = 'auto_explain.log_min_duration'")(other)
        assert found in ([], [("-1",)])


def test_a_replication_slot_of_a_session_reaches_no_other_client(share):
    shared = share()
    try:
        shared.nobody_meets(strictly("SELECT pg_create_physical_replication_slot('leaks_mine', true, true)"), user=world.ADMIN)
    finally:
        shared.pooler.stop()


def test_what_the_first_request_behind_a_cleaning_does_out_of_sight_reaches_no_other_client(share):
    """The request is sent in one write with the cleaning, and noted before the cleaning is done."""
    shared = share(wait="8s")
    composed = "SELECT * FROM query_to_xml('SELECT set' || '_config(''app.tenant'', ''evil'', false)', false, false, '')"
    with shared.session() as zero, shared.session() as one:
        # The request waits for the other client's server, and gets it as that client left it.
        zero.send(w.query(f"SELECT pg_sleep(0.3); {composed}"))
        time.sleep(0.1)
        one.send(w.query(composed.replace("evil", "worse")))
        look.rows(zero.until_ready()[0])
        look.rows(one.until_ready()[0])
        assert not shared.met()
    assert not shared.met(patient=True)


def test_a_temporary_table_in_place_of_the_catalogue_deceives_no_client(share):
    """The catalogue is read in the session that the last client has just left."""
    shared = hidden(share)
    with shared.session() as one:
        for table in ("pg_proc", "pg_rewrite", "pg_attrdef"):
            strictly(f"CREATE TEMP TABLE {table} (LIKE pg_catalog.{table})")(one)
        # A change of the database makes Poolhouse read the catalogue again.
        strictly("CREATE TABLE public.deceiving (a int)")(one)
        strictly("DROP TABLE public.deceiving")(one)
        one.query("SELECT 1")
    shared.nobody_meets(strictly("INSERT INTO hide.triggered VALUES (1)"))


# -- without any function of the database's own

def test_a_setting_by_a_function_made_in_the_same_text_reaches_no_other_client(share):
    shared = share()
    with shared.cluster.superuser(world.QUIET) as db:
        try:
            shared.nobody_meets("CREATE FUNCTION public.later() RETURNS text LANGUAGE plpgsql AS "
                                "$$ BEGIN RETURN set_config('app.tenant', 'evil', false); END $$; SELECT later()", strictly("SELECT later()"))
            # By a role that does not own it.
            shared.nobody_meets(strictly("SELECT later()"))
        finally:
            db.execute("DROP FUNCTION IF EXISTS public.later()")


@pytest.mark.parametrize("when", ["beforehand", "on the way"])
@pytest.mark.parametrize("what", world.BUILT_IN)
def test_what_an_object_does_with_functions_of_postgresql_reaches_no_other_client(cluster, share, removed, what, when):
    """The database has no function of its own: a view, a default or an aggregate calls those of PostgreSQL."""
    make, use, drop = world.BUILT_IN[what]
    world.make(cluster)
    removed(drop)
    if when == "beforehand":
        with w.Wire(cluster.port).login("app", Sharing.password("app"), world.QUIET) as db:
            strictly(make)(db)
        share().nobody_meets(strictly(use))
    else:
        share().nobody_meets(strictly(make), strictly(use))


@pytest.mark.parametrize("what", ["a view", "a trigger before"])
def test_what_is_made_past_the_pooler_is_noticed_after_ten_seconds(share, removed, what):
    make, use, drop = world.BUILT_IN[what]
    removed(drop)
    shared = share()
    with shared.session() as one:
        one.query("SELECT 1")
    with shared.direct() as db:
        strictly(make)(db)
    time.sleep(NOTICED_AFTER_SECONDS)
    shared.met()
    shared.nobody_meets(strictly(use))


def test_what_a_function_of_an_extension_does_reaches_no_other_client(cluster, share, removed):
    world.make(cluster)
    removed("DROP EXTENSION tablefunc")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE EXTENSION tablefunc")
    share().nobody_meets(strictly("SELECT * FROM crosstab('SELECT ''a'', ''b'', set' || '_config(''app.tenant'', ''evil'', false)') AS t(a text, b text)"))


def test_what_a_view_does_with_a_function_of_an_extension_reaches_no_other_client(cluster, share, removed):
    """set_limit sets a parameter."""
    world.make(cluster)
    removed("DROP EXTENSION pg_trgm CASCADE")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE EXTENSION pg_trgm")
        db.execute("CREATE VIEW public.limited AS SELECT set_limit(0.9)")
        db.execute("GRANT ALL ON public.limited TO PUBLIC")
    share().nobody_meets(strictly("SELECT * FROM public.limited"))


def test_a_function_made_by_another_user_is_noticed_at_once(cluster, share, removed):
    """Each user has servers of its own. What one creates in the database, others may call the next moment."""
    shared = share()
    removed("DROP FUNCTION public.b_sql()")
    with shared.session() as one:
        one.query("SELECT 1")
    with shared.session(world.ADMIN) as other:
        strictly(world.BUILT_IN["a function in SQL"][0])(other)
    shared.nobody_meets(strictly("SELECT public.b_sql()"))


# -- last values of sequences

# How the last value is read without the text showing it -> what is made, and the text.
ASKERS = {
    "a default": ("CREATE TABLE public.asked_by (parent bigint DEFAULT currval('public.asked_id_seq'))", "INSERT INTO public.asked_by DEFAULT VALUES RETURNING parent"),
    "a view": ("CREATE VIEW public.asked_by AS SELECT lastval() AS parent", "SELECT parent FROM public.asked_by"),
    "a function": ("CREATE FUNCTION public.asked_too() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RETURN currval('public.asked_id_seq'); END $$", "SELECT public.asked_too()"),
    "a function in SQL": ("CREATE FUNCTION public.asked_too() RETURNS bigint LANGUAGE sql AS $$ SELECT (CAST('public.asked_id_seq' AS regclass)).currval $$",
                          "SELECT public.asked_too()"),
    "a trigger": ("CREATE TABLE public.asked_by (parent bigint); CREATE FUNCTION public.asked_too() RETURNS trigger LANGUAGE plpgsql AS "
                  "$$ BEGIN NEW.parent = lastval(); RETURN NEW; END $$; "
                  "CREATE TRIGGER t BEFORE INSERT ON public.asked_by FOR EACH ROW EXECUTE FUNCTION public.asked_too()",
                  "INSERT INTO public.asked_by DEFAULT VALUES RETURNING parent"),
}


@pytest.mark.parametrize("who", ASKERS)
def test_a_last_value_that_is_asked_for_out_of_sight_belongs_to_its_client_alone(share, cluster, removed, who):
    make, ask = ASKERS[who]
    world.make(cluster)
    removed("DROP VIEW public.asked_by")
    removed("DROP TABLE public.asked_by")
    removed("DROP FUNCTION public.asked_too()")
    removed("DROP TABLE public.asked CASCADE")
    insert = "INSERT INTO public.asked (note) VALUES ('mine') RETURNING id"
    with cluster.superuser(world.QUIET) as db:
        db.execute(f"CREATE TABLE public.asked (id bigserial, note text); {make}; GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC; "
                   "GRANT ALL ON SEQUENCE public.asked_id_seq TO PUBLIC")
    shared = share(wait="5s")
    with shared.session() as one, shared.session() as other, shared.session() as newcomer:
        strictly(insert)(one)
        strictly(insert)(other)
        for session in (one, newcomer):
            with pytest.raises(w.ServerError) as error:
                strictly(ask)(session)
            assert error.value.sqlstate == "55000"
        # In one transaction it is as without a pooler.
        strictly("BEGIN")(one)
        (own,) = strictly(insert)(one)
        assert strictly(ask)(one) == [own]
        strictly("COMMIT")(one)
