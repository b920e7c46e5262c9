"""Clients that connect elsewhere when they are disconnected, and note what that cost. It knows no pooler's configuration."""

import threading
import time

from support import postgres_wire as w

THREADS = 8


class Clients:
    """Clients that run transactions at the first instance, and at the second one once they were disconnected."""

    def __init__(self, first, second, count):
        self.first, self.second = first, second
        self.wires = [first.wire(timeout=30) for _ in range(count)]
        self.disconnects = [0] * count
        self.went_at, self.aborted, self.refused = [], [], []
        self.ending, self.lock = threading.Event(), threading.Lock()
        self.threads = [threading.Thread(target=self.work, args=(number,), daemon=True) for number in range(THREADS)]

    def work(self, number):
        while not self.ending.is_set():
            for index in range(number, len(self.wires), THREADS):
                self.transaction(index)
            time.sleep(0.01)

    def transaction(self, index):
        wire = self.wires[index]
        try:
            wire.query("BEGIN")
        except (w.ServerError, w.Closed, OSError):
            return self.move(index)
        try:
            wire.query("SELECT 1")
            wire.query("COMMIT")
        except (w.ServerError, w.Closed, OSError) as error:
            self.aborted.append(repr(error))

    def move(self, index):
        with self.lock:
            self.disconnects[index] += 1
            self.went_at.append(time.monotonic())
        try:
            self.wires[index] = self.second.wire(timeout=30)
        except (w.ServerError, w.Closed, OSError) as error:
            self.refused.append(repr(error))
