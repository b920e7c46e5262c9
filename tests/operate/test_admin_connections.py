"""Clients of the admin address cannot use up what clients and servers of the pooler need."""

import contextlib
import socket
import threading
import time

import pytest

from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

OPENED_CONNECTIONS = 200
MAX_ADMIN_CONNECTIONS = 100


@pytest.mark.timing
def test_connections_that_say_nothing_are_few_and_closed(start):
    pooler = start()
    before = pooler.descriptors()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", pooler.admin_port), 10)) for _ in range(OPENED_CONNECTIONS)]
        silent[0].sendall(b"GET /health HTTP/1.1\r\n")
        time.sleep(0.5)
        assert pooler.descriptors() <= before + MAX_ADMIN_CONNECTIONS
        with pooler.wire() as client:
            client.query("SELECT 1")
        silent[0].settimeout(15)
        while silent[0].recv(4096):
            pass
    eventually("others are answered again", lambda: pooler.get("/health") == (200, "ok\n"))


def test_a_connection_may_ask_one_thing_after_the_other(start):
    pooler = start()
    with socket.create_connection(("127.0.0.1", pooler.admin_port), 10) as several:
        for _ in range(3):
            several.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = several.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"ok\n")


def asks(connection):
    """The answer to a request, or nothing if the connection has ended."""
    try:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        return connection.recv(4096)
    except (BrokenPipeError, ConnectionResetError):
        return b""


def test_connections_that_are_kept_give_way_to_new_ones(start):
    pooler = start()
    with contextlib.ExitStack() as stack:
        def connect():
            return stack.enter_context(socket.create_connection(("127.0.0.1", pooler.admin_port), 10))

        kept = [connect() for _ in range(64)]
        assert all(asks(connection).startswith(b"HTTP/1.1 200") for connection in kept)
        over = threading.Event()

        def ask_again_and_again():
            while not over.wait(1):
                for connection in kept:
                    asks(connection)

        asking = threading.Thread(target=ask_again_and_again)
        asking.start()
        try:
            assert [asks(connect())[:12] for _ in range(5)] == [b"HTTP/1.1 200"] * 5
        finally:
            over.set()
            asking.join()
        # The connections that were evicted were closed in order, between two answers.
        ended = [connection for connection in kept if asks(connection) == b""]
        assert len(ended) >= 5


def test_a_connection_that_does_not_read_its_answers_keeps_no_new_one_out(start):
    pooler = start()
    with contextlib.ExitStack() as stack:
        lazy = stack.enter_context(socket.socket())
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", pooler.admin_port))
        lazy.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 300)
        kept = [stack.enter_context(socket.create_connection(("127.0.0.1", pooler.admin_port), 10)) for _ in range(63)]
        over = threading.Event()

        def read_a_little_and_keep_the_others():
            while not over.wait(0.1):
                # Reading keeps the kernel from giving the connection up.
                lazy.recv(100)
                for connection in kept:
                    asks(connection)

        assert all(asks(connection).startswith(b"HTTP/1.1 200") for connection in kept)
        working = threading.Thread(target=read_a_little_and_keep_the_others)
        working.start()
        try:
            with socket.create_connection(("127.0.0.1", pooler.admin_port), 20) as another:
                assert asks(another).startswith(b"HTTP/1.1 200")
        finally:
            over.set()
            working.join()
