"""DEALLOCATE of a statement that was prepared by the protocol, wherever in a pipeline it comes."""

import pytest

import wire as w


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
        # The only server that is free has not got the statement: it would be prepared there, behind what forgets it.
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
