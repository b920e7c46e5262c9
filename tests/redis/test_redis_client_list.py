"""CLIENT LIST, INFO and KILL show and close Poolhouse's clients. They do not show the connections to Redis."""

import contextlib
import json
import subprocess
import threading

import pytest
import redis

from support.pooler import BINARY
from support.redis_fixtures import LISTEN, own_redis, pool, server, talk, users, with_users
from support.redis_socket import Raw, command
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def close(client, *words):
    return client.execute_command("CLIENT", "KILL", *words)


def is_gone(client):
    """Whether the client's connection has ended. It sends one command, and would reconnect only for the next."""
    with pytest.raises(redis.ConnectionError):
        client.ping()
    return True


def test_clients_of_all_workers_are_listed(pool):
    poolhouse = pool(workers=3)
    many = [poolhouse.connect(client_name=f"n{number}", db=number % 3, protocol=2 + number % 2) for number in range(20)]
    ids = [client.client_id() for client in many]
    subscriber = poolhouse.connect().pubsub()
    subscriber.subscribe("a", "b")
    subscriber.psubscribe("c*")
    assert [subscriber.get_message(timeout=5)["data"] for _ in range(3)] == [1, 2, 3]
    for client in (many[0], many[1]):
        listed = {int(line["id"]): line for line in client.client_list()}
        assert set(ids) < set(listed) and len(listed) == 21, "the connections to Redis are not among them"
        for number, own in enumerate(ids):
            line = listed[own]
            assert (line["name"], line["db"], line["resp"], line["user"]) == (f"n{number}", str(number % 3), str(2 + number % 2), "default")
            assert line["laddr"] == f"127.0.0.1:{poolhouse.port}" and line["addr"].startswith("127.0.0.1:") and line["flags"] == "N"
            assert line["lib-name"].startswith("redis-py") and line["lib-ver"] == redis.__version__
    [line] = [line for line in listed.values() if line["flags"] == "P"]
    assert (line["sub"], line["psub"], line["ssub"]) == ("2", "1", "0")
    assert [int(line["id"]) for line in many[2].client_list(_type="pubsub")] == [int(line["id"])]
    assert {int(line["id"]) for line in many[3].client_list(client_id=[ids[4], ids[5], 10**6])} == {ids[4], ids[5]}
    assert many[2].client_list(_type="replica") == [] and len(many[2].client_list(_type="normal")) == 20
    assert int(many[7].client_info()["id"]) == ids[7]
    # More than the part of other commands that Poolhouse examines.
    assert len(many[0].client_list(client_id=[*range(10**6, 10**6 + 200), ids[3]])) == 1
    with pytest.raises(redis.ResponseError, match="256 clients at most"):
        many[0].client_list(client_id=[*range(10**6, 10**6 + 257)])


FIELDS = ("id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem multi-mem rbs rbp obl oll omem "
          "tot-mem events cmd user redir resp lib-name lib-ver io-thread tot-net-in tot-net-out tot-cmds").split()


def test_a_line_has_all_fields_that_redis_has_in_its_order(pool, server):
    poolhouse = pool()
    client, other = poolhouse.connect(), poolhouse.connect()
    other.execute_command("WATCH", "k")
    other.execute_command("MULTI")
    for line in talk(poolhouse.port, b"CLIENT LIST\r\nCLIENT INFO\r\nQUIT\r\n").decode().split("\n"):
        if line.startswith("id="):
            assert [field.split("=")[0] for field in line.split(" ")] == FIELDS, line
    theirs = talk(server.port, b"CLIENT INFO\r\nQUIT\r\n").decode().split("\n")[1].split(" ")
    theirs = [field.split("=")[0] for field in theirs]
    assert [field for field in FIELDS if field in theirs] == [field for field in theirs if field in FIELDS]
    # redis-py 5.0 to 6.2 needs all of these, and RQ's workers call it.
    told = client.client_info()
    for field in ("id", "age", "idle", "db", "sub", "psub", "multi", "qbuf", "qbuf-free", "obl", "argv-mem", "oll", "omem", "tot-mem"):
        assert isinstance(told[field], int), field
    assert (told["cmd"], told["multi"]) == ("client|info", -1)
    [busy] = [line for line in client.client_list() if line["flags"] == "x"]
    assert (busy["multi"], busy["watch"], busy["cmd"]) == ("0", "1", "NULL")


