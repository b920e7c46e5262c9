"""A pool has servers in reserve for clients that have waited for long. PgBouncer has the same setting, and other rules for
when such a server goes."""

import threading
import time

import pytest

from support.background_load import no_failure
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually


def hold(pooler, **more):
    """A client in a transaction."""
    db = pooler.connect(autocommit=False, **more)
    db.execute("SELECT 1")
    return db


def held_after(pooler, **more):
    """How long a client waits for a server, in seconds."""
    began = time.monotonic()
    with pooler.connect(autocommit=False, **more) as db:
        db.execute("SELECT 1")
        return time.monotonic() - began


@pytest.mark.timing
def test_a_client_that_has_waited_for_long_gets_a_server_of_the_reserve(start_either, cluster):
    pooler = start_either(max_size=1, reserve_size=1, reserve_wait_time="1s", max_wait_time="10s")
    with hold(pooler), pooler.connect(autocommit=False) as second:
        began = time.monotonic()
        second.execute("SELECT 1")
        assert 0.9 < time.monotonic() - began < 3
        assert len(cluster.backends("app")) == 2
        results = []
        third = threading.Thread(target=lambda: results.append(held_after(pooler)))
        third.start()
        time.sleep(1.5)
        assert not results and len(cluster.backends("app")) == 2, "the reserve has one server"
        second.rollback()
        third.join(5)
        assert results


def test_without_a_reserve_no_client_gets_more(start_either):
    pooler = start_either(max_size=1, reserve_size=0, reserve_wait_time="1s", max_wait_time="2s")
    with hold(pooler), pytest.raises(Exception, match="wait|max_size"):
        held_after(pooler)


@pytest.mark.poolhouse_only
@pytest.mark.timing
def test_the_reserve_goes_once_it_is_idle(start, cluster):
    pooler = start(max_size=1, reserve_size=2, reserve_wait_time="300ms")
    with hold(pooler), hold(pooler), hold(pooler):
        assert len(cluster.backends("app")) == 3
        status = pooler.pools()[0]
        assert (status["max_size"], status["settings"]["reserve_size"]) == (1, 2)
    eventually("the reserve is gone", lambda: len(cluster.backends("app")) == 1, seconds=5)
    time.sleep(0.5)
    assert len(cluster.backends("app")) == 1


@pytest.mark.poolhouse_only
def test_a_user_has_a_reserve_of_its_own(start, cluster):
    users = {"app": {"password": PASSWORDS["app"], "reserve_size": 1, "reserve_wait_time": "200ms"}, "app2": PASSWORDS["app2"]}
    pooler = start(users=users, databases={"bench": {"url": cluster.url("bench", user=None)}}, max_size=1, max_wait_time="800ms")
    with hold(pooler), hold(pooler):
        pass
    with hold(pooler, user="app2"), pytest.raises(Exception, match="wait"):
        held_after(pooler, user="app2")


@pytest.mark.poolhouse_only
@pytest.mark.timing
def test_servers_never_exceed_size_and_reserve_under_load(start, cluster):
    pooler = start(max_size=2, reserve_size=2, reserve_wait_time="50ms", max_wait_time="20s", max_connecting=4)
    most = 0
    with no_failure(pooler, clients=12):
        until = time.monotonic() + 2
        while time.monotonic() < until:
            most = max(most, len(cluster.backends("app")))
    assert most <= 4


@pytest.mark.poolhouse_only
def test_limits_of_a_database_hold_for_the_reserve(start, cluster):
    pooler = start(databases={"bench": {"max_connections": 1}}, max_size=1, reserve_size=3, reserve_wait_time="50ms", max_wait_time="600ms")
    with hold(pooler), pytest.raises(Exception, match="wait|max_connections"):
        held_after(pooler)
    assert len(cluster.backends("app")) == 1
