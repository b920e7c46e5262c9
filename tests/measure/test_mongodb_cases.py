"""MongoDB's published cases (scripts/mongodb_cases.py) and the service that they load (examples/telemetry)."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from support import pooler
from support.mongodb_server import JavaServer, directory

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.append(str(SCRIPTS))

import telemetry_chain
from slow_relay import SlowRelay

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]
SCRIPT = SCRIPTS / "mongodb_cases.py"


def run(*arguments, **environment):
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=240,
                          stdin=subprocess.DEVNULL, env={**os.environ, "POOLHOUSE": pooler.BINARY, **environment})


@pytest.fixture(scope="module")
def built():
    """Builds the service and its server, if Java and Maven are installed."""
    JavaServer.prepare()
    if subprocess.run([telemetry_chain.SERVICE / "build.sh"], capture_output=True).returncode:
        pytest.skip("the driver of the service cannot be fetched here")


@pytest.fixture(scope="module")
def chain(built, workspace):
    """The service behind a Poolhouse."""
    server = JavaServer(directory(workspace, "telemetry-server")).start()
    try:
        with telemetry_chain.Chain(directory(workspace, "telemetry"), server, ["maxPoolSize=5"], poolhouse={"max_size": 2}) as chain:
            yield chain
    finally:
        server.stop()


def ask(chain, method, path, body=None):
    """(status, JSON)"""
    request = urllib.request.Request(f"http://127.0.0.1:{chain.port}{path}", None if body is None else body.encode(), method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_a_reading_that_was_answered_201_is_found_by_its_sensor(chain):
    status, answer = ask(chain, "POST", "/readings", '{"_id": 1, "sensor": "boiler 7", "value": 81.5}')
    assert (status, answer) == (201, {"_id": 1})
    assert ask(chain, "PUT", "/readings", '{"_id": 1, "sensor": "boiler 7", "value": 82}') == (200, {"_id": 1})
    status, [found] = ask(chain, "GET", "/readings?sensor=boiler%207")
    assert status == 200 and found["value"] == 82
    assert ask(chain, "GET", "/readings?sensor=none") == (200, [])


def test_a_reading_that_is_refused_is_not_answered_201(chain):
    for body in ("", "{", "[]", '{"value": 1}', '{"sensor": ""}', '{"sensor": 7}', f'{{"sensor": "{"s" * 70_000}"}}'):
        assert ask(chain, "POST", "/readings", body)[0] == 400, body[:20]
    assert ask(chain, "PUT", "/readings", '{"sensor": "s"}')[0] == 400
    assert ask(chain, "GET", "/readings")[0] == 400
    assert ask(chain, "DELETE", "/readings")[0] == 405
    assert ask(chain, "POST", "/readings", '{"_id": 2, "sensor": "s"}')[0] == 201
    status, answer = ask(chain, "POST", "/readings", '{"_id": 2, "sensor": "s"}')
    assert status == 500 and "E11000" in answer["error"]


@pytest.mark.at_length
@pytest.mark.timeout(240)
def test_the_cases_keep_what_was_acknowledged_and_poolhouse_keeps_within_the_servers_limit(built, tmp_path):
    done = run("--quick", *(part for number in (5, 4, 1) for part in ("--only", number)), "--json", tmp_path / "cases.json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert all(f"## Case {number}" in done.stdout for number in (5, 4, 1))
    cases = json.loads((tmp_path / "cases.json").read_text())["cases"]
    assert all(form["documents"] >= form["acknowledged"] > 0 for form in cases["5"]["forms"].values())
    pools = cases["4"]["forms"]
    assert all(part["documents"] >= part["acknowledged"] for parts in pools.values() for part in parts)
    assert pools["trouble"][0]["errors"] == 0, "one client alone does not reach the limit"
    assert max(part["relay"]["most"] for part in pools["trouble"]) <= 40
    assert [part["acknowledged"] for part in pools["poolhouse"]] == [300, 300, 300]
    assert max(part["relay"]["most"] for part in pools["poolhouse"]) <= 21
    assert pools["poolhouse"][-1]["at_poolhouse"]["used"] > 20, "more clients than servers"
    churn = cases["1"]["forms"]
    assert churn["poolhouse"]["at_once"]["relay"]["opened"] < churn["min 30"]["at_once"]["relay"]["opened"]


@pytest.mark.at_length
@pytest.mark.timeout(240)
def test_functions_that_thaw_find_poolhouse_and_all_of_a_flood_are_served_between_two_limits(built, tmp_path):
    done = run("--quick", "--only", 3, "--json", tmp_path / "cases.json")
    assert done.returncode == 0, done.stderr[-4000:]
    assert "## Case 3" in done.stdout
    cases = json.loads((tmp_path / "cases.json").read_text())["cases"]
    functions = cases["3"]["frozen"]["forms"]
    assert [functions["forgets"][when]["errors"] for when in ("first", "thawed")] == [0, 2]
    assert not any(functions[name][when]["errors"] for name in ("direct", "limit 60", "limit 310") for when in ("first", "thawed", "next"))
    assert functions["limit 60"]["held"]["poolhouse"]["used"] == 0 and functions["limit 310"]["held"]["poolhouse"]["used"] == 2
    flood = cases["3"]["flood"]["forms"]
    assert flood["direct"]["errors"] > 0 and flood["one limit"]["errors"] > 0 and flood["two limits"]["errors"] == 0
    assert flood["direct"]["most"] == 80 and flood["two limits"]["most"] <= 21
    assert all(form["documents"] >= form["acknowledged"] > 0 for half in cases["3"].values() for form in half["forms"].values())


def test_without_java_the_cases_are_skipped_in_words(tmp_path):
    done = run("--quick", PATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "The cases of MongoDB are skipped: not installed: java, javac, mvn.\n"


@pytest.fixture
def echo():
    """A port that echoes what it receives."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def serve():
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(connection,), daemon=True).start()

        def answer(connection):
            with connection:
                while data := connection.recv(1000):
                    connection.sendall(data)

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def round_trip(connection):
    began = time.monotonic()
    connection.sendall(b"x")
    assert connection.recv(10) == b"x"
    return time.monotonic() - began


