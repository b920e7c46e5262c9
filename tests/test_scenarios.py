"""`poolhouse bench SCENARIO.toml`: what a file describes is what runs, faults on the way included; and nothing runs when the file is wrong."""

import json
import subprocess

import pytest

import pooler

pytestmark = pytest.mark.poolhouse_only

HEAD = """
[scenario]
name = "trial"
about = "a trial"
[target]
start = "postgres"
max_connections = 60
"""


def run(path, *arguments, seconds=120):
    """Runs a scenario file; what it wrote and how it ended."""
    command = [pooler.BINARY, "bench", str(path), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, stdin=subprocess.DEVNULL)


@pytest.fixture
def bench(tmp_path):
    """Runs a scenario that must succeed: its results, one for each variant."""

    def bench(text, *arguments):
        path = tmp_path / "trial.toml"
        path.write_text(text)
        done = run(path, *arguments, "--json", "-")
        assert done.returncode == 0, done.stderr
        results = json.loads(done.stdout)
        return results if isinstance(results, list) else [results]

    return bench


def test_a_minimum_that_covers_the_burst_is_found_open_and_without_it_each_burst_pays(bench):
    without, covered = bench(HEAD + """
        script = "select-only"
        [load]
        burst = 20
        at_once = 20
        idle = "700ms"
        rounds = 3
        [pool]
        max_size = 30
        max_connecting = 30
        max_idle_time = "200ms"
        max_life_time = "off"
        [[fault]]
        kind = "delay"
        delay = "2ms"
        [[variant]]
        name = "no minimum"
        [[variant]]
        name = "covered"
        pool = { min_size = 20 }
    """)
    assert without["name"] == "trial: no minimum" and covered["name"] == "trial: covered"
    for result in (without, covered):
        assert result["requests"] == 60 and result["errors"] == {}, result["errors"]
        assert result["service_ms"]["min"] >= 4.0, "a delay of 2 ms each way"
    assert without["connections"]["created_for"]["burst"] >= 30
    assert covered["connections"]["created_for"].get("burst", 0) == 0
    assert without["response_ms"]["p99"] > covered["response_ms"]["p99"]
    # TCP's round trip and those of the login are delayed as well.
    assert without["connect_ms"]["total"]["min"] >= 4 * 4.0


def test_a_stall_shows_in_the_slowest_answers_of_an_open_load_only(bench):
    [result] = bench(HEAD + """
        sql = "select 1;"
        [load]
        rate = 200
        duration = "4s"
        [pool]
        max_size = 50
        max_connecting = 50
        [[fault]]
        kind = "stall"
        delay = "300ms"
        first = "1s"
        length = "200ms"
        every = "2s"
    """)
    assert result["errors"] == {} and abs(result["requests"] - 800) <= 2
    assert result["response_ms"]["p99"] >= 290.0, "a tenth of the time is in a stall"
    assert result["response_ms"]["p50"] < 50.0


def test_a_cut_costs_the_connections_and_the_load_goes_on(bench):
    [result] = bench(HEAD + """
        sql = "select pg_sleep(0.01);"
        [load]
        rate = 200
        duration = "3s"
        [pool]
        max_size = 20
        min_size = 10
        max_connecting = 20
        [[fault]]
        kind = "cut"
        first = "1s"
    """)
    assert result["connections"]["closed"].get("error", 0) >= 1
    assert result["requests"] >= 500
    assert set(result["errors"]) <= {"connection reset", "connection closed"}, result["errors"]


def test_a_script_runs_as_pgbench_would_run_it(bench, cluster):
    text = """
        sql = '''
        \\set n random(1, 10) * :factor
        select :n as n, :client_id as c \\gset got_
        \\if :got_n % 2 = 0
        select 1 / (case when :got_n between 2 and 20 then 1 else 0 end);
        \\else
        select 1 / 0;
        \\endif
        '''
        variables = ["factor=2"]
        [load]
        clients = 3
        duration = "1s"
    """
    for protocol in ("simple", "extended", "prepared"):
        [result] = bench(HEAD + f'protocol = "{protocol}"\n' + text)
        assert result["errors"] == {} and result["requests"] > 20, protocol


@pytest.mark.parametrize("text, complaint", [
    (HEAD + "[load]\nclientz = 5\n", ":9:1: error: unknown key `clientz` in [load]"),
    (HEAD + "[load]\nclients = 5\n", "needs a `duration`"),
    (HEAD + "sql = 'select 1; \\shell ls'\n[load]\nclients = 5\nduration = '1s'\n", "`\\shell` is not supported"),
    (HEAD + "[load]\nclients = 5\nduration = '1s'\n[pool]\nmin_size = 9\nmax_size = 2\n", "min_size (9) is above max_size (2)"),
    ("[scenario]\nname = 'x'\n[target]\nurl = 'postgres://a:hunter2@127.0.0.1:1/x'\n[load]\nclients = 1\nduration = '1s'\nrate = 5\n",
     "several shapes"),
])
def test_a_mistake_is_told_before_anything_runs(tmp_path, text, complaint):
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    done = run(path, seconds=20)
    assert done.returncode == 2 and complaint in done.stderr, done.stderr
    assert "hunter2" not in done.stderr + done.stdout


def test_the_private_database_is_gone_afterwards(bench):
    def own():
        listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
        return {line for line in listing.splitlines() if "/poolhouse-" in line and "postgres" in line and "-k" in line}

    before = own()
    bench(HEAD + "sql = 'select 1;'\n[load]\nclients = 1\nduration = '1s'\n")
    assert own() <= before
