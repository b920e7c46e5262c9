"""A drain over time: each client is disconnected once, at the end of a transaction, and they go one after the other. The
balancer hears at once that the instance is not ready; another instance takes the clients."""

import threading
import time

import pytest

from support.moving_clients import Clients
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

CLIENTS = 1000
OVER = 6


@pytest.mark.timing
def test_each_client_goes_once_and_at_the_end_of_its_transaction(start):
    settings = {"users": {}, "max_size": 10, "max_wait_time": "20s", "drain_time": "20s"}
    first, second = start(**settings), start(**settings)
    eventually("it is ready", lambda: first.get("/ready")[0] == 200)
    clients = Clients(first, second, CLIENTS)
    for thread in clients.threads:
        thread.start()
    time.sleep(0.5)
    began = time.monotonic()
    drained = threading.Thread(target=lambda: first.ctl("drain", "--over", f"{OVER}s"))
    drained.start()
    eventually("it is not ready", lambda: first.get("/ready")[0] == 503, seconds=2)
    late = first.wire()
    assert late.query("SELECT 1") == [["1"]], "a balancer that has not heard yet may still send clients"
    assert first.wait(OVER + 10) == 0
    took = time.monotonic() - began
    time.sleep(0.3)
    clients.ending.set()
    for thread in clients.threads:
        thread.join(30)
    drained.join(5)
    assert not clients.aborted, (len(clients.aborted), clients.aborted[:3])
    assert not clients.refused, (len(clients.refused), clients.refused[:3])
    assert set(clients.disconnects) == {1}
    assert took < OVER + 4
    went = sorted(at - began for at in clients.went_at)
    quarters = [sum(1 for at in went if OVER * part / 4 <= at < OVER * (part + 1) / 4) for part in range(4)]
    assert all(quarter > CLIENTS / 10 for quarter in quarters), quarters


def test_without_clients_it_is_over_when_its_time_is(start):
    pooler = start()
    began = time.monotonic()
    assert pooler.ctl("drain", "--over", "1s").returncode == 0
    assert pooler.wait(5) == 0 and time.monotonic() - began < 4


def test_a_drain_over_time_is_for_all_databases(start):
    pooler = start()
    assert pooler.post("/api/drain?database=bench&over=1s")[0] == 400
    assert pooler.ctl("drain", "--over", "1s", "--database", "bench").returncode == 2


def test_a_signal_ends_a_drain_over_time(start):
    pooler = start()
    with pooler.connect() as db:
        db.execute("SELECT 1")
        order = threading.Thread(target=lambda: pooler.ctl("drain", "--over", "60s"))
        order.start()
        eventually("it drains", lambda: pooler.get("/ready")[0] == 503)
        pooler.signal()
        assert pooler.wait(5) == 0
        order.join(10)
