"""Several Poolhouses in front of one replica set: two in one URI, two behind a TCP load balancer, and one that takes
over from another while cursors and transactions are open. The members are scripted (mock_mongodb.py).
"""

import itertools
import socket
import subprocess
import threading
import time

import pymongo
import pytest
from pymongo.read_preferences import SecondaryPreferred

from support import pooler
from support.mongodb_fixtures import members
from support.mongodb_server import MongoPoolhouse, directory
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

THREADS = 8


@pytest.fixture
def two(workspace, members):
    made = [MongoPoolhouse(directory(workspace, "mongo-several"), members).start(max_size=4) for _ in range(2)]
    yield made
    for poolhouse in made:
        poolhouse.stop()


class Balancer:
    """Gives each connection to the next of several ports."""

    def __init__(self, ports):
        self.turn = itertools.cycle(ports)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listening.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", next(self.turn)))
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self.pass_on, args=(one, other), daemon=True).start()

    @staticmethod
    def pass_on(one, other):
        try:
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            one.close()
            other.close()

    def stop(self):
        self.listening.close()


class Work:
    """Threads that read with cursors of many batches, and write with and without transactions, until they are told to
    stop."""

    def __init__(self, client, **session):
        self.client, self.session = client, session
        self.written, self.read, self.wrong = [], 0, []
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(THREADS)]

    def __enter__(self):
        self.client.app.things.insert_many([{"_id": number} for number in range(100)])
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()

    def run(self, number):
        things = self.client.app.get_collection("things", read_preference=SecondaryPreferred())
        for turn in itertools.count():
            if self.ends.is_set():
                return
            try:
                found = []
                for one in things.find(batch_size=9):
                    found.append(one["_id"])
                    time.sleep(0.0005)
                if found != list(range(100)):
                    self.wrong.append(f"{len(found)} documents")
                self.read += 1
                with self.client.start_session() as session, session.start_transaction():
                    for place in "ab":
                        self.client.app.kept.insert_one({"_id": f"{number} {turn} {place}"}, session=session)
                self.written.append(f"{number} {turn} b")
                self.client.app.kept.insert_one({"_id": f"{number} {turn}"})
                self.written.append(f"{number} {turn}")
            except pymongo.errors.PyMongoError as error:
                self.wrong.append(repr(error)[:300])

    def check(self, members):
        assert not self.wrong, (len(self.wrong), self.wrong[:3])
        assert self.read > THREADS and set(self.written) <= set(members.documents["kept"])


def test_two_in_one_uri(two, members):
    hosts = ",".join(f"127.0.0.1:{poolhouse.port}" for poolhouse in two)
    with pymongo.MongoClient(f"mongodb://{hosts}/", serverSelectionTimeoutMS=5000) as client, Work(client) as work:
        eventually("both are asked", lambda: all(poolhouse.metric("poolhouse_transactions_total") > 50 for poolhouse in two))
    work.check(members)


def test_two_behind_a_balancer_of_connections(two, members):
    balancer = Balancer([poolhouse.port for poolhouse in two])
    try:
        url = f"mongodb://127.0.0.1:{balancer.port}/?loadBalanced=true"
        with pymongo.MongoClient(url, serverSelectionTimeoutMS=5000) as client, Work(client) as work:
            eventually("both are asked", lambda: all(poolhouse.metric("poolhouse_transactions_total") > 50 for poolhouse in two))
        work.check(members)
    finally:
        balancer.stop()


@pytest.mark.timing
def test_one_takes_over_while_cursors_are_open(workspace, members):
    text = f'[serve]\nstay_time = "2s"\n[[listener]]\nlisten = "127.0.0.1:PORT"\nprotocol = "mongodb"\n[[database]]\nurl = "{members.url()}"\n'
    old = MongoPoolhouse(directory(workspace, "mongo-old"), members).start_with(text)
    new = None
    # As with MongoDB, no two members have a cursor with the same number.
    for member in members.members:
        member.next_cursor = member.number * 1_000_000
    try:
        with old.connect() as client, Work(client) as work:
            time.sleep(1)
            with (old.directory / "new.log").open("ab") as log:
                new = subprocess.Popen([pooler.BINARY, "serve", "--config", str(old.path), "--take-over"], stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, cwd=old.directory)
            eventually("the old one has ended", lambda: old.process.poll() is not None)
            reads = work.read
            eventually("the new one is asked", lambda: work.read > reads + THREADS)
        # Clients that are still connected to the old process when its time is over lose their connection. No
        # acknowledged write is lost.
        assert set(work.written) <= set(members.documents["kept"])
        assert all("connection" in wrong or "cursor" in wrong or "NoSuchTransaction" in wrong for wrong in work.wrong), work.wrong[:5]
        assert len(work.wrong) <= 3 * THREADS, work.wrong[:5]
    finally:
        if new:
            new.terminate()
            new.wait()
        old.stop()
