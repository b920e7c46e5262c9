"""A client that has set nothing has the database's present defaults, also after a reload of the database's
configuration and after a reload back. Poolhouse reports a new value no later than PostgreSQL itself does: with the
answer to the request before which the server has read the configuration.
"""

import contextlib
import threading
import time

import pytest

from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only

TIMEOUT_SECONDS = 15
READ_ONLY = "default_transaction_read_only"
READ_ONLY_ERROR = "25006"


def eventually(holds, what):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {TIMEOUT_SECONDS} s: {what}"
        time.sleep(0.01)


class Configuration:
    """The cluster's configuration by ALTER SYSTEM. It is restored at the end of the test."""

    def __init__(self, cluster):
        self.cluster, self.before = cluster, {}

    def __enter__(self):
        with self.cluster.superuser("bench") as db:
            db.execute("DROP TABLE IF EXISTS fenced")
            db.execute("CREATE TABLE fenced (who text)")
            db.execute("GRANT ALL ON fenced TO PUBLIC")
        return self

    def execute(self, sql):
        with self.cluster.superuser() as db:
            db.execute(sql)

    def set(self, **settings):
        """Sets a parameter, and returns when new sessions have it."""
        for name, value in settings.items():
            self.before.setdefault(name, self.cluster.query(f"SHOW {name}")[0][0])
            self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.reload()
        for name, value in settings.items():
            self.await_value(name, value)

    def await_value(self, name, value):
        eventually(lambda: self.cluster.query(f"SHOW {name}") == [(value,)], f"{name} is {value}")

    def reload(self):
        self.cluster.query("SELECT pg_reload_conf()")

    def __exit__(self, *_):
        for name in self.before:
            self.execute(f"ALTER SYSTEM RESET {name}")
        self.reload()
        for name, value in self.before.items():
            self.await_value(name, value)


@pytest.fixture
def configuration(cluster):
    with Configuration(cluster) as configuration:
        yield configuration


def writes(client):
    """Whether the client can write. The value that it was told must agree."""
    try:
        client.query("INSERT INTO fenced VALUES ('x')")
        return True
    except w.ServerError as error:
        assert error.sqlstate == READ_ONLY_ERROR, error
        return False


def assert_told(client, *names):
    """Asserts that the values which a client was told are those that it has."""
    for name in names:
        assert client.query(f"SHOW {name}") == [[client.parameters[name]]], name


@pytest.mark.parametrize("reset", ["auto", "always", "never"])
def test_a_fence_before_a_switchover_holds_for_clients_that_have_set_nothing_and_goes_again(start, configuration, reset):
    pooler = start(max_size=3, reset=reset)
    with contextlib.ExitStack() as stack:
        plain = [stack.enter_context(pooler.wire()) for _ in range(4)]
        asked = stack.enter_context(pooler.wire(application_name="asked", TimeZone="CET"))
        explicit = [stack.enter_context(pooler.wire(**{READ_ONLY: "off"})), stack.enter_context(pooler.wire())]
        explicit[1].query(f"SET {READ_ONLY} = off")
        holders = [stack.enter_context(pooler.wire()) for _ in range(2)]
        for holder in holders:
            # This makes several servers.
            holder.query("BEGIN")
        assert all(writes(client) for client in plain + [asked] + explicit)
        for holder in holders:
            holder.query("COMMIT")
        for round in range(2):
            configuration.set(**{READ_ONLY: "on"})
            for client in plain + [asked]:
                eventually(lambda: not writes(client), "it cannot write")
            for _ in range(3):
                assert all(writes(client) for client in explicit)
                assert not any(writes(client) for client in plain + holders + [asked])
                for client in plain + explicit + [asked]:
                    assert_told(client, READ_ONLY, "TimeZone")
            with pooler.wire() as late:
                eventually(lambda: not writes(late), "a new one cannot write either")
                assert_told(late, READ_ONLY)
            configuration.set(**{READ_ONLY: "off"})
            for client in plain + [asked]:
                eventually(lambda: writes(client), "it can write again")
            for _ in range(3):
                assert all(writes(client) for client in plain + holders + [asked] + explicit)
            for client in plain + holders + [asked]:
                assert client.parameters[READ_ONLY] == "off"


