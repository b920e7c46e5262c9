"""A database whose catalogue is large, so that Poolhouse reads it in parts. No client waits for that, and servers are
cleaned until it has been read.
"""

import time

import pytest

from hunts.leaking import world

pytestmark = pytest.mark.poolhouse_only

NAME = "large_catalogue"
TABLES, COLUMNS = 4, 900


@pytest.fixture(scope="module")
def large(session_cluster):
    """Thousands of column defaults, of which the last one changes the session."""
    cluster = session_cluster
    if not cluster.running():
        cluster.start()
    world.make(cluster)
    with cluster.superuser() as db:
        db.execute(f"CREATE DATABASE {NAME}")
    with cluster.superuser(NAME) as db:
        db.execute("GRANT ALL ON SCHEMA public TO PUBLIC")
        for n in range(TABLES):
            columns = ", ".join(f"c{c} int DEFAULT {c}" for c in range(COLUMNS))
            db.execute(f"CREATE TABLE public.wide_{n} ({columns})")
        db.execute("CREATE TABLE public.harmful (a int, b text DEFAULT set_config('app.tenant', 'evil', false)); GRANT ALL ON public.harmful TO PUBLIC")
    yield NAME
    with cluster.superuser() as db:
        db.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


def use(connection):
    return connection.execute("SELECT coalesce(current_setting('app.tenant', true), '')").fetchone()


def test_what_is_read_by_parts_is_in_doubt_until_it_is_known(start, large):
    made = start(databases={large: {}}, max_size=1)
    deadline = time.monotonic() + 60
    with made.connect(database=large) as one, made.connect(database=large) as other:
        while made.metric("poolhouse_suspicious_functions") == 0:
            one.execute("INSERT INTO public.harmful (a) VALUES (1)")
            assert use(other) == ("",)
            assert time.monotonic() < deadline, f"it has not been read: {made.log()}"
        assert made.metric("poolhouse_suspicious_functions") == 1
        one.execute("INSERT INTO public.harmful (a) VALUES (1)")
        assert use(other) == ("",)
    assert "harmful (calls set_config)" in made.log()
    assert "cannot be read" not in made.log()
