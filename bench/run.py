#!/usr/bin/env python3
"""`make bench`: Poolhouse beside PgBouncer, HAProxy and pgpool2 on this machine, in the same run, interleaved.

    bench/run.py --quick                     a few minutes, to see that everything works
    bench/run.py                             the whole, about half an hour
    bench/run.py --render FILE               the tables of an earlier run

`POOLHOUSE` and `PGBOUNCER` name other executables. Standard output gets the report in Markdown, standard error the
progress. This file knows the order of things only.
"""

import argparse
import datetime
import json
import os
import platform
import re
import sys
import time

import cpu
import idle
import load
import plan
import poolers
import processes
import report
import stats
from cluster import SETTINGS, Cluster

# What is under way when a load is stopped ends in this time.
PAUSE = 0.1


def main():
    """Measures, or renders an earlier result."""
    options = arguments()
    if options.list:
        print("\n".join([workload.name for workload in plan.workloads()] + [plan.IDLE]))
        return 0
    if options.render:
        with open(options.render) as file:
            print(report.markdown(json.load(file)))
        return 0
    bench = Bench(options)
    try:
        bench.measure()
    except KeyboardInterrupt:
        say("interrupted: the report covers what was measured")
    finally:
        bench.end()
    print(report.markdown(bench.result))
    return 0


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="bench/run.py", description=__doc__.split("\n", 1)[0])
    option = parser.add_argument
    option("--rounds", type=int, help="paired rounds (default 15; quick: 2)")
    option("--seconds", type=float, help="measured seconds of each run (default 3; quick: 2)")
    option("--warmup", type=float, help="seconds before them (default 2; quick: 1)")
    option("--scale", type=int, default=50, help="pgbench scale (default 50)")
    option("--only", metavar="WORDS", action="append", default=[], help="only workloads with these words; repeatable")
    option("--targets", metavar="A,B", help="only these targets of " + ", ".join(poolers.KINDS))
    option("--quick", action="store_true", help="few and short rounds")
    option("--idle-clients", type=int, help="idle clients of the memory measurement (default 10000; quick: 2000)")
    option("--json", metavar="FILE", help="where the result goes (a whole run's default: bench/results/DATE.json)")
    option("--list", action="store_true", help="measure nothing, print the names of the workloads")
    option("--render", metavar="FILE", help="measure nothing, print the tables of this result")
    options = parser.parse_args()
    for name, full, quick in (("rounds", 15, 2), ("seconds", 3, 2), ("warmup", 1, 1), ("idle_clients", 10_000, 2000)):
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
    if not (options.json or options.quick or options.only or options.targets):
        here = os.path.dirname(os.path.abspath(__file__))
        options.json = os.path.join(here, "results", f"{datetime.date.today()}.json")
    return options


