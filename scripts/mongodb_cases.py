#!/usr/bin/env python3
"""The published cases (1 churn, 3 functions, 4 a pool of pools, 5 exhaustion) with MongoDB, with a real service, driver and server: the
trouble, the published cure, and the same through Poolhouse. Prints a report in Markdown.

    scripts/mongodb_cases.py                 less than eight minutes
    scripts/mongodb_cases.py --quick         in about a minute, to see that everything works
    scripts/mongodb_cases.py --full          with steps of a minute, as published
    scripts/mongodb_cases.py --only 4        one case

`POOLHOUSE` names the executable. The service is examples/telemetry with the official Java driver, the server mongo-java-server in memory;
between it and what connects to it is a network of our own that takes time, stalls, and lets in only so many connections.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import mongodb_functions
import mongodb_report
import telemetry_chain
from telemetry_chain import Chain, acknowledged, errors, made

from support import pooler
from support.java_programs import lacking
from support.mongodb_server import JavaServer

# A reading takes this long at the database, in seconds; and TLS and a login, when a connection is opened.
DATACENTRE = {"latency": 0.005, "opening": 0.05}
# Case 5: a fifth of the published rates and pools, so that pool and stall meet at 100/s: 20 connections / 200 ms.
RATES = [20, 60, 100, 160, 200]
STALL = 0.2
# Nearly what 40 connections can do in the stall.
HARD_RATE = 180
# Case 4.
DRIVERS, LIMIT = 50, 40
# Case 1: a burst of finds, of a sensor with so many readings.
BURST, READINGS = 50, 10


class Sizes:
    """How long everything takes, and which forms of a case are left out."""

    def __init__(self, options):
        # Operations of a warm-up; seconds of a step of case 5, of the stall in it, and of the longer stall.
        self.warm_up, self.step, self.stall, self.hard = 1500, 6, 2.0, 12
        # Case 4: requests, and milliseconds until the driver gives up.
        self.requests, self.patience = 1000, 5000
        # Case 1: bursts, seconds before each, and how many seconds of the published experiment one stands for.
        self.rounds, self.idle, self.compression = {"at_once": 3, "one_by_one": 2}, 2.5, 120
        # Case 3: functions that are frozen, and how many seconds of the published account one stands for; functions that arrive in a second,
        # for how many seconds, connections that are let in, and the least that one is idle before it is sent away.
        self.functions, self.freeze_compression = 6, 20
        self.flood_rate, self.flood_seconds, self.flood_limit, self.flood_min_idle = 40, 15, 200, "500ms"
        self.without = ()
        if options.quick:
            self.warm_up, self.step, self.stall, self.hard = 200, 1, 0.4, 0
            self.requests, self.patience = 300, 1000
            self.rounds, self.idle, self.compression = {"at_once": 1, "one_by_one": 1}, 1.0, 300
            self.functions, self.freeze_compression, self.flood_seconds, self.flood_limit = 2, 30, 5, 80
            self.without = ("size", "as published", "min 10", "no idle limit", "no limit")
        if options.full:
            self.step, self.rounds, self.idle, self.compression = 60, {"at_once": 4, "one_by_one": 4}, 60.0, 5
            self.freeze_compression, self.flood_rate, self.flood_seconds, self.flood_min_idle = 1, 4, 150, "5s"

    def chosen(self, forms):
        return {name: form for name, form in forms.items() if name not in self.without}


# -- case 5


def exhaustion(directory, server, sizes):
    """An open-loop ramp with a stall in each step."""
    forms = {
        "trouble": (pool(20, 20, wait=5000), None),
        "size": (pool(40, 40, wait=5000), None),
        "as published": (pool(40, 6, wait=2000, idle=300_000), None),
        # The service's own pool is large, as nobody thought about it; the database has the 40.
        "poolhouse": (pool(200, 0, wait=5000), {"max_size": 40, "min_size": 40}),
    }
    rows, first = {}, sizes.step * 0.6
    for name, (driver, poolhouse) in sizes.chosen(forms).items():
        progress(f"case 5, {name}")
        with Chain(directory, server, driver, poolhouse=poolhouse, network=DATACENTRE) as chain:
            chain.wait_for_minimum()
            chain.warm_up(10, sizes.warm_up)
            stages = [f"{sizes.step}s:{low}..{high}" for low, high in zip([RATES[0], *RATES], RATES)]
            chain.relay.begin([(first + sizes.step * number, sizes.stall) for number in range(len(RATES))], STALL)
            result = chain.post(*(part for stage in stages for part in ("--stage", stage)), "--min-size", 20)
            rows[name] = {"steps": [step(part) for part in result["steps"]], "processors": result["processors"], **kept(chain, result)}
            if sizes.hard and name != "as published":
                rows[name]["hard"] = harder(chain, sizes)
            rows[name]["failed_check_outs"] = chain.driver_counts()["failed_check_outs"]
    return {"step_s": sizes.step, "stall_s": sizes.stall, "forms": rows}


def harder(chain, sizes):
    """A stall of the same 200 ms that lasts nearly as long as the load, so that requests wait for more than the 5 s that the driver waits."""
    clear(chain)
    chain.relay.begin([(1, sizes.hard)], STALL)
    result = chain.post("--rate", HARD_RATE, "--duration", f"{sizes.hard + 1}s", "--min-size", 20)
    return {"stall_s": sizes.hard, "rate": HARD_RATE, **step(result), **kept(chain, result)}


# -- case 4


def pool_of_pools(directory, server, sizes):
    """1000 requests, one at a time and 50 at a time, against a server that lets in 40 connections."""
    patience = [f"{name}={sizes.patience}" for name in ("serverSelectionTimeoutMS", "waitQueueTimeoutMS")]
    driver, limit = [*pool(10, 4), *patience], {"limit": LIMIT}
    keyed = ["--pool-of-pools", "--drivers", str(DRIVERS)]
    forms = {
        "no limit": (keyed, None, {}),
        "trouble": (keyed, None, limit),
        "published": ([], None, limit),
        "poolhouse": (keyed, {"max_size": 20}, limit),
    }
    rows = {}
    for name, (service, poolhouse, limited) in sizes.chosen(forms).items():
        progress(f"case 4, {name}")
        with Chain(directory, server, driver, service, poolhouse, {"latency": 0.002, "opening": 0.02, **limited}) as chain:
            chain.warm_up(1, sizes.warm_up // 2)
            rows[name] = []
            # The last once more: does it recover, if it must?
            for clients in (1, 50, 50):
                clear(chain)
                chain.relay.begin()
                result = chain.post("--clients", clients, "--operations", sizes.requests, "--duration", "150s")
                rows[name].append({"clients": clients, **step(result), "per_s": result["requests"] / result["duration_s"],
                                   "processors": result["processors"], **kept(chain, result), "relay": chain.relay.figures()})
            if chain.poolhouse:
                rows[name][-1]["at_poolhouse"] = chain.clients_of_poolhouse()
                rows[name][-1]["servers"] = chain.servers_of_poolhouse()
    return {"patience_ms": sizes.patience, "requests": sizes.requests, "drivers": DRIVERS, "limit": LIMIT, "forms": rows}


# -- case 1


def churn(directory, server, sizes):
    """Bursts of finds after an idle time that is five times the driver's idle limit."""
    limit = round(60_000 / sizes.compression)
    five_minutes = round(300_000 / sizes.compression)
    # Idle and life time as in the published cure.
    settings = {"max_size": 50, "min_size": 20, "max_idle_time": f"{five_minutes}ms", "max_life_time": f"{6 * five_minutes}ms"}
    forms = {
        "min 0": (pool(100, 0, idle=limit), None),
        "min 10": (pool(100, 10, idle=limit), None),
        "min 30": (pool(100, 30, idle=limit), None),
        "as published": (pool(200, 20, wait=2000, idle=five_minutes) + [f"maxLifeTimeMS={6 * five_minutes}"], None),
        # The driver closes what is idle below its minimum, too, and opens it again: a pool that is to keep its connections has no limit.
        "no idle limit": (pool(200, 20, wait=2000), None),
        "poolhouse": (pool(100, 0, idle=limit), settings),
    }
    rows = {}
    for name, (driver, poolhouse) in sizes.chosen(forms).items():
        progress(f"case 1, {name}")
        with Chain(directory, server, driver, ["--maintenance-ms", str(limit)], poolhouse, DATACENTRE) as chain:
            chain.wait_for_minimum()
            chain.warm_up(10, sizes.warm_up)
            chain.fill("s-1", READINGS)
            rows[name] = {}
            for kind, at_once in (("at_once", BURST), ("one_by_one", 1)):
                created = chain.driver_counts()["created"]
                chain.relay.begin()
                result = chain.load("--burst", BURST, "--at-once", at_once, "--idle", f"{round(1000 * sizes.idle)}ms", "--rounds", sizes.rounds[kind],
                                    "--min-size", BURST, path="/readings?sensor=s-1")
                figures = chain.relay.figures()
                hours = figures["seconds"] * sizes.compression / 3600
                rows[name][kind] = {**step(result), "processors": result["processors"], "relay": figures, "opened_per_hour": figures["opened"] / hours,
                                    "driver_per_hour": (chain.driver_counts()["created"] - created) / hours}
                if chain.poolhouse:
                    rows[name][kind]["servers"] = chain.servers_of_poolhouse()
    return {"burst": BURST, "rounds": sizes.rounds, "idle_s": sizes.idle, "limit_ms": limit, "compression": sizes.compression, "forms": rows}


