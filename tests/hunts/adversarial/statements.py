"""A random client's next step: one request or several that belong together. What comes next depends on the seed, on the
client's number and on the transaction status only, so that a client's history can be played again.

A new kind of step is a function with the decorator `step`; FEATURES says what can be switched off.
"""

import dataclasses

from . import patterns
from .requests import Batch, Request, copy_in, simple
from .values import BAD, SETTINGS, STRINGS, unquoted
from .world import ADMIN, APP, ROLES, TEMP_TABLES, quote

# Feature -> what it is. `pinning` ones need a server of the client's own as long as the state lives, so that only a few
# clients ("pinners") may use them, or every server would belong to one client.
FEATURES = {
    "set": "SET and RESET in and out of transactions",
    "local": "SET LOCAL",
    "setconfig": "set_config with constants",
    "searchpath": "what search_path leads to",
    "role": "SET ROLE",
    "authorization": "SET SESSION AUTHORIZATION; every fourth client is a superuser then",
    "transactions": "BEGIN, COMMIT, ROLLBACK in their variants",
    "savepoints": "SAVEPOINT, ROLLBACK TO, RELEASE",
    "prepared": "protocol-level named statements",
    "replanned": "named and unnamed statements that mean something else, or nothing, when search_path has changed",
    "portals": "named portals and row limits inside transactions",
    "unnamed": "the unnamed statement parsed in one round trip and bound in the next",
    "multi": "several statements in one simple query",
    "pipeline": "several extended requests up to one Sync, some with an error in the middle",
    "errors": "statements that fail",
    "escapes": "standard_conforming_strings and literals that are easy to read wrongly",
    "discard": "DISCARD, RESET ALL, DEALLOCATE ALL, CLOSE ALL",
    "writes": "rows written and counted",
    "copy": "COPY in and out",
    "frameworks": "what Django, Rails, SQLAlchemy, Hibernate, Prisma, asyncpg and pgx send at connect and in between",
    "startup": "parameters asked for at connect",
    "reconnect": "leaving, politely or not, in and out of transactions, and coming back",
    "boundconfig": "set_config with parameters of Bind [pinning]",
    "computed": "settings changed by set_config of a value that SQL computes [pinning]",
    "sqlprepare": "PREPARE, EXECUTE, DEALLOCATE [pinning]",
    "temp": "temporary tables [pinning]",
    "hold": "WITH HOLD cursors [pinning]",
    "locks": "session advisory locks [pinning]",
    "sequences": "currval and lastval [pinning]",
    "listen": "LISTEN, NOTIFY, UNLISTEN [pinning]",
    "hidden": "settings changed inside a function: out of a pooler's sight, off unless asked for [pinning]",
}
PINNING = {name for name, what in FEATURES.items() if "[pinning]" in what}
OFF_BY_DEFAULT = {"hidden"}

STEPS = []


@dataclasses.dataclass(frozen=True)
class Step:
    """`states`: the transaction statuses in which it makes sense. It fails in others, which is sense enough now and
    then.
    """

    make: object
    feature: str
    weight: float
    states: str


def step(feature, weight=1.0, states="IT"):
    def register(make):
        assert feature in FEATURES, feature
        STEPS.append(Step(make, feature, weight, states))
        return make

    return register


