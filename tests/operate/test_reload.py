"""The configuration is read again while clients work: on SIGHUP, and by an order at the admin address."""

import signal

import psycopg
import pytest

from support import postgres_wire as w
from support.background_load import no_failure
from support.postgres_cluster import PASSWORDS, scram_verifier
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def reload(pooler):
    status, answer = pooler.post("/api/reload")
    assert status == 200, answer
    return answer


@pytest.mark.quick
def test_a_signal_reads_the_configuration_again_and_clients_stay(start):
    pooler = start(max_size=2)
    with pooler.wire() as client:
        client.query("SELECT 1")
        assert pooler.pools()[0]["max_size"] == 2
        pooler.rewrite(max_size=7)
        pooler.signal(signal.SIGHUP)
        eventually("the pool is larger", lambda: pooler.pools()[0]["max_size"] == 7)
        client.query("SELECT 1")
    assert "configuration read again" in pooler.log()


def test_a_listener_that_is_put_back_is_no_news(start):
    pooler = start()
    text = pooler.config_path.read_text()
    pooler.config_path.write_text(text.replace(f'"127.0.0.1:{pooler.port}"', '"127.0.0.1:1"', 1))
    notes = reload(pooler)["notes"]
    assert any("127.0.0.1:1 is new" in note for note in notes), notes
    assert any(f"127.0.0.1:{pooler.port} is gone from the file" in note for note in notes), notes
    pooler.config_path.write_text(text)
    notes = reload(pooler)["notes"]
    assert not any("restart Poolhouse" in note or "goes on listening" in note for note in notes), notes


def test_a_smaller_pool_closes_servers_as_they_become_free(start):
    pooler = start(max_size=4)
    with pooler.wire() as a, pooler.wire() as b, pooler.wire() as c:
        for client in (a, b, c):
            client.query("BEGIN")
        pooler.rewrite(max_size=1)
        reload(pooler)
        assert pooler.pools()[0]["servers"]["in_use"] == 3, "no client is interrupted"
        for client in (a, b, c):
            client.query("COMMIT")
        eventually("one is left", lambda: pooler.pools()[0]["servers"]["total"] == 1)


def test_limits_over_all_pools_follow(start):
    pooler = start(max_size=4, max_server_connections=1, max_wait_time="500ms")
    with pooler.wire() as a, pooler.wire() as b:
        a.query("BEGIN")
        with pytest.raises(w.ServerError):
            b.query("SELECT 1")
        pooler.rewrite(max_size=4, max_server_connections=0, max_wait_time="500ms")
        reload(pooler)
        b.query("SELECT 1")
        pooler.rewrite(max_size=4, max_server_connections=1, max_wait_time="500ms")
        reload(pooler)
        eventually("the surplus is closed", lambda: pooler.pools()[0]["servers"]["total"] == 1)
        a.query("COMMIT")


def test_an_error_keeps_the_old_configuration_and_says_where_it_is(start):
    pooler = start(max_size=2)
    with pooler.wire() as client:
        client.query("SELECT 1")
        text = pooler.config_path.read_text()
        pooler.config_path.write_text(text.replace("max_size", "max_sise"))
        status, answer = pooler.post("/api/reload")
        assert status == 422
        line = text[: text.index("max_size")].count("\n") + 1
        assert f"poolhouse.toml:{line}:1:" in answer["problems"][0] and "did you mean `max_size`?" in answer["problems"][0]
        pooler.signal(signal.SIGHUP)
        eventually("it is told in the log as well", lambda: pooler.log().count("the old one stays in force") == 2)
        client.query("SELECT 1")
        assert pooler.pools()[0]["max_size"] == 2
        assert pooler.metric("poolhouse_last_reload_successful") == 0
        pooler.config_path.write_text(text)
        reload(pooler)
        assert pooler.metric("poolhouse_last_reload_successful") == 1
    with pooler.wire() as client:
        client.query("SELECT 1")


def test_a_removed_database_takes_no_new_clients_and_an_added_one_does(start):
    pooler = start()
    with pooler.wire(database="bench") as client:
        client.query("SELECT 1")
        pooler.rewrite(databases={"other": {}})
        assert reload(pooler)["pools"]["left_behind"] == 1
        client.query("SELECT 'still here'")
        with pytest.raises(w.ServerError) as refused:
            pooler.wire(database="bench")
        assert refused.value.sqlstate == "3D000"
        with pooler.wire(database="other") as newcomer:
            newcomer.query("SELECT 1")


