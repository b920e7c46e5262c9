"""The admin page in a real browser with real traffic: figures are live, the console stays empty, nothing is fetched
from elsewhere, and the page is readable on a phone and in dark mode. DASHBOARD_PICTURES=DIR keeps screenshots.
"""

import contextlib
import os
import pathlib
import threading
import time
import urllib.request

import pytest

from support import browser as chromium
from support import postgres_wire as w
from support.dashboard import cells, state, tile
from support.waiting import eventually

pytestmark = [
    pytest.mark.poolhouse_only,
    pytest.mark.skipif(chromium.PROGRAM is None, reason="NO CHROMIUM HERE: the page is not tested (`make setup` installs it)"),
]
EVIL = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script>"


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser() as made:
        yield made


class Traffic:
    """Clients that work, one that holds a server, and one that waits for long."""

    def __init__(self, pooler):
        self.over, self.pooler = threading.Event(), pooler
        self.threads = [threading.Thread(target=self.work) for _ in range(3)]

    def work(self):
        with self.pooler.wire() as client:
            while not self.over.is_set():
                client.query("SELECT pg_sleep(0.002)")

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for thread in self.threads:
            thread.join()


class Waiting(Traffic):
    """Clients that want a server and get an error."""

    def work(self):
        while not self.over.is_set():
            with contextlib.suppress(w.ServerError, w.Closed, TimeoutError), self.pooler.wire() as client:
                client.query("SELECT 1")


def findings(browser):
    return browser.run("document.getElementById('findings').textContent")


@pytest.mark.timing
@pytest.mark.parametrize("width, dark", [(1280, False), (1280, True), (390, False), (390, True)], ids=["light", "dark", "phone", "dark phone"])
def test_the_page_lives_and_fits(start, browser, width, dark):
    pooler = start(max_size=2)
    with pooler.wire() as holder, Traffic(pooler):
        holder.query("BEGIN")
        browser.open(pooler.admin_url, width=width, dark=dark)
        eventually("a rate", lambda: tile(browser, "Transactions a second") not in ("–", "0"))
        (pool,) = cells(browser, "pools", ["database", "state", "clients", "in use", "held p99"])
        assert (pool["database"], pool["state"], pool["clients"]) == ("bench", "ready", "4")
        assert pool["held p99"] != "–"
        holders = cells(browser, "holders", ["state"])
        assert {"state": "transaction"} in holders
        assert browser.run("[...document.querySelectorAll('.axis')].every(axis => axis.lastChild.textContent === 'now' && axis.children.length === 5)")
        # The most important columns must be visible on a phone.
        assert browser.run("""(() => {
            const edge = document.querySelector('#pools').parentElement.getBoundingClientRect().right;
            return [...document.querySelectorAll('#pools th')].filter(head => ['waiting', 'longest', 'in use'].includes(head.textContent))
                .every(head => head.getBoundingClientRect().right <= edge);
        })()"""), "the columns of waiters are cut off"
        (listener,) = cells(browser, "listeners", ["clients", "protocol"])
        assert listener == {"clients": "4", "protocol": "postgres"}
        # A line needs two points.
        eventually("curves", lambda: browser.run("[...document.querySelectorAll('.chart path')].some(path => path.getAttribute('d').includes('L') && !path.closest('.keys'))"))
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth"), "the page is wider than the window"
        assert browser.complaints() == []
        assert all(url.startswith(pooler.admin_url) for url in browser.requests())
        if directory := os.environ.get("DASHBOARD_PICTURES"):
            time.sleep(8)
            browser.picture(pathlib.Path(directory) / f"dashboard-{width}-{'dark' if dark else 'light'}.png")


def red(browser, table):
    """The cells of a table that are marked as an alarm: head and text."""
    return browser.run(f"""[...document.querySelectorAll('#{table} td.bad')].map(cell => [
        document.querySelectorAll('#{table} th')[cell.cellIndex].textContent, cell.textContent])""")


