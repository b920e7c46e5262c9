"""Poolhouse does not read texts above 64 KB to their end. Settings in them still follow their client as far as
Poolhouse can see them.
"""

import pytest

from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only

LONG = "x" * 70_000
SEEN = "SELECT current_setting('app.h', true)"


def simply(session, sql):
    session.query(sql)


def extended(session, sql):
    session.send(w.parse(sql), w.bind(), w.execute(), w.SYNC)
    assert b"E" not in [kind for kind, _ in session.until_ready()[0]]


@pytest.mark.parametrize("say, sql", [
    (simply, f"SET app.h = '42'; SELECT length('{LONG}')"),
    (simply, f"set /* */ local app.h = '1'; sEt app.h to '42'; SELECT length('{LONG}')"),
    (simply, f"SELECT set_config('app.' || 'h', '42', false), length('{LONG}')"),
    (extended, f"SELECT set_config('app.h', '42', false), length('{LONG}')"),
    (simply, f"DO $$ BEGIN SET app.h = '42'; PERFORM '{LONG}'; END $$"),
    (simply, f"DO $$ BEGIN PERFORM '{LONG}'; SET app.h = '42'; END $$"),
    (extended, f"DO $$ BEGIN PERFORM '{LONG}'; PERFORM set_config('app.h', '42', false); END $$"),
])
def test_what_a_long_text_sets_follows_its_client(start, say, sql):
    pooler = start(max_size=2)
    with pooler.wire() as one, pooler.wire() as other:
        say(one, sql)
        for _ in range(2):
            for _ in range(3):
                assert other.query(SEEN)[0][0] in (None, "")
            assert one.query(SEEN) == [["42"]]


def test_a_long_insert_does_not_keep_its_server(start):
    pooler = start(max_size=2)
    with pooler.wire() as one:
        one.query("DROP TABLE IF EXISTS t_long; CREATE TABLE t_long (a text, updated int)")
        for say in (simply, extended):
            say(one, f"INSERT INTO t_long (a) VALUES ('{LONG}')")
            say(one, f"UPDATE t_long SET a = '{LONG}', updated = 1")
            one.query("SELECT 1")
            assert pooler.metric("poolhouse_pinned", reason="unknown_setting") in (None, 0)
        one.query("DROP TABLE t_long")
