"""Redis through Poolhouse: redis-py and redis-cli with RESP2 and RESP3, in front of a real Redis."""

import os
import socket
import threading
import time

import pytest
import redis

from support.postgres_cluster import free_port
from support.redis_async_socket import encoded
from support.redis_fixtures import PASSWORD, guarded, pool, server, talk
from support.redis_server import RedisServer
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

@pytest.mark.quick
@pytest.mark.parametrize("protocol", [2, 3])
def test_types_come_through_as_they_are(pool, server, protocol):
    through, direct = pool().connect(protocol=protocol), server.connect(protocol=protocol)
    for key, client in (("a", through), ("b", direct)):
        client.set(f"{key}:s", b"\r\n\0\xff")
        client.hset(f"{key}:h", mapping={"f": "1", "g": "2"})
        client.rpush(f"{key}:l", *range(100))
        client.zadd(f"{key}:z", {"x": 1.5, "y": 2})
        client.xadd(f"{key}:x", {"n": "1"}, id="1-1")
    for ask in (lambda c, k: c.get(f"{k}:s"), lambda c, k: c.hgetall(f"{k}:h"), lambda c, k: c.lrange(f"{k}:l", 0, -1),
                lambda c, k: c.zrange(f"{k}:z", 0, -1, withscores=True), lambda c, k: c.xrange(f"{k}:x"),
                lambda c, k: c.get(f"{k}:none"), lambda c, k: c.smembers(f"{k}:none"), lambda c, k: c.type(f"{k}:h")):
        assert ask(through, "a") == ask(direct, "b")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        through.get("a:l")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        through.execute_command("NOSUCHCOMMAND")


@pytest.mark.quick
def test_many_clients_share_few_servers_and_get_their_own_replies(pool):
    poolhouse = pool(max_size=4)
    failures = []

    def client(number):
        connection = poolhouse.connect(protocol=2 + number % 2)
        try:
            for turn in range(50):
                word = f"{number}-{turn}"
                assert connection.echo(word) == word.encode()
                with connection.pipeline(transaction=False) as pipeline:
                    for n in range(10):
                        pipeline.echo(f"{word}-{n}")
                    assert pipeline.execute() == [f"{word}-{n}".encode() for n in range(10)]
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert poolhouse.metric("poolhouse_servers_created_total") <= 8, "two versions, four servers each"


@pytest.mark.quick
def test_a_transaction_keeps_its_server_until_it_ends(pool, server):
    poolhouse = pool(max_size=2)
    one, two = poolhouse.connect(), poolhouse.connect()
    one.execute_command("MULTI")
    one.execute_command("SET", "k", "one")
    two.set("k", "two")
    eventually("only one is active", lambda: poolhouse.metric("poolhouse_clients", state="active") == 1)
    assert one.execute_command("EXEC") == [True] or one.get("k") == b"one"
    assert server.connect().get("k") == b"one"
    with one.pipeline() as pipeline:
        pipeline.watch("k")
        two.set("k", "changed")
        pipeline.multi()
        pipeline.set("k", "lost")
        with pytest.raises(redis.WatchError):
            pipeline.execute()
    assert one.get("k") == b"changed"
    eventually("no client has a server", lambda: poolhouse.metric("poolhouse_servers", state="in_use") == 0)


@pytest.mark.parametrize("left_open", [("MULTI",), ("WATCH", "k"), ("MULTI", "EXEC with too much")])
def test_a_client_that_leaves_in_a_transaction_leaves_nothing_behind(pool, left_open):
    poolhouse = pool(max_size=1)
    one = poolhouse.connect()
    one.execute_command(*left_open[:2] if left_open[0] == "WATCH" else left_open[:1])
    if len(left_open) == 2 and left_open[0] == "MULTI":
        with pytest.raises(redis.ResponseError):
            one.execute_command("EXEC", "too much")
    one.close()
    two = poolhouse.connect()
    assert two.set("k", "v") is True, "a server in a transaction would have queued it"
    assert two.get("k") == b"v"


