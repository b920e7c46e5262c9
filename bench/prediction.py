#!/usr/bin/env python3
"""How well `poolhouse plan` predicts: each scenario is planned, then really run, and the two are compared step by step.

    bench/prediction.py                                     all scenarios with a load; the result goes to bench/results/
    bench/prediction.py exhaustion-trouble --repeats 5 --json -

First the server alone is measured for a few seconds, on the way that the runs take (through a Poolhouse, through the relay of the faults, but
without delays): its service times and what connecting takes are what the plan is given. How long an operation takes depends on how warm
everything is, so it is measured in the way in which the load comes: spaced, or in bursts after some quiet, one after the other or at once.
Bursts of other sizes than the scenario's tell how long an operation needs a processor. For clients that never pause there is a sweep. Then
each scenario runs several times; the median is what the prediction is compared with, and the spread of the runs says how well a
measurement predicts the next one. Only a quiet machine gives figures that mean anything. Goals, where a pool is used by less than 80%: 10%
at p50, 15% at p95, 25% at p99. Refuses to know how either verb works.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
import tomllib

import cluster
import cpu
import processes
import stats
from generator import binary
from run import machine

HERE = os.path.dirname(os.path.abspath(__file__))
SCENARIOS = os.path.join(HERE, "..", "scenarios")
# Those that have a load of their own; `connections` is a sweep.
NAMES = ["exhaustion-trouble", "exhaustion-cure", "churn-trouble", "churn-cure", "pool-of-pools", "flood", "zombies", "ephemeral"]
GOALS = {"p50": 0.10, "p95": 0.15, "p99": 0.25}
BUSY = 0.8
PATIENCE = 1800
# The quiet before each burst by which the server is measured, in seconds; operations of such a burst; the most that a scenario has.
QUIET = 0.5
CROWD = 20
MAX_STEPS = 100
# For each way in which a load comes: which run tells the service times, which one what connecting takes, and in which each operation is the
# first one on its connection.
MEASURED = {
    "spaced": ("spaced", "connecting", "first"),
    "one after the other": ("one after the other", "connecting", "first"),
    "without a pause": ("one after the other", "connecting", "first"),
    "a row": ("a row", "new connections", "new connections"),
    "a crowd": ("one", "new connections", "new connections"),
}


def main():
    """Plans, runs, compares."""
    options = arguments()
    free = cpu.idle_share()
    rows = []
    for name in options.scenarios:
        rows += compared(name, options)
        print(table([row for row in rows if row["scenario"] == name]), flush=True)
    result = {
        "date": datetime.date.today().isoformat(),
        "command": " ".join(["bench/prediction.py", *sys.argv[1:]]),
        "machine": machine() | {"free_before": round(free, 3)},
        "repeats": options.repeats,
        "goals": GOALS,
        "rows": rows,
    }
    print(summary(rows))
    if options.json != "-":
        with open(options.json, "w") as file:
            file.write(json.dumps(result, indent=1) + "\n")
    return 0 if all(not missed(row) for row in rows) else 1


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/prediction.py", description=__doc__.split("\n", 1)[0])
    option = parser.add_argument
    option("scenarios", nargs="*", metavar="SCENARIO", help=f"which (default: all): {', '.join(NAMES)}")
    option("--repeats", type=int, default=3, help="how often each scenario runs (default 3)")
    option("--alone", type=int, default=20, help="seconds for which the server alone is measured (default 20)")
    option("--json", metavar="FILE", default=os.path.join(HERE, "results", f"prediction-{datetime.date.today()}.json"),
           help="where the result goes; - is nowhere")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(NAMES):
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    options.scenarios = options.scenarios or NAMES
    return options


def asked(verb, *arguments):
    """What the verb prints as JSON. A threshold or an objective that is missed is no failure here."""
    command = [binary(), verb, *arguments, "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode not in (0, 99):
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    result = json.loads(done.stdout)
    return result if verb == "plan" else (result if isinstance(result, list) else [result])


def alone(scenario, seconds, between):
    """A scenario file that measures the same target under a light load, with this between, for each way in which a load may come: the service
    times, on connections that stay; and new connections, for what connecting and the first operation on one take."""
    text = ["[scenario]", 'name = "alone"', "seed = 1", "[target]"]
    text += [f"{key} = {written(value)}" for key, value in scenario["target"].items()]
    text += ["[pool]", "max_size = 10", "min_size = 10", 'max_life_time = "off"', 'max_idle_time = "off"']
    if "fault" in between:
        # The relay costs some time by itself, and so it does in the run.
        text += ["[[fault]]", 'kind = "delay"', 'delay = "1us"']
    spaced = 'rate = 50, spacing = "poisson"'
    measured = [("spaced", spaced, ""), ("connecting", spaced, 'max_life_time = "2s"'), ("first", "rate = 5", "reuse = false"),
                ("one after the other", "clients = 1", "")]
    if any("burst" in load for load in loads(scenario)):
        bursts = max(2, min(MAX_STEPS, round(seconds / QUIET)))
        # The first of a row is the slow one: a row of another length would have another share of them.
        row = max(load["burst"] for load in loads(scenario) if "burst" in load)
        quiet = f'idle = "{round(QUIET * 1000)}ms", rounds = {bursts}'
        measured += [("one", f"burst = 1, at_once = 1, {quiet}", ""),
                     ("a row", f"burst = {row}, at_once = 1, {quiet}", ""),
                     ("a crowd", f"burst = {CROWD}, at_once = {CROWD}, {quiet}", f"max_size = {CROWD}, min_size = {CROWD}"),
                     ("new connections", f"burst = 4, at_once = 4, {quiet}", 'min_size = 0, max_idle_time = "100ms"')]
    for name, load, pool in measured:
        lasts = "" if "burst" in load else f', duration = "{seconds}s", warmup = "2s"'
        text += ["[[variant]]", f'name = "{name}"', f"load = {{ {load}{lasts} }}", f"pool = {{ {pool} }}"]
        text += ["poolhouse = {}"] if "poolhouse" in between else []
    return "\n".join(text) + "\n"


def loads(scenario):
    """The load of each variant."""
    return [scenario.get("load", {}) | variant.get("load", {}) for variant in scenario.get("variant", [{}])]


def on_the_way(scenario):
    """What is between each variant and its target."""
    return [tuple(key for key in ("fault", "poolhouse") if key in scenario or key in variant) for variant in scenario.get("variant", [{}])]


def comes(load):
    """How a load comes."""
    if "burst" in load:
        return "a row" if load.get("at_once") == 1 else "a crowd"
    if load.get("clients", 0) > 1:
        return "without a pause"
    return "one after the other" if "clients" in load and "think" not in load else "spaced"


def curve(target, folder):
    """What more operations at once do to the same database: the file of a sweep."""
    database = cluster.Cluster(processes.directory(), target.get("scale", 1))
    file = os.path.join(folder, "curve.json")
    asked_of = [f"--{target['script']}", "--protocol", target.get("protocol", "simple"), "--schema", "public"]
    command = [binary(), "sweep", f"postgres://{cluster.USER}@127.0.0.1:{database.port}/{cluster.DATABASE}", *asked_of, "--scale",
               str(target.get("scale", 1)), "--clients", "1..64", "--rounds", "3", "--point-time", "2s", "--json", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    processes.stop_all()
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return file


def predictions(path, scenario, options):
    """What the plan says of each variant, in the order of the file."""
    ways = list(zip(map(comes, loads(scenario)), on_the_way(scenario), strict=True))
    plans = {}
    with tempfile.TemporaryDirectory() as folder:
        for between in sorted({between for _, between in ways}):
            light = os.path.join(folder, "alone.toml")
            with open(light, "w") as file:
                file.write(alone(scenario, options.alone, between))
            known = {result["name"].split(": ", 1)[1]: result for result in asked("bench", light)}
            for way in sorted({way for way, others in ways if others == between}):
                told = what_is_told(way, known, scenario["target"], folder)
                plans[way, between] = [case["result"] for case in asked("plan", path, *told)["given"]]
    return [plans[way][number] for number, way in enumerate(ways)]


def what_is_told(way, known, target, folder):
    """What the plan is told of the server, for a load that comes in this way."""
    measured = os.path.join(folder, "measured.json")
    serving, connecting, fresh = (known[name] for name in MEASURED[way])
    with open(measured, "w") as file:
        json.dump(apart(dict(serving), dict(connecting)), file)
    # On a connection of its own each operation is the first one.
    told = ["--measured", measured, "--first", microseconds(mean(fresh) - mean(serving))]
    if way == "a crowd":
        # Redis has one thread for all; a burst on PostgreSQL has all processors.
        processors = os.cpu_count() if target["start"] == "postgres" else 1
        told += ["--cpus", str(processors), "--processor-time", microseconds(processor_time(known, processors))]
    elif way == "without a pause" and target["start"] == "postgres":
        told += ["--curve", curve(target, folder)]
    return told


def mean(result):
    """How long the server takes on average, in milliseconds."""
    return result["service_ms"]["mean"]


def processor_time(known, processors):
    """How long an operation needs a processor, in milliseconds: of a crowd each waits for those before it, half of them on average."""
    one, crowd = mean(known["one"]), mean(known["a crowd"])
    return min(2 * (crowd - one) / (CROWD / processors - 1), one)


def microseconds(ms):
    """A time as the command line takes it."""
    return f"{max(1, round(ms * 1000))}us"


def apart(serving, connecting):
    """Of each run what it is for: a server that makes connections answers more slowly."""
    serving["connect_ms"] = dict.fromkeys(serving["connect_ms"])
    connecting["service_ms"] = None
    return [serving, connecting]


def written(value):
    """A value as TOML has it."""
    if isinstance(value, str) and "\n" in value:
        return f"'''\n{value}'''"
    return json.dumps(value)


def compared(name, options):
    """The rows of one scenario: one for each step of each variant, and one for its whole."""
    path = os.path.join(SCENARIOS, f"{name}.toml")
    with open(path, "rb") as file:
        scenario = tomllib.load(file)
    predicted = predictions(path, scenario, options)
    runs = [asked("bench", path) for _ in range(options.repeats)]
    rows = []
    for variant, prediction in enumerate(predicted):
        really = [run[variant] for run in runs]
        assert all(run["name"] == prediction["name"] for run in really), "the variants are those of the file, in its order"
        parts = len(prediction["steps"]) if len(prediction["steps"]) > 1 else 0
        for part in [*range(parts), None]:
            of = lambda run: run if part is None else run["steps"][part]  # noqa: E731
            rows.append({"scenario": name, "variant": prediction["name"], "step": "total" if part is None else of(prediction)["name"],
                         **figures(of(prediction), [of(run) for run in really], busy(prediction, of(prediction)))})
    return rows


def busy(result, part):
    """The highest share of the connections that were in use at the end of a second of a part of the run."""
    begin = part.get("from_s", 0)
    seconds = [second for second in result["series"]
               if second["connections"] and begin <= second["at_s"] < begin + (part["duration_s"] if "from_s" in part else float("inf"))]
    return max((second["in_use"] / second["connections"] for second in seconds), default=None)


def figures(prediction, measured, use):
    """Prediction, median of the measurements and their spread, of each figure."""
    row = {"busy": use}
    for name in GOALS:
        row[name] = compare(percentile(prediction, name), [percentile(run, name) for run in measured])
    row["created"] = compare(prediction["connections"]["created"], [run["connections"]["created"] for run in measured])
    return row


def percentile(part, name):
    """One of the response time, in milliseconds; None where nothing was answered."""
    return part["response_ms"] and part["response_ms"][name]


def compare(predicted, measured):
    """The relative error of the prediction against the median, and how far the measurements are apart."""
    known = [value for value in measured if value is not None]
    if predicted is None or not known:
        return {"predicted": predicted, "measured": None, "error": None, "spread": None}
    middle = stats.median(known)
    share = lambda value: value / middle if middle else (0.0 if value == 0 else None)  # noqa: E731
    return {"predicted": predicted, "measured": middle, "error": share(predicted - middle), "spread": share(max(known) - min(known))}


def missed(row):
    """The goals that a row misses by more than measurements differ among themselves; where a pool is busier there are none."""
    if row["busy"] is None or row["busy"] >= BUSY:
        return []
    far = {name: row[name]["error"] for name in GOALS if row[name]["error"] is not None}
    return [name for name, error in far.items() if abs(error) > max(GOALS[name], row[name]["spread"])]


def shown(figure):
    """One cell: predicted, measured, and by how much they differ (how much measurements differ)."""
    if figure["measured"] is None:
        return "-"
    percent = lambda share: "-" if share is None else f"{share:+.0%}"  # noqa: E731
    return f"{figure['predicted']:.4g} / {figure['measured']:.4g} {percent(figure['error'])} ({percent(figure['spread']).lstrip('+')})"


def table(rows):
    """Markdown."""
    lines = ["", "| run | step | p50: predicted / measured, error (spread of the measurements) | p95 | p99 | created | |", "|-|-|-|-|-|-|-|"]
    for row in rows:
        cells = [row["variant"], row["step"], *(shown(row[name]) for name in [*GOALS, "created"]), ", ".join(missed(row))]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(rows):
    """How many of the rows that the goals are for keep them."""
    for_goals = [row for row in rows if row["busy"] is not None and row["busy"] < BUSY]
    kept = [row for row in for_goals if not missed(row)]
    return f"\n{len(kept)} of {len(for_goals)} rows below {BUSY:.0%} keep all goals; {len(rows) - len(for_goals)} rows are busier."


if __name__ == "__main__":
    sys.exit(main())
