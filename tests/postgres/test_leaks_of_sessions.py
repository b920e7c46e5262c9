"""Locks, cursors, statements under the pooler's own names, session mode, time-outs: what a client leaves reaches no
other client, and the client itself keeps it.
"""

import struct
import time

import psycopg
import pytest

from hunts.leaking import look, world
from hunts.leaking.fixtures import share  # noqa: F401
from hunts.leaking.sharing import NO_SERVER, do, strictly
from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only


# -- locks, cursors

@pytest.mark.parametrize("sql", ['SELECT "pg_advisory_lock"(1)', 'SELECT U&"pg\\005fadvisory\\005flock"(1)', 'SELECT pg_catalog."pg_try_advisory_lock_shared"(1, 2)',
                                 "SELECT PG_ADVISORY_LOCK(1)", "SELECT * FROM query_to_xml('SELECT pg_adv' || 'isory_lock(1)', false, false, '')",
                                 "PREPARE p AS SELECT pg_advisory_lock(1); EXECUTE p; DEALLOCATE p", "SELECT pg_advisory_lock(oid::int) FROM pg_class WHERE relname = 'orders'"])
def test_an_advisory_lock_reaches_no_other_client(share, sql):
    share().nobody_meets(strictly(sql))


def test_an_advisory_lock_by_a_function_call_reaches_no_other_client(share):
    def call(session):
        session.send(w.message(b"F", struct.pack("!IHHHIqH", 2880, 1, 1, 1, 8, 5, 1)))
        assert [kind for kind, _ in session.until_ready()[0]] == [b"V"]

    share().nobody_meets(call)


@pytest.mark.parametrize("sql", ["DECLARE c CURSOR WITH /* */ HOLD FOR SELECT 1", "DECLARE \"c\" NO SCROLL CURSOR WITH -- why\nHOLD FOR SELECT 1",
                                 "DECLARE c BINARY CURSOR WITH HOLD FOR SELECT 1"])
def test_a_cursor_reaches_no_other_client(share, sql):
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


def own_names(session):
    """The prefix of the pooler's statement names, which a client can read once it has prepared something."""
    session.send(w.parse("SELECT 1", "learnt"), w.parse("SELECT name FROM pg_prepared_statements WHERE name LIKE 'poolhouse%'"), w.bind(), w.execute(), w.SYNC)
    (name,), *_ = look.rows(session.until_ready()[0])
    return name.rstrip("0123456789")


@pytest.mark.parametrize("names", ["guessed", "read"])
@pytest.mark.parametrize("tampering", TAMPERING)
def test_a_statement_under_a_name_of_the_poolers_own_belongs_to_its_client_alone(share, tampering, names):
    """A client that has prepared a text keeps it, and one that prepares it again gets its answers, whatever others do
    under the names that the pooler uses."""
    shared = share(world.HIDDEN if "out of sight" in tampering else world.QUIET)
    with shared.session() as other:
        other.send(w.parse("SELECT 'kept'", "kept"), w.SYNC)
        other.until_ready()
        with shared.session() as one:
            prefix = own_names(one) if names == "read" else "poolhouse_"
            for n in STATEMENTS:
                TAMPERING[tampering](one, f"{prefix}{n}")
            if names == "guessed":
                # The client does not fail over it either: it cannot know which names the pooler uses.
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


def test_a_large_statement_reaches_no_other_client_when_its_client_leaves(share):
    def parse(session):
        session.send(w.parse(f"SELECT 'evil' /* {'x' * 70_000} */", "large"), w.SYNC)
        session.until_ready()

    share().nobody_meets(parse)


# -- session mode

def test_in_session_mode_what_a_client_leaves_reaches_no_other_client(share):
    """The client's time-out is too small to discard its temporary tables."""
    shared = share(mode="session", wait="8s")
    for _ in range(5):
        with shared.session() as one:
            do(one, "; ".join(f"CREATE TEMP TABLE secret{n} (a text PRIMARY KEY, b text UNIQUE)" for n in range(30)))
            do(one, "CREATE TEMP TABLE orders (LIKE public.orders); SELECT pg_advisory_lock(1); SET statement_timeout = '1ms'; RESET work_mem /* \\ */")
        assert not shared.met(patient=True)


def test_in_session_mode_each_of_it_reaches_no_other_client(share):
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
    """A client's time-out applies to its own statements and not to those of the pooler."""
    shared = share(max_size=2)
    with shared.session() as one:
        one.query("SET statement_timeout = '1ms'")
        for n in range(150):
            do(one, f"CREATE TEMP TABLE t{n} (a int)")
            do(one, f"DROP TABLE t{n}")
        # The client's own statements may take too long.
        answers = [do(one, "SHOW statement_timeout") for _ in range(20)]
        assert ("1ms",) in [row for answer in answers if answer[-1][0] == b"C" for row in look.rows(answer)]
    assert not shared.met(patient=True)


@pytest.mark.parametrize("setting", ["statement_timeout = '1ms'", "lock_timeout = '1ms'", "idle_session_timeout = '50ms'", "idle_in_transaction_session_timeout = '1ms'"])
def test_a_small_time_out_reaches_no_other_client(share, setting):
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
        other.send(w.query("NOTIFY other, 'hello'"))
        answers, _ = other.until_ready()
        assert [body[4:] for kind, body in answers if kind == b"A"] == [b"other\0hello\0"]
        strictly("UNLISTEN *")(other)
    assert not shared.met(patient=True)


# -- what a client keeps

def test_a_client_keeps_what_it_has_set_whichever_client_comes_between(share):
    shared = share()
    with shared.session() as one, shared.session() as other:
        for sql in ("select set_config('app.tenant','mine', NOT true)", "UPDATE pg_settings SET setting = 'mine' WHERE name = 'application_name'",
                    r"SELECT set_config(E'app\x2eperson', 'mine', false)"):
            try:
                do(one, sql)
                other.query("SELECT 1")
            except w.ServerError as error:
                # The owner keeps the server: no other client is served.
                assert error.severity == "FATAL" or error.sqlstate == "53300"
                other = shared.session()
        assert strictly("SELECT current_setting('app.tenant'), current_setting('app.person'), current_setting('application_name')")(one) == [("mine",) * 3]


def test_an_error_of_a_driver_shows_that_the_connection_is_whole(share):
    """psycopg in the place of the raw protocol: what a failed transaction has set reaches no client."""
    shared = share(wait="8s")
    with shared.pooler.connect(database=world.QUIET) as one:
        with pytest.raises(psycopg.errors.DivisionByZero), one.transaction():
            one.execute("UPDATE pg_settings SET setting = 'evil' WHERE name = 'search_path'")
            one.execute("SELECT 1/0")
        assert not shared.met()
        assert one.execute("SHOW search_path").fetchone() == ('"$user", public',)


# -- roles

@pytest.mark.parametrize("reset", ["auto", "always"])
def test_the_current_role_is_reported_whichever_role_was_set_before(share, reset):
    """PostgreSQL reports a role if it differs from the one that it reported before, although that went to another
    client."""
    with (shared := share(reset=reset)).session(world.ADMIN) as one, shared.session(world.ADMIN) as other:
        for sql, superuser in (("SET ROLE leaks_reader", "off"), ("RESET ROLE", "on"), ("SET SESSION AUTHORIZATION leaks_reader", "off"),
                               ("RESET SESSION AUTHORIZATION", "on")):
            for session in (one, other):
                strictly(sql)(session)
                assert session.parameters["is_superuser"] == superuser, sql
