"""Real use of asyncpg, each check on many connections at once. What is asked holds a nonce that the answer must echo.
"""

import asyncio
import datetime
import decimal
import pathlib
import ssl
import sys
import uuid

import asyncpg

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from checks import CONNECTIONS, TLS_CA, TLS_HOST, TLS_OTHER_CA, failing, nonce, run

TABLE = "c_asyncpg"


async def connect(**more):
    """As the environment says. Statements are not kept by name, unless asked for."""
    return await asyncpg.connect(**{"statement_cache_size": 0, "timeout": 20, "ssl": False, **more})


async def gather(work, **more):
    async def one(worker):
        connection = await connect(**more)
        try:
            await work(connection, worker)
        finally:
            await connection.close()

    async with asyncio.timeout(60):
        await asyncio.gather(*(one(n) for n in range(CONNECTIONS)))


def on_each(work, **more):
    asyncio.run(gather(work, **more))


async def echo(connection):
    mine = nonce()
    assert await connection.fetchval("SELECT $1::text", mine) == mine


def set_up():
    async def work():
        connection = await connect()
        await connection.execute(f"DROP TABLE IF EXISTS {TABLE}; CREATE TABLE {TABLE} (worker int, n int, note text, UNIQUE (worker, n))")
        await connection.close()

    asyncio.run(work())


def transactions(**more):
    set_up()

    async def work(connection, worker):
        for n in range(20):
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(f"INSERT INTO {TABLE} VALUES ($1, $2, $3)", worker, n, nonce())
            with failing(asyncpg.DivisionByZeroError):
                async with connection.transaction():
                    await connection.fetchval("SELECT 1/0")
            await (transaction.commit() if n % 2 else transaction.rollback())
        assert await connection.fetchval(f"SELECT count(*) FROM {TABLE} WHERE worker = $1", worker) == 10

    on_each(work, **more)


def unprepared():
    async def work(connection, worker):
        for _ in range(40):
            await echo(connection)

    on_each(work)


def prepared():
    """With its cache, which is its default."""
    transactions(statement_cache_size=100)

    async def work(connection, worker):
        statement = await connection.prepare("SELECT $1::text, $2::int * 2")
        for n in range(40):
            mine = nonce()
            assert tuple(await statement.fetchrow(mine, n)) == (mine, 2 * n)
            await echo(connection)

    on_each(work, statement_cache_size=100)


def batches():
    set_up()

    async def work(connection, worker):
        await connection.executemany(f"INSERT INTO {TABLE} VALUES ($1, $2, $3)", [(worker, n, nonce()) for n in range(300)])
        with failing(asyncpg.UniqueViolationError):
            await connection.executemany(f"INSERT INTO {TABLE} VALUES ($1, $2, $3)", [(worker, n, "again") for n in (1000, 1001, 5, 1002)])
        assert await connection.fetchval(f"SELECT count(*) FROM {TABLE} WHERE worker = $1", worker) == 300

    on_each(work)


def copy():
    set_up()

    async def work(connection, worker):
        rows = [(worker, n, f"note {n}") for n in range(3000)]
        async with connection.transaction():
            assert await connection.copy_records_to_table(TABLE, records=rows) == "COPY 3000"
        chunks = []

        async def keep(data):
            chunks.append(data)

        await connection.copy_from_query(f"SELECT * FROM {TABLE} WHERE worker = {worker} ORDER BY n", output=keep)
        assert b"".join(chunks).decode() == "".join(f"{w}\t{n}\t{note}\n" for w, n, note in rows)

    on_each(work)


def cursors():
    async def work(connection, worker):
        async with connection.transaction():
            seen = [row[0] async for row in connection.cursor("SELECT generate_series(1, 95) + $1::int", worker * 1000, prefetch=10)]
        assert seen == list(range(worker * 1000 + 1, worker * 1000 + 96))

    on_each(work)


def cancel(**more):
    async def work(connection, worker):
        with failing(TimeoutError):
            await connection.execute("SELECT pg_sleep(30)", timeout=0.5)
        await echo(connection)

    on_each(work, **more)


