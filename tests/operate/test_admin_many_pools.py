"""The admin address of a Poolhouse with thousands of pools. It generates a long answer while the answer is read, so
neither the answer nor a slow reader takes much memory.
"""

import contextlib
import gzip
import http.client
import pathlib
import re
import socket
import time

import pytest

from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

DATABASES, USERS = 100, 40
POOLS = DATABASES * USERS
# The least text that a pool takes in /metrics, and the most memory that it takes while an answer is sent, in bytes.
TEXT, MEMORY = 20_000, 5_000
# The most long answers that are sent at the same time.
MAX_LONG_ANSWERS = 8


@pytest.fixture
def crowded(start):
    """All pools exist from the start because each has a min_size of 1. Only one server may connect; the others wait."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgres://127.0.0.1:{silent.getsockname()[1]}"
        pooler = start(
            users={f"user_{n}": {"password": "p", "min_size": 1} for n in range(USERS)},
            databases={f"database_{n}": {"url": f"{url}/database_{n}"} for n in range(DATABASES)},
            max_server_connections=1, connect_time="60s",
        )
        pooler.settle()
        yield pooler


@contextlib.contextmanager
def asked(pooler, path, method="GET", **headers):
    """The beginning of an answer. The test reads the rest at its own pace."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", pooler.admin_port, timeout=60)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        yield connection.getresponse()


def peak_kib(pooler):
    """The process's peak memory."""
    status = pathlib.Path(f"/proc/{pooler.process.pid}/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+)", status, re.MULTILINE)[1])


@pytest.mark.timing
def test_a_scrape_takes_little_memory_and_begins_at_once(crowded):
    before, began = crowded.resident_kib(), time.monotonic()
    with asked(crowded, "/metrics") as answer:
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        text = answer.read(1)
        first = time.monotonic() - began
        text += answer.read()
    whole = time.monotonic() - began
    assert len(text) > POOLS * TEXT and text.endswith(b"# EOF\n")
    grown = (peak_kib(crowded) - before) * 1024
    assert grown < POOLS * MEMORY, f"{grown / 1e6:.1f} MB for {len(text) / 1e6:.1f} MB of text"
    assert first < whole / 2, f"{first:.2f} s of {whole:.2f}"
    families = re.findall(rb"^# TYPE (\w+) ", text, re.MULTILINE)
    assert len(families) == len(set(families)), "all samples of a family stand together"
    assert text.count(b"\npoolhouse_waiters{") == text.count(b"\npoolhouse_hold_seconds_count{") == POOLS


def test_a_scrape_is_compressed_if_the_client_accepts_that(crowded):
    before = crowded.resident_kib()
    with asked(crowded, "/metrics", Accept_Encoding="deflate, gzip;q=0.9") as answer:
        assert answer.headers["Content-Encoding"] == "gzip" and answer.headers["Vary"] == "Accept-Encoding"
        packed = answer.read()
    assert (peak_kib(crowded) - before) * 1024 < POOLS * MEMORY
    text = gzip.decompress(packed)
    assert text.endswith(b"# EOF\n") and text.count(b"\npoolhouse_waiters{") == POOLS
    assert len(packed) * 20 < len(text), f"{len(packed)} of {len(text)}"
    with asked(crowded, "/metrics", Accept_Encoding="gzip;q=0") as answer:
        assert "Content-Encoding" not in answer.headers and answer.read(6) == b"# HELP"


def test_a_client_that_asks_for_the_head_alone_gets_no_more(crowded):
    for _ in range(3 * MAX_LONG_ANSWERS):
        with asked(crowded, "/metrics", "HEAD") as answer:
            assert answer.status == 200 and answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read() == b""


def test_a_client_that_does_not_read_takes_little_memory_and_is_let_go(crowded):
    before, began = crowded.resident_kib(), time.monotonic()
    with contextlib.ExitStack() as stack:
        for path in ["/metrics", "/api/pools"] * (MAX_LONG_ANSWERS // 2):
            assert stack.enter_context(asked(crowded, path)).status == 200
        for path in ("/metrics", "/api/pools", "/api/clients", "/api/servers"):
            assert crowded.get(path) == (503, "too many questions at once\n")
        assert crowded.get("/health")[0] == 200
        assert crowded.get("/ready") == (200, "ready\n")
        grown = (peak_kib(crowded) - before) * 1024
        assert grown < MAX_LONG_ANSWERS * POOLS * MEMORY, f"{grown / 1e6:.1f} MB"
        eventually("they are let go", lambda: crowded.get("/metrics", timeout=30)[0] == 200, 60, 1)
        assert time.monotonic() - began > 20, "who reads slowly has some time"
