"""SCRAM-SHA-256-PLUS: logins that are bound to their TLS connection, on both sides of the pooler."""

import psycopg
import pytest

pytestmark = pytest.mark.poolhouse_only


def test_psql_and_psycopg_may_insist_on_channel_binding(start, certificates):
    pair = certificates.server
    pooler = start(tls="require", tls_cert=pair.certificate, tls_key=pair.key)
    with pooler.connect(sslmode="require", channel_binding="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    done = pooler.run("psql", "-XAtc", "SELECT 7", "sslmode=require channel_binding=require")
    assert done.stdout == "7\n", done.stdout
    pooler.connect(sslmode="require", channel_binding="disable").close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        pooler.connect(sslmode="require", channel_binding="require", password="wrong")


@pytest.mark.parametrize("hash_name", ["sha256", "sha384", "sha512"])
def test_the_hash_of_the_certificates_signature_is_used(start, certificates, hash_name):
    pair = certificates.authority.issue(hash_name, "localhost", "DNS:localhost", key=("-newkey", "rsa:2048", "-nodes"), digest=hash_name)
    pooler = start(tls_cert=pair.certificate, tls_key=pair.key)
    pooler.connect(sslmode="require", channel_binding="require").close()


def test_without_tls_there_is_nothing_to_bind_to(start):
    with pytest.raises(psycopg.OperationalError, match="channel binding"):
        start().connect(sslmode="disable", channel_binding="require")


def test_poolhouse_binds_its_own_logins(start, secure_cluster, certificates):
    root = certificates.authority.certificate
    url = f"{secure_cluster.url()}?sslmode=verify-full&sslrootcert={root}&channel_binding=require"
    with start(databases={"bench": {"url": url}}).connect() as connection:
        assert connection.execute("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone() == (True,)


def test_a_server_that_cannot_be_bound_to_is_refused_where_it_must(start, cluster):
    pooler = start(databases={"bench": {"url": cluster.url() + "?channel_binding=require"}}, unavailable_wait_time="2s")
    with pytest.raises(psycopg.OperationalError, match="channel_binding=require"), pooler.connect() as connection:
        connection.execute("SELECT 1")
