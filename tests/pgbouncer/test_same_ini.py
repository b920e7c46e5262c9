"""The same pgbouncer.ini, served by PgBouncer and by `poolhouse pgbouncer`: clients see the same."""

import contextlib

import psycopg
import pytest

from support import postgres_wire as w
from support.ini_pooler import IniPooler, run, stored_passwords
from support.postgres_cluster import PASSWORDS, free_port, give_away
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


def test_the_console_is_there_when_no_more_clients_get_in(serve_ini):
    pooler = serve_ini(max_client_conn=1, admin_users="app", stats_users="app2", auth=stored_passwords())

    def connect():
        # The connection that looked whether the port is open may be there for a moment.
        with contextlib.suppress(psycopg.OperationalError):
            return pooler.connect()

    with eventually("there is a place", connect):
        for user in ("app", "app2"):
            with pooler.connect(user=user, database="pgbouncer") as console:
                assert console.execute("SHOW LISTS").fetchall()
        for target in ({"user": "md5user", "database": "pgbouncer"}, {"user": "app2"}):
            with pytest.raises(psycopg.OperationalError):
                pooler.connect(**target)


@pytest.mark.parametrize("limit", ["max_user_client_connections", "max_db_client_connections"])
def test_limits_of_users_and_databases_are_not_for_admins_at_the_console(serve_ini, limit):
    pooler = serve_ini(admin_users="app", stats_users="app2", auth=stored_passwords(), **{limit: 1})

    def console(user):
        return pooler.connect(user=user, database="pgbouncer")

    with pooler.connect(), console("app"), console("app") as last:
        assert last.execute("SHOW LISTS").fetchall()
        with pytest.raises(psycopg.OperationalError):
            pooler.connect()


LOOK_UP = "SELECT who, stored FROM only_here WHERE who = $1"


@pytest.fixture
def list_of_users(cluster):
    """A list of users, in one database only, that a user of its own may read."""
    with cluster.superuser("other") as db:
        db.execute("DROP TABLE IF EXISTS only_here")
        db.execute("CREATE TABLE only_here (who text, stored text)")
        db.execute("INSERT INTO only_here VALUES ('app', %s), ('boss', 'boss-secret')", [PASSWORDS["app"]])
        db.execute("GRANT SELECT ON only_here TO app2")
    yield
    with cluster.superuser("other") as db:
        db.execute("DROP TABLE only_here")


@pytest.mark.parametrize("where", ["general", "entry", "autodb"])
def test_users_are_looked_up_at_the_server_of_the_entry_that_auth_dbname_names(serve_ini, cluster, list_of_users, where):
    there = f"host=127.0.0.1 port={cluster.port}"
    login = f"user=app2 password={PASSWORDS['app2']}"
    entry = " auth_dbname=list" if where == "entry" else ""
    databases = {"bench": f"{there} dbname=bench {login}{entry}", "list": f"{there} dbname=other"}
    if where == "autodb":
        databases = {"bench": databases["bench"], "*": there}
    general = {"general": {"auth_dbname": "list"}, "entry": {}, "autodb": {"auth_dbname": "other"}}[where]
    pooler = serve_ini(databases=databases, auth={"app2": PASSWORDS["app2"]}, auth_user="app2", auth_query=LOOK_UP,
                       admin_users="boss", **general)
    with pooler.connect() as client:
        assert client.execute("SELECT current_database()").fetchone() == ("bench",)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(password="wrong")
    if where != "entry":
        with pooler.connect(user="boss", password="boss-secret", database="pgbouncer") as console:
            console.execute("RELOAD")
        for user, password in (("boss", "wrong"), ("app", PASSWORDS["app"])):
            with pytest.raises(psycopg.OperationalError):
                pooler.connect(user=user, password=password, database="pgbouncer")


def test_that_server_is_asked_though_the_entrys_own_is_down(serve_ini, cluster, list_of_users):
    databases = {"bench": f"host=127.0.0.1 port={free_port()} auth_dbname=list",
                 "list": f"host=127.0.0.1 port={cluster.port} dbname=other"}
    pooler = serve_ini(databases=databases, auth={"app2": PASSWORDS["app2"]}, auth_user="app2", auth_query=LOOK_UP,
                       query_wait_timeout=1)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        pooler.connect(password="wrong")


def test_the_reserved_database_has_no_users_to_look_up(kind, folder, cluster):
    pooler = IniPooler(kind, folder, cluster)
    pooler.write(auth_user="app", auth_dbname="pgbouncer")
    status, said = run(kind, folder, pooler.ini)
    assert status == 1 and 'the reserved "pgbouncer" database as an auth_dbname' in said, said


def test_a_rule_for_replication_lets_no_ordinary_client_in(serve_ini, cluster, folder):
    forced = f"host=127.0.0.1 port={cluster.port} dbname=bench user=app password='{PASSWORDS['app']}'"
    (folder / "hba.conf").write_text("host replication app2 all trust\nhost all all all scram-sha-256\n")
    pooler = serve_ini(databases={"bench": forced}, auth_type="hba", auth_hba_file="hba.conf", auth=stored_passwords())
    for replication in ("of", "fal", "N", "0", "off"):
        with pooler.open() as client:
            client.send(w.startup(user="app2", database="bench", replication=replication))
            assert b"SCRAM-SHA-256" in client.expect(b"R"), replication
