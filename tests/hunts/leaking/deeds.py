"""What a client does to its session: one deed is a few requests that belong together, out of which, sooner or later,
nothing may be left for others. A deed is made from the random source alone, so that any of a run's deeds can be made
again without the others.

A new kind of deed is a function with the decorator `deed`; FEATURES says what can be switched off.
"""

import dataclasses

from . import world
from .requests import Batch, aside, call, copy_in, simple
from .spelling import Speller

# Feature -> what it is.
FEATURES = {
    "settings": "SET, RESET and set_config, in the usual notation",
    "spelling": "set_config and pg_advisory_lock under quoted, escaped and qualified names",
    "names": "names of parameters that are escaped or computed",
    "local": "set_config that is local at first sight only",
    "strings": "settings hidden behind strings that are easy to read wrongly",
    "view": "UPDATE pg_settings",
    "large": "values above all that is remembered",
    "bounds": "messages above every bound: Query, Parse, Bind, FunctionCall",
    "call": "FunctionCall by the number of the function",
    "temp": "temporary objects, their schema spelled in every way",
    "acting": "temporary objects with something hidden in them: defaults, checks, rules, views, policies, partition bounds and the like",
    "path": "temporary objects because search_path begins with pg_temp",
    "prepare": "PREPARE, EXECUTE, DEALLOCATE in SQL",
    "own": "the names under which a pooler prepares its own statements",
    "blocks": "DO, its text in every kind of string",
    "texts": "functions of PostgreSQL that run a text that is given to them",
    "locks": "advisory locks",
    "cursors": "cursors that outlive their transaction",
    "listen": "LISTEN",
    "role": "SET ROLE",
    "encoding": "client encodings, with letters of which a backslash is the second half",
    "timeouts": "time-outs too small for other clients",
    "discard": "DISCARD, RESET ALL, DEALLOCATE ALL after all this",
    "plans": "tables that change under prepared statements",
    "hidden": "functions, triggers, views, rules, defaults, operators, casts, policies; in the database that has them",
    "constants": "functions planned while their constants are read otherwise; in the database that has one",
    "seed": "setseed",
    "sequences": "nextval and setval",
    "dblink": "connections of dblink, in the database that has it",
    "superuser": "what only superusers do: LOAD, slots, SET SESSION AUTHORIZATION",
    "objects": "views, defaults, rules and the like of PostgreSQL's own functions, made, used and dropped by clients; off unless asked for",
    "phases": "objects that a prepared transaction makes; off unless asked for",
    "meanwhile": "functions that another client replaces while a transaction uses them, for which there have to be several servers; off unless asked for",
    "made": "functions made during the run; off unless asked for, for a pooler may count the database as one with functions from then on",
}
OFF_BY_DEFAULT = {"made", "objects", "phases", "meanwhile"}
# Which databases a feature is of use in; the others are for both.
ONLY_HIDDEN = {"hidden", "dblink", "constants"}

DEEDS = []


@dataclasses.dataclass(frozen=True)
class Deed:
    make: object
    feature: str
    weight: float


def deed(feature, weight=1.0):
    def register(make):
        assert feature in FEATURES, feature
        DEEDS.append(Deed(make, feature, weight))
        return make

    return register


class Doer:
    """Makes deeds; `hidden`: in the database with functions; `era`: a number that changes now and then."""

    def __init__(self, chance, hidden, era=0):
        self.chance, self.hidden, self.era = chance, hidden, era
        self.spell = Speller(chance)

    # -- how a statement is sent

    def sent(self, sql, encoding="utf-8"):
        """A statement, delivered in one of many ways: the requests."""
        if isinstance(sql, str):
            sql = sql.encode(encoding)
        way = self.chance.randrange(13)
        if way < 3:
            return [simple(sql)]
        if way == 3:
            return [simple(self.spell.beside("@").encode().replace(b"@", sql))]
        if way == 4:
            return [Batch().run(sql).sync()]
        if way == 5:
            return [Batch().parse(sql, "named").sync(), Batch().bind(name="named").execute().sync(), Batch().close("named").sync()]
        if way == 6:
            return [Batch().run("SELECT 1").run(sql).run("SELECT 2").sync()]
        if way == 7:
            return [Batch().run("BEGIN").run(sql).run("COMMIT").sync()]
        if way == 8:
            return [simple("BEGIN"), simple(sql), simple("COMMIT")]
        if way == 9:
            return [simple("BEGIN"), simple("SAVEPOINT s"), simple(sql), simple(self.chance.choice(["RELEASE s", "SAVEPOINT t"])),
                    simple(self.chance.choice(["COMMIT", "COMMIT", "SELECT 1/0"])), simple(self.chance.choice(["COMMIT", "COMMIT AND CHAIN"]))]
        if way == 10:
            return [simple("BEGIN"), simple("SAVEPOINT s"), simple("SELECT 1/0"), simple("ROLLBACK TO s"), simple(sql), simple("END")]
        if way == 11:
            return [Batch().parse(sql).sync(), Batch().bind().execute().sync()]
        # Several requests at once, none of which waits for the answers of those before.
        return [simple("SELECT 'before'") + simple(sql) + Batch().run("SELECT 'behind'").sync()]

    def plainly(self, sql):
        return [simple(sql) if self.chance.random() < 0.7 else Batch().run(sql).sync()]

    # -- what is set

    def custom(self):
        return self.chance.choice(world.CUSTOM[:5]), f"evil {self.chance.randrange(1000)}"

    def setting(self):
        """A parameter and a value that a newcomer would notice."""
        return self.chance.choice([self.custom(), self.custom(), ("search_path", "evil"), ("application_name", "evil"), ("work_mem", "7MB"), ("DateStyle", "German"),
                                   ("TimeZone", "Asia/Tokyo"), ("enable_seqscan", "off"), ("default_transaction_isolation", "serializable"), ("bytea_output", "escape"),
                                   ("plpgsql.extra_warnings", "all"), ("IntervalStyle", "iso_8601"), ("xmloption", "document")])

    def configure(self, name=None, value=None, local="false"):
        """A call of set_config, as SQL."""
        spell = self.spell
        if name is None:
            name, value = self.setting()
            name, value = spell.quoted(name), spell.quoted(value)
        return f"SELECT set_config({name}, {value}, {local})"

    def assigned(self):
        """A SET, as SQL."""
        name, value = self.setting()
        spell = self.spell
        path = ".".join(spell.identifier(part) for part in name.split("."))
        to = spell.some("=", " TO ", spell.gap() + "=" + spell.gap())
        return f"{spell.words(self.chance.choice(['SET', 'SET SESSION']))}{spell.space()}{path}{to}{spell.string(value)}"


