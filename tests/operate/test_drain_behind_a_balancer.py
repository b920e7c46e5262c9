"""One of five instances behind HAProxy is drained over time: no transaction is aborted, no connect refused, and a client of
that instance is disconnected once. The balancer asks /ready, as a platform does."""

import contextlib
import shutil
import subprocess
import threading
import time

import pytest

from support.moving_clients import Clients
from support.postgres_cluster import free_port
from support.postgres_wire import Closed, Wire
from support.waiting import eventually

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.skipif(not shutil.which("haproxy"), reason="HAProxy is not installed")]

INSTANCES, CLIENTS = 5, 1000


class Balancer:
    """HAProxy in front of these instances; a client sees it as it sees a pooler."""

    def __init__(self, directory, instances):
        self.port = free_port()
        servers = "".join(
            f"  server s{number} 127.0.0.1:{one.port} check port {one.admin_port} inter 200ms fall 1 rise 1\n"
            for number, one in enumerate(instances)
        )
        path = directory / "haproxy.cfg"
        path.write_text(
            "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 2m\n  timeout server 2m\n  timeout check 5s\n  maxconn 4000\n"
            f"listen pool\n  bind 127.0.0.1:{self.port}\n  balance leastconn\n  option httpchk\n"
            f"  http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost\n  http-check expect status 200\n  option redispatch 1\n  retries 5\n{servers}"
        )
        self.process = subprocess.Popen(["haproxy", "-f", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wire(self, timeout=10):
        return Wire(self.port, timeout).login("app", None, "bench")

    def forwards(self):
        with contextlib.suppress(OSError, Closed), self.wire():
            return True
        return False

    def stop(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.timing
def test_clients_of_the_drained_instance_go_once_and_all_others_stay(start, workspace):
    settings = {"users": {}, "max_size": 4, "max_wait_time": "30s", "drain_time": "20s"}
    instances = [start(**settings) for _ in range(INSTANCES)]
    for one in instances:
        eventually("it is ready", lambda one=one: one.get("/ready")[0] == 200)
    directory = workspace / "balancer"
    directory.mkdir(exist_ok=True)
    balancer = Balancer(directory, instances)
    try:
        eventually("it forwards", balancer.forwards)
        time.sleep(1)
        assert balancer.forwards(), "the balancer has asked /ready, and forwards still"
        clients = Clients(balancer, balancer, CLIENTS)
        drained = instances[0]
        held = sum(pool["clients"] for pool in drained.pools())
        assert held > CLIENTS / INSTANCES / 2
        for thread in clients.threads:
            thread.start()
        time.sleep(0.5)
        order = threading.Thread(target=lambda: drained.ctl("drain", "--over", "5s"))
        order.start()
        assert drained.wait(20) == 0
        time.sleep(0.5)
        clients.ending.set()
        for thread in clients.threads:
            thread.join(30)
        order.join(5)
    finally:
        balancer.stop()
    assert not clients.aborted, (len(clients.aborted), clients.aborted[:3])
    assert not clients.refused, (len(clients.refused), clients.refused[:3])
    assert set(clients.disconnects) == {0, 1} and sum(clients.disconnects) == held
