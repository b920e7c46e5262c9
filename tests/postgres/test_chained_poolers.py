"""Poolers in a row, all in transaction mode. A client of the front one can do all that it can do with one pooler, and
no pooler keeps a server because of another.
"""

import contextlib
import time
import types
import urllib.parse

import psycopg
import pytest

from support import pooler
from support.postgres_cluster import PASSWORDS

pytestmark = pytest.mark.poolhouse_only

CLIENTS = 6
# Fewer servers than clients. The back pooler has as many clients as the front pooler has servers.
FRONT, BACK = 3, 2


def behind(made):
    """The URL by which a pooler in front reaches this one."""
    return f"postgres://app:{urllib.parse.quote(PASSWORDS['app'])}@127.0.0.1:{made.port}/bench"


@pytest.fixture
def bouncer(cluster, workspace, request):
    """Starts a PgBouncer in front of this port."""
    started = []

    def start(port):
        directory = workspace / f"bouncer-{len(started)}-{request.node.name[:20].replace('/', '_')}"
        directory.mkdir()
        made = pooler.PgBouncer(directory, types.SimpleNamespace(port=port))
        started.append(made)
        return made.start(max_size=FRONT)

    if not pooler.pathlib.Path(pooler.PgBouncer.binary()).exists():
        pytest.skip("no PgBouncer")
    yield start
    for made in started:
        made.stop()


def work(connection, own, prepares):
    """Leaves state behind, makes the pooler ask its own questions, and prepares statements."""
    connection.execute("SELECT 1")
    with connection.transaction():
        connection.execute("SELECT set_config('app.tenant', %s, true)", [own])
        assert connection.execute("SELECT current_setting('app.tenant')").fetchone() == (own,)
    for n in range(3):
        # The function is unknown, so the pooler checks what it has left.
        connection.execute("SELECT query_to_xml('SELECT 1', true, true, '')")
        assert connection.execute("SELECT %s::text || %s::text", [own, n], prepare=prepares).fetchone() == (f"{own}{n}",)
    with connection.transaction():
        connection.execute("CREATE TEMP TABLE mine (a int) ON COMMIT DROP")
        connection.execute("INSERT INTO mine VALUES (1)")


def settings(connection, own):
    """Settings that follow a client, if its pooler does that."""
    connection.execute(f"SET application_name = '{own}'")
    connection.execute("SET work_mem = '7MB'")
    connection.execute("SET app.person = 'x'")
    assert connection.execute("SHOW application_name").fetchone() == (own,)
    assert connection.execute("SHOW work_mem").fetchone() == ("7MB",)
    connection.execute("RESET work_mem")
    assert connection.execute("SHOW work_mem").fetchone() == ("4MB",)


def pinned(made, wanted):
    """Whether that number of servers is kept, once the pooler has checked what was left in them."""
    deadline = time.monotonic() + 15
    while (found := made.metric("poolhouse_pinned")) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    return found == wanted


def play(front, *poolhouses, prepares=True, follow=True):
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(front.connect(prepare_threshold=0 if prepares else None)) for _ in range(CLIENTS)]
        for turn in range(3):
            for number, connection in enumerate(connections):
                own = f"own {number} {turn}"
                work(connection, own, prepares)
                if follow:
                    settings(connection, own)
                for made in poolhouses:
                    free = pinned(made, 0)
                    assert free, f"client {number}, turn {turn}: {[name for name in made.metrics() if name[0] == 'poolhouse_pinned']}"


def test_a_poolhouse_behind_a_poolhouse_keeps_no_server_for_it(start):
    back = start(max_size=BACK)
    front = start(max_size=FRONT, databases={"bench": {"url": behind(back)}})
    play(front, front, back)


def test_three_in_a_row_do_not_either(start):
    back = start(max_size=BACK)
    middle = start(max_size=FRONT, databases={"bench": {"url": behind(back)}})
    front = start(max_size=FRONT, databases={"bench": {"url": behind(middle)}})
    play(front, front, middle, back)


def test_a_pgbouncer_in_front_of_a_poolhouse(start, bouncer):
    back = start(max_size=BACK)
    play(bouncer(back.port), back, prepares=False, follow=False)


def test_a_poolhouse_in_front_of_a_pgbouncer(start, cluster, bouncer):
    """PgBouncer has one server for all clients of the front pooler, so nothing may stay in it that another client would
    meet."""
    back = bouncer(cluster.port)
    front = start(max_size=FRONT, databases={"bench": {"url": behind(back)}})
    play(front, front, prepares=False, follow=False)


def test_a_client_that_needs_a_server_of_its_own_keeps_one_in_both(start):
    back = start(max_size=BACK)
    front = start(max_size=FRONT, databases={"bench": {"url": behind(back)}})
    with front.connect() as one, front.connect() as other:
        one.execute("PREPARE q AS SELECT 5")
        assert pinned(front, 1) and pinned(back, 1)
        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            other.execute("EXECUTE q")
        assert one.execute("EXECUTE q").fetchone() == (5,)
        one.execute("DEALLOCATE q")
        assert pinned(front, 0) and pinned(back, 0)
