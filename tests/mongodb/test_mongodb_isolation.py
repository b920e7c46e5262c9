"""No client of MongoDB can harm others, on purpose or not. The members are scripted (mock_mongodb.py)."""

import contextlib
import signal
import threading
import time

import bson
import pymongo
import pytest
from bson.int64 import Int64
from pymongo.monitoring import ConnectionPoolListener
from pymongo.read_preferences import Secondary, SecondaryPreferred

from support.mock_mongodb import ReplicaSet
from support.mongodb_fixtures import members
from support.mongodb_server import MongoPoolhouse, directory
from support.mongodb_wire import Raw, message, section
from support.silent_clients import ELSEWHERE, silent_client, wait_for_no_clients
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


class Cleared(ConnectionPoolListener):
    """Counts how often a driver has closed all its connections."""

    def __init__(self):
        self.count = 0

    def pool_cleared(self, event):
        self.count += 1

    def pool_created(self, event): pass
    def pool_ready(self, event): pass
    def pool_closed(self, event): pass
    def connection_created(self, event): pass
    def connection_ready(self, event): pass
    def connection_closed(self, event): pass
    def connection_check_out_started(self, event): pass
    def connection_check_out_failed(self, event): pass
    def connection_checked_out(self, event): pass
    def connection_checked_in(self, event): pass


@pytest.fixture
def start(workspace, members):
    """Starts a Poolhouse in front of the members."""
    started = []

    def begin(file=None, **settings):
        started.append(MongoPoolhouse(directory(workspace, "mongo-pool"), members))
        settings.setdefault("unavailable_wait_time", "5s")
        return started[-1].start_with(file) if file else started[-1].start(**settings)

    yield begin
    for made in started:
        made.stop()


def transactions(client, count=10):
    """The number of committed transactions."""
    done = 0
    for number in range(count):
        with client.start_session() as session:
            try:
                session.start_transaction()
                client.app.t.insert_one({"_id": f"a{number}"}, session=session)
                client.app.t.insert_one({"_id": f"b{number}"}, session=session)
                session.commit_transaction()
                done += 1
            except pymongo.errors.PyMongoError:
                pass
    return done


def test_words_that_are_repeated_in_an_error_are_no_election(start, members):
    poolhouse = start()
    with poolhouse.connect(retryWrites=False) as client, Raw(poolhouse.port) as raw:
        client.app.things.insert_one({"_id": 0})
        ends = threading.Event()

        def annoy():
            while not ends.is_set():
                answer = raw.ask({"not primary": 1, "$db": "app"})
                assert answer["code"] == 59 and "not primary" in answer["errmsg"]

        thread = threading.Thread(target=annoy)
        thread.start()
        try:
            assert transactions(client) == 10
        finally:
            ends.set()
            thread.join()


@pytest.mark.timing
def test_a_slow_answer_to_hello_is_no_lost_member(start, members):
    poolhouse = start()
    with poolhouse.connect(retryWrites=False) as client:
        client.app.things.insert_one({"_id": 0})
        for member in members.members:
            member.hello_takes = 1.5
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            began = time.monotonic()
            assert transactions(client, 2) == 2
            assert time.monotonic() - began < 1
            time.sleep(0.1)
    assert "does not answer" not in poolhouse.log()


def test_members_that_change_places_in_the_url_keep_what_they_have(start, members):
    ports = [member.port for member in members.members]

    def text(order):
        hosts = ",".join(f"127.0.0.1:{ports[place]}" for place in order)
        return f'[[listener]]\nlisten = "127.0.0.1:PORT"\nprotocol = "mongodb"\n[[database]]\nurl = "mongodb://{hosts}/?replicaSet=rs0"\n'

    poolhouse = start(text([0, 1, 2]))
    with poolhouse.connect(retryWrites=False) as client:
        client.app.things.insert_many([{"_id": number} for number in range(50)])
        cursor = client.app.get_collection("things", read_preference=Secondary()).find(batch_size=10)
        assert next(cursor)["_id"] == 0
        with client.start_session() as session:
            session.start_transaction()
            client.app.things.insert_one({"_id": "t"}, session=session)
            for order in ([2, 1, 0], [1, 2, 0]):
                poolhouse.path.write_text(poolhouse.path.read_text().split("[[listener]]")[0] + text(order).replace("PORT", str(poolhouse.port)))
                before = poolhouse.log().count("configuration read again")
                poolhouse.signal(signal.SIGHUP)
                eventually("it is reloaded", lambda: poolhouse.log().count("configuration read again") > before)
                for number in range(5):
                    client.app.things.insert_one({"_id": f"{order} {number}"})
                    time.sleep(0.05)
            session.commit_transaction()
        assert len(list(cursor)) == 49
    assert set(members.asked("insert")) == {0}


