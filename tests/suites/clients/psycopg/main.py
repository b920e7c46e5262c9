"""Real use of psycopg 3, each check on many connections at once. What is asked holds a nonce that the answer must echo.
"""

import datetime
import decimal
import pathlib
import sys

import psycopg
from psycopg import errors

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from checks import TLS_CA, TLS_HOST, TLS_OTHER_CA, cancelling, failing, nonce, on_each, run

TABLE = "c_psycopg"


def connect(**more):
    """As the environment says. Statements are not prepared by name, unless asked for."""
    return psycopg.connect("", **{"autocommit": True, "prepare_threshold": None, "connect_timeout": 20, **more})


def echo(connection):
    mine = nonce()
    assert connection.execute("SELECT %s", [mine]).fetchone() == (mine,)


def set_up():
    with connect() as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        connection.execute(f"CREATE TABLE {TABLE} (worker int, n int, note text, UNIQUE (worker, n))")


def transactions(**more):
    set_up()

    def work(worker):
        with connect(**more) as connection:
            for n in range(20):
                with connection.transaction(force_rollback=n % 2 == 0):
                    connection.execute(f"INSERT INTO {TABLE} VALUES (%s, %s, %s)", [worker, n, nonce()])
                    with failing(errors.DivisionByZero), connection.transaction():
                        connection.execute("SELECT 1/0")
            assert connection.execute(f"SELECT count(*) FROM {TABLE} WHERE worker = %s", [worker]).fetchone() == (10,)

    on_each(work)


def prepared():
    """By default from the sixth execution on; at 0 from the first."""
    for threshold in (5, 0):
        transactions(prepare_threshold=threshold)

        def work(worker, threshold=threshold):
            with connect(prepare_threshold=threshold) as connection:
                for n in range(40):
                    echo(connection)
                    mine = nonce()
                    cursor = connection.execute("SELECT %s::text, %s::int", [mine, n])
                    assert cursor.fetchone() == (mine, n)

        on_each(work)


def unprepared():
    def work(worker):
        with connect() as connection:
            for _ in range(40):
                echo(connection)

    on_each(work)


def pipelines(**more):
    def work(worker):
        with connect(**more) as connection:
            for _ in range(8):
                with connection.pipeline():
                    asked = [nonce() for _ in range(10)]
                    cursors = [connection.execute("SELECT %s", [mine]) for mine in asked]
                assert [cursor.fetchone() for cursor in cursors] == [(mine,) for mine in asked]
                with failing(errors.DivisionByZero), connection.pipeline():
                    connection.execute("SELECT 'before'")
                    connection.execute("SELECT 1/0")
                    connection.execute("SELECT 'never'")
                echo(connection)

    on_each(work)


def prepared_pipelines():
    pipelines(prepare_threshold=0)


def batches():
    set_up()

    def work(worker):
        with connect() as connection, connection.transaction():
            connection.cursor().executemany(f"INSERT INTO {TABLE} VALUES (%s, %s, %s)", [(worker, n, nonce()) for n in range(300)])
        with connect() as connection:
            assert connection.execute(f"SELECT count(*) FROM {TABLE} WHERE worker = %s", [worker]).fetchone() == (300,)

    on_each(work)


def copy():
    set_up()

    def work(worker):
        rows = [(worker, n, f"note {n}") for n in range(3000)]
        with connect() as connection:
            with connection.cursor().copy(f"COPY {TABLE} FROM STDIN") as sink:
                for row in rows:
                    sink.write_row(row)
            with connection.cursor().copy(f"COPY (SELECT * FROM {TABLE} WHERE worker = {worker} ORDER BY n) TO STDOUT") as source:
                got = b"".join(source)
            assert got.decode() == "".join(f"{w}\t{n}\t{note}\n" for w, n, note in rows)
            with failing(errors.InvalidTextRepresentation), connection.cursor().copy(f"COPY {TABLE} FROM STDIN") as sink:
                sink.write("rubbish\n")
            echo(connection)

    on_each(work)


