"""The unnamed prepared statement of a client behaves as on a connection of its own; PostgreSQL itself is the reference.
"""

import time

import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS

pytestmark = pytest.mark.poolhouse_only

RUN = w.bind() + w.execute()
DESCRIBE = w.message(b"D", b"S\0")
CLOSE = w.message(b"C", b"S\0")
NAMED = w.parse("SELECT 'named'", name="n")
RUN_NAMED = w.bind(name="n") + w.execute()
WRONG = w.bind(name="nobody")


def answers(client, flight):
    """The answers to messages that are sent at once: for each ReadyForQuery what comes before it, in short, and its
    status."""
    client.send(*flight)
    told = []
    for _ in range(sum(part.count(w.SYNC) if part[:1] != b"Q" else 1 for part in flight)):
        got, status = client.until_ready()
        short = [w.error_fields(body)["C"] if kind == b"E" else w.row(body) if kind == b"D" else kind for kind, body in got]
        told.append((short, status))
    return told


def directly(cluster, *flights):
    with w.Wire(cluster.port).login("app", PASSWORDS["app"]) as client:
        return [answers(client, flight) for flight in flights]


def use_fully(pooler):
    """Another client leaves session state, so that the server is cleaned before its next use."""
    with pooler.wire() as other:
        other.query("CREATE TEMP TABLE left_behind (v int)")


def use_plainly(pooler):
    """Another client has a statement of its own."""
    with pooler.wire() as other:
        answers(other, [w.parse("SELECT 'of another client'"), RUN, w.SYNC])


BETWEEN = {"nothing": lambda pooler: None, "plain": use_plainly, "full": use_fully}