# -- settings

@deed("settings", 2)
def set_one(d):
    return d.sent(d.assigned())


@deed("settings")
def configure(d):
    return d.sent(d.configure())


@deed("settings")
def reset(d):
    name, _ = d.setting()
    return d.sent(d.chance.choice([f"RESET {name}", f"SET {name} TO DEFAULT", "RESET ALL", f"SET LOCAL {name} TO DEFAULT"]))


@deed("settings", 0.5)
def set_by_a_form_of_its_own(d):
    return d.sent(d.chance.choice(["SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE", "SET TIME ZONE 'Asia/Tokyo'", "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
                                   "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET XML OPTION DOCUMENT", "SET NAMES 'LATIN1'", "SET SCHEMA 'evil'",
                                   "SET SESSION TIME ZONE -5", "SET app.tenant = 1, 2, 'x'", "SET app.tenant TO evil", "SET SEED TO 0.3"]))


@deed("names")
def a_name_that_is_too_long(d):
    """Identifiers are cut to 63 bytes, names in strings are not."""
    long = world.CUSTOM[5]
    return d.sent(d.chance.choice([f"SET app.{'t' * d.chance.choice([63, 64, 80, 300])} = 'evil'", f"SELECT set_config('{long}', 'evil', false)", f'SET "app"."{"t" * 70}" = 1',
                                   f"SELECT set_config('{long}', 'evil', NOT true)"]))


@deed("settings")
def a_name_that_begins_like_a_keyword(d):
    word = d.chance.choice(["session", "local", "transaction", "constraints", "role", "time"])
    word = d.chance.choice([word, word.upper(), f'"{word}"'])
    return d.sent(f"{d.chance.choice(['SET', 'SET', 'SET SESSION'])} {word}{d.spell.gap()}.{d.spell.gap()}tenant = 'evil'")


@deed("settings", 0.5)
def configure_where_few_look(d):
    name, value = d.custom()
    call = f"set_config('{name}', '{value}', false)"
    if d.chance.random() < 0.3:
        columns = d.chance.choice(["", "", " (id)"])
        return [copy_in(f"COPY customers{columns} FROM STDIN WHERE {call} = '{value}'", b"1\n" if columns else b"1\tx\ty\tz\n")]
    return d.sent(d.chance.choice([f"SELECT set_config(values, '{value}', false) FROM (SELECT '{name}'::text) AS t(values)", f"VALUES ({call})", f"SELECT 1 LIMIT length({call})",
                                   f"SELECT DISTINCT ON ({call}) 1", f"SELECT * FROM ROWS FROM ({call}) AS x", f"SELECT 1 FROM (SELECT 1) AS x(a), {call} AS y(b)",
                                   f"SELECT 'a' LIKE ('b') ESCAPE left({call}, 1)", f"SELECT 'a' BETWEEN ('b') AND {call}", f"SELECT xmlelement(name a, {call})",
                                   f"SELECT overlay('abc' placing {call} from 1)", f"SELECT concat(VARIADIC ARRAY[{call}])", f"TABLE orders ORDER BY {call}",
                                   f"SELECT CASE WHEN (true) THEN {call} END", f"SELECT (ARRAY[{call}])[1]", f"(SELECT {call})", f"WITH x (a) AS (SELECT {call}) SELECT * FROM x",
                                   f"UPDATE orders SET note = note WHERE {call} = 'x'", f"DELETE FROM orders WHERE id = -1 RETURNING {call}", f"COPY (SELECT {call}) TO STDOUT",
                                   f"INSERT INTO customers (note) VALUES ({call})", f"SELECT pg_advisory_lock(values) FROM (SELECT 5::bigint) AS t(values)",
                                   f"EXPLAIN (ANALYZE, COSTS off) SELECT {call}", f"SELECT sum(1) FILTER (WHERE {call} = '') OVER (PARTITION BY {call})"]))


@deed("settings")
def configure_with_parameters(d):
    (name, value), local = d.setting(), d.chance.choice("ft")
    shape = d.chance.randrange(4)
    if shape == 0:
        return [Batch().run("SELECT set_config($1, $2, $3)", [name, value, local]).sync()]
    if shape == 1:
        return [Batch().run(f"SELECT set_config('{name}', $1, $2)", [value, local]).sync()]
    if shape == 2:
        return [Batch().run("SELECT set_config(reverse($1), $2, false)", [name[::-1], value]).sync()]
    return [Batch().run("SELECT set_config(v.n, v.s, false) FROM (VALUES ($1, $2)) AS v(n, s)", [name, value]).sync()]


@deed("spelling", 2)
def configure_under_another_name(d):
    (name, value), spell = d.setting(), d.spell
    function = d.chance.choice([spell.identifier("set_config"), spell.qualified("pg_catalog", "set_config")])
    return d.sent(f"{spell.words('SELECT')}{spell.space()}{function}{spell.gap()}({spell.gap()}{spell.quoted(name)},{spell.gap()}{spell.quoted(value)}, false)")


@deed("names", 2)
def configure_a_name_that_is_escaped(d):
    (name, value), spell = d.custom(), d.spell
    name = d.chance.choice([spell.string(name), spell.string(name), spell.expression(name)])
    return d.sent(d.configure(name, spell.expression(value)))


