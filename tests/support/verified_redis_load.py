"""A load of Redis clients that continues during faults, over Redis's protocol or HTTP. Each reply must contain what
only its client knows. Each increment is accounted for: an answered one happened once, one with an unknown outcome at
most once, a refused one never. It does not know the fault.
"""

import asyncio
import collections
import json
import random
import secrets
import threading
import time

from support.redis_async_socket import RedisWire, encoded

# A step that takes longer, connecting included, hangs. This is above all time-outs that the tests set.
HANG_SECONDS = 15
# Longer than the values that a shared server takes.
LARGE = 20_000
# Bounds what is recorded when everything goes wrong.
MAX_STEPS = 200_000
# Errors that a client may get when a server, the network or Poolhouse fails.
EXCUSES = ("ERR Poolhouse", "LOADING ", "MASTERDOWN ")
# Those errors that guarantee that nothing was executed.
NOT_EXECUTED = ("no connection to Redis", "server connections stayed busy", "LOADING ", "MASTERDOWN ")


class Lost(Exception):
    """The connection ended before all replies had arrived."""


class Torn(Lost):
    """The connection ended within a reply."""


class Wire(RedisWire):
    """Redis's protocol."""

    transactions = True

    async def ask(self, commands):
        """The replies, one by one."""
        await self.send(b"".join(encoded(command) for command in commands))
        for _ in commands:
            self.begun = False
            try:
                yield await self.reply()
            except asyncio.IncompleteReadError as end:
                raise (Torn if end.partial or self.begun else Lost) from end


class Http(RedisWire):
    """Pipelines over HTTP."""

    transactions = False
    token = None

    async def ask(self, commands):
        body = json.dumps(commands).encode()
        head = f"POST /pipeline HTTP/1.1\r\nHost: redis\r\nAuthorization: Bearer {self.token}\r\nContent-Length: {len(body)}\r\n\r\n"
        await self.send(head.encode() + body)
        begun = False
        try:
            fields = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            begun = True
            length = next(int(field.split(":")[1]) for field in fields if field.lower().startswith("content-length:"))
            answer = json.loads(await self.reader.readexactly(length))
        except asyncio.IncompleteReadError as end:
            raise (Torn if end.partial or begun else Lost) from end
        for one in answer if isinstance(answer, list) else [answer] * len(commands):
            yield ("-", one["error"].encode()) if "error" in one else http_value(one["result"])


def http_value(result):
    """A result as the same reply would be in Redis's protocol."""
    return (":", str(result).encode()) if isinstance(result, int) else ("$", None if result is None else result.encode())


