"""poolhouse doctor without a Poolhouse: a database alone, and a PgBouncer. Real servers and clients cause trouble, and
healthy runs that resemble it.
"""

import contextlib
import subprocess
import threading
import time

import psycopg
import pytest

from support import pooler as poolers
from support import postgres_wire as w
from support.doctor import look, symptoms
from support.postgres_cluster import PASSWORDS, free_port
from support.threads import running_threads
from support.waiting import eventually

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

# A user that may see the sessions of others, and nothing else.
WATCHER = "watcher"
PASSWORD = "watcher secret"


@pytest.fixture
def watched(cluster):
    """The URL of the database for that user."""
    with cluster.superuser() as db:
        if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [WATCHER]).fetchall():
            db.execute(f"CREATE ROLE {WATCHER} LOGIN PASSWORD '{PASSWORD}' IN ROLE pg_monitor")
    return f"postgres://{WATCHER}:${{SECRET}}@127.0.0.1:{cluster.port}/postgres"


def direct(cluster, **more):
    return psycopg.connect(host="127.0.0.1", port=cluster.port, user="app", password=PASSWORDS["app"], dbname="bench", autocommit=True,
                           **more)


def doing(connect, many, what):
    """Runs `many` clients that each repeat `what(connection, over)`."""
    def work(over):
        with connect() as db:
            while not over.is_set():
                what(db, over)

    return running_threads(many, work)


def coming_and_going(connect, many, what):
    """Runs `many` clients at a time that connect, do `what(connection)` and leave, again and again."""
    def work(over):
        while not over.is_set():
            with contextlib.closing(connect()) as db:
                what(db)

    return running_threads(many, work)


def short(db, over):
    db.execute("SELECT pg_sleep(0.005)")
    over.wait(0.02)


def left_open(db, over):
    db.execute("BEGIN")
    db.execute("SELECT 1")
    over.wait(0.5)
    db.execute("COMMIT")


# -- the database alone


def see(url, *more, window="4s"):
    return look(url, *more, window=window, SECRET=PASSWORD)


def test_ordinary_work_on_a_database_is_healthy(cluster, watched):
    with doing(lambda: direct(cluster), 8, short):
        said, done = see(watched)
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), done
    assert said["of"] == "postgres" and "PostgreSQL" in said["looked_at"]
    assert any("too small" in unseen for unseen in said["unseen"])


def test_a_pooler_in_place_of_the_database_is_told(cluster, watched, start):
    databases = {"postgres": {"url": f"postgres://{WATCHER}:{PASSWORD}@127.0.0.1:{cluster.port}/postgres"}}
    made = start(users={WATCHER: PASSWORD}, databases=databases)
    told = [any("the pooler that answers at this address" in unseen for unseen in see(url, window="2s")[0]["unseen"])
            for url in (f"postgres://{WATCHER}:${{SECRET}}@127.0.0.1:{made.port}/postgres", watched)]
    assert told == [True, False]


def test_connections_for_each_query_are_named(cluster, watched):
    with coming_and_going(lambda: direct(cluster), 2, lambda db: db.execute("SELECT 1")):
        said, done = see(watched)
    assert symptoms(said) == ["ephemeral_clients"], said
    assert "bench as app from 127.0.0.1" in said["findings"][0]["of"] or said["findings"][0]["of"] == "all clients"


def test_pauses_within_transactions_are_named_without_a_pooler(cluster, watched):
    with doing(lambda: direct(cluster), 6, left_open):
        said, done = see(watched)
    assert symptoms(said) == ["transactions_left_open"], said


