"""`max_size = "auto"` on a real PostgreSQL: all transactions update one row, so fewer servers than the pool begins with
are better. These tests check the connection to the pooler. That the tuner finds the best size is tested in
`crates/pooler/tuner`, on databases where that size is known.
"""

import re
import subprocess
import time

import pytest

from support import pooler
from support.postgres_cluster import PASSWORDS, free_port
from support.successors import successor
from support.waiting import eventually

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

# One row that every transaction holds, for longer the more servers there are: throughput is at most 1 / (0.001 + 0.001
# N).
ROW = """BEGIN;
UPDATE tuned SET n = n + 1;
SELECT pg_sleep(0.001 + 0.001 * count(*)) FROM pg_stat_activity WHERE usename = 'app' AND backend_type = 'client backend';
END;
"""
LOAD = 24
MIN_SIZE, MAX_SIZE = 2, 30


@pytest.fixture
def row(cluster):
    with cluster.superuser("bench") as db:
        for statement in ("DROP TABLE IF EXISTS tuned", "CREATE TABLE tuned AS SELECT 0 AS n", "GRANT ALL ON tuned TO PUBLIC"):
            db.execute(statement)


def load(served, script, seconds):
    """More clients than the pool has servers, all updating one row."""
    url = f"postgres://app:{PASSWORDS['app'].replace(' ', '%20')}@127.0.0.1:{served.port}/bench"
    return subprocess.Popen([pooler.BINARY, "bench", url, "--script", str(script(ROW)), "--clients", "40", "--duration", f"{seconds}s"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


@pytest.mark.usefixtures("row")
def test_a_pool_is_tuned_within_its_bounds_and_each_step_is_told(start, script):
    served = start(max_size="auto", auto_min_size=MIN_SIZE, auto_max_size=MAX_SIZE, auto_window="400ms", max_wait_time="10s", max_connecting=8)
    with served.wire() as client:
        client.query("SELECT 1")
    eventually("a process tunes it", lambda: served.pools()[0]["tuning"])
    pool = served.pools()[0]
    assert (pool["max_size"], pool["tuning"]["min"], pool["tuning"]["max"]) == (20, MIN_SIZE, MAX_SIZE)
    assert pool["tuning"]["window_ms"] == 400 and pool["tuning"]["last"] is None
    time.sleep(1)
    pool = served.pools()[0]
    assert (pool["max_size"], pool["tuning"]["state"], pool["tuning"]["changes"]) == (20, "no_demand", 0), "no client waits"

    running = load(served, script, LOAD)
    sizes = set()
    while running.poll() is None:
        sizes.add(served.pools()[0]["max_size"])
        time.sleep(0.2)
    assert running.returncode == 0, running.stderr.read()
    assert all(MIN_SIZE <= size <= MAX_SIZE for size in sizes) and len(sizes) > 1, sizes
    eventually("it has noticed that no client waits any more", lambda: served.pools()[0]["tuning"]["trial"] is None)

    pool = served.pools()[0]
    tuning, last = pool["tuning"], pool["tuning"]["last"]
    # 20 servers do 48/s, and 10 do 91/s: no noise can hide that.
    assert pool["max_size"] <= 16 and tuning["steps"]["better"] >= 1, tuning
    assert last["evidence"]["pairs"] >= 1 and last["text"], last
    told = [line for line in served.log().splitlines() if "tuning: " in line]
    assert len(told) == sum(tuning["steps"].values()), (tuning["steps"], told)
    better = [line for line in told if "the size that was tried does more" in line]
    assert len(better) == tuning["steps"]["better"]
    assert all(re.search(r"servers beside \d+ in \d+ pairs of windows .*throughput \+\d.*hold .*errors 0 beside 0", line) for line in better), better
    assert served.metric("poolhouse_servers_max", database="bench") == pool["max_size"]
    assert served.metric("poolhouse_tuning_changes_total", database="bench") == tuning["changes"] > 0
    for reason, count in tuning["steps"].items():
        assert served.metric("poolhouse_tuning_steps_total", database="bench", reason=reason) == count

    served.rewrite(max_size=9, max_wait_time="10s")
    assert served.post("/api/reload")[0] == 200
    pool = served.pools()[0]
    assert pool["max_size"] == 9, "a number is a number"
    eventually("no process tunes it any more", lambda: served.pools()[0]["tuning"] is None)


@pytest.mark.usefixtures("row")
def test_what_was_found_outlives_an_upgrade_and_a_restart_begins_where_the_file_says(start, script):
    settings = {"max_size": "auto", "auto_min_size": 2, "auto_max_size": 8, "auto_start_size": 6, "auto_window": "200ms",
                "max_wait_time": "10s", "max_connecting": 8}
    served = start(**settings)
    with served.wire() as client:
        client.query("SELECT 1")
    assert served.pools()[0]["max_size"] == 6
    running = load(served, script, 60)
    try:
        # 6 servers do 143/s, 4 do 200/s.
        eventually("it finds a better size", lambda: (served.pools()[0]["tuning"] or {"steps": {"better": 0}})["steps"]["better"] >= 1, 40)
    finally:
        running.terminate()
        running.wait(20)
    eventually("it rests", lambda: served.pools()[0]["tuning"]["trial"] is None and served.pools()[0]["tuning"]["state"] in ("no_demand", "found"))
    size = served.pools()[0]["max_size"]
    assert 2 <= size < 6, size
    with successor(start, served) as new:
        assert served.wait(5) == 0
        with new.wire() as client:
            client.query("SELECT 1")
            eventually("the new process goes on with that size", lambda: new.pools()[0]["max_size"] == size)
        assert new.pools()[0]["tuning"]["changes"] == 0, "nothing was tried for it"
        assert "tuning: goes on where the process before was" in new.log()
    again = start(**settings)
    with again.wire() as client:
        client.query("SELECT 1")
    eventually("a process tunes it", lambda: again.pools()[0]["tuning"])
    assert again.pools()[0]["max_size"] == 6


def test_a_url_and_a_flag_suffice(cluster, start):
    served = start.unstarted()
    served.launch([pooler.BINARY, "serve", cluster.url(), "--listen", f"127.0.0.1:{served.port}", "--admin", f"127.0.0.1:{served.admin_port}",
                   "--max-size", "auto", "--auto-min-size", "2", "--auto-max-size", "9", "--auto-start-size", "4"])
    with served.wire() as client:
        client.query("SELECT 1")
    eventually("a process tunes it", lambda: served.pools()[0]["tuning"])
    pool = served.pools()[0]
    assert (pool["max_size"], pool["tuning"]["min"], pool["tuning"]["max"]) == (4, 2, 9)


@pytest.mark.parametrize("flags, why", [
    (["--max-size", "auto", "--mode", "session"], "session mode"), (["--auto-max-size", "9"], "are for --max-size auto"),
    (["--max-size", "automatic"], "write a number from 1 to 1000000, or auto"),
    (["--max-size", "auto", "--auto-start-size", "99"], "is outside --auto-min-size 1 to --auto-max-size 60"),
], ids=["sessions", "bounds", "word", "start"])
def test_flags_that_make_no_sense_are_refused(flags, why):
    command = [pooler.BINARY, "serve", "postgres://a@127.0.0.1:1/d", "--listen", f"127.0.0.1:{free_port()}", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and why in done.stderr, done


REFUSED = {
    "the same database twice": ('[[database]]\nname = "d"\nurl = "postgres://a@h/d"\nmax_size = "auto"\n'
                                '[[database]]\nname = "e"\nurl = "postgres://b@h/d"\nmax_size = "auto"\n', "both are the same database"),
    "several users": ('[[database]]\nname = "d"\nurl = "postgres://h/d"\nmax_size = "auto"\n'
                      '[[user]]\nname = "a"\npassword = "x"\n[[user]]\nname = "b"\npassword = "x"\n', "have a pool each there"),
    "redis": (f'[[listener]]\nlisten = "127.0.0.1:{free_port()}"\n[[database]]\nurl = "redis://127.0.0.1:6379"\nmax_size = "auto"\n',
              "clients of Redis share connections"),
    "sessions": ('[[database]]\nname = "d"\nurl = "postgres://a@h/d"\nmax_size = "auto"\nmode = "session"\n', "session mode"),
    "several": ('[serve]\nnode_id = 1\n[[database]]\nname = "d"\nurl = "postgres://a@h/d"\nmax_size = "auto"\n', "node_id"),
}


@pytest.mark.parametrize("text, why", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_tuned_is_refused(tmp_path, text, why):
    path = tmp_path / "poolhouse.toml"
    path.write_text(text)
    path.chmod(0o600)
    done = subprocess.run([pooler.BINARY, "check", str(path)], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and why in done.stdout + done.stderr, done
    path.write_text(text.replace('max_size = "auto"', "max_size = 20"))
    done = subprocess.run([pooler.BINARY, "check", str(path)], capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
