"""What stands in front of a database in a bench beside Poolhouse, as processes: how each is found, started and asked its version.

Refuses to know any protocol, and what is measured.
"""

import os
import shutil
import subprocess

import processes


class Rival:
    """Something that forwards to a server. Subclasses give the command, and how it is seen to answer."""

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
        if not processes.wait_until(self.answers, 10, self.process):
            raise RuntimeError(f"{self.name} does not answer")
        return self

    def pid(self):
        """Whose CPU counts; None where there is no process between."""
        return self.process.pid if self.process else None

    def command(self):
        """How it is started."""
        raise NotImplementedError

    def answers(self):
        """Whether the database answers through it."""
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

    def start(self):
        self.port = self.server.port
        return self

    def path(self):
        return self.server.path()

    def version(self):
        return self.server.version()


class Poolhouse(Rival):
    """One worker, as by default."""

    name = "poolhouse"
    scheme = ""
    options = ()

    def path(self):
        return os.environ.get("POOLHOUSE") or shutil.which("poolhouse")

    def command(self):
        url = f"{self.scheme}://127.0.0.1:{self.server.port}"
        return [self.path(), "serve", url, "--listen", f"127.0.0.1:{self.port}", "--admin", "off", *self.options]


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
            f"  timeout server 60s\nlisten database\n  bind 127.0.0.1:{self.port}\n  server database 127.0.0.1:{self.server.port}\n",
        )
        return [self.path(), "-db", "-f", path]
