"""Sessions that end: which members are told, and what clients are told. The members are scripted (mock_mongodb.py)."""

import bson
import pytest
from bson.int64 import Int64
from pymongo.read_preferences import Secondary

from support.mongodb_fixtures import members
from support.mongodb_server import MongoPoolhouse, directory
from support.mongodb_wire import MORE_TO_COME, Raw, message
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

SESSION = {"id": bson.Binary(b"0123456789abcdef", 4)}
INTERRUPTED = {"ok": 0.0, "errmsg": "interrupted at shutdown", "code": 11600, "codeName": "InterruptedAtShutdown"}


@pytest.fixture
def start(workspace, members):
    started = []

    def begin(file=None, **settings):
        started.append(MongoPoolhouse(directory(workspace, "mongo-sessions"), members))
        return started[-1].start_with(file) if file else started[-1].start(**settings)

    yield begin
    for made in started:
        made.stop()


def use(raw, members):
    """Reads at both secondaries, and writes at the primary."""
    def read():
        raw.ask({"find": "things", "$readPreference": {"mode": "secondary"}, "$db": "app"})
        return set(members.asked("find")) == {1, 2}

    eventually("both are read from", read)
    assert raw.ask({"insert": "things", "documents": [{"_id": 1}], "$db": "app"})["ok"] == 1


@pytest.mark.timing
def test_all_members_that_were_used_hear_of_sessions_that_have_ended(start, members):
    with start().connect() as client:
        things = client.app.get_collection("things", read_preference=Secondary())
        with client.start_session() as session:
            eventually("both are read from", lambda: things.find_one(session=session) or set(members.asked("find")) == {1, 2})
            client.app.things.insert_one({"_id": 1}, session=session)
    eventually("they have heard", lambda: sorted(members.asked("endSessions")) == [0, 1, 2], seconds=5)


@pytest.mark.timing
def test_only_members_that_were_used_hear_of_it(start, members):
    with Raw(start().port) as raw:
        assert raw.ask({"insert": "things", "documents": [{"_id": 1}], "$db": "app"})["ok"] == 1
        assert raw.ask({"endSessions": [SESSION], "$db": "admin"}) == {"ok": 1.0}
        eventually("it has heard", lambda: members.asked("endSessions"), seconds=5)
        raw.ask({"ping": 1, "$db": "app"})
        assert members.asked("endSessions") == [0]


@pytest.mark.timing
def test_the_end_of_sessions_is_answered_though_a_member_refuses_it(start, members):
    with Raw(start().port) as raw:
        use(raw, members)
        members.members[0].fail_next("endSessions", INTERRUPTED)
        members.members[1].fail_next("endSessions", None)
        assert raw.ask({"endSessions": [SESSION], "$db": "admin"}) == {"ok": 1.0}
        eventually("they have heard, and who had not answered once more", lambda: sorted(members.asked("endSessions")) == [0, 1, 1, 2], seconds=5)
        assert raw.ask({"insert": "things", "documents": [{"_id": 2}], "$db": "app"})["ok"] == 1


@pytest.mark.timing
def test_a_driver_that_ends_ten_thousand_sessions_at_once_is_heard(start, members):
    with Raw(start().port) as raw:
        use(raw, members)
        sessions = [{"id": bson.Binary(number.to_bytes(16, "big"), 4)} for number in range(10_000)]
        assert raw.ask({"endSessions": sessions, "$db": "admin"}) == {"ok": 1.0}
        # Five hundred at a time: a socket takes that much at once.
        eventually("they have heard", lambda: [members.asked("endSessions").count(place) for place in range(3)] == [20, 20, 20], seconds=5)
        assert raw.ask({"endSessions": [*sessions, SESSION], "$db": "admin"})["code"] == 9
        assert raw.ask({"endSessions": [{"id": 1}], "$db": "admin"})["code"] == 9


