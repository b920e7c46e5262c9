"""`poolhouse plan`: predictions without a measurement. Arithmetic gives the expected results."""

import json
import re
import shlex
import subprocess

import pytest

from support import pooler

pytestmark = pytest.mark.poolhouse_only

SCENARIO = """[scenario]
name = "stalls"
[target]
start = "postgres"
max_connections = 120
[load]
rate = 500
duration = "20s"
spacing = "poisson"
[pool]
max_size = 50
min_size = 50
[[fault]]
kind = "stall"
delay = "200ms"
length = "2s"
every = "10s"
[plan]
service = "4ms"
spread = "constant"
objectives = ["p99<230ms", "errors<0.1%"]
"""


def run(*arguments, seconds=100, cwd=None):
    """Runs the verb and returns the ended process."""
    return subprocess.run([pooler.BINARY, "plan", *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=seconds, stdin=subprocess.DEVNULL, cwd=cwd)


def plan(*arguments, status=0):
    """A plan: the JSON that the verb prints, alone on standard output."""
    done = run(*arguments, "--json", "-")
    assert done.returncode == status, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def said(result, about):
    return next(reason["text"] for reason in result["reasons"] if reason["about"] == about)


@pytest.fixture
def scenario(tmp_path):
    def write(text=SCENARIO):
        path = tmp_path / "stalls.toml"
        path.write_text(text)
        return path
    return write


@pytest.mark.quick
def test_the_common_question_is_answered_with_littles_law_and_a_size_for_the_stall():
    done = run("--rate", "800", "--service", "15ms", "--stall", "200ms/3s/20s", "--max-size", "100")
    assert done.returncode == 0 and done.stderr == "", done.stderr
    text = " ".join(done.stdout.split())
    assert "800/s x 15 ms = 12 connections in use on average" in text
    assert "800/s x 215 ms = 172 connections, 14.3 times as many" in text
    assert "100 connections bridge the stall up to 465/s" in text
    assert max(len(line) for line in done.stdout.splitlines() if not line.startswith("    ")) <= 100


def test_a_prediction_as_json_has_what_a_measurement_has():
    result = plan("--rate", "800", "--service", "15ms", "--stall", "200ms/3s/20s", "--max-size", "100")
    assert (result["format"], result["kind"]) == (1, "plan")
    given = result["given"][0]["result"]
    assert {"p50", "p95", "p99"} <= set(given["response_ms"]) and given["requests"] > 40_000
    assert given["connections"]["created_for"] and given["steps"] and result["given"][0]["missed"]
    sizes = result["best"]["sizes"]
    assert 165 <= sizes["max_size"] <= 200 and result["best"]["met"] and result["best"]["too_small"] < sizes["max_size"]
    assert result["settings"]["max_size"] == sizes["max_size"]
    assert [fragment["of"] for fragment in result["fragments"]] == ["Poolhouse", "PgBouncer", "HikariCP"]
    assert f"maximumPoolSize={sizes['max_size']}" in result["fragments"][2]["text"]


def test_the_settings_of_the_products_that_were_asked_for_are_printed_and_no_others():
    done = run("--rate", "100", "--service", "10ms", "--instances", "4", "--max-size", "10", "--for", "poolhouse,django", "--for", "pgx")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Put one Poolhouse in front of all 4 instances"), done.stdout
    for part in ('"max_size": ', "pool_max_conns=", "hard_limit = "):
        assert part in done.stdout, done.stdout
    assert "MongoDB" not in done.stdout and "PgBouncer" not in done.stdout
    wrong = run("--rate", "100", "--service", "10ms", "--for", "djanga")
    assert wrong.returncode == 2 and 'did you mean "django"' in wrong.stderr, wrong.stderr


def test_the_same_seed_gives_the_same_prediction_and_another_one_another():
    arguments = ("--rate", "300", "--service", "10ms", "--max-size", "5", "--duration", "20s")
    one, again, other = plan(*arguments), plan(*arguments), plan(*arguments, "--seed", "2")
    assert one == again != other


def test_a_scenario_is_planned_and_its_own_server_has_a_limit(scenario):
    result = plan(scenario())
    # 500/s x 204 ms = 102 of the 117 connections that PostgreSQL allows.
    assert 95 <= result["best"]["sizes"]["max_size"] <= 117 and result["best"]["most"] == 117
    assert "of 120" in said(result, "server's limit")
    assert "PgBouncer" in {fragment["of"] for fragment in result["fragments"]}


def test_objectives_that_nothing_meets_end_with_status_99(scenario):
    done = run(scenario(), "--objective", "p99<100ms")
    assert done.returncode == 99
    text = " ".join(done.stdout.split())
    assert "No setting meets the objectives" in text and "no pool can make p99<100ms true" in text
    assert plan(scenario(), "--objective", "p99<100ms", status=99)["best"]["met"] is False


def test_mistakes_in_a_scenario_are_told_with_line_column_and_the_nearest_key(scenario):
    done = run(scenario(SCENARIO.replace("spread", "spraed")))
    assert done.returncode == 2 and done.stdout == ""
    assert "stalls.toml:20:1: error: unknown key `spraed` in [plan]" in done.stderr and "did you mean `spread`?" in done.stderr
    done = run(scenario(SCENARIO.split("[plan]")[0]))
    assert done.returncode == 2 and "how long does the server take for one operation?" in done.stderr


@pytest.mark.parametrize("arguments, message", [
    ((), "takes a scenario file, or a load (--rate)"),
    (("--rate", "10"), "how long does the server take"),
    (("--rate", "10", "--service", "fast"), "no duration"),
    (("--rate", "10", "--service", "1ms", "--objective", "p98<1ms"), "unknown metric `p98`"),
    (("--rate", "10", "--service", "1ms", "--measured", "x.json"), "cannot be used with"),
    (("--rate", "10", "--service", "1ms", "--json", "/no/such/folder/x.json"), "cannot write"),
    (("no-such.toml",), "no-such.toml"),
], ids=lambda value: " ".join(value) if isinstance(value, tuple) else "")
def test_bad_usage_is_a_clear_error(arguments, message):
    done = run(*arguments)
    assert done.returncode == 2 and message in done.stderr and done.stdout == "", done.stderr


def test_a_page_shows_the_reasons_and_needs_no_network(tmp_path):
    page = tmp_path / "page.html"
    assert run("--rate", "100", "--service", "10ms", "--html", page).returncode == 0
    text = page.read_text()
    assert "Little&#39;s law" in text and "max_size = " in text and "uPlot" in text and "Poolhouse · predicted" in text
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_a_measurement_is_the_server(tmp_path):
    """The prediction uses the service times of a result file."""
    first = tmp_path / "first.json"
    assert run("--rate", "50", "--service", "10ms", "--service-p99", "40ms", "--connect", "30ms", "--json", first).returncode == 0
    measured = tmp_path / "measured.json"
    measured.write_text(json.dumps(json.loads(first.read_text())["given"][0]["result"]))
    result = plan("--rate", "50", "--measured", measured)
    service = result["given"][0]["result"]["service_ms"]
    assert abs(service["mean"] - 10) < 1 and 30 < service["p99"] < 50
    assert "as measured" in result["server"]
    done = run("--rate", "50", "--measured", __file__)
    assert done.returncode == 2 and "not a result" in done.stderr


def test_a_curve_is_the_server_and_what_was_not_measured_is_said():
    curve = pooler.ROOT / "bench/results/connections-2026-11-22.json"
    result = plan("--rate", "2500", "--curve", curve, "--max-size", "20", "--duration", "10s")
    assert result["best"]["most"] == 128 and result["best"]["sizes"]["max_size"] < 20
    assert "3 connections come within 5% of it" in said(result, "server")
    # A stall needs 2500/s x 0.5 s, ten times as many connections as were measured.
    result = plan("--rate", "2500", "--curve", curve, "--max-size", "200", "--min-size", "200", "--duration", "10s",
                  "--stall", "500ms/2s/5s", status=99)
    assert any("measured up to 128" in warning for warning in result["warnings"]), result["warnings"]
    done = run("--rate", "10", "--curve", __file__)
    assert done.returncode == 2 and "not a result" in done.stderr


def test_an_hour_of_two_hundred_requests_a_second_is_planned():
    result = plan("--rate", "200", "--service", "1ms", "--max-size", "10", "--duration", "1h")
    assert result["given"][0]["result"]["requests"] > 700_000


def test_a_fleet_of_a_thousand_instances_is_planned():
    result = plan("--rate", "2000", "--service", "5ms", "--instances", "1000", "--max-size", "5", "--server-limit", "8000",
                  "--duration", "10s")
    assert result["best"]["instances"] == 1000 and result["shared"]["instances"] == 1


GUIDE = pooler.ROOT / "docs/plan.md"


def test_the_output_that_the_guide_shows_is_that_of_the_tool():
    shown = re.findall(r"^```sh\npoolhouse plan ([^\n]*)\n```\n\n```text\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown
    for command, output in shown:
        assert run(*shlex.split(command)).stdout == output, command


def test_the_scenario_that_the_guide_shows_can_be_planned(tmp_path):
    (text,) = re.findall(r"^```toml\n(\[scenario\].*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    path = tmp_path / "checkpoints.toml"
    path.write_text(text)
    assert run(path).returncode == 0


@pytest.mark.parametrize("name", sorted(path.stem for path in (pooler.ROOT / "scenarios").glob("*.toml")))
def test_each_published_case_is_planned(name):
    result = plan(pooler.ROOT / f"scenarios/{name}.toml")
    assert result["given"] and result["reasons"] and result["fragments"]


def test_pools_that_could_want_more_than_the_server_has_are_warned_of():
    limited = ("--rate", "400", "--service", "8ms", "--duration", "10s", "--instances", "40", "--server-limit", "500", "--reserved", "20")
    result = plan(*limited, "--max-size", "20")
    assert any("40 instances x 20 = 800 connections could be wanted, and 480 are free" in warning for warning in result["warnings"]), result["warnings"]
    result = plan(*limited, "--max-size", "12")
    assert not any("could be wanted" in warning for warning in result["warnings"]), result["warnings"]


def test_the_nearest_setting_fails_no_more_than_the_given_one():
    result = plan("--rate", "6000", "--service", "6ms", "--service-p99", "30ms", "--instances", "40", "--server-limit", "300", "--reserved", "30",
                "--max-size", "6", "--stall", "200ms/3s/20s", "--objective", "p99<100ms", "--objective", "errors<0.1%", status=99)
    share = lambda total: sum(total["errors"].values()) / (total["requests"] + sum(total["errors"].values()))  # noqa: E731
    given, best = result["given"][0]["result"], result["best"]["cases"][0]["result"]
    assert 0.001 < share(best) <= share(given) * 1.1, (share(best), share(given))
