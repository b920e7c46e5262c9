"""Plays turns: a client does something to its session, others look whether they can see it. Knows what is looked for,
not how the pooler is started.

What a turn does follows from the seed and the turn's number alone, never from what happened before, so that any of a
run's turns can be played again without the others; and one request is answered before the next is sent, also to another
client.
"""

import contextlib
import dataclasses
import random
import time

from support import postgres_wire as w

from . import look, world
from .deeds import DEEDS, ONLY_HIDDEN, Doer
from .requests import Batch, simple
from .sharing import NO_SERVER

# Clients that do things to their sessions, and clients that never do, in each scene.
DOERS, BYSTANDERS = 3, 2
# Turns for which one kind of object is used, if clients make such.
ERA = 80
# What ends a client's connection and is no fault of the pooler: pins that are full, and the client's own time-outs.
EXCUSED = ("53400", "25P03", "57P05")
# Requests that take longer hang.
ANSWER_SECONDS = 15
# Within this time a client is served once no client keeps a server.
SERVED_SECONDS = 8
# What clients ask for at their start.
STARTUPS = ((("options", "-c standard_conforming_strings=off"),), (("client_encoding", "SJIS"),), (("client_encoding", "LATIN1"), ("application_name", "evil")),
            (("options", "-c search_path=evil -c app.tenant=evil"),), (("options", "-c role=leaks_reader"),), (("options", "-c work_mem=9MB -c DateStyle=German"),),
            (("TimeZone", "Asia/Tokyo"),), (("options", "-c search_path=pg_temp"),), (("options", "-c statement_timeout=3000 -c idle_session_timeout=60000"),))


class Leak(Exception):
    """A client has met what another has left, or lost what was its own, or was cut off."""

    def __init__(self, number, what):
        super().__init__(what)
        self.number, self.what = number, what


@dataclasses.dataclass(frozen=True)
class Turn:
    """`scene` is (database, user); `kind` is what it does: deed, own, newcomer or bystander; `leaving`: stay, quit,
    vanish, or vanish with that many requests unanswered.
    """

    number: int
    scene: tuple
    kind: str
    client: int
    feature: str
    requests: tuple
    leaving: str
    chance: int
    # Start-up parameters, where the client has to connect first.
    startup: tuple = ()

    @property
    def statements(self):
        return sum(request.statements for request in self.requests) or 1

    def __str__(self):
        end = {"quit": ", then leaves", "vanish": ", then vanishes", "midway": ", and vanishes without waiting for the last"}.get(self.leaving, "")
        lines = [f"turn {self.number}, {self.scene[1]}@{self.scene[0]}: {self.kind} {self.client} {self.feature}{end}"]
        if self.startup:
            lines[0] += f", connects with {dict(self.startup)} if it is not connected"
        return "\n".join(lines + [f"      {request.text}" for request in self.requests])


