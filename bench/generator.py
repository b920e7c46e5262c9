#!/usr/bin/env python3
"""`poolhouse bench` beside pgbench on the same PostgreSQL: throughput and CPU per transaction, in turns, in the same run.

    bench/generator.py                       about ten minutes; the result goes to bench/results/
    bench/generator.py --rounds 3 --json -   a short look

Both run the select-only script with the same clients on one thread, against tables that pgbench has made. CPU is that of the
generator's own process, from the first transaction to the last. Refuses to know how either works.
"""

import argparse
import datetime
import json
import os
import re
import resource
import subprocess
import sys

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
    if free < 0.9:
        print(f"warning: this machine is busy ({1 - free:.0%}); the numbers will be off", file=sys.stderr)
    cluster = Cluster(processes.directory(), options.scale)
    kinds = {"pgbench": pgbench, "poolhouse": poolhouse}
    runs = []
    try:
        for clients in options.clients:
            for protocol in PROTOCOLS:
                for number in range(options.rounds):
                    # Who begins changes, so that neither always finds the warmer machine.
                    for name in sorted(kinds, reverse=number % 2 == 1):
                        measured = kinds[name](cluster, clients, protocol, options)
                        runs.append({"round": number, "generator": name, "clients": clients, "protocol": protocol} | measured)
                        print(json.dumps(runs[-1]), file=sys.stderr)
        versions = {"PostgreSQL": cluster.version(), "poolhouse": timed([binary(), "--version"])[0].strip()}
    finally:
        cluster.stop()
    result = describe(options, versions, free) | {"ratios": ratios(runs), "runs": runs}
    text = json.dumps(result, indent=1) + "\n"
    if options.json == "-":
        print(text, end="")
    else:
        with open(options.json, "w") as file:
            file.write(text)
    return 0 if all(ratio["met"] for ratio in result["ratios"]) else 99


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/generator.py", description=__doc__.split("\n", 1)[0])
    option = parser.add_argument
    option("--rounds", type=int, default=7, help="paired rounds (default 7)")
    option("--seconds", type=int, default=4, help="seconds of each run (default 4)")
    option("--clients", type=int, nargs="+", default=[1, 50], help="numbers of clients (default 1 50)")
    option("--scale", type=int, default=10, help="pgbench scale (default 10)")
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
    return {"transactions": done, "throughput": done / result["duration_s"], "cpu_us": used / done * 1e6}


def timed(command):
    """What a program wrote, and the seconds of CPU it took, all of its threads together."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise SystemExit(f"bench: {command[0]} failed: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout, sum(getattr(after, field) - getattr(before, field) for field in ("ru_utime", "ru_stime"))


def ratios(runs):
    """Ours over pgbench's, round by round: median, interval, and whether the goal is met."""
    found = []
    for clients, protocol in sorted({(run["clients"], run["protocol"]) for run in runs}):
        for field, limit in GOALS.items():
            ours, theirs = (
                {r["round"]: r[field] for r in runs if (r["generator"], r["clients"], r["protocol"]) == (name, clients, protocol)}
                for name in ("poolhouse", "pgbench")
            )
            summary = stats.summary(stats.paired_ratios(ours, theirs))
            met = summary["median"] >= limit if field == "throughput" else summary["median"] <= limit
            found.append({"clients": clients, "protocol": protocol, "field": field, "limit": limit, "met": met} | summary)
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
