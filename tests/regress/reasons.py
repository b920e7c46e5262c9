"""Why a file of PostgreSQL's regression suite fails through Poolhouse though it passes directly, in a line each."""

REASONS = {
    "guc": "expects that `plpgsql` is not loaded yet: it is in a server that another client has used before",
    "limit": "`currval` asked for the first time after a transaction with `nextval`: see [Sequences](postgresql.md#sequences)",
    "sequence": "`currval` asked for the first time after a transaction with `nextval`: see [Sequences](postgresql.md#sequences)",
    "stats": "expects that every connection is a session of its own in `pg_stat_database`; and in transaction mode calls `pg_stat_force_next_flush()`, "
             "which concerns one server",
    "temp": "expects that a new connection has no temporary schema yet: a server that another client has used before has one",
    "triggers": "calls C functions that keep something in variables of their own, in one server",
}


def why(file):
    return REASONS.get(file)
