#!/usr/bin/env python3
"""What it costs that a server is clean when it changes hands: `reset = "auto"`, `"always"` and `"never"` beside each other, and the Poolhouse
named by BEFORE=path if there is one (which knows no "never").

    POOLHOUSE=target/release/poolhouse bench/reset.py --rounds 10 --json bench/results/reset.json

pgbench -S with 50 clients on a pool of 20, by the simple and the extended protocol and with prepared statements, and of clients with start-up settings; rounds are interleaved,
ratios are paired. Refuses to know what the policies do.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess

import processes
import stats
from cluster import DATABASE, USER, Cluster

POLICIES = ["never", "auto", "always"]
# "+start": of clients that bring the start-up settings that drivers bring (JDBC, psycopg, Rails).
PROTOCOLS = ["simple", "extended", "prepared", "simple+start", "prepared+start"]
START = {"PGDATESTYLE": "ISO", "PGTZ": "Europe/Berlin", "PGCLIENTENCODING": "UTF8", "PGAPPNAME": "bench",
         "PGOPTIONS": "-c extra_float_digits=3 -c intervalstyle=iso_8601"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--protocols", default=",".join(PROTOCOLS))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    binary = os.environ.get("POOLHOUSE", "target/release/poolhouse")
    sides = {policy: (binary, policy) for policy in POLICIES}
    if before := os.environ.get("BEFORE"):
        sides["before"] = (before, "auto")
    directory = processes.directory()
    try:
        result = measure(options, sides, directory)
    finally:
        processes.stop_all()
        shutil.rmtree(directory, ignore_errors=True)
    for protocol, rows in result["ratios"].items():
        for name, row in rows.items():
            low, high = row["interval"] or (0, 0)
            print(f"{protocol:14} {name:18} {row['median']:.3f} [{low:.3f}, {high:.3f}] of the throughput of never")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def measure(options, sides, directory):
    cluster = Cluster(directory, 10)
    ports = {name: start(directory, cluster, name, *side) for name, side in sides.items()}
    rates = {protocol: {name: {} for name in sides} for protocol in options.protocols.split(",")}
    chance = random.Random(1)
    for number in range(options.rounds):
        for protocol in rates:
            for name in chance.sample(list(sides), len(sides)):
                rates[protocol][name][number] = pgbench(cluster, ports[name], protocol, options)
    ratios = {
        protocol: {name: stats.summary(stats.paired_ratios(values, by_name["never"])) for name, values in by_name.items() if name != "never"}
        for protocol, by_name in rates.items()
    }
    medians = {p: {n: stats.median(list(v.values())) for n, v in by.items()} for p, by in rates.items()}
    version = subprocess.run([sides["auto"][0], "--version"], capture_output=True, text=True).stdout.strip()
    return {"command": "bench/reset.py", "poolhouse": version, "machine": os.uname().release, "cpus": os.cpu_count(), "clients": options.clients,
            "rounds": options.rounds, "seconds": options.seconds, "transactions_a_second": medians, "ratios": ratios}


def start(directory, cluster, name, binary, policy):
    port = processes.free_port()
    config = pathlib.Path(directory) / f"{name}.toml"
    config.write_text(f'[[listener]]\nprotocol = "postgres"\nlisten = "127.0.0.1:{port}"\n\n[[database]]\nname = "{DATABASE}"\n'
                      f'url = "postgres://{USER}@127.0.0.1:{cluster.port}/{DATABASE}"\nmax_size = 20\nmin_size = 20\nreset = "{policy}"\n')
    config.chmod(0o644)
    log = os.path.join(directory, f"{name}.log")
    processes.start([binary, "serve", "--config", str(config)], log)
    processes.wait_until(lambda: pgbench(cluster, port, "simple", argparse.Namespace(clients=20, seconds=1)), 20)
    return port


def pgbench(cluster, port, protocol, options):
    """Transactions a second; None if it did not run."""
    protocol, _, started = protocol.partition("+")
    command = [cluster.program("pgbench"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-n", "-S", "-M", protocol, "-c", str(options.clients),
               "-j", "2", "-T", str(options.seconds), DATABASE]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(START if started else {})})
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    return float(found[1]) if done.returncode == 0 and found else None


if __name__ == "__main__":
    main()
