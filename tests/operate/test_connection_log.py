"""Log entries about clients that connect and disconnect, failed logins, lost databases and orders."""

import re

import pytest

from support import postgres_wire as w
from support.relay import Relay
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def lines(pooler, text):
    plain = re.sub(r"\x1b\[[0-9;]*m", "", pooler.log())
    return [line for line in plain.splitlines() if text in line]


def line(pooler, text):
    return eventually(f"the log says: {text}", lambda: lines(pooler, text))[-1]


def test_clients_that_come_and_go_are_logged_if_that_is_wished(start):
    pooler = start(log_connections=True, log_disconnections=True)
    with pooler.wire() as client:
        came = line(pooler, "client connected")
        for part in ("127.0.0.1:", 'database="bench"', 'user="app"', "tls=false", "took_ms="):
            assert part.replace('"', "") in came.replace('"', ""), came
        client.query("SELECT 1")
        client.query("SELECT 2")
    went = line(pooler, "client disconnected")
    for part in ("database=bench", "user=app", "requests=2", "lasted_s=", "reason=the client"):
        assert part in went.replace('"', ""), went


def test_without_that_wish_they_are_not(start):
    pooler = start()
    pooler.wire().close()
    eventually("it has gone", lambda: pooler.metric("poolhouse_clients") == 0)
    assert not lines(pooler, "client connected") and not lines(pooler, "client disconnected")


def test_a_failed_login_is_logged_with_its_names_and_without_its_password(start):
    pooler = start()
    with pooler.open() as client, pytest.raises(w.ServerError):
        client.login("app", "a secret that is wrong", "bench")
    failed = line(pooler, "a login has failed").replace('"', "")
    assert "database=bench" in failed and "user=app" in failed and "INFO" in failed, failed
    assert "a secret" not in pooler.log()


@pytest.mark.parametrize("user, password, database", [("app", "wrong", "bench"), ("stranger", "x", "bench"), ("app", "app secret", "missing")])
def test_a_login_that_fails_is_one_line_with_all_there_is_to_say(start, user, password, database):
    pooler = start(log_connections=True, log_disconnections=True)
    with pooler.open() as client:
        with pytest.raises(w.ServerError):
            client.login(user, password, database)
        assert client.closed_within(10)
    line(pooler, "client=127.0.0.1:")
    pooler.wire().close()
    line(pooler, "client disconnected")
    told = lines(pooler, "client=127.0.0.1:")[0]
    assert len(lines(pooler, "client=127.0.0.1:")) == 3, "of the other one it is told that it came and that it went"
    reason = f'database "{database}" does not exist' if database == "missing" else f'password authentication failed for user "{user}"'
    assert f"database={database} user={user}" in told and reason in told.replace("\\", ""), told


@pytest.mark.parametrize("busy", [False, True])
def test_a_client_whose_connection_breaks_is_logged_with_its_address(start, busy):
    pooler = start(log_disconnections=True)
    client = pooler.wire()
    address = "%s:%d" % client.socket.getsockname()
    if busy:
        client.send(w.query("SELECT pg_sleep(30)"))
    client.vanish()
    assert f"client={address} database=bench user=app" in line(pooler, "client disconnected")


def test_a_database_that_is_lost_is_logged_once_and_once_more_when_it_is_back(start, cluster):
    with Relay(cluster.port) as relay:
        url = cluster.url().replace(f":{cluster.port}/", f":{relay.port}/")
        pooler = start(databases={"bench": {"url": url}}, min_size=1, unavailable_wait_time="30s")
        pooler.wire().close()
        relay.refusing = True
        relay.cut()
        lost = line(pooler, "the database is out of reach")
        assert "ERROR" in lost and "database=bench" in lost.replace('"', ""), lost
        relay.refusing = False
        back = line(pooler, "the database is back")
        assert "away_s=" in back, back
        assert len(lines(pooler, "the database is out of reach")) == len(lines(pooler, "the database is back")) == 1


def test_an_order_is_logged_with_its_sender_and_its_outcome(start):
    pooler = start()
    assert pooler.ctl("pause", "--database", "bench").returncode == 0
    given, done = line(pooler, "ordered over the admin address"), line(pooler, "the order is done")
    for part in ("127.0.0.1:", "order=pause"):
        assert part in given.replace('"', "") and part in done.replace('"', ""), (given, done)
    assert "database=bench" in given and "status=200" in done and "answer=" in done, (given, done)
    pooler.ctl("resume")


def test_the_line_of_a_client_that_got_no_server_names_the_limit(start):
    pooler = start(max_size=1, max_wait_time="200ms")
    with pooler.wire() as holds, pooler.wire() as waits:
        holds.query("BEGIN")
        with pytest.raises(w.ServerError, match="max_size allows no more"):
            waits.query("SELECT 1")
    eventually("the log says so", lambda: "no server for a client" in pooler.log())
    (line,) = [line for line in pooler.log().splitlines() if "no server for a client" in line]
    assert "max_size allows no more" in line, line