def test_an_exec_that_failed_does_not_hand_on_its_transaction(pool):
    poolhouse = pool(max_size=1)
    one, two = poolhouse.connect(), poolhouse.connect()
    one.execute_command("MULTI")
    with pytest.raises(redis.ResponseError):
        one.execute_command("EXEC", "too much")
    assert two.set("k", "v") is True


def test_each_client_has_its_own_database_and_name(pool, server):
    poolhouse = pool(max_size=2)
    three, five = poolhouse.connect(db=3, client_name="three"), poolhouse.connect(db=5, client_name="five", protocol=3)
    for turn in range(3):
        three.set("k", f"three {turn}")
        five.set("k", f"five {turn}")
        assert (three.get("k"), five.get("k")) == (f"three {turn}".encode(), f"five {turn}".encode())
    assert [str(name).strip("b'") for name in (three.client_getname(), five.client_getname())] == ["three", "five"]
    assert three.client_id() != five.client_id()
    assert server.connect(db=3).get("k") == b"three 2" and server.connect(db=0).get("k") is None
    with pytest.raises(redis.ResponseError, match="DB index is out of range"):
        poolhouse.connect().select(200)
    with pytest.raises(redis.ResponseError, match="DB index is out of range"):
        poolhouse.connect().select(100_000)
    # A failed request of one client is not an outage.
    assert poolhouse.metric("poolhouse_pools_unavailable") == 0


def test_blocking_commands_block_no_other_client(pool):
    poolhouse = pool(max_size=2)
    got = []
    waiter = threading.Thread(target=lambda: got.append(poolhouse.connect().blpop("queue", timeout=10)))
    waiter.start()
    pusher = poolhouse.connect()
    for _ in range(20):
        assert pusher.ping()
    pusher.rpush("queue", "job")
    waiter.join()
    assert got == [(b"queue", b"job")]


@pytest.mark.parametrize("protocol", [2, 3])
def test_subscribers_hear_what_others_publish(pool, protocol):
    poolhouse = pool(max_size=3)
    subscriber = redis.Redis(port=poolhouse.port, protocol=protocol, socket_timeout=10).pubsub()
    subscriber.subscribe("news", "more")
    subscriber.psubscribe("n*")
    publisher = poolhouse.connect()
    assert [subscriber.get_message(timeout=5)["type"] for _ in range(3)] == ["subscribe", "subscribe", "psubscribe"]
    assert publisher.publish("news", "x") == 2
    assert sorted(subscriber.get_message(timeout=5)["type"] for _ in range(2)) == ["message", "pmessage"]
    assert poolhouse.metric("poolhouse_pinned", reason="subscribe") == 1
    subscriber.close()
    deadline = time.monotonic() + 5
    while poolhouse.metric("poolhouse_servers", state="in_use") > 0:
        assert time.monotonic() < deadline, "the subscriber's server was kept"
        time.sleep(0.02)


def test_values_of_many_megabytes_pass_both_ways(pool):
    poolhouse = pool()
    one = poolhouse.connect(socket_timeout=60)
    value = os.urandom(1 << 20) * 40
    assert one.set("large", value)
    before = poolhouse.resident_kib()
    assert one.get("large") == value
    assert one.strlen("large") == len(value)
    assert poolhouse.resident_kib() - before < 20_000, "it was held whole"
    assert one.mset({f"k{n}": "v" * 3000 for n in range(100)})
    assert one.mget([f"k{n}" for n in range(100)]) == [b"v" * 3000] * 100


def test_a_password_is_asked_for_and_given(pool, guarded):
    poolhouse = pool(guarded)
    assert poolhouse.connect(password=PASSWORD).set("k", "v")
    assert poolhouse.connect(password=PASSWORD, protocol=3).get("k") == b"v"
    assert poolhouse.connect(username="default", password=PASSWORD).get("k") == b"v"
    with pytest.raises(redis.AuthenticationError, match="invalid username-password pair"):
        poolhouse.connect(password="wrong").ping()
    with pytest.raises(redis.AuthenticationError, match="Authentication required"):
        poolhouse.connect(password=None).ping()
    assert talk(poolhouse.port, b"*1000000\r\n", seconds=5) == b"-ERR Protocol error: unauthenticated multibulk length\r\n"
    assert PASSWORD not in poolhouse.log() and "red%20is" not in poolhouse.log()


