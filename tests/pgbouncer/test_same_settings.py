"""Single settings of a pgbouncer.ini, served by PgBouncer and by `poolhouse pgbouncer`: each does the same."""

import os
import re
import subprocess

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS, give_away
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.parametrize("logged", [0, 1])
def test_errors_of_the_pooler_are_logged_if_log_pooler_errors_says_so(serve_ini, logged):
    pooler = serve_ini(log_pooler_errors=logged)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(database="nowhere")
    eventually("the end is logged", lambda: re.search(r"closing because: no such database: nowhere \(age=\d+s\)", pooler.log()))
    assert ("pooler error: no such database: nowhere" in pooler.log()) == bool(logged)


def test_the_unix_socket_may_have_an_abstract_name(serve_ini, folder):
    name = f"poolhouse-{os.urandom(8).hex()}"
    pooler = serve_ini(unix_socket_dir=f"@{name}")
    with w.Wire(f"\0{name}/.s.PGSQL.{pooler.port}").login("app", PASSWORDS["app"]) as client:
        assert client.query("SELECT 1") == [["1"]]
    assert not list(folder.glob(".s.PGSQL*"))


def test_clients_use_the_curve_that_is_named(serve_ini, folder, certificates):
    for name, source in (("cert.pem", certificates.server.certificate), ("key.pem", certificates.server.key)):
        folder.joinpath(name).write_bytes(open(source, "rb").read())
        give_away(folder / name)
    pooler = serve_ini(client_tls_sslmode="require", client_tls_cert_file="cert.pem", client_tls_key_file="key.pem",
                       client_tls_ecdhcurve="secp384r1")

    def agrees(curve):
        command = ["openssl", "s_client", "-starttls", "postgres", "-connect", f"127.0.0.1:{pooler.port}", "-groups", curve]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=20).returncode == 0

    assert [agrees(curve) for curve in ("P-384", "P-256", "X25519")] == [True, False, False]


def test_tracked_parameters_follow_their_client(serve_ini):
    pooler = serve_ini(pool_mode="transaction", default_pool_size=1, track_extra_parameters="IntervalStyle")
    with pooler.connect() as one, pooler.connect() as other:
        one.execute("SET IntervalStyle = 'iso_8601'")
        shown = [client.execute("SELECT '1 day'::interval::text").fetchone()[0] for client in (other, one, other)]
        assert shown == ["1 day", "P1D", "1 day"]
