"""`compatible_with = "pgbouncer"`: errors and parameters are those of PgBouncer 1.26, which is asked the same where it is
installed (PGBOUNCER=path, or .venv/pgbouncer/run)."""

import contextlib
import os
import pathlib
import re
import struct
import subprocess
import time

import pytest

from support import pooler as poolers
from support import postgres_wire
from support.postgres_cluster import PASSWORDS, unprivileged
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

NEWEST = os.environ.get("PGBOUNCER") or str(poolers.ROOT / ".venv/pgbouncer/run")


def version_of_pgbouncer():
    if not os.access(NEWEST, os.X_OK):
        return ""
    return subprocess.run([NEWEST, "-V"], capture_output=True, text=True, **unprivileged()).stdout.split("\n")[0]


class NewestPgBouncer(poolers.PgBouncer):
    @staticmethod
    def binary():
        return NEWEST


@pytest.fixture(params=["poolhouse", "pgbouncer"])
def begin(request, start, cluster, workspace):
    """Starts Poolhouse in PgBouncer's place, or PgBouncer 1.26 itself."""
    if request.param == "poolhouse":
        yield lambda **settings: start(compatible_with="pgbouncer", **settings)
        return
    if "1.26" not in version_of_pgbouncer():
        pytest.skip("PgBouncer 1.26 is not installed")
    started = []

    def start_pgbouncer(**settings):
        directory = pathlib.Path(workspace) / f"pgbouncer-{os.urandom(4).hex()}"
        directory.mkdir()
        made = NewestPgBouncer(directory, cluster)
        started.append(made)
        settings = {key: int(value) if isinstance(value, bool) else value for key, value in settings.items()}
        return made.start(**settings)

    yield start_pgbouncer
    for made in started:
        made.stop()


def refusal(act):
    """The SQLSTATE and the text of the error with which `act` ends."""
    with pytest.raises(postgres_wire.ServerError) as refused:
        act()
    return refused.value.severity, refused.value.sqlstate, refused.value.text


def last_words(wire):
    """The last error before the connection is closed."""
    error = None
    with contextlib.suppress(postgres_wire.Closed):
        while True:
            kind, body = wire.message()
            if kind == b"E":
                error = postgres_wire.ServerError(postgres_wire.error_fields(body))
    return error.severity, error.sqlstate, error.text


def fatal(text):
    return "FATAL", "08P01", text


def test_parameters_tell_drivers_what_they_talk_to(begin):
    pooler = begin()
    with pooler.wire() as client:
        told = {name: value for name, value in client.parameters.items() if name.startswith("pgbouncer.")}
        assert (told["pgbouncer.version"], told["pgbouncer.pool_mode"]) == ("1.26.1", "transaction")
        assert int(told["pgbouncer.max_prepared_statements"]) > 0


def test_logins_that_fail(begin):
    pooler = begin(users={"app": PASSWORDS["app"]})
    assert refusal(lambda: pooler.wire(database="nowhere")) == fatal("no such database: nowhere")
    assert refusal(lambda: pooler.wire(password="wrong")) == fatal("SASL authentication failed")
    assert refusal(lambda: pooler.wire("stranger", "x")) == fatal("SASL authentication failed")
    with pooler.open() as client:
        client.send(postgres_wire.startup(database="bench"))
        assert last_words(client) == fatal("no username supplied")
    with pooler.open() as client:
        client.send(struct.pack("!II", 8, 2 << 16))
        assert last_words(client) == fatal("old V2 protocol not supported")


def test_too_many_clients(begin):
    pooler = begin(hard_limit=2, newcomer_wait_time="off")
    with pooler.wire(), pooler.wire():
        assert refusal(pooler.wire) == fatal("no more connections allowed (max_client_conn)")


def test_a_server_that_does_not_come_in_time(begin):
    pooler = begin(max_size=1, max_wait_time="1s")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        waiter.send(postgres_wire.query("SELECT 1"))
        assert last_words(waiter) == fatal("query_wait_timeout")


@pytest.mark.parametrize("setting, text", [
    ({"client_idle_time": "1s"}, "client_idle_timeout"),
    ({"query_time": "1s"}, "query timeout"),
    ({"transaction_idle_time": "1s"}, "idle transaction timeout"),
])
def test_time_outs(begin, setting, text):
    pooler = begin(**setting)
    with pooler.wire() as client:
        if text == "query timeout":
            client.send(postgres_wire.query("SELECT pg_sleep(4)"))
        elif text == "idle transaction timeout":
            client.query("BEGIN")
        assert last_words(client) == fatal(text)


def test_a_login_that_takes_too_long(begin):
    pooler = begin(login_time="1s")
    with pooler.open() as client:
        client.send(postgres_wire.startup(user="app", database="bench"))
        assert last_words(client) == fatal("client_login_timeout")


def test_a_server_that_is_lost(begin, cluster):
    pooler = begin()
    with pooler.wire() as client:
        client.query("BEGIN")
        (pid,), = client.query("SELECT pg_backend_pid()")
        cluster.query("SELECT pg_terminate_backend(%s)", int(pid))
        severity, sqlstate, text = last_words(client)
        # PgBouncer adds an error of its own behind that of the database.
        assert (severity, sqlstate, text) in (fatal("server conn crashed?"), ("FATAL", "57P01", "terminating connection due to administrator command"))


