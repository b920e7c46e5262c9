"""The databases in which sessions leave things behind: `QUIET` has no function of its own, `HIDDEN` has functions,
triggers, views, rules, defaults, operators, casts and policies that change the session of a client that uses them.
Knows no pooler.

Every name that the leak hunter and the tests use is written down here.
"""

import psycopg

from support.postgres_cluster import PASSWORDS

QUIET, HIDDEN = "leaks_quiet", "leaks_hidden"
# An ordinary role, which the test clusters have, and a superuser for what only superusers may do.
APP, ADMIN = "app", "leaks_admin"
ADMIN_PASSWORD = "leaks"
# Roles that APP may take on.
ROLES = ("leaks_reader", "leaks writer")
# Tables whose name may be taken for something else: the check is whether they still mean the ones in public.
TABLES = ("orders", "customers")
# A parameter that only its own client sets, plainly: it has to stay that client's.
PROMISED = "app.own"
NOT_ASCII = "app.länge"
# Custom parameters that statements set.
# The last are longer than an identifier may be, and exactly what becomes of one that is too long.
CUSTOM = ("app.tenant", "app.person", "app.depth", "other.thing", NOT_ASCII, "app." + "n" * 300, "app." + "t" * 63,
          # Their first parts are words of SET's own grammar.
          "session.tenant", "local.tenant", "transaction.tenant", "constraints.tenant", "role.tenant", "time.tenant",
          # What becomes of the name that is not ASCII where its bytes are said to be LATIN1.
          NOT_ASCII.encode().decode("latin1"), PROMISED)

# How many views prepared transactions make, at most.
PHASES = 4

# Stands in a request for what the names of the pooler's own statements begin with, which only the run itself can tell;
# as long as that is.
OWN_NAMES = "poolhouse_" + "_" * 16 + "_"


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
    # Every client may alter them under the statements of others.
    yield "CREATE TABLE public.changing (a int, mood int)"
    yield f"ALTER TABLE public.changing OWNER TO {APP}"


