"""Waits for a condition, with a limit."""

import time


def eventually(what, check, seconds=20.0, every=0.02):
    """Calls `check` until it returns something true, and returns that. `what` describes the condition in the error."""
    deadline = time.monotonic() + seconds
    while not (result := check()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every)
    return result
