"""PostgreSQL's own clients through the pooler."""

import os
import re
import subprocess

import pytest

from support.postgres_cluster import md5_hash, program

SCRIPT = r"""
\set ON_ERROR_STOP on
CREATE TABLE t_psql (n int primary key, s text);
BEGIN;
INSERT INTO t_psql SELECT n, 'row ' || n FROM generate_series(1, 1000) n;
SAVEPOINT s;
DELETE FROM t_psql;
ROLLBACK TO s;
COMMIT;
\copy t_psql TO 'copied.txt'
TRUNCATE t_psql;
\copy t_psql FROM 'copied.txt'
COPY t_psql (n, s) FROM STDIN;
2000	from stdin
2001	from stdin too
\.
DO $$ BEGIN RAISE NOTICE 'a notice for psql'; END $$;
SELECT count(*) AS all_rows, max(n) FROM t_psql \gset
\echo counted :all_rows :max
\d t_psql
SELECT 'end of script' \g
DROP TABLE t_psql;
"""


@pytest.mark.quick
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_psql_runs_a_script(start, mode):
    pooler = start(mode=mode, max_size=2)
    done = pooler.run(program("psql"), "-X", "-v", "VERBOSITY=verbose", input=SCRIPT, cwd=pooler.directory)
    assert done.returncode == 0, done.stdout
    for text in ("counted 1002 2001", "a notice for psql", '"t_psql_pkey" PRIMARY KEY', "end of script"):
        assert text in done.stdout, done.stdout


def test_psql_in_a_single_transaction(start):
    pooler = start(max_size=1)
    done = pooler.run(program("psql"), "-X", "-1", "-v", "ON_ERROR_STOP=1", "-c", "CREATE TABLE t_one (n int)",
                      "-c", "SELECT 1/0")
    assert done.returncode == 1 and "division by zero" in done.stdout
    done = pooler.run(program("psql"), "-X", "-Atc", "SELECT to_regclass('t_one') IS NULL")
    assert done.stdout == "t\n"


def test_pg_dump_through_the_pooler(start, cluster):
    """In session mode, because pg_dump changes search_path, which the server does not report."""
    pooler = start(mode="session", max_size=2)
    with pooler.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS t_dump; CREATE TABLE t_dump AS SELECT generate_series(1, 5000) n")
    done = pooler.run(program("pg_dump"), "-t", "t_dump")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "COPY public.t_dump" in done.stdout and "\n5000\n" in done.stdout
    with pooler.connect() as connection:
        connection.execute("DROP TABLE t_dump")


@pytest.fixture
def tables(cluster):
    """pgbench's tables, made once, past the pooler."""
    if cluster.query("SELECT to_regclass('pgbench_accounts')", database="bench") == [(None,)]:
        target = {"PGHOST": str(cluster.directory), "PGPORT": str(cluster.port), "PGUSER": "postgres"}
        subprocess.run([program("pgbench"), "-i", "-q", "-s", "2", "bench"], check=True, env={**os.environ, **target},
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with cluster.superuser("bench") as db:
            db.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC")


def pgbench(pooler, *arguments, clients, transactions=50):
    """Runs pgbench and asserts that all its transactions succeeded. Their number is fixed, so a busy machine is only
    slower."""
    done = pooler.run(program("pgbench"), "-n", "-c", clients, "-t", transactions, *arguments)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"number of failed transactions: 0 ", done.stdout), done.stdout
    assert "aborted" not in done.stdout, done.stdout
    assert f"number of transactions actually processed: {clients * transactions}/" in done.stdout, done.stdout


@pytest.mark.parametrize("protocol", ["simple", "extended"])
@pytest.mark.parametrize("script", [["-S"], ["-b", "tpcb-like"]], ids=["select", "tpcb"])
def test_pgbench(start, tables, protocol, script):
    pooler = start(max_size=5, max_wait_time="30s")
    pgbench(pooler, "-j", 2, "-M", protocol, *script, clients=40)


def test_pgbench_with_a_connection_for_each_transaction(start, tables, cluster):
    pooler = start(max_size=5, max_wait_time="30s")
    pgbench(pooler, "-S", "-C", clients=10, transactions=10)
    assert len(cluster.backends()) <= 5


def test_pgbench_in_session_mode_with_prepared_statements(start, tables):
    pooler = start(mode="session", max_size=10)
    pgbench(pooler, "-S", "-M", "prepared", clients=10)


def test_pgbench_in_statement_mode(start, tables):
    pooler = start(mode="statement", max_size=3, max_wait_time="30s")
    pgbench(pooler, "-S", clients=20)


def test_a_thousand_clients_on_twenty_servers(start, tables, cluster):
    pooler = start(max_size=20, max_wait_time="60s", users={"app": md5_hash("app")}, ini={"auth_type": "md5"})
    pgbench(pooler, "-S", "-j", 2, clients=1000, transactions=10)
    assert len(cluster.backends()) <= 20


def test_two_workers_never_exceed_one_pools_limit(start, tables, cluster):
    pooler = start(workers=2, max_size=4, max_wait_time="60s")
    pgbench(pooler, "-b", "tpcb-like", "-j", 2, clients=60)
    assert len(cluster.backends()) <= 4
