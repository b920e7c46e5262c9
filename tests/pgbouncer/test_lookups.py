"""Users that an auth_query finds: who gets in, and from when on."""

import psycopg
import pytest

from support.auth_query import FUNCTION, LOOKUP_PASSWORD, LOOKUP_USER, lookup  # noqa: F401  (a fixture)
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

NO_SUCH_USER = "no such user|SASL authentication failed|password authentication failed"


@pytest.fixture
def role(cluster):
    """Creates a role with a password, or gives it another one."""
    def gone():
        with cluster.superuser() as db:
            db.execute("DROP ROLE IF EXISTS comer")

    def set_password(password):
        with cluster.superuser() as db:
            known = db.execute("SELECT 1 FROM pg_roles WHERE rolname = 'comer'").fetchone()
            db.execute(f"{'ALTER' if known else 'CREATE'} ROLE comer LOGIN PASSWORD '{password}'")

    gone()
    yield set_password
    eventually("its servers are gone", lambda: not cluster.backends("comer"))
    gone()


@pytest.fixture
def pooler(serve_ini, lookup):
    def serve(query=FUNCTION):
        return serve_ini(auth={LOOKUP_USER: LOOKUP_PASSWORD}, auth_user=LOOKUP_USER, auth_query=query,
                         auth_type="scram-sha-256")
    return serve


def who(pooler, user, password=None):
    with pooler.connect(user=user, **({"password": password} if password else {})) as client:
        return client.execute("SELECT current_user").fetchone()[0]


def test_a_changed_password_holds_at_once(pooler, role):
    role("one")
    pooler = pooler()
    try:
        assert who(pooler, "comer", "one") == "comer"
        role("two")
        assert who(pooler, "comer", "two") == "comer"
        with pytest.raises(psycopg.OperationalError, match="SASL authentication failed"):
            who(pooler, "comer", "one")
    finally:
        pooler.stop()


def test_a_new_user_gets_in_at_once(pooler, role):
    pooler = pooler()
    try:
        with pytest.raises(psycopg.OperationalError, match=NO_SUCH_USER):
            who(pooler, "comer", "one")
        role("one")
        assert who(pooler, "comer", "one") == "comer"
    finally:
        pooler.stop()


def test_a_row_of_nulls_is_no_user(pooler):
    pooler = pooler("SELECT uname, phash FROM find_user($1) RIGHT JOIN (SELECT) AS one ON true")
    assert who(pooler, "app2") == "app2"
    with pytest.raises(psycopg.OperationalError, match=NO_SUCH_USER):
        who(pooler, "nemo", "x")


def test_the_last_of_two_rows_counts(pooler):
    pooler = pooler("(SELECT $1 AS uname, 'other' AS phash) UNION ALL SELECT uname, phash FROM find_user($1)")
    assert who(pooler, "app2") == "app2"
