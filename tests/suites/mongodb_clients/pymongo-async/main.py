"""pymongo's asynchronous client: what an application does with MongoDB, many tasks at once. What a task reads must hold
the nonce that it alone wrote, so an answer that reached another client is noticed.
"""

import asyncio
import os
import secrets
import sys

import pymongo
from pymongo import AsyncMongoClient, DeleteOne, InsertOne, ReadPreference, ReplaceOne, ReturnDocument, UpdateOne, monitoring
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

OPTIONS = os.environ["OPTIONS"]
BALANCED = "loadBalanced=true" in OPTIONS
TASKS = 8


def nonce():
    return secrets.token_hex(12)


def same(got, wanted):
    if got != wanted:
        raise AssertionError(f"{str(got)[:300]} instead of {str(wanted)[:300]}")


class Heard(monitoring.ConnectionPoolListener, monitoring.ServerListener, monitoring.ServerHeartbeatListener, monitoring.CommandListener):
    """What the driver tells of all clients of this program."""

    def __init__(self):
        self.pools_cleared, self.servers_unknown, self.heartbeats, self.sessions = 0, 0, 0, {}

    def check(self):
        same((self.pools_cleared, self.servers_unknown), (0, 0))

    def pool_cleared(self, event):
        self.pools_cleared += 1

    def description_changed(self, event):
        self.servers_unknown += event.new_description.server_type_name == "Unknown" != event.previous_description.server_type_name

    def succeeded(self, event):
        # A heartbeat or a command.
        self.heartbeats += isinstance(event, monitoring.ServerHeartbeatSucceededEvent)

    def started(self, event):
        if isinstance(event, monitoring.CommandStartedEvent) and "lsid" in event.command and "sessions" in event.command.values():
            self.sessions.setdefault(bytes(event.command["lsid"]["id"]), []).append(event.command_name)

    def failed(self, event):
        pass

    def opened(self, event):
        pass

    closed = pool_created = pool_ready = pool_closed = opened
    connection_created = connection_ready = connection_closed = opened
    connection_check_out_started = connection_check_out_failed = connection_checked_out = connection_checked_in = opened


HEARD = Heard()


def connect(pool=4):
    address = f"mongodb://{os.environ['HOST']}:{os.environ['PORT']}/?{OPTIONS}"
    return AsyncMongoClient(address, maxPoolSize=pool, heartbeatFrequencyMS=500, serverSelectionTimeoutMS=20_000, event_listeners=[HEARD])


async def crud(app, own):
    things, value = app.crud, nonce()
    same((await things.insert_one({"_id": own, "value": value, "n": 1})).inserted_id, own)
    same(await things.find_one({"_id": own}), {"_id": own, "value": value, "n": 1})
    same((await things.update_one({"value": value}, {"$inc": {"n": 6}})).modified_count, 1)
    same(await things.find_one_and_update({"value": value}, {"$set": {"seen": True}}, return_document=ReturnDocument.AFTER),
         {"_id": own, "value": value, "n": 7, "seen": True})
    other = nonce()
    same((await things.replace_one({"_id": other}, {"value": value}, upsert=True)).upserted_id, other)
    same(await things.count_documents({"value": value}), 2)
    same(await things.distinct("value", {"_id": own}), [value])
    same((await things.delete_many({"value": value})).deleted_count, 2)
    same(await things.find_one({"value": value}), None)


async def bulk(app, own):
    things, values = app.bulk, [nonce() for _ in range(100)]
    for ordered in (True, False):
        made = await things.bulk_write([InsertOne({"_id": value, "own": own, "n": n}) for n, value in enumerate(values)], ordered=ordered)
        same(made.inserted_count, 100)
        other = nonce()
        changed = await things.bulk_write([UpdateOne({"_id": value}, {"$set": {"n": -1}}) for value in values[:20]]
                                          + [ReplaceOne({"_id": other}, {"own": own}, upsert=True)]
                                          + [DeleteOne({"_id": value}) for value in values[20:50]], ordered=ordered)
        same((changed.modified_count, changed.deleted_count, [*changed.upserted_ids.values()]), (20, 30, [other]))
        fresh = [nonce() for _ in range(3)]
        try:
            await things.bulk_write([InsertOne({"_id": name, "own": own}) for name in (fresh[0], values[0], fresh[1], values[1], fresh[2])], ordered=ordered)
            raise AssertionError("no error")
        except BulkWriteError as error:
            same([(one["index"], one["code"], one["op"]["_id"]) for one in error.details["writeErrors"]],
                 [(1, 11000, values[0])] if ordered else [(1, 11000, values[0]), (3, 11000, values[1])])
        same(sorted([one["_id"] async for one in things.find({"own": own})]),
             sorted(values[:20] + values[50:] + [other] + (fresh[:1] if ordered else fresh)))
        await things.delete_many({"own": own})


async def cursors(_):
    for pool in (1, 10, 100):
        # A driver in front of a balancer keeps a connection for each open cursor.
        count = pool if BALANCED else 200
        async with connect(pool) as client:
            opened = asyncio.Barrier(count)

            async def read(number):
                things, value = client.app[f"cursors{number}"], nonce()
                try:
                    await things.insert_many([{"value": value, "n": n} for n in range(12)])
                    cursor = things.find({"value": value}, batch_size=3).sort("n")
                    found = [await cursor.next()]
                except Exception:
                    await opened.abort()
                    raise
                async with cursor:
                    await opened.wait()
                    found += [one async for one in cursor]
                same([(one["value"], one["n"]) for one in found], [(value, n) for n in range(12)])

            await all_of(read(number) for number in range(count))


