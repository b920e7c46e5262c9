"""What one client can do to a server that it shares: an endless script, a paused write, a value that it does not read.
"""

import contextlib
import select
import threading
import time
import types

import pytest
import redis

from support.redis_fixtures import own_redis, pool, server
from support.redis_socket import Raw, command
from support.relay import Relay
from support.waiting import eventually

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

ENDLESS = command("EVAL", "while true do end", 0)
# The longest acceptable wait of all clients but the one that causes it.
MAX_WAIT_SECONDS = 0.25


@pytest.fixture
def busy(workspace):
    """A Redis that soon answers BUSY."""
    made = own_redis(workspace, "busy", **{"busy-reply-threshold": 50}).start()
    yield made
    made.stop()


def is_busy(server):
    try:
        return not server.connect().ping()
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")


def created(poolhouse):
    return poolhouse.metric("poolhouse_servers_created_total")


@pytest.mark.parametrize("database", [0, 9])
def test_behind_a_script_that_does_not_end_others_hear_what_redis_says(pool, busy, database):
    poolhouse = pool(behind=busy, workers=1)
    looping = Raw(poolhouse)
    looping.say(command("SELECT", database)).hear(5)
    looping.say(ENDLESS)
    eventually("the script runs", lambda: is_busy(busy))
    others = [poolhouse.connect(db=0) for _ in range(5)]
    if database:
        others = [Raw(poolhouse) for _ in range(5)]
        for other in others:
            assert other.say(command("SELECT", database)).hear(5) in (b"+OK\r\n", b"-BUSY")
        assert poolhouse.connect().execute_command("CLIENT", "ID")
    else:
        for other in others:
            with pytest.raises(redis.ResponseError, match="BUSY"):
                other.ping()
    killer = Raw(poolhouse)
    assert killer.say(command("SCRIPT", "KILL")).hear(5) == b"+OK\r\n"
    assert looping.hear(4) == b"-ERR"
    eventually("all is well again", lambda: poolhouse.connect(db=database).ping())


def test_while_redis_does_not_answer_one_server_is_asked_and_no_more(pool, workspace):
    slow = own_redis(workspace, "slow", **{"enable-debug-command": "yes"}).start()
    try:
        poolhouse = pool(behind=slow, workers=1)
        first = Raw(poolhouse)
        assert first.say(command("PING")).hear(7) == b"+PONG\r\n"
        before = created(poolhouse)
        first.say(command("DEBUG", "SLEEP", 3))
        time.sleep(0.1)
        others = [Raw(poolhouse).say(command("ECHO", "mine")) for _ in range(50)]
        assert all(other.hear(10) == b"$4\r\nmine\r\n" for other in others)
        assert created(poolhouse) - before <= 1
    finally:
        slow.stop()


def test_a_write_that_is_paused_holds_up_no_reads(pool, workspace):
    paused = own_redis(workspace, "paused").start()
    try:
        poolhouse = pool(behind=paused, workers=1)
        other, boss = poolhouse.connect(), poolhouse.connect()
        other.set("a", 1)
        boss.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        writer = Raw(poolhouse).say(command("SET", "a", 2))
        time.sleep(0.1)
        for _ in range(20):
            assert other.ping() and other.get("a") == b"1"
        assert not select.select([writer.socket], [], [], 0)[0], "the write was answered: nothing was tested"
        boss.execute_command("CLIENT", "UNPAUSE")
        assert writer.hear(5) == b"+OK\r\n"
        assert other.get("a") == b"2"
    finally:
        paused.stop()


def test_a_script_is_killed_although_other_clients_block(pool, busy):
    """Besides the servers of blocking clients there is one for clients that share, which the script occupies, and one
    more."""
    poolhouse = pool(behind=busy, workers=1, max_size=3)
    blocked = [Raw(poolhouse).say(command("SELECT", 1), command("BLPOP", "nothing", 0)) for _ in range(10)]
    time.sleep(0.2)
    looping = Raw(poolhouse).say(ENDLESS)
    eventually("the script runs", lambda: is_busy(busy))
    for kind in ("FUNCTION", "SCRIPT"):
        killer = Raw(poolhouse)
        said = killer.say(command(kind, "KILL")).hear(5)
        assert said == (b"+OK\r\n" if kind == "SCRIPT" else b"-BUSY"), kind
    assert looping.hear(4) == b"-ERR"
    for client in blocked:
        client.close()


def test_a_client_that_blocks_never_takes_the_last_server_from_those_who_share(pool):
    poolhouse = pool(workers=1, max_size=3, max_wait_time="1s")
    other = poolhouse.connect()
    lasting = [Raw(poolhouse).say(words) for words in [command("BLPOP", "nothing", 0), command("MONITOR"), command("WAIT", 1, 0), command("BLPOP", "nothing", 0)]]
    time.sleep(0.3)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        assert other.ping()
    # A transaction gets a server, too, and completes.
    with other.pipeline() as transaction:
        assert transaction.incr("n").execute() == [1]
    assert [client.hear(9) for client in lasting[2:]] == [b"-LOADING "] * 2, "who waited longest is told"
    other.rpush("nothing", "something")
    assert lasting[0].hear(4) == b"*2\r\n"
    for client in lasting:
        client.close()


