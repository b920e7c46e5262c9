"""The console: a database of Poolhouse's own, for psql, drivers and programs that watch a PgBouncer."""

import contextlib
import threading
import time

import psycopg
import psycopg2
import pytest

from support import postgres_wire
from support.postgres_wire import CANCEL_REQUEST, ServerError, request
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

CONSOLE = {"admins": ["app"], "viewers": ["app2"]}
USERS = {"app": "app secret", "app2": "app2-secret", "plainuser": "plain-secret"}


@pytest.fixture
def pooler(start):
    return start(console=CONSOLE, users=USERS)


def at_console(pooler, user="app", **more):
    return pooler.connect(user, database="poolhouse", **more)


def show(connection, what):
    """The rows of a SHOW as dicts."""
    cursor = connection.execute(f"SHOW {what}")
    names = [column.name for column in cursor.description]
    return [dict(zip(names, row)) for row in cursor.fetchall()]


@pytest.mark.quick
def test_psql_sees_pools_clients_and_servers(pooler):
    with pooler.wire() as client:
        client.query("BEGIN")
        ended = pooler.run("psql", "-X", "-At", "-d", "poolhouse", "-c", "SHOW VERSION", "-c", "SHOW POOLS")
        assert ended.returncode == 0, ended.stdout
        lines = ended.stdout.splitlines()
        assert lines[0].startswith("Poolhouse ")
        assert lines[1].startswith("bench|app|1|0|0|0|1|") and lines[1].endswith("|transaction|")
        assert lines[2].startswith("poolhouse|poolhouse|1|")


def test_drivers_get_typed_columns_in_text_and_binary_format(pooler):
    with at_console(pooler) as console:
        for binary in (False, True):
            cursor = console.cursor(binary=binary)
            cursor.execute("SHOW DATABASES", prepare=binary)
            assert [(column.name, column.type_code) for column in cursor.description][:3] == [
                ("name", 25), ("host", 25), ("port", 23)]
            rows = cursor.fetchall()
            assert [row[0] for row in rows] == ["bench", "poolhouse"]
            assert isinstance(rows[0][2], int) and rows[0][5] == 20
            cursor.execute("SHOW TOTALS")
            assert cursor.description[1].type_code == 1700
    with contextlib.closing(psycopg2.connect(**pooler.target(database="poolhouse"))) as console:
        console.set_session(autocommit=True)
        with console.cursor() as cursor:
            cursor.execute("SHOW STATS")
            assert "database" in [column.name for column in cursor.description]


def test_a_viewer_looks_and_gives_no_orders(pooler):
    with at_console(pooler, "app2") as console:
        assert show(console, "STATE") == [{"key": "active", "value": "yes"}, {"key": "paused", "value": "no"}]
        for order in ("PAUSE", "RELOAD", "KILL_CLIENT 1", "SET query_timeout = 1", "SHUTDOWN"):
            with pytest.raises(psycopg.Error, match="admin access needed") as refused:
                console.execute(order)
            assert refused.value.sqlstate == "08P01"


def test_other_users_and_wrong_passwords_are_refused(pooler):
    with pytest.raises(psycopg.OperationalError, match=r"(?s)not allowed.*\[console\]"):
        at_console(pooler, "plainuser")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        at_console(pooler, password="wrong")


def test_options_do_not_stand_in_for_the_user(pooler):
    for options in ("-c user=app", "--user=app", "-c database=bench", "-c replication=true"):
        with pytest.raises(psycopg.OperationalError, match="options|parameter|setting"):
            pooler.connect(database="poolhouse", user="app2", password=USERS["app2"], options=options).close()


def test_a_setting_that_makes_no_sense_is_refused(pooler):
    with at_console(pooler) as console:
        console.execute("SET default_pool_size = 4")
        with pytest.raises(psycopg.Error):
            console.execute("SET min_pool_size = 5")
        assert show(console, "VERSION")


def test_without_a_console_its_name_leads_to_advice(start):
    pooler = start()
    with pytest.raises(psycopg.OperationalError, match=r"(?s)\"pgbouncer\" does not exist.*ctl.*\[console\]"):
        pooler.connect(database="pgbouncer")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        pooler.connect(database="poolhouse")