def test_a_password_that_was_changed_is_asked_for_from_then_on(start, cluster, tmp_path):
    users = tmp_path / "userlist.txt"
    users.write_text(f'"app" "{PASSWORDS["app"]}"\n')
    pooler = start(users={}, auth_file=users)
    with pooler.wire() as client:
        client.query("SELECT 1")
        users.write_text(f'"app" "another-password"\n"app2" "{scram_verifier("app2")}"\n')
        reload(pooler)
        client.query("SELECT 1")
    with pytest.raises(w.ServerError) as refused:
        pooler.wire()
    assert refused.value.sqlstate == "28P01"
    for user, password in [("app", "another-password"), ("app2", PASSWORDS["app2"])]:
        with pooler.wire(user, password) as client:
            client.query("SELECT 1")


def test_another_url_replaces_the_servers_and_not_the_clients(start, cluster):
    pooler = start(users={"app": PASSWORDS["app"]})
    with pooler.wire() as idle, pooler.wire() as busy:
        idle.query("SELECT 1")
        busy.query("BEGIN")
        assert busy.query("SELECT current_database()") == [["bench"]]
        pooler.rewrite(databases={"bench": {"url": cluster.url("other", "app2")}})
        assert reload(pooler)["pools"]["renewed"] == 1
        assert idle.query("SELECT current_database(), current_user") == [["other", "app2"]]
        assert busy.query("SELECT current_database()") == [["bench"]], "a transaction ends where it began"
        busy.query("COMMIT")
        assert busy.query("SELECT current_database()") == [["other"]]
    eventually("no session is left there", lambda: not cluster.backends("app"))


def test_limits_of_clients_follow_and_addresses_wait_for_a_restart(start):
    pooler = start(hard_limit=1, newcomer_wait_time="100ms")
    eventually("who looked whether it listens has gone", lambda: pooler.metric("poolhouse_clients") == 0)
    with pooler.wire() as client:
        client.query("SELECT 1")
        with pytest.raises(w.ServerError):
            pooler.wire()
        other = f"127.0.0.1:{pooler.port - 1}"
        pooler.rewrite(hard_limit=2, newcomer_wait_time="100ms", listen=[f"127.0.0.1:{pooler.port}", other])
        notes = reload(pooler)["notes"]
        assert [note for note in notes if other in note and "restart" in note], notes
        with pooler.wire() as second:
            second.query("SELECT 1")


def test_a_hundred_reloads_under_load_fail_no_client(start):
    pooler = start(max_size=3, max_server_connections=3)
    with no_failure(pooler, clients=12) as load:
        for n in range(100):
            more = {"max_idle_time": "30s"} if n % 3 else {}
            pooler.rewrite(max_size=2 + n % 3, max_server_connections=3 + n % 2, **more)
            before = load.done
            reload(pooler)
            eventually("clients are served between two reloads", lambda: load.done > before)


@pytest.mark.timing
def test_a_hundred_reloads_that_replace_all_servers_fail_no_client(start, cluster):
    pooler = start(max_size=3)
    urls = [cluster.url(), cluster.url() + "?application_name=x"]
    with no_failure(pooler, clients=6):
        for n in range(100):
            pooler.rewrite(max_size=3, databases={"bench": {"url": urls[n % 2]}})
            reload(pooler)


def test_without_a_file_there_is_nothing_to_read_again(start, cluster):
    import os

    from support.pooler import BINARY

    pooler = start.unstarted()
    pooler.launch([BINARY, "serve", cluster.url(), "--listen", f"127.0.0.1:{pooler.port}", "--admin",
                   f"127.0.0.1:{pooler.admin_port}"], {"NO_COLOR": "1", **os.environ})
    status, answer = pooler.post("/api/reload")
    assert status == 422 and "command line" in answer["problems"][0]
    pooler.signal(signal.SIGHUP)
    with psycopg.connect(**pooler.target()) as connection:
        connection.execute("SELECT 1")
    assert pooler.metric("poolhouse_last_reload_successful") == 1, "no file differs from what runs"
