"""TLS handshakes that are wrong, cut off or never end."""

import os
import socket
import ssl
import time

import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def pooler(start, certificates):
    pair = certificates.server
    return start(tls_cert=pair.certificate, tls_key=pair.key, login_time="2s")


def request_tls(pooler):
    client = pooler.open()
    client.send(w.request(w.SSL_REQUEST))
    assert client.receive(1) == b"S"
    return client


def hello():
    """A ClientHello of a real library."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = ssl._create_unverified_context().wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def assert_fine(pooler):
    with pooler.connect(sslmode="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


GARBAGE = {
    "noise": os.urandom(3000),
    "zeros": bytes(3000),
    "start-up in the clear": w.startup(user="app", database="bench"),
    "query in the clear": w.query("SELECT 1"),
    "alert": bytes.fromhex("15030300020228"),
    "application data": bytes.fromhex("1703030020") + os.urandom(32),
    "endless record": bytes.fromhex("160303ffff") + bytes(20000),
    "handshake of 16 MB": bytes.fromhex("1603033000") + b"\x01\xff\xff\xff" + bytes(0x3000 - 4) + bytes.fromhex("1603033000") * 4,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_instead_of_a_handshake_ends_the_connection(pooler, name):
    with request_tls(pooler) as client:
        client.send(GARBAGE[name])
        assert client.closed_within(5)
    assert_fine(pooler)


def test_a_start_up_behind_the_request_for_tls_is_not_taken_for_the_clients(pooler):
    """CVE-2021-23214: a man in the middle sends it before the client's handshake begins."""
    with pooler.open() as client:
        client.send(w.request(w.SSL_REQUEST) + w.startup(user="app", database="bench"))
        assert b"unencrypted" in client.socket.recv(4096)
        assert client.closed_within(5)
    assert_fine(pooler)


def test_a_handshake_cut_off_at_any_byte_leaves_nothing_behind(pooler):
    pooler.settle()
    before = pooler.descriptors()
    greeting = hello()
    for end in range(0, len(greeting), max(1, len(greeting) // 60)):
        client = request_tls(pooler)
        client.send(greeting[:end])
        client.close()
    eventually("all are closed", lambda: pooler.descriptors() <= before)
    assert_fine(pooler)


def test_a_handshake_in_single_bytes_succeeds(pooler):
    with request_tls(pooler) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        connection = ssl._create_unverified_context().wrap_bio(incoming, outgoing)
        while True:
            try:
                connection.do_handshake()
                break
            except ssl.SSLWantReadError:
                for byte in outgoing.read():
                    client.send(bytes([byte]))
                incoming.write(client.socket.recv(65536))
        connection.write(w.startup(user="app", database="bench"))
        for byte in outgoing.read():
            client.send(bytes([byte]))
        incoming.write(client.socket.recv(65536))
        assert connection.read(9)[:1] == b"R"


@pytest.mark.parametrize("said", [b"", b"\x16", hello()[:-1], hello()], ids=["nothing", "one byte", "almost all", "the first half"])
def test_a_handshake_that_never_ends_is_ended(pooler, said):
    with request_tls(pooler) as client:
        client.send(said)
        began = time.monotonic()
        assert client.closed_within(8)
        assert time.monotonic() - began > 1
    assert_fine(pooler)


def test_records_that_were_tampered_with_end_the_connection(pooler):
    with request_tls(pooler) as client:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        connection = ssl._create_unverified_context().wrap_bio(incoming, outgoing)
        while True:
            try:
                connection.do_handshake()
                break
            except ssl.SSLWantReadError:
                client.send(outgoing.read())
                incoming.write(client.socket.recv(65536))
        connection.write(w.startup(user="app", database="bench"))
        record = bytearray(outgoing.read())
        record[-1] ^= 1
        client.send(bytes(record))
        assert client.closed_within(5)
    assert_fine(pooler)


def test_clients_that_vanish_after_the_handshake_give_their_servers_back(start, certificates):
    pair = certificates.server
    pooler = start(tls_cert=pair.certificate, tls_key=pair.key, max_size=1)
    for _ in range(10):
        with pooler.open() as client:
            client.send(w.request(w.SSL_REQUEST))
            assert client.receive(1) == b"S"
            client.socket = ssl._create_unverified_context().wrap_socket(client.socket)
            client.login("app", "app secret")
            client.query("BEGIN")
    assert_fine(pooler)
