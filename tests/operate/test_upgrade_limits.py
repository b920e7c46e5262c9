"""Limits hold for all processes of a configuration together, in whatever order they end and however they were started.
"""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from support import postgres_wire as w
from support.background_load import Load, no_failure
from support.pooler import BINARY
from support.postgres_cluster import free_port
from support.successors import FakeProcess, say, start_next, successor, unstarted_successor
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@contextlib.contextmanager
def most_servers(cluster):
    """The largest number of servers at one time while the body ran."""
    most, ending = [0], threading.Event()

    def watch():
        with cluster.superuser() as db:
            while not ending.wait(0.02):
                count = db.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'").fetchone()[0]
                most[0] = max(most[0], count)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        ending.set()
        watcher.join(10)


def begin(pooler, count):
    """Clients that begin a transaction, as far as there are servers."""
    clients = [pooler.wire() for _ in range(count)]
    for client in clients:
        with contextlib.suppress(w.ServerError):
            client.query("BEGIN")
    return clients


@pytest.mark.parametrize("way", ["by itself", "SIGTERM", "stay_time"])
def test_limits_hold_when_the_second_of_three_processes_ends_first(start, cluster, way):
    stay = {"stay_time": "1s"} if way == "stay_time" else {}
    first = start(max_size=4, max_server_connections=4, max_wait_time="1s", **stay)
    held = begin(first, 2)
    with successor(start, first) as second, contextlib.ExitStack() as idle:
        if way != "by itself":
            idle.enter_context(second.wire()).query("SELECT 1")
        with successor(start, second) as third:
            if way == "SIGTERM":
                second.signal()
            assert second.wait(15) == 0
            assert first.process.poll() is None
            with most_servers(cluster) as most:
                newcomers = begin(third, 4)
            assert most[0] <= 4, f"{most[0]} servers of 4"
            for client in held + newcomers:
                client.close()
            assert first.wait(15) == 0
            with no_failure(third, clients=12, sql="SELECT pg_sleep(0.01)"):
                eventually("all of it is the third one's", lambda: third.pools()[0]["servers"]["total"] == 4, 10)


@pytest.mark.parametrize("is_ending", [False, True], ids=["says nothing", "is ending"])
def test_limits_hold_before_the_process_before_says_that_it_has_left(start, cluster, is_ending):
    """A process that is ending also reports what it holds at an address of its own. That must not count twice."""
    first = start(max_size=8, max_server_connections=8, max_wait_time="1s")
    held = begin(first, 2)
    with FakeProcess(first) as second:
        limits = second.answer["own"]
        word = {"held": dict.fromkeys(limits, 6), "own": dict.fromkeys(limits, 4), "process": 7}
        if is_ending:
            second.report_at_own_address(**word)
        third = unstarted_successor(start, first)
        third.launch([BINARY, "serve", "--config", str(first.config_path), "--take-over"])
        stream = second.hand_over(**word)
        with most_servers(cluster) as most:
            newcomers = begin(third, 6)
        assert most[0] == 4, "the first has two, and the second keeps four of eight"
        say(stream, left=True, **word)
        eventually("it has taken over", lambda: "took over" in third.log())
        for client in held + newcomers:
            client.close()
        assert first.wait(15) == 0
        assert "all limits are this one's own" not in third.log()
    eventually("it is alone", lambda: "all limits are this one's own" in third.log())


