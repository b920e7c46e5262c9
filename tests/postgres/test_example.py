"""The example of tests/README.md."""

import pytest

from support import postgres_wire
from support.waiting import eventually


@pytest.mark.poolhouse_only
def test_a_client_waits_until_the_only_server_is_free(start, cluster):
    pooler = start(max_size=1)
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        waiter.send(postgres_wire.query("SELECT 'served'"))
        eventually("the second client waits", lambda: pooler.metric("poolhouse_waiters") == 1)
        assert len(cluster.backends()) == 1
        holder.query("COMMIT")
        assert waiter.rows() == [["served"]]
    assert pooler.metric("poolhouse_checkout_seconds_count", path="queued") == 1
