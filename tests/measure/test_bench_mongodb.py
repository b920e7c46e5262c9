"""`poolhouse bench` against MongoDB-compatible servers, directly and through Poolhouse, and errors before any load."""

import json
import subprocess

import pytest

from support import pooler
from support.bench import read
from support.mongodb_fixtures import pool, server
from support.mongodb_server import GuardedFerretServer, directory
from support.postgres_cluster import free_port

pytestmark = pytest.mark.poolhouse_only

PHASES = ("dns", "tcp", "tls", "auth", "ready")


def run(*arguments, seconds=60):
    """Runs the verb and returns the ended process."""
    return subprocess.run([pooler.BINARY, "bench", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=seconds, stdin=subprocess.DEVNULL)


def bench(url, *arguments):
    """Runs the verb and returns its result."""
    return read(run(url, *arguments, "--json", "-"))


def phases(result):
    """The phases that the result has."""
    return {phase for phase in PHASES if result["connect_ms"][phase]}


@pytest.fixture
def app(server):
    """The database `app`, empty, through pymongo without Poolhouse."""
    with server.connect() as client:
        client.drop_database("app")
        yield client.app


def test_a_ping_for_each_operation_unless_something_else_is_said(server):
    result = bench(server.url(), "--clients", 3, "--operations", 300, "--duration", "20s")
    assert (result["requests"], result["errors"]) == (300, {})
    assert result["connections"]["created"] == 3 and result["about"]["asks"] == "ping"
    assert result["about"]["server"].startswith("MongoDB ") and phases(result) == {"tcp", "ready"}


@pytest.mark.timing
def test_the_documents_are_made_read_and_written(server, app):
    url = f"{server.url()}/app"
    made = bench(url, "--init", "--operation", "find-one", "--documents", 1500, "--value-size", 50, "--operations", 200, "--duration", "20s")
    assert (made["requests"], made["errors"]) == (200, {})
    assert made["about"]["asks"] == "find-one, of 1500 documents with 50 bytes"
    assert app.poolhouse_bench.count_documents({}) == 1500 and len(app.poolhouse_bench.find_one({"_id": 1500})["value"]) == 50
    written = bench(url, "--operation", "update", "--documents", 1500, "--clients", 2, "--operations", 50, "--duration", "20s")
    assert (written["requests"], written["errors"]) == (50, {})
    assert sum(one["count"] for one in app.poolhouse_bench.find({"count": {"$gt": 0}})) == 50
    added = bench(url, "--operation", "insert", "--clients", 2, "--operations", 60, "--duration", "20s")
    assert (added["requests"], added["errors"]) == (60, {}) and app["poolhouse_bench.inserts"].count_documents({}) == 60
    summed = bench(url, "--operation", "aggregate", "--documents", 1500, "--operations", 20, "--duration", "20s")
    assert (summed["requests"], summed["errors"]) == (20, {})


def test_documents_that_are_not_there_are_asked_for(server, app):
    done = run(f"{server.url()}/app", "--operation", "find-one", "--documents", 7, "--duration", "30s", seconds=15)
    assert done.returncode == 1 and "has 0 documents" in done.stderr and "--init --documents 7" in done.stderr, done.stderr


def test_a_script_is_sent_command_by_command_and_its_cursors_are_read_to_the_end(server, app, tmp_path):
    app.many.insert_many({"_id": n} for n in range(1000))
    script = tmp_path / "visits.mongodb"
    script.write_text('# a comment\n\\set id random(1, 3)\n{"update": "visits", "updates":\n'
                      ' [{"q": {"_id": :id, "of": "user-:id"}, "u": {"$inc": {"n": 1}}, "upsert": true}]}\n\\sleep 1 ms\n'
                      '{"find": "many", "batchSize": 100}\n')
    result = bench(f"{server.url()}/app", "--script", script, "--clients", 1, "--operations", 40, "--duration", "30s")
    assert (result["requests"], result["errors"]) == (40, {})
    visits = list(app.visits.find())
    assert sum(one["n"] for one in visits) == 40 and all(one["of"] == f"user-{one['_id']}" for one in visits)
    assert result["service_ms"]["min"] >= 1, "the pause is a part of it"
    if server.sessions:
        assert app.client.admin.command("serverStatus").get("metrics", {}).get("cursor", {}).get("open", {}).get("total", 0) == 0


def test_an_error_of_the_server_is_counted_by_its_name_and_the_connection_is_used_again(server, app):
    result = bench(server.url(), "--command", '{"nonsense": "hunter2"}', "--clients", 2, "--operations", 60, "--duration", "20s")
    assert sum(result["errors"].values()) == 60 and result["connections"]["created"] == 2
    assert set(result["errors"]) <= {"error CommandNotFound", "error 59"} and "hunter2" not in json.dumps(result["errors"])
    app.here.insert_one({"_id": 1})
    twice = bench(f"{server.url()}/app", "--command", '{"insert": "here", "documents": [{"_id": 1}]}', "--operations", 5, "--duration", "20s")
    assert twice["errors"] in ({"error 11000": 5}, {"error DuplicateKey": 5})


def test_it_runs_through_poolhouse_with_more_clients_than_servers(server, pool):
    through = pool(max_size=3)
    result = bench(f"mongodb://127.0.0.1:{through.port}/app", "--init", "--operation", "find-one", "--documents", 100, "--clients", 100,
                   "--operations", 1000, "--duration", "60s")
    assert (result["requests"], result["errors"], result["connections"]["most"]) == (1000, {}, 100)
    looked = subprocess.run([pooler.BINARY, "doctor", f"mongodb://127.0.0.1:{through.port}", "--window", "1s", "--every", "100ms", "--json", "-"],
                            capture_output=True, text=True, timeout=60, check=False)
    # One of these servers does not report what is needed.
    assert "a Poolhouse answers at this address" in looked.stdout or "does not" in looked.stderr, looked
    direct = bench(f"{server.url()}/app", "--clients", 1, "--operations", 10, "--duration", "20s")
    assert [any("A pooler answers at this address" in text for text in told["warnings"]) for told in (result, direct)] == [True, False]


def test_faults_on_the_way_are_those_of_every_target(server):
    result = bench(server.url(), "--rate", 50, "--duration", "1s", "--delay", "5ms", "--max-size", 5)
    assert result["errors"] == {} and result["service_ms"]["min"] >= 10


def test_a_scenario_file_asks_the_same(server, app, tmp_path):
    file = tmp_path / "readings.toml"
    file.write_text(f'[scenario]\nname = "readings"\n\n[target]\nurl = "{server.url()}/app"\ncommands = \'{{"insert": "readings", "documents": [{{"of": "x"}}]}}\'\n'
                    '[load]\nclients = 2\noperations = 30\nduration = "20s"\n')
    done = run(file, "--json", "-")
    assert done.returncode == 0 and json.loads(done.stdout)["requests"] == 30, done.stderr
    assert app.readings.count_documents({"of": "x"}) == 30


@pytest.mark.parametrize("arguments, complaint", [
    (("--command", '{"hello": 1}'), "every connection says it once"),
    (("--command", '{"ping": 1'), "no end"),
    (("--keys", 5), "--keys"),
    (("--operation", "nothing"), "find-one"),
    (("--init",), "--operation"),
    (("--operation", "insert", "--command", '{"ping": 1}'), "cannot be used with"),
])
def test_a_mistake_is_told_before_any_load(server, arguments, complaint):
    done = run(server.url(), *arguments, "--duration", "30s", seconds=15)
    assert done.returncode == 2 and complaint in done.stderr, done.stderr


def test_a_client_that_may_not_come_in_is_told_why_and_no_password_is_repeated(workspace):
    GuardedFerretServer.prepare()
    made = GuardedFerretServer(directory(workspace, "mongodb")).start()
    try:
        result = bench(made.url(), "--clients", 2, "--operations", 50, "--duration", "20s")
        assert result["errors"] == {} and phases(result) == {"tcp", "ready", "auth"}
        wrong = run(made.url(password="hunter2"), "--duration", "30s", seconds=15)
        assert wrong.returncode == 1 and "uthentication" in wrong.stderr and "hunter2" not in wrong.stderr, wrong.stderr
        without = run(f"mongodb://127.0.0.1:{made.port}", "--command", '{"find": "a"}', "--operations", 5, "--duration", "20s", "--json", "-")
        assert without.returncode == 1 or json.loads(without.stdout)["requests"] == 0, without.stdout
    finally:
        made.stop()
    port = free_port()
    done = run(f"mongodb://127.0.0.1:{port}", "--duration", "30s", seconds=15)
    assert done.returncode == 1 and f"127.0.0.1:{port}" in done.stderr and "refused" in done.stderr, done.stderr