def test_a_limit_of_the_database_that_is_set_already_is_not_proposed(cluster, watched):
    with cluster.superuser() as db, contextlib.ExitStack() as stack:
        for _ in range(3):
            left = stack.enter_context(contextlib.closing(direct(cluster, application_name="leaky")))
            left.execute("BEGIN")
        db.execute("ALTER SYSTEM SET idle_in_transaction_session_timeout = '20s'")
        db.execute("SELECT pg_reload_conf()")
        try:
            said, done = see(watched)
        finally:
            db.execute("ALTER SYSTEM RESET idle_in_transaction_session_timeout")
            db.execute("SELECT pg_reload_conf()")
    assert symptoms(said) == ["leak"], said
    (finding,) = said["findings"]
    assert finding["setting"] is None and "idle_in_transaction_session_timeout is 20s already" in finding["advice"], finding


def test_transactions_that_never_end_are_a_leak_and_not_the_locks_they_cause(cluster, watched):
    with direct(cluster) as db:
        db.execute("DROP TABLE IF EXISTS kept; CREATE TABLE kept (n int); INSERT INTO kept VALUES (0)")
    with contextlib.ExitStack() as stack:
        for n in range(3):
            db = stack.enter_context(contextlib.closing(direct(cluster, application_name="leaky")))
            db.execute("BEGIN")
            db.execute("UPDATE kept SET n = 1" if n == 0 else "SELECT 1")
        blocked = [stack.enter_context(contextlib.closing(direct(cluster, application_name="victim"))) for _ in range(3)]
        threads = [threading.Thread(target=swallow, args=(db,)) for db in blocked]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        said, done = see(watched)
        cluster.terminate()
        for thread in threads:
            thread.join()
    assert symptoms(said) == ["leak"], said
    assert "leaky" in said["findings"][0]["of"] and "waited for locks" in " ".join(said["findings"][0]["evidence"])


def swallow(db):
    with contextlib.suppress(psycopg.Error):
        db.execute("UPDATE kept SET n = n + 1")


def test_rows_that_everybody_wants_are_a_saturated_database(cluster, watched):
    with direct(cluster) as db:
        db.execute("DROP TABLE IF EXISTS wanted; CREATE TABLE wanted (n int); INSERT INTO wanted VALUES (0)")
    with doing(lambda: direct(cluster), 8, lambda db, over: db.execute("UPDATE wanted SET n = n + 1 WHERE pg_sleep(0.02) IS NOT NULL")):
        said, done = see(watched)
    assert symptoms(said) == ["server_saturated"], said
    assert "locks" in " ".join(said["findings"][0]["evidence"])


def test_more_statements_than_processors_are_a_saturated_database(cluster, watched):
    def work(db, over):
        db.execute("SELECT sum(n * n) FROM generate_series(1::bigint, 300000) AS n")

    with doing(lambda: direct(cluster), 8, work):
        said, done = see(watched, "--processors", 2)
    assert symptoms(said) == ["server_saturated"], said
    assert "2 processors" in " ".join(said["findings"][0]["evidence"])


@pytest.mark.in_the_matrix
def test_connections_that_are_kept_for_nothing_are_named(cluster, watched):
    with contextlib.ExitStack() as stack:
        for n in range(85):
            stack.enter_context(direct(cluster, application_name=f"web-{n % 4}"))
        stack.enter_context(doing(lambda: direct(cluster), 2, short))
        said, done = see(watched)
    assert symptoms(said) == ["over_provisioned"], said
    assert 2 <= int(said["findings"][0]["setting"]["to"]) <= 20


def test_pools_that_are_each_within_their_limit_and_together_have_every_connection_are_named(cluster, watched):
    def work(db, over):
        db.execute("SELECT pg_sleep(0.3)")

    with contextlib.ExitStack() as stack:
        for n in range(3):
            stack.enter_context(doing(lambda n=n: direct(cluster, application_name=f"web-{n}"), 31, work))
        eventually("all are there", lambda: len(cluster.backends()) >= 93)
        said, done = see(watched)
    assert symptoms(said) == ["limits_add_up"], said
    finding = said["findings"][0]
    assert finding["setting"] == {"key": "max_size", "from": None, "to": "29"}, "nine tenths of 97, for three"


