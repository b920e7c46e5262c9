"""Connections of Redis clients end as Redis itself would end them, so that client libraries behave as without
Poolhouse."""

import signal
import threading

import pytest
import redis

from support.redis_fixtures import own_redis, pool, server  # noqa: F401
from support.redis_socket import Raw, command
from support.waiting import eventually

CONFIGURATION = """
[[listener]]
protocol = "redis"
listen = "127.0.0.1:PORT"
client_idle_time = "off"
{listener}

[[database]]
url = "{url}"
"""


def idle(poolhouse, *words):
    """A client that has the answers to all its commands."""
    client = Raw(poolhouse)
    client.say(command(*(words or ["ECHO", "OK"])))
    assert client.hear(len(b"$2\r\nOK\r\n" if not words else b"+OK\r\n")).endswith(b"OK\r\n")
    return client


def sent_away(poolhouse, reason):
    return poolhouse.metric("poolhouse_client_evictions_total", reason=reason)


@pytest.mark.parametrize("setting, reason, asks", [
    ('client_idle_time = "300ms"', "client_idle_time", []),
    ('transaction_idle_time = "300ms"', "transaction_idle_time", ["MULTI"]),
    ('transaction_idle_time = "300ms"', "transaction_idle_time", ["WATCH", "k"]),
    ('login_time = "300ms"', "login_time", None),
])
def test_a_client_that_is_late_and_owed_nothing_is_closed_in_silence(pool, server, setting, reason, asks):
    listener = setting if reason != "client_idle_time" else ""
    text = CONFIGURATION.format(listener=listener, url=server.url())
    if reason == "client_idle_time":
        text = text.replace('client_idle_time = "off"', setting)
    if reason == "login_time":
        text += '\n[[user]]\nname = "default"\npassword = "secret"\n'
    poolhouse = pool(file=text)
    client = idle(poolhouse, *asks) if asks is not None else Raw(poolhouse)
    assert client.hear(1000) == b"", "an error that a client has not asked for is taken for the answer to its next command"
    eventually("it is counted", lambda: sent_away(poolhouse, reason) == 1)
    eventually("the log says so", lambda: "client sent away" in poolhouse.log())


@pytest.mark.parametrize("before, words", [
    (b"", ["SET", "k", "v" * 100_000]),
    (command("GET", "k"), ["SET", "k", "v" * 100_000]),
    (b"", ["BLPOP", *(f"list{number}" for number in range(10_000)), 0]),
], ids=["alone", "behind another", "that blocks"])
def test_a_client_that_leaves_a_long_command_half_sent_is_closed_after_transaction_idle_time(pool, server, before, words):
    listener = 'transaction_idle_time = "1s"'
    poolhouse = pool(file=CONFIGURATION.format(listener=listener, url=server.url()) + "max_size = 1\n")
    client = Raw(poolhouse).say(before + command(*words)[:50_000])
    assert client.hear(1000) == (b"$-1\r\n" if before else b"")
    eventually("it is counted", lambda: sent_away(poolhouse, "transaction_idle_time") == 1)
    assert poolhouse.connect().get("k") is None, "its server is free for others, and half a command has no effect"


def test_an_evicted_client_is_closed_in_silence(pool, server):
    poolhouse = pool(file=CONFIGURATION.format(
        listener='soft_limit = 2\nhard_limit = 20\nevict_min_idle = "1ms"', url=server.url()))
    clients = [idle(poolhouse) for _ in range(2)]

    def one_more_comes():
        if sent_away(poolhouse, "soft_limit") == 0:
            clients.append(idle(poolhouse))
        return sent_away(poolhouse, "soft_limit") >= 1

    eventually("one is evicted", one_more_comes)
    assert clients[0].hear(1000) == b"", "the longest idle"


def test_a_library_connects_again_after_its_connection_was_idle_for_too_long(pool, server):
    poolhouse = pool(client_idle_time="300ms")
    client = redis.Redis(port=poolhouse.port, protocol=2, socket_timeout=10)
    client.set("k", "v")
    eventually("it is sent away", lambda: sent_away(poolhouse, "client_idle_time") == 1)
    assert client.get("k") == b"v"


@pytest.mark.parametrize("drain", ["order", "signal"])
def test_a_client_without_work_is_drained_in_silence(pool, server, drain):
    poolhouse = pool(max_size=8)
    clients = [idle(poolhouse), idle(poolhouse)]
    if drain == "order":
        assert poolhouse.post("/api/drain")[0] == 202
    else:
        poolhouse.process.send_signal(signal.SIGTERM)
    for client in clients:
        assert client.hear(1000) == b""


