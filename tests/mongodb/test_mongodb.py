"""MongoDB through Poolhouse with pymongo: what drivers are told, and that requests, cursors and writes of many clients
share few servers.
"""

import concurrent.futures
import json
import socket
import struct
import time

import bson
import pymongo
import pytest

from support.mongodb_fixtures import pool, server
from support.mongodb_server import JavaServer, directory
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def servers(poolhouse):
    """Connections of the clients' pool."""
    pools = [pool for pool in json.loads(poolhouse.get("/api/pools")[1])["pools"] if not pool["database"].endswith("/monitor")]
    return sum(pool["servers"]["total"] for pool in pools)


@pytest.mark.quick
def test_documents_are_written_and_read(pool):
    client = pool().connect()
    things = client.app.things
    assert len(things.insert_many([{"n": n, "text": "ä" * n} for n in range(100)]).inserted_ids) == 100
    assert things.find_one({"n": 7})["text"] == "ä" * 7
    assert things.update_many({"n": {"$lt": 10}}, {"$set": {"small": True}}).modified_count == 10
    assert things.count_documents({"small": True}) == 10
    assert things.delete_one({"n": 99}).deleted_count == 1
    assert sorted(document["n"] for document in things.find({"n": {"$gte": 90}})) == list(range(90, 99))
    with pytest.raises(pymongo.errors.DuplicateKeyError):
        things.insert_one(things.find_one({"n": 1}))
    with pytest.raises(pymongo.errors.OperationFailure, match="noSuchCommand"):
        client.app.command("noSuchCommand")


@pytest.mark.quick
@pytest.mark.parametrize("options", ["", "directConnection=true", "maxPoolSize=1"])
def test_cursors_of_many_batches_come_to_their_end(pool, options):
    poolhouse = pool(max_size=3)
    with poolhouse.connect(options) as client:
        things = client.app.things
        things.insert_many([{"n": n} for n in range(500)])

        def read(_):
            return sum(document["n"] for document in things.find(batch_size=17))

        with concurrent.futures.ThreadPoolExecutor(20) as threads:
            assert set(threads.map(read, range(60))) == {sum(range(500))}
    assert servers(poolhouse) <= 3


def test_sixty_threads_lose_nothing_through_ten_servers(pool, server):
    poolhouse = pool(max_size=10, max_wait_time="20s")
    client = poolhouse.connect(maxPoolSize=60)

    def write(thread):
        for n in range(6):
            client.app.things.insert_one({"_id": thread * 1000 + n})
            assert client.app.things.find_one({"_id": thread * 1000 + n}) is not None

    with concurrent.futures.ThreadPoolExecutor(60) as threads:
        list(threads.map(write, range(60)))
    with server.connect() as direct:
        assert direct.app.things.count_documents({}) == 60 * 6
    assert servers(poolhouse) <= 10


def test_what_drivers_are_told_is_poolhouse_and_no_host_behind_it(pool, server):
    with pool().connect() as client, server.connect() as direct:
        own = direct.admin.command("isMaster")
        for name in ("hello", "isMaster", "ismaster"):
            told = client.admin.command(name)
            assert told.get("isWritablePrimary", told.get("ismaster")) is True
            assert told["maxWireVersion"] == own["maxWireVersion"]
            assert not {"hosts", "me", "setName", "primary", "topologyVersion", "msg", "compression"} & set(told)
            assert told.get("logicalSessionTimeoutMinutes") == own.get("logicalSessionTimeoutMinutes")


def test_in_front_of_a_balancer_each_process_has_its_own_number(pool, server):
    def service(poolhouse):
        with poolhouse.connect("directConnection=true") as client:
            return client.admin.command({"hello": 1, "loadBalanced": True}).get("serviceId")

    first, second = pool(), pool()
    if not server.sessions:
        with pytest.raises(pymongo.errors.OperationFailure, match="knows no sessions"):
            service(first)
        return
    assert service(first) == service(first) != service(second)
    with first.connect("loadBalanced=true") as client:
        client.app.things.insert_many([{"n": n} for n in range(50)])
        assert len(list(client.app.things.find(batch_size=7))) == 50


def unless_it_ignores_what_wants_no_answer(server):
    if isinstance(server, JavaServer):
        pytest.skip("it does not carry out what wants no answer, asked directly either")


def test_what_wants_no_answer_is_done_before_what_follows(pool, server):
    unless_it_ignores_what_wants_no_answer(server)
    poolhouse = pool(max_size=5)
    things = poolhouse.connect().app.things
    silent = things.with_options(write_concern=pymongo.WriteConcern(w=0))
    for n in range(200):
        silent.insert_one({"_id": n})
        assert things.find_one({"_id": n}) is not None


def test_what_wants_no_answer_is_done_though_the_client_leaves_when_it_has_a_server(pool, server):
    unless_it_ignores_what_wants_no_answer(server)
    poolhouse = pool(min_size=2)
    with poolhouse.connect() as client:
        client.app.command("ping")
    eventually("two are warm", lambda: servers(poolhouse) >= 2)
    for n in range(20):
        with poolhouse.connect() as client:
            client.app.things.with_options(write_concern=pymongo.WriteConcern(w=0)).insert_one({"_id": n})
            # A client that leaves while it waits for a server withdraws its request.
            time.sleep(0.05)
    with server.connect() as direct:
        eventually("all are there", lambda: direct.app.things.count_documents({}) == 20)


