#!/usr/bin/env python3
"""`make bench-mongodb`: Poolhouse in front of MongoDB beside nothing and HAProxy, in the same run, interleaved.

    bench/mongodb_run.py --quick             a minute, to see that everything works
    bench/mongodb_run.py                     the whole, about ten minutes
    bench/mongodb_run.py --render FILE       the tables of an earlier run

`POOLHOUSE` names the executable, `RESPONDER` the server: a fast one that answers like a MongoDB with nothing to do
(crates/pooler/mongodb-session/examples/responder.rs), so that what lies between shows. The load is `poolhouse bench`'s. CPU time is
that of the whole process, per request.
"""

import argparse
import datetime
import json
import os
import re
import socket
import struct
import subprocess
import sys

import cpu
import processes
import rivals
import rounds
from run import machine, say

# Name: clients, the flags of `poolhouse bench`. Seconds of each run.
FIND = ("--command", '{"find": "readings", "filter": {"_id": 1}, "limit": 1}')
WORKLOADS = {
    "ping-20": (20, ()),
    "find-20": (20, FIND),
    "find-200": (200, FIND),
    "find-1": (1, FIND),
}
# More clients than a forwarder of bytes could serve with so few connections.
MANY, SERVERS = "find-10000", 20
MANY_CLIENTS = 10_000
SECONDS = 3
IDLE = "idle"
# Arrivals by the clock, at this share of what one closed loop reaches directly.
OPEN, OPEN_SHARE = "find-open", 0.3

# Text, workload, field, of whom, in relation to whom, limit, whether that is the least.
GOALS = [
    ("CPU per request beside HAProxy", "ping-20", "cpu_us", "poolhouse", "haproxy", 1.3, False),
    ("CPU per request beside HAProxy", "find-20", "cpu_us", "poolhouse", "haproxy", 1.3, False),
    ("CPU per request beside HAProxy, on 20 connections to the server", "find-200", "cpu_us", "poolhouse", "haproxy", 1.3, False),
    ("throughput beside HAProxy", "find-20", "throughput", "poolhouse", "haproxy", None, True),
    ("throughput beside direct, 10,000 clients on 20 connections beside 20 clients", MANY, "throughput", "poolhouse", "direct", None, True),
    ("added latency at the median, us", "find-1", "added_us", "poolhouse", None, 100, False),
    ("the same of HAProxy, for comparison", "find-1", "added_us", "haproxy", None, None, False),
    ("added latency at the median in an open loop, us", OPEN, "added_us", "poolhouse", None, 100, False),
    ("the same of HAProxy, for comparison", OPEN, "added_us", "haproxy", None, None, False),
    ("bytes per idle client", IDLE, "bytes_per_client", "poolhouse", None, 1536, False),
]


class Responder:
    """A fast server."""

    def __init__(self, directory):
        self.port = processes.free_port()
        self.process = processes.start([self.path(), str(self.port)], f"{directory}/responder.log")
        if not processes.wait_until(lambda: answers(self.port), 10, self.process):
            raise RuntimeError("the responder does not answer")

    def path(self):
        """The executable."""
        return os.environ["RESPONDER"]

    def version(self):
        """What it calls itself."""
        return "the fast responder"


def ping():
    """An OP_MSG."""
    body = b"\x10ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0"
    body = struct.pack("<i", len(body) + 4) + body
    return struct.pack("<iiiii", 21 + len(body), 1, 0, 2013, 0) + b"\0" + body


