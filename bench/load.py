"""Runs pgbench against a port and counts exactly what happened in the measured window, from its per-transaction log.

Refuses to know what stands behind the port.
"""

import glob
import math
import os
import re
import shutil
import signal
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


class Load:
    """A running pgbench; `pid` is the root of the processes whose CPU is counted (None: nobody's)."""

    def __init__(self, pgbench, port, pid, workload, seconds, directory):
        self.pid = pid
        self.logs = tempfile.mkdtemp(prefix="log-", dir=directory)
        self.complaints = open(os.path.join(self.logs, "stderr"), "w+")
        line = command(pgbench, port, workload, seconds, os.path.join(self.logs, "log"))
        self.process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.complaints, start_new_session=True
        )

    def wait_until_busy(self):
        """Waits until all clients have connected and transactions are logged; False if that does not happen."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.process.poll() is None:
            if any(os.path.getsize(path) for path in glob.glob(os.path.join(self.logs, "log.*"))):
                return True
            time.sleep(0.05)
        return False

    def watch(self, seconds, recorder):
        """Takes readings for so long, or until pgbench has ended."""
        deadline = time.monotonic() + seconds
        recorder.read()
        while (left := deadline - time.monotonic()) > 0:
            try:
                self.process.wait(min(READING_EVERY, left))
                return
            except subprocess.TimeoutExpired:
                recorder.read()

    def pause(self):
        """Stops the clients where they are. Only for a load that holds no locks and has no schedule to catch up with."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        """Lets them go on."""
        self.process.send_signal(signal.SIGCONT)

    def finish(self):
        """Ends it; all transactions it logged, and what it said."""
        try:
            self.resume()
            # What is buffered of the log gets written by transactions after it.
            self.watch(0.5, cpu.Recorder(None))
            self.process.terminate()
            self.process.wait(PATIENCE)
            self.complaints.seek(0)
            return read_log(self.logs), self.complaints.read()
        finally:
            self.discard()

    def discard(self):
        """Ends it for nothing, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.complaints.close()
        shutil.rmtree(self.logs, ignore_errors=True)


def run(pgbench, port, pid, workload, warmup, seconds, directory, beside):
    """One run of a load of its own; the process trees `beside` the pooler are watched, too."""
    load = Load(pgbench, port, pid, workload, warmup + seconds, directory)
    try:
        recorder = cpu.Recorder(pid, beside | {"pgbench": load.process.pid})
        load.watch(warmup + seconds + PATIENCE, recorder)
        if load.process.poll() is None:
            raise RuntimeError("pgbench hangs")
        done, said = load.finish()
    finally:
        load.discard()
    if not done:
        return complain(said, "pgbench logged no transaction")
    first = min(moment for moment, _ in done)
    # The end is left out: clients then stop one after the other.
    last = min(first + warmup + seconds, max(moment for moment, _ in done)) - 0.1
    return evaluate(done, recorder, first + warmup, last, said)


def read_log(directory):
    """All transactions of a run: (time of completion in seconds since the epoch, microseconds taken)."""
    done = []
    for path in glob.glob(os.path.join(directory, "log.*")):
        with open(path) as file:
            for text in file:
                # A load that was ended leaves half a line.
                if not text.endswith("\n"):
                    continue
                words = text.split(" ")
                # client, transaction, microseconds (or a word for a failure), script, epoch, microseconds
                if len(words) >= 6 and words[2].isdigit():
                    done.append((int(words[4]) + int(words[5]) / 1e6, int(words[2])))
    return done


def complain(said, otherwise=None):
    """What pgbench said of failures; `otherwise` if it said nothing."""
    failures = len(re.findall(r" aborted", said))
    complaint = next((text for text in said.splitlines() if "error:" in text), otherwise)
    return {"failed": failures, "complaint": complaint}


def evaluate(done, recorder, begin, end, said):
    """What a log and readings say of the time from `begin` to `end` (seconds since the epoch)."""
    result = complain(said)
    window = recorder.window(begin, end)
    if not window:
        return complain(said, "the run was too short, or the machine too busy, for a window")
    latencies = sorted(us for moment, us in done if window["begin"] < moment <= window["end"])
    count, length = len(latencies), window["end"] - window["begin"]
    if not count:
        return complain(said, "no transaction in the window")
    p50, p99 = stats.percentile(latencies, 0.5), stats.percentile(latencies, 0.99)
    workers = {name: used for (_, name), used in window["threads"].items() if re.fullmatch(r"worker-\d+", name)}
    total = sum(workers.values())
    return result | trees(window["trees"], count) | {
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


def trees(spent, count):
    """Microseconds of CPU and context switches for each transaction of each process tree; and of pooler and database together."""
    result = {}
    for name, tree in spent.items():
        # Ticks show how the exact sum is divided.
        ticks = tree.user + tree.kernel
        user = tree.total * tree.user / ticks if ticks else 0.0
        result |= {
            f"{name}_user_us": user / count * 1e6,
            f"{name}_kernel_us": (tree.total - user) / count * 1e6,
            f"{name}_us": tree.total / count * 1e6,
            f"{name}_switches": tree.switches / count,
        }
    if {"pooler", "database"} <= set(spent):
        result["both_us"] = result["pooler_us"] + result["database_us"]
    return result
