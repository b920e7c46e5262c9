"""The same session of commands at PgBouncer's console and at ours: columns, types, errors and effects are compared."""

import os
import pathlib
import re
import struct
import subprocess
import time

import pytest

from support import postgres_wire, pooler
from support.postgres_wire import ServerError
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

ROOT = pathlib.Path(__file__).resolve().parents[2]
PGBOUNCER = os.environ.get("PGBOUNCER", str(ROOT / ".venv/pgbouncer/run"))
CONSOLE = {"admins": ["app"], "viewers": ["app2"]}
USERS = {"app": "app secret", "app2": "app2-secret", "plainuser": "plain-secret"}
EXPORTER = pathlib.Path("/usr/lib/python3/dist-packages/prometheus_pgbouncer_exporter")

LISTS = [
    "CLIENTS", "SERVERS", "POOLS", "DATABASES", "USERS", "LISTS", "CONFIG", "STATS", "STATS_TOTALS", "STATS_AVERAGES",
    "TOTALS", "SOCKETS", "ACTIVE_SOCKETS", "MEM", "DNS_HOSTS", "DNS_ZONES", "PEERS", "PEER_POOLS", "STATE", "VERSION",
    "HELP", "FDS",
]
# Commands whose whole answer is the same, whatever has happened before.
SAME = [
    "", ";", "SELECT 1", "SHOW", "SHOW FOO", "SHOW VERSION; SHOW STATE", "show version foo", "SHOW STATE", "show state ;",
    'SHOW "STATE"', "SHOW LISTS;;", "SHOW TIMEZONE", "show client_encoding", "SHOW default_transaction_isolation",
    "SHOW datestyle", "SHOW standard_conforming_strings", "SHOW server_version", "BEGIN", "SUSPEND", "SHOW HELP",
    "SET extra_float_digits = 3", "SET client_encoding TO 'UTF8'", "SET timezone = 'x'", "SET foo = 1", "SET foo",
    "SET query_timeout = nonsense", "SET query_timeout = 5", "SET query_timeout='5';", "SET query_timeout TO 0",
    "SET query_timeout = -1", "SET query_timeout = 1.5", "SET pool_mode = foo", "SET application_name = 'x'",
    "PAUSE nosuch", "RESUME nosuch", "KILL nosuch", "DISABLE nosuch", "ENABLE nosuch", "RECONNECT nosuch",
    "WAIT_CLOSE nosuch", "PAUSE pgbouncer", "RESUME pgbouncer", "KILL pgbouncer", "DISABLE pgbouncer",
    "RECONNECT pgbouncer", "PAUSE bench foo", "PAUSE 'bench'", "PAUSE my-db", 'PAUSE "a""b"', "DISABLE", "ENABLE",
    "RESUME", "RESUME bench", "RECONNECT", "RECONNECT bench", "WAIT_CLOSE", "WAIT_CLOSE bench", "ENABLE bench",
    "DISABLE bench", "ENABLE bench", "PAUSE bench", "RESUME bench", "PAUSE", "PAUSE", "SHOW STATE", "RESUME bench",
    "RESUME", "SHOW STATE", "KILL bench", "RESUME", "RESUME bench", "KILL_CLIENT", "KILL_CLIENT abc",
    "KILL_CLIENT 999999", "KILL_CLIENT 0x55", "KILL_CLIENT 5 6", "RELOAD", "RELOAD foo", "SHUTDOWN foo", "x" * 600,
    "/* x */ SHOW STATE", "SHOWSTATE", "show\t\n state", "PAUSE \u00e4",
]


def is_new_enough():
    try:
        answer = subprocess.run([PGBOUNCER, "--version"], capture_output=True, text=True, timeout=10).stdout
    except OSError:
        return False
    found = re.search(r"PgBouncer (\d+)\.(\d+)", answer)
    return bool(found) and (int(found[1]), int(found[2])) >= (1, 26)


class Real(pooler.PgBouncer):
    """PgBouncer of the version whose console ours follows."""

    @staticmethod
    def binary():
        return PGBOUNCER


