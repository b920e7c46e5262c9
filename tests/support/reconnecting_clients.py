"""Clients that run transactions and connect again when they are disconnected, as applications do. They note what that cost.

It is a program, so that it can run in the network of another machine: it works until its standard input ends, and prints
what it noted as JSON. It knows neither the pooler nor what happens to it.
"""

import json
import socket
import subprocess
import sys
import threading
import time

import psycopg

# What drivers and their pools wait before they try again.
RETRY_SECONDS = 1.0
PAUSE_SECONDS = 0.02
# Of the connections that only look whether the port is open.
PROBE_SECONDS = 0.01


class Client:
    """One connection at a time, and one row for each transaction."""

    def __init__(self, number, url):
        self.number, self.url, self.connection = number, url, None
        self.begun, self.committed, self.disconnects, self.refused, self.aborted, self.longest_away = 0, 0, 0, [], [], 0.0
        self.connected = threading.Event()

    def work(self, ending):
        away_since = None
        while not ending.is_set():
            if self.connection is None and not self.connect(ending):
                continue
            if self.transaction():
                self.longest_away = max(self.longest_away, time.monotonic() - away_since) if away_since else self.longest_away
                away_since = None
            elif away_since is None:
                away_since = time.monotonic()
            ending.wait(PAUSE_SECONDS)
        if self.connection:
            self.connection.close()

    def connect(self, ending):
        try:
            self.connection = psycopg.connect(self.url, autocommit=True, prepare_threshold=None, connect_timeout=20)
        except psycopg.Error as error:
            self.refused.append(str(error))
            ending.wait(RETRY_SECONDS)
            return False
        self.connected.set()
        return True

    def transaction(self):
        """Whether it was committed. Before its BEGIN is answered nothing is lost with the connection."""
        try:
            self.connection.execute("BEGIN")
        except psycopg.Error:
            self.disconnects += 1
            self.connection = None
            return False
        self.begun += 1
        for statement in (f"INSERT INTO work VALUES ({self.number}, {self.begun})", "SELECT pg_sleep(0.01)", "COMMIT"):
            try:
                self.connection.execute(statement)
                continue
            except psycopg.Error as error:
                self.aborted.append(f"{time.strftime('%T')} {statement}: {error}")
            self.disconnects += 1
            self.connection = None
            return False
        self.committed += 1
        return True


class Probe:
    """Looks all the time whether connections are accepted."""

    def __init__(self, address):
        self.address, self.longest_gap = address, 0.0

    def work(self, ending):
        open_at = time.monotonic()
        while not ending.wait(PROBE_SECONDS):
            try:
                socket.create_connection(self.address, 5).close()
            except OSError:
                continue
            finally:
                now = time.monotonic()
            self.longest_gap = max(self.longest_gap, now - open_at)
            open_at = now


def main(url, count):
    parts = psycopg.conninfo.conninfo_to_dict(url)
    clients = [Client(number, url) for number in range(count)]
    probe, ending = Probe((parts["host"], int(parts["port"]))), threading.Event()
    threads = [threading.Thread(target=worker.work, args=(ending,), daemon=True) for worker in (*clients, probe)]
    for thread in threads:
        thread.start()
    for client in clients:
        client.connected.wait(20)
    print("all are connected", flush=True)
    sys.stdin.read()
    ending.set()
    for thread in threads:
        thread.join(20)
    print(json.dumps({
        "committed": [client.committed for client in clients], "disconnects": [client.disconnects for client in clients],
        "aborted": [error for client in clients for error in client.aborted], "refused": [client.refused for client in clients],
        "longest_away": max(client.longest_away for client in clients), "longest_gap": probe.longest_gap}))


class ReconnectingClients:
    """The program, started with the words that have a command run in some network. For the length of a `with`."""

    def __init__(self, url, count=50, inside=()):
        self.command = [*inside, sys.executable, __file__, url, str(count)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout.readline() == "all are connected\n"
        return self

    def end(self):
        """What they noted."""
        said, _ = self.process.communicate(timeout=40)
        return json.loads(said)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
