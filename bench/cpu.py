"""CPU time and memory of processes and of the machine, from /proc.

Time on the CPU is summed over all threads of a process tree from `schedstat`, which counts nanoseconds; the 10 ms
ticks of `stat` are too coarse for short windows. Refuses to know what the processes do.
"""

import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

# From this share on a machine is quiet enough to measure on.
QUIET = 0.9
TICK = 1 / os.sysconf("SC_CLK_TCK")


def tree(pid):
    """The process and all its descendants."""
    found, queue = [], [pid]
    while queue:
        process = queue.pop()
        found.append(process)
        try:
            for task in os.listdir(f"/proc/{process}/task"):
                queue.extend(int(child) for child in Path(f"/proc/{process}/task/{task}/children").read_text().split())
        except OSError:
            continue
    return found


def tasks(pid):
    """The folders in /proc of all threads of a process tree."""
    for process in tree(pid):
        try:
            yield from list(Path(f"/proc/{process}/task").iterdir())
        except OSError:
            continue


def threads(pid):
    """Seconds on the CPU of every thread of a process tree: (thread id, name) to seconds."""
    times = {}
    for folder in tasks(pid):
        try:
            name = (folder / "comm").read_text().strip()
            times[(int(folder.name), name)] = int((folder / "schedstat").read_text().split()[0]) / 1e9
        except (OSError, ValueError, IndexError):
            continue
    return times


class Spent(NamedTuple):
    """What a process tree has spent: seconds in all, of these in user mode and in the kernel, and context switches.

    The kernel counts the seconds in all exactly, and divides them by what its ticks have met: only sums are exact.
    """

    total: float = 0.0
    user: float = 0.0
    kernel: float = 0.0
    switches: int = 0

    def since(self, before):
        """What has been spent between two readings."""
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def spent(pid):
    """What a process tree has spent so far."""
    found = Spent()
    for folder in tasks(pid):
        try:
            total = int((folder / "schedstat").read_text().split()[0]) / 1e9
            # The name before the last bracket may hold anything.
            user, kernel = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
            status = (folder / "status").read_text().splitlines()
        except (OSError, ValueError, IndexError):
            continue
        switches = sum(int(line.split()[1]) for line in status if "voluntary_ctxt_switches" in line)
        add = (total, int(user) * TICK, int(kernel) * TICK, switches)
        found = Spent(*(have + more for have, more in zip(found, add, strict=True)))
    return found


def used(pid):
    """Seconds on the CPU of a process tree so far; none where there is no process."""
    return sum(threads(pid).values()) if pid else 0.0


def machine():
    """Seconds that all CPUs together were busy, and seconds stolen by other machines, since the start."""
    fields = [int(word) * TICK for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, interrupt, soft, steal = fields[:8]
    return user + nice + system + interrupt + soft, steal


def resident(pid):
    """Bytes of resident memory of a process tree."""
    total = 0
    for process in tree(pid):
        for file in ("smaps_rollup", "status"):
            try:
                text = Path(f"/proc/{process}/{file}").read_text()
            except OSError:
                continue
            lines = [line for line in text.splitlines() if line.startswith(("Rss:", "VmRSS:"))]
            if lines:
                total += int(lines[0].split()[1]) * 1024
                break
    return total


class Recorder:
    """Readings of one process tree and of the machine over time, and of process trees `beside` it: name to root."""

    def __init__(self, pid, beside=None):
        self.pid = pid
        self.beside = {"pooler": pid} | (beside or {}) if pid else {}
        self.readings = []

    def read(self):
        """Takes a reading now."""
        busy, steal = machine()
        trees = {name: spent(root) for name, root in self.beside.items()}
        self.readings.append((time.time(), threads(self.pid) if self.pid else {}, busy, steal, trees))

    def window(self, begin, end):
        """What was used between the first reading after `begin` and the last before `end`; None if there are not two.

        The window's true edges are returned too, so that transactions can be counted between exactly these.
        """
        inside = [reading for reading in self.readings if begin <= reading[0] <= end]
        if len(inside) < 2:
            return None
        (t0, before, busy0, steal0, trees0), (t1, after, busy1, steal1, trees1) = inside[0], inside[-1]
        used = {thread: seconds - before.get(thread, 0.0) for thread, seconds in after.items()}
        return {
            "begin": t0,
            "end": t1,
            "process": sum(used.values()),
            "threads": used,
            "machine": busy1 - busy0,
            "steal": steal1 - steal0,
            "trees": {name: spent.since(trees0[name]) for name, spent in trees1.items()},
        }


def idle_share(seconds=1.0):
    """Share of the machine that is free right now: 1.0 is a quiet machine. Warns of one that is not."""
    before, _ = machine()
    time.sleep(seconds)
    after, _ = machine()
    free = 1 - (after - before) / (seconds * os.cpu_count())
    if free < QUIET:
        print(f"warning: this machine is busy ({1 - free:.0%}); the numbers will be off", file=sys.stderr)
    return free
