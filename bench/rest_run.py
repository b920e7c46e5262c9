#!/usr/bin/env python3
"""Redis over HTTP: Poolhouse beside webdis (Debian's `webdis` and `wrk`), and beside its own Redis side, in the same run, interleaved.

    bench/rest_run.py --quick               half a minute, to see that everything works
    bench/rest_run.py                       the whole, about five minutes
    bench/rest_run.py --render FILE         the tables of an earlier run

`POOLHOUSE` names the executable. The load is wrk's: GET of one key with keep-alive, on one thread, and redis-benchmark's for Redis's own
protocol. CPU time is that of the whole process, per request.
"""

import argparse
import datetime
import json
import os
import re
import secrets
import shutil
import subprocess
import sys
import urllib.request

import cpu
import processes
import redis_rivals
import rivals
import stats
from rounds import by_round
from run import machine, say

CLIENTS = (50, 500)
MANY = 10_000
SERVERS = 8
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}

GOALS = [
    ("throughput beside webdis", "get-50", "throughput", True),
    ("throughput beside webdis", "get-500", "throughput", True),
    ("CPU per request beside webdis", "get-50", "cpu_us", None),
    ("CPU per request beside webdis", "get-500", "cpu_us", None),
    ("p99 beside webdis", "get-50", "p99_ms", None),
    ("p99 beside webdis", "get-500", "p99_ms", None),
]