class Client:
    """What a client of a number does, one step after the other."""

    def __init__(self, chance, number, features, pinner, looks=False):
        """`features` are the names of the features that it may use; a pinner may use those that need a server of its
        own, too.
        """
        self.chance, self.number, self.pinner = chance, number, pinner
        self.features = {name for name in features if pinner or name not in PINNING}
        if not pinner:
            # Both at a time can only be had by a client with a server of its own.
            self.features.discard("role" if number % 2 else "authorization")
        # Looks at lastval, too. One does who never advances a sequence: it must not see what others did.
        self.counts = "sequences" in features and (pinner or looks)
        # A session's first temporary table makes it plan anew, and a server that had one before it was handed on has
        # none that is the first: what PostgreSQL then makes of an old plan differs. So who makes temporary tables keeps
        # to plans that cannot mean one.
        self.replans = "replanned" in self.features and "temp" not in self.features
        self.user = ADMIN if "authorization" in self.features and number % 4 == 3 else APP
        # Counts this client's connections, so that what one leaves behind does not stand in the way of the next.
        self.incarnation = -1
        # The names that the reference has parsed; set by the code that reads its state.
        self.believed = []
        # It has given up statements in SQL, and asked nothing since for certain.
        self.gave_up = False
        self.by_status = {status: [s for s in STEPS if s.feature in self.features and status in s.states] for status in "ITE"}

    def start(self):
        """The start-up parameters of its next connection, and the requests that open it."""
        self.incarnation += 1
        self.believed, chance = [], self.chance
        parameters = {}
        if "startup" in self.features:
            for name in ("application_name", "client_encoding", "DateStyle", "TimeZone", "extra_float_digits"):
                if chance.random() < 0.3:
                    parameters[name] = unquoted(chance.choice(SETTINGS[name]))
            if chance.random() < 0.2:
                parameters["options"] = chance.choice(["-c search_path=s1,public", "-c statement_timeout=99s -c app.tenant=of_options",
                                                       "-c geqo=off", "--search_path=s2"])
        requests = []
        if "frameworks" in self.features and chance.random() < 0.6:
            requests = patterns.at_connect(chance, PINNING <= self.features | OFF_BY_DEFAULT)
        return parameters, requests

    def next(self, status):
        """The requests of the next step; each is answered before the next is sent."""
        if status != "I" and "transactions" in self.features and self.chance.random() < (0.5 if status == "E" else 0.2):
            return [self.sql(self.chance.choice(ENDS))]
        steps = self.by_status[status] or self.by_status["T"]
        if status == "E" and self.chance.random() < 0.5:
            steps = self.by_status["T"]
        made = self.chance.choices(steps, [s.weight for s in steps])[0].make(self)
        return [made] if isinstance(made, Request) else made

    def sql(self, sql):
        """One statement, by whichever protocol."""
        if self.chance.random() < 0.65:
            return simple(sql)
        return Batch().run(sql).sync()

    def parsed(self):
        """A statement for Parse."""
        return self.chance.choice(PARSED + REPLANNED if self.replans else PARSED)

    def setting(self):
        name = self.chance.choice(list(SETTINGS))
        return name, self.chance.choice(SETTINGS[name])

    def spelt(self, name):
        """The name in any of its spellings."""
        if "." in name:
            return name
        return self.chance.choice([name, name, name.lower(), name.upper(), quote(name.lower()) if name.islower() else name])

    def set_statement(self, local=False):
        name, value = self.setting()
        scope = "LOCAL " if local else self.chance.choice(["", "", "SESSION "])
        verb = self.chance.choice(["SET", "set", "Set", "/* why */ SET", "-- why\nSET"])
        if name == "TimeZone" and self.chance.random() < 0.5:
            # RESET ALL does not touch what SET LOCAL has set to its start: only the transaction knew of that. Behind a
            # pooler it does.
            return f"{verb} {scope}TIME ZONE {value if local else self.chance.choice([value, 'LOCAL', 'DEFAULT'])}"
        if name == "client_encoding" and value.startswith("'") and self.chance.random() < 0.5:
            return f"{verb} {scope}NAMES {value}"
        if name == "search_path" and self.chance.random() < 0.3:
            return f"{verb} {scope}SCHEMA 's2'"
        to = self.chance.choice([" = ", " TO ", "=", "  to\n "])
        return f"{verb} {scope}{self.spelt(name)}{to}{value}{self.chance.choice(['', ';', ' ; '])}"

    def channel(self):
        return f"ch_{self.number}_{self.chance.choice('ab')}"

    def key(self):
        """The key of an advisory lock that no other client, and no other incarnation of this one, uses."""
        return (self.number * 1000 + self.incarnation % 1000) * 4 + self.chance.randrange(3)


ENDS = ["COMMIT", "COMMIT", "ROLLBACK", "ROLLBACK", "END", "ABORT", "commit work", "COMMIT AND CHAIN", "ROLLBACK AND CHAIN"]
BEGINS = ["BEGIN", "BEGIN", "begin work", "START TRANSACTION", "BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN READ ONLY",
          "START TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE"]


# -- settings

@step("set", 6)
def set_one(c):
    return c.sql(c.set_statement())


@step("set", 3)
def reset_one(c):
    name = c.spelt(c.setting()[0])
    return c.sql(c.chance.choice([f"RESET {name}", f"SET {name} TO DEFAULT", f"SET SESSION {name} = DEFAULT", f"reset {name};"]))


