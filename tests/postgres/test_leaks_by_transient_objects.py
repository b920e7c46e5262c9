"""Effects that the text of a statement does not show reach no other client, even if their cause exists for a moment
only: temporary objects, objects that one transaction creates and drops, and objects that other clients change
meanwhile.
"""

import contextlib

import psycopg
import pytest

from hunts.leaking import look, world
from hunts.leaking.fixtures import removed, share  # noqa: F401
from hunts.leaking.sharing import strictly
from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only

EVIL = "set_config('role', 'leaks_reader', false) AS a, set_config('app.tenant', 'evil', false) AS b"


def temporarily(*acts):
    """Acts that must succeed, and the statements that end all temporary objects."""
    return [strictly(sql) for sql in (*acts, "DISCARD TEMP")]


TEMPORARY_WAYS = {
    "a view": [f"CREATE TEMP VIEW v AS SELECT {EVIL}", "TABLE v"],
    "a view under a schema's name": [f"CREATE VIEW pg_temp.v AS SELECT {EVIL}", "TABLE pg_temp.v"],
    "a view of pg_settings": ["CREATE TEMP VIEW v AS SELECT name, setting FROM pg_settings", "UPDATE v SET setting = 'evil' WHERE name = 'search_path'"],
    "a view of pg_settings, and another of it": ["CREATE TEMP VIEW v AS SELECT * FROM pg_settings", "CREATE TEMP VIEW u AS SELECT name, setting FROM v",
                                                 "UPDATE u SET setting = 'evil' WHERE name = 'search_path'"],
    "a default": ["CREATE TEMP TABLE age (a int, b text DEFAULT set_config('app.tenant', 'evil', false))", "INSERT INTO age (a) VALUES (1)"],
    "a default that is set later": ["CREATE TEMP TABLE age (a int, b text)", "ALTER TABLE age ALTER b SET DEFAULT set_config('role', 'leaks_reader', false)",
                                    "INSERT INTO age (a) VALUES (1)"],
    "a check": ["CREATE TEMP TABLE age (a int CHECK (set_config('app.tenant', 'evil', false) = 'evil'))", "INSERT INTO age VALUES (1)"],
    "a rule": ["CREATE TEMP TABLE age (a int)", f"CREATE RULE r AS ON INSERT TO age DO ALSO SELECT {EVIL}", "INSERT INTO age VALUES (1)"],
    "a policy": ["CREATE TEMP TABLE age AS SELECT 1 AS a", "ALTER TABLE age ENABLE ROW LEVEL SECURITY", "ALTER TABLE age FORCE ROW LEVEL SECURITY",
                 "CREATE POLICY p ON age USING (set_config('app.tenant', 'evil', false) = 'evil')", "TABLE age"],
    "a domain": ["CREATE DOMAIN pg_temp.age AS int CHECK (set_config('app.tenant', 'evil', false) = 'evil')", "SELECT 1::pg_temp.age"],
    "a trigger's condition": ["CREATE TEMP TABLE age AS SELECT 1 AS a", "CREATE TRIGGER t BEFORE UPDATE ON age FOR EACH ROW WHEN (set_config('app.tenant', 'evil', false) = 'evil') "
                              "EXECUTE FUNCTION suppress_redundant_updates_trigger()", "UPDATE age SET a = 2"],
    "an operator": ["CREATE OPERATOR pg_temp.@! (RIGHTARG = bigint, FUNCTION = pg_advisory_lock)", "SELECT OPERATOR(pg_temp.@!) 5::bigint"],
}


@pytest.mark.parametrize("way", TEMPORARY_WAYS)
def test_what_a_temporary_object_has_done_reaches_no_other_client(share, way):
    share().nobody_meets(*temporarily(*TEMPORARY_WAYS[way]))


@pytest.mark.parametrize("way", ["a view", "a view of pg_settings", "a default", "a rule"])
def test_nor_where_it_lives_for_a_transaction_only(share, way):
    *make, use = TEMPORARY_WAYS[way]
    share().nobody_meets(*[strictly(sql) for sql in ("BEGIN", *make, use, "DISCARD TEMP", "COMMIT")])


@pytest.mark.parametrize("way", ["a view", "a view of pg_settings", "a default"])
def test_nor_by_the_extended_protocol(share, way):
    def act(session):
        for sql in (*TEMPORARY_WAYS[way], "DISCARD TEMP"):
            session.send(w.parse(sql), w.bind(), w.execute(), w.SYNC)
            look.rows(session.until_ready()[0])

    share().nobody_meets(act)


@pytest.mark.parametrize("make", ["CREATE TEMP TABLE x AS EXECUTE q", "CREATE TEMP TABLE x (a, b) AS EXECUTE q WITH DATA", "EXPLAIN (ANALYZE) CREATE TEMP TABLE x AS EXECUTE q",
                                  "CREATE TABLE pg_temp.x AS EXECUTE q"])
def test_what_a_table_made_of_a_prepared_statement_has_set_reaches_no_other_client(share, make):
    acts = [f"PREPARE q AS SELECT {EVIL}", make, "DISCARD TEMP", "DEALLOCATE q"]
    share().nobody_meets(*[strictly(sql) for sql in acts])


def test_what_a_temporary_object_has_set_is_its_clients_own(share):
    """The client that has done it keeps it on every server, as without a pooler."""
    shared = share(max_size=2)
    with shared.session() as one, shared.session() as other:
        for act in temporarily("CREATE TEMP VIEW v AS SELECT set_config('app.tenant', 'own', false) AS a, set_config('search_path', 'evil', false) AS b", "TABLE v"):
            act(one)
        look.rows(answers(other, "BEGIN"))
        shown = "SELECT current_setting('app.tenant', true), current_setting('search_path')"
        assert look.rows(answers(one, shown)) == [("own", "evil")]
        assert look.rows(answers(other, shown)) != [("own", "evil")]
        look.rows(answers(other, "COMMIT"))


