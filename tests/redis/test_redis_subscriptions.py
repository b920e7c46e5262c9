"""Subscriptions of many Redis clients on one server: who receives which message, in which order, and what happens when
something fails.
"""

import resource
import threading
import time

import pytest
import redis

from support.redis_fixtures import own_redis, pool, server
from support.redis_socket import Raw, command
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def text(word):
    word = word if isinstance(word, bytes) else str(word).encode()
    return b"$%d\r\n%s\r\n" % (len(word), word)


def confirmed(channel, count, kind="subscribe", mark=b"*"):
    return mark + b"3\r\n" + text(kind) + (b"$-1\r\n" if channel is None else text(channel)) + b":%d\r\n" % count


def message(channel, payload, mark=b"*"):
    return mark + b"3\r\n" + text("message") + text(channel) + text(payload)


def expect(client, *parts):
    """Asserts that the client receives exactly this next."""
    expected = b"".join(parts)
    assert client.hear(len(expected)) == expected


def until(client, ending):
    """What the client receives up to here."""
    while not client.heard.endswith(ending):
        part = client.socket.recv(1 << 16)
        assert part, client.heard
        client.heard += part
    heard, client.heard = client.heard, b""
    return heard


def holding(poolhouse):
    return poolhouse.metric("poolhouse_pinned", reason="subscribe")


def subscribed(poolhouse):
    return poolhouse.metric("poolhouse_clients", state="subscribed")


def pubsub_servers(upstream):
    """Connections of Redis that have subscriptions."""
    return [client for client in upstream.connect().client_list() if int(client["sub"]) + int(client["psub"]) > 0]


@pytest.mark.parametrize("workers", [1, 2])
def test_hundreds_of_subscribers_on_several_workers_have_one_server(pool, server, workers):
    poolhouse = pool(workers=workers, max_size=3)
    clients = [Raw(poolhouse) for _ in range(300)]
    for number, client in enumerate(clients):
        client.say(command("SUBSCRIBE", "all", f"some{number % 5}"))
    for number, client in enumerate(clients):
        expect(client, confirmed("all", 1), confirmed(f"some{number % 5}", 2))
    assert len(pubsub_servers(server)) == 1 and holding(poolhouse) == 1
    eventually("they are counted", lambda: subscribed(poolhouse) == 300)
    # All at once, so that many messages arrive in one piece, and from both sides, so that the order is visible.
    publisher = server.connect().pipeline(transaction=False)
    for turn in range(100):
        publisher.publish("all", f"a{turn}")
        publisher.publish(f"some{turn % 5}", f"s{turn}")
    assert publisher.execute()[:2] == [1, 1]
    for number, client in enumerate(clients):
        for turn in range(100):
            expect(client, message("all", f"a{turn}"))
            if turn % 5 == number % 5:
                expect(client, message(f"some{turn % 5}", f"s{turn}"))
    for client in clients:
        client.close()
    eventually("the server is given back", lambda: holding(poolhouse) == 0 and not pubsub_servers(server))
    assert poolhouse.connect().ping()


