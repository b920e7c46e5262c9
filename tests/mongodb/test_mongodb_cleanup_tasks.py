"""Cleanup tasks at members, such as closing a cursor, for which no client waits: what happens when a server is lost,
when a member is removed, or while the commit of a transaction is still running. The members are scripted
(mock_mongodb.py).
"""

import contextlib
import signal
import time

import bson
import pytest
from bson.int64 import Int64

from support.mock_mongodb import Hung
from support.mongodb_fixtures import members
from support.mongodb_server import MongoPoolhouse, directory
from support.mongodb_wire import Raw, message
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

SESSION = {"id": bson.Binary(b"0123456789abcdef", 4)}
TRANSACTION = {"lsid": SESSION, "txnNumber": Int64(1), "autocommit": False}
BEGINS = {"insert": "things", "documents": [{"_id": "t"}], **TRANSACTION, "startTransaction": True, "$db": "app"}
COMMIT = {"commitTransaction": 1, **TRANSACTION, "$db": "admin"}


@pytest.fixture
def start(workspace, members):
    started = []

    def begin(file=None, **settings):
        started.append(MongoPoolhouse(directory(workspace, "mongo-chores"), members))
        return started[-1].start_with(file) if file else started[-1].start(**settings)

    yield begin
    for made in started:
        made.stop()


@contextlib.contextmanager
def balanced(poolhouse):
    """A connection in the driver's load-balanced mode."""
    with Raw(poolhouse.port, hello=False) as raw:
        assert raw.ask({"hello": 1, "loadBalanced": True, "$db": "admin"})["serviceId"]
        yield raw


def leave_cursors(poolhouse, count):
    """A client opens cursors and leaves without closing them."""
    with balanced(poolhouse) as raw:
        for _ in range(count):
            assert raw.ask({"find": "things", "batchSize": 5, "$db": "app"})["cursor"]["id"]


def fill(client, members):
    client.app.things.insert_many([{"_id": number} for number in range(50)])
    return members.members[0]


@pytest.mark.timing
def test_cursors_are_closed_though_the_server_is_lost_that_was_to_close_them(start, members):
    poolhouse = start()
    with poolhouse.connect() as client:
        primary = fill(client, members)
        primary.fail_next("killCursors", None)
        leave_cursors(poolhouse, 1)
        eventually("its cursor is closed", lambda: not primary.cursors, seconds=5)
        assert members.asked("killCursors") == [0, 0]


@pytest.mark.timing
def test_what_has_ended_two_servers_is_not_asked_of_a_third(start, members):
    poolhouse = start()
    with poolhouse.connect() as client:
        primary = fill(client, members)
        for _ in range(5):
            primary.fail_next("killCursors", None)
        leave_cursors(poolhouse, 1)
        eventually("two are lost", lambda: len(members.asked("killCursors")) == 2, seconds=5)
        for _ in range(10):
            client.app.command("ping")
            time.sleep(0.05)
        assert len(members.asked("killCursors")) == 2
        assert poolhouse.metric("poolhouse_servers", state="in_use") <= len(members.members), "only those that ask members what they are"


@pytest.mark.timing
def test_all_cursors_of_a_collection_that_a_connection_has_left_are_closed_at_once(start, members):
    poolhouse = start()
    with poolhouse.connect() as client:
        primary = fill(client, members)
        leave_cursors(poolhouse, 40)
        eventually("they are closed", lambda: not primary.cursors, seconds=5)
        assert members.asked("killCursors") == [0]


@pytest.mark.timing
def test_an_abort_is_not_lost_with_its_server(start, members):
    poolhouse = start()
    with balanced(poolhouse) as raw:
        assert raw.ask(BEGINS)["ok"] == 1 and members.transactions
        members.members[0].fail_next("abortTransaction", None)
    eventually("its transaction is aborted", lambda: not members.transactions, seconds=5)
    assert members.asked("abortTransaction") == [0, 0]