def test_what_is_asked_with_others_is_answered_in_order(pool):
    poolhouse = pool(workers=2)
    heard = talk(poolhouse.port, b"SET k 1\r\nCLIENT LIST\r\nGET k\r\nCLIENT INFO\r\nHELLO 3\r\nCLIENT LIST\r\nCLIENT KILL ID 99\r\nQUIT\r\n").split(b"\r\n")
    assert heard[0] == b"+OK" and heard[1].startswith(b"$") and heard[2].startswith(b"id=") and heard[3:5] == [b"$1", b"1"]
    assert heard[5].startswith(b"$") and b" idle=" in heard[2]
    assert any(line.startswith(b"txt:id=") for line in heard) and heard[-3:-1] == [b":0", b"+OK"]


def test_clients_are_closed_wherever_they_are(pool, server):
    poolhouse = pool(workers=3, max_size=3)
    closer = poolhouse.connect()
    others = [poolhouse.connect(client_name=f"n{number}") for number in range(9)]
    ids = [client.client_id() for client in others]
    assert close(closer, "ID", ids[0]) == 1 and is_gone(others[0])
    assert close(closer, "ID", ids[0]) == 0
    # The address has the client's own port.
    where = others[1].client_info()["addr"]
    assert close(closer, where) in (True, b"OK") and is_gone(others[1])
    with pytest.raises(redis.ResponseError, match="No such client"):
        close(closer, where)
    # One client waits in Redis for a value that never comes, and one is in a transaction: their servers are taken back.
    blocked, ended = others[2], threading.Event()

    def wait():
        with contextlib.suppress(redis.ConnectionError):
            blocked.blpop("nothing", 30)
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    pipe = others[3].pipeline()
    pipe.watch("k")
    eventually("both hold a server", lambda: server.connect().info("clients")["blocked_clients"] == 1)
    assert close(closer, "ID", ids[2]) == 1 and ended.wait(5)
    [watching] = [int(line["id"]) for line in closer.client_list() if line["name"] == "n3" and int(line["id"]) != ids[3]]
    assert close(closer, "ID", watching) == 1
    with pytest.raises(redis.WatchError, match="ConnectionError"):
        pipe.get("k")
    eventually("no client is blocked", lambda: server.connect().info("clients")["blocked_clients"] == 0)
    assert close(closer, "TYPE", "pubsub") == 0 and close(closer, "MAXAGE", 3600) == 0
    # All clients but itself; then itself, too, with an answer.
    there = len(closer.client_list())
    assert there >= 7 and close(closer, "TYPE", "normal") == there - 1 and closer.ping()
    assert close(closer, "LADDR", f"127.0.0.1:{poolhouse.port}", "SKIPME", "no") == 1 and is_gone(closer)
    assert "closed by CLIENT KILL of client" in poolhouse.log()
    assert poolhouse.connect().ping()
    eventually("all have gone", lambda: poolhouse.metric("poolhouse_clients", state="idle") <= 1)


def test_a_client_sees_those_of_its_own_user(pool, with_users):
    file = f'{LISTEN}[[database]]\nurl = "redis://127.0.0.1:{with_users.port}"\n{users(alice="wonder", bob="build")}'
    poolhouse = pool(behind=with_users, file=file)
    alice, bob = poolhouse.connect(username="alice", password="wonder"), poolhouse.connect(username="bob", password="build")
    ids = alice.client_id(), bob.client_id()
    for client, own, other, name in ((alice, *ids, "alice"), (bob, *reversed(ids), "bob")):
        assert [(int(line["id"]), line["user"]) for line in client.client_list()] == [(own, name)]
        assert close(client, "ID", other) == 0
    assert alice.ping() and bob.get("k") is None
    # A client that has not logged in sees no client and is seen by none.
    assert talk(poolhouse.port, b"CLIENT LIST\r\nQUIT\r\n").startswith(b"-NOAUTH")


@pytest.mark.parametrize("words", [
    "LIST x", "LIST TYPE", "LIST TYPE x", "LIST ID", "LIST ID x", "LIST ID 0", "LIST ID -1", "INFO x", "KILL", "KILL ID", "KILL ID 0", "KILL ID x", "KILL nowhere:1",
    "KILL TYPE x", "KILL SKIPME maybe", "KILL SKIPME", "KILL ADDR", "KILL WHO me", "KILL ID 99 SKIPME"])
def test_mistakes_are_told_in_the_words_of_redis(pool, server, words):
    poolhouse = pool()
    line = f"CLIENT {words}\r\nQUIT\r\n".encode()
    assert talk(poolhouse.port, line) == talk(server.port, line)


def test_within_a_transaction_there_is_no_telling(pool):
    client = pool().connect()
    pipe = client.pipeline()
    pipe.watch("k")
    with pytest.raises(redis.ResponseError, match="outside of transactions"):
        pipe.execute_command("CLIENT", "LIST")


