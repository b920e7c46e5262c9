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
def successor(start, pooler, program=BINARY):
    """A second process with the same configuration, which takes over."""
    def ready():
        # The clients' port accepts connections before all else is ready.
        with contextlib.suppress(OSError):
            return pooler.get("/ready")[0] == 200

    eventually("the first is ready", ready, 10)
    made = unstarted_successor(start, pooler)
    command = [program, "serve", "--config", str(made.origin.config_path), "--take-over"]
    with made.log_path.open("ab") as log:
        made.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=pooler.directory)
    eventually("it has taken over", lambda: "took over" in made.log() or made.process.poll() is not None, 15)
    assert "took over" in made.log(), made.log()
    yield made


def unstarted_successor(start, pooler):
    """A process with the same configuration that has not been started."""
    made = start.unstarted()
    made.port, made.admin_port, made.origin = pooler.port, pooler.admin_port, getattr(pooler, "origin", pooler)
    return made


def start_next(start, pooler, *flags):
    """A process with the same configuration, started after the one that listened has ended."""
    made = unstarted_successor(start, pooler)
    made.launch([BINARY, "serve", "--config", str(made.origin.config_path), *flags])
    made.settle()
    return made


class FakeProcess:
    """A fake process that takes over from a real one and hands the sockets to the next. It sends only what a test tells
    it to."""

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

    def hand_over(self, **held):
        """Hands the sockets to the process that asks, and waits until that serves. Returns the stream between the two.
        """
        stream = self.resources.enter_context(self.meeting.accept()[0])
        assert hear(stream) == {"take_over": 1}
        socket.send_fds(stream, [b"\n"], self.sockets)
        say(stream, **{**self.answer, **held})
        assert hear(stream) == {"serving": True}
        return stream

    def report_at_own_address(self, **word):
        """Reports its connections at an address of its own, as a process does that no longer serves."""
        waiting = self.wait_at(self.place + b".t12345")

        def tell():
            with contextlib.suppress(OSError):
                while True:
                    say(self.resources.enter_context(waiting.accept()[0]), **word)

        threading.Thread(target=tell, daemon=True).start()


def say(stream, **what):
    stream.sendall(json.dumps(what).encode() + b"\n")


def hear(stream):
    """Reads one line, and no byte of what follows."""
    line = b""
    while not line.endswith(b"\n"):
        byte = stream.recv(1)
        assert byte, "the stream has ended"
        line += byte
    return json.loads(line)
