"""How clients log in to Poolhouse for MongoDB, and how Poolhouse logs in to MongoDB."""

import concurrent.futures
import contextlib
import socket
import struct

import bson
import pymongo
import pytest

from support.mongodb_fixtures import pool, server
from support.mongodb_server import GuardedFerretServer, directory
from support.silent_clients import silent_clients
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

FILE = '[[listener]]\nlisten = "127.0.0.1:PORT"\n[[database]]\nurl = "{url}"\n[[user]]\nname = "app, the =1st"\npassword = "pä/ss"\n'


@pytest.fixture
def guarded(pool, server):
    """A Poolhouse with one user."""
    return pool(file=FILE.replace("{url}", server.url()))


@pytest.fixture(scope="module")
def behind(workspace):
    """A MongoDB with one user."""
    GuardedFerretServer.prepare()
    made = GuardedFerretServer(directory(workspace, "guarded")).start()
    yield made
    made.stop()


def through(pool, behind, url):
    """A Poolhouse in front of that, with the same user."""
    return pool(behind, FILE.replace("{url}", url).replace("app, the =1st", behind.user))


@pytest.mark.parametrize("names_user", [True, False])
def test_poolhouse_logs_in_as_the_urls_user_or_else_as_the_clients_own(pool, behind, names_user):
    url = behind.url() if names_user else f"mongodb://127.0.0.1:{behind.port}/?authSource=app"
    with through(pool, behind, url).connect(username=behind.user, password=behind.password) as client, \
            concurrent.futures.ThreadPoolExecutor(20) as threads:
        list(threads.map(lambda n: client.app.things.insert_one({"_id": n}), range(100)))
        assert client.app.things.count_documents({}) == 100
        client.app.things.drop()


def test_poolhouse_logs_in_with_the_mechanism_of_old_where_the_url_says_so(pool, behind):
    url = f"{behind.url()}?authMechanism=SCRAM-SHA-1"
    with through(pool, behind, url).connect(username=behind.user, password=behind.password) as client:
        assert client.app.things.count_documents({}) == 0
    with through(pool, behind, f"{behind.url('wrong')}?authMechanism=SCRAM-SHA-1").connect(username=behind.user, password=behind.password) as client, \
            pytest.raises(pymongo.errors.OperationFailure, match="refuses the login of user .*[Aa]uthentication") as told:
        client.app.command("ping")
    assert told.value.code == 18


def test_a_password_that_mongodb_refuses_is_told_as_such(pool, behind):
    with through(pool, behind, behind.url("wrong")).connect(username=behind.user, password=behind.password) as client, \
            pytest.raises(pymongo.errors.OperationFailure, match="refuses the login of user .*[Aa]uthentication") as told:
        client.app.command("ping")
    assert told.value.code == 18


def test_the_right_password_lets_in(guarded):
    with guarded.connect(username="app, the =1st", password="pä/ss") as client:
        # MongoDB does not know this user here.
        with pytest.raises(pymongo.errors.OperationFailure, match="refuses the login of user `app, the =1st`|no connection to MongoDB"):
            client.app.things.insert_one({"_id": 1})


@pytest.mark.parametrize("logs_in", [True, False])
def test_a_client_that_comes_to_a_drained_database_hears_why(pool, server, logs_in):
    url = f"mongodb://127.0.0.1:{server.port}"
    file = FILE.replace("{url}", url) if logs_in else FILE.replace("{url}", url).split("[[user]]")[0]
    poolhouse = pool(file=file)
    login = {"username": "app, the =1st", "password": "pä/ss"} if logs_in else {}
    with poolhouse.connect(**login) as client, pytest.raises(pymongo.errors.OperationFailure) if logs_in else contextlib.nullcontext():
        client.app.things.insert_one({"_id": 1})
    assert poolhouse.post(f"/api/drain?database=127.0.0.1:{server.port}")[0] == 200
    for _ in range(3):
        with poolhouse.connect(**login) as client, pytest.raises(pymongo.errors.OperationFailure, match="an administrator drains this database"):
            client.app.things.find_one()


def test_silent_clients_in_all_places_keep_no_client_from_logging_in(pool, server):
    listener = 'listen = "127.0.0.1:PORT"\nsoft_limit = 10\nhard_limit = 10\nlogin_time = "60s"\nnewcomer_wait_time = "off"\n'
    poolhouse = pool(file=FILE.replace('listen = "127.0.0.1:PORT"\n', listener).replace("{url}", server.url()))
    with silent_clients(poolhouse, 20):
        eventually("all places are taken", lambda: poolhouse.metric("poolhouse_clients", state="login") >= 20)
        # The user is looked up, and MongoDB does not know it here.
        with poolhouse.connect(username="app, the =1st", password="pä/ss") as client, \
                pytest.raises(pymongo.errors.OperationFailure, match="refuses the login of user `app, the =1st`|no connection to MongoDB"):
            client.app.things.insert_one({"_id": 1})


