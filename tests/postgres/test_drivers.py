"""The common drivers in normal use: psycopg 3 (sync and async), psycopg2, asyncpg."""

import asyncio
import datetime
import decimal

import asyncpg
import psycopg
import psycopg.rows
import psycopg2
import psycopg2.extras
import pytest

MODES = ["transaction", "session"]


@pytest.mark.parametrize("mode", MODES)
def test_psycopg3_round_trips_its_types(start, mode):
    pooler = start(mode=mode, max_size=2)
    values = [1, 2**40, 1.5, decimal.Decimal("1.10"), "text with ünïcode", b"\x00\xff", True, None, [1, 2, 3],
              datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2, 3, 4, 5, 6), datetime.timedelta(days=1, seconds=2)]
    with pooler.connect() as connection:
        for binary in (False, True):
            cursor = connection.cursor(binary=binary)
            for value in values:
                if value is not None:
                    assert cursor.execute("SELECT %s", [value]).fetchone() == (value,)
        connection.execute("DROP TABLE IF EXISTS t_types")
        connection.execute("CREATE TABLE t_types (id serial, v text)")
        cursor = connection.cursor()
        cursor.executemany("INSERT INTO t_types (v) VALUES (%s) RETURNING id", [(str(n),) for n in range(300)])
        assert connection.execute("SELECT count(*) FROM t_types").fetchone() == (300,)
        connection.execute("DROP TABLE t_types")


def test_psycopg3_with_a_transaction_per_block_and_dict_rows(start):
    pooler = start(max_size=1)
    with pooler.connect(autocommit=False, row_factory=psycopg.rows.dict_row) as connection:
        assert connection.execute("SELECT 1 AS one, 'x' AS other").fetchone() == {"one": 1, "other": "x"}
        connection.rollback()
        with connection.transaction():
            assert connection.execute("SELECT txid_current() = txid_current() AS same").fetchone() == {"same": True}
    with pooler.connect() as other:
        assert other.execute("SELECT 1").fetchone() == (1,)


def test_psycopg3_streams_a_large_result_row_by_row(start):
    pooler = start(max_size=1)
    with pooler.connect() as connection:
        total = sum(n for (n,) in connection.cursor().stream("SELECT generate_series(1, 100000)"))
        assert total == 100_000 * 100_001 // 2


def test_psycopg3_async_with_many_tasks(start):
    pooler = start(max_size=4, max_wait_time="30s")

    async def work(n):
        async with await pooler.connect_async() as connection:
            for i in range(20):
                cursor = await connection.execute("SELECT %s::int, %s::int", [n, i])
                assert await cursor.fetchone() == (n, i)
            async with connection.transaction():
                cursor = await connection.execute("SELECT count(*) FROM generate_series(1, %s)", [n])
                assert await cursor.fetchone() == (n,)

    async def main():
        await asyncio.gather(*(work(n) for n in range(60)))

    asyncio.run(main())


@pytest.mark.quick
@pytest.mark.parametrize("mode", MODES)
def test_psycopg2(start, mode):
    pooler = start(mode=mode, max_size=2)
    connection = pooler.connect2()
    with connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS t_psycopg2")
        cursor.execute("CREATE TABLE t_psycopg2 (n int, s text)")
        psycopg2.extras.execute_values(cursor, "INSERT INTO t_psycopg2 VALUES %s", [(n, str(n)) for n in range(500)])
    with connection, connection.cursor() as cursor, pytest.raises(psycopg2.errors.DivisionByZero):
        cursor.execute("SELECT 1/0")
    with connection, connection.cursor("named") as cursor:
        cursor.execute("SELECT n FROM t_psycopg2 ORDER BY n")
        assert [n for (n,) in cursor] == list(range(500))
    with connection, connection.cursor(cursor_factory=psycopg2.extras.DictCursor) as cursor:
        cursor.execute("SELECT count(*) AS c FROM t_psycopg2")
        assert cursor.fetchone()["c"] == 500
        cursor.execute("DROP TABLE t_psycopg2")
    connection.close()


