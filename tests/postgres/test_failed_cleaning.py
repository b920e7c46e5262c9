"""A server that cannot be cleaned for the next client is closed, and the request of that client is executed on another
server, once.
"""

import itertools
import threading
import time

import pytest

from hunts.leaking import world
from hunts.leaking.sharing import Sharing, do
from support import postgres_wire as w
from support.mock_postgres import Mock
from support.postgres_cluster import PASSWORDS
from support.relay import Relay
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

# Session state -> the SQL that leaves it. The server must be cleaned of each, or a setting must be brought along.
LEFT = {"a temporary table": "CREATE TEMP TABLE orders (id int, note text, tenant text, who name)", "a lock": "SELECT pg_advisory_lock(1)",
        "a setting": "SET app.tenant = 'evil'", "a role": "SET ROLE leaks_reader", "all of it": "CREATE TEMP TABLE orders (LIKE public.orders); "
        "SELECT pg_advisory_lock(1); SET app.tenant = 'evil'; SET search_path = evil; SET ROLE leaks_reader; DECLARE c CURSOR WITH HOLD FOR SELECT 1; LISTEN x"}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_time_out_that_is_left_does_not_stop_the_cleaning(start, cluster, left, mode):
    """With many temporary tables DISCARD ALL takes longer than the millisecond that the last client allowed."""
    shared = Sharing(start, cluster, mode=mode, wait="8s")
    for n in range(4):
        with shared.session() as one:
            do(one, "; ".join(f"CREATE TEMP TABLE t{i} (a text PRIMARY KEY, b text UNIQUE)" for i in range(40)))
            do(one, LEFT[left])
            do(one, "RESET ROLE; SET statement_timeout = '1ms'")
            if n % 2:
                one.vanish()
        assert not shared.met(patient=True)


class Canceller:
    """Cancels whatever the pooler's servers do, again and again."""

    def __init__(self, cluster, seconds):
        self.cluster, self.seconds, self.over = cluster, seconds, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        with self.cluster.superuser() as db:
            while not self.over.is_set():
                db.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'app' AND state = 'active'")
                time.sleep(self.seconds)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


@pytest.mark.parametrize("seconds", [0, 0.002, 0.01])
@pytest.mark.parametrize("reset", ["auto", "always"])
def test_whatever_is_cancelled_no_client_meets_the_state_of_another(start, cluster, reset, seconds):
    """pg_cancel_backend hits the cleaning as well as the clients' own statements. These may fail, but are never
    executed in the state of another client, nor twice."""
    shared = Sharing(start, cluster, wait="8s", reset=reset)
    with cluster.superuser(world.QUIET) as db:
        db.execute("DROP TABLE IF EXISTS public.cancelled")
        db.execute("CREATE TABLE public.cancelled (n int, tenant text, who name DEFAULT current_user)")
        db.execute("GRANT ALL ON public.cancelled TO PUBLIC")
    acknowledged, over, n = [], time.monotonic() + 2, 0
    with Canceller(cluster, seconds):
        while time.monotonic() < over:
            n += 1
            try:
                with shared.session() as one:
                    for sql in ("CREATE TEMP TABLE cancelled (n int, tenant text)", "SET app.tenant = 'evil'", "SET ROLE leaks_reader"):
                        do(one, sql)
            except (w.ServerError, w.Closed):
                pass
            try:
                with shared.session() as other:
                    other.query(f"INSERT INTO cancelled VALUES ({n}, current_setting('app.tenant', true))")
                    acknowledged.append(n)
            except (w.ServerError, w.Closed):
                pass
    rows = cluster.query("SELECT n, coalesce(tenant, ''), who::text FROM public.cancelled ORDER BY n", database=world.QUIET)
    wrong = [row for row in rows if row[1:] != ("", "app")]
    assert not wrong, "done in the state of another"
    numbers = [row[0] for row in rows]
    assert len(numbers) == len(set(numbers)), "done twice"
    assert set(acknowledged) <= set(numbers), f"acknowledged and lost: {sorted(set(acknowledged) - set(numbers))[:5]}"
    assert len(acknowledged) > 3, "some requests succeed"


OURS, THEIRS, LAST = "/* one */", "/* other */", "/* last */"


def is_cleaning(text):
    """Whether the text discards all session state. It is one text, so that it succeeds or fails as one."""
    return "DISCARD ALL" in text or ("DISCARD TEMP" in text and "RESET ALL" in text and "pg_advisory_unlock_all" in text)


def told(session, sql):
    """Sends a query and reads its answers; whether none was an error."""
    try:
        session.query(sql)
        return True
    except (w.ServerError, w.Closed):
        return False


