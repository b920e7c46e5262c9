"""Applications on a platform of functions: frozen for longer than the idle limit and thawed again, and arriving in
floods. The members are scripted (mock_mongodb.py).
"""

import concurrent.futures
import contextlib
import time

import pytest

from support.mock_mongodb import ReplicaSet
from support.mongodb_server import MongoPoolhouse, directory
from support.mongodb_wire import Raw, message
from support.serverless_function import Function
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture
def members():
    made = ReplicaSet(1)
    yield made
    made.stop()


@pytest.fixture
def start(workspace, members):
    started = []

    def begin(**settings):
        started.append(MongoPoolhouse(directory(workspace, "mongo-serverless"), members).start_listening(settings, max_size=4))
        return started[-1]

    yield begin
    for made in started:
        made.stop()


def function(poolhouse, options=""):
    return Function(f"mongodb://127.0.0.1:{poolhouse.port}/?serverSelectionTimeoutMS=5000{options}")


def clients(poolhouse, state=None):
    return poolhouse.metric("poolhouse_clients", **({"state": state} if state else {}))


@pytest.mark.timing
@pytest.mark.parametrize("options", ["", "&loadBalanced=true"], ids=["ordinary", "load-balanced"])
def test_a_function_that_is_thawed_behind_the_idle_limit_goes_on_without_an_error(start, members, options):
    poolhouse = start(client_idle_time="1s")
    with function(poolhouse, options) as called:
        assert called.write(1)["error"] is None
        with called.frozen():
            eventually("it is sent away", lambda: clients(poolhouse, "idle") == 0, seconds=5)
            assert poolhouse.metric("poolhouse_client_evictions_total", reason="client_idle_time") >= 1
            assert poolhouse.metric("poolhouse_servers", state="in_use") == 1, "only the one that asks the member what it is"
            time.sleep(1)
        told = called.write(2)
        assert told["error"] is None and told["ms"] < 2000, told
    assert set(members.documents["things"]) == {1, 2}


@pytest.mark.timing
def test_a_function_that_is_frozen_for_less_than_the_limit_keeps_its_connection(start, members):
    poolhouse = start(client_idle_time="310s")
    with function(poolhouse) as called:
        called.write(1)
        before = clients(poolhouse)
        with called.frozen():
            time.sleep(2)
            assert clients(poolhouse) == before
        assert called.write(2)["error"] is None
        assert poolhouse.metric("poolhouse_client_evictions_total") == 0


@pytest.mark.timing
def test_what_a_function_asked_before_it_was_frozen_is_done_once(start, members):
    poolhouse = start(client_idle_time="1s")
    before = members.members[0].do_insert

    def insert(command):
        time.sleep(0.5)
        return before(command)

    members.members[0].do_insert = insert
    with function(poolhouse) as called:
        called.write(1)
        called.tell(2)
        time.sleep(0.15)
        with called.frozen():
            eventually("it is sent away", lambda: clients(poolhouse, "idle") == 0 and 2 in members.documents["things"], seconds=6)
            time.sleep(1)
        # The answer was in transit before the connection ended.
        assert called.hear()["error"] is None
        assert called.write(3)["error"] is None
    assert set(members.documents["things"]) == {1, 2, 3} and len(members.asked("insert")) == 3


@pytest.mark.timing
def test_a_frozen_reader_holds_a_server_no_longer_than_query_time(start, members):
    poolhouse = start(query_time="1s")
    with poolhouse.connect() as client:
        for number in range(12):
            client.app.things.insert_one({"_id": number, "text": "x" * 1_000_000})
        readers = [Raw(poolhouse.port) for _ in range(4)]
        for raw in readers:
            raw.send(message({"find": "things", "$db": "app"}))
        time.sleep(0.3)
        began = time.monotonic()
        client.app.others.insert_one({"_id": 1})
        assert time.monotonic() - began < 2.5
        for raw in readers:
            raw.socket.close()


