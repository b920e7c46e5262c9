"""Clients that close their sending side after their commands, as `printf ... | nc host port` does, get their replies,
as from Redis.
"""

import socket
import time

import pytest

from support.redis_fixtures import own_redis, pool, server  # noqa: F401
from support.redis_socket import Raw, command
from support.waiting import eventually

SLOW = command("EVAL", "local t = redis.call('TIME') local from = t[1] * 1000000 + t[2] "
               "repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] - from > 700000 return 7", 0)
ASKED = {
    "an inline command": (b"GET a\r\n", b"$5\r\nvalue\r\n"),
    "an inline PING": (b"PING\r\n", b"+PONG\r\n"),
    "a command": (command("GET", "a"), b"$5\r\nvalue\r\n"),
    "many commands": (command("GET", "a") * 2000, b"$5\r\nvalue\r\n" * 2000),
    "a long value": (command("GET", "long"), b"$3000000\r\n" + b"x" * 3_000_000 + b"\r\n"),
    "a long command": (command("SETRANGE", "longer", 0, b"y" * 3_000_000), b":3000000\r\n"),
    "a slow command": (SLOW, b":7\r\n"),
    "a transaction": (command("MULTI") + command("GET", "a") + command("EXEC"), b"+OK\r\n+QUEUED\r\n*1\r\n$5\r\nvalue\r\n"),
    "commands of its own server": (command("WATCH", "a") + command("GET", "a"), b"+OK\r\n$5\r\nvalue\r\n"),
    "a QUIT behind it": (command("GET", "a") + command("QUIT"), b"$5\r\nvalue\r\n+OK\r\n"),
    "half a command behind it": (command("GET", "a") + command("GET", "a")[:9], b"$5\r\nvalue\r\n"),
    "commands of a server that is its own for good": (command("CLIENT", "NO-EVICT", "ON") + command("GET", "a"), b"+OK\r\n$5\r\nvalue\r\n"),
    "a transaction in another database": (command("MULTI") + command("SELECT", 1) + command("GET", "a") + command("EXEC"),
                                          b"+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n$-1\r\n"),
    "an error": (command("GET"), b"-ERR wrong number of arguments for 'get' command\r\n"),
    "nothing": (b"", b""),
}


@pytest.fixture
def filled(server):
    server.connect().mset({"a": "value", "long": "x" * 3_000_000})
    return server


def asks_and_ends(port, data):
    """All data until the other side closes, too."""
    with socket.create_connection(("127.0.0.1", port), 20) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        heard = b""
        while part := client.recv(1 << 20):
            heard += part
    return heard


@pytest.mark.parametrize("name", ASKED)
def test_a_client_that_ends_its_side_gets_what_it_asked_for(pool, filled, name):
    poolhouse = pool(max_size=2)
    data, answer = ASKED[name]
    assert asks_and_ends(filled.port, data) == answer
    for _ in range(20):
        assert asks_and_ends(poolhouse.port, data) == answer
        if "slow" in name:
            break
    eventually("it has gone", lambda: poolhouse.metric("poolhouse_clients") == 0)


def test_a_client_that_ends_its_side_while_others_have_all_servers_gets_its_answer(pool, filled):
    poolhouse = pool(max_size=1)
    busy = Raw(poolhouse).say(SLOW)
    assert asks_and_ends(poolhouse.port, command("GET", "a")) == b"$5\r\nvalue\r\n"
    assert busy.hear(4) == b":7\r\n"


@pytest.mark.parametrize("words", [["BLPOP", "nothing", "0"], ["SUBSCRIBE", "news"], ["WAIT", "5", "0"]])
def test_a_client_that_waits_for_others_and_ends_its_side_has_gone(pool, server, words):
    poolhouse = pool()
    with socket.create_connection(("127.0.0.1", poolhouse.port), 20) as client:
        client.sendall(command(*words))
        if words[0] != "SUBSCRIBE":
            eventually("it blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
        client.shutdown(socket.SHUT_WR)
        eventually("it has gone", lambda: poolhouse.metric("poolhouse_clients") == 0)
        eventually("Redis knows", lambda: server.connect().info("clients")["blocked_clients"] == 0)


@pytest.mark.parametrize("words", [["CLIENT", "TRACKING", "ON"], ["MONITOR"]])
def test_a_client_with_a_server_of_its_own_that_closes_gives_it_back_soon(pool, server, words):
    poolhouse = pool(max_size=2, max_wait_time="2s")
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", poolhouse.port), 20) as client:
            client.sendall(command(*words))
            assert client.recv(100) == b"+OK\r\n"


@pytest.mark.timing
def test_a_client_that_has_waited_for_a_while_and_closes_has_given_up(pool, server):
    poolhouse = pool(max_size=1, max_wait_time="20s")
    busy = Raw(poolhouse).say(command("MULTI"))
    assert busy.hear(5) == b"+OK\r\n"
    with socket.create_connection(("127.0.0.1", poolhouse.port), 20) as client:
        client.sendall(command("MULTI") + command("SET", "given", "up") + command("EXEC"))
        eventually("it waits", lambda: poolhouse.metric("poolhouse_clients", state="waiting") == 1)
        time.sleep(0.5)
    eventually("it is gone", lambda: poolhouse.metric("poolhouse_clients") == 1, seconds=3)
    assert busy.say(command("EXEC")).hear(4) == b"*0\r\n"
    assert poolhouse.connect().get("given") is None


@pytest.mark.timing
def test_a_client_that_waits_and_has_sent_more_gets_its_answers_though_it_ended_its_side_late(pool, filled):
    poolhouse = pool(max_size=1, max_wait_time="20s")
    busy = Raw(poolhouse).say(command("MULTI"))
    assert busy.hear(5) == b"+OK\r\n"
    with socket.create_connection(("127.0.0.1", poolhouse.port), 20) as client:
        client.sendall(command("MULTI"))
        eventually("it waits", lambda: poolhouse.metric("poolhouse_clients", state="waiting") == 1)
        time.sleep(0.5)
        client.sendall(command("GET", "a") + command("EXEC"))
        client.shutdown(socket.SHUT_WR)
        time.sleep(0.5)
        busy.say(command("EXEC"))
        heard = b""
        while part := client.recv(1 << 20):
            heard += part
    assert heard == b"+OK\r\n+QUEUED\r\n*1\r\n$5\r\nvalue\r\n"
