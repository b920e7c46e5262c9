"""Functions that are frozen between two calls: what is known of them when their time is over."""

import signal
import subprocess
import sys
import time

import pytest

from redis_fixtures import pool, server
from waiting import eventually

pytestmark = pytest.mark.poolhouse_only

CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
connection.sendall(b"PING\\r\\n")
assert connection.recv(99) == b"+PONG\\r\\n"
print(flush=True)
sys.stdin.readline()
connection.close()
sys.stdin.readline()
"""


def client(port):
    """A process with a connection that has asked something; a line makes it close."""
    made = subprocess.Popen([sys.executable, "-c", CLIENT, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert made.stdout.readline()
    return made


def test_it_is_counted_who_does_not_close_when_told_to(pool):
    """A frozen process does not: its kernel acknowledges our end, and nobody closes its own."""
    poolhouse = pool(client_idle_time="300ms")
    frozen, polite = client(poolhouse.port), client(poolhouse.port)
    try:
        frozen.send_signal(signal.SIGSTOP)
        eventually("both are sent away", lambda: poolhouse.metric("poolhouse_client_evictions_total", reason="client_idle_time") == 2)
        polite.stdin.write(b"\n")
        polite.stdin.flush()
        silent = lambda: poolhouse.metric("poolhouse_client_closes_unacknowledged_total", reason="client_idle_time")
        descriptors = poolhouse.descriptors()
        eventually("one did not close", lambda: silent() == 1, seconds=15)
        eventually("both sockets are closed", lambda: poolhouse.descriptors() <= descriptors - 2)
        assert silent() == 1
    finally:
        for process in (frozen, polite):
            process.kill()
            process.wait()


def test_who_goes_by_itself_is_not_counted(pool):
    poolhouse = pool(client_idle_time="1s")
    for _ in range(3):
        poolhouse.connect().ping()
    time.sleep(0.2)
    assert poolhouse.metric("poolhouse_client_closes_unacknowledged_total") == 0
