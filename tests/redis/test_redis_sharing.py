"""One server for the commands of many Redis clients: which commands may wait for others, and how clients affect each
other.
"""

import signal
import threading
import time

import pytest

from support.redis_fixtures import own_redis, pool, server
from support.redis_socket import Raw, command
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def created(poolhouse):
    return poolhouse.metric("poolhouse_servers_created_total")


@pytest.mark.quick
def test_clients_at_work_in_the_same_moment_share_one_server(pool):
    poolhouse = pool(workers=1, max_size=1)
    clients = [Raw(poolhouse) for _ in range(200)]
    for number, client in enumerate(clients):
        client.say(command("SET", f"k{number}", f"v{number}"), command("GET", f"k{number}"))
    for number, client in enumerate(clients):
        value = f"v{number}".encode()
        expected = b"+OK\r\n$%d\r\n%s\r\n" % (len(value), value)
        assert client.hear(len(expected)) == expected
    assert created(poolhouse) == 1
    eventually("they are counted", lambda: poolhouse.metric("poolhouse_transactions_total") >= 200)


@pytest.mark.parametrize("how", ["plain", "transaction", "kept"])
def test_a_client_that_may_not_pause_clients_does_not_end_sharing(pool, workspace, how):
    mine = own_redis(workspace, "strict").start()
    try:
        mine.connect().execute_command("ACL", "SETUSER", "default", "-client|pause")
        poolhouse = pool(behind=mine, workers=1, max_size=20)
        before = {"plain": [], "transaction": [command("MULTI")], "kept": [command("CLIENT", "NO-EVICT", "OFF")]}[how]
        boss = Raw(poolhouse).say(*before, command("CLIENT", "PAUSE", 1))
        heard = b"+OK\r\n-NOPERM" if before else b"-NOPERM"
        assert boss.hear(len(heard)) == heard
        clients = [Raw(poolhouse).say(command("SET", number, "v"), command("GET", number)) for number in range(200)]
        for client in clients:
            assert client.hear(12) == b"+OK\r\n$1\r\nv\r\n"
        assert created(poolhouse) <= 3
    finally:
        mine.stop()