@pytest.fixture
def both(start, cluster, workspace, request):
    """PgBouncer and Poolhouse, with the same databases and users."""
    if not is_new_enough():
        pytest.skip("PgBouncer 1.26 is missing: scripts/pgbouncer.sh fetches it")
    directory = workspace / f"real-{os.urandom(4).hex()}"
    directory.mkdir()
    real = Real(directory, cluster).start(console=CONSOLE, users=USERS)
    yield real, start(console={"name": "pgbouncer", **CONSOLE}, users=USERS)
    real.stop()


def columns(body):
    """Names, types and lengths in a RowDescription."""
    count, at, found = struct.unpack_from("!H", body)[0], 2, []
    for _ in range(count):
        end = body.index(b"\0", at)
        _, _, oid, length, modifier, form = struct.unpack_from("!IHIhih", body, end + 1)
        found.append((body[at:end].decode(), oid, length, modifier, form))
        at = end + 19
    return found


def answer(wire, text):
    """What a command is answered with, apart from hints, which PgBouncer does not give."""
    wire.notices.clear()
    wire.send(postgres_wire.query(text))
    answers, status = wire.until_ready()
    found = [("status", status), *(("N", notice) for notice in wire.notices)]
    for kind, body in answers:
        if kind == b"T":
            found.append(("columns", columns(body)))
        elif kind == b"D":
            found.append(("row", postgres_wire.row(body)))
        elif kind == b"E":
            found.append(("error", {k: v for k, v in postgres_wire.error_fields(body).items() if k != "H"}))
        else:
            found.append((kind.decode(), body))
    return found


def at_console(one, user="app"):
    return one.wire(user, database="pgbouncer")


def test_lists_have_the_same_columns_and_types(both):
    clients = [one.wire() for one in both]
    for client in clients:
        client.query("BEGIN")
    real, ours = map(at_console, both)
    with real, ours:
        for what in LISTS:
            theirs, mine = ([part for part in answer(console, f"SHOW {what}") if part[0] != "row"] for console in (real, ours))
            assert mine == theirs, what
        for what in ("TOTALS", "LISTS", "STATE"):
            theirs, mine = ([part[1][0] for part in answer(console, f"SHOW {what}") if part[0] == "row"] for console in (real, ours))
            assert mine == theirs, f"names of rows of SHOW {what}"


def test_commands_have_the_same_answers(both):
    real, ours = map(at_console, both)
    with real, ours:
        for text in SAME:
            assert answer(ours, text) == answer(real, text), text[:60]
    real, ours = (at_console(one, "app2") for one in both)
    with real, ours:
        for text in ("SHOW STATE", "PAUSE", "RELOAD", "SET query_timeout = 1", "SET timezone = 'x'", "DISABLE", "FOO"):
            assert answer(ours, text) == answer(real, text), text


def stable(rows, names):
    return sorted([str(row[name]) for name in names] for row in rows)


def listed(console, what):
    found = answer(console, f"SHOW {what}")
    names = [column[0] for column in next(part[1] for part in found if part[0] == "columns")]
    return [dict(zip(names, part[1])) for part in found if part[0] == "row"]


def test_lists_show_the_same_of_the_same_clients(both):
    clients = [(one.wire(application_name="billing"), one.wire()) for one in both]
    for holder, idle in clients:
        idle.query("SELECT 1")
        holder.query("BEGIN")
    real, ours = map(at_console, both)
    with real, ours:
        for what, names in {
            "CLIENTS": ("type", "user", "database", "replication", "state", "addr", "local_addr", "wait", "tls", "application_name"),
            "SERVERS": ("type", "user", "database", "replication", "state", "addr", "port", "local_addr", "close_needed", "tls",
                        "application_name"),
            "POOLS": ("database", "user", "cl_active", "cl_waiting", "sv_active", "sv_idle", "sv_login", "maxwait", "pool_mode"),
            "DATABASES": ("name", "host", "database", "force_user", "pool_size", "min_pool_size", "reserve_pool_size",
                          "max_connections", "current_connections", "current_client_connections", "paused", "disabled"),
            "USERS": ("name", "pool_size", "pool_mode", "current_connections", "current_client_connections"),
            "STATS": ("database", "total_server_assignment_count", "total_xact_count", "total_query_count"),
        }.items():
            # Both count statistics when a transaction ends or a little later.
            def same(what=what, names=names):
                theirs, mine = (stable(listed(console, what), names) for console in (real, ours))
                if what == "STATS":
                    theirs, mine = (sorted(row for row in rows if row[0] != "pgbouncer") for rows in (theirs, mine))
                    return [row[:1] for row in mine] == [row[:1] for row in theirs]
                assert mine == theirs, what
                return True

            eventually(f"SHOW {what} is the same", same)


