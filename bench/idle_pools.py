#!/usr/bin/env python3
"""What pools cost in which nothing happens: CPU of a Poolhouse with thousands of them.

    POOLHOUSE=target/release/poolhouse bench/idle_pools.py --pools 10000

BEFORE=path of another Poolhouse: the same for that one. A pool is made for each name of a database that a client asks for; PostgreSQL has none
of these names, so no connection is left. Prints the CPU time of ten seconds as a share of one core.
"""

import argparse
import os
import pathlib
import shutil
import socket
import statistics
import struct
import time

import processes
from cluster import USER, Cluster

ROUNDS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    directory = processes.directory()
    try:
        cluster = Cluster(directory, 1)
        for name, variable in (("now", "POOLHOUSE"), ("before", "BEFORE")):
            if binary := os.environ.get(variable):
                print(name, measure(options, directory, cluster, name, binary))
    finally:
        processes.stop_all()
        shutil.rmtree(directory, ignore_errors=True)


def measure(options, directory, cluster, name, binary):
    port, config = processes.free_port(), pathlib.Path(directory) / f"{name}.toml"
    config.write_text(f'[admin]\nlisten = "off"\n[serve]\nworkers = 2\n[[listener]]\nlisten = "127.0.0.1:{port}"\n'
                      f'[[database]]\nname = "*"\nurl = "postgres://{USER}@127.0.0.1:{cluster.port}"\n')
    config.chmod(0o644)
    process = processes.start([binary, "serve", "--config", str(config)], os.path.join(directory, f"{name}.log"))
    processes.wait_until(lambda: answers(port), 20)
    for number in range(options.pools):
        ask(port, f"none_{number}")
    shares = []
    for _ in range(ROUNDS):
        before = cpu_seconds(process.pid)
        time.sleep(options.seconds)
        shares.append((cpu_seconds(process.pid) - before) / options.seconds)
    return f"{options.pools} pools: {100 * statistics.median(shares):.3f}% of a core, of {[f'{100 * share:.3f}%' for share in shares]}"


def ask(port, database):
    """A client that asks for a database that is not there, and is told so."""
    body = b"".join(word.encode() + b"\0" for word in ("user", USER, "database", database)) + b"\0"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(struct.pack("!II", len(body) + 8, 3 << 16) + body)
        while connection.recv(65536):
            pass


def answers(port):
    """Whether somebody listens there."""
    try:
        ask(port, "none")
    except OSError:
        return False
    return True


def cpu_seconds(pid):
    nanoseconds = [int((task / "schedstat").read_text().split()[0]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum(nanoseconds) / 1e9


if __name__ == "__main__":
    main()
