"""A load of clients that continues during faults. Each request has a nonce that its answer must echo, each write a key
of its own, and the load records what was answered, acknowledged and lost. It knows neither the fault nor the pooler.
"""

import asyncio
import collections
import random
import threading
import time

from hunts.adversarial.session import Closed, Session
from support import postgres_wire as w

# A request that takes longer, connecting included, hangs. This is above all time-outs that the tests set.
HANG_SECONDS = 15
# Classes of SQLSTATE that a client may get when a server, the network or the pooler fails: connection, operator
# intervention, resources, system.
EXCUSES = ("08", "57", "53", "58")
# Bounds what is recorded when everything goes wrong.
MAX_REQUESTS = 200_000


class Load:
    """Runs in a thread of its own for the length of the `with`. A client whose connection is lost opens a new one."""

    def __init__(self, port, table, clients=20, user="app", password="app secret", database="bench", pause=0.002, seed=None):
        self.port, self.table, self.clients, self.login, self.pause = port, table, clients, (user, password, database), pause
        self.seed = random.randrange(1 << 31) if seed is None else seed
        # Outcomes of requests: answered, refused (with an error), lost (with the connection), hung.
        self.counts = collections.Counter()
        # Wrong answers, as text. Each fails the test.
        self.wrong = []
        # Keys whose write was acknowledged, and keys whose write has an unknown outcome.
        self.acknowledged, self.unknown = set(), set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(HANG_SECONDS + 10)
        assert not self.thread.is_alive(), "the load does not end"

    def answered(self):
        return self.counts["answered"]

    def flows(self, seconds=20, requests=100):
        """Waits until `requests` more requests have been answered."""
        wanted, deadline = self.answered() + requests, time.monotonic() + seconds
        while self.answered() < wanted:
            assert time.monotonic() < deadline, f"not {requests} more answers within {seconds} s: {dict(self.counts)} {self.wrong[:3]}"
            time.sleep(0.02)

    def check(self, cluster):
        """Checks what must be true of a load at its end, whatever the fault was."""
        print(f"seed {self.seed}: {dict(self.counts)}, {len(self.acknowledged)} writes acknowledged, {len(self.unknown)} of unknown fate")
        assert not self.wrong, self.wrong[:5]
        assert not self.counts["hung"], f"requests hung: {dict(self.counts)}"
        rows = collections.Counter(key for (key,) in cluster.query(f"SELECT key FROM {self.table}", database=self.login[2]))
        twice = [key for key, count in rows.items() if count > 1]
        assert not twice, f"written twice: {twice[:5]}"
        assert not (missing := self.acknowledged - rows.keys()), f"acknowledged but not there: {sorted(missing)[:5]}"
        assert not (uncalled := rows.keys() - self.acknowledged - self.unknown), f"there, though its client was told that it failed: {sorted(uncalled)[:5]}"

    # -- in the thread

    async def run(self):
        await asyncio.gather(*(self.client(n) for n in range(self.clients)))

    async def client(self, number):
        chance, session, asked = random.Random(f"{self.seed} {number}"), None, 0
        while not self.over.is_set() and sum(self.counts.values()) < MAX_REQUESTS:
            asked += 1
            key = f"{number}-{asked}"
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    if session is None:
                        session = await Session.connect(("127.0.0.1", self.port), *self.login, {})
                    await self.request(session, key, chance.randrange(4))
            except TimeoutError:
                self.counts["hung"] += 1
                session = self.drop(session)
            except (Closed, OSError):
                self.counts["lost"] += 1
                session = self.drop(session)
                await asyncio.sleep(0.05)
            await asyncio.sleep(self.pause * chance.random())
        if session:
            session.leave()

    def drop(self, session):
        if session:
            session.leave(politely=False)

    async def request(self, session, key, shape):
        if shape < 2:
            data = w.query(f"SELECT '{key}'") if shape == 0 else w.parse("SELECT $1::text") + w.bind([key]) + w.execute() + w.SYNC
            answers = await session.ask(data, 1)
            if not self.excused(answers):
                if [body[6:].decode() for kind, *rest in answers for body in rest if kind == "D"] != [key]:
                    self.wrong.append(f"asked for {key}, got {answers}")
                self.counts["answered"] += 1
            return
        # The outcome is unknown until the answer has arrived.
        self.unknown.add(key)
        if shape == 2:
            refused = self.excused(await session.ask(w.query(f"INSERT INTO {self.table} VALUES ('{key}')"), 1))
        else:
            refused = self.excused(await session.ask(w.query("BEGIN"), 1)) \
                or self.excused(await session.ask(w.query(f"INSERT INTO {self.table} VALUES ('{key}')"), 1)) \
                or self.excused(await session.ask(w.query("COMMIT"), 1))
        if refused:
            # Such an error (57014 and its like) says that nothing was written, unless it concerns the connection
            # itself.
            return
        self.unknown.discard(key)
        self.acknowledged.add(key)
        self.counts["answered"] += 1

    def excused(self, answers):
        """Whether the answer is an error that a fault explains. Any other error is wrong."""
        errors = [answer for answer in answers if answer[0] == "E"]
        if not errors:
            return False
        if errors[0][2][:2] in EXCUSES or errors[0][2] == "25P02":
            self.counts["refused"] += 1
        else:
            self.wrong.append(str(errors[0]))
        return True