@pytest.mark.parametrize("reset", ["auto", "always", "never"])
def test_how_dates_are_written_is_told_with_the_first_that_is_written_so(start, configuration, reset):
    pooler = start(max_size=4, reset=reset)
    over, problems = threading.Event(), []
    seen = [set() for _ in range(6)]

    def read(number, **asked):
        try:
            with pooler.wire(**asked) as client:
                for name, value in asked.items():
                    assert client.parameters[name] == value
                while not over.is_set():
                    value = client.query("SHOW DateStyle")[0][0]
                    assert value == client.parameters["DateStyle"]
                    zone, style = client.query("SELECT current_setting('TimeZone'), current_setting('DateStyle')")[0]
                    assert (zone, style) == (client.parameters["TimeZone"], client.parameters["DateStyle"])
                    seen[number].add((style, zone))
                    if number % 2:
                        client.query("SET DateStyle = 'German'")
                        assert client.query("SHOW DateStyle") == [["German, DMY"]] == [[client.parameters["DateStyle"]]]
                        client.query("RESET DateStyle")
                    if asked:
                        assert zone == asked["TimeZone"]
        except BaseException as problem:
            problems.append(problem)
            raise

    readers = [threading.Thread(target=read, args=(n,), kwargs={"TimeZone": "Asia/Tokyo"} if n > 3 else {}) for n in range(6)]
    for reader in readers:
        reader.start()
    try:
        for style, zone in [("SQL, MDY", "CET"), ("SQL, DMY", "CET"), ("German, DMY", "UTC"), ("SQL, MDY", "UTC")]:
            configuration.set(datestyle=style, timezone=zone)
            for number in range(6):
                wanted = (style, "Asia/Tokyo" if number > 3 else zone)
                eventually(lambda: problems or wanted in seen[number], f"{wanted} for {number}")
    finally:
        over.set()
        for reader in readers:
            reader.join()
    assert not problems


def test_what_a_role_has_comes_with_a_new_server_and_the_old_one_goes(start, cluster):
    pooler = start(max_size=2)
    with pooler.wire() as one, pooler.wire() as two:
        old = one.query("SELECT pg_backend_pid()")[0][0]
        with cluster.superuser() as db:
            db.execute("ALTER ROLE app SET DateStyle = 'SQL, DMY'")
        try:
            one.query("BEGIN")
            # A second server is made, whose session begins with other values.
            assert two.query("SHOW DateStyle") == [["SQL, DMY"]] == [[two.parameters["DateStyle"]]]
            one.query("COMMIT")

            def gone():
                for client in (one, two):
                    assert_told(client, "DateStyle")
                with contextlib.ExitStack() as stack:
                    clients = [stack.enter_context(pooler.wire()) for _ in range(2)]
                    for client in clients:
                        client.query("BEGIN")
                    return old not in [client.query("SELECT pg_backend_pid()")[0][0] for client in clients]

            eventually(gone, "the old server is closed")
            assert one.query("SHOW DateStyle") == [["SQL, DMY"]] == [[one.parameters["DateStyle"]]]
        finally:
            with cluster.superuser() as db:
                db.execute("ALTER ROLE app RESET DateStyle")


def test_switches_in_the_start_up_options_are_settings(start):
    pooler = start(max_size=1)
    with pooler.wire(options="-S 8192 -fs -e") as client, pooler.wire() as other:
        for _ in range(2):
            assert client.query("SHOW work_mem") == [["8MB"]] and client.query("SHOW enable_seqscan") == [["off"]]
            assert client.query("SHOW DateStyle") == [["ISO, DMY"]] == [[client.parameters["DateStyle"]]]
            assert other.query("SHOW DateStyle") == [["ISO, MDY"]]
    with pooler.open() as client, pytest.raises(w.ServerError) as raised:
        client.login("app", "app secret", "bench", options="-P")
    assert raised.value.sqlstate == "22023" and raised.value.text.endswith(": -P")


def test_a_client_that_ends_at_once_hears_nothing(start):
    with start().open() as client:
        client.send(w.TERMINATE)
        with pytest.raises(w.Closed, match="closed with 0 bytes"):
            client.take()