@step("set", 0.5)
def reset_time_zone(c):
    return c.sql("RESET TIME ZONE")


@step("set", 1)
def show(c):
    name = c.setting()[0]
    return c.sql(f"SELECT coalesce(current_setting('{name}', true), '')" if "." in name else f"SHOW {c.spelt(name)}")


@step("set", 0.7)
def session_characteristics(c):
    what = c.chance.choice(["READ ONLY", "READ WRITE", "READ WRITE", "ISOLATION LEVEL REPEATABLE READ", "ISOLATION LEVEL READ COMMITTED"])
    return c.sql(f"SET SESSION CHARACTERISTICS AS TRANSACTION {what}")


@step("set", 1)
def set_by_a_named_statement(c):
    """A statement parsed once that sets each time it is executed."""
    batch = Batch().parse(c.set_statement(), "setter")
    requests = [batch.sync()]
    for _ in range(c.chance.randrange(1, 3)):
        requests.append(Batch().bind(name="setter").execute().sync())
    return [*requests, Batch().close("setter").sync()]


@step("set", 0.7, "T")
def transaction_mode(c):
    """Behind a query if it may stand behind DEALLOCATE: Poolhouse answers that itself, and then it is no query of its
    transaction.
    """
    first, c.gave_up = [simple("SELECT 1")] if c.gave_up else [], False
    return [*first, c.sql(c.chance.choice(["SET TRANSACTION READ ONLY", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
                                           "SET transaction_read_only = off", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED"]))]


@step("local", 2)
def set_local(c):
    return c.sql(c.set_statement(local=True))


@step("setconfig", 3)
def set_config(c):
    name, value = c.setting()
    value, local = unquoted(value), c.chance.choice(["false", "false", "true"])
    literal = "'" + value.replace("'", "''") + "'"
    shape = c.chance.randrange(3)
    if shape == 0:
        other, second = c.setting()
        second = "'" + unquoted(second).replace("'", "''") + "'"
        return c.sql(f"SELECT set_config('{name}', {literal}, {local}), set_config('{other}', {second}, false)")
    if shape == 1:
        return c.sql(f'select "set_config"(\'{name}\', {literal}, is_local => {local}) as "set"')
    return c.sql(f"SELECT set_config('{name}', {literal}, {local})")


@step("boundconfig", 1.5)
def set_config_with_parameters(c):
    name, value = c.setting()
    value, local = unquoted(value), c.chance.choice(["false", "false", "true"])
    if c.chance.random() < 0.5:
        return Batch().run("SELECT set_config($1, $2, $3)", [name, value, local]).sync()
    return Batch().run(f"SELECT pg_catalog.set_config('{name}', $1, {local})", [value]).sync()


@step("computed", 1.5)
def set_config_of_something_computed(c):
    return c.chance.choice([
        lambda: c.sql("SELECT set_config('statement_timeout', (61 + 7 * length(current_user))::text || 's', false)"),
        lambda: c.sql("SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new"),
        lambda: c.sql("SELECT set_config(name, 's2', false) FROM pg_settings WHERE name = 'search_path'"),
        lambda: c.sql("WITH s AS (SELECT set_config('app.user', 'with', false)) SELECT * FROM s"),
        lambda: c.sql("SELECT 1 WHERE set_config('app.user', 'where', false) = 'where'"),
        lambda: c.sql("SELECT CASE WHEN false THEN set_config('app.user', 'never', false) END"),
        lambda: c.sql("UPDATE pg_settings SET setting = 'of update' WHERE name = 'application_name'"),
        lambda: c.sql("DO $$ BEGIN PERFORM set_config('app.depth', '9', false); END $$"),
        lambda: c.sql("DO $$ BEGIN SET app.depth = '10'; END $$"),
    ])()


@step("hidden", 1)
def set_out_of_sight(c):
    return c.sql(f"SELECT adv.hidden_set('app.user', 'hidden {c.chance.randrange(9)}')")


@step("searchpath", 2)
def what_the_search_path_finds(c):
    return c.sql(c.chance.choice(["SELECT place FROM item", "SELECT place()", "SELECT current_schema()", "SELECT 'item'::regclass::text"]))


@step("escapes", 1)
def odd_literals(c):
    return c.sql(f"SET app.user = {c.chance.choice(STRINGS)}")


@step("escapes", 0.5)
def change_what_literals_mean(c):
    """Some clients only, and seldom for long: a server that was used so is closed, and one that is always new would
    show nothing of what others leave.
    """
    back = [c.sql("SET standard_conforming_strings = on")] if c.chance.random() < 0.9 else []
    return [c.sql(f"SET standard_conforming_strings = {c.chance.choice(['off', 'on', 'on'] if c.number % 5 == 0 else ['on'])}"),
            c.sql(r"SET app.user = 'back\\slash'"), c.sql(r"SELECT 'it\'; SET app.depth = 77 --'"), *back]


@step("role", 1.5)
def set_role(c):
    role = c.chance.choice(ROLES)
    return c.sql(c.chance.choice([f"SET ROLE {quote(role)}", f"SET SESSION ROLE '{role}'", "RESET ROLE", "SET ROLE NONE", "SET ROLE none",
                                  f"SET LOCAL ROLE {quote(role)}", f"SET role = '{role}'", f"SELECT set_config('role', '{role}', false)"]))


@step("authorization", 0.7)
def set_authorization(c):
    user = c.chance.choice([APP, ADMIN, ROLES[0]])
    return c.sql(c.chance.choice([f"SET SESSION AUTHORIZATION {user}", f"SET SESSION AUTHORIZATION '{user}'", "RESET SESSION AUTHORIZATION",
                                  "SET SESSION AUTHORIZATION DEFAULT", f"SET LOCAL SESSION AUTHORIZATION {user}"]))


# -- transactions

@step("transactions", 6, "I")
def begin(c):
    return c.sql(c.chance.choice(BEGINS))


@step("transactions", 0.2)
def begin_or_end_at_the_wrong_moment(c):
    return c.sql(c.chance.choice(["BEGIN", "COMMIT", "ROLLBACK"]))


@step("savepoints", 2, "T")
def savepoint(c):
    return c.sql(f"SAVEPOINT {c.chance.choice(['one', 'two', chr(34) + 'Three' + chr(34)])}")


@step("savepoints", 3, "TE")
def back_to_or_over_a_savepoint(c):
    name = c.chance.choice(["one", "two", '"Three"', "never"])
    return c.sql(c.chance.choice([f"ROLLBACK TO {name}", f"ROLLBACK TO SAVEPOINT {name}", f"RELEASE {name}", f"RELEASE SAVEPOINT {name}"]))


@step("multi", 2)
def several_in_one_query(c):
    several = [c.chance.choice(["SELECT 1", "SELECT 2", "BEGIN", "COMMIT", "ROLLBACK", "SELECT 1/0", "SAVEPOINT one", "ROLLBACK TO one", "",
                                *([c.set_statement(), c.set_statement(), "RESET ALL"] if "set" in c.features else []),
                                *([c.set_statement(local=True)] if "local" in c.features else [])]) for _ in range(c.chance.randrange(2, 5))]
    return simple("; ".join(s.rstrip("; ") for s in several))


@step("errors", 1)
def a_failing_statement(c):
    return c.sql(c.chance.choice(["SELECT 1/0", "SELEC 1", "SELECT nothing FROM nowhere", "SELECT 'x'::int", "", ";", "COMMIT PREPARED 'none'",
                                  f"SET {c.chance.choice(BAD)}"]))


# -- statements and portals of the protocol

PARSED = ["SELECT $1::text || ' of ' || current_setting('search_path')", "SELECT count(*) + $1::int FROM adv.notes WHERE client = -1", "SELECT $1::timestamptz - interval '1 day'"]
# What these mean, and whether they mean anything, depends on the search_path of the moment.
REPLANNED = ["SELECT place, $1::text FROM item", "SELECT place() || $1::text"]
ARGUMENT = {"SELECT count(*)": "7", "SELECT $1::timestamptz": "2026-01-02 03:04:05+00"}


def argument_of(sql):
    return next((value for start, value in ARGUMENT.items() if sql.startswith(start)), "text")


@step("prepared", 2.5)
def parse_by_name(c):
    name, sql = f"s{c.chance.randrange(4)}", c.parsed()
    batch = Batch()
    if c.chance.random() < 0.7:
        batch.close(name)
    batch.parse(sql, name)
    if c.chance.random() < 0.5:
        batch.describe(name)
    if c.chance.random() < 0.5:
        batch.bind([argument_of(sql)], name).execute()
    return batch.sync()


@step("prepared", 5)
def execute_by_name(c):
    """Of any statement there may be: the argument does for most of them."""
    batch = Batch().bind([c.chance.choice(["text", "7", "7", "2026-01-02 03:04:05+00"])], f"s{c.chance.randrange(4)}")
    if c.chance.random() < 0.5:
        batch.describe_portal()
    return batch.execute().sync()


@step("prepared", 0.7)
def close_or_describe_by_name(c):
    name = f"s{c.chance.randrange(4)}"
    return c.chance.choice([Batch().close(name), Batch().close(name), Batch().describe(name)]).sync()


@step("prepared", 0.3)
def deallocate_by_name(c):
    c.gave_up = True
    return c.sql(f"DEALLOCATE s{c.chance.randrange(4)}")


@step("unnamed", 1.5, "I")
def parse_first_and_bind_later(c):
    sql = c.parsed()
    first = Batch().parse(sql).describe().sync()
    return [first, *(Batch().bind([argument_of(sql)]).execute().sync() for _ in range(c.chance.randrange(1, 3)))]


@step("portals", 1, "T")
def a_portal_in_pieces(c):
    return [Batch().parse("SELECT generate_series(1, 5)").bind(portal="p").execute("p", 2).sync(),
            *(Batch().execute("p", 2).sync() for _ in range(c.chance.randrange(3)))]


@step("pipeline", 2)
def a_pipeline(c):
    batch = Batch()
    for _ in range(c.chance.randrange(2, 6)):
        shape = c.chance.randrange(6)
        if shape == 0 and "set" in c.features:
            batch.run(c.set_statement())
        elif shape == 1:
            batch.run("SELECT $1::text", ["x"])
        elif shape == 2 and "errors" in c.features:
            batch.run("SELECT 1/$1::int", ["0"])
        elif shape == 3 and "prepared" in c.features:
            sql = c.parsed()
            name = f"s{c.chance.randrange(4)}"
            batch.close(name).parse(sql, name).bind([argument_of(sql)], name).execute()
        elif shape == 4 and "transactions" in c.features:
            batch.run(c.chance.choice(["BEGIN", "COMMIT", "ROLLBACK"]))
        else:
            batch.run("SELECT current_setting('search_path')")
    return batch.sync()


# -- state that cannot be replayed

@step("sqlprepare", 1.5)
def prepare(c):
    name = f"q{c.chance.randrange(3)}"
    item = "s1.item" if "temp" in c.features else "item"
    return c.sql(c.chance.choice([f"PREPARE {name} AS SELECT place FROM {item}", f"PREPARE {name} (int) AS SELECT $1 * 2",
                                  f"prepare {name}(text, text) as select set_config($1, $2, false)"]))


@step("sqlprepare", 2)
def execute(c):
    name = f"q{c.chance.randrange(3)}"
    return c.sql(c.chance.choice([f"EXECUTE {name}", f"EXECUTE {name}(21)", f"EXECUTE {name}('app.user', 'by prepare')"]))


@step("sqlprepare", 0.7)
def deallocate(c):
    return c.sql(c.chance.choice([f"DEALLOCATE q{c.chance.randrange(3)}", f"DEALLOCATE PREPARE q{c.chance.randrange(3)}"]))


@step("temp", 1.5)
def make_temporary_table(c):
    name = c.chance.choice(TEMP_TABLES)
    end = c.chance.choice(["", "", " ON COMMIT DROP", " ON COMMIT DELETE ROWS"])
    return c.sql(c.chance.choice([f"CREATE TEMP TABLE {name}{end} AS SELECT 'temporary'::text AS place", f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} (place text){end}",
                                  f"SELECT 'into'::text AS place INTO TEMP {name}", f"CREATE TABLE pg_temp.{name} (place text)"]))


@step("temp", 1.5)
def use_temporary_table(c):
    name = c.chance.choice(TEMP_TABLES)
    return c.sql(c.chance.choice([f"INSERT INTO pg_temp.{name} VALUES ('more')", f"SELECT count(*) FROM {name}", f"SELECT count(*) FROM pg_temp.{name}",
                                  f"DROP TABLE pg_temp.{name}"]))


@step("hold", 1)
def declare_with_hold(c):
    return c.sql(f"DECLARE h{c.chance.randrange(2)} CURSOR WITH HOLD FOR SELECT generate_series(1, 4)")


@step("hold", 1.5)
def use_held_cursor(c):
    name = f"h{c.chance.randrange(2)}"
    return c.sql(c.chance.choice([f"FETCH {name}", f"FETCH 2 FROM {name}", f"CLOSE {name}", f"MOVE {name}"]))


@step("portals", 1, "T")
def a_cursor_within_the_transaction(c):
    return [c.sql("DECLARE c SCROLL CURSOR FOR SELECT generate_series(1, 4)"), c.sql(c.chance.choice(["FETCH 2 FROM c", "FETCH ALL FROM c"]))]


@step("locks", 1.5)
def lock(c):
    key = c.key()
    return c.sql(c.chance.choice([f"SELECT pg_advisory_lock({key})", f"SELECT pg_try_advisory_lock({key}::bigint)", f"SELECT pg_advisory_lock_shared({key}, 1)"]))


@step("locks", 1.5)
def unlock(c):
    key = c.key()
    return c.sql(c.chance.choice([f"SELECT pg_advisory_unlock({key})", f"SELECT pg_advisory_unlock_shared({key}, 1)", "SELECT pg_advisory_unlock_all()"]))


@step("transactions", 0.5)
def lock_in_a_transaction(c):
    return c.sql(f"SELECT pg_advisory_xact_lock({c.key()})")


@step("sequences", 1.5)
def next_value(c):
    return c.sql(f"SELECT nextval('adv.seq_{c.number}_{c.chance.choice('ab')}')")


@step("sequences", 1.5)
def last_value(c):
    return c.sql(c.chance.choice(["SELECT lastval()", f"SELECT currval('adv.seq_{c.number}_a')", f"SELECT currval('adv.seq_{c.number}_b')",
                                  f"SELECT setval('adv.seq_{c.number}_a', 1000)"]))


@step("listen", 1)
def listen(c):
    return c.sql(f"LISTEN {c.channel()}")


@step("listen", 0.7, "I")
def unlisten(c):
    """Not in transactions: behind a pooler it does not count in one that fails, even if that was within a savepoint."""
    return c.sql(c.chance.choice([f'UNLISTEN "{c.channel()}"', "UNLISTEN *"]))


@step("listen", 2)
def notify(c):
    return c.sql(c.chance.choice([f"NOTIFY {c.channel()}, 'n {c.chance.randrange(1000)}'", f"SELECT pg_notify('{c.channel()}', '{c.chance.randrange(1000)}')"]))


# -- throwing state away

def thrown_away(c):
    c.gave_up = True
    return c.chance.choice(["DISCARD ALL", "DISCARD ALL", "RESET ALL", "RESET ALL", "DEALLOCATE ALL", "CLOSE ALL", "DISCARD PLANS",
                            *(["DISCARD TEMP"] if "temp" in c.features else []), *(["DISCARD SEQUENCES"] if "sequences" in c.features else [])])


@step("discard", 0.3, "I")
def discard(c):
    return c.sql(thrown_away(c))


@step("discard", 0.3, "T")
def discard_in_a_transaction(c):
    """RESET ALL as a simple query: a prepared one is a query of its transaction behind a pooler, and SET TRANSACTION
    may not come after it.
    """
    sql = thrown_away(c)
    return simple(sql) if sql == "RESET ALL" else c.sql(sql)


# -- work

@step("writes", 2)
def write(c):
    return c.sql(f"INSERT INTO adv.notes VALUES ({c.number}, {c.chance.randrange(100)})")


@step("writes", 1)
def count_and_clear(c):
    return [c.sql(f"SELECT count(*), sum(n) FROM adv.notes WHERE client = {c.number}"),
            *([c.sql(f"DELETE FROM adv.notes WHERE client = {c.number}")] if c.chance.random() < 0.3 else [])]


@step("copy", 0.5)
def copy(c):
    if c.chance.random() < 0.5:
        return simple("COPY (SELECT generate_series(1, 3), current_setting('DateStyle')) TO STDOUT")
    data = c.chance.choice([f"{c.number}\t1\n{c.number}\t2\n", "rubbish\n"]).encode()
    return copy_in("COPY adv.notes FROM STDIN", data)


@step("frameworks", 1)
def a_habit_of_a_framework(c):
    return patterns.in_between(c.chance, PINNING <= c.features | OFF_BY_DEFAULT, c.key())
