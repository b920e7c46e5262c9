"""A login whose default role is set in the database: SET ROLE NONE by one client does not reach other clients."""

import uuid

import pytest

pytestmark = pytest.mark.poolhouse_only


def who(client):
    return client.execute("SELECT current_user").fetchone()[0]


@pytest.fixture
def role(cluster):
    name = f"role_{uuid.uuid4().hex[:8]}"
    with cluster.superuser() as connection:
        connection.execute(f"CREATE ROLE {name}")
        connection.execute(f"GRANT {name} TO app")
    return name


def begun_with(start, cluster, role, max_size=1, **settings):
    url = f"{cluster.url('bench')}?options=-c%20role%3D{role}"
    return start(databases={"bench": {"url": url}}, max_size=max_size, **settings)


@pytest.mark.parametrize("reset", ["auto", "always"])
@pytest.mark.parametrize("statement", [
    "SET ROLE NONE",
    "SELECT set_config('role', 'none', false)",
    "SET SESSION AUTHORIZATION app",
    "BEGIN; SET ROLE NONE; COMMIT",
])
def test_none_is_the_role_of_the_clients_that_set_it(start, cluster, role, statement, reset):
    pooler = begun_with(start, cluster, role, reset=reset)
    with pooler.connect() as client, pooler.connect() as other:
        assert (who(client), who(other)) == (role, role)
        client.execute(statement)
        for _ in range(2):
            assert (who(client), who(other)) == ("app", role)
        with pooler.connect() as new:
            assert who(new) == role
        client.execute("RESET ROLE")
        assert (who(client), who(other)) == (role, role)


def test_what_the_login_begins_with_is_not_taken_for_what_a_client_has_set(start, cluster, role):
    pooler = begun_with(start, cluster, role)
    with pooler.connect() as client:
        client.execute("SET work_mem = '1MB'")
        pooler.rewrite(databases={"bench": {}}, max_size=1)
        assert pooler.ctl("reload").returncode == 0
        assert who(client) == "app"
        assert client.execute("SHOW work_mem").fetchone() == ("1MB",)


@pytest.mark.parametrize("body", ["EXECUTE 'SET ROLE NONE'", "SET ROLE NONE", "PERFORM set_config('role', 'none', false)"])
def test_none_that_a_block_has_set_is_no_other_clients_role(start, cluster, role, body):
    pooler = begun_with(start, cluster, role, max_size=3)
    with pooler.connect() as client, pooler.connect() as other:
        client.execute(f"DO $$ BEGIN {body}; END $$")
        assert [(who(client), who(other)) for _ in range(4)] == [("app", role)] * 4
