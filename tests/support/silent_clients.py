"""Connections from another address of this machine that send nothing."""

import contextlib
import socket

from support.waiting import eventually

ELSEWHERE = "127.0.0.2"


@contextlib.contextmanager
def silent_clients(pooler, count):
    """Opens `count` such connections when no client is connected."""
    wait_for_no_clients(pooler)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(silent_client(pooler.port)) for _ in range(count)]


def silent_client(port):
    """Opens one such connection."""
    return socket.create_connection(("127.0.0.1", port), 10, (ELSEWHERE, 0))


def wait_for_no_clients(pooler):
    """Waits until no client is connected. `start` itself connects once to see whether the pooler listens."""
    eventually("the first client was accepted", lambda: pooler.metric("poolhouse_clients_accepted_total") >= 1)
    eventually("no client is connected", lambda: pooler.metric("poolhouse_clients") == 0)
