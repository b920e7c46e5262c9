#!/usr/bin/env python3
"""@upstash/redis over HTTP through Poolhouse, beside ioredis at the same Redis: every result must be the same.

    tests/suites/rest_clients/run.py

Downloads the two. Prints `ok CHECK` or `failed CHECK: why` for each. Exit status 1: something failed.
"""

import os
import pathlib
import secrets
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

from support.postgres_cluster import free_port
from support.redis_server import RedisPoolhouse, RedisServer

SECONDS = 120


def main():
    program = HERE / "upstash-js"
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=program, check=True, stdout=subprocess.DEVNULL)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-rest-clients-"))
    for name in ("redis", "poolhouse"):
        (directory / name).mkdir()
    (directory / "token").write_text(secrets.token_hex(32))
    server = RedisServer(directory / "redis").start()
    poolhouse, port = RedisPoolhouse(directory / "poolhouse", server), free_port()
    try:
        poolhouse.start(http=f"127.0.0.1:{port}", http_token_file=directory / "token", max_size=8)
        environment = {**os.environ, "URL": f"http://127.0.0.1:{port}", "TOKEN": (directory / "token").read_text(), "REDIS": str(server.port)}
        return subprocess.run(["node", "main.mjs"], cwd=program, env=environment, timeout=SECONDS, check=False).returncode
    finally:
        poolhouse.stop()
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
