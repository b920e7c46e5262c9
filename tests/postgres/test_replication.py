"""Replication connections: each has a server of its own, which takes the client's own start-up parameters and goes when
the client goes. Real programs of PostgreSQL use them through Poolhouse."""

import contextlib
import json
import os
import signal
import subprocess
import time

import psycopg2
import psycopg2.extras
import pytest

from support import postgres_wire
from support.postgres_cluster import PASSWORDS, Cluster, SecureCluster, program, unprivileged
from support.pooler import BINARY
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

REPLICATION_HBA = """
local all postgres trust
host replication all 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 scram-sha-256
"""


class Publisher(SecureCluster):
    """A cluster that replicates, logically too. The role app may replicate, and app2 may not."""

    def configure(self):
        super().configure()
        (self.data / "pg_hba.conf").write_text(REPLICATION_HBA)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("wal_level = logical\nmax_wal_senders = 8\nwal_sender_timeout = 10s\n")

    def walsenders(self):
        return self.query("SELECT pid, application_name, state FROM pg_stat_replication ORDER BY pid")

    def streaming(self):
        return [name for _, name, state in self.walsenders() if state == "streaming"]


@pytest.fixture(scope="module")
def made_publisher(workspace, certificates):
    directory = workspace / "publisher"
    directory.mkdir()
    publisher = Publisher(directory, certificates.server)
    try:
        publisher.make()
        with publisher.superuser() as db:
            db.execute("ALTER ROLE app REPLICATION")
        yield publisher
    finally:
        if publisher.running():
            publisher.stop("immediate")


@pytest.fixture
def publisher(made_publisher):
    yield made_publisher
    with made_publisher.superuser() as db:
        eventually("no replication is left", lambda: not made_publisher.walsenders())
        db.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.fixture
def serve(start, publisher):
    """Starts a pooler in front of the publisher. Physical replication asks for a database called replication."""

    def serve_publisher(sslmode="disable", **settings):
        url = f"{publisher.url()}?sslmode={sslmode}"
        databases = {name: {"url": url} for name in ("bench", "replication")}
        users = {name: PASSWORDS[name] for name in ("app", "app2")}
        return start(databases=databases, users=users, **settings)

    return serve_publisher


def run_tool(pooler, name, *arguments, **more):
    """A program of PostgreSQL as a process, with its login in the environment."""
    environment = {**os.environ, "PGPASSWORD": PASSWORDS["app"], "PGCONNECT_TIMEOUT": "10", "PGSSLMODE": "disable",
                   **more.pop("environment", {})}
    command = [program(name), "-h", "127.0.0.1", "-p", str(pooler.port), "-U", "app", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more)


def succeed(process, seconds=60):
    output, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, output
    return output


def connect_logical(pooler, user="app", **more):
    parameters = {"connection_factory": psycopg2.extras.LogicalReplicationConnection, "sslmode": "disable", **more}
    return psycopg2.connect(**pooler.target(user), connect_timeout=10, **parameters)


def changes(cursor, count, seconds=20):
    """The next texts of a stream that begin with a table's name."""
    found, deadline = [], time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} came"
        message = cursor.read_message()
        if message is None:
            time.sleep(0.01)
        elif message.payload.startswith("table"):
            found.append(message.payload)
            message.cursor.send_feedback(flush_lsn=message.data_start)
    return found


@pytest.fixture
def table(publisher):
    with publisher.superuser("bench") as db:
        db.execute("DROP TABLE IF EXISTS events; CREATE TABLE events (n int PRIMARY KEY); ALTER TABLE events OWNER TO app")
        yield db


