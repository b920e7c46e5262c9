"""COPY FROM STDIN that fails at once, in pipelines: each answer goes to the client that asked, and equals that of
PostgreSQL.
"""

import contextlib

import pytest

from support import postgres_wire as w

TABLE = "t_copy_that_fails"
# The table was made in an earlier transaction: PostgreSQL answers CopyInResponse, and fails before it reads anything.
FREEZE = f"COPY {TABLE} FROM STDIN WITH (FREEZE)"
# Messages that Poolhouse must hold back while answers are outstanding.
HELD_BACK = ["DEALLOCATE a", "DISCARD ALL", "UNLISTEN c", "SELECT lastval()", "RESET work_mem", "DEALLOCATE ALL", "LISTEN c"]


@pytest.fixture
def table(cluster):
    with cluster.superuser("bench") as db:
        db.execute(f"DROP TABLE IF EXISTS {TABLE}")
        db.execute(f"CREATE TABLE {TABLE} (n int)")
        db.execute(f"GRANT ALL ON {TABLE} TO PUBLIC")
    return TABLE


def run(sql, name=""):
    return w.parse(sql, name=name) + w.bind(name=name) + w.execute()


def told(client, readies):
    """The answers up to the given number of ReadyForQuery: types, with the content of rows, tags and codes of errors.
    """
    lines = []
    for _ in range(readies):
        answers, status = client.until_ready()
        for kind, body in answers:
            if kind == b"D":
                lines.append(w.row(body))
            elif kind == b"E":
                lines.append(w.error_fields(body)["C"])
            elif kind == b"C":
                lines.append(body[:-1].decode())
            elif kind not in (b"T", b"n"):
                lines.append(kind.decode())
        lines.append("Z" + status)
    return lines


@contextlib.contextmanager
def both(start, cluster, **settings):
    """A connection to PostgreSQL itself, one through a pool of one server, and another client of that pool."""
    pooler = start(max_size=1, max_wait_time="5s", **settings)
    with (
        w.Wire(cluster.port).login("app", "app secret", work_mem="5MB") as direct,
        pooler.wire(work_mem="5MB") as client,
        pooler.wire() as other,
    ):
        yield direct, client, other


def serves_others(other):
    for number in range(3):
        assert other.query(f"SELECT 'other {number}'") == [[f"other {number}"]]


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_what_follows_a_copy_that_fails_at_once_is_answered_to_its_sender(start, cluster, table, mode):
    """The client sends a query as soon as it sees the error, while the Sync behind the COPY is not answered yet."""
    with both(start, cluster, mode=mode) as (direct, client, other):
        got = []
        for end in (direct, client):
            end.send(run("SELECT pg_sleep(0.05)") + run(FREEZE) + w.SYNC)
            while end.take()[0] != b"E":
                pass
            end.send(w.query("SELECT 'mine'"))
            got.append(told(end, 2))
        assert got[0] == got[1] == ["ZI", ["mine"], "SELECT 1", "ZI"]
        if mode == "transaction":
            serves_others(other)


@pytest.mark.parametrize(
    "behind", [run(f"INSERT INTO {TABLE} VALUES (1)") + w.SYNC, w.query("SELECT 1"), w.SYNC + w.SYNC], ids="insert query sync".split()
)
@pytest.mark.parametrize(
    "before", [b"", run("SELECT 1") + w.SYNC, w.query("BEGIN"), run("SELECT 1")], ids="none synced begin unsynced".split()
)
@pytest.mark.parametrize("simple", [False, True])
def test_a_burst_behind_a_copy_that_fails_at_once_is_carried_out(start, cluster, table, before, behind, simple):
    with both(start, cluster) as (direct, client, other):
        got = []
        for end in (direct, client):
            end.send(before + (w.query(FREEZE) if simple else run(FREEZE)) + w.SYNC + behind + w.query("ROLLBACK"))
            lines = []
            while lines[-2:-1] != ["ROLLBACK"]:
                lines += told(end, 1)
            got.append(lines)
        assert got[0] == got[1]
        serves_others(other)


