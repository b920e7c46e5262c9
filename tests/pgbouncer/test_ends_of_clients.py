"""What clients are told when an administrator, a reload or the end of the process takes their connection away."""

import contextlib
import signal

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def last_words(client):
    """SQLSTATE and text of the last error before the connection is closed."""
    told = None
    with contextlib.suppress(w.Closed):
        while True:
            kind, body = client.take()
            if kind == b"E":
                told = w.ServerError(w.error_fields(body))
    return told and (told.sqlstate, told.text)


def at_console(pooler):
    return pooler.connect(database="pgbouncer")


def test_kill_client(serve_ini):
    pooler = serve_ini(admin_users="app")
    with pooler.wire() as client, at_console(pooler) as console:
        [number] = [row[-1] for row in console.execute("SHOW CLIENTS").fetchall() if row[2] == "bench"]
        console.execute(f"KILL_CLIENT {number}")
        assert last_words(client) == ("08P01", "admin forced disconnect")


def test_sigint(serve_ini):
    pooler = serve_ini(pool_mode="transaction")
    with pooler.wire() as client:
        client.query("SELECT 1")
        pooler.signal(signal.SIGINT)
        told = last_words(client)
        # PgBouncer may end before it has told a client that has no server.
        assert told == ("08P01", "server shutting down") or not (told or pooler.is_poolhouse)
    assert pooler.wait(10) is not None
    pooler.process = None


def test_a_database_that_a_reload_removes(serve_ini, cluster):
    host = f"host=127.0.0.1 port={cluster.port}"
    kept = {"kept": f"{host} dbname=other"}
    pooler = serve_ini(databases={"bench": f"{host} dbname=bench", **kept}, pool_mode="transaction")
    with pooler.wire() as idle, pooler.wire() as busy, pooler.wire(database="kept") as stays:
        busy.query("BEGIN")
        stays.query("BEGIN")
        pooler.write(databases=kept, pool_mode="transaction")
        pooler.reload()
        for client in (idle, busy):
            assert last_words(client) == ("08P01", "database removed")
        assert stays.query("SELECT 1") == [["1"]]
        with pooler.open() as late, pytest.raises(w.ServerError, match="no such database: bench"):
            late.login("app", PASSWORDS["app"], "bench")


def test_a_reload_that_fails(serve_ini):
    pooler = serve_ini(admin_users="app")
    pooler.ini.write_text(pooler.ini.read_text() + "\n[nonsense\n")
    with at_console(pooler) as console, pytest.raises(psycopg.Error, match="RELOAD failed, see logs for additional details"):
        console.execute("RELOAD")


def test_clients_of_a_removed_database_go_on_where_another_takes_their_name(serve_ini, cluster):
    host = f"host=127.0.0.1 port={cluster.port}"
    pooler = serve_ini(databases={"bench": f"{host} dbname=bench", "*": host}, pool_mode="transaction")
    if not pooler.is_poolhouse:
        pytest.skip("PgBouncer disconnects them")
    with pooler.wire() as client:
        client.query("BEGIN")
        pooler.write(databases={"*": host}, pool_mode="transaction")
        pooler.reload()
        eventually("it has read the file", lambda: "configuration read again" in pooler.log())
        client.query("COMMIT")
        assert client.query("SELECT 1") == [["1"]]