def test_a_command_that_must_be_alone_hinders_no_client_that_shares(pool):
    poolhouse = pool(workers=1, max_size=3)
    others = poolhouse.connect()
    others.set("k", "v")
    blocking, reading = Raw(poolhouse), Raw(poolhouse)
    blocking.say(command("BLPOP", "list", 0))
    reading.say(command("XREAD", "COUNT", 1, "BLOCK", 0, "STREAMS", "stream", "$"))
    for _ in range(50):
        assert others.get("k") == b"v"
    others.rpush("list", "x")
    others.xadd("stream", {"a": "b"}, id="1-1")
    assert blocking.hear(len(b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n")) == b"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n"
    assert reading.hear(5) == b"*1\r\n*"


@pytest.mark.timing
def test_a_script_that_never_ends_is_killed_from_another_connection(pool, workspace):
    busy = own_redis(workspace, "busy", **{"lua-time-limit": 50}).start()
    try:
        poolhouse = pool(behind=busy, workers=1)
        endless = Raw(poolhouse).say(command("EVAL", "while true do end", 0))
        time.sleep(0.3)
        waiting = Raw(poolhouse).say(command("GET", "k"))
        assert poolhouse.connect().script_kill()
        assert endless.hear(4) == b"-ERR"
        assert waiting.hear(5) in (b"$-1\r\n", b"-BUSY")
    finally:
        busy.stop()


def test_one_server_serves_clients_that_share_and_clients_that_cannot_in_turn(pool):
    """Two workers, one server: it is handed around, and no client waits for long."""
    poolhouse = pool(workers=2, max_size=1, max_wait_time="5s")
    failures, done = [], []

    def work(number):
        client = poolhouse.connect()
        try:
            for step in range(100):
                if number % 3 == 0:
                    with client.pipeline() as transaction:
                        transaction.incr("sum").get(f"own{number}")
                        transaction.execute()
                else:
                    client.set(f"own{number}", step)
                    assert client.get(f"own{number}") == str(step).encode()
            done.append(number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(done) == 12 and poolhouse.connect().get("sum") == b"400"
    assert created(poolhouse) == 1


def test_a_client_that_leaves_before_its_reply_takes_nothing_along(pool):
    poolhouse = pool(workers=1, max_size=1)
    stays = poolhouse.connect()
    stays.set("big", b"x" * 100_000)
    for _ in range(50):
        going = Raw(poolhouse)
        going.say(command("GET", "big") * 3, command("INCR", "n"))
        going.close()
        assert stays.echo("mine") == b"mine"
    assert created(poolhouse) == 1
    # A client that leaves before it has a share has sent nothing.
    eventually("what was asked for is done", lambda: 0 < int(stays.get("n") or 0) <= 50)


def test_all_clients_that_wait_for_a_shared_server_are_disconnected_when_it_is_lost(pool, workspace):
    lost = own_redis(workspace, "lost").start()
    try:
        poolhouse = pool(behind=lost, workers=1)
        idle, *clients = [Raw(poolhouse) for _ in range(21)]
        assert all(client.say(command("PING")).hear(7) == b"+PONG\r\n" for client in (idle, *clients))
        lost.process.send_signal(signal.SIGSTOP)
        for number, client in enumerate(clients):
            client.say(command("SET", f"k{number}", 1), command("GET", f"k{number}"))
        eventually("all have asked", lambda: poolhouse.metric("poolhouse_clients", state="active") == 20)
        lost.stop()
        for client in clients:
            assert client.hear(1000) == b"", "as when Redis's own connection ends"
        # A client that had sent nothing is not told, and continues.
        lost.start()
        assert idle.say(command("SET", "k", 2)).hear(5) == b"+OK\r\n"
    finally:
        lost.stop()


@pytest.mark.timing
def test_a_client_that_does_not_read_is_disconnected_and_the_others_go_on(pool):
    poolhouse = pool(workers=1)
    others = poolhouse.connect()
    others.set("big", b"x" * 1_000_000)
    idler = Raw(poolhouse, receive_buffer=4096)
    idler.say(command("GET", "big") * 60)
    time.sleep(0.2)
    assert others.get("big") == b"x" * 1_000_000
    eventually("the log says why", lambda: "the client does not read" in poolhouse.log())
    assert len(idler.hear(60_000_000)) < 60_000_000
    assert poolhouse.resident_kib() < 100_000


def test_a_client_that_reads_slowly_gets_all_of_it(pool):
    poolhouse = pool(workers=1)
    poolhouse.connect().set("big", b"x" * 4_000_000)
    slow = Raw(poolhouse, receive_buffer=65536)
    slow.say(command("GET", "big"))
    length = len(b"$4000000\r\n") + 4_000_002
    heard = 0
    while heard < length:
        heard += len(slow.hear(min(100_000, length - heard)))
        time.sleep(0.02)
    assert slow.say(command("PING")).hear(7) == b"+PONG\r\n"


def test_a_server_is_not_kept_for_ever_by_the_clients_that_share_it(pool):
    """Life times hold for a server that is always busy, too."""
    poolhouse = pool(workers=1, max_size=1, max_life_time="2s")
    client, until = poolhouse.connect(), time.monotonic() + 8
    while time.monotonic() < until and created(poolhouse) < 2:
        for _ in range(100):
            client.ping()
    assert created(poolhouse) >= 2


@pytest.mark.timing
def test_pausing_stops_clients_that_share_as_well(pool):
    poolhouse = pool(workers=1)
    client = poolhouse.connect(socket_timeout=10)
    client.ping()
    assert poolhouse.post("/api/pause")[0] == 200
    answered = []
    asking = threading.Thread(target=lambda: answered.append(client.ping()))
    time.sleep(0.1)
    asking.start()
    time.sleep(0.3)
    assert not answered
    assert poolhouse.post("/api/resume")[0] == 200
    asking.join(10)
    assert answered


def test_a_script_that_speaks_of_a_protocol_error_disconnects_no_client(pool):
    poolhouse = pool(workers=1)
    clients = [Raw(poolhouse) for _ in range(20)]
    clients[0].say(command("EVAL", "return redis.error_reply('ERR Protocol error: not at all')", 0))
    for client in clients[1:]:
        client.say(command("ECHO", "mine"))
    assert clients[0].hear(19) == b"-ERR Protocol error"
    assert all(client.hear(10) == b"$4\r\nmine\r\n" for client in clients[1:])
    assert all(client.say(command("ECHO", "more")).hear(10) == b"$4\r\nmore\r\n" for client in clients[1:])


def test_a_group_called_streams_blocks_no_other_client(pool, server):
    poolhouse = pool(workers=1)
    others = poolhouse.connect()
    others.xgroup_create("s", "streams", mkstream=True)
    blocked = Raw(poolhouse).say(command("XREADGROUP", "GROUP", "streams", "c", "BLOCK", 60_000, "STREAMS", "s", ">"))
    eventually("it blocks", lambda: server.connect().info("clients")["blocked_clients"] == 1)
    assert others.ping()
    blocked.close()


@pytest.mark.timing
def test_a_client_that_waits_for_a_share_waits_no_longer_than_allowed(pool, workspace):
    """Redis answers neither the clients that have a share nor another server."""
    silent = own_redis(workspace, "silent").start()
    try:
        poolhouse = pool(behind=silent, workers=1, unavailable_wait_time="500ms")
        first = Raw(poolhouse)
        assert first.say(command("PING")).hear(7) == b"+PONG\r\n"
        silent.process.send_signal(signal.SIGSTOP)
        first.say(command("PING"))
        time.sleep(1.3)
        assert Raw(poolhouse).say(command("PING")).hear(9) == b"-LOADING "
        silent.process.send_signal(signal.SIGCONT)
        assert first.hear(7) == b"+PONG\r\n"
    finally:
        silent.stop()


@pytest.mark.timing
def test_a_server_that_is_always_behind_is_given_back_all_the_same(pool):
    """Large pipelines keep its socket full; a transaction gets its turn."""
    poolhouse = pool(workers=1, max_size=1, max_wait_time="5s")
    until, blob = time.monotonic() + 6, "x" * 14_000
    unit = command("EVAL", "local t = redis.call('time') for i = 1, 20000 do end return 'done'", 0, blob) * 4

    def work():
        client = Raw(poolhouse)
        while time.monotonic() < until:
            client.say(unit).hear(4 * len(b"$4\r\ndone\r\n"))
        client.close()

    threads = [threading.Thread(target=work) for _ in range(60)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    for _ in range(3):
        with poolhouse.connect().pipeline() as transaction:
            assert transaction.incr("n").execute()
    for thread in threads:
        thread.join()


def test_no_more_wait_for_a_share_than_may_wait(pool, workspace):
    absent = own_redis(workspace, "absent")
    poolhouse = pool(behind=absent, file=f'[[listener]]\nlisten = "127.0.0.1:PORT"\n[[database]]\nurl = "{absent.url()}"\nmax_waiters = 2\n')
    waiting = [Raw(poolhouse).say(command("PING")) for _ in range(2)]
    eventually("two wait", lambda: poolhouse.metric("poolhouse_clients", state="waiting") == 2)
    assert Raw(poolhouse).say(command("PING")).hear(9) == b"-LOADING "
    # A client that has gone takes no place.
    waiting[0].close()
    eventually("one waits", lambda: poolhouse.metric("poolhouse_clients", state="waiting") == 1)
    waiting.append(Raw(poolhouse).say(command("PING")))
    eventually("two wait again", lambda: poolhouse.metric("poolhouse_clients", state="waiting") == 2)
    for client in waiting[1:]:
        client.close()


@pytest.mark.timing
def test_a_server_that_does_not_answer_a_check_is_given_up(pool, workspace):
    frozen = own_redis(workspace, "frozen").start()
    try:
        more = 'max_size = 1\ncheck_after_idle = "50ms"\nconnect_time = "500ms"\n'
        poolhouse = pool(behind=frozen, file=f'[[listener]]\nlisten = "127.0.0.1:PORT"\n[[database]]\nurl = "{frozen.url()}"\n{more}')
        client = Raw(poolhouse)
        assert client.say(command("PING")).hear(7) == b"+PONG\r\n"
        time.sleep(0.3)
        frozen.process.send_signal(signal.SIGSTOP)
        client.say(command("PING"))
        eventually("it is closed", lambda: "no answer to a check" in poolhouse.log())
        frozen.process.send_signal(signal.SIGCONT)
        assert client.hear(7) == b"+PONG\r\n"
    finally:
        frozen.stop()