@pytest.mark.parametrize("tls", [False, True])
def test_pg_basebackup_makes_a_backup_that_is_whole(serve, publisher, certificates, workspace, tls):
    secure = {"tls": "require", "tls_cert": certificates.server.certificate, "tls_key": certificates.server.key}
    pooler = serve("require" if tls else "disable", **(secure if tls else {}))
    target = workspace / f"backup-{os.urandom(4).hex()}"
    environment = {"PGSSLMODE": "require"} if tls else {}
    succeed(run_tool(pooler, "pg_basebackup", "-D", target, "-X", "stream", "-c", "fast", environment=environment))
    subprocess.run([program("pg_verifybackup"), target], check=True, capture_output=True)
    eventually("both servers have gone", lambda: pooler.metric("poolhouse_servers") == 0)
    assert not publisher.walsenders()


def test_pg_receivewal_streams_until_it_leaves_and_its_walsender_goes_at_once(serve, publisher, workspace):
    pooler = serve()
    target = workspace / f"wal-{os.urandom(4).hex()}"
    target.mkdir()
    receiver = run_tool(pooler, "pg_receivewal", "-D", target, "--no-loop")
    eventually("it streams", lambda: publisher.streaming() == ["pg_receivewal"])
    publisher.query("SELECT pg_logical_emit_message(false, 'test', repeat('x', 100000))")
    publisher.query("SELECT pg_switch_wal()")
    eventually("a segment has come", lambda: any(len(file.name) == 24 for file in target.iterdir()))
    receiver.kill()
    receiver.wait()
    begin = time.monotonic()
    eventually("its walsender has gone", lambda: not publisher.walsenders())
    assert time.monotonic() - begin < 2


@pytest.mark.parametrize("sslmode", ["disable", "require"])
def test_logical_decoding_streams_changes_beside_pooled_clients(serve, certificates, table, sslmode):
    pooler = serve(sslmode, max_size=1, tls="allow", tls_cert=certificates.server.certificate, tls_key=certificates.server.key)
    with contextlib.closing(connect_logical(pooler, sslmode=sslmode)) as replication, replication.cursor() as cursor:
        cursor.create_replication_slot("changes", output_plugin="test_decoding")
        cursor.start_replication(slot_name="changes", decode=True)
        with pooler.connect() as client:
            for n in range(100):
                client.execute("INSERT INTO events VALUES (%s)", [n])
        got = changes(cursor, 100)
        assert got == [f"table public.events: INSERT: n[integer]:{n}" for n in range(100)]


def test_large_changes_pass_with_back_pressure(serve, table):
    pooler = serve()
    with table.cursor() as db:
        db.execute("CREATE TABLE IF NOT EXISTS texts (t text); ALTER TABLE texts OWNER TO app")
    with contextlib.closing(connect_logical(pooler)) as replication, replication.cursor() as cursor:
        cursor.create_replication_slot("large", output_plugin="test_decoding")
        cursor.start_replication(slot_name="large", decode=True)
        before = pooler.resident_kib()
        with table.cursor() as db:
            for _ in range(20):
                db.execute("INSERT INTO texts VALUES (repeat('x', 2000000))")
        # The client does not read for a while: PostgreSQL waits, and Poolhouse keeps little.
        time.sleep(1)
        assert pooler.resident_kib() - before < 8000
        assert [len(text) > 2_000_000 for text in changes(cursor, 20)] == [True] * 20


def test_a_subscription_follows_its_publisher_through_the_pooler(serve, publisher, table, workspace):
    pooler = serve()
    table.execute("INSERT INTO events SELECT generate_series(1, 1000)")
    table.execute("GRANT SELECT ON events TO app")
    table.execute("DROP PUBLICATION IF EXISTS news; CREATE PUBLICATION news FOR TABLE events")
    directory = workspace / f"subscriber-{os.urandom(4).hex()}"
    directory.mkdir()
    subscriber = Cluster(directory)
    try:
        subscriber.make()
        with subscriber.superuser("bench") as db:
            db.execute("CREATE TABLE events (n int PRIMARY KEY)")
            where = f"host=127.0.0.1 port={pooler.port} dbname=bench user=app password=''{PASSWORDS['app']}''"
            db.execute(f"CREATE SUBSCRIPTION news CONNECTION '{where}' PUBLICATION news")

            def count():
                return db.execute("SELECT count(*) FROM events").fetchone()[0]

            eventually("the first copy has come", lambda: count() == 1000)
            table.execute("INSERT INTO events SELECT generate_series(1001, 2000)")
            eventually("changes come", lambda: count() == 2000)
            # A new process in its place: the subscription connects again by itself.
            pooler.stop()
            pooler.launch([BINARY, "serve", "--config", str(pooler.config_path)])
            table.execute("INSERT INTO events VALUES (2001)")
            eventually("it goes on", lambda: count() == 2001)
            db.execute("DROP SUBSCRIPTION news")
    finally:
        if subscriber.running():
            subscriber.stop("immediate")


