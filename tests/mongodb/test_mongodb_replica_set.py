"""A replica set behind Poolhouse with pymongo in front: which member gets a request, and what happens to it when the
primary changes. The members are scripted (mock_mongodb.py).
"""

import concurrent.futures
import threading
import time

import bson
import pymongo
import pytest
from pymongo.read_preferences import Nearest, PrimaryPreferred, Secondary, SecondaryPreferred

from support.mock_mongodb import NOT_PRIMARY
from support.mongodb_fixtures import members
from support.mongodb_server import MongoPoolhouse, directory
from support.mongodb_wire import Raw
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def poolhouse(workspace, members):
    made = MongoPoolhouse(directory(workspace, "mongo-set"), members).start(unavailable_wait_time="5s")
    yield made
    made.stop()


@pytest.fixture
def client(poolhouse):
    with poolhouse.connect() as made:
        made.admin.command("hello")
        yield made


def test_drivers_see_one_mongos(client, members):
    told = client.admin.command("hello")
    assert told["msg"] == "isdbgrid" and not {"setName", "hosts", "me", "primary", "electionId", "setVersion"} & set(told)
    assert client.topology_description.topology_type_name == "Sharded"


def test_a_uri_with_a_replica_set_finds_none(poolhouse):
    with poolhouse.connect("replicaSet=rs0", serverSelectionTimeoutMS=1000) as client, \
            pytest.raises(pymongo.errors.ServerSelectionTimeoutError):
        client.app.command("ping")


@pytest.mark.quick
def test_writes_go_to_the_primary_and_follow_it(client, members):
    client.app.things.insert_one({"_id": 1})
    members.elect(2)
    client.app.things.insert_one({"_id": 2})
    members.elect(1)
    client.app.things.insert_one({"_id": 3})
    assert set(members.documents["things"]) == {1, 2, 3}
    assert members.asked("insert")[0] == 0 and members.asked("insert")[-1] == 1


@pytest.mark.parametrize("preference, allowed", [
    (PrimaryPreferred(), {0}), (Secondary(), {1, 2}), (SecondaryPreferred(), {1, 2}), (Nearest(), {0, 1, 2})])
def test_a_read_goes_where_its_preference_allows(client, members, preference, allowed):
    client.app.things.insert_one({"_id": 1})
    things = client.app.get_collection("things", read_preference=preference)
    for _ in range(12):
        assert things.find_one() == {"_id": 1}
    assert set(members.asked("find")) == allowed


def test_cursors_of_two_members_with_one_number_stay_apart(client, members):
    client.app.things.insert_many([{"_id": n} for n in range(60)])
    things = client.app.get_collection("things", read_preference=Nearest())

    def read(_):
        return [document["_id"] for document in things.find(batch_size=7)]

    # Every member counts its cursors from the same number.
    open_at_once = [things.find(batch_size=7) for _ in range(9)]
    for _ in range(8):
        assert all(next(cursor) for cursor in open_at_once) or True
    assert [len(list(cursor)) for cursor in open_at_once] == [52] * 9
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        assert all(found == list(range(60)) for found in threads.map(read, range(64)))
    assert set(members.asked("getMore")) == {0, 1, 2}


@pytest.mark.parametrize("length", [10, 20_000], ids=["whole", "in-parts"])
def test_a_request_with_a_checksum_is_answered_without_one(poolhouse, members, length):
    with Raw(poolhouse.port) as raw:
        raw.ask({"insert": "things", "documents": [{"_id": n, "text": "x" * length} for n in range(3)], "$db": "app"})
        for mode in ("primary", "secondary"):
            finds = {"find": "things", "batchSize": 1, "$readPreference": {"mode": mode}, "$db": "app"}
            cursor = raw.ask_with_checksum(finds)["cursor"]
        # Two members have given one number to a cursor, and the client knows the second under another number.
        member = members.members[cursor["by"]]
        assert cursor["id"] != member.next_cursor and member.next_cursor in member.cursors
        batch = raw.ask_with_checksum({"getMore": bson.Int64(cursor["id"]), "collection": "things", "batchSize": 1, "$db": "app"})["cursor"]
        assert (batch["id"], batch["by"], batch["nextBatch"][0]["_id"]) == (cursor["id"], cursor["by"], 1)


