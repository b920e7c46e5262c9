"""Real use of psql by scripts, several at once. What is asked holds a nonce that the answer must echo."""

import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from checks import TLS_CA, TLS_HOST, TLS_OTHER_CA, nonce, on_each, run

TABLE = "c_psql"


def psql(script, *arguments, status=0, **environment):
    """What it prints. `status` is psql's own: 3 for a script that failed."""
    done = subprocess.run(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", *arguments], input=script, env={**os.environ, **environment}, text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, f"exit status {done.returncode}: {done.stdout}"
    return done.stdout


def set_up():
    psql(f"SET client_min_messages = error; DROP TABLE IF EXISTS {TABLE}; CREATE TABLE {TABLE} (worker int, n int, note text, UNIQUE (worker, n));")


def transactions():
    set_up()

    def work(worker):
        script = "".join(f"BEGIN; INSERT INTO {TABLE} VALUES ({worker}, {n}, 'x'); {'COMMIT' if n % 2 else 'ROLLBACK'};\n" for n in range(20))
        assert psql(f"{script} SELECT count(*) FROM {TABLE} WHERE worker = {worker};") == "10\n"
        assert "division by zero" in psql(f"INSERT INTO {TABLE} VALUES ({worker}, 100, 'x');\nSELECT 1/0;\n", "-1", status=3)
        assert psql(f"SELECT count(*) FROM {TABLE} WHERE worker = {worker} AND n = 100;") == "0\n"

    on_each(work)


def many_statements():
    def work(worker):
        asked = [nonce() for _ in range(50)]
        assert psql("".join(f"SELECT '{mine}';\n" for mine in asked)).split() == asked

    on_each(work)


def copy():
    set_up()

    def work(worker):
        lines = "".join(f"{worker}\t{n}\tnote {n}\n" for n in range(3000))
        got = psql(f"COPY {TABLE} FROM STDIN;\n{lines}\\.\n\\copy (SELECT * FROM {TABLE} WHERE worker = {worker} ORDER BY n) TO STDOUT\n")
        assert got == lines

    on_each(work)


def cursors():
    """FETCH_COUNT makes it read a result through a cursor of its own."""

    def work(worker):
        got = psql(f"\\set FETCH_COUNT 10\nSELECT generate_series(1, 95) + {worker * 1000};\n")
        assert got == "".join(f"{worker * 1000 + n}\n" for n in range(1, 96))

    on_each(work)


def cancel():
    """Control-C."""

    def work(worker):
        mine = nonce()
        process = subprocess.Popen(["psql", "-XqAt"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        process.stdin.write(f"\\echo ready\nSELECT pg_sleep(30);\nSELECT '{mine}';\n")
        process.stdin.close()
        # Before it is connected it would just end.
        assert process.stdout.readline() == "ready\n"
        for _ in range(20):
            time.sleep(0.5)
            if process.poll() is not None:
                break
            process.send_signal(signal.SIGINT)
        got = process.stdout.read()
        process.wait(10)
        assert "canceling statement due to user request" in got, got

    on_each(work)


def timeouts():
    def work(worker):
        assert "statement timeout" in psql("BEGIN; SET LOCAL statement_timeout = '100ms'; SELECT pg_sleep(10);", status=3)
        assert "statement timeout" in psql("SELECT pg_sleep(10);", status=3, PGOPTIONS="-c statement_timeout=100ms")

    on_each(work)


def describes():
    """Its own questions to the catalogs."""
    set_up()

    def work(worker):
        got = psql(f"\\d {TABLE}\n\\dt\n\\du\n\\l\n")
        assert "note|text" in got and TABLE in got, got

    on_each(work)


def settings():
    def work(worker):
        script = f"SET search_path = schema_{worker}, public;\n" + "SHOW search_path;\n" * 20
        assert psql(script) == f"schema_{worker}, public\n" * 20

    on_each(work)


def listen():
    def work(worker):
        got = psql(f"LISTEN channel_{worker};\nNOTIFY channel_{worker}, 'note';\nSELECT pg_sleep(0.3);\nSELECT 1;\n")
        assert f'Asynchronous notification "channel_{worker}" with payload "note"' in got, got

    on_each(work)


def encrypted(**environment):
    def work(worker):
        mine = nonce()
        got = psql(f"\\conninfo\nSELECT '{mine}';\n", **environment)
        assert "SSL connection (protocol: TLS" in got and got.endswith(f"{mine}\n"), got

    on_each(work)


def tls():
    encrypted(PGSSLMODE="require")


def tls_verified():
    encrypted(PGHOST=TLS_HOST, PGSSLMODE="verify-full", PGSSLROOTCERT=TLS_CA)
    assert "certificate verify failed" in psql("", status=2, PGHOST=TLS_HOST, PGSSLMODE="verify-full", PGSSLROOTCERT=TLS_OTHER_CA)
    assert "does not match host name" in psql("", status=2, PGSSLMODE="verify-full", PGSSLROOTCERT=TLS_CA)


def channel_binding():
    encrypted(PGSSLMODE="require", PGCHANNELBINDING="require")
    assert "channel binding" in psql("", status=2, PGCHANNELBINDING="require")


run(subprocess.run(["psql", "--version"], text=True, stdout=subprocess.PIPE).stdout.split()[2],
    [transactions, many_statements, copy, cursors, cancel, timeouts, describes, settings, listen, tls, tls_verified, channel_binding])
