"""One process serves PostgreSQL, Redis, and Redis over HTTP: one set of workers, one budget, one admin address."""

import json
import signal
import struct
import threading
import time

import pytest

from support.shared_budget import redis, start_mixed
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

def all_at_once(*calls):
    """Runs each call in a thread of its own, and raises what they raise."""
    failures = []

    def run(call):
        try:
            call()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.quick
@pytest.mark.parametrize("workers", [1, 3])
def test_under_one_budget_none_starves_another(start_mixed, workers):
    limit = 4
    served = start_mixed(limit=limit, workers=workers)
    over, peak = threading.Event(), []

    def watch():
        while not over.is_set():
            peak.append(served.total())

    def of_postgres():
        with served.connect() as db:
            for number in range(15):
                assert db.execute("SELECT %s::int, pg_sleep(0.01)", (number,)).fetchone()[0] == number

    def of_redis(name):
        def call():
            client = served.redis_client()
            for number in range(1, 41):
                # The transaction must be alone on its server.
                assert client.incr(name) == number
                with client.pipeline(transaction=True) as pipeline:
                    assert pipeline.get(name).get(name).execute() == [str(number).encode()] * 2
        return call

    def of_http(name):
        def call():
            rest = served.rest()
            for number in range(1, 41):
                assert rest.command("INCR", name) == number
        return call

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        all_at_once(*[of_postgres] * 20, *(of_redis(f"r{n}") for n in range(6)), *(of_http(f"h{n}") for n in range(6)))
    finally:
        over.set()
        watching.join()
    assert peak and max(peak) <= limit
    kinds = {pool["protocol"] for pool in served.pools()}
    assert kinds == {"postgres", "redis"}


def test_a_pool_that_is_idle_gives_its_servers_to_another_kind(start_mixed):
    served = start_mixed(limit=3)
    with served.connect() as one, served.connect() as two, served.connect() as three:
        for db in (one, two, three):
            db.execute("BEGIN")
        assert served.total() == 3
        for db in (one, two, three):
            db.execute("COMMIT")
        assert served.redis_client().ping()
        assert served.total() <= 3


def test_messages_reach_clients_that_listen_and_clients_that_subscribe(start_mixed):
    served = start_mixed()
    with served.wire() as listener:
        listener.query("LISTEN news")
        subscriber = served.redis_client().pubsub()
        subscriber.subscribe("news")
        assert subscriber.get_message(timeout=5)["type"] == "subscribe"
        for number in range(20):
            with served.connect() as db:
                db.execute(f"NOTIFY news, 'p{number}'")
            served.redis_client().publish("news", f"r{number}")
        heard = [subscriber.get_message(timeout=5) for _ in range(20)]
        assert [message["data"] for message in heard] == [f"r{n}".encode() for n in range(20)]
        told = []
        while len(told) < 20:
            kind, body = listener.message()
            if kind == b"A":
                told.append(body[4:-1].split(b"\0")[1].decode())
        assert told == [f"p{n}" for n in range(20)]


def test_clients_of_redis_see_each_other_and_no_other_clients(start_mixed):
    served = start_mixed()
    with served.connect():
        client = served.redis_client()
        assert len(client.client_list()) == 1
        assert len(json.loads(served.get("/api/clients")[1])["clients"]) == 2


def test_a_cancel_key_of_postgresql_means_no_client_of_redis(start_mixed):
    """A worker keeps the clients of all protocols in one table."""
    served = start_mixed(workers=1)
    waiting = served.redis_client()
    heard = []
    thread = threading.Thread(target=lambda: heard.append(waiting.blpop("nothing", 0)))
    thread.start()
    eventually("a client waits", lambda: served.redis.connect().info("clients")["blocked_clients"] == 1)
    with served.wire() as own:
        process, secret = struct.unpack("!II", own.key)
        for guess in range(max(process - 4, 0), process + 5):
            with served.open() as other:
                other.send(struct.pack("!IIII", 16, 80877102, guess, secret))
    served.redis.connect().rpush("nothing", "something")
    thread.join()
    assert heard == [(b"nothing", b"something")]


