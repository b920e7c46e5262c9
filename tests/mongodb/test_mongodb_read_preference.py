"""Which members serve reads: none that lags more than the application allows, and of the others the nearest. Also the
cluster times that drivers are told. The members are scripted (mock_mongodb.py).
"""

import datetime

import bson
import pymongo
import pytest
from pymongo.read_preferences import Nearest, PrimaryPreferred, Secondary, SecondaryPreferred

from support.mongodb_fixtures import members
from support.mongodb_server import MongoPoolhouse, directory
from support.mongodb_wire import Raw
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only
# On a busy machine a member may be slow once.
ALL_NEAR = "&localThresholdMS=5000"


@pytest.fixture
def start(workspace, members):
    started = []

    def begin(options="", **settings):
        made = MongoPoolhouse(directory(workspace, "mongo-reading"), members)
        url = members.url
        members.url = lambda: url() + options
        started.append(made.start(**settings))
        return made

    yield begin
    for made in started:
        made.stop()


def write_behind(members, *seconds):
    """Sets how many seconds ago each member made its last write."""
    now = datetime.datetime.now(datetime.UTC)
    for member, ago in zip(members.members, seconds):
        member.says = {"lastWrite": {"lastWriteDate": now - datetime.timedelta(seconds=ago)}}


def all_have_told(members):
    """Waits until each member has reported its state once more to Poolhouse."""
    before = [members.asked("isMaster").count(number) for number in range(3)]
    eventually("all have told", lambda: all(members.asked("isMaster").count(number) > before[number] + 1 for number in range(3)))


def asked(client, members, preference, count=8):
    """The members that serve `count` reads."""
    for member in members.members:
        member.record.clear()
    things = client.app.get_collection("things", read_preference=preference)
    for _ in range(count):
        things.find_one()
    return set(members.asked("find"))


def test_a_read_goes_to_no_member_that_is_too_far_behind(start, members):
    write_behind(members, 0, 60, 200)
    with start(ALL_NEAR, unavailable_wait_time="1s").connect() as client:
        all_have_told(members)
        assert asked(client, members, Secondary()) == {1, 2}
        assert asked(client, members, Secondary(max_staleness=90)) == {1}
        assert asked(client, members, Secondary(max_staleness=300)) == {1, 2}
        assert asked(client, members, Nearest(max_staleness=120)) == {0, 1}
        assert asked(client, members, SecondaryPreferred(max_staleness=120)) == {1}
        assert asked(client, members, PrimaryPreferred(max_staleness=120)) == {0}
        write_behind(members, 0, 150, 200)
        all_have_told(members)
        assert asked(client, members, SecondaryPreferred(max_staleness=120)) == {0}, "none of them will do"
        with pytest.raises(pymongo.errors.OperationFailure, match="read preference allows") as told:
            asked(client, members, Secondary(max_staleness=120), 1)
        assert told.value.code == 133


def test_without_a_primary_the_latest_of_the_secondaries_is_what_they_are_compared_with(start, members):
    write_behind(members, 0, 500, 620)
    with start().connect() as client:
        all_have_told(members)
        members.elect(None)
        members.members[0].stop()
        all_but = [1, 2]
        before = members.asked("isMaster")
        eventually("they have told", lambda: all(members.asked("isMaster").count(number) > before.count(number) + 1 for number in all_but))
        assert asked(client, members, PrimaryPreferred(max_staleness=90)) == {1}
        assert asked(client, members, PrimaryPreferred(max_staleness=130)) == {1, 2}


@pytest.mark.parametrize("staleness, code", [(89, 160), (1, 160), (-2, 160), ("x", 9), (90.5, 9)])
def test_a_staleness_that_no_member_can_keep_to_is_refused(start, members, staleness, code):
    with Raw(start().port) as raw:
        preference = {"mode": "secondary", "maxStalenessSeconds": staleness}
        told = raw.ask({"find": "things", "$readPreference": preference, "$db": "app"})
        assert told["code"] == code and not members.asked("find")


@pytest.mark.parametrize("staleness", [-1, 0, None, 90, bson.Int64(90), 90.0])
def test_a_staleness_that_says_nothing_or_enough_is_taken(start, members, staleness):
    write_behind(members, 0, 0, 0)
    with Raw(start().port) as raw:
        preference = {"mode": "secondary", "maxStalenessSeconds": staleness}
        assert raw.ask({"find": "things", "$readPreference": preference, "$db": "app"})["ok"] == 1


def test_reads_go_to_the_members_that_answer_soonest(start, members):
    members.members[2].hello_takes = 0.12
    with start().connect() as client:
        all_have_told(members)
        all_have_told(members)
        assert asked(client, members, Secondary(), 12) == {1}
        assert asked(client, members, Nearest(), 12) == {0, 1}
        members.members[1].hello_takes = 0.12
        members.members[2].hello_takes = 0
        # An average: it takes a while to follow a member that has become faster.
        eventually("the other one is near now", lambda: asked(client, members, Secondary(), 12) == {2}, seconds=25, every=0.5)


@pytest.mark.timing
def test_how_near_is_a_matter_of_configuration(start, members):
    members.members[2].hello_takes = 0.12
    with start("&localThresholdMS=500").connect() as client:
        all_have_told(members)
        all_have_told(members)
        assert asked(client, members, Secondary(), 12) == {1, 2}


def test_a_slow_member_serves_where_there_is_no_other(start, members):
    members.members[1].hello_takes, members.members[1].says = 0.12, {"tags": {"use": "reports"}}
    with start().connect() as client:
        all_have_told(members)
        all_have_told(members)
        assert asked(client, members, Secondary(tag_sets=[{"use": "reports"}])) == {1}


def cluster_time(seconds, count, by):
    stamp = bson.Timestamp(seconds, count)
    return {"$clusterTime": {"clusterTime": stamp, "signature": {"hash": bytes([by]) * 20, "keyId": bson.Int64(7)}}, "operationTime": stamp}


def test_drivers_are_told_the_latest_time_that_a_member_has_told(start, members):
    for member, told in zip(members.members, [cluster_time(100, 2, 0), cluster_time(101, 1, 1), cluster_time(100, 9, 2)]):
        member.says = told
    with Raw(start().port) as raw:
        all_have_told(members)
        told = raw.ask({"hello": 1, "$db": "admin"})
        assert {name: told[name] for name in ("$clusterTime", "operationTime")} == cluster_time(101, 1, 1)
        members.members[0].says = cluster_time(102, 1, 0)
        eventually("it is passed on", lambda: raw.ask({"hello": 1, "$db": "admin"})["operationTime"] == bson.Timestamp(102, 1))


def test_without_a_time_drivers_are_told_none(start, members):
    members.members[0].says = {"$clusterTime": {"clusterTime": bson.Timestamp(1, 1), "signature": "x" * 5000}}
    with Raw(start().port) as raw:
        assert not {"$clusterTime", "operationTime"} & set(raw.greeting)