def test_a_wrong_password_in_the_url_is_told_to_clients(pool, guarded):
    guarded.url = lambda: f"redis://:wrong@127.0.0.1:{guarded.port}"
    with pytest.raises(redis.AuthenticationError, match="Redis refuses Poolhouse itself: correct user and password in the url"):
        pool(guarded).connect(password="wrong").get("k")


def test_redis_cli_works_and_so_do_typed_lines(pool):
    poolhouse = pool()
    assert poolhouse.cli("set", "k", "a b") == "OK\n"
    assert poolhouse.cli("-3", "hello", "3").startswith("server")
    assert poolhouse.cli("-n", "4", "get", "k") == "\n"
    assert talk(poolhouse.port, b'SET k "x \\x41"\r\nGET k\r\n\r\nQUIT\r\n') == b"+OK\r\n$3\r\nx A\r\n+OK\r\n"


def test_what_is_no_command_is_refused_in_the_words_of_redis(pool, server):
    poolhouse = pool()
    for wrong in (b"*a\r\n", b"*1\r\n:1\r\n", b"*1\r\n$-1\r\n", b"GET 'a\r\n", b"*2\r\n$4\r\nPING\r\n*1\r\n"):
        assert talk(poolhouse.port, b"PING\r\n" + wrong) == talk(server.port, b"PING\r\n" + wrong), wrong
    assert poolhouse.connect().ping()


@pytest.mark.parametrize("words", [("SELECT", "01"), ("SELECT", "+1"), ("SELECT", "-0"), ("HELLO", "+3"), ("HELLO", "02"), ("CLIENT", "UNBLOCK", "+1"), ("CLIENT", "KILL", "ID", "+1")])
def test_a_number_is_what_redis_takes_for_one(pool, server, words):
    told = []
    for port in (server.port, pool().port):
        told.append(talk(port, encoded(words) + b"ECHO end\r\n", until=b"end\r\n"))
    assert told[1] == told[0] and told[0].startswith(b"-ERR")


@pytest.mark.parametrize("before", [b"", b"MULTI\r\n", b"SUBSCRIBE a\r\n"], ids=["alone", "in a transaction", "subscribed"])
def test_reset_takes_no_argument(pool, server, before):
    asked = before + b"RESET x\r\n" + (b"EXEC\r\n" if before.startswith(b"MULTI") else b"") + b"PING end\r\n"
    told = [talk(port, asked, until=b"end\r\n") for port in (server.port, pool().port)]
    assert told[1] == told[0] and b"wrong number of arguments for 'reset'" in told[0]


def test_replies_come_in_the_order_of_commands_whether_redis_or_poolhouse_answers(pool):
    poolhouse = pool()
    asked = b"PING\r\nCLIENT SETNAME me\r\nECHO a\r\nCLIENT GETNAME\r\nSELECT 1\r\nSET k v\r\nSELECT 0\r\nGET k\r\nRESET\r\nQUIT\r\n"
    assert talk(poolhouse.port, asked) == (
        b"+PONG\r\n+OK\r\n$1\r\na\r\n$2\r\nme\r\n+OK\r\n+OK\r\n+OK\r\n$-1\r\n+RESET\r\n+OK\r\n")


def test_wait_covers_what_the_client_wrote_elsewhere(pool):
    one = pool(max_size=2).connect()
    one.set("k", "v")
    assert one.wait(0, 100) == 0


