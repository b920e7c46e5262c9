"""The admin HTTP address: health, readiness, lists, metrics."""

import json
import socket
import time

import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

METRICS = {
    "poolhouse_clients": {"listener", "protocol", "state"},
    "poolhouse_servers": {"protocol", "database", "user", "state"},
    "poolhouse_servers_max": {"protocol", "database", "user"},
    "poolhouse_servers_created_total": {"protocol", "database", "user"},
    "poolhouse_waiters": {"protocol", "database", "user"},
    "poolhouse_transactions_total": {"protocol", "database", "user"},
    "poolhouse_checkout_seconds_count": {"protocol", "database", "user", "path"},
    "poolhouse_checkout_seconds_bucket": {"protocol", "database", "user", "path", "le"},
    "poolhouse_hold_seconds_count": {"protocol", "database", "user"},
    "poolhouse_oldest_hold_seconds": {"protocol", "database", "user"},
    "poolhouse_connect_phase_seconds_count": {"protocol", "database", "user", "phase"},
    "poolhouse_auth_failures_total": set(),
    "poolhouse_last_reload_successful": set(),
    "poolhouse_session_panics_total": set(),
    "poolhouse_build_info": {"version", "reactor"},
}
# These metrics have samples only after the event has happened once.
HAPPENINGS = {
    "poolhouse_client_rejections_total": {"listener", "protocol", "reason"},
    "poolhouse_client_evictions_total": {"listener", "protocol", "reason"},
    "poolhouse_eviction_loops_total": {"listener", "protocol"},
    "poolhouse_servers_closed_total": {"protocol", "database", "user", "reason"},
    "poolhouse_checkout_failed_total": {"protocol", "database", "user", "reason"},
    "poolhouse_pinned": {"protocol", "database", "user", "reason"},
    "poolhouse_pins_refused_total": {"protocol", "database", "user", "reason"},
    "poolhouse_pools_drained": {"protocol", "database", "user"},
    "poolhouse_pools_disabled": {"protocol", "database", "user"},
    "poolhouse_accepts_failed_total": {"listener", "protocol"},
}


# Each transaction increments these by one.
ENDED = ["poolhouse_transactions_total", "poolhouse_checkout_seconds_count", "poolhouse_hold_seconds_count"]


@pytest.mark.quick
def test_health_and_readiness(start):
    pooler = start()
    assert pooler.get("/health")[0] == 200
    eventually("it is ready", lambda: pooler.get("/ready")[0] == 200)
    assert pooler.get("/nowhere")[0] == 404


@pytest.mark.quick
def test_metrics_have_the_promised_names_and_labels(start):
    pooler = start(max_size=2)
    with pooler.connect() as connection:
        connection.execute("SELECT 1")
        samples = pooler.metrics()
    for name, labels in METRICS.items():
        found = [dict(has) for sample, has in samples if sample == name]
        assert found, f"{name} is missing"
        assert all(labels <= set(has) for has in found), (name, found)
    text = pooler.get("/metrics")[1]
    for name in {**METRICS, **HAPPENINGS}:
        # OpenMetrics names the family of a counter without _total, and that of an info without _info.
        families = [name, *(name.removesuffix(end) for end in ("_count", "_bucket", "_total", "_info"))]
        assert any(f"# TYPE {family} " in text for family in families), f"no TYPE of {name}"
        assert any(f"# HELP {family} " in text for family in families), f"no HELP of {name}"


def test_metrics_count_what_happened(start, cluster):
    pooler = start(max_size=2, max_wait_time="300ms")
    with pooler.wire() as one, pooler.wire() as two, pooler.wire() as three:
        # A login may need a server, too.
        before = {name: pooler.metric(name) for name in ENDED}
        for _ in range(10):
            one.query("SELECT 1")
        one.query("BEGIN")
        two.query("BEGIN")
        assert pooler.metric("poolhouse_servers", state="in_use") == 2 or pooler.metric("poolhouse_servers") == 2
        three.send(w.query("SELECT 1"))
        eventually("it waits", lambda: pooler.metric("poolhouse_waiters") == 1, 0.25, 0.01)
        three.until_ready()
        assert pooler.metric("poolhouse_checkout_failed_total") == 1
        assert pooler.metric("poolhouse_waiters") == 0
        assert pooler.metric("poolhouse_clients") == 3
        assert pooler.metric("poolhouse_servers_max", database="bench") == 2
        assert pooler.metric("poolhouse_servers_created_total") == 2
        one.query("COMMIT")
        two.query("COMMIT")
        # A transaction is counted after its client has the answer.
        eventually("all are counted", lambda: {name: pooler.metric(name) - before[name] for name in ENDED} == dict.fromkeys(ENDED, 12))
    cluster.terminate()
    eventually("the loss is counted", lambda: pooler.metric("poolhouse_servers_closed_total") == 2)
    eventually("clients have left", lambda: pooler.metric("poolhouse_clients") == 0)
    with pytest.raises(w.ServerError):
        pooler.wire(password="wrong")
    assert pooler.metric("poolhouse_auth_failures_total") == 1