NOT_LOCAL = ("NOT true", "false OR NOT true", "'f'", "E'f'", "1 = 2", "(SELECT false)", "true AND false", "true IS NULL", "CASE WHEN true THEN false END",
             "'tr' = 'true'", "'off'", "(false)", "true <> true", "'0'", "bool 'f'", "false::bool", "NOT ('t')", "'t' = 'true'", "ARRAY[false, true] = ARRAY[true]",
             "NOT\ttrue", "not/**/true", "NOT 't'", "current_user = 'true'", "NULL IS NOT NULL")


@deed("local", 2)
def configure_that_is_local_at_first_sight(d):
    name, value = d.setting()
    return d.sent(d.configure(d.spell.quoted(name), d.spell.quoted(value), d.chance.choice(NOT_LOCAL)))


@deed("strings", 2)
def set_behind_strings(d):
    """Strings before it, with standard_conforming_strings on."""
    return [simple(f"{d.spell.trap()};{d.spell.gap()}{d.assigned()};{d.spell.gap()}{d.spell.trap()}")]


@deed("strings", 2)
def set_behind_strings_that_do_not_conform(d):
    name, value = d.custom()
    off = d.chance.choice(["SET standard_conforming_strings = off", "SET standard_conforming_strings TO 0", "SELECT set_config('standard_conforming_strings', 'off', false)",
                           "UPDATE pg_settings SET setting = 'off' WHERE name = 'standard_conforming_strings'"])
    text = d.chance.choice([r"select 'O\'Brien'; SET %s = 'v'; select ''", r"select 'a\''; SET %s = 'v'; --'", r"select 'a\\'; SET %s = 'v'; select ''",
                            "select 'a'\n'b\\''; SET %s = 'v'; select ''", r"select n'\''; SET %s = 'v'; select ''"])
    shape = d.chance.randrange(3)
    if shape == 0:
        return [simple("BEGIN"), simple(off), simple(text % name), simple("COMMIT")]
    if shape == 1:
        return [simple(off.replace("SET ", "SET LOCAL ", 1) if off.startswith("SET ") else off) + simple(text % name)]
    return [simple(off), simple(text % name)]


# The last words of such texts. To who has read the strings before them wrongly, one or the other leaves no string open.
WRONGLY_WHOLE = ("SELECT ''", "--'")


@deed("strings")
def set_behind_a_continued_string(d):
    name, value = d.custom()
    between = d.spell.some("\n", "\r", " \n ", "\n-- '\n", " -- x\n", "\f\n", "\n\n", "\n/* */\n")
    return [simple(f"SELECT {d.chance.choice(['E', 'e', ''])}'a'{between}'b\\''; SET {name} = 'v'; {d.chance.choice(WRONGLY_WHOLE)}")]


@deed("view")
def update_the_view(d):
    (name, value), spell = d.chance.choice([("search_path", "evil"), ("application_name", "evil"), ("work_mem", "9999"), ("DateStyle", "German")]), d.spell
    view = d.chance.choice([spell.identifier("pg_settings"), spell.qualified("pg_catalog", "pg_settings"), "pg_settings AS s", "ONLY pg_settings"])
    where = d.chance.choice([f"name = {spell.string(name)}", f"lower(name) = lower('{name}')"])
    return d.sent(d.chance.choice([f"{spell.words('UPDATE')} {view} SET {spell.identifier('setting')} = {spell.string(value)} WHERE {where}",
                                   f"WITH u AS (SELECT 1) UPDATE {view} SET setting = '{value}' WHERE {where}",
                                   f"EXPLAIN ANALYZE UPDATE {view} SET setting = '{value}' WHERE {where}"]))


@deed("large")
def set_something_large(d):
    count = d.chance.choice([2000, 5000, 9000, 20_000, 70_000])
    return d.sent(d.chance.choice([f"SELECT set_config('search_path', 'evil' || repeat(', public', {count}), false)",
                                   f"SELECT set_config('app.tenant', repeat('evil', {count}), false)",
                                   f"SET ROLE leaks_reader; SELECT set_config('app.tenant', repeat('evil', {count}), false)",
                                   f"DO $$ BEGIN FOR n IN 1..{count // 100} LOOP PERFORM set_config('app.depth', repeat(n::text, 99), false); END LOOP; END $$"]))


@deed("large", 0.3)
def set_many(d):
    """Names as many as a text may have, and the one that counts in the middle."""
    names = [f"app.n{n}" for n in range(d.chance.choice([30, 63, 64, 65, 100, 300]))]
    names.insert(d.chance.randrange(len(names)), "app.tenant")
    return [simple("; ".join(f"SET {name} = 'evil'" for name in names))]


SIZES = (8, 16, 32, 64, 128, 256, 300)


@deed("bounds", 2)
def set_in_a_large_message(d):
    size = d.chance.choice(SIZES) * 1024 + d.chance.choice([-200, -8, 0, 8, 200])
    sql = d.spell.padded(d.chance.choice([d.configure(), d.assigned(), "SELECT pg_advisory_lock(5)", "CREATE TEMP TABLE orders (LIKE public.orders)"]), size)
    shape = d.chance.randrange(4)
    if shape == 0:
        return [simple(sql)]
    if shape == 1:
        return [Batch().run(sql).sync()]
    if shape == 2:
        return [Batch().parse(sql, "large").bind(name="large").execute().close("large").sync()]
    name, value = d.custom()
    return [Batch().run("SELECT set_config($1, $2, false), length($3)", [name, value, "x" * size]).sync()]


@deed("bounds", 0.5)
def set_a_large_value(d):
    size = d.chance.choice(SIZES) * 1024
    return d.chance.choice([[call(2078, "app.tenant", "e" * size, "f")], [Batch().run("SELECT set_config($1, $2, $3)", ["app.tenant", "e" * size, "f"]).sync()],
                            [Batch().parse(f"SELECT 'large' /* {'x' * size} */", f"large{d.chance.randrange(3)}").sync()]])


@deed("call", 2)
def call_by_number(d):
    name, value = d.setting()
    return [d.chance.choice([call(2078, name, value, "f"), call(2078, name, value, "f"), call(2880, "5"), call(2882, "6"), call(1598) if d.hidden else call(2880, "7")])]


# -- temporary objects