def test_more_cursors_than_a_client_can_have_are_refused(start):
    poolhouse = start()
    with Raw(poolhouse.port) as raw:
        answer = raw.ask({"killCursors": "things", "cursors": [Int64(n) for n in range(20_000)], "$db": "app"})
        assert answer["code"] == 9 and "too many cursors" in answer["errmsg"]


def test_a_client_that_only_says_hello_takes_half_of_the_connections_at_most(start):
    poolhouse = start(hard_limit=20, login_time="500ms", client_idle_time="1s")
    greeters = []
    for _ in range(20):
        try:
            greeters.append(Raw(poolhouse.port))
        except (OSError, EOFError):
            break
    with poolhouse.connect() as client:
        def answers():
            try:
                return client.admin.command("ping")["ok"]
            except pymongo.errors.PyMongoError:
                return False

        eventually("there is room again", answers)
    alive = [raw for raw in greeters if not raw.has_ended(0.2)]
    assert len(alive) == 10, "these cannot be told from monitors of drivers"
    for raw in greeters:
        raw.socket.close()


def test_clients_in_all_places_that_say_little_lock_no_client_out(start):
    poolhouse = start(soft_limit=20, hard_limit=20, login_time="60s", newcomer_wait_time="off")
    wait_for_no_clients(poolhouse)
    greeters = [Raw(poolhouse.port, source=ELSEWHERE) for _ in range(10)]
    cleared = Cleared()
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(silent_client(poolhouse.port))
        eventually("all places are taken", lambda: poolhouse.metric("poolhouse_clients", state="login") >= 30)
        assert poolhouse.metric("poolhouse_clients", state="subscribed") == 10
        with poolhouse.connect(event_listeners=[cleared]) as client:
            client.app.things.insert_one({"_id": 1})
            assert client.app.things.find_one() == {"_id": 1}
        assert cleared.count == 0
        assert poolhouse.metric("poolhouse_client_evictions_total", reason="not_logged_in") >= 2
    for raw in greeters:
        raw.socket.close()


@pytest.mark.timing
def test_a_client_that_only_says_hello_takes_no_driver_its_monitor(start):
    poolhouse = start(hard_limit=20, login_time="500ms")
    greeters = [Raw(poolhouse.port, source=ELSEWHERE) for _ in range(10)]
    cleared = Cleared()
    with poolhouse.connect(event_listeners=[cleared]) as client:
        for _ in range(20):
            client.admin.command("ping")
            time.sleep(0.1)
        assert cleared.count == 0
        ended = [raw for raw in greeters if raw.has_ended(0.1)]
        assert 1 <= len(ended) <= 3, "as many as the driver has monitoring connections"
    for raw in greeters:
        raw.socket.close()


def test_a_part_of_a_greeting_is_a_login_that_takes_too_long(start):
    poolhouse = start(login_time="500ms")
    with Raw(poolhouse.port) as raw:
        raw.send(message({"hello": 1, "comment": "x" * 1000, "$db": "admin"})[:500])
        assert raw.has_ended()


@pytest.mark.timing
def test_a_part_of_a_request_holds_no_server(start):
    poolhouse = start(max_size=2)
    half = message({"insert": "things", "documents": [{"_id": 1, "x": "y" * 10_000}], "$db": "app"})[:-5000]
    with Raw(poolhouse.port) as one, Raw(poolhouse.port) as other, poolhouse.connect() as client:
        one.send(half)
        other.send(half)
        began = time.monotonic()
        for _ in range(20):
            client.app.command("ping")
        assert time.monotonic() - began < 2


def test_a_cursor_has_the_same_number_in_a_long_request(start, members):
    poolhouse = start()
    with poolhouse.connect() as client:
        client.app.things.insert_many([{"_id": number} for number in range(300)])
        asked = [client.app.command({"find": "things", "batchSize": 10}, read_preference=Secondary())["cursor"]["id"] for _ in range(4)]
        assert len(set(asked)) == 4, "two of them have numbers of their own here"
        for number in asked:
            for padding in (0, 100_000):
                batch = client.app.command({"getMore": Int64(number), "collection": "things", "batchSize": 1, "comment": "x" * padding})
                assert len(batch["cursor"]["nextBatch"]) == 1


@pytest.mark.parametrize("name", ["getLastError", "getlasterror", "resetError"])
def test_the_last_error_of_a_connection_reaches_no_client(start, members, name):
    with Raw(start().port) as raw:
        assert raw.ask({name: 1, "$db": "app"})["code"] == 59
    assert not members.asked(name)


