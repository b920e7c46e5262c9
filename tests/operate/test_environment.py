"""Poolhouse in a container: everything comes from the environment."""

import os
import re
import subprocess

import pytest

from support import pooler

pytestmark = pytest.mark.poolhouse_only


def started(start, *flags, **environment):
    """`poolhouse serve` with these flags, and the addresses in the environment."""
    made = start.unstarted()
    addresses = {"POOLHOUSE_LISTEN": f"127.0.0.1:{made.port}", "POOLHOUSE_ADMIN": f"127.0.0.1:{made.admin_port}"}
    made.launch([pooler.BINARY, "serve", *flags], environment={**addresses, **environment})
    made.settle()
    return made


def refused(*flags, **environment):
    """The exit status and the message of a Poolhouse that does not start."""
    unset = {name: value for name, value in os.environ.items() if name != "DATABASE_URL" and not name.startswith("POOLHOUSE_")}
    done = subprocess.run([pooler.BINARY, "serve", *flags], env={**unset, **environment}, text=True, capture_output=True, timeout=20)
    return done.returncode, done.stderr


def test_a_url_and_flags_come_from_the_environment(start, cluster):
    served = started(start, DATABASE_URL=cluster.url(), POOLHOUSE_MAX_SIZE="3", POOLHOUSE_LOG_FORMAT="json")
    with served.connect() as connection:
        assert connection.execute("SELECT 'served'").fetchone() == ("served",)
    assert next(pool for pool in served.pools() if pool["database"] == "bench")["max_size"] == 3
    assert '"message":"serving"' in served.log()


def test_the_command_line_comes_before_the_environment(start, cluster):
    served = started(start, cluster.url(), "--max-size", "4", DATABASE_URL="postgres://app@127.0.0.1:1/elsewhere", POOLHOUSE_MAX_SIZE="3")
    with served.connect() as connection:
        connection.execute("SELECT 1")
    assert next(pool for pool in served.pools() if pool["database"] == "bench")["max_size"] == 4


def test_a_file_may_be_named_in_the_environment(start, cluster):
    made = start.unstarted()
    made.rewrite()
    made.launch([pooler.BINARY, "serve"], environment={"POOLHOUSE_CONFIG": str(made.config_path), "DATABASE_URL": "postgres://other@127.0.0.1:1/x"})
    with made.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_without_anything_to_serve_it_says_what_it_needs():
    status, said = refused()
    assert status == 2 and "takes the URL of a database" in said and "DATABASE_URL" in said and "POOLHOUSE_CONFIG" in said


def test_flags_of_the_environment_beside_a_file_are_refused_by_name(tmp_path):
    status, said = refused("--config", str(tmp_path / "poolhouse.toml"), POOLHOUSE_MAX_SIZE="3")
    assert status == 2 and "POOLHOUSE_MAX_SIZE" in said, said


def test_a_host_name_is_taken_at_the_admin_address_if_it_is_named(start, cluster):
    served = started(start, DATABASE_URL=cluster.url(), POOLHOUSE_ADMIN_NAME="poolhouse,metrics.internal")
    port = served.admin_port
    assert [served.get("/ready", headers={"Host": f"{name}:{port}"})[0] for name in ("poolhouse", "metrics.internal", "elsewhere")] == [200, 200, 403]


def test_orders_take_the_token_of_the_file(start, cluster, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    served = started(start, DATABASE_URL=cluster.url(), POOLHOUSE_ADMIN_TOKEN_FILE=str(token))
    assert served.post("/api/reconnect")[0] == 401
    assert served.ctl("reconnect", environment={"POOLHOUSE_ADMIN_TOKEN": token.read_text().strip()}).returncode == 0
    token.write_text("short\n")
    status, said = refused(cluster.url(), "--admin-token-file", str(token))
    assert status == 2 and "fewer than 16 characters" in said


def test_clients_get_tls_beside_a_url(start, cluster, certificates):
    pair = certificates.server
    served = started(start, "--tls", "require", DATABASE_URL=cluster.url(), POOLHOUSE_TLS_CERT=str(pair.certificate), POOLHOUSE_TLS_KEY=str(pair.key))
    with served.connect(sslmode="verify-full", sslrootcert=str(certificates.authority.certificate)) as connection:
        assert connection.execute("SELECT 'encrypted'").fetchone() == ("encrypted",)
    with pytest.raises(Exception, match="TLS"):
        served.connect(sslmode="disable")
    status, said = refused(cluster.url(), "--tls-cert", str(pair.certificate))
    assert status == 2 and "--tls-key" in said


def test_the_compose_file_sets_variables_of_flags_that_exist():
    compose = (pooler.ROOT / "packaging/compose/compose.yaml").read_text()
    help = subprocess.run([pooler.BINARY, "serve", "--help"], text=True, capture_output=True, check=True).stdout
    variables = re.findall(r"^      POOLHOUSE_(\w+): ", compose, re.MULTILINE)
    assert variables and all(f"--{name.lower().replace('_', '-')} " in help for name in variables)
