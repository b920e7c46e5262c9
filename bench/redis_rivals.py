"""Redis, and what stands in front of it in the bench: nothing, Poolhouse, twemproxy and HAProxy.

Refuses to know what is measured.
"""

import shutil
import socket
import subprocess

import processes
import rivals


class Server:
    """A Redis that keeps nothing."""

    def __init__(self, directory):
        self.port = processes.free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = processes.start([*command, "--maxclients", "12000", "--dir", directory], f"{directory}/redis.log")
        if not processes.wait_until(lambda: answers(self.port), 10, self.process):
            raise RuntimeError("redis-server does not answer")

    def path(self):
        """The executable; None if there is none."""
        return shutil.which("redis-server")

    def version(self):
        """What it calls itself."""
        done = subprocess.run([self.path(), "--version"], capture_output=True, text=True, check=False)
        return done.stdout.strip().splitlines()[0]


def answers(port):
    """Whether Redis, or what stands for it, answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n")
            return connection.recv(64).startswith(b"$")
    except OSError:
        return False


class OfRedis:
    """How it is seen that Redis answers through something."""

    def answers(self):
        return answers(self.port)


class Poolhouse(OfRedis, rivals.Poolhouse):
    """One worker, as by default."""

    scheme = "redis"


class HAProxy(OfRedis, rivals.HAProxy):
    """Forwards bytes."""


class Twemproxy(OfRedis, rivals.Rival):
    """Debian calls it nutcracker. It has one thread and one connection to Redis."""

    name = "twemproxy"
    program = "nutcracker"

    def command(self):
        path = self.write(
            "nutcracker.yml",
            f"pool:\n  listen: 127.0.0.1:{self.port}\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n"
            f"  servers:\n   - 127.0.0.1:{self.server.port}:1\n",
        )
        # Its buffers are of 16 KB unless told otherwise; with smaller ones it is no faster.
        return [self.path(), "-c", path]


KINDS = {kind.name: kind for kind in (rivals.Direct, Poolhouse, Twemproxy, HAProxy)}
