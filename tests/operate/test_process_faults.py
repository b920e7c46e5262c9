"""Poolhouse itself is killed, runs out of descriptors or cannot write its log."""

import pathlib
import subprocess
import time

import pytest

from support import load_during_faults
from support import postgres_wire as w
from support.pooler import BINARY
from support.waiting import eventually


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def launch(pooler, shell, **settings):
    """Starts the pooler from a shell command that ends with exec "$@"."""
    command, extra = pooler.command(settings)
    pooler.launch(["sh", "-c", f'{shell} exec "$@"', "sh", *command], **extra)
    return pooler


@pytest.mark.poolhouse_only
def test_killed_under_load_and_started_again(start, cluster):
    pooler = start(max_size=5, max_wait_time="8s", workers=2)
    command, _ = pooler.command({"max_size": 5, "max_wait_time": "8s", "workers": 2})
    with load_during_faults.load(cluster, pooler.port) as load:
        for _ in range(3):
            pooler.process.kill()
            pooler.process.wait()
            # Open transactions are rolled back.
            eventually("the servers are gone", lambda: not cluster.backends(), 10)
            pooler.launch(command)
            load.flows()


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_descriptors_run_out_and_come_back(start, cluster):
    pooler = launch(start.unstarted(), "ulimit -n 80;", max_size=5, max_wait_time="5s", hard_limit=1000, login_time="60s")
    with load_during_faults.load(cluster, pooler.port, clients=5) as load:
        # The kernel accepts these connections; Poolhouse cannot.
        crowd = [pooler.open() for _ in range(150)]
        time.sleep(0.5)
        before = cpu_seconds(pooler.process.pid)
        load.flows()
        answered, began = load.answered(), time.monotonic()
        time.sleep(1)
        busy = (cpu_seconds(pooler.process.pid) - before) / (time.monotonic() - began + 1)
        print(f"{load.answered() - answered} answers a second, {busy:.0%} of a CPU")
        for client in crowd:
            client.close()
        load.flows()
        with pooler.wire() as newcomer:
            assert newcomer.query("SELECT 'served'") == [["served"]]


@pytest.mark.poolhouse_only
def test_the_admin_address_answers_while_clients_have_all_their_descriptors(start, cluster):
    pooler = launch(start.unstarted(), "ulimit -n 80;", max_size=2, hard_limit=1000, login_time="60s")
    pooler.settle()
    crowd = [pooler.open() for _ in range(150)]
    eventually("no more clients come in", lambda: "cannot accept clients" in pooler.log())
    for _ in range(20):
        assert pooler.get("/health")[0] == 200
        assert pooler.metric("poolhouse_clients") > 20
    assert pooler.metric("poolhouse_accepts_failed_total") > 0
    told = subprocess.run([BINARY, "doctor", pooler.admin_url, "--window", "2s"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert told.returncode == 1 and "clients cannot be accepted" in told.stdout, told
    for client in crowd:
        client.close()


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_without_descriptors_it_does_not_spin(start, cluster):
    pooler = launch(start.unstarted(), "ulimit -n 60;", max_size=2, hard_limit=1000, login_time="60s")
    crowd = [pooler.open() for _ in range(150)]

    def rests():
        before = cpu_seconds(pooler.process.pid)
        time.sleep(2)
        return cpu_seconds(pooler.process.pid) - before < 0.6

    eventually("it waits for descriptors and burns no CPU", rests, 10)
    for client in crowd:
        client.close()


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_a_full_disk_under_the_log_disturbs_no_client(start, cluster):
    pooler = launch(start.unstarted(), "exec 2>/dev/full >/dev/full;", max_size=5, max_wait_time="8s", workers=2)
    with load_during_faults.load(cluster, pooler.port) as load:
        for _ in range(10):
            # Each failed login is logged.
            with pytest.raises((w.ServerError, w.Closed)):
                pooler.wire(user="nobody", password="wrong")
            cluster.terminate()
            time.sleep(0.1)
        load.flows()
