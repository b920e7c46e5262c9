"""The databases in which sessions leave things behind: `QUIET` has no function of its own, `HIDDEN` has functions, triggers, views,
rules, defaults, operators, casts and policies that change the session of whoever uses them. Knows no pooler.

Every name that the leak hunter and the tests use is written down here.
"""

import psycopg

from cluster import PASSWORDS

QUIET, HIDDEN = "leaks_quiet", "leaks_hidden"
# An ordinary role, which the test clusters have, and a superuser for what only superusers may do.
APP, ADMIN = "app", "leaks_admin"
ADMIN_PASSWORD = "leaks"
# Roles that APP may take on.
ROLES = ("leaks_reader", "leaks writer")
# Tables whose name somebody may take for something else: the check is whether they still mean the ones in public.
TABLES = ("orders", "customers")
# Custom parameters that statements set.
CUSTOM = ("app.tenant", "app.person", "app.depth", "other.thing", "app.länge")


def make_roles():
    yield f"CREATE ROLE {ADMIN} SUPERUSER LOGIN PASSWORD '{ADMIN_PASSWORD}'"
    for role in ROLES:
        yield f'CREATE ROLE "{role}"'
        yield f'GRANT "{role}" TO {APP}'


def make_common():
    """SQL for both databases: tables, and a schema with others of the same names."""
    yield "GRANT ALL ON SCHEMA public TO PUBLIC"
    yield "CREATE SCHEMA evil"
    yield "GRANT ALL ON SCHEMA evil TO PUBLIC"
    for schema in ("public", "evil"):
        for table in TABLES:
            yield f"CREATE TABLE {schema}.{table} (id bigint, note text, tenant text DEFAULT current_setting('app.tenant', true), who name DEFAULT current_user)"
            yield f"GRANT ALL ON {schema}.{table} TO PUBLIC"
        yield f"CREATE SEQUENCE {schema}.numbers"
        yield f"GRANT ALL ON {schema}.numbers TO PUBLIC"
    # Anybody's to alter under the statements of others.
    yield "CREATE TABLE public.changing (a int, mood int)"
    yield f"ALTER TABLE public.changing OWNER TO {APP}"


def make_hidden(port):
    """SQL for the database whose objects change sessions out of sight of whoever reads only the statements. Each sets app.tenant to a
    word of its own, so that what is found tells which one it was."""
    yield "CREATE EXTENSION dblink"
    yield f"CREATE SERVER itself FOREIGN DATA WRAPPER dblink_fdw OPTIONS (host '127.0.0.1', port '{port}', dbname '{HIDDEN}')"
    yield "GRANT USAGE ON FOREIGN SERVER itself TO PUBLIC"
    yield f"CREATE USER MAPPING FOR PUBLIC SERVER itself OPTIONS (user '{APP}', password '{PASSWORDS[APP]}')"
    yield "CREATE EXTENSION tablefunc"
    yield "CREATE SCHEMA hide"
    yield "GRANT ALL ON SCHEMA hide TO PUBLIC"
    yield from HIDING
    yield "GRANT ALL ON ALL TABLES IN SCHEMA hide TO PUBLIC"
    yield "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA hide TO PUBLIC"