def test_clients_that_take_no_answer_may_be_gone(cluster, watched):
    question = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)"
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(contextlib.closing(w.Wire(cluster.port, 60).login("app", PASSWORDS["app"], "bench")))
            client.send(w.query(question))
        time.sleep(8)
        said, done = see(watched)
        cluster.terminate()
    assert (done.returncode, [one["between"] for one in said["undecided"]]) == (2, [["zombies"]]), said


@pytest.mark.in_the_matrix
def test_a_pool_that_closes_idle_connections_before_each_burst_is_churn(cluster, watched):
    over = threading.Event()

    def pool():
        while not over.is_set():
            with contextlib.ExitStack() as stack:
                made = [stack.enter_context(direct(cluster)) for _ in range(8)]
                for _ in range(10):
                    for db in made:
                        db.execute("SELECT 1")
                over.wait(1.4)
            over.wait(0.3)

    thread = threading.Thread(target=pool)
    thread.start()
    try:
        said, done = see(watched, window="10s")
    finally:
        over.set()
        thread.join()
    assert symptoms(said) == ["idle_churn"], said


def test_a_deployment_on_a_database_is_healthy(cluster, watched):
    """One instance after another closes its connections, and a new one opens as many, with some work."""
    with contextlib.ExitStack() as stack:
        instances = [[direct(cluster) for _ in range(6)] for _ in range(4)]
        stack.callback(lambda: [db.close() for instance in instances for db in instance])
        stack.enter_context(doing(lambda: direct(cluster), 3, short))

        def deploy():
            for instance in instances:
                time.sleep(0.9)
                for n, db in enumerate(instance):
                    db.close()
                    instance[n] = direct(cluster)
                    instance[n].execute("SELECT 1")

        deploying = threading.Thread(target=deploy)
        deploying.start()
        said, done = see(watched, window="5s")
        deploying.join()
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), said


def test_a_user_that_may_not_see_others_is_told_what_would_help(cluster):
    url = f"postgres://app2:${{SECRET}}@127.0.0.1:{cluster.port}/bench"
    with doing(lambda: direct(cluster), 3, left_open):
        said, done = look(url, SECRET=PASSWORDS["app2"])
    assert (done.returncode, said["findings"]) == (0, []), said
    assert any("3 connections of other users" in unseen and "pg_monitor" in unseen for unseen in said["unseen"]), said


def test_a_recording_of_a_database_is_examined_as_what_was_seen(cluster, watched, tmp_path):
    path = tmp_path / "looks.jsonl"
    with doing(lambda: direct(cluster), 6, left_open):
        seen, done = see(watched, "--record", path)
    told, again = look(path)
    assert told == seen and again.returncode == done.returncode == 1
    text = path.read_text()
    assert "secret" not in text and "pg_sleep" not in text and "SELECT" not in text


def test_a_restart_of_the_database_is_told_and_what_follows_counts(cluster, watched):
    said = []
    looking = threading.Thread(target=lambda: said.append(see(watched, window="8s")))
    looking.start()
    time.sleep(2)
    cluster.stop()
    cluster.start()
    looking.join()
    said, done = said[0]
    assert done.returncode == 0 and "restarted" in done.stderr and said["window_s"] < 7, done


def test_a_database_that_cannot_be_looked_at_says_why_without_the_password(cluster):
    for url, part in [
        (f"postgres://app:hunter2@127.0.0.1:{cluster.port}/bench", "password authentication failed"),
        (f"postgres://app:hunter2@127.0.0.1:{free_port()}/bench", "refused"),
        ("ftp://:hunter2@127.0.0.1:1", "none of these"),
    ]:
        said, done = look(url)
        assert done.returncode == 3 and part in done.stderr and "hunter2" not in done.stderr, done


def test_a_database_without_a_connection_left_is_itself_the_answer(cluster, watched):
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(psycopg.OperationalError):
            for _ in range(100):
                stack.enter_context(direct(cluster))
        said, done = see(watched)
    assert done.returncode == 3 and "every connection that it allows is taken" in done.stderr, done


# -- PgBouncer