def test_a_command_that_can_be_read_in_two_ways_is_refused(start, members):
    poolhouse = start()
    twice = bson.encode({"count": "a", "x": 1, "$db": "app"}).replace(b"\x10x\0\x01\0\0\0", b"\x02count\0\x02\0\0\0b\0")
    twice = (len(twice)).to_bytes(4, "little") + twice[4:]
    bodies = [twice, bson.encode({"getMore": 1, "collection": "a", "$db": "app"}), bson.encode({"getMore": 1.0, "collection": "a", "$db": "app"})]
    for body in bodies:
        with Raw(poolhouse.port) as raw:
            raw.send(message(body))
            assert raw.read()[1]["code"] == 9
    with Raw(poolhouse.port) as raw:
        raw.send(message({"ping": 1, "$db": "app"}, behind=b"\0" + bson.encode({"ping": 1, "$db": "app"})))
        assert raw.read()[1]["code"] == 9 and raw.has_ended()
    with Raw(poolhouse.port) as raw:
        raw.send(message({"insert": "a", "$db": "app"}, before=section("documents", {"_id": 1}) * 100))
        assert raw.read()[1]["code"] == 9
    with Raw(poolhouse.port) as raw:
        assert raw.ask({"IsMaster": 1, "$db": "app"})["code"] == 59
    assert not members.asked("count") and not members.asked("IsMaster")


def test_a_write_goes_to_the_primary_whatever_preference_it_has(start, members):
    with start().connect() as client:
        client.app.things.insert_one({"_id": 0})
        client.app.command({"insert": "things", "documents": [{"_id": 1}]}, read_preference=SecondaryPreferred())
        with pytest.raises(pymongo.errors.OperationFailure, match="no such command"):
            client.app.command({"aggregate": "things", "pipeline": [{"$out": "other"}], "cursor": {}}, read_preference=Secondary())
    assert set(members.asked("insert")) == {0} and set(members.asked("aggregate")) == {0}


def test_an_arbiter_and_a_hidden_member_get_no_requests(start, members):
    members.members[1].says = {"hidden": True}
    members.members[2].says = {"secondary": False, "arbiterOnly": True, "logicalSessionTimeoutMinutes": None}
    poolhouse = start()
    with poolhouse.connect() as client:
        eventually("all have told what they are", lambda: len({number for number in members.asked("isMaster")}) == 3)
        assert client.admin.command("hello")["logicalSessionTimeoutMinutes"] == 30
        client.app.things.insert_one({"_id": 0})
        things = client.app.get_collection("things", read_preference=SecondaryPreferred())
        assert [things.find_one() for _ in range(10)] and set(members.asked("find")) == {0}


@pytest.mark.timing
def test_a_client_that_waits_for_a_primary_is_not_idle(start, members):
    cleared = Cleared()
    with start(client_idle_time="1s", unavailable_wait_time="10s").connect(retryWrites=False, event_listeners=[cleared]) as client:
        client.app.things.insert_one({"_id": 0})
        members.elect(None)
        threading.Timer(3, lambda: members.elect(1)).start()
        time.sleep(1.2)
        client.app.things.insert_one({"_id": 1})
    assert cleared.count == 0


def test_the_hard_limit_is_told_behind_the_greeting(start):
    cleared = Cleared()
    poolhouse = start(hard_limit=4, login_time="2s", newcomer_wait_time="100ms")
    with poolhouse.connect(retryReads=False, event_listeners=[cleared]) as client:
        client.app.command("ping")
        held = [Raw(poolhouse.port) for _ in range(2)]
        with Raw(poolhouse.port) as raw:
            assert raw.greeting["ok"] == 1
            answer = raw.ask({"ping": 1, "$db": "app"})
            assert answer["code"] == 365 and "hard_limit is 4" in answer["errmsg"] and "errorLabels" not in answer
            assert raw.ask({"ping": 1, "$db": "app"})["code"] == 365
            assert raw.has_ended()
        client.app.command("ping")
        for one in held:
            one.socket.close()
    assert cleared.count == 0


class Slow(ReplicaSet):
    """Its `slow` command takes a second and more."""

    def __init__(self):
        super().__init__(1)
        member = self.members[0]

        def answer(command, before=member.answer):
            if next(iter(command)) == "slow":
                time.sleep(1.5)
                return {"ok": 1.0}
            return before(command)

        member.answer = answer