def answers(session, sql):
    session.send(w.query(sql))
    return session.until_ready()[0]


# -- objects that others change, or that come about otherwise

HARMLESS = "CREATE OR REPLACE FUNCTION public.b_meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"
HARMFUL = HARMLESS.replace("RETURN NEW", "PERFORM set_config('role', 'leaks_reader', false); RETURN NEW")


@pytest.fixture
def trigger(share, cluster, removed):
    """A table whose trigger function does nothing yet, and clients that share two servers."""
    shared = share(max_size=2)
    removed("DROP TABLE public.b_meant")
    removed("DROP FUNCTION public.b_meanwhile()")
    with shared.session() as maker:
        for sql in (HARMLESS, "CREATE TABLE public.b_meant (a int)", "GRANT ALL ON public.b_meant TO PUBLIC",
                    "CREATE TRIGGER t BEFORE INSERT ON public.b_meant FOR EACH ROW EXECUTE FUNCTION public.b_meanwhile()"):
            look.rows(answers(maker, sql))
    return shared


def backend(session):
    """The server of the current transaction."""
    return look.rows(answers(session, "SELECT pg_backend_pid()"))


def read_again(*sessions):
    """Work that needs a server each, so that the catalogue is read."""
    for session in sessions:
        for _ in range(3):
            look.rows(answers(session, "SELECT 1"))


def test_what_a_trigger_did_before_it_was_replaced_reaches_no_other_client(trigger):
    with trigger.session() as one, trigger.session() as other:
        look.rows(answers(other, HARMFUL))
        look.rows(answers(one, "BEGIN"))
        look.rows(answers(one, "INSERT INTO public.b_meant VALUES (1)"))
        # Meanwhile other clients find that nothing in the database can do harm.
        look.rows(answers(other, HARMLESS))
        read_again(other)
        look.rows(answers(other, "BEGIN"))
        taken = backend(other)
        look.rows(answers(one, "COMMIT"))
        with trigger.session() as newcomer:
            look.rows(answers(newcomer, "BEGIN"))
            assert backend(newcomer) != taken
            assert look.rows(answers(newcomer, "SELECT current_user::text")) == [(world.APP,)]


def test_what_a_trigger_did_that_was_replaced_for_a_while_reaches_no_other_client(trigger):
    """The transaction that fires the trigger begins before the replacement, and ends after it."""
    with trigger.session() as one, trigger.session() as other:
        read_again(one, other)
        look.rows(answers(one, "BEGIN"))
        look.rows(answers(one, "SELECT 1"))
        look.rows(answers(other, HARMFUL))
        read_again(other)
        look.rows(answers(one, "INSERT INTO public.b_meant VALUES (1)"))
        look.rows(answers(other, HARMLESS))
        read_again(other)
        look.rows(answers(other, "BEGIN"))
        taken = backend(other)
        look.rows(answers(one, "COMMIT"))
        with trigger.session() as newcomer:
            look.rows(answers(newcomer, "BEGIN"))
            assert backend(newcomer) != taken
            assert look.rows(answers(newcomer, "SELECT current_user::text")) == [(world.APP,)]


@pytest.fixture
def two_phases(cluster):
    """Removes prepared transactions that a test has left."""
    yield
    with cluster.superuser(world.QUIET) as db:
        for (gid,) in db.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall():
            with contextlib.suppress(psycopg.Error):
                db.execute(f"ROLLBACK PREPARED '{gid}'")


@pytest.mark.parametrize("by", ["Query", "Parse"])
def test_what_a_view_does_that_a_prepared_transaction_has_made_reaches_no_other_client(share, removed, two_phases, by):
    shared = share()
    removed("DROP VIEW public.b_prepared")
    with shared.session() as maker:
        for sql in ("BEGIN", f"CREATE VIEW public.b_prepared AS SELECT {EVIL}", "PREPARE TRANSACTION 'b_prepared'"):
            look.rows(answers(maker, sql))
        read_again(maker)

    def commit(session):
        if by == "Query":
            return look.rows(answers(session, "COMMIT PREPARED 'b_prepared'"))
        session.send(w.parse("COMMIT PREPARED 'b_prepared'"), w.bind(), w.execute(), w.SYNC)
        return look.rows(session.until_ready()[0])

    shared.nobody_meets(commit, strictly("TABLE public.b_prepared"))


def test_what_a_view_does_that_another_client_commits_meanwhile_reaches_no_other_client(share, removed, two_phases):
    """A second client commits the view, and a third drops it, before the transaction that has used it ends."""
    shared = share(max_size=2)
    removed("DROP VIEW public.b_prepared")
    with shared.session() as one, shared.session() as other:
        for sql in ("BEGIN", f"CREATE VIEW public.b_prepared AS SELECT {EVIL}", "PREPARE TRANSACTION 'b_prepared'"):
            look.rows(answers(other, sql))
        read_again(other)
        look.rows(answers(one, "BEGIN"))
        look.rows(answers(other, "COMMIT PREPARED 'b_prepared'"))
        look.rows(answers(one, "TABLE public.b_prepared"))
        look.rows(answers(one, "COMMIT"))
        look.rows(answers(other, "BEGIN"))
        taken = backend(other)
        with shared.session() as newcomer:
            look.rows(answers(newcomer, "BEGIN"))
            assert backend(newcomer) != taken
            assert look.rows(answers(newcomer, "SELECT current_user::text")) == [(world.APP,)]
