"""Settings of a user or a database override the general ones."""

import time

import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def own_users(cluster, **more):
    return {"bench": {"url": cluster.url("bench", user=None), **more}}


def user(name, **rules):
    return {"password": PASSWORDS[name], **rules}


def test_a_users_query_time_ends_only_queries_of_that_user(start, cluster):
    pooler = start(users={"app": user("app", query_time="300ms"), "app2": user("app2")}, databases=own_users(cluster))
    with pooler.wire("app") as hasty, pooler.wire("app2") as patient:
        patient.send(w.query("SELECT pg_sleep(0.8), 'done'"))
        hasty.send(w.query("SELECT pg_sleep(5)"))
        with pytest.raises((w.ServerError, w.Closed)) as raised:
            hasty.until_ready()
        assert "query_time" in str(raised.value)
        assert patient.rows()[0][1] == "done"


def test_a_database_may_switch_off_what_the_listener_says(start, cluster):
    databases = {"bench": {"url": cluster.url("bench")}, "other": {"url": cluster.url("other"), "query_time": "off"}}
    pooler = start(databases=databases, query_time="300ms")
    with pooler.wire() as hasty, pooler.wire(database="other") as patient:
        patient.send(w.query("SELECT pg_sleep(0.8), 'done'"))
        hasty.send(w.query("SELECT pg_sleep(5)"))
        with pytest.raises((w.ServerError, w.Closed)):
            hasty.until_ready()
        assert patient.rows()[0][1] == "done"


@pytest.mark.timing
def test_idle_times_of_users_hold_beside_the_listeners(start, cluster):
    pooler = start(users={"app": user("app", client_idle_time="200ms"), "app2": user("app2", client_idle_time="off"),
                          "md5user": user("md5user")}, databases=own_users(cluster), client_idle_time="1s")
    clients = {name: pooler.wire(name) for name in ("app", "app2", "md5user")}
    began = time.monotonic()
    assert clients["app"].closed_within(3) and time.monotonic() - began < 0.9
    assert clients["md5user"].closed_within(3) and time.monotonic() - began > 0.9
    assert clients["app2"].query("SELECT 1") == [["1"]]
    clients["app2"].close()


@pytest.mark.timing
def test_a_users_transaction_idle_time(start, cluster):
    pooler = start(users={"app": user("app", transaction_idle_time="200ms"), "app2": user("app2")},
                   databases=own_users(cluster))
    with pooler.wire("app") as slow, pooler.wire("app2") as other:
        slow.query("BEGIN")
        other.query("BEGIN")
        assert slow.closed_within(3)
        assert other.query("SELECT 1") == [["1"]]


def test_the_time_outs_that_hold_for_a_user_are_told(start, cluster):
    pooler = start(users={"app": user("app", transaction_idle_time="7s"), "app2": user("app2")}, databases=own_users(cluster),
                   transaction_idle_time="9s")
    for name in ("app", "app2"):
        with pooler.wire(name) as client:
            client.query("SELECT 1")
    told = {pool["user"]: pool["settings"]["transaction_idle_time"] for pool in pooler.pools()}
    assert told == {"app": 7_000, "app2": 9_000}


@pytest.mark.timing
def test_a_users_sizes_mode_and_wait_time(start, cluster):
    rules = {"app": user("app", max_size=1, max_wait_time="500ms"), "app2": user("app2", mode="session")}
    pooler = start(users=rules, databases=own_users(cluster), max_wait_time="20s", max_size=5)
    with pooler.wire("app") as holder, pooler.wire("app") as waiter:
        holder.query("BEGIN")
        began = time.monotonic()
        with pytest.raises(w.ServerError) as raised:
            waiter.query("SELECT 1")
        assert raised.value.sqlstate == "53300" and time.monotonic() - began < 2
    with pooler.wire("app2") as one, pooler.wire("app2") as two:
        assert one.query("SELECT pg_backend_pid()") != two.query("SELECT pg_backend_pid()")
        one.query("CREATE TEMP TABLE mine (x int)")
        assert one.query("SELECT count(*) FROM mine") == [["0"]]


def test_min_size_holds_before_the_first_client_comes(start, cluster):
    start(min_size=3)
    eventually("three servers", lambda: len(cluster.backends()) == 3)


def test_a_users_own_min_size_holds_at_once_if_the_password_is_known(start, cluster):
    start(users={"app": user("app"), "app2": user("app2", min_size=2)}, databases=own_users(cluster, min_size=1))
    eventually("two servers", lambda: len(cluster.backends("app2")) == 2)
    assert not cluster.backends("app")


@pytest.mark.timing
def test_databases_that_clients_name_have_no_servers_before(start, cluster):
    pooler = start(databases={"*": {"url": cluster.url("")}}, min_size=2)
    time.sleep(0.3)
    assert not cluster.backends()
    with pooler.connect() as connection:
        connection.execute("SELECT 1")
    eventually("two servers", lambda: len(cluster.backends()) == 2)


def test_a_database_that_is_down_at_the_start_is_no_reason_not_to_start(start, cluster):
    cluster.stop()
    try:
        start(min_size=2)
    finally:
        cluster.start()
    eventually("two servers", lambda: len(cluster.backends()) == 2, seconds=10)