def test_sessions_are_killed_at_all_members_before_that_is_answered(start, members):
    with Raw(start().port) as raw:
        use(raw, members)
        begins = {"insert": "things", "documents": [{"_id": "t"}], "lsid": SESSION, "txnNumber": Int64(1), "startTransaction": True}
        assert raw.ask({**begins, "autocommit": False, "$db": "app"})["ok"] == 1 and members.transactions
        assert raw.ask({"killSessions": [SESSION], "$db": "admin"})["ok"] == 1
        assert sorted(members.asked("killSessions")) == [0, 1, 2] and not members.transactions


def test_sessions_are_killed_at_all_members_though_no_client_waits_for_an_answer(start, members):
    with Raw(start().port) as raw:
        use(raw, members)
        members.members[1].fail_next("killSessions", None)
        raw.send(message({"killSessions": [SESSION], "$db": "admin"}, 7, MORE_TO_COME))
        raw.send(message({"ping": 1, "$db": "app"}, 8))
        assert raw.read() == (8, {"ok": 1.0}), "and nothing else is answered"
        assert sorted(members.asked("killSessions")) == [0, 1, 2]


@pytest.mark.parametrize("number", range(3))
def test_what_one_member_says_against_it_is_told(start, members, number):
    with Raw(start().port) as raw:
        use(raw, members)
        members.members[number].fail_next("killSessions", {"ok": 0.0, "errmsg": "not allowed here", "code": 13, "codeName": "Unauthorized"})
        told = raw.ask({"killSessions": [SESSION], "$db": "admin"})
        assert (told["ok"], told["code"], told["errmsg"]) == (0.0, 13, "not allowed here")
        assert sorted(members.asked("killSessions")) == [0, 1, 2]
        assert raw.ask({"killSessions": [SESSION], "$db": "admin"})["ok"] == 1


@pytest.mark.parametrize("number", range(3))
def test_a_member_that_ends_the_connection_keeps_the_others_from_nothing(start, members, number):
    with Raw(start().port) as raw:
        use(raw, members)
        members.members[number].fail_next("killSessions", None)
        told = raw.ask({"killSessions": [SESSION], "$db": "admin"})
        assert told["code"] == 6 and told["errmsg"].startswith("Poolhouse: the connection to MongoDB was lost")
        assert sorted(members.asked("killSessions")) == [0, 1, 2]


def test_a_change_of_state_is_told_in_other_words(start, members):
    with Raw(start().port) as raw:
        use(raw, members)
        members.members[0].fail_next("killSessions", INTERRUPTED)
        told = raw.ask({"killSessions": [SESSION], "$db": "admin"})
        assert told["code"] == 6 and sorted(members.asked("killSessions")) == [0, 1, 2]


SHARED = """[[listener]]
listen = "127.0.0.1:PORT"
protocol = "mongodb"
[[database]]
url = "URL"
[[user]]
name = "one"
password = "1"
[[user]]
name = "other"
password = "2"
"""


@pytest.mark.parametrize("command", [{"killAllSessions": []}, {"killAllSessionsByPattern": [{"lsid": SESSION}]}, {"killSessions": []}])
def test_only_a_client_with_a_login_of_its_own_may_end_the_sessions_of_others(start, members, command):
    name = next(iter(command))
    shared = members.url().replace("mongodb://", "mongodb://one:1@")
    poolhouse = start(SHARED.replace("URL", shared))
    with poolhouse.connect(username="one", password="1") as client:
        with pytest.raises(Exception, match="several users have one login at MongoDB here") as told:
            client.admin.command(command)
        assert told.value.code == 13
    assert not members.asked(name)


def test_the_only_user_may_end_all_sessions(start, members):
    with Raw(start().port) as raw:
        use(raw, members)
        assert raw.ask({"killAllSessions": [], "$db": "admin"})["ok"] == 1
        assert sorted(members.asked("killAllSessions")) == [0, 1, 2]
