"""Load, the telemetry service, Poolhouse or not, a network that takes time, a database: started in a row, and ended.

    load -> service (examples/telemetry) -> [Poolhouse] -> SlowRelay -> mongo-java-server

Knows nothing of the cases that are run with it.
"""

import contextlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from support import pooler
from support.postgres_cluster import free_port
from support.mongodb_server import MongoPoolhouse
from slow_relay import SlowRelay

SERVICE = ROOT / "examples" / "telemetry"
DATABASE, COLLECTION = "telemetry", "readings"
# Runs of seconds would measure Java's compiler otherwise.
JAVA = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
# The same seed draws the same uuid once more.
SEEDS = itertools.count(1)
# An HTTP client that never is what a request waits for.
BENCH = ["--max-connecting", "200", "--max-idle-time", "off", "--max-life-time", "off"]


class Upstream:
    """What Poolhouse connects to."""

    def __init__(self, port):
        self.port = port

    def url(self):
        return f"mongodb://127.0.0.1:{self.port}"


class Chain:
    """A service of its own in front of a database that is there. `driver` stands behind the `?` of the service's URL, `service` are further
    arguments of it, `poolhouse` settings of a Poolhouse between the two, and `network` of the relay."""

    def __init__(self, directory, server, driver, service=(), poolhouse=None, network=None):
        self.directory, self.server, self.driver, self.arguments = directory, server, driver, list(service)
        self.settings, self.network = poolhouse, network or {}
        self.poolhouse, self.relay, self.process, self.port = None, None, None, free_port()

    def __enter__(self):
        with self.server.connect() as client:
            client.drop_database(DATABASE)
        with contextlib.ExitStack() as stack:
            self.relay = stack.enter_context(SlowRelay(self.server.port, **self.network))
            port = self.relay.port
            if self.settings is not None:
                self.poolhouse = MongoPoolhouse(made(self.directory, "poolhouse"), Upstream(port)).start(**self.settings)
                stack.callback(self.poolhouse.stop)
                port = self.poolhouse.port
            stack.enter_context(self.started(f"mongodb://127.0.0.1:{port}/{DATABASE}?{'&'.join(self.driver)}"))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    @contextlib.contextmanager
    def started(self, url):
        """The service."""
        log_path = self.directory / "service.log"
        command = [*JAVA, "-cp", f"{SERVICE}/classes:{SERVICE}/lib/*", "telemetry.Telemetry", "--port", str(self.port), *self.arguments]
        with log_path.open("ab") as log:
            process = self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, "MONGODB_URL": url})
        try:
            deadline = time.monotonic() + 30
            while True:
                with contextlib.suppress(OSError):
                    self.driver_counts()
                    break
                assert process.poll() is None and time.monotonic() < deadline, f"the service does not start:\n{log_path.read_text()}"
                time.sleep(0.05)
            yield
        finally:
            process.kill()
            process.wait()

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def used(self):
        """Seconds of processor time that the whole chain has taken so far, this process as the relay included."""
        processes = [self.server.process, self.process, *([self.poolhouse.process] if self.poolhouse else [])]
        return sum(processor_seconds(pid) for pid in [os.getpid(), *(process.pid for process in processes)])

    def driver_counts(self):
        """What the pools of the service's driver have done so far."""
        return self.get("/pool")

    def load(self, *arguments, path="/readings", most=1200):
        """Our own load generator: the result it writes, and how busy the machine was meanwhile."""
        command = [pooler.BINARY, "bench", f"http://127.0.0.1:{self.port}{path}", *BENCH, *map(str, arguments), "--json", "-", "--seed", str(next(SEEDS))]
        command += [] if "--clients" in command else ["--max-size", str(most), "--max-wait-time", "60s"]
        before, own, began = processor_times(), self.used(), time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=1200)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        seconds, processors = time.monotonic() - began, os.cpu_count()
        busy = busy_share(before, processor_times())
        own = (self.used() - own + (result["generator_cpu_s"] or 0.0)) / seconds / processors
        # Shares of the machine's processors: of all that is started here, and of everything else on the machine.
        result["processors"] = {"own": min(own, busy), "others": max(busy - own, 0.0)}
        return result

    def post(self, *arguments):
        """Readings with an _id that nothing else has."""
        body = '{"_id": "{{uuid}}", "sensor": "s-{{random 1 1000}}", "value": {{random 1 100}}}'
        return self.load("--body", body, "--expect", "201", *arguments)

    def warm_up(self, clients, operations):
        """So that classes are loaded and compiled, and Poolhouse has its minimum. What it wrote is removed."""
        self.post("--clients", clients, "--operations", operations, "--duration", "10s")
        deadline = time.monotonic() + 20
        while self.poolhouse and self.servers_of_poolhouse()["created"] < self.settings.get("min_size", 0):
            assert time.monotonic() < deadline, "Poolhouse does not open its minimum"
            time.sleep(0.1)
        with self.server.connect() as client:
            client[DATABASE][COLLECTION].delete_many({})

    def wait_for_minimum(self):
        """Until the driver has the connections of its minPoolSize. Under load it may stop to open them, until it looks after its pool again."""
        least = int(dict(option.split("=") for option in self.driver).get("minPoolSize", 0))
        deadline = time.monotonic() + 30
        while self.driver_counts()["created"] < least:
            assert time.monotonic() < deadline, f"the driver does not open {least} connections"
            time.sleep(0.1)

    def documents(self):
        """How many readings the database has, once it has what is still on its way."""
        with self.server.connect() as client:
            count = client[DATABASE][COLLECTION].count_documents({})
            while True:
                time.sleep(0.3)
                before, count = count, client[DATABASE][COLLECTION].count_documents({})
                if count == before:
                    return count

    def fill(self, sensor, count):
        with self.server.connect() as client:
            client[DATABASE][COLLECTION].insert_many([{"sensor": sensor, "value": value} for value in range(count)])

    def clients_of_poolhouse(self):
        return clients_of(self.poolhouse)

    def servers_of_poolhouse(self):
        """Connections to the database that Poolhouse has made for its clients so far, and closed, by reason."""
        [pool] = [pool for pool in self.poolhouse.pools() if not pool["database"].endswith("/monitor")]
        return {"created": pool["created"], "closed": pool["closed"]}


def clients_of(poolhouse):
    """Connections to a Poolhouse, as /api/clients lists them: those that have asked for something, and those that have only said hello."""
    listed = json.loads(poolhouse.get("/api/clients")[1])["clients"]
    used = sum(bool(client["database"]) for client in listed)
    return {"used": used, "only_hello": len(listed) - used}


def made(directory, name):
    place = directory / name
    place.mkdir(exist_ok=True)
    return place


def processor_seconds(pid):
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def processor_times():
    """Idle and all ticks of the machine so far."""
    ticks = list(map(int, pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]))
    return ticks[3] + ticks[4], sum(ticks)


def busy_share(before, after):
    idle, total = after[0] - before[0], after[1] - before[1]
    return 1 - idle / total if total else 0.0


def errors(result):
    return sum(result["errors"].values()) + result.get("dropped", 0)


def acknowledged(result):
    return result["requests"]