@pytest.mark.parametrize("user, password", [("app, the =1st", "wrong"), ("nobody", "pä/ss"), ("app", "")])
def test_a_wrong_password_and_an_unknown_user_look_alike(guarded, user, password):
    with guarded.connect(username=user, password=password or "x") as client, pytest.raises(pymongo.errors.OperationFailure) as told:
        client.app.command("ping")
    assert told.value.code == 18 and told.value.details["errmsg"] == "Authentication failed."


def test_without_a_login_nothing_but_a_greeting_is_answered(guarded):
    with guarded.connect() as client:
        assert client.admin.command("hello")["ok"] == 1
        for command in ("ping", "listDatabases", {"insert": "things", "documents": [{"a": 1}]}, {"getMore": bson.Int64(1), "collection": "c"}):
            with pytest.raises(pymongo.errors.OperationFailure, match="requires authentication") as told:
                client.app.command(command)
            assert told.value.code == 13
        assert client.app.command("hello", saslSupportedMechs="admin.app")["saslSupportedMechs"] == ["SCRAM-SHA-256"]


def test_a_client_that_is_not_let_in_has_nothing_held(guarded):
    with socket.create_connection(("127.0.0.1", guarded.port), 5) as connection:
        # A body behind ten megabytes of documents.
        connection.sendall(struct.pack("<iiiiIBi", 20 + 10_000_005, 1, 0, 2013, 0, 1, 10_000_000) + b"d\0" + b"\0" * 200_000)
        answer = connection.recv(65536)
        assert bson.decode(answer[21:])["code"] == 365
    with guarded.connect() as client:
        assert client.admin.command("hello")["ok"] == 1


def test_a_cursor_of_another_user_is_not_there(pool, behind):
    text = FILE.replace("{url}", behind.url()).replace("app, the =1st", behind.user)
    poolhouse = pool(behind, text + '[[user]]\nname = "other"\npassword = "another"\n')
    with poolhouse.connect(username=behind.user, password=behind.password) as client, poolhouse.connect(username="other", password="another") as other:
        client.app.foreign.drop()
        client.app.foreign.insert_many([{"_id": n} for n in range(20)])
        cursor = client.app.command({"find": "foreign", "batchSize": 5})["cursor"]["id"]
        with pytest.raises(pymongo.errors.CursorNotFound):
            other.app.command({"getMore": cursor, "collection": "foreign"})
        other.app.command({"killCursors": "foreign", "cursors": [cursor]})
        assert len(client.app.command({"getMore": cursor, "collection": "foreign", "batchSize": 50})["cursor"]["nextBatch"]) == 15


def test_other_ways_to_log_in_are_refused_with_what_to_do(guarded):
    with guarded.connect(username="app", password="x", authMechanism="SCRAM-SHA-1") as client, \
            pytest.raises(pymongo.errors.OperationFailure, match="log in with SCRAM-SHA-256"):
        client.app.command("ping")


def test_a_client_that_only_greets_is_not_timed_out(pool, server):
    text = '[[listener]]\nlisten = "127.0.0.1:PORT"\nlogin_time = "500ms"\nclient_idle_time = "500ms"\n' + FILE.split("\n", 2)[2].replace("{url}", server.url())
    poolhouse = pool(file=text)
    silent = socket.create_connection(("127.0.0.1", poolhouse.port), 5)
    with poolhouse.connect(username="nobody", password="x") as client:
        # Its monitor gets an answer to hello; its other connections cannot log in.
        with pytest.raises(pymongo.errors.PyMongoError):
            client.app.command("ping")
        assert silent.recv(100) == b"", "who says nothing is sent away"
        clients = poolhouse.metric("poolhouse_clients", state="subscribed")
        assert clients >= 1
    silent.close()


def test_a_password_is_never_shown(guarded):
    with guarded.connect(username="app, the =1st", password="wrong") as client, pytest.raises(pymongo.errors.OperationFailure):
        client.app.command("ping")
    assert "pä/ss" not in guarded.log()


def test_a_greeting_that_waits_for_a_host_in_vain_is_told_so_within_login_time(pool, server):
    class Absent:
        @staticmethod
        def url():
            return "mongodb://127.0.0.1:1"

    poolhouse = pool(Absent(), login_time="2s", unavailable_wait_time="60s")
    with pytest.raises(pymongo.errors.PyMongoError, match="no host of MongoDB has answered yet"):
        pymongo.MongoClient("127.0.0.1", poolhouse.port, serverSelectionTimeoutMS=8_000, directConnection=True).app.command("ping")
