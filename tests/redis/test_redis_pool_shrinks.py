"""A pool of Redis shrinks while clients block or keep all its servers: the other clients are still served."""

import asyncio
import contextlib
import signal
import subprocess
import threading
import time

import pytest

from support.pooler import BINARY
from support.redis_fixtures import guarded, own_redis, pool, secure, server  # noqa: F401
from support.redis_socket import Raw, command
from support.relay import Relay
from support.waiting import eventually

FILE = """
[[listener]]
protocol = "redis"
listen = "127.0.0.1:PORT"

[[database]]
url = "{url}"
max_size = {size}
max_wait_time = "{wait}"
"""


def text(server, size, wait="10s"):
    return FILE.format(url=server.url(), size=size, wait=wait)


@contextlib.contextmanager
def smaller(poolhouse, server, how, size, wait="10s"):
    """From now on the pool has half of its servers, because another process has the rest or the configuration says so.
    """
    if how == "reload":
        poolhouse.rewrite(text(server, size // 2, wait))
        poolhouse.signal(signal.SIGHUP)
        eventually("it is smaller", lambda: poolhouse.metric("poolhouse_servers_max") == size // 2)
        # Until then other clients may have the server that they have shared before.
        time.sleep(1.5)
        yield
        return
    eventually("it is ready", lambda: poolhouse.get("/ready")[0] == 200)
    log = poolhouse.directory / "successor.log"
    with log.open("ab") as to:
        new = subprocess.Popen([BINARY, "serve", "--config", str(poolhouse.path), "--take-over"], stdin=subprocess.DEVNULL, stdout=to, stderr=to)
    try:
        eventually("it has taken over", lambda: "took over" in log.read_text())
        time.sleep(1.5)
        yield
    finally:
        new.kill()
        new.wait()


def blocked(server):
    return server.connect().info("clients")["blocked_clients"]


def who_block(poolhouse, server, clients, *words):
    """Clients that block, one after another."""
    made = []
    for number in range(clients):
        made.append(Raw(poolhouse).say(command(*words)))
        eventually("it blocks", lambda: blocked(server) == number + 1)
    return made


def line(client):
    heard = b""
    while not heard.endswith(b"\n") and (part := client.hear(1)):
        heard += part
    return heard


def is_served(client, times=3):
    for _ in range(times):
        assert line(client.say(command("ECHO", "x"))) == b"$1\r\n"
        assert line(client) == b"x\r\n"


HOW = pytest.mark.parametrize("how", ["reload", "take-over"])


@pytest.mark.timing
@HOW
@pytest.mark.parametrize("words", [("BLPOP", "jobs", "0"), ("XREAD", "BLOCK", "0", "STREAMS", "jobs", "$"), ("WAIT", "1", "0")])
def test_a_client_that_blocked_longest_for_ever_is_disconnected_until_others_are_served(pool, server, how, words):
    poolhouse = pool(file=text(server, 4))
    other = Raw(poolhouse)
    is_served(other)
    clients = who_block(poolhouse, server, 3, *words)
    with smaller(poolhouse, server, how, 4):
        is_served(other)
        for client in clients[:2]:
            assert client.hear(1000) == b"", "its connection is closed: an answer that has no time-out to explain it would be a surprise"
        time.sleep(1)
        assert blocked(server) == 1, "no more go than have to"
        direct = server.connect()
        if words[0] == "BLPOP":
            direct.rpush("jobs", "a")
            assert clients[2].hear(9) == b"*2\r\n$4\r\nj"
        elif words[0] == "XREAD":
            direct.xadd("jobs", {"a": "b"})
            assert clients[2].hear(4) == b"*1\r\n"
        is_served(other)
        eventually("the log says why", lambda: "others wait for one" in poolhouse.log())


@pytest.mark.timing
@HOW
def test_a_client_that_blocks_for_a_time_gets_its_answer_early_and_stays(pool, server, how):
    poolhouse = pool(file=text(server, 4))
    other = Raw(poolhouse)
    is_served(other)
    clients = who_block(poolhouse, server, 3, "BLPOP", "jobs", "600")
    with smaller(poolhouse, server, how, 4):
        is_served(other)
        for client in clients[:2]:
            assert client.hear(5) == b"*-1\r\n"
            is_served(client)
        assert blocked(server) == 1
        server.connect().rpush("jobs", "a")
        assert clients[2].hear(4) == b"*2\r\n"


@HOW
def test_no_element_is_lost_on_the_way_to_a_client_that_has_to_go(pool, server, how):
    size, pushed = 20, 3000
    poolhouse = pool(file=text(server, size))
    other = Raw(poolhouse)
    is_served(other)
    clients = who_block(poolhouse, server, size - 1, "BLPOP", "jobs", "0")
    got, over, lock = [], threading.Event(), threading.Lock()

    def work(client):
        while True:
            with contextlib.suppress(OSError):
                if line(client) == b"*2\r\n":
                    assert (line(client), line(client), line(client)[:1]) == (b"$4\r\n", b"jobs\r\n", b"$")
                    with lock:
                        got.append(line(client))
                    client.say(command("BLPOP", "jobs", "0"))
                    continue
            if over.is_set():
                return
            client.close()
            client = Raw(poolhouse)
            client.socket.settimeout(2)
            client.say(command("BLPOP", "jobs", "0"))

    def push():
        direct = server.connect()
        for number in range(pushed):
            direct.rpush("jobs", number)
            time.sleep(0.001)

    for client in clients:
        client.socket.settimeout(2)
    workers = [threading.Thread(target=work, args=(client,)) for client in clients] + [threading.Thread(target=push)]
    for worker in workers:
        worker.start()
    with smaller(poolhouse, server, how, size):
        for _ in range(30):
            is_served(other)
            time.sleep(0.05)
        workers[-1].join()
        eventually("all are taken", lambda: server.connect().llen("jobs") == 0 and len(got) >= pushed, 30)
        over.set()
        for worker in workers:
            worker.join()
    assert sorted(got, key=int) == [b"%d\r\n" % number for number in range(pushed)]


# Servers that have not come back are asked for again after 5 s.
@pytest.mark.parametrize("pause", [0, 6])
def test_an_element_on_its_way_to_a_slow_reader_arrives_whole(pool, server, pause):
    poolhouse = pool(file=text(server, 4, "30s"))
    other = Raw(poolhouse)
    is_served(other)
    reader = Raw(poolhouse, receive_buffer=1 << 16).say(command("BLPOP", "jobs", "0"))
    eventually("it blocks", lambda: blocked(server) == 1)
    clients = [reader, *(Raw(poolhouse).say(command("BLPOP", "other", "0")) for _ in range(2))]
    eventually("they block", lambda: blocked(server) == 3)
    # Each part of the value looks like a number.
    element = b":" * (16 << 20)
    server.connect().rpush("jobs", element)
    eventually("it has been taken", lambda: blocked(server) == 2)
    with smaller(poolhouse, server, "reload", 4, "30s"):
        other.say(command("ECHO", "x"))
        eventually("another one goes", lambda: blocked(server) == 1)
        time.sleep(pause)
        expected = b"*2\r\n$4\r\njobs\r\n$%d\r\n%s\r\n" % (len(element), element)
        heard = reader.hear(len(expected))
        assert heard == expected, (len(heard), len(expected))
        assert line(other) == b"$1\r\n" and line(other) == b"x\r\n"
        is_served(reader)
        assert clients[1].hear(1) == b""
        address, asked = "%s:%d" % reader.socket.getsockname(), [told for told in poolhouse.log().splitlines() if "give its server back" in told]
        assert asked and not any(address in told for told in asked), "the log names who has to do something"


class Latecomers(Relay):
    """New connections wait while this is set; existing ones continue."""

    held = False

    async def accept(self, reader, writer):
        while self.held:
            await asyncio.sleep(0.01)
        await super().accept(reader, writer)


@pytest.mark.timing
def test_a_command_behind_the_one_that_was_to_end_gets_no_answer_that_redis_never_gives(pool, server):
    with Latecomers(server.port) as relay:
        url = f"redis://127.0.0.1:{relay.port}"
        poolhouse = pool(file=text(server, 4).replace(server.url(), url))
        other = Raw(poolhouse)
        is_served(other)
        pipeline = Raw(poolhouse).say(command("BLPOP", "a", "600") + command("BLPOP", "b", "0"))
        eventually("it blocks", lambda: blocked(server) == 1)
        others = [Raw(poolhouse).say(command("BLPOP", "jobs", "0")) for _ in range(2)]
        eventually("they block", lambda: blocked(server) == 3)
        poolhouse.rewrite(text(server, 2).replace(server.url(), url))
        poolhouse.signal(signal.SIGHUP)
        eventually("it is smaller", lambda: poolhouse.metric("poolhouse_servers_max") == 2)
        time.sleep(1.5)
        relay.held = True
        other.say(command("ECHO", "x"))
        eventually("it is asked", lambda: "give its server back" in poolhouse.log())
        server.connect().rpush("a", "1")
        first = b"*2\r\n$1\r\na\r\n$1\r\n1\r\n"
        assert pipeline.hear(len(first)) == first
        relay.held = False
        assert pipeline.hear(1) == b"", "it is closed, as one that blocks without a time-out is"
        assert others[0].hear(1) == b""
        assert line(other) == b"$1\r\n" and line(other) == b"x\r\n"


@pytest.mark.timing
@HOW
def test_a_client_that_keeps_a_server_goes_as_well(pool, server, how):
    poolhouse = pool(file=text(server, 4))
    other = Raw(poolhouse)
    is_served(other)
    clients = [Raw(poolhouse) for _ in range(3)]
    for client in clients:
        assert client.say(command("MONITOR")).hear(5) == b"+OK\r\n"
    with smaller(poolhouse, server, how, 4):
        is_served(other)

        def ended(client):
            client.socket.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                while client.hear(1 << 20):
                    pass
                return True
            return False

        assert [ended(client) for client in clients] == [True, True, False]
        is_served(other)


@pytest.mark.timing
def test_a_client_that_subscribes_hears_on_beside_others_where_one_server_is_left(pool, server):
    poolhouse = pool(file=text(server, 2))
    subscriber, other, direct = Raw(poolhouse), Raw(poolhouse), server.connect()
    is_served(other)
    confirmed = b"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"
    assert subscriber.say(command("SUBSCRIBE", "news")).hear(len(confirmed)) == confirmed
    with smaller(poolhouse, server, "take-over", 2):
        for _ in range(3):
            is_served(other)
            eventually("it subscribes again", lambda: direct.pubsub_numsub("news")[0][1] == 1)
            assert direct.publish("news", "x") == 1
            message = b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1\r\nx\r\n"
            assert subscriber.hear(len(message)) == message
            time.sleep(1.5)


@pytest.mark.timing
@HOW
def test_a_client_that_may_not_be_let_go_is_disconnected(pool, workspace, how):
    """Redis refuses CLIENT UNBLOCK."""
    mine = own_redis(workspace, "strict").start()
    try:
        mine.connect().execute_command("ACL", "SETUSER", "default", "-client|unblock")
        poolhouse = pool(behind=mine, file=text(mine, 4))
        other = Raw(poolhouse)
        is_served(other)
        clients = who_block(poolhouse, mine, 3, "BLPOP", "jobs", "600")
        with smaller(poolhouse, mine, how, 4):
            is_served(other)
            for client in clients[:2]:
                assert client.hear(1000) == b""
            assert blocked(mine) == 1
    finally:
        mine.stop()


@pytest.mark.timing
@pytest.mark.parametrize("kind", ["guarded", "secure"])
def test_a_login_or_tls_keeps_redis_from_letting_no_client_go(pool, request, certificates, kind):
    mine = request.getfixturevalue(kind)
    if kind == "secure":
        mine.url = lambda: f"rediss://127.0.0.1:{mine.port}?sslrootcert={certificates.authority.certificate}"
    poolhouse = pool(behind=mine, file=text(mine, 4))
    other = Raw(poolhouse)
    is_served(other)
    clients = [Raw(poolhouse).say(command("BLPOP", "jobs", "600")) for _ in range(3)]
    eventually("they block", lambda: blocked(mine) == 3)
    with smaller(poolhouse, mine, "reload", 4):
        is_served(other)
        assert blocked(mine) == 1
    ended = 0
    for client in clients:
        client.socket.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            client.hear(1 << 20)
        ended += client.heard.endswith(b"*-1\r\n")
    assert ended == 2