def answers(port):
    """Whether MongoDB, or what stands for it, answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(ping())
            return b"ok\0" in connection.recv(200)
    except OSError:
        return False


class OfMongoDb:
    """How it is seen that MongoDB answers through something."""

    def answers(self):
        return answers(self.port)


class Poolhouse(OfMongoDb, rivals.Poolhouse):
    """One worker, as by default."""

    scheme = "mongodb"
    options = ("--max-size", str(SERVERS))


class HAProxy(OfMongoDb, rivals.HAProxy):
    """Forwards bytes."""


KINDS = {kind.name: kind for kind in (rivals.Direct, Poolhouse, HAProxy)}


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
    parser = argparse.ArgumentParser(prog="bench/mongodb_run.py", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, help="paired rounds (default 9; quick: 2)")
    parser.add_argument("--quick", action="store_true", help="few and short rounds")
    parser.add_argument("--only", metavar="NAME", action="append", help="only these workloads: " + ", ".join([*WORKLOADS, MANY, OPEN, IDLE]))
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
    server = Responder(directory)
    targets = {name: kind(directory, server) for name, kind in KINDS.items()}
    missing = [name for name, target in targets.items() if target.path() is None]
    for name in missing:
        say(f"{name} is not installed: left out")
        del targets[name]
    result = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["bench/mongodb_run.py", *(re.sub(r"^/.*", "FILE", word) for word in sys.argv[1:])]),
        "machine": machine() | {"free_before": round(free, 3), "descriptors": descriptors},
        "versions": {name: target.version() for name, target in targets.items()},
        "settings": {"rounds": options.rounds},
        "missing": missing,
        "runs": [],
    }
    for target in targets.values():
        target.start()
    seconds = SECONDS / 3 if options.quick else SECONDS
    # Before any load: what memory that has left free would not be counted.
    if not options.only or IDLE in options.only:
        run = idle(targets["poolhouse"], 2000 if options.quick else 10_000)
        say(f"{IDLE}: {run['bytes_per_client']:.0f} bytes per client")
        result["runs"].append({"round": 0, "workload": IDLE, "target": "poolhouse"} | run)

    def runs(workload, clients_of, flags, names=tuple(targets)):
        def one(number, name):
            run = load(targets[name], clients_of(name), flags, seconds)
            say(f"round {number + 1:2} {workload:12} {name:10} {run['throughput']:8.0f}/s  cpu {run['cpu_us']:5.2f} us  p50 {run['p50_us']:5.0f} us")
            result["runs"].append({"round": number, "workload": workload, "target": name} | run)

        if not options.only or workload in options.only:
            rounds.take_turns(list(names), options.rounds, one)
            add_latency(result["runs"], workload)

    for workload, (clients, flags) in WORKLOADS.items():
        runs(workload, lambda _, clients=clients: clients, flags)
    runs(MANY, lambda name: SERVERS if name == "direct" else MANY_CLIENTS, FIND, [name for name in targets if name != "haproxy"])
    if not options.only or OPEN in options.only:
        rate = load(targets["direct"], 1, FIND, seconds)["throughput"] * OPEN_SHARE
        runs(OPEN, lambda _: None, ("--rate", f"{rate:.0f}", "--max-size", 20, "--min-size", 20, *FIND))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return result


def load(target, clients, flags, seconds):
    """One run of `poolhouse bench`."""
    many = () if clients is None else ("--clients", clients)
    command = [os.environ["POOLHOUSE"], "bench", f"mongodb://127.0.0.1:{target.port}", *many, "--duration", f"{seconds * 1000:.0f}ms", *flags, "--json", "-"]
    before = cpu.used(target.pid())
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout
    after = cpu.used(target.pid())
    measured = json.loads(said)
    assert measured["errors"] == {}, measured["errors"]
    requests = measured["requests"]
    return {
        "throughput": requests / seconds,
        "cpu_us": (after - before) / requests * 1e6,
        "p50_us": measured["response_ms"]["p50"] * 1000,
    }


def add_latency(runs, workload):
    """How much later than directly answers came at the median."""
    for run in [run for run in runs if run["workload"] == workload and run["target"] != "direct"]:
        direct = rounds.by_round(runs, workload, "direct", "p50_us").get(run["round"])
        if direct is not None:
            run["added_us"] = run["p50_us"] - direct


def idle(target, count):
    """Resident bytes per client that has asked something once and is idle now."""
    held = []

    def connect(number):
        for _ in range(number):
            connection = socket.create_connection(("127.0.0.1", target.port), 5)
            connection.sendall(ping())
            connection.recv(200)
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
        f"{about['memory_gb']} GB, Linux {about['kernel']}; proxy, server and load share it. "
        + "; ".join(f"{name}: {version}" for name, version in result["versions"].items()) + ".",
        "",
        *rounds.goals(runs, GOALS),
        "",
        "| workload | | requests/s | CPU us | p50 us |",
        "|-|-|-|-|-|",
    ]
    for workload in [*WORKLOADS, MANY, OPEN]:
        for target in KINDS:
            throughput, used_us, p50 = rounds.medians(runs, workload, target, ("throughput", "cpu_us", "p50_us"))
            if throughput is not None:
                lines.append(f"| {workload} | {target} | {throughput:.0f} | {used_us:.2f} | {p50:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
