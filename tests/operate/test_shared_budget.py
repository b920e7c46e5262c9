"""Pools of several protocols under one small `max_server_connections`: no pool starves another, and an error names the
limit that caused it.
"""

import contextlib
import threading
import time

import pytest
import redis as redis_py

from support import postgres_wire as w
from support.shared_budget import redis, start_mixed
from support.waiting import eventually

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

# Longer than the default of 2 s, because the machine may be slow. A starved client waits for ever.
LONG_WAIT_TIME = 'max_wait_time = "8s"\n'


class Busy:
    """Clients of one protocol that send as fast as they are answered."""

    def __init__(self, connect, ask, clients=4):
        self.connect, self.ask = connect, ask
        self.over, self.answers, self.longest, self.failures = threading.Event(), 0, 0.0, []
        self.threads = [threading.Thread(target=self.run) for _ in range(clients)]

    def run(self):
        try:
            client = self.connect()
            while not self.over.is_set():
                began = time.monotonic()
                self.ask(client)
                self.answers, self.longest = self.answers + 1, max(self.longest, time.monotonic() - began)
            client.close()
        except Exception as failure:
            self.failures.append(failure)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        eventually("it is busy", lambda: self.answers > 20 or self.failures)
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures


def of_postgres(served, database="bench", **more):
    return Busy(lambda: served.wire(database=database, timeout=20), lambda client: client.query("SELECT 1"), **more)


def of_redis(served, **more):
    return Busy(lambda: served.redis_client(), lambda client: client.ping(), **more)


def of_http(served, **more):
    return Busy(served.rest, lambda client: client.command("PING"), **more)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("first", [of_redis, of_postgres])
def test_a_busy_redis_and_a_busy_postgresql_take_turns_with_the_only_server(start_mixed, first, workers):
    served = start_mixed(limit=1, workers=workers, rules=LONG_WAIT_TIME)
    second = of_postgres if first is of_redis else of_redis
    with first(served, clients=6) as one, second(served, clients=6) as two:
        for _ in range(4):
            before = one.answers, two.answers
            eventually("both are served", lambda: one.answers > before[0] + 20 and two.answers > before[1] + 20, seconds=6)


@pytest.mark.parametrize("kept", ["subscription", "LISTEN", "transaction"])
def test_a_server_that_is_kept_does_not_count_as_the_share_of_its_pool(start_mixed, kept):
    served = start_mixed(limit=3, size=4, rules=LONG_WAIT_TIME, second=True)
    with contextlib.ExitStack() as keeping:
        if kept == "subscription":
            subscriber = served.redis_client().pubsub()
            subscriber.subscribe("news")
            assert subscriber.get_message(timeout=5)["type"] == "subscribe"
        else:
            keeper = keeping.enter_context(served.wire())
            keeper.query("LISTEN news" if kept == "LISTEN" else "BEGIN")
        with of_postgres(served, "other") as busy:
            for _ in range(3):
                if kept == "subscription":
                    assert served.redis_client().ping()
                else:
                    with served.wire(timeout=20) as client:
                        assert client.query("SELECT 1") == [["1"]]
                before = busy.answers
                eventually("the other pool is served again", lambda: busy.answers > before + 20)
    assert served.total() <= 3


@pytest.mark.parametrize("workers", [1, 3])
def test_more_busy_pools_than_servers_take_turns(start_mixed, workers):
    limit, seconds = 2, 5
    served = start_mixed(limit=limit, workers=workers, rules=LONG_WAIT_TIME)
    made = lambda: served.metric("poolhouse_servers_created_total")
    with of_postgres(served) as postgres, of_redis(served) as redis, of_http(served) as http:
        kinds = [postgres, redis, http]
        before, already, began = [kind.answers for kind in kinds], made(), time.monotonic()
        while time.monotonic() < began + seconds:
            assert served.total() <= limit
            time.sleep(0.05)
        answers, opened = [kind.answers - old for kind, old in zip(kinds, before)], made() - already
    assert min(answers) > 50, answers
    assert max(kind.longest for kind in kinds) < 4
    # A turn lasts 250 ms; an unused server may be given up sooner.
    assert opened < 2 * limit * seconds / 0.25, opened