@pytest.mark.timing
def test_a_transaction_that_does_not_end_is_seen_and_a_client_that_keeps_its_server_with_good_reason_is_not(start):
    pooler = start(max_size=4)

    def oldest():
        return pooler.metric("poolhouse_oldest_hold_seconds", database="bench")

    with pooler.wire() as listens, pooler.wire() as pinned, pooler.wire() as one:
        listens.query("LISTEN news")
        pinned.query("CREATE TEMP TABLE mine (n int)")
        eventually("both are known to keep a server", lambda: sum(pooler.pools()[0]["pinned"].values()) == 2)
        assert pooler.metric("poolhouse_servers", state="in_use") == 2
        assert oldest() == 0
        one.query("BEGIN")
        time.sleep(0.3)
        assert 0.3 <= oldest() < 5
        one.query("SELECT 1")
        assert oldest() >= 0.3, "a statement in it is no end of it"
        assert pooler.pools()[0]["oldest_hold_ms"] >= 300
        one.query("COMMIT")
        eventually("nothing is held", lambda: oldest() == 0)


def test_histograms_are_cumulative_and_complete(start):
    pooler = start(max_size=2)
    with pooler.connect() as connection:
        for _ in range(20):
            connection.execute("SELECT 1")
    samples = pooler.metrics()
    series = {}
    for (name, labels), value in samples.items():
        if name == "poolhouse_checkout_seconds_bucket":
            labels = dict(labels)
            bound = float(labels.pop("le").replace("+Inf", "inf"))
            series.setdefault(tuple(sorted(labels.items())), []).append((bound, value))
    assert series
    for labels, buckets in series.items():
        buckets.sort()
        values = [value for _, value in buckets]
        assert values == sorted(values) and buckets[-1][0] == float("inf")
        assert values[-1] == samples[("poolhouse_checkout_seconds_count", labels)]


def items(pooler, what, within=None):
    status, text = pooler.get(f"/api/{within or what}")
    assert status == 200, text
    return json.loads(text)[what]


def test_lists_of_pools_clients_and_servers(start, cluster):
    pooler = start(max_size=3)
    with pooler.wire(application_name="listed") as client:
        client.query("BEGIN")
        (pool,) = items(pooler, "pools")
        assert pool["database"] == "bench" and pool["user"] == "app" and pool["max_size"] == 3
        (listed,) = [c for c in items(pooler, "clients") if c["database"] == "bench"]
        assert listed["user"] == "app" and listed["address"].startswith("127.0.0.1")
        (server,) = items(pooler, "servers")
        assert {shown["protocol"] for shown in (pool, listed, server, *items(pooler, "listeners", "pools"))} == {"postgres"}
        (backend,) = cluster.backends()
        assert backend.pid in server.values()
        client.query("COMMIT")


def test_scraping_does_not_disturb_and_bad_requests_harm_nothing(start):
    pooler = start(max_size=2)
    with pooler.wire() as client:
        for request in (b"GARBAGE\r\n\r\n", b"\xff" * 1000, b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\n\r\n",
                        b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b"GET /metrics HTTP/1.1\r\n"):
            with socket.create_connection(("127.0.0.1", pooler.admin_port), 5) as connection:
                connection.sendall(request)
        idle = [socket.create_connection(("127.0.0.1", pooler.admin_port), 5) for _ in range(50)]
        began = time.monotonic()
        for _ in range(20):
            pooler.metrics()
            assert client.query("SELECT 1") == [["1"]]
        assert time.monotonic() - began < 10
        for connection in idle:
            connection.close()


def test_not_ready_while_draining(start):
    pooler = start(drain_time="5s")
    with pooler.wire() as client:
        client.query("BEGIN")
        pooler.signal()
        eventually("it is not ready any more", lambda: pooler.get("/ready")[0] == 503)
        assert pooler.get("/health")[0] == 200
        client.query("COMMIT")
        assert client.closed_within(5)
    assert pooler.wait(5) == 0
