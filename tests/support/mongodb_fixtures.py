"""Fixtures of the MongoDB tests. A test file imports those that it uses, so that their short names mean nothing
elsewhere."""

import pytest

from support.mock_mongodb import ReplicaSet
from support.mongodb_server import FerretServer, JavaServer, MongoPoolhouse, directory


@pytest.fixture(scope="module", params=[JavaServer, FerretServer], ids=["mongo-java-server", "FerretDB"])
def server(workspace, request):
    """A server for all tests of a file."""
    request.param.prepare()
    made = request.param(directory(workspace, "mongodb")).start()
    yield made
    made.stop()


@pytest.fixture
def pool(server, workspace):
    """Starts a Poolhouse in front of the server."""
    with server.connect() as client:
        client.drop_database("app")
    started = []

    def start(behind=server, file=None, **settings):
        started.append(MongoPoolhouse(directory(workspace, "mongo-pool"), behind))
        return started[-1].start_with(file) if file else started[-1].start(**settings)

    yield start
    for made in started:
        made.stop()


@pytest.fixture
def members():
    """A scripted replica set."""
    made = ReplicaSet()
    yield made
    made.stop()
