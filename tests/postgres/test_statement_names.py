"""Names of prepared statements: those of clients mean what they mean without a pooler, and clients cannot reach those
of Poolhouse.
"""

import pytest

from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only


def our_names(client):
    return [name for (name,) in client.execute("SELECT name FROM pg_prepared_statements").fetchall()]


def test_a_statement_deallocated_by_our_name_is_parsed_again(start):
    pooler = start(max_size=1)
    with pooler.connect(prepare_threshold=0) as client, pooler.wire() as other:
        assert client.execute("SELECT 41 + %s", [1]).fetchone() == (42,)
        names = our_names(client)
        assert names and all(name.startswith("poolhouse_") for name in names)
        for name in names:
            other.query(f"DEALLOCATE {name}")
        assert client.execute("SELECT 41 + %s", [1]).fetchone() == (42,)


def test_a_statement_prepared_in_sql_under_such_a_name_leaves_with_its_client(start):
    pooler = start(max_size=1)
    with pooler.wire() as client:
        client.query("PREPARE poolhouse_1 AS SELECT 'somebody else''s'")
        assert client.query("SELECT 1") == [["1"]]
    with pooler.connect(prepare_threshold=0) as client:
        assert client.execute("SELECT 41 + %s", [1]).fetchone() == (42,)


@pytest.mark.parametrize("size", [10, 100_000, 1_000_000])
def test_a_name_whose_parse_was_discarded_means_nothing_to_a_bind_of_any_size(start, size):
    """The outcome of the Parse is known only with the answers to the pipeline before."""
    pooler = start(max_size=1)
    with pooler.wire() as client:
        for _ in range(20):
            client.send(w.parse("SELECT 1/"), w.parse("SELECT length($1)", name="s"), w.SYNC, w.bind(["x" * size], name="s"), w.execute(), w.SYNC)
            codes = [[w.error_fields(body)["C"] for kind, body in client.until_ready()[0] if kind == b"E"] for _ in range(2)]
            assert codes == [["42601"], ["26000"]]
        client.send(w.parse("SELECT length($1)", name="s"), w.SYNC, w.bind(["x" * size], name="s"), w.execute(), w.SYNC)
        client.until_ready()
        assert [list(row) for row in client.rows()] == [[str(size)]]
