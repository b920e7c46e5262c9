"""Waits for a condition, with a limit."""

import time


def eventually(what, check, seconds=20.0, every=0.02):
    """Calls `check` until it returns something true, and returns that. `what` describes the condition in the error."""
    deadline = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every)
    return result


def query_under_way(cluster, text):
    """Waits until a session of PostgreSQL executes a query with this text, so that it can be cancelled."""
    def is_there():
        query = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE %s AND pid <> pg_backend_pid()"
        return cluster.query(query, f"%{text}%")[0][0]

    eventually(f"{text} is under way", is_there)
