"""Inis as images, operators and scripts write them: what PgBouncer takes is taken here, too."""

import psycopg
import pytest

from support.ini_pooler import IniPooler
from support.postgres_cluster import PASSWORDS, give_away
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

HEROKU_CIPHERS = "HIGH:!ADH:!AECDH:!LOW:!EXP:!MD5:!3DES:!SRP:!PSK:@STRENGTH"


def host(cluster, more=""):
    return f"host=127.0.0.1 port={cluster.port} dbname=bench {more}"


def works(pooler, **how):
    with pooler.connect(**how) as client:
        return client.execute("SELECT current_user").fetchone()[0]


def soon(pooler, **how):
    """The user as whom a client is let in, once it is."""
    def try_once():
        try:
            return works(pooler, **how)
        except psycopg.OperationalError:
            return None

    return eventually("a client is let in", try_once)


class WithoutDatabases(IniPooler):
    """Its ini has no entry in [databases]."""

    def write(self, **settings):
        super().write(**settings)
        text = self.ini.read_text()
        entry = next(line for line in text.splitlines() if line.startswith("bench = "))
        self.ini.write_text(text.replace(entry, ""))


def test_databases_may_come_later(kind, folder, cluster):
    """A list of databases that another program writes, such as consul, is empty at first."""
    pooler = WithoutDatabases(kind, folder, cluster).start(admin_users="app")
    try:
        with pytest.raises(psycopg.OperationalError, match="no such database"):
            pooler.connect()
        with pooler.connect(database="pgbouncer") as console:
            assert console.execute("SHOW DATABASES").fetchall()[0][0] == "pgbouncer"
        IniPooler.write(pooler, admin_users="app")
        pooler.reload()
        assert soon(pooler) == "app"
    finally:
        pooler.stop()


def test_a_password_without_a_user_has_no_effect(serve_ini, cluster):
    """The image of Bitnami writes only a password."""
    pooler = serve_ini(databases={"bench": host(cluster, "password=another")})
    assert works(pooler) == "app"


def test_undocumented_words_of_entries_are_taken(serve_ini, cluster):
    entry = host(cluster, "application_name=ours").replace(str(cluster.port), f"{cluster.port},1")
    pooler = serve_ini(databases={"bench": entry})
    assert works(pooler) == "app"


@pytest.mark.parametrize("settings", [
    {"default_pool_size": 0}, {"server_lifetime": 0}, {"max_packet_size": 4294967295}, {"max_client_conn": 99999},
    {"server_tls_sslmode": "prefer", "server_tls_protocols": "all", "server_tls_ciphers": HEROKU_CIPHERS},
    {"listen_backlog": 0},
], ids=lambda settings: next(iter(settings)))
def test_values_at_the_edge_are_taken(serve_ini, settings):
    pooler = serve_ini(**settings)
    assert works(pooler) == "app"
    assert works(pooler) == "app"


def test_a_size_of_zero_is_no_limit(serve_ini):
    pooler = serve_ini(default_pool_size=0)
    clients = [pooler.connect() for _ in range(25)]
    for client in clients:
        client.execute("BEGIN")
        client.execute("SELECT 1")
    for client in clients:
        client.close()


def test_a_life_time_of_zero_has_each_server_used_once(serve_ini):
    pooler = serve_ini(server_lifetime=0, pool_mode="transaction")
    with pooler.connect() as client:
        seen = [client.execute("SELECT pg_backend_pid(), pg_sleep(0.01)").fetchone()[0] for _ in range(4)]
    assert len(set(seen)) == 4


def test_lines_of_the_user_list_that_cannot_be_used_do_not_stop_the_others(serve_ini):
    pooler = serve_ini()
    (pooler.directory / "userlist.txt").write_text(
        f'"app" "old"\n"empty" ""\n"app2" "{PASSWORDS["app2"]}"\n"app" "{PASSWORDS["app"]}"\nnonsense\n')
    give_away(pooler.directory / "userlist.txt")
    pooler.reload()
    assert soon(pooler, user="app2") == "app2"
    assert soon(pooler) == "app"
    for user, password in (("app", "old"), ("empty", "")):
        with pytest.raises(psycopg.OperationalError):
            pooler.connect(user=user, password=password)
    if pooler.is_poolhouse:
        assert "userlist.txt:5:1: " in pooler.log(), pooler.log()


def test_databases_without_a_user_for_lookups_have_the_listed_ones(serve_ini, cluster):
    pooler = serve_ini(
        databases={"bench": host(cluster, "auth_user=app"), "other": host(cluster).replace("=bench", "=other")},
        auth_query="SELECT rolname, rolpassword FROM pg_authid WHERE rolname = $1")
    for name in ("bench", "other"):
        assert works(pooler, database=name) == "app"


def test_all_other_names_may_be_one_database(serve_ini, cluster):
    pooler = serve_ini(databases={"*": host(cluster)})
    with pooler.connect(database="whatever") as client:
        assert client.execute("SELECT current_database()").fetchone() == ("bench",)


def test_an_error_of_a_rule_names_its_line(serve_ini, kind):
    if kind == "pgbouncer":
        pytest.skip("it leaves the line out")
    pooler = serve_ini()
    (pooler.directory / "hba.conf").write_text("local all all trust\nhost all all 0.0.0.0/0 nonsense\n")
    pooler.ini.write_text(pooler.ini.read_text().replace("auth_type = md5", "auth_type = hba\nauth_hba_file = hba.conf"))
    for path in (pooler.ini, pooler.directory / "hba.conf"):
        give_away(path)
    pooler.reload()
    eventually("the line is named", lambda: "hba.conf:2:" in pooler.log())


def test_idle_servers_of_some_users_do_not_keep_others_out(serve_ini, cluster):
    """Servers kept by min_pool_size take all that the database may have; a further user needs one."""
    pooler = serve_ini(databases={"bench": host(cluster)}, min_pool_size=2, max_db_connections=4, query_wait_timeout=8,
                       auth={user: PASSWORDS[user] for user in ("app", "app2", "plainuser")})
    for user in ("app", "app2"):
        assert works(pooler, user=user) == user
    if pooler.is_poolhouse:
        eventually("the minimum is there", lambda: len(cluster.backends("app", "app2")) == 4)
    assert works(pooler, user="plainuser") == "plainuser"
    assert works(pooler, user="app") == "app"
