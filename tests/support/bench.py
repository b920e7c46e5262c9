"""Runs `poolhouse bench` as a user does, and reads the JSON that it prints."""

import json
import subprocess

import pytest

from support import pooler


def run(*arguments, seconds=120, environment=None):
    """Runs the verb; what it wrote and how it ended."""
    return subprocess.run([pooler.BINARY, "bench", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=seconds, stdin=subprocess.DEVNULL, env=environment)


def read(done):
    """The JSON that a run has printed. It has failed where most of its operations did, and says so."""
    assert done.returncode in (0, 1) and done.stdout, done.stderr
    result = json.loads(done.stdout)
    errors = sum(result["errors"].values())
    failed = errors > result["requests"]
    assert done.returncode == failed and ("of all operations failed" in done.stderr) is failed, (done.returncode, done.stderr)
    return result


def bench(url, *arguments, **options):
    """A run, as the JSON it prints."""
    return read(run(url, *arguments, "--json", "-", **options))


@pytest.fixture(scope="module")
def tables(session_cluster):
    """The built-in scripts' tables, made by the bench itself."""
    if not session_cluster.running():
        session_cluster.start()
    done = run(session_cluster.url(), "--init", "--scale", 1, "--duration", "1s", "--clients", 1)
    assert done.returncode == 0, done.stderr
    return session_cluster
