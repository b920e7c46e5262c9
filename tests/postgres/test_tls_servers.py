"""TLS between the pooler and PostgreSQL: what each sslmode accepts and refuses."""

import threading
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def through(start, secure_cluster):
    """Starts a pooler in front of the cluster with TLS. The parameters go into the query part of the URL."""

    def start_through(parameters, user="app", host="127.0.0.1", **settings):
        url = f"{secure_cluster.url(user=user, host=host)}?{parameters}"
        return start(**{"databases": {"bench": {"url": url}}, "unavailable_wait_time": "2s", **settings})

    return start_through


ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


def is_encrypted(pooler):
    with pooler.connect() as connection:
        return connection.execute(ENCRYPTED).fetchone()[0]


def refusal(pooler):
    """The error of a client when no server can be opened."""
    with pytest.raises(psycopg.OperationalError) as raised, pooler.connect() as connection:
        connection.execute("SELECT 1")
    return str(raised.value)


@pytest.mark.quick
def test_no_sslmode_at_all_uses_tls_where_it_is_offered(through):
    assert is_encrypted(through(""))


@pytest.mark.timing
def test_a_server_without_tls_is_used_unless_it_is_demanded(start, cluster):
    assert not is_encrypted(start(databases={"bench": {"url": cluster.url() + "?sslmode=prefer"}}))
    pooler = start(databases={"bench": {"url": cluster.url() + "?sslmode=require"}})
    began = time.monotonic()
    assert "does not support TLS" in refusal(pooler)
    assert time.monotonic() - began < 5, "a retry cannot help, so no client waits"


def test_each_sslmode_connects_where_it_should(through, certificates):
    root = certificates.authority.certificate
    for parameters in ("sslmode=prefer", "sslmode=require", f"sslmode=verify-ca&sslrootcert={root}",
                       f"sslmode=verify-full&sslrootcert={root}", f"sslmode=require&sslrootcert={root}"):
        assert is_encrypted(through(parameters)), parameters


def test_disable_is_turned_away_by_a_server_that_insists(through):
    assert "no encryption" in refusal(through("sslmode=disable"))


def test_allow_and_prefer_try_the_other_way(through):
    assert is_encrypted(through("sslmode=allow"))
    # plainuser may not log in with TLS.
    assert not is_encrypted(through("sslmode=prefer", user="plainuser"))


def test_a_certificate_of_an_unknown_authority_is_refused(through, certificates):
    others = certificates.other_authority.certificate
    for mode in ("require", "verify-ca", "verify-full"):
        pooler = through(f"sslmode={mode}&sslrootcert={others}")
        assert "signed by nobody who is trusted" in refusal(pooler)


def test_another_host_is_refused_by_verify_full_only(through, secure_cluster, certificates):
    root = certificates.authority.certificate
    secure_cluster.show(certificates.elsewhere)
    assert is_encrypted(through(f"sslmode=verify-ca&sslrootcert={root}"))
    assert "not for this host name" in refusal(through(f"sslmode=verify-full&sslrootcert={root}"))
    secure_cluster.show(certificates.by_name_only)
    assert is_encrypted(through(f"sslmode=verify-full&sslrootcert={root}", host="localhost"))
    assert "not for this host name" in refusal(through(f"sslmode=verify-full&sslrootcert={root}"))


def test_a_certificate_without_alternative_names_may_name_its_host(through, secure_cluster, certificates):
    root = certificates.authority.certificate
    secure_cluster.show(certificates.common_name_only)
    assert is_encrypted(through(f"sslmode=verify-full&sslrootcert={root}", host="localhost"))
    assert "not for this host name" in refusal(through(f"sslmode=verify-full&sslrootcert={root}"))


def test_an_expired_certificate_is_refused(through, secure_cluster, certificates):
    secure_cluster.show(certificates.expired)
    assert "has expired" in refusal(through(f"sslmode=verify-ca&sslrootcert={certificates.authority.certificate}"))
    assert is_encrypted(through("sslmode=require"))


def test_a_self_signed_certificate_can_be_trusted_by_itself(through, secure_cluster, certificates):
    secure_cluster.show(certificates.self_signed)
    root = certificates.self_signed.certificate
    assert is_encrypted(through(f"sslmode=verify-full&sslrootcert={root}", host="localhost"))
    assert "not for this host name" in refusal(through(f"sslmode=verify-full&sslrootcert={root}"))


def test_poolhouse_shows_its_own_certificate(through, certificates):
    pair = certificates.client_other
    pooler = through(f"sslmode=require&sslcert={pair.certificate}&sslkey={pair.key}", user="app2", mode="session")
    assert "certificate authentication failed" in refusal(pooler)
    pair = certificates.authority.issue("client-app2", "app2")
    assert is_encrypted(through(f"sslmode=require&sslcert={pair.certificate}&sslkey={pair.key}", user="app2"))


def test_the_time_of_the_handshake_is_counted(through):
    pooler = through("sslmode=require")
    assert is_encrypted(pooler)
    count = pooler.metric("poolhouse_connect_phase_seconds_count", phase="tls")
    assert count == pooler.metric("poolhouse_connect_phase_seconds_count", phase="auth") >= 1


def test_a_cancel_request_goes_through_tls(through, secure_cluster):
    pooler = through("sslmode=require", max_size=1)
    with pooler.connect() as connection:
        thrown = []

        def run():
            try:
                connection.execute("SELECT pg_sleep(30)")
            except psycopg.errors.QueryCanceled as error:
                thrown.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        eventually("it runs", lambda: any("pg_sleep" in b.query and b.state == "active" for b in secure_cluster.backends()))
        connection.cancel_safe()
        thread.join(10)
        assert thrown and not thread.is_alive()
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_servers_with_tls_move_between_workers(through):
    """No answer is lost, doubled or mixed up: every answer repeats its question."""
    pooler = through("sslmode=require", workers=2, max_size=3)

    def ask(number):
        with pooler.wire(timeout=60) as client:
            for turn in range(150):
                size = (number * 7919 + turn * 104729) % 40000
                assert client.query(f"SELECT '{number} {turn}', repeat('x', {size})") == [[f"{number} {turn}", "x" * size]]
            done.append(number)

    done = []
    threads = [threading.Thread(target=ask, args=[number]) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(80)
    assert sorted(done) == list(range(12))
    assert pooler.metric("poolhouse_worker_moves_total") > 0


def test_bytes_in_the_clear_behind_the_agreement_are_not_believed(start):
    """A man in the middle answers for the server and adds a login of its own (CVE-2021-23222)."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        def answer():
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(8)[4:] == w.request(w.SSL_REQUEST)[4:]
                connection.sendall(b"S" + w.message(b"R", b"\0\0\0\0") + w.message(b"Z", b"I"))
                connection.settimeout(5)
                heard.append(connection.recv(1000))

        heard = []
        thread = threading.Thread(target=answer)
        thread.start()
        url = f"postgres://app:x@127.0.0.1:{listener.getsockname()[1]}/bench?sslmode=require"
        pooler = start(databases={"bench": {"url": url}}, unavailable_wait_time="1s", max_connecting=1)
        assert "unencrypted data" in refusal(pooler)
        thread.join(10)
        assert heard == [b""], "it says nothing to such a server"
