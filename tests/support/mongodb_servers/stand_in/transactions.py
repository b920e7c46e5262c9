"""Sessions: retryable writes and transactions. The backing server knows neither. A transaction works on copies of the
collections that it touches, in a database of its own; its commit applies the changes to the collections.

Unlike in MongoDB, a write outside of transactions does not wait for a transaction that has changed the same document;
the transaction fails instead.
"""

import dataclasses
import itertools

from errors import error

# Commands that a transaction may contain.
ALLOWED = {"find", "aggregate", "distinct", "insert", "update", "delete", "findAndModify", "findandmodify", "getMore", "killCursors", "create",
           "createIndexes", "abortTransaction", "commitTransaction"}
MAKES = {"create", "createIndexes"}
WRITES = {"insert", "update", "delete", "findAndModify", "findandmodify"}

numbers = itertools.count(1)


@dataclasses.dataclass
class Copy:
    """A collection as it was when a transaction first touched it, and which documents the transaction has changed."""

    before: dict
    now: dict
    changed: set = dataclasses.field(default_factory=set)


class Transaction:
    def __init__(self):
        self.number, self.copies = next(numbers), {}
        # Collections and indexes that the transaction creates.
        self.made = []

    def database(self, database):
        """The database that has the copies of this database's collections."""
        return f"txn{self.number}_{database}"


@dataclasses.dataclass
class Session:
    """The latest transaction number of a session, and what it is used for."""

    number: int = -1
    # "write", "open", "committed", "aborted"
    state: str = ""
    transaction: Transaction | None = None
    # The answer to a repeated write; `None` until the write has been executed.
    answer: dict | None = None
    # The mongos that a transaction began at.
    at: object = None


class Sessions:
    """All sessions of a deployment."""

    def __init__(self):
        self.known = {}

    def of(self, command):
        return self.known.setdefault(bytes(command["lsid"]["id"]), Session())

    def open(self, at=None):
        """Open transactions, of all or of one mongos."""
        return [session.transaction for session in self.known.values() if session.state == "open" and at in (None, session.at)]

    async def end(self, backing, ids=None):
        """Aborts the transactions of these sessions, or of all."""
        for key in [key for key in self.known if ids is None or key in ids]:
            session = self.known.pop(key)
            if session.state == "open":
                await drop(backing, session.transaction)

    async def step_down(self, backing):
        """Aborts all transactions. Completed writes and commits stay known."""
        for session in self.known.values():
            if session.state == "open":
                await abort(backing, session)

    async def write(self, command, carry_out):
        """Executes a write that the driver may repeat."""
        session, number = self.of(command), command["txnNumber"]
        if number < session.number:
            return error(225, f"txnNumber {number} is older than {session.number}")
        if number == session.number and session.answer is not None:
            return session.answer
        answer = await carry_out(command)
        session.number, session.state, session.answer = number, "write", answer if answer.get("ok") else None
        return answer

    async def look_elsewhere(self, backing, command, here):
        """The answer of a mongos to a command of a transaction that began at another mongos, which alone knows its
        state; `None` if it began here. With the recovery token of a commit it asks the shards, which abort what has not
        been committed."""
        session = self.of(command)
        if command.get("startTransaction"):
            session.at = here
        if session.at is here or session.at is None or session.number != command["txnNumber"]:
            return None
        if next(iter(command)) == "commitTransaction" and "recoveryToken" in command:
            if session.state == "open":
                await abort(backing, session)
            if session.state == "committed":
                return {"ok": 1.0}
        return error(251, f"Transaction {command['txnNumber']} is not known here.")

    async def run(self, backing, command, carry_out):
        """Executes a command of a transaction."""
        name, session = next(iter(command)), self.of(command)
        if refused := await self.enter(backing, session, name, command):
            return refused
        if name == "commitTransaction":
            return await commit(backing, session)
        if name == "abortTransaction":
            await abort(backing, session)
            return {"ok": 1.0}
        if refused := not_in_a_transaction(name, command):
            await abort(backing, session)
            return refused
        transaction = session.transaction
        place = (command["$db"], command["collection"] if name == "getMore" else command[name])
        await copied(backing, transaction, place)
        if name in MAKES:
            if refused := self.cannot_be_made(transaction, name, place):
                await abort(backing, session)
                return refused
            transaction.made.append(command)
        answer = await carry_out(command | {"$db": transaction.database(command["$db"])})
        if name in WRITES and await conflicts(backing, self.open(), transaction, place):
            answer = error(112, "WriteConflict error: this operation conflicted with another operation. Please retry your operation.")
        if not answer.get("ok") or answer.get("writeErrors"):
            await abort(backing, session)
        if "cursor" in answer:
            cursor = dict(answer["cursor"])
            answer["cursor"] = cursor | {"ns": cursor["ns"].replace(transaction.database(command["$db"]), command["$db"], 1)}
        return answer

    @staticmethod
    def cannot_be_made(transaction, name, place):
        exists = transaction.copies[place].now
        if name == "create" and exists:
            return error(48, f"Collection {'.'.join(place)} already exists.")
        return error(263, "Cannot create new indexes on a collection that has documents in a multi-document transaction.") if exists else None

    async def enter(self, backing, session, name, command):
        """Why a command cannot be part of the transaction that it names."""
        number = command["txnNumber"]
        if number < session.number:
            return error(225, f"Cannot start transaction {number}: a newer one, {session.number}, has started")
        if command.get("startTransaction"):
            if number == session.number:
                return error(117, f"transaction {number} has been started already")
            if session.state == "open":
                await abort(backing, session)
            session.number, session.state, session.transaction, session.answer = number, "open", Transaction(), None
            return None
        if number == session.number and session.state == "committed" and name != "commitTransaction":
            return error(256, f"Transaction {number} has been committed.")
        if number != session.number or session.state not in ("open", "committed"):
            return error(251, f"Given transaction number {number} does not match any in-progress transactions.")
        if "readConcern" in command:
            return error(72, "only the first command of a transaction may have a readConcern")
        return None


