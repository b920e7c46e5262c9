"""`poolhouse bench` against a real PostgreSQL: directly, through Poolhouse, in TLS; and errors before any load."""

import json
import subprocess
import time

import pytest

from support import pooler
from support.bench import bench, read, run, tables  # noqa: F401  (a fixture)
from support.postgres_cluster import PASSWORDS, free_port

pytestmark = pytest.mark.poolhouse_only

PHASES = ("dns", "tcp", "tls", "auth", "ready")


def count(cluster, table):
    return cluster.query(f"SELECT count(*) FROM poolhouse_bench.pgbench_{table}", database="bench")[0][0]


def test_init_makes_tables_of_the_right_size_in_a_schema_of_its_own(tables):
    assert [count(tables, name) for name in ("accounts", "branches", "tellers")] == [100_000, 1, 10]
    elsewhere = tables.query("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'pgbench%'"
                             " AND schemaname <> 'poolhouse_bench'", database="bench")
    assert elsewhere == [(0,)]


def test_init_leaves_a_schema_alone_that_it_has_not_made(tables, cluster):
    with cluster.superuser("bench") as db:
        db.execute("CREATE SCHEMA IF NOT EXISTS precious")
    done = run(cluster.url(), "--init", "--schema", "precious", "--duration", "1s")
    assert done.returncode == 2 and "precious" in done.stderr, done.stderr
    assert cluster.query("SELECT count(*) FROM pg_tables WHERE schemaname = 'precious'", database="bench") == [(0,)]


@pytest.mark.parametrize("protocol", ["simple", "extended", "prepared"])
@pytest.mark.parametrize("script", ["select-only", "tpcb-like", "simple-update"])
def test_each_script_runs_in_each_protocol_without_an_error(tables, cluster, protocol, script):
    before = count(cluster, "history")
    result = bench(cluster.url(), f"--{script}", "--protocol", protocol, "--clients", 4, "--duration", "1s")
    assert result["errors"] == {} and result["requests"] > 20
    written = count(cluster, "history") - before
    # Each operation writes one row; those of a warm-up are not in the result.
    assert written == 0 if script == "select-only" else written >= result["requests"]
    sums = cluster.query("SELECT (SELECT sum(abalance) FROM poolhouse_bench.pgbench_accounts),"
                         " (SELECT sum(delta) FROM poolhouse_bench.pgbench_history)", database="bench")
    assert sums[0][0] == (sums[0][1] or 0), "whatever was begun was ended, or rolled back"


def test_the_phases_of_a_login_with_scram_are_told(tables, cluster):
    phases = bench(cluster.url(host="localhost"), "--clients", 3, "--duration", "1s")["connect_ms"]
    for phase in ("dns", "tcp", "auth", "ready"):
        assert phases[phase]["count"] >= 3 and phases[phase]["max"] < 10_000, phase
    assert phases["tls"] is None, "there was none"


def test_tls_is_a_phase_of_its_own(secure_cluster, certificates):
    url = secure_cluster.url(host="localhost") + f"?sslmode=verify-full&sslrootcert={certificates.authority.certificate}"
    result = bench(url, "--init", "--scale", 1, "--clients", 3, "--duration", "1s")
    assert result["errors"] == {} and result["requests"] > 20
    assert all(result["connect_ms"][phase]["count"] >= 3 for phase in PHASES)


def test_a_certificate_that_is_not_believed_ends_it_before_any_load(secure_cluster, certificates):
    url = secure_cluster.url() + f"?sslmode=verify-full&sslrootcert={certificates.other_authority.certificate}"
    done = run(url, "--clients", 3, "--duration", "1s")
    assert done.returncode == 1 and "certificate" in done.stderr, done.stderr


@pytest.mark.quick
def test_it_runs_through_poolhouse_with_more_clients_than_servers(tables, cluster, start):
    through = start(max_size=5)
    url = f"postgres://app:{PASSWORDS['app'].replace(' ', '%20')}@127.0.0.1:{through.port}/bench"
    for protocol in ("simple", "extended", "prepared"):
        result = bench(url, "--clients", 100, "--duration", "2s", "--protocol", protocol)
        assert result["errors"] == {} and result["requests"] > 200
        assert result["connections"]["most"] == 100
    # Then the pool is measured, and the report says so; it says nothing of the kind about a database itself.
    direct = bench(cluster.url(), "--clients", 1, "--duration", "1s")
    assert [any("A pooler answers at this address" in text for text in told["warnings"]) for told in (result, direct)] == [True, False]


def test_a_wrong_password_is_a_clear_error_and_not_repeated(tables, cluster):
    url = f"postgres://app:hunter2hunter2@127.0.0.1:{cluster.port}/bench"
    done = run(url, "--clients", 3, "--duration", "30s", seconds=20)
    assert done.returncode == 1 and "password authentication failed" in done.stderr
    assert "hunter2" not in done.stdout + done.stderr


def test_a_dead_target_is_a_clear_error_before_any_load(cluster):
    port = free_port()
    began = time.monotonic()
    done = run(f"postgres://app:x@127.0.0.1:{port}/bench", "--clients", 3, "--duration", "30s", seconds=25)
    assert done.returncode == 1 and f"127.0.0.1:{port}" in done.stderr and "refused" in done.stderr
    assert time.monotonic() - began < 10


