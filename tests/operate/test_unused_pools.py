"""Unused pools that a client's request created are removed after `pool_idle_time`, with everything that is kept about
them.
"""

import psycopg
import pytest

from support.auth_query import looked_up, lookup  # noqa: F401
from support.login_refusal import refusal
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def names(pooler):
    return {(pool["database"], pool["user"]) for pool in pooler.pools()}


def only(pooler, *pools):
    """Waits until all other pools and their metrics are gone."""
    eventually(f"there is no pool but {pools}", lambda: names(pooler) == set(pools), every=0.1)
    labelled = [dict(labels) for name, labels in pooler.metrics() if name == "poolhouse_servers_created_total"]
    assert {(labels["database"], labels["user"]) for labels in labelled} <= set(pools)


def accepted(pooler):
    return pooler.metric("poolhouse_clients_accepted_total")


def test_names_that_clients_made_up_are_forgotten_and_what_is_used_stays(start, cluster):
    pooler = start(databases={"bench": {}, "*": {}}, min_size=1, pool_idle_time="1s")
    held = pooler.connect(database="template1")
    held.execute("SELECT 1")
    for number in range(20):
        assert refusal(pooler, f"made_up_{number}").sqlstate == "3D000"
    for database in ("postgres", "bench"):
        with pooler.connect(database=database) as connection:
            connection.execute("SELECT 1")
    before = accepted(pooler)
    only(pooler, ("bench", "app"), ("template1", "app"))
    assert accepted(pooler) >= before, "what the process counts goes on"
    assert held.execute("SELECT current_database()").fetchone() == ("template1",)
    # The pool is gone without a trace.
    with pooler.connect(database="postgres") as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("postgres",)
    held.close()
    only(pooler, ("bench", "app"))


def test_users_that_are_looked_up_come_and_go(start, cluster, lookup):  # noqa: F811
    pooler = start(users={}, databases=looked_up(cluster), pool_idle_time="1s", user_label=False)

    def transactions():
        return pooler.metric("poolhouse_transactions_total", database="bench")

    with pooler.connect("app2") as stays:
        stays.execute("SELECT 1")
        for user in ("app", "md5user"):
            with pooler.connect(user) as connection:
                connection.execute("SELECT 1")
        before = eventually("three transactions are counted", lambda: transactions() >= 3 and transactions())
        left = {("bench", "app2"), ("bench/auth_query", "lookup")}
        eventually("the pools of users who left are gone", lambda: names(pooler) == left, every=0.1)
        assert transactions() >= before, "the sum over all users never goes backwards"
        with pooler.connect("app") as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("app",)
        assert stays.execute("SELECT current_user").fetchone() == ("app2",)


def test_a_database_that_is_configured_no_more_goes_with_its_last_client(start, cluster):
    databases = {"bench": {}, "old": {"url": cluster.url("bench")}}
    pooler = start(databases=databases, min_size=1, pool_idle_time="1s")
    eventually("each has its server", lambda: pooler.metric("poolhouse_servers", state="idle") == 2)
    with pooler.connect(database="old") as connection:
        connection.execute("SELECT 1")
        pooler.rewrite(databases={"bench": {}}, min_size=1, pool_idle_time="1s")
        assert pooler.ctl("reload").returncode == 0
        with pytest.raises(psycopg.OperationalError):
            pooler.connect(database="old")
        with pooler.connect() as other:
            other.execute("SELECT 1")
        assert ("old", "app") in names(pooler)
        connection.execute("SELECT 1")
    only(pooler, ("bench", "app"))
    eventually("what is configured keeps its min_size", lambda: pooler.metric("poolhouse_servers", state="idle") == 1)
    # The pool is created again.
    pooler.rewrite(databases=databases, min_size=1, pool_idle_time="1s")
    assert pooler.ctl("reload").returncode == 0
    with pooler.connect(database="old", password=PASSWORDS["app"]) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_pools_stay_where_that_is_switched_off(start, cluster):
    pooler = start(databases={"*": {}}, pool_idle_time="off")
    assert refusal(pooler, "made_up").sqlstate == "3D000"
    assert names(pooler) == {("made_up", "app")}
    pooler.rewrite(databases={"*": {}}, pool_idle_time="1s")
    assert pooler.ctl("reload").returncode == 0
    eventually("a reload puts it in force", lambda: not names(pooler), every=0.1)
