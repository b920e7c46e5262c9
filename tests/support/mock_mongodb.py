"""A scripted replica set. Its members run in the test's process and listen on ports of their own; the test holds
elections, stops members, and reads which member was asked what. It provides what the real servers of the tests lack:
several hosts, transactions, elections. All members share one set of documents, by collection and `_id`.
"""

import contextlib
import socket
import struct
import threading
import time

import bson

SET = "rs0"
WIRE_VERSION = 21
CHECKSUM_PRESENT = 1
NOT_PRIMARY = {"ok": 0.0, "errmsg": "not primary", "code": 10107, "codeName": "NotWritablePrimary"}


class ReplicaSet:
    """Members of which at most one is the primary."""

    def __init__(self, members=3):
        self.lock = threading.RLock()
        self.documents, self.done, self.transactions = {}, {}, {}
        self.term, self.primary = 1, 0
        self.members = [Member(self, number) for number in range(members)]

    def url(self):
        return "mongodb://" + ",".join(f"127.0.0.1:{member.port}" for member in self.members) + f"/?replicaSet={SET}"

    def elect(self, number):
        """Starts a new term, with this primary or without one. Transactions of the old term are over."""
        with self.lock:
            self.term, self.primary = self.term + 1, number
            self.transactions.clear()

    def stop(self):
        for member in self.members:
            member.stop()

    def asked(self, name):
        """The numbers of the members that received this command, in order."""
        with self.lock:
            return [number for number, command in self.record if command == name]

    @property
    def record(self):
        return sorted_by_time([(when, (member.number, name)) for member in self.members for when, name in member.record])


def sorted_by_time(entries):
    return [entry for _, entry in sorted(entries, key=lambda entry: entry[0])]


