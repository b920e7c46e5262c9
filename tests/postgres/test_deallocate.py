"""DEALLOCATE of a statement that was prepared by the protocol, at any place in a pipeline."""

import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS


@pytest.mark.parametrize("what", ["s1", "ALL"])
@pytest.mark.parametrize("before", [["SELECT 1"], ["SELECT 1/0"], ["BEGIN", "SELECT 1/0", "ROLLBACK"]])
def test_deallocate_means_the_clients_own_statement_before_the_answers_are_there(start, before, what):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        client.send(w.parse("SELECT 1", name="s1"), w.SYNC)
        client.until_ready()
        client.send(*map(w.query, before), w.query(f"DEALLOCATE {what}"))
        for _ in before:
            client.until_ready()
        answers, status = client.until_ready()
        assert (answers, status) == ([(b"C", f"DEALLOCATE{' ALL' * (what == 'ALL')}\0".encode())], "I")
        client.send(w.bind(name="s1"), w.execute(), w.SYNC)
        assert client.error().sqlstate == "26000"


@pytest.mark.parametrize("state", ["replay", "allow"])
@pytest.mark.parametrize("what", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_what_is_forgotten_through_the_protocol_cannot_be_had_right_behind_it(start, what, state):
    pooler = start(max_size=2, on_session_state=state)
    with pooler.wire() as client, pooler.wire() as first, pooler.wire() as second:
        first.send(w.query("BEGIN"))
        first.until_ready()
        client.send(w.parse("SELECT 1", name="s1"), w.SYNC)
        client.until_ready()
        second.send(w.query("BEGIN"))
        second.until_ready()
        first.send(w.query("COMMIT"))
        first.until_ready()
        # The only free server does not have the statement. It would be prepared there after the message that
        # deallocates it.
        run = [w.bind(name="s1"), w.execute(), w.SYNC]
        client.send(w.parse(what), w.bind(), w.execute(), w.SYNC, *run, w.query("SELECT 1"), *run)
        codes = [[w.error_fields(body)["C"] for kind, body in client.until_ready()[0] if kind == b"E"] for _ in range(4)]
        assert codes == [[], ["26000"], [], ["26000"]]


def test_a_statement_may_be_parsed_and_deallocated_in_one_pipeline(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        parse, run = w.parse("SELECT 1", name="s1"), [w.bind(name="s1"), w.execute(), w.SYNC]
        client.send(parse, *run, w.query("DEALLOCATE s1"), *run, w.query("DEALLOCATE s1"), parse, *run)
        codes = [[w.error_fields(body)["C"] for kind, body in client.until_ready()[0] if kind == b"E"] for _ in range(5)]
        assert codes == [[], [], ["26000"], ["26000"], []]


def test_a_deallocate_that_an_error_skipped_may_be_asked_for_again(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        run = lambda sql: [w.parse(sql), w.bind(), w.execute()]
        client.send(w.parse("SELECT 1", name="s1"), *run("SELECT 1/0"), *run("DEALLOCATE s1"), w.SYNC, w.query("DEALLOCATE s1"), w.query("DEALLOCATE s1"))
        codes = [[w.error_fields(body)["C"] for kind, body in client.until_ready()[0] if kind == b"E"] for _ in range(3)]
        assert codes == [["22012"], [], ["26000"]]


def test_of_two_statements_one_is_deallocated_after_all_were(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        run = lambda sql: [w.parse(sql), w.bind(), w.execute()]
        client.send(*run("DEALLOCATE ALL"), w.SYNC)
        client.until_ready()
        client.send(w.parse("SELECT 1", name="s1"), w.parse("SELECT 2", name="s2"), *run("DEALLOCATE s2"), w.bind(name="s1"), w.execute(), w.SYNC)
        answers, _ = client.until_ready()
        assert [kind for kind, _ in answers] == [b"1", b"1", b"1", b"2", b"C", b"2", b"D", b"C"]


def test_deallocate_in_a_failed_transaction_fails_in_a_pipeline_too(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        client.send(w.parse("SELECT 1", name="s1"), w.SYNC)
        client.until_ready()
        client.send(w.query("BEGIN; SELECT 1/0"), w.query("DEALLOCATE s1"), w.query("ROLLBACK"))
        codes = [[w.error_fields(body)["C"] for kind, body in client.until_ready()[0] if kind == b"E"] for _ in range(3)]
        assert codes == [["22012"], ["25P02"], []]
        client.send(w.bind(name="s1"), w.execute(), w.SYNC)
        assert [kind for kind, _ in client.until_ready()[0]] == [b"2", b"D", b"C"]


def told(client, flights):
    """For each ReadyForQuery the answers before it: errors by their code, rows by their values."""
    seen = []
    for flight in flights:
        client.send(*flight)
        for _ in range(sum(part == w.SYNC or part[:1] == b"Q" for part in flight)):
            got, status = client.until_ready()
            seen.append(([w.error_fields(body)["C"] if kind == b"E" else w.row(body) if kind == b"D" else (kind, body if kind == b"C" else b"")
                          for kind, body in got], status))
    return seen


RUN, EXECUTE = [w.bind(name="s1"), w.execute()], [w.bind(), w.execute()]
FIRST, SECOND = w.parse("SELECT 1", name="s1"), w.parse("SELECT 2", name="s1")
FORGET_BY_NAME = [w.parse("DEALLOCATE ALL", name="d"), w.bind(name="d", portal="p"), w.execute("p")]
IN_ONE_PIPELINE = {
    "parsed again": [[FIRST, *RUN, w.parse("{}"), *EXECUTE, SECOND, *RUN, w.SYNC], [*RUN, w.SYNC]],
    "parsed again as it was": [[FIRST, *RUN, w.parse("{}"), *EXECUTE, FIRST, *RUN, w.SYNC], [*RUN, w.SYNC]],
    "known from before": [[FIRST, w.SYNC], [w.parse("{}"), *EXECUTE, SECOND, *RUN, w.SYNC], [*RUN, w.SYNC]],
    "parsed twice": [[FIRST, w.SYNC], [w.parse("{}"), *EXECUTE, SECOND, FIRST, w.SYNC], [*RUN, w.SYNC]],
    "used without being there": [[FIRST, w.parse("{}"), *EXECUTE, *RUN, w.SYNC], [FIRST, *RUN, w.SYNC]],
    "in the next pipeline": [[FIRST, w.parse("{}"), *EXECUTE, w.SYNC, SECOND, *RUN, w.SYNC, w.query("SELECT 3"), *RUN, w.SYNC]],
    "behind an error": [[FIRST, w.SYNC], [w.bind(name="nobody"), w.parse("{}"), *EXECUTE, SECOND, w.SYNC, *RUN, w.SYNC], [*RUN, w.SYNC]],
    "only bound": [[FIRST, w.parse("{}"), w.bind(), SECOND, w.SYNC], [*RUN, w.SYNC]],
    "by a query": [[FIRST, w.SYNC], [w.query("{}"), SECOND, *RUN, w.SYNC], [*RUN, w.SYNC]],
    "by a query behind an open pipeline": [[FIRST, w.query("{}"), SECOND, *RUN, w.SYNC], [*RUN, w.SYNC]],
    "several times": [[FIRST, w.parse("{}"), *EXECUTE, SECOND, w.SYNC, w.parse("{}"), *EXECUTE, FIRST, w.SYNC], [*RUN, w.SYNC]],
    "by a statement with a name": [[FIRST, *RUN, *FORGET_BY_NAME, SECOND, *RUN, w.SYNC], [*RUN, w.SYNC]],
    "several times in one": [[FIRST, w.parse("DEALLOCATE ALL"), *EXECUTE, SECOND, *EXECUTE, FIRST, *RUN, w.SYNC], [*RUN, w.SYNC]],
}


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("state", ["replay", "allow"])
@pytest.mark.parametrize("what", ["DEALLOCATE ALL", "DISCARD ALL"])
@pytest.mark.parametrize("flights", IN_ONE_PIPELINE)
def test_what_is_forgotten_may_be_parsed_again_in_the_same_pipeline(start, cluster, flights, what, state):
    def place(part):
        return part if b"{}" not in part else w.parse(what) if part[:1] == b"P" else w.query(what)

    flights = [[place(part) for part in flight] for flight in IN_ONE_PIPELINE[flights]]
    pooler = start(max_size=1, on_session_state=state)
    with pooler.wire() as client, pooler.wire() as other, w.Wire(cluster.port).login("app", PASSWORDS["app"]) as direct:
        # The server has the text already.
        other.send(FIRST, *RUN, w.SYNC)
        other.until_ready()
        assert told(client, flights) == told(direct, flights)
