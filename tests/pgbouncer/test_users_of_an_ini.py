"""Who exists in a pgbouncer.ini, and who gets into the console without being named."""

import subprocess

import psycopg
import pytest

from support.postgres_cluster import PASSWORDS, program, unprivileged

pytestmark = pytest.mark.poolhouse_only


def as_owner(pooler, folder, database, sql):
    """psql as the user that runs the pooler, at its Unix socket, under the name pgbouncer: (exit status, output)."""
    command = [program("psql"), "-X", "-At", "-h", str(folder), "-p", str(pooler.port), "-U", "pgbouncer", "-w", database, "-c", sql]
    done = subprocess.run(command, text=True, capture_output=True, timeout=20, cwd="/", **unprivileged())
    return done.returncode, done.stdout + done.stderr


def test_the_user_who_runs_it_is_admin_at_its_unix_socket(serve_ini, folder):
    pooler = serve_ini(unix_socket_dir=folder)
    assert as_owner(pooler, folder, "pgbouncer", "SET query_timeout = 5") == (0, "SET query_timeout=5\n")
    status, said = as_owner(pooler, folder, "bench", "SELECT 1")
    assert status != 0, said
    if unprivileged():
        # This process has another user.
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(host=str(folder), port=pooler.port, user="pgbouncer", dbname="pgbouncer")
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(user="pgbouncer", password="", database="pgbouncer")


def test_rules_alone_let_no_user_in(serve_ini):
    pooler = serve_ini(auth_type="trust", users={"app2": "pool_size=3"})
    pooler.connect().close()
    with pytest.raises(psycopg.OperationalError, match='"trust" authentication failed'):
        pooler.connect(user="app2")


def test_a_listed_user_without_a_password_can_only_be_trusted(serve_ini):
    pooler = serve_ini(auth={"app": PASSWORDS["app"], "app2": ""})
    pooler.connect().close()
    for password in ("", PASSWORDS["app2"]):
        with pytest.raises(psycopg.OperationalError):
            pooler.connect(user="app2", password=password)


def test_start_up_parameters_are_applied_ignored_or_refused(serve_ini):
    pooler = serve_ini(ignore_startup_parameters="extra_float_digits, options")
    with pooler.connect(options="-c timezone=Asia/Tokyo -c extra_float_digits=3 -c enable_seqscan=off") as client:
        seen = [client.execute(f"SHOW {name}").fetchone()[0] for name in ("timezone", "extra_float_digits", "enable_seqscan")]
    assert seen == ["Asia/Tokyo", "1", "on"]


def test_a_start_up_parameter_that_is_not_known_is_named(serve_ini):
    pooler = serve_ini()
    for options, text in (("-c enable_seqscan=off", "unsupported startup parameter in options: enable_seqscan"),
                          ("-d", "only '-c config=val' and '--config=val' are allowed")):
        with pytest.raises(psycopg.OperationalError, match=text):
            pooler.connect(options=options)
