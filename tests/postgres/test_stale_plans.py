"""A client changes a table, a type or a function. A text that is prepared afterwards uses the new one at once, even if
other clients have prepared it before. A client that has prepared it before sees no more errors than without a pooler.
"""

import contextlib

import pytest

from hunts.leaking import look, world
from hunts.leaking.sharing import Sharing, do, strictly
from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only

TEXT = "SELECT * FROM t_plan"
# Change -> (what exists before, the text that is prepared, the change, what is seen after it).
CHANGES = {
    "a column is added": ("CREATE TABLE t_plan (a int); INSERT INTO t_plan VALUES (1)", TEXT, "ALTER TABLE t_plan ADD b text DEFAULT 'new'", [("1", "new")]),
    "a column is dropped": ("CREATE TABLE t_plan (a int, b int); INSERT INTO t_plan VALUES (1, 2)", TEXT, "ALTER TABLE t_plan DROP b", [("1",)]),
    "a column has another type": ("CREATE TABLE t_plan (a int); INSERT INTO t_plan VALUES (1)", TEXT, "ALTER TABLE t_plan ALTER a TYPE text USING 'text'", [("text",)]),
    "a table is made anew": ("CREATE TABLE t_plan (a int); INSERT INTO t_plan VALUES (1)", TEXT,
                             "DROP TABLE t_plan; CREATE TABLE t_plan (a text, b text); INSERT INTO t_plan VALUES ('x', 'y')", [("x", "y")]),
    "a type is made anew": ("CREATE TYPE mood AS ENUM ('sad')", "SELECT 'sad'::mood::text, $1::mood::text", "DROP TYPE mood; CREATE TYPE mood AS ENUM ('glad', 'sad')", [("sad", "sad")]),
    "a type of an argument is made anew": ("CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE t_plan (m mood); INSERT INTO t_plan VALUES ('sad')",
                                           "SELECT m::text FROM t_plan WHERE m = $1", "DROP TABLE t_plan; DROP TYPE mood; CREATE TYPE mood AS ENUM ('sad');"
                                           "CREATE TABLE t_plan (m mood); INSERT INTO t_plan VALUES ('sad')", [("sad",)]),
    "a function is made anew": ("CREATE FUNCTION f_plan() RETURNS int LANGUAGE sql AS 'SELECT 1'", "SELECT f_plan()",
                                "DROP FUNCTION f_plan(); CREATE FUNCTION f_plan() RETURNS text LANGUAGE sql AS $$ SELECT 'x' $$", [("x",)]),
    "a view is made anew": ("CREATE VIEW v_plan AS SELECT 1 AS a", "SELECT * FROM v_plan", "DROP VIEW v_plan; CREATE VIEW v_plan AS SELECT 'x' AS a, 'y' AS b", [("x", "y")]),
}
GONE = ("DROP VIEW IF EXISTS v_plan; DROP FUNCTION IF EXISTS f_plan(); DROP TABLE IF EXISTS t_plan; DROP TYPE IF EXISTS mood")


@pytest.fixture(params=CHANGES)
def change(request):
    return CHANGES[request.param]


@pytest.fixture
def share(start, cluster, change):
    """Clients of a pooler whose servers have all prepared the text, and the change afterwards."""
    def make(max_size=1, **settings):
        made = Sharing(start, cluster, max_size=max_size, wait="5s", **settings)
        with made.direct() as db:
            strictly(GONE)(db)
            strictly(change[0])(db)
        return made

    yield make
    with cluster.superuser(world.QUIET) as db:
        db.execute(GONE)


def values(sql):
    return ["sad"] if "$1" in sql else []


def use(session, sql, name="s", prepare=True, told=True):
    """Prepares the text under the name, if wanted, and executes it. Returns the rows or raises the error. `told`: asks
    for the columns beforehand."""
    data = b""
    if prepare:
        data = w.parse(sql, name) + (w.message(b"D", b"S" + w.cstr(name)) if told else b"")
    session.send(data, w.bind(values(sql), name=name), *([] if told else [w.describe_portal()]), w.execute(), w.SYNC)
    return look.rows(session.until_ready()[0])


def give_up(session, way, name="s"):
    if way == "Close":
        session.send(w.message(b"C", b"S" + w.cstr(name)), w.SYNC)
        session.until_ready()
    else:
        strictly(way.format(name))(session)


