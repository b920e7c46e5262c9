"""Threads that repeat something until a test is done. An error in a thread fails the test."""

import contextlib
import threading


@contextlib.contextmanager
def running_threads(many, work):
    """Runs `many` threads of `work(over)`, which must return soon after the event `over` is set."""
    over, problems = threading.Event(), []

    def one():
        try:
            work(over)
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=one) for _ in range(many)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not problems, problems
