"""The configuration files that Kubernetes operators write for PgBouncer (tests/pgbouncer/operators)."""

import pathlib
import shutil
import signal
import socket

import pytest

from support import pooler

pytestmark = pytest.mark.poolhouse_only

FILES = pathlib.Path(__file__).parent / "operators"
# The program's argument, the user that looks passwords up, the function for that, and where certificates belong.
OPERATORS = {
    "cloudnative-pg": ("pgbouncer.ini", "cnpg_pooler_pgbouncer", "public", "user_search", {
        "client-ca/ca.crt": "authority", "client-tls/tls.crt": "certificate", "client-tls/tls.key": "key", "server-tls/ca.crt": "authority"}),
    "crunchy": ("~postgres-operator.ini", "_crunchypgbouncer", "pgbouncer", "get_auth", {
        "~postgres-operator/frontend-ca.crt": "authority", "~postgres-operator/frontend-tls.crt": "certificate",
        "~postgres-operator/frontend-tls.key": "key", "~postgres-operator/backend-ca.crt": "authority"}),
    "zalando": ("pgbouncer.ini", "pooler", "pooler", "user_lookup", {"tls/pgbouncer.crt": "certificate", "tls/pgbouncer.key": "key"}),
}
COLUMNS = {"user_search": "usename text, OUT passwd text", "get_auth": "username text, OUT password text", "user_lookup": "uname text, OUT phash text"}


def prepare_database(cluster, user, schema, function):
    """What the operator installs in the database: the user that looks up, and its function."""
    for database in ("bench", "postgres"):
        with cluster.superuser(database) as db:
            if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [user]).fetchone():
                db.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'lookup-secret'")
            db.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
            db.execute(f"CREATE OR REPLACE FUNCTION {schema}.{function}(who text, OUT {COLUMNS[function]}) RETURNS SETOF record LANGUAGE sql SECURITY DEFINER "
                       "SET search_path = pg_catalog AS $$ SELECT usename::text, passwd FROM pg_shadow WHERE usename = who $$")
            db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {user}")


def place(folder, operator, certificates, values):
    """The operator's files, filled in, as the pod has them."""
    for source in sorted(path for path in (FILES / operator).rglob("*") if path.is_file()):
        text = source.read_text()
        for name, value in {**values, "FOLDER": folder}.items():
            text = text.replace(f"{{{name}}}", str(value))
        target = folder / source.relative_to(FILES / operator)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    sources = {"authority": certificates.authority.certificate, "certificate": certificates.server.certificate, "key": certificates.server.key}
    for name, kind in OPERATORS[operator][4].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(sources[kind], folder / name)
    for name in ("run", "log"):
        (folder / name).mkdir(exist_ok=True)


@pytest.fixture
def serve(start, secure_cluster, certificates):
    """Starts the program called `pgbouncer` with the files of an operator."""

    def serve(operator):
        ini, user, schema, function, _ = OPERATORS[operator]
        prepare_database(secure_cluster, user, schema, function)
        made = start.unstarted()
        folder = made.directory / "pod"
        place(folder, operator, certificates, {"HOST": "localhost", "PORT": secure_cluster.port, "LISTEN_PORT": made.port})
        program = made.directory / "pgbouncer"
        program.symlink_to(pooler.BINARY)
        made.launch([str(program), str(folder / ini)])
        return made

    return serve


@pytest.mark.parametrize("operator", OPERATORS)
def test_clients_log_in_with_the_databases_passwords(serve, operator, certificates):
    served = serve(operator)
    with served.connect(sslmode="require") as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("app",)
        assert connection.pgconn.ssl_in_use
    with pytest.raises(Exception, match="password authentication failed|auth"):
        served.connect(password="wrong", sslmode="require")
    # What probes the port: it connects, and says nothing.
    socket.create_connection(("127.0.0.1", served.port), 5).close()
    # By this name Crunchy's second container finds it (`pkill --exact`).
    assert pathlib.Path(f"/proc/{served.process.pid}/comm").read_text() == "pgbouncer\n"
    # The operator has written the files anew.
    served.signal(signal.SIGHUP)
    with served.connect(sslmode="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    served.signal(signal.SIGINT)
    assert served.wait(20) == 0, served.log()
    served.process = None


def test_the_collector_of_crunchys_operator_reads_the_console(serve, secure_cluster):
    served = serve("crunchy")
    with served.connect(sslmode="require") as connection:
        connection.execute("SELECT 1")
    with served.connect("_crunchypgbouncer", "lookup-secret", "pgbouncer", sslmode="require") as console:
        pools = [row[0] for row in console.execute("SHOW POOLS").fetchall()]
        assert "bench" in pools
        with pytest.raises(Exception, match="admin"):
            console.execute("RELOAD")
