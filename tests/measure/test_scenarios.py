"""`poolhouse bench SCENARIO.toml`: the run is what the file describes, with its faults; a wrong file runs nothing."""

import json
import subprocess
import time

import pytest

from support import pooler

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

HEAD = """
[scenario]
name = "trial"
about = "a trial"
[target]
start = "postgres"
max_connections = 60
"""


def run(path, *arguments, seconds=120):
    """Runs a scenario file and returns the ended process."""
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
    # The round trips of TCP and of the login are delayed as well.
    assert without["connect_ms"]["total"]["min"] >= 4 * 4.0


def test_the_doctor_looks_at_the_database_while_it_runs_and_finds_the_churn_but_no_fault_in_the_cure(bench):
    # A second without load stands for ten: 0.8 s are a long time.
    without, covered = bench(HEAD.replace("[target]", "compression = 10\n[target]") + """
        script = "select-only"
        [load]
        burst = 20
        at_once = 20
        idle = "2s"
        rounds = 5
        [pool]
        max_size = 30
        max_connecting = 30
        max_idle_time = "800ms"
        max_life_time = "off"
        [[fault]]
        kind = "delay"
        delay = "5ms"
        [[variant]]
        name = "no minimum"
        [[variant]]
        name = "covered"
        pool = { min_size = 20 }
    """, "--doctor")
    said = without["about"]["doctor"]
    assert len(said) == 1 and "idle servers are closed and made again" in said[0] and "min_size" in said[0], said
    assert covered["about"]["doctor"][0].startswith("healthy, as far as "), covered["about"]["doctor"]


def test_the_doctor_takes_no_connection_from_the_load(bench):
    [result] = bench(HEAD + """
        sql = "select 1;"
        [load]
        clients = 70
        duration = "4s"
        [pool]
        max_size = 70
        min_size = 57
        max_wait_time = "1s"
        warm = false
    """, "--doctor")
    # PostgreSQL keeps three of the 60 connections for superusers.
    assert result["connections"]["most"] == 57, result["connections"]
    assert result["about"]["doctor"], "and it could look"


def test_the_doctor_looks_at_the_poolhouse_in_front(bench):
    [result] = bench(HEAD + """
        sql = "select pg_sleep(0.02);"
        [load]
        clients = 40
        duration = "6s"
        [[variant]]
        name = "through"
        poolhouse = { max_size = 2, max_wait_time = "30s" }
    """, "--doctor")
    # Only a change of the load could distinguish the two.
    assert any("the pool is too small, or the database is saturated" in line for line in result["about"]["doctor"]), result["about"]


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
    head = HEAD.replace('start = "postgres"\nmax_connections = 60', f'url = "{cluster.url()}"')
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
        [result] = bench(head + f'protocol = "{protocol}"\n' + text)
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


FUNCTIONS = """
[scenario]
name = "functions"
columns = ["done", "failed", "why", "lost"]
[target]
start = "redis"
max_connections = 40
"""


def test_a_flood_is_turned_away_at_one_limit_and_served_with_two(bench):
    direct, one, two = bench(FUNCTIONS + """
        [load]
        rate = 40
        duration = "3s"
        [pool]
        reuse = false
        goodbye = false
        [[variant]]
        name = "Redis itself"
        [[variant]]
        name = "one limit"
        poolhouse = { soft_limit = 40, hard_limit = 40 }
        [[variant]]
        name = "two limits"
        poolhouse = { soft_limit = 20, hard_limit = 40, evict_min_idle = "100ms" }
    """)
    for full in (direct, one):
        assert 38 <= full["requests"] <= 40 and set(full["errors"]) == {"too many clients"}, full["errors"]
    assert two["requests"] == 120 and two["errors"] == {}
    assert two["connections"]["closed"]["connection closed"] >= 90 and two["connections"]["most"] <= 40
    assert "soft_limit 20" in two["about"]["way"] and direct["about"]["way"] == "straight"


def test_a_thawed_function_meets_a_dead_connection_only_where_the_server_was_less_patient_than_its_platform(bench):
    impatient, patient = bench(FUNCTIONS + """
        [load]
        burst = 4
        idle = "1500ms"
        rounds = 3
        [pool]
        instances = 4
        max_size = 1
        max_idle_time = "off"
        blind = true
        [freeze]
        first = "1600ms"
        length = "1390ms"
        every = "1500ms"
        [[variant]]
        name = "impatient"
        poolhouse = { client_idle_time = "700ms" }
        [[variant]]
        name = "patient"
        poolhouse = { client_idle_time = "5s" }
    """)
    assert [sum(step["errors"].values()) for step in impatient["steps"]] == [0, 4, 0], impatient["steps"]
    assert set(impatient["errors"]) <= {"connection closed", "connection reset"}
    assert impatient["connections"]["created"] == 8, "the last call makes new ones"
    assert patient["errors"] == {} and patient["requests"] == 12 and patient["connections"]["created"] == 4


def test_ephemeral_calls_pay_for_a_connection_each_and_say_so_side_by_side(bench, tmp_path):
    text = FUNCTIONS.replace('"done", "failed"', '"done", "issue_p50", "response_p50", "connect_p50"') + """
        [load]
        clients = 1
        think = "5ms"
        duration = "2s"
        [[variant]]
        name = "reuse"
        [[variant]]
        name = "ephemeral"
        pool = { reuse = false }
        [[variant]]
        name = "starved"
        freeze = { length = "18ms", every = "20ms" }
    """
    reuse, ephemeral, starved = bench(text)
    assert all(result["errors"] == {} for result in (reuse, ephemeral, starved))
    assert ephemeral["connections"]["created"] == ephemeral["requests"] and reuse["connections"]["created"] == 1
    assert ephemeral["issue_ms"]["p50"] > reuse["issue_ms"]["p50"]
    # A connection is made before each operation, with TCP's handshake and the login.
    assert ephemeral["connect_ms"]["auth"]["count"] == ephemeral["connect_ms"]["tcp"]["count"] == ephemeral["requests"]
    assert starved["requests"] < 0.7 * reuse["requests"] and starved["response_ms"]["max"] >= 15
    path = tmp_path / "shown.toml"
    path.write_text(text.replace('"2s"', '"300ms"'))
    done = run(path, "--html", tmp_path / "page.html")
    table = done.stdout[done.stdout.index("side by side"):].splitlines()
    assert [line.split()[0] for line in table[1:4]] == ["reuse", "ephemeral", "starved"], done.stdout
    assert "Side by side" in (tmp_path / "page.html").read_text()


def test_a_frozen_run_that_is_interrupted_reports_what_there_is_and_leaves_no_process(tmp_path):
    path = tmp_path / "frozen.toml"
    path.write_text(FUNCTIONS + "[load]\nclients = 1\nthink = '10ms'\nduration = '60s'\n[freeze]\nfirst = '500ms'\nlength = '50s'\n")
    command = [pooler.BINARY, "bench", str(path), "--json", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(2.5)
        listing = subprocess.run(["ps", "-ww", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout
        frozen = [line for line in listing.splitlines() if str(path) in line and line.startswith("T")]
        assert len(frozen) == 1, listing
        process.terminate()
        out, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    result = json.loads(out)
    assert result["interrupted"] and 10 < result["requests"] < 100
    listing = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(path) not in listing
