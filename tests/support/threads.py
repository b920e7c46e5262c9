"""Many threads at once that each do something until it is over. What goes wrong in any of them fails the test."""

import contextlib
import threading


@contextlib.contextmanager
def crowd(many, work):
    """So many threads that each do `work(over)`, which ends soon after the event `over` is set."""
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