HIDING = (
    """CREATE FUNCTION hide.tenant(value text) RETURNS text LANGUAGE plpgsql AS
       $$ BEGIN RETURN set_config('app.tenant', value, false); END $$""",
    "CREATE FUNCTION hide.in_sql() RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant', 'in_sql', false) $$",
    """CREATE FUNCTION hide.role() RETURNS text LANGUAGE plpgsql AS
       $$ BEGIN RETURN set_config('role', 'leaks_reader', false); END $$""",
    """CREATE FUNCTION hide.path() RETURNS text LANGUAGE plpgsql AS
       $$ BEGIN EXECUTE 'SET search_path = evil, public'; RETURN 'set'; END $$""",
    "CREATE FUNCTION hide.lock() RETURNS void LANGUAGE sql AS $$ SELECT pg_advisory_lock(777) $$",
    """CREATE FUNCTION hide.table() RETURNS void LANGUAGE plpgsql AS
       $$ BEGIN EXECUTE 'CREATE TEMP TABLE orders (LIKE public.orders)'; END $$""",
    "CREATE FUNCTION hide.listen() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'LISTEN hidden'; END $$",
    "CREATE FUNCTION hide.cursor() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DECLARE hidden CURSOR WITH HOLD FOR SELECT 1'; END $$",
    "CREATE FUNCTION hide.statement() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'PREPARE hidden AS SELECT 1'; END $$",
    "CREATE FUNCTION hide.forget() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$",
    """CREATE FUNCTION hide.replace() RETURNS void LANGUAGE plpgsql AS $$ DECLARE s text; BEGIN
         FOR s IN SELECT name FROM pg_prepared_statements WHERE name <> '' LOOP
           EXECUTE format('DEALLOCATE %I', s); EXECUTE format('PREPARE %I AS SELECT 66', s);
         END LOOP; END $$""",
    "CREATE FUNCTION hide.seed() RETURNS void LANGUAGE sql AS $$ SELECT setseed(0.25) $$",
    "CREATE FUNCTION hide.next() RETURNS bigint LANGUAGE sql AS $$ SELECT nextval('public.numbers') $$",
    """CREATE FUNCTION hide.last() RETURNS text LANGUAGE plpgsql AS
       $$ BEGIN RETURN lastval()::text; EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN 'none'; END $$""",
    "CREATE PROCEDURE hide.call() LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', 'call', false); END $$",
    "CREATE PROCEDURE hide.call_and_commit() LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', 'call_and_commit', false); COMMIT; END $$",
    # A function with a setting of its own puts that one back, but not what else it has set.
    """CREATE FUNCTION hide.with_set() RETURNS text LANGUAGE plpgsql SET search_path = pg_catalog AS
       $$ BEGIN RETURN set_config('app.tenant', 'with_set', false); END $$""",
    "CREATE FUNCTION hide.fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', TG_ARGV[0], false); RETURN NEW; END $$",
    "CREATE FUNCTION hide.fires_role() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('role', 'leaks_reader', false); RETURN NEW; END $$",
    "CREATE TABLE hide.triggered (a int)",
    "CREATE TRIGGER t BEFORE INSERT OR UPDATE ON hide.triggered FOR EACH ROW EXECUTE FUNCTION hide.fires('trigger')",
    "CREATE TABLE hide.statement_triggered (a int)",
    "CREATE TRIGGER t AFTER INSERT ON hide.statement_triggered FOR EACH STATEMENT EXECUTE FUNCTION hide.fires('statement trigger')",
    "CREATE TABLE hide.deferred (a int)",
    """CREATE CONSTRAINT TRIGGER t AFTER INSERT ON hide.deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
       EXECUTE FUNCTION hide.fires('deferred trigger')""",
    "CREATE TABLE hide.role_triggered (a int)",
    "CREATE TRIGGER t AFTER INSERT ON hide.role_triggered FOR EACH ROW EXECUTE FUNCTION hide.fires_role()",
    "CREATE VIEW hide.viewed AS SELECT hide.tenant('view') AS value",
    "CREATE VIEW hide.viewed_role AS SELECT hide.role() AS value",
    "CREATE VIEW hide.viewed_settings AS SELECT name, setting FROM pg_catalog.pg_settings",
    "CREATE TABLE hide.ruled (a int)",
    "CREATE RULE r AS ON INSERT TO hide.ruled DO ALSO SELECT set_config('app.tenant', 'rule', false)",
    "CREATE TABLE hide.defaulted (a int, b text DEFAULT set_config('app.tenant', 'default', false))",
    "CREATE TABLE hide.checked (a int CHECK (hide.tenant('check') = 'check'))",
    "CREATE DOMAIN hide.checking AS int CHECK (hide.tenant('domain') = 'domain')",
    "CREATE FUNCTION hide.operated(int, int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', 'operator', false); END $$",
    "CREATE OPERATOR hide.+@+ (LEFTARG = int, RIGHTARG = int, FUNCTION = hide.operated)",
    "CREATE TYPE hide.mood AS ENUM ('sad', 'glad')",
    "CREATE FUNCTION hide.to_int(hide.mood) RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', 'cast', false); RETURN 1; END $$",
    "CREATE CAST (hide.mood AS int) WITH FUNCTION hide.to_int(hide.mood)",
    "CREATE FUNCTION hide.add(text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', 'aggregate', false); END $$",
    "CREATE AGGREGATE hide.gather(text) (SFUNC = hide.add, STYPE = text)",
    "CREATE TABLE hide.guarded AS SELECT 1 AS a",
    "ALTER TABLE hide.guarded ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY p ON hide.guarded USING (hide.tenant('policy') = 'policy')",
    "CREATE FUNCTION hide.immutable(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', 'index', false); RETURN $1; END $$",
    "CREATE TABLE hide.indexed (a int)",
    "CREATE INDEX ON hide.indexed (hide.immutable(a))",
    "CREATE TABLE hide.generated (a int, b int GENERATED ALWAYS AS (hide.immutable(a)) STORED)",
)


def make(cluster):
    """Makes roles and databases in a running cluster, if they are not there already."""
    if cluster.query("SELECT 1 FROM pg_roles WHERE rolname = %s", ADMIN):
        return
    with cluster.superuser() as db:
        for sql in make_roles():
            db.execute(sql)
        for name in (QUIET, HIDDEN):
            db.execute(f"CREATE DATABASE {name}")
    for name, more in ((QUIET, ()), (HIDDEN, make_hidden(cluster.port))):
        with cluster.superuser(name) as db:
            for sql in (*make_common(), *more):
                try:
                    db.execute(sql)
                except psycopg.Error as error:
                    raise RuntimeError(f"{sql}: {error}") from error
