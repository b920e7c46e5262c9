"""The alert rules and the Grafana dashboard use only metrics and labels that exist. Every alert fires when it should,
and only then. The documentation describes every alert.
"""

import json
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALERTS, DASHBOARD = ROOT / "monitoring/alerts.yml", ROOT / "monitoring/grafana.json"
# The installed promtool, or the one that `make setup` has fetched.
PROMTOOL = shutil.which("promtool") or shutil.which(ROOT / ".venv/bin/promtool")
RULES = re.findall(r"- alert: (\w+)\n\s+expr: (.*)\n", ALERTS.read_text())
pytestmark = pytest.mark.poolhouse_only


def targets():
    return [target for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


def expressions():
    return [expr for _, expr in RULES] + [target["expr"] for target in targets()]


# Labels that Prometheus adds itself.
ON_TARGETS = {"instance", "job"}
# The name of a label in an alert's text, and the expression that it comes from.
TEMPLATE = r"\$labels\.(\w+)", lambda: re.findall(r"expr: (.*)\n(?:.*\n)*?\s+summary: (.*)\n", ALERTS.read_text())
LEGEND = r"\{\{(\w+)\}\}", lambda: [(target["expr"], target["legendFormat"]) for target in targets()]


def grouped(expression):
    """The labels that an expression aggregates by or joins on."""
    return {label for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in re.split(r",\s*", labels)}


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
    assert len(RULES) == 16
    told = {expression: set(re.findall(pattern, text)) for pattern, texts in (TEMPLATE, LEGEND) for expression, text in texts()}
    for expression in expressions():
        used = re.findall(r"\b(poolhouse_\w+)(?:\{([^}]*)\})?", expression)
        assert used, expression
        for name, selector in used:
            assert name in families, f"{name} is not exported: {expression}"
            for label in re.findall(r"(\w+)[!=]", selector):
                assert label in families[name] or not families[name], f"{name} has no label {label}"
        labels = ON_TARGETS.union(*(families[name] for name, _ in used))
        if all(families[name] for name, _ in used):
            assert labels >= grouped(expression), f"no metric of it has such a label: {expression}"
            assert told.get(expression, set()) <= (grouped(expression) or labels), f"what is told of it has no such label: {expression}"


def test_every_alert_is_explained_and_every_explained_alert_is_a_rule():
    page = (ROOT / "docs/operating.md").read_text()
    explained = re.findall(r"^\| \[[^]]*\]\(#([\w-]+)\) \|", page, re.M)
    named = re.findall(r"runbook: \"docs/operating.md#([\w-]+)\"", ALERTS.read_text())
    assert sorted(explained) == sorted(named)


needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's package prometheus) is not here")


@needs_promtool
def test_prometheus_takes_the_rules():
    done = subprocess.run([PROMTOOL, "check", "rules", str(ALERTS)], capture_output=True, text=True)
    assert done.returncode == 0 and "16 rules found" in done.stdout, done


OF_POOL = '{protocol="postgres", database="shop", user="app", instance="a"}'
OF_LISTENER = '{listener="0.0.0.0:6432", protocol="postgres", reason="hard_limit", instance="a"}'
OF_PROCESS = '{instance="a"}'
BUCKETS = [OF_POOL.replace("}", f', le="{le}"}}') for le in ("1", "2", "+Inf")]
# Series with a sample every 30 s, over 30 minutes: those that make an alert fire at the end, and those that do not.
# `a+bxn` is a, a+b, and so on, n + 1 samples.
ALWAYS, NEVER, ONCE, LONG_AGO = "1+0x60", "0+0x60", "0+0x55 1+0x5", "1+0x60"
FIRES = [
    ("PoolhouseClientsWait", {f"poolhouse_waiters{OF_POOL}": ALWAYS}, {f"poolhouse_waiters{OF_POOL}": "0+0x58 3 0"}),
    ("PoolhouseCheckOutsFail", {f"poolhouse_checkout_failed_total{OF_POOL}": ONCE}, {f"poolhouse_checkout_failed_total{OF_POOL}": LONG_AGO}),
    ("PoolhouseDatabaseOutOfReach", {f"poolhouse_pools_unavailable{OF_POOL}": ALWAYS}, {f"poolhouse_pools_unavailable{OF_POOL}": NEVER}),
    ("PoolhouseClientsAreRefused", {f"poolhouse_client_rejections_total{OF_LISTENER}": ONCE}, {f"poolhouse_client_rejections_total{OF_LISTENER}": LONG_AGO}),
    ("PoolhouseLoginsFail", {f"poolhouse_auth_failures_total{OF_PROCESS}": "0+60x60"}, {f"poolhouse_auth_failures_total{OF_PROCESS}": "0+15x60"}),
    ("PoolhouseServersComeAndGo",
     {f"poolhouse_servers_created_total{OF_POOL}": "0+30x60", f"poolhouse_transactions_total{OF_POOL}": "0+300x60"},
     {f"poolhouse_servers_created_total{OF_POOL}": "0+30x60", f"poolhouse_transactions_total{OF_POOL}": "0+3000x60"}),
    # Ten warm servers with a life of half an hour, and a check every ten seconds whether the database answers.
    ("PoolhouseServersComeAndGo",
     {f"poolhouse_servers_created_total{OF_POOL}": "0+30x60", f"poolhouse_transactions_total{OF_POOL}": "0+30x60"},
     {f"poolhouse_servers_created_total{OF_POOL}": "0+1x60", f"poolhouse_transactions_total{OF_POOL}": "0+3x60"}),
    ("PoolhouseTransactionsAreLeftOpen",
     {f"poolhouse_hold_seconds_bucket{of}": series for of, series in zip(BUCKETS, ("0+10x60", "0+20x60", "0+20x60"))},
     {f"poolhouse_hold_seconds_bucket{of}": "0+20x60" for of in BUCKETS}),
    # One transaction that continues, and a sequence of transactions of nine minutes and a half.
    ("PoolhouseTransactionDoesNotEnd", {f"poolhouse_oldest_hold_seconds{OF_POOL}": "0+30x60"},
     {f"poolhouse_oldest_hold_seconds{OF_POOL}": "0+30x19 0+30x19 0+30x20"}),
    ("PoolhouseClientsVanish", {f"poolhouse_client_closes_unanswered_total{OF_LISTENER}": "0+12x60"},
     {f"poolhouse_client_closes_unanswered_total{OF_LISTENER}": "0+1x60"}),
    # One failure long ago, and one ten minutes ago that was followed by a success.
    ("PoolhouseReloadFailed", {f"poolhouse_last_reload_successful{OF_PROCESS}": NEVER, 'poolhouse_reloads_total{result="failed"}': ALWAYS},
     {f"poolhouse_last_reload_successful{OF_PROCESS}": "1+0x39 0+0x9 1+0x10", 'poolhouse_reloads_total{result="failed"}': "0+0x39 1+0x20",
      'poolhouse_reloads_total{result="done"}': "0+0x49 1+0x10"}),
    ("PoolhousePauseForgotten", {f"poolhouse_pools_paused{OF_POOL}": ALWAYS}, {f"poolhouse_pools_paused{OF_POOL}": "0+0x50 1+0x10"}),
    ("PoolhouseDrainForgotten", {f"poolhouse_pools_drained{OF_POOL}": ALWAYS}, {f"poolhouse_pools_drained{OF_POOL}": "0+0x50 1+0x10"}),
    ("PoolhousePinsAreRefused", {f"poolhouse_pins_refused_total{OF_POOL}": ONCE}, {f"poolhouse_pins_refused_total{OF_POOL}": LONG_AGO}),
    ("PoolhouseClientsAreNotAccepted", {f"poolhouse_accepts_failed_total{OF_LISTENER}": ONCE},
     {f"poolhouse_accepts_failed_total{OF_LISTENER}": LONG_AGO}),
    ("PoolhouseSessionPanicked", {f"poolhouse_session_panics_total{OF_PROCESS}": ONCE}, {f"poolhouse_session_panics_total{OF_PROCESS}": LONG_AGO}),
    ("PoolhouseLogLinesLost", {f"poolhouse_log_lines_dropped_total{OF_PROCESS}": ONCE}, {f"poolhouse_log_lines_dropped_total{OF_PROCESS}": LONG_AGO}),
]


@needs_promtool
def test_every_alert_fires_when_it_should_and_only_then(tmp_path):
    assert {alert for alert, _, _ in FIRES} == {alert for alert, _ in RULES}
    cases = [(alert, series, firing) for alert, *both in FIRES for series, firing in zip(both, (1, 0))]
    judged = [{
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{
            "expr": f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)', "eval_time": "30m",
            "exp_samples": [{"labels": "{}", "value": firing}],
        }],
    } for alert, series, firing in cases]
    path = tmp_path / "alerts.json"
    path.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": "30s", "tests": judged}))
    done = subprocess.run([PROMTOOL, "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