def test_statement_mode(begin):
    pooler = begin(mode="statement")
    with pooler.wire() as client:
        client.send(postgres_wire.query("BEGIN"))
        assert last_words(client) == fatal("transaction blocks not allowed in statement pooling mode")


def test_what_is_no_message(begin):
    pooler = begin()
    with pooler.wire() as client:
        client.send(b"?\0\0\0\4")
        assert last_words(client) == fatal("unknown pkt")
    with pooler.wire() as client:
        client.send(b"Q\x7f\xff\xff\xff")
        assert last_words(client)[2].startswith("bad packet header: '517fffffff")


def test_messages_that_are_too_long(begin):
    pooler = begin(max_message_size=2000)
    with pooler.wire() as client:
        client.send(postgres_wire.query("SELECT " + "1" * 3000))
        assert last_words(client) == fatal("bad packet header: '5100000bc453454c'")
    with pooler.wire() as client:
        client.send(postgres_wire.query("SELECT repeat('x', 5000)"))
        assert last_words(client) == fatal("bad pkt header")


def test_simple_queries_may_be_refused(begin):
    pooler = begin(refuse_simple_queries=True)
    with pooler.wire() as client:
        client.send(postgres_wire.parse("SELECT 1"), postgres_wire.bind(), postgres_wire.execute(), postgres_wire.SYNC)
        assert client.rows() == [["1"]]
        client.send(postgres_wire.query("SELECT 1"))
        assert last_words(client) == fatal("PQexec disallowed")


def test_a_client_that_waits_is_told(begin):
    pooler = begin(max_size=1, max_wait_time="10s", wait_notice_time="1s")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        began = time.monotonic()
        waiter.send(postgres_wire.query("SELECT 'served'"))
        kind, body = waiter.message()
        assert kind == b"N" and 0.9 < time.monotonic() - began < 5
        notice = postgres_wire.error_fields(body)
        assert (notice["S"], notice["C"]) == ("NOTICE", "00000")
        assert notice["M"] == "No server connection available in postgres backend, client being queued"
        holder.query("COMMIT")
        assert waiter.rows() == [["served"]]


def test_a_client_that_logs_in_is_told(begin):
    pooler = begin(login_notice="maintenance at ten")
    with pooler.wire() as client:
        (notice,) = client.notices
        assert (notice["S"], notice["C"], notice["M"]) == ("NOTICE", "00000", "maintenance at ten")


def test_the_words_of_a_database_that_refuses_the_login(start, cluster):
    wrong = cluster.url().replace(":app", ":wrong")
    pooler = start(compatible_with="pgbouncer", databases={"bench": {"url": wrong}})
    assert refusal(pooler.wire) == ("FATAL", "28P01", 'password authentication failed for user "app"')


def test_a_reload_changes_the_rules_of_a_listener(start):
    pooler = start()
    with pooler.wire() as client:
        assert client.query("SELECT 1") == [["1"]]
        pooler.rewrite(refuse_simple_queries=True, login_notice="changed")
        pooler.signal(1)
        eventually("it was read again", lambda: pooler.metric("poolhouse_reloads_total") >= 1)
        with pooler.wire() as other:
            assert other.notices[0]["M"] == "changed"
        # The client that was there before is under the new rules within a second.
        time.sleep(1.2)
        client.send(postgres_wire.query("SELECT 1"))
        assert last_words(client)[:2] == ("FATAL", "0A000")


def test_verifiers_are_made_with_the_rounds_that_are_configured(start):
    pooler = start()
    text = pooler.config_path.read_text() + "[auth]\nscram_iterations = 1234\n"
    pooler.config_path.write_text(text)
    pooler.signal(1)
    eventually("it was read again", lambda: pooler.metric("poolhouse_reloads_total") >= 1)
    with pooler.open() as client:
        client.send(postgres_wire.startup(user="app", database="bench"))
        client.message()
        initial = b"n,,n=,r=abcdefgh"
        client.send(postgres_wire.message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(initial)) + initial))
        assert client.message()[1].endswith(b",i=1234")
    assert pooler.wire().query("SELECT 1") == [["1"]]


def test_the_log_has_the_shape_that_scripts_look_for(begin):
    pooler = begin(client_idle_time="1s", log_connections=True, log_disconnections=True)
    with pooler.wire():
        pass
    with pooler.wire() as idle:
        assert last_words(idle) == fatal("client_idle_timeout")
    refusal(lambda: pooler.wire(database="nowhere"))
    head = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} UTC \[\d+\] "
    client = r"C-0x[0-9a-f]+: bench/app@127\.0\.0\.1:\d+ "
    for level, text in [
        ("LOG", client + r"login attempt: db=bench user=app tls=no"),
        ("LOG", client + r"closing because: client unexpected eof \(age=\d+s\)$"),
        ("LOG", client + r"closing because: client_idle_timeout \(age=\d+s\)$"),
        ("WARNING", client + r"pooler error: client_idle_timeout$"),
        ("WARNING", r"C-0x[0-9a-f]+: \S+@127\.0\.0\.1:\d+ pooler error: no such database: nowhere$"),
    ]:
        eventually(text, lambda: re.search(head + level + " " + text, pooler.log(), re.MULTILINE))
