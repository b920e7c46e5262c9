"""`poolhouse sweep` against a real PostgreSQL, with scripts whose best number of clients is known."""

import json
import subprocess

import pytest

from support import pooler
from support.postgres_cluster import MAX_CONNECTIONS, PASSWORDS, free_port

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

# Short measurements: the planted peak is far above their noise.
SHORT = ("--point-time", "500ms", "--warmup", "200ms", "--rounds", "3")
# For tests in which a few hundred operations suffice.
SHORTER = ("--point-time", "300ms", "--warmup", "100ms", "--rounds", "3")
# Each operation sleeps longer the more clients there are: throughput is N / (0.02 + 0.0003 N^2), best at sqrt(0.02 /
# 0.0003) = 8.2.
PEAK = """SELECT pg_sleep(0.02 + 0.0003 * count(*) ^ 2) FROM pg_stat_activity WHERE application_name = 'poolhouse bench';
"""
BEST_CLIENTS = 8.2
# One row that every operation holds, for longer the more clients want it: throughput is at most 1 / (0.002 + 0.002 N).
ROW = """BEGIN;
UPDATE the_row SET n = n + 1;
SELECT pg_sleep(0.002 + 0.002 * count(*)) FROM pg_stat_activity WHERE application_name = 'poolhouse bench';
END;
"""
# The sleeps run in parallel: throughput grows with the number of clients, and is too low to occupy a slow machine.
SLEEP = "SELECT pg_sleep(0.05);\n"