@deed("temp", 2)
def make_something_temporary(d):
    spell, name = d.spell, d.chance.choice(world.TABLES)
    place = d.chance.choice([spell.qualified("pg_temp", name), spell.qualified("pg_temp", name), f"pg_temp.{name}"])
    word = d.chance.choice(["TEMP", "TEMPORARY", "LOCAL TEMP", "GLOBAL TEMPORARY"])
    return d.sent(d.chance.choice([
        f"{spell.words('CREATE TABLE')}{spell.space()}{place} (LIKE public.{name})", f"{spell.words('CREATE TABLE IF NOT EXISTS')} {place} (id int, note text, tenant text)",
        f"{spell.words('CREATE')}{spell.space()}{spell.words(word)}{spell.space()}{spell.words('TABLE')} {name} (LIKE public.{name})", f"CREATE TABLE {place} AS SELECT 1 AS id",
        f"SELECT 1 AS id INTO {place}", f"SELECT 1 AS id INTO {spell.words(word)} {name}", f"{spell.words('CREATE VIEW')} {place} AS SELECT 1 AS id",
        f"CREATE SEQUENCE {place}", f"CREATE TYPE {place} AS ENUM ('a')", f"CREATE DOMAIN {place} AS int", f"CREATE FUNCTION {spell.qualified('pg_temp', 'f')}() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        f"CREATE TABLE {place} (LIKE public.{name}) PARTITION BY RANGE (id)", f"CREATE RECURSIVE VIEW {place} (id) AS SELECT 1", f"CREATE COLLATION {place} FROM \"C\"",
        f"EXPLAIN ANALYZE CREATE TABLE {place} AS SELECT 1", f"CREATE TEXT SEARCH DICTIONARY {place} (TEMPLATE = simple)",
        f"CREATE {word} VIEW {name} AS SELECT 1 AS id", f"CREATE TABLE {place} (id int) ON COMMIT DROP"]))


@deed("path", 2)
def make_a_table_while_the_search_path_is_temporary(d):
    name = d.chance.choice(world.TABLES)
    to = d.chance.choice(["SET LOCAL search_path = 'pg_temp'", "SET LOCAL search_path = pg_temp, public", "SELECT set_config('search_path', 'pg_temp', true)",
                          "UPDATE pg_settings SET setting = 'pg_temp' WHERE name = 'search_path'", "SET search_path = 'pg_temp', 'public'", "SET LOCAL SCHEMA 'pg_temp'",
                          'SET LOCAL search_path = "pg_temp"', "SELECT set_config('search_path', 'pg_' || 'temp', true)",
                          f"SET LOCAL search_path = {d.spell.string('pg_temp')}", f"SELECT set_config('search_path', {d.spell.expression('pg_temp')}, true)",
                          f"SET search_path TO {d.spell.identifier('pg_temp')}"])
    make = d.chance.choice([f"CREATE TABLE {name} (LIKE public.{name})", f"CREATE VIEW {name} AS SELECT 1 AS id", f"SELECT 1 AS id INTO {name}",
                            f"SELECT * INTO {name} FROM public.{name}"])
    return d.chance.choice([[simple("BEGIN"), simple(to), simple(make), simple("COMMIT")], [simple(f"{to}; {make}")], [Batch().run(to).run(make).sync()],
                            [Batch().run("BEGIN").run(to).run(make).run("COMMIT").sync()]])


# What acts behind a text, by what the text uses. `{n}` is a name, `{call}` an expression that leaves something, of type
# text.
IMMUTABLE = "CREATE OR REPLACE FUNCTION pg_temp.f(a int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $f$ BEGIN PERFORM {call}; RETURN a; END $f$"
ACTING = (
    (("CREATE TEMP VIEW {n} AS SELECT {call} AS a",), "TABLE {n}"),
    (("CREATE VIEW pg_temp.{n} AS SELECT {call} AS a",), "SELECT * FROM pg_temp.{n}"),
    (("CREATE TEMP VIEW {n} AS SELECT name, setting FROM pg_settings",), "UPDATE {n} SET setting = 'evil' WHERE name = 'search_path'"),
    (("CREATE TEMP VIEW other AS SELECT * FROM pg_catalog.pg_settings", "CREATE TEMP VIEW {n} AS SELECT name, setting FROM other"),
     "UPDATE {n} SET setting = '7777' WHERE name = 'work_mem'"),
    (("CREATE TEMP TABLE {n} (a int, b text DEFAULT {call})",), "INSERT INTO {n} (a) VALUES (1)"),
    (("CREATE TEMP TABLE {n} (a int, b text)", "ALTER TABLE {n} ALTER b SET DEFAULT {call}"), "INSERT INTO {n} (a) VALUES (1)"),
    (("CREATE TEMP TABLE {n} (a int CHECK ({call} <> ''))",), "INSERT INTO {n} VALUES (1)"),
    (("CREATE TEMP TABLE {n} (a int)", "CREATE RULE r AS ON INSERT TO {n} DO ALSO SELECT {call}"), "INSERT INTO {n} VALUES (1)"),
    (("CREATE TEMP TABLE {n} AS SELECT 1 AS a", "CREATE RULE r AS ON UPDATE TO {n} WHERE {call} <> '' DO INSTEAD NOTHING"), "UPDATE {n} SET a = 2"),
    (("CREATE TEMP TABLE {n} AS SELECT 1 AS a", "ALTER TABLE {n} ENABLE ROW LEVEL SECURITY", "ALTER TABLE {n} FORCE ROW LEVEL SECURITY",
      "CREATE POLICY p ON {n} USING ({call} <> '')"), "SELECT * FROM {n}"),
    (("CREATE TEMP TABLE {n} AS SELECT 1 AS a", "CREATE TRIGGER t BEFORE UPDATE ON {n} FOR EACH ROW WHEN ({call} <> '') EXECUTE FUNCTION "
      "suppress_redundant_updates_trigger()"), "UPDATE {n} SET a = 2"),
    (("CREATE DOMAIN pg_temp.{n} AS int CHECK ({call} <> '')",), "SELECT 1::pg_temp.{n}"),
    (("CREATE DOMAIN pg_temp.d AS text DEFAULT {call}", "CREATE TEMP TABLE {n} (a int, b pg_temp.d)"), "INSERT INTO {n} (a) VALUES (1)"),
    (("CREATE OPERATOR pg_temp.@! (RIGHTARG = bigint, FUNCTION = pg_advisory_lock)",), "SELECT OPERATOR(pg_temp.@!) 5::bigint"),
    (("CREATE AGGREGATE pg_temp.{n}(text, bool) (SFUNC = set_config, STYPE = text, INITCOND = 'app.tenant')",), "SELECT pg_temp.{n}('evil', false)"),
    ((IMMUTABLE, "CREATE TEMP TABLE {n} (a int, b int GENERATED ALWAYS AS (pg_temp.f(a)) STORED)"), "INSERT INTO {n} VALUES (1)"),
    ((IMMUTABLE, "CREATE TEMP TABLE {n} (a int)", "CREATE INDEX ON {n} (pg_temp.f(a))"), "INSERT INTO {n} VALUES (1)"),
    ((IMMUTABLE, "CREATE TEMP TABLE {n} (a int) PARTITION BY LIST (pg_temp.f(a))", "CREATE TEMP TABLE part PARTITION OF {n} FOR VALUES IN (1)"),
     "INSERT INTO {n} VALUES (1)"),
    (("CREATE TEMP TABLE {n} (a text) PARTITION BY LIST (a)",), "CREATE TEMP TABLE part PARTITION OF {n} FOR VALUES IN ({call})"),
    (("PREPARE q AS SELECT {call} AS a", "CREATE TEMP TABLE {n} AS EXECUTE q"), "DEALLOCATE q"),
    (("PREPARE q AS SELECT {call} AS a",), "CREATE TEMP TABLE {n} AS EXECUTE q; DEALLOCATE q"),
)


