"""poolhouse doctor beside a real HikariCP: a Java application (tests/suites/hikaricp) with its current release, pgjdbc
and Micrometer, in front of the tests' PostgreSQL. Each of its pools has a trouble of its own, or is healthy and
resembles one, and one page of metrics shows all pools.

Two troubles take longer than a test may. A leak of connections is certain after five minutes and undetermined until
then. And HikariCP accepts no idleTimeout below 10 s and no maxLifetime below 30 s at its start, and checks idle
connections every 30 s: the application sets shorter ones while HikariCP runs, and makes it check every 200 ms.
"""

import contextlib
import http.server
import os
import pathlib
import re
import subprocess
import threading
import time
import urllib.request

import pytest

from support import java_programs
from support.doctor import look, symptoms
from support.postgres_cluster import PASSWORDS
from support.relay import Relay

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "suites/hikaricp"
OPTIONS = ("-Xmx128m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dcom.zaxxer.hikari.housekeeping.periodMs=200")
# A login by SCRAM uses so much CPU time of the client that connections would be late on a busy machine.
USER = "md5user"
# The application has its full load from here on, and the database is gone, in milliseconds; and the length of the
# window, in seconds.
BUSY, WINDOW = 8_000, 16
# A name that no label would have by itself.
ODD = 'ord"ers\\n}, é'
# The pools, each with that size unless it names another.
POOLS = {
    "quiet": {"size": 5, "threads": 3, "hold": 20, "pause": 60},
    # All connections are constantly replaced, and no client waits.
    "rotating": {"size": 4, "threads": 2, "hold": 5, "pause": 20, "max-lifetime": 4_000},
    ODD: {"size": 4, "threads": f"1,12@{BUSY}", "hold": 40},
    "locked": {"size": 8, "threads": f"1,3@{BUSY // 2},12@{BUSY}", "hold": 10, "alone": "yes"},
    "always full": {"size": 4, "threads": 8, "hold": 50},
    "leaking": {"size": 8, "threads": 6, "hold": 20, "leak": 5},
    # Threads wait from the middle of the window on, when seven of eight are gone.
    "forgetting": {"size": 8, "threads": 2, "hold": 20, "leak": 8, "leak-every": 1_200},
    "impatient": {"size": 2, "threads": 6, "hold": 1_500, "connection-timeout": 300},
    "bursts": {"size": 5, "minimum-idle": 1, "threads": 5, "hold": 20, "burst": 1_000, "every": 3_400, "idle-timeout": 900},
    "cut off": {"size": 4, "threads": 3, "hold": 10, "pause": 20, "connection-timeout": 500},
}
BOTH = ["pool_too_small", "server_saturated"]


class Application:
    """An application that exposes metrics at `url`, and ends with the test."""

    def __init__(self, cluster, directory, *arguments):
        environment = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(cluster.port), "PGUSER": USER, "PGPASSWORD": PASSWORDS[USER],
                       "PGDATABASE": "bench", "LC_ALL": "C.UTF-8"}
        self.said = directory / "application.log"
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(java_programs.command(FOLDER, *arguments, options=OPTIONS), env=environment, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)

    def __enter__(self):
        ready = re.match(r"ready (\d+)", self.process.stdout.readline())
        if not ready:
            self.__exit__()
        assert ready, self.said.read_text()
        self.root = f"http://127.0.0.1:{ready[1]}"
        self.url = f"{self.root}/metrics"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def page(self, accept="*/*"):
        with urllib.request.urlopen(urllib.request.Request(self.url, headers={"Accept": accept}), timeout=10) as answer:
            return answer.read().decode()


def flags(name, **of_pool):
    return ["--pool", name, *(str(part) for flag, value in of_pool.items() for part in (f"--{flag}", value))]


@pytest.fixture
def application(cluster, tmp_path):
    """Starts an application with these arguments, and ends it."""
    java_programs.prepare(FOLDER, "HikariCP")
    started = []

    def start(*arguments):
        started.append(Application(cluster, tmp_path, *arguments))
        return started[-1].__enter__()

    yield start
    for made in started:
        made.__exit__()