def make_turn(seed, number, features, databases):
    """The turn of that number."""
    chance = random.Random(f"{seed} {number}")
    features = sorted(features)
    usable = [d for d in DEEDS if d.feature in features]
    deed = chance.choices(usable, [d.weight for d in usable])[0]
    database = world.HIDDEN if deed.feature in ONLY_HIDDEN and world.HIDDEN in databases else chance.choice(databases)
    user = world.ADMIN if deed.feature == "superuser" or ("superuser" in features and chance.random() < 0.15) else world.APP
    kind = chance.choices(["deed", "newcomer", "bystander", "own"], [10, 8, 5, 2])[0]
    requests, leaving, startup = (), "stay", ()
    if kind == "deed":
        startup = chance.choice(STARTUPS) if chance.random() < 0.3 else ()
        requests = tuple(deed.make(Doer(chance, database == world.HIDDEN, number // ERA)))
        leaving = chance.choices(["stay", "quit", "vanish", "midway"], [4, 5, 1, 1])[0]
    elif kind == "own":
        letters = "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in promised(number))
        requests = (simple(f"SET {world.PROMISED} = E'{letters}'"),)
    elif kind == "newcomer":
        leaving = "quit"
    count = BYSTANDERS if kind == "bystander" else DOERS
    return Turn(number, (database, user), kind, chance.randrange(count), deed.feature if kind == "deed" else "", requests, leaving, chance.randrange(1 << 30), startup)


def promised(number):
    """What a client sets in the turn of that number; some of it are letters that mean something else in another
    encoding.
    """
    return f"own {number}" + (" é表" if number % 2 else "")


@dataclasses.dataclass
class Client:
    session: object
    # What it has set of its own; None: nothing that it may count on.
    own: str = None
    small: bool = False
    # Whether it has prepared the statement that it keeps.
    kept: bool = False
    # It has done something under the names of the pooler's own statements, and what it meets of that itself is its own
    # fault.
    tampers: bool = False


def answered(answers):
    """The rows, or the error; None where no server was free."""
    try:
        return look.rows(answers)
    except w.ServerError as error:
        return None if error.sqlstate in NO_SERVER else str(error)


class Stage:
    """The clients of a run and what they are compared with: new sessions of `cluster`."""

    def __init__(self, pooler, cluster, password, mode="transaction"):
        self.pooler, self.cluster, self.password = pooler, cluster, password
        # Who stays keeps its server in session mode.
        self.all_keep_servers = mode == "session"
        self.clients, self.fresh, self.seeds, self.superusers = {}, {}, {}, {}
        self.statements = self.checks = self.unserved = 0
        # What the names of the pooler's own statements begin with.
        self.own_names = None

    def close(self):
        for client in self.clients.values():
            client.session.close()
        for db in self.superusers.values():
            db.close()

    def play(self, turn):
        """Raises Leak."""
        try:
            {"deed": self.deed, "own": self.own, "newcomer": self.newcomer, "bystander": self.bystander}[turn.kind](turn)
        except w.ServerError as error:
            raise Leak(turn.number, f"cut off: {error}") from error
        except w.Closed as closed:
            raise Leak(turn.number, f"cut off without a word: {closed}") from closed
        except TimeoutError as late:
            raise Leak(turn.number, f"unanswered for {ANSWER_SECONDS} s") from late

    # -- clients

    def connect(self, scene, direct=False, startup=()):
        database, user = scene
        port = self.cluster.port if direct else self.pooler.port
        return w.Wire(port, ANSWER_SECONDS).login(user, self.password(user), database, **dict(startup))

    def client(self, scene, kind, number, startup=()):
        key = (scene, kind, number)
        if key not in self.clients:
            self.clients[key] = Client(self.connect(scene, startup=startup))
        return self.clients[key]

    def forget(self, scene, kind, number, vanish=False):
        client = self.clients.pop((scene, kind, number), None)
        if client is None:
            return
        if vanish:
            client.session.vanish()
        else:
            with contextlib.suppress(OSError):
                client.session.send(w.TERMINATE)
            client.session.close()

    def free_servers(self, scene):
        """All who may keep a server leave."""
        for key in [key for key in self.clients if key[0] == scene and key[1] == "deed"]:
            self.forget(*key)

    def ask(self, session, request):
        """The answers, ReadyForQuery left out; the transaction status after them."""
        self.statements += request.statements
        session.send(request.data)
        answers, status = [], "I"
        for _ in range(request.syncs):
            more, status = session.until_ready()
            answers += more
        return answers, status

    # -- turns

    def deed(self, turn):
        client = self.entering(turn)
        if client is None:
            return
        client.small |= turn.feature == "timeouts"
        # What a deed does to a client's own settings, it knows best itself.
        client.own = None if turn.feature in ("discard", "settings", "large") or client.small else client.own
        try:
            status = "I"
            requests = [self.named(turn, client, request) for request in turn.requests]
            for request in requests[:-1] if turn.leaving == "midway" else requests:
                if request.aside:
                    self.aside(turn.scene, request)
                else:
                    _, status = self.ask(client.session, request)
            if turn.leaving == "midway":
                client.session.send(requests[-1].data)
            elif turn.leaving == "stay":
                if status != "I":
                    self.ask(client.session, simple("ROLLBACK"))
                self.keeps(turn, client)
        except w.ServerError as error:
            if not self.excused(turn, client, error):
                raise
            return
        if turn.leaving != "stay":
            self.forget(turn.scene, "deed", turn.client, vanish=turn.leaving != "quit")

    def aside(self, scene, request):
        """Another client's request in the middle of a deed; there may be no server for it."""
        try:
            self.ask(self.client(scene, "aside", 0).session, request)
        except w.ServerError as error:
            self.forget(scene, "aside", 0)
            if error.sqlstate not in NO_SERVER:
                raise
            self.unserved += 1

    def named(self, turn, client, request):
        """The request, with the names that the pooler gives its own statements where it is about those."""
        if world.OWN_NAMES not in request.text:
            return request
        self.learn_names(turn.scene)
        client.tampers |= self.own_names is not None
        return request.naming(world.OWN_NAMES, self.own_names or world.OWN_NAMES)

    def learn_names(self, scene):
        """A client that has prepared a statement can read them; in session mode it has its own name."""
        if self.own_names or self.all_keep_servers:
            return
        with self.connect(scene) as session:
            answers, _ = self.ask(session, Batch().parse("SELECT 1", "learnt").run("SELECT name FROM pg_prepared_statements WHERE name LIKE 'poolhouse%'").sync())
            names = look.rows(answers)
        self.own_names = names[0][0].rstrip("0123456789") if names else None

    def excused(self, turn, client, error):
        """Whether an error that has ended a connection is no fault of the pooler; the client leaves then."""
        unserved = error.sqlstate in NO_SERVER
        if unserved:
            # Others keep all servers.
            self.unserved += 1
            self.free_servers(turn.scene)
        self.forget(turn.scene, "deed", turn.client)
        return unserved or error.sqlstate in EXCUSED or (client.small and error.sqlstate in ("57014", "55P03") and error.severity != "FATAL")

    def keeps(self, turn, client):
        """What a client has set of its own is still there, and what it prepares means what it says."""
        if turn.feature == "own" and not client.tampers:
            answers, _ = self.ask(client.session, Batch().run("SELECT 'its own'", name="its own").close("its own").sync())
            if (found := answered(answers)) not in ([("its own",)], None):
                raise Leak(turn.number, f"a client that prepares SELECT 'its own' gets {found}")
        if client.own is None:
            return
        # As bytes of the database: the client's encoding may not have the letters.
        value = f"pg_catalog.convert_to(pg_catalog.current_setting('{world.PROMISED}', true), 'UTF8')"
        answers, _ = self.ask(client.session, simple(f"SELECT pg_catalog.encode({value}, 'hex')"))
        try:
            found = [hexadecimal and bytes.fromhex(hexadecimal).decode() for (hexadecimal,) in look.rows(answers)]
        except w.ServerError as error:
            if error.sqlstate in NO_SERVER:
                return
            raise Leak(turn.number, f"a client cannot ask for what is its own: {error}") from error
        if found != [client.own]:
            raise Leak(turn.number, f"a client has lost what was its own, {world.PROMISED} = {client.own}: it sees {found}")

    def entering(self, turn):
        """The turn's client, connected; None if there is no server for it now, which some logins need."""
        try:
            return self.client(turn.scene, "deed", turn.client, turn.startup)
        except w.ServerError as error:
            if error.sqlstate not in NO_SERVER:
                raise
            self.unserved += 1
            self.free_servers(turn.scene)
            return None

    def own(self, turn):
        client = self.entering(turn)
        if client is None:
            return
        try:
            self.keeps(turn, client)
            answers, _ = self.ask(client.session, turn.requests[0])
        except w.ServerError as error:
            if not self.excused(turn, client, error):
                raise
            return
        if not any(kind == b"E" for kind, _ in answers):
            client.own = promised(turn.number)

    def newcomer(self, turn):
        self.look(turn, "newcomer", True)

    def bystander(self, turn):
        self.look(turn, "bystander", self.all_keep_servers)

    def look(self, turn, kind, leaves):
        chance = random.Random(turn.chance)
        if self.all_keep_servers:
            self.free_servers(turn.scene)
        deadline = time.monotonic() + SERVED_SECONDS
        while True:
            try:
                self.compare(turn, self.client(turn.scene, kind, turn.client), chance)
                break
            except w.ServerError as error:
                self.forget(turn.scene, kind, turn.client)
                if error.sqlstate not in NO_SERVER or time.monotonic() > deadline:
                    raise Leak(turn.number, f"a {kind}'s request fails: {error}") from error
                # All servers are kept by their owners, or cleaned after these have left.
                self.unserved += 1
                self.free_servers(turn.scene)
        if leaves:
            self.forget(turn.scene, kind, turn.client)

    def compare(self, turn, client, chance):
        """All that a client may see that has done nothing."""
        self.checks += 1
        session, (database, user), problems = client.session, turn.scene, []
        hidden = database == world.HIDDEN
        if turn.scene not in self.fresh:
            with self.connect(turn.scene, direct=True) as fresh:
                self.fresh[turn.scene] = look.look(fresh, hidden)
                self.seeds[turn.scene] = look.randoms(fresh)
        # A statement first, before anything else has made the pooler look at the server, now and then.
        shapes = [self.statement, self.row, self.random, self.changing]
        if turn.kind == "newcomer":
            # Who has asked for it keeps its server whenever it inserts.
            shapes.append(self.last_value)
        chance.shuffle(shapes)
        for shape in shapes[: chance.randrange(3)]:
            problems += shape(turn, session, chance) or []
        seen = (look.look if chance.random() < 0.6 else look.look_by_parse)(session, hidden)
        # In session mode its own statement is there under its own name.
        problems += look.told(self.fresh[turn.scene], seen - {("prepared", "kept: SELECT 'kept'")})
        if problems:
            raise Leak(turn.number, f"{user} sees: {'; '.join(p[:200] for p in problems)}")

    def statement(self, turn, session, chance):
        """A prepared text gives its own answer."""
        client = self.clients.get((turn.scene, turn.kind, turn.client))
        if turn.kind == "bystander" and client:
            # One that has been prepared once, perhaps on another server.
            batch = Batch() if client.kept else Batch().parse("SELECT 'kept'", "kept")
            client.kept = True
            if (found := look.rows(self.ask(session, batch.bind(name="kept").execute().sync())[0])) != [("kept",)]:
                return [f"SELECT 'kept' gives {found}"]
        wanted = f"mine {chance.randrange(4)}"
        answers, _ = self.ask(session, Batch().run(f"SELECT '{wanted}'", name="s").close("s").sync())
        if (found := look.rows(answers)) != [(wanted,)]:
            return [f"SELECT '{wanted}' gives {found}"]

    def row(self, turn, session, chance):
        """An acknowledged row is in the table of that name in public, and everything about it is plain."""
        database, user = turn.scene
        table = chance.choice(world.TABLES)
        insert = f"INSERT INTO {table} (id, note) VALUES (4711, 'mine')"
        answers, _ = self.ask(session, simple(insert) if chance.random() < 0.5 else Batch().run(insert).sync())
        look.rows(answers)
        if database not in self.superusers:
            self.superusers[database] = self.cluster.superuser(database)
        found = self.superusers[database].execute(f"DELETE FROM public.{table} WHERE note = 'mine' RETURNING id, coalesce(tenant, ''), who::text").fetchall()
        if found != [(4711, "", user)]:
            return [f"an acknowledged INSERT INTO {table} left {found} in public.{table}"]

    def random(self, turn, session, chance):
        (value,), = look.rows(self.ask(session, simple("SELECT random()::text"))[0])
        return [f"random() = {value}, as setseed({look.SEED}) makes it"] if value in self.seeds[turn.scene] else None

    def last_value(self, turn, session, chance):
        answers, _ = self.ask(session, simple("SELECT lastval()"))
        return None if any(kind == b"E" and w.error_fields(body)["C"] == "55000" for kind, body in answers) else [f"lastval() = {look.rows(answers)}"]

    def changing(self, turn, session, chance):
        """A client that prepares a text for the first time is not refused because a table has changed."""
        session_name = chance.choice(["", "changing"])
        batch = Batch().parse("SELECT * FROM public.changing", session_name)
        if chance.random() < 0.5:
            batch.add(w.message(b"D", b"S" + session_name.encode() + b"\0"), "Describe")
        batch = batch.bind(name=session_name).execute()
        if session_name:
            batch = batch.close(session_name)
        look.rows(self.ask(session, batch.sync())[0])