def test_a_server_that_dies_is_replaced_and_its_commands_fail(pool, workspace):
    directory = workspace / f"mortal-{os.urandom(4).hex()}"
    directory.mkdir()
    mortal = RedisServer(directory).start()
    poolhouse = pool(mortal, unavailable_wait_time="10s")
    one, in_transaction = poolhouse.connect(), poolhouse.connect()
    assert one.set("k", "v")
    in_transaction.execute_command("MULTI")
    mortal.stop()
    with pytest.raises(redis.ConnectionError):
        in_transaction.execute_command("SET", "k", "must not be executed alone")
    restart = threading.Timer(0.5, mortal.start)
    restart.start()
    assert one.get("k") is None, "the client stays, and waits for the new server"
    restart.join()
    assert one.set("k", "new")
    one.close()
    mortal.stop()


def test_the_hard_limit_is_told_in_redis_own_words(pool):
    poolhouse = pool(hard_limit=2, newcomer_wait_time="100ms")
    held = [poolhouse.connect() for _ in range(2)]
    assert all(client.ping() for client in held)
    # The client reads without sending first: a client that writes may find the connection closed before it has read the
    # error.
    assert talk(poolhouse.port, b"") == b"-ERR max number of clients reached (Poolhouse's hard_limit is 2)\r\n"


def test_a_cluster_is_refused_and_says_why(pool, workspace):
    directory = workspace / f"cluster-{os.urandom(4).hex()}"
    directory.mkdir()
    clustered = RedisServer(directory, **{"cluster-enabled": "yes", "cluster-port": free_port()})
    clustered.start()
    with pytest.raises(redis.ConnectionError, match="Redis Cluster"):
        pool(clustered).connect().get("k")
    clustered.stop()


