"""Runs clients against two sides at once and compares everything that they can see. It does not know how the sides are
started.
"""

import asyncio
import dataclasses
import functools
import operator
import random
import time

from . import world
from .requests import Batch, simple
from .session import Closed, Session
from .statements import Client

# A request without an answer for longer hangs. The wait for a busy server is included.
ANSWER_SECONDS = 60
# The most that a notification may arrive later than at the reference.
NOTIFICATION_SECONDS = 5


class Difference(Exception):
    """The subject and the reference differ. The text has all that is needed to investigate."""

    def __init__(self, client, what, expected, got, history):
        self.client, self.what, self.expected, self.got, self.history = client, what, expected, got, history
        lines = [f"client {client}: {what}", f"  reference: {expected}", f"  subject:   {got}", "  since it connected, oldest first:"]
        super().__init__("\n".join(lines + [f"    {line}" for line in history]))


@dataclasses.dataclass(frozen=True)
class Sides:
    """(host, port, database) of the side under test and of its reference."""

    subject: tuple
    reference: tuple


@dataclasses.dataclass
class Progress:
    statements: int = 0
    connections: int = 0
    # Client number -> when its present request was sent, by the monotonic clock.
    since: dict = dataclasses.field(default_factory=dict)
    last: dict = dataclasses.field(default_factory=dict)


class Pair:
    """The two sessions of a client, which get the same requests and must give the same answers."""

    def __init__(self, client, sides, progress):
        self.client, self.sides, self.progress = client, sides, progress
        self.history = []

    async def connect(self):
        parameters, opening = self.client.start()
        self.history.append(f"connect {parameters}")
        self.remember("connecting")
        self.subject, self.reference = await asyncio.gather(*(
            Session.connect((host, port), self.client.user, world.PASSWORD, database, parameters)
            for host, port, database in (self.sides.subject, self.sides.reference)))
        self.progress.connections += 1
        self.compare_parameters()
        for request in opening:
            await self.ask(request)

    def remember(self, what):
        self.progress.since[self.client.number], self.progress.last[self.client.number] = time.monotonic(), what

    def differ(self, what, expected, got):
        raise Difference(self.client.number, what, expected, got, self.history)

    async def ask(self, request):
        """The answers of both sides, which are equal."""
        self.history.append(request.text)
        return await self.both(request)

    async def both(self, request):
        self.remember(request.text)
        expected, got = await asyncio.gather(*(self.answer(side, request) for side in (self.reference, self.subject)))
        if isinstance(expected, str):
            raise RuntimeError(f"the reference of client {self.client.number} failed at {request.text}: {expected}")
        if expected != got:
            self.differ(f"answers to {request.text!r} differ", expected, got)
        self.compare_parameters()
        return expected

    @staticmethod
    async def answer(side, request):
        try:
            return await side.ask(request.data, request.syncs)
        except Closed as closed:
            return f"closed: {closed}"

    def compare_parameters(self):
        expected, got = self.reference.parameters, self.subject.parameters
        if expected != got:
            names = {name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name)}
            self.differ("reported parameters differ", {n: expected.get(n) for n in names}, {n: got.get(n) for n in names})

    async def look(self, full):
        """Compares the whole visible state, except in a failed transaction, in which it cannot be read."""
        if self.reference.status == "E":
            return
        # The word lastval is for the pooler to see, which does not look into functions. Who may keep a server of its
        # own has locks, cursors and the like; others look for what was left of these now and then.
        whole = str(full or self.client.pinner or self.client.chance.random() < 0.3).lower()
        await self.state("state", f"SELECT adv.state(true, {whole}) AS lastval" if self.client.counts else f"SELECT adv.state(false, {whole})")
        if full:
            await self.state("settings", "SELECT adv.settings()")
        if full or self.client.chance.random() < 0.2:
            for name in self.client.believed:
                await self.both(Batch().describe(name).sync())
        await self.compare_notifications()

    async def state(self, what, sql):
        request = simple(sql)
        self.remember(sql)
        answers = await asyncio.gather(self.reference.ask(request.data, 1), self.subject.ask(request.data, 1), return_exceptions=True)
        (expected, shown), (got, _) = (self.lines(answer) for answer in answers)
        if expected != got:
            pairs = [(e, g) for e, g in zip(expected, got) if e != g] if len(expected) == len(got) else [(expected, got)]
            self.differ(f"{what} differs", [e for e, _ in pairs], [g for _, g in pairs])
        if "parsed" in shown:
            self.client.believed = [name for name in shown["parsed"].split(", ") if name]

    @staticmethod
    def lines(answer):
        """The lines of a state, and those with a colon by what stands before it. What the protocol has parsed is for
        the reference only: under which names a pooler parsed it, is its own business. So is which of its servers
        listens: notifications are compared.
        """
        if isinstance(answer, BaseException):
            return [f"closed: {answer}"], {}
        rows = [body for kind, *rest in answer for body in rest if kind == "D"]
        if len(rows) != 1:
            return [str(answer)], {}
        lines = rows[0][6:].decode(errors="replace").split("\n")
        named = dict(line.split(": ", 1) for line in lines if ": " in line)
        return [line for line in lines if not line.startswith(("parsed: ", "channels: "))], named

    async def compare_notifications(self):
        deadline = time.monotonic() + NOTIFICATION_SECONDS
        while (expected := self.reference.notifications) != (got := self.subject.notifications):
            shorter = min(len(expected), len(got))
            if expected[:shorter] != got[:shorter] or time.monotonic() > deadline:
                self.differ("notifications differ", expected, got)
            await asyncio.sleep(0.01)
        expected.clear()
        got.clear()

    def leave(self, politely=True):
        self.subject.leave(politely)
        self.reference.leave(politely)


