"""Poolhouse's own names of prepared statements are out of its clients' reach."""

import pytest

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
