#!/usr/bin/env python3
"""What it costs a Poolhouse to be watched: its CPU time while nobody looks, while its page is open in a browser, and beside `poolhouse top`.

    POOLHOUSE=target/release/poolhouse bench/watching.py --clients 1000 10000

So many clients are connected, and ten of them ask a fixed number of questions a second. Who watches changes in turn, in an order drawn anew each
round. Prints the median share of one core, and the median and the interval of what each watcher adds to its round. The browser's and top's own
time is not counted: they may run elsewhere.
"""

import argparse
import contextlib
import os
import pathlib
import pty
import random
import shutil
import subprocess
import sys
import threading
import time

import processes
import stats
import wire
from cluster import DATABASE, USER, Cluster
from idle_pools import cpu_seconds

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from support import browser

WATCHERS = ("nobody", "page", "top")
# A watcher's first look may cost more; it is not what watching costs.
SETTLE = 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rate", type=int, default=200, help="questions a second of all clients")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args()
    processes.raise_descriptor_limit()
    directory = processes.directory()
    print("| clients | watched by | CPU, share of a core | added | interval |\n|-|-|-|-|-|")
    try:
        cluster = Cluster(directory, 1)
        for clients in options.clients:
            measure(options, directory, cluster, clients)
    finally:
        processes.stop_all()
        shutil.rmtree(directory, ignore_errors=True)


def measure(options, directory, cluster, clients):
    port, admin = processes.free_port(), processes.free_port()
    config = pathlib.Path(directory) / f"{clients}.toml"
    config.write_text(f'[admin]\nlisten = "127.0.0.1:{admin}"\n[[listener]]\nlisten = "127.0.0.1:{port}"\n'
                      f'[[database]]\nname = "{DATABASE}"\nurl = "postgres://{USER}@127.0.0.1:{cluster.port}/{DATABASE}"\n')
    config.chmod(0o644)
    log = os.path.join(directory, f"{clients}.log")
    process = processes.start([os.environ["POOLHOUSE"], "serve", "--config", str(config)], log)
    if not processes.wait_until(lambda: wire.answers(port, USER, DATABASE), 20, process):
        sys.exit(pathlib.Path(log).read_text())
    idle = wire.crowd(port, USER, DATABASE, clients - 10)
    asking = processes.start([cluster.program("pgbench"), "-n", "-S", "-c", "10", "-R", str(options.rate), "-T", "3600", "-h", "127.0.0.1", "-p",
                              str(port), "-U", USER, DATABASE], os.path.join(directory, "pgbench.log"))
    shares = {who: [] for who in WATCHERS}
    for _ in range(options.rounds):
        for who in random.sample(WATCHERS, len(WATCHERS)):
            with watching(who, admin):
                time.sleep(SETTLE)
                before = cpu_seconds(process.pid)
                time.sleep(options.seconds)
                shares[who].append((cpu_seconds(process.pid) - before) / options.seconds)
    for who in WATCHERS:
        added = [100 * (own - none) for own, none in zip(shares[who], shares["nobody"])]
        low, high = stats.interval(added) or (float("nan"), float("nan"))
        told = "| - | - |" if who == "nobody" else f"| {stats.median(added):.2f}% | [{low:.2f}%, {high:.2f}%] |"
        print(f"| {clients} | {who} | {100 * stats.median(shares[who]):.2f}% {told}", flush=True)
    if asking.poll() is not None:
        sys.exit("pgbench ended before the end: " + pathlib.Path(directory, "pgbench.log").read_text())
    processes.stop(asking)
    wire.drop(idle)
    processes.stop(process)


@contextlib.contextmanager
def watching(who, admin):
    if who == "page":
        with browser.Browser() as program:
            program.open(f"http://127.0.0.1:{admin}/")
            yield
    elif who == "top":
        # It draws on a terminal only.
        ours, its = pty.openpty()
        top = subprocess.Popen([os.environ["POOLHOUSE"], "top", f"http://127.0.0.1:{admin}"], stdin=its, stdout=its, stderr=its)
        reader = threading.Thread(target=drain, args=(ours,), daemon=True)
        reader.start()
        try:
            yield
            if top.poll() is not None:
                sys.exit("top ended by itself")
        finally:
            top.kill()
            top.wait()
            os.close(its)
            reader.join()
            os.close(ours)
    else:
        yield


def drain(terminal):
    """Reads what is drawn, until nobody draws."""
    with contextlib.suppress(OSError):
        while os.read(terminal, 65536):
            pass


if __name__ == "__main__":
    main()