@pytest.mark.parametrize("told", [True, False], ids=["told the columns", "not told"])
def test_a_new_client_that_prepares_the_same_text_is_not_refused(share, change, told):
    _, sql, changed, after = change
    shared = share()
    with shared.session() as one, shared.session() as ddl:
        use(one, sql, told=told)
        strictly(changed)(ddl)
        for _ in range(3):
            with shared.session() as newcomer:
                assert use(newcomer, sql, told=told) == after


@pytest.mark.parametrize("way", ["Close", "DEALLOCATE {}", "DEALLOCATE ALL", "DISCARD ALL", "DEALLOCATE PREPARE {}"])
def test_a_client_that_gives_its_statement_up_and_prepares_anew_is_not_refused(share, change, way):
    _, sql, changed, after = change
    shared = share()
    with shared.session() as one, shared.session() as ddl:
        use(one, sql)
        strictly(changed)(ddl)
        for _ in range(3):
            give_up(one, way)
            assert use(one, sql) == after


def test_a_client_that_prepares_anew_within_a_transaction_is_not_refused(share, change):
    _, sql, changed, after = change
    shared = share()
    with shared.session() as one, shared.session() as ddl:
        use(one, sql)
        strictly(changed)(ddl)
        for _ in range(2):
            give_up(one, "Close")
            strictly("BEGIN")(one)
            assert use(one, sql) == after
            strictly("COMMIT")(one)
            with shared.session() as newcomer:
                strictly("BEGIN")(newcomer)
                assert use(newcomer, sql) == after
                strictly("COMMIT")(newcomer)


@pytest.mark.parametrize("past", [False, True], ids=["through the pooler", "past the pooler"])
def test_after_a_change_that_was_not_seen_a_client_that_prepares_again_is_refused_once_at_most(share, change, past):
    """Migrations run past poolers as often as through them."""
    _, sql, changed, after = change
    shared = share(max_size=3)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(shared.session()) for _ in range(6)]
        # Three clients at a time hold a server, so that all servers have prepared it.
        for client in clients[:3]:
            strictly("BEGIN")(client)
            use(client, sql)
        for client in clients[:3]:
            strictly("COMMIT")(client)
        with shared.direct() if past else shared.session() as ddl:
            strictly(changed)(ddl)
        refused = 0
        for turn in range(3):
            for client in clients[3:]:
                strictly("BEGIN")(client)
                try:
                    assert use(client, sql, name=f"n{turn}") == after
                except w.ServerError:
                    refused += 1
            for client in clients[3:]:
                strictly("COMMIT")(client)
        assert refused <= 1, "after the first error it is prepared anew on every server"


@pytest.mark.parametrize("told", [True, False], ids=["told the columns", "asking for them each time"])
def test_a_client_that_goes_on_with_its_statement_is_refused_no_more_often_than_without_a_pooler(share, change, told):
    """Without a pooler such a client is refused each time if the columns differ, and never otherwise. The same holds
    for a client that relies on the columns which it was told."""
    _, sql, changed, after = change
    shared = share()

    def outcomes(session, ddl):
        use(session, sql, told=told)
        strictly(changed)(ddl)
        found = []
        for _ in range(3):
            try:
                found.append(use(session, sql, prepare=False, told=told))
            except w.ServerError as error:
                found.append(error.sqlstate)
        return found

    with shared.direct() as reference, shared.direct() as ddl:
        expected = outcomes(reference, ddl)
        strictly(GONE)(ddl)
        strictly(change[0])(ddl)
    with shared.session() as one, shared.session() as ddl:
        got = outcomes(one, ddl)
    assert len([o for o in got if o != after]) <= len([o for o in expected if o != after])
    if told and "XX000" not in expected:
        assert got == expected
    elif "XX000" not in expected:
        assert got[1:] == [after, after], "each server parses it again after the first refusal"


def test_ddl_within_the_clients_own_transaction_is_seen_at_once(share, change):
    _, sql, changed, after = change
    shared = share()
    with shared.session() as one, shared.session() as other:
        use(other, sql, "o")
        strictly("BEGIN")(one)
        do(one, changed)
        assert use(one, sql) == after
        strictly("COMMIT")(one)
        give_up(other, "Close", "o")
        assert use(other, sql, "o") == after