def test_clients_and_servers_are_shown_with_each_other(pooler):
    with pooler.connect(application_name="billing") as client, at_console(pooler) as console:
        client.execute("BEGIN")
        clients, servers = show(console, "CLIENTS"), show(console, "SERVERS")
        [mine] = [row for row in clients if row["database"] == "bench"]
        [own] = [row for row in clients if row["database"] == "poolhouse"]
        [server] = servers
        assert (mine["user"], mine["state"], mine["application_name"]) == ("app", "active", "billing")
        assert (mine["addr"], mine["local_addr"], mine["local_port"]) == ("127.0.0.1", "127.0.0.1", pooler.port)
        assert mine["link"] == server["ptr"] and server["link"] == mine["ptr"]
        assert server["remote_pid"] == client.info.backend_pid or server["remote_pid"] > 0
        assert (server["type"], server["state"], own["type"]) == ("S", "active", "C")
        assert server["application_name"] == "billing"
        age = time.time() - time.mktime(time.strptime(mine["connect_time"], "%Y-%m-%d %H:%M:%S UTC")) + time.timezone
        assert -2 < age < 60
        console.execute(f"KILL_CLIENT {mine['id']}")
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
        with pytest.raises(psycopg.Error, match="client not found"):
            console.execute(f"KILL_CLIENT {mine['id']}")


def test_the_user_of_a_client_is_its_own(start, cluster):
    pooler = start(console=CONSOLE, users=USERS, databases={"bench": {"url": cluster.url("bench")}})
    with pooler.connect("app2") as client, at_console(pooler) as console:
        client.execute("SELECT 1")
        assert [row["user"] for row in show(console, "CLIENTS") if row["database"] == "bench"] == ["app2"]


def test_requests_their_bytes_and_times_are_counted(pooler):
    with pooler.connect() as client, at_console(pooler) as console:
        for _ in range(10):
            client.execute("SELECT repeat('x', 1000)")
        client.execute("BEGIN; SELECT pg_sleep(0.1); COMMIT")

        def row():
            return next(row for row in show(console, "STATS") if row["database"] == "bench")

        eventually("all requests are counted", lambda: row()["total_query_count"] >= 11)
        counted = row()
        assert counted["total_query_count"] == 11 and counted["total_xact_count"] == 11
        assert counted["total_sent"] > 10_000 and 300 < counted["total_received"] < 5_000
        assert 100_000 <= counted["total_query_time"] < 5_000_000
        assert counted["total_client_login_count"] == 1 and counted["avg_query_time"] > 1_000
        own = next(row for row in show(console, "STATS") if row["database"] == "poolhouse")["total_query_count"]
        totals = {row["name"]: row["value"] for row in show(console, "TOTALS")}
        # The command that asks is one, too.
        assert own > 1 and totals["total_query_count"] == 11 + own + 1


def test_pause_holds_requests_until_resume(pooler):
    with pooler.wire() as client, at_console(pooler) as console:
        client.query("SELECT 1")
        console.execute("PAUSE bench")
        client.send(postgres_wire.query("SELECT 'late'"))
        eventually("the client waits", lambda: show(console, "POOLS")[0]["cl_waiting"] == 1)
        assert show(console, "DATABASES")[0]["paused"] == 1
        console.execute("RESUME bench")
        assert client.rows() == [["late"]]
        with pytest.raises(psycopg.Error, match="database bench is not paused"):
            console.execute("RESUME bench")


def test_a_pause_of_all_spares_the_console(pooler):
    with at_console(pooler) as console:
        console.execute("PAUSE")
        with at_console(pooler) as other:
            assert show(other, "STATE") == [{"key": "active", "value": "no"}, {"key": "paused", "value": "yes"}]
            with pytest.raises(psycopg.Error, match="already paused"):
                other.execute("PAUSE")
            other.execute("RESUME")


def test_a_pause_that_waits_can_be_cancelled(pooler):
    with pooler.wire() as client, pooler.wire(database="poolhouse") as console:
        client.query("BEGIN")
        console.send(postgres_wire.query("PAUSE bench"))
        time.sleep(0.2)
        with pooler.open() as canceller:
            canceller.send(request(CANCEL_REQUEST, console.key))
        with pytest.raises(ServerError, match="57014"):
            console.rows()
        assert console.query("SHOW STATE") and console.query("RESUME bench") == []
        client.query("COMMIT")


