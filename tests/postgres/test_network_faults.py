"""The network on either side delays, cuts, splits and swallows data: nothing hangs, no answer is wrong, no write is
repeated, and everything recovers.
"""

import time

import pytest

from support import load_during_faults
from support.relay import Relay

SIDES = pytest.mark.parametrize("side", ["clients", "database"])


@pytest.fixture
def through(start, cluster):
    """Starts a pooler with a relay on one of its sides. Returns the relay and the port for clients."""
    relays = []

    def make(side, **settings):
        settings = {"max_size": 5, "max_wait_time": "5s", "unavailable_wait_time": "5s", "connect_time": "1s", "workers": 2, **settings}
        relay = Relay(cluster.port)
        relay.__enter__()
        relays.append(relay)
        if side == "database":
            url = cluster.url().replace(f":{cluster.port}/", f":{relay.port}/")
            return relay, start(databases={"bench": {"url": url}}, **settings).port
        relay.target = start(**settings).port
        return relay, relay.port

    yield make
    for relay in relays:
        relay.__exit__()


@pytest.mark.poolhouse_only
@SIDES
def test_a_slow_network(through, cluster, side):
    relay, port = through(side)
    with load_during_faults.load(cluster, port) as load:
        relay.delay = 0.02
        load.flows()
    assert not load.counts["lost"] and not load.counts["refused"]


@pytest.mark.poolhouse_only
@SIDES
def test_a_network_that_chops_everything_into_small_pieces(through, cluster, side):
    relay, port = through(side)
    relay.piece = 3
    with load_during_faults.load(cluster, port, clients=10) as load:
        load.flows()
    assert not load.counts["lost"] and not load.counts["refused"]


@pytest.mark.poolhouse_only
@SIDES
def test_connections_cut_at_random(through, cluster, side):
    relay, port = through(side)
    with load_during_faults.load(cluster, port) as load:
        for _ in range(20):
            relay.cut(0.5)
            time.sleep(0.1)
        load.flows()


@pytest.mark.poolhouse_only
def test_a_database_that_is_swallowed_for_a_while(through, cluster):
    """Neither side gets an error: only time-outs end it."""
    relay, port = through("database", query_time="1s")
    with load_during_faults.load(cluster, port) as load:
        relay.black_hole()
        time.sleep(3)
        relay.pass_again()
        load.flows()


@pytest.mark.poolhouse_only
def test_a_database_that_refuses_connections_for_a_while(through, cluster):
    relay, port = through("database")
    with load_during_faults.load(cluster, port) as load:
        relay.refusing = True
        relay.cut()
        time.sleep(1.5)
        relay.refusing = False
        load.flows()


@pytest.mark.poolhouse_only
def test_clients_that_are_swallowed_hold_no_server_for_ever(through, cluster):
    """Poolhouse ends their transactions, so that others are served meanwhile."""
    relay, port = through("clients", transaction_idle_time="1s")
    with load_during_faults.load(cluster, relay.target, "t_faults_of_others", clients=5) as others, load_during_faults.load(cluster, port, clients=20, pause=0.0) as load:
        relay.black_hole()
        time.sleep(3)
        others.flows()
        relay.pass_again()
        load.flows()