class Member:
    """One host."""

    clock = iter(range(1 << 60))

    def __init__(self, deployment, number):
        self.deployment, self.number, self.record = deployment, number, []
        self.cursors, self.next_cursor, self.failures, self.open = {}, 1000, {}, set()
        # Further fields of its `hello`, and how long its answer takes.
        self.says, self.hello_takes = {}, 0
        self.listening = None
        self.port = 0
        self.start()

    def start(self):
        self.listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, args=(self.listening,), daemon=True).start()

    def stop(self):
        """Stops the member and closes all its connections."""
        if self.listening:
            # This wakes the thread that accepts connections.
            with contextlib.suppress(OSError):
                self.listening.shutdown(socket.SHUT_RDWR)
            self.listening.close()
            self.listening = None
        for connection in list(self.open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def fail_next(self, name, answer):
        """The next command with this name gets this answer and is not executed; `None` closes the connection."""
        self.failures.setdefault(name, []).append(answer)

    def accept(self, listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            self.open.add(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError, EOFError), connection:
            while True:
                header = exactly(connection, 16)
                length, request, _, op = struct.unpack("<iiii", header)
                body = exactly(connection, length - 16)
                assert op != 2013 or not body[0] & CHECKSUM_PRESENT, "a checksum came through"
                command, wants = self.read(op, body)
                if next(iter(command)).lower() == "ismaster":
                    time.sleep(self.hello_takes)
                answer = self.answer(command)
                if answer is None:
                    break
                if wants:
                    connection.sendall(message(op, request, bson.encode(answer)))
        self.open.discard(connection)

    @staticmethod
    def read(op, body):
        if op == 2004:
            return bson.decode(body[body.index(b"\0", 4) + 9:]), True
        flags, at = struct.unpack_from("<I", body)[0], 4
        command, sections = None, {}
        while at < len(body):
            kind, size = body[at], struct.unpack_from("<i", body, at + 1)[0]
            part = body[at + 1:at + 1 + size]
            if kind == 0:
                command = bson.decode(part)
            else:
                name, documents = part[4:].split(b"\0", 1)
                sections[name.decode()] = bson.decode_all(documents)
            at += 1 + size
        return {**command, **sections}, not flags & 2

    def answer(self, command):
        name = next(iter(command))
        with self.deployment.lock:
            self.record.append((next(self.clock), name))
            if waiting := self.failures.get(name):
                return waiting.pop(0)
            handler = getattr(self, f"do_{name.lower()}", None)
            if handler is None:
                return {"ok": 0.0, "errmsg": f"no such command: '{name}'", "code": 59, "codeName": "CommandNotFound"}
            return handler(command)

    def is_primary(self):
        return self.deployment.primary == self.number

    def do_ismaster(self, _):
        election = bson.ObjectId(self.deployment.term.to_bytes(12, "big"))
        more = {"setVersion": 1, "electionId": election} if self.is_primary() else {}
        return {"ismaster": self.is_primary(), "secondary": not self.is_primary(), "setName": SET, "me": f"127.0.0.1:{self.port}",
                "hosts": [f"127.0.0.1:{member.port}" for member in self.deployment.members], "minWireVersion": 0, "maxWireVersion": WIRE_VERSION,
                "logicalSessionTimeoutMinutes": 30, "maxBsonObjectSize": 16777216, "ok": 1.0, **more, **self.says}

    do_hello = do_ismaster

    def do_ping(self, _):
        return {"ok": 1.0}

    def do_insert(self, command):
        if not self.is_primary():
            return NOT_PRIMARY
        if refused := self.in_transaction(command):
            return refused
        repeated = (bytes(command["lsid"]["id"]), command["txnNumber"]) if "txnNumber" in command and "autocommit" not in command else None
        if repeated in self.deployment.done:
            return self.deployment.done[repeated]
        kept = self.pending(command)
        for document in command["documents"]:
            kept.setdefault(command["insert"], {})[document["_id"]] = document
        answer = {"n": len(command["documents"]), "ok": 1.0}
        if repeated:
            self.deployment.done[repeated] = answer
        return answer

    def in_transaction(self, command):
        if command.get("autocommit") is not False:
            return None
        key = (bytes(command["lsid"]["id"]), command["txnNumber"])
        if command.get("startTransaction"):
            self.deployment.transactions[key] = (self.number, {})
        if self.deployment.transactions.get(key, (None,))[0] != self.number:
            return {"ok": 0.0, "errmsg": "no such transaction", "code": 251, "codeName": "NoSuchTransaction",
                    "errorLabels": ["TransientTransactionError"]}
        return None

    def pending(self, command):
        if command.get("autocommit") is not False:
            return self.deployment.documents
        return self.deployment.transactions[bytes(command["lsid"]["id"]), command["txnNumber"]][1]

    def do_committransaction(self, command):
        key = (bytes(command["lsid"]["id"]), command["txnNumber"])
        if not self.is_primary():
            return NOT_PRIMARY
        if key in self.deployment.done:
            return self.deployment.done[key]
        if refused := self.in_transaction(command):
            return refused
        for collection, documents in self.deployment.transactions.pop(key)[1].items():
            self.deployment.documents.setdefault(collection, {}).update(documents)
        self.deployment.done[key] = {"ok": 1.0}
        return {"ok": 1.0}

    def do_aborttransaction(self, command):
        refused = self.in_transaction(command)
        self.deployment.transactions.pop((bytes(command["lsid"]["id"]), command["txnNumber"]), None)
        return refused or {"ok": 1.0}

    def do_find(self, command):
        if refused := self.in_transaction(command):
            return refused
        documents = list(self.deployment.documents.get(command["find"], {}).values())
        batch = documents[:command.get("batchSize", 101)]
        rest = documents[len(batch):]
        if command.get("singleBatch") or command.get("limit") == 1:
            batch, rest = batch[:1], []
        return self.batch(command["find"], "firstBatch", batch, rest, 0)

    def do_getmore(self, command):
        if command["getMore"] not in self.cursors:
            return {"ok": 0.0, "errmsg": f"cursor id {command['getMore']} not found", "code": 43, "codeName": "CursorNotFound"}
        documents = self.cursors.pop(command["getMore"])
        size = command.get("batchSize", 101)
        return self.batch(command["collection"], "nextBatch", documents[:size], documents[size:], command["getMore"])

    def batch(self, collection, name, documents, rest, cursor):
        if rest and not cursor:
            self.next_cursor += 1
            cursor = self.next_cursor
        if rest:
            self.cursors[cursor] = rest
        return {"cursor": {name: documents, "id": bson.Int64(cursor if rest else 0), "ns": f"app.{collection}", "by": self.number}, "ok": 1.0}

    def do_killcursors(self, command):
        killed = [cursor for cursor in command["cursors"] if self.cursors.pop(cursor, None) is not None]
        return {"cursorsKilled": killed, "cursorsNotFound": [cursor for cursor in command["cursors"] if cursor not in killed], "ok": 1.0}

    def do_endsessions(self, command):
        return self.forget(command["endSessions"])

    def do_killsessions(self, command):
        return self.forget(command["killSessions"])

    def do_killallsessions(self, _):
        return {"ok": 1.0}

    def forget(self, sessions):
        """Ends these sessions and their transactions."""
        ended = {bytes(session["id"]) for session in sessions}
        for key in [key for key, (at, _) in self.deployment.transactions.items() if key[0] in ended and at == self.number]:
            del self.deployment.transactions[key]
        return {"ok": 1.0}


class Hung:
    """A member that receives requests and answers none, or none with these names, until it is released."""

    def __init__(self, member, *names):
        self.goes_on, before = threading.Event(), member.answer

        def answer(command):
            if not names or next(iter(command)) in names:
                self.goes_on.wait()
            return before(command)

        member.answer = answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.goes_on.set()


def exactly(connection, count):
    """Reads exactly `count` bytes, or raises EOFError."""
    read = b""
    while len(read) < count:
        part = connection.recv(count - len(read))
        if not part:
            raise EOFError
        read += part
    return read


def message(op, answers, document):
    """An answer in the opcode of the request."""
    if op == 2004:
        return struct.pack("<iiiiiqii", 36 + len(document), 1, answers, 1, 8, 0, 0, 1) + document
    return struct.pack("<iiiiIB", 21 + len(document), 1, answers, 2013, 0, 0) + document


def crc32c(data):
    """The checksum of RFC 3720, bit by bit."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def with_checksum(message):
    """An OP_MSG with a checksum, as the `mongo` shell of MongoDB 4.2 to 5.0 sends."""
    flags, = struct.unpack_from("<I", message, 16)
    flags |= CHECKSUM_PRESENT
    message = struct.pack("<i", len(message) + 4) + message[4:16] + struct.pack("<I", flags) + message[20:]
    return message + struct.pack("<I", crc32c(message))