class Bench:
    """One bench: the cluster, the targets, and the result so far."""

    def __init__(self, options):
        self.options = options
        self.descriptors = processes.raise_descriptor_limit()
        self.directory = processes.directory()
        self.workloads = [w for w in plan.workloads() if self._wanted(w.name)]
        wanted = {target for workload in self.workloads for target in workload.targets}
        if self._wanted(plan.IDLE):
            wanted |= {plan.US, plan.RIVAL}
        if options.targets:
            wanted &= set(options.targets.split(","))
        free = cpu.idle_share()
        say("starting PostgreSQL and loading pgbench's tables")
        self.cluster = Cluster(self.directory, options.scale)
        kinds = {name: kind for name, kind in poolers.KINDS.items() if name in wanted}
        self.targets = {name: kind(self.directory, self.cluster) for name, kind in kinds.items()}
        missing = [name for name, target in self.targets.items() if target.path() is None]
        for name in missing:
            say(f"{name} is not installed: left out")
            del self.targets[name]
        rival = self.targets.get(plan.RIVAL)
        if rival and not rival.tracks_statements():
            say(f"{rival.version()} loses prepared statements in transaction mode: these workloads are left out")
            self.workloads = [w for w in self.workloads if w.protocol != "prepared"]
        self.result = self._describe(free, missing)

    def _wanted(self, name):
        # Whole words: simple-50 is not simple-5000.
        words = (re.escape(word) for word in self.options.only)
        return not self.options.only or any(re.search(rf"(^|-){word}(-|$)", name) for word in words)

    def _describe(self, free, missing):
        options = self.options
        versions = {"PostgreSQL": self.cluster.version()}
        versions |= {name: target.version() for name, target in self.targets.items() if name != plan.US_TWO}
        return {
            "date": datetime.date.today().isoformat(),
            "command": " ".join(["bench/run.py", *sys.argv[1:]]),
            "machine": machine() | {"free_before": round(free, 3), "descriptors": self.descriptors},
            "versions": versions,
            "reactor": None,
            "settings": {
                "rounds": options.rounds,
                "seconds": options.seconds,
                "warmup": options.warmup,
                "scale": options.scale,
                "idle_clients": options.idle_clients,
                "pool_size": poolers.POOL_SIZE,
                "postgres": SETTINGS,
            },
            "missing": missing,
            "runs": [],
            "goals": [],
        }

    def measure(self):
        """All workloads, one after the other."""
        for workload in self.workloads:
            workload = self._with_rate(workload)
            if workload is not None:
                (self._in_turns if workload.pausable else self._one_by_one)(workload)
                self.save()
        if self._wanted(plan.IDLE):
            # Memory hardly varies: three rounds of it are enough.
            for number in range(min(3, self.options.rounds)):
                for name in self._order((plan.RIVAL, plan.US), number):
                    self._record(number, plan.IDLE, name, lambda t: idle.run(t, self.options.idle_clients))
            self.save()

    def _in_turns(self, workload):
        """All targets run with their clients connected, and one load at a time is let go on: the runs of a round
        are seconds apart, so that a machine whose speed drifts is alike for all. The order turns from round to round."""
        options, names = self.options, self._order(workload.targets, 0)
        each = options.warmup + options.seconds
        loads, turns = {}, []
        try:
            for name in names:
                target = self.targets[name].start()
                self._look_at(target)
                whole = 2 * PAUSE + each * len(names) * (options.rounds + 2) * 1.5
                program = self.cluster.program("pgbench")
                loads[name] = load.Load(program, target.port, target.pid(), workload, whole, self.directory)
                loads[name].wait_until_busy()
                loads[name].pause()
                time.sleep(PAUSE)
            for number in range(options.rounds):
                for name in self._order(names, number):
                    running = loads[name]
                    beside = self._beside() | {"pgbench": running.process.pid}
                    recorder = cpu.Recorder(self.targets[name].pid(), beside)
                    running.resume()
                    begin = time.time() + options.warmup
                    running.watch(each, recorder)
                    turns.append((number, name, recorder, begin))
                    running.pause()
                    time.sleep(PAUSE)
            logs = {name: running.finish() for name, running in loads.items()}
        except (RuntimeError, OSError) as error:
            self._keep(0, workload.name, names[len(loads) - 1], self._failure(error))
            return
        finally:
            for running in loads.values():
                running.discard()
            for name in names:
                self.targets[name].stop()
        for number, name, recorder, begin in turns:
            done, said = logs[name]
            # What failed is told once, with the last round.
            said = said if number == options.rounds - 1 else ""
            self._keep(number, workload.name, name, load.evaluate(done, recorder, begin, begin + options.seconds, said))

    def _one_by_one(self, workload):
        """Every target has the machine to itself, from its start to its end; the order turns from round to round."""
        for number in range(self.options.rounds):
            for name in self._order(workload.targets, number):
                self._record(number, workload.name, name, lambda t: self._load(t, workload))

    def _order(self, names, number):
        present = [name for name in names if name in self.targets]
        turn = number % len(present) if present else 0
        return present[turn:] + present[:turn]

    def _with_rate(self, workload):
        """The workload at its rate; None if there is nothing to derive it from."""
        if not workload.rate_from:
            return workload
        if not hasattr(self, "rate"):
            source = next(w for w in plan.workloads() if w.name == workload.rate_from)
            base = next((t for t in (plan.US, *workload.targets) if t in self.targets), None)
            if base is None:
                return None
            served = report.by_round(self.result["runs"], source.name, base, "throughput")
            if not served:
                run = self._record(-1, source.name, base, lambda t: self._load(t, source), keep=False)
                served = {0: run.get("throughput")}
            capacity = stats.median([rate for rate in served.values() if rate])
            if not capacity:
                return None
            self.rate = round(capacity * plan.OFFERED)
            self.result["settings"]["offered_rate"] = self.rate
        return workload.at(self.rate)

    def _load(self, target, workload):
        if workload.script == "tpcb":
            self.cluster.tidy()
        options, pgbench = self.options, self.cluster.program("pgbench")
        times = (options.warmup, options.seconds)
        return load.run(pgbench, target.port, target.pid(), workload, *times, self.directory, self._beside())

    def _beside(self):
        return {"database": self.cluster.process.pid}

    def _record(self, number, workload, name, measure, keep=True):
        target = self.targets[name]
        try:
            target.start()
            self._look_at(target)
            run = measure(target)
        except (RuntimeError, OSError) as error:
            run = self._failure(error)
        finally:
            target.stop()
        return self._keep(number, workload, name, run, keep)

    def _look_at(self, target):
        if self.result["reactor"] is None and isinstance(target, poolers.Poolhouse):
            self.result["reactor"] = target.reactor()

    def _failure(self, error):
        return {"failed": 1, "complaint": str(error).replace(self.directory, "DIR")}

    def _keep(self, number, workload, name, run, keep=True):
        say(f"round {number + 1:2} {workload:22} {name:12} {brief(run)}")
        if keep:
            self.result["runs"].append({"round": number, "workload": workload, "target": name} | run)
        return run

    def save(self):
        """Writes the result so far."""
        self.result["goals"] = report.judge(self.result["runs"])
        if self.options.json:
            os.makedirs(os.path.dirname(os.path.abspath(self.options.json)), exist_ok=True)
            with open(self.options.json, "w") as file:
                json.dump(self.result, file, indent=1)
                file.write("\n")

    def end(self):
        """Saves, and ends everything."""
        self.save()
        processes.stop_all()


def machine():
    """What the numbers depend on."""
    with open("/proc/cpuinfo") as file:
        models = re.findall(r"^model name\s*:\s*(.*)$", file.read(), re.M)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": models[0] if models else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_gb": round(memory),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def brief(run):
    """A run in a few words."""
    if "bytes_per_client" in run:
        half = run["marginal_bytes_per_client"]
        return f"{run['bytes_per_client']:.0f} bytes per idle client ({half:.0f} in the second half)"
    if run.get("throughput") is None:
        return f"nothing measured: {run.get('complaint')}"
    words = f"{run['throughput']:7.0f} tps  cpu {run['cpu_us']:6.1f} us  machine {run['machine_cpu_us']:6.1f} us"
    words += f"  p50 {run['p50_ms']:.2f} p99 {run['p99_ms']:.2f} ms"
    return words + (f"  {run['failed']} FAILED" if run["failed"] else "")


def say(text):
    """Progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
