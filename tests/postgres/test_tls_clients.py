"""TLS between clients and the pooler: every sslmode, and certificates of both sides."""

import signal
import ssl

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def secure(start, certificates):
    """Starts a pooler whose listener has TLS with the certificate `pair`."""

    def start_secure(pair=certificates.server, **settings):
        return start(tls_cert=pair.certificate, tls_key=pair.key, **settings)

    return start_secure


def is_encrypted(connection):
    return connection.pgconn.ssl_in_use


@pytest.mark.parametrize("sslmode", ["allow", "prefer", "require", "verify-ca", "verify-full"])
def test_every_sslmode_gets_through(secure, certificates, sslmode):
    pooler = secure(tls="require" if sslmode != "allow" else "allow")
    with pooler.connect(sslmode=sslmode, sslrootcert=str(certificates.authority.certificate)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert is_encrypted(connection) == (sslmode != "allow")


def test_allow_comes_with_tls_where_it_must(secure):
    """libpq tries without TLS, is refused, and connects again with TLS."""
    with secure(tls="require").connect(sslmode="allow") as connection:
        assert is_encrypted(connection)


def test_plain_clients_and_those_with_tls_share_a_listener(secure):
    pooler = secure(max_size=1)
    connections = [pooler.connect(sslmode=mode) for mode in ["disable", "require"] * 3]
    for round_number in range(20):
        for number, connection in enumerate(connections):
            assert connection.execute("SELECT %s", [round_number * 10 + number]).fetchone() == (round_number * 10 + number,)
    assert [is_encrypted(connection) for connection in connections] == [False, True] * 3
    for connection in connections:
        connection.close()


def test_where_tls_is_required_others_are_told_so(secure):
    pooler = secure(tls="require")
    with pytest.raises(psycopg.OperationalError, match="TLS is required here"):
        pooler.connect(sslmode="disable")


@pytest.mark.quick
def test_the_pooler_is_recognized_by_its_certificate(secure, certificates):
    ours, others = str(certificates.authority.certificate), str(certificates.other_authority.certificate)
    pooler = secure()
    for mode in ("verify-ca", "verify-full"):
        with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
            pooler.connect(sslmode=mode, sslrootcert=others)
    pooler = secure(certificates.elsewhere)
    with pytest.raises(psycopg.OperationalError, match="does not match host name"):
        pooler.connect(sslmode="verify-full", sslrootcert=ours)
    pooler.connect(sslmode="verify-ca", sslrootcert=ours).close()
    pooler = secure(certificates.expired)
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        pooler.connect(sslmode="verify-ca", sslrootcert=ours)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(secure, version):
    name = version.name.replace("_", ".")
    with secure().connect(sslmode="require", ssl_min_protocol_version=name, ssl_max_protocol_version=name) as connection:
        assert connection.execute("SELECT repeat('x', 1000000)").fetchone() == ("x" * 1_000_000,)


def test_older_versions_are_refused(secure):
    with pytest.raises(psycopg.OperationalError):
        secure().connect(sslmode="require", ssl_min_protocol_version="TLSv1", ssl_max_protocol_version="TLSv1.1")


def test_direct_tls_needs_no_request(secure, certificates):
    if psycopg.pq.version() < 170000:
        pytest.skip("this libpq has no sslnegotiation")
    pooler = secure(tls="require")
    root = str(certificates.authority.certificate)
    with pooler.connect(sslmode="verify-full", sslrootcert=root, sslnegotiation="direct") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_direct_tls_without_the_protocols_name_is_refused(secure):
    """A web browser must not be able to send anything here."""
    pooler = secure()
    pooler.connect(sslmode="require").close()
    context = ssl._create_unverified_context()
    with pooler.open() as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        client.send(w.startup(user="app", database="bench"))
        assert "protocol" in client.error().text
        assert client.closed_within(5)


def test_psql_comes_in_with_tls_and_copies(secure, certificates):
    pooler = secure(tls="require")
    root = certificates.authority.certificate
    done = pooler.run("psql", "-X", "-v", "ON_ERROR_STOP=1", "-c", "\\conninfo", "-c", "SELECT count(*) FROM generate_series(1, 100000)",
                      "-c", "COPY (SELECT repeat('y', 1000) FROM generate_series(1, 20000)) TO STDOUT",
                      f"sslmode=verify-full sslrootcert={root}")
    assert done.returncode == 0 and "TLS" in done.stdout, done.stdout[:2000]
    assert done.stdout.count("y" * 1000) == 20000


# -- client certificates


def shown(pair):
    return {"sslmode": "require", "sslcert": str(pair.certificate), "sslkey": str(private(pair.key))}


def private(path):
    path.chmod(0o600)
    return path


def test_a_certificate_lets_in_the_user_it_names_and_no_other(secure, certificates):
    users = {"app": {"certificate": True}, "app2": {"certificate": True}, "md5user": PASSWORDS["md5user"]}
    pooler = secure(users=users, tls_client_ca=certificates.authority.certificate)
    with pooler.connect(password="none", **shown(certificates.client_app)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    for user, more in [("app", shown(certificates.client_other)), ("app2", shown(certificates.client_app)),
                       ("app", {"sslmode": "require"}), ("app", {"sslmode": "disable"})]:
        with pytest.raises(psycopg.OperationalError, match="certificate authentication failed"):
            pooler.connect(user, "none", **more)
    # Other users log in with passwords, with a certificate or without.
    pooler.connect("md5user", sslmode="require").close()
    pooler.connect("md5user", **shown(certificates.client_other)).close()


def test_a_certificate_of_an_unknown_authority_ends_the_handshake(secure, certificates):
    pooler = secure(tls_client_ca=certificates.authority.certificate)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(**shown(certificates.client_stranger))
    eventually("the log says so", lambda: "TLS failed" in pooler.log() and "nobody who is trusted" in pooler.log())
    pooler.connect(sslmode="require").close()


def test_where_a_certificate_is_required_a_password_is_not_enough(secure, certificates):
    pooler = secure(tls="require", tls_client_ca=certificates.authority.certificate, tls_client_auth="require")
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(sslmode="require")
    pooler.connect(**shown(certificates.client_other)).close()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        pooler.connect(password="wrong", **shown(certificates.client_other))


# -- replaced certificates


def serial_number(pooler):
    with pooler.open() as client:
        client.send(w.request(w.SSL_REQUEST))
        assert client.receive(1) == b"S"
        client.socket = ssl._create_unverified_context().wrap_socket(client.socket)
        return hash(client.socket.getpeercert(binary_form=True))


def test_a_new_certificate_is_shown_after_a_reload_and_no_client_is_cut_off(secure, certificates, tmp_path):
    live = type(certificates.server)(tmp_path / "live.pem", tmp_path / "live.key")

    def lay_down(pair):
        for source, target in ((pair.certificate, live.certificate), (pair.key, live.key)):
            target.write_bytes(source.read_bytes())

    lay_down(certificates.server)
    pooler = secure(live, tls="require")
    old = serial_number(pooler)
    with pooler.connect(sslmode="require") as connection:
        lay_down(certificates.elsewhere)
        pooler.signal(signal.SIGHUP)
        eventually("the new certificate is shown", lambda: serial_number(pooler) != old)
        assert connection.execute("SELECT 1").fetchone() == (1,)
        # Logins are bound to the hash of the new certificate.
        pooler.connect(sslmode="require", channel_binding="require").close()
        new = serial_number(pooler)
        live.key.write_text("no key")
        pooler.signal(signal.SIGHUP)
        eventually("the mistake is told", lambda: "no private key" in pooler.log())
        assert serial_number(pooler) == new
        assert connection.execute("SELECT 2").fetchone() == (2,)
