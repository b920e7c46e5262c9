"""A process that serves PostgreSQL, Redis and HTTP is replaced by the next one, again and again. No client of any
protocol loses anything.
"""

import contextlib
import pathlib
import subprocess
import threading

import pytest
import redis as redis_py

from support import postgres_wire as w
from support.pooler import BINARY
from support.shared_budget import MixedPooler, redis, start_mixed
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@contextlib.contextmanager
def successor(old):
    """A process with the same configuration that takes over. The fixture stops it unless another process has followed
    it."""
    new = MixedPooler(old.directory, old.cluster, old.redis)
    for port in ("port", "redis_port", "http_port", "admin_port"):
        setattr(new, port, getattr(old, port))
    new.path, new.log_path = old.path, pathlib.Path(f"{old.log_path}+")
    with new.log_path.open("ab") as log:
        new.process = subprocess.Popen([BINARY, "serve", "--config", str(old.path), "--take-over"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                       cwd=old.directory)
    try:
        eventually("it has taken over", lambda: "took over" in new.log() or new.process.poll() is not None, 15)
        assert "took over" in new.log(), new.log()
        yield new
    finally:
        new.stop()


class Comers:
    """Clients of one protocol that connect, increment a counter, and leave. Each increment was acknowledged."""

    def __init__(self, visit, comers=2):
        self.visit, self.over, self.done, self.failures, self.lock = visit, threading.Event(), 0, [], threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(comers)]

    def run(self):
        while not self.over.is_set():
            try:
                self.visit()
                with self.lock:
                    self.done += 1
            except (w.ServerError, w.Closed, OSError, AssertionError, redis_py.RedisError) as failure:
                self.failures.append(repr(failure))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join(20)


def test_of_no_kind_does_a_client_fail_while_one_process_follows_another(start_mixed, cluster):
    with cluster.superuser("bench") as db:
        db.execute("DROP TABLE IF EXISTS visits; CREATE TABLE visits (); GRANT ALL ON visits TO PUBLIC")
    first = start_mixed(limit=6, rules='max_wait_time = "8s"\n')

    def postgres():
        with first.wire(timeout=20) as client:
            client.query("INSERT INTO visits DEFAULT VALUES")

    def of_redis():
        with contextlib.closing(first.redis_client()) as client:
            client.incr("visits")

    def http():
        with contextlib.closing(first.rest()) as client:
            client.command("INCR", "visits over HTTP")

    with contextlib.ExitStack() as processes:
        with Comers(postgres) as one, Comers(of_redis) as two, Comers(http) as three:
            now = first
            for _ in range(3):
                before = [comers.done for comers in (one, two, three)]
                new = processes.enter_context(successor(now))
                eventually("all kinds are served", lambda: all(
                    comers.done > count + 10 or comers.failures for comers, count in zip((one, two, three), before)), 20)
                assert now.wait(10) == 0, "the one before ends"
                now.process, now = None, new
        for comers in (one, two, three):
            assert not comers.failures, comers.failures[:5]
        stored = first.redis.connect()
        assert int(stored.get("visits")) == two.done
        assert int(stored.get("visits over HTTP")) == three.done
        with cluster.superuser("bench") as db:
            assert db.execute("SELECT count(*) FROM visits").fetchone() == (one.done,)
