"""The alert rules and the Grafana dashboard name only what is exported, with labels that it has; the documentation tells of every alert."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).parent.parent
ALERTS, DASHBOARD = ROOT / "monitoring/alerts.yml", ROOT / "monitoring/grafana.json"
RULES = re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", ALERTS.read_text())
pytestmark = pytest.mark.poolhouse_only


def expressions():
    board = json.loads(DASHBOARD.read_text())
    return [expr for _, expr in RULES] + [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def test_metrics_and_labels_are_those_that_are_exported(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("SELECT 1")
    text = pooler.get("/metrics")[1]
    families = {}
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M):
        for ending in {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_sum", "_count"]}.get(kind, [""]):
            families[name + ending] = set()
    for name, labels in re.findall(r"^(\w+)\{([^}]*)\}", text, re.M):
        families[name] |= set(re.findall(r'(\w+)="', labels))
    assert len(RULES) == 12
    for expression in expressions():
        used = re.findall(r"\b(poolhouse_\w+)(?:\{([^}]*)\})?", expression)
        assert used, expression
        for name, selector in used:
            assert name in families, f"{name} is not exported: {expression}"
            for label in re.findall(r"(\w+)=", selector):
                assert label in families[name] or not families[name], f"{name} has no label {label}"


def test_every_alert_is_explained_and_every_explained_alert_is_a_rule():
    page = (ROOT / "docs/operating.md").read_text()
    explained = re.findall(r"^\| \[[^]]*\]\(#([\w-]+)\) \|", page, re.M)
    named = re.findall(r"runbook: \"docs/operating.md#([\w-]+)\"", ALERTS.read_text())
    assert sorted(explained) == sorted(named)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Debian's package prometheus) is not here")
def test_prometheus_takes_the_rules():
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert done.returncode == 0 and "12 rules found" in done.stdout, done
