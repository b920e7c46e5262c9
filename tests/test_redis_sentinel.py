"""A Redis whose master changes: Poolhouse asks the sentinels, and goes where the master is."""

import time

import pytest
import redis

from redis_fixtures import pool, server
from redis_load import Load
from redis_sentinels import Sentinels
from waiting import eventually

pytestmark = pytest.mark.poolhouse_only


class Behind:
    """What Poolhouse is started in front of."""

    def __init__(self, url, password=None):
        self.url, self.password = lambda: url, password


@pytest.fixture(scope="module")
def three(workspace):
    """A master, a replica and three sentinels, all with passwords."""
    with Sentinels(workspace, 3, password="red", sentinel_password="watch") as made:
        yield made


def write(client, value):
    try:
        return client.set("k", value)
    except redis.RedisError:
        return False


def test_clients_are_served_by_the_master(pool, three):
    poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"))
    client = poolhouse.connect()
    assert client.set("k", "through sentinels")
    assert three.server(three.master()).connect().get("k") == b"through sentinels"
    status, servers = poolhouse.get("/api/servers")
    assert status == 200 and f"127.0.0.1:{three.master()}" in str(servers)
    log = poolhouse.log()
    assert "mymaster by 127.0.0.1" in log and "watch" not in log


def test_a_failover_in_good_order_under_load(pool, three):
    poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"), max_size=8, max_wait_time="20s", unavailable_wait_time="20s")
    # What the old master took when its replica had been made the master already is undone by Redis itself.
    steps = ("echo", "pipeline", "count", "transaction")
    with Load(lambda: poolhouse.connect(socket_timeout=30), clients=6, steps=steps, lossy=True) as load:
        for _ in range(2):
            three.fail_over()
            load.flows(30)
    assert load.total("answered") > 10 * load.total("failed"), load.errors


def test_a_master_that_dies_is_left_for_the_new_one(pool, three):
    poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"), unavailable_wait_time="30s")
    client = poolhouse.connect(socket_timeout=40)
    assert client.set("k", "before")
    dead = three.server(three.master())
    dead.stop()
    began = time.monotonic()
    # The client waits, and its command is executed by the new master.
    assert client.set("k", "after")
    assert three.master() != dead.port and three.server(three.master()).connect().get("k") == b"after"
    assert time.monotonic() - began < 25
    # The dead one comes back as what the sentinels make of it.
    dead.start()
    eventually("it follows", lambda: dead.connect().info("replication")["role"] == "slave", 30)
    assert client.get("k") == b"after"


def test_a_sentinel_that_does_not_answer_is_passed_over(pool, three):
    three.stop(0)
    try:
        poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"))
        assert poolhouse.connect().set("k", "v")
    finally:
        three.start(0)


@pytest.mark.parametrize("change, told", [
    (("/mymaster", "/nomaster"), "knows no master called `nomaster`"),
    (("sentinel_password=watch", "sentinel_password=wrong"), "WRONGPASS"),
    (("?sentinel_password=watch", ""), "NOAUTH"),
])
def test_what_is_wrong_with_the_url_is_told(pool, three, change, told):
    url = three.url(sentinel_password="watch").replace(*change)
    poolhouse = pool(Behind(url, "red"), unavailable_wait_time="1s")
    with pytest.raises(redis.RedisError):
        poolhouse.connect().ping()
    eventually("the log says why", lambda: told in poolhouse.log())
    assert "wrong" not in poolhouse.log()


def test_a_redis_is_no_sentinel_and_that_is_told(pool, server):
    poolhouse = pool(Behind(f"redis+sentinel://127.0.0.1:{server.port}/mymaster"), unavailable_wait_time="1s")
    with pytest.raises(redis.RedisError, match="unknown command"):
        poolhouse.connect().ping()
