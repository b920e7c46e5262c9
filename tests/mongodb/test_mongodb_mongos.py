"""Two mongos behind Poolhouse, of which one is gone when a transaction is to be committed. The other one finds the
outcome with the recovery token that the driver got from the first. Both are simulated in front of a server that keeps
the documents (support/mongodb_servers/stand_in).
"""

import time

import pymongo
import pytest

from support.mongodb_server import JavaServer, MongoPoolhouse, StandIn, directory

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def server(workspace):
    JavaServer.prepare()
    made = StandIn(directory(workspace, "two-mongos"), members=2, sharded=True).start()
    yield made
    made.stop()


@pytest.fixture(params=["", "loadBalanced=true"], ids=["ordinary", "load-balanced"])
def client(server, workspace, request):
    poolhouse = MongoPoolhouse(directory(workspace, "mongo-pool"), server).start(unavailable_wait_time="4s")
    with poolhouse.connect(request.param) as made:
        yield made
    poolhouse.stop()


def end_behind(server, command):
    """The mongos of a transaction stops as soon as it has executed this command."""
    open_at = [told["transactions"]["currentOpen"] for told in server.ask_each("serverStatus")]
    assert sorted(open_at) == [0, 1]
    port = server.ports[open_at.index(1)]
    server.ports.remove(port)
    with pymongo.MongoClient(f"mongodb://127.0.0.1:{port}/?directConnection=true") as one:
        one.admin.command("shutdown", behind=command)


def test_a_commit_whose_mongos_is_gone_is_found_out_by_another(client, server):
    calls = []

    def write(session):
        calls.append(1)
        client.app.things.insert_one({"_id": len(calls)}, session=session)
        if len(calls) == 1:
            end_behind(server, "commitTransaction")

    with client.start_session() as session:
        session.with_transaction(write)
    assert list(client.app.things.find()) == [{"_id": 1}] and len(calls) == 1


@pytest.mark.timing
def test_a_transaction_whose_mongos_is_gone_before_the_commit_is_done_anew(client, server):
    calls = []

    def write(session):
        calls.append(1)
        client.app.things.insert_one({"_id": len(calls)}, session=session)
        if len(calls) == 1:
            # Poolhouse checks that every second.
            end_behind(server, "isMaster")
            time.sleep(1.5)

    with client.start_session() as session:
        session.with_transaction(write)
    assert list(client.app.things.find()) == [{"_id": 2}] and len(calls) == 2
