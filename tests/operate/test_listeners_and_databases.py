"""The addresses of listeners, and the databases that clients reach there."""

import os
import stat
import subprocess

import psycopg
import pytest

from support import postgres_wire as w
from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS


def test_a_unix_socket(start):
    pooler = start.unstarted()
    path = pooler.directory / f".s.PGSQL.{pooler.port}"
    if pooler.is_poolhouse:
        pooler.start(listen=[f"127.0.0.1:{pooler.port}", str(path)])
    else:
        pooler.start()
    target = {**pooler.target(), "host": str(pooler.directory)}
    with psycopg.connect(**target, prepare_threshold=None) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with w.Wire(path).login("app", PASSWORDS["app"]) as client:
        assert client.query("SELECT 2") == [["2"]]


@pytest.mark.poolhouse_only
def test_a_unix_socket_is_removed_at_the_end_and_replaced_if_left_behind(start):
    pooler = start.unstarted()
    path = pooler.directory / f".s.PGSQL.{pooler.port}"
    stale = w.socket.socket(w.socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    pooler.start(listen=[f"127.0.0.1:{pooler.port}", str(path)])
    pooler.settle()
    with w.Wire(path).login("app", PASSWORDS["app"]) as client:
        assert client.query("SELECT 2") == [["2"]]
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o007 == 0
    pooler.stop()
    assert not path.exists()


@pytest.mark.poolhouse_only
def test_a_second_process_does_not_take_the_socket_of_a_living_one(start):
    first = start.unstarted()
    path = first.directory / f".s.PGSQL.{first.port}"
    first.start(listen=[f"127.0.0.1:{first.port}", str(path)])
    config = first.directory / "second.toml"
    config.write_text(first.config({"listen": str(path)}).replace(f":{first.admin_port}", f":{first.admin_port + 1}"))
    done = subprocess.run([BINARY, "serve", "--config", config], timeout=10, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode in (1, 2) and str(path) in done.stdout, done.stdout
    with w.Wire(path).login("app", PASSWORDS["app"]) as client:
        assert client.query("SELECT 2") == [["2"]]


def test_several_databases(start):
    pooler = start(databases={"bench": {}, "other": {}})
    for name in ("bench", "other"):
        with pooler.connect(database=name) as connection:
            assert connection.execute("SELECT current_database()").fetchone() == (name,)


def test_the_star_database_serves_every_other_name(start):
    pooler = start(databases={"bench": {}, "*": {}})
    for name in ("bench", "other"):
        with pooler.connect(database=name) as connection:
            assert connection.execute("SELECT current_database()").fetchone() == (name,)
    with pytest.raises(psycopg.Error, match="no_such_one"), pooler.connect(database="no_such_one") as connection:
        connection.execute("SELECT 1")
    with pooler.connect(database="other") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_a_database_may_have_another_name_upstream(start, cluster):
    pooler = start(databases={"alias": {"url": cluster.url("other")}})
    with pooler.connect(database="alias") as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("other",)


@pytest.mark.poolhouse_only
def test_an_upstream_on_a_unix_socket(start, cluster):
    url = f"postgres://app:app%20secret@/bench?host={cluster.directory}&port={cluster.port}"
    pooler = start(databases={"bench": {"url": url}})
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_a_host_name_as_upstream(start, cluster):
    pooler = start(databases={"bench": {"url": cluster.url(host="localhost")}})
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_a_url_with_flags_is_enough(start, cluster):
    pooler = start.unstarted()
    pooler.launch([BINARY, "serve", cluster.url(), "--listen", f"127.0.0.1:{pooler.port}", "--admin",
                   f"127.0.0.1:{pooler.admin_port}", "--max-size", "1", "--mode", "session"])
    with pooler.connect() as connection:
        connection.execute("SET work_mem = '9MB'")
        assert connection.execute("SHOW work_mem").fetchone() == ("9MB",)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(password="wrong")


@pytest.mark.poolhouse_only
def test_a_url_from_a_file(start, cluster):
    pooler = start.unstarted()
    path = pooler.directory / "url"
    path.write_text(cluster.url() + "\n")
    path.chmod(0o600)
    pooler.launch([BINARY, "serve", "--url-file", path, "--listen", f"127.0.0.1:{pooler.port}", "--admin",
                   f"127.0.0.1:{pooler.admin_port}"])
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with open(f"/proc/{pooler.process.pid}/cmdline") as arguments:
        assert "secret" not in arguments.read()
