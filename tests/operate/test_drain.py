"""Drain closes clients at the end of their transactions: those of one database, or all."""

import threading

import psycopg
import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.quick
def test_the_clients_of_a_database_go_and_no_new_ones_come(start, cluster):
    pooler = start(databases={"bench": {"min_size": 2}, "other": {}})
    with pooler.wire() as idle, pooler.wire() as busy, pooler.wire(database="other") as elsewhere:
        busy.query("BEGIN")
        idle.query("SELECT 1")
        answers = []
        order = threading.Thread(target=lambda: answers.append(pooler.post("/api/drain?database=bench")))
        order.start()
        assert idle.error().sqlstate == "57P01"
        assert busy.query("SELECT 'goes on'") == [["goes on"]]
        busy.query("COMMIT")
        assert busy.error().sqlstate == "57P01"
        order.join(5)
        assert answers[0][0] == 200 and answers[0][1]["drained"]
        with pytest.raises((w.ServerError, w.Closed)), pooler.wire() as newcomer:
            newcomer.query("SELECT 1")
            newcomer.query("SELECT 1")
        elsewhere.query("SELECT 1")
        eventually("no server is kept", lambda: not [b for b in cluster.backends() if b.datname == "bench"])
    assert pooler.post("/api/resume?database=bench")[0] == 200
    with pooler.wire() as client:
        client.query("SELECT 1")


def test_a_client_that_comes_to_a_drained_database_is_told_why_instead_of_being_let_in(start):
    pooler = start(databases={"bench": {}, "other": {}})
    with pooler.wire() as client:
        client.query("SELECT 1")
    assert pooler.post("/api/drain?database=bench")[0] == 200
    for _ in range(10):
        with pytest.raises(psycopg.OperationalError, match="an administrator drains this database"):
            pooler.connect()
    with pytest.raises(w.ServerError) as refused:
        pooler.wire()
    assert refused.value.sqlstate == "57P01"
    with pooler.connect(database="other") as elsewhere:
        assert elsewhere.execute("SELECT 1").fetchone() == (1,)
    assert pooler.post("/api/resume?database=bench")[0] == 200
    with pooler.connect() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_without_a_database_the_process_ends_when_all_have_gone(start):
    pooler = start(drain_time="20s")
    with pooler.wire() as busy:
        busy.query("BEGIN")
        status, answer = pooler.post("/api/drain")
        assert status == 202 and answer["draining"]
        assert pooler.wait(0.5) is None
        busy.query("COMMIT")
        assert busy.error().sqlstate == "57P01"
    assert pooler.wait(5) == 0
