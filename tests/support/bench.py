"""Runs `poolhouse bench` as a user does, and reads the JSON that it prints."""

import json
import subprocess

import pytest

from support import pooler


def run(*arguments, seconds=120, environment=None):
    """Runs the verb and returns the ended process."""
    return subprocess.run([pooler.BINARY, "bench", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=seconds, stdin=subprocess.DEVNULL, env=environment)


def read(done):
    """Parses the JSON that a run printed, and checks that its exit status agrees with it."""
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    result = json.loads(done.stdout)
    errors = sum(result["errors"].values())
    failed = errors > result["requests"]
    assert done.returncode == failed and ("of all operations failed" in done.stderr) is failed, (done.returncode, done.stderr)
    return result


def bench(url, *arguments, **options):
    """Runs the verb and returns its result."""
    return read(run(url, *arguments, "--json", "-", **options))


@pytest.fixture(scope="module")
def tables(session_cluster):
    """The tables of the built-in scripts, made by `poolhouse bench --init`."""
    if not session_cluster.running():
        session_cluster.start()
    done = run(session_cluster.url(), "--init", "--scale", 1, "--duration", "1s", "--clients", 1)
    assert done.returncode == 0, done.stderr
    return session_cluster