def sent_along(client, status):
    """Requests that do not wait for earlier answers: a query, a failure, or all requests of another step."""
    if client.chance.random() < 0.5:
        return functools.reduce(operator.add, client.next(status))
    return simple(client.chance.choice(["SELECT 'sent along'", "SELECT 1/0"]))


async def play(number, count, seed, features, pinners, sides, progress):
    """The life of one client: about `count` statements over several connections."""
    chance = random.Random(f"{seed} {number}")
    client = Client(chance, number, features, number < pinners, looks=number == pinners > 0)
    left = count
    while left > 0:
        pair = Pair(client, sides, progress)
        await pair.connect()
        try:
            await pair.look(full=True)
            while left > 0:
                if "reconnect" in client.features and chance.random() < 0.01:
                    pair.leave(politely=chance.random() < 0.7)
                    break
                requests = client.next(pair.reference.status)
                for request in requests:
                    left -= 1
                    progress.statements += 1
                    # Now and then requests do not wait for the answers of those before them, which may be errors. (A
                    # step of several may be of the unnamed statement, which is not to be bound long after its first
                    # time.)
                    if len(requests) == 1 and chance.random() < 0.1:
                        along = sent_along(client, pair.reference.status)
                        request = chance.choice([request + along, along + request])
                    await pair.ask(request)
                if chance.random() < 0.85:
                    await pair.look(full=chance.random() < 0.04)
            else:
                pair.leave()
        except BaseException:
            pair.leave(politely=False)
            raise
    progress.since.pop(number, None)


async def watch(progress, report, stuck):
    """Fails when a request hangs, after a call of `stuck`. Calls `report` every few seconds."""
    reported = time.monotonic()
    while True:
        await asyncio.sleep(1)
        now = time.monotonic()
        for number, since in progress.since.items():
            if now - since > ANSWER_SECONDS:
                stuck()
                raise Difference(number, f"unanswered for {ANSWER_SECONDS} s", "an answer", "nothing", [progress.last[number]])
        if now - reported > 10:
            reported = now
            report(progress)


async def compare(numbers, statements, seed, features, pinners, sides, report, stuck):
    """Runs the clients with these numbers, until the number of statements is reached. Raises the first Difference."""
    progress = Progress()
    each = max(1, statements // len(numbers))
    watcher = asyncio.ensure_future(watch(progress, report, stuck))
    players = [asyncio.ensure_future(play(n, each, seed, features, pinners, sides, progress)) for n in numbers]
    tasks = {watcher, *players}
    try:
        pending = set(players)
        while pending:
            done, _ = await asyncio.wait(pending | {watcher}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            pending -= done
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return progress