def not_in_a_transaction(name, command):
    stages = [next(iter(stage)) for stage in command.get("pipeline", [])]
    if name not in ALLOWED or {"$out", "$merge"} & set(stages):
        return error(263, f"Cannot run '{name}' in a multi-document transaction.")
    if "writeConcern" in command:
        return error(72, "writeConcern is not allowed within a multi-statement transaction")
    return None


async def copied(backing, transaction, place):
    """Copies a collection when a transaction first touches it."""
    if place in transaction.copies:
        return
    documents = await backing.documents(*place)
    transaction.copies[place] = Copy(documents, documents)
    if documents:
        await backing.ask({"insert": place[1], "documents": list(documents.values()), "$db": transaction.database(place[0])})


async def conflicts(backing, open_now, transaction, place):
    """Records what a write has changed, and returns whether another transaction or write has changed the same since the
    transaction began."""
    copy = transaction.copies[place]
    now = await backing.documents(transaction.database(place[0]), place[1])
    copy.changed |= {key for key in copy.now.keys() | now.keys() if raw(copy.now.get(key)) != raw(now.get(key))}
    copy.now = now
    present = await backing.documents(*place)
    others = [other.copies[place].changed for other in open_now if other is not transaction and place in other.copies]
    return any(key in changed for key in copy.changed for changed in others) or any(
        raw(present.get(key)) != raw(copy.before.get(key)) for key in copy.changed)


def raw(document):
    return document and document.raw


async def commit(backing, session):
    if session.state == "committed":
        return {"ok": 1.0}
    for place, copy in session.transaction.copies.items():
        present = await backing.documents(*place)
        if any(raw(present.get(key)) != raw(copy.before.get(key)) for key in copy.changed):
            await abort(backing, session)
            return error(251, "a document of this transaction was changed outside of it")
    for command in session.transaction.made:
        await backing.ask(command)
    for (database, collection), copy in session.transaction.copies.items():
        for key in (key for key in copy.before | copy.now if key in copy.changed):
            before, now = copy.before.get(key), copy.now.get(key)
            if before is None and now is not None:
                await backing.ask({"insert": collection, "documents": [now], "$db": database})
            elif before is not None and now is None:
                await backing.ask({"delete": collection, "deletes": [{"q": {"_id": before["_id"]}, "limit": 1}], "$db": database})
            elif before is not None:
                await backing.ask({"update": collection, "updates": [{"q": {"_id": before["_id"]}, "u": now}], "$db": database})
    await drop(backing, session.transaction)
    session.state = "committed"
    return {"ok": 1.0}


async def abort(backing, session):
    await drop(backing, session.transaction)
    session.state = "aborted"


async def drop(backing, transaction):
    for database in {place[0] for place in transaction.copies}:
        await backing.ask({"dropDatabase": 1, "$db": transaction.database(database)})


