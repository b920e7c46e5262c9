"""poolhouse top: a running Poolhouse in a terminal, and once for scripts."""

import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from fcntl import ioctl

import pytest

from support import postgres_wire as w
from support.fake_admin import Admin, listener, pool
from support.pooler import BINARY
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def top(pooler, *arguments):
    return subprocess.run([BINARY, "top", pooler.admin_url, *arguments], capture_output=True, text=True, timeout=30)


@pytest.mark.quick
def test_once_shows_rates_waiters_and_the_clients_that_hold_servers(start):
    pooler = start(max_size=1)
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        waiter.send(w.query("SELECT 1"))
        eventually("a waiter", lambda: pooler.pools()[0]["waiters"] == 1)
        shown = json.loads(top(pooler, "--once", "--every", "300ms", "--json", "-").stdout)
        (pool,) = shown["pools"]
        assert (pool["database"], pool["waiters"], pool["in_use"], pool["max_size"], pool["state"]) == ("bench", 1, 1, 1, "ready")
        assert pool["oldest_wait_ms"] > 100
        assert pool["transactions_per_s"] == 0 and pool["hold_p99_ms"] is None, "nothing ended in between"
        states = [client["state"] for client in shown["clients"]]
        assert sorted(states) == ["transaction", "waiting"]
        assert shown["listeners"][0]["total"] == 2
        text = top(pooler, "--once", "--every", "100ms").stdout
        assert re.search(r"^bench .* 1/1 ", text, re.M) and "2 hold a server or wait" in text, text
        holder.query("COMMIT")


def test_rates_and_percentiles_are_those_of_the_time_between_two_looks(start):
    pooler = start()
    with pooler.wire() as client:
        for _ in range(200):
            client.query("SELECT 1")
        over = threading.Event()

        def work():
            while not over.is_set():
                client.query("SELECT pg_sleep(0.03)")

        worker = threading.Thread(target=work)
        worker.start()
        try:
            (pool,) = json.loads(top(pooler, "--once", "--every", "1s", "--json", "-").stdout)["pools"]
        finally:
            over.set()
            worker.join()
    assert 5 < pool["transactions_per_s"] < 40, pool
    assert pool["hold_p99_ms"] >= 20, "the short ones came before"


