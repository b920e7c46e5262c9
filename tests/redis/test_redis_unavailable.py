"""A Redis that cannot execute everything: it is full, loads its data, cannot save, has become a replica, or has a new
password. Clients get its errors, and are served as before once it can.
"""

import contextlib
import shutil
import signal
import threading

import pytest
import redis

from support.redis_fixtures import own_redis, pool, server, talk
from support.relay import Relay
from support.rest_fixtures import Rest, rest
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

LISTEN = '[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n'


def words(poolhouse, *command):
    """The answer to a command; errors as text."""
    with contextlib.closing(poolhouse.connect()) as client:
        try:
            return client.execute_command(*command)
        except redis.RedisError as error:
            return f"{type(error).__name__}: {error}"


def words_of(client, *command):
    """The same for a client that stays connected, if it may."""
    try:
        return client.execute_command(*command)
    except redis.RedisError as error:
        return str(error)


@pytest.fixture
def mine(workspace):
    """Starts Redises that are stopped at the end of the test."""
    made = []

    def start(name, **settings):
        made.append(own_redis(workspace, name, **settings).start())
        return made[-1]

    yield start
    for one in made:
        one.stop()


def test_a_full_redis_says_so_through_poolhouse_and_over_http(rest, mine):
    full = mine("full")
    poolhouse = rest(behind=full)
    full.connect().config_set("maxmemory", 1)
    assert words(poolhouse, "SET", "k", "v") == words(full, "SET", "k", "v")
    assert "used memory > 'maxmemory'" in words(poolhouse, "SET", "k", "v")
    assert Rest(poolhouse.http).post("/", ["SET", "k", "v"]) == (400, {"error": "OOM command not allowed when used memory > 'maxmemory'."})
    # A transaction with a refused command is discarded, and its client continues.
    client = poolhouse.connect()
    with pytest.raises(redis.ResponseError, match="maxmemory|previous errors"):
        client.pipeline().get("k").set("k", "v").execute()
    full.connect().config_set("maxmemory", 0)
    assert client.set("k", "v") and client.get("k") == b"v"


def test_a_redis_that_cannot_save_says_so(pool, mine, workspace):
    data = workspace / "no-disk"
    data.mkdir()
    unsaved = mine("unsaved", dir=data)
    poolhouse, direct = pool(unsaved), unsaved.connect()
    direct.config_set("save", "3600 1")
    assert poolhouse.connect().set("k", "v")
    shutil.rmtree(data)
    with contextlib.suppress(redis.ResponseError):
        direct.bgsave()
    eventually("it notices", lambda: "MISCONF" in str(words(unsaved, "SET", "k", "v")))
    assert words(poolhouse, "SET", "k", "v") == words(unsaved, "SET", "k", "v")
    assert words(poolhouse, "GET", "k") == b"v"
    direct.config_set("save", "")
    assert poolhouse.connect().set("k", "w") and words(poolhouse, "GET", "k") == b"w"


def test_a_redis_that_loads_its_data_is_waited_for(pool, mine):
    slow = mine("slow")
    poolhouse, direct = pool(slow, unavailable_wait_time="30s"), slow.connect()
    client = poolhouse.connect(socket_timeout=40)
    client.mset({f"k{number}": "v" * 100 for number in range(1500)})
    direct.save()
    slow.stop()
    # Microseconds for each key.
    slow.settings |= {"key-load-delay": 2000, "loading-process-events-interval-bytes": 1024}
    starting = threading.Thread(target=slow.start)
    starting.start()
    try:
        eventually("it loads", lambda: loads(slow), 10)
        assert client.get("k999") == b"v" * 100
        assert not loads(slow), "it was answered by another"
        assert "LOADING" in poolhouse.log()
    finally:
        starting.join()


def loads(server):
    with contextlib.suppress(OSError):
        return talk(server.port, b"GET k\r\n", until=b"\r\n").startswith(b"-LOADING")


def test_a_client_that_writes_to_a_former_primary_hears_so_and_is_led_to_the_new_one(pool, mine):
    """The address leads to the new primary, but connections to the old one are still open."""
    old, new = mine("old"), mine("new")
    with Relay(old.port) as relay:
        old.url = lambda: f"redis://127.0.0.1:{relay.port}"
        poolhouse = pool(old, max_size=4)
        client, subscriber = poolhouse.connect(), poolhouse.connect().pubsub()
        assert client.set("k", "v")
        subscriber.subscribe("news")
        assert subscriber.get_message(timeout=5)["type"] == "subscribe"
        assert client.get("k") == b"v", "on a server that is not the subscriber's"
        old.connect().replicaof("127.0.0.1", new.port)
        relay.target = new.port
        with pytest.raises(redis.exceptions.ReadOnlyError):
            client.set("k", "w")
        # The same client. The shared connection may serve until the present replies have arrived.
        eventually("a write succeeds", lambda: words_of(client, "SET", "k", "x") in (True, b"OK"))
        assert new.connect().get("k") == b"x"
        assert "takes no writes any more" in poolhouse.log()
        # A client with a server of its own keeps it: a subscriber would miss what is published meanwhile.
        old.connect().publish("news", "still heard")
        assert subscriber.get_message(timeout=5)["data"] == b"still heard"


