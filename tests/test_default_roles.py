"""A login that begins with a role: who says SET ROLE NONE leaves that to no other client."""

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


def begun_with(start, cluster, role, **settings):
    url = f"{cluster.url('bench')}?options=-c%20role%3D{role}"
    return start(databases={"bench": {"url": url}}, max_size=1, **settings)


@pytest.mark.parametrize("reset", ["auto", "always"])
@pytest.mark.parametrize("statement", [
    "SET ROLE NONE",
    "SELECT set_config('role', 'none', false)",
    "SET SESSION AUTHORIZATION app",
    "BEGIN; SET ROLE NONE; COMMIT",
])
def test_none_is_the_role_of_those_who_said_so(start, cluster, role, statement, reset):
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
