"""The same pgbouncer.ini, served by PgBouncer and by `poolhouse pgbouncer`: clients see the same."""

import psycopg
import pytest

from support.ini_pooler import stored_passwords
from support.postgres_cluster import PASSWORDS, give_away
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def test_a_client_is_served(serve_ini):
    pooler = serve_ini()
    with pooler.connect() as client:
        assert client.execute("SELECT current_database(), current_user").fetchone() == ("bench", "app")


def test_stored_passwords_of_each_kind_let_a_user_in(serve_ini):
    pooler = serve_ini(auth=stored_passwords())
    for user in ("app", "md5user", "app2"):
        with pooler.connect(user=user) as client:
            assert client.execute("SELECT current_user").fetchone() == (user,)
        with pytest.raises(psycopg.OperationalError):
            pooler.connect(user=user, password="wrong")


def test_entries_lead_to_other_databases_and_users(serve_ini, cluster):
    host = f"host=127.0.0.1 port={cluster.port}"
    login = f"user=app2 password='{PASSWORDS['app2']}'"
    pooler = serve_ini(databases={"a": f"{host} dbname=other", "b": f"{host} dbname=bench {login}", "*": host})
    seen = {}
    for name in ("a", "b", "other"):
        with pooler.connect(database=name) as client:
            seen[name] = client.execute("SELECT current_database(), current_user").fetchone()
    assert seen == {"a": ("other", "app"), "b": ("bench", "app2"), "other": ("other", "app")}


def test_a_password_may_have_any_characters(serve_ini, cluster):
    password = "a b'c@d:e/f%g${HOME}\\"
    with cluster.superuser() as db:
        db.execute("DROP ROLE IF EXISTS odd")
        db.execute(f"CREATE ROLE odd LOGIN PASSWORD '{password.replace(chr(39), chr(39) * 2)}'")
    quoted = password.replace("'", "''")
    pooler = serve_ini(databases={"bench": f"host=127.0.0.1 port={cluster.port} user=odd password='{quoted}'"})
    with pooler.connect() as client:
        assert client.execute("SELECT current_user").fetchone() == ("odd",)


def test_start_up_settings_of_an_entry_reach_the_server(serve_ini, cluster):
    host = f"host=127.0.0.1 port={cluster.port} dbname=bench"
    pooler = serve_ini(databases={"bench": f"{host} timezone=Asia/Tokyo"})
    with pooler.connect() as client:
        assert client.execute("SHOW timezone").fetchone() == ("Asia/Tokyo",)


def test_connect_query_runs_on_each_connection(serve_ini, cluster):
    host = f"host=127.0.0.1 port={cluster.port} dbname=bench"
    pooler = serve_ini(databases={"bench": f"{host} connect_query='SET work_mem = ''7MB'''"})
    with pooler.connect() as client:
        assert client.execute("SHOW work_mem").fetchone() == ("7MB",)


@pytest.mark.parametrize("where", ["default", "database", "user"])
def test_the_size_of_a_pool_is_kept(serve_ini, cluster, where):
    host = f"host=127.0.0.1 port={cluster.port} dbname=bench"
    settings = {
        "default": {"default_pool_size": 1},
        "database": {"databases": {"bench": f"{host} pool_size=1"}},
        "user": {"users": {"app": "pool_size=1"}},
    }[where]
    pooler = serve_ini(pool_mode="transaction", query_wait_timeout=1, **settings)
    with pooler.connect() as holder, pooler.connect() as other:
        holder.execute("BEGIN")
        with pytest.raises(psycopg.Error):
            other.execute("SELECT 1")
        assert len(cluster.backends("app")) == 1


@pytest.mark.parametrize("where", ["default", "database", "user"])
def test_the_mode_of_a_pool_is_kept(serve_ini, cluster, where):
    host = f"host=127.0.0.1 port={cluster.port} dbname=bench"
    settings = {
        "default": {"pool_mode": "statement"},
        "database": {"databases": {"bench": f"{host} pool_mode=statement"}},
        "user": {"users": {"app": "pool_mode=statement"}},
    }[where]
    pooler = serve_ini(**settings)
    with pooler.connect() as client, pytest.raises(psycopg.Error):
        client.execute("BEGIN")


def test_no_more_clients_than_max_client_conn_get_in(serve_ini):
    pooler = serve_ini(max_client_conn=2)
    with pooler.connect(), pooler.connect():
        with pytest.raises(psycopg.OperationalError):
            pooler.connect()


def test_a_reload_adds_a_database_of_an_included_file(serve_ini, cluster, folder):
    entry = f"= host=127.0.0.1 port={cluster.port} dbname=bench\n"
    (folder / "more.ini").write_text(f"[databases]\nfirst {entry}")
    pooler = serve_ini(more="%include more.ini")
    with pooler.connect(database="first") as client:
        client.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            pooler.connect(database="second")
        (folder / "more.ini").write_text(f"[databases]\nfirst {entry}second {entry}")
        give_away(folder / "more.ini")
        pooler.reload()

        def is_served():
            try:
                with pooler.connect(database="second") as second:
                    return second.execute("SELECT 1").fetchone() == (1,)
            except psycopg.OperationalError:
                return False

        eventually("the new database is served", is_served)
        assert client.execute("SELECT 2").fetchone() == (2,)


def test_a_reload_with_a_mistake_leaves_all_as_it_was(serve_ini, cluster):
    pooler = serve_ini()
    text = pooler.ini.read_text()
    pooler.ini.write_text(text + "\nnonsense = 1\n")
    pooler.reload()
    eventually("the mistake is told", lambda: "nonsense" in pooler.log())
    with pooler.connect() as client:
        assert client.execute("SELECT 1").fetchone() == (1,)


def test_the_unix_socket_has_its_name_and_permissions(serve_ini, folder):
    pooler = serve_ini(unix_socket_dir=folder, unix_socket_mode="0700")
    socket = folder / f".s.PGSQL.{pooler.port}"
    assert socket.stat().st_mode & 0o777 == 0o700
    with psycopg.connect(host=str(folder), port=pooler.port, user="app", password=PASSWORDS["app"], dbname="bench") as client:
        assert client.execute("SELECT 1").fetchone() == (1,)