@pytest.fixture
def bouncer(cluster, workspace, request):
    """Starts a PgBouncer with these settings."""
    started = []

    def start(**settings):
        directory = workspace / f"b{len(started)}-{time.monotonic_ns()}"
        directory.mkdir()
        made = poolers.PgBouncer(directory, cluster)
        users = settings.pop("users", {"app": PASSWORDS["app"], WATCHER: PASSWORD})
        ini = {"stats_users": WATCHER, "stats_period": 1, **settings.pop("ini", {})}
        started.append(made)
        made.start(users=users, ini=ini, **settings)
        made.console = f"postgres://{WATCHER}:${{SECRET}}@127.0.0.1:{made.port}/pgbouncer"
        return made

    if not poolers.PgBouncer.binary() or subprocess.run([poolers.PgBouncer.binary(), "--version"], capture_output=True).returncode:
        pytest.skip("there is no PgBouncer here")
    yield start
    for made in started:
        made.stop()


def sleep(seconds, pause=0):
    def once(client, over):
        client.query(f"SELECT pg_sleep({seconds})")
        over.wait(pause)
    return once


def open_for_long(client, over):
    client.query("BEGIN")
    client.query("SELECT 1")
    over.wait(0.5)
    client.query("COMMIT")


@contextlib.contextmanager
def looking(url, *more, window):
    """Runs the doctor meanwhile and appends its result to the list."""
    said = []
    thread = threading.Thread(target=lambda: said.append(see(url, *more, window=window)))
    thread.start()
    try:
        yield said
    finally:
        thread.join()


def test_a_pgbouncer_that_is_used_a_little_is_healthy(bouncer):
    made = bouncer(max_size=5)
    with doing(made.wire, 4, sleep(0.005, 0.1)):
        said, done = see(made.console)
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), done
    assert said["of"] == "pgbouncer" and "PgBouncer 1." in said["looked_at"] and said["pools"] == 1
    assert any("does not count logins" in unseen for unseen in said["unseen"]), said["unseen"]


@pytest.mark.in_the_matrix
def test_a_small_pool_of_a_pgbouncer_is_told_from_a_slow_database(bouncer):
    made = bouncer(max_size=4)
    with doing(made.wire, 1, sleep(0.01)), looking(made.console, window="8s") as said:
        time.sleep(2.5)
        with doing(made.wire, 15, sleep(0.01)):
            time.sleep(6)
    said, done = said[0]
    assert symptoms(said) == ["pool_too_small"], said
    assert said["findings"][0]["setting"] == {"key": "pool_size", "from": "4", "to": "8"}


def test_pauses_within_transactions_of_a_pgbouncer_are_named_without_the_database(bouncer):
    made = bouncer(max_size=4)
    with doing(made.wire, 10, open_for_long):
        time.sleep(0.5)
        said, done = see(made.console)
    assert symptoms(said) == ["transactions_left_open"], said


def test_a_limit_of_a_pgbouncer_that_is_set_already_is_not_proposed(cluster, bouncer):
    made = bouncer(max_size=4, ini={"idle_transaction_timeout": 25})
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(made.wire()).query("BEGIN")
        with doing(made.wire, 5, sleep(0.01)):
            time.sleep(2.5)
            said, done = see(made.console, "--database", cluster.url())
    assert symptoms(said) == ["leak"], (said, done.stderr)
    (finding,) = said["findings"]
    assert finding["setting"] is None and "idle_transaction_timeout = 25s is in force" in finding["advice"], finding


@pytest.mark.parametrize("mode, alone, beside", [
    ("transaction", ["leak", "server_saturated"], "leak"),
    ("session", ["leak", "server_saturated", "held_by_idle_clients"], "held_by_idle_clients"),
])
@pytest.mark.in_the_matrix
def test_servers_of_a_pgbouncer_that_stay_with_their_clients_need_the_database_to_tell(bouncer, watched, mode, alone, beside):
    made = bouncer(max_size=4, mode=mode)
    with contextlib.ExitStack() as stack:
        for _ in range(3 if mode == "transaction" else 4):
            stack.enter_context(made.wire()).query("BEGIN" if mode == "transaction" else "SELECT 1")
        stack.enter_context(waiting(made, 5))
        time.sleep(4)
        said, done = see(made.console)
        assert (done.returncode, [one["between"] for one in said["undecided"]]) == (2, [alone]), said
        assert "--database" in said["undecided"][0]["needs"]
        said, done = see(made.console, "--database", watched)
    assert symptoms(said) == [beside], said


