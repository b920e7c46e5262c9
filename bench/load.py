"""Runs pgbench against a port and counts exactly what happened in the measured window, from its per-transaction log.

Refuses to know what stands behind the port.
"""

import math
import glob
import os
import re
import shutil
import subprocess
import tempfile
import time

import cpu
import stats
from cluster import DATABASE, USER

READING_EVERY = 0.2
# What connecting 5000 clients and finishing may take beyond the run itself.
PATIENCE = 60


def command(pgbench, port, workload, seconds, log):
    """The pgbench command line of a workload."""
    line = [pgbench, "-n", "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-T", str(math.ceil(seconds))]
    line += ["-c", str(workload.clients), "-j", "2" if workload.clients >= 50 else "1", "-M", workload.protocol]
    if workload.script == "select":
        line.append("-S")
    if workload.rate:
        line += ["-R", str(int(workload.rate))]
    return line + ["-l", f"--log-prefix={log}", DATABASE]


def run(pgbench, port, pid, workload, warmup, seconds, directory):
    """One run; `pid` is the root of the processes whose CPU is counted (None: nobody's)."""
    logs = tempfile.mkdtemp(prefix="log-", dir=directory)
    recorder = cpu.Recorder(pid)
    line = command(pgbench, port, workload, warmup + seconds, os.path.join(logs, "log"))
    try:
        with open(os.path.join(logs, "stderr"), "w+") as complaints:
            process = subprocess.Popen(
                line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=complaints, start_new_session=True
            )
            try:
                _watch(process, recorder, time.monotonic() + warmup + seconds + PATIENCE)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            complaints.seek(0)
            said = complaints.read()
        return evaluate(read_log(logs), recorder, warmup, seconds, said)
    finally:
        shutil.rmtree(logs, ignore_errors=True)


def _watch(process, recorder, deadline):
    while process.poll() is None:
        recorder.read()
        if time.monotonic() > deadline:
            raise RuntimeError("pgbench hangs")
        try:
            process.wait(READING_EVERY)
        except subprocess.TimeoutExpired:
            continue


def read_log(directory):
    """All transactions of a run: (time of completion in seconds since the epoch, microseconds taken)."""
    done = []
    for path in glob.glob(os.path.join(directory, "log.*")):
        with open(path) as file:
            for text in file:
                words = text.split(" ")
                # client, transaction, microseconds (or a word for a failure), script, epoch, microseconds
                if len(words) >= 6 and words[2].isdigit():
                    done.append((int(words[4]) + int(words[5]) / 1e6, int(words[2])))
    return done


def evaluate(done, recorder, warmup, seconds, said):
    """What a run's log and readings say of the window after the warm-up."""
    failures = len(re.findall(r" aborted", said))
    complaint = next((text for text in said.splitlines() if "error:" in text), None)
    result = {"failed": failures, "complaint": complaint}
    if not done:
        return result | {"complaint": complaint or "pgbench logged no transaction"}
    first = min(moment for moment, _ in done)
    # The end is left out: clients then stop one after the other.
    last = min(first + warmup + seconds, max(moment for moment, _ in done)) - 0.1
    window = recorder.window(first + warmup, last)
    if not window:
        return result | {"complaint": complaint or "the run was too short, or the machine too busy, for a window"}
    latencies = sorted(us for moment, us in done if window["begin"] < moment <= window["end"])
    count, length = len(latencies), window["end"] - window["begin"]
    if not count:
        return result | {"complaint": complaint or "no transaction in the window"}
    p50, p99 = stats.percentile(latencies, 0.5), stats.percentile(latencies, 0.99)
    workers = {name: used for (_, name), used in window["threads"].items() if re.fullmatch(r"worker-\d+", name)}
    total = sum(workers.values())
    return result | {
        "window_s": round(length, 3),
        "transactions": count,
        "throughput": count / length,
        "cpu_us": window["process"] / count * 1e6,
        "machine_cpu_us": window["machine"] / count * 1e6,
        "steal_s": round(window["steal"], 2),
        "p50_ms": p50 / 1e3,
        "p99_ms": p99 / 1e3,
        "p99_over_p50": p99 / p50 if p50 else None,
        "worker_shares": {name: used / total for name, used in sorted(workers.items())} if total else None,
    }
