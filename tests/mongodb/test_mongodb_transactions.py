"""What a real driver does with transactions, retryable writes and change streams, through Poolhouse, when commands fail
and when another primary is elected. Behind Poolhouse is a simulated replica set in front of a server that keeps the
documents (support/mongodb_servers/stand_in).
"""

import concurrent.futures
import threading
import time

import pytest
from pymongo.read_concern import ReadConcern

from support.mongodb_server import JavaServer, MongoPoolhouse, StandIn, directory

pytestmark = pytest.mark.poolhouse_only
ELECTIONS = 5


@pytest.fixture(scope="module")
def server(workspace):
    JavaServer.prepare()
    made = StandIn(directory(workspace, "stand-in"), members=3).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def poolhouse(workspace, server):
    made = MongoPoolhouse(directory(workspace, "mongo-pool"), server).start(max_size=6)
    yield made
    made.stop()


@pytest.fixture(params=["", "loadBalanced=true"], ids=["ordinary", "load-balanced"])
def client(server, poolhouse, request):
    server.ask("killAllSessions", [])
    with server.connect() as direct:
        direct.drop_database("app")
    with poolhouse.connect(request.param) as made:
        yield made
    server.fail("off")


def through_elections(server, count, do):
    """Runs `count` threads that repeat `do` while one primary after another is elected; returns how often each has done
    it. Each has done it twice before the next election, because a driver retries only once."""
    done, over = [0] * count, threading.Event()

    def go_on(number):
        try:
            while not over.is_set():
                do(number)
                done[number] += 1
        finally:
            over.set()

    with concurrent.futures.ThreadPoolExecutor(count) as at_once:
        going_on = [at_once.submit(go_on, number) for number in range(count)]
        for _ in range(ELECTIONS):
            before = list(done)
            while not over.is_set() and any(now < then + 2 for now, then in zip(done, before)):
                time.sleep(0.02)
            server.ask("replSetStepDown", 1)
        over.set()
    for one in going_on:
        one.result()
    return done


def at_once(count, do):
    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        return list(pool.map(do, range(count)))


def transfer(accounts, one, other, amount):
    """Moves money in a transaction, however often that must be repeated."""
    def move(session):
        accounts.update_one({"_id": one}, {"$inc": {"money": -amount}}, session=session)
        accounts.update_one({"_id": other}, {"$inc": {"money": amount}}, session=session)

    with accounts.database.client.start_session() as session:
        session.with_transaction(move)


def money(accounts, session=None):
    return sum(account["money"] for account in accounts.find({}, session=session))


def test_transactions_of_many_are_seen_whole_or_not_at_all(client):
    accounts, count = client.app.accounts, 6
    accounts.insert_many([{"_id": n, "money": 100} for n in range(count)])
    transfers = [[(n % count, (n + m + 1) % count, 10 * n + m) for m in range(3)] for n in range(6)]
    over = threading.Event()

    def look():
        seen = set()
        while not over.is_set():
            with client.start_session() as session, session.start_transaction(read_concern=ReadConcern("snapshot")):
                seen |= {money(accounts), money(accounts, session)}
        return seen

    with concurrent.futures.ThreadPoolExecutor(1) as reader:
        seen = reader.submit(look)
        try:
            at_once(len(transfers), lambda n: [transfer(accounts, *one) for one in transfers[n]])
        finally:
            over.set()
        assert seen.result() == {100 * count}
    expected = [100] * count
    for one, other, amount in (one for of_one in transfers for one in of_one):
        expected[one] -= amount
        expected[other] += amount
    assert [account["money"] for account in accounts.find().sort("_id")] == expected


@pytest.mark.quick
def test_an_aborted_transaction_leaves_nothing(client, server):
    things = client.app.things
    with client.start_session() as session, session.start_transaction():
        things.insert_one({"_id": 1}, session=session)
        assert things.find_one({}, session=session) and not things.find_one()
        session.abort_transaction()
    assert not things.find_one()
    assert server.ask("serverStatus")["transactions"]["currentOpen"] == 0


@pytest.mark.parametrize("how", [{"closeConnection": True}, {"errorCode": 91}, {"errorCode": 10107}], ids=["lost", "shutdown", "not-primary"])
def test_a_commit_that_fails_is_repeated(client, server, how):
    calls = []

    def write(session):
        calls.append(1)
        client.app.things.insert_one({"_id": len(calls)}, session=session)

    server.fail(2, failCommands=["commitTransaction"], **how)
    with client.start_session() as session:
        session.with_transaction(write)
    assert list(client.app.things.find()) == [{"_id": 1}] and len(calls) == 1


@pytest.mark.parametrize("how", [{"closeConnection": True}, {"errorCode": 112}, {"errorCode": 189}], ids=["lost", "conflict", "stepped-down"])
def test_a_transaction_that_fails_on_its_way_is_done_anew(client, server, how):
    calls = []

    def write(session):
        calls.append(1)
        client.app.things.insert_one({"_id": "first"}, session=session)
        client.app.things.update_one({"_id": "first"}, {"$set": {"call": len(calls)}}, session=session)

    server.fail(1, failCommands=["update"], **how)
    with client.start_session() as session:
        session.with_transaction(write)
    assert list(client.app.things.find()) == [{"_id": "first", "call": 2}]


def test_writes_go_on_through_elections_and_are_done_once(client, server):
    counters = client.app.counters
    counters.insert_many([{"_id": n, "count": 0} for n in range(8)])

    def count(n):
        assert counters.update_one({"_id": n}, {"$inc": {"count": 1}}).modified_count == 1

    done = through_elections(server, 8, count)
    assert [counter["count"] for counter in counters.find().sort("_id")] == done


def test_transactions_go_on_through_elections(client, server):
    accounts = client.app.accounts
    accounts.insert_many([{"_id": n, "money": 100} for n in range(12)])
    done = through_elections(server, 6, lambda n: transfer(accounts, 2 * n, 2 * n + 1, 1))
    found = [account["money"] for account in accounts.find().sort("_id")]
    assert found == [money for moved in done for money in (100 - moved, 100 + moved)]


@pytest.mark.parametrize("options", ["", "loadBalanced=true"], ids=["ordinary", "load-balanced"])
def test_a_change_stream_goes_on_when_its_server_is_lost(workspace, options):
    JavaServer.prepare()
    # A separate mongo-java-server: its change streams continue only while nothing was ever dropped.
    server = StandIn(directory(workspace, "stand-in")).start()
    poolhouse = MongoPoolhouse(directory(workspace, "mongo-pool"), server).start()
    try:
        with poolhouse.connect(options) as client, client.app.things.watch(max_await_time_ms=300) as stream:
            client.app.things.insert_one({"_id": 0})
            assert stream.next()["documentKey"] == {"_id": 0}
            for number in range(1, 4):
                server.fail(1, failCommands=["getMore"], closeConnection=True)
                client.app.things.insert_one({"_id": number})
                assert stream.next()["documentKey"] == {"_id": number}
    finally:
        poolhouse.stop()
        server.stop()