def test_a_commit_under_way_is_not_aborted_when_its_client_goes(start, members):
    poolhouse = start(max_size=4)
    with poolhouse.connect() as client:
        client.app.command("ping")
        with Hung(members.members[0], "commitTransaction"):
            with balanced(poolhouse) as raw:
                assert raw.ask(BEGINS)["ok"] == 1
                raw.send(message(COMMIT))
                eventually("it is with the primary", lambda: poolhouse.metric("poolhouse_servers", state="in_use") >= len(members.members) + 1)
            eventually("it has gone", lambda: poolhouse.metric("poolhouse_servers", state="in_use") <= len(members.members))
            # Requests that end at other servers of the pool.
            for _ in range(20):
                client.app.command("ping")
        with balanced(poolhouse) as raw:
            # A driver that has lost the answer does the same.
            assert raw.ask(COMMIT) == {"ok": 1.0}
    assert "t" in members.documents["things"] and not members.asked("abortTransaction")


def test_a_commit_that_took_too_long_is_not_aborted_when_its_client_goes(start, members):
    poolhouse = start(max_size=4, query_time="500ms")
    with poolhouse.connect() as client, Hung(members.members[0], "commitTransaction"):
        with balanced(poolhouse) as raw:
            assert raw.ask(BEGINS)["ok"] == 1
            told = raw.ask(COMMIT)
            assert told["code"] == 50 and "query_time" in told["errmsg"]
        for _ in range(20):
            client.app.command("ping")
            time.sleep(0.02)
        assert not members.asked("abortTransaction")
    eventually("it is carried out", lambda: "t" in members.documents.get("things", {}))


@pytest.mark.timing
def test_a_transaction_without_a_commit_is_aborted_when_its_client_goes(start, members):
    poolhouse = start(max_size=4)
    with Hung(members.members[0], "find"):
        with balanced(poolhouse) as raw:
            assert raw.ask(BEGINS)["ok"] == 1
            raw.send(message({"find": "things", **TRANSACTION, "$db": "app"}))
            time.sleep(0.3)
        eventually("its transaction is aborted", lambda: not members.transactions, seconds=5)


@pytest.mark.timing
@pytest.mark.parametrize("waits", [False, True], ids=["goes", "waits-too-long"])
def test_a_transaction_whose_first_command_has_no_answer_is_aborted_when_its_client_goes(start, members, waits):
    poolhouse = start(max_size=4, query_time="500ms")
    with Hung(members.members[0], "insert"):
        with balanced(poolhouse) as raw:
            raw.send(message(BEGINS))
            if waits:
                assert raw.read()[1]["code"] == 50
            else:
                eventually("it is with the primary", lambda: poolhouse.metric("poolhouse_servers", state="in_use") >= len(members.members) + 1)
        eventually("an abort is asked for", lambda: members.asked("abortTransaction") == [0], seconds=5)


@pytest.mark.timing
@pytest.mark.parametrize("end", ["goes", "aborts"])
def test_a_transaction_whose_first_command_cost_its_server_is_aborted_when_its_client_goes(start, members, end):
    poolhouse = start(max_size=4)
    primary = members.members[0]
    answer = primary.answer

    def carried_out_and_gone(command):
        answered = answer(command)
        if command.get("startTransaction"):
            primary.answer = answer
            return None
        return answered

    with poolhouse.connect() as client:
        client.app.command("ping")
        primary.answer = carried_out_and_gone
        with balanced(poolhouse) as raw:
            assert raw.ask(BEGINS)["code"] == 6
            assert members.transactions
            if end == "aborts":
                assert raw.ask({"abortTransaction": 1, **TRANSACTION, "$db": "admin"})["ok"] == 1
        eventually("it is aborted", lambda: not members.transactions, seconds=5)