def test_what_is_published_before_a_client_unsubscribes_reaches_it(pool, server):
    poolhouse = pool(workers=2)
    client = Raw(poolhouse).say(command("HELLO", 3), command("SUBSCRIBE", "a"))
    until(client, confirmed("a", 1, mark=b">"))
    others = {"poolhouse": poolhouse.connect(), "redis": server.connect()}
    for turn in range(40):
        told = message("a", f"m{turn}", mark=b">")
        client.say(command("PUBLISH", "a", f"m{turn}"), command("UNSUBSCRIBE", "a"))
        heard = until(client, confirmed("a", 0, "unsubscribe", b">"))
        assert told in heard and b":1\r\n" in heard, (turn, heard)
        until(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1, mark=b">"))
        for name, publisher in others.items():
            assert publisher.publish("a", f"m{turn}") == 1
            heard = until(client.say(command("UNSUBSCRIBE")), confirmed("a", 0, "unsubscribe", b">"))
            assert told in heard, (turn, name, heard)
            until(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1, mark=b">"))
    # All kinds at once.
    until(client.say(command("PSUBSCRIBE", "b*")), confirmed("b*", 2, "psubscribe", b">"))
    until(client.say(command("SSUBSCRIBE", "s")), confirmed("s", 1, "ssubscribe", b">"))
    heard = until(client.say(command("PUBLISH", "a", "m"), command("PUBLISH", "b1", "p"), command("SPUBLISH", "s", "q"), command("RESET")), b"+RESET\r\n")
    for payload in (b"$1\r\nm\r\n", b"$1\r\np\r\n", b"$1\r\nq\r\n"):
        assert payload in heard, (payload, heard)
    expect(client.say(command("PING")), b"+PONG\r\n")
    client.close()
    eventually("the server is given back", lambda: holding(poolhouse) == 0 and not pubsub_servers(server))