# Objects that change sessions without any function of the database's own: they use PostgreSQL's under another name.
# Name -> how it is made (by an ordinary role in public), how it is used, how it is dropped.
BUILT_IN = {
    "a view": ("CREATE VIEW public.b_view AS SELECT set_config('app.tenant', 'view', false)", "SELECT * FROM public.b_view", "DROP VIEW public.b_view"),
    "a materialized view": ("CREATE MATERIALIZED VIEW public.b_mat AS SELECT set_config('app.tenant', 'materialized', true) AS a", "SELECT 1", "DROP MATERIALIZED VIEW public.b_mat"),
    "a view of pg_settings": ("CREATE VIEW public.b_settings AS SELECT name, setting FROM pg_settings",
                              "UPDATE public.b_settings SET setting = 'evil' WHERE name = 'search_path'", "DROP VIEW public.b_settings"),
    "a rule": ("CREATE TABLE public.b_ruled (a int); CREATE RULE r AS ON INSERT TO public.b_ruled DO ALSO SELECT set_config('app.tenant', 'rule', false)",
               "INSERT INTO public.b_ruled VALUES (1)", "DROP TABLE public.b_ruled"),
    "a default": ("CREATE TABLE public.b_default (a int, b text DEFAULT set_config('app.tenant', 'default', false))", "INSERT INTO public.b_default (a) VALUES (1)",
                  "DROP TABLE public.b_default"),
    "a check": ("CREATE TABLE public.b_check (a int CHECK (set_config('app.tenant', 'check', false) = 'check'))", "INSERT INTO public.b_check VALUES (1)", "DROP TABLE public.b_check"),
    "a domain": ("CREATE DOMAIN public.b_domain AS int CHECK (set_config('app.tenant', 'domain', false) = 'domain')", "SELECT 1::public.b_domain", "DROP DOMAIN public.b_domain"),
    "a policy": ("CREATE TABLE public.b_policy AS SELECT 1 AS a; ALTER TABLE public.b_policy ENABLE ROW LEVEL SECURITY; ALTER TABLE public.b_policy FORCE ROW LEVEL SECURITY;"
                 "CREATE POLICY p ON public.b_policy USING (set_config('app.tenant', 'policy', false) = 'policy')", "SELECT * FROM public.b_policy", "DROP TABLE public.b_policy"),
    "an aggregate": ("CREATE AGGREGATE public.b_aggregate(text, bool) (SFUNC = set_config, STYPE = text, INITCOND = 'app.tenant')", "SELECT public.b_aggregate('evil', false)",
                     "DROP AGGREGATE public.b_aggregate(text, bool)"),
    "an operator that locks": ("CREATE OPERATOR public.@! (RIGHTARG = bigint, FUNCTION = pg_advisory_lock)", "SELECT @! 5::bigint", "DROP OPERATOR public.@! (NONE, bigint)"),
    "a view of a text that is run": ("CREATE VIEW public.b_text AS SELECT query_to_xml('SELECT set' || '_config(''app.tenant'', ''evil'', false)', false, false, '')",
                                     "SELECT * FROM public.b_text", "DROP VIEW public.b_text"),
    "a trigger's condition": ("CREATE TABLE public.b_when (a int); INSERT INTO public.b_when VALUES (1); CREATE TRIGGER t BEFORE UPDATE ON public.b_when FOR EACH ROW "
                              "WHEN (set_config('app.tenant', 'when', false) = 'when') EXECUTE FUNCTION suppress_redundant_updates_trigger()",
                              "UPDATE public.b_when SET a = 2", "DROP TABLE public.b_when"),
    "a rule's condition": ("CREATE TABLE public.b_if (a int); INSERT INTO public.b_if VALUES (1); CREATE RULE r AS ON UPDATE TO public.b_if "
                           "WHERE set_config('app.tenant', 'if', false) = 'if' DO INSTEAD NOTHING", "UPDATE public.b_if SET a = 2", "DROP TABLE public.b_if"),
    "a domain's default": ("CREATE DOMAIN public.b_dd AS text DEFAULT set_config('app.tenant', 'domain', false); CREATE TABLE public.b_ddt (a int, b public.b_dd)",
                           "INSERT INTO public.b_ddt (a) VALUES (1)", "DROP TABLE public.b_ddt; DROP DOMAIN public.b_dd"),
    "an argument's default": ("CREATE FUNCTION public.b_arg(a text DEFAULT set_config('app.tenant', 'argument', false)) RETURNS int LANGUAGE sql AS 'SELECT 1'",
                              "SELECT public.b_arg()", "DROP FUNCTION public.b_arg"),
    "an aggregate's final function": ("CREATE AGGREGATE public.b_final(bigint) (SFUNC = int8pl, STYPE = bigint, INITCOND = '5', FINALFUNC = pg_try_advisory_lock)",
                                      "SELECT public.b_final(1) OVER ()", "DROP AGGREGATE public.b_final(bigint)"),
    "statistics": ("CREATE TABLE public.b_stats (a bigint, b int); INSERT INTO public.b_stats SELECT g, g FROM generate_series(1, 3) AS g;"
                   "CREATE STATISTICS public.b_st ON (pg_try_advisory_lock(a)), b FROM public.b_stats", "ANALYZE public.b_stats", "DROP TABLE public.b_stats"),
    "a default that advances": ("CREATE TABLE public.b_serial (a serial, b int)", "INSERT INTO public.b_serial (b) VALUES (1)", "DROP TABLE public.b_serial"),
    "a trigger before": ("CREATE FUNCTION public.b_fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('app.tenant', 'fired', false); RETURN NEW; END $$;"
                         "CREATE TABLE public.b_fired (a int); CREATE TRIGGER t BEFORE INSERT ON public.b_fired FOR EACH ROW EXECUTE FUNCTION public.b_fires()",
                         "INSERT INTO public.b_fired VALUES (1)", "DROP TABLE public.b_fired; DROP FUNCTION public.b_fires()"),
    "a trigger that composes": ("CREATE FUNCTION public.b_composes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SE' || 'T app.tenant = fired'; RETURN NEW; END $$;"
                                "CREATE TABLE public.b_composed (a int); CREATE TRIGGER t BEFORE INSERT ON public.b_composed FOR EACH ROW EXECUTE FUNCTION public.b_composes()",
                                "INSERT INTO public.b_composed VALUES (1)", "DROP TABLE public.b_composed; DROP FUNCTION public.b_composes()"),
    "a function in SQL": ("CREATE FUNCTION public.b_sql() RETURNS text LANGUAGE sql AS $$ SELECT set_config('app.tenant', 'sql', false) $$", "SELECT public.b_sql()", "DROP FUNCTION public.b_sql()"),
    "a function whose strings do not conform": ("CREATE FUNCTION public.b_strings() RETURNS void LANGUAGE plpgsql AS $x$ BEGIN PERFORM "
                                                r"'x\'', set_config($a$app.tenant$a$, $b$evil$b$, false) --'" "\n , 1; END $x$",
                                                "SET standard_conforming_strings = off; SELECT public.b_strings()", "DROP FUNCTION public.b_strings()"),
    "a function with a body of its own": ("CREATE FUNCTION public.b_body() RETURNS text BEGIN ATOMIC SELECT set_config('app.tenant', 'body', false); END",
                                          "SELECT public.b_body()", "DROP FUNCTION public.b_body()"),
}


def make_hidden(port):
    """SQL for the database whose objects change sessions in ways that the texts of statements do not show. Each sets
    app.tenant to a word of its own, so that what is found tells which one it was.
    """
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
    # Sets nothing; but how its constants are read is settled when a session plans it.
    r"""CREATE FUNCTION hide.planned() RETURNS text LANGUAGE plpgsql AS
        $$ DECLARE d date := '01/02/2020'; BEGIN RETURN to_char(d, 'MM') || 'a\\b'; END $$""",
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
            # Who waits for a lock that another keeps is answered at last.
            db.execute(f"ALTER DATABASE {name} SET lock_timeout = '5s'")
    for name, more in ((QUIET, ()), (HIDDEN, make_hidden(cluster.port))):
        with cluster.superuser(name) as db:
            for sql in (*make_common(), *more):
                try:
                    db.execute(sql)
                except psycopg.Error as error:
                    raise RuntimeError(f"{sql}: {error}") from error


def tidy(cluster):
    """Takes away what clients have made in the databases, so that a history can be played from its beginning."""
    for database in (QUIET, HIDDEN):
        with cluster.superuser(database) as db:
            drops = [drop for _, _, drop in BUILT_IN.values()] + [f"DROP FUNCTION public.made_{n}()" for n in range(3)]
            drops += [f"ROLLBACK PREPARED 'b_phase_{n}'" for n in range(PHASES)] + [f"DROP VIEW public.b_phase_{n}" for n in range(PHASES)]
            drops += ["DROP TABLE public.b_meant", "DROP FUNCTION public.b_meanwhile()", "DROP VIEW public.b_viewed"]
            for sql in drops:
                try:
                    db.execute(sql)
                except psycopg.Error:
                    continue
            db.execute("DROP TABLE IF EXISTS public.changing; CREATE TABLE public.changing (a int, mood int)")
            db.execute(f"ALTER TABLE public.changing OWNER TO {APP}")
