"""Why a file of PostgreSQL's regression suite fails through Poolhouse though it passes directly, in a line each."""

REASONS = {
    "guc": "expects that `plpgsql` is not loaded yet: a server that another client has used before has loaded it",
    "limit": "asks for `currval` for the first time after the transaction of the `nextval`: see [Sequences](postgresql.md#sequences)",
    "sequence": "asks for `currval` for the first time after the transaction of the `nextval`: see [Sequences](postgresql.md#sequences)",
    "stats": "expects that every connection is a session of its own in `pg_stat_database`; in transaction mode it also calls `pg_stat_force_next_flush()`, "
             "which acts on one server",
    "temp": "expects that a new connection has no temporary schema yet: a server that another client has used before has one",
    "triggers": "calls C functions that keep state in variables of one server",
}


def why(file):
    return REASONS.get(file)
