"""Wrong or random input: it causes a clear error or a closed connection, and disturbs no other client."""

import contextlib
import os
import random
import socket
import struct
import threading
import time

import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS

TLS_HELLO = bytes.fromhex("16030100a5010000a10303") + bytes(range(160))
REFUSED = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x\r\n\r\n",
    "tls hello": TLS_HELLO,
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "mongodb": struct.pack("<iiii", 58, 1, 0, 2004) + bytes(42),
    "ssh": b"SSH-2.0-OpenSSH_9.2\r\n",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "length 0": struct.pack("!II", 0, w.PROTOCOL_3_0),
    "length 7": struct.pack("!I", 7) + b"abc",
    "length 4": struct.pack("!I", 4),
    "negative length": struct.pack("!iI", -1, w.PROTOCOL_3_0),
    "two gigabytes": struct.pack("!iI", 0x7FFFFFFF, w.PROTOCOL_3_0) + b"user\0",
    "ten megabytes": struct.pack("!iI", 10_000_000, w.PROTOCOL_3_0) + b"user\0",
    "no terminator": struct.pack("!iI", 17, w.PROTOCOL_3_0) + b"user\0app\0",
    "no value": struct.pack("!iI", 14, w.PROTOCOL_3_0) + b"user\0\0",
    "not utf-8": w.startup(user="app").replace(b"app", b"\xff\xfe\xfd"),
    "short cancel": w.request(w.CANCEL_REQUEST, b"abc"),
    "long cancel": w.request(w.CANCEL_REQUEST, bytes(5000)),
    "cancel without a client": w.request(w.CANCEL_REQUEST, bytes(8)),
    "long ssl request": w.request(w.SSL_REQUEST, b"abc"),
}


@pytest.fixture
def pair(start):
    """A pooler with a short login time, and a client that must not notice anything."""
    pooler = start(max_size=2, login_time="2s", max_wait_time="5s")
    with pooler.wire() as witness:
        witness.query("SELECT 1")
        yield pooler, witness
        assert witness.query("SELECT 'undisturbed'") == [["undisturbed"]]
        with pooler.wire() as other:
            assert other.query("SELECT 1") == [["1"]]


@pytest.mark.parametrize("bytes_sent", REFUSED.values(), ids=list(REFUSED))
def test_bytes_of_another_protocol_are_refused(pair, bytes_sent):
    pooler, _ = pair
    with pooler.open() as client:
        client.send(bytes_sent)
        assert client.closed_within(5)


@pytest.mark.timing
@pytest.mark.poolhouse_only
@pytest.mark.parametrize("bytes_sent", [REFUSED["http"], REFUSED["length 0"], REFUSED["two gigabytes"]],
                         ids=["http", "length 0", "two gigabytes"])
def test_an_impossible_first_message_is_ended_at_once_and_not_by_time_out(start, bytes_sent):
    pooler = start(login_time="30s")
    with pooler.open() as client:
        client.send(bytes_sent)
        assert client.closed_within(3)


def after_login(pooler, *parts):
    """Sends bytes to a logged-in connection. Returns the error, or None if the connection is closed or the bytes are
    ignored."""
    with pooler.wire() as client:
        try:
            client.send(*parts)
            while True:
                kind, body = client.take()
                if kind == b"E":
                    return w.ServerError(w.error_fields(body))
                if kind == b"Z":
                    return None
        except (w.Closed, ConnectionError):
            return None


