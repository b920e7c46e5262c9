"""Connections that come from another address of this machine and say nothing."""

import contextlib
import socket

from support.waiting import eventually

ELSEWHERE = "127.0.0.2"


@contextlib.contextmanager
def strangers(pooler, count):
    """So many of them, when all others have gone."""
    alone(pooler)
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(silent(pooler.port)) for _ in range(count)]


def silent(port):
    """One of them."""
    return socket.create_connection(("127.0.0.1", port), 10, (ELSEWHERE, 0))


def alone(pooler):
    """No client is connected any more: the one that asked whether it serves has been let in, and has gone."""
    eventually("that one was let in", lambda: pooler.metric("poolhouse_clients_accepted_total") >= 1)
    eventually("all places are free", lambda: pooler.metric("poolhouse_clients") == 0)
