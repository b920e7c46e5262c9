"""A client that listens and sends a request after another client's NOTIFY has committed gets the notification before
the answer is complete, as without a pooler. So a client that reads its notifications after a query misses none.
"""

import os
import re
import signal
import threading
import time

import pytest

from support import postgres_wire as w
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

ROUNDS = 50


def heard(answers):
    return [body[4:-1].split(b"\0")[1].decode() for kind, body in answers if kind == b"A"]


def ask(session, extended):
    session.send(*((w.parse("SELECT 1"), w.bind(), w.execute(), w.SYNC) if extended else (w.query("SELECT 1"),)))
    return heard(session.until_ready()[0])


def rounds(listener, notifier, extended, within_transactions=False):
    """The number of notifications that came too late."""
    listener.query("LISTEN c_time")
    late = 0
    for n in range(ROUNDS):
        notifier.query(f"NOTIFY c_time, '{n}'")
        if within_transactions:
            got = []
            for sql in ("BEGIN", "SELECT 1", "COMMIT"):
                # The notification may come before the transaction has begun.
                listener.send(w.query(sql))
                got += heard(listener.until_ready()[0])
        else:
            got = ask(listener, extended)
        if got != [str(n)]:
            late += 1
            while str(n) not in got:
                kind, body = listener.take()
                got += heard([(kind, body)])
    return late


@pytest.mark.parametrize("extended", [False, True], ids=["simple", "extended"])
def test_postgresql_itself_keeps_that_promise(cluster, extended):
    """If this failed, the tests below would ask too much."""
    with w.Wire(cluster.port).login("app", "app secret") as listener, w.Wire(cluster.port).login("app", "app secret") as notifier:
        assert rounds(listener, notifier, extended) == 0


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("extended", [False, True], ids=["simple", "extended"])
def test_a_notification_is_there_before_the_answer_to_the_next_query(start, extended, workers):
    pooler = start(max_size=4, workers=workers)
    with pooler.wire() as listener, pooler.wire() as notifier:
        assert rounds(listener, notifier, extended) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_notification_is_there_when_the_next_transaction_has_ended(start, workers):
    pooler = start(max_size=4, workers=workers)
    with pooler.wire() as listener, pooler.wire() as notifier:
        assert rounds(listener, notifier, False, within_transactions=True) == 0


def test_a_client_hears_itself_before_its_own_answer_is_complete(start):
    """PostgreSQL sends a session its own notifications at the end of the transaction that made them."""
    pooler = start(max_size=4)
    with pooler.wire() as one:
        one.query("LISTEN c_time")
        for n in range(ROUNDS):
            one.send(w.query(f"NOTIFY c_time, '{n}'"))
            assert heard(one.until_ready()[0]) == [str(n)]


def test_a_client_that_keeps_its_server_hears_in_time(start):
    pooler = start(max_size=4)
    with pooler.wire() as listener, pooler.wire() as notifier:
        listener.query("LISTEN c_time")
        listener.query("SELECT pg_advisory_lock(77)")
        assert rounds(listener, notifier, False) == 0


def test_a_client_that_listens_to_more_has_what_came_before_on_the_others(start):
    """Its LISTEN is a transaction like any other."""
    pooler = start(max_size=4)
    with pooler.wire() as listener, pooler.wire() as other, pooler.wire() as notifier:
        listener.query("LISTEN c_time")
        for n in range(50):
            other.query(f"LISTEN c_{n // 2}")
            notifier.query(f"NOTIFY c_time, '{n}'")
            # Whether or not another client listens to that already.
            listener.send(w.query(f"LISTEN c_{n}"))
            assert heard(listener.until_ready()[0]) == [str(n)]


@pytest.mark.parametrize("workers", [1, 2])
def test_many_clients_that_listen_and_ask_at_once_all_hear_in_time(start, workers):
    """One question to the server that listens serves all clients that wait for it."""
    pooler = start(max_size=6, workers=workers)
    late, errors = [], []

    def work(number):
        try:
            with pooler.wire() as listener, pooler.wire() as notifier:
                listener.query(f"LISTEN c_{number}")
                for n in range(100):
                    notifier.query(f"NOTIFY c_{number}, '{n}'")
                    if str(n) not in ask(listener, n % 2 == 0):
                        late.append((number, n))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (late, errors) == ([], [])


@pytest.mark.timing
def test_a_server_that_listens_and_falls_silent_holds_no_client_up_for_long(start):
    """The first client that asks waits half a second. Later ones do not wait, and get the notification when the server
    answers again."""
    pooler = start(max_size=4)
    with pooler.wire() as listener, pooler.wire() as notifier:
        listener.query("LISTEN c_time")
        eventually("the log names the server that listens", lambda: 'reason="listen"' in pooler.log())
        backend = int(re.search(r'server=(\d+) reason="listen"', pooler.log())[1])
        os.kill(backend, signal.SIGSTOP)
        try:
            notifier.query("NOTIFY c_time, 'silent'")
            before = time.monotonic()
            assert ask(listener, False) == []
            first = time.monotonic() - before
            for _ in range(20):
                assert ask(listener, False) == []
            rest = time.monotonic() - before - first
        finally:
            os.kill(backend, signal.SIGCONT)
        assert 0.4 < first < 3, "it waited for the notification, but not for ever"
        assert rest < first * 10, "no client waits twice for a server that is silent"
        assert heard([listener.take()]) == ["silent"]
        # The server answers again, so notifications are in time again.
        assert rounds(listener, notifier, False) == 0
