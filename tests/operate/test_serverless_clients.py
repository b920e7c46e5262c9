"""Clients that freeze or vanish, as functions do. Poolhouse keeps them for the idle time, closes them, and counts those
that never answered. A stopped process differs from a frozen host: its kernel still acknowledges data. A host that
vanishes is simulated by a network namespace.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import pytest

from support.network_namespace import namespace  # noqa: F401
from support.redis_fixtures import guarded, pool, server
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

# A client that opens the given number of connections, logs in, reports that, and reads until one is closed; then it
# closes all.
CLIENT = """
import socket, sys
host, port, password, count = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
connections = [socket.create_connection((host, port), 20) for _ in range(count)]
for connection in connections:
    connection.settimeout(60)
    connection.sendall(b"*2\\r\\n$4\\r\\nAUTH\\r\\n$%d\\r\\n%s\\r\\n" % (len(password), password.encode()) if password else b"PING\\r\\n")
    assert connection.recv(100) in (b"+OK\\r\\n", b"+PONG\\r\\n")
print("ready", flush=True)
for connection in connections:
    while connection.recv(100):
        pass
    connection.close()
"""


@pytest.fixture
def client():
    """Starts such a client, in a network namespace or not, and returns its process."""
    started = []

    def start(port, count=1, host="127.0.0.1", password="", namespace=None):
        inside = ["ip", "netns", "exec", namespace] if namespace else []
        command = [*inside, sys.executable, "-c", CLIENT, host, str(port), password, str(count)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout.readline() == "ready\n"
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def unanswered(poolhouse, **labels):
    return poolhouse.metric("poolhouse_client_closes_unanswered_total", **labels)


def sent_away(poolhouse, reason):
    return poolhouse.metric("poolhouse_client_evictions_total", reason=reason)


@pytest.mark.timing
def test_a_client_that_closes_in_turn_has_answered(pool, client):
    poolhouse = pool(client_idle_time="1s")
    client(poolhouse.port, 20)
    eventually("all are closed", lambda: sent_away(poolhouse, "client_idle_time") == 20)
    time.sleep(6)
    assert unanswered(poolhouse) == 0


def test_a_stopped_client_is_closed_when_its_idle_time_is_over_and_counted(pool, client):
    poolhouse = pool(client_idle_time="1s")
    client(poolhouse.port, 3).send_signal(signal.SIGSTOP)
    eventually("all are closed", lambda: sent_away(poolhouse, "client_idle_time") == 3)
    assert unanswered(poolhouse) == 0
    eventually("they are counted", lambda: unanswered(poolhouse, reason="client_idle_time") == 3, seconds=8)
    assert unanswered(poolhouse) == 3


@pytest.mark.timing
def test_evicted_clients_are_counted_as_such(pool, client, server):
    # Each new client above the soft limit evicts one that has been idle for at least evict_min_idle.
    text = (f'[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\nsoft_limit = 4\nhard_limit = 20\nevict_min_idle = "500ms"\n'
            f'[[database]]\nurl = "{server.url()}"\n')
    poolhouse = pool(file=text)
    stopped = client(poolhouse.port, 4)
    stopped.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    client(poolhouse.port, 2)
    eventually("two are evicted", lambda: sent_away(poolhouse, "soft_limit") == 2)
    eventually("they are counted", lambda: unanswered(poolhouse, reason="soft_limit") == 2, seconds=8)


def descriptors(poolhouse):
    return len(list(pathlib.Path(f"/proc/{poolhouse.process.pid}/fd").iterdir()))


@pytest.mark.timing
def test_a_flood_of_stopped_clients_costs_no_more_than_256_descriptors(pool, client):
    poolhouse = pool(client_idle_time="2s", workers=1)
    before = descriptors(poolhouse)
    client(poolhouse.port, 700).send_signal(signal.SIGSTOP)
    eventually("all are closed", lambda: sent_away(poolhouse, "client_idle_time") == 700, seconds=10)
    eventually("256 are watched", lambda: before + 250 <= descriptors(poolhouse) <= before + 256 + 16)
    eventually("those that were watched are counted", lambda: unanswered(poolhouse) == 256, seconds=8)
    assert descriptors(poolhouse) <= before + 16


def user_timeout(poolhouse, connection):
    """TCP_USER_TIMEOUT, in milliseconds, of Poolhouse's end of a connection."""
    libc, mine = ctypes.CDLL(None, use_errno=True), connection.getsockname()
    process = os.pidfd_open(poolhouse.process.pid)
    try:
        for entry in pathlib.Path(f"/proc/{poolhouse.process.pid}/fd").iterdir():
            if not os.readlink(entry).startswith("socket:"):
                continue
            copy = libc.syscall(438, process, int(entry.name), 0)
            if copy < 0:
                pytest.skip(f"cannot look into another process: {os.strerror(ctypes.get_errno())}")
            with socket.socket(fileno=copy) as theirs, contextlib.suppress(OSError):
                if theirs.family == socket.AF_INET and theirs.getpeername() == mine:
                    return theirs.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
    finally:
        os.close(process)
    raise AssertionError("Poolhouse has no such connection")


@pytest.mark.parametrize("idle, milliseconds", [("310s", 600_000), ("1h", 3_660_000), ("off", 600_000)])
def test_a_silent_host_is_not_given_up_before_its_client_has_been_idle_for_too_long(pool, idle, milliseconds):
    poolhouse = pool(client_idle_time=idle)
    with socket.create_connection(("127.0.0.1", poolhouse.port)) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
        assert user_timeout(poolhouse, connection) == milliseconds


def test_an_idle_time_of_the_database_counts_too(pool, server):
    text = f'[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n[[database]]\nurl = "{server.url()}"\nclient_idle_time = "2h"\n'
    poolhouse = pool(file=text)
    with socket.create_connection(("127.0.0.1", poolhouse.port)) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
        assert user_timeout(poolhouse, connection) == 7_260_000


def sockets_of(poolhouse):
    """The states of all connections to Poolhouse's port, as the kernel reports them."""
    listing = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    states = [line.split()[3] for line in listing if line.split()[1].endswith(f":{poolhouse.port:04X}")]
    return [{"01": "ESTABLISHED", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "0A": "LISTEN"}.get(state, state) for state in states]


@pytest.mark.timing
def test_a_vanished_host_is_kept_for_the_idle_time_then_closed_and_counted(workspace, guarded, pool, client, namespace):
    name, address, _, cut = namespace
    text = (f'[[listener]]\nprotocol = "redis"\nlisten = "{address}:PORT"\nclient_idle_time = "4s"\n'
            f'[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n'
            f'[[database]]\nurl = "{guarded.url()}"\n[[user]]\nname = "default"\npassword = "secret"\n')
    poolhouse = pool(behind=guarded, file=text)
    client(poolhouse.port, 2, address, "secret", name)
    cut()
    time.sleep(2)
    assert sockets_of(poolhouse).count("ESTABLISHED") == 2
    eventually("they are closed", lambda: sent_away(poolhouse, "client_idle_time") == 2)
    assert sockets_of(poolhouse).count("FIN_WAIT1") == 2
    eventually("they are counted", lambda: unanswered(poolhouse, reason="client_idle_time") == 2, seconds=8)
    eventually("the kernel has given them up", lambda: "FIN_WAIT1" not in sockets_of(poolhouse), seconds=60)