def test_orders_have_the_same_effects(both):
    seen = []
    for one in both:
        effects = []
        with one.wire() as client, at_console(one) as console:
            client.query("SELECT 1")
            assert answer(console, "PAUSE bench")[-1] == ("C", b"PAUSE\0")
            client.send(postgres_wire.query("SELECT 'late'"))
            eventually("the client waits", lambda: listed(console, "POOLS")[0]["cl_waiting"] == "1")
            answer(console, "RESUME bench")
            effects.append(client.rows())
            answer(console, "DISABLE bench")
            with pytest.raises(ServerError) as refused:
                one.wire()
            effects.append(("disabled", refused.value.severity))
            effects.append(client.query("SELECT 'present clients stay'"))
            answer(console, "ENABLE bench")
            client.query("BEGIN")
            answer(console, "RECONNECT bench")
            effects.append([row["close_needed"] for row in listed(console, "SERVERS")])
            client.query("COMMIT")
            effects.append([row["state"] for row in listed(console, "SERVERS")])
            [mine] = [row for row in listed(console, "CLIENTS") if row["database"] == "bench"]
            effects.append(answer(console, f"KILL_CLIENT {mine['id']}"))
            effects.append(client.closed_within(5))
        with one.wire() as client, at_console(one) as console:
            client.query("BEGIN")
            effects.append(answer(console, "KILL bench"))
            effects.append(client.closed_within(5))
            effects.append([row["paused"] for row in listed(console, "DATABASES")])
            effects.append(answer(console, "RESUME bench"))
        seen.append(effects)
    assert seen[1] == seen[0]


def test_users_are_refused_alike(both):
    told = []
    for one in both:
        with pytest.raises(ServerError) as refused:
            at_console(one, "plainuser")
        told.append((refused.value.severity, refused.value.sqlstate, refused.value.text))
    assert told == [("FATAL", "08P01", "not allowed")] * 2


EXPORT = """
import sys, psycopg2
sys.path.insert(0, "/usr/lib/python3/dist-packages")
from prometheus_pgbouncer_exporter import collectors
from prometheus_pgbouncer_exporter.utils import get_connection
connection = get_connection(sys.argv[1], sys.argv[2], "127.0.0.1")
for kind, more in (("Lists", {}), ("Pools", {"databases": None}), ("Stats", {"databases": None}), ("Databases", {"databases": None})):
    try:
        for family in getattr(collectors, kind + "Collector")(connection=connection, **more).collect():
            print(family.name, sorted(tuple(sorted(sample.labels.items())) for sample in family.samples))
    except KeyError as error:
        print(kind, "needs a column that the console lacks:", error)
"""


@pytest.mark.skipif(not EXPORTER.exists(), reason="Debian's prometheus-pgbouncer-exporter is not installed")
def test_debians_exporter_reads_the_same_metrics(both):
    """Debian's exporter asks for columns that PgBouncer no longer has since 1.8; what it reads it reads of both."""
    for one in both:
        one.client = one.wire()
        one.client.query("SELECT 1")
    environment = {**os.environ, "PGPASSWORD": "app secret"}
    outputs = [
        subprocess.run(["/usr/bin/python3", "-c", EXPORT, "app", str(one.port)], env=environment, capture_output=True,
                       text=True, timeout=30, check=True).stdout
        for one in both
    ]
    assert "pgbouncer_active_clients" in outputs[0]
    assert outputs[1] == outputs[0]
