"""Pause holds requests back, lets running ones finish and closes all servers; resume ends it."""

import select
import threading
import time

import pytest

from support import postgres_wire as w
from support.background_load import no_failure
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.timing
def test_no_client_fails_while_the_database_is_restarted_in_a_pause(start, cluster):
    pooler = start(max_size=3)
    with no_failure(pooler, clients=6) as load:
        time.sleep(0.2)
        status, answer = pooler.post("/api/pause?database=bench")
        assert (status, answer["paused"]) == (200, True)
        assert not cluster.backends()
        cluster.stop()
        time.sleep(0.3)
        cluster.start()
        held = load.done
        assert pooler.post("/api/resume?database=bench")[0] == 200
        eventually("it goes on", lambda: load.done > held)


@pytest.mark.quick
def test_a_pause_waits_for_transactions_and_holds_those_that_come(start):
    pooler = start(max_size=2)
    with pooler.wire() as busy, pooler.wire() as late:
        busy.query("BEGIN")
        answers = []
        order = threading.Thread(target=lambda: answers.append(pooler.post("/api/pause")))
        order.start()
        eventually("it is paused", lambda: pooler.pools()[0]["paused"])
        late.send(w.query("SELECT 'held'"))
        eventually("it waits", lambda: pooler.pools()[0]["waiters"] == 1)
        assert busy.query("SELECT 'goes on'") == [["goes on"]]
        assert order.is_alive()
        busy.query("COMMIT")
        order.join(5)
        assert answers[0][0] == 200 and answers[0][1]["paused"]
        pooler.post("/api/resume")
        assert late.rows() == [["held"]]


@pytest.mark.parametrize("keeps", ["CREATE TEMP TABLE mine ()", "LISTEN news"])
def test_a_pause_waits_for_servers_that_are_kept(start, keeps):
    pooler = start(max_size=2)
    with pooler.wire() as owner:
        owner.query(keeps)
        status, answer = pooler.post("/api/pause?time=300ms")
        assert status == 504 and answer["pools"][0]["servers"]["in_use"] == 1
        if keeps.startswith("CREATE"):
            assert owner.query("SELECT 'goes on'") == [["goes on"]]
        owner.close()
        eventually("no server is left", lambda: pooler.pools()[0]["servers"]["total"] == 0)
    pooler.post("/api/resume")
    with pooler.wire() as client:
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.timing
def test_a_pause_that_is_not_done_in_time_says_so_and_stands(start):
    pooler = start(max_size=2)
    with pooler.wire() as busy:
        busy.query("BEGIN")
        began = time.monotonic()
        status, answer = pooler.post("/api/pause?time=300ms")
        assert status == 504 and not answer["paused"] and time.monotonic() - began < 3
        assert answer["pools"][0]["servers"]["in_use"] == 1
        busy.query("COMMIT")
        eventually("no server is left", lambda: pooler.pools()[0]["servers"]["total"] == 0)
        assert pooler.pools()[0]["paused"]


def test_a_client_that_is_held_too_long_is_told(start):
    pooler = start(unavailable_wait_time="500ms")
    with pooler.wire() as client:
        client.query("SELECT 1")
        pooler.post("/api/pause")
        client.send(w.query("SELECT 1"))
        error = client.error()
        assert error.sqlstate == "57P03" and "an operator has paused it" in error.text


@pytest.mark.timing
def test_a_pause_of_all_holds_a_database_that_is_first_asked_for_later(start):
    pooler = start(databases={"bench": {}, "other": {}})
    pooler.post("/api/pause")
    result = []

    def ask():
        with pooler.wire(database="other") as client:
            result.append(client.query("SELECT 1"))

    asker = threading.Thread(target=ask)
    asker.start()
    time.sleep(0.4)
    assert not result
    pooler.post("/api/resume")
    asker.join(5)
    assert result == [[["1"]]]


def test_only_the_database_that_is_named_is_paused(start):
    pooler = start(databases={"bench": {}, "other": {}})
    with pooler.wire(database="bench") as held, pooler.wire(database="other") as free:
        pooler.post("/api/pause?database=bench")
        free.query("SELECT 1")
        held.send(w.query("SELECT 1"))
        assert not select.select([held.socket], [], [], 0.3)[0]
        pooler.post("/api/resume?database=bench")
        held.until_ready()


def test_a_database_that_does_not_exist_is_a_mistake(start):
    assert start().post("/api/pause?database=bnech")[0] == 404


def test_two_pauses_and_one_resume(start):
    pooler = start()
    for _ in range(2):
        assert pooler.post("/api/pause")[0] == 200
    assert pooler.post("/api/resume")[0] == 200
    with pooler.wire() as client:
        client.query("SELECT 1")