LIMITS = {"soft_limit": 20, "hard_limit": 60, "evict_min_idle": "1s"}


@pytest.mark.timing
def test_in_a_flood_between_the_limits_the_idle_make_room_and_no_client_is_refused(start, members):
    poolhouse = start(**LIMITS)
    with contextlib.ExitStack() as stack:
        def come(number):
            raw = stack.enter_context(Raw(poolhouse.port))
            return raw, raw.ask({"insert": "things", "documents": [{"_id": number}], "$db": "app"})

        idle = [come(number)[0] for number in range(18)]
        time.sleep(1.3)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            came = list(threads.map(come, range(100, 136)))
        assert all(answer["ok"] == 1 for _, answer in came)
        eventually("the idle are gone", lambda: clients(poolhouse) <= 36 + 2, seconds=5)
        gone = [raw for raw in idle if raw.has_ended(0.2)]
        assert len(gone) >= 16, "the first of the flood did not need their places"
        assert poolhouse.metric("poolhouse_client_rejections_total") == 0
        assert poolhouse.metric("poolhouse_client_evictions_total") >= len(gone)
        for raw, _ in came:
            assert raw.ask({"ping": 1, "$db": "app"})["ok"] == 1
    assert len(members.documents["things"]) == 18 + 36


@pytest.mark.timing
def test_a_driver_whose_idle_connections_made_room_goes_on(start, members):
    poolhouse = start(**LIMITS)
    with poolhouse.connect(maxPoolSize=8) as client, contextlib.ExitStack() as stack:
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: client.app.things.insert_one({"_id": number}), range(64)))
        time.sleep(1.4)
        for _ in range(30):
            stack.enter_context(Raw(poolhouse.port)).ask({"ping": 1, "$db": "app"})
        eventually("it has lost its connections", lambda: poolhouse.metric("poolhouse_client_evictions_total") >= 3)
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: client.app.things.insert_one({"_id": number}), range(64, 128)))
    assert len(members.documents["things"]) == 128


@pytest.mark.timing
def test_a_client_that_has_a_request_under_way_is_not_sent_away_by_a_flood(start, members):
    poolhouse = start(**LIMITS)
    before = members.members[0].do_insert

    def insert(command):
        if command["insert"] == "slow":
            time.sleep(1.5)
        return before(command)

    members.members[0].do_insert = insert
    with contextlib.ExitStack() as stack, concurrent.futures.ThreadPoolExecutor(2) as threads:
        busy = stack.enter_context(Raw(poolhouse.port))
        told = threads.submit(busy.ask, {"insert": "slow", "documents": [{"_id": 1}], "$db": "app"})
        time.sleep(0.5)
        for _ in range(40):
            stack.enter_context(Raw(poolhouse.port))
        assert told.result(timeout=10)["ok"] == 1


def test_above_the_hard_limit_newcomers_hear_why_and_the_others_go_on(start, members):
    poolhouse = start(**{**LIMITS, "evict_min_idle": "1h", "login_time": "2s", "newcomer_wait_time": "100ms"})
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(Raw(poolhouse.port)) for _ in range(60)]
        for raw in inside:
            assert raw.ask({"ping": 1, "$db": "app"})["ok"] == 1
        with Raw(poolhouse.port) as late:
            told = late.ask({"insert": "things", "documents": [{"_id": "late"}], "$db": "app"})
            assert told["code"] == 365 and "hard_limit is 60" in told["errmsg"]
        for number, raw in enumerate(inside):
            assert raw.ask({"insert": "things", "documents": [{"_id": number}], "$db": "app"})["ok"] == 1
        assert poolhouse.metric("poolhouse_client_rejections_total") >= 1
        for raw in inside[:10]:
            raw.socket.close()
        eventually("there is room again", lambda: clients(poolhouse) <= 50)
        with poolhouse.connect() as client:
            client.app.things.insert_one({"_id": "later"})
    assert "late" not in members.documents["things"] and len(members.documents["things"]) == 61
