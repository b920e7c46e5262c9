"""Databases that only "*" covers: clients choose their names."""

import time

import psycopg
import pytest

from support.login_refusal import refusal
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.timing
def test_a_database_that_does_not_exist_is_said_so_at_once_and_is_no_outage(start, cluster):
    pooler = start(databases={"*": {}}, min_size=2, unavailable_wait_time="20s")
    began = time.monotonic()
    for _ in range(3):
        error = refusal(pooler, "made_up")
        assert (error.severity, error.sqlstate) == ("FATAL", "3D000"), error
        assert 'database "made_up" does not exist' in error.text and "unavailable" not in str(error.fields)
    assert time.monotonic() - began < 15
    eventually("each client is in the log", lambda: pooler.log().count("does not exist client=") == 3)
    said = pooler.log().count("does not exist")
    time.sleep(1)
    assert pooler.log().count("does not exist") == said, "min_size is for databases that exist"
    assert pooler.metric("poolhouse_pools_unavailable") == 0
    with cluster.superuser() as db:
        db.execute("CREATE DATABASE made_up")
    try:
        def connects():
            try:
                pooler.connect(database="made_up").close()
            except psycopg.OperationalError:
                return False
            return True

        eventually("it is known soon after it was made", connects)
        idle = lambda: pooler.metric("poolhouse_servers", database="made_up", state="idle")  # noqa: E731
        eventually("min_size holds from the first connection on", lambda: idle() == 2)
    finally:
        pooler.stop()
        with cluster.superuser() as db:
            db.execute("DROP DATABASE made_up WITH (FORCE)")