def test_the_refusal_of_the_database_reaches_the_client(serve):
    pooler = serve()
    with pytest.raises(postgres_wire.ServerError, match="invalid value for parameter .replication"):
        pooler.wire(replication="nonsense")


def test_a_role_without_the_right_is_refused_by_the_database(start, publisher):
    url = publisher.url(user="app2") + "?sslmode=disable"
    pooler = start(databases={"bench": {"url": url}}, users={"app2": PASSWORDS["app2"]})
    begin = time.monotonic()
    with pytest.raises(psycopg2.OperationalError, match="must be superuser or replication role"):
        connect_logical(pooler, "app2")
    assert time.monotonic() - begin < 2
    # The role gets the right: the next client is served.
    with publisher.superuser() as db:
        db.execute("ALTER ROLE app2 REPLICATION")
        try:
            connect_logical(pooler, "app2").close()
        finally:
            db.execute("ALTER ROLE app2 NOREPLICATION")


def test_a_wrong_password_is_refused_before_a_server_is_asked(serve, publisher):
    pooler = serve()
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        psycopg2.connect(**pooler.target("app", password="wrong"), sslmode="disable", replication="database",
                         connection_factory=psycopg2.extras.LogicalReplicationConnection)
    assert pooler.metric("poolhouse_servers") == 0


def test_its_own_parameters_reach_the_server_and_those_of_the_server_reach_it(serve, publisher):
    pooler = serve()
    with pooler.wire(replication="database", application_name="billing", TimeZone="Asia/Tokyo",
                     options="-c work_mem=5MB -c DateStyle=German") as client:
        assert client.parameters["application_name"] == "billing"
        assert (client.parameters["TimeZone"], client.parameters["DateStyle"]) == ("Asia/Tokyo", "German, DMY")
        assert client.query("SHOW work_mem") == [["5MB"]]
        (pid,), = client.query("SELECT pg_backend_pid()")
        assert publisher.query("SELECT application_name FROM pg_stat_activity WHERE pid = %s", pid) == [("billing",)]
        # What it leaves behind stays in its own server, which no other client gets.
        client.query("CREATE TEMP TABLE mine (n int)")
    with pooler.wire(replication="database", application_name="billing", TimeZone="Asia/Tokyo",
                     options="-c work_mem=5MB -c DateStyle=German") as client:
        assert client.query("SELECT pg_backend_pid()") != [[pid]]
        assert client.query("SELECT to_regclass('mine')") == [[None]]


def test_cancelling_reaches_a_query_of_a_replication_connection(serve):
    pooler = serve()
    with pooler.wire(replication="database") as client:
        client.send(postgres_wire.query("SELECT pg_sleep(60)"))
        time.sleep(0.2)
        with pooler.open() as cancel:
            cancel.send(postgres_wire.request(postgres_wire.CANCEL_REQUEST, client.key))
            assert cancel.closed_within(5)
        with pytest.raises(postgres_wire.ServerError) as cancelled:
            client.rows()
        assert cancelled.value.sqlstate == "57014"
        assert client.query("SELECT 1") == [["1"]]