def test_a_client_that_leaves_behind_what_wants_no_answer_costs_no_server(pool, server):
    unless_it_ignores_what_wants_no_answer(server)
    poolhouse = pool(max_size=5)
    with poolhouse.connect() as client:
        client.app.things.insert_many([{"_id": n} for n in range(60)])
        cursor = client.app.things.find(batch_size=5)
        next(cursor)
        body = bson.encode({"endSessions": [], "$db": "admin"})
        for n in range(5):
            with socket.create_connection(("127.0.0.1", poolhouse.port)) as leaving:
                leaving.sendall(struct.pack("<iiiiIB", 21 + len(body), n, 0, 2013, 2, 0) + body)
                time.sleep(0.05)
        assert len(list(cursor)) == 59
    assert poolhouse.metric("poolhouse_servers_closed_total", reason="error") == 0


def test_large_documents_pass_in_sections_and_in_bodies(pool):
    client = pool().connect()
    things = client.app.things
    things.insert_many([{"_id": n, "text": "x" * 4_000_000} for n in range(6)])
    assert [len(document["text"]) for document in things.find()] == [4_000_000] * 6
    # `$db` and all other fields stand behind the documents here.
    client.app.command({"insert": "things", "documents": [{"_id": 9, "text": "y" * 9_000_000}]})
    assert len(things.find_one({"_id": 9})["text"]) == 9_000_000


@pytest.mark.timing
def test_a_server_that_is_busy_makes_others_wait_no_longer_than_is_allowed(pool, server):
    poolhouse = pool(max_size=1, max_wait_time="300ms")
    holder = socket.create_connection(("127.0.0.1", poolhouse.port))
    body = bson.encode({"ping": 1, "$db": "app"})
    message = struct.pack("<iiiiIB", 21 + len(body), 1, 0, 2013, 0, 0) + body
    # The body is longer than what is waited for: the server belongs to this client as soon as the body begins.
    document = bson.encode({"insert": "things", "$db": "app"})
    section = struct.pack("<Bi", 1, 4 + len(b"documents\0") + 500_000) + b"documents\0" + b"\0" * 200_000
    begun = struct.pack("<iiiiIB", 20 + 1 + len(document) + 1 + 4 + len(b"documents\0") + 500_000, 1, 0, 2013, 0, 0) + document + section
    holder.sendall(begun)
    eventually("it has the only server", lambda: poolhouse.metric("poolhouse_servers", state="in_use") >= 2)
    began = time.monotonic()
    with poolhouse.connect(retryReads=False) as client, pytest.raises(pymongo.errors.ExecutionTimeout, match="max_wait_time") as told:
        client.app.command("ping")
    assert 0.25 < time.monotonic() - began < 5 and told.value.details.get("errorLabels") is None
    holder.close()
    with poolhouse.connect() as client:
        assert client.app.command("ping")["ok"] == 1
    assert message


@pytest.mark.parametrize("sent", [
    b"\x00" * 16,
    struct.pack("<iiii", 50_000_000, 1, 0, 2013),
    struct.pack("<iiii", 20, 1, 0, 2010) + b"\0\0\0\0",
    struct.pack("<iiii", 26, 1, 0, 2012) + b"\0" * 10,
    struct.pack("<iiiiIBi", 25, 1, 0, 2013, 0, 0, 400),
    struct.pack("<iiiiIBi", 26, 1, 0, 2013, 4, 0, 5) + b"\0",
    struct.pack("<iiiiIBi", 26, 1, 0, 2013, 0, 0, 5) + b"\0",
    struct.pack("<iiiiIBi", 26, 1, 0, 2013, 0, 2, 5) + b"\0",
])
def test_what_is_malformed_gets_an_error_and_an_end(pool, sent):
    poolhouse = pool()
    with poolhouse.connect() as client:
        client.app.command("ping")
    with socket.create_connection(("127.0.0.1", poolhouse.port), 5) as connection:
        connection.sendall(sent)
        heard = b""
        while part := connection.recv(65536):
            heard += part
        answer = bson.decode(heard[21:])
        assert answer["ok"] == 0 and answer["code"] == 9 and answer["errmsg"].startswith("Poolhouse: ")
    with poolhouse.connect() as client:
        assert client.app.command("ping")["ok"] == 1


def test_a_server_that_dies_costs_an_error_and_no_more(workspace, pool):
    JavaServer.prepare()
    behind = JavaServer(directory(workspace, "mortal")).start()
    poolhouse = pool(behind, unavailable_wait_time="1s")
    client = poolhouse.connect(retryReads=False)
    client.app.things.insert_one({"_id": 1})
    behind.stop()
    with pytest.raises(pymongo.errors.OperationFailure, match="Poolhouse"):
        for _ in range(3):
            client.app.things.find_one()
    assert client.admin.command("hello")["maxWireVersion"] > 0
    behind.start()
    eventually("it serves again", lambda: serves(client))
    behind.stop()


def serves(client):
    try:
        return client.app.command("ping")["ok"] == 1
    except pymongo.errors.PyMongoError:
        return False