def test_the_relay_makes_answers_late_in_a_stall_and_the_first_of_a_connection(echo):
    with SlowRelay(echo, latency=0.02, opening=0.1) as relay, socket.create_connection(("127.0.0.1", relay.port), 5) as connection:
        assert round_trip(connection) >= 0.12
        assert 0.02 <= round_trip(connection)
        relay.begin([(0.0, 0.5)], stall=0.3)
        assert round_trip(connection) >= 0.32
        time.sleep(0.5)
        assert 0.02 <= round_trip(connection) < 0.3


def test_the_relay_forgets_a_connection_that_is_silent(echo):
    with SlowRelay(echo, forget=0.4) as relay, socket.create_connection(("127.0.0.1", relay.port), 0.5) as connection:
        for _ in range(3):
            time.sleep(0.2)
            round_trip(connection)
        time.sleep(0.6)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                round_trip(connection)
        assert relay.figures()["open"] == 1, "neither side is told"


def test_the_relay_limits_connections_and_counts_them(echo):
    with SlowRelay(echo, limit=1) as relay:
        relay.begin()
        with socket.create_connection(("127.0.0.1", relay.port), 5) as first:
            round_trip(first)
            with socket.create_connection(("127.0.0.1", relay.port), 5) as second, pytest.raises((OSError, AssertionError)):
                round_trip(second)
        deadline = time.monotonic() + 5
        while relay.figures()["open"] and time.monotonic() < deadline:
            time.sleep(0.01)
        figures = relay.figures()
        assert {name: figures[name] for name in ("opened", "closed", "refused", "most", "open")} == {"opened": 1, "closed": 1, "refused": 1, "most": 1, "open": 0}