@pytest.mark.parametrize("stray", [w.COPY_DONE, w.copy_data(b"x"), w.copy_fail("why")], ids="done data fail".split())
def test_what_is_left_of_a_copy_never_has_a_timeout_answer_it(start, cluster, stray):
    """A statement_timeout that is due when PostgreSQL reads a stray CopyDone has an answer that belongs to no request.
    """
    with both(start, cluster) as (direct, client, other):
        for _ in range(3):
            client.send(w.query("SET statement_timeout = '80ms'"))
            client.until_ready()
            client.send(w.parse("SELECT 1", name="") + w.FLUSH)
            client.expect(b"1")
            with pytest.raises(TimeoutError):
                client.socket.settimeout(0.2)
                client.take()
            client.socket.settimeout(10)
            client.send(stray + run("SELECT 'mine'") + w.SYNC)
            # The statement's own time-out is due as well when the next message is read.
            assert told(client, 1) == ["57014", "ZI"]
            serves_others(other)


@pytest.mark.parametrize("what", HELD_BACK)
@pytest.mark.parametrize("by", ["query", "extended"])
def test_what_is_held_back_behind_an_error_does_not_wait_for_ever(start, cluster, what, by):
    with both(start, cluster) as (direct, client, other):
        got = []
        for end in (direct, client):
            end.send(w.parse("SELECT 1", name="a") + w.SYNC)
            end.until_ready()
            held = w.query(what) if by == "query" else run(what)
            end.send(run("SELECT 1/0") + w.query("SELECT 1") + held + w.SYNC + w.query("SELECT 'mine'"))
            got.append(told(end, 2))
        assert got[0] == got[1] == ["1", "22012", "ZI", ["mine"], "SELECT 1", "ZI"]
        serves_others(other)


@pytest.mark.parametrize("data", [b"1\n", b"rubbish\n"])
@pytest.mark.parametrize("again", ["", "; SELECT 2", f"; COPY {TABLE} FROM STDIN"])
@pytest.mark.parametrize("what", ["DEALLOCATE a", "DEALLOCATE ALL", "SELECT 1"])
def test_a_burst_with_a_copy_in_it_is_answered_as_directly(start, cluster, table, data, again, what):
    with both(start, cluster) as (direct, client, other):
        got = []
        for end in (direct, client):
            end.send(w.parse("SELECT 1", name="a") + w.SYNC)
            end.until_ready()
            copy = w.query(f"COPY {table} FROM STDIN{again}") + w.copy_data(data) + w.COPY_DONE
            copy += (w.copy_data(b"2\n") + w.COPY_DONE) if "COPY" in again else b""
            end.send(copy + w.query(what) + w.bind(name="a") + w.execute() + w.SYNC)
            got.append(told(end, 3))
        assert got[0] == got[1]
        serves_others(other)


def test_a_copy_ends_where_something_comes_that_has_no_place_in_it(start, cluster, table):
    """PostgreSQL ends the connection. Here the COPY fails, and the server stays."""
    with both(start, cluster) as (_, client, other):
        client.send(run(f"COPY {table} FROM STDIN") + w.SYNC + w.copy_data(b"1\n") + w.query("SELECT 'mine'") + w.SYNC)
        answers = told(client, 1)
        assert answers == ["1", "2", "G", "57014", "ZI"]
        assert client.query(f"SELECT count(*) FROM {table}") == [["0"]]
        serves_others(other)


@pytest.mark.parametrize("named", [False, True])
def test_a_copy_by_a_statement_that_was_prepared_before_is_foreseen(start, cluster, table, named):
    name = "copy" if named else ""
    with both(start, cluster) as (direct, client, other):
        for end in (direct, client):
            end.send(w.parse(f"/* in */ COPY {table} FROM STDIN", name=name) + w.SYNC)
            end.until_ready()
        serves_others(other)
        for _ in range(1 + named):
            got = []
            for end in (direct, client):
                end.send(w.bind(name=name) + w.execute() + w.SYNC)
                end.expect(b"2")
                end.expect(b"G")
                end.send(w.copy_data(b"1\n") + w.COPY_DONE + w.SYNC + w.query(f"SELECT count(*) > 0 FROM {table}"))
                got.append(told(end, 2))
            assert got[0] == got[1] == ["COPY 1", "ZI", ["t"], "SELECT 1", "ZI"]
            serves_others(other)