class Between(http.server.BaseHTTPRequestHandler):
    """Passes on what the application exposes, and appends it with the time to a file for each of Micrometer's formats.
    A second reader beside the doctor would make HikariCP update its counts at other moments than the doctor's looks."""

    application, files = None, {}

    def do_GET(self):
        at = time.time()
        texts = [self.application.page(accept) for accept in self.files.values()]
        for path, text in zip(self.files, texts):
            with path.open("a") as file:
                file.write(f"{at:.3f}\n{text}")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(texts[0].encode())

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def between(application, files):
    """The URL of such a relay."""
    handler = type("Handler", (Between,), {"application": application, "files": files})
    server = http.server.HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/metrics"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def seen(session_cluster, workspace):
    """The doctor's findings about all pools in each way to read them: from the page, and from files of scrapes."""
    java_programs.prepare(FOLDER, "HikariCP")
    if not session_cluster.running():
        session_cluster.start()
    directory = workspace / "hikaricp"
    directory.mkdir()
    files = {directory / "scrapes.txt": "text/plain", directory / "open.txt": "application/openmetrics-text; version=1.0.0"}
    with Relay(session_cluster.port) as relay:
        def cut():
            relay.refusing = True
            relay.cut()

        pools = {**POOLS, "cut off": {**POOLS["cut off"], "port": relay.port}}
        arguments = [part for name, of_pool in pools.items() for part in flags(name, **of_pool)]
        outage = threading.Timer(BUSY / 1e3, cut)
        with Application(session_cluster, directory, "--application", "shop", *arguments) as made, between(made, files) as url:
            outage.start()
            said, done = look(url, "--record", directory / "looks.jsonl", window=f"{WINDOW}s")
            outage.join()
            page = made.page()
    assert done.returncode == 1, done.stderr
    return {"page": said, "recorded": look(directory / "looks.jsonl")[0], "scrapes": look(directory / "scrapes.txt")[0],
            "open": look(directory / "open.txt")[0], "text": page}


WAYS = ["page", "recorded", "scrapes", "open"]


def of(said, name):
    """The findings about a pool, and what is undetermined."""
    name = f"{name} of shop"
    return [one for one in said["findings"] if one["of"] == name], [one for one in said["undecided"] if one["of"] == name]


@pytest.mark.parametrize("way", WAYS)
def test_each_pool_of_a_page_has_what_is_wrong_with_it_named(seen, way):
    said = seen[way]
    assert said["of"] == "hikaricp" and said["pools"] == len(POOLS), said
    found = {name: ([one["symptom"] for one in of(said, name)[0]], [one["between"] for one in of(said, name)[1]]) for name in POOLS}
    assert found == {
        "quiet": ([], []), "rotating": ([], []),
        ODD: (["pool_too_small"], []), "locked": (["server_saturated"], []), "always full": ([], [BOTH]), "impatient": ([], [BOTH]),
        "leaking": ([], [["leak", "server_saturated"]]), "forgetting": ([], [["leak", "server_saturated"]]),
        "bursts": (["idle_churn"], []), "cut off": (["out_of_reach"], []),
    }, said


def test_the_settings_and_the_evidence_are_those_of_each_pool(seen):
    (small,), _ = of(seen["page"], ODD)
    assert small["setting"]["key"] == "maximumPoolSize" and small["setting"]["from"] == "4", small
    # Half of the twelve are served at once with 6, and the doctor does not propose more than 8.
    assert 6 <= int(small["setting"]["to"]) <= 8, small
    (bursts,), _ = of(seen["page"], "bursts")
    assert bursts["setting"]["key"] == "minimumIdle" and bursts["setting"]["from"] == "1", bursts
    # Five, of which a look may have met the first.
    assert 3 <= int(bursts["setting"]["to"]) <= 5, bursts
    (cut,), _ = of(seen["page"], "cut off")
    assert re.search(r"[1-9]\d* gave up", " ".join(cut["evidence"])), cut
    _, (impatient,) = of(seen["page"], "impatient")
    assert re.search(r"[1-9]\d* gave up", " ".join(impatient["seen"])), impatient


def test_what_micrometer_shows_is_what_is_read(seen):
    shown = set(re.findall(r"^(hikaricp_\w+)\{", seen["text"], re.MULTILINE))
    of_times = {f"hikaricp_connections_{what}_seconds_{part}" for what in ("acquire", "creation", "usage") for part in ("count", "sum", "max")}
    gauges = {f"hikaricp_connections{what}" for what in ("", "_active", "_idle", "_pending", "_max", "_min")}
    assert shown == of_times | gauges | {"hikaricp_connections_timeout_total"}, seen["text"]
    assert "process_uptime_seconds{" in seen["text"]


def test_an_application_with_a_little_to_do_is_healthy(application):
    made = application(*flags("shop", **POOLS["quiet"]))
    said, done = look(made.url, window="4s")
    assert (done.returncode, said["findings"], said["undecided"], said["looked_at"]) == (0, [], [], "1 pool of HikariCP"), said


def test_connections_that_are_handed_on_within_a_millisecond_are_neither_leaked_nor_limited(application):
    """Whether the pool is too small or the machine is saturated cannot be known: the pool was never less loaded. On a
    busy machine threads wait for a processor and not for a connection, and four looks may miss those that do."""
    made = application(*flags("fast", size=2, threads=24))
    said, done = look(made.url, window="4s")
    undecided = [one["between"] for one in said["undecided"]]
    assert (done.returncode, symptoms(said), undecided) in [(2, [], [BOTH]), (0, [], [])], said


def test_metrics_of_hikaricps_own_tracker_are_told_to_be_others(application):
    made = application(*flags("shop", tracker="own", **POOLS["quiet"]))
    said, done = look(f"{made.root}/own", window="1s")
    assert done.returncode == 3 and "those that Micrometer gives" in done.stderr, done