def test_replication_connections_have_a_limit_of_their_own(serve):
    pooler = serve(max_replication_size=2, max_size=1, max_wait_time="300ms")
    with pooler.wire(replication="database") as one, pooler.wire(replication="database", application_name="other"):
        with pytest.raises(postgres_wire.ServerError, match="max_replication_size") as refused:
            pooler.wire(replication="database")
        assert refused.value.sqlstate == "53300"
        assert pooler.wire().query("SELECT 1") == [["1"]]
        one.close()
        eventually("its server has gone", lambda: pooler.metric("poolhouse_servers", database="bench/replication") == 1)
        pooler.wire(replication="database").close()


def test_they_count_for_the_limits_of_their_database(serve):
    pooler = serve(max_connections=1, max_wait_time="300ms")
    with pooler.wire(replication="database"):
        with pytest.raises(postgres_wire.ServerError) as refused:
            pooler.wire().query("SELECT 1")
        assert refused.value.sqlstate in ("53300", "57P03")


@pytest.mark.timing
def test_a_stream_is_not_idle_and_a_connection_without_one_is(serve, table):
    pooler = serve(client_idle_time="1s", query_time="1s")
    with contextlib.closing(connect_logical(pooler)) as replication, replication.cursor() as cursor:
        cursor.create_replication_slot("quiet", output_plugin="test_decoding")
        cursor.start_replication(slot_name="quiet", decode=True)
        with pooler.wire(replication="database") as idle:
            assert idle.closed_within(5)
        time.sleep(2)
        table.execute("INSERT INTO events VALUES (1)")
        assert len(changes(cursor, 1)) == 1


@pytest.mark.parametrize("order", ["kill", "drain", "stop"])
def test_a_stream_ends_when_an_operator_wants_it(serve, publisher, table, order):
    pooler = serve()
    with pooler.wire(replication="database") as client:
        client.query("CREATE_REPLICATION_SLOT ended TEMPORARY LOGICAL test_decoding")
        client.send(postgres_wire.query("START_REPLICATION SLOT ended LOGICAL 0/0"))
        client.expect(b"W")
        if order == "stop":
            pooler.signal(signal.SIGTERM)
        elif order == "drain":
            assert pooler.ctl("drain", "--database", "bench").returncode == 0
        else:
            (shown,) = json.loads(pooler.ctl("show", "clients", "--json", "-").stdout)["clients"]
            assert shown["database"] == "bench/replication"
            assert pooler.ctl("kill", shown["id"]).returncode == 0
        while (answer := client.take())[0] == b"d":
            pass
        assert (answer[0], postgres_wire.error_fields(answer[1])["C"]) == (b"E", "57P01")
        eventually("its walsender has gone", lambda: not publisher.walsenders())


def test_a_database_that_no_entry_serves_is_refused_with_advice(serve):
    pooler = serve()
    with pytest.raises(postgres_wire.ServerError, match="does not exist") as refused:
        pooler.wire(database="nowhere", replication="true")
    assert refused.value.sqlstate == "3D000"


def test_a_reload_leaves_a_stream_alone(serve, publisher, table):
    pooler = serve()
    with contextlib.closing(connect_logical(pooler)) as replication, replication.cursor() as cursor:
        cursor.create_replication_slot("reloaded", output_plugin="test_decoding")
        cursor.start_replication(slot_name="reloaded", decode=True)
        pooler.signal(signal.SIGHUP)
        eventually("it was read again", lambda: pooler.metric("poolhouse_reloads_total") >= 1)
        table.execute("INSERT INTO events VALUES (7)")
        assert changes(cursor, 1) == ["table public.events: INSERT: n[integer]:7"]


def test_a_refused_replication_connection_leaves_the_process_ready(serve, publisher):
    pooler = serve()
    connect_logical(pooler).close()
    with publisher.superuser() as db:
        db.execute("ALTER ROLE app NOREPLICATION")
        try:
            with pytest.raises(psycopg2.OperationalError, match="REPLICATION|replication"):
                connect_logical(pooler)
            assert pooler.get("/ready") == (200, "ready\n")
        finally:
            db.execute("ALTER ROLE app REPLICATION")