@deed("acting", 3)
def act_behind_something_temporary(d):
    """Some of the names are those of functions that do no harm."""
    make, use = d.chance.choice(ACTING)
    parameter, value = d.custom()
    words = {"n": d.chance.choice([*world.TABLES, "age", "lower", "v"]),
             "call": d.chance.choice([f"set_config('{parameter}', '{value}', false)", "set_config('role', 'leaks_reader', false)", "set_config('search_path', 'evil', false)",
                                      "(pg_try_advisory_lock(13))::text", "query_to_xml('SELECT set' || '_config(''app.tenant'', ''evil'', false)', false, false, '')::text"])}
    make, use = [sql.format(**words) for sql in make], use.format(**words)
    end = d.chance.choice(["DISCARD TEMP", "DISCARD TEMP", "DISCARD TEMP", "SELECT 1"])
    whole = [*make, use, end]
    shape = d.chance.randrange(6)
    if shape < 2:
        return [simple(sql) for sql in whole]
    if shape == 2:
        return [simple("BEGIN"), *[simple(sql) for sql in whole], simple("COMMIT")]
    if shape == 3:
        return [simple("; ".join([*make, use])), simple(end)]
    if shape == 4:
        return [simple("BEGIN"), *[simple(sql) for sql in make], simple(use), simple("COMMIT"), simple(end)]
    return [request for sql in whole for request in ([simple(sql)] if ";" in sql else [Batch().run(sql).sync()])]


# -- statements prepared in SQL

def lasting(d):
    """SQL that PREPARE takes, and that leaves something."""
    return d.chance.choice([d.configure(), d.configure(), "SELECT pg_advisory_lock(3)", "UPDATE pg_settings SET setting = 'evil' WHERE name = 'search_path'"])


@deed("prepare")
def prepare_in_sql_and_bind(d):
    """What SQL has prepared the extended protocol may use."""
    name = d.chance.choice(["p", "q", "Odd Name"])
    quoted, use = f'"{name}"', Batch().bind(name=name).execute()
    prepare, end = simple(f"PREPARE {quoted} AS {lasting(d)}"), d.chance.choice([f"DEALLOCATE {quoted}", "DEALLOCATE ALL", "SELECT 1"])
    return d.chance.choice([[prepare, use.sync(), simple(end)], [prepare, simple("SELECT 1"), use.sync(), simple(end)], [prepare, use.close(name).sync()],
                            [prepare, use.run(end).sync()]])


@deed("prepare", 2)
def prepare_and_execute(d):
    name = d.spell.identifier(d.chance.choice(["p", "q", "Odd Name"]))
    execute = d.chance.choice(["EXECUTE {0}", "EXPLAIN ANALYZE EXECUTE {0}", "execute {0}", "CREATE TEMP TABLE made AS EXECUTE {0}", "EXECUTE {0}; SELECT 1"]).format(name)
    prepare = f"{d.spell.words('PREPARE')}{d.spell.space()}{name} AS {lasting(d)}"
    end = d.chance.choice([f"DEALLOCATE {name}", f"DEALLOCATE PREPARE {name}", "DEALLOCATE ALL", "SELECT 1"])
    return d.chance.choice([[simple(prepare), simple(execute), simple(end)], [simple(f"{prepare}; {execute}; {end}")], [simple(prepare), simple(f"{execute}; {end}")],
                            [simple("BEGIN"), simple(prepare), simple("COMMIT"), simple("BEGIN"), simple(execute), simple("COMMIT"), simple(end)]])


OWN = 12


