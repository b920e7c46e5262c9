"""Lines of the log about connections to databases, and about what happens to no connection in particular."""

import re
import signal
import threading

import psycopg
import pytest

from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def has(pooler, pattern, times=None):
    found = len(re.findall(pattern, pooler.log()))
    return found > 0 if times is None else found == times


def test_a_server_is_named_when_it_comes_and_when_it_goes(serve_ini):
    pooler = serve_ini(admin_users="app", pool_mode="transaction")
    with pooler.connect() as client, pooler.connect(database="pgbouncer") as console:
        client.execute("SELECT 1")
        port = pooler.cluster.port
        eventually("it has come", lambda: has(pooler, rf"LOG S-0x\w+: bench/app@127\.0\.0\.1:{port} new connection to server \(from 127\.0\.0\.1:\d+\)", 1))
        console.execute("RECONNECT", prepare=False)
    eventually("it has gone", lambda: has(pooler, rf"S-0x\w+: bench/app@127\.0\.0\.1:{port} closing because: database configuration changed \(age=\d+s\)"))


def test_a_login_that_the_database_refuses_is_told_with_its_words(serve_ini, cluster):
    pooler = serve_ini(databases={"bench": f"host=127.0.0.1 port={cluster.port} dbname=nosuch"})
    with pytest.raises(psycopg.OperationalError, match='database "nosuch" does not exist'):
        pooler.connect()
    eventually("it is told", lambda: has(pooler, r'WARNING server login failed: FATAL database "nosuch" does not exist'))
    eventually("the client's end, too", lambda: has(pooler, r'closing because: database "nosuch" does not exist \(age=\d+s\)'))


def test_a_database_that_only_the_star_covers_is_told_once(serve_ini, cluster):
    pooler = serve_ini(databases={"*": f"host=127.0.0.1 port={cluster.port}"})
    for _ in range(2):
        pooler.connect(database="other").close()
    eventually("it is told", lambda: has(pooler, "registered new auto-database", 1))


def test_use_of_the_reserve_is_told(serve_ini, cluster):
    host = f"host=127.0.0.1 port={cluster.port} dbname=bench"
    pooler = serve_ini(databases={"bench": f"{host} pool_size=1 reserve_pool_size=1"}, reserve_pool_timeout=1)
    with pooler.connect() as first, pooler.connect() as second:
        thread = threading.Thread(target=first.execute, args=("SELECT pg_sleep(4)",))
        thread.start()
        second.execute("SELECT 1")
        thread.join()
    assert has(pooler, "taking connection from reserve_pool", 1)


def test_signals_that_come_during_the_shutdown_are_told(serve_ini):
    pooler = serve_ini(admin_users="app")
    with pooler.connect() as client, pooler.connect(database="pgbouncer") as console:
        client.execute("SELECT 1")
        pooler.signal(signal.SIGTERM)
        eventually("it is told", lambda: "SIGTERM" in pooler.log())
        pooler.signal(signal.SIGUSR2)
        eventually("it is told", lambda: has(pooler, "got SIGUSR2 while shutting down, ignoring"))
        with pytest.raises(psycopg.Error, match="pooler is shutting down"):
            console.execute("RESUME", prepare=False)