def timeouts():
    async def work(connection, worker):
        with failing(asyncpg.QueryCanceledError):
            async with connection.transaction():
                await connection.execute("SET LOCAL statement_timeout = '100ms'")
                await connection.execute("SELECT pg_sleep(10)")
        await echo(connection)

    on_each(work)


def types():
    values = [("int4", 7), ("int8", 2**40), ("float8", 0.1), ("numeric", decimal.Decimal("1.10")), ("text", "ünïcode"), ("bytea", b"\x00\xff"),
              ("bool", True), ("int[]", [1, 2, 3]), ("date", datetime.date(2026, 1, 2)), ("uuid", uuid.uuid4()),
              ("timestamp", datetime.datetime(2026, 1, 2, 3, 4, 5, 6)), ("text", None)]

    async def work(connection, worker):
        for name, value in values:
            assert await connection.fetchval(f"SELECT $1::{name}", value) == value

    on_each(work)


def types_looked_up():
    """A type it does not know makes it ask the catalogs, with a setting turned off and on again around the question."""

    async def work(connection, worker):
        assert await connection.fetchval("SELECT $1::c_asyncpg_mood[]", ["good", "bad"]) == ["good", "bad"]
        assert await connection.fetchval("SELECT current_setting('jit')") == "on"

    async def make():
        connection = await connect()
        await connection.execute("DROP TYPE IF EXISTS c_asyncpg_mood; CREATE TYPE c_asyncpg_mood AS ENUM ('good', 'bad')")
        await connection.close()

    asyncio.run(make())
    on_each(work)


def settings():
    async def work(connection, worker):
        await connection.execute(f"SET search_path = schema_{worker}, public")
        await connection.execute("SELECT set_config('app.tenant', $1, false)", f"tenant {worker}")
        for _ in range(20):
            got = await connection.fetchrow("SELECT current_setting('search_path'), current_setting('app.tenant', true)")
            assert tuple(got) == (f"schema_{worker}, public", f"tenant {worker}"), got

    on_each(work, server_settings={"application_name": "settings"})


def listen():
    async def work(connection, worker):
        got = []
        await connection.add_listener(f"channel_{worker}", lambda _connection, _pid, channel, payload: got.append((channel, payload)))
        for n in range(5):
            await connection.execute("SELECT pg_notify($1, $2)", f"channel_{worker}", f"note {n}")
        for _ in range(100):
            if len(got) == 5:
                break
            await asyncio.sleep(0.1)
        assert got == [(f"channel_{worker}", f"note {n}") for n in range(5)], got

    on_each(work)


async def is_encrypted(connection, worker):
    assert connection._transport.get_extra_info("cipher")
    await echo(connection)


def tls():
    on_each(is_encrypted, ssl="require")
    transactions(ssl="require", statement_cache_size=100)
    cancel(ssl="require")


def tls_verified():
    """It has no channel binding."""
    on_each(is_encrypted, host=TLS_HOST, ssl=ssl.create_default_context(cafile=TLS_CA))
    with failing(ssl.SSLCertVerificationError, "certificate verify failed"):
        asyncio.run(connect(host=TLS_HOST, ssl=ssl.create_default_context(cafile=TLS_OTHER_CA)))
    with failing(ssl.SSLCertVerificationError, "IP address mismatch"):
        asyncio.run(connect(ssl=ssl.create_default_context(cafile=TLS_CA)))


def own_pool(**more):
    """Its pool resets a connection each time it is given back."""

    async def main():
        async with asyncpg.create_pool(**{"min_size": 2, "max_size": CONNECTIONS, "statement_cache_size": 0, "ssl": False, **more}) as pool:
            async def work(n):
                async with pool.acquire() as connection:
                    await echo(connection)

            await asyncio.gather(*(work(n) for n in range(300)))

    asyncio.run(main())


def own_pool_prepared():
    own_pool(statement_cache_size=100)


run(asyncpg.__version__, [transactions, unprepared, prepared, batches, copy, cursors, cancel, timeouts, types, types_looked_up, settings, listen, tls,
                          tls_verified, own_pool, own_pool_prepared])