@pytest.mark.quick
def test_nothing_is_missed_after_a_confirmation_and_nothing_comes_before_it(pool):
    """Every client receives what is published after its confirmation, although the channel comes and goes with its
    subscribers."""
    poolhouse = pool(workers=2)
    publisher = poolhouse.connect()
    failures = []

    def come_and_go(name):
        client = Raw(poolhouse)
        teller = poolhouse.connect()
        try:
            for turn in range(60):
                client.say(command("SUBSCRIBE", "shared", name))
                expect(client, confirmed("shared", 1), confirmed(name, 2))
                teller.publish(name, f"{turn}")
                expect(client, message(name, f"{turn}"))
                client.say(command("UNSUBSCRIBE", name, "shared"), command("PING"))
                expect(client, confirmed(name, 1, "unsubscribe"), confirmed("shared", 0, "unsubscribe"), b"+PONG\r\n")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=come_and_go, args=(f"own{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert publisher.publish("shared", "x") == 0


def test_a_subscriber_hears_a_message_for_its_channel_and_for_its_pattern(pool, server):
    poolhouse = pool()
    client, other = Raw(poolhouse), Raw(poolhouse)
    expect(client.say(command("SUBSCRIBE", "news.a"), command("PSUBSCRIBE", "news.*", "*.a"), command("SSUBSCRIBE", "news.a")),
           confirmed("news.a", 1), confirmed("news.*", 2, "psubscribe"), confirmed("*.a", 3, "psubscribe"),
           confirmed("news.a", 1, "ssubscribe"))
    expect(other.say(command("PSUBSCRIBE", "*.a")), confirmed("*.a", 1, "psubscribe"))
    server.connect().publish("news.a", "x")
    server.connect().execute_command("SPUBLISH", "news.a", "y")
    pattern = b"*4\r\n" + text("pmessage") + b"%s" + text("news.a") + text("x")
    heard = client.hear(len(message("news.a", "x") + pattern % text("news.*") + pattern % text("*.a")))
    assert heard.startswith(message("news.a", "x"))
    assert pattern % text("news.*") in heard and pattern % text("*.a") in heard
    expect(client, message("news.a", "y").replace(b"$7\r\nmessage", b"$8\r\nsmessage"))
    expect(other, pattern % text("*.a"))
    expect(client.say(command("PUNSUBSCRIBE", "*.a", "none")), confirmed("*.a", 2, "punsubscribe"), confirmed("none", 2, "punsubscribe"))
    assert server.connect().publish("news.a", "z") == 3
    expect(other, pattern.replace(b"x\r\n", b"z\r\n") % text("*.a"))


def test_unsubscribing_counts_what_a_client_has(pool):
    poolhouse = pool()
    client, other = Raw(poolhouse), Raw(poolhouse)
    for kind in ("unsubscribe", "punsubscribe", "sunsubscribe"):
        expect(client.say(command(kind)), confirmed(None, 0, kind))
    expect(client.say(command("UNSUBSCRIBE", "a", "b")), confirmed("a", 0, "unsubscribe"), confirmed("b", 0, "unsubscribe"))
    expect(client.say(command("SUBSCRIBE", "a", "a", "b")), confirmed("a", 1), confirmed("a", 1), confirmed("b", 2))
    expect(other.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
    expect(client.say(command("PUNSUBSCRIBE")), confirmed(None, 2, "punsubscribe"))
    expect(client.say(command("UNSUBSCRIBE", "b", "c")), confirmed("b", 1, "unsubscribe"), confirmed("c", 1, "unsubscribe"))
    expect(client.say(command("UNSUBSCRIBE")), confirmed("a", 0, "unsubscribe"))
    expect(client.say(command("GET", "k")), b"$-1\r\n")
    assert poolhouse.connect().publish("a", "x") == 1
    expect(other, message("a", "x"))
    assert not client.heard


def test_a_subscriber_of_resp2_may_do_little_else(pool):
    poolhouse = pool()
    client = Raw(poolhouse)
    expect(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
    for words, name in ((("GET", "k"), "get"), (("config", "GET", "x"), "config|get"), (("CLIENT", "SETNAME", "x"), "client|setname"),
                        (("HELLO", "3"), "hello"), (("MULTI",), "multi"), (("MONITOR",), "monitor"), (("AUTH", "x"), "auth")):
        expect(client.say(command(*words)), b"-ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
                                            b"are allowed in this context\r\n" % name.encode())
    expect(client.say(command("PING"), command("PING", "x")), b"*2\r\n" + text("pong") + text(""), b"*2\r\n" + text("pong") + text("x"))
    expect(client.say(command("RESET"), command("GET", "k")), b"+RESET\r\n$-1\r\n")
    eventually("RESET has ended what was subscribed to", lambda: holding(poolhouse) == 0)
    expect(client.say(command("SUBSCRIBE", "a"), command("QUIT")), confirmed("a", 1), b"+OK\r\n")
    assert client.hear(1) == b""


def test_a_subscriber_of_resp3_goes_on_with_everything(pool, server):
    poolhouse = pool(workers=1, max_size=3)
    big = b"x" * 3_000_000
    server.connect().set("big", big)
    client = Raw(poolhouse).say(command("HELLO", 3))
    until(client, b"*0\r\n")
    expect(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1, mark=b">"))
    expect(client.say(command("SET", "k", "v"), command("GET", "k")), b"+OK\r\n" + text("v"))
    # Messages come between replies and never within one, however long it takes.
    client.say(command("GET", "big") * 3)
    publisher = server.connect()
    for turn in range(200):
        publisher.publish("a", turn)
        if turn % 50 == 0:
            time.sleep(0.05)
    reply, turns, replies = text(big), 0, 0
    while replies < 3 or turns < 200:
        if client.hear(1) == b"$":
            expect(client, reply[1:])
            replies += 1
        else:
            expect(client, message("a", turns, mark=b">")[1:])
            turns += 1
    expect(client.say(command("MULTI"), command("GET", "k"), command("EXEC")), b"+OK\r\n+QUEUED\r\n*1\r\n" + text("v"))
    expect(client.say(command("SELECT", 3), command("GET", "k")), b"+OK\r\n_\r\n")
    publisher.publish("a", "still")
    expect(client, message("a", "still", mark=b">"))
    # In RESP2 the same subscription continues in RESP2's format.
    client.say(command("HELLO", 2))
    until(client, b"*0\r\n")
    publisher.publish("a", "now arrays")
    expect(client, message("a", "now arrays"))
    expect(client.say(command("UNSUBSCRIBE")), confirmed("a", 0, "unsubscribe"))


def test_what_keeps_a_server_is_refused_to_subscribers_and_had_before(pool):
    poolhouse = pool(max_size=4)
    client = Raw(poolhouse).say(command("HELLO", 3), command("SUBSCRIBE", "a"))
    until(client, confirmed("a", 1, mark=b">"))
    assert until(client.say(command("CLIENT", "TRACKING", "ON")), b"\r\n").startswith(b"-ERR Poolhouse: this cannot be had together")
    expect(client.say(command("GET", "k")), b"_\r\n")
    first = Raw(poolhouse).say(command("MULTI"), command("SUBSCRIBE", "a"), command("EXEC"))
    expect(first, b"+OK\r\n+QUEUED\r\n*1\r\n", confirmed("a", 1))
    assert poolhouse.metric("poolhouse_pinned", reason="connection") == 1


@pytest.mark.parametrize("order", ["reconnect", "reload"])
def test_subscribers_do_not_go_on_where_servers_are_made_no_more(pool, server, workspace, order):
    other = own_redis(workspace, "other").start()
    text = '[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n[[database]]\nurl = "{}"\n'
    try:
        poolhouse = pool(file=text.format(server.url()))
        client = Raw(poolhouse).say(command("SUBSCRIBE", "news"))
        expect(client, confirmed("news", 1))
        (before,) = pubsub_servers(server)
        here = other if order == "reload" else server
        poolhouse.rewrite(text.format(here.url()))
        assert poolhouse.post(f"/api/{order}")[0] == 200
        eventually("the server of before subscribes no more", lambda: before["id"] not in {c["id"] for c in pubsub_servers(server)})
        eventually("another one does", lambda: len(pubsub_servers(here)) == 1)
        here.connect().publish("news", "x")
        expect(client, message("news", "x"))
    finally:
        other.stop()


def test_subscribers_go_on_on_another_connection_when_theirs_is_killed(pool, server):
    poolhouse = pool(workers=2)
    clients = [Raw(poolhouse) for _ in range(60)]
    for number, client in enumerate(clients):
        client.say(command("SUBSCRIBE", "all", f"own{number}"), command("PSUBSCRIBE", f"p{number}.*"))
        expect(client, confirmed("all", 1), confirmed(f"own{number}", 2), confirmed(f"p{number}.*", 3, "psubscribe"))
    for turn in range(3):
        before = pubsub_servers(server)
        assert server.connect().execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
        eventually("all is subscribed to again", lambda: [
            (c["sub"], c["psub"]) for c in pubsub_servers(server) if c["id"] != before[0]["id"]] == [("61", "60")])
        server.connect().publish("all", turn)
        server.connect().publish(f"own{turn}", "only")
        for number, client in enumerate(clients):
            expect(client, message("all", turn), *([message(f"own{turn}", "only")] if number == turn else []))
    eventually("the log tells how many", lambda: poolhouse.log().count("subscriptions are restored on another connection") == 3)
    assert "clients=60 subscriptions=121" in poolhouse.log()
    # They can still change their subscriptions, and new clients are served as well.
    expect(clients[0].say(command("UNSUBSCRIBE", "all")), confirmed("all", 2, "unsubscribe"))
    newcomer = Raw(poolhouse).say(command("SUBSCRIBE", "all"))
    expect(newcomer, confirmed("all", 1))
    server.connect().publish("all", "last")
    expect(newcomer, message("all", "last"))
    expect(clients[1], message("all", "last"))


@pytest.mark.timing
def test_subscribers_outlive_a_restart_of_redis(pool, workspace):
    upstream = own_redis(workspace, "restarted").start()
    try:
        poolhouse = pool(behind=upstream, workers=2, unavailable_wait_time="20s")
        client, other = Raw(poolhouse), Raw(poolhouse)
        for each in (client, other):
            expect(each.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
        upstream.stop()
        time.sleep(0.5)
        # Commands that are sent meanwhile wait.
        newcomer = Raw(poolhouse).say(command("SUBSCRIBE", "a", "b"))
        upstream.start()
        expect(newcomer, confirmed("a", 1), confirmed("b", 2))
        eventually("all are there again", lambda: upstream.connect().publish("a", "x") == 1)
        for each in (client, other, newcomer):
            expect(each, message("a", "x"))
    finally:
        upstream.stop()


def test_subscribers_are_told_to_go_when_redis_stays_away(pool, workspace):
    upstream = own_redis(workspace, "away").start()
    try:
        poolhouse = pool(behind=upstream, unavailable_wait_time="1s")
        clients = [Raw(poolhouse) for _ in range(5)]
        for client in clients:
            expect(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
        upstream.stop()
        for client in clients:
            assert client.hear(1000) == b"", "an error that a subscriber has not asked for is taken for an answer"
        eventually("the log says why", lambda: "its subscriptions are lost: no connection to Redis" in poolhouse.log())
        eventually("it is in the log", lambda: "subscriptions could not be restored" in poolhouse.log())
        # A client without a subscription gets the same error, and may try again.
        late = Raw(poolhouse).say(command("SUBSCRIBE", "a"))
        assert until(late, b"\r\n").startswith(b"-LOADING Poolhouse: no connection to Redis")
        upstream.start()
        eventually("it is there again", lambda: until(late.say(command("SUBSCRIBE", "a")), b"\r\n") == confirmed("a", 1))
    finally:
        upstream.stop()


def test_only_the_client_that_may_not_subscribe_is_told(pool, workspace):
    upstream = own_redis(workspace, "acl").start()
    try:
        upstream.connect().execute_command("ACL", "SETUSER", "shop", "on", ">pw", "+@all", "~*", "resetchannels", "&shop.*")
        poolhouse = pool(behind=upstream, file=f"""
[[listener]]
protocol = "redis"
listen = "127.0.0.1:PORT"

[[database]]
url = "redis://127.0.0.1:{upstream.port}"

[[user]]
name = "shop"
password = "pw"
""")

        def client():
            made = Raw(poolhouse).say(command("AUTH", "shop", "pw"))
            expect(made, b"+OK\r\n")
            return made

        allowed, mixed, forbidden = client(), client(), client()
        reference = redis.Redis(port=upstream.port, username="shop", password="pw", single_connection_client=True)
        with pytest.raises(redis.exceptions.NoPermissionError) as refused:
            reference.execute_command("SUBSCRIBE", "other")
        word = b"-NOPERM " + str(refused.value).encode() + b"\r\n"
        forbidden.say(command("SUBSCRIBE", "other"))
        mixed.say(command("SUBSCRIBE", "shop.a", "other"))
        allowed.say(command("SUBSCRIBE", "shop.a"))
        expect(forbidden, word)
        expect(mixed, word)
        expect(allowed, confirmed("shop.a", 1))
        assert upstream.connect().publish("shop.a", "x") == 1
        expect(allowed, message("shop.a", "x"))
        # A refusal leaves no subscription behind, and RESP2's restrictions do not begin.
        expect(mixed.say(command("GET", "k"), command("SUBSCRIBE", "shop.a")), b"$-1\r\n", confirmed("shop.a", 1))
        # A client that loses the right to a channel is closed; the others stay.
        other = client()
        expect(other.say(command("SUBSCRIBE", "shop.b")), confirmed("shop.b", 1))
        upstream.connect().execute_command("ACL", "SETUSER", "shop", "resetchannels", "&shop.b")
        assert allowed.hear(1000) == b""
        eventually("the log says why", lambda: "its subscriptions are lost: NOPERM" in poolhouse.log())
        eventually("the other's is restored", lambda: upstream.connect().publish("shop.b", "y") == 1)
        expect(other, message("shop.b", "y"))
    finally:
        upstream.stop()


def test_a_subscriber_that_does_not_read_is_disconnected_and_the_others_go_on(pool, server):
    poolhouse = pool(workers=1)
    idler, reader = Raw(poolhouse, receive_buffer=4096), Raw(poolhouse)
    for client in (idler, reader):
        expect(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
    publisher, payload = server.connect(), b"x" * 500_000
    for turn in range(100):
        assert publisher.publish("a", payload) == 1
        expect(reader, message("a", payload))
    eventually("the log says why", lambda: "the client does not read" in poolhouse.log(), seconds=10)
    eventually("it is gone", lambda: subscribed(poolhouse) == 1, seconds=10)
    publisher.publish("a", "still")
    expect(reader, message("a", "still"))
    assert poolhouse.resident_kib() < 100_000


def test_long_messages_and_long_lists_of_channels_pass(pool, server):
    poolhouse = pool(workers=2, max_size=3)
    clients = [Raw(poolhouse) for _ in range(3)]
    for client in clients:
        expect(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
    payload = b"y" * 10_000_000
    server.connect().publish("a", payload)
    server.connect().publish("a", "z")
    for client in clients:
        expect(client, message("a", payload), message("a", "z"))
    names = [f"channel-{number}" for number in range(2_000)]
    expect(clients[0].say(command("SUBSCRIBE", *names)), *[confirmed(name, at + 2) for at, name in enumerate(names)])
    server.connect().publish("channel-1999", "end")
    expect(clients[0], message("channel-1999", "end"))
    # A list that is too long to be read at once is processed in parts.
    long = [f"{number}" * 20 for number in range(5_000)]
    for client in (clients[1], Raw(poolhouse)):
        already = 1 if client is clients[1] else 0
        client.say(command("GET", "k") if not already else b"", command("SUBSCRIBE", *long), command("PING", "behind it"))
        expect(client, *([] if already else [b"$-1\r\n"]), *[confirmed(name, at + 1 + already) for at, name in enumerate(long)],
               b"*2\r\n" + text("pong") + text("behind it"))
        client.say(command("UNSUBSCRIBE", *long))
        expect(client, *[confirmed(name, len(long) - 1 - at + already, "unsubscribe") for at, name in enumerate(long)])
    assert holding(poolhouse) == 1 and poolhouse.metric("poolhouse_pinned", reason="connection") == 0
    assert Raw(poolhouse).say(b"*2\r\n$9\r\nSUBSCRIBE\r\n$1000000\r\n", b"x" * 100_000).hear(1000).startswith(b"-ERR Poolhouse: a name is too long")


@pytest.mark.timing
def test_subscribers_are_neither_idle_nor_late(pool, server):
    """They are closed neither for being idle nor for waiting long, and leave at once at the end."""
    poolhouse = pool(client_idle_time="500ms")
    client, idle = Raw(poolhouse), Raw(poolhouse)
    expect(client.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
    expect(idle.say(command("PING")), b"+PONG\r\n")
    assert idle.hear(1000) == b"", "as Redis's own `timeout`"
    time.sleep(1)
    server.connect().publish("a", "x")
    expect(client, message("a", "x"))
    poolhouse.stop()
    assert client.hear(1000) == b""


def test_thousands_subscribe_to_one_channel_and_leave_again(pool, server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(3_000, hard // 4)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * count), hard))
    try:
        poolhouse = pool(workers=2)
        clients = [Raw(poolhouse) for _ in range(count)]
        before = poolhouse.resident_kib()
        for client in clients:
            client.say(command("SUBSCRIBE", "everybody"))
        for client in clients:
            expect(client, confirmed("everybody", 1))
        assert (poolhouse.resident_kib() - before) * 1024 / count < 4_000
        for turn in range(5):
            server.connect().publish("everybody", turn)
        for client in clients:
            expect(client, *[message("everybody", turn) for turn in range(5)])
        for client in clients:
            client.close()
        eventually("no client is left", lambda: holding(poolhouse) == 0, seconds=10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_message_beyond_measure_ends_its_subscribers_and_no_others(pool, workspace):
    upstream = own_redis(workspace, "large", **{"client-output-buffer-limit": "pubsub 0 0 0"}).start()
    try:
        poolhouse = pool(behind=upstream, workers=2)
        concerned, other = Raw(poolhouse), Raw(poolhouse)
        expect(concerned.say(command("SUBSCRIBE", "a")), confirmed("a", 1))
        expect(other.say(command("SUBSCRIBE", "b")), confirmed("b", 1))
        upstream.connect().publish("a", b"x" * 40_000_000)
        upstream.connect().publish("b", "next")
        assert concerned.hear(1000) == b""
        eventually("the log says why", lambda: "its subscriptions are lost: a message of more than 33554432 bytes" in poolhouse.log())
        expect(other, message("b", "next"))
    finally:
        upstream.stop()


@pytest.mark.timing
def test_a_client_that_is_busy_leaves_it_to_others_to_seek_a_server(pool, server):
    """Subscribers of RESP3 may be executing other commands, even long ones, when their server is lost."""
    poolhouse = pool(workers=2, max_size=4)
    busy, idle = Raw(poolhouse), Raw(poolhouse)
    until(busy.say(command("HELLO", 3), command("SUBSCRIBE", "a")), confirmed("a", 1, mark=b">"))
    until(idle.say(command("HELLO", 3), command("SUBSCRIBE", "a")), confirmed("a", 1, mark=b">"))
    busy.say(command("BLPOP", "list", 0))
    eventually("it waits", lambda: server.connect().info("clients")["blocked_clients"] == 1)

    def kill():
        before = pubsub_servers(server)[0]["id"]
        assert server.connect().execute_command("CLIENT", "KILL", "TYPE", "pubsub") == 1
        return lambda: [client["sub"] for client in pubsub_servers(server) if client["id"] != before] == ["1"]

    for turn in range(5):
        eventually("all is subscribed to again", kill())
        server.connect().publish("a", turn)
        for client in (busy, idle):
            expect(client, message("a", turn, mark=b">"))
    # If all are busy, the first one that becomes free does it.
    idle.close()
    restored = kill()
    time.sleep(0.3)
    assert not pubsub_servers(server)
    server.connect().rpush("list", "x")
    expect(busy, b"*2\r\n" + text("list") + text("x"))
    eventually("all is subscribed to again", restored)
    server.connect().publish("a", "end")
    expect(busy, message("a", "end", mark=b">"))
    expect(busy.say(command("PING")), b"+PONG\r\n")


def test_a_client_that_publishes_is_told_how_many_subscribers_there_are(pool, server):
    """Redis sees one connection for all of them."""
    poolhouse = pool(workers=2)
    other = poolhouse.connect()
    assert other.publish("news", "nobody") == 0
    subscribers = [poolhouse.connect().pubsub() for _ in range(5)]
    for number, subscriber in enumerate(subscribers):
        subscriber.subscribe("news")
        if number < 2:
            subscriber.psubscribe("n[e-f]ws", "other*")
        for _ in range(3 if number < 2 else 1):
            assert subscriber.get_message(timeout=5)["type"].endswith("subscribe")
    assert other.publish("news", "all") == 5 + 2
    assert other.pubsub_numsub("news", "none") == [(b"news", 5), (b"none", 0)]
    assert server.connect().publish("news", "past Poolhouse") == 2
    with other.pipeline(transaction=False) as pipeline:
        assert pipeline.ping().publish("news", "x").publish("none", "y").execute() == [True, 7, 0]
    for subscriber in subscribers:
        subscriber.close()


def test_the_names_of_subscriptions_are_bounded(pool):
    poolhouse = pool(workers=1)
    greedy = poolhouse.connect(protocol=3, socket_timeout=20).pubsub()
    name, most = "x" * 60_000, (16 << 20) // 60_010
    for number in range(most):
        greedy.subscribe(f"{name}{number}")
        assert greedy.get_message(timeout=10)["type"] == "subscribe"
    greedy.subscribe(name)
    with pytest.raises(redis.ResponseError, match="bytes at most"):
        greedy.get_message(timeout=10)
    assert poolhouse.connect().ping()