def test_a_client_that_blocks_is_seen_and_let_go(pool):
    poolhouse = pool(workers=2)
    other = poolhouse.connect()
    for how, said in ((), b"*-1\r\n"), (("ERROR",), b"-UNBLOCKED"):
        blocked = Raw(poolhouse)
        number = int(blocked.say(command("CLIENT", "ID")).socket.recv(64).strip()[1:])
        blocked.say(command("BLPOP", "nothing", 0))
        line = lambda: next(one for one in other.client_list() if one["id"] == str(number))
        eventually("it blocks", lambda: line()["flags"] == "b")
        eventually("Redis knows it, too", lambda: other.execute_command("CLIENT", "UNBLOCK", number, *how) == 1)
        assert blocked.hear(len(said)) == said
        eventually("it does not block", lambda: line()["flags"] == "N")
        assert other.execute_command("CLIENT", "UNBLOCK", number, *how) == 0
        blocked.close()
    with pytest.raises(redis.ResponseError, match="TIMEOUT or ERROR"):
        other.execute_command("CLIENT", "UNBLOCK", 1, "NEVER")


@pytest.mark.parametrize("version", [2, 3])
def test_a_client_that_waits_for_a_server_to_block_on_is_let_go(pool, server, version):
    """Its command has not been sent, so Redis does not know it."""
    poolhouse = pool(workers=2, max_size=2, max_wait_time="off")
    other = poolhouse.connect(protocol=version)
    blocks = Raw(poolhouse).say(command("HELLO", version), command("BLPOP", "first", 0))
    eventually("one blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
    nothing = {2: b"*-1\r\n", 3: b"_\r\n"}[version]
    for how, said in ((), nothing), (("TIMEOUT",), nothing), (("ERROR",), b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"):
        waiting = Raw(poolhouse)
        waiting.say(command("HELLO", version), command("CLIENT", "ID"))
        heard = b""
        while not heard.endswith(b"\r\n") or b":" not in heard.split(b"\r\n")[-2][:1] or b"modules" not in heard:
            heard += waiting.hear(1)
        number = int(heard.split(b"\r\n:")[-1])
        # Commands behind that one are answered as well.
        waiting.say(command("BLPOP", "nothing", 0), command("ECHO", "x"))
        eventually("it waits in line", lambda: poolhouse.metric("poolhouse_waiters") == 1)
        assert next(one for one in other.client_list() if one["id"] == str(number))["flags"] == "b"
        assert other.execute_command("CLIENT", "UNBLOCK", number, *how) == 1
        answer = said + b"$1\r\nx\r\n"
        assert waiting.hear(len(answer)) == answer
        assert other.execute_command("CLIENT", "UNBLOCK", number, *how) == 0
        assert poolhouse.metric("poolhouse_waiters") == 0
    assert server.connect().info("clients")["blocked_clients"] == 1
    blocks.close()


def test_a_client_that_is_closed_late_is_taken_for_no_other(pool, server):
    """A client that unblocks another waits for a server itself. By then the other may have continued, and its server
    may execute the command of a third client.
    """
    poolhouse = pool(workers=1, max_size=4, max_wait_time="30s")
    blocked, others, third = Raw(poolhouse), [Raw(poolhouse) for _ in range(3)], Raw(poolhouse)
    number = int(blocked.say(command("CLIENT", "ID")).socket.recv(64).strip()[1:])
    blocked.say(command("BLPOP", "first", 0))
    eventually("it blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
    # These take all other servers.
    for other in others:
        assert other.say(command("MULTI")).hear(5) == b"+OK\r\n"
    waiting = lambda: poolhouse.metric("poolhouse_waiters")
    third.say(command("BLPOP", "second", 0))
    eventually("a third client waits", lambda: waiting() == 1)
    late = Raw(poolhouse).say(command("CLIENT", "UNBLOCK", number))
    eventually("so does who would let it go", lambda: waiting() == 2)
    server.connect().rpush("first", "something")
    assert blocked.hear(4) == b"*2\r\n"
    eventually("the third client blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
    assert others[0].say(command("DISCARD")).hear(5) == b"+OK\r\n"
    assert late.hear(4) == b":0\r\n"
    server.connect().rpush("second", "something")
    assert third.hear(4) == b"*2\r\n"


def test_the_doctor_does_not_take_them_for_clients_of_redis(pool):
    poolhouse = pool()
    command = [BINARY, "doctor", f"redis://127.0.0.1:{poolhouse.port}", "--window", "1s", "--every", "100ms", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert any("a Poolhouse answers at this address" in unseen for unseen in json.loads(done.stdout)["unseen"]), done