def ask_as_newcomer(pooler, sql, **parameters):
    try:
        with pooler.open(5).login("app", PASSWORDS["app"], "mock", **parameters) as session:
            return told(session, sql)
    except (w.ServerError, w.Closed):
        return False


def lives(pooler):
    """One client leaves state, a second sends a query, and a third after it; whether these two were answered."""
    with pooler.open(5).login("app", PASSWORDS["app"], "mock") as one:
        for sql in (f"{OURS} SET app.tenant = 'evil'", f"{OURS} CREATE TEMP TABLE mine (a int)", f"{OURS} SELECT pg_advisory_lock(1)"):
            if not told(one, sql):
                break
    return ask_as_newcomer(pooler, f"{THEIRS} INSERT INTO orders VALUES (1)"), ask_as_newcomer(pooler, f"{LAST} SELECT 1")


@pytest.mark.parametrize("outcome", ["error", "fatal", "close"])
@pytest.mark.parametrize("which", [1, 2, 3, 4])
@pytest.mark.parametrize("reset", ["auto", "always"])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_server_whose_cleaning_fails_is_given_to_no_client(start, mode, reset, which, outcome):
    """After the first client the pooler's own statement number `which` fails, whatever it is."""
    own = {}

    def answer(connection, number, text):
        if OURS in text:
            own.setdefault(connection, 0)
        elif THEIRS not in text and LAST not in text and connection in own:
            own[connection] += 1
            if own[connection] == which and connection == min(own):
                return outcome
        return None

    mock = Mock(answer)
    pooler = start(databases={"mock": {"url": f"postgres://127.0.0.1:{mock.port}/mock", "reset": reset}}, users={"app": PASSWORDS["app"]}, mode=mode, max_size=1,
                   max_wait_time="4s")
    try:
        answered, last = lives(pooler)
        failed = [at for at, (*_, result) in enumerate(mock.seen) if result]
        asked = [at for at, (_, _, text, _) in enumerate(mock.seen) if THEIRS in text]
        assert len(asked) <= 1, f"done {len(asked)} times"
        assert asked or not answered, "answered although no server was asked"
        if failed:
            broken, rest = mock.seen[failed[0]], mock.seen[failed[0] + 1:]
            here = [(text, result) for connection, _, text, result in rest if connection == broken[0]]
            later = [at for at, (text, _) in enumerate(here) if THEIRS in text or LAST in text]
            # A question may fail if it is repeated and answered, or if all state is discarded afterwards.
            channels = "pg_listening_channels"
            cleaned = later and any((is_cleaning(text) or channels in text and channels in broken[2]) and not result
                                    for text, result in here[: later[0]])
            assert not later or cleaned, f"{here[later[0]][0]!r} on the server that failed at {broken[2][-80:]!r}"
        assert last, "served again afterwards"
    finally:
        mock.close()


REQUESTS = {
    "simple": [w.query(f"{THEIRS} INSERT INTO orders VALUES (1)")],
    "commit": [w.query(f"{THEIRS} COMMIT; INSERT INTO orders VALUES (1)")],
    "extended": [w.parse(f"{THEIRS} INSERT INTO orders VALUES (1)"), w.bind(), w.execute(), w.SYNC],
}


@pytest.mark.parametrize("request_of", REQUESTS)
@pytest.mark.parametrize("which, outcome", [(0, "nothing"), *itertools.product([1, 2, 10], ["error", "fatal", "close", "late"])])
@pytest.mark.parametrize("kept", [False, True], ids=["whole", "statements kept"])
def test_a_step_of_a_cleaning_that_fails_stops_all_that_follows(start, kept, which, outcome, request_of):
    """The cleaning runs statement by statement, before the next client's request; 0: nothing fails. It is done twice,
    because the second time the server has what it keeps for the steps."""
    for again in range(2):
        own, turn = {}, []

        def answer(connection, number, text):
            if THEIRS in text:
                # What is cleaned after that does not matter here.
                own.clear()
            elif OURS in text:
                own[connection] = 0
                # Long enough for the other client to wait for this server.
                time.sleep(0.12 if turn else 0)
            elif turn and LAST not in text and connection in own:
                own[connection] += 1
                if own[connection] == which and connection == min(own):
                    return outcome
            return None

        mock = Mock(answer)
        pooler = start(databases={"mock": {"url": f"postgres://127.0.0.1:{mock.port}/mock", "reset": "always"}}, users={"app": PASSWORDS["app"]}, max_size=1, max_wait_time="4s")
        try:
            with pooler.open(5).login("app", PASSWORDS["app"], "mock") as one, pooler.open(5).login("app", PASSWORDS["app"], "mock") as other:
                leaves = (w.parse(f"{OURS} SELECT 1", "s"), w.bind(name="s"), w.execute(), w.SYNC) if kept else (w.query(f"{OURS} SELECT 1"),)
                for session in [other, one] * again:
                    session.send(*leaves)
                    session.until_ready()
                turn.append(True)
                one.send(*(leaves[1:] if kept and again else leaves))
                time.sleep(0.01)
                try:
                    other.send(*REQUESTS[request_of])
                    answers, _ = other.until_ready()
                    answered = all(kind != b"E" for kind, _ in answers)
                except (w.ServerError, w.Closed):
                    answered = False
                one.until_ready()
            asked = [connection for connection, _, text, _ in mock.seen if THEIRS in text]
            failed = [(connection, text) for connection, _, text, result in mock.seen if result]
            assert len(asked) <= 1 and answered == bool(asked), (asked, answered)
            if failed:
                assert failed[0][0] not in asked, f"done on the server that failed at {failed[0][1]!r}"
                assert answered or outcome == "close", "another server does it: what was said tells that nothing of it was done"
            else:
                assert answered, "nothing failed"
                steps = [text for connection, _, text, _ in mock.seen]
                assert [text for text in steps if (text == "RESET ALL" if kept else text == "DISCARD ALL")], "it was cleaned by steps"
            assert ask_as_newcomer(pooler, f"{LAST} SELECT 1"), "served again afterwards"
        finally:
            mock.close()


