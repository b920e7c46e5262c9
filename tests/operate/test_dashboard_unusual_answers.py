"""The admin page in a real browser with answers that Poolhouse gives rarely or never. For the page, time passes twenty
times as fast.
"""

import os
import pathlib
import time

import pytest

from support import browser as chromium
from support.dashboard import cells, state, tile
from support.fake_admin import Admin, pool, times
from support.waiting import eventually

pytestmark = [
    pytest.mark.poolhouse_only,
    pytest.mark.skipif(chromium.PROGRAM is None, reason="NO CHROMIUM HERE: the page is not tested (`make setup` installs it)"),
]
FASTER = """const slow = window.setTimeout.bind(window), now = performance.now.bind(performance);
window.setTimeout = (what, ms) => slow(what, ms / 20);
performance.now = () => now() * 20;"""


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser() as made:
        made.call("Page.addScriptToEvaluateOnNewDocument", source=FASTER)
        yield made


def databases(browser):
    return [row["database"] for row in cells(browser, "pools", ["database"])]


def test_a_slow_server_has_rates_and_they_are_by_its_own_clock(browser):
    with Admin(lambda n: {"pools": [pool(transactions=4000 * n)], "uptime_ms": 8000.0 * n, "delay": 0.35}) as admin:
        browser.open(admin.url)
        eventually("a rate", lambda: tile(browser, "Transactions a second") == "500")


def test_after_a_pause_the_curves_have_a_gap_and_what_is_kept_stays_bounded(browser):
    # The machine was suspended: its own clock stood still.
    with Admin(lambda n: {"pools": [pool(transactions=1000 * n)], "uptime_ms": 60_000.0 * n if n > 3 else 2000.0 * n}) as admin:
        browser.open(admin.url)
        eventually("looks before and after", lambda: admin.asked > 5)
        assert browser.run("history.get(0).some(point => point.tps === 500) && history.get(0).some(point => point.tps === undefined)")
        assert browser.run("history.get(0).every(point => (point.tps ?? 500) === 500)")
        kept = browser.run("(() => { for (let i = 0; i < 1000; i++) { keep(0, {}, 1); keep(1, {}, 10); keep(2, {}, 16384); } return [0, 1, 2].map(id => history.get(id).length); })()")
        assert kept == [300, 300, 3]


def test_names_that_hide_something_show_it_and_long_ones_leave_room(browser):
    names = ["bench", "ben\u200bch", "ben\u202ech", "\u3164bench", "x" * 5000]
    with Admin(lambda n: {"pools": [pool(number, database=name, last_error="\u202eerror") for number, name in enumerate(names)]}) as admin:
        browser.open(admin.url)
        eventually("pools", lambda: len(databases(browser)) == len(names))
        assert databases(browser)[:4] == ["bench", "ben\ufffdch", "ben\ufffdch", "\ufffdbench"]
        assert browser.run("document.getElementById('pool-note').textContent").endswith(": \ufffderror")
        assert browser.run("Math.max(...[...document.querySelectorAll('#pools td')].map(cell => cell.getBoundingClientRect().width))") < 450
        assert browser.run("document.querySelectorAll('#pools tbody tr')[4].cells[0].title").startswith("x" * 900), "the tooltip shows more"
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")


def test_after_a_restart_no_rate_is_negative_and_the_same_pool_is_shown(browser):
    other, restarted = [], []

    def look(n):
        if not restarted:
            return {"pools": [pool(0, database="other"), pool(1, database="mine", transactions=10_000 * n)]}
        since = n - restarted[0]
        return {"instance": "b", "uptime_ms": 2000.0 * since, "pools": [pool(0, database="mine", transactions=6 * since), pool(1, database="other")]}

    with Admin(look) as admin:
        browser.open(admin.url)
        eventually("the pools", lambda: tile(browser, "Transactions a second") == "5,000")
        browser.run("document.querySelectorAll('#pools button')[1].click()")
        restarted.append(admin.asked)
        eventually("a new rate", lambda: other.append(tile(browser, "Transactions a second")) or other[-1] == "3.0", every=0.01)
        assert not [rate for rate in other if rate.startswith("-")], other
        assert browser.run("document.getElementById('pool-head').textContent") == "mine as app"


def test_of_thousands_of_pools_those_in_trouble_are_shown_first(browser):
    pools = [pool(number) for number in range(3000)]
    pools[2900]["waiters"], pools[2950]["paused"] = 7, True
    with Admin(lambda n: {"pools": pools}) as admin:
        browser.open(admin.url)
        eventually("the pools", lambda: len(databases(browser)) == 201)
        assert databases(browser)[:3] == ["database2900", "database2950", "database0"]
        assert databases(browser)[-1] == "and 2,800 more: poolhouse top lists them all"


