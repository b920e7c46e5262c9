"""What a session can see of itself, in one query, to be compared with what a fresh session sees that is connected
directly. Knows neither what was done before, nor by whom.

The query has no backslash in it and calls everything by its full name, so that no setting changes what it means.
"""

import struct

from support import postgres_wire as w

from .world import CUSTOM, TABLES

# Differs between sessions although no client has set it.
INCOMPARABLE = ("in_hot_standby",)
# What setseed(0.25), which is what the tests call it with, makes of the next calls of random(); filled in by
# `learn_seed`.
SEED = 0.25


def array(values):
    return "ARRAY[" + ", ".join("'" + value.replace("'", "''") + "'" for value in values) + "]::pg_catalog.text[]"


def temporary(catalog, name, namespace):
    return (f"SELECT 'temporary ' || '{catalog}', {name}::pg_catalog.text FROM pg_catalog.{catalog} "
            f"WHERE {namespace} = pg_catalog.pg_my_temp_schema() AND pg_catalog.pg_my_temp_schema() <> 0")


PARTS = (
    "SELECT 'users', current_user || ' as ' || session_user",
    "SELECT 'role', pg_catalog.current_setting('role')",
    # A change of a parameter shows as another value, or as none where a fresh session has one. What a library brought
    # along, stays.
    f"SELECT 'setting ' || name, setting FROM pg_catalog.pg_settings WHERE setting IS DISTINCT FROM boot_val AND name <> ALL ({array(INCOMPARABLE)})",
    f"SELECT 'custom ' || n, pg_catalog.current_setting(n, true) FROM pg_catalog.unnest({array(CUSTOM)}) AS n "
    "WHERE pg_catalog.current_setting(n, true) <> ''",
    f"SELECT 'table ' || n, (SELECT nspname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace s ON s.oid = relnamespace "
    f"WHERE c.oid = pg_catalog.to_regclass(n))::pg_catalog.text FROM pg_catalog.unnest({array(TABLES)}) AS n",
    temporary("pg_class", "relname", "relnamespace"),
    temporary("pg_type", "typname", "typnamespace"),
    temporary("pg_proc", "proname", "pronamespace"),
    temporary("pg_operator", "oprname", "oprnamespace"),
    temporary("pg_collation", "collname", "collnamespace"),
    temporary("pg_ts_dict", "dictname", "dictnamespace"),
    temporary("pg_ts_config", "cfgname", "cfgnamespace"),
    temporary("pg_opclass", "opcname", "opcnamespace"),
    temporary("pg_conversion", "conname", "connamespace"),
    "SELECT 'lock', pg_catalog.concat_ws('/', classid, objid, objsubid, mode) FROM pg_catalog.pg_locks "
    "WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid()",
    "SELECT 'cursor', name || ': ' || statement FROM pg_catalog.pg_cursors WHERE name <> ''",
    "SELECT 'channel', c FROM pg_catalog.pg_listening_channels() AS c",
    # The pooler's own are parsed by the protocol, under names of their own.
    "SELECT 'prepared', name || ': ' || pg_catalog.left(statement, 100) FROM pg_catalog.pg_prepared_statements "
    "WHERE name <> '' AND (from_sql OR NOT pg_catalog.starts_with(name, 'poolhouse'))",
    "SELECT 'slot', slot_name::pg_catalog.text FROM pg_catalog.pg_replication_slots WHERE active_pid = pg_catalog.pg_backend_pid()",
)
SQL = " UNION ALL ".join(PARTS)
# In the database that has the functions for it only.
HIDDEN_SQL = (SQL + " UNION ALL SELECT 'dblink', c FROM pg_catalog.unnest(public.dblink_get_connections()) AS c"
              " UNION ALL SELECT 'last value', hide.last() UNION ALL SELECT 'planned', hide.planned()")


def values(body):
    """The values of a DataRow as text; in whatever encoding the session has."""
    (count,), at, found = struct.unpack_from("!H", body), 2, []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        found.append(None if length < 0 else body[at : at + length].decode(errors="replace"))
        at += max(length, 0)
    return tuple(found)


def rows(answers):
    """The rows of a request's answers; raises its error, if there was one."""
    for kind, body in answers:
        if kind == b"E":
            raise w.ServerError(w.error_fields(body))
    return [values(body) for kind, body in answers if kind == b"D"]


def look(session, hidden=False):
    """What a session sees, as a set of (what, value)."""
    session.send(w.query(HIDDEN_SQL if hidden else SQL))
    answers, _ = session.until_ready()
    return set(rows(answers))


def look_by_parse(session, hidden=False):
    """The same, but asked for by the extended protocol."""
    session.send(w.parse(HIDDEN_SQL if hidden else SQL), w.bind(), w.execute(), w.SYNC)
    answers, _ = session.until_ready()
    return set(rows(answers))


def told(fresh, seen):
    """What is seen beyond, or instead of, what a fresh session sees, for people."""
    return sorted([f"{what} = {value}" for what, value in seen - fresh] + [f"without {what} = {value}" for what, value in fresh - seen])


def randoms(session, count=12):
    """What random() says in the calls that follow setseed(SEED)."""
    session.send(w.query(f"SELECT setseed({SEED})"))
    session.until_ready()
    session.send(w.query(f"SELECT random()::text FROM generate_series(1, {count})"))
    return {value for (value,) in rows(session.until_ready()[0])}