@pytest.mark.parametrize("kept", [False, True], ids=["whole", "statements kept"])
def test_a_cleaning_by_steps_costs_no_server(start, kept):
    """PostgreSQL executes all steps, the first time and later, whatever each client has set. Prepared statements
    survive."""
    pooler = start(max_size=1, reset="always")
    ask = (w.parse("SELECT pg_backend_pid()::text, coalesce(current_setting('app.tenant', true), '')", "s"), w.bind(name="s"), w.execute(), w.SYNC)
    backends = set()
    with pooler.wire() as one, pooler.wire() as other:
        one.query("SET app.tenant = 'one'")
        for n in range(20):
            for session, tenant in ((one, "one"), (other, "")):
                if not kept:
                    rows = session.query("SELECT pg_backend_pid()::text, coalesce(current_setting('app.tenant', true), '')")
                else:
                    session.send(*(ask[1:] if n else ask))
                    rows = session.rows()
                backends.add(rows[0][0])
                assert rows[0][1] == tenant
    assert len(backends) == 1, backends


@pytest.mark.parametrize("version, discards", [("14.4", False), ("14.14", True), ("15.8", False), ("18.0", True)])
def test_discard_all_is_trusted_only_where_it_is_for_good(start, version, discards):
    """PostgreSQL 14.4 may undo it with the request behind it, and 15.8 leaves a trace of the role."""
    mock = Mock(lambda *_: None, server_version=version)
    pooler = start(databases={"mock": {"url": f"postgres://127.0.0.1:{mock.port}/mock", "reset": "always"}}, users={"app": PASSWORDS["app"]}, max_size=1)
    try:
        with pooler.open(5).login("app", PASSWORDS["app"], "mock") as one, pooler.open(5).login("app", PASSWORDS["app"], "mock") as other:
            for session in (one, other) * 20:
                session.send(w.query("SELECT 1"))
                session.until_ready()
        texts = [text for _, _, text, _ in mock.seen]
        assert ("DISCARD ALL" in texts) == discards
        assert any("RESET ALL" in text for text in texts) or discards
    finally:
        mock.close()


@pytest.mark.parametrize("request_of", ["simple", "extended"])
def test_a_cleaning_leaves_in_one_write_with_the_request_behind_it(start, cluster, request_of):
    with Relay(cluster.port) as relay:
        pooler = start(max_size=1, reset="always", databases={"bench": {"url": cluster.url().replace(f":{cluster.port}/", f":{relay.port}/")}})
        with pooler.wire() as one, pooler.wire() as other:
            one.query("SELECT 1")
            relay.keep, before = True, relay.segments()
            for _ in range(50):
                # The other client waits for the server by now.
                one.send(w.query("SELECT pg_sleep(.005)"))
                other.send(*([w.query("SELECT 'asked'")] if request_of == "simple" else [w.parse("SELECT 'asked'"), w.bind(), w.execute(), w.SYNC]))
                one.rows()
                assert [tuple(row) for row in other.rows()] == [("asked",)]
            sent = relay.segments() - before
    texts = b"".join(data for way, data in relay.recorded if way == "->")
    # If no client took the server within a millisecond, it was cleaned at once, by a Query.
    apart, together = texts.count(b"UNLISTEN *;"), texts.count(b"\0DISCARD ALL\0")
    assert together >= 10
    # Some statements may have been questions about the catalogue.
    assert sent <= 100 + apart + 5, f"{together} cleanings went with a request, {apart} on their own, in {sent} writes"


