"""Whoever reaches the admin address cannot use up what clients and servers need."""

import contextlib
import socket
import time

import pytest

from waiting import eventually

pytestmark = pytest.mark.poolhouse_only

MANY = 200
FEW = 100


def test_connections_that_say_nothing_are_few_and_closed(start):
    pooler = start()
    before = pooler.descriptors()
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", pooler.admin_port), 10)) for _ in range(MANY)]
        silent[0].sendall(b"GET /health HTTP/1.1\r\n")
        time.sleep(0.5)
        assert pooler.descriptors() <= before + FEW
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
