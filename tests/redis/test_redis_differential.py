"""Random clients that send the same to Redis directly and through Poolhouse: every reply must be the same."""

import asyncio
import os
import random

import pytest

from support.random_redis_commands import RandomCommands, RandomSubscriptions
from support.redis_async_socket import RedisWire, encoded
from support.redis_server import RedisPoolhouse, RedisServer

pytestmark = pytest.mark.poolhouse_only

SEED = int(os.environ.get("REDIS_SEED", random.randrange(1 << 31)))
CLIENTS = int(os.environ.get("REDIS_CLIENTS", 60))
STEPS = int(os.environ.get("REDIS_STEPS", 150))


@pytest.fixture
def two(workspace):
    """A Redis that is asked directly, and one behind Poolhouse."""
    made = []
    for name in ("reference", "subject", "poolhouse"):
        directory = workspace / f"redis-{name}-{os.urandom(4).hex()}"
        directory.mkdir()
        made.append(directory)
    servers = [RedisServer(directory).start() for directory in made[:2]]
    poolhouse = RedisPoolhouse(made[2], servers[1]).start(max_size=6, workers=2, max_wait_time="60s")
    yield servers[0].port, poolhouse
    try:
        poolhouse.stop()
    finally:
        for server in servers:
            server.stop()


def comparable(reply):
    """The reply without what two connections never share: the id in the reply to HELLO, which may be part of a
    transaction."""
    if reply is None or not isinstance(reply[1], list):
        return reply
    values = list(reply[1])
    if ("$", b"proto") in values:
        values[values.index(("$", b"id")) + 1] = None
    return reply[0], [comparable(value) for value in values]


def short(command):
    """A short form for error messages."""
    return " ".join(repr(word) if len(word) < 40 else f"{word[:20]!r}...{len(word)}" for word in (
        word if isinstance(word, bytes) else str(word) for word in command))


async def play(number, ports):
    chance = random.Random(f"{SEED} {number}")
    habits, history = RandomCommands(chance, number), []
    pair = [await RedisWire.connect(port) for port in ports]
    for _ in range(STEPS):
        if chance.random() < 0.02:
            for wire in pair:
                wire.close()
            pair = [await RedisWire.connect(port) for port in ports]
            history = []
        commands, data = habits.step()
        history.append("; ".join(map(short, commands)))
        pieces = sorted(chance.sample(range(len(data)), min(len(data), chance.choice([0, 0, 1, 3]))))
        async with asyncio.timeout(60):
            for wire in pair:
                await wire.send(data, pieces)
            for command in commands:
                expected, got = [comparable(await wire.reply()) for wire in pair]
                assert got == expected, f"seed {SEED}, client {number}, {short(command)}\n  reference {str(expected)[:500]}\n" \
                                        f"  subject   {str(got)[:500]}\n  since it connected: {chr(10).join(history)[-6000:]}"
    for wire in pair:
        wire.close()


def test_every_reply_is_what_redis_itself_replies(two):
    async def all_of_them():
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(play(number, (two[0], two[1].port)))

    try:
        asyncio.run(all_of_them())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    assert two[1].metric("poolhouse_servers_created_total") > 0


async def replies(wire, count):
    """The next `count` replies. A command that ends all subscriptions of a client lists the names in any order; their
    counts are in order.
    """
    got = [comparable(await wire.reply()) for _ in range(count)]
    if count > 1 and all(reply[0] in "*>" and b"unsubscribe" in reply[1][0][1] for reply in got):
        return sorted(str(reply[1][1]) for reply in got), [reply[1][2] for reply in got]
    return got


async def subscribe_and_hear(number, ports, publishers):
    chance = random.Random(f"{SEED} subscriber {number}")
    habits, history = RandomSubscriptions(chance, number), []
    pair = [await RedisWire.connect(port) for port in ports]
    for turn in range(STEPS):
        async with asyncio.timeout(60):
            commands = [habits.command() for _ in range(chance.choice([1, 1, 2, 5]))]
            history.append("; ".join(short(command) for command, _ in commands))
            for wire in pair:
                await wire.send(b"".join(encoded(command) for command, _ in commands))
            told = lambda: f"seed {SEED}, subscriber {number}, since it connected: {chr(10).join(history)[-4000:]}"
            for command, count in commands:
                expected, got = [await replies(wire, count) for wire in pair]
                assert got == expected, f"{short(command)}\n  reference {expected}\n  subject   {got}\n{told()}"
            # The channels are the client's own: it receives each message once for the channel and once for each
            # pattern.
            channel, heard = f"{number}:{chance.choice('abc')}", []
            for wire, publisher in zip(pair, publishers):
                await publisher.send(encoded(("PUBLISH", channel, turn)))
            count = int((await publishers[0].reply())[1])
            await publishers[1].reply()
            for wire in pair:
                heard.append(sorted([str(comparable(await wire.reply())) for _ in range(count)]))
            assert heard[1] == heard[0], f"a message on {channel}\n  reference {heard[0]}\n  subject   {heard[1]}\n{told()}"
    for wire in [*pair, *publishers]:
        wire.close()


def test_subscribers_are_told_what_redis_itself_tells_them(two):
    async def all_of_them():
        # Connections that go directly to a Redis publish there.
        ports, upstream = (two[0], two[1].port), two[1].server.port
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                publishers = [await RedisWire.connect(port) for port in (two[0], upstream)]
                group.create_task(subscribe_and_hear(number, ports, publishers))

    try:
        asyncio.run(all_of_them())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    assert two[1].metric("poolhouse_pinned", reason="subscribe") <= 4
