#!/usr/bin/env python3
"""Two builds of Poolhouse beside each other: CPU time per transaction or request, throughput, and memory per idle client. What a change to
the structure has cost.

    bench/builds.py BEFORE AFTER --rounds 10 --json result.json

Both serve the same PostgreSQL (pgbench: simple, extended, prepared, TPC-B; 50 clients on 20 servers), the same Redis (redis-benchmark's GET;
wrk's over HTTP), and what answers like MongoDB (`RESPONDER` as in bench/mongodb_run.py; the load is that of AFTER's `poolhouse bench`).
Rounds are interleaved, ratios are paired: AFTER of BEFORE. Refuses to know what the change was.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess

import cpu
import idle
import mongodb_run
import processes
import redis_rivals
import redis_run
import rest_run
import rivals
import stats
import wire
from cluster import DATABASE, USER, Cluster

PGBENCH = {
    "simple": ["-S", "-M", "simple"],
    "extended": ["-S", "-M", "extended"],
    "prepared": ["-S", "-M", "prepared"],
    "tpcb": ["-M", "simple"],
}
CLIENTS = 50
IDLE = 2000


class PostgreSql(rivals.Poolhouse):
    """Poolhouse in front of PostgreSQL."""

    def command(self):
        config = self.write(
            "postgres.toml",
            f'[[listener]]\nprotocol = "postgres"\nlisten = "127.0.0.1:{self.port}"\n\n[[database]]\nname = "{DATABASE}"\n'
            f'url = "postgres://{USER}@127.0.0.1:{self.server.port}/{DATABASE}"\nmax_size = 20\nmin_size = 20\n',
        )
        return [self.path(), "serve", "--config", config]

    def answers(self):
        return wire.answers(self.port, USER, DATABASE)


KINDS = {"postgres": PostgreSql, "redis": redis_rivals.Poolhouse, "http": rest_run.Poolhouse, "mongodb": mongodb_run.Poolhouse}
SERVERS = {
    "postgres": lambda directory: Cluster(directory, 10),
    "redis": redis_rivals.Server,
    "mongodb": mongodb_run.Responder,
}


class Bench:
    """The servers, and how a Poolhouse of one build is started in front of them."""

    def __init__(self, directory, builds, kinds):
        self.directory, self.builds = directory, builds
        self.servers = {name: SERVERS[name](directory) for name in dict.fromkeys(map(server_of, kinds))}
        self.serving = {(kind, side): self.start(kind, side) for kind in kinds for side in builds}

    def start(self, kind, side):
        folder = os.path.join(self.directory, f"{side}-{kind}")
        os.makedirs(folder, exist_ok=True)
        target = KINDS[kind](folder, self.servers[server_of(kind)])
        target.path = lambda: self.builds[side]
        return target.start()

    def run(self, work, side, seconds):
        """What one round shows of one side."""
        kind = kind_of(work)
        if work.startswith("idle"):
            # Of a new process: one that had clients before has free memory.
            target = self.start(kind, side)
            try:
                return {"bytes per client": IDLE_CLIENTS[kind](target, IDLE)["bytes_per_client"]}
            finally:
                processes.stop(target.process)
        target = self.serving[kind, side]
        return LOADS.get(work, pgbench)(self, work, target, seconds)


def kind_of(work):
    """Which of KINDS serves a workload."""
    kind = work.removeprefix("idle-")
    return kind if kind in KINDS else "postgres"


def server_of(kind):
    """Which of SERVERS is behind it."""
    return "redis" if kind == "http" else kind


def pgbench(bench, work, target, seconds):
    command = [bench.servers["postgres"].program("pgbench"), "-h", "127.0.0.1", "-p", str(target.port), "-U", USER, "-n", "-c", str(CLIENTS), "-j", "2"]
    said, used = spend(target, [*command, "-T", str(seconds), *PGBENCH[work], DATABASE])
    count = int(re.search(r"actually processed: ([0-9]+)", said)[1])
    return {"rate": float(re.search(r"tps = ([0-9.]+)", said)[1]), "CPU": used / count}


def redis_benchmark(_bench, _work, target, seconds):
    count = 40_000 * seconds
    said, used = spend(target, ["redis-benchmark", "-p", str(target.port), "-t", "get", "-c", str(CLIENTS), "-n", str(count), "--csv"])
    return {"rate": float(re.search(r'"GET","([0-9.]+)"', said)[1]), "CPU": used / count}


def wrk(bench, _work, target, seconds):
    run = rest_run.wrk(target, bench.servers["redis"], CLIENTS, seconds)
    return {"rate": run["throughput"], "CPU": run["cpu_us"]}


def poolhouse_bench(_bench, _work, target, seconds):
    run = mongodb_run.load(target, CLIENTS, mongodb_run.FIND, seconds)
    return {"rate": run["throughput"], "CPU": run["cpu_us"]}


def spend(target, command):
    """Runs a load: what it prints, and the CPU time of the target in seconds."""
    before = cpu.used(target.pid())
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return said, cpu.used(target.pid()) - before


LOADS = {"redis": redis_benchmark, "http": wrk, "mongodb": poolhouse_bench}
IDLE_CLIENTS = {"postgres": idle.run, "redis": redis_run.idle, "mongodb": mongodb_run.idle}
WORKS = [*PGBENCH, *LOADS, *(f"idle-{kind}" for kind in IDLE_CLIENTS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only", default=",".join(WORKS), help=f"which of {','.join(WORKS)}")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    processes.raise_descriptor_limit()
    os.environ["POOLHOUSE"] = options.after
    directory = processes.directory()
    try:
        result = measure(options, {"before": options.before, "after": options.after}, directory)
    finally:
        processes.stop_all()
        shutil.rmtree(directory, ignore_errors=True)
    for name, row in result["ratios"].items():
        low, high = row["interval"] or (0, 0)
        print(f"{name:29} {row['median']:.3f} [{low:.3f}, {high:.3f}] of before, {row['n']} pairs")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(options, builds, directory):
    works = options.only.split(",")
    bench = Bench(directory, builds, dict.fromkeys(map(kind_of, works)))
    found = {}
    chance = random.Random(1)
    for number in range(options.rounds):
        for work in works:
            for side in chance.sample(list(builds), len(builds)):
                for what, value in bench.run(work, side, options.seconds).items():
                    found.setdefault(f"{work} {what}", {}).setdefault(side, {})[number] = value
    return {
        "command": "bench/builds.py",
        "machine": os.uname().release,
        "cpus": os.cpu_count(),
        "medians": {key: {side: stats.median(list(values.values())) for side, values in sides.items()} for key, sides in found.items()},
        "ratios": {key: stats.summary(stats.paired_ratios(sides["after"], sides["before"])) for key, sides in found.items()},
    }


if __name__ == "__main__":
    main()