@deed("own", 2)
def tamper_with_the_poolers_statements(d):
    """All names that it may have, as one would guess them or read them in pg_prepared_statements: the texts are few, so
    that they are used soon after.
    """
    prefix = d.chance.choice(["poolhouse_", world.OWN_NAMES])
    shape = d.chance.randrange(8)
    if d.hidden and d.chance.random() < 0.3:
        return d.sent(d.chance.choice(["SELECT hide.forget()", "SELECT hide.replace()"]))
    requests = []
    for n in ["0", "00", *range(1, OWN)]:
        name = f"{prefix}{n}"
        if shape == 0:
            requests.append(simple(f"DEALLOCATE {name}; PREPARE {name} AS SELECT 'evil'"))
        elif shape == 1:
            requests += [simple(f"DEALLOCATE {name}"), simple(f"PREPARE {name} AS SELECT 'evil'")]
        elif shape == 2:
            requests.append(simple(f"SELECT 1; DEALLOCATE {name}"))
        elif shape == 3:
            requests += [Batch().parse(f"SELECT 'evil' /* {'x' * 66_000} */", name).sync(), *([Batch().close(name).sync()] if d.chance.random() < 0.3 else [])]
        elif shape == 4:
            requests.append(simple(f"PREPARE {name} AS SELECT 'evil'; DEALLOCATE {name}"))
        elif shape == 5:
            requests.append(simple(f"DO $$ BEGIN DEALLOCATE {name}; EXCEPTION WHEN OTHERS THEN NULL; END $$"))
        elif shape == 6:
            requests.append(simple(f"PREPARE {name} AS SELECT 'evil'"))
        else:
            requests.append(Batch().close(name).parse("SELECT 'evil'", name).sync())
    return requests


@deed("own")
def use_statements(d):
    """Something for the pooler to prepare."""
    return [Batch().run(f"SELECT 'mine {d.chance.randrange(4)}'", name=f"s{d.chance.randrange(3)}").sync()]


# -- blocks, and texts that are run

def procedural(d):
    name, value = d.custom()
    return d.chance.choice([f"PERFORM set_config('{name}', '{value}', false);", f"SET {name} = '{value}';", f"EXECUTE 'S' || 'ET {name} = ''{value}''';",
                            "EXECUTE 'CREATE TEMP TABLE orders (LIKE public.orders)';", "PERFORM pg_advisory_lock(9);", "EXECUTE 'LISTEN evil';", "SET LOCAL ROLE leaks_reader; SET ROLE leaks_reader;",
                            "UPDATE pg_settings SET setting = 'evil' WHERE name = 'search_path';", f"PERFORM query_to_xml('SELECT set' || '_config(''{name}'', ''{value}'', false)', false, false, '');"])


@deed("blocks", 2)
def a_block(d):
    body = f"BEGIN {procedural(d)} {d.chance.choice(['', 'EXCEPTION WHEN OTHERS THEN NULL; ', 'COMMIT; '])}END"
    language = d.chance.choice(["", "", "LANGUAGE plpgsql ", 'LANGUAGE "plpgsql" ', "LANGUAGE 'plpgsql' "])
    string = d.spell.string(body)
    return d.sent(f"{d.spell.words('DO')}{d.spell.space()}{language}{string if not string.startswith('N') else d.spell.quoted(body)}")


@deed("texts", 2)
def a_function_that_runs_a_text(d):
    name, value = d.custom()
    text = d.chance.choice([f"'SELECT set' || '_config(''{name}'', ''{value}'', false)'", f"$$SELECT s$$ || $$et_config('{name}', '{value}', false)$$", "'SELECT pg_adv' || 'isory_lock(11)'",
                            f"{d.spell.escaped(f'SELECT set_config({chr(39)}{name}{chr(39)}, {chr(39)}{value}{chr(39)}, false)')}"])
    ways = [f"SELECT query_to_xml({text}, false, false, '')", f"SELECT {d.spell.identifier('query_to_xml')}({text}, true, false, '')",
            f"SELECT query_to_xml_and_xmlschema({text}, false, false, '')", f"SELECT * FROM ts_stat('SELECT to_tsvector(x) FROM (' || {text} || ') AS t(x)')",
            f"SELECT ts_rewrite('a'::tsquery, 'SELECT plainto_tsquery(x::text), plainto_tsquery(x::text) FROM (' || {text} || ') AS t(x)')"]
    if d.hidden:
        ways += [f"SELECT * FROM crosstab('SELECT ''a'', ''b'', x::text FROM (' || {text} || ') AS t(x)') AS t(a text, b text)"]
    return d.sent(d.chance.choice(ways))


# -- locks, cursors, channels, roles

@deed("locks")
def lock(d):
    key, spell = d.chance.randrange(50), d.spell
    function = d.chance.choice(["pg_advisory_lock", "pg_try_advisory_lock", "pg_advisory_lock_shared", "pg_try_advisory_lock_shared"])
    return d.sent(f"SELECT {d.chance.choice([function, function.upper(), spell.qualified('pg_catalog', function)])}({d.chance.choice([f'{key}', f'{key}, 2'])})")


@deed("spelling")
def lock_under_another_name(d):
    # Only tries: a lock that is kept by another would be waited for.
    return d.sent(f"SELECT {d.spell.qualified('pg_catalog', 'pg_try_advisory_lock')}({d.chance.randrange(50)})")


@deed("cursors")
def hold(d):
    name = d.spell.identifier(d.chance.choice(["c", "d"]))
    return d.sent(f"{d.spell.words('DECLARE')} {name} {d.spell.words('CURSOR WITH HOLD FOR')} SELECT generate_series(1, 3)")


@deed("listen")
def listen(d):
    return d.sent(f"{d.spell.words('LISTEN')} {d.spell.identifier(d.chance.choice(['a', 'b']))}")


@deed("role")
def take_a_role(d):
    role = d.chance.choice(world.ROLES)
    return d.sent(d.chance.choice([f"{d.spell.words('SET ROLE')} {d.spell.identifier(role)}", f"SET role = '{role}'", f"SELECT set_config('role', '{role}', false)", "RESET ROLE",
                                   f"SET SESSION ROLE {d.spell.identifier(role)}", "SET SESSION AUTHORIZATION DEFAULT"]))


# -- encodings

LETTERS = {"SJIS": ("shift_jis", "表ソ能予"), "BIG5": ("big5", "功許蓋"), "GBK": ("gbk", "誠俓"), "LATIN1": ("latin1", "éüß"), "EUC_JP": ("euc_jp", "表ソ"),
           "UHC": ("cp949", "한글"), "WIN1251": ("cp1251", "привет"), "GB18030": ("gb18030", "誠俓"), "JOHAB": ("johab", "한글"), "UTF8": ("utf-8", "表é")}


