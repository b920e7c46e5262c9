"""Requests sent one after another without waiting, of which one does not complete: what follows it is not executed as
if that one had been.
"""

import ssl
import time

import pytest

from support import postgres_wire as w
from support.departures import leave
from support.postgres_cluster import PASSWORDS
from support.waiting import eventually

SLOW = "SELECT pg_sleep(0.5)"


@pytest.fixture
def table(cluster):
    with cluster.superuser("bench") as database:
        database.execute("DROP TABLE IF EXISTS t_broken; CREATE TABLE t_broken (v text); GRANT ALL ON t_broken TO PUBLIC")
    return lambda: rows(cluster)


def rows(cluster):
    with cluster.superuser("bench") as database:
        return [row[0] for row in database.execute("SELECT v FROM t_broken ORDER BY v").fetchall()]


def extended(sql):
    return w.parse(sql) + w.bind() + w.execute() + w.SYNC


def nobody_works(cluster):
    return lambda: all(backend.state == "idle" for backend in cluster.backends())


@pytest.mark.timing
@pytest.mark.parametrize("form", [w.query, extended], ids=["simple", "extended"])
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_client_that_leaves_while_the_first_runs_has_the_second_done_after_it_or_not_at_all(start, cluster, table, leave, form, mode):
    pooler = start(max_size=1, max_wait_time="10s", mode=mode)
    client = pooler.wire()
    # Cancelled, it would set nothing, and the INSERT would belong to another client.
    client.send(form(f"SELECT set_config('app.tenant', 'b', false) FROM ({SLOW}) AS slow"), form("INSERT INTO t_broken SELECT current_setting('app.tenant', true)"))
    time.sleep(0.15)
    leave(client)
    time.sleep(0.8)
    eventually("all is done", nobody_works(cluster))
    assert table() in ([], ["b"])
    with pooler.wire() as other:
        assert other.query("SELECT current_setting('app.tenant', true)") in ([[""]], [[None]])


@pytest.mark.timing
def test_a_client_that_leaves_behind_a_begin_that_is_never_committed_leaves_no_row(start, cluster, table, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.send(w.query(f"{SLOW}; BEGIN"), w.query("INSERT INTO t_broken VALUES ('never')"))
    time.sleep(0.15)
    leave(client)
    time.sleep(0.8)
    eventually("all is done", nobody_works(cluster))
    assert table() == []


@pytest.mark.timing
def test_a_single_statement_is_still_cancelled(start, cluster, leave):
    pooler = start(max_size=1, max_wait_time="10s")
    client = pooler.wire()
    client.send(w.query("SELECT pg_sleep(30)"))
    time.sleep(0.15)
    leave(client)
    eventually("it is cancelled", nobody_works(cluster), seconds=5)


@pytest.mark.timing
def test_query_time_ends_the_first_and_not_what_it_was_to_prepare(start, cluster, table):
    pooler = start(max_size=1, query_time="200ms")
    with pooler.wire() as client:
        client.send(w.query(f"{SLOW}; BEGIN"), w.query("INSERT INTO t_broken VALUES ('never')"))
        with pytest.raises(w.ServerError) as told:
            client.until_ready()
            client.error()
        assert told.value.sqlstate == "57014"
    time.sleep(0.8)
    eventually("all is done", nobody_works(cluster))
    assert table() == []


@pytest.mark.timing
@pytest.mark.parametrize("form", [w.query, extended], ids=["simple", "extended"])
def test_what_is_behind_a_refused_begin_is_not_carried_out(start, table, form):
    pooler = start(max_size=1, max_wait_time="200ms")
    with pooler.wire() as holder, pooler.wire() as client:
        holder.query("BEGIN")
        client.send(form("BEGIN"), form("INSERT INTO t_broken VALUES ('never')"), form("ROLLBACK"))
        answers, _ = client.until_ready()
        assert [w.error_fields(body)["C"] for kind, body in answers if kind == b"E"] == ["53300"]
        error = client.error()
        assert (error.severity, error.sqlstate) == ("FATAL", "53300") and "behind a refused one" in error.text
        holder.query("COMMIT")
        time.sleep(0.3)
    assert table() == []


def test_a_client_that_waits_for_its_answer_keeps_its_connection(start):
    pooler = start(max_size=1, max_wait_time="200ms")
    with pooler.wire() as holder, pooler.wire() as client:
        holder.query("BEGIN")
        with pytest.raises(w.ServerError) as told:
            client.query("SELECT 1")
        assert told.value.sqlstate == "53300"
        holder.query("COMMIT")
        assert client.query("SELECT 1") == [["1"]]


@pytest.mark.timing
@pytest.mark.poolhouse_only
@pytest.mark.parametrize("encrypted", [False, True], ids=["plain", "encrypted"])
def test_what_came_in_a_packet_of_its_own_behind_a_refused_begin_is_not_done(start, certificates, table, encrypted):
    pooler = start(max_size=1, max_wait_time="1500ms", tls_cert=certificates.server.certificate, tls_key=certificates.server.key)
    with pooler.wire() as holder, pooler.open() as client:
        holder.query("BEGIN")
        if encrypted:
            client.send(w.request(w.SSL_REQUEST))
            assert client.receive(1) == b"S"
            client.socket = ssl._create_unverified_context().wrap_socket(client.socket)
        client.login("app", PASSWORDS["app"])
        for sql in ["BEGIN", "INSERT INTO t_broken VALUES ('alone')", "ROLLBACK"]:
            client.send(w.query(sql))
            time.sleep(0.1)
        assert client.error().sqlstate == "53300"
        holder.query("COMMIT")
        client.expect(b"Z")
        told = client.error()
        assert told.severity == "FATAL" and "behind a refused one" in told.text
        assert client.closed_within(5)
    assert table() == []


@pytest.mark.poolhouse_only
def test_what_is_sent_once_a_refusal_was_heard_is_done(start, table):
    pooler = start(max_size=1, max_wait_time="1500ms")
    with pooler.wire() as holder, pooler.wire() as client:
        holder.query("BEGIN")
        client.send(w.parse("SELECT 1"), w.bind(), w.execute(), w.FLUSH)
        assert client.error().sqlstate == "53300"
        holder.query("COMMIT")
        client.send(w.SYNC, w.query("INSERT INTO t_broken VALUES ('heard')"))
        client.until_ready()
        client.until_ready()
    assert table() == ["heard"]


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_refused_request_in_many_records_closes_no_connection(start, certificates, version):
    pooler = start(max_size=1, max_wait_time="1500ms", tls_cert=certificates.server.certificate, tls_key=certificates.server.key)
    context = ssl._create_unverified_context()
    context.minimum_version = context.maximum_version = version
    with pooler.wire() as holder, pooler.open() as client:
        holder.query("BEGIN")
        client.send(w.request(w.SSL_REQUEST))
        assert client.receive(1) == b"S"
        client.socket = context.wrap_socket(client.socket)
        client.login("app", PASSWORDS["app"])
        for part in [w.parse("SELECT 1"), w.bind(), w.execute(), w.SYNC]:
            client.send(part)
        assert client.error().sqlstate == "53300"
        client.expect(b"Z")
        holder.query("COMMIT")
        assert client.query("SELECT 2") == [["2"]]