@pytest.mark.timing
def test_only_the_request_ends_that_takes_too_long(workspace):
    members, cleared = Slow(), Cleared()
    poolhouse = MongoPoolhouse(directory(workspace, "mongo-slow"), members).start(query_time="500ms")
    try:
        with poolhouse.connect(retryReads=False, event_listeners=[cleared]) as client:
            client.app.command("ping")
            with pytest.raises(pymongo.errors.ExecutionTimeout, match="query_time"):
                client.app.command("slow")
            for _ in range(20):
                assert client.app.command("ping")["ok"] == 1
                time.sleep(0.1)
        assert cleared.count == 0
    finally:
        poolhouse.stop()
        members.stop()


@pytest.mark.timing
def test_a_commit_finds_a_server_though_all_others_wait_for_its_transaction(workspace):
    members = ReplicaSet(1)
    member, held = members.members[0], threading.Event()

    def answer(command, before=member.answer):
        # The same happens to a write that meets a document of an open transaction.
        if next(iter(command)) == "insert" and command["insert"] == "contended" and "autocommit" not in command:
            held.wait(10)
        return before(command)

    member.answer = answer
    before = member.do_committransaction
    member.do_committransaction = lambda command: (held.set(), before(command))[1]
    poolhouse = MongoPoolhouse(directory(workspace, "mongo-commit"), members).start(max_size=3)
    try:
        with poolhouse.connect(retryWrites=False) as client, client.start_session() as session:
            session.start_transaction()
            client.app.contended.insert_one({"_id": "held"}, session=session)
            writers = [threading.Thread(target=client.app.contended.insert_one, args=({"_id": number},)) for number in range(5)]
            for writer in writers:
                writer.start()
            time.sleep(0.5)
            began = time.monotonic()
            session.commit_transaction()
            assert time.monotonic() - began < 1
            for writer in writers:
                writer.join()
        assert len(members.documents["contended"]) == 6
    finally:
        poolhouse.stop()
        members.stop()


def test_cursors_at_several_members_are_killed_at_each(start, members):
    with start().connect() as client:
        client.app.things.insert_many([{"_id": number} for number in range(300)])
        asked = [client.app.command({"find": "things", "batchSize": 10}, read_preference=Secondary())["cursor"]["id"] for _ in range(4)]
        assert sum(len(member.cursors) for member in members.members) == 4
        client.app.command({"killCursors": "things", "cursors": [Int64(number) for number in asked]})
        things = client.app.get_collection("things", read_preference=Secondary())
        eventually("they are closed", lambda: things.find_one() and not any(member.cursors for member in members.members))


def test_what_belongs_to_a_load_balanced_connection_ends_with_it(start, members):
    poolhouse = start()
    with poolhouse.connect() as client:
        client.app.things.insert_many([{"_id": number} for number in range(300)])
        with Raw(poolhouse.port, hello=False) as raw:
            assert raw.ask({"hello": 1, "loadBalanced": True, "$db": "admin"})["serviceId"]
            assert raw.ask({"find": "things", "batchSize": 5, "$db": "app"})["cursor"]["id"]
            lsid = {"id": bson.Binary(b"0123456789abcdef", 4)}
            begun = {"insert": "things", "documents": [{"_id": "t"}], "lsid": lsid, "txnNumber": Int64(1), "startTransaction": True, "autocommit": False}
            assert raw.ask({**begun, "$db": "app"})["ok"] == 1 and members.transactions
        eventually("its cursor is closed", lambda: client.app.command("ping") and not any(member.cursors for member in members.members))
        eventually("its transaction is aborted", lambda: client.app.command("ping") and not members.transactions)


@pytest.mark.timing
def test_a_reload_that_takes_out_the_first_member_cuts_off_no_client(start, members):
    ports = [member.port for member in members.members]

    def text(order):
        hosts = ",".join(f"127.0.0.1:{ports[place]}" for place in order)
        return f'[[listener]]\nlisten = "127.0.0.1:PORT"\nprotocol = "mongodb"\n[[database]]\nurl = "mongodb://{hosts}/?replicaSet=rs0"\n'

    poolhouse = start(text([0, 1, 2]))
    with poolhouse.connect() as client:
        client.app.things.insert_one({"_id": 0})
    members.elect(1)
    poolhouse.path.write_text(poolhouse.path.read_text().split("[[listener]]")[0] + text([1, 2]).replace("PORT", str(poolhouse.port)))
    poolhouse.signal(signal.SIGHUP)
    eventually("it is reloaded", lambda: "configuration read again" in poolhouse.log())
    time.sleep(1.5)
    members.members[0].record.clear()
    with poolhouse.connect(retryWrites=False, retryReads=False) as client:
        client.app.things.insert_one({"_id": 1})
        things = client.app.get_collection("things", read_preference=Secondary())
        assert all(things.find_one() for _ in range(20)) and set(members.asked("find")) == {2}
    assert not members.members[0].record, "it gets no commands any more"
