"""A scripted MongoDB (mock_mongodb) with statistics: serverStatus, hostInfo and $currentOp report its real connections,
commands and transactions, as MongoDB does. The doctor's tests need it, because the other servers of the tests count
next to nothing.
"""

import contextlib
import itertools
import json
import socket
import threading
import time

import pymongo
import pymongo.monitoring

from support.mock_mongodb import Member, ReplicaSet
from support.mongodb_wire import message

KINDS = {"find": "query", "insert": "insert", "update": "update", "delete": "delete", "getmore": "getmore"}
READS, WRITES = {"find", "getmore"}, {"insert", "update", "delete"}
UNAUTHORIZED = {"ok": 0.0, "errmsg": "not authorized on admin to execute command", "code": 13, "codeName": "Unauthorized"}


class Connections(set):
    """Open connections with a number each, and how many there have been."""

    def __init__(self):
        super().__init__()
        self.made, self.numbers = 0, {}

    def add(self, connection):
        self.made += 1
        self.numbers[connection] = self.made
        super().add(connection)

    def discard(self, connection):
        self.numbers.pop(connection, None)
        super().discard(connection)


class CountingMember(Member):
    """`room`: the most connections. `tickets`: operations that it executes at the same time. `takes`: seconds that a
    command takes, by name. `refuses`: commands that need a privilege which no user has. `cores`: processors of its
    machine."""

    def __init__(self, deployment, number, room=1000, tickets=64, cores=64):
        self.room, self.cores, self.takes, self.refuses = room, cores, {}, set()
        self.counted = threading.Lock()
        self.tickets, self.queued, self.running, self.active = threading.Semaphore(tickets), 0, 0, 0
        self.operations = dict.fromkeys([*KINDS.values(), "command"], 0)
        self.latencies = {kind: {"latency": 0, "ops": 0} for kind in ("reads", "writes", "commands")}
        self.started = self.ended = 0
        # For each open transaction: when it began, since when it has had no command, and which connection it belongs
        # to.
        self.transactions = {}
        self.local, self.names, self.began = threading.local(), {}, time.monotonic()
        super().__init__(deployment, number)
        self.open = Connections()

    def serve(self, connection):
        self.local.connection = connection
        super().serve(connection)
        self.names.pop(connection, None)

    def accept(self, listening):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            if len(self.open) >= self.room:
                self.rejected = getattr(self, "rejected", 0) + 1
                connection.close()
                continue
            self.open.add(connection)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def answer(self, command):
        name = next(iter(command)).lower()
        if application := command.get("client", {}).get("application"):
            self.names[self.local.connection] = application["name"]
        began = time.monotonic()
        with self.counted:
            self.operations[KINDS.get(name, "command")] += 1
            self.active += 1
        try:
            with self.ticket() if name in READS | WRITES else contextlib.nullcontext():
                time.sleep(self.takes.get(name, 0))
                answer = super().answer(command)
        finally:
            with self.counted:
                self.active -= 1
                self.note(name, command, time.monotonic() - began)
        return UNAUTHORIZED if name in self.refuses else answer

    @contextlib.contextmanager
    def ticket(self):
        with self.counted:
            self.queued += 1
        with self.tickets:
            with self.counted:
                self.queued -= 1
                self.running += 1
            try:
                yield
            finally:
                with self.counted:
                    self.running -= 1

    def note(self, name, command, took):
        kind = "reads" if name in READS else "writes" if name in WRITES else "commands"
        self.latencies[kind]["latency"] += int(took * 1e6)
        self.latencies[kind]["ops"] += 1
        if command.get("autocommit") is not False:
            return
        key = bytes(command["lsid"]["id"])
        now = time.monotonic()
        if command.get("startTransaction"):
            self.started += 1
            # When it began, when its last command ended, the sum of its pauses before that, and its connection.
            self.transactions[key] = [now - took, now - took, 0, self.local.connection]
        if name in ("committransaction", "aborttransaction"):
            self.ended += self.transactions.pop(key, None) is not None
        elif transaction := self.transactions.get(key):
            transaction[2] += max(0, now - took - transaction[1])
            transaction[1] = now

    def do_serverstatus(self, _):
        with self.counted:
            up, here = time.monotonic() - self.began, len(self.open)
            busy = self.running + self.queued
            return {
                "host": f"127.0.0.1:{self.port}", "version": "7.0.14", "process": "mongod", "pid": 4711, "uptime": float(int(up)),
                "uptimeMillis": int(up * 1000),
                "connections": {"current": here, "available": max(0, self.room - here), "totalCreated": self.open.made,
                                "rejected": getattr(self, "rejected", 0), "active": self.active, "awaitingTopologyChanges": 0},
                "globalLock": {"currentQueue": {"total": self.queued, "readers": self.queued, "writers": 0},
                               "activeClients": {"total": busy, "readers": self.running, "writers": 0}},
                "opLatencies": {kind: dict(figures) for kind, figures in self.latencies.items()},
                "opcounters": dict(self.operations),
                "transactions": {"currentOpen": len(self.transactions), "currentActive": 0, "currentInactive": len(self.transactions),
                                 "totalStarted": self.started, "totalCommitted": self.ended, "totalAborted": 0},
                "ok": 1.0,
            }

    def do_hostinfo(self, _):
        return {"system": {"hostname": "scripted", "numCores": self.cores, "cpuArch": "x86_64"}, "ok": 1.0}

    def do_hello(self, command):
        return {**super().do_hello(command), "connectionId": self.open.numbers.get(self.local.connection, 0)}

    do_ismaster = do_hello

    def do_aggregate(self, command):
        """Executes only $currentOp, without the filters of later stages."""
        assert "$currentOp" in command["pipeline"][0], command
        stages = {key: value for stage in command["pipeline"] for key, value in stage.items()}
        assert "command" not in stages["$project"] and stages["$limit"] <= 5000, "no text of commands, and no list without end"
        own = stages["$match"]["connectionId"]["$ne"]
        now, rows = time.monotonic(), []
        for connection, number in list(self.open.numbers.items()):
            if number != own:
                rows.append({"connectionId": number, "client": self.peer(connection), "appName": self.names.get(connection, ""), "active": False})
        for began, since, paused, connection in list(self.transactions.values()):
            # A server reports the sum of the pauses and not the length of the present one.
            idle = {"timeOpenMicros": int((now - began) * 1e6), "timeInactiveMicros": int((paused + now - since) * 1e6),
                    "timeActiveMicros": int((since - began - paused) * 1e6)}
            rows.append({"client": self.peer(connection), "appName": self.names.get(connection, ""), "active": False, "transaction": idle})
        rows = list(itertools.islice(rows, stages["$limit"]))
        return {"cursor": {"firstBatch": rows, "id": 0, "ns": "admin.$cmd.aggregate"}, "ok": 1.0}

    @staticmethod
    def peer(connection):
        with contextlib.suppress(OSError):
            return "%s:%d" % connection.getpeername()[:2]
        return ""


