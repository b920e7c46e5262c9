"""Two equal databases, one for the sessions under test and one for their references, and the function that tells a
session's whole visible state. Object names and setting names used by the statements are written down here.

Two databases, so that advisory locks and notifications of the two sides do not meet; else they are the same.
"""

SUBJECT, REFERENCE = "subject", "reference"
# An ordinary role, and a superuser for SET SESSION AUTHORIZATION.
APP, ADMIN = "adv_app", "adv_admin"
PASSWORD = "adversary"
# Roles that APP may set.
ROLES = ("adv_reader", "adv writer")
SCHEMAS = ("public", "s1", "s2", "S3 odd")
TEMP_TABLES = ("item", "scratch", "t2")

# Settings that a session may change; they are compared after every statement. The full comparison covers all settings.
WATCHED = (
    "search_path", "client_min_messages", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
    "work_mem", "DateStyle", "IntervalStyle", "TimeZone", "extra_float_digits", "bytea_output", "client_encoding",
    "application_name", "standard_conforming_strings", "default_transaction_isolation", "default_transaction_read_only",
    "default_transaction_deferrable", "transaction_isolation", "transaction_read_only", "role", "session_authorization",
    "enable_seqscan", "jit", "random_page_cost", "row_security", "xmloption", "synchronous_commit", "plan_cache_mode",
    "escape_string_warning", "session_replication_role", "app.tenant", "app.user", "app.depth",
)

# Settings that differ between sessions although no client has set them.
INCOMPARABLE = ("in_hot_standby",)


def quote(name):
    return '"' + name.replace('"', '""') + '"'


def array(names):
    return "ARRAY[" + ", ".join(f"'{name}'" for name in names) + "]"


def make_roles():
    """SQL to run once in a cluster, as a superuser."""
    yield f"CREATE ROLE {APP} LOGIN PASSWORD '{PASSWORD}'"
    yield f"CREATE ROLE {ADMIN} SUPERUSER LOGIN PASSWORD '{PASSWORD}'"
    for role in ROLES:
        yield f"CREATE ROLE {quote(role)}"
        yield f"GRANT {quote(role)} TO {APP}"
    for name in (SUBJECT, REFERENCE):
        yield f"CREATE DATABASE {name}"


def make_objects(clients):
    """SQL to be run in each of the two databases, for this number of clients."""
    yield "GRANT ALL ON SCHEMA public TO PUBLIC"
    for schema in SCHEMAS:
        yield f"CREATE SCHEMA IF NOT EXISTS {quote(schema)}"
        yield f"GRANT ALL ON SCHEMA {quote(schema)} TO PUBLIC"
        yield f"CREATE TABLE {quote(schema)}.item AS SELECT '{schema}' AS place"
        yield f"GRANT SELECT ON {quote(schema)}.item TO PUBLIC"
        # Returns the search_path by which it was found.
        yield f"CREATE FUNCTION {quote(schema)}.place() RETURNS text LANGUAGE sql AS $$ SELECT '{schema}'::text $$"
    yield "CREATE SCHEMA adv"
    yield "GRANT USAGE ON SCHEMA adv TO PUBLIC"
    yield "CREATE TABLE adv.notes (client int, n int)"
    yield "CREATE INDEX ON adv.notes (client)"
    yield "GRANT ALL ON adv.notes TO PUBLIC"
    for n in range(clients):
        for letter in "ab":
            yield f"CREATE SEQUENCE adv.seq_{n}_{letter}"
            yield f"GRANT ALL ON adv.seq_{n}_{letter} TO PUBLIC"
    yield from STATE_FUNCTIONS
    yield "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA adv TO PUBLIC"


# Of a custom setting that was set and reset, a session keeps an empty string, which SQL cannot turn into NULL again:
# both count as the same. No backslash and no unqualified name here, for they mean what the caller's session says they
# mean.
def watched():
    """Each of these settings with its value, as one expression: PostgreSQL plans that faster than a query."""
    return ", ".join(f"'{name} = ' || coalesce(pg_catalog.current_setting('{name}', true), '')" for name in WATCHED)


def temporary():
    """The names of the existing temporary tables, likewise."""
    return " || ".join(f"CASE WHEN pg_catalog.to_regclass('pg_temp.{name}') IS NOT NULL THEN '{name} ' ELSE '' END" for name in TEMP_TABLES)


STATE_FUNCTIONS = (
    # What is looked at after every statement. `counters`: also lastval, which needs a subtransaction. `whole`: also
    # what has to be looked for by queries, which a pooler's cleaning has PostgreSQL plan anew each time.
    f"""CREATE FUNCTION adv.state(counters bool, whole bool) RETURNS text LANGUAGE plpgsql AS $$
DECLARE last text := ''; rest text;
BEGIN
  IF counters THEN
    BEGIN last := pg_catalog.lastval()::text; EXCEPTION WHEN OTHERS THEN last := 'none'; END;
  END IF;
  IF whole THEN
    rest := pg_catalog.concat_ws(pg_catalog.chr(10),
      'locks: ' || (SELECT coalesce(pg_catalog.string_agg(pg_catalog.concat_ws('/', classid, objid, objsubid, mode), ', '
           ORDER BY classid, objid, objsubid, mode), '') FROM pg_catalog.pg_locks
         WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid()),
      'cursors: ' || (SELECT coalesce(pg_catalog.string_agg(name || ' ' || is_holdable::text, ', ' ORDER BY name), '')
         FROM pg_catalog.pg_cursors WHERE name <> ''),
      'channels: ' || (SELECT coalesce(pg_catalog.string_agg(c, ', ' ORDER BY c), '') FROM pg_catalog.pg_listening_channels() c),
      'prepared: ' || (SELECT coalesce(pg_catalog.string_agg(name, ', ' ORDER BY name), '') FROM pg_catalog.pg_prepared_statements
         WHERE from_sql),
      'parsed: ' || (SELECT coalesce(pg_catalog.string_agg(name, ', ' ORDER BY name), '') FROM pg_catalog.pg_prepared_statements
         WHERE NOT from_sql AND name <> ''));
  END IF;
  RETURN pg_catalog.concat_ws(pg_catalog.chr(10),
    'users: ' || current_user || ', ' || session_user,
    'lastval: ' || last,
    {watched()},
    'schemas: ' || pg_catalog.current_schemas(false)::text,
    'temporary: ' || {temporary()},
    rest);
END $$""",
    # Compared now and then: every setting whose value is not the built-in one.
    f"""CREATE FUNCTION adv.settings() RETURNS text LANGUAGE sql AS $$
SELECT pg_catalog.string_agg(name || ' = ' || setting, pg_catalog.chr(10) ORDER BY name COLLATE pg_catalog."C")
  FROM pg_catalog.pg_settings WHERE setting IS DISTINCT FROM boot_val AND NOT name = ANY ({array(INCOMPARABLE)}) $$""",
    # State that changes in ways that the texts of statements do not show.
    """CREATE FUNCTION adv.hidden_set(name text, value text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_catalog.set_config(name, value, false); END $$""",
)