@pytest.mark.parametrize("settle", ["SET app.other = 'x'", "SELECT 1"])
def test_settings_that_cannot_be_brought_along_end_that_server_or_client(start, settle):
    """The server refuses a client's own settings: the client's request is not executed without them."""
    refused = []

    def answer(connection, number, text):
        if OURS not in text and THEIRS not in text and "wanted" in text:
            refused.append(connection)
            return "error"
        return None

    mock = Mock(answer)
    pooler = start(databases={"mock": {"url": f"postgres://127.0.0.1:{mock.port}/mock"}}, users={"app": PASSWORDS["app"]}, max_size=1, max_wait_time="4s")
    try:
        for _ in range(3):
            ask_as_newcomer(pooler, f"{OURS} {settle}")
            ask_as_newcomer(pooler, f"{THEIRS} INSERT INTO orders VALUES (1)", options="-c app.tenant=wanted")
        assert refused, "they were tried"
        done = [connection for connection, _, text, _ in mock.seen if THEIRS in text]
        assert not done, "carried out although its settings were refused"
        assert ask_as_newcomer(pooler, f"{LAST} SELECT 1"), "others are served"
    finally:
        mock.close()


def test_a_server_that_is_asked_for_its_catalogue_and_says_nothing_is_given_up(start):
    """No client has the server while it is asked, so no client's time-out applies."""
    changed, silent = threading.Event(), []

    def answer(connection, number, text):
        if OURS in text:
            changed.set()
        if "pg_proc" in text and changed.is_set() and not silent:
            silent.append(connection)
            return "silence"
        return None

    mock = Mock(answer)
    pooler = start(databases={"mock": {"url": f"postgres://127.0.0.1:{mock.port}/mock"}}, users={"app": PASSWORDS["app"]}, max_size=1,
                   connect_time="1s", max_wait_time="4s")
    try:
        with pooler.open(5).login("app", PASSWORDS["app"], "mock") as one:
            assert told(one, f"{OURS} CREATE TABLE made (a int)")
            eventually("it is asked", lambda: silent)
            assert ask_as_newcomer(pooler, f"{LAST} SELECT 1"), "others are served, by another server"
        assert [connection for connection, _, text, _ in mock.seen if LAST in text] == [silent[0] + 1]
        eventually("it is told", lambda: "within the 1s of connect_time" in pooler.log())
    finally:
        mock.close()


INSERT = "INSERT INTO orders (id, note) VALUES (1, 'handed over')"
# A first request that would end a failed transaction of the client before.
FIRST = {
    "simple": [w.query(f"ROLLBACK; {INSERT}")],
    "two at once": [w.query("ROLLBACK"), w.query(INSERT)],
    "extended": [w.parse("ROLLBACK"), w.bind(), w.execute(), w.parse(INSERT), w.bind(), w.execute(), w.SYNC],
    "named": [w.parse("ROLLBACK", "r"), w.bind(name="r"), w.execute(), w.SYNC, w.parse(INSERT), w.bind(), w.execute(), w.SYNC],
    "commit": [w.query(f"/* a */ COMMIT; {INSERT}")],
    "end behind a string": [w.query(f"SELECT E'a'\n'b\\''; END; {INSERT}")],
    "savepoint": [w.query("SAVEPOINT s"), w.query("ROLLBACK TO s"), w.query(INSERT)],
    "plain": [w.query(INSERT)],
}


@pytest.mark.parametrize("first", FIRST)
def test_a_request_that_ends_a_transaction_does_not_get_past_a_cleaning_that_has_failed(start, cluster, first):
    """The cleaning is cancelled, by the time-out that was left or by a cancel request: the first request of the next
    client is not executed in that state, whatever it is.
    """
    shared = Sharing(start, cluster, wait="8s")
    with Canceller(cluster, 0.001):
        for n in range(30):
            try:
                with shared.session() as one:
                    do(one, "; ".join(f"CREATE TEMP TABLE t{i} (a text PRIMARY KEY)" for i in range(10)))
                    do(one, "CREATE TEMP TABLE orders (LIKE public.orders); SET app.tenant = 'evil'; SET ROLE leaks_reader; SET statement_timeout = '1ms'")
            except (w.ServerError, w.Closed):
                pass
            try:
                with shared.session() as other:
                    other.send(*FIRST[first])
                    for _ in range(sum(part[:1] in (b"Q", b"S") for part in FIRST[first])):
                        other.until_ready()
            except (w.ServerError, w.Closed):
                pass
    rows = cluster.query("DELETE FROM public.orders WHERE note = 'handed over' RETURNING coalesce(tenant, ''), who::text", database=world.QUIET)
    assert rows and set(rows) == {("", "app")}, "done in the state of another, or never"