@deed("encoding", 2)
def set_in_another_encoding(d):
    encoding = d.chance.choice(list(LETTERS))
    codec, letters = LETTERS[encoding]
    letter = d.chance.choice(letters).encode(codec)
    name = d.custom()[0].encode()
    end = d.chance.choice(WRONGLY_WHOLE).encode()
    begin = [simple(d.chance.choice([f"SET client_encoding = '{encoding}'", f"SET NAMES '{encoding}'", f"SELECT set_config('client_encoding', '{encoding}', false)"]))]
    use = d.chance.choice([
        [simple(b"SET " + name + b" = '" + letter + b"'")],
        [simple(b"SELECT set_config('" + name + b"', '" + letter + b"', false)")],
        [Batch().run("SELECT set_config($1, $2, false)", [name, letter]).sync()],
        # To who reads bytes the string goes on, or ends.
        [simple(b"SELECT E'" + letter + b"'; SET " + name + b" = 'evil'; " + end)],
        [simple(b"SET standard_conforming_strings = off"), simple(b"SELECT '" + letter + b"'; SET " + name + b" = 'evil'; " + end)],
        [simple(b'SELECT 1 AS "' + letter + b'"; SET ' + name + b" = 'evil'")],
        [simple(b"SELECT $" + letter + b"$ ' $" + letter + b"$; SET " + name + b" = 'evil'; " + end)]])
    back = d.chance.choice([[], [], [simple("SET client_encoding = 'UTF8'")], [simple("RESET client_encoding")]])
    if d.chance.random() < 0.3:
        # Sent before the encoding has been answered for.
        begin, use = [], [begin[0] + use[0], *use[1:]]
    return begin + use + [simple("SELECT 1")] + back + [simple("SELECT 2")]


@deed("encoding")
def set_a_name_before_or_after_a_change_of_the_encoding(d):
    """The same name is other bytes then, and the same bytes are another name."""
    change, name = simple(f"SET client_encoding = '{d.chance.choice(list(LETTERS))}'"), simple(f"SET {world.NOT_ASCII} = 'evil'")
    return d.chance.choice([[name, change, simple("SELECT 2")], [change, name, simple("SET client_encoding = 'UTF8'"), simple("SELECT 2")]])


# -- time-outs

@deed("timeouts", 2)
def a_small_time_out(d):
    setting = d.chance.choice(["statement_timeout = '1ms'", "statement_timeout = '2ms'", "lock_timeout = '1ms'", "idle_in_transaction_session_timeout = '3ms'"])
    after = d.chance.choice([[simple(f"CREATE TEMP TABLE t{n} (a int, b text PRIMARY KEY)") for n in range(8)], [simple("SET work_mem = '9MB'") for _ in range(4)],
                             [simple("SELECT pg_advisory_lock(1)")], [Batch().run("SELECT set_config($1, $2, false)", ["app.tenant", "x" * 40_000]).sync()],
                             [simple("LISTEN a"), simple("UNLISTEN a")], [simple("DISCARD ALL")]])
    return [simple(f"SET {setting}"), *after]


# -- throwing away

@deed("discard")
def discard(d):
    return d.sent(d.chance.choice(["DISCARD ALL", "RESET ALL", "DISCARD TEMP", "DISCARD PLANS", "DEALLOCATE ALL", "CLOSE ALL", "UNLISTEN *", "SELECT pg_advisory_unlock_all()"]))


@deed("plans")
def change_a_table(d):
    """The check uses it by the same prepared text each time."""
    n = d.chance.randrange(3)
    return d.plainly(d.chance.choice([f"ALTER TABLE public.changing ADD IF NOT EXISTS b{n} text", f"ALTER TABLE public.changing DROP IF EXISTS b{n}",
                                      f"ALTER TABLE public.changing ALTER a TYPE {d.chance.choice(['int', 'bigint', 'text'])} USING 1",
                                      # Whichever client replaces it, all clients have it.
                                      "DROP TABLE IF EXISTS public.changing; CREATE TABLE public.changing (a int, mood int); "
                                      "GRANT ALL ON public.changing TO PUBLIC"]))


# -- out of sight

@deed("hidden", 4)
def out_of_sight(d):
    if not d.hidden:
        return d.sent("SELECT 1")
    return d.sent(d.chance.choice([
        "SELECT hide.tenant('evil')", "SELECT hide.in_sql()", "SELECT hide.role()", "SELECT hide.path()", "SELECT hide.with_set()", "CALL hide.call()", "CALL hide.call_and_commit()",
        "INSERT INTO hide.triggered VALUES (1)", "INSERT INTO hide.statement_triggered VALUES (1)", "INSERT INTO hide.deferred VALUES (1)", "INSERT INTO hide.role_triggered VALUES (1)",
        "SELECT * FROM hide.viewed", "SELECT * FROM hide.viewed_role", "UPDATE hide.viewed_settings SET setting = 'evil' WHERE name = 'search_path'", "INSERT INTO hide.ruled VALUES (1)",
        "INSERT INTO hide.defaulted (a) VALUES (1)", "INSERT INTO hide.checked VALUES (1)", "SELECT 1::hide.checking", "SELECT 1 OPERATOR(hide.+@+) 2", "SELECT CAST('sad'::hide.mood AS int)",
        "SELECT hide.gather(v) FROM (VALUES ('a'), ('b')) AS v(v)", "SELECT * FROM hide.guarded", "INSERT INTO hide.indexed VALUES (1)", "INSERT INTO hide.generated VALUES (1)",
        "SELECT hide.lock()", "SELECT hide.table()", "SELECT hide.listen()", "SELECT hide.cursor()", "SELECT hide.statement()", "SELECT hide.next()", "SELECT hide.forget()", "SELECT hide.replace()"]))


@deed("hidden", 0.5)
def copied_out_of_sight(d):
    return [copy_in("COPY hide.triggered FROM STDIN", b"1\n")] if d.hidden else d.sent("SELECT 1")


# What rules how the constants of hide.planned are read, and what is so by default.
READS = (("DateStyle", "German, DMY", "ISO, MDY"), ("standard_conforming_strings", "off", "on"))