def longest(client, until):
    """The duration of the slowest of many PINGs."""
    slowest = 0
    while not until():
        begun = time.monotonic()
        client.ping()
        slowest = max(slowest, time.monotonic() - begun)
        time.sleep(0.001)
    return slowest


def behind(others, reading):
    """The longest wait of the other clients while this was read."""
    slowest, over = [], threading.Event()
    threads = [threading.Thread(target=lambda other=other: slowest.append(longest(other, over.is_set))) for other in others]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    with contextlib.suppress(ConnectionError):
        reading()
    over.set()
    for thread in threads:
        thread.join()
    assert len(slowest) == len(others)
    return max(slowest)


# Bytes a second. At the second rate a reader with a server of its own may continue; the third reads in bursts, so
# that it never seems to have stopped.
RATES = [(0, 0), (160_000, 8_000), (2_000_000, 400_000), (20_000_000, 1_000_000)]


@pytest.mark.parametrize("servers, value, rate, burst", [
    *((1, 100_000_000, *rate) for rate in RATES), (20, 100_000_000, *RATES[0]), *((20, 300_000_000, *rate) for rate in (RATES[0], RATES[2]))])
def test_behind_a_large_value_of_a_slow_reader_no_client_waits_for_the_reader(pool, server, rate, burst, servers, value):
    """With `max_size = 1` there is no other server, and 300 MB are more than is kept for a reader."""
    poolhouse = pool(workers=1, max_size=servers)
    server.connect().set("big", b"x" * value)
    size = len(b"$%d\r\n" % value) + value + 2
    others = [poolhouse.connect() for _ in range(4)]
    quick = Raw(poolhouse)

    def quickly():
        quick.say(command("GET", "big"))
        left, room = size, bytearray(1 << 20)
        while left:
            left -= quick.socket.recv_into(room, min(left, len(room)))

    def slowly(seconds):
        with contextlib.closing(Raw(poolhouse, receive_buffer=65536)) as slow:
            slow.say(command("GET", "big"))
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if burst and not slow.hear(burst):
                    break
                time.sleep(burst / rate if burst else 0.1)

    # The value itself must be transferred and kept, which takes long on a busy machine. Fast readers before and after
    # show how long. A client that waits for a reader does so every time, while a machine is busy only sometimes.
    itself, rounds = behind(others, quickly), []
    for _ in range(3):
        waited = behind(others, lambda: slowly(max(3, 6 * itself)))
        before, itself = itself, behind(others, quickly)
        rounds.append((waited, before, itself))
        if waited < max(MAX_WAIT_SECONDS, 2 * max(before, itself) + 0.1):
            return
    pytest.fail(f"others wait for a slow reader; each time, and without one before and after: {rounds}")


def test_a_slow_reader_that_keeps_no_client_waiting_gets_all_of_it(pool, server):
    poolhouse = pool(workers=1, max_size=4)
    server.connect().set("big", b"x" * 20_000_000)
    slow = Raw(poolhouse, receive_buffer=65536)
    length = len(b"$20000000\r\n") + 20_000_002
    slow.say(command("GET", "big"))
    time.sleep(0.2)
    other, heard = poolhouse.connect(), 0
    while heard < length:
        part = len(slow.hear(min(100_000, length - heard)))
        assert part, f"disconnected after {heard} bytes"
        heard += part
        # The client does not read meanwhile.
        assert other.ping()
        time.sleep(0.01)
    assert slow.say(command("PING")).hear(7) == b"+PONG\r\n"


def test_a_client_that_reads_nothing_keeps_its_server_from_others_for_a_bounded_time(pool, server):
    """A script has a server of its own, which waits until its client has read."""
    server.connect().set("big", b"x" * 20_000_000)
    poolhouse = pool(workers=1, max_size=1, max_wait_time="60s")
    idle = Raw(poolhouse).say(*[command("EVAL", "return redis.call('GET', 'big')", 0)] * 5)
    eventually("its answers wait", lambda: [one for one in poolhouse.pools() if one["servers"]["in_use"]])
    time.sleep(1)
    other = Raw(poolhouse)
    other.socket.settimeout(60)
    assert other.say(command("ECHO", "x")).hear(7) == b"$1\r\nx\r\n"
    assert "the client has read nothing for 30 s" in poolhouse.log()
    idle.close()


def test_behind_a_value_that_takes_long_to_come_newcomers_get_another_server(pool, server):
    """Its reader takes all that comes, and Redis is never silent: the transfer only takes longer than `max_wait_time`.
    """
    server.connect().set("big", b"x" * 15_000_000)
    with Relay(server.port) as line:
        line.delay, line.piece = 0.005, 32_768
        behind = types.SimpleNamespace(password=None, url=lambda: f"redis://127.0.0.1:{line.port}")
        poolhouse = pool(behind=behind, workers=1, max_size=4, max_wait_time="1s")
        quick = Raw(poolhouse)
        quick.say(command("GET", "big")).hear(1)
        reading = threading.Thread(target=quick.hear, args=(15_000_000,))
        reading.start()
        # For longer than any client has a server without giving it back.
        time.sleep(1.5)
        assert poolhouse.connect().ping()
        reading.join()
