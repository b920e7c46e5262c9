"""Several tokens on one HTTP connection: each request uses the user and the database of its own token."""

import pytest

from support.http2_client import Raw
from support.redis_fixtures import pool, server, with_users
from support.rest_fixtures import Rest, ask, hashed, rest
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

ALICE, BOB, ONE = "a" * 40, "b" * 40, "1" * 40


def token(name, value, **more):
    return f'[[token]]\nname = "{name}"\nhash = "{hashed(value)}"\n' + "".join(f"{key} = {value!r}\n".replace("'", '"') for key, value in more.items())


@pytest.fixture
def of_users(rest, with_users):
    """Poolhouse with a token of alice and one of bob, who may have one client."""
    users = "".join(f'[[user]]\nname = "{name}"\npassword = "{password}"\nsoft_limit = {most}\nhard_limit = {most}\n'
                    for name, password, most in (("alice", "wonder", 5), ("bob", "build", 1)))
    tokens = token("alice", ALICE, user="alice") + token("bob", BOB, user="bob")
    return rest(behind=with_users, more=users, tokens=tokens, listener='newcomer_wait_time = "100ms"\n')


def inside(poolhouse):
    return {pool["user"]: pool["clients"] for pool in poolhouse.pools() if pool["clients"]}


def asked(client, value, target="/ping"):
    client.token = value
    return client.ask("GET", target)


def test_a_request_counts_for_the_user_of_its_own_token(of_users):
    kept = Rest(of_users.http)
    for value, name in ((ALICE, "alice"), (BOB, "bob"), (ALICE, "alice"), (BOB, "bob")):
        assert asked(kept, value)[0] == 200 and inside(of_users) == {name: 1}, name
    # There is no place for another client of bob, so alice's connection ends.
    other = Rest(of_users.http)
    assert asked(other, ALICE)[0] == 200 and inside(of_users) == {"alice": 1, "bob": 1}
    status, answer, fields = asked(other, BOB)
    assert status == 503 and b"bob" in answer and fields["Connection"] == "close", (answer, fields)
    eventually("it is gone", lambda: inside(of_users) == {"bob": 1})
    assert asked(kept, ALICE)[0] == 200 and inside(of_users) == {"alice": 1}


def test_over_http_2_a_request_counts_for_the_user_of_its_own_token(of_users):
    async def talk(client):
        for value, name in ((ALICE, "alice"), (BOB, "bob"), (ALICE, "alice")):
            answer = await client.get("/acl/whoami", headers={"Authorization": f"Bearer {value}"})
            assert answer.json() == {"result": name} and inside(of_users) == {name: 1}, answer.text

    ask(of_users, talk)


def test_a_stream_counts_for_its_user_whatever_comes_over_its_connection(of_users):
    raw = Raw(of_users.http)
    stream = raw.get("/subscribe/a", token=ALICE)
    raw.hear(stream, "subscribe,a")
    for target in ("/ping", "/subscribe/a"):
        refused = raw.get(target, token=BOB)
        raw.hear(refused, "use another connection")
        assert raw.statuses[refused] == 409
    assert inside(of_users) == {"alice": 1}
    raw.hear(raw.get("/publish/a/x", token=ALICE), '{"result":1}')
    raw.hear(stream, "message,a,x")
    raw.give_up(stream)
    raw.hear(raw.get("/ping", token=BOB), "PONG")
    assert inside(of_users) == {"bob": 1}


def test_a_kept_connection_hears_that_the_database_of_its_next_token_is_drained(rest):
    tokens = token("zero", ALICE, database=0) + token("one", ONE, database=1)
    poolhouse = rest(tokens=tokens, more="")
    kept, other = Rest(poolhouse.http), Rest(poolhouse.http)
    assert asked(kept, ALICE)[0] == 200 and asked(other, ONE)[0] == 200 and asked(other, ALICE)[0] == 200
    name = next(pool["database"] for pool in poolhouse.pools() if pool["database"].startswith("1"))
    assert poolhouse.post(f"/api/drain?database={name}")[0] == 200
    for client in (Rest(poolhouse.http), kept, other):
        status, answer, fields = asked(client, ONE)
        assert (status, fields["Connection"]) == (503, "close") and b"drain" in answer, (status, answer)
    assert asked(Rest(poolhouse.http), ALICE)[0] == 200
