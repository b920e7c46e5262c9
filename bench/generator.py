#!/usr/bin/env python3
"""`poolhouse bench` beside pgbench on the same PostgreSQL, and beside ab and wrk on the same nginx: throughput and CPU per operation, in
turns, in the same run.

    bench/generator.py                       about ten minutes; the result goes to bench/results/
    bench/generator.py --rounds 3 --json -   a short look
    bench/generator.py --only http           nginx alone (Debian's nginx-light, apache2-utils, wrk)

All ask the same with the same clients on one thread: the select-only script against tables that pgbench has made, or a page of two
bytes over connections that are kept. CPU is that of the generator's whole process, its start and its connecting included; pgbench's
throughput leaves the connecting out, as its own report does. Refuses to know how any of them works.
"""

import argparse
import datetime
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time

import cpu
import processes
import stats
from cluster import DATABASE, SETTINGS, USER, Cluster
from run import machine

HERE = os.path.dirname(os.path.abspath(__file__))
PROTOCOLS = ("simple", "extended", "prepared")
# What the load generator promises, as median ratios to pgbench: throughput at least, CPU per transaction at most.
GOALS = {"throughput": 1.0, "cpu_us": 1.1}
PATIENCE = 60


def main():
    """Measures everything and writes the result."""
    options = arguments()
    free = cpu.idle_share()
    runs, versions = [], {"poolhouse": timed([binary(), "--version"])[0].strip()}
    if options.only != "http":
        cluster = Cluster(processes.directory(), options.scale)
        try:
            for protocol in PROTOCOLS:
                in_turns({"pgbench": pgbench, "poolhouse": poolhouse}, cluster, protocol, options, runs)
            versions["PostgreSQL"] = cluster.version()
        finally:
            cluster.stop()
    if options.only != "postgres":
        with Nginx() as nginx:
            in_turns({"ab": ab, "poolhouse": poolhouse_http, "wrk": wrk}, nginx, "http", options, runs)
            versions["nginx"] = nginx.version()
    result = describe(options, versions, free) | {"ratios": ratios(runs), "runs": runs}
    text = json.dumps(result, indent=1) + "\n"
    if options.json == "-":
        print(text, end="")
    else:
        with open(options.json, "w") as file:
            file.write(text)
    return 0 if all(ratio["met"] for ratio in result["ratios"]) else 99


def in_turns(kinds, server, protocol, options, runs):
    """Runs all kinds of generators round by round with each number of clients."""
    for clients in options.clients:
        for number in range(options.rounds):
            # Who begins changes, so that nobody always finds the warmer machine.
            for name in sorted(kinds, reverse=number % 2 == 1):
                measured = kinds[name](server, clients, protocol, options)
                runs.append({"round": number, "generator": name, "clients": clients, "protocol": protocol} | measured)
                print(json.dumps(runs[-1]), file=sys.stderr)


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/generator.py", description=__doc__.split("\n", 1)[0])
    option = parser.add_argument
    option("--rounds", type=int, default=7, help="paired rounds (default 7)")
    option("--seconds", type=int, default=4, help="seconds of each run (default 4)")
    option("--clients", type=int, nargs="+", default=[1, 50], help="numbers of clients (default 1 50)")
    option("--scale", type=int, default=10, help="pgbench scale (default 10)")
    option("--only", choices=["postgres", "http"], help="one of the two")
    option("--json", metavar="FILE", default=os.path.join(HERE, "results", f"generator-{datetime.date.today()}.json"),
           help="where the result goes; - is standard output")
    return parser.parse_args()


def binary():
    """The program under test."""
    return os.environ.get("POOLHOUSE", os.path.join(HERE, "..", "target", "release", "poolhouse"))


def pgbench(cluster, clients, protocol, options):
    """One run of pgbench."""
    command = [cluster.program("pgbench"), "-n", "-S", "-h", "127.0.0.1", "-p", str(cluster.port), "-U", USER]
    command += ["-c", str(clients), "-j", "1", "-M", protocol, "-T", str(options.seconds), DATABASE]
    out, used = timed(command)
    done = int(re.search(r"number of transactions actually processed: (\d+)", out).group(1))
    # Without the time for making connections.
    throughput = float(re.search(r"tps = ([0-9.]+) \(without initial", out).group(1))
    return {"transactions": done, "throughput": throughput, "cpu_us": used / done * 1e6}


