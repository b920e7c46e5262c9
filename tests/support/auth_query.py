"""A database user that may look up the stored passwords of other users, and databases that Poolhouse configures with
it."""

import pytest

LOOKUP_USER, LOOKUP_PASSWORD = "lookup", "lookup secret"
FUNCTION = "SELECT uname, phash FROM find_user($1)"


@pytest.fixture
def lookup(cluster):
    """A user that may call a function that returns stored passwords, and nothing else. It stays until the end of the
    run."""
    with cluster.superuser("bench") as db:
        if not db.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [LOOKUP_USER]).fetchone():
            db.execute(f"CREATE ROLE {LOOKUP_USER} LOGIN PASSWORD '{LOOKUP_PASSWORD}'")
        db.execute("CREATE OR REPLACE FUNCTION find_user(who text, OUT uname text, OUT phash text) RETURNS SETOF record "
                   "LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS "
                   "$$ SELECT usename::text, passwd::text FROM pg_shadow WHERE usename = who $$")
        db.execute("REVOKE EXECUTE ON FUNCTION find_user(text) FROM PUBLIC")
        db.execute(f"GRANT EXECUTE ON FUNCTION find_user(text) TO {LOOKUP_USER}")


def looked_up(cluster, user=None, **more):
    """Databases with `auth_query`. Their servers log in as the client, unless `user` is given."""
    keys = {"auth_user": LOOKUP_USER, "auth_password": LOOKUP_PASSWORD, "auth_query": FUNCTION, **more}
    return {"bench": {"url": cluster.url("bench", user=user), **keys}}