class Http(rivals.Rival):
    """Something that answers `GET /GET/key`."""

    def __init__(self, directory, server):
        super().__init__(directory, server)
        self.admin_port = processes.free_port()
        self.token = secrets.token_hex(32)

    def answers(self):
        """Whether it does."""
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/GET/key", headers={"Authorization": f"Bearer {self.token}"})
            with urllib.request.urlopen(request, timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False


class Poolhouse(Http):
    """One worker, as by default, and at most eight connections to Redis."""

    name = "poolhouse"

    def path(self):
        return os.environ.get("POOLHOUSE") or shutil.which("poolhouse")

    def command(self):
        token = self.write("token", self.token)
        self.resp = processes.free_port()
        return [self.path(), "serve", f"redis://127.0.0.1:{self.server.port}", "--listen", f"127.0.0.1:{self.resp}", "--max-size", str(SERVERS),
                "--http", f"127.0.0.1:{self.port}", "--http-token-file", token, "--admin", f"127.0.0.1:{self.admin_port}"]

    def servers(self):
        """Connections to Redis now."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/api/pools", timeout=5) as answer:
            return sum(pool["servers"]["total"] for pool in json.load(answer)["pools"])


class Webdis(Http):
    """One thread, and eight connections to Redis; without a password to look at, and without a log."""

    name = "webdis"

    def path(self):
        return shutil.which("webdis")

    def version(self):
        said = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "webdis"], capture_output=True, text=True, check=False).stdout
        return f"webdis {said.strip()}"

    def command(self):
        settings = {"redis_host": "127.0.0.1", "redis_port": self.server.port, "http_host": "127.0.0.1", "http_port": self.port, "threads": 1,
                    "pool_size": SERVERS, "daemonize": False, "websockets": False, "database": 0, "acl": [{"disabled": []}],
                    "verbosity": 0, "logfile": "/dev/null"}
        return [self.path(), self.write("webdis.json", json.dumps(settings))]


def main():
    """Measures, or renders an earlier result."""
    options = arguments()
    if options.render:
        with open(options.render) as file:
            print(markdown(json.load(file)))
        return 0
    print(markdown(measure(options)))
    return 0


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/rest_run.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, help="paired rounds (default 9; quick: 2)")
    parser.add_argument("--seconds", type=int, help="of each run (default 4; quick: 2)")
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument("--json", metavar="FILE", help="where the result goes")
    parser.add_argument("--render", metavar="FILE", help="measure nothing, print the tables of this result")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 9)
    options.seconds = options.seconds or (2 if options.quick else 4)
    return options


def measure(options):
    """The whole result."""
    descriptors = processes.raise_descriptor_limit()
    directory = processes.directory()
    free = cpu.idle_share()
    server = redis_rivals.Server(directory)
    subprocess.run(["redis-cli", "-p", str(server.port), "SET", "key", "value"], check=True, stdout=subprocess.DEVNULL)
    targets = {kind.name: kind(directory, server) for kind in (Poolhouse, Webdis)}
    for target in targets.values():
        if target.path() is None:
            raise SystemExit(f"{target.name} is not installed")
    result = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["bench/rest_run.py", *(re.sub(r"^/.*", "FILE", word) for word in sys.argv[1:])]),
        "machine": machine() | {"free_before": round(free, 3), "descriptors": descriptors},
        "versions": {name: target.version() for name, target in targets.items()},
        "settings": {"rounds": options.rounds, "seconds": options.seconds},
        "runs": [],
    }
    for target in targets.values():
        target.start()

    def note(number, workload, name, run):
        say(f"round {number + 1:2} {workload:10} {name:10} {run['throughput']:8.0f}/s  cpu {run['cpu_us']:5.2f} us  p99 {run['p99_ms']:.2f} ms")
        result["runs"].append({"round": number, "workload": workload, "target": name} | run)

    for clients in CLIENTS:
        for number in range(options.rounds):
            runs = [(name, lambda target=target: wrk(target, server, clients, options.seconds)) for name, target in targets.items()]
            runs.append(("poolhouse, Redis's protocol", lambda: resp(targets["poolhouse"], server, clients)))
            for name, run in runs[number % 3:] + runs[: number % 3]:
                note(number, f"get-{clients}", name, run())
    for number in range(2 if options.quick else 3):
        note(number, f"get-{MANY}", "poolhouse", wrk(targets["poolhouse"], server, MANY, 2 * options.seconds) | {"servers": targets["poolhouse"].servers()})
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return result


def wrk(target, server, clients, seconds):
    """One run over HTTP."""
    before, redis_before = cpu.used(target.process.pid), cpu.used(server.process.pid)
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--latency", "-H", f"Authorization: Bearer {target.token}", f"http://127.0.0.1:{target.port}/GET/key"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    after, redis_after = cpu.used(target.process.pid), cpu.used(server.process.pid)
    if re.search(r"Non-2xx|Socket errors", said):
        raise RuntimeError(f"{target.name} did not answer all:\n{said}")
    requests = int(re.search(r"(\d+) requests in", said)[1])
    late = {share: float(value) * UNITS[unit] for share, value, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s)\b", said)}
    return {
        "throughput": float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]),
        "cpu_us": (after - before) / requests * 1e6,
        "redis_cpu_us": (redis_after - redis_before) / requests * 1e6,
        "p50_ms": late["50"],
        "p99_ms": late["99"],
    }


def resp(target, server, clients):
    """One run of redis-benchmark in Redis's own protocol."""
    requests = 120_000
    before, redis_before = cpu.used(target.process.pid), cpu.used(server.process.pid)
    command = ["redis-benchmark", "-p", target.resp, "-c", clients, "-n", requests, "--csv", "-t", "get"]
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    after, redis_after = cpu.used(target.process.pid), cpu.used(server.process.pid)
    names, values = [line.replace('"', "").split(",") for line in said.strip().splitlines()[-2:]]
    row = dict(zip(names, values, strict=True))
    return {
        "throughput": float(row["rps"]),
        "cpu_us": (after - before) / requests * 1e6,
        "redis_cpu_us": (redis_after - redis_before) / requests * 1e6,
        "p50_ms": float(row["p50_latency_ms"]),
        "p99_ms": float(row["p99_latency_ms"]),
    }


def markdown(result):
    """The report."""
    runs, about = result["runs"], result["machine"]
    lines = [
        f"{result['date']}, `{result['command']}`: {result['settings']['rounds']} rounds of {result['settings']['seconds']} s, interleaved. {about['cpus']} x {about['cpu']}, "
        f"{about['memory_gb']} GB, Linux {about['kernel']}; all programs share it. " + "; ".join(result["versions"].values()) + ".",
        "",
        "| | workload | median of the rounds' ratios | interval | goal |",
        "|-|-|-|-|-|",
    ]
    for text, workload, field, least in GOALS:
        values = stats.paired_ratios(by_round(runs, workload, "poolhouse", field), by_round(runs, workload, "webdis", field))
        middle, edges = stats.median(values), stats.interval(values)
        goal = "" if least is None else f"at least 1: {'met' if middle >= 1 else 'missed'}"
        lines.append(f"| {text} | {workload} | {middle:.3f} | {f'[{edges[0]:.3f}, {edges[1]:.3f}]' if edges else ''} | {goal} |")
    lines += ["", "| workload | | requests/s | CPU us | Redis's CPU us | p50 ms | p99 ms |", "|-|-|-|-|-|-|-|"]
    for workload, target in dict.fromkeys((run["workload"], run["target"]) for run in runs):
        values = [stats.median(list(by_round(runs, workload, target, field).values())) for field in ("throughput", "cpu_us", "redis_cpu_us", "p50_ms", "p99_ms")]
        lines.append(f"| {workload} | {target} | {values[0]:.0f} | {values[1]:.2f} | {values[2]:.2f} | {values[3]:.2f} | {values[4]:.2f} |")
    many = [run["servers"] for run in runs if "servers" in run]
    if many:
        lines += ["", f"{MANY} clients over HTTP were served by at most {max(many)} connections to Redis."]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
