"""One host of the stand-in: what it reports about itself, and how it executes a command."""

import asyncio
import contextlib
import datetime

import bson
import fail_points
import messages
from backing import Backing
from cursors import Cursors
from errors import error, labelled

SET = "rs0"
VERSION = [7, 0, 14, 0]
WIRE = 21
NOT_PRIMARY = error(10107, "not primary")
# Commands that a secondary executes if they allow it.
READS = {"find", "aggregate", "count", "distinct", "getMore", "killCursors", "listCollections", "listIndexes", "listDatabases", "dbStats", "collStats",
         "explain"}
# Commands of the drivers' contract, version 1.
API = {"abortTransaction", "aggregate", "collMod", "commitTransaction", "count", "create", "createIndexes", "delete", "drop", "dropDatabase",
       "dropIndexes", "endSessions", "explain", "find", "findAndModify", "getMore", "hello", "insert", "killCursors", "listCollections",
       "listDatabases", "listIndexes", "ping", "refreshSessions", "update"}


class Member:
    """A host. Its deployment has what it shares with the other hosts."""

    def __init__(self, deployment, port):
        self.deployment, self.port = deployment, port
        self.fail_points, self.cursors = fail_points.FailPoints(), Cursors()
        self.connections, self.opened, self.listening = set(), 0, None
        # The host stops behind this command without answering it.
        self.ends_behind = None

    def is_primary(self):
        return self.deployment.sharded or self.deployment.primary is self

    async def start(self):
        self.listening = await asyncio.start_server(self.serve, "127.0.0.1", self.port, limit=1 << 20)

    async def serve(self, reader, writer):
        """Serves a connection until it ends."""
        backing, app = Backing(self.deployment.backing), None
        self.connections.add(writer)
        self.opened += 1
        number = self.opened
        try:
            while True:
                request, op, wants_answer, command = await messages.read(reader)
                name = next(iter(command))
                if name.lower() in ("hello", "ismaster") and "client" in command:
                    app = command["client"].get("application", {}).get("name")
                answer = await self.answer(backing, app, name, command, number)
                if name == self.ends_behind:
                    self.end()
                if wants_answer:
                    writer.write(messages.answer(op, request, answer))
                    await writer.drain()
        except (asyncio.IncompleteReadError, EOFError, ConnectionError, fail_points.Ends):
            pass
        finally:
            self.connections.discard(writer)
            backing.close()
            with contextlib.suppress(OSError):
                writer.close()

    def end(self):
        """Stops the member and closes all its connections."""
        self.listening.close()
        for connection in list(self.connections):
            connection.transport.abort()

    async def answer(self, backing, app, name, command, number):
        if name == "configureFailPoint":
            return self.told(self.fail_points.configure(command), command)
        fails = self.fail_points.fires(name, app)
        answer = await fail_points.before(fails) if fails else None
        if answer is None:
            answer = refused_by_contract(name, command) or await self.carry_out(backing, name, command, number)
        if fails:
            answer = fail_points.behind(fails, answer)
        if answer.get("ok") and too_many(command.get("writeConcern"), len(self.deployment.members)):
            answer = answer | {"writeConcernError": {"code": 100, "codeName": "UnsatisfiableWriteConcern", "errmsg": "Not enough data-bearing nodes"}}
        return self.told(labelled(answer, command), command)

    def told(self, answer, command):
        """An answer with the times that a deployment adds."""
        time = self.deployment.tick()
        answer = {**answer, "$clusterTime": {"clusterTime": time, "signature": {"hash": bytes(20), "keyId": bson.Int64(0)}}, "operationTime": time}
        if self.deployment.sharded and command.get("autocommit") is False and "abortTransaction" not in command:
            answer["recoveryToken"] = {"recoveryShardId": "shard0"}
        return answer

    async def carry_out(self, backing, name, command, number):
        if own := getattr(self, f"do_{name.lower()}", None):
            return await own(command, backing) if asyncio.iscoroutinefunction(own) else own(command, number)
        sessions = self.deployment.sessions
        if not self.is_primary():
            mode = command.get("$readPreference", {}).get("mode", "primary")
            if name not in READS or command.get("autocommit") is False:
                return NOT_PRIMARY
            if mode == "primary" and name not in ("getMore", "killCursors"):
                return error(13435, "not primary and secondaryOk=false")
        if name == "getMore" and (refused := self.cursors.refused(command)):
            return refused
        if name == "getMore" and self.cursors.waits(command):
            return await self.cursors.wait(backing, command, self.deployment.turn)

        async def ask(asked):
            return await self.cursors.ask(backing, asked)

        # One command after another, so that no client sees half of a commit.
        async with self.deployment.turn:
            if command.get("autocommit") is False:
                elsewhere = self.deployment.sharded and await sessions.look_elsewhere(backing, command, self)
                return elsewhere or await sessions.run(backing, command, ask)
            if "txnNumber" in command:
                return await sessions.write(command, ask)
            return await ask(command)

    def do_hello(self, command, number):
        greeting = "isWritablePrimary" if "hello" in command else "ismaster"
        told = {greeting: self.is_primary(), "maxBsonObjectSize": 16 << 20, "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000,
                "localTime": datetime.datetime.now(datetime.UTC), "logicalSessionTimeoutMinutes": 30, "connectionId": number, "minWireVersion": 0,
                "maxWireVersion": WIRE, "readOnly": False, "helloOk": True, "ok": 1.0}
        if self.deployment.sharded:
            more = {"msg": "isdbgrid"} | ({"serviceId": self.deployment.service} if command.get("loadBalanced") else {})
            return told | more
        # Without `topologyVersion` drivers poll and do not wait for changes.
        told |= {"secondary": not self.is_primary(), "setName": SET, "setVersion": 1, "hosts": self.deployment.hosts(), "me": self.address()}
        if self.deployment.primary:
            told["primary"] = self.deployment.primary.address()
        if self.is_primary():
            told["electionId"] = bson.ObjectId(self.deployment.term.to_bytes(12, "big"))
        return told

    do_ismaster = do_hello

    def address(self):
        return f"127.0.0.1:{self.port}"

    def do_ping(self, command, number):
        return {"ok": 1.0}

    def do_buildinfo(self, command, number):
        return {"version": ".".join(map(str, VERSION[:3])), "versionArray": VERSION, "gitVersion": "0", "modules": [], "bits": 64,
                "maxBsonObjectSize": 16 << 20, "debug": False, "ok": 1.0}

    def do_getcmdlineopts(self, command, number):
        return {"argv": ["mongod"], "parsed": {"setParameter": {"enableTestCommands": "1"}}, "ok": 1.0}

    def do_getparameter(self, command, number):
        known = {"enableTestCommands": True, "featureCompatibilityVersion": {"version": "7.0"}, "authenticationMechanisms": ["SCRAM-SHA-256"],
                 "requireApiVersion": False, "acceptApiVersion2": False}
        asked = known if command["getParameter"] == "*" else {key: value for key, value in known.items() if key in command}
        return {**asked, "ok": 1.0} if asked else error(72, "no option found to get")

    def do_serverstatus(self, command, number):
        return {"host": self.address(), "version": ".".join(map(str, VERSION[:3])), "process": "mongos" if self.deployment.sharded else "mongod",
                "pid": bson.Int64(1), "uptime": 1.0, "storageEngine": {"name": "wiredTiger", "persistent": True},
                "connections": {"current": len(self.connections), "available": 1000, "totalCreated": self.opened},
                "transactions": {"currentOpen": bson.Int64(len(self.deployment.sessions.open(self if self.deployment.sharded else None)))},
                "ok": 1.0}

    def do_explain(self, command, number):
        return {"queryPlanner": {}, "executionStats": {}, "ok": 1.0}

    def do_refreshsessions(self, command, number):
        return {"ok": 1.0}

    async def do_killallsessions(self, command, backing):
        async with self.deployment.turn:
            await self.deployment.sessions.end(backing)
        return {"ok": 1.0}

    async def do_endsessions(self, command, backing):
        async with self.deployment.turn:
            await self.deployment.sessions.end(backing, {bytes(session["id"]) for session in command[next(iter(command))]})
        return {"ok": 1.0}

    do_killsessions = do_endsessions

    async def do_replsetstepdown(self, command, backing):
        if not self.is_primary():
            return NOT_PRIMARY
        async with self.deployment.turn:
            await self.deployment.step_down(backing)
        return {"ok": 1.0}

    def do_shutdown(self, command, number):
        """Stops behind the next command of this name."""
        self.ends_behind = command["behind"]
        return {"ok": 1.0}

    def do_replsetfreeze(self, command, number):
        return {"ok": 1.0}


def too_many(concern, members):
    """Whether the write concern asks for more members than there are."""
    wanted = dict(concern or {}).get("w")
    return isinstance(wanted, int) and wanted > members


def refused_by_contract(name, command):
    """Why a command violates the version of the drivers' contract that it names."""
    if "apiVersion" not in command:
        return error(322, "apiVersion is missing") if "apiStrict" in command or "apiDeprecationErrors" in command else None
    if command["apiVersion"] != "1":
        return error(322, "API version must be \"1\"")
    if command.get("apiStrict") and name not in API:
        return error(323, f"Provided apiStrict:true, but the command {name} is not in API Version 1.")
    return None