def poolhouse(cluster, clients, protocol, options):
    """One run of ours."""
    url = f"postgres://{USER}@127.0.0.1:{cluster.port}/{DATABASE}?sslmode=disable"
    command = [binary(), "bench", url, "--select-only", "--schema", "public", "--scale", str(options.scale)]
    command += ["--clients", str(clients), "--protocol", protocol, "--duration", f"{options.seconds}s"]
    command += ["--warmup", "0s", "--json", "-"]
    out, used = timed(command)
    result = json.loads(out)
    if result["errors"]:
        raise SystemExit(f"bench: errors under load: {result['errors']}")
    done = result["requests"]
    return {"transactions": done, "throughput": result["finished"] / result["duration_s"], "cpu_us": used / done * 1e6}


class Nginx:
    """An nginx of one worker on a free port of loopback, that answers every request with two bytes."""

    def __enter__(self):
        self.folder = processes.directory()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        conf = os.path.join(self.folder, "nginx.conf")
        with open(conf, "w") as file:
            file.write(f"""
                worker_processes 1; daemon off; pid {self.folder}/pid; error_log stderr;
                events {{ worker_connections 4096; }}
                http {{
                    access_log off; keepalive_requests 1000000000; client_body_temp_path {self.folder}/body;
                    server {{ listen 127.0.0.1:{self.port}; location / {{ return 200 "ok"; }} }}
                }}""")
        self.process = subprocess.Popen(["nginx", "-p", self.folder, "-c", conf], stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("bench: nginx does not start") from None
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)

    @property
    def url(self):
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/"

    @staticmethod
    def version():
        """As it says."""
        return subprocess.run(["nginx", "-v"], capture_output=True, text=True, check=True).stderr.split("/")[-1].strip()


def ab(nginx, clients, _, options):
    """One run of ApacheBench."""
    out, used = timed(["ab", "-q", "-k", "-c", str(clients), "-t", str(options.seconds), "-n", "100000000", nginx.url])
    done = int(re.search(r"Complete requests: +(\d+)", out).group(1))
    return {"transactions": done, "throughput": float(re.search(r"Requests per second: +([0-9.]+)", out).group(1)),
            "cpu_us": used / done * 1e6}


def wrk(nginx, clients, _, options):
    """One run of wrk."""
    out, used = timed(["wrk", "-t", "1", "-c", str(clients), "-d", f"{options.seconds}s", nginx.url])
    done = int(re.search(r"(\d+) requests in", out).group(1))
    return {"transactions": done, "throughput": float(re.search(r"Requests/sec: +([0-9.]+)", out).group(1)),
            "cpu_us": used / done * 1e6}


def poolhouse_http(nginx, clients, _, options):
    """One run of ours."""
    command = [binary(), "bench", nginx.url, "--clients", str(clients), "--duration", f"{options.seconds}s"]
    out, used = timed([*command, "--warmup", "0s", "--json", "-"])
    result = json.loads(out)
    if result["errors"]:
        raise SystemExit(f"bench: errors under load: {result['errors']}")
    done = result["requests"]
    return {"transactions": done, "throughput": result["finished"] / result["duration_s"], "cpu_us": used / done * 1e6}


def timed(command):
    """What a program wrote, and the seconds of CPU it took, all of its threads together."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise SystemExit(f"bench: {command[0]} failed: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, sum(getattr(after, field) - getattr(before, field) for field in ("ru_utime", "ru_stime"))


def ratios(runs):
    """Ours over each rival's, round by round: median, interval, and whether the goal is met; ab and wrk are no goals."""
    found = []
    cases = sorted({(run["clients"], run["protocol"], run["generator"]) for run in runs if run["generator"] != "poolhouse"})
    for clients, protocol, rival in cases:
        for field, limit in GOALS.items():
            ours, theirs = (
                {r["round"]: r[field] for r in runs if (r["generator"], r["clients"], r["protocol"]) == (name, clients, protocol)}
                for name in ("poolhouse", rival)
            )
            summary = stats.summary(stats.paired_ratios(ours, theirs))
            limit = limit if rival == "pgbench" else None
            met = limit is None or (summary["median"] >= limit if field == "throughput" else summary["median"] <= limit)
            found.append({"clients": clients, "protocol": protocol, "rival": rival, "field": field, "limit": limit, "met": met}
                         | summary)
    return found


def describe(options, versions, free):
    """What the numbers depend on."""
    return {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["bench/generator.py", *sys.argv[1:]]),
        "machine": machine() | {"free_before": round(free, 3)},
        "versions": versions,
        "settings": {
            "rounds": options.rounds,
            "seconds": options.seconds,
            "scale": options.scale,
            "pgbench_threads": 1,
            "postgres": SETTINGS,
        },
    }


if __name__ == "__main__":
    sys.exit(main())