@pytest.mark.timing
@pytest.mark.parametrize("ends, aborted", [("commitTransaction", False), ("abortTransaction", True)])
def test_a_commit_that_waits_for_a_server_is_not_aborted_when_its_client_goes(start, members, ends, aborted):
    poolhouse = start(max_size=1, max_wait_time="20s")
    with poolhouse.connect() as client:
        client.app.command("ping")
        with Raw(poolhouse.port) as other:
            with balanced(poolhouse) as raw:
                assert raw.ask(BEGINS)["ok"] == 1
                with Hung(members.members[0], "find"):
                    other.send(message({"find": "things", "$db": "app"}))
                    time.sleep(0.3)
                    raw.send(message({ends: 1, **TRANSACTION, "$db": "admin"}))
                    eventually("it waits", lambda: poolhouse.metric("poolhouse_clients", state="waiting") == 1)
                    raw.socket.close()
                    eventually("it is gone", lambda: poolhouse.metric("poolhouse_clients", state="waiting") == 0)
            other.read()
        if aborted:
            eventually("it is aborted", lambda: not members.transactions, seconds=5)
            return
        for _ in range(5):
            client.app.command("ping")
            time.sleep(0.05)
        assert not members.asked("abortTransaction")
        with balanced(poolhouse) as raw:
            assert raw.ask(COMMIT)["ok"] == 1


@pytest.mark.timing
def test_a_member_that_was_taken_out_and_comes_back_hears_only_of_what_it_may_know(start, members):
    ports = [member.port for member in members.members]

    def text(order):
        hosts = ",".join(f"127.0.0.1:{ports[place]}" for place in order)
        return (f'[[listener]]\nlisten = "127.0.0.1:PORT"\nprotocol = "mongodb"\n'
                f'[[database]]\nmax_idle_time = "500ms"\nurl = "mongodb://{hosts}/?replicaSet=rs0"\n')

    poolhouse = start(text([0, 1, 2]))
    reloads = []

    def reload(order):
        reloads.append(order)
        poolhouse.path.write_text(poolhouse.path.read_text().split("[[listener]]")[0] + text(order).replace("PORT", str(poolhouse.port)))
        poolhouse.signal(signal.SIGHUP)
        eventually("it is reloaded", lambda: poolhouse.log().count("configuration read again") == len(reloads))

    def end_a_session():
        members.members[0].record.clear()
        with Raw(poolhouse.port) as raw:
            raw.ask({"find": "things", "$readPreference": {"mode": "primary"}, "$db": "app"})
            assert raw.ask({"endSessions": [SESSION], "$db": "admin"}) == {"ok": 1.0}
            eventually("the primary has heard", lambda: members.primary in members.asked("endSessions"), seconds=5)
        time.sleep(0.3)
        return members.asked("endSessions")

    assert end_a_session() == [0]
    members.elect(1)
    for member in members.members:
        member.record.clear()
    reload([1, 2])
    members.members[0].record.clear()
    # Its servers have been idle for long enough, and all pools have been searched.
    eventually("it has no connection", lambda: not members.members[0].open, seconds=10)
    time.sleep(1.5)
    reload([0, 1, 2])
    # The member is used as soon as it has reported what it is, and gets its tasks again then.
    eventually("it is watched again", lambda: members.asked("isMaster").count(0) >= 2, seconds=10)
    assert 0 not in end_a_session()


LISTED = """[[listener]]
listen = "127.0.0.1:PORT"
protocol = "mongodb"
[[database]]
url = "mongodb://HOSTS/?replicaSet=rs0OPTIONS"
"""


@pytest.mark.parametrize("order, options, tells", [([0, 1, 2], "", False), ([0, 1], "", True), ([0], "&directConnection=true", False)],
                         ids=["all", "two-of-three", "directly"])
def test_a_member_that_the_url_does_not_list_is_named_once(start, members, order, options, tells):
    hosts = ",".join(f"127.0.0.1:{members.members[place].port}" for place in order)
    poolhouse = start(LISTED.replace("HOSTS", hosts).replace("OPTIONS", options))
    with poolhouse.connect() as client:
        client.app.things.insert_one({"_id": 1})
        # Each is tried several times.
        for member in members.members:
            member.record.clear()
        eventually("they are asked", lambda: all(members.asked("isMaster").count(number) >= 3 for number in order))
    name = f"127.0.0.1:{members.members[2].port}"
    lines = [line for line in poolhouse.log().splitlines() if "does not list" in line]
    assert len(lines) == tells and all(name in line for line in lines), lines
