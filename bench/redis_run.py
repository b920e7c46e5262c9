#!/usr/bin/env python3
"""`make bench-redis`: Poolhouse in front of Redis beside nothing, twemproxy and HAProxy, in the same run, interleaved.

    bench/redis_run.py --quick               a minute, to see that everything works
    bench/redis_run.py                       the whole, about ten minutes
    bench/redis_run.py --render FILE         the tables of an earlier run

`POOLHOUSE` names the executable. Standard output gets the report in Markdown, standard error the progress. The load is
redis-benchmark's, but for the mix, which is `poolhouse bench`'s: reads and writes 10:1 of 32 bytes, random keys, as
memtier_benchmark has it by default. CPU time is that of the whole process, per request.
"""

import argparse
import datetime
import json
import os
import re
import socket
import subprocess
import sys

import cpu
import processes
import redis_rivals
import rounds
from run import machine, say

# Name: clients, pipeline, requests of a run, redis-benchmark's test.
WORKLOADS = {
    "get-50": (50, 1, 120_000, "get"),
    "set-50": (50, 1, 120_000, "set"),
    "get-1000": (1000, 1, 120_000, "get"),
    "set-1000": (1000, 1, 120_000, "set"),
    "get-50-pipelined-16": (50, 16, 1_500_000, "get"),
}
IDLE = "idle"
# Reads and writes mixed: clients, and for how long.
MIXES, MIX_SECONDS = {"mix-50": 50, "mix-1000": 1000}, 3

# Text, workload, field, of whom, in relation to whom, limit, whether that is the least.
GOALS = [
    ("throughput beside twemproxy", "get-50", "throughput", "poolhouse", "twemproxy", 1.0, True),
    ("throughput beside twemproxy", "get-1000", "throughput", "poolhouse", "twemproxy", 1.0, True),
    ("CPU per request beside twemproxy", "get-50", "cpu_us", "poolhouse", "twemproxy", 0.85, False),
    ("CPU per request beside twemproxy", "get-1000", "cpu_us", "poolhouse", "twemproxy", 0.85, False),
    *[("throughput beside twemproxy", mix, "throughput", "poolhouse", "twemproxy", 1.0, True) for mix in MIXES],
    *[("CPU per request beside twemproxy", mix, "cpu_us", "poolhouse", "twemproxy", 0.85, False) for mix in MIXES],
    ("Redis's own CPU per request beside direct", "mix-1000", "redis_cpu_us", "poolhouse", "direct", 0.15, False),
    ("the same of twemproxy, for comparison", "mix-1000", "redis_cpu_us", "twemproxy", "direct", None, False),
    ("Redis's own CPU per request beside direct", "get-1000", "redis_cpu_us", "poolhouse", "direct", 0.15, False),
    ("the same of twemproxy, for comparison", "get-1000", "redis_cpu_us", "twemproxy", "direct", None, False),
    ("throughput beside HAProxy", "get-50-pipelined-16", "throughput", "poolhouse", "haproxy", 1.0, True),
    ("bytes per idle client", IDLE, "bytes_per_client", "poolhouse", None, 1331, False),
]


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
    parser = argparse.ArgumentParser(prog="bench/redis_run.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, help="paired rounds (default 9; quick: 2)")
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument("--only", metavar="NAME", action="append", help="only these workloads: " + ", ".join([*WORKLOADS, *MIXES, IDLE]))
    parser.add_argument("--idle-clients", type=int, default=5000, help="clients of the memory measurement (default 5000)")
    parser.add_argument("--json", metavar="FILE", help="where the result goes")
    parser.add_argument("--render", metavar="FILE", help="measure nothing, print the tables of this result")
    options = parser.parse_args()
    options.rounds = options.rounds or (2 if options.quick else 9)
    return options


def measure(options):
    """The whole result."""
    descriptors = processes.raise_descriptor_limit()
    directory = processes.directory()
    free = cpu.idle_share()
    server = redis_rivals.Server(directory)
    targets = {name: kind(directory, server) for name, kind in redis_rivals.KINDS.items()}
    missing = [name for name, target in targets.items() if target.path() is None]
    for name in missing:
        say(f"{name} is not installed: left out")
        del targets[name]
    result = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["bench/redis_run.py", *(re.sub(r"^/.*", "FILE", word) for word in sys.argv[1:])]),
        "machine": machine() | {"free_before": round(free, 3), "descriptors": descriptors},
        "versions": {name: target.version() for name, target in targets.items()},
        "settings": {"rounds": options.rounds},
        "missing": missing,
        "runs": [],
    }
    for target in targets.values():
        target.start()
    names = list(targets)
    for workload in [name for name in [*WORKLOADS, *MIXES] if not options.only or name in options.only]:
        def one(number, name, workload=workload):
            run = mixed(targets[name], server, MIXES[workload], options.quick) if workload in MIXES else load(targets[name], server, WORKLOADS[workload], options.quick)
            say(f"round {number + 1:2} {workload:20} {name:10} {run['throughput']:8.0f}/s  cpu {run['cpu_us']:5.2f} us  Redis {run['redis_cpu_us']:5.2f} us")
            result["runs"].append({"round": number, "workload": workload, "target": name} | run)

        rounds.take_turns(names, options.rounds, one)
    if not options.only or IDLE in options.only:
        for name in ("poolhouse", "twemproxy"):
            if name in targets:
                run = idle(targets[name], options.idle_clients)
                say(f"{IDLE}: {name}: {run['bytes_per_client']:.0f} bytes per client")
                result["runs"].append({"round": 0, "workload": IDLE, "target": name} | run)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return result


