"""The open cursors of a member. No other member knows them, and no other session may read them. The stand-in fetches
the whole result from the backing server and returns it in batches. Change streams and tailable cursors differ: there
the backing server answers at once, and the stand-in waits.
"""

import asyncio
import dataclasses
import random

import bson
from errors import error

FIRST_BATCH, ALL = 101, (1 << 31) - 1
# Bytes of a batch.
MAX_BATCH = 16 << 20
# Stages of `aggregate` that report on the server and not on a collection.
OF_THE_SERVER = {"$listLocalSessions", "$listSessions", "$currentOp"}
# How often a waiting cursor is polled, in seconds, and how long a change stream waits by default.
LOOK, WAITS = 0.05, 1.0


@dataclasses.dataclass
class Cursor:
    session: bytes | None
    # The rest of the result, unless the backing server keeps the cursor.
    rest: list | None
    waits: bool = False


class Cursors:
    def __init__(self):
        self.open = {}

    def refused(self, command):
        """Why the next batch is refused."""
        number = command["getMore"]
        if number not in self.open:
            return error(43, f"cursor id {number} not found")
        if (other := self.open[number].session) != session_of(command):
            return error(50738, f"Cannot run getMore on cursor {number}, which was created in session {other}, in another session")
        return None

    def waits(self, command):
        return self.open[command["getMore"]].waits

    async def wait(self, backing, command, turn):
        """Waits for the next batch of a change stream, or until the time is up."""
        until = asyncio.get_running_loop().time() + command.get("maxTimeMS", WAITS * 1000) / 1000
        while True:
            async with turn:
                if refused := self.refused(command):
                    return refused
                answer = await self.ask(backing, command)
            if not answer.get("ok") or dict(answer["cursor"])["nextBatch"] or asyncio.get_running_loop().time() >= until:
                return answer
            await asyncio.sleep(LOOK)

    async def ask(self, backing, command):
        """Executes a command that may concern cursors."""
        name = next(iter(command))
        stages = {stage for document in command.get("pipeline", []) for stage in document}
        if name == "find" and not command.get("tailable") or name == "aggregate" and not stages & {"$changeStream", "$out", "$merge"}:
            return await self.whole(backing, command, stages)
        if name == "getMore" and self.open[command["getMore"]].rest is not None:
            return self.batch(command, command["collection"], "nextBatch", command["getMore"], command.get("batchSize"))
        if name == "killCursors":
            return await self.kill(backing, command)
        answer = await backing.ask(command)
        cursor = dict(answer.get("cursor") or {})
        if name == "getMore" and not cursor.get("id"):
            del self.open[command["getMore"]]
        elif name != "getMore" and cursor.get("id"):
            self.open[cursor["id"]] = Cursor(session_of(command), None, "$changeStream" in stages)
        return answer

    async def whole(self, backing, command, stages):
        aggregates = "aggregate" in command
        asked = {**command, "cursor": {"batchSize": ALL}} if aggregates else {**command, "batchSize": ALL}
        if stages & OF_THE_SERVER:
            asked = {**asked, "aggregate": "one", "pipeline": command["pipeline"][1:], "$db": "stand_in"}
            await backing.ask({"update": "one", "updates": [{"q": {"_id": 1}, "u": {"_id": 1}, "upsert": True}], "$db": "stand_in"})
        answer = await backing.ask(asked)
        if not answer.get("ok"):
            return answer
        cursor = dict(answer["cursor"])
        assert not cursor["id"], "all that it has is there"
        number = random.getrandbits(62) + 1
        self.open[number] = Cursor(session_of(command), list(cursor["firstBatch"]))
        size = (dict(command.get("cursor") or {}) if aggregates else command).get("batchSize", FIRST_BATCH)
        told = self.batch(command, cursor["ns"].split(".", 1)[1], "firstBatch", number, size)
        if command.get("singleBatch") and self.open.pop(number, None):
            told["cursor"]["id"] = bson.Int64(0)
        return told

    def batch(self, command, collection, name, number, size):
        cursor, given, length = self.open[number], [], 0
        while cursor.rest and (size is None or len(given) < size):
            length += len(cursor.rest[0].raw)
            if given and length > MAX_BATCH:
                break
            given.append(cursor.rest.pop(0))
        more = bool(cursor.rest) or (name == "firstBatch" and size == 0)
        if not more:
            del self.open[number]
        return {"cursor": {name: given, "id": bson.Int64(number if more else 0), "ns": f"{command['$db']}.{collection}"}, "ok": 1.0}

    async def kill(self, backing, command):
        killed = [number for number in command["cursors"] if number in self.open]
        theirs = [number for number in killed if self.open.pop(number).rest is None]
        if theirs:
            await backing.ask({**command, "cursors": theirs})
        missing = [number for number in command["cursors"] if number not in killed]
        return {"cursorsKilled": killed, "cursorsNotFound": missing, "cursorsAlive": [], "cursorsUnknown": [], "ok": 1.0}


def session_of(command):
    return bytes(command["lsid"]["id"]) if "lsid" in command else None
