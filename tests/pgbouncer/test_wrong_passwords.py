"""Wrong passwords, and others who log in from the same address meanwhile."""

import contextlib
import threading
import time

import psycopg
import pytest

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

SERVICES = 12


def test_a_right_password_does_not_wait_for_wrong_ones(serve_ini):
    pooler = serve_ini()
    over, let_in = threading.Event(), []

    def service():
        while not over.is_set():
            with contextlib.suppress(psycopg.OperationalError):
                pooler.connect(password="old").close()
                let_in.append("old")

    services = [threading.Thread(target=service) for _ in range(3 * SERVICES)]
    for each in services:
        each.start()
    try:
        time.sleep(2)
        took = []
        for _ in range(5):
            began = time.monotonic()
            pooler.connect().close()
            took.append(time.monotonic() - began)
    finally:
        over.set()
        for each in services:
            each.join()
    assert sorted(took)[2] < 1 and not let_in, took