def test_a_cursor_that_another_poolhouse_has_opened_is_found(workspace, members, poolhouse):
    # Two Poolhouses in one URI, as behind a balancer: a driver asks either for the next batch. (Members' ids are random
    # and never used again.)
    for number, member in enumerate(members.members):
        member.next_cursor = 10_000 * (number + 1)
    second = MongoPoolhouse(directory(workspace, "mongo-set"), members).start()
    with poolhouse.connect() as client, second.connect() as other:
        client.app.things.insert_many([{"_id": n} for n in range(60)])
        for preference in (PrimaryPreferred(), Secondary(), Secondary(), Nearest()):
            answer = client.app.command({"find": "things", "batchSize": 7}, read_preference=preference)
            cursor, found = answer["cursor"]["id"], len(answer["cursor"]["firstBatch"])
            while cursor:
                for asked in (other, client):
                    if cursor:
                        batch = asked.app.command({"getMore": cursor, "collection": "things", "batchSize": 7})["cursor"]
                        cursor, found = batch["id"], found + len(batch["nextBatch"])
            assert found == 60
        with pytest.raises(pymongo.errors.CursorNotFound):
            other.app.command({"getMore": bson.Int64(7), "collection": "things"})
        assert other.app.command("ping")["ok"] == 1
    second.stop()


@pytest.mark.timing
def test_a_cursor_that_is_left_is_closed_at_its_member(client, members):
    client.app.things.insert_many([{"_id": n} for n in range(60)])
    for preference in (Secondary(), PrimaryPreferred(), Secondary(), Secondary()):
        cursor = client.app.get_collection("things", read_preference=preference).find(batch_size=7)
        next(cursor)
        cursor.close()
    eventually("all are closed", lambda: not any(member.cursors for member in members.members), seconds=5)


def test_a_transaction_stays_together_on_whatever_connections(client, members):
    with client.start_session() as session, session.start_transaction():
        for n in range(5):
            client.app.things.insert_one({"_id": n}, session=session)
        assert members.documents.get("things", {}) == {}
    assert set(members.documents["things"]) == set(range(5))
    with client.start_session() as session:
        session.start_transaction()
        client.app.things.insert_one({"_id": 9}, session=session)
        session.abort_transaction()
    assert 9 not in members.documents["things"] and not members.transactions


def test_a_transaction_whose_primary_is_gone_is_tried_again_as_a_whole(client, members):
    begun = []

    def work(session):
        begun.append(True)
        client.app.things.insert_one({"_id": 1}, session=session)
        if len(begun) == 1:
            members.elect(1)
        client.app.things.insert_one({"_id": 2}, session=session)

    with client.start_session() as session:
        session.with_transaction(work)
    assert len(begun) >= 2 and set(members.documents["things"]) == {1, 2}


def test_a_commit_that_was_not_answered_is_repeated_at_the_present_primary(client, members):
    with client.start_session() as session, session.start_transaction():
        client.app.things.insert_one({"_id": 1}, session=session)
        members.members[0].fail_next("commitTransaction", None)
    assert set(members.documents["things"]) == {1} and len(members.asked("commitTransaction")) == 2


def test_a_retryable_write_is_repeated_once_and_done_once(client, members):
    members.members[0].fail_next("insert", None)
    client.app.things.insert_one({"_id": 1})
    assert set(members.documents["things"]) == {1} and len(members.asked("insert")) == 2
    with client.start_session() as session:
        without = client.app.get_collection("things").with_options()
        members.members[0].fail_next("insert", None)
        with pytest.raises(pymongo.errors.PyMongoError, match="whether the command was carried out is not known"):
            session.client.app.command({"insert": "things", "documents": [{"_id": 2}]})
        assert without is not None


