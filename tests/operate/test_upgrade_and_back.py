"""Two versions take over from each other in turns, under load: no client fails, and nothing grows.

`POOLHOUSE_BEFORE` names the executable of the version before. Without it both are the same executable.
"""

import contextlib
import os
import threading

import pytest

from support import postgres_wire as w
from support.background_load import Load
from support.pooler import BINARY
from support.successors import successor
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

BINARY_BEFORE = os.environ.get("POOLHOUSE_BEFORE", BINARY)
TAKE_OVERS = 10
# The first process of a version allocates what those after it allocate as well; the allocator's arenas differ by so much.
MAX_GROWTH_KIB = 3 * 1024
MAX_GROWN_DESCRIPTORS = 1


class ComersAndGoers(Load):
    """Clients that connect, run transactions and leave, all the time but while they are held up."""

    def __init__(self, pooler, clients=6):
        super().__init__(pooler, clients)
        self.sessions, self.inside, self.may_come = 0, 0, threading.Event()
        self.may_come.set()

    def __exit__(self, *error):
        self.ending.set()
        self.may_come.set()
        super().__exit__(*error)

    def work(self):
        while not self.ending.is_set():
            self.may_come.wait()
            with self.lock:
                self.inside += 1
            try:
                with self.pooler.wire() as client:
                    for number in range(5):
                        client.query("BEGIN")
                        assert client.query(f"SELECT {number}") == [[str(number)]]
                        client.query("COMMIT")
            except (w.ServerError, w.Closed, OSError, AssertionError) as error:
                self.failures.append(repr(error))
            with self.lock:
                self.inside -= 1
                self.sessions += 1

    def flow(self, sessions=30):
        reached = self.sessions
        eventually("clients come and go", lambda: self.sessions > reached + sessions, 20)

    @contextlib.contextmanager
    def held_up(self):
        self.may_come.clear()
        eventually("all have left", lambda: self.inside == 0)
        yield
        self.may_come.set()


@pytest.mark.timeout(180)
def test_ten_take_overs_in_both_directions_lose_no_client_and_leave_nothing_behind(start):
    first = start(max_size=4, min_size=4, max_server_connections=8)
    now, sizes = first, {BINARY: [], BINARY_BEFORE: []}
    with first.wire() as idle, first.wire() as busy, ComersAndGoers(first) as load, contextlib.ExitStack() as processes:
        busy.query("BEGIN")
        busy.query("CREATE TEMP TABLE kept AS SELECT 42")
        load.flow()
        for number in range(TAKE_OVERS):
            program = (BINARY_BEFORE, BINARY)[number % 2]
            before = now
            now = processes.enter_context(successor(start, before, program))
            now.directory = first.directory
            load.flow()
            if before is not first:
                assert before.wait(20) == 0, before.log()
            with load.held_up():
                eventually("its servers are there", lambda: now.pools()[0]["servers"]["total"] >= 2 and now.pools()[0]["clients"] == 0)
                sizes[program].append((now.resident_kib(), now.descriptors()))
        assert idle.query("SELECT 'still there'") == [["still there"]]
        assert busy.query("SELECT * FROM kept") == [["42"]]
        busy.query("COMMIT")
        idle.close()
        busy.close()
        assert first.wait(20) == 0, "the first process ends with its last client"
        load.flow()
        assert not load.failures, load.failures[:5]
    print(sizes)
    for seen in sizes.values():
        (memory, descriptors), (last_memory, last_descriptors) = seen[0], seen[-1]
        assert last_memory <= memory + MAX_GROWTH_KIB and last_descriptors <= descriptors + MAX_GROWN_DESCRIPTORS, sizes
