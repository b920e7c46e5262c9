"""Each client gets its own answers and never those of another: the promise that a pooler must not break."""

import asyncio
import contextlib
import os
import random
import struct

import pytest

from support import postgres_wire as w
from support.postgres_cluster import md5_hash

CLIENTS, QUERIES = 300, 40


class Client:
    """A minimal asyncio client. Each request has a nonce, and the answer must be that nonce."""

    def __init__(self, chance, number):
        self.chance, self.number, self.asked = chance, number, 0

    async def connect(self, pooler):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", pooler.port)
        name = f"app {self.number}"
        self.writer.write(w.startup(user="app", database="bench", application_name=name))
        while True:
            kind, body = await self.message()
            if kind == b"R" and struct.unpack_from("!I", body)[0] == 5:
                inner = md5_hash("app")[3:].encode()
                self.writer.write(w.message(b"p", w.cstr("md5" + w.hashlib.md5(inner + body[4:8]).hexdigest())))
            elif kind == b"E":
                raise_error(w.error_fields(body))
            elif kind == b"Z":
                return self

    async def message(self):
        head = await self.reader.readexactly(5)
        return head[:1], await self.reader.readexactly(struct.unpack("!I", head[1:])[0] - 4)

    async def answers(self):
        rows = []
        while True:
            kind, body = await self.message()
            if kind == b"D":
                rows.append(w.row(body))
            elif kind == b"E":
                raise_error(w.error_fields(body))
            elif kind == b"Z":
                return rows, body

    async def ask(self):
        """Sends one request of a random shape, and returns after checking its answer."""
        self.asked += 1
        nonce = f"{self.number}-{self.asked}-{self.chance.getrandbits(64):x}"
        shape = self.chance.randrange(5)
        select = f"SELECT '{nonce}', current_setting('application_name')"
        expected = [[nonce, f"app {self.number}"]]
        if shape == 0:
            self.writer.write(w.query(select))
        elif shape == 1:
            self.writer.write(w.parse("SELECT $1, current_setting('application_name')", types=[25])
                              + w.bind([nonce]) + w.execute() + w.SYNC)
        elif shape == 2:
            self.writer.write(w.query("BEGIN"))
            assert await self.answers() == ([], b"T")
            await asyncio.sleep(self.chance.random() * 0.002)
            self.writer.write(w.query(select))
            assert await self.answers() == (expected, b"T")
            self.writer.write(w.query("COMMIT"))
            expected = []
        elif shape == 3:
            size = self.chance.randrange(1, 20_000)
            self.writer.write(w.query(f"SELECT '{nonce}', repeat('{self.number % 10}', {size})"))
            expected = [[nonce, str(self.number % 10) * size]]
        else:
            self.writer.write(w.query(select) * 3)
            for _ in range(2):
                assert await self.answers() == (expected, b"I")
        assert await self.answers() == (expected, b"I")

    async def die(self):
        """Closes the connection in the middle of a request."""
        self.writer.write(self.chance.choice([w.query("BEGIN"), w.query("SELECT pg_sleep(0.01), 'nobody'"),
                                              w.query("SELECT 'cut"), w.parse("SELECT 'nobody'") + w.bind()]))
        await asyncio.sleep(self.chance.random() * 0.005)
        self.writer.transport.abort()


class Lost(Exception):
    """The server died during a request and the client got an error, which is correct."""


def raise_error(fields):
    if fields["C"][:2] in ("57", "08"):
        raise Lost(fields)
    raise AssertionError(fields)


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.poolhouse_only)])
def test_each_of_hundreds_of_clients_gets_its_own_answers_while_others_are_killed(start, workers):
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
    print(f"replay with TEST_SEED={seed}")
    pooler = start(max_size=7, max_wait_time="60s", workers=workers, users={"app": md5_hash("app")},
                   ini={"auth_type": "md5"})
    asked = 0

    async def one(number):
        nonlocal asked
        chance = random.Random(f"{seed} {number}")
        client = await Client(chance, number).connect(pooler)
        for _ in range(QUERIES):
            await client.ask()
            asked += 1
            if chance.random() < 0.03:
                await client.die()
                client = await Client(chance, number).connect(pooler)
        client.writer.write(w.TERMINATE)
        with contextlib.suppress(ConnectionError):
            client.writer.close()
            await client.writer.wait_closed()

    async def all_clients():
        async with asyncio.timeout(80):
            async with asyncio.TaskGroup() as group:
                for number in range(CLIENTS):
                    group.create_task(one(number))

    asyncio.run(all_clients())
    assert asked == CLIENTS * QUERIES


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.poolhouse_only)])
def test_answers_stay_with_their_askers_while_servers_die(start, cluster, workers):
    seed = int(os.environ.get("TEST_SEED", random.randrange(1 << 32)))
    print(f"replay with TEST_SEED={seed}")
    pooler = start(max_size=5, max_wait_time="60s", workers=workers, users={"app": md5_hash("app")},
                   ini={"auth_type": "md5"})
    outcome = {"answered": 0, "lost": 0}
    finished = False

    async def one(number):
        chance = random.Random(f"{seed} {number}")
        client = None
        for _ in range(30):
            try:
                client = client or await Client(chance, number).connect(pooler)
                await client.ask()
                outcome["answered"] += 1
            except (Lost, ConnectionError, asyncio.IncompleteReadError):
                outcome["lost"] += 1
                client = None

    async def kill():
        chance = random.Random(seed)
        while not finished:
            await asyncio.sleep(chance.random() * 0.1)
            backends = await asyncio.to_thread(cluster.backends)
            if backends:
                await asyncio.to_thread(cluster.query, "SELECT pg_terminate_backend(%s)", chance.choice(backends).pid)

    async def all_clients():
        nonlocal finished
        async with asyncio.timeout(80), asyncio.TaskGroup() as group:
            group.create_task(kill())
            async with asyncio.TaskGroup() as clients:
                for number in range(100):
                    clients.create_task(one(number))
            finished = True

    asyncio.run(all_clients())
    print(outcome)
    assert outcome["answered"] > 10 * outcome["lost"]