def test_two_pools_with_one_client_each_do_not_open_a_connection_for_each_request(start_mixed):
    served = start_mixed(limit=1, kinds=("postgres", "redis"), rules=LONG_WAIT_TIME)
    with of_postgres(served, clients=1) as postgres, of_redis(served, clients=1) as redis:
        already, began = served.metric("poolhouse_servers_created_total"), postgres.answers + redis.answers
        time.sleep(3)
        opened = served.metric("poolhouse_servers_created_total") - already
        answers = postgres.answers + redis.answers - began
    assert answers > 10 * opened, (answers, opened)


def test_a_client_that_needs_two_pools_in_turn_waits_for_no_turn(start_mixed):
    served = start_mixed(limit=1, kinds=("postgres", "redis"), rules=LONG_WAIT_TIME)
    with served.wire(timeout=20) as db, contextlib.closing(served.redis_client()) as cache:
        began = time.monotonic()
        for number in range(10):
            assert db.query(f"SELECT {number}") == [[str(number)]]
            assert cache.set("number", number)
        assert time.monotonic() - began < 20 * 0.25


@pytest.mark.parametrize("workers", [1, 3])
def test_unused_servers_go_to_the_pool_that_waits_and_come_back_when_they_are_needed(start_mixed, workers):
    limit, half = 8, 4
    served = start_mixed(limit=limit, workers=workers, kinds=("postgres",), rules=LONG_WAIT_TIME, second=True)
    servers = lambda: {pool["database"]: pool["servers"]["total"] for pool in served.pools()}
    reclaimed = lambda: served.metric("poolhouse_servers_closed_total", reason="reclaimed")

    def work(database):
        """More clients than servers, and the servers are the bottleneck."""
        return Busy(lambda: served.wire(database=database, timeout=20), lambda client: client.query("SELECT pg_sleep(0.02)"), clients=12)

    with contextlib.ExitStack() as open_clients:
        sleepers = [open_clients.enter_context(served.wire(database="other")) for _ in range(half)]
        for statement in ("BEGIN", "COMMIT"):
            for client in sleepers:
                client.query(statement)
        assert servers()["other"] == half
        with work("bench"):
            eventually("the pool with waiting clients has all servers", lambda: servers() == {"bench": limit, "other": 0})
            began = time.monotonic()
            assert sleepers[0].query("SELECT 1") == [["1"]]
            assert time.monotonic() - began < 2
            with work("other"):
                eventually("each has its share", lambda: servers() == {"bench": half, "other": half})
                before = reclaimed()
                for _ in range(25):
                    time.sleep(0.1)
                    assert servers() == {"bench": half, "other": half}
                assert reclaimed() == before, "a server is taken from a pool that uses it"
            eventually("they are taken again", lambda: servers() == {"bench": limit, "other": 0})
    assert served.total() <= limit


def test_the_error_names_the_limit_that_was_the_cause(start_mixed):
    served = start_mixed(limit=1, size=2, rules='max_wait_time = "1s"\n', kinds=("postgres", "redis"))
    with served.wire() as keeper, served.wire() as other_client:
        keeper.query("BEGIN")
        with pytest.raises(w.ServerError, match="max_server_connections") as raised:
            other_client.query("SELECT 1")
        assert "max_size" not in str(raised.value)
        with pytest.raises(redis_py.ConnectionError, match="max_server_connections allows no more"):
            served.redis_client().ping()
    roomy = start_mixed(limit=9, size=1, rules='max_wait_time = "1s"\n', kinds=("postgres",))
    with roomy.wire() as keeper, roomy.wire() as other_client:
        keeper.query("BEGIN")
        with pytest.raises(w.ServerError, match="max_size allows no more"):
            other_client.query("SELECT 1")