def test_a_transaction_at_a_former_primary_fails_and_the_next_succeeds(rest, mine):
    """The same holds for commands over HTTP."""
    old, new = mine("old"), mine("new")
    with Relay(old.port) as relay:
        old.url = lambda: f"redis://127.0.0.1:{relay.port}"
        poolhouse = rest(behind=old)
        client, asking = poolhouse.connect(), Rest(poolhouse.http)
        assert client.pipeline().set("k", "v").execute() == [True]
        old.connect().replicaof("127.0.0.1", new.port)
        relay.target = new.port
        assert asking.post("/", ["SET", "k", "w"]) == (400, {"error": "READONLY You can't write against a read only replica."})
        eventually("a transaction succeeds", lambda: executed(client, "k", "x"))
        assert asking.command("GET", "k") == "x" and new.connect().get("k") == b"x"


def executed(client, key, value):
    with contextlib.suppress(redis.ResponseError):
        return client.pipeline().set(key, value).execute() == [True]


def test_a_replica_that_stays_one_is_not_connected_to_over_and_over(pool, mine):
    primary, replica = mine("primary"), mine("replica")
    replica.connect().replicaof("127.0.0.1", primary.port)
    poolhouse = pool(replica, max_size=4)
    for _ in range(50):
        assert "read only replica" in str(words(poolhouse, "SET", "k", "v"))
    assert words(poolhouse, "GET", "k") is None
    assert poolhouse.metric("poolhouse_servers_created_total") <= 6


def test_a_redis_without_room_for_another_connection_is_tried_again(pool, mine):
    crowded = mine("crowded")
    impatient, patient = pool(crowded, unavailable_wait_time="300ms"), pool(crowded, unavailable_wait_time="10s")
    direct = crowded.connect(single_connection_client=True)
    direct.set("k", "v")
    others = [crowded.connect(single_connection_client=True) for _ in range(2)]
    [one.ping() for one in others]
    eventually("only these are left", lambda: direct.info("clients")["connected_clients"] == 3)
    direct.config_set("maxclients", 3)
    assert "max number of clients" in words(impatient, "GET", "k")
    heard = []
    asking = threading.Thread(target=lambda: heard.append(words(patient, "GET", "k")))
    asking.start()
    eventually("it waits", lambda: patient.metric("poolhouse_clients", state="waiting") == 1)
    others.pop().close()
    asking.join()
    assert heard == [b"v"]


def test_a_password_that_has_changed_is_told_and_a_reload_heals(pool, guarded_by):
    server, file = guarded_by
    poolhouse = pool(behind=server, file=file("first"))
    client = poolhouse.connect(password="mine")
    assert client.set("k", "v")
    direct = server.connect()
    direct.config_set("requirepass", "second")
    server.password = "second"
    # Connections that are logged in stay so; later ones are refused.
    assert client.get("k") == b"v"
    direct.execute_command("CLIENT", "KILL", "TYPE", "normal")
    eventually("it is told", lambda: "invalid username-password" in str(words_of(client, "GET", "k")))
    assert "invalid username-password" in told(poolhouse)
    poolhouse.rewrite(file("second"))
    poolhouse.signal(signal.SIGHUP)
    assert eventually("it is healed", lambda: told(poolhouse) == "b'v'", 10)
    assert "first" not in poolhouse.log() and "second" not in poolhouse.log()


def told(poolhouse):
    """The answer that a new client gets about a key."""
    with contextlib.closing(poolhouse.connect(password="mine")) as client:
        return str(words_of(client, "GET", "k"))


@pytest.fixture
def guarded_by(mine):
    """A Redis with the password `first`, and the configuration for a password."""
    made = mine("rotated")
    made.connect().config_set("requirepass", "first")
    made.password = "first"

    def file(password):
        return f'{LISTEN}[pool]\nunavailable_wait_time = "500ms"\n[[database]]\nurl = "redis://:{password}@127.0.0.1:{made.port}"\n[[user]]\nname = "default"\npassword = "mine"\n'

    return made, file
