#!/usr/bin/env python3
"""Two builds of Poolhouse beside each other: CPU time per transaction or request, throughput, and memory per idle client. What a change to
the structure has cost.

    bench/builds.py BEFORE AFTER --rounds 10 --json result.json

Both serve the same PostgreSQL (pgbench: simple, extended, prepared, TPC-B; 50 clients on 20 servers) and the same Redis (redis-benchmark GET).
Rounds are interleaved, ratios are paired: AFTER of BEFORE. Refuses to know what the change was.
"""

import argparse
import json
import os
import pathlib
import random
import re
import resource
import shutil
import socket
import subprocess

import cpu
import processes
import stats
from cluster import DATABASE, USER, Cluster

PGBENCH = {
    "simple": ["-S", "-M", "simple"],
    "extended": ["-S", "-M", "extended"],
    "prepared": ["-S", "-M", "prepared"],
    "tpcb": ["-M", "simple"],
}
IDLE = 2000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--only", default=",".join([*PGBENCH, "redis", "idle"]), help="which of simple,extended,prepared,tpcb,redis,idle")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    directory = processes.directory()
    try:
        result = measure(options, {"before": options.before, "after": options.after}, directory)
    finally:
        processes.stop_all()
        shutil.rmtree(directory, ignore_errors=True)
    for name, row in result["ratios"].items():
        low, high = row["interval"] or (0, 0)
        print(f"{name:22} {row['median']:.3f} [{low:.3f}, {high:.3f}] of before, {row['n']} pairs")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(options, sides, directory):
    works = options.only.split(",")
    cluster = Cluster(directory, 10)
    redis = processes.free_port()
    processes.start(["redis-server", "--port", str(redis), "--save", "", "--daemonize", "no"], os.path.join(directory, "redis.log"))
    served = {name: start(directory, cluster, redis, name, binary) for name, binary in sides.items()}
    found = {}
    chance = random.Random(1)
    for number in range(options.rounds):
        for work in works:
            for name in chance.sample(list(sides), len(sides)):
                for what, value in run(work, cluster, served[name], options.seconds).items():
                    found.setdefault(f"{work} {what}", {}).setdefault(name, {})[number] = value
    return {
        "command": "bench/builds.py",
        "machine": os.uname().release,
        "cpus": os.cpu_count(),
        "medians": {key: {name: stats.median(list(values.values())) for name, values in sides.items()} for key, sides in found.items()},
        "ratios": {key: stats.summary(stats.paired_ratios(sides["after"], sides["before"])) for key, sides in found.items()},
    }


def start(directory, cluster, redis, name, binary):
    """Starts one process for PostgreSQL and one for Redis: (port, pid) of each."""
    served = {}
    for protocol, url, sizes in [
        ("postgres", f"postgres://{USER}@127.0.0.1:{cluster.port}/{DATABASE}", "max_size = 20\nmin_size = 20\n"),
        ("redis", f"redis://127.0.0.1:{redis}", ""),
    ]:
        port = processes.free_port()
        config = pathlib.Path(directory) / f"{name}-{protocol}.toml"
        name_of = f'name = "{DATABASE}"\n' if protocol == "postgres" else ""
        config.write_text(f'[[listener]]\nprotocol = "{protocol}"\nlisten = "127.0.0.1:{port}"\n\n[[database]]\n{name_of}url = "{url}"\n{sizes}')
        config.chmod(0o644)
        process = processes.start([binary, "serve", "--config", str(config)], os.path.join(directory, f"{name}-{protocol}.log"))
        processes.wait_until(lambda port=port: answers(port), 20)
        served[protocol] = (port, process.pid)
    return served


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def run(work, cluster, served, seconds):
    """What one round shows of one side."""
    port, pid = served["redis" if work == "redis" else "postgres"]
    if work == "idle":
        return {"bytes per client": idle(port, pid)}
    used = spent(pid)
    if work == "redis":
        command = ["redis-benchmark", "-p", str(port), "-t", "get", "-c", "50", "-n", str(40_000 * seconds), "--csv"]
    else:
        command = [cluster.program("pgbench"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-n", "-c", "50", "-j", "2", "-T", str(seconds)]
        command += [*PGBENCH[work], DATABASE]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    if work == "redis":
        rate, count = float(re.search(r'"GET","([0-9.]+)"', said)[1]), 40_000 * seconds
    else:
        rate, count = float(re.search(r"tps = ([0-9.]+)", said)[1]), int(re.search(r"actually processed: ([0-9]+)", said)[1])
    return {"rate": rate, "CPU": (spent(pid) - used) / count}


def spent(pid):
    return sum(cpu.threads(pid).values())


def idle(port, pid):
    """Resident bytes that an idle client costs."""
    before = cpu.resident(pid)
    body = b"".join(word.encode() + b"\0" for word in ("user", USER, "database", DATABASE)) + b"\0"
    hello = (len(body) + 8).to_bytes(4, "big") + (3 << 16).to_bytes(4, "big") + body
    clients = []
    for _ in range(IDLE):
        client = socket.create_connection(("127.0.0.1", port), 10)
        client.sendall(hello)
        clients.append(client)
    for client in clients:
        said = b""
        while not said.endswith(b"Z\0\0\0\5I"):
            part = client.recv(65536)
            assert part, f"refused: {said!r}"
            said += part
    cost = (cpu.resident(pid) - before) / IDLE
    for client in clients:
        client.close()
    return cost


if __name__ == "__main__":
    main()
