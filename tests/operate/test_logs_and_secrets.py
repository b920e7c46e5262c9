"""The log contains what it must, and no secret."""

import contextlib
import time

import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS, md5_hash, scram_verifier
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.timing
def test_no_secret_is_ever_logged_or_shown(start, cluster):
    verifier = scram_verifier("app2")
    users = {"app": PASSWORDS["app"], "app2": verifier, "md5user": md5_hash("md5user")}
    pooler = start.unstarted()
    command, _ = pooler.command({"users": users, "max_size": 1, "max_wait_time": "2s"})
    pooler.launch(command, {"RUST_LOG": "trace", "POOLHOUSE_LOG": "trace"})
    for user in users:
        with pooler.connect(user) as connection:
            connection.execute("SELECT 'a private value'")
        with pytest.raises(w.ServerError):
            pooler.wire(user, "a mistyped passphrase")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        with pytest.raises(w.ServerError):
            waiter.query("SELECT 'a private value'")
        holder.query("COMMIT")
    cluster.terminate()
    time.sleep(0.2)
    shown = "".join(pooler.get(path)[1] for path in ("/metrics", "/api/pools", "/api/clients", "/api/servers"))
    pooler.stop()
    for text in (pooler.log(), shown):
        for secret in (*PASSWORDS.values(), "app%20secret", verifier, verifier.split("$")[2], md5_hash("md5user"),
                       "a mistyped passphrase", "a private value"):
            assert secret not in text, f"{secret!r} was shown"


def test_a_slow_wait_names_the_client_and_what_it_waited_for(start):
    pooler = start(max_size=1, max_wait_time="1s")
    with pooler.wire() as holder, pooler.wire() as waiter:
        holder.query("BEGIN")
        with pytest.raises(w.ServerError):
            waiter.query("SELECT 1")
        port = waiter.socket.getsockname()[1]
        holder.query("COMMIT")

    def told():
        lines = [line for line in pooler.log().splitlines() if f"127.0.0.1:{port}" in line and "bench" in line]
        return any("app" in line and "wait" in line.lower() for line in lines)

    eventually("the log tells", told)


def test_ordinary_traffic_is_not_logged_line_by_line(start):
    pooler = start(max_size=2)
    for _ in range(50):
        with pooler.wire() as client:
            client.query("SELECT 1")
    assert len(pooler.log().splitlines()) < 40, pooler.log()[:3000]


def test_a_name_can_forge_no_line_of_the_log_and_steer_no_terminal(start):
    forged = "x\n2026-01-01T00:00:00Z ERROR forged \x1b[31mline"
    pooler = start(databases={"*": {}})
    for user, database in [(forged, "bench"), ("app", forged)]:
        with contextlib.suppress(w.ServerError, w.Closed), pooler.wire(user, PASSWORDS["app"], database) as client:
            client.query("SELECT 1")
    eventually("both are logged", lambda: pooler.log().count("ERROR forged") >= 2)
    shown = pooler.log() + pooler.ctl("show", "pools").stdout
    assert "ERROR forged" in shown
    assert not [line for line in shown.splitlines() if line.startswith("2026-01-01")]
    assert "\x1b" not in shown