def load(target, server, workload, quick):
    """One run of redis-benchmark."""
    clients, pipeline, requests, test = workload
    requests = requests // 3 if quick else requests
    before, redis_before = cpu.used(target.pid()), cpu.used(server.process.pid)
    command = ["redis-benchmark", "-p", target.port, "-c", clients, "-P", pipeline, "-n", requests, "-t", test, "-q"]
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    after, redis_after = cpu.used(target.pid()), cpu.used(server.process.pid)
    rate = re.findall(r"([\d.]+) requests per second", said)
    return {
        "throughput": float(rate[-1]),
        "cpu_us": (after - before) / requests * 1e6,
        "redis_cpu_us": (redis_after - redis_before) / requests * 1e6,
    }


def mixed(target, server, clients, quick):
    """One run of `poolhouse bench`."""
    seconds = MIX_SECONDS / 3 if quick else MIX_SECONDS
    command = [os.environ["POOLHOUSE"], "bench", f"redis://127.0.0.1:{target.port}", "--clients", clients, "--duration", f"{seconds * 1000:.0f}ms", "--writes", 1 / 11,
               "--keys", 10_000_000, "--value-size", 32, "--json", "-"]
    before, redis_before = cpu.used(target.pid()), cpu.used(server.process.pid)
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    after, redis_after = cpu.used(target.pid()), cpu.used(server.process.pid)
    measured = json.loads(said)
    requests = measured["requests"]
    return {
        "throughput": requests / seconds,
        "cpu_us": (after - before) / requests * 1e6,
        "redis_cpu_us": (redis_after - redis_before) / requests * 1e6,
    }


def idle(target, count):
    """Resident bytes per client that has asked something once and is idle now."""
    request, held = b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n", []

    def connect(number):
        for _ in range(number):
            connection = socket.create_connection(("127.0.0.1", target.port), 5)
            connection.sendall(request)
            connection.recv(64)
            held.append(connection)

    connect(100)
    before = cpu.resident(target.pid())
    connect(count)
    after = cpu.resident(target.pid())
    for connection in held:
        connection.close()
    return {"bytes_per_client": (after - before) / count}


def markdown(result):
    """The report."""
    runs, about = result["runs"], result["machine"]
    lines = [
        f"{result['date']}, `{result['command']}`: {result['settings']['rounds']} rounds, interleaved. {about['cpus']} x {about['cpu']}, "
        f"{about['memory_gb']} GB, Linux {about['kernel']}; proxy, Redis and redis-benchmark share it. "
        + "; ".join(f"{name}: {version}" for name, version in result["versions"].items()) + ".",
        "",
        *rounds.goals(runs, GOALS),
    ]
    lines += ["", "| workload | | requests/s | CPU us | Redis's CPU us |", "|-|-|-|-|-|"]
    for workload in [*WORKLOADS, *MIXES]:
        for target in redis_rivals.KINDS:
            medians = rounds.medians(runs, workload, target, ("throughput", "cpu_us", "redis_cpu_us"))
            if medians[0] is not None:
                lines.append(f"| {workload} | {target} | {medians[0]:.0f} | {medians[1]:.2f} | {medians[2]:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