@deed("constants")
def plan_while_constants_are_read_otherwise(d):
    """And set back what was set, so that the function's plan is all that is left."""
    if not d.hidden:
        return d.sent("SELECT 1")
    name, other, usual = d.chance.choice(READS)
    ways = [f"SET {name} = '{{}}'", f"SELECT set_config('{name}', '{{}}', false)", f"UPDATE pg_settings SET setting = '{{}}' WHERE name = '{name}'"]
    to, back = d.chance.choice(ways).format(other), d.chance.choice(ways).format(usual)
    # Or it has a plan already.
    anew = d.chance.choice([[], [simple("DISCARD PLANS")]])
    use = "SELECT hide.planned()"
    return anew + d.chance.choice([[simple(f"{to}; {use}; {back}")], [simple(f"{to}; {use}; {back}")], [Batch().run(to).run(use).run(back).sync()],
                                   [simple("BEGIN"), simple(to), simple(use), simple(d.chance.choice(["COMMIT", "ROLLBACK"])), simple(back)],
                                   [simple(to) + simple(use) + simple(back)], [simple(to), simple(use), simple(back)]])


@deed("seed", 0.5)
def seed(d):
    return d.sent(d.chance.choice(["SELECT setseed(0.25)", "SET seed = 0.25", f"SELECT {d.spell.identifier('setseed')}(0.25)", *(["SELECT hide.seed()"] if d.hidden else [])]))


@deed("sequences")
def advance(d):
    return d.sent(d.chance.choice(["SELECT nextval('public.numbers')", "SELECT setval('public.numbers', 5)", f"SELECT {d.spell.identifier('nextval')}('public.numbers')",
                                   *(["SELECT hide.next()"] if d.hidden else [])]))


@deed("dblink", 0.5)
def connect_elsewhere(d):
    return d.sent("SELECT dblink_connect('mine', 'itself')" if d.hidden else "SELECT 1")


@deed("superuser")
def what_superusers_do(d):
    return d.sent(d.chance.choice(["LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0", "SELECT pg_create_physical_replication_slot('evil', true, true)",
                                   "SET SESSION AUTHORIZATION app", "SET SESSION AUTHORIZATION app; SET ROLE leaks_reader", "SET session_replication_role = replica",
                                   "SET log_statement = 'all'", "SET zero_damaged_pages = on", "SELECT set_config('session_authorization', 'app', false)"]))


@deed("made", 2)
def a_function_made_on_the_way(d):
    name = f"public.made_{d.chance.randrange(3)}"
    make = f"CREATE OR REPLACE FUNCTION {name}() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN set_config('app.tenant', 'made', false); END $$"
    return d.chance.choice([[simple(make), simple(f"SELECT {name}()")], [simple(f"{make}; SELECT {name}()")], [simple("BEGIN"), simple(make), simple(f"SELECT {name}()"), simple("COMMIT")],
                            # Made by another, and perhaps long ago.
                            [simple(f"SELECT {name}()")], [simple(f"DROP FUNCTION IF EXISTS {name}()"), simple("SELECT 1")]])


@deed("objects", 2)
def an_object_made_on_the_way(d):
    """One kind at a time: a pooler that sees through one of them is on its guard against all."""
    make, use, drop = list(world.BUILT_IN.values())[d.era % len(world.BUILT_IN)]
    return d.chance.choice([[simple(make), simple(use)], [simple(make)], [simple(use)], [simple(use)], [simple(drop)], [simple(f"{make}; {use}")]])


@deed("phases", 2)
def an_object_of_a_prepared_transaction(d):
    """Made now, there when it is committed."""
    n = d.chance.randrange(world.PHASES)
    view, end = f"public.b_phase_{n}", d.chance.choice(["COMMIT PREPARED", "COMMIT PREPARED", "COMMIT PREPARED", "ROLLBACK PREPARED"])
    settle = f"{end} 'b_phase_{n}'"
    begin = [simple("BEGIN"), simple(f"CREATE VIEW {view} AS SELECT set_config('app.tenant', 'phase', false)"), simple(f"PREPARE TRANSACTION 'b_phase_{n}'"), simple("SELECT 1")]
    use = [simple(f"TABLE {view}")]
    return d.chance.choice([begin + d.plainly(settle) + use, begin + d.plainly(settle) + use, begin + d.plainly(settle), use,
                            [simple("DROP VIEW IF EXISTS " + ", ".join(f"public.b_phase_{n}" for n in range(world.PHASES))), simple("SELECT 1")]])


@deed("meanwhile", 2)
def a_function_that_is_replaced_meanwhile(d):
    """It does something while a transaction uses it, and nothing before and after that."""
    fires = d.chance.random() < 0.5
    leaves = "PERFORM set_config('app.tenant', 'meanwhile', false); "

    def function(body):
        return f"CREATE OR REPLACE FUNCTION public.b_meanwhile() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}RETURN NEW; END $$"

    def view(call):
        return f"CREATE OR REPLACE VIEW public.b_viewed AS SELECT {call}::text AS a"

    harmless, harmful, use = (function(""), function(leaves), "INSERT INTO public.b_meant VALUES (1)") if fires else (
        view("lower('a')"), view("set_config('app.tenant', 'meanwhile', false)"), "TABLE public.b_viewed")
    there = [aside(harmless), aside("CREATE TABLE IF NOT EXISTS public.b_meant (a int); GRANT ALL ON public.b_meant TO PUBLIC; CREATE OR REPLACE TRIGGER t BEFORE INSERT ON "
                                    "public.b_meant FOR EACH ROW EXECUTE FUNCTION public.b_meanwhile()")] if fires else [aside(harmless)]
    begin, after, end = [simple("BEGIN"), simple("SELECT 1")], [aside(harmless), aside("SELECT 1")], [simple("COMMIT")]
    return there + d.chance.choice([begin + [aside(harmful), simple(use)] + after + end, [aside(harmful), *begin, simple(use)] + after + end,
                                    [aside(harmful), simple(use), *after]])
