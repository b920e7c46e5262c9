"""poolhouse doctor beside a Poolhouse: every symptom is caused on purpose with a real database, and so are healthy runs
that resemble it.
"""

import contextlib
import os
import subprocess
import threading
import time

import pytest

from support import postgres_wire as w
from support.doctor import look, symptoms
from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS
from support.threads import running_threads
from support.waiting import eventually

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]


def doctor(pooler, window="4s"):
    return look(pooler.admin_url, window=window)


def clients(pooler, many, what):
    """Clients that each repeat `what(client, over)`."""
    def work(over):
        with pooler.wire() as client:
            while not over.is_set():
                what(client, over)

    return running_threads(many, work)


def short(client, over):
    client.query("SELECT pg_sleep(0.01)")


def sleeping(client, over):
    client.query("SELECT pg_sleep(0.05)")


def sometimes(client, over):
    client.query("SELECT pg_sleep(0.005)")
    over.wait(0.1)


def left_open(client, over):
    client.query("BEGIN")
    client.query("SELECT 1")
    over.wait(0.5)
    client.query("COMMIT")


@pytest.mark.quick
def test_a_pool_that_is_used_a_little_is_healthy(start):
    pooler = start(max_size=5)
    with clients(pooler, 4, sometimes):
        said, done = doctor(pooler)
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], [])


def test_a_burst_that_passes_is_healthy(start):
    pooler = start(max_size=3)
    with clients(pooler, 2, sometimes):
        burst = threading.Timer(1.5, lambda: burst_of(pooler, 20, 6))
        burst.start()
        said, done = doctor(pooler, "6s")
        burst.join()
    assert (done.returncode, said["findings"]) == (0, [])