class RedisLoad:
    """Runs in a thread of its own for the length of the `with`. A client whose connection is lost opens a new one.

    `large`: send values that a shared server does not take, too. `steps`: a client reconnects after this many. `lossy`:
    an answered write may be undone, as a failover undoes what the replica had not received. `password`: that of the
    default user.
    """

    def __init__(self, port, clients=20, connection=Wire, pause=0.002, large=True, steps=None, lossy=False, password=None):
        self.port, self.clients, self.connection, self.pause, self.large, self.steps = port, clients, connection, pause, large, steps
        self.lossy, self.password = lossy, password
        self.run_id = secrets.token_hex(4)
        # Outcomes of commands: answered, refused (with an error), lost (with the connection); and of steps: torn, hung.
        self.counts = collections.Counter()
        # Errors that fail the test, as text.
        self.wrong = []
        # For each client, the answered increments and those with an unknown outcome.
        self.done, self.unknown = collections.Counter(), collections.Counter()
        self.over = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self.run()), daemon=True)

    def __enter__(self):
        self.thread.start()
        self.flows(commands=self.clients)
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(HANG_SECONDS + 10)
        assert not self.thread.is_alive(), "the load does not end"

    def flows(self, seconds=30, commands=200):
        """Waits until `commands` more commands have been answered."""
        wanted, deadline = self.counts["answered"] + commands, time.monotonic() + seconds
        while self.counts["answered"] < wanted:
            assert not self.wrong, self.wrong[:5]
            assert time.monotonic() < deadline, f"not {commands} more answers within {seconds} s: {dict(self.counts)}"
            time.sleep(0.02)

    def check(self, server):
        """Checks what must be true of a load at its end, whatever the fault was. `server` is Redis, asked directly."""
        print(dict(self.counts), f"{self.unknown.total()} increments of unknown fate")
        assert not self.wrong, self.wrong[:5]
        assert not self.counts["hung"], f"steps hung: {dict(self.counts)}"
        direct = server.connect()
        for number in range(self.clients):
            value = int(direct.get(self.key(number, "n")) or 0)
            least, most = 0 if self.lossy else self.done[number], self.done[number] + self.unknown[number]
            assert least <= value <= most, f"client {number}: {value} increments were executed, and not {least} to {most}"

    def key(self, number, kind):
        return f"{self.run_id}:{number}:{kind}"

    # -- in the thread

    async def run(self):
        await asyncio.gather(*(self.client(number) for number in range(self.clients)))

    async def client(self, number):
        connection, taken = None, 0
        while not self.over.is_set() and self.counts.total() < MAX_STEPS:
            try:
                async with asyncio.timeout(HANG_SECONDS):
                    connection = connection or await self.connect()
                    await self.step(connection, number)
                taken += 1
            except Torn:
                self.counts["torn"] += 1
                connection = leave(connection)
            except TimeoutError:
                self.counts["hung"] += 1
                connection = leave(connection)
            except (Lost, OSError):
                connection = leave(connection)
                await asyncio.sleep(0.02)
            except Exception as error:
                self.wrong.append(f"client {number}: {error!r}")
                return
            if self.steps and taken == self.steps:
                connection, taken = leave(connection), 0
            await asyncio.sleep(self.pause)
        leave(connection)

    async def connect(self):
        connection = await self.connection.connect(self.port)
        if self.password:
            await connection.send(encoded(("AUTH", self.password)))
            assert await connection.reply() == ("+", b"OK")
        return connection

    async def step(self, connection, number):
        """One random step. Only a client itself sends `INCR` for its key."""
        nonce, n, other = secrets.token_hex(8), self.key(number, "n"), self.key(number, "v")
        steps = [
            [(["ECHO", nonce], nonce)],
            [(["INCR", n], int)],
            [(["ECHO", nonce], nonce), (["INCR", n], int), (["INCR", n], int), (["ECHO", nonce[::-1]], nonce[::-1])],
            [(["SET", other, nonce], "OK"), (["GET", other], nonce), (["INCR", n], int)],
        ]
        if connection.transactions:
            steps.append([(["MULTI"], "OK"), (["ECHO", nonce], "QUEUED"), (["INCR", n], "QUEUED"), (["EXEC"], nonce)])
            steps.append([(["RPUSH", other + "l", nonce], None), (["BLPOP", other + "l", "1"], None), (["DEL", other + "l"], None), (["INCR", n], int)])
        if self.large:
            value = nonce * (LARGE // len(nonce))
            steps.append([(["SET", other + "w", value], "OK"), (["GET", other + "w"], value), (["INCR", n], int)])
        await self.exchange(connection, number, random.choice(steps))

    async def exchange(self, connection, number, step):
        """Sends a step's commands and accounts for their replies."""
        left, refused = collections.deque(step), 0
        transaction = step[0][0] == ["MULTI"]
        try:
            async for reply in connection.ask([command for command, _ in step]):
                command, wanted = left.popleft()
                if reply[0] == "-":
                    self.refused(number, command, reply[1].decode(), transaction)
                    refused += 1
                    continue
                self.counts["answered"] += 1
                if command == ["EXEC"]:
                    self.transacted(number, reply, wanted)
                elif wanted is int:
                    self.incremented(number, int(reply[1]))
                elif wanted is not None and not refused and reply[1] != wanted.encode():
                    self.wrong.append(f"client {number} asked {command!r:.80} and was answered {reply!r:.80}")
        finally:
            for command, _ in left:
                self.counts["lost"] += 1
                if command == ["EXEC"] or command[0] == "INCR" and not transaction:
                    self.unknown[number] += 1

    def incremented(self, number, value):
        self.done[number] += 1
        least = 1 if self.lossy else self.done[number]
        if not least <= value <= self.done[number] + self.unknown[number]:
            self.wrong.append(f"client {number}: {value} after {self.done[number]} increments and {self.unknown[number]} of unknown fate")

    def transacted(self, number, reply, nonce):
        if reply[0] != "*" or len(reply[1]) != 2 or reply[1][0] != ("$", nonce.encode()):
            self.wrong.append(f"client {number}: a transaction with {nonce} was answered {reply!r:.80}")
        else:
            self.incremented(number, int(reply[1][1][1]))

    def refused(self, number, command, error, transaction):
        self.counts["refused"] += 1
        if not error.startswith(EXCUSES) and not (transaction and error.startswith(("EXECABORT", "ERR EXEC without MULTI"))):
            self.wrong.append(f"client {number} asked {command!r:.80} and was told {error}")
        counts = command == ["EXEC"] or command[0] == "INCR" and not transaction
        if counts and not any(words in error for words in (*NOT_EXECUTED, "EXECABORT")):
            self.unknown[number] += 1


def leave(connection):
    if connection:
        connection.close()