async def asyncpg_connect(pooler, **more):
    target = pooler.target()
    return await asyncpg.connect(host=target["host"], port=target["port"], user=target["user"], password=target["password"],
                                 database=target["dbname"], timeout=20, **more)


@pytest.mark.parametrize("ssl", [False, "prefer"])
def test_asyncpg_in_transaction_mode_without_its_statement_cache(start, ssl):
    pooler = start(max_size=3, max_wait_time="30s")

    async def work(n):
        connection = await asyncpg_connect(pooler, statement_cache_size=0, ssl=ssl)
        try:
            for i in range(10):
                async with connection.transaction():
                    assert await connection.fetchval("SELECT $1::int + $2::int", n, i) == n + i
            async with connection.transaction():
                cursor = await connection.cursor("SELECT generate_series(1, 100)")
                assert [r[0] for r in await cursor.fetch(100)] == list(range(1, 101))
            with pytest.raises(asyncpg.DivisionByZeroError):
                async with connection.transaction():
                    await connection.execute("SELECT 1/0")
            assert await connection.execute("SELECT 1") == "SELECT 1"
        finally:
            await connection.close()

    async def main():
        await asyncio.gather(*(work(n) for n in range(30)))

    asyncio.run(main())


@pytest.mark.poolhouse_only
def test_asyncpg_in_autocommit_without_its_statement_cache(start):
    """asyncpg parses the unnamed statement in one round trip and binds it in the next, possibly on another server."""
    pooler = start(max_size=3, max_wait_time="30s")

    async def work(n):
        connection = await asyncpg_connect(pooler, statement_cache_size=0)
        for i in range(20):
            assert await connection.fetchval(f"SELECT $1::int * 1000 + {n}", i) == i * 1000 + n
        await connection.close()

    async def main():
        await asyncio.gather(*(work(n) for n in range(30)))

    asyncio.run(main())


def test_asyncpg_copies_both_ways(start):
    pooler = start(max_size=2)

    async def main():
        connection = await asyncpg_connect(pooler, statement_cache_size=0)
        await connection.execute("DROP TABLE IF EXISTS t_asyncpg")
        await connection.execute("CREATE TABLE t_asyncpg (n int, s text)")
        async with connection.transaction():
            done = await connection.copy_records_to_table("t_asyncpg", records=[(n, str(n)) for n in range(20_000)])
        assert done == "COPY 20000"
        chunks = []

        async def keep(data):
            chunks.append(data)

        assert await connection.copy_from_query("SELECT * FROM t_asyncpg", output=keep) == "COPY 20000"
        assert b"".join(chunks).count(b"\n") == 20_000
        await connection.execute("DROP TABLE t_asyncpg")
        await connection.close()

    asyncio.run(main())


def test_asyncpg_in_session_mode_with_its_statement_cache_and_its_own_pool(start):
    pooler = start(mode="session", max_size=8)
    target = pooler.target()

    async def main():
        pool = await asyncpg.create_pool(host=target["host"], port=target["port"], user=target["user"],
                                         password=target["password"], database=target["dbname"], min_size=2, max_size=5)

        async def work(n):
            async with pool.acquire() as connection:
                assert await connection.fetchval("SELECT $1::int * 2", n) == n * 2
                await connection.fetch("SELECT * FROM pg_type WHERE oid < $1", n + 100)

        await asyncio.gather(*(work(n) for n in range(100)))
        await pool.close()

    asyncio.run(main())


@pytest.mark.timing
def test_a_query_in_flight_is_cancelled_by_the_drivers_own_means(start):
    pooler = start(max_size=1)

    async def main():
        connection = await asyncpg_connect(pooler, statement_cache_size=0)
        with pytest.raises(asyncio.TimeoutError):
            await connection.execute("SELECT pg_sleep(20)", timeout=0.3)
        assert await connection.execute("SELECT 1", timeout=5) == "SELECT 1"
        await connection.close()

    asyncio.run(main())