def burst_of(pooler, many, times):
    """`many` clients that each run `times` queries."""
    def once():
        with pooler.wire() as client:
            for _ in range(times):
                client.query("SELECT pg_sleep(0.01)")

    threads = [threading.Thread(target=once) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.quick
def test_clients_that_wait_for_a_database_with_time_to_spare_need_a_larger_pool(start):
    pooler = start(max_size=4)
    with clients(pooler, 1, short):
        done_looking = []
        looking = threading.Thread(target=lambda: done_looking.append(doctor(pooler, "8s")))
        looking.start()
        time.sleep(2.5)
        with clients(pooler, 15, short):
            looking.join()
    said, done = done_looking[0]
    assert symptoms(said) == ["pool_too_small"], said
    assert done.returncode == 1
    (finding,) = said["findings"]
    assert len(finding["evidence"]) >= 2 and finding["setting"]["key"] == "max_size"
    # Twice as many at most: how the database behaves beyond that was not observed.
    assert int(finding["setting"]["to"]) == 8
    check_prediction(finding, pooler, 16, short)


def check_prediction(finding, pooler, many, what):
    """Applies the proposed setting and compares the effect with the prediction."""
    predicted = finding["predicted"]
    assert predicted, finding
    now, then = predicted["now"], predicted["then"]
    # Twice the servers for clients that do not pause: nearly twice the work, and less than half of the waits.
    assert 1.5 * now["transactions_per_s"] < then["transactions_per_s"] < 2.5 * now["transactions_per_s"], predicted
    assert then["wait_p95_ms"] < 0.7 * now["wait_p95_ms"], predicted
    pooler.stop()
    pooler.start(max_size=int(finding["setting"]["to"]))
    with clients(pooler, many, what):
        time.sleep(0.5)
        before = pooler.pools()[0]["transactions"]
        began = time.monotonic()
        time.sleep(3)
        rate = (pooler.pools()[0]["transactions"] - before) / (time.monotonic() - began)
    # The clients of this test use CPU time themselves, on few processors.
    assert 0.6 * then["transactions_per_s"] < rate < 1.3 * then["transactions_per_s"], (rate, predicted)


def test_clients_that_sleep_in_the_database_behind_a_pool_of_two_need_a_larger_pool(start, cluster):
    pooler = start(max_size=2, max_wait_time="60s")
    with clients(pooler, 12, sleeping):
        eventually("clients wait", lambda: sum(pool["waiters"] for pool in pooler.pools()) >= 5)
        alone, done = look(pooler.admin_url, window="2s")
        assert symptoms(alone) == [] and "--database" in alone["undecided"][0]["needs"], done
        told, done = look(pooler.admin_url, "--database", cluster.url(), window="2s")
    assert symptoms(told) == ["pool_too_small"], done
    assert "waited for a processor or ran" in " ".join(told["findings"][0]["evidence"])


@pytest.mark.in_the_matrix
def test_work_that_gets_slower_the_more_of_it_there_is_is_a_saturated_database(start):
    pooler = start(max_size=8)
    with pooler.wire() as client:
        client.query("CREATE TABLE one (n int)")
        client.query("INSERT INTO one VALUES (0)")

    def contended(client, over):
        # All clients wait for the same row: a second server gains nothing.
        client.query("UPDATE one SET n = n + 1 WHERE pg_sleep(0.01) IS NOT NULL")

    done_looking = []
    looking = threading.Thread(target=lambda: done_looking.append(doctor(pooler, "12s")))
    try:
        with contextlib.ExitStack() as stack:
            looking.start()
            for more in (1, 1, 2, 2, 10):
                stack.enter_context(clients(pooler, more, contended))
                time.sleep(1.8)
            looking.join()
    finally:
        with pooler.wire() as client:
            client.query("DROP TABLE one")
    said, done = done_looking[0]
    assert symptoms(said) == ["server_saturated"], said
    assert said["findings"][0]["setting"] is None, "no setting of the pool cures it"


def test_heavy_work_after_light_work_is_not_taken_for_a_saturated_database(start):
    pooler = start(max_size=4)

    def heavy(client, over):
        client.query("SELECT pg_sleep(0.2)")

    with clients(pooler, 1, short):
        done_looking = []
        looking = threading.Thread(target=lambda: done_looking.append(doctor(pooler, "8s")))
        looking.start()
        time.sleep(2.5)
        with clients(pooler, 12, heavy):
            looking.join()
    said, done = done_looking[0]
    assert (done.returncode, symptoms(said)) == (2, []), said


def test_session_mode_whose_clients_are_idle_is_no_leak(start):
    pooler = start(max_size=3, mode="session")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(pooler.wire()).query("SELECT 1")
        waiter = stack.enter_context(pooler.wire())
        waiter.send(w.query("SELECT 1"))
        time.sleep(0.5)
        said, done = doctor(pooler)
    assert symptoms(said) == ["held_by_idle_clients"], said


def test_a_restart_in_the_middle_is_told_and_what_follows_counts(start):
    pooler = start(max_size=2)
    with pooler.wire() as client:
        client.query("SELECT 1")
    done_looking = []
    looking = threading.Thread(target=lambda: done_looking.append(doctor(pooler, "6s")))
    looking.start()
    time.sleep(1)
    pooler.stop()
    time.sleep(1)
    pooler.start(max_size=2)
    with pooler.wire() as client:
        client.query("SELECT 1")
        looking.join()
    said, done = done_looking[0]
    assert (done.returncode, said["findings"]) == (0, []), done
    assert "restarted" in done.stderr and said["window_s"] < 5


def test_what_cannot_be_told_is_undetermined(start):
    pooler = start(max_size=4)
    with clients(pooler, 16, short):
        time.sleep(0.5)
        said, done = doctor(pooler)
    assert (done.returncode, symptoms(said)) == (2, [])
    assert said["undecided"][0]["between"] == ["pool_too_small", "server_saturated"]
    assert "sweep" in said["undecided"][0]["needs"]


def test_transactions_left_open_are_named_as_that(start):
    pooler = start(max_size=4)
    with clients(pooler, 10, left_open):
        time.sleep(0.5)
        said, done = doctor(pooler)
    assert symptoms(said) == ["transactions_left_open"], said
    assert said["findings"][0]["setting"] is None, "a limit would break what pauses for half a second"


def test_short_pauses_in_which_most_servers_stand_are_no_small_pool(start):
    def pause(client, over):
        client.query("BEGIN")
        client.query("SELECT 1")
        over.wait(0.06)
        client.query("COMMIT")

    pooler = start(max_size=4)
    with clients(pooler, 10, pause):
        time.sleep(0.5)
        said, done = doctor(pooler)
    assert symptoms(said) == ["transactions_left_open"], said
    assert "the pool is not too small" in said["findings"][0]["rules_out"]


def test_pipelines_that_clients_do_not_end_are_no_small_pool_beside_the_database(start, cluster):
    def half(client, over):
        client.send(w.parse("SELECT 1"), w.bind(), w.execute(), w.message(b"H"))
        client.expect(b"1", b"2", b"D", b"C")
        over.wait(0.5)
        client.send(w.message(b"S"))
        client.until_ready()

    pooler = start(max_size=4, max_wait_time="60s")
    with clients(pooler, 10, half):
        eventually("clients wait", lambda: pooler.pools() and pooler.pools()[0]["waiters"] >= 4)
        said, done = look(pooler.admin_url, "--database", cluster.url(), window="3s")
    assert symptoms(said) == ["transactions_left_open"], (said, done.stderr)
    assert "pipeline" in " ".join(said["findings"][0]["evidence"])


def test_servers_that_never_come_back_are_a_leak(start):
    pooler = start(max_size=4)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(pooler.wire()).query("BEGIN")
        with clients(pooler, 5, short):
            time.sleep(2.5)
            said, done = doctor(pooler)
    assert symptoms(said) == ["leak"], said


def test_a_limit_on_pauses_that_is_set_already_is_not_proposed(start):
    pooler = start(max_size=4, transaction_idle_time="30s", query_time="40s")
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(pooler.wire()).query("BEGIN")
        settings = pooler.pools()[0]["settings"]
        with clients(pooler, 5, short):
            time.sleep(2.5)
            said, done = doctor(pooler)
    assert symptoms(said) == ["leak"], said
    (finding,) = said["findings"]
    assert finding["setting"] is None and "transaction_idle_time = 30s is in force" in finding["advice"], finding
    assert (settings["transaction_idle_time"], settings["query_time"], settings["client_idle_time"]) == (30_000, 40_000, None)


def test_clients_that_connect_for_each_query_are_named(start):
    pooler = start(max_size=4)
    over = threading.Event()

    def come_and_go():
        while not over.is_set():
            with pooler.wire() as client:
                client.query("SELECT 1")

    threads = [threading.Thread(target=come_and_go) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        said, done = doctor(pooler)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert symptoms(said) == ["ephemeral_clients"], said


def test_a_deployment_whose_clients_stay_is_healthy(start):
    pooler = start(max_size=4)
    with contextlib.ExitStack() as stack:
        coming = threading.Timer(1, lambda: [stack.enter_context(pooler.wire()).query("SELECT 1") for _ in range(100)])
        coming.start()
        said, done = doctor(pooler)
        coming.join()
    assert (done.returncode, said["findings"]) == (0, [])


@pytest.mark.in_the_matrix
def test_idle_servers_that_are_closed_before_each_burst_are_churn(start):
    pooler = start(max_size=10, max_idle_time="300ms")
    done_looking = []
    looking = threading.Thread(target=lambda: done_looking.append(doctor(pooler, "6s")))
    for n in range(6):
        if n == 2:
            looking.start()
        burst_of(pooler, 8, 5)
        time.sleep(1.2)
    looking.join()
    said, done = done_looking[0]
    if done.returncode == 0:
        # A connection to this machine may take too little time to be noticed.
        pool = pooler.pools()[0]
        assert pool["checkout"]["created"]["p95_below_ms"] < 10, pool
        pytest.skip("making a connection costs next to nothing here")
    assert symptoms(said) == ["idle_churn"], said
    finding = said["findings"][0]
    setting = finding["setting"]
    assert setting["key"] == "min_size" and 1 < int(setting["to"]) <= 8, "no burst needs more"
    # The prediction is simulated, or the doctor says why not.
    assert (finding["predicted"] is None) != (finding["not_planned"] is None), finding
    if finding["predicted"]:
        now, then = finding["predicted"]["now"], finding["predicted"]["then"]
        assert then["created_an_hour"] <= 0.13 * now["created_an_hour"], finding


@pytest.mark.in_the_matrix
def test_a_database_that_comes_back_to_a_pool_that_makes_all_connections_at_once_is_a_stampede(start, cluster):
    slow = {"url": cluster.url("bench"), "connect_query": "SELECT count(*) FROM generate_series(1, 400000)"}
    pooler = start(max_size=20, max_connecting=20, unavailable_wait_time="60s", max_wait_time="60s", databases={"bench": slow})
    over = threading.Event()

    def work():
        # A client that loses its connection reconnects.
        while not over.is_set():
            with contextlib.suppress(w.Closed, w.ServerError, OSError), pooler.wire(timeout=60) as client:
                while not over.is_set():
                    client.query("SELECT pg_sleep(0.05)")

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
        time.sleep(0.3)
    done_looking = []
    looking = threading.Thread(target=lambda: done_looking.append(doctor(pooler, "12s")))
    looking.start()
    time.sleep(2)
    cluster.stop("immediate")
    try:
        time.sleep(3)
    finally:
        cluster.start()
    looking.join()
    over.set()
    for thread in threads:
        thread.join()
    said, done = done_looking[0]
    assert symptoms(said) == ["stampede"], said
    setting = said["findings"][0]["setting"]
    assert setting["key"] == "max_connecting" and int(setting["to"]) < 20, said


@pytest.mark.in_the_matrix
def test_a_database_that_has_no_connection_left_for_a_pool_is_named_as_that(start, cluster):
    pooler = start(max_size=20)
    with contextlib.ExitStack() as stack:
        stack.enter_context(clients(pooler, 3, short))
        time.sleep(0.5)
        with contextlib.suppress(w.ServerError):
            for _ in range(100):
                stack.enter_context(w.Wire(cluster.port, 10).login("app", PASSWORDS["app"], "bench", application_name="other"))
        stack.enter_context(clients(pooler, 12, short))
        said, done = doctor(pooler, "5s")
    assert symptoms(said) == ["limits_add_up"], said
    assert "53300" in " ".join(said["findings"][0]["evidence"]), said


@pytest.mark.in_the_matrix
def test_clients_that_never_end_their_side_are_zombies_and_those_that_do_are_not(start):
    pooler = start(max_size=4, client_idle_time="1s")
    with clients(pooler, 2, sometimes):
        for silent in (True, False):
            gone = [pooler.wire() for _ in range(12)]
            over = threading.Event()

            def answer():
                """Closes the connection when the other side does, as a driver would."""
                for client in gone:
                    with contextlib.suppress(OSError, w.Closed):
                        client.socket.settimeout(30)
                        while client.socket.recv(4096):
                            pass
                    client.close()

            answering = threading.Thread(target=answer)
            if not silent:
                answering.start()
            said, done = doctor(pooler, "9s")
            assert symptoms(said) == (["zombies"] if silent else []), (silent, said)
            if silent:
                for client in gone:
                    client.close()
            else:
                answering.join()


def test_a_database_that_is_gone_is_named_and_nothing_else(start, cluster):
    pooler = start(max_size=2, max_wait_time="20s", unavailable_wait_time="20s")
    with pooler.wire() as client:
        client.query("SELECT 1")
        cluster.stop()
        try:
            client.send(w.query("SELECT 1"))
            eventually("an attempt that fails", lambda: any(pool["last_error"] for pool in pooler.pools()))
            said, done = doctor(pooler, "2s")
        finally:
            cluster.start()
    assert symptoms(said) == ["out_of_reach"], said
    assert "refused" in " ".join(said["findings"][0]["evidence"]).lower()


def test_a_database_that_cannot_be_reached_is_named_although_no_client_waits(start, cluster):
    pooler = start(databases={"bench": {"url": f"postgres://app:oops@127.0.0.1:{cluster.port}/bench"}})
    with pytest.raises(w.ServerError, match="oops|password|unavailable"):
        pooler.wire()
    said, done = doctor(pooler, "2s")
    assert (symptoms(said), done.returncode) == (["out_of_reach"], 1), said
    assert "password authentication failed" in " ".join(said["findings"][0]["evidence"])


def test_a_drain_that_was_forgotten_is_named(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("SELECT 1")
    assert pooler.post("/api/drain?database=bench")[0] == 200
    assert pooler.metric("poolhouse_pools_drained", database="bench") == 1
    said, done = doctor(pooler, "2s")
    assert (symptoms(said), done.returncode) == (["drained"], 1), said
    assert pooler.post("/api/resume?database=bench")[0] == 200
    assert pooler.metric("poolhouse_pools_drained", database="bench") == 0


def test_the_limit_that_keeps_a_pool_small_is_named(start):
    pooler = start(max_size=20, max_server_connections=3, max_wait_time="60s")
    with clients(pooler, 12, sleeping):
        eventually("clients wait", lambda: sum(pool["waiters"] for pool in pooler.pools()) >= 5)
        said, done = doctor(pooler, "3s")
    assert symptoms(said) == ["another_limit"], said
    assert said["findings"][0]["advice"].startswith("Raise max_server_connections"), said


def test_a_doctor_that_cannot_look_says_so(start):
    done = subprocess.run([BINARY, "doctor", "http://127.0.0.1:1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "cannot ask" in done.stderr
    done = subprocess.run([BINARY, "doctor", "ftp://x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    done = subprocess.run([BINARY, "doctor", "nofile"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and "no file `nofile`" in done.stderr and "http://nofile:9930" in done.stderr, done


# -- recordings


def test_a_recording_is_examined_as_what_was_seen(start, tmp_path):
    pooler = start(max_size=4)
    path = tmp_path / "looks.jsonl"
    with clients(pooler, 10, left_open):
        time.sleep(0.5)
        seen, done = look(pooler.admin_url, "--record", path)
    assert symptoms(seen) == ["transactions_left_open"], done
    told, again = look(path)
    assert (told, again.returncode) == (seen, done.returncode)
    assert "app secret" not in path.read_text()
    whole = path.read_bytes()
    for cut in (0, 40, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:cut])
        told, done = look(path)
        assert done.returncode == 3 and told is None and str(path) in done.stderr, done
    path.write_bytes(os.urandom(5000) + b"\n" + whole)
    told, done = look(path)
    assert done.returncode == 3 and ("no recording" in done.stderr or "does not begin like" in done.stderr), done
    told, done = look(tmp_path / "nowhere.jsonl")
    assert done.returncode == 3 and "cannot read" in done.stderr, done


def test_what_cannot_be_recorded_is_told_at_once(start, tmp_path):
    pooler = start(max_size=4)
    began = time.monotonic()
    said, done = look(pooler.admin_url, "--record", tmp_path / "no" / "folder.jsonl", window="50s")
    assert done.returncode == 3 and "cannot write" in done.stderr and time.monotonic() - began < 10
    (tmp_path / "looks.jsonl").write_text("")
    said, done = look(tmp_path / "looks.jsonl", "--record", tmp_path / "other.jsonl")
    assert done.returncode == 3 and "is a recording" in done.stderr


def test_an_earlier_recording_stays_until_a_look_has_succeeded(start, tmp_path):
    old, new = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    old.write_text("an earlier one\n" * 9_000)
    earlier = old.read_bytes()
    for path in (old, new):
        said, done = look("http://127.0.0.1:1", "--record", path, window="1s")
        assert done.returncode == 3 and "cannot ask" in done.stderr, done
    assert old.read_bytes() == earlier and not new.exists(), "who looked in vain has lost nothing, and left nothing"
    pooler = start(max_size=4)
    with pooler.wire() as client:
        client.query("SELECT 1")
        seen, done = look(pooler.admin_url, "--record", old, window="2s")
    assert look(old)[0] == seen and b"earlier" not in old.read_bytes(), done
