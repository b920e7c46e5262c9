"""The report page in a real browser: the console stays empty, every chart is drawn, nothing is fetched, and the page is
readable on a phone, in dark mode, by keyboard and without scripts. The results are invented (sample_results.py).
REPORT_PICTURES=DIR keeps screenshots.
"""

import json
import os
import pathlib
import subprocess

import pytest

from support import browser as chromium
from support import pooler, sample_results

pytestmark = [
    pytest.mark.poolhouse_only,
    pytest.mark.skipif(chromium.PROGRAM is None, reason="NO CHROMIUM HERE: the page is not tested (`make setup` installs it)"),
]
EVIL = '</script><script>document.title="evil"</script><img src=x onerror=alert(1)>'
# The number of non-empty pixels of each canvas.
PAINTED = """[...document.querySelectorAll('.plot canvas')].map(canvas => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    let painted = 0;
    for (let at = 3; at < pixels.length; at += 4) painted += pixels[at] > 0;
    return painted;
})"""


@pytest.fixture(scope="module")
def browser():
    with chromium.Browser() as made:
        yield made


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name -> page."""
    directory = tmp_path_factory.mktemp("pages")

    def page(name, *results):
        files = []
        for index, result in enumerate(results):
            files.append(directory / f"{name}-{index}.json")
            files[-1].write_text(json.dumps(result))
        path = directory / f"{name}.html"
        command = [pooler.BINARY, "bench", "report", *map(str, files), "--html", str(path)]
        done = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        assert done.returncode == 0, done.stdout
        return path

    variants = sample_results.variants()
    evil = sample_results.result(EVIL, 20, rates=(50,), step_s=5, warnings=[EVIL])
    evil["about"].update(server=EVIL, target=EVIL, load=EVIL, command=EVIL)
    evil["errors"] = {EVIL: 3}
    return {"run": page("run", variants[0]), "variants": page("variants", variants),
            "second": page("second", sample_results.result("one second", 20, rates=(50,), step_s=1, warmup_s=0)), "sweep": page("sweep", sample_results.sweep(through=True)),
            "rising": page("rising", sample_results.sweep(most=32)), "evil": page("evil", evil), "evils": page("evils", evil, evil)}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("name, charts", [("run", 6), ("variants", 4 + 6 + 5 + 4), ("second", 4), ("sweep", 3), ("rising", 2)])
def test_every_chart_is_drawn_and_the_console_stays_empty(browser, pages, name, charts, width, dark):
    browser.open(pages[name], width, dark=dark)
    assert browser.complaints() == []
    assert len(browser.requests()) == 1, "the page alone"
    painted = browser.run(PAINTED)
    assert len(painted) == charts and min(painted) > 1000, painted
    assert browser.run("document.querySelectorAll('.chart[data-drawn=yes]').length") == charts
    assert browser.run("document.documentElement.scrollWidth") <= width, "the page itself does not scroll sideways"
    too_wide = "[...document.querySelectorAll('main *')].filter(one => !one.closest('.scroll, .plot, .hidden') && one.getBoundingClientRect().right > innerWidth).map(one => one.className)"
    assert browser.run(too_wide) == []
    if directory := os.environ.get("REPORT_PICTURES"):
        browser.picture(pathlib.Path(directory) / f"{name}-{width}{'-dark' if dark else ''}.png")


@pytest.mark.parametrize("name", ["evil", "evils"])
def test_names_are_text_and_nothing_else(browser, pages, name):
    browser.open(pages[name])
    assert browser.complaints() == []
    assert browser.run("document.title").startswith("</script>") and browser.run("document.images.length") == 0
    assert browser.run("document.querySelector('h1').textContent").startswith(EVIL)
    assert browser.run("document.scripts.length") == 3


def test_the_policy_keeps_a_script_from_running_that_is_not_ours(browser, pages, tmp_path):
    """This shows that the policy would hold if escaping failed, and that the test sees the console."""
    text = pages["run"].read_text()
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace("<main", '<script>document.title = "evil"</script><img src="http://127.0.0.1:9/x"><main', 1))
    browser.open(broken)
    assert browser.run("document.title") != "evil"
    assert len([one for one in browser.complaints() if "Content Security Policy" in one]) >= 2, browser.complaints()


def test_the_colours_follow_the_system(browser, pages):
    browser.open(pages["run"], dark=False)
    light = browser.run("getComputedStyle(document.body).backgroundColor")
    browser.open(pages["run"], dark=True)
    assert browser.run("getComputedStyle(document.body).backgroundColor") != light


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["run", "variants", "sweep", "rising"])
def test_text_has_contrast(browser, pages, name, dark):
    """At least 4.5 to 1, as WCAG 2.1 (1.4.3) requires for text of ordinary size:
    https://www.w3.org/TR/WCAG21/#contrast-minimum
    """
    browser.open(pages[name], dark=dark)
    weak = browser.run("""(() => {
        const parse = text => text.match(/[\\d.]+/g).map(Number);
        const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
        const behind = node => {
            for (; node; node = node.parentElement) {
                const colour = parse(getComputedStyle(node).backgroundColor);
                if (colour.length < 4 || colour[3] === 1) return colour;
            }
            return [255, 255, 255];
        };
        const found = new Set();
        for (const node of document.querySelectorAll('body *')) {
            if (!node.offsetParent || ![...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim())) continue;
            const [one, other] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((a, b) => b - a);
            if ((one + .05) / (other + .05) < 4.5) found.add(node.tagName + '.' + node.className + ' ' + node.textContent.slice(0, 20));
        }
        return [...found];
    })()""")
    assert weak == []


def test_the_keyboard_moves_along_a_chart_and_hides_a_line(browser, pages):
    browser.open(pages["run"])
    browser.run("document.querySelector('[data-kind=latency] .plot').focus()")
    browser.key("ArrowRight")
    browser.key("ArrowRight")
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.run("document.querySelector('[data-kind=latency] .at').textContent") == "at 1 s"
    values = browser.run("[...document.querySelectorAll('[data-kind=latency] .keys b')].map(one => one.textContent)")
    assert len(values) == 3 and all(value.endswith(" ms") for value in values), values
    before = browser.run(PAINTED)[1]
    browser.run("document.querySelector('[data-kind=latency] .keys button').focus()")
    browser.run("document.activeElement.click()")
    browser.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.run("document.activeElement.getAttribute('aria-pressed')") == "false"
    assert browser.run(PAINTED)[1] < before, "one line less"


def test_the_tables_need_no_script(browser, pages):
    browser.open(pages["run"], script=False)
    document = browser.call("DOM.getDocument", depth=1)["root"]["nodeId"]
    text = browser.call("DOM.getOuterHTML", nodeId=document)["outerHTML"]
    assert "The charts need JavaScript" in text and "check-out timeout" in text and "p99.9" in text
    tables = browser.call("DOM.querySelectorAll", nodeId=document, selector="table")["nodeIds"]
    assert len(tables) == 5, "phases, steps, latency, errors, connections"
    chart = browser.call("DOM.querySelector", nodeId=document, selector=".chart")["nodeId"]
    with pytest.raises(AssertionError):             # Without a box the element is not displayed.
        browser.call("DOM.getBoxModel", nodeId=chart)


def test_every_chart_and_table_has_a_title(browser, pages):
    for name in ("run", "variants", "sweep"):
        browser.open(pages[name])
        assert browser.run("[...document.querySelectorAll('table')].every(one => one.caption.textContent && one.querySelectorAll('th[scope]').length > 1)")
        assert browser.run("[...document.querySelectorAll('.plot')].every(one => document.getElementById(one.getAttribute('aria-labelledby')).textContent)")
        assert browser.run("new Set([...document.querySelectorAll('[id]')].map(one => one.id)).size === document.querySelectorAll('[id]').length")
        assert browser.run("document.querySelectorAll('h1').length") == 1 and browser.run("document.documentElement.lang") == "en"


def test_a_result_that_is_none_is_refused(tmp_path):
    other = tmp_path / "other.json"
    other.write_text('{"format": 1, "name": 7}')
    done = subprocess.run([pooler.BINARY, "bench", "report", str(other), "--html", str(tmp_path / "page.html")], text=True, capture_output=True, timeout=60)
    assert done.returncode == 2 and "not a result of `poolhouse bench`" in done.stderr and not (tmp_path / "page.html").exists()
