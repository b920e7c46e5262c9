"""What common frameworks and drivers send when they connect, when they return a connection to their own pools, and
around a unit of work. The statements have their form; statements without a constant answer are left out.
"""

from .requests import Batch, simple


def extended(sql, values=()):
    return Batch().run(sql, values).sync()


def django():
    return [extended("SELECT set_config('TimeZone', $1, false)", ["UTC"])]


def django_with_a_role():
    return [simple("SET TIME ZONE 'Europe/Berlin'"), simple("SET ROLE adv_reader")]


def rails():
    return [
        simple("SET client_min_messages TO 'warning'"),
        simple("SET standard_conforming_strings = on"),
        simple("SET intervalstyle = iso_8601"),
        simple("SET SESSION timezone TO 'UTC'"),
        simple("SET SESSION statement_timeout TO '180s'"),
        extended("SELECT t.oid, t.typname FROM pg_type AS t WHERE t.typname IN ('int4', 'text', 'bool') ORDER BY 1"),
        simple("SHOW max_identifier_length"),
        simple("SHOW search_path"),
    ]


def sqlalchemy():
    return [
        simple("BEGIN"), simple("select current_schema()"), simple("show standard_conforming_strings"), simple("ROLLBACK"),
        simple("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED"),
    ]


def hibernate():
    """The settings of pgjdbc, then Hibernate's questions, then the schema and the test of a pool (HikariCP)."""
    return [
        extended("SET extra_float_digits = 3"),
        extended("SET application_name = 'PostgreSQL JDBC Driver'"),
        extended("SHOW TRANSACTION ISOLATION LEVEL"),
        extended("SET SESSION search_path TO 'public'"),
        extended("select 1"),
    ]


def prisma():
    return [simple('SET search_path = "s1"'), simple("SELECT 1"),
            Batch().parse("SELECT current_setting('search_path')", "s0").describe("s0").sync(),
            Batch().bind(name="s0").execute().sync(), Batch().close("s0").sync()]


def asyncpg():
    """The look-up of types, with the just-in-time compiler off meanwhile."""
    return [
        Batch().parse("SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new", "__asyncpg_1").describe("__asyncpg_1").sync(),
        Batch().bind(name="__asyncpg_1").execute().sync(),
        extended("SELECT set_config('jit', $1, false)", ["on"]),
        Batch().close("__asyncpg_1").sync(),
    ]


def pgx():
    return [simple("-- ping"), simple(";"), Batch().parse("select $1::text", "stmtcache_1").describe("stmtcache_1").sync(),
            Batch().bind(["pgx"], "stmtcache_1").execute().sync(), Batch().close("stmtcache_1").sync()]


CONNECTS = [django_with_a_role, rails, sqlalchemy, hibernate, prisma, pgx]
# These set what the statement alone does not tell.
PINNING_CONNECTS = [django, asyncpg]


def at_connect(chance, pinner):
    """`pinner`: whether it may use what needs a server of its own."""
    return chance.choice(CONNECTS + PINNING_CONNECTS if pinner else CONNECTS)()


# -- in between

def django_atomic():
    """Nested atomic blocks of which the inner one fails."""
    return [simple("BEGIN"), simple('SAVEPOINT "s1_x1"'), simple("SELECT 1/0"), simple('ROLLBACK TO SAVEPOINT "s1_x1"'),
            simple('RELEASE SAVEPOINT "s1_x1"'), simple("COMMIT")]


def django_iterator():
    """A query set's iterator() in autocommit is a cursor WITH HOLD."""
    name = '"_django_curs_1_sync_1"'
    return [simple(f"DECLARE {name} NO SCROLL CURSOR WITH HOLD FOR SELECT generate_series(1, 5)"), simple(f"FETCH FORWARD 2 FROM {name}"),
            simple(f"FETCH FORWARD 2 FROM {name}"), simple(f"CLOSE {name}")]


def rails_reset():
    return [simple("ROLLBACK"), simple("DISCARD ALL"), *rails()]


def rails_prepared():
    return [Batch().parse("SELECT $1::text", "a1").describe("a1").sync(), Batch().bind(["x"], "a1").describe_portal().execute().sync(),
            simple("SAVEPOINT active_record_1"), simple("DEALLOCATE a1")]


def rails_migration_lock(key):
    return [simple(f"SELECT pg_try_advisory_lock({key})"), simple(f"SELECT pg_advisory_unlock({key})")]


def jdbc_transaction():
    """BEGIN is sent with the first statement, without a Sync of its own."""
    return [Batch().run("BEGIN").run("select $1::text", ["of jdbc"]).sync(), Batch().run("SAVEPOINT PGJDBC_AUTOSAVE").run("SELECT 1/0").sync(),
            Batch().run("ROLLBACK TO SAVEPOINT PGJDBC_AUTOSAVE").sync(), Batch().run("COMMIT").sync()]


def hibernate_read_only():
    return [extended("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"), Batch().run("BEGIN").run("select 1").sync(), extended("COMMIT"),
            extended("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE")]


def prisma_behind_a_pooler():
    return [simple("BEGIN"), simple("DEALLOCATE ALL"), Batch().parse("SELECT 1 WHERE $1::text = 'x'", "s0").describe("s0").sync(),
            Batch().bind(["x"], "s0").execute().sync(), simple("COMMIT")]


def asyncpg_reset():
    return [simple("SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;")]


def psycopg_pipeline():
    return [Batch().run("BEGIN").sync() + Batch().parse("SELECT $1::text", "_pg3_0").bind(["x"], "_pg3_0").describe_portal().execute().sync()
            + Batch().run("COMMIT").sync(), simple("DEALLOCATE _pg3_0")]


def npgsql_reset():
    return [simple("CLOSE ALL;UNLISTEN *;SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP")]


HABITS = [django_atomic, rails_reset, rails_prepared, jdbc_transaction, hibernate_read_only, prisma_behind_a_pooler, psycopg_pipeline]
PINNING_HABITS = [django_iterator, asyncpg_reset, npgsql_reset]


def in_between(chance, pinner, key):
    """`pinner`: whether it may use what needs a server of its own. `key` is that of an advisory lock which no other
    client takes.
    """
    return chance.choice([*HABITS, *PINNING_HABITS, lambda: rails_migration_lock(key)] if pinner else HABITS)()
