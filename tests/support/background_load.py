"""Clients that work in the background and report each failure. It knows no pooler's configuration."""

import contextlib
import threading
import time

import psycopg


class Load:
    """Clients that each run one statement after another until the end."""

    def __init__(self, pooler, clients=8, sql="SELECT 1", pause=0.001):
        self.pooler, self.sql, self.pause = pooler, sql, pause
        self.done, self.failures, self.slowest = 0, [], 0.0
        self.lock, self.ending = threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.work, daemon=True) for _ in range(clients)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self.threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in self.threads), "a client hangs"

    def work(self):
        try:
            with self.pooler.connect() as connection:
                while not self.ending.is_set():
                    began = time.monotonic()
                    connection.execute(self.sql)
                    with self.lock:
                        self.done += 1
                        self.slowest = max(self.slowest, time.monotonic() - began)
                    time.sleep(self.pause)
        except psycopg.Error as error:
            with self.lock:
                self.failures.append(str(error))


@contextlib.contextmanager
def no_failure(pooler, **more):
    """A load whose requests must all succeed while the body of the `with` runs."""
    with Load(pooler, **more) as load:
        yield load
        reached = load.done
        deadline = time.monotonic() + 10
        while load.done < reached + len(load.threads) and not load.failures and time.monotonic() < deadline:
            time.sleep(0.01)
    assert not load.failures, load.failures[:5]
    assert load.done > reached, "the load stands still"
