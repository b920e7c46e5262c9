"""Starts programs, unprivileged where the bench runs as root, and ends all of them whatever happens.

Refuses to know what the programs are for.
"""

import atexit
import os
import pwd
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

DESCRIPTORS = 65_536

_running = []
_ports = set()


def raise_descriptor_limit():
    """10,000 clients need as many descriptors at either end."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in ((max(soft, DESCRIPTORS), max(hard, DESCRIPTORS)), (hard, hard)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
            return limit[0]
        except (ValueError, OSError):
            continue
    return soft


def account():
    """The account for servers when we are root, else None."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise SystemExit("bench: running as root, but there is neither an account `postgres` nor `nobody`")


def directory():
    """A private directory that goes when the bench ends; SIGTERM, too, lets it end in order from now on."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = tempfile.mkdtemp(prefix="poolhouse-bench-")
    give_away(path)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def give_away(path):
    """Lets the unprivileged account own a file or directory."""
    owner = account()
    if owner:
        os.chown(path, owner.pw_uid, owner.pw_gid)


def start(command, log, unprivileged=True, farewell=signal.SIGTERM):
    """Starts a server with its output in the file `log`; `farewell` is the signal that ends it politely."""
    owner = account() if unprivileged else None
    who = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
    with open(log, "ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, **who
        )
    process.farewell = farewell
    _running.append(process)
    return process


def run(command, unprivileged=False):
    """Runs a program to its end and returns its standard output; a failure is an error that quotes it."""
    owner = account() if unprivileged else None
    who = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": [], "cwd": "/"} if owner else {}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, **who)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def stop(process):
    """Ends a server and everything in its session."""
    for sign, patience in ((process.farewell, 5.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 2.0)):
        if process.poll() is not None:
            break
        try:
            # A postmaster passes the signal on by itself and must not be overtaken; so must a pgpool.
            process.send_signal(sign) if sign != signal.SIGKILL else os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    if process in _running:
        _running.remove(process)


def stop_all():
    """Ends all servers, the youngest first."""
    while _running:
        stop(_running[-1])


def free_port():
    """A loopback port nobody listens at, never the same twice, below the range that outgoing connections use."""
    while True:
        port = random.randrange(10_000, 30_000)
        if port in _ports:
            continue
        _ports.add(port)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def wait_until(condition, seconds, process=None):
    """Waits for a condition; False when time is up or the process has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        if process is not None and process.poll() is not None:
            return False
        time.sleep(0.02)
    return False


atexit.register(stop_all)
