#!/usr/bin/env python3
"""`make picture`: draws a result of bench/run.py as an SVG that is readable on light and on dark pages.

    bench/picture.py [RESULT.json [PICTURE.svg]]

For each workload it shows what Poolhouse needs and does as a ratio to PgBouncer in the same round: the median, and its 95% interval.
Refuses to know how the runs were made. It uses nothing but the result file, so the same file gives the same picture.
"""

import html
import json
import pathlib
import sys

import plan
import report
import stats

HERE = pathlib.Path(__file__).resolve().parent
RESULT = HERE / "results" / "2026-11-29.json"
PICTURE = HERE.parent / "docs" / "beside-pgbouncer.svg"

WIDTH, LEFT, ROW, TOP, BOTTOM = 880, 216, 26, 84, 76
PANEL, GAP, VALUE = 252, 18, 60
# Title, hint, field of a run, whether more is better, ends of the axis, and its marks.
PANELS = (
    ("CPU of the pooler", "(less is better)", "cpu_us", False, (0.60, 1.30), (0.7, 0.8, 0.9, 1.0, 1.1, 1.2)),
    ("Transactions per second", "(more is better)", "throughput", True, (0.70, 1.40), (0.8, 0.9, 1.0, 1.1, 1.2, 1.3)),
)
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .page { fill: #ffffff } .band { fill: #f4f6f8 } .soft { fill: #59636e } .title { font-weight: 600; font-size: 14px }
  .mark { stroke: #d1d9e0 } .rival { stroke: #59636e; stroke-width: 1.5 }
  .sure { stroke: #0a7d5a; fill: #0a7d5a } .open { stroke: #8c6100; fill: #ffffff } .whisker { stroke-width: 2 } .value { text-anchor: end }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .page { fill: #0d1117 } .band { fill: #161b22 } .soft { fill: #9198a1 }
    .mark { stroke: #30363d } .rival { stroke: #9198a1 } .sure { stroke: #3fb98c; fill: #3fb98c } .open { stroke: #d29922; fill: #0d1117 }
  }
"""


def main():
    given = sys.argv[1:]
    if len(given) > 2 or any(word.startswith("-") for word in given):
        print(__doc__)
        return 2
    result = pathlib.Path(given[0]) if given else RESULT
    picture = pathlib.Path(given[1]) if len(given) > 1 else PICTURE
    picture.write_text(drawn(json.loads(result.read_text())))
    print(f"{picture} shows {result}")
    return 0


def drawn(result):
    """The picture of a result, as text."""
    measured = {run["workload"] for run in result["runs"]}
    rows = [workload for workload in plan.workloads() if workload.name in measured and not workload.rate_from]
    height = TOP + ROW * len(rows) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="title">',
        '<title id="title">Poolhouse beside PgBouncer: CPU per transaction and transactions per second, as ratios</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        _text(16, 28, "Poolhouse beside PgBouncer: ratios of paired runs", "title"),
        _text(16, 56, "script, protocol, clients", "soft"),
    ]
    for number, workload in enumerate(rows):
        y = TOP + ROW * number
        if number % 2 == 0:
            parts.append(f'<rect class="band" x="8" y="{y}" width="{WIDTH - 16}" height="{ROW}"/>')
        parts.append(_text(16, y + 17, _label(workload)))
    for number, panel in enumerate(PANELS):
        parts += _panel(result["runs"], rows, panel, LEFT + number * (PANEL + VALUE + GAP))
    parts += [_text(16, height - 34, _key(result), "soft"), _text(16, height - 14, _source(result), "soft")]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(runs, rows, panel, x):
    title, hint, field, more_is_better, (low, high), marks = panel
    bottom = TOP + ROW * len(rows)

    def at(ratio):
        return round(x + (min(max(ratio, low), high) - low) / (high - low) * PANEL, 1)

    yield f'<text x="{x}" y="56"><tspan class="title">{title}</tspan> <tspan class="soft">{hint}</tspan></text>'
    yield f'<text class="soft" x="{at(1)}" y="{TOP - 6}" text-anchor="middle">PgBouncer</text>'
    for mark in marks:
        yield f'<line class="{"rival" if mark == 1 else "mark"}" x1="{at(mark)}" x2="{at(mark)}" y1="{TOP}" y2="{bottom}"/>'
        yield f'<text class="soft" x="{at(mark)}" y="{bottom + 16}" text-anchor="middle">{mark:g}</text>'
    for number, workload in enumerate(rows):
        ours, theirs = (report.by_round(runs, workload.name, target, field) for target in (plan.US, plan.RIVAL))
        found = stats.summary(stats.paired_ratios(ours, theirs))
        if found["interval"] is None:
            continue
        y, (least, most) = TOP + ROW * number + ROW / 2, found["interval"]
        better = least > 1 if more_is_better else most < 1
        kind = "sure" if better else "open"
        yield f'<line class="{kind} whisker" x1="{at(least)}" x2="{at(most)}" y1="{y}" y2="{y}"/>'
        yield f'<circle class="{kind} whisker" cx="{at(found["median"])}" cy="{y}" r="4.5"/>'
        yield f'<text class="value" x="{x + PANEL + VALUE - 16}" y="{y + 4}">{found["median"]:.2f}</text>'


def _label(workload):
    what = {"tpcb": "TPC-B-like (writes)"}.get(workload.script, workload.script)
    return f"{what}, {workload.protocol}, {workload.clients:,}"


def _key(result):
    return (
        f"Dot: the median of {result['settings']['rounds']} rounds. Line: its 95% interval. "
        "A filled dot: the whole interval is on the better side. A ring: it is not."
    )


def _source(result):
    settings, machine, versions = result["settings"], result["machine"], result["versions"]
    return (
        f"{result['date']}: PostgreSQL {versions['PostgreSQL'].split()[0]}, {versions[plan.RIVAL]}, a pool of {settings['pool_size']}, "
        f"one worker; pooler, database and pgbench share {machine['cpus']} CPUs."
    )


def _text(x, y, words, kind=""):
    return f'<text{f" class={chr(34)}{kind}{chr(34)}" if kind else ""} x="{x}" y="{y}">{html.escape(words)}</text>'


if __name__ == "__main__":
    sys.exit(main())
