"""The command line of `poolhouse bench`: thresholds, comparison, merging, HTTP, interruption."""

import base64
import json
import re
import signal
import struct
import subprocess
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from support import pooler
from support.bench import bench, run, tables  # noqa: F401  (a fixture)

pytestmark = pytest.mark.poolhouse_only


def begun(*arguments):
    """The running verb, as leader of its own process group, so that signals reach it alone."""
    return subprocess.Popen([pooler.BINARY, "bench", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, stdin=subprocess.DEVNULL, start_new_session=True)


def wait_for(condition, seconds=20):
    """Waits until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come to that"
        time.sleep(0.05)


def at_work(cluster, clients):
    """Waits until it has connections for `clients` clients, and then a moment in which they are used."""
    wait_for(lambda: cluster.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'poolhouse bench'") >= [(clients,)])
    time.sleep(0.3)


def asleep(cluster):
    """Sessions that sleep at the server."""
    return cluster.query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(%' AND state = 'active'"
                         " AND pid <> pg_backend_pid()", database="bench")[0][0]


def test_a_missed_threshold_is_told_and_ends_with_99(tables, cluster):
    done = run(cluster.url(), "--duration", "1s", "--clients", 2, "--fail-if", "p99>1us", "--fail-if", "errors>0")
    assert done.returncode == 99 and re.search(r"missed p99>1us: it is [\d.]+ ms", done.stderr), done.stderr
    assert "errors" not in done.stderr
    met = run(cluster.url(), "--duration", "1s", "--clients", 2, "--fail-if", "p99>10s")
    assert met.returncode == 0, met.stderr
    wrong = run(cluster.url(), "--duration", "1s", "--fail-if", "p77>1s")
    assert wrong.returncode == 2 and "p77" in wrong.stderr


def test_ctrl_c_prints_what_there_is_and_leaves_no_connection(tables, cluster):
    process = begun(cluster.url(), "--duration", "60s", "--clients", 3)
    at_work(cluster, 3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "interrupted" in out and "operations in" in out, out


@pytest.mark.parametrize("load", ["SELECT pg_sleep(30);", "\\sleep 0 ms", "\\if false\nSELECT 1;\n\\endif"])
def test_ctrl_c_ends_a_run_whatever_its_script_does(cluster, script, load):
    process = begun(cluster.url(), "--script", script(load), "--clients", 2, "--duration", "60s")
    at_work(cluster, 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and "interrupted" in out, (out, err)
    wait_for(lambda: asleep(cluster) == 0, seconds=5)


def test_a_script_with_nothing_to_send_ends_by_the_clock(cluster, script):
    began = time.monotonic()
    result = bench(cluster.url(), "--script", script("\\set x 1 / :client_id\n\\set y :x / 0\nSELECT 1;"), "--duration", "1s")
    assert time.monotonic() - began < 10
    assert result["requests"] == 0 and sum(result["errors"].values()) > 10, result["errors"]
    wrong = run(cluster.url(), "--script", script("SELECT :nobody;"), "--duration", "1s")
    assert wrong.returncode == 2 and "the variable :nobody is used and never set" in wrong.stderr


def test_what_takes_too_long_is_cancelled_at_the_server(cluster, script):
    result = bench(cluster.url(), "--script", script("SELECT pg_sleep(30);"), "--clients", 3, "--duration", "2s",
                   "--timeout", "500ms")
    assert result["errors"]["timeout"] >= 3
    wait_for(lambda: asleep(cluster) == 0, seconds=5)


@pytest.mark.timing
def test_making_tables_ends_on_ctrl_c(cluster):
    process = begun(cluster.url(), "--init", "--scale", 2000, "--schema", "poolhouse_endless", "--duration", "1s")
    wait_for(lambda: cluster.query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%poolhouse_endless%'"
                                   " AND state = 'active' AND pid <> pg_backend_pid()", database="bench") > [(0,)])
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 1 and "interrupted" in err, (out, err)
    wait_for(lambda: cluster.query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%poolhouse_endless%'"
                                   " AND state = 'active' AND pid <> pg_backend_pid()", database="bench") == [(0,)], 10)


def counts(text):
    """The counts of a histogram in HdrHistogram's deflated V2 encoding: index of the bucket -> count."""
    packed = base64.b64decode(text)
    cookie, length = struct.unpack(">II", packed[:8])
    assert cookie & ~0xF0 == 0x1C849304 and length == len(packed) - 8, hex(cookie)
    plain = zlib.decompress(packed[8:])
    cookie, length, offset, digits, low, high, ratio = struct.unpack(">IIIIQQd", plain[:40])
    assert (cookie & ~0xF0, offset, digits, low, ratio) == (0x1C849303, 0, 3, 1, 1.0) and high >= 1 and length == len(plain) - 40
    found, place, at = {}, 0, 40
    while at < len(plain):
        value = 0
        for shift in range(0, 63, 7):
            byte = plain[at]
            at += 1
            value |= (byte if shift == 56 else byte & 0x7F) << shift
            if shift == 56 or byte < 0x80:
                break
        count = (value >> 1) ^ -(value & 1)
        if count > 0:
            found[place] = count
        place += -count if count < 0 else 1
    return found


def test_a_histogram_is_deflated_as_libraries_of_other_languages_read_it(tables, cluster):
    response = bench(cluster.url(), "--duration", "1s", "--clients", 2)["response_ms"]
    found = counts(response["histogram"])
    assert sum(found.values()) == response["count"]
    # Up to 2,048 us each index is one microsecond.
    below = sum(count for place, count in found.items() if place <= response["p50"] * 1000)
    assert response["p50"] > 2 or below >= response["count"] / 2


def test_results_of_several_load_machines_are_joined(tables, cluster, tmp_path):
    files = [tmp_path / f"{n}.json" for n in range(2)]
    for path in files:
        done = run(cluster.url(), "--rate", 100, "--duration", "2s", "--json", path)
        assert done.returncode == 0, done.stderr
    merged = run("merge", *files, "--json", tmp_path / "both.json")
    assert merged.returncode == 0, merged.stderr
    one, two, both = (json.loads(path.read_text()) for path in [*files, tmp_path / "both.json"])
    assert both["requests"] == one["requests"] + two["requests"]
    assert both["response_ms"]["count"] == one["response_ms"]["count"] + two["response_ms"]["count"]
    assert both["response_ms"]["max"] == max(one["response_ms"]["max"], two["response_ms"]["max"])


class Service(BaseHTTPRequestHandler):
    """Takes readings: answers 201 to a valid one, and 400 otherwise."""

    protocol_version = "HTTP/1.1"
    seen = []

    def do_POST(self):
        """Takes one reading."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            reading = json.loads(body)
            good = 1 <= reading["value"] <= 9 and self.headers["X-Kind"] == "reading"
        except (ValueError, KeyError):
            good = False
        Service.seen.append(reading if good else body)
        self.send_response(201 if good else 400)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_):
        """Suppresses the log."""


@pytest.fixture
def service():
    """A web service on loopback."""
    Service.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/readings"
    server.shutdown()


def test_a_web_service_gets_bodies_from_a_template(service):
    body = '{"value": {{random 1 9}}, "at": "{{now}}", "id": "{{uuid}}", "n": {{seq}}}'
    result = bench(service, "--rate", 200, "--duration", "2s", "--body", body, "--expect", 201, "-H", "X-Kind: reading")
    assert result["requests"] == 400 and result["errors"] == {}, result["errors"]
    assert len(Service.seen) >= 400 and len({reading["id"] for reading in Service.seen}) == len(Service.seen)
    assert result["connect_ms"]["tcp"]["count"] >= 1 and result["about"]["shape"] == "open"


def test_another_status_than_the_expected_one_is_an_error_of_its_own_kind(service):
    result = bench(service, "--clients", 2, "--duration", "1s", "--body", "nonsense", "--expect", 201)
    assert result["requests"] == 0 and result["errors"]["status 400"] > 0


def test_without_reuse_each_operation_has_a_connection_of_its_own(service):
    result = bench(service, "--rate", 50, "--duration", "2s", "--no-reuse", "--body", '{"value": 1}', "-H", "X-Kind: reading")
    assert result["requests"] == 100 and result["connections"]["created_for"] == {"ephemeral": 100}