def run(*arguments, seconds=200):
    """Runs the verb and returns the ended process."""
    return subprocess.run([pooler.BINARY, "sweep", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=seconds, stdin=subprocess.DEVNULL)


def sweep(url, *arguments, short=SHORT):
    """A sweep that must succeed, as the JSON it prints."""
    done = run(url, *short, *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert PASSWORDS["app"] not in done.stdout + done.stderr and "app%20secret" not in done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_planted_peak_is_found_and_the_recommendation_keeps_its_promise(cluster, script, tmp_path):
    page, kept = tmp_path / "page.html", tmp_path / "kept.json"
    done = run(cluster.url(), *SHORT, "--clients", "1..32", "--script", script(PEAK), "--html", page, "--json", kept)
    assert done.returncode == 0, done.stderr
    result = json.loads(kept.read_text())
    verdict = result["verdict"]

    def truth(n):
        return n / (0.02 + 0.0003 * n * n)

    # A busy machine adds time to each operation, which moves the peak a little. The committed table of regret proves
    # the 5%.
    assert truth(verdict["best_clients"]) >= 0.9 * truth(BEST_CLIENTS), verdict
    assert truth(verdict["recommended_clients"]) >= 0.85 * truth(BEST_CLIENTS), verdict
    assert verdict["recommended_clients"] <= verdict["best_clients"] and verdict["bracketed"]
    assert verdict["shape"] == "peak" and verdict["limited_by"] in ("database", "machine")
    assert len(verdict["because"]) == 3 and len(result["settings"]["because"]) == 3
    effort = result["direct"]["effort"]
    assert effort["visits"] == len(result["direct"]["visits"]) <= effort["exhaustive_visits"] / 4
    # If the noise is too strong the sweep reports a range: then it says so, and does not call the number the one to
    # use.
    said = f"Use {verdict['recommended_clients']} connections." in done.stdout
    assert said == (verdict["advice"] == "use") == ("<- use this" in done.stdout), done.stdout
    assert "<svg" in page.read_text() or "<script" in page.read_text()
    assert "http://" not in page.read_text().replace("http://www.w3.org", ""), "a page needs nothing from the network"


def test_a_lock_that_everybody_wants_needs_one_connection(cluster, script):
    with cluster.superuser("bench") as db:
        for statement in ("DROP TABLE IF EXISTS the_row", "CREATE TABLE the_row AS SELECT 0 AS n",
                          "GRANT ALL ON the_row TO PUBLIC"):
            db.execute(statement)
    verdict = sweep(cluster.url(), "--clients", "1..16", "--script", script(ROW), short=SHORTER)["verdict"]
    # Four clients do half of what one does: no noise can hide that.
    assert verdict["recommended_clients"] <= 2 and verdict["shape"] != "rising", verdict


# One client is eight times as fast as its neighbours suggest, and two do less than one: no law of contention has that.
LUCKY = """SELECT pg_sleep(CASE count(*) WHEN 1 THEN 0.004 ELSE 0.016 * count(*) END) FROM pg_stat_activity
WHERE application_name = 'poolhouse bench';
"""


def test_one_client_that_is_faster_than_its_neighbours_let_expect_is_not_recommended(cluster, script):
    result = sweep(cluster.url(), "--clients", "1..8", "--script", script(LUCKY), short=SHORTER)
    verdict = result["verdict"]
    assert verdict["best_clients"] == 1 and verdict["recommended_clients"] > 1, verdict
    assert (verdict["advice"], verdict["confidence"]) == ("range", "low") and verdict["safe"]["from"] >= 2, verdict
    suspect = verdict["two_speeds"][0]
    assert (suspect["clients"], suspect["seen"], suspect["slow"]) == (1, "neighbours", None), verdict
    assert suspect["p50_ms"] * 1.5 < suspect["expected_p50_ms"]
    assert any("Sweep again" in line for line in verdict["to_know"]) and any("1 client has perhaps two speeds" in text for text in result["warnings"])


def test_what_still_rises_is_not_bracketed_and_the_servers_limit_is_respected(cluster, script):
    result = sweep(cluster.url(), "--clients", "8..256", "--script", script(SLEEP), short=SHORTER)
    verdict = result["verdict"]
    assert not verdict["bracketed"] and verdict["shape"] == "rising" and verdict["confidence"] == "low", verdict
    assert verdict["advice"] == "range" and "--clients" in verdict["to_know"][0], verdict
    most = max(point["clients"] for point in result["direct"]["points"])
    assert MAX_CONNECTIONS - 12 <= most < MAX_CONNECTIONS - 2, most
    assert any("max_connections is 100" in warning for warning in result["warnings"]), result["warnings"]
    assert all(point["errors"] == 0 for point in result["direct"]["points"])


def test_a_sweep_of_a_pooler_in_place_of_the_database_says_so(cluster, start, script):
    url = f"postgres://app:{PASSWORDS['app'].replace(' ', '%20')}@127.0.0.1:{start(max_size=4).port}/bench"
    result = sweep(url, "--clients", "1..4", "--script", script("SELECT 1;\n"), short=SHORTER)
    assert any("A pooler answers at this address" in warning for warning in result["warnings"]), result["warnings"]


def test_through_a_pooler_there_is_a_second_curve_beyond_the_servers_limit(cluster, start, script):
    through = start(max_size=8)
    url = f"postgres://app:{PASSWORDS['app'].replace(' ', '%20')}@127.0.0.1:{through.port}/bench"
    result = sweep(cluster.url(), "--clients", "1..8", "--script", script("SELECT pg_sleep(0.01);\n"),
                   "--through", url, "--through-clients", "200", short=SHORTER)
    points = {point["clients"]: point for point in result["through"]["points"]}
    assert 200 in points and points[200]["errors"] == 0
    # Eight servers of 10 ms each; further clients wait in the pooler.
    assert points[200]["throughput"] > 0.6 * 8 / 0.012, points[200]


@pytest.mark.quick
def test_a_dead_target_and_a_bad_range_are_clear_errors(cluster):
    done = run(f"postgres://app:x@127.0.0.1:{free_port()}/bench", "--select-only", seconds=25)
    assert done.returncode == 1 and "refused" in done.stderr, done.stderr
    done = run(cluster.url(), "--clients", "9..3", seconds=25)
    assert done.returncode == 2 and "smaller number first" in done.stderr, done.stderr
    done = run(cluster.url(database="other"), "--select-only", seconds=25)
    assert done.returncode == 1 and "--init" in done.stderr, done.stderr


def test_a_path_that_cannot_be_written_is_told_before_any_load(cluster, tmp_path):
    done = subprocess.run([pooler.BINARY, "sweep", cluster.url(), "--json", tmp_path / "no" / "such.json"], capture_output=True,
                          text=True, check=False, timeout=30)
    assert done.returncode == 2 and "cannot write" in done.stderr, done.stderr
