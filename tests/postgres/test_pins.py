"""Clients that keep their servers, and the error for clients beyond `max_pinned`."""

import contextlib
import json
import subprocess
import threading

import psycopg
import pytest

from support import postgres_wire as w
from support.pooler import BINARY
from support.threads import running_threads
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def test_every_cursor_with_hold_beyond_max_pinned_is_refused_with_a_reason(start):
    """Django's `.iterator()` declares many such cursors outside a transaction."""
    pooler = start(max_size=4)
    outcomes, together = [], threading.Barrier(12)

    def iterate():
        with pooler.connect() as db:
            together.wait(30)
            try:
                with db.cursor(name="c", withhold=True) as rows:
                    rows.itersize = 50
                    rows.execute("SELECT generate_series(1, 200)")
                    outcomes.append(len(list(rows)))
                    together.wait(30)
            except psycopg.Error as error:
                outcomes.append(str(error.sqlstate) + " " + str(error))
                # Only the statement has failed.
                assert db.execute("SELECT 1").fetchone() == (1,)
                together.wait(30)

    threads = [threading.Thread(target=iterate) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    print(outcomes)
    refused = [outcome for outcome in outcomes if outcome != 200]
    assert len(outcomes) == 12 and outcomes.count(200) == 2, outcomes
    assert all(outcome.startswith("53400 ") and "max_pinned = 2" in outcome for outcome in refused), refused


def test_a_statement_that_is_refused_leaves_the_unnamed_statement_of_another_client(start):
    pooler = start(max_size=2)
    with pooler.connect() as keeps, pooler.wire() as parses, pooler.wire() as refused:
        keeps.execute("CREATE TEMP TABLE mine ()")
        parses.send(w.parse("SELECT 'mine'"), w.SYNC)
        parses.until_ready()
        refused.send(w.query("PREPARE p AS SELECT 1"))
        assert any(kind == b"E" for kind, _ in refused.until_ready()[0])
        parses.send(w.bind(), w.execute(), w.SYNC)
        messages, _ = parses.until_ready()
        assert not any(kind == b"E" for kind, _ in messages), messages


def test_a_temporary_table_that_goes_with_its_transaction_needs_no_pin(start):
    pooler = start(max_size=2)
    with pooler.connect() as keeps, pooler.connect() as client:
        keeps.execute("CREATE TEMP TABLE mine ()")
        with client.pipeline():
            client.execute("CREATE TEMP TABLE brief (a int) ON COMMIT DROP")
            client.execute("INSERT INTO brief VALUES (7)")
            found = client.execute("SELECT a FROM brief")
        assert found.fetchone() == (7,)


def test_refused_pins_are_counted_logged_and_named_by_the_doctor(start):
    pooler = start(max_size=4)
    with contextlib.ExitStack() as clients:
        one, two, three = (clients.enter_context(pooler.wire()) for _ in range(3))
        one.query("CREATE TEMP TABLE mine (n int)")
        two.query("CREATE TEMP TABLE mine (n int)")
        with running_threads(1, lambda over: refused_until(three, over)):
            done = subprocess.run([BINARY, "doctor", pooler.admin_url, "--window", "2s", "--json", "-"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["symptom"] == "pins_refused" and "temporary_object" in finding["evidence"][0], finding
    assert pooler.metric("poolhouse_pins_refused_total", database="bench", reason="temporary_object") >= 5
    assert "a client may not keep a server beyond its transaction" in pooler.log()
    with pooler.wire() as one, pooler.wire() as two, pooler.wire() as three:
        for client in one, two:
            client.query("SELECT pg_advisory_lock(1 + floor(random() * 1e9)::int)")
        eventually("both clients keep their servers", lambda: pooler.metric("poolhouse_pinned", reason="advisory_lock") == 2)
        # Only after the statement has run is it known that the client would have to keep its server: the client is
        # closed.
        with pytest.raises((w.ServerError, w.Closed)):
            three.query("SELECT pg_advisory_lock(3)")
            three.query("SELECT 1")
    assert pooler.metric("poolhouse_pins_refused_total", reason="advisory_lock") == 1


def refused_until(client, over):
    while not over.is_set():
        with pytest.raises(w.ServerError) as refused:
            client.query("CREATE TEMP TABLE mine (n int)")
        assert refused.value.sqlstate == "53400"
        over.wait(0.05)
