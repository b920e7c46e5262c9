"""Users that are not configured are looked up in the database."""

import threading
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.auth_query import FUNCTION, LOOKUP_PASSWORD, LOOKUP_USER, looked_up, lookup  # noqa: F401  (a fixture)
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

@pytest.mark.parametrize("user", ["app", "app2", "md5user"])
def test_a_user_that_is_not_configured_logs_in_with_the_databases_password(start, cluster, lookup, user):
    pooler = start(users={}, databases=looked_up(cluster))
    with pooler.connect(user) as connection:
        assert connection.execute("SELECT current_user").fetchone() == (user,)
    for password in ("wrong", ""):
        with pytest.raises(psycopg.OperationalError):
            pooler.connect(user, password=password or "x")


def test_the_default_query_is_for_a_superuser(start, cluster):
    with cluster.superuser() as db:
        db.execute("CREATE ROLE chief SUPERUSER LOGIN PASSWORD 'chief secret'")
    try:
        keys = {"auth_user": "chief", "auth_password": "chief secret"}
        pooler = start(users={}, databases={"bench": {"url": cluster.url("bench", user=None), **keys}})
        with pooler.connect("app2") as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("app2",)
        pooler.stop()
        eventually("it is gone", lambda: not cluster.backends("chief"))
    finally:
        with cluster.superuser() as db:
            db.execute("DROP ROLE chief")


def test_configured_users_are_not_looked_up(start, cluster, lookup):
    pooler = start(users={"app": PASSWORDS["app"]}, databases=looked_up(cluster, "app"))
    with pooler.connect() as connection:
        connection.execute("SELECT 1")
        assert not cluster.backends(LOOKUP_USER)


def test_answers_are_remembered_and_so_is_that_a_user_does_not_exist(start, cluster, lookup):
    pooler = start(users={}, databases=looked_up(cluster))
    pooler.connect("app").close()
    asked = pooler.metric("poolhouse_checkout_seconds_count", database="bench/auth_query")
    for _ in range(5):
        pooler.connect("app").close()
    assert pooler.metric("poolhouse_checkout_seconds_count", database="bench/auth_query") == asked
    began = time.monotonic()
    for _ in range(3):
        with pytest.raises(psycopg.OperationalError):
            pooler.connect("nobody", password="x")
    # After a failure Poolhouse asks again at the next login, but not within a second.
    asked_now = pooler.metric("poolhouse_checkout_seconds_count", database="bench/auth_query")
    assert asked_now == asked + 1 or time.monotonic() - began >= 1


def test_a_reload_has_everyone_looked_up_again(start, cluster, lookup):
    pooler = start(users={}, databases=looked_up(cluster))
    asked = []
    for _ in range(2):
        pooler.connect("app").close()
        asked.append(pooler.metric("poolhouse_checkout_seconds_count", database="bench/auth_query"))
        assert pooler.ctl("reload").returncode == 0
    assert asked == [1, 2]


def test_each_login_asks_where_answers_do_not_hold(start, cluster, lookup):
    pooler = start(users={}, databases=looked_up(cluster, auth_cache_time="off"))
    for _ in range(3):
        pooler.connect("app").close()
    asked = pooler.metric("poolhouse_checkout_seconds_count", database="bench/auth_query")
    assert asked == 3


def test_an_unknown_user_goes_through_the_same_dialogue_as_a_wrong_password(start, cluster, lookup):
    pooler = start(users={}, databases=looked_up(cluster))
    seen = []
    for user, database in [("app", "bench"), ("nobody", "bench"), ("nobody", "nowhere"), ("app", "nowhere")]:
        with pooler.open() as client, pytest.raises(w.ServerError) as raised:
            client.login(user, "wrong", database)
        seen.append((raised.value.sqlstate, raised.value.text.replace(user, "USER")))
    assert len(set(seen)) == 1 and seen[0][0] == "28P01"


def test_a_user_name_is_never_taken_for_sql(start, cluster, lookup):
    pooler = start(users={}, databases=looked_up(cluster))
    for user in ["app' --", "x'; SELECT 'app', 'md5", "app\\", "$1", 'a"b', "a" * 80, "app\u00e9", "%s"]:
        with pooler.open() as client, pytest.raises(w.ServerError) as raised:
            client.login(user, PASSWORDS["app"], "bench")
        assert raised.value.sqlstate == "28P01", user
    pooler.connect("app").close()


def test_a_changed_password_is_noticed(start, cluster, lookup):
    with cluster.superuser() as db:
        db.execute("CREATE ROLE changing LOGIN PASSWORD 'old'")
    try:
        pooler = start(users={}, databases=looked_up(cluster, auth_cache_time="10m"))
        pooler.connect("changing", password="old").close()
        with cluster.superuser() as db:
            db.execute("ALTER ROLE changing PASSWORD 'new'")
        time.sleep(1.1)
        # The first failure makes Poolhouse ask again.
        with pytest.raises(psycopg.OperationalError):
            pooler.connect("changing", password="new")
        pooler.connect("changing", password="new").close()
        with pytest.raises(psycopg.OperationalError):
            pooler.connect("changing", password="old")
        pooler.stop()
        eventually("it is gone", lambda: not cluster.backends("changing"))
    finally:
        with cluster.superuser() as db:
            db.execute("DROP ROLE changing")


def test_a_failed_lookup_is_logged_and_not_told_to_the_client(start, cluster, lookup):
    pooler = start(users={}, databases=looked_up(cluster, auth_query="SELECT a, b FROM not_there WHERE a = $1"))
    with pooler.open() as client, pytest.raises(w.ServerError) as raised:
        client.login("app", PASSWORDS["app"], "bench")
    assert raised.value.sqlstate == "57P03" and "not_there" not in str(raised.value.fields)
    told = eventually("a line in the log", lambda: [line for line in pooler.log().splitlines() if "not_there" in line])
    assert "auth_query" in told[0] and '"app"' in told[0]


def test_clients_that_hang_up_before_the_login_cost_no_connections(start, cluster, lookup):
    slow = "SELECT uname, phash FROM find_user($1), pg_sleep(0.05)"
    pooler = start(users={}, databases=looked_up(cluster, auth_query=slow))
    for n in range(12):
        with pooler.open() as client:
            client.send(w.startup(user=f"stranger{n}", database="bench"))
            time.sleep(0.02)
    pooler.connect("app").close()
    assert pooler.metric("poolhouse_servers_created_total", database="bench/auth_query") <= 2


def test_many_logins_at_once_share_the_small_pool(start, cluster, lookup):
    pooler = start(users={}, databases=looked_up(cluster, auth_failure_cache_time="1ms"), max_size=5)
    trouble = []

    def log_in(n):
        try:
            pooler.connect(("app", "app2", "md5user")[n % 3]).close()
        except psycopg.Error as error:
            trouble.append(error)

    threads = [threading.Thread(target=log_in, args=[n]) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble
    assert len(cluster.backends(LOOKUP_USER)) <= 2


def test_users_of_the_fallback_database_are_looked_up_in_one_of_ours(start, cluster, lookup):
    keys = looked_up(cluster, auth_database="bench")["bench"]
    pooler = start(users={}, databases={"*": {**keys, "url": cluster.url("", user=None)}})
    for database in ("bench", "other"):
        with pooler.connect("app", database=database) as connection:
            assert connection.execute("SELECT current_database()").fetchone() == (database,)