def test_why_a_server_is_pinned_is_told(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("CREATE TEMP TABLE mine (n int)")
        eventually("a pin", lambda: pooler.pools()[0]["pinned"])
        shown = json.loads(top(pooler, "--once", "--every", "100ms", "--json", "-").stdout)
        (row,) = shown["clients"]
        assert row["pinned"] and shown["pools"][0]["pinned"] == {row["pinned"]: 1}


def test_what_is_no_terminal_or_no_poolhouse_is_told(start):
    pooler = start()
    assert top(pooler).returncode == 2
    assert top(pooler, "--json", "-").returncode == 2
    nowhere = subprocess.run([BINARY, "top", "http://127.0.0.1:1", "--once"], capture_output=True, text=True, timeout=30)
    assert nowhere.returncode == 1 and "cannot ask http://127.0.0.1:1" in nowhere.stderr


def once(url, *arguments):
    return subprocess.run([BINARY, "top", url, "--once", "--every", "100ms", *arguments], capture_output=True, text=True, timeout=30)


def test_rates_do_not_depend_on_how_long_an_answer_takes():
    with Admin(lambda n: {"pools": [pool(transactions=1000 * n)], "uptime_ms": 1000.0 * n, "delay": 0 if n == 1 else 0.5}) as admin:
        (shown,) = json.loads(once(admin.url, "--json", "-").stdout)["pools"]
    assert shown["transactions_per_s"] == 1000


def test_nothing_that_an_admin_address_answers_steers_the_terminal():
    evil = "\x1b]0;evil\x07\x9b2J\u202e"
    with Admin(lambda n: {"version": evil, "pools": [pool(database=evil)], "listeners": [listener(protocol=evil, name=evil)]}) as admin:
        told = once(admin.url)
        admin.refusal = 403, {"error": evil}
        refused = once(admin.url)
    assert (told.returncode, refused.returncode) == (0, 1)
    for text in (told.stdout, refused.stderr):
        assert "2J" in text and not any(sign in text for sign in "\x1b\x07\x9b\u202e"), repr(text)


class Terminal:
    """A terminal of 80 columns and 24 rows that runs a program."""

    def __init__(self, command, **environment):
        self.seen = self.raw = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", **environment})
            self.resize(80, 24, 0)
            os.execv(command[0], command)

    def resize(self, columns, rows, fd=None):
        ioctl(self.fd if fd is None else fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def shows(self, words, within=10):
        """Reads until the words have appeared after those of the last call. Only changes are drawn, so blanks do not
        count."""
        until, words = time.monotonic() + within, words.replace(" ", "")
        while words not in self.seen:
            left = until - time.monotonic()
            assert left > 0 and select.select([self.fd], [], [], left)[0], f"no {words!r} in {self.seen[-2000:]!r}"
            piece = os.read(self.fd, 65536).decode(errors="replace")
            self.raw += piece
            self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]| ", "", piece)
        self.seen = self.seen.partition(words)[2]

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def ends(self, again=""):
        """Its exit status. The keys are pressed again until the program reacts."""
        until = time.monotonic() + 5
        while time.monotonic() < until:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    break
            else:
                self.press(again)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.timing
def test_the_screen_shows_pools_takes_keys_and_ends(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("BEGIN")
        terminal = Terminal([BINARY, "top", pooler.admin_url, "--every", "200ms"])
        terminal.shows("DATABASE")
        terminal.shows("transaction")
        terminal.press("?")
        terminal.shows("check-outs that failed, a second")
        # Its terminal has no shell that could continue it, so it must not stop.
        terminal.press("\x1a?3")
        time.sleep(0.5)
        terminal.press("/zzz\r")
        terminal.shows("/zzz")
        terminal.press("\x1b")
        time.sleep(0.3)
        terminal.press("q")
        assert terminal.ends() == 0


def test_the_screen_goes_on_when_poolhouse_is_gone(start):
    pooler = start()
    terminal = Terminal([BINARY, "top", pooler.admin_url, "--every", "200ms"])
    terminal.shows("postgres 127.0.0.1:")
    pooler.stop()
    terminal.shows("s old: cannot ask")
    terminal.press("q")
    assert terminal.ends() == 0


def test_the_screen_tells_that_no_answer_comes_and_takes_keys_meanwhile():
    with Admin(lambda n: {"pools": [pool(), pool(1)], "delay": 0 if n < 3 else 30}) as admin:
        terminal = Terminal([BINARY, "top", admin.url, "--every", "200ms"])
        terminal.shows("database1")
        terminal.shows("no answer for 2 s", within=5)
        terminal.press("/zzz\r")
        terminal.shows("/zzz", within=1)
        terminal.press("q")
        assert terminal.ends() == 0


def test_the_program_ends_with_its_terminal_though_no_signal_reaches_it(start):
    pooler = start()
    terminal = Terminal(["/usr/bin/env", "--ignore-signal=HUP", BINARY, "top", pooler.admin_url, "--every", "200ms"])
    terminal.shows("postgres 127.0.0.1:")
    os.close(terminal.fd)
    try:
        eventually("its end", lambda: os.waitpid(terminal.pid, os.WNOHANG)[0])
    except BaseException:
        os.kill(terminal.pid, signal.SIGKILL)
        raise


def test_it_stops_and_ends_by_signals_and_leaves_the_terminal_as_it_was():
    told = 'echo left $? $(stty -a | grep -oE -- "-?icanon")'
    with Admin() as admin:
        shell = Terminal(["/bin/bash", "-mc", f'"$@"; {told}; fg; {told}', "bash", BINARY, "top", admin.url, "--every", "200ms"])
        shell.shows("database0")
        shell.press("\x1a")
        shell.shows("left 148 icanon")
        shell.shows("database0")
        (program,) = open(f"/proc/{shell.pid}/task/{shell.pid}/children").read().split()
        os.kill(int(program), signal.SIGTERM)
        shell.shows("left 143 icanon")
        assert shell.raw.count("\x1b[?1049l") == 2, "the screen that was there before is shown again"
        shell.ends()


def test_no_colours_means_none_and_a_terminal_that_cannot_be_drawn_on_is_refused():
    with Admin(lambda n: {"pools": [pool(waiters=3), pool(1)]}) as admin:
        terminal = Terminal([BINARY, "top", admin.url, "--every", "200ms"], NO_COLOR="1")
        terminal.shows("database1")
        terminal.press("q")
        assert terminal.ends() == 0
        assert "\x1b[1m" in terminal.raw, "what is bold stays bold"
        assert "\x1b[38" not in terminal.raw and "\x1b[;m" not in terminal.raw
        dumb = Terminal([BINARY, "top", admin.url], TERM="dumb")
        dumb.shows("--once prints what is seen")
        assert dumb.ends() == 2


def test_a_window_that_changes_its_size_again_and_again_is_drawn_in_the_end():
    with Admin(lambda n: {"pools": [pool(number) for number in range(3000)]}) as admin:
        terminal = Terminal([BINARY, "top", admin.url, "--every", "1s"])
        terminal.shows("database0")
        over = threading.Event()

        def read():
            while not over.is_set():
                if select.select([terminal.fd], [], [], 0.05)[0]:
                    os.read(terminal.fd, 65536)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            for _ in range(100):
                for size in ((20, 5), (300, 100), (1, 1)):
                    terminal.resize(*size)
                    time.sleep(0.001)
        finally:
            over.set()
            reader.join()
        terminal.resize(200, 50)
        terminal.shows("database25")
        terminal.press("q")
        # crossterm loses a key that arrives together with a change of size, until the next key.
        assert terminal.ends(again="q") == 0