@pytest.mark.timing
def test_clients_that_vanish_in_a_command_take_their_server_along(pool):
    poolhouse = pool(max_size=1)
    for last in (b"BLPOP nothing 0\r\n", b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$100000\r\nabc"):
        connection = socket.create_connection(("127.0.0.1", poolhouse.port))
        connection.sendall(last)
        time.sleep(0.1)
        connection.close()
        assert poolhouse.connect().get("k") is None


def test_a_pipeline_may_be_longer_than_anybody_buffers(pool):
    poolhouse = pool()
    value = b"v" * 100
    command = b"*3\r\n$6\r\nGETSET\r\n$1\r\nk\r\n$100\r\n" + value + b"\r\n"
    count = 300_000
    heard = 0
    with socket.create_connection(("127.0.0.1", poolhouse.port), 30) as connection:
        # Client libraries send a whole pipeline before they read.
        connection.sendall(command * count)
        expected = len(b"$-1\r\n") + (count - 1) * len(b"$100\r\n" + value + b"\r\n")
        while heard < expected:
            heard += len(connection.recv(1 << 20))
    assert heard == expected
    assert poolhouse.resident_kib() < 100_000


def test_what_cannot_begin_is_not_gone_on_with(pool, server):
    """A MULTI for which there is no server: the commands behind it must not be executed on their own."""
    poolhouse = pool(max_size=1, max_wait_time="200ms")
    holder = poolhouse.connect()
    holder.execute_command("MULTI")
    heard = talk(poolhouse.port, b"MULTI\r\nSET a 1\r\nEXEC\r\n")
    assert heard.startswith(b"-LOADING Poolhouse: the server connections stayed busy") and heard.count(b"\r\n") == 1
    holder.execute_command("DISCARD")
    assert server.connect().get("a") is None
    holder.execute_command("MULTI")
    assert poolhouse.connect().select(5), "another logical database has servers of its own"
    holder.execute_command("DISCARD")


@pytest.mark.parametrize("how", ["SKIP", "OFF"])
def test_a_client_that_asks_for_no_answers_and_gets_no_server_gets_no_answer(pool, server, how):
    """The client would take an error for the answer to its next command, and every later answer for that of the command
    before."""
    poolhouse = pool(max_size=2, max_wait_time="200ms")
    with socket.create_connection(("127.0.0.1", poolhouse.port)) as holder:
        holder.sendall(b"BLPOP nothing 60\r\n")
        eventually("it blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
        assert talk(poolhouse.port, f"CLIENT REPLY {how}\r\nSET a 1\r\nECHO two\r\n".encode()) == b""
        assert server.connect().get("a") is None
        words = "1 is in use, 1 is left to clients that keep none for long, and max_size allows no more"
        poolhouse.connect().ping()
        with pytest.raises(redis.exceptions.BusyLoadingError, match=words):
            poolhouse.connect().execute_command("MONITOR")


def test_a_page_of_the_web_executes_nothing(pool, server):
    poolhouse = pool()
    server.connect().set("k", "v")
    heard = talk(poolhouse.port, b"POST / HTTP/1.1\r\nHost: x\r\n\r\nCLIENT ID\r\nFLUSHALL\r\n")
    assert heard == b"-ERR Poolhouse: this is HTTP, and here is Redis\r\n"
    assert talk(poolhouse.port, b"GET / HTTP/1.1\r\nHost: x\r\n\r\nFLUSHALL\r\n").count(b"\r\n") == 2
    assert server.connect().get("k") == b"v"


@pytest.mark.timing
def test_an_argument_that_is_none_costs_the_others_nothing(pool):
    poolhouse = pool(max_size=1)
    with socket.create_connection(("127.0.0.1", poolhouse.port), 10) as connection:
        connection.sendall(b"*4\r\n$3\r\nSET\r\n$1\r\na\r\n$20000\r\n" + b"x" * 20_000)
        time.sleep(0.1)
        connection.sendall(b"\r\n:5\r\n")
        assert connection.recv(1000).startswith(b"-ERR Protocol error")
        assert connection.recv(1000) == b""
    other = poolhouse.connect()
    other.execute_command("MULTI")
    assert other.execute_command("EXEC") == []


@pytest.mark.timing
def test_a_client_that_vanishes_with_more_to_say_is_noticed(pool):
    poolhouse = pool(max_size=1, max_wait_time="5s")
    connection = socket.create_connection(("127.0.0.1", poolhouse.port))
    connection.sendall(b"BLPOP nothing 0\r\n" + b"CLIENT ID\r\n" * 10_000)
    time.sleep(0.3)
    connection.close()
    assert poolhouse.connect().get("k") is None


def test_tracking_of_one_client_reaches_no_other(pool):
    poolhouse = pool(max_size=2)
    tracker, other = poolhouse.connect(protocol=3), poolhouse.connect(protocol=3)
    assert other.get("k") is None
    with pytest.raises(redis.ResponseError, match="REDIRECT"):
        tracker.execute_command("CLIENT", "TRACKING", "ON", "REDIRECT", "3")
    assert tracker.execute_command("CLIENT", "TRACKING", "ON") in (True, b"OK")
    tracker.get("k")
    for turn in range(3):
        other.set("k", turn)
        assert other.get("k") == str(turn).encode()


def test_a_client_may_have_a_long_name_but_no_endless_one(pool):
    poolhouse = pool()
    asked = b"*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$1000\r\n" + b"n" * 1000 + b"\r\n" + b"CLIENT GETNAME\r\n" * 2000 + b"QUIT\r\n"
    assert talk(poolhouse.port, asked) == b"+OK\r\n" + (b"$1000\r\n" + b"n" * 1000 + b"\r\n") * 2000 + b"+OK\r\n"
    with pytest.raises(redis.ResponseError, match="Client names cannot"):
        poolhouse.connect().client_setname("n" * 2000)


def test_a_command_in_pieces_of_one_byte_is_answered(pool):
    # A command is held until it is complete, also with many arguments; the last argument is passed on piece by piece.
    port = pool().port
    for values in ([b"x" * 12_000], [b"y"] * 1_500, [b"z" * 40_000]):
        with socket.create_connection(("127.0.0.1", port), timeout=20) as wire:
            wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            command = encoded([b"RPUSH", f"pieces:{len(values[0])}", *values])
            for byte in command:
                wire.sendall(bytes([byte]))
            assert wire.recv(100) == b":%d\r\n" % len(values)
