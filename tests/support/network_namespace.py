"""A network namespace with a link to it that can be cut: its hosts then vanish without closing their connections."""

import os
import random
import socket
import subprocess
import sys

import pytest

from support.waiting import eventually


@pytest.fixture
def namespace():
    """Yields the namespace's name, the address of this end of the link, the address in the namespace, and a function
    that cuts the link. The network is chosen at random, because another run on this machine may use one, or a killed
    run may have left one."""
    name, network = f"ph{os.getpid() % 100_000}", f"10.211.{random.randrange(256)}"
    our_end, other_end, ours, theirs = f"{name}a", f"{name}b", f"{network}.1", f"{network}.2"
    run = lambda *words: subprocess.run(["ip", *words], check=True, capture_output=True)
    try:
        run("netns", "add", name)
    except (subprocess.CalledProcessError, FileNotFoundError) as why:
        pytest.skip(f"no network namespaces here: {why}")
    try:
        run("link", "add", our_end, "type", "veth", "peer", "name", other_end, "netns", name)
        run("addr", "add", f"{ours}/30", "dev", our_end)
        run("link", "set", our_end, "up")
        run("-n", name, "addr", "add", f"{theirs}/30", "dev", other_end)
        run("-n", name, "link", "set", other_end, "up")
        with socket.create_server((ours, 0)) as listening:
            eventually("the link carries", lambda: reaches(name, *listening.getsockname()), seconds=30)
        # Setting the link itself down would make the local kernel report an unreachable host.
        yield name, ours, theirs, lambda: run("-n", name, "link", "set", other_end, "down")
    finally:
        subprocess.run(["ip", "link", "del", our_end], check=False, capture_output=True)
        run("netns", "del", name)


def reaches(name, address, port):
    """Whether a connection from a network namespace is made within two seconds."""
    program = f"import socket; socket.create_connection(({address!r}, {port}), 2)"
    return subprocess.run([*inside(name), "-c", program], capture_output=True).returncode == 0


def inside(name):
    """The beginning of a command that runs Python in a network namespace."""
    return ["ip", "netns", "exec", name, sys.executable]
