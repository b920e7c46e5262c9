"""A configuration without passwords, only with the database's verifiers: a client's own login opens its servers."""

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import scram_verifier
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def verifier_of(cluster, user):
    return cluster.query("SELECT rolpassword FROM pg_authid WHERE rolname = %s", user)[0][0]


def without_password(cluster):
    """A database whose url has no user."""
    return {"bench": {"url": cluster.url("bench", user=None)}}


def test_the_servers_verifier_is_all_that_must_be_known(start, cluster):
    users = {user: verifier_of(cluster, user) for user in ("app", "app2")}
    pooler = start(users=users, databases=without_password(cluster))
    for user in users:
        with pooler.connect(user) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (user,)


def test_servers_are_kept_ready_after_the_first_login(start, cluster):
    pooler = start(users={"app": verifier_of(cluster, "app")}, databases=without_password(cluster), min_size=3)
    assert not cluster.backends()
    pooler.connect().close()
    eventually("three servers", lambda: len(cluster.backends()) == 3)


def test_a_server_is_replaced_while_no_client_logs_in(start, cluster):
    pooler = start(users={"app": verifier_of(cluster, "app")}, databases=without_password(cluster))
    with pooler.connect() as connection:
        before = connection.execute("SELECT pg_backend_pid()").fetchone()
        cluster.terminate()
        eventually("it works again", lambda: _pid(connection) not in (None, before))


def _pid(connection):
    try:
        return connection.execute("SELECT pg_backend_pid()").fetchone()
    except psycopg.OperationalError:
        return None


def test_a_wrong_password_opens_nothing(start, cluster):
    pooler = start(users={"app": verifier_of(cluster, "app")}, databases=without_password(cluster))
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        pooler.connect(password="wrong")
    assert not cluster.backends()


def test_another_verifier_of_the_same_password_is_an_error_that_says_what_to_do(start, cluster):
    pooler = start(users={"app": scram_verifier("app")}, databases=without_password(cluster))
    with pooler.open() as client, pytest.raises(w.ServerError) as raised:
        client.login("app", "app secret", "bench")
    assert "another salt or number of iterations" in raised.value.text and "pg_authid" in raised.value.text


def test_an_md5_hash_opens_a_server_that_asks_for_md5(start, cluster):
    hashed = verifier_of(cluster, "md5user")
    assert hashed.startswith("md5")
    pooler = start(users={"md5user": hashed}, databases=without_password(cluster))
    with pooler.connect("md5user") as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("md5user",)


def test_keys_and_verifiers_are_not_logged(start, cluster):
    verifier = verifier_of(cluster, "app")
    pooler = start(users={"app": verifier}, databases=without_password(cluster))
    pooler.connect().close()
    with pytest.raises(psycopg.OperationalError):
        pooler.connect(password="wrong")
    assert not any(part in pooler.log() for part in verifier.split("$")[-1].split(":"))
