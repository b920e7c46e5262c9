#!/usr/bin/env python3
"""`max_size = "auto"` beside the fixed default of 20 on a real PostgreSQL, with a row that everybody wants and with selects.

    POOLHOUSE=target/release/poolhouse bench/tuning.py --json bench/results/tuning.json

Two Poolhouses serve one database, one with each setting; only one is under load at a time. First the tuned one gets load until it says
that it has found its size, or for `--search` minutes. Then both are measured in turn, in an order drawn anew each round, and the ratios of
the rounds are judged by the bootstrap interval of their median: "worse" or "better" only if it leaves out 1, else "inconclusive". Refuses
to know how a size is chosen.
"""

import argparse
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import urllib.request

import processes
import stats
from cluster import DATABASE, USER, Cluster
from run import machine

SCRIPTS = {
    "row-lock": "BEGIN;\nUPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;\nSELECT 1;\nEND;\n",
    "select-only": "\\set aid random(1, 100000 * :scale)\nSELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n",
}
SIZES = {"auto": 'max_size = "auto"', "fixed": "max_size = 20"}
# How long the tuned one gets load at a time while it searches.
SPELL = 30


def main():
    options = arguments()
    directory = processes.directory()
    try:
        cluster = Cluster(directory, options.scale)
        judged = []
        for name in options.scripts:
            judged.append(judge(directory, cluster, name, options))
            write(options.json, judged, cluster.version())
    finally:
        processes.stop_all()
    print("| script | size found | after | changes while measured | auto / fixed | interval | verdict |\n|-|-|-|-|-|-|-|")
    for row in judged:
        low, high = row["ratio"]["interval"] or (0, float("inf"))
        found = f"{row['size']}" if row["found"] else f"{row['size']} (still searching)"
        print(f"| {row['script']} | {found} | {row['searched_s'] / 60:.1f} min | {row['changes']} | {row['ratio']['median']:.3f} |"
              f" [{low:.3f}, {high:.3f}] | {row['verdict']} |")
    return 1 if any(row["verdict"] == "worse" for row in judged) else 0


def arguments():
    parser = argparse.ArgumentParser(prog="bench/tuning.py", description=__doc__.split("\n", 1)[0])
    option = parser.add_argument
    option("--scripts", nargs="+", choices=list(SCRIPTS), default=list(SCRIPTS), help="which loads (default: all)")
    option("--search", type=float, default=30, help="minutes at most for the search (default 30)")
    option("--rounds", type=int, default=20, help="paired rounds (default 20)")
    option("--seconds", type=int, default=5, help="measured seconds of each run (default 5)")
    option("--clients", type=int, default=50, help="clients (default 50)")
    option("--scale", type=int, default=10, help="pgbench scale (default 10)")
    option("--window", default="4s", help="auto_window (default 4s)")
    option("--json", type=pathlib.Path, help="where the result goes")
    return parser.parse_args()


def judge(directory, cluster, name, options):
    """The search, and the paired rounds."""
    script = os.path.join(directory, f"{name}.sql")
    with open(script, "w") as file:
        file.write(SCRIPTS[name])
    served = {arm: start(directory, cluster, f"{name}-{arm}", size, options) for arm, size in SIZES.items()}
    admin = served["auto"][1]
    began = time.monotonic()
    load(cluster, served["auto"][0], script, SPELL, options)
    while not has_found(admin) and time.monotonic() - began < 60 * options.search:
        load(cluster, served["auto"][0], script, SPELL, options)
    searched, found, before = time.monotonic() - began, has_found(admin), tuning(admin)[0]["changes"]
    runs = {arm: {} for arm in SIZES}
    chance = random.Random(1)
    for number in range(options.rounds):
        for arm in chance.sample(list(SIZES), len(SIZES)):
            runs[arm][number] = load(cluster, served[arm][0], script, options.seconds, options)
            print(f"{name} round {number} {arm} {runs[arm][number]}", file=sys.stderr, flush=True)
    ratio = stats.summary(stats.paired_ratios(runs["auto"], runs["fixed"]))
    now, size = tuning(admin)
    for _, _, process in served.values():
        processes.stop(process)
    return {"script": name, "found": found, "size": size, "searched_s": searched, "changes": now["changes"] - before, "steps": now["steps"],
            "last": now["last"], "ratio": ratio, "verdict": verdict(ratio["interval"]), "tps": runs}


def write(file, judged, version):
    """What has been judged so far, if a file is wanted."""
    if file:
        result = {"command": " ".join(["bench/tuning.py", *sys.argv[1:]]), "machine": machine(), "PostgreSQL": version, "judged": judged}
        file.write_text(json.dumps(result, indent=1) + "\n")


def verdict(interval):
    if not interval or interval[0] <= 1 <= interval[1]:
        return "inconclusive"
    return "better" if interval[0] > 1 else "worse"


def start(directory, cluster, name, size, options):
    """A Poolhouse: its port, its admin port and its process."""
    port, admin = processes.free_port(), processes.free_port()
    config = pathlib.Path(directory) / f"{name}.toml"
    window = f'auto_window = "{options.window}"\n' if "auto" in size else ""
    config.write_text(f'[admin]\nlisten = "127.0.0.1:{admin}"\n\n[[listener]]\nprotocol = "postgres"\nlisten = "127.0.0.1:{port}"\n\n'
                      f'[[database]]\nname = "{DATABASE}"\nurl = "postgres://{USER}@127.0.0.1:{cluster.port}/{DATABASE}"\n{size}\n{window}'
                      'max_wait_time = "30s"\n')
    config.chmod(0o644)
    binary = os.environ.get("POOLHOUSE", "target/release/poolhouse")
    process = processes.start([binary, "serve", "--config", str(config)], os.path.join(directory, f"{name}.log"))
    script = os.path.join(directory, "one.sql")
    with open(script, "w") as file:
        file.write("SELECT 1;\n")
    processes.wait_until(lambda: load(cluster, port, script, 1, argparse.Namespace(clients=20, scale=1)), 20, process)
    return port, admin, process


def tuning(admin):
    """What the tuned one says, and the size that it has."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/pools", timeout=5) as answer:
        (pool,) = json.load(answer)["pools"]
    return pool["tuning"], pool["max_size"]


def has_found(admin):
    return tuning(admin)[0]["state"] in ("found", "probing")


def load(cluster, port, script, seconds, options):
    """Transactions a second; None if it did not run."""
    command = [cluster.program("pgbench"), "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-n", "-f", script, "-D", f"scale={options.scale}",
               "-c", str(options.clients), "-j", "2", "-T", str(seconds), DATABASE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    return float(found[1]) if done.returncode == 0 and found else None


if __name__ == "__main__":
    sys.exit(main())
