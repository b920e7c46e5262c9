"""An operator refuses new clients of a database, closes all of its connections at once, and waits for old servers to go.
PgBouncer gets the same orders at its console."""

import contextlib
import threading
import time

import psycopg
import pytest

from support.waiting import eventually


def order(pooler, word, database):
    """Gives an order, and waits until it is done."""
    if pooler.is_poolhouse:
        done = pooler.ctl(word, "--database", database)
        assert done.returncode == 0, done.stderr
    else:
        with pooler.connect(database="pgbouncer") as console:
            console.execute(f"{word.replace('-', '_')} {database}")


def ask(pooler, **more):
    with pooler.connect(**more) as db:
        return db.execute("SELECT 1").fetchone()


def held(pooler):
    """A client in a transaction."""
    db = pooler.connect(autocommit=False)
    db.execute("SELECT 1")
    return db


@pytest.mark.quick
def test_a_disabled_database_takes_no_new_clients_and_keeps_those_it_has(start_either):
    pooler = start_either(databases={"bench": {}, "other": {}})
    with pooler.connect() as present:
        present.execute("SELECT 1")
        order(pooler, "disable", "bench")
        for _ in range(3):
            with pytest.raises(psycopg.OperationalError, match="disabled"):
                ask(pooler)
        assert present.execute("SELECT 2").fetchone() == (2,)
        assert ask(pooler, database="other") == (1,)
        order(pooler, "enable", "bench")
        assert ask(pooler) == (1,)


def test_a_resumed_database_is_still_disabled(start_either):
    pooler = start_either()
    assert ask(pooler) == (1,)
    order(pooler, "disable", "bench")
    order(pooler, "pause", "bench")
    order(pooler, "resume", "bench")
    with pytest.raises(psycopg.OperationalError, match="disabled"):
        ask(pooler)


@pytest.mark.poolhouse_only
def test_a_database_that_is_disabled_before_its_first_client_refuses_that(start):
    pooler = start()
    assert pooler.post("/api/disable?database=bench")[0] == 200
    with pytest.raises(psycopg.OperationalError, match="disabled"):
        ask(pooler)
    assert pooler.post("/api/disable")[0] == 400
    assert pooler.post("/api/disable?database=bnech")[0] == 404


def test_a_killed_database_loses_all_connections_and_waits_for_resume(start_either, cluster):
    pooler = start_either(databases={"bench": {}, "other": {}})
    with held(pooler) as busy, pooler.connect() as idle, pooler.connect(database="other") as elsewhere:
        idle.execute("SELECT 1")
        elsewhere.execute("SELECT 1")
        order(pooler, "kill", "bench")
        for client in (busy, idle):
            with pytest.raises(psycopg.OperationalError):
                client.execute("SELECT 1")
        eventually("its servers are gone", lambda: not [b for b in cluster.backends("app") if b.datname == "bench"])
        assert elsewhere.execute("SELECT 2").fetchone() == (2,)
        answers = []
        newcomer = threading.Thread(target=lambda: answers.append(ask(pooler)))
        newcomer.start()
        time.sleep(0.3)
        assert not answers
        order(pooler, "resume", "bench")
        newcomer.join(5)
        assert answers == [(1,)]


@pytest.mark.poolhouse_only
def test_a_statement_of_a_killed_client_ends_in_the_database_too(start, cluster):
    pooler = start()
    with pooler.connect() as busy:
        failed = []

        def sleep():
            with contextlib.suppress(psycopg.Error):
                busy.execute("SELECT pg_sleep(30)")
            failed.append(True)

        sleeper = threading.Thread(target=sleep)
        sleeper.start()
        eventually("it runs", lambda: [b for b in cluster.backends("app") if b.datname == "bench"])
        assert pooler.post("/api/kill?all")[1]["killed"]
        sleeper.join(5)
        assert failed
        eventually("the database has ended it", lambda: not cluster.backends("app"))
    assert pooler.post("/api/resume")[0] == 200
    assert ask(pooler) == (1,)
    assert pooler.post("/api/kill")[0] == 400


def test_old_servers_are_waited_for(start_either):
    pooler = start_either()
    with held(pooler) as busy:
        order(pooler, "reconnect", "bench")
        done = []
        waiter = threading.Thread(target=lambda: done.append(order(pooler, "wait-close", "bench")))
        waiter.start()
        time.sleep(0.4)
        assert not done
        assert ask(pooler) == (1,)
        busy.commit()
        waiter.join(5)
        assert done == [None]
    order(pooler, "wait-close", "bench")
