#!/usr/bin/env python3
"""What believing `poolhouse sweep` costs on a real PostgreSQL: the regret, 1 - throughput at the number it found / throughput at the best
number of an exhaustive sweep, both measured again, in turn. Beside it what rules of thumb lose.

    bench/regret.py                           about an hour; the result goes to bench/results/
    bench/regret.py --scripts row-lock --again 5 --point-time 1     a short look

The exhaustive sweep measures each of some thirty numbers of clients as often and as long as the sweep may measure one; only time of
measuring counts, for both. The rules: 2 x CPUs + 1; CPUs x utilisation x factor (0.8 x 15, which meets the published case of 32
CPUs); a driver's 10; the peak of the Universal Scalability Law, as the sweep fitted it. Refuses to know how a sweep chooses.
"""

import argparse
import datetime
import json
import os
import random
import subprocess
import sys
import tempfile

import cpu
import processes
import stats
from cluster import DATABASE, USER, Cluster
from generator import binary
from run import machine

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = {
    "select-only": ["--select-only"],
    "tpcb-like": ["--tpcb-like"],
    "row-lock": "BEGIN;\nUPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;\nSELECT 1;\nEND;\n",
    "pg_sleep": "SELECT pg_sleep(0.005);\n",
}
UTILISATION, FACTOR, FIXED = 0.8, 15, 10
PATIENCE = 3600


def main():
    """Judges each script and writes the table."""
    options = arguments()
    free = cpu.idle_share()
    cluster = Cluster(processes.directory(), options.scale)
    try:
        judged = [judge(cluster, name, options) for name in options.scripts]
        version = cluster.version()
    finally:
        cluster.stop()
    result = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["bench/regret.py", *sys.argv[1:]]),
        "machine": machine() | {"free_before": round(free, 3)},
        "PostgreSQL": version,
        "judged": judged,
    }
    print(table(judged))
    if options.json != "-":
        with open(options.json, "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
    return 0


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/regret.py", description=__doc__.split("\n", 1)[0])
    option = parser.add_argument
    option("--scripts", nargs="+", choices=list(SCRIPTS), default=list(SCRIPTS), help="which loads (default: all)")
    option("--to", type=int, default=64, help="most clients (default 64)")
    option("--scale", type=int, default=64, help="pgbench scale (default 64)")
    option("--rounds", type=int, default=5, help="times each number is measured at most (default 5)")
    option("--point-time", type=int, default=2, help="seconds of each measurement (default 2)")
    option("--again", type=int, default=15, help="paired measurements of the numbers that are compared (default 15)")
    option("--seed", type=int, default=1, help="of the order")
    option("--json", metavar="FILE", default=os.path.join(HERE, "results", f"regret-postgres-{datetime.date.today()}.json"),
           help="where the result goes; - is nowhere")
    return parser.parse_args()


def numbers(most):
    """Some thirty numbers of clients: each of the first sixteen, then in equal steps of the logarithm."""
    found, value = set(range(1, min(most, 16) + 1)), 16.0
    while value < most:
        found.add(round(value))
        value *= 1.09
    return sorted(found | {most})


def judge(cluster, name, options):
    """One sweep, one exhaustive sweep, and the numbers of both measured again."""
    load, file = SCRIPTS[name], None
    if isinstance(load, str):
        with tempfile.NamedTemporaryFile("w", suffix=".sql", delete=False) as script:
            script.write(load)
        file, load = script.name, ["--script", script.name]
    target = [f"postgres://{USER}@127.0.0.1:{cluster.port}/{DATABASE}?sslmode=disable", *load, "--schema", "public",
              "--scale", str(options.scale)]
    try:
        swept = asked(["sweep", *target, "--clients", f"1..{options.to}", "--rounds", str(options.rounds), "--point-time",
                       f"{options.point_time}s", "--seed", str(options.seed), "--json", "-"])
        verdict = swept["verdict"]
        chance = random.Random(options.seed)
        seen = {clients: [] for clients in numbers(options.to)}
        for number in range(options.rounds):
            for clients in chance.sample(sorted(seen), len(seen)):
                seen[clients].append(throughput(target, clients, options, number))
        best = max(seen, key=lambda clients: stats.median(seen[clients]))
        fit = swept["direct"]["fit"] or {}
        cpus = os.cpu_count()
        chosen = {
            "best": best,
            "found": verdict["best_clients"],
            "recommended": verdict["recommended_clients"],
            "2 x CPUs + 1": 2 * cpus + 1,
            "CPUs x use x factor": round(cpus * UTILISATION * FACTOR),
            "always 10": FIXED,
            "law alone": round(fit["peak_clients"]) if fit.get("peak_clients") else options.to,
        }
        chosen = {what: max(1, min(options.to, clients)) for what, clients in chosen.items()}
        again = {clients: [] for clients in sorted(set(chosen.values()))}
        for number in range(options.again):
            for clients in chance.sample(sorted(again), len(again)):
                again[clients].append(throughput(target, clients, options, 100 + number))
    finally:
        if file:
            os.unlink(file)
    regret = {what: lost(again[clients], again[best]) for what, clients in chosen.items()}
    visits = swept["direct"]["effort"]["visits"]
    return {"script": name, "chosen": chosen, "regret": regret, "visits": visits, "bracketed": verdict["bracketed"],
            "time": visits / (len(seen) * options.rounds), "exhaustive": seen, "again": again}


def lost(mine, best):
    """The share that is lost, pair by pair: of each pair the two were measured seconds apart, and the machine changes more slowly."""
    return 1 - stats.median([one / other for one, other in zip(mine, best, strict=True)])


def throughput(target, clients, options, seed):
    """One measurement."""
    result = asked(["bench", *target, "--clients", str(clients), "--duration", f"{options.point_time}s", "--warmup", "1s",
                    "--seed", str(seed), "--json", "-"])
    return result["finished"] / result["duration_s"]


def asked(command):
    """What a verb answers, as JSON."""
    done = subprocess.run([binary(), *command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                          timeout=PATIENCE)
    if done.returncode != 0:
        raise SystemExit(f"bench: {command[0]} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def table(judged):
    """For people."""
    names = list(judged[0]["chosen"])
    lines = ["| script | " + " | ".join(names) + " | time |", "|-" * (len(names) + 2) + "|"]
    for one in judged:
        cells = [f"{one['chosen'][name]} ({one['regret'][name]:.1%})" for name in names]
        lines.append(f"| {one['script']} | " + " | ".join(cells) + f" | {one['time']:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
