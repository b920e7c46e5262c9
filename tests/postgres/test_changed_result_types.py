"""A table, a view or a function is changed while clients have prepared statements whose columns or parameters they
know. They get what they would get without a pooler, on whichever server. No value is read or written as one of another
type.
"""

import asyncio
import contextlib

import asyncpg
import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS

pytestmark = pytest.mark.poolhouse_only

DESCRIBE = w.message(b"D", b"S" + w.cstr("s"))
CLOSE = w.message(b"C", b"S" + w.cstr("s"))
FLOAT = "ALTER TABLE t_told ALTER a TYPE float4"


def directly(cluster):
    return psycopg.connect(host="127.0.0.1", port=cluster.port, user="app", password=PASSWORDS["app"], dbname="bench", autocommit=True)


@pytest.fixture
def table(cluster):
    """A table with one integer."""
    def make():
        with directly(cluster) as db:
            db.execute("DROP TABLE IF EXISTS t_told; CREATE TABLE t_told (a int); INSERT INTO t_told VALUES (2)")

    make()
    yield make
    with directly(cluster) as db:
        db.execute("DROP TABLE IF EXISTS t_told")


@contextlib.contextmanager
def elsewhere(pooler):
    """Gives the server that was used last to another client for the length of the body."""
    with pooler.wire() as other:
        other.query("BEGIN")
        yield
        other.query("COMMIT")


def change(pooler, cluster, past, sql=FLOAT):
    if past:
        with directly(cluster) as db:
            db.execute(sql)
    else:
        with pooler.wire() as other:
            other.query(sql)


PAST = pytest.mark.parametrize("past", [False, True], ids=["through the pooler", "past it"])
OTHER = pytest.mark.parametrize("other", [False, True], ids=["on the same server", "on another"])


@PAST
@OTHER
def test_asyncpg_reads_and_writes_no_value_as_one_of_another_type(start, cluster, table, past, other):
    pooler = start(max_size=3)

    async def use():
        connection = await asyncpg.connect(host="127.0.0.1", port=pooler.port, user="app", password=PASSWORDS["app"], database="bench")
        try:
            assert await connection.fetchval("SELECT a FROM t_told") == 2
            kept = await connection.prepare("SELECT a + 0 FROM t_told")
            assert await kept.fetchval() == 2
            await connection.execute("INSERT INTO t_told VALUES ($1)", 7)
            change(pooler, cluster, past)
            with elsewhere(pooler) if other else contextlib.nullcontext():
                # After PostgreSQL's error the driver prepares the statement again by itself, outside transactions.
                for _ in range(3):
                    assert await connection.fetchval("SELECT a FROM t_told") == 2.0
                    await connection.execute("INSERT INTO t_told VALUES ($1)", 7)
                with contextlib.suppress(asyncpg.PostgresError):
                    assert await kept.fetchval() == 2.0
                async with connection.transaction():
                    assert await connection.fetchval("SELECT a FROM t_told") == 2.0
        finally:
            await connection.close()

    asyncio.run(use())
    with directly(cluster) as db:
        assert db.execute("SELECT DISTINCT a::text FROM t_told ORDER BY 1").fetchall() == [("2",), ("7",)]


@PAST
@OTHER
@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_and_writes_no_value_as_one_of_another_type(start, cluster, table, past, other, binary):
    pooler = start(max_size=3)
    with pooler.connect() as connection:
        cursor = connection.cursor(binary=binary)
        read = lambda: cursor.execute("SELECT a FROM t_told LIMIT 1", prepare=True).fetchone()[0]  # noqa: E731
        for _ in range(3):
            assert read() == 2
            cursor.execute("INSERT INTO t_told VALUES (%s)", [7], prepare=True)
        change(pooler, cluster, past)
        with elsewhere(pooler) if other else contextlib.nullcontext():
            for _ in range(3):
                with contextlib.suppress(psycopg.errors.FeatureNotSupported):
                    assert read() == 2.0
                cursor.execute("INSERT INTO t_told VALUES (%s)", [7], prepare=True)
    with directly(cluster) as db:
        assert db.execute("SELECT DISTINCT a::text FROM t_told ORDER BY 1").fetchall() == [("2",), ("7",)]


def told(session, *flight):
    """The result of each message: rows, errors with the fields that drivers read, and the status."""
    session.send(*flight, w.SYNC)
    got, status = session.until_ready()
    found = [w.row(body) for kind, body in got if kind == b"D"]
    errors = [w.error_fields(body) for kind, body in got if kind == b"E"]
    return found, [(e["C"], e["M"], e["R"] if e["C"] == "0A000" else "") for e in errors], status


USE = w.bind(name="s") + w.execute()
PREPARE = w.parse("SELECT a FROM t_told", "s") + DESCRIBE


