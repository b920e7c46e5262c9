"""What functions, triggers, views, defaults and the like do to a session out of sight of whoever reads only the texts is met by nobody else,
and what only superusers do neither."""

import time

import pytest

import wire as w
from leaking import look, world
from leaking.fixtures import removed, share  # noqa: F401
from leaking.sharing import Sharing, strictly

pytestmark = pytest.mark.poolhouse_only

# Seconds after which the pooler has noticed what was made in a database otherwise than through it.
PAST_THE_POOLER = 11


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


# -- without any function of the database's own

def test_a_setting_by_a_function_made_in_the_same_text_is_met_by_nobody(share):
    shared = share()
    with shared.cluster.superuser(world.QUIET) as db:
        try:
            shared.nobody_meets("CREATE FUNCTION public.later() RETURNS text LANGUAGE plpgsql AS "
                                "$$ BEGIN RETURN set_config('app.tenant', 'evil', false); END $$; SELECT later()", strictly("SELECT later()"))
            # By somebody who has not made it.
            shared.nobody_meets(strictly("SELECT later()"))
        finally:
            db.execute("DROP FUNCTION IF EXISTS public.later()")


@pytest.mark.parametrize("when", ["beforehand", "on the way"])
@pytest.mark.parametrize("what", world.BUILT_IN)
def test_what_an_object_does_with_functions_of_postgresql_is_met_by_nobody(cluster, share, removed, what, when):
    """The database has no function of its own: PostgreSQL's are called by a view, a default, an aggregate."""
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
    time.sleep(PAST_THE_POOLER)
    shared.met()
    shared.nobody_meets(strictly(use))


def test_what_a_function_of_an_extension_does_is_met_by_nobody(cluster, share, removed):
    world.make(cluster)
    removed("DROP EXTENSION tablefunc")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE EXTENSION tablefunc")
    share().nobody_meets(strictly("SELECT * FROM crosstab('SELECT ''a'', ''b'', set' || '_config(''app.tenant'', ''evil'', false)') AS t(a text, b text)"))


def test_what_a_view_does_with_a_function_of_an_extension_is_met_by_nobody(cluster, share, removed):
    """set_limit sets a parameter."""
    world.make(cluster)
    removed("DROP EXTENSION pg_trgm CASCADE")
    with cluster.superuser(world.QUIET) as db:
        db.execute("CREATE EXTENSION pg_trgm")
        db.execute("CREATE VIEW public.limited AS SELECT set_limit(0.9)")
        db.execute("GRANT ALL ON public.limited TO PUBLIC")
    share().nobody_meets(strictly("SELECT * FROM public.limited"))


def test_a_function_made_by_another_user_is_noticed_at_once(cluster, share, removed):
    """Each user has servers of its own; what one makes in the database, the others may call the next moment."""
    shared = share()
    removed("DROP FUNCTION public.b_sql()")
    with shared.session() as one:
        one.query("SELECT 1")
    with shared.session(world.ADMIN) as other:
        strictly(world.BUILT_IN["a function in SQL"][0])(other)
    shared.nobody_meets(strictly("SELECT public.b_sql()"))
