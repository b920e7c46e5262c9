"""How long transactions may take, and what becomes of sessions whose servers are to be replaced: beside PgBouncer."""

import time

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually


def begin(pooler, **more):
    db = pooler.connect(autocommit=False, **more)
    db.execute("SELECT 1")
    return db


def order(pooler, word):
    if pooler.is_poolhouse:
        assert pooler.post(f"/api/{word}?database=bench")[0] == 200
    else:
        with pooler.connect(database="pgbouncer") as console:
            console.execute(f"{word} bench")


@pytest.mark.timing
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_transaction_that_takes_too_long_ends_whatever_it_does(start_either, mode):
    pooler = start_either(transaction_time="1s", mode=mode)
    with begin(pooler) as busy, pytest.raises(psycopg.Error):
        for _ in range(20):
            busy.execute("SELECT pg_sleep(0.2)")
    with begin(pooler) as idle:
        time.sleep(2)
        with pytest.raises(psycopg.Error):
            idle.execute("SELECT 1")
    with pooler.connect() as single, pytest.raises(psycopg.Error):
        single.execute("SELECT pg_sleep(4)")


@pytest.mark.timing
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_many_short_transactions_may_take_longer_together(start_either, mode):
    pooler = start_either(transaction_time="1s", mode=mode)
    with pooler.connect() as db:
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            db.execute("SELECT pg_sleep(0.1)")
        time.sleep(1.5)
        assert db.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
@pytest.mark.timing
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_transactions_that_are_pipelined_without_a_pause_count_each_for_itself(start, mode):
    pooler = start(transaction_time="700ms", mode=mode)
    with pooler.wire() as client:
        step = [w.parse("SELECT pg_sleep(0.1)"), w.bind(), w.execute(), w.SYNC]
        client.send(*step)
        for _ in range(15):
            client.send(*step)
            client.until_ready()
        client.until_ready()
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
@pytest.mark.timing
def test_the_transaction_time_of_a_user_and_of_a_database(start, cluster):
    users = {"app": {"password": PASSWORDS["app"], "transaction_time": "300ms"}, "app2": PASSWORDS["app2"]}
    databases = {name: {"url": cluster.url(name, user=None)} for name in ("bench", "other")}
    databases["other"]["transaction_time"] = "600ms"
    pooler = start(users=users, databases=databases)
    with pooler.wire("app") as hasty, pooler.wire("app2") as patient, pooler.wire("app2", database="other") as between:
        for client in (hasty, patient, between):
            client.query("BEGIN")
        began = time.monotonic()
        error = hasty.error()
        assert (error.sqlstate, "transaction_time" in error.text) == ("25P04", True)
        assert between.error().sqlstate == "25P04" and time.monotonic() - began > 0.5
        time.sleep(0.3)
        assert patient.query("SELECT 1") == [["1"]]
    assert pooler.metric("poolhouse_client_evictions_total", reason="transaction_time") == 2


@pytest.mark.timing
def test_a_session_ends_when_its_server_is_to_be_replaced_if_that_is_wanted(start_either):
    pooler = start_either(mode="session", fast_close=True)
    with pooler.connect() as idle, begin(pooler) as busy:
        idle.execute("SELECT 1")
        order(pooler, "reconnect")
        time.sleep(1)
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")
        assert busy.execute("SELECT 2").fetchone() == (2,)
        busy.commit()
        time.sleep(1)
        with pytest.raises(psycopg.OperationalError):
            busy.execute("SELECT 1")
    with pooler.connect() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.timing
def test_otherwise_it_goes_on(start_either):
    pooler = start_either(mode="session")
    with pooler.connect() as idle:
        idle.execute("SELECT 1")
        order(pooler, "reconnect")
        time.sleep(1)
        assert idle.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_in_transaction_mode_no_client_notices(start):
    pooler = start(fast_close=True)
    with pooler.connect() as db:
        before = db.execute("SELECT pg_backend_pid()").fetchone()
        order(pooler, "reconnect")
        eventually("it has another server", lambda: db.execute("SELECT pg_backend_pid()").fetchone() != before)


@pytest.mark.poolhouse_only
@pytest.mark.timing
def test_a_pool_of_a_configured_user_goes_when_that_is_configured(start):
    pooler = start(pool_idle_time="1s", max_idle_time="200ms")
    with pooler.connect() as db:
        db.execute("SELECT 1")
    eventually("it is forgotten", lambda: not pooler.pools(), seconds=8)
    with pooler.connect() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)
    assert len(pooler.pools()) == 1
