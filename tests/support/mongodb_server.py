"""MongoDB-compatible servers of other projects on free ports, and Poolhouse in front of one. It knows no other
database."""

import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.parse

import pymongo
import pytest

from support import java_programs, pooler
from support.postgres_cluster import free_port

HERE = pathlib.Path(__file__).resolve().parent / "mongodb_servers"
# A built FerretDB (mongodb_servers/ferretdb). `make setup` builds it.
FERRETDB = HERE / "ferretdb" / "ferretdb"
JAVA_SERVER = HERE / "java-server"
STAND_IN = HERE / "stand_in" / "main.py"


class MongoServer:
    """A server process, started with `arguments`."""

    def __init__(self, directory):
        self.directory, self.port, self.process = directory, free_port(), None

    def arguments(self):
        raise NotImplementedError

    def environment(self):
        return {}

    def start(self):
        with (self.directory / "server.log").open("ab") as log:
            environment = {**os.environ, **self.environment()}
            self.process = subprocess.Popen(self.arguments(), stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
        deadline = time.monotonic() + 30
        while True:
            try:
                with self.connect(serverSelectionTimeoutMS=200) as client:
                    client.admin.command("ping")
                return self
            except pymongo.errors.PyMongoError:
                assert self.process.poll() is None and time.monotonic() < deadline, (self.directory / "server.log").read_text()

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process = None

    def url(self):
        return f"mongodb://127.0.0.1:{self.port}"

    def connect(self, **more):
        """pymongo, without Poolhouse."""
        return pymongo.MongoClient(self.url(), **more)


class JavaServer(MongoServer):
    """mongo-java-server, in memory: wire version 8, without `hello`, sessions and authentication."""

    sessions = False
    # Whether it keeps an oplog, which change streams need.
    oplog = False

    @staticmethod
    def prepare():
        """Fetches and builds the server if it is not up to date."""
        java_programs.prepare(JAVA_SERVER, "mongo-java-server")

    def arguments(self):
        return java_programs.command(JAVA_SERVER, self.port, *(["oplog"] if self.oplog else []))


class FerretServer(MongoServer):
    """FerretDB on SQLite: wire version 21, with `hello` and session ids, without transactions."""

    sessions = True

    @staticmethod
    def prepare():
        """Skips the test if FerretDB has not been built: that takes minutes."""
        if not FERRETDB.exists():
            pytest.skip("FerretDB is not built here: `make setup` does, where Go is")

    def arguments(self):
        return [FERRETDB, f"127.0.0.1:{self.port}", self.directory]


class GuardedFerretServer(FerretServer):
    """FerretDB that requires a login with SCRAM-SHA-256."""

    user, password = "tester", "pä/ss"

    def environment(self):
        return {"FERRETDB_USER": self.user, "FERRETDB_PASSWORD": self.password}

    def url(self, password=None):
        user, password = (urllib.parse.quote(part, safe="") for part in (self.user, password or self.password))
        return f"mongodb://{user}:{password}@127.0.0.1:{self.port}/app"


class StandIn(MongoServer):
    """A simulated replica set of `members` members, or a simulated mongos, that keeps its documents in one of the
    servers above (mongodb_servers/stand_in)."""

    sessions = True

    def __init__(self, directory, members=1, sharded=False, backing=JavaServer):
        super().__init__(directory)
        self.ports, self.sharded = [self.port, *(free_port() for _ in range(members - 1))], sharded
        (directory / "backing").mkdir()
        self.backing = backing(directory / "backing")
        self.backing.oplog = True

    def arguments(self):
        ports = ",".join(map(str, self.ports))
        backing = f"127.0.0.1:{self.backing.port}"
        return [sys.executable, STAND_IN, "--ports", ports, "--backing", backing, *(["--sharded"] if self.sharded else [])]

    def start(self):
        self.backing.start()
        return super().start()

    def stop(self):
        super().stop()
        self.backing.stop()

    def url(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"mongodb://{hosts}/" + ("" if self.sharded else "?replicaSet=rs0")

    def ask_each(self, *command, **more):
        """The answer of each member, asked directly."""
        answers = []
        for port in self.ports:
            with pymongo.MongoClient(f"mongodb://127.0.0.1:{port}/?directConnection=true") as client:
                answers.append(client.admin.command(*command, **more))
        return answers

    def ask(self, *command, **more):
        """The answer of the primary, asked directly: to hold an election, or to make commands fail."""
        with self.connect() as client:
            return client.admin.command(*command, **more)

    def fail(self, mode, **data):
        """Makes commands fail (`failCommand`): `mode` is "off", "alwaysOn" or how often."""
        return self.ask("configureFailPoint", "failCommand", mode={"times": mode} if isinstance(mode, int) else mode, data=data)


class MongoPoolhouse(pooler.Pooler):
    """poolhouse serve mongodb://..."""

    def __init__(self, directory, server):
        super().__init__(directory, None)
        self.server = server

    def command(self, settings):
        flags = [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", str(value))]
        addresses = ["--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin_port}"]
        return [pooler.BINARY, "serve", self.server.url(), *addresses, *flags], {}

    def connect(self, options="", **more):
        """pymongo through Poolhouse, with `options` after the `?` of its URL."""
        more = {"serverSelectionTimeoutMS": 5000, "socketTimeoutMS": 20_000, **more}
        return pymongo.MongoClient(f"mongodb://127.0.0.1:{self.port}/?{options}", **more)

    def start_with(self, text):
        """Starts with a configuration file: an [admin] section and this text."""
        self.path = self.directory / "poolhouse.toml"
        self.path.write_text(f'[admin]\nlisten = "127.0.0.1:{self.admin_port}"\n{text.replace("PORT", str(self.port))}')
        self.path.chmod(0o600)
        self.launch([pooler.BINARY, "serve", "--config", str(self.path)])
        return self

    def start_listening(self, listener, **database):
        """Starts with a configuration file that has these settings of the listener and the database."""
        table = lambda values: "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
        sections = {"listener": {"listen": "127.0.0.1:PORT", "protocol": "mongodb", **listener}, "database": {"url": self.server.url(), **database}}
        return self.start_with("".join(f"[[{name}]]\n{table(values)}" for name, values in sections.items()))


def directory(workspace, name):
    made = workspace / f"{name}-{os.urandom(4).hex()}"
    made.mkdir()
    return made
