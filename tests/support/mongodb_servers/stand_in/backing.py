"""The server that keeps the documents: one connection to it for each client of the stand-in. A command is stripped of
all that the stand-in handles itself, so that any MongoDB-compatible server can execute it.
"""

import asyncio
import contextlib

import bson
import messages

# Fields of sessions, transactions, replication and the drivers' contract, which the backing server does not know.
OWN = {"lsid", "txnNumber", "autocommit", "startTransaction", "stmtId", "stmtIds", "$clusterTime", "readConcern", "writeConcern",
       "$readPreference", "apiVersion", "apiStrict", "apiDeprecationErrors", "recoveryToken", "$queryOptions", "$audit", "$client",
       "databaseVersion", "shardVersion", "comment"}


class Backing:
    """A connection that is opened when it is first needed."""

    def __init__(self, address):
        self.address, self.streams = address, None

    async def ask(self, command):
        """The answer to a command with its `$db`."""
        if self.streams is None:
            self.streams = await asyncio.open_connection(*self.address, limit=1 << 20)
        reader, writer = self.streams
        number, data = messages.request({key: value for key, value in command.items() if key not in OWN})
        try:
            writer.write(data)
            await writer.drain()
            header = await reader.readexactly(16)
            length, answers = int.from_bytes(header[:4], "little"), int.from_bytes(header[8:12], "little")
            assert answers == number, "answers come in order"
            body = await reader.readexactly(length - 16)
        except BaseException:
            # An answer that was never read must not be taken for the answer to the next command.
            self.close()
            raise
        answer = messages.fields(body[5:])
        answer.pop("$err", None)
        return answer

    async def documents(self, database, collection):
        """All documents of a collection, by the bytes of their `_id`."""
        found = {}
        answer = await self.ask({"find": collection, "batchSize": 1000, "$db": database})
        while True:
            cursor = dict(answer.get("cursor", {}))
            for document in cursor.get("firstBatch", cursor.get("nextBatch", [])):
                found[key_of(document)] = document
            if not cursor.get("id"):
                return found
            answer = await self.ask({"getMore": cursor["id"], "collection": collection, "batchSize": 1000, "$db": database})

    def close(self):
        if self.streams:
            with contextlib.suppress(OSError):
                self.streams[1].close()
        self.streams = None


def key_of(document):
    """What distinguishes a document from all others of its collection."""
    return bson.encode({"_id": document["_id"]})