def test_an_order_says_which_of_two_databases_of_the_same_name_it_means(start_mixed, cluster):
    both = start_mixed(more=f'[[database]]\nname = "0"\nurl = "{cluster.url("other")}"\n')
    paused = lambda: {(pool["protocol"], pool["database"]) for pool in both.pools() if pool["paused"]}
    client, wire, bench = both.redis_client(), both.wire(database="0"), both.wire(database="bench")
    client.ping(), wire.query("SELECT 1"), bench.query("SELECT 1")
    status, answer = both.post("/api/pause?database=0")
    assert status == 409 and "protocol=redis" in answer["error"] and not paused()
    for order, parameters, stopped in [("pause", "?database=0&protocol=redis", {("redis", "0")}),
                                       ("resume", "?database=0&protocol=postgres", {("redis", "0")}),
                                       ("resume", "?database=0&protocol=redis", set()),
                                       ("pause", "?database=0&protocol=postgres", {("postgres", "0")}),
                                       ("resume", "", set()),
                                       ("pause", "?database=bench", {("postgres", "bench")})]:
        status, answer = both.post(f"/api/{order}{parameters}")
        assert (status, paused()) == (200, stopped), (order, parameters, answer)
        assert "database=0" not in parameters or {pool["protocol"] for pool in answer["pools"]} == {parameters.split("=")[2]}
    both.post("/api/resume")
    for parameters, status in [("?protocol=redis", 400), ("?database=0&protocol=http", 400), ("?database=bench&protocol=redis", 404)]:
        assert both.post(f"/api/pause{parameters}")[0] == status, parameters
    unclear = both.ctl("pause", "--database", "0")
    assert unclear.returncode == 1 and "protocol=" in unclear.stderr
    assert both.ctl("pause", "--database", "0", "--protocol", "redis").returncode == 0 and paused() == {("redis", "0")}
    assert both.ctl("pause", "--protocol", "redis").returncode == 2
    both.post("/api/resume")
    assert client.ping() and wire.query("SELECT 1") and bench.query("SELECT 1")


def test_what_is_counted_for_two_databases_of_the_same_name_stays_apart(start_mixed, cluster):
    both = start_mixed(more=f'[[database]]\nname = "0"\nurl = "{cluster.url("other")}"\n')
    client, wire = both.redis_client(), both.wire(database="0")
    client.ping(), [wire.query("SELECT 1") for _ in range(5)]
    counted = lambda protocol: both.metric("poolhouse_transactions_total", protocol=protocol, database="0")
    eventually("both are counted", lambda: counted("postgres") >= 5 and 0 < counted("redis") < 5)
    assert {protocol: both.metric("poolhouse_clients", protocol=protocol) for protocol in ("postgres", "redis")} == {"postgres": 1, "redis": 1}
    for what in ("pools", "clients", "servers"):
        shown = json.loads(both.get(f"/api/{what}")[1])[what]
        assert {one["protocol"] for one in shown if one["database"] == "0"} == {"postgres", "redis"}, what


def test_a_reload_brings_another_kind_only_with_a_listener_that_is_there(start_mixed):
    served = start_mixed(kinds=("postgres",))
    served.rewrite()
    served.process.send_signal(signal.SIGHUP)
    eventually("a note", lambda: "is new: restart Poolhouse for that" in served.log())
    with served.connect() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_a_reload_takes_away_a_kind_and_brings_it_back(start_mixed):
    served = start_mixed()
    client = served.redis_client()
    client.set("a", 1)
    served.rewrite(kinds=("postgres",))
    served.process.send_signal(signal.SIGHUP)
    eventually("a reload", lambda: "configuration read again" in served.log())
    # Connected clients keep their pool; new clients get none.
    with pytest.raises(Exception, match="no Redis is configured"):
        served.redis_client().ping()
    served.rewrite()
    served.process.send_signal(signal.SIGHUP)
    eventually("a reload", lambda: served.log().count("configuration read again") == 2)
    assert served.redis_client().get("a") == b"1"
    with served.connect() as db:
        assert db.execute("SELECT 1").fetchone() == (1,)


def test_a_listener_cannot_change_its_kind(start_mixed):
    served = start_mixed()
    text = served.path.read_text()
    swapped = text.replace(str(served.port), "PORT").replace(str(served.redis_port), str(served.port)).replace("PORT", str(served.redis_port))
    served.path.write_text(swapped)
    served.process.send_signal(signal.SIGHUP)
    eventually("a refusal", lambda: "the old one stays in force" in served.log())
    assert "restart Poolhouse for that" in served.log()
    assert served.redis_client().ping()


def test_it_ends_in_order_for_all(start_mixed):
    served = start_mixed()
    db, client = served.connect(), served.redis_client()
    db.execute("BEGIN")
    client.ping()
    served.process.send_signal(signal.SIGTERM)
    eventually("a drain", lambda: "draining" in served.log())
    assert db.execute("SELECT 2").fetchone() == (2,)
    db.execute("COMMIT")
    db.close()
    deadline = time.monotonic() + 10
    while served.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert served.process.returncode == 0