def test_disabled_and_killed_databases(pooler):
    with pooler.connect() as client, at_console(pooler) as console:
        console.execute("DISABLE bench")
        assert show(console, "DATABASES")[0]["disabled"] == 1
        with pytest.raises(psycopg.OperationalError):
            pooler.connect()
        client.execute("SELECT 1")
        console.execute("ENABLE bench")
        pooler.connect().close()
        console.execute("KILL bench")
        with pytest.raises(psycopg.OperationalError):
            client.execute("SELECT 1")
        console.execute("RESUME bench")
        pooler.connect().close()


def test_reconnect_and_wait_close(pooler):
    with pooler.connect() as client, at_console(pooler) as console:
        [before] = client.execute("SELECT pg_backend_pid()").fetchone()
        client.execute("BEGIN")
        console.execute("RECONNECT bench")
        waiter = threading.Thread(target=lambda: console.execute("WAIT_CLOSE bench"))
        waiter.start()
        waiter.join(0.3)
        assert waiter.is_alive(), "a server of before is still in use"
        client.execute("COMMIT")
        waiter.join(10)
        assert not waiter.is_alive()
        assert client.execute("SELECT pg_backend_pid()").fetchone() != (before,)


def test_settings_change_until_the_next_reload(pooler):
    with at_console(pooler) as console:
        def value(key):
            return next(row["value"] for row in show(console, "CONFIG") if row["key"] == key)

        console.execute("SET default_pool_size = 3")
        assert value("default_pool_size") == "3" and show(console, "DATABASES")[0]["pool_size"] == 3
        console.execute("SET query_timeout TO '0.2'")
        with pooler.connect() as client, pytest.raises(psycopg.Error):
            client.execute("SELECT pg_sleep(5)")
        console.execute("RELOAD")
        assert (value("default_pool_size"), value("query_timeout")) == ("20", "0")
        for wrong in ("SET query_timeout = nonsense", "SET no_such_key = 1", "SET listen_port = 5"):
            with pytest.raises(psycopg.Error, match="SET failed") as failed:
                console.execute(wrong)
            assert failed.value.diag.message_hint
        console.execute("SET extra_float_digits = 3")


def test_the_console_itself_is_nowhere_counted(pooler):
    with at_console(pooler) as console:
        assert show(console, "SERVERS") == []
        assert pooler.pools() == []
        assert not [sample for sample in pooler.metrics() if "poolhouse" in dict(sample[1]).get("database", "")]
        assert "poolhouse-console" not in pooler.get("/api/servers")[1]
    assert "poolhouse-console" not in pooler.log()


def test_a_reload_may_take_the_console_away(pooler):
    with at_console(pooler) as console:
        pooler.rewrite(users=USERS)
        console.execute("RELOAD")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        at_console(pooler)


def test_shutdown_ends_the_process(pooler):
    console = at_console(pooler)
    # The process may end before it has answered.
    with contextlib.suppress(psycopg.OperationalError):
        console.execute("SHUTDOWN")
    assert pooler.wait(10) == 0


def test_shutdown_waits_for_clients(pooler):
    client = pooler.connect()
    with at_console(pooler) as console:
        console.execute("SHUTDOWN WAIT_FOR_CLIENTS")
    assert pooler.wait(0.5) is None
    assert client.execute("SELECT 1").fetchone() == (1,)
    client.close()
    assert pooler.wait(10) == 0


def test_no_other_program_connects_to_the_consoles_socket(pooler):
    import pathlib
    import socket

    pid = pooler.process.pid
    names = [line.split()[-1] for line in pathlib.Path(f"/proc/{pid}/net/unix").read_text().splitlines()]
    names = {name for name in names if name.startswith("@poolhouse-console-")}
    assert names
    for name in names:
        with socket.socket(socket.AF_UNIX) as intruder:
            intruder.settimeout(5)
            intruder.connect("\0" + name[1:])
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                intruder.sendall(postgres_wire.startup(user="app", database="poolhouse"))
                assert intruder.recv(1) == b""


def test_hostile_bytes_end_the_connection_and_nothing_else(pooler):
    with at_console(pooler) as console:
        for kind in b"QPBDEdF!":
            for length in (0, 3, 1 << 20, (1 << 31) - 1, (1 << 32) - 1):
                with pooler.wire(database="poolhouse") as hostile:
                    hostile.send(bytes([kind]) + length.to_bytes(4, "big"))
                    assert hostile.closed_within(5), (kind, length)
        assert show(console, "VERSION")