@pytest.mark.timing
@pytest.mark.parametrize("flags", [["--take-over"], []], ids=["taking over", "started as usual"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_limits_hold_when_another_follows_one_that_ended(start, cluster, end, flags):
    """The first process has clients and no listening socket, and the second has ended: the third must know of the
    first."""
    first = start(max_size=4, max_server_connections=4, max_wait_time="10s")
    with Load(first, clients=8, sql="SELECT pg_sleep(0.05)") as old:
        with successor(start, first) as second:
            eventually("the first gives back", lambda: "left" if servers(cluster) <= 2 else None, 10)
            second.expected_status = -end if end == signal.SIGKILL else 0
            second.signal(end)
            assert second.wait(15) == second.expected_status
            # The first process needs time to see that.
            time.sleep(1)
            third = start_next(start, second, *flags)
            with most_servers(cluster) as most, no_failure(third, clients=8, sql="SELECT pg_sleep(0.05)"):
                time.sleep(2)
                assert third.pools()[0]["servers"]["total"] <= 2
            # A server that is closing may still be visible while its successor is opened.
            assert most[0] <= 5, f"{most[0]} servers of 4"
            assert f"pid={first.process.pid}" in third.log()
        assert old.done and not old.failures, old.failures[:5]
    assert first.wait(15) == 0
    with no_failure(third, clients=8, sql="SELECT pg_sleep(0.01)"):
        eventually("all of it is the third one's", lambda: third.pools()[0]["servers"]["total"] == 4, 10)


def servers(cluster):
    with cluster.superuser() as db:
        return db.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'").fetchone()[0]


@pytest.mark.parametrize("flags", [["--take-over"], []], ids=["taking over", "started as usual"])
def test_limits_hold_when_one_is_started_while_another_drains(start, cluster, flags):
    first = start(max_size=4, max_server_connections=4, max_wait_time="1s")
    held = begin(first, 2)
    drain(first)
    second = start_next(start, first, *flags)
    with most_servers(cluster) as most:
        newcomers = begin(second, 4)
    assert most[0] <= 4, f"{most[0]} servers of 4"
    for client in held + newcomers:
        client.close()
    assert first.wait(15) == 0
    with no_failure(second, clients=12, sql="SELECT pg_sleep(0.01)"):
        eventually("all of it is the second one's", lambda: second.pools()[0]["servers"]["total"] == 4, 10)


def test_one_takes_over_from_the_process_that_serves_beside_one_that_drains(start):
    first = start(max_size=4)
    with first.wire() as client:
        client.query("BEGIN")
        drain(first)
        second = start_next(start, first)
        with successor(start, second) as third:
            assert second.wait(15) == 0
            assert f"pid={first.process.pid}" in third.log()
            with third.wire() as newcomer:
                newcomer.query("SELECT 1")
            client.query("COMMIT")
    assert first.wait(15) == 0


def drain(pooler):
    """Stops listening. Its clients stay until the end of their transactions."""
    pooler.signal()
    eventually("it listens no longer", lambda: refused(pooler.port))
    # The process keeps its admin address to its end.
    text, port = pooler.config_path.read_text(), free_port()
    pooler.config_path.write_text(text.replace(str(pooler.admin_port), str(port)))
    pooler.admin_port = port


def refused(port):
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) != 0


def test_of_many_that_end_at_once_one_is_the_last(start):
    made = start.unstarted()
    command, _ = made.command({})
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(64)]
        for number, place in enumerate(places):
            place.bind(f"\0poolhouse.{os.getuid()}.127.0.0.1:{made.port}.t{number:05x}".encode())
            place.listen()
        made.launch(command)
        streams = [stack.enter_context(place.accept()[0]) for place in places]
        for number, stream in enumerate(streams, 1):
            say(stream, left=True, process=number)
        made.settle()
        for stream in streams:
            stream.close()
        ended = "a process before this one has ended"
        eventually("all have ended", lambda: made.log().count(ended) + made.log().count("this one's own") == len(streams))
    assert "the process before has ended: all limits are this one's own" in made.log()


def test_what_was_left_to_a_process_that_did_not_take_over_comes_back(start):
    pooler = start(max_size=4, max_server_connections=4, max_wait_time="2s")
    with pooler.wire() as client:
        client.query("SELECT 1")
        with socket.socket(socket.AF_UNIX) as meeting:
            place = f"poolhouse.{os.getuid()}.127.0.0.1:{pooler.port}".encode()
            eventually("it waits for a successor", lambda: meeting.connect_ex(b"\0" + place) == 0)
            meeting.sendall(b'{"take_over":1}\n')
            _, given, _, _ = socket.recv_fds(meeting, 1, 8)
            assert b"held" in meeting.recv(4096)
            for descriptor in given:
                os.close(descriptor)
        eventually("it notes that", lambda: "wanted to take over and did not" in pooler.log())
        others = [pooler.wire() for _ in range(4)]
        for other in others:
            other.query("BEGIN")
        for other in others:
            other.close()