# -- case 3


def functions(directory, server, sizes):
    """Functions that are frozen, and a flood of them."""
    progress("case 3")
    return mongodb_functions.serverless(directory, server, sizes)


# -- what they share


def pool(most, least, wait=None, idle=None):
    """Options of the driver's pool, as its URL has them."""
    options = {"maxPoolSize": most, "minPoolSize": least, "waitQueueTimeoutMS": wait, "maxIdleTimeMS": idle}
    return [f"{name}={value}" for name, value in options.items() if value is not None]


def step(part):
    """The figures of a run, or of a step of it."""
    response = part["response_ms"] or {}
    asked = part["requests"] + errors(part)
    return {**{name: response.get(name) for name in ("p50", "p95", "p99", "mean", "max")}, "asked": asked, "errors": errors(part),
            "why": part["errors"], "error_share": errors(part) / asked if asked else 0.0}


def kept(chain, result):
    """What was acknowledged, and what is there."""
    return {"acknowledged": acknowledged(result), "documents": chain.documents()}


def clear(chain):
    """Forgets the readings so far."""
    with chain.server.connect() as client:
        client[telemetry_chain.DATABASE][telemetry_chain.COLLECTION].delete_many({})


def progress(text):
    print(text, file=sys.stderr, flush=True)


CASES = {"5": exhaustion, "4": pool_of_pools, "1": churn, "3": functions}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="short steps and few bursts: the figures mean little")
    length.add_argument("--full", action="store_true", default=os.environ.get("FULL") == "1", help="steps of a minute (FULL=1 does the same)")
    parser.add_argument("--only", choices=CASES, action="append", help="this case only; may be given several times")
    parser.add_argument("--json", metavar="FILE", help="write the figures to a file as well")
    parser.add_argument("--markdown", metavar="FILE", help="write the report to a file instead of standard output")
    options = parser.parse_args()
    if missing := lacking():
        print(f"The cases of MongoDB are skipped: not installed: {', '.join(missing)}.")
        return 0
    if not os.access(pooler.BINARY, os.X_OK):
        parser.error(f"there is no {pooler.BINARY}: run `make build`, or name another with POOLHOUSE=path")
    if not prepared():
        print("The cases of MongoDB are skipped: Maven cannot fetch what the service and the server need.")
        return 0
    report = run(options)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    text = mongodb_report.markdown(report)
    if options.markdown:
        pathlib.Path(options.markdown).write_text(text + "\n")
    else:
        print(text)
    # The one thing that no machine is too slow for.
    return 1 if mongodb_report.lost(report) else 0


def prepared():
    """Builds the service and the server: whether that worked."""
    if subprocess.run([telemetry_chain.SERVICE / "build.sh"], stdout=subprocess.DEVNULL).returncode:
        return False
    # It tells the tests to skip when it cannot be fetched.
    from _pytest.outcomes import Skipped
    with contextlib.suppress(Skipped):
        JavaServer.prepare()
        return True
    return False


def run(options):
    """Runs the cases: all of their figures."""
    sizes = Sizes(options)
    began = time.monotonic()
    report = {"quick": options.quick, "full": options.full, "load_average": os.getloadavg()[0], "processors": os.cpu_count(), "cases": {}}
    with tempfile.TemporaryDirectory(prefix="poolhouse-cases-") as place:
        place = pathlib.Path(place)
        server = JavaServer(made(place, "server")).start()
        try:
            for number in options.only or CASES:
                report["cases"][number] = CASES[number](place, server, sizes)
        finally:
            server.stop()
    report["seconds"] = time.monotonic() - began
    return report


if __name__ == "__main__":
    sys.exit(main())
