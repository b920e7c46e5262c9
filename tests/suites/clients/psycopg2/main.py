"""Real use of psycopg2, each check on many connections at once. What is asked holds a nonce that the answer must echo.
"""

import contextlib
import io
import pathlib
import select
import sys

import psycopg2
import psycopg2.extras
from psycopg2 import errors

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from checks import TLS_CA, TLS_HOST, TLS_OTHER_CA, cancelling, failing, nonce, on_each, run

TABLE = "c_psycopg2"


@contextlib.contextmanager
def connect(autocommit=True, **more):
    connection = psycopg2.connect("", connect_timeout=20, **more)
    connection.autocommit = autocommit
    try:
        yield connection
    finally:
        connection.close()


def ask(connection, sql, *values):
    with connection.cursor() as cursor:
        cursor.execute(sql, values or None)
        return cursor.fetchall() if cursor.description else None


def echo(connection):
    mine = nonce()
    assert ask(connection, "SELECT %s", mine) == [(mine,)]


def set_up():
    with connect() as connection:
        ask(connection, f"DROP TABLE IF EXISTS {TABLE}")
        ask(connection, f"CREATE TABLE {TABLE} (worker int, n int, note text, UNIQUE (worker, n))")


def transactions(**more):
    set_up()

    def work(worker):
        with connect(autocommit=False, **more) as connection:
            for n in range(20):
                ask(connection, f"INSERT INTO {TABLE} VALUES (%s, %s, %s)", worker, n, nonce())
                ask(connection, "SAVEPOINT inner_one")
                with failing(errors.DivisionByZero):
                    ask(connection, "SELECT 1/0")
                ask(connection, "ROLLBACK TO inner_one")
                connection.commit() if n % 2 else connection.rollback()
            assert ask(connection, f"SELECT count(*) FROM {TABLE} WHERE worker = %s", worker) == [(10,)]

    on_each(work)


def batches():
    set_up()

    def work(worker):
        with connect() as connection, connection.cursor() as cursor:
            psycopg2.extras.execute_values(cursor, f"INSERT INTO {TABLE} VALUES %s", [(worker, n, nonce()) for n in range(500)])
            psycopg2.extras.execute_batch(cursor, f"UPDATE {TABLE} SET note = %s WHERE worker = %s AND n = %s", [("x", worker, n) for n in range(500)])
            assert ask(connection, f"SELECT count(*) FROM {TABLE} WHERE worker = %s AND note = 'x'", worker) == [(500,)]

    on_each(work)


def copy():
    set_up()

    def work(worker):
        lines = "".join(f"{worker}\t{n}\tnote {n}\n" for n in range(3000))
        with connect() as connection, connection.cursor() as cursor:
            cursor.copy_expert(f"COPY {TABLE} FROM STDIN", io.StringIO(lines))
            got = io.StringIO()
            cursor.copy_expert(f"COPY (SELECT * FROM {TABLE} WHERE worker = {worker} ORDER BY n) TO STDOUT", got)
            assert got.getvalue() == lines
            with failing(errors.InvalidTextRepresentation):
                cursor.copy_expert(f"COPY {TABLE} FROM STDIN", io.StringIO("rubbish\n"))
            echo(connection)

    on_each(work)


def cursors():
    def work(worker):
        with connect(autocommit=False) as connection, connection.cursor("named") as cursor:
            cursor.itersize = 10
            cursor.execute("SELECT generate_series(1, 95) + %s", [worker * 1000])
            assert [n for (n,) in cursor] == list(range(worker * 1000 + 1, worker * 1000 + 96))

    on_each(work)


def cancel(**more):
    def work(worker):
        with connect(**more) as connection:
            with cancelling(connection.cancel), failing(errors.QueryCanceled):
                ask(connection, "SELECT pg_sleep(30)")
            echo(connection)

    on_each(work)


def timeouts():
    def work(worker):
        with connect(autocommit=False) as connection:
            ask(connection, "SET LOCAL statement_timeout = '100ms'")
            with failing(errors.QueryCanceled):
                ask(connection, "SELECT pg_sleep(10)")
            connection.rollback()
            echo(connection)

    on_each(work)


def settings():
    """set_session changes the defaults of the session's transactions."""

    def work(worker):
        with connect() as connection:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            ask(connection, f"SET search_path = schema_{worker}, public")
            for _ in range(20):
                got = ask(connection, "SELECT current_setting('search_path'), current_setting('default_transaction_isolation')")
                assert got == [(f"schema_{worker}, public", "repeatable read")], got
                with failing(errors.ReadOnlySqlTransaction):
                    ask(connection, "CREATE TABLE c_psycopg2_never (n int)")

    on_each(work)


def listen():
    def work(worker):
        with connect() as connection:
            ask(connection, f"LISTEN channel_{worker}")
            for n in range(5):
                ask(connection, f"NOTIFY channel_{worker}, 'note {n}'")
            while len(connection.notifies) < 5 and select.select([connection], [], [], 10)[0]:
                connection.poll()
            got = [(n.channel, n.payload) for n in connection.notifies]
            assert got == [(f"channel_{worker}", f"note {n}") for n in range(5)], got

    on_each(work)


def encrypted(**more):
    def work(worker):
        with connect(**more) as connection:
            assert connection.info.ssl_in_use
            echo(connection)

    on_each(work)


def tls():
    encrypted(sslmode="require")
    transactions(sslmode="require")
    cancel(sslmode="require")


def tls_verified():
    encrypted(host=TLS_HOST, sslmode="verify-full", sslrootcert=TLS_CA)
    for words, more in (("certificate verify failed", {"host": TLS_HOST, "sslrootcert": TLS_OTHER_CA}), ("does not match host name", {"sslrootcert": TLS_CA})):
        with failing(psycopg2.OperationalError, words), connect(sslmode="verify-full", **more):
            pass


def channel_binding():
    encrypted(sslmode="require", channel_binding="require")
    with failing(psycopg2.OperationalError, "channel binding"), connect(channel_binding="require"):
        pass


run(psycopg2.__version__.split()[0], [transactions, batches, copy, cursors, cancel, timeouts, settings, listen, tls, tls_verified, channel_binding])