class Counted(ReplicaSet):
    """A replica set with one such member."""

    def __init__(self, **settings):
        self.lock = threading.RLock()
        self.documents, self.done, self.transactions = {}, {}, {}
        self.term, self.primary = 1, 0
        self.members = [CountingMember(self, 0, **settings)]

    @property
    def server(self):
        return self.members[0]

    @property
    def look_at(self):
        return f"mongodb://127.0.0.1:{self.server.port}/"

    def client(self, **more):
        return pymongo.MongoClient(self.url(), **{"serverSelectionTimeoutMS": 20_000, "appName": "web", **more})


class Events(pymongo.monitoring.ConnectionPoolListener):
    """Writes a driver's pool events as lines of JSON."""

    def __init__(self, path):
        self.file, self.lock = path.open("w"), threading.Lock()

    def write(self, event):
        more = {name: getattr(event, name) for name in ("connection_id", "reason", "options") if hasattr(event, name)}
        line = {"event": type(event).__name__, "time": time.time(), "address": event.address, "connectionId": more.pop("connection_id", None), **more}
        with self.lock:
            if not self.file.closed:
                self.file.write(json.dumps({name: value for name, value in line.items() if value is not None}, default=str) + "\n")

    pool_created = pool_ready = pool_cleared = pool_closed = write
    connection_created = connection_ready = connection_closed = write
    connection_check_out_started = connection_check_out_failed = connection_checked_out = connection_checked_in = write


# -- behaviour of applications


def one(client):
    client.app.things.find_one()


def comes_and_goes(server):
    """Opens a client for each operation."""
    with server.client(appName="lambda") as client:
        one(client)


def pauses(client, over, seconds):
    """Leaves a transaction open for `seconds`."""
    with client.start_session() as session:
        session.start_transaction()
        client.app.things.find_one(session=session)
        over.wait(seconds)
        session.commit_transaction()
    over.wait(0.01)


def chats(client, over, seconds):
    """Runs a transaction that sends a command every few milliseconds for `seconds`."""
    until = time.monotonic() + seconds
    with client.start_session() as session:
        session.start_transaction()
        while time.monotonic() < until:
            client.app.things.find_one(session=session)
            over.wait(0.005)
        session.commit_transaction()


def begins(client):
    """Begins a transaction and returns its session, which the caller must keep open."""
    session = client.start_session()
    session.start_transaction()
    client.app.things.find_one(session=session)
    return session


def bursts(client, over, many, quiet):
    """Alternates between `many` operations at once and a quiet time."""
    def once():
        for _ in range(12):
            one(client)

    while not over.is_set():
        crowd = [threading.Thread(target=once) for _ in range(many)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()
        over.wait(quiet)


def keep(server, many):
    """Opens `many` connections that only say hello, and returns them for the caller to keep."""
    kept = []
    for _ in range(many):
        connection = socket.create_connection(("127.0.0.1", server.server.port))
        connection.sendall(message({"hello": 1, "$db": "admin", "client": {"application": {"name": "idle"}}}))
        with contextlib.suppress(OSError):
            connection.recv(4096)
        kept.append(connection)
    return kept