FLIGHTS = {
    "bound where there is none": [[RUN, w.SYNC]],
    "bound behind a named one where there is none": [[NAMED, RUN_NAMED, RUN, w.SYNC], [RUN_NAMED, RUN, w.SYNC], [RUN_NAMED, DESCRIBE, w.SYNC]],
    "bound behind a named one": [[NAMED, w.SYNC], [w.parse("SELECT 'mine'"), w.SYNC], [RUN_NAMED, RUN, w.SYNC], [RUN_NAMED, RUN, RUN, w.SYNC]],
    "described behind a named one": [[NAMED, w.SYNC], [w.parse("SELECT 'mine'"), w.SYNC], [RUN_NAMED, DESCRIBE, w.SYNC], [RUN, w.SYNC]],
    "bound in a later pipeline of the same flight": [[NAMED, w.SYNC], [w.parse("SELECT 'mine'"), w.SYNC],
                                                     [RUN_NAMED, w.SYNC, RUN, w.SYNC, w.query("SELECT 1"), RUN, w.SYNC], [RUN, w.SYNC]],
    "bound behind an error before": [[NAMED, w.SYNC], [w.parse("SELECT 'mine'"), w.SYNC], [WRONG, RUN, w.SYNC, RUN, w.SYNC], [RUN, w.SYNC]],
    "kept over a pipeline that fails": [[w.parse("SELECT 'mine'"), w.SYNC], [WRONG, w.SYNC], [RUN, w.SYNC], [w.query("SELECT 1/0")], [RUN, w.SYNC]],
    "kept over a pipeline that fails with it": [[w.parse("SELECT 1 / $1::int"), w.SYNC], [w.bind([0]), w.execute(), w.SYNC], [w.bind([1]), w.execute(), w.SYNC]],
    "kept over a parse that is skipped": [[w.parse("SELECT 'mine'"), w.SYNC], [WRONG, w.parse("SELECT 'skipped'"), w.SYNC], [RUN, w.SYNC]],
    "kept over several that are skipped": [[w.parse("SELECT 'mine'"), w.SYNC],
                                           [WRONG, w.parse("SELECT 'skipped'"), w.parse("SELECT 'too'"), RUN, w.SYNC, RUN, w.SYNC], [RUN, w.SYNC]],
    "replaced before one is skipped": [[w.parse("SELECT 'mine'"), w.SYNC],
                                       [NAMED, w.parse("SELECT 'second'"), WRONG, w.parse("SELECT 'skipped'"), w.SYNC, RUN, w.SYNC], [RUN, w.SYNC]],
    "kept over a query that is skipped": [[w.parse("SELECT 'mine'"), w.SYNC], [WRONG + w.query("SELECT 'skipped'") + w.SYNC], [RUN, w.SYNC]],
    "kept over a close that is skipped": [[w.parse("SELECT 'mine'"), w.SYNC], [WRONG, CLOSE, w.SYNC], [RUN, w.SYNC]],
    "destroyed by a parse that fails": [[w.parse("SELECT 'mine'"), w.SYNC], [w.parse("SELEC"), w.SYNC], [RUN, w.SYNC]],
    "destroyed by a parse that fails behind another": [[NAMED, w.SYNC], [w.parse("SELECT 'mine'"), w.SYNC], [RUN_NAMED, w.parse("SELEC"), w.SYNC], [RUN, w.SYNC]],
    "parsed behind a parse that fails": [[w.parse("SELECT 'mine'"), w.SYNC], [w.parse("SELEC"), w.SYNC, w.parse("SELECT 'next'"), w.SYNC], [RUN, w.SYNC]],
    "closed": [[w.parse("SELECT 'mine'"), w.SYNC], [NAMED, CLOSE, w.SYNC], [RUN, w.SYNC]],
    "destroyed by a query": [[w.parse("SELECT 'mine'"), w.SYNC], [w.query("SELECT 1")], [RUN_NAMED, w.SYNC], [RUN, w.SYNC]],
    "in a transaction that fails": [[w.parse("SELECT 'mine'"), w.SYNC], [w.parse("BEGIN", name="b"), w.bind(name="b"), w.execute(), w.SYNC], [WRONG, RUN, w.SYNC],
                                    [RUN, w.SYNC], [w.parse("ROLLBACK"), RUN, w.SYNC]],
    "in a transaction that fails, not touched": [[w.parse("SELECT 'mine'"), w.SYNC], [w.parse("BEGIN", name="b"), w.parse("ROLLBACK", name="r"), w.bind(name="b"), w.execute(), w.SYNC],
                                                 [WRONG, w.SYNC], [w.bind(name="r"), w.execute(), w.SYNC], [RUN, w.SYNC]],
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("what", FLIGHTS)
def test_it_is_what_it_would_be_without_a_pooler(start, cluster, what, between):
    pooler = start(max_size=1)
    used = BETWEEN[between]
    used(pooler)
    with pooler.wire() as client:
        # An open transaction keeps the server.
        told = []
        for flight in FLIGHTS[what]:
            told.append(answers(client, flight))
            if told[-1][-1][1] == "I":
                used(pooler)
    assert told == directly(cluster, *FLIGHTS[what])


@pytest.mark.timing
@pytest.mark.parametrize("mode", ["session", "transaction"])
@pytest.mark.parametrize("message", [RUN, DESCRIBE], ids=["bind", "describe"])
@pytest.mark.parametrize("named", [False, True], ids=["as a whole", "but for prepared statements"])
@pytest.mark.parametrize("before", [b"", NAMED + RUN_NAMED], ids=["first", "behind another"])
def test_what_cleaned_a_server_is_not_a_clients_statement(start, mode, message, named, before):
    pooler = start(mode=mode, max_size=1, reset="always")
    with pooler.wire() as one:
        one.query("BEGIN")
        if named:
            answers(one, [NAMED, RUN_NAMED, w.SYNC])
        with pooler.wire() as two:
            # The client waits for the server, which is cleaned before its request.
            two.send(before, message, w.SYNC)
            time.sleep(0.1)
            one.query("COMMIT")
            if mode == "session":
                one.close()
            got, _ = two.until_ready()
            assert w.error_fields(got[-1][1])["C"] == "26000"
            assert answers(two, [message, w.SYNC])[0][0] == ["26000"]


@pytest.mark.parametrize("within", ["", "BEGIN"])
@pytest.mark.parametrize("length", [20_000, 70_000, 3_000_000])
def test_a_long_one_is_bound_in_the_next_round_trip_by_more_clients_than_there_are_servers(start, length, within):
    pooler = start(max_size=1)
    text = f"SELECT length('{'x' * length}')"
    clients = [pooler.wire() for _ in range(1 if within else 4)]
    try:
        for _ in range(2):
            for client in clients:
                if within:
                    client.query(within)
                assert answers(client, [w.parse(text), DESCRIBE, w.SYNC])[0][0][0] == b"1"
            for client in clients:
                assert answers(client, [RUN, w.SYNC])[0][0][1] == [str(length)]
                if within:
                    client.query("COMMIT")
        parsed = f'poolhouse_statements_forgotten_total{{kind="unnamed"}} 0'
        assert parsed in pooler.get("/metrics")[1]
    finally:
        for client in clients:
            client.close()
