"""COPY FROM STDIN that Execute starts: a server that waits for data discards a Sync that was sent with the Execute."""

import pytest

from support import postgres_wire as w
from support.waiting import eventually

TABLE = "t_copy_extended"


@pytest.fixture
def table(cluster):
    with cluster.superuser("bench") as db:
        db.execute(f"DROP TABLE IF EXISTS {TABLE}")
        db.execute(f"CREATE TABLE {TABLE} (n int)")
        db.execute(f"GRANT ALL ON {TABLE} TO PUBLIC")
    return TABLE


def copy_in(client, table, *, sync_along, error=False):
    client.send(w.parse(f"COPY {table} FROM STDIN") + w.bind() + w.execute() + (w.SYNC if sync_along else w.FLUSH))
    for kind in (b"1", b"2", b"G"):
        client.expect(kind)
    client.send(w.copy_data(b"rubbish\n" if error else b"1\n2\n") + w.COPY_DONE + w.SYNC)
    answers, status = client.until_ready()
    assert [kind for kind, _ in answers] == ([b"E"] if error else [b"C"]) and status == "I"


@pytest.mark.parametrize("sync_along", [False, True])
@pytest.mark.parametrize("error", [False, True])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_it_ends_with_one_answer_and_gives_its_server_back(start, cluster, table, mode, sync_along, error):
    pooler = start(mode=mode, max_size=1, max_wait_time="5s")
    with pooler.wire() as client:
        for _ in range(3):
            copy_in(client, table, sync_along=sync_along, error=error)
            assert client.query(f"SELECT count(*) >= 0 FROM {table}") == [["t"]]
        if mode == "transaction":
            with pooler.wire() as other:
                assert other.query("SELECT 'served'") == [["served"]]


def test_a_copy_that_is_refused_answers_the_sync_that_was_sent_along(start, cluster, table):
    """Here the server does not wait for data, and answers each Sync."""
    pooler = start(max_size=1, max_wait_time="5s")
    with pooler.wire() as client:
        client.send(w.parse("COPY nowhere FROM STDIN") + w.bind() + w.execute() + w.SYNC)
        answers, status = client.until_ready()
        assert [kind for kind, _ in answers] == [b"1", b"2", b"E"] and status == "I"
        assert client.query("SELECT 1") == [["1"]]
        eventually("the server is given back", lambda: cluster.backends()[0].state == "idle")
