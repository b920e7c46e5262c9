"""The first messages of a connection: what is declined, negotiated and refused."""

import struct

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS


def test_an_ssl_request_is_declined_and_start_up_goes_on(start):
    pooler = start()
    with pooler.open() as client:
        client.send(w.request(w.SSL_REQUEST))
        assert client.receive(1) == b"N"
        client.login("app", PASSWORDS["app"])
        assert client.query("SELECT 1") == [["1"]]


def test_a_gssenc_request_is_declined_and_start_up_goes_on(start):
    pooler = start()
    with pooler.open() as client:
        client.send(w.request(w.GSSENC_REQUEST))
        assert client.receive(1) == b"N"
        client.send(w.request(w.SSL_REQUEST))
        assert client.receive(1) == b"N"
        client.login("app", PASSWORDS["app"])
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_requests_for_encryption_without_end_are_not_answered_for_ever(start):
    pooler = start()
    with pooler.open() as client:
        try:
            for _ in range(1000):
                client.send(w.request(w.SSL_REQUEST))
                if client.receive(1) != b"N":
                    break
            else:
                raise AssertionError("a thousand SSLRequests were answered")
        except (w.Closed, OSError):
            pass


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("sslmode", ["require", "verify-full"])
def test_a_client_that_insists_on_tls_is_told_no(start, sslmode):
    pooler = start()
    with pytest.raises(psycopg.OperationalError, match="(?i)ssl"):
        pooler.connect(sslmode=sslmode)


@pytest.mark.quick
@pytest.mark.poolhouse_only
@pytest.mark.parametrize("version", [(3 << 16) | 3, (3 << 16) | 9999])
def test_a_newer_minor_version_is_negotiated_down_to_3_2(start, version):
    pooler = start()
    with pooler.open() as client:
        client.login("app", PASSWORDS["app"], version=version)
        # The highest minor version. PostgreSQL sends the whole number since 3.2, and only the minor part before.
        assert struct.unpack_from("!II", client.negotiated) == (w.PROTOCOL_3_2, 0)
        assert len(client.key) > 8
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_protocol_3_2_is_spoken_whatever_the_server_speaks(start):
    pooler = start()
    with pooler.open() as client:
        client.login("app", PASSWORDS["app"], version=w.PROTOCOL_3_2)
        assert not hasattr(client, "negotiated") and len(client.key) > 8
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_libpq_may_insist_on_protocol_3_2(start):
    if psycopg.pq.version() < 180000:
        pytest.skip("libpq is too old")
    pooler = start()
    with pooler.connect(min_protocol_version="3.2", max_protocol_version="3.2") as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_protocol_options_it_does_not_know_are_named(start):
    pooler = start()
    with pooler.open() as client:
        client.login("app", PASSWORDS["app"], version=w.PROTOCOL_3_0, **{"_pq_.compression": "zstd", "_pq_.other": "1"})
        count = struct.unpack_from("!I", client.negotiated, 4)[0]
        assert count == 2
        assert client.negotiated[8:] == b"_pq_.compression\0_pq_.other\0"
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("version", [2 << 16, 4 << 16, 1 << 16])
def test_another_major_version_is_refused_with_a_word(start, version):
    pooler = start()
    with pooler.open() as client:
        client.send(w.startup(version=version, user="app", database="bench"))
        error = client.error()
        assert error.severity == "FATAL" and error.sqlstate in ("0A000", "08P01"), error
        assert client.closed_within(5)


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("value", ["false", "off", "no", "0"])
def test_replication_switched_off_is_an_ordinary_connection(start, value):
    pooler = start()
    with pooler.wire(replication=value) as client:
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_unknown_parameters_do_no_harm(start):
    """JDBC and other drivers send extra_float_digits and more."""
    pooler = start()
    with pooler.wire(extra_float_digits="3") as client:
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_a_start_up_without_a_user_is_refused(start):
    pooler = start()
    with pooler.open() as client:
        client.send(w.startup(database="bench"))
        error = client.error()
        assert error.severity == "FATAL" and error.sqlstate in ("28000", "08P01")


def test_without_a_database_the_users_name_is_taken(start):
    """The upstream has no database of that name: the client must be told, at the login or later."""
    pooler = start(databases={"bench": {}, "app": {}}, unavailable_wait_time="1s")
    with pooler.open() as client, pytest.raises(w.ServerError, match='"app"'):
        client.send(w.startup(user="app"))
        client.authenticate("app", PASSWORDS["app"])
        answers, _ = client.until_ready()
        for kind, body in answers:
            if kind == b"E":
                raise w.ServerError(w.error_fields(body))
        client.query("SELECT 1")


def test_every_client_gets_a_cancel_key_of_its_own(start):
    pooler = start(max_size=1)
    clients = [pooler.wire() for _ in range(20)]
    assert len({client.key for client in clients}) == 20
    assert all(len(client.key) == 8 for client in clients)
    for client in clients:
        client.close()


def test_start_up_in_single_bytes(start):
    pooler = start()
    with pooler.open() as client:
        client.socket.setsockopt(w.socket.IPPROTO_TCP, w.socket.TCP_NODELAY, 1)
        for byte in w.startup(user="app", database="bench"):
            client.send(bytes([byte]))
        client.authenticate("app", PASSWORDS["app"])
        client.until_ready()
        for byte in w.parse("SELECT 7") + w.bind() + w.execute() + w.SYNC:
            client.send(bytes([byte]))
        answers, _ = client.until_ready()
        assert [w.row(body) for kind, body in answers if kind == b"D"] == [["7"]]


@pytest.mark.poolhouse_only
def test_a_database_and_a_user_with_odd_names(start, cluster):
    odd = "ünï code; \"x\""
    pooler = start(databases={odd: {"url": cluster.url()}}, users={odd: "p w\u00fc"})
    with pooler.wire(odd, "p w\u00fc", odd) as client:
        assert client.query("SELECT current_database()") == [["bench"]]