@contextlib.contextmanager
def waiting(made, many):
    """`many` clients that repeat a query and may never be answered."""
    over = threading.Event()

    def work():
        with contextlib.suppress(Exception), made.wire(timeout=60) as client:
            while not over.is_set():
                client.query("SELECT pg_sleep(0.01)")

    threads = [threading.Thread(target=work, daemon=True) for _ in range(many)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()


def test_clients_of_a_pgbouncer_that_come_for_a_query_each_are_named(bouncer):
    made = bouncer(max_size=4)
    with coming_and_going(made.wire, 3, lambda client: client.query("SELECT 1")):
        said, done = see(made.console)
    assert symptoms(said) == ["ephemeral_clients"], said


def test_a_deployment_behind_a_pgbouncer_is_healthy(bouncer):
    made = bouncer(max_size=4)
    with contextlib.ExitStack() as stack, looking(made.console, window="4s") as said:
        time.sleep(1)
        for _ in range(100):
            stack.enter_context(made.wire()).query("SELECT 1")
        time.sleep(3)
    said, done = said[0]
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), said


def test_a_user_that_may_not_use_the_console_of_a_pgbouncer_is_told_which_users_may(bouncer, watched):
    made = bouncer(max_size=2, users={"app": PASSWORDS["app"], WATCHER: PASSWORD, "stranger": PASSWORD})
    said, done = see(made.console.replace(WATCHER, "stranger"), window="2s")
    assert done.returncode == 3 and "stats_users" in done.stderr and "not allowed" in done.stderr, done.stderr


def test_a_paused_pgbouncer_and_one_whose_database_is_gone_are_told_apart(bouncer, cluster, watched):
    made = bouncer(max_size=2, ini={"admin_users": "app"})
    with waiting(made, 3):
        time.sleep(0.5)
        with psycopg.connect(host="127.0.0.1", port=made.port, user="app", password=PASSWORDS["app"], dbname="pgbouncer", autocommit=True,
                             cursor_factory=psycopg.ClientCursor) as console:
            console.execute("PAUSE bench")
            said, done = see(made.console, window="3s")
            assert symptoms(said) == ["paused"], said
            console.execute("RESUME bench")
    with waiting(made, 3):
        time.sleep(0.5)
        cluster.stop("immediate")
        try:
            with waiting(made, 3):
                time.sleep(0.5)
                # The doctor also looks if the database beside it does not answer.
                said, done = see(made.console, "--database", watched, window="4s")
                assert "without the database beside it" in done.stderr and PASSWORD not in done.stderr
        finally:
            cluster.start()
    # A pause of all databases looks the same, unless the console has SHOW STATE.
    either = said["undecided"] and said["undecided"][0]["between"] == ["out_of_reach", "paused"]
    assert symptoms(said) == ["out_of_reach"] or either, said


def test_a_recording_of_a_pgbouncer_is_examined_as_what_was_seen(bouncer, watched, tmp_path):
    made = bouncer(max_size=4)
    path = tmp_path / "looks.jsonl"
    with doing(made.wire, 10, open_for_long):
        time.sleep(0.5)
        seen, done = see(made.console, "--database", watched, "--record", path)
    assert symptoms(seen) == ["transactions_left_open"], seen
    assert look(path)[0] == seen and "secret" not in path.read_text()


def test_a_database_beside_a_database_is_refused(cluster, watched):
    said, done = see(watched, "--database", watched)
    assert done.returncode == 3 and "--database is for who looks at a PgBouncer" in done.stderr
