"""Redis, and what stands in front of it in the bench: nothing, Poolhouse, twemproxy and HAProxy.

Refuses to know what is measured.
"""

import os
import shutil
import socket
import subprocess

import processes


class Server:
    """A Redis that keeps nothing."""

    def __init__(self, directory):
        self.port = processes.free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self.process = processes.start([*command, "--maxclients", "12000", "--dir", directory], f"{directory}/redis.log")
        if not processes.wait_until(lambda: answers(self.port), 10, self.process):
            raise RuntimeError("redis-server does not answer")


def answers(port):
    """Whether Redis, or what stands for it, answers there."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n")
            return connection.recv(64).startswith(b"$")
    except OSError:
        return False


class Rival:
    """Something that forwards to Redis. Subclasses give the command."""

    name = ""
    program = ""

    def __init__(self, directory, server):
        self.directory, self.server, self.port, self.process = directory, server, processes.free_port(), None

    def path(self):
        """The executable; None if there is none."""
        return shutil.which(self.program) or shutil.which(self.program, path="/usr/sbin:/sbin")

    def version(self):
        """What it calls itself."""
        done = subprocess.run([self.path(), "--version"], capture_output=True, text=True, check=False)
        return (done.stdout + done.stderr).strip().splitlines()[0]

    def start(self):
        """Starts it, and waits until it answers."""
        self.process = processes.start(self.command(), f"{self.directory}/{self.name}.log", unprivileged=False)
        if not processes.wait_until(lambda: answers(self.port), 10, self.process):
            raise RuntimeError(f"{self.name} does not answer")
        return self

    def pid(self):
        """Whose CPU counts; None where there is no process between."""
        return self.process.pid if self.process else None

    def command(self):
        """How it is started."""
        raise NotImplementedError

    def write(self, name, text):
        """A file for it."""
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        return path


class Direct(Rival):
    """Nothing between."""

    name = "direct"
    program = "redis-server"

    def start(self):
        self.port = self.server.port
        return self


class Poolhouse(Rival):
    """One worker, as by default."""

    name = "poolhouse"

    def path(self):
        return os.environ.get("POOLHOUSE") or shutil.which("poolhouse")

    def command(self):
        url = f"redis://127.0.0.1:{self.server.port}"
        return [self.path(), "serve", url, "--listen", f"127.0.0.1:{self.port}", "--admin", "off"]


class Twemproxy(Rival):
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


class HAProxy(Rival):
    """Forwards bytes, each client over a connection of its own."""

    name = "haproxy"
    program = "haproxy"

    def version(self):
        done = subprocess.run([self.path(), "-v"], capture_output=True, text=True, check=False)
        return done.stdout.strip().splitlines()[0]

    def command(self):
        path = self.write(
            "haproxy.cfg",
            "global\n  maxconn 4000\n  nbthread 1\ndefaults\n  mode tcp\n  timeout connect 5s\n  timeout client 60s\n"
            f"  timeout server 60s\nlisten redis\n  bind 127.0.0.1:{self.port}\n  server redis 127.0.0.1:{self.server.port}\n",
        )
        return [self.path(), "-db", "-f", path]


KINDS = {kind.name: kind for kind in (Direct, Poolhouse, Twemproxy, HAProxy)}