def test_what_is_longer_than_all_bounds_and_many_workers_are_told(browser):
    workers = lambda n: [{"cpu_ms": 20.0 * n * worker, "clients": 0} for worker in range(64)]
    with Admin(lambda n: {"pools": [pool(hold=times(beyond=n))], "workers": workers(n)}) as admin:
        browser.open(admin.url)
        eventually("a percentile", lambda: cells(browser, "pools", ["held p99"]) == [{"held p99": "60.0 s"}])
        assert tile(browser, "Workers' CPU") == "0 % to 63 %"


@pytest.mark.timing
def test_the_page_can_be_made_to_stand_still_and_everything_reached_by_keyboard(browser):
    with Admin() as admin:
        browser.open(admin.url)
        eventually("a first look", lambda: state(browser) == "live")
        browser.run("document.getElementById('still').click()")
        assert state(browser) == "standing still" and browser.run("document.getElementById('still').getAttribute('aria-pressed')") == "true"
        time.sleep(0.3)
        asked = admin.asked
        time.sleep(0.5)
        assert admin.asked == asked and state(browser) == "standing still"
        browser.run("document.getElementById('still').click()")
        eventually("it goes on", lambda: admin.asked > asked + 1 and state(browser) == "live")
        named = "one => one.tabIndex === 0 && document.getElementById(one.getAttribute('aria-labelledby'))"
        assert browser.run(f"document.querySelectorAll('.scroll').length === 4 && [...document.querySelectorAll('.scroll')].every({named})")
        assert browser.complaints() == []


def hour(path, uptime_ms, number):
    """An hour of points every ten seconds, of one pool: a wave with a gap of five minutes."""
    assert path == f"/api/history?pool={number}", path
    at = [uptime_ms - 10_000 * back for back in range(360, 0, -1)]
    points = [[then, 500 + i % 60 * 10, i % 7, 4, 8, 12.5, None, 80.0, 6, 6, 0] for i, then in enumerate(at) if not 100 <= i < 130]
    return {"uptime_ms": uptime_ms, "pools": [{"id": number, "protocol": "postgres", "database": "d", "user": "u", "points": points}]}


@pytest.mark.parametrize("width, dark", [(1280, False), (1280, True), (390, False)], ids=["light", "dark", "phone"])
def test_a_page_that_was_just_opened_shows_the_last_hour(browser, width, dark):
    uptime = 9_000_000.0
    with Admin(lambda n: {"uptime_ms": uptime, "pools": [pool(3, servers={**pool()["servers"], "in_use": 4, "total": 8})]},
               lambda path: hour(path, uptime, 3)) as admin:
        browser.open(admin.url, width=width, dark=dark)
        path = "document.querySelector('#charts svg[role=img] path.k1').getAttribute('d')"
        eventually("curves", lambda: browser.run(f"(document.querySelector('#charts svg[role=img] path.k1') && {path}) || ''").count("L") > 300)
        # The hour fills the chart, and no line crosses the gap.
        assert browser.run(path).startswith("M0.0 ") and browser.run(path).count("M") == 2
        axis = "[...document.querySelector('.axis').children].map(tick => tick.textContent)"
        assert browser.run(axis) == ["−60 min", "−45 min", "−30 min", "−15 min", "now"]
        assert browser.run("document.documentElement.scrollWidth <= window.innerWidth")
        if directory := os.environ.get("DASHBOARD_PICTURES"):
            browser.picture(pathlib.Path(directory) / f"dashboard-hour-{width}-{'dark' if dark else 'light'}.png")
        browser.run("document.getElementById('span').click()")
        assert browser.run(axis) == ["−8 min", "−6 min", "−4 min", "−2 min", "now"]
        assert browser.run("document.getElementById('span').getAttribute('aria-pressed')") == "false"
        assert browser.complaints() == []


def test_without_a_past_the_curves_begin_where_the_page_did(browser):
    with Admin(lambda n: {"pools": [pool(transactions=1000 * n)]}, lambda path: None) as admin:
        browser.open(admin.url)
        eventually("a curve", lambda: browser.run("(document.querySelector('#charts svg[role=img] path.k1')?.getAttribute('d') ?? '').includes('L')"))
        assert state(browser) == "live"
        assert browser.run("document.querySelector('.axis').firstChild.textContent") == "−2 min"