def test_a_forgotten_transaction_stands_out_from_many_waiters(start, browser):
    pooler = start(max_size=1, max_wait_time="60s")
    with pooler.wire() as holder, contextlib.ExitStack() as stack:
        holder.query("BEGIN")
        for _ in range(30):
            stack.enter_context(pooler.wire()).send(w.query("SELECT 1"))
        eventually("all wait", lambda: pooler.pools()[0]["waiters"] == 30)
        browser.open(pooler.admin_url)
        eventually("it is red", lambda: [head for head, _ in red(browser, "holders")] == ["for", "state"])
        (row,) = cells(browser, "holders", ["state", "address"])
        assert row["state"] == "transaction"
        assert [head for head, _ in red(browser, "pools")] == ["waiting", "longest"], "the pool itself is ready"
        waiting = cells(browser, "waiting", ["for", "database"])
        assert len(waiting) == 11 and waiting[0]["database"] == "bench" and "20 more" in waiting[-1]["for"], waiting
        assert browser.complaints() == []
        if directory := os.environ.get("DASHBOARD_PICTURES"):
            browser.picture(pathlib.Path(directory) / "dashboard-waiting.png")


@pytest.mark.timing
def test_names_that_clients_choose_are_text(start, browser):
    pooler = start(databases={"*": {}})
    with pooler.open() as client:
        client.send(w.startup(user="app", database=EVIL))
        browser.open(pooler.admin_url)
        eventually("it has looked", lambda: browser.run("document.getElementById('version').textContent"))
        time.sleep(0.3)
        assert browser.run("document.title") == "Poolhouse"
        assert browser.run("document.images.length") == 0


@pytest.mark.quick
def test_the_page_says_when_poolhouse_does_not_answer_and_goes_on_when_it_does(start, browser):
    pooler = start()
    with pooler.wire() as client:
        client.query("SELECT 1")
    browser.open(pooler.admin_url)
    eventually("a first look", lambda: state(browser) == "live")
    pooler.stop()
    eventually("a word of it", lambda: "no answer" in state(browser))
    assert cells(browser, "listeners", ["protocol"]) == [{"protocol": "postgres"}], "what was seen last stays"


def test_the_keyboard_focus_stays_where_it_is(start, browser):
    pooler = start(databases={"bench": {}, "*": {}})
    with pooler.wire() as client:
        client.query("SELECT 1")
        browser.open(pooler.admin_url)
        eventually("the pool", lambda: browser.run("!!document.querySelector('#pools button')"))
        browser.run("document.querySelector('#pools button').focus()")
        first = browser.run("document.getElementById('clock').textContent")
        eventually("another look", lambda: browser.run("document.getElementById('clock').textContent") != first)
        assert browser.run("document.activeElement.textContent") == "bench"


def test_no_other_script_may_run_in_it(start):
    pooler = start()
    with urllib.request.urlopen(pooler.admin_url) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["X-Frame-Options"] == "DENY"


def test_the_page_tells_what_the_doctor_says_and_which_settings_are_in_force(start, browser):
    pooler = start(max_size=1, max_wait_time="10s", max_idle_time="70s")
    with pooler.wire() as holder, Waiting(pooler):
        holder.query("BEGIN")
        browser.open(pooler.admin_url)
        eventually("a first word", lambda: "it says nothing before it has looked 4 times and for 10 s" in findings(browser))
        eventually("what is in force", lambda: browser.run("document.getElementById('pool-lists').textContent").count("max_size 1,"))
        lists = browser.run("document.getElementById('pool-lists').textContent")
        assert "max_wait_time 10.0 s" in lists and "max_idle_time 70.0 s" in lists and "check_after_idle off" in lists, lists
        eventually("a finding", lambda: "bench as app: " in findings(browser), seconds=30)
        said = findings(browser)
        assert "bench as app: servers are never given back" in said and "set transaction_idle_time = 30s" in said, said
        assert browser.complaints() == []
        if directory := os.environ.get("DASHBOARD_PICTURES"):
            browser.picture(pathlib.Path(directory) / "dashboard-findings.png")
