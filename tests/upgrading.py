"""Processes that follow each other at the same addresses."""

import contextlib
import subprocess

from pooler import BINARY
from waiting import eventually


@contextlib.contextmanager
def successor(start, pooler):
    """A second process of the same configuration, which takes over."""
    def ready():
        # The clients' port answers before all else is in place.
        with contextlib.suppress(OSError):
            return pooler.get("/ready")[0] == 200

    eventually("the first is ready", ready, 10)
    made = another(start, pooler)
    command = [BINARY, "serve", "--config", str(made.origin.config_path), "--take-over"]
    with made.log_path.open("ab") as log:
        made.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=pooler.directory)
    eventually("it has taken over", lambda: "took over" in made.log() or made.process.poll() is not None, 15)
    assert "took over" in made.log(), made.log()
    yield made


def another(start, pooler):
    """A process of the same configuration that is not started yet."""
    made = start.unstarted()
    made.port, made.admin_port, made.origin = pooler.port, pooler.admin_port, getattr(pooler, "origin", pooler)
    return made


def next_one(start, pooler, *flags):
    """A process of the same configuration, started when the one that listened has gone."""
    made = another(start, pooler)
    made.launch([BINARY, "serve", "--config", str(made.origin.config_path), *flags])
    made.settle()
    return made