async def aggregations(app, own):
    things, value = app.aggregations, nonce()
    await things.insert_many([{"value": value, "own": own, "n": n, "parity": n % 2} for n in range(120)])
    for _ in range(3):
        cursor = await things.aggregate([{"$match": {"own": own}}, {"$sort": {"n": -1}}, {"$skip": 20}], batchSize=6)
        same([(one["value"], one["n"]) async for one in cursor], [(value, n) for n in reversed(range(100))])
        cursor = await things.aggregate([{"$match": {"own": own}}, {"$group": {"_id": "$value", "sum": {"$sum": "$n"}}}])
        same(await cursor.to_list(), [{"_id": value, "sum": sum(range(120))}])


async def sessions(client, own):
    things, value = client.app.sessions, nonce()
    async with client.start_session(causal_consistency=True) as session, client.start_session() as other:
        await things.insert_one({"_id": own, "value": value}, session=session)
        for n in range(10):
            await things.update_one({"_id": own}, {"$set": {"n": n}}, session=session)
            same(await things.find_one({"_id": own}, session=session), {"_id": own, "value": value, "n": n})
            same(await things.find_one({"value": value}, session=other), {"_id": own, "value": value, "n": n})
        await things.insert_many([{"own": own, "value": value, "n": n} for n in range(40)], session=session)
        found = [one async for one in things.find({"own": own}, session=session, batch_size=3)]
        same([one["value"] for one in found], [value] * 40)
        kinds = HEARD.sessions[bytes(session.session_id["id"])], HEARD.sessions[bytes(other.session_id["id"])]
        same([len([kind for kind in some if kind == "find"]) for some in kinds], [11, 10])
        same("getMore" in kinds[0], True)


async def large(app, own):
    value = nonce()
    size = [4, 6, 8, 10, 12, 15][int(own[-1])] * 1_000_000
    text = (value * (size // len(value) + 1))[:size]
    await app.large.insert_one({"_id": own, "text": text})
    same((await app.large.find_one({"_id": own}))["text"] == text, True)
    await app.large.insert_many([{"own": own, "n": n, "text": text[:4_000_000]} for n in range(2)])
    same([one["text"] == text[:4_000_000] async for one in app.large.find({"own": own})], [True] * 2)


async def errors(app, own):
    things = app.errors
    for _ in range(5):
        value = nonce()
        await things.insert_one({"_id": value, "own": own})
        try:
            await things.insert_one({"_id": value})
            raise AssertionError("no error")
        except DuplicateKeyError as error:
            same(error.code, 11000)
        for name, code in ((f"no{value}", 59), ("find", None)):
            try:
                await app.command(name, "errors", **({"filter": {f"$no{value}": 1}} if name == "find" else {}))
                raise AssertionError("no error")
            except OperationFailure as error:
                same((type(error), value in str(error), error.code), (OperationFailure, True, code or error.code))
        same(await things.find_one({"_id": value}), {"_id": value, "own": own})


async def hundreds(_):
    clients = [connect(100) for _ in range(3)]

    async def task(number):
        things = clients[number % 3].app.hundreds
        for n in range(3):
            value = nonce()
            await things.insert_one({"_id": value, "task": number})
            same(await things.find_one({"_id": value}), {"_id": value, "task": number})
            same(await things.find_one_and_update({"_id": value}, {"$set": {"n": n}}, return_document=ReturnDocument.AFTER),
                 {"_id": value, "task": number, "n": n})

    try:
        await all_of(task(number) for number in range(300))
        same(await clients[0].app.hundreds.count_documents({}), 900)
    finally:
        for client in clients:
            await client.close()


async def monitoring_(app, own):
    before = HEARD.heartbeats
    for _ in range(2):
        value = nonce()
        await app.monitoring.insert_one({"_id": value})
        same(await app.monitoring.with_options(read_preference=ReadPreference.SECONDARY_PREFERRED).find_one({"_id": value}), {"_id": value})
        await asyncio.sleep(2)
    # Nobody watches a balancer.
    same(HEARD.heartbeats > before + 2, not BALANCED)


async def all_of(coroutines):
    """Waits for all, and raises the first error."""
    done = await asyncio.gather(*coroutines, return_exceptions=True)
    for error in done:
        if isinstance(error, BaseException):
            raise error


async def with_client(check, own):
    async with connect() as client:
        await check(client if check is sessions else client.app, own)


async def main():
    print("version", pymongo.version, flush=True)
    for check in (crud, bulk, cursors, aggregations, sessions, large, errors, hundreds, monitoring_):
        name = check.__name__.strip("_")
        try:
            if check in (cursors, hundreds):
                await check(None)
            else:
                await all_of(with_client(check, f"{name}:{n}") for n in range(6 if check is large else TASKS))
            HEARD.check()
            print(f"ok {name}", flush=True)
        except Exception as error:
            print(f"failed {name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)


sys.exit(asyncio.run(main()))