@pytest.mark.parametrize("answer", [
    NOT_PRIMARY,
    {"ok": 0.0, "errmsg": "The server is in quiesce mode and will shut down", "code": 91, "codeName": "ShutdownInProgress"},
    {"ok": 0.0, "errmsg": "node is recovering", "code": 13436, "codeName": "NotPrimaryOrSecondary"},
    {"n": 0, "writeErrors": [{"index": 0, "code": 189, "errmsg": "stepped down"}], "ok": 1.0},
    {"n": 1, "writeConcernError": {"code": 11602, "errmsg": "interrupted"}, "ok": 1.0},
])
def test_a_change_of_state_is_none_of_poolhouses(poolhouse, members, answer):
    events = Events()
    with poolhouse.connect(retryWrites=False, event_listeners=[events]) as client:
        client.app.things.insert_one({"_id": 0})
        members.members[0].fail_next("insert", answer)
        with pytest.raises(pymongo.errors.PyMongoError) as told:
            client.app.things.insert_one({"_id": 1})
        text = str(getattr(told.value, "details", told.value)).lower()
        assert not any(phrase in text for phrase in ("not primary", "not master", "node is recovering", "notwritableprimary"))
        client.app.things.insert_one({"_id": 2})
    assert events.cleared == 0


class Events(pymongo.monitoring.ConnectionPoolListener):
    """Counts how often a driver has cleared its pool."""

    cleared = 0

    def pool_cleared(self, event):
        self.cleared += 1

    def __getattr__(self, name):
        return lambda *_: None

    def nothing(self, event):
        """An event that is not counted."""

    pool_created = pool_ready = pool_closed = connection_created = connection_ready = connection_closed = nothing
    connection_check_out_started = connection_check_out_failed = connection_checked_out = connection_checked_in = nothing


def test_without_a_primary_writes_wait_and_reads_need_not(client, members):
    client.app.things.insert_one({"_id": 1})
    members.elect(None)
    eventually("that is known", lambda: refused(client, members))
    assert client.app.get_collection("things", read_preference=SecondaryPreferred()).find_one() == {"_id": 1}
    threading.Timer(1.0, lambda: members.elect(2)).start()
    began = time.monotonic()
    client.app.things.insert_one({"_id": 2})
    assert 0.3 < time.monotonic() - began < 6


def refused(client, members):
    """Whether no member takes a write, as Poolhouse sees it: it asks no member."""
    before = len(members.asked("insert"))
    with pytest.raises(pymongo.errors.PyMongoError):
        client.app.command({"insert": "others", "documents": [{"_id": 1}]})
    return len(members.asked("insert")) == before


def test_a_member_that_is_stopped_is_not_asked_and_comes_back(client, members):
    client.app.things.insert_one({"_id": 1})
    members.members[0].stop()
    members.elect(1)
    client.app.things.insert_one({"_id": 2})
    assert client.app.things.find_one() is not None
    members.members[0].start()
    members.elect(0)
    eventually("it is asked again", lambda: ask(client, members, 0))


def ask(client, members, number):
    client.app.things.insert_one({"_id": bson.ObjectId()})
    return members.asked("insert")[-1] == number


def test_a_read_goes_to_members_with_the_tags_that_it_names(client, members):
    members.members[1].says, members.members[2].says = {"tags": {"use": "reports"}}, {"tags": {"use": "web", "dc": "east"}}
    client.app.things.insert_one({"_id": 1})
    asked = len(members.asked("isMaster"))
    eventually("all have told their tags", lambda: len(members.asked("isMaster")) > asked + 5)

    def read(preference):
        for member in members.members:
            member.record.clear()
        for _ in range(6):
            client.app.get_collection("things", read_preference=preference).find_one()
        return set(members.asked("find"))

    assert read(Secondary(tag_sets=[{"use": "reports"}])) == {1}
    assert read(Nearest(tag_sets=[{"dc": "west"}, {"dc": "east"}])) == {2}
    assert read(SecondaryPreferred(tag_sets=[{"dc": "west"}])) == {0}
    assert read(Secondary(tag_sets=[{"dc": "west"}, {}])) == {1, 2}
