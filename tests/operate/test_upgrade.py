"""A second process takes over. No connected client is lost, and limits hold for both processes together."""

import contextlib
import os
import pathlib
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest

from support import postgres_wire as w
from support.background_load import no_failure
from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS, unprivileged
from support.successors import successor
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.quick
def test_idle_clients_stay_where_they_are_and_new_ones_come_to_the_new_process(start, cluster):
    pooler = start(max_size=4)
    with pooler.wire() as idle, pooler.wire() as busy:
        idle.query("SELECT 1")
        busy.query("BEGIN")
        with successor(start, pooler) as new:
            with pooler.wire() as newcomer:
                newcomer.query("SELECT 1")
                assert new.pools()[0]["clients"] == 1, "the admin address is the new process's"
            assert idle.query("SELECT 'still served'") == [["still served"]]
            busy.query("COMMIT")
            assert pooler.wait(0.3) is None
            idle.close()
            busy.close()
            assert pooler.wait(5) == 0, "the old process ends with its last client"
            with pooler.wire() as newcomer:
                newcomer.query("SELECT 1")


@pytest.mark.skipif(os.getuid() != 0, reason="another user of the machine is needed")
@contextlib.contextmanager
def another_user_listens(name):
    """A process of another user that has bound an abstract socket name first. It is forked, because that user may not
    be able to run this Python."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(unprivileged()["group"])
            os.setuid(unprivileged()["user"])
            with socket.socket(socket.AF_UNIX) as listening:
                listening.bind(name.replace("@", "\0"))
                listening.listen()
                os.write(write, b"1")
                signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    try:
        assert os.read(read, 1) == b"1"
        yield
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be two users")
def test_another_user_that_binds_the_meeting_socket_stops_no_take_over(start):
    """Any user may bind a name in the abstract namespace, and this name can be guessed."""
    pooler = start.unstarted()
    with another_user_listens(f"@poolhouse.{os.getuid()}.127.0.0.1:{pooler.port}"):
        pooler.start(max_size=4)
        with pooler.wire() as idle, successor(start, pooler) as new:
            with pooler.wire() as newcomer:
                newcomer.query("SELECT 1")
            assert new.pools()[0]["clients"] <= 1 and idle.query("SELECT 1") == [["1"]]
            assert "waits beside it" in pooler.log()


def test_no_client_fails_while_processes_take_over_from_each_other(start):
    pooler = start(max_size=4, stay_time="1s")
    ending, failures, done = threading.Event(), [], [0]

    def come_and_go():
        while not ending.is_set():
            try:
                with pooler.wire() as client:
                    client.query("SELECT 1")
                done[0] += 1
            except (w.ServerError, w.Closed, OSError, AssertionError) as error:
                failures.append(repr(error))

    comers = [threading.Thread(target=come_and_go) for _ in range(4)]
    for comer in comers:
        comer.start()
    try:
        now = pooler
        for _ in range(4):
            before = done[0]
            with successor(start, now) as new:
                new.directory = pooler.directory
                eventually("clients come", lambda: done[0] > before + 20, 10)
                assert now.wait(8) == 0
                now = new
    finally:
        ending.set()
        for comer in comers:
            comer.join(15)
    assert not failures, failures[:5]


@pytest.mark.timing
def test_pgbench_that_connects_for_each_transaction_loses_none(start, cluster):
    pooler = start(max_size=4, stay_time="2s")
    with cluster.superuser("bench") as db:
        db.execute("CREATE TABLE IF NOT EXISTS t_upgrade (v int)")
    script = pooler.directory / "script.sql"
    script.write_text("SELECT 1;\n")
    bench = threading.Thread(target=lambda: results.append(
        pooler.run("pgbench", "-n", "-C", "-c", "4", "-T", "5", "-f", script)))
    results = []
    bench.start()
    time.sleep(1)
    with successor(start, pooler):
        bench.join(30)
    (result,) = results
    assert result.returncode == 0, result.stdout[-3000:]
    assert "number of failed transactions: 0" in result.stdout or "failed" not in result.stdout, result.stdout


def test_clients_of_the_old_process_work_on_through_the_upgrade(start):
    pooler = start(max_size=3)
    with no_failure(pooler, clients=6) as load:
        with successor(start, pooler):
            reached = load.done
            eventually("they go on", lambda: load.done > reached + 100, 10)
    assert pooler.wait(5) == 0


@pytest.mark.timing
def test_both_together_stay_within_the_limits(start, cluster):
    pooler = start(max_size=6, max_server_connections=6, max_wait_time="10s")
    most, ending = [0], threading.Event()

    def watch():
        with cluster.superuser() as db:
            while not ending.is_set():
                count = db.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'").fetchone()[0]
                most[0] = max(most[0], count)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with no_failure(pooler, clients=12, sql="SELECT pg_sleep(0.01)"):
            with successor(start, pooler) as new, no_failure(new, clients=12, sql="SELECT pg_sleep(0.01)"):
                time.sleep(2)
                shares = {pool["servers"]["total"] for pool in new.pools()}
                assert max(shares) <= 3, shares
        assert pooler.wait(5) == 0
        with no_failure(new, clients=12, sql="SELECT pg_sleep(0.01)"):
            eventually("all of it is the new one's", lambda: new.pools()[0]["servers"]["total"] == 6, 10)
    finally:
        ending.set()
        watcher.join(10)
    # A server that is closing may still be visible while its successor is opened.
    assert most[0] <= 7, f"{most[0]} servers of 6"


def test_three_together_stay_within_the_limits(start, cluster):
    """The third process hears from the first what that still holds, also after the second has ended."""
    def servers():
        with cluster.superuser() as db:
            return db.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'").fetchone()[0]

    first = start(max_size=4, max_server_connections=4, max_wait_time="1s")
    held = [first.wire() for _ in range(4)]
    for client in held:
        client.query("BEGIN")
    with successor(start, first) as second, successor(start, second) as third:
        newcomers = [third.wire() for _ in range(4)]
        most = 0
        for client in newcomers:
            with contextlib.suppress(w.ServerError):
                client.query("BEGIN")
            most = max(most, servers())
        # Each process may have one server in any case.
        assert most <= 5, f"{most} servers of 4"
        for client in held + newcomers:
            client.close()
        assert first.wait(5) == 0
        with no_failure(third, clients=12, sql="SELECT pg_sleep(0.01)"):
            eventually("all of it is the third one's", lambda: third.pools()[0]["servers"]["total"] == 4, 10)


@pytest.mark.timing
def test_clients_stay_although_a_drain_time_bounds_a_stop(start):
    pooler = start(drain_time="500ms")
    with pooler.wire() as idle:
        idle.query("SELECT 1")
        with successor(start, pooler):
            eventually("the old process knows", lambda: "another process has taken over" in pooler.log())
            time.sleep(1)
            idle.query("SELECT 1")
            idle.close()
            assert pooler.wait(15) == 0


def test_idle_clients_go_when_stay_time_is_over(start):
    pooler = start(stay_time="500ms")
    with pooler.wire() as idle:
        idle.query("SELECT 1")
        with successor(start, pooler):
            assert idle.error().sqlstate == "57P01"
            assert pooler.wait(5) == 0


def test_a_successor_that_cannot_start_changes_nothing(start):
    pooler = start()
    text = pooler.config_path.read_text()
    with pooler.wire() as client:
        pooler.config_path.write_text(text.replace("transaction", "transactoin") + "\n[serve]\nworkers = 999\n")
        refused = subprocess.run([BINARY, "serve", "--config", str(pooler.config_path), "--take-over"],
                                 capture_output=True, text=True, timeout=20)
        assert refused.returncode == 2
        client.query("SELECT 1")
    with pooler.wire() as client:
        client.query("SELECT 1")


def test_without_the_flag_a_second_process_is_refused(start):
    pooler = start()
    eventually("it is ready", lambda: pooler.get("/ready")[0] == 200)
    refused = subprocess.run([BINARY, "serve", "--config", str(pooler.config_path)], capture_output=True, text=True,
                             timeout=20)
    assert refused.returncode == 1 and "in use" in refused.stderr.lower()


def test_a_unix_socket_is_handed_over_with_its_file(start):
    made = start.unstarted()
    path = made.directory / ".s.PGSQL.7000"
    pooler = made.start(listen=[f"127.0.0.1:{made.port}", str(path)])
    with successor(start, pooler):
        assert pooler.wait(5) == 0
        with w.Wire(path).login("app", pooler.target()["password"]) as client:
            client.query("SELECT 1")


def test_without_a_process_to_take_over_from_it_starts_by_itself(start):
    made = start.unstarted()
    command, _ = made.command({})
    made.launch([*command, "--take-over"])
    with made.wire() as client:
        client.query("SELECT 1")


@pytest.mark.timing
def test_without_descriptors_one_that_waits_for_its_successor_rests(start):
    pooler = start()
    pooler.settle()
    pid = pooler.process.pid
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    with socket.socket(socket.AF_UNIX) as meeting:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        meeting.connect(f"\0poolhouse.{os.getuid()}.127.0.0.1:{pooler.port}".encode())
        before = processor_seconds(pid)
        time.sleep(2)
        assert processor_seconds(pid) - before < 0.3
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    with successor(start, pooler):
        assert pooler.wait(5) == 0


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("successor_ends", [False, True])
def test_socket_files_are_the_successors_as_soon_as_it_has_the_sockets(start, workspace, successor_ends):
    path = workspace / "given.sock"
    pooler = start.unstarted()
    command, _ = pooler.command({"listen": [str(path), f"127.0.0.1:{pooler.port}"]})
    pooler.launch(command)
    with socket.socket(socket.AF_UNIX) as meeting:
        place = f"poolhouse.{os.getuid()}.unix:{path}".encode()[-100:]
        eventually("it waits for a successor", lambda: meeting.connect_ex(b"\0" + place) == 0)
        meeting.sendall(b'{"take_over":1}\n')
        _, given, _, _ = socket.recv_fds(meeting, 1, 8)
        assert len(given) == 3
        # The process never hears that the successor serves, because the successor has only begun to.
        if successor_ends:
            meeting.close()
            eventually("it has noticed", lambda: "wanted to take over and did not" in pooler.log())
        pooler.signal()
        assert pooler.wait(5) == 0
        assert path.exists() != successor_ends
        for descriptor in given:
            os.close(descriptor)


def test_the_socket_file_of_systemd_survives_processes_that_take_over(start):
    pooler = start.unstarted()
    path = pooler.directory / "socket"
    pooler.rewrite(listen=[f"127.0.0.1:{pooler.port}", f"unix:{path}"])
    with socket.socket(socket.AF_UNIX) as passed:
        passed.bind(str(path))
        passed.listen()
        as_systemd = f'exec 3<&{passed.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
        pooler.launch(["bash", "-c", as_systemd, "bash", BINARY, "serve", "--config", str(pooler.config_path)],
                      pass_fds=[passed.fileno()])
        with successor(start, pooler) as second:
            assert pooler.wait(5) == 0 and path.exists()
            with w.Wire(path) as client:
                client.login("app", PASSWORDS["app"])
            with successor(start, second) as third:
                assert second.wait(5) == 0
                third.stop()
        assert path.exists(), "the next process that systemd starts needs it"
