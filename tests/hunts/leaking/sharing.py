"""One server, or a few, and the sessions that share them; tells what a newcomer meets there that a fresh session would
not see.

Knows neither what is done to the server, nor what the pooler does about it.
"""

import time

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS

from . import look, world

# How long a newcomer waits for a server that may be kept by its owner.
WAIT = "400ms"
# What the pooler says to who has waited in vain, or may not have a server of its own.
NO_SERVER = ("53300", "53400", "57P03", "58000", "08006", "57P05")


class Sharing:
    """`cluster` has the databases of `world`; `start` makes a pooler with such settings."""

    def __init__(self, start, cluster, database=world.QUIET, mode="transaction", max_size=1, wait=WAIT, **more):
        self.cluster, self.database, self.hidden = cluster, database, database == world.HIDDEN
        world.make(cluster)
        users = {world.APP: PASSWORDS[world.APP], world.ADMIN: world.ADMIN_PASSWORD}
        databases = {name: {"url": cluster.url(name, None), **more} for name in (world.QUIET, world.HIDDEN)}
        self.pooler = start(users=users, databases=databases, mode=mode, max_size=max_size, max_wait_time=wait)

    def session(self, user=world.APP, **parameters):
        """A new client of the pooler, logged in. On a busy machine a first server takes longer than others are to wait.
        """
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.pooler.open().login(user, self.password(user), self.database, **parameters)
            except w.ServerError as error:
                if error.sqlstate != "57P03" or time.monotonic() > deadline:
                    raise

    def direct(self, user=world.APP, **parameters):
        """A session that no client had before."""
        return w.Wire(self.cluster.port).login(user, self.password(user), self.database, **parameters)

    @staticmethod
    def password(user):
        return world.ADMIN_PASSWORD if user == world.ADMIN else PASSWORDS[user]

    def met(self, user=world.APP, patient=False, **parameters):
        """What a newcomer sees that a fresh session does not; `patient` ones insist on a server."""
        with self.direct(user, **parameters) as fresh:
            expected = look.look(fresh, self.hidden)
        deadline = time.monotonic() + 10
        while True:
            try:
                with self.session(user, **parameters) as newcomer:
                    found = look.told(expected, look.look(newcomer, self.hidden))
                    return found or self.written(newcomer)
            except w.ServerError as error:
                if error.sqlstate not in NO_SERVER:
                    return [f"its first query fails: {error}"]
                if not patient:
                    return []
                assert time.monotonic() < deadline, f"no client is served any more: {error}"
            except w.Closed as closed:
                return [f"its first query ends the connection: {closed}"]

    def written(self, session):
        """What is wrong with a row that a session writes: it has to be in public's table, and everything about it
        plain.
        """
        wrong = []
        with self.cluster.superuser(self.database) as db:
            for table in world.TABLES:
                session.query(f"INSERT INTO {table} (id, note) VALUES (4711, 'mine')")
                found = db.execute(f"DELETE FROM public.{table} WHERE note = 'mine' RETURNING id::text, coalesce(tenant, ''), who::text").fetchall()
                if found != [("4711", "", world.APP)] and found != [("4711", "", world.ADMIN)]:
                    wrong.append(f"an acknowledged INSERT INTO {table} left {found} in public.{table}")
        return wrong

    def nobody_meets(self, *acts, user=world.APP, **parameters):
        """A client that comes after one that does this, while it stays and when it has left, sees nothing of it. An act
        is SQL, or a function of the session.
        """
        with self.session(user, **parameters) as one:
            for act in acts:
                do(one, act)
            staying = self.met(user)
        leaving = self.met(user, patient=True)
        assert not staying, f"while it stays: {staying}"
        assert not leaving, f"when it has left: {leaving}"


def do(session, act):
    """Carries out an act; an error that the server reports is none of ours."""
    if callable(act):
        return act(session)
    session.send(w.message(b"Q", (act.encode() if isinstance(act, str) else act) + b"\0"))
    answers, _ = session.until_ready()
    return answers


def strictly(sql):
    """An act that has to succeed, so that a test does not pass because of a mistake in it."""
    def act(session):
        return look.rows(do(session, sql))
    return act
