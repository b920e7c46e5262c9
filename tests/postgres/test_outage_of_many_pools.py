"""Many pools of one database that was out of reach: once the first pool has connected again, the others follow soon."""

import concurrent.futures
import time

import pytest

from support.relay import Relay

pytestmark = pytest.mark.poolhouse_only

POOLS = 30


@pytest.mark.timing
def test_pools_that_wait_for_their_next_try_go_on_as_soon_as_one_of_them_has_connected(start, cluster):
    with Relay(cluster.port) as relay:
        url = cluster.url().replace(f":{cluster.port}/", f":{relay.port}/")
        databases = {f"bench{n}": {"url": url} for n in range(POOLS)}
        pooler = start(databases=databases, unavailable_wait_time="60s", login_time="60s")

        def ask(n):
            with pooler.connect(database=f"bench{n}", connect_timeout=60) as db:
                db.execute("SELECT 1")
            return time.monotonic()

        relay.refusing = True
        with concurrent.futures.ThreadPoolExecutor(POOLS) as threads:
            asked = [threads.submit(ask, n) for n in range(POOLS)]
            # The pauses between attempts have reached their maximum.
            time.sleep(12)
            relay.refusing = False
            served = sorted(each.result() for each in asked)
        print([round(at - served[0], 2) for at in served])
        assert served[-1] - served[0] < 2
