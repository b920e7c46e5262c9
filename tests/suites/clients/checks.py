"""What the programs in Python share: they run the checks that CHECKS names (all without it) and say how each ended."""

import concurrent.futures
import contextlib
import os
import sys
import threading
import uuid

CONNECTIONS = int(os.environ.get("CONNECTIONS", "8"))
# The certificate is for TLS_HOST, not for PGHOST, which is the same machine; TLS_CA signed it, and TLS_OTHER_CA did
# not.
TLS_HOST, TLS_CA, TLS_OTHER_CA = (os.environ.get(name) for name in ("TLS_HOST", "TLS_CA", "TLS_OTHER_CA"))


def nonce():
    return str(uuid.uuid4())


def on_each(work):
    """Runs the work on CONNECTIONS threads, each told its number."""
    with concurrent.futures.ThreadPoolExecutor(CONNECTIONS) as threads:
        for future in [threads.submit(work, n) for n in range(CONNECTIONS)]:
            future.result(timeout=60)


@contextlib.contextmanager
def failing(error, *words):
    """What stands in this block fails with this error, and its text holds these words."""
    try:
        yield
    except error as problem:
        assert all(word in str(problem) for word in words), problem
        return
    raise AssertionError(f"no {error.__name__}")


@contextlib.contextmanager
def cancelling(cancel, *arguments, **more):
    """Meanwhile another thread keeps asking to cancel. The first wish may come before the query does; then it is meant
    for nothing.
    """
    over = threading.Event()

    def keep_asking():
        while not over.wait(0.3):
            cancel(*arguments, **more)

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run(version, checks):
    """`checks` are functions; their names are the checks'."""
    print("version", version)
    wanted = os.environ.get("CHECKS")
    wanted = wanted.split(",") if wanted else [check.__name__ for check in checks]
    failed = False
    for check in checks:
        if check.__name__ not in wanted:
            continue
        try:
            check()
            print("ok", check.__name__, flush=True)
        except Exception as problem:
            failed = True
            text = " ".join(f"{type(problem).__name__} {problem}".split())
            print(f"failed {check.__name__}: {text}", flush=True)
    sys.exit(failed)