def cursors():
    def work(worker):
        with connect() as connection, connection.transaction():
            with connection.cursor("named") as cursor:
                cursor.itersize = 10
                cursor.execute("SELECT generate_series(1, 95) + %s", [worker * 1000])
                assert [n for (n,) in cursor] == list(range(worker * 1000 + 1, worker * 1000 + 96))

    on_each(work)


def cursors_with_hold():
    def work(worker):
        with connect() as connection:
            with connection.cursor("held", withhold=True) as cursor:
                cursor.execute("SELECT generate_series(1, 95) + %s", [worker * 1000])
                assert [n for (n,) in cursor.fetchmany(40)] == list(range(worker * 1000 + 1, worker * 1000 + 41))
                assert len(cursor.fetchall()) == 55

    # Each held cursor takes a server of its own for a while.
    for n in range(3):
        work(n)


def cancel(**more):
    def work(worker):
        with connect(**more) as connection:
            with cancelling(connection.cancel_safe, timeout=5), failing(errors.QueryCanceled):
                connection.execute("SELECT pg_sleep(30)")
            echo(connection)

    on_each(work)


def timeouts():
    def work(worker):
        with connect() as connection:
            with failing(errors.QueryCanceled), connection.transaction():
                connection.execute("SET LOCAL statement_timeout = '100ms'")
                connection.execute("SELECT pg_sleep(10)")
            echo(connection)
        with connect(options="-c statement_timeout=200ms") as connection:
            with failing(errors.QueryCanceled):
                connection.execute("SELECT pg_sleep(10)")
            echo(connection)

    on_each(work)


def types():
    values = [1, 2**40, 1.5, decimal.Decimal("1.10"), "ünïcode", b"\x00\xff", True, [1, 2, 3], datetime.date(2026, 1, 2),
              datetime.datetime(2026, 1, 2, 3, 4, 5, 6), datetime.timedelta(days=1, seconds=2)]

    def work(worker):
        with connect() as connection:
            for binary in (False, True):
                cursor = connection.cursor(binary=binary)
                for value in values:
                    assert cursor.execute("SELECT %s", [value]).fetchone() == (value,)

    on_each(work)


def settings():
    def work(worker):
        with connect() as connection:
            connection.execute(f"SET search_path = schema_{worker}, public")
            connection.execute("SELECT set_config('app.tenant', %s, false)", [f"tenant {worker}"])
            for _ in range(20):
                row = connection.execute("SELECT current_setting('search_path'), current_setting('app.tenant', true)").fetchone()
                assert row == (f"schema_{worker}, public", f"tenant {worker}"), row

    on_each(work)


def listen():
    def work(worker):
        with connect() as connection:
            connection.execute(f"LISTEN channel_{worker}")
            for n in range(5):
                connection.execute("SELECT pg_notify(%s, %s)", [f"channel_{worker}", f"note {n}"])
            got = [(n.channel, n.payload) for n in connection.notifies(timeout=10, stop_after=5)]
            assert got == [(f"channel_{worker}", f"note {n}") for n in range(5)], got

    on_each(work)


def encrypted(**more):
    def work(worker):
        with connect(**more) as connection:
            assert connection.pgconn.ssl_in_use
            echo(connection)

    on_each(work)


def tls():
    encrypted(sslmode="require")
    transactions(sslmode="require")
    pipelines(sslmode="require", prepare_threshold=0)
    cancel(sslmode="require")


def tls_verified():
    encrypted(host=TLS_HOST, sslmode="verify-full", sslrootcert=TLS_CA)
    with failing(psycopg.OperationalError, "certificate verify failed"):
        connect(host=TLS_HOST, sslmode="verify-full", sslrootcert=TLS_OTHER_CA)
    with failing(psycopg.OperationalError, "does not match host name"):
        connect(sslmode="verify-full", sslrootcert=TLS_CA)


def channel_binding():
    encrypted(sslmode="require", channel_binding="require")
    with failing(psycopg.OperationalError, "channel binding"):
        connect(channel_binding="require")


run(psycopg.__version__, [transactions, unprepared, prepared, pipelines, prepared_pipelines, batches, copy, cursors, cursors_with_hold, cancel,
                          timeouts, types, settings, listen, tls, tls_verified, channel_binding])
