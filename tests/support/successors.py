"""Processes that follow each other at the same addresses."""

import contextlib
import json
import os
import socket
import subprocess
import threading

from support.pooler import BINARY
from support.waiting import eventually


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


class Played:
    """Takes over from a process and gives the sockets to the next one, as a process does; says only what it is made to."""

    def __init__(self, pooler):
        self.place = f"\0poolhouse.{os.getuid()}.127.0.0.1:{pooler.port}".encode()
        self.sockets, self.resources = [], contextlib.ExitStack()
        self.before = self.resources.enter_context(socket.socket(socket.AF_UNIX))
        eventually("a process waits for a successor", lambda: self.before.connect_ex(self.place) == 0)
        say(self.before, take_over=1)
        _, self.sockets, _, _ = socket.recv_fds(self.before, 1, 8)
        self.answer = hear(self.before)
        say(self.before, serving=True)
        word = hear(self.before)
        assert word["left"] and word["process"] == self.answer["process"] != 0
        self.meeting = self.wait_at(self.place)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.resources.close()
        for descriptor in self.sockets:
            os.close(descriptor)

    def wait_at(self, place):
        waiting = self.resources.enter_context(socket.socket(socket.AF_UNIX))

        def bind():
            with contextlib.suppress(OSError):
                waiting.bind(place)
                return True

        eventually("the place is free", bind)
        waiting.listen()
        return waiting

    def give(self, **held):
        """Gives the sockets to the one that asks, and hears that it serves. Returns the stream between the two."""
        stream = self.resources.enter_context(self.meeting.accept()[0])
        assert hear(stream) == {"take_over": 1}
        socket.send_fds(stream, [b"\n"], self.sockets)
        say(stream, **{**self.answer, **held})
        assert hear(stream) == {"serving": True}
        return stream

    def tell_at_a_place_of_its_own(self, **word):
        """Tells all who come what it holds, as a process does that serves no longer."""
        waiting = self.wait_at(self.place + b".t12345")

        def tell():
            with contextlib.suppress(OSError):
                while True:
                    say(self.resources.enter_context(waiting.accept()[0]), **word)

        threading.Thread(target=tell, daemon=True).start()


def say(stream, **what):
    stream.sendall(json.dumps(what).encode() + b"\n")


def hear(stream):
    """A line, and no byte of what follows it."""
    line = b""
    while not line.endswith(b"\n"):
        byte = stream.recv(1)
        assert byte, "the stream has ended"
        line += byte
    return json.loads(line)