BROKEN = {
    "unknown type": w.message(b"?", b"abc"),
    "a server's message": w.message(b"Z", b"I"),
    "length 3": b"Q" + struct.pack("!I", 3),
    "length 0": b"Q" + struct.pack("!I", 0),
    "negative length": b"Q" + struct.pack("!i", -5),
    "sync with a body": w.message(b"S", b"body"),
    "length of two gigabytes": b"S" + struct.pack("!I", 0x7FFFFFFF),
    "start-up again": w.startup(user="app", database="bench"),
    "password after login": w.message(b"p", b"secret\0"),
    "random": random.Random(7).randbytes(500),
}


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("bytes_sent", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_message_after_login_is_an_error_or_the_end(pair, bytes_sent):
    pooler, _ = pair
    error = after_login(pooler, bytes_sent)
    assert error is None or error.sqlstate in ("08P01", "54000", "0A000", "XX000"), error


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("bytes_sent", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_message_in_a_transaction_leaves_the_server_clean(start, cluster, bytes_sent):
    pooler = start(max_size=1, max_wait_time="5s")
    with pooler.wire() as client:
        client.query("BEGIN")
        client.send(bytes_sent)
        time.sleep(0.05)
    with pooler.wire() as other:
        assert other.query("SELECT 'clean'") == [["clean"]] and other.status == "I"


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("message", [w.message(b"P", b"no end"), w.message(b"B", b"\0"), w.message(b"E", b""),
                                     w.message(b"D", b"X"), w.message(b"C", b""), w.message(b"P", b"\0SELECT 1\0\xff\xff"),
                                     w.message(b"Q", b"SELECT 1"), w.message(b"Q", b""), w.message(b"F", b"\0")],
                         ids=["parse", "bind", "execute", "describe", "close", "parse types", "query", "query empty", "function"])
def test_a_message_that_is_too_short_for_its_fields_hurts_only_its_sender(pair, message):
    pooler, _ = pair
    with pooler.wire() as client:
        client.send(message, w.SYNC)
        try:
            kind, body = client.take()
            while kind != b"E":
                kind, body = client.take()
        except (w.Closed, OSError):
            pass


@pytest.mark.poolhouse_only
def test_too_large_a_start_up_is_refused(pair):
    pooler, _ = pair
    with pooler.open() as client:
        client.send(w.startup(user="app", database="bench", application_name="x" * 9_000)[:16])
        try:
            error = client.error()
            assert error.sqlstate in ("08P01", "54000")
        except w.Closed:
            pass


def test_hundreds_of_random_connections_disturb_no_client(pair):
    pooler, witness = pair
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
    print(f"replay with TEST_SEED={seed}")
    chance = random.Random(seed)
    whole = w.startup(user="app", database="bench") + w.message(b"p", b"x") + w.query("SELECT 1")
    for number in range(300):
        client = pooler.open()
        data = bytearray(whole[: chance.randrange(1, len(whole))])
        for _ in range(chance.randrange(4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        client.send(bytes(data))
        chance.choice([client.close, client.vanish])()
        if number % 25 == 0:
            assert witness.query(f"SELECT {number}") == [[str(number)]]


def test_hundreds_of_random_conversations_leave_servers_clean(pair):
    pooler, witness = pair
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
    print(f"replay with TEST_SEED={seed}")
    chance = random.Random(seed)
    types = b"QPBEDCSHFdcfXp" + bytes(range(256))
    for number in range(150):
        with pooler.wire() as client, contextlib.suppress(OSError):
            for _ in range(chance.randrange(1, 6)):
                kind = types[chance.randrange(len(types) if chance.random() < 0.3 else 14)]
                client.send(w.message(bytes([kind]), chance.randbytes(chance.randrange(40))))
            time.sleep(0.002)
        if number % 10 == 0:
            assert witness.query(f"SELECT {number}") == [[str(number)]]


def test_a_crowd_of_silent_connections_does_not_keep_others_out(pair):
    pooler, witness = pair
    crowd = [pooler.open() for _ in range(500)]
    assert witness.query("SELECT 1") == [["1"]]
    with pooler.wire() as other:
        assert other.query("SELECT 1") == [["1"]]
    for client in crowd:
        client.close()


@pytest.mark.poolhouse_only
def test_descriptors_do_not_leak(start):
    pooler = start(max_size=2, login_time="1s")
    with pooler.wire() as client:
        client.query("SELECT 1")
        pooler.settle()
        before = pooler.descriptors()
        for _ in range(200):
            with pooler.open() as other:
                other.send(REFUSED["http"])
            with pooler.open() as other:
                other.send(w.startup(user="app", database="bench"))
        deadline = time.monotonic() + 5
        while pooler.descriptors() > before + 2:
            assert time.monotonic() < deadline, f"{before} descriptors before, {pooler.descriptors()} after"
            time.sleep(0.05)


@pytest.mark.poolhouse_only
def test_a_server_that_talks_nonsense_is_given_up_with_a_word(start):
    """The upstream may be anything: here it answers every start-up with HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as nonsense:
        def serve():
            while True:
                try:
                    connection, _ = nonsense.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + random.Random(1).randbytes(3000))

        threading.Thread(target=serve, daemon=True).start()
        url = f"postgres://app:x@127.0.0.1:{nonsense.getsockname()[1]}/bench"
        pooler = start(databases={"bench": {"url": url}}, unavailable_wait_time="1s", max_wait_time="5s")
        with pooler.open() as client, pytest.raises(w.ServerError) as raised:
            client.login("app", PASSWORDS["app"])
            client.query("SELECT 1")
        assert raised.value.sqlstate.startswith(("08", "57P")), raised.value
        nonsense.shutdown(socket.SHUT_RDWR)
