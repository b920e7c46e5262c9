"""`poolhouse bench` against a real Redis: directly, through Poolhouse, in TLS, through a Unix socket; and errors before
any load.
"""

import json
import subprocess
import time

import pytest

from support import pooler
from support.bench import read
from support.postgres_cluster import free_port
from support.redis_fixtures import PASSWORD, guarded, own_redis, pool, server
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

PHASES = ("dns", "tcp", "tls", "auth", "ready")


def run(*arguments, seconds=60, **more):
    """Runs the verb and returns the ended process."""
    return subprocess.run([pooler.BINARY, "bench", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=seconds, stdin=subprocess.DEVNULL, **more)


def bench(url, *arguments, **options):
    """Runs the verb and returns its result."""
    return read(run(url, *arguments, "--json", "-", **options))


def phases(result):
    """The phases that the result has."""
    return {phase for phase in PHASES if result["connect_ms"][phase]}


def stat(redis, command, field="calls"):
    """A statistic of Redis about a command."""
    return redis.connect().info("commandstats").get(f"cmdstat_{command}", {}).get(field, 0)


@pytest.fixture
def counted(server):
    """Redis with its counters at zero, and without a key."""
    server.connect().config_resetstat()
    server.connect().flushall()
    return server


@pytest.mark.quick
def test_a_ping_for_each_operation_and_redis_has_counted_as_many(counted):
    result = bench(counted.url(), "--clients", 3, "--duration", "1s")
    assert result["errors"] == {} and result["requests"] > 50
    assert stat(counted, "ping") == result["requests"]
    assert result["connections"]["created"] == 3 and result["about"]["asks"] == "PING"
    assert result["about"]["server"].startswith("Redis ") and phases(result) == {"tcp"}


def test_without_reuse_each_operation_connects_and_says_goodbye(counted):
    before = counted.connect().info("stats")["total_connections_received"]
    result = bench(counted.url(), "--clients", 1, "--operations", 200, "--duration", "20s", "--no-reuse")
    assert (result["requests"], result["errors"]) == (200, {})
    assert result["connections"]["created_for"] == {"ephemeral": 200} and result["connect_ms"]["tcp"]["count"] == 200
    # The tests' own clients send no QUIT. The check of the target before the load sends one, too.
    eventually("all goodbyes are counted", lambda: stat(counted, "quit") >= 201)
    assert stat(counted, "quit") == 201
    assert counted.connect().info("stats")["total_connections_received"] - before in range(201, 205)
    # An operation first makes its connection, and the phases add up to that time.
    issue, service, response = (result[f"{part}_ms"] for part in ("issue", "service", "response"))
    assert abs(issue["mean"] + service["mean"] - response["mean"]) < 0.02 and issue["mean"] > 0.02


def test_the_mix_writes_its_share_with_values_of_the_size_within_the_keys(counted):
    result = bench(counted.url(), "--clients", 4, "--operations", 4000, "--duration", "20s", "--writes", "0.25", "--keys", 50, "--value-size", 1000)
    assert (result["requests"], result["errors"]) == (4000, {})
    assert 850 <= stat(counted, "set") <= 1150 and stat(counted, "set") + stat(counted, "get") == 4000
    direct = counted.connect()
    assert direct.dbsize() == 50 and direct.strlen("poolhouse_bench:50") == 1000


def test_a_script_is_sent_command_by_command_with_its_variables(counted, tmp_path):
    script = tmp_path / "visits.redis"
    script.write_text('# a comment\n\\set id random(1, 3)\nMULTI\nINCR "visits:{user::id}"\nHSET last::id "a b" \'c d\'\nEXEC\n\\sleep 1 ms\nGET :fixed\n')
    result = bench(counted.url(), "--script", script, "-D", "fixed=what it is", "--clients", 2, "--operations", 300, "--duration", "20s")
    assert (result["requests"], result["errors"]) == (300, {})
    direct = counted.connect()
    assert sum(int(direct.get(key)) for key in direct.keys("visits:*")) == 300
    assert sorted(direct.keys("visits:*")) == [f"visits:{{user:{id}}}".encode() for id in (1, 2, 3)]
    assert direct.hget("last:1", "a b") == b"c d"
    assert result["service_ms"]["min"] >= 1, "the pause is a part of it"


def test_an_error_of_redis_is_counted_by_its_code_and_the_connection_is_used_again(counted):
    counted.connect().set("text", "x")
    result = bench(counted.url(), "--command", "LPUSH text hunter2", "--clients", 2, "--operations", 100, "--duration", "20s")
    assert result["errors"] == {"error WRONGTYPE": 100} and result["connections"]["created"] == 2
    assert list(result["error_texts"].values()) == [100] and "WRONGTYPE Operation against a key" in json.dumps(result["error_texts"])
    assert "hunter2" not in json.dumps([result["errors"], result["error_texts"]])


def test_a_transaction_that_is_left_open_is_an_error_and_its_connection_is_given_up(counted):
    result = bench(counted.url(), "--command", "MULTI", "--command", "SET a b", "--clients", 1, "--operations", 20, "--duration", "20s")
    assert result["errors"] == {"script: it leaves a transaction open": 20}
    assert result["connections"]["closed"] == {"discarded": 20} and not counted.connect().exists("a")


def test_the_login_is_a_phase_and_so_is_the_choice_of_a_database(guarded):
    result = bench(f"{guarded.url()}/3", "--command", "SET here yes", "--clients", 2, "--duration", "1s")
    assert result["errors"] == {} and phases(result) == {"tcp", "auth", "ready"}
    assert guarded.connect(db=3).get("here") == b"yes" and guarded.connect().get("here") is None
    assert PASSWORD not in json.dumps(result) and "red%20is" not in json.dumps(result)


def test_an_acl_user_may_ask_what_it_is_allowed_to(server):
    server.connect().execute_command("ACL", "SETUSER", "shop", "on", ">secret", "~*", "+ping")
    url = f"redis://shop:secret@127.0.0.1:{server.port}"
    assert bench(url, "--duration", "1s", "--clients", 1)["errors"] == {}
    assert set(bench(url, "--command", "GET a", "--duration", "1s", "--clients", 1)["errors"]) == {"error NOPERM"}


def test_tls_is_a_phase_of_its_own_and_a_certificate_that_is_not_believed_ends_it(workspace, certificates):
    pair = certificates.server
    made = own_redis(workspace, "bench-tls", **{
        "tls-port": 0, "tls-cert-file": pair.certificate, "tls-key-file": pair.key, "tls-ca-cert-file": certificates.authority.certificate,
        "tls-auth-clients": "no"})
    made.settings["tls-port"], made.settings["port"] = made.port, 0
    plain = made.connect
    made.connect = lambda **more: plain(ssl=True, ssl_cert_reqs="none", **more)
    made.start()
    try:
        url = f"rediss://localhost:{made.port}?sslrootcert={certificates.authority.certificate}"
        result = bench(url, "--clients", 3, "--duration", "1s")
        assert result["errors"] == {} and result["requests"] > 100 and phases(result) == {"dns", "tcp", "tls"}
        again = bench(url, "--clients", 1, "--operations", 20, "--duration", "20s", "--no-reuse")
        assert again["connect_ms"]["tls"]["count"] == 20 and again["errors"] == {}
        done = run(url.replace(str(certificates.authority.certificate), str(certificates.other_authority.certificate)), "--duration", "30s")
        assert done.returncode == 1 and "certificate" in done.stderr, done.stderr
    finally:
        made.stop()


def test_a_unix_socket_is_a_way_without_a_handshake(workspace):
    made = own_redis(workspace, "bench-unix")
    made.settings["unixsocket"] = made.directory / "redis.sock"
    made.start()
    try:
        url = "redis://" + str(made.settings["unixsocket"]).replace("/", "%2F")
        result = bench(url, "--clients", 2, "--duration", "1s")
        assert result["errors"] == {} and result["requests"] > 500 and phases(result) == set()
        done = run(url, "--delay", "1ms", "--duration", "1s")
        assert done.returncode == 2 and "TCP" in done.stderr, done.stderr
    finally:
        made.stop()


def test_faults_on_the_way_are_those_of_every_target(counted):
    result = bench(counted.url(), "--rate", 50, "--duration", "1s", "--delay", "5ms", "--max-size", 5)
    assert result["errors"] == {} and result["service_ms"]["min"] >= 10


def test_it_runs_through_poolhouse_with_more_clients_than_servers(counted, pool):
    through = pool(max_size=2)
    result = bench(f"redis://127.0.0.1:{through.port}", "--clients", 300, "--duration", "2s", "--writes", "0.5", "--keys", 10)
    assert result["errors"] == {} and result["requests"] > 1000 and result["connections"]["most"] == 300
    direct = bench(counted.url(), "--clients", 1, "--operations", 10, "--duration", "20s")
    assert [any("A pooler answers at this address" in text for text in told["warnings"]) for told in (result, direct)] == [True, False]


def test_a_client_that_is_turned_away_is_counted_by_the_reason(workspace):
    made = own_redis(workspace, "bench-few", maxclients=10).start()
    try:
        result = bench(made.url(), "--rate", 30, "--duration", "1s", "--no-reuse", "--no-goodbye")
        # The tests' own client is one of the ten until it is garbage-collected.
        assert set(result["errors"]) == {"too many clients"} and result["requests"] in (9, 10)
        assert result["requests"] + result["errors"]["too many clients"] == 30
    finally:
        made.stop()


@pytest.mark.timing
def test_a_redis_that_dies_is_counted_and_survived(workspace):
    made = own_redis(workspace, "bench-dies").start()
    command = [pooler.BINARY, "bench", made.url(), "--clients", "3", "--duration", "4s", "--think", "5ms", "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(1.5)
        made.stop()
        time.sleep(0.3)
        made.start()
        out, said = process.communicate(timeout=60)
    made.stop()
    assert process.returncode == 0, said
    result = json.loads(out)
    assert result["requests"] > 100 and result["series"][-1]["requests"] > 0, "it goes on when Redis is back"
    assert sum(result["connections"]["failed"].values()) >= 1 and set(result["connections"]["failed"]) == {"connect refused"}


def test_a_frozen_client_keeps_silent_and_its_time_goes_on(counted):
    result = bench(counted.url(), "--clients", 2, "--think", "10ms", "--duration", "3s", "--freeze", "1s@1s")
    assert result["errors"] == {} and result["response_ms"]["max"] >= 900, "an operation was due when it was frozen"
    assert 250 <= result["requests"] <= 410, "two of three seconds"
    assert "frozen for 1s" in result["about"]["way"]


@pytest.mark.timing
def test_a_frozen_load_ends_with_the_process_that_froze_it(server):
    command = [pooler.BINARY, "bench", server.url(), "--clients", "1", "--think", "10ms", "--duration", "60s", "--freeze", "50s@500ms"]

    def mine():
        listing = subprocess.run(["ps", "-ww", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout
        return [line.split()[0][0] for line in listing.splitlines() if server.url() in line]

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        time.sleep(2)
        assert sorted(mine()) == ["S", "T"], "one looks on, and one is frozen"
        process.kill()
    time.sleep(0.5)
    assert mine() == []


@pytest.mark.parametrize("arguments, complaint", [
    (("--command", "SUBSCRIBE a"), "cannot be used here"),
    (("--command", 'GET "a'), "a quote has no end"),
    (("--scale", 5), "--scale"),
    (("--command", "PING", "--writes", "0.5"), "cannot be used with"),
    (("--freeze", "1s", "--delay", "1ms"), "frozen"),
    (("--no-reuse", "--no-goodbye"), "`operations`"),
    (("--script", "/nowhere/x.redis"), "cannot read"),
])
def test_a_mistake_is_told_before_any_load(server, arguments, complaint):
    done = run(server.url(), *arguments, "--duration", "30s", seconds=15)
    assert done.returncode == 2 and complaint in done.stderr, done.stderr


def test_a_client_that_may_not_come_in_is_told_why_and_no_password_is_repeated(guarded):
    wrong = run(f"redis://:hunter2@127.0.0.1:{guarded.port}", "--duration", "30s", seconds=15)
    assert wrong.returncode == 1 and "WRONGPASS" in wrong.stderr and "hunter2" not in wrong.stderr, wrong.stderr
    without = run(f"redis://127.0.0.1:{guarded.port}", "--duration", "30s", seconds=15)
    assert without.returncode == 1 and "NOAUTH" in without.stderr and "redis://user:password@" in without.stderr, without.stderr
    port = free_port()
    done = run(f"redis://127.0.0.1:{port}", "--duration", "30s", seconds=15)
    assert done.returncode == 1 and f"127.0.0.1:{port}" in done.stderr and "refused" in done.stderr, done.stderr