@PAST
@OTHER
def test_a_client_that_knows_its_columns_is_refused_until_it_prepares_anew_as_without_a_pooler(start, cluster, table, past, other):
    pooler = start(max_size=3)

    def outcomes(session, altered, moved):
        found = [told(session, PREPARE, USE), told(session, USE)]
        altered()
        with moved():
            found += [told(session, USE), told(session, DESCRIBE), told(session, USE)]
            for _ in range(2):
                session.query("BEGIN")
                found += [told(session, USE), told(session, USE)]
                session.query("ROLLBACK")
            found += [told(session, CLOSE, PREPARE, USE), told(session, USE)]
            session.query("BEGIN")
            found += [told(session, USE), told(session, DESCRIBE, USE)]
            session.query("COMMIT")
        return found

    with w.Wire(cluster.port).login("app", PASSWORDS["app"]) as session:
        expected = outcomes(session, lambda: change(pooler, cluster, True), contextlib.nullcontext)
    table()
    with pooler.wire() as session:
        moved = (lambda: elsewhere(pooler)) if other else contextlib.nullcontext
        assert outcomes(session, lambda: change(pooler, cluster, past), moved) == expected
    assert expected[2][1] == [("0A000", "cached plan must not change result type", "RevalidateCachedQuery")]


@OTHER
def test_types_that_a_client_was_told_are_those_of_its_values(start, cluster, table, other):
    """A four-byte 7 is not a float."""
    pooler = start(max_size=3)
    seven = w.message(b"B", w.cstr("") + w.cstr("s") + b"\0\1\0\1\0\1\0\0\0\4\0\0\0\7\0\0")
    with pooler.wire() as session:
        assert told(session, w.parse("INSERT INTO t_told VALUES ($1)", "s"), DESCRIBE)[1] == []
        change(pooler, cluster, False)
        with elsewhere(pooler) if other else contextlib.nullcontext():
            for _ in range(2):
                assert told(session, seven, w.execute())[1] == []
    with directly(cluster) as db:
        assert db.execute("SELECT a FROM t_told ORDER BY a").fetchall() == [(2.0,), (7.0,), (7.0,)]


def test_a_client_that_is_told_the_columns_each_time_writes_no_value_as_one_of_another_type(start, cluster, table):
    pooler = start(max_size=2, workers=1)
    insert = "INSERT INTO t_told VALUES ($1) RETURNING 1"
    seven = w.message(b"B", w.cstr("") + w.cstr("s") + b"\0\1\0\1\0\1\0\0\0\4\0\0\0\7\0\0")
    with pooler.wire() as session, pooler.wire() as second:
        assert told(session, w.parse(insert, "s")) == ([], [], "I")
        change(pooler, cluster, True)
        with elsewhere(pooler):
            # Another server parses the statement with the present type.
            told(second, w.parse(insert, "s"))
        assert told(session, DESCRIBE)[1] == []
        with elsewhere(pooler):
            assert [code for code, *_ in told(session, seven, w.describe_portal(), w.execute())[1]] == ["0A000"]
    with directly(cluster) as db:
        assert db.execute("SELECT a FROM t_told").fetchall() == [(2.0,)]


@pytest.mark.parametrize("used", [False, True], ids=["first", "behind one that was told"])
def test_a_client_that_prepares_a_statement_is_told_what_it_is_now(start, cluster, table, used):
    """A column has become wider, by a change past the pooler. A new client on a new server is told that, whatever
    others were told before."""
    pooler = start(max_size=2)
    insert = w.parse("INSERT INTO t_told VALUES ($1)", "s")
    types = lambda session: (session.send(insert, DESCRIBE, w.SYNC), [body for kind, body in session.until_ready()[0] if kind == b"t"])[1]  # noqa: E731
    with pooler.wire() as session:
        assert types(session) == [b"\0\1\0\0\0\x17"]
        change(pooler, cluster, True, "ALTER TABLE t_told ALTER a TYPE bigint")
        with elsewhere(pooler):
            if used:
                assert told(session, w.bind([7], name="s") + w.execute())[1] == []
            with pooler.wire() as other:
                assert types(other) == [b"\0\1\0\0\0\x14"]


def test_what_clients_of_one_database_were_told_is_no_matter_in_another(start, cluster, table):
    pooler = start(max_size=2, databases={name: {"url": cluster.url(name, "app")} for name in ("bench", "other")})
    ask = w.bind([2], name="s") + w.describe_portal() + w.execute()
    parse = w.parse("SELECT 1 AS one FROM t_told WHERE a = $1", "s")
    with cluster.superuser("other") as db, pooler.wire() as session, pooler.wire(database="other") as stranger:
        db.execute("CREATE TABLE t_told (a text); GRANT ALL ON t_told TO PUBLIC")
        try:
            assert told(session, parse, ask) == ([["1"]], [], "I")
            assert told(stranger, parse, DESCRIBE)[1] == []
            with elsewhere(pooler):
                assert told(session, ask) == ([["1"]], [], "I")
                with pooler.wire() as new:
                    assert told(new, parse, ask) == ([["1"]], [], "I")
        finally:
            db.execute("DROP TABLE t_told")


def test_another_search_path_is_a_change_as_well(start, cluster, table):
    pooler = start(max_size=2)
    with directly(cluster) as db:
        db.execute("DROP SCHEMA IF EXISTS told CASCADE; CREATE SCHEMA told; CREATE TABLE told.t_told (a float4); INSERT INTO told.t_told VALUES (3)")

    def outcomes(session):
        found = [told(session, PREPARE, USE)]
        for path in ("told", "public", "told", "public"):
            session.query(f"SET search_path = {path}")
            found.append(told(session, USE))
        return found

    try:
        with w.Wire(cluster.port).login("app", PASSWORDS["app"]) as session:
            expected = outcomes(session)
        with pooler.wire() as session:
            assert outcomes(session) == expected
    finally:
        with directly(cluster) as db:
            db.execute("DROP SCHEMA told CASCADE")