def test_a_file_that_cannot_be_written_is_told_before_any_load(cluster, tmp_path):
    for option in ("--json", "--html"):
        done = run(cluster.url(), option, tmp_path / "no" / "result", "--duration", "30s", seconds=20)
        assert done.returncode == 2 and "cannot write" in done.stderr and "--init" not in done.stderr, done.stderr


def test_missing_tables_are_a_clear_error_that_says_what_to_do(cluster):
    done = run(cluster.url(database="other"), "--clients", 3, "--duration", "30s", seconds=25)
    assert done.returncode == 1 and "--init" in done.stderr and "--script" in done.stderr, done.stderr


def test_tables_of_pgbench_in_another_schema_are_found_and_named(cluster):
    with cluster.superuser("other") as database:
        database.execute("CREATE TABLE public.pgbench_branches (bid int)")
    try:
        for verb in ("bench", "sweep"):
            command = [pooler.BINARY, verb, cluster.url(database="other")]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
            assert done.returncode == 1 and "`--schema public`" in done.stderr and "--script" in done.stderr, done.stderr
    finally:
        with cluster.superuser("other") as database:
            database.execute("DROP TABLE public.pgbench_branches")


def test_the_scale_is_that_of_the_tables_unless_another_is_given(cluster):
    with cluster.superuser("other") as database:
        database.execute("CREATE TABLE public.pgbench_branches AS SELECT generate_series(1, 3) AS bid")
        database.execute("CREATE TABLE public.pgbench_accounts (aid int, abalance int)")
        database.execute("GRANT SELECT ON public.pgbench_branches, public.pgbench_accounts TO PUBLIC")
    try:
        for given, scale in ([], 3), (["--scale", 2], 2):
            result = bench(cluster.url(database="other"), "--schema", "public", "--clients", 1, "--duration", "300ms", *given)
            assert f"scale {scale}" in result["about"]["asks"], result["about"]["asks"]
    finally:
        with cluster.superuser("other") as database:
            database.execute("DROP TABLE public.pgbench_branches, public.pgbench_accounts")


def test_a_transaction_that_fails_half_way_is_rolled_back_before_the_connection_is_used_again(tables, cluster, tmp_path):
    script = tmp_path / "half.sql"
    script.write_text("\\set n random(1, 2)\nBEGIN;\nSELECT 1;\nSELECT 1 / (:n - 1);\nEND;\n")
    result = bench(cluster.url(), "--script", script, "--clients", 2, "--duration", "1s")
    assert set(result["errors"]) == {"sqlstate 22012"} and result["requests"] > 10
    assert result["connections"]["created"] == 2, "no connection is given up for it"


def test_what_the_server_says_of_errors_is_told_the_most_frequent_first(cluster, tmp_path):
    script = tmp_path / "missing.sql"
    script.write_text("SELECT count(*) FROM no_such_table;\n")
    result = bench(cluster.url(), "--script", script, "--clients", 2, "--operations", 20, "--duration", "20s")
    said = 'relation "no_such_table" does not exist (SQLSTATE 42P01)'
    assert result["errors"] == {"sqlstate 42P01": 20} and result["error_texts"] == {said: 20}, result
    shown = run(cluster.url(), "--script", script, "--clients", 2, "--operations", 20, "--duration", "20s")
    assert f"said         20 times: {said}" in shown.stdout, shown.stdout


@pytest.mark.timing
def test_a_server_that_ends_all_sessions_is_counted_and_survived(tables, cluster):
    command = [pooler.BINARY, "bench", cluster.url(), "--clients", "5", "--duration", "4s", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(2)
        cluster.terminate("app")
        out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    result = json.loads(out)
    assert 1 <= sum(result["errors"].values()) <= 20 and result["requests"] > 20, result["errors"]
    assert result["connections"]["created"] >= 10


def test_an_operation_that_takes_too_long_is_a_timeout(cluster, tmp_path):
    script = tmp_path / "sleep.sql"
    script.write_text("SELECT pg_sleep(3);\n")
    result = bench(cluster.url(), "--script", script, "--clients", 2, "--duration", "1s", "--timeout", "300ms")
    assert set(result["errors"]) == {"timeout"} and result["requests"] == 0


def test_gset_and_sleep_work_against_the_server(cluster, tmp_path):
    script = tmp_path / "gset.sql"
    script.write_text("SELECT 6 * 7 AS answer \\gset\n\\sleep 20 ms\nSELECT 1 / (CASE WHEN :answer = 42 THEN 1 ELSE 0 END);\n")
    for protocol in ("simple", "extended", "prepared"):
        result = bench(cluster.url(), "--script", script, "--clients", 2, "--duration", "1s", "--protocol", protocol)
        assert result["errors"] == {} and 10 < result["requests"] <= 110
        assert result["service_ms"]["min"] >= 20


def test_five_thousand_connections_go_through_poolhouse_at_once(tables, cluster, start):
    through = start(max_size=10, hard_limit=7000, max_wait_time="30s")
    url = f"postgres://app:{PASSWORDS['app'].replace(' ', '%20')}@127.0.0.1:{through.port}/bench"
    result = bench(url, "--clients", 5000, "--duration", "5s")
    assert result["errors"] == {} and result["connections"]["most"] == 5000