@pytest.mark.parametrize("words", [
    ["BLPOP", "nothing", "0"], ["XREAD", "BLOCK", "0", "STREAMS", "nothing", "$"], ["BLPOP", "nothing", "405"],
])
@pytest.mark.parametrize("drain", ["signal", "database"])
def test_a_blocked_client_is_drained_at_once_and_in_silence(pool, server, words, drain):
    poolhouse = pool(drain_time="off")
    client = Raw(poolhouse).say(command(*words))
    eventually("it blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
    if drain == "database":
        order = poolhouse.post(f"/api/drain?database={poolhouse.pools()[0]['database']}")
        assert order[0] == 200 and order[1]["drained"], order
    else:
        poolhouse.process.send_signal(signal.SIGTERM)
    assert client.hear(1000) == b""
    eventually("Redis knows", lambda: server.connect().info("clients")["blocked_clients"] == 0)
    if drain == "signal":
        assert poolhouse.wait(15) == 0


@pytest.mark.parametrize("login", [("AUTH", "default", "secret"), ("HELLO", "3", "AUTH", "default", "secret"), None])
def test_a_client_that_comes_to_a_drained_database_hears_why_in_answer_to_its_login(pool, server, login):
    text = CONFIGURATION.format(listener="", url=server.url())
    poolhouse = pool(file=text + '\n[[user]]\nname = "default"\npassword = "secret"\n' if login else text)
    first = Raw(poolhouse).say(*([command(*login)] if login else []), command("ECHO", "OK"))
    first.hear(5)
    for name in {pool["database"] for pool in poolhouse.pools()}:
        assert poolhouse.post(f"/api/drain?database={name.replace('/', '%2F')}")[0] == 200
    for _ in range(5):
        client = Raw(poolhouse)
        if login:
            client.say(command(*login), command("ECHO", "OK"))
        heard = client.hear(1000)
        assert heard.startswith(b"-LOADING Poolhouse: an administrator drains this database") and heard.count(b"\r\n") == 1, heard
    library = redis.Redis(port=poolhouse.port, protocol=2, socket_timeout=10, password="secret" if login else None, retry=None)
    with pytest.raises(redis.ConnectionError, match="drains"):
        library.ping()
    for name in {pool["database"] for pool in poolhouse.pools()}:
        assert poolhouse.post(f"/api/resume?database={name.replace('/', '%2F')}")[0] == 200
    assert library.ping()


RESP2, RESP3 = [("SELECT", "3")], [("HELLO", "3"), ("SELECT", "3")]


@pytest.mark.parametrize("entered, database, ordered", [(RESP2, "3", "3"), (RESP3, "3/resp3", "3"), (RESP2, "3", "3/resp3")])
def test_a_client_is_counted_to_and_drained_with_the_database_that_it_selected(pool, server, entered, database, ordered):
    poolhouse = pool(drain_time="off")
    counted = lambda: {pool["database"]: pool["clients"] for pool in poolhouse.pools() if pool["clients"]}
    drain = lambda name: poolhouse.post(f"/api/drain?database={name.replace('/', '%2F')}")
    stays, goes = idle(poolhouse), Raw(poolhouse)
    goes.say(*(command(*words) for words in entered), command("BLPOP", "nothing", "0"))
    eventually("it blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
    eventually("each counts to its own", lambda: counted() == {"0": 1, database: 1})
    order = drain(ordered)
    assert order[0] == 200 and order[1]["drained"], order
    assert goes.hear(100_000).endswith(b"+OK\r\n"), "its connection ends"
    eventually("it counts no more", lambda: counted() == {"0": 1})
    # Another client of that database is closed, too; clients of other databases stay.
    late = Raw(poolhouse).say(*(command(*words) for words in entered))
    late.hear(100_000)
    assert stays.say(command("ECHO", "OK")).hear(8) == b"$2\r\nOK\r\n"
    # Back in the first database, a client counts there.
    back = idle(poolhouse, "SELECT", "5")
    eventually("it moves", lambda: counted() == {"0": 1, "5": 1})
    assert back.say(command("RESET")).hear(8) == b"+RESET\r\n"
    eventually("it is back", lambda: counted() == {"0": 2})


def test_an_order_for_a_database_reaches_its_clients_of_both_versions(pool, server):
    poolhouse = pool(max_size=2)
    clients = [Raw(poolhouse).say(command("HELLO", version), command("ECHO", "OK")) for version in "23"]
    eventually("each counts", lambda: sorted(pool["database"] for pool in poolhouse.pools() if pool["clients"]) == ["0", "0/resp3"])
    stays = idle(poolhouse, "SELECT", "1")
    for order, ends in [("pause", "paused"), ("resume", "resumed"), ("reconnect", "reconnecting")]:
        status, answer = poolhouse.post(f"/api/{order}?database=0")
        assert status == 200 and answer[ends], answer
        reached = {pool["database"]: pool["paused"] for pool in answer["pools"]}
        assert reached == {"0": order == "pause", "0/resp3": order == "pause"}, answer
    status, answer = poolhouse.post("/api/drain?database=0")
    assert status == 200 and {pool["database"] for pool in answer["pools"] if pool["drained"]} == {"0", "0/resp3"}, answer
    for client in clients:
        assert client.hear(100_000).endswith(b"$2\r\nOK\r\n"), "its connection ends"
    assert stays.say(command("ECHO", "OK")).hear(8) == b"$2\r\nOK\r\n"


def test_a_client_that_waits_for_a_server_to_block_on_is_drained_at_once_and_in_silence(pool, server):
    poolhouse = pool(drain_time="off", max_size=2, max_wait_time="off")
    clients = [Raw(poolhouse).say(command("BLPOP", "nothing", "0")) for _ in range(3)]
    eventually("one blocks", lambda: server.connect().info("clients")["blocked_clients"] >= 1)
    eventually("others wait", lambda: poolhouse.metric("poolhouse_waiters") >= 1)
    poolhouse.process.send_signal(signal.SIGTERM)
    for client in clients:
        assert client.hear(1000) == b""
    assert poolhouse.wait(15) == 0


def test_a_client_that_watches_keys_is_drained_at_once_and_one_in_a_transaction_may_end_it(pool, server):
    poolhouse = pool(drain_time="off")
    watches, queues = idle(poolhouse, "WATCH", "k"), idle(poolhouse, "MULTI")
    poolhouse.process.send_signal(signal.SIGTERM)
    assert watches.hear(1000) == b""
    queues.say(command("SET", "k", "v"), command("EXEC"))
    answer = b"+QUEUED\r\n*1\r\n+OK\r\n"
    assert queues.hear(len(answer)) == answer
    assert queues.hear(1000) == b""
    assert poolhouse.wait(15) == 0


@pytest.fixture
def mortal(workspace):
    """A Redis that may be killed and started again."""
    made = own_redis(workspace, "mortal").start()
    yield made
    made.stop()


def blocked(upstream):
    return upstream.connect().info("clients")["blocked_clients"]


@pytest.mark.parametrize("how", ["killed", "connection"])
@pytest.mark.parametrize("said, heard", [
    ([("BRPOP", "jobs", "0")], b""),
    ([("MULTI",), ("SET", "k", "v"), ("EXEC",), ("BLPOP", "jobs", "0")], b"+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n"),
    ([("SET", "k", "v"), ("XREAD", "BLOCK", "0", "STREAMS", "s", "$"), ("GET", "k")], b"+OK\r\n"),
])
def test_a_client_that_waits_for_an_answer_of_a_lost_server_sees_a_closed_connection(pool, mortal, how, said, heard):
    poolhouse = pool(behind=mortal)
    client = Raw(poolhouse).say(*[command(*words) for words in said])
    eventually("it blocks", lambda: blocked(mortal) == 1)
    if how == "killed":
        mortal.stop()
    else:
        mortal.connect().execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert client.hear(1000) == heard, "an error is a mistake in the command to libraries, for which workers end"
    eventually("the log says why", lambda: "the connection to Redis was lost" in poolhouse.log())


def test_a_worker_lives_through_a_restart_of_redis(pool, mortal):
    poolhouse = pool(behind=mortal)
    done, wrong = [], []

    def work():
        client = redis.Redis(port=poolhouse.port, socket_timeout=60)
        try:
            while (job := client.brpop("jobs", 0)[1]) != b"end":
                done.append(job)
        except Exception as error:
            wrong.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    for number in range(3):
        eventually("it blocks", lambda: blocked(mortal) == 1)
        mortal.connect().lpush("jobs", number)
        eventually("it is done", lambda: len(done) == number + 1 or wrong)
        eventually("it blocks again", lambda: blocked(mortal) == 1 or wrong)
        mortal.stop()
        mortal.start()
    eventually("it blocks", lambda: blocked(mortal) == 1 or wrong)
    mortal.connect().lpush("jobs", "end")
    worker.join(20)
    assert not wrong and done == [b"0", b"1", b"2"], (wrong, done)


def test_a_client_that_finds_no_server_to_block_on_waits_as_long_as_its_command_would(pool, server):
    poolhouse = pool(max_size=2, max_wait_time="200ms")
    holder = Raw(poolhouse).say(command("BLPOP", "nothing", "0"))
    eventually("it blocks", lambda: blocked(server) == 1)
    client = poolhouse.connect()
    # Longer than max_wait_time, and shorter.
    assert client.brpop("jobs", 1) is None
    assert client.execute_command("BLMOVE", "jobs", "other", "LEFT", "RIGHT", "0.1") is None
    assert client.xread({"s": "$"}, block=500) in ([], None)
    modern = poolhouse.connect(protocol=3)
    assert modern.execute_command("BLMPOP", "0.5", "1", "jobs", "LEFT") is None
    # The error for a command that was not executed is one after which libraries retry.
    with pytest.raises(redis.ConnectionError, match="server connections stayed busy"):
        client.brpop("jobs", 0)
    assert client.ping()
    # The client blocks there as soon as there is a server.
    patient = Raw(poolhouse).say(command("BRPOP", "jobs", "30"))
    eventually("it waits", lambda: poolhouse.metric("poolhouse_waiters") == 1)
    holder.close()
    eventually("it has a server", lambda: poolhouse.metric("poolhouse_waiters") == 0 and blocked(server) == 1)
    server.connect().lpush("jobs", "x")
    answer = b"*2\r\n$4\r\njobs\r\n$1\r\nx\r\n"
    assert patient.hear(len(answer)) == answer
