"""Operators get to the console just when there is no room for other clients, and no way round any limit."""

import concurrent.futures
import contextlib
import time

import psycopg
import pytest

from support.postgres_wire import ServerError
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

CONSOLE = {"admins": ["app"], "viewers": ["app2"]}
USERS = {"app": "app secret", "app2": "app2-secret", "plainuser": "plain-secret"}
ONE_CLIENT = {"soft_limit": 1, "hard_limit": 1}
FULL = r"too many clients \((hard_limit|max_clients) = 1\)"
# Places that are kept for operators in all, and those that users may have who only look.
KEPT, FOR_VIEWERS = 16, 8


@pytest.fixture(params=[ONE_CLIENT, {"max_clients": 1}], ids=["hard_limit", "max_clients"])
def full(request, start):
    """A pooler with one client, and no room for another."""
    pooler = start(console=CONSOLE, users=USERS, newcomer_wait_time="off", **request.param)
    with only_client(pooler):
        yield pooler


def only_client(pooler):
    """A client, as soon as the connection that looked whether the port is open has gone."""
    def connect():
        with contextlib.suppress(ServerError):
            return pooler.wire()

    return eventually("there is a place", connect)


def at_console(pooler, user="app", **more):
    return pooler.wire(user, database="poolhouse", **more)


def test_an_operator_gets_in_where_there_is_no_room(full):
    with at_console(full) as console:
        assert [row for row in console.query("SHOW LISTS") if row[0] == "databases"]
        assert console.query("RELOAD") == []
    for user in USERS:
        with pytest.raises(ServerError, match=FULL):
            full.wire(user)


def test_kept_places_are_few_and_come_back(full):
    with contextlib.ExitStack() as held:
        for _ in range(FOR_VIEWERS):
            held.enter_context(at_console(full, "app2"))
        with pytest.raises(ServerError, match=FULL):
            at_console(full, "app2")
        for _ in range(KEPT - FOR_VIEWERS):
            held.enter_context(at_console(full))
        with pytest.raises(ServerError, match=FULL):
            at_console(full)

    def works():
        with contextlib.suppress(ServerError), at_console(full) as console:
            return console.query("SHOW STATE")

    eventually("the places are free again", works)


def test_only_a_proof_leads_to_a_kept_place(full):
    with pytest.raises(ServerError, match="password authentication failed"):
        at_console(full, password="wrong")
    with pytest.raises(ServerError, match="not allowed"):
        at_console(full, "plainuser")
    with contextlib.ExitStack() as held:
        for _ in range(KEPT):
            held.enter_context(at_console(full))


@pytest.mark.timing
def test_guesses_at_a_full_listener_take_turns(start):
    pooler = start(console=CONSOLE, users=USERS, newcomer_wait_time="off", **ONE_CLIENT, max_auth_failures=2)

    def guess(_=None):
        with pytest.raises(ServerError, match="password authentication failed"):
            at_console(pooler, password="wrong", timeout=30)

    with only_client(pooler), concurrent.futures.ThreadPoolExecutor(40) as pool:
        for _ in range(3):
            guess()
        begin = time.monotonic()
        list(pool.map(guess, range(40)))
        assert time.monotonic() - begin > 2, "16 at a time have an answer, each after a second"


def test_operators_count_for_no_limit_of_users(start):
    pooler = start(console=CONSOLE, users=USERS, max_user_clients=1, newcomer_wait_time="off")
    with pooler.wire(), at_console(pooler) as first, at_console(pooler) as second:
        assert first.query("SHOW STATE") == second.query("SHOW STATE")
        with pytest.raises(ServerError, match="too many clients of user"):
            pooler.wire()
    with at_console(pooler, "app2"):
        with pytest.raises(ServerError, match="too many clients of user"):
            at_console(pooler, "app2")


def test_users_who_only_look_leave_places_to_operators(start):
    pooler = start(console=CONSOLE, users=USERS)
    with contextlib.ExitStack() as held:
        for _ in range(192):
            held.enter_context(at_console(pooler, "app2"))
        with pytest.raises(ServerError, match="no more connections allowed to the console"):
            at_console(pooler, "app2")
        assert held.enter_context(at_console(pooler)).query("SHOW STATE")


def test_a_role_that_a_reload_takes_away_is_gone_at_once(start):
    pooler = start(console=CONSOLE, users=USERS)
    with pooler.connect(database="poolhouse") as admin, pooler.connect("app2", database="poolhouse") as viewer:
        admin.execute("RELOAD")
        pooler.rewrite(console={"admins": ["plainuser"], "viewers": ["app"]}, users=USERS)
        admin.execute("RELOAD")
        with pytest.raises(psycopg.Error, match="admin access needed"):
            admin.execute("PAUSE")
        assert admin.execute("SHOW STATE").fetchall()
        with pytest.raises(psycopg.OperationalError, match="not allowed"):
            viewer.execute("SHOW STATE")


def test_the_console_is_no_replication_connection(start):
    pooler = start.unstarted()
    (pooler.directory / "hba.conf").write_text("host replication app all trust\nhost all all all scram-sha-256\n")
    pooler.start(console=CONSOLE, users=USERS, auth={"type": "hba", "hba_file": "hba.conf"})
    for replication in ("true", "1", "tr"):
        with pytest.raises(ServerError, match="may not connect"):
            pooler.open().login("app", None, "poolhouse", replication=replication)
    with at_console(pooler) as console:
        assert console.query("SHOW STATE")
