"""`poolhouse sweep` of databases whose operations are commands: MongoDB-compatible servers, and Redis."""

import json
import subprocess

import pytest

from support import pooler
from support.mongodb_server import JavaServer, directory
from support.redis_fixtures import own_redis

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

# Short measurements: these tests check that the sweep works, and not how many connections are best.
SHORT = ("--point-time", "120ms", "--warmup", "30ms", "--rounds", "1")


def run(*arguments, seconds=60):
    """Runs the verb and returns the ended process."""
    return subprocess.run([pooler.BINARY, "sweep", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=seconds, stdin=subprocess.DEVNULL)


def sweep(url, *arguments):
    """A sweep that must succeed, as the JSON it prints."""
    done = run(url, *SHORT, *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def mongodb(workspace):
    """A MongoDB-compatible server for all tests of this file."""
    JavaServer.prepare()
    made = JavaServer(directory(workspace, "mongodb")).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def redis(workspace):
    """A Redis that allows 20 clients."""
    made = own_redis(workspace, "redis").start()
    made.connect().config_set("maxclients", 20)
    yield made
    made.stop()


def throughputs(result):
    return {point["clients"]: point["throughput"] for point in result["direct"]["points"]}


@pytest.mark.parametrize("operation", ["find-one", "insert", "update", "aggregate"])
def test_the_built_in_commands_of_mongodb_are_swept(mongodb, operation):
    result = sweep(f"{mongodb.url()}/app", "--init", "--operation", operation, "--documents", 500, "--clients", "1..4")
    assert all(done > 0 for done in throughputs(result).values()) and {1, 2, 4} <= set(throughputs(result)), result["direct"]["points"]
    assert sum(point["errors"] for point in result["direct"]["points"]) == 0
    assert result["about"]["load"].startswith(operation) and result["about"]["server"].startswith("MongoDB ")
    settings = result["settings"]
    assert settings["max_size"] == result["verdict"]["recommended_clients"], settings
    assert settings["max_connections"] is None and not any("max_connections" in line for line in settings["because"])
    with mongodb.connect() as client:
        inserted, updated = client.app["poolhouse_bench.inserts"].count_documents({}), client.app.poolhouse_bench.count_documents({"count": {"$gt": 0}})
    assert (inserted > 0, updated > 0) == (operation == "insert", operation == "update")


def test_a_script_for_mongodb_is_swept_and_a_ping_without_one(mongodb, tmp_path):
    script = tmp_path / "visits.mongodb"
    script.write_text('\\set id random(1, 3)\n{"update": "visits", "updates": [{"q": {"_id": :id}, "u": {"$inc": {"n": 1}}, "upsert": true}]}\n')
    result = sweep(f"{mongodb.url()}/app", "--script", script, "--clients", "1..2")
    assert "visits.mongodb" in result["about"]["load"], result["about"]
    with mongodb.connect() as client:
        assert sum(one["n"] for one in client.app.visits.find()) > sum(result["direct"]["visits"][-1]["per_second"])
    assert sweep(mongodb.url(), "--clients", "1..2")["about"]["load"] == "ping"


def test_a_redis_that_is_full_ends_the_curve_and_its_commands_are_swept(redis):
    result = sweep(redis.url(), "--command", "INCR visits", "--clients", "4..64")
    assert max(throughputs(result)) <= 20 and not result["failed"], result["failed"]
    assert any("did not let" in warning for warning in result["warnings"]), result["warnings"]
    assert int(redis.connect().get("visits")) > 100
    assert result["settings"]["max_connections"] is None


def sweep_of(file, target, *arguments, more=""):
    """A sweep that a scenario asks for, as the JSON it prints."""
    file.write_text(f'[scenario]\nname = "how many"\nabout = "As many as it can use."\n[target]\n{target}\n'
                    f'[sweep]\nto = 4\nrounds = 1\npoint_time = "120ms"\nwarmup = "30ms"\n{more}')
    done = subprocess.run([pooler.BINARY, "bench", file, *arguments, "--json", "-"], capture_output=True, text=True, check=False, timeout=60,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_scenario_sweeps_a_mongodb_and_makes_its_documents(mongodb, tmp_path):
    with mongodb.connect() as client:
        client.drop_database("app")
    result = sweep_of(tmp_path / "how-many.toml", f'url = "{mongodb.url()}/app"\noperation = "find-one"\ndocuments = 300', "--init")
    assert {1, 2, 4} <= set(throughputs(result)) and result["settings"]["max_size"] == result["verdict"]["recommended_clients"]
    assert result["about"]["load"].startswith("find-one") and sum(point["errors"] for point in result["direct"]["points"]) == 0
    with mongodb.connect() as client:
        assert client.app.poolhouse_bench.count_documents({}) == 300


def test_a_scenario_sweeps_its_own_redis_and_a_poolhouse_before_it(redis, tmp_path):
    result = sweep_of(tmp_path / "how-many.toml", 'start = "redis"', more="through_clients = 8\n")
    assert {1, 2, 4} <= set(throughputs(result)) and result["direct"]["target"].startswith("redis://")
    assert max(point["clients"] for point in result["through"]["points"]) == 8 and not result["failed"]


@pytest.mark.parametrize("arguments, complaint", [
    (("http://127.0.0.1:1/",), "a sweep asks a database"),
    (("mongodb://127.0.0.1:1/app", "--tpcb-like"), "--operation"),
    (("mongodb://127.0.0.1:1/app", "--init"), "--operation"),
    (("redis://127.0.0.1:1", "--init"), "--init"),
    (("postgres://127.0.0.1:1/app", "--operation", "find-one"), "--operation"),
    (("mongodb://127.0.0.1:1/app", "--through", "redis://127.0.0.1:1"), "another kind"),
    (("postgres://127.0.0.1:1/app", "--init", "--script", __file__), "nothing to make"),
])
def test_what_cannot_be_asked_there_is_told_before_any_load(arguments, complaint):
    done = run(*arguments, seconds=15)
    assert done.returncode == 2 and complaint in done.stderr, done.stderr


def test_the_help_names_the_databases_and_no_flag_of_http():
    said = run("--help", seconds=15).stdout
    assert "mongodb://" in said and "--operation" in said and "redis://" in said and "--header" not in said and "--expect" not in said, said
