"""The operator's SQL on each new server, and the client's address in the application name."""

import pytest

from support import postgres_wire as w

pytestmark = pytest.mark.poolhouse_only


def bench(cluster, **more):
    return {"bench": {"url": cluster.url("bench"), **more}}


def test_each_new_server_runs_it_once_before_it_is_used(start, cluster):
    with cluster.superuser("bench") as db:
        db.execute("DROP TABLE IF EXISTS greeted")
        db.execute("CREATE TABLE greeted (pid int)")
        db.execute("GRANT ALL ON greeted TO PUBLIC")
    pooler = start(databases=bench(cluster, connect_query="INSERT INTO greeted VALUES (pg_backend_pid())"), max_size=3)
    with pooler.connect() as one, pooler.connect() as two:
        for connection in (one, two):
            connection.autocommit = False
            connection.execute("SELECT 1")
        pids = {c.execute("SELECT pg_backend_pid()").fetchone()[0] for c in (one, two)}
        one.rollback()
        two.rollback()
        one.execute("SELECT 1")
        one.rollback()
    greeted = cluster.query("SELECT pid, count(*) FROM greeted GROUP BY pid", database="bench")
    assert pids <= {pid for pid, _ in greeted} and all(count == 1 for _, count in greeted)


def test_what_it_sets_holds_for_every_client(start, cluster):
    pooler = start(databases=bench(cluster, connect_query="SET statement_timeout = '7s'; SET TimeZone = 'Asia/Tokyo'"),
                   max_size=1)
    for _ in range(2):
        with pooler.wire() as client:
            assert client.parameters["TimeZone"] == "Asia/Tokyo"
            assert client.query("SHOW statement_timeout") == [["7s"]]
    with pooler.wire(TimeZone="UTC") as client:
        assert client.query("SHOW TimeZone") == [["UTC"]]
    with pooler.wire() as client:
        assert client.query("SHOW TimeZone") == [["Asia/Tokyo"]]


def test_session_mode_runs_it_again_after_discarding_all(start, cluster):
    pooler = start(databases=bench(cluster, connect_query="CREATE TEMP TABLE IF NOT EXISTS mine (x int)", mode="session"),
                   max_size=1)
    pids = set()
    for _ in range(3):
        with pooler.wire() as client:
            assert client.query("SELECT count(*) FROM mine") == [["0"]]
            client.query("INSERT INTO mine VALUES (1)")
            pids.add(client.query("SELECT pg_backend_pid()")[0][0])
    assert len(pids) == 1


@pytest.mark.parametrize("sql, why", [("SELECT * FROM not_there", "not_there"), ("BEGIN", "transaction")])
def test_a_failure_is_told_and_the_server_not_used(start, cluster, sql, why):
    pooler = start(databases=bench(cluster, connect_query=sql), max_size=1, unavailable_wait_time="1s")
    with pooler.open() as client, pytest.raises(w.ServerError) as raised:
        client.login("app", "app secret", "bench")
    assert why in raised.value.text
    if sql.startswith("SELECT"):
        assert "Correct connect_query" in raised.value.fields["H"]


def test_the_clients_address_is_appended_to_the_application_name(start, cluster):
    pooler = start(databases=bench(cluster, application_name_add_host=True), max_size=2)
    for given, name in [({"application_name": "shop"}, "shop"), ({}, "app")]:
        with pooler.wire(**given) as client:
            port = client.socket.getsockname()[1]
            expected = f"{name} - 127.0.0.1:{port}"
            assert client.parameters["application_name"] == expected
            assert client.query("SHOW application_name") == [[expected]]


def test_what_it_sets_survives_clients_that_set_and_reset_the_same(start, cluster):
    pooler = start(databases=bench(cluster, connect_query="SET statement_timeout = '7s'; SET search_path = 'pg_catalog'"),
                   max_size=1)
    with pooler.wire() as one, pooler.wire(options="-c statement_timeout=9s") as two, pooler.wire() as three:
        one.query("SET statement_timeout = '1s'")
        for _ in range(2):
            assert one.query("SHOW statement_timeout") == [["1s"]]
            assert two.query("SHOW statement_timeout") == [["9s"]]
            assert three.query("SHOW statement_timeout") == [["7s"]]
            assert three.query("SHOW search_path") == [["pg_catalog"]]


def test_another_one_reaches_clients_that_are_there_with_their_next_server(start, cluster):
    pooler = start(databases=bench(cluster, connect_query="SET statement_timeout = '7s'; SET TimeZone = 'Asia/Tokyo'"),
                   max_size=1)
    with pooler.wire() as plain, pooler.wire(options="-c statement_timeout=9s") as asked, pooler.wire() as set_later:
        set_later.query("SET TimeZone = 'CET'")
        assert plain.query("SHOW statement_timeout") == [["7s"]] and asked.query("SHOW statement_timeout") == [["9s"]]
        pooler.rewrite(databases=bench(cluster, connect_query="SET statement_timeout = '8s'; SET DateStyle = 'German'"),
                       max_size=1)
        assert pooler.ctl("reload").returncode == 0
        for _ in range(2):
            assert plain.query("SHOW statement_timeout") == [["8s"]] and asked.query("SHOW statement_timeout") == [["9s"]]
            assert plain.query("SHOW DateStyle")[0][0] == plain.parameters["DateStyle"] == "German, DMY"
            assert plain.query("SHOW TimeZone")[0][0] == plain.parameters["TimeZone"] != "Asia/Tokyo"
            assert set_later.query("SHOW TimeZone") == [["CET"]] and set_later.query("SHOW statement_timeout") == [["8s"]]
