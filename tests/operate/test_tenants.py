"""Limits of clients per database and per user: a flood of one tenant takes no place of another tenant and evicts none
of its clients.
"""

import pymongo
import pytest
import redis

from support import postgres_wire as w
from support.mongodb_server import JavaServer, MongoPoolhouse, directory
from support.postgres_cluster import PASSWORDS
from support.redis_fixtures import own_redis, pool, server
from support.rest_fixtures import Rest, rest
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

FULL = {"soft_limit": 2, "hard_limit": 2}


def tenant(pooler, name, of, **labels):
    labels |= {"name": of}
    return sum(value for (sample, has), value in pooler.metrics().items()
               if sample == f"poolhouse_tenant_{name}" and labels.items() <= dict(has).items())


def test_a_flood_of_one_database_evicts_none_of_another(start):
    pooler = start(databases={"bench": {"soft_limit": 2, "hard_limit": 4}, "other": {"soft_limit": 3, "hard_limit": 3}},
                   evict_min_idle="100ms", newcomer_wait_time="15s", max_size=2)
    others = [pooler.wire(database="other", timeout=20) for _ in range(3)]
    flood = [pooler.wire(timeout=20) for _ in range(12)]
    eventually("there are no more than the soft limit", lambda: tenant(pooler, "clients", "bench", state="inside") <= 2)
    assert tenant(pooler, "evictions_total", "bench") >= 8
    assert tenant(pooler, "rejections_total", "bench") == 0 and tenant(pooler, "evictions_total", "other") == 0
    assert all(client.query("SELECT 1") == [["1"]] for client in others)
    for client in [*others, *flood]:
        client.close()


def test_a_client_beyond_the_limit_of_a_database_or_a_user_is_told_so_and_a_reload_makes_room(start):
    settings = {"databases": {"bench": FULL, "other": {}}, "newcomer_wait_time": "100ms", "max_size": 2}
    pooler = start(**settings)
    clients = [pooler.wire() for _ in range(2)]
    with pytest.raises(w.ServerError, match="too many clients of database .bench. .hard_limit = 2.") as raised:
        pooler.wire()
    assert raised.value.sqlstate == "53300" and raised.value.severity == "FATAL"
    assert tenant(pooler, "rejections_total", "bench") == 1
    clients.append(pooler.wire(database="other"))
    app = {"password": PASSWORDS["app"], "soft_limit": 4, "hard_limit": 4}
    pooler.rewrite(**{**settings, "databases": {"bench": {}, "other": {}}, "users": {"app": app}})
    assert pooler.ctl("reload").returncode == 0
    clients.append(pooler.wire())
    with pytest.raises(w.ServerError, match="too many clients of user .app. .hard_limit = 4."):
        pooler.wire()
    assert all(client.query("SELECT 1") == [["1"]] for client in clients)
    clients.pop().close()
    eventually("there is a place again", lambda: tenant(pooler, "clients", "app", state="inside") == 3)
    clients.append(pooler.wire())
    for client in clients:
        client.close()


@pytest.fixture
def with_users(workspace):
    """A Redis with two users."""
    made = own_redis(workspace, "tenants").start()
    for name in ("alice", "bob"):
        made.connect().execute_command("ACL", "SETUSER", name, "on", f">{name}", "~*", "&*", "+@all")
    yield made
    made.stop()


def test_redis_a_flood_of_one_user_evicts_none_of_another(pool, with_users):
    def file(soft, hard):
        return f"""[[listener]]
protocol = "redis"
listen = "127.0.0.1:PORT"
evict_min_idle = "100ms"
newcomer_wait_time = "300ms"
[[database]]
url = "redis://127.0.0.1:{with_users.port}"
[[user]]
name = "alice"
password = "alice"
soft_limit = {soft}
hard_limit = {hard}
[[user]]
name = "bob"
password = "bob"
"""

    poolhouse = pool(behind=with_users, file=file(2, 2))
    bobs = [poolhouse.connect(username="bob", password="bob") for _ in range(3)]
    assert all(bob.ping() for bob in bobs)
    alices = [poolhouse.connect(username="alice", password="alice") for _ in range(2)]
    assert all(alice.ping() for alice in alices)
    for protocol in (2, 3):
        with pytest.raises(redis.RedisError, match="max number of clients reached for user .alice."):
            poolhouse.connect(username="alice", password="alice", protocol=protocol).ping()
    poolhouse.rewrite(file(1, 2).replace("300ms", "15s"))
    assert poolhouse.post("/api/reload")[0] == 200
    more = []
    for _ in range(4):
        more.append(poolhouse.connect(username="alice", password="alice"))
        assert more[-1].ping()
    assert tenant(poolhouse, "rejections_total", "alice") == 2
    eventually("there are no more than the soft limit", lambda: tenant(poolhouse, "evictions_total", "alice") >= 4)
    assert all(bob.ping() for bob in bobs)
    for client in [*bobs, *alices, *more]:
        client.close()


def test_a_redis_client_that_logs_in_as_another_user_takes_a_place_of_that_user_or_none(pool, with_users):
    def user(name, most):
        return f'[[user]]\nname = "{name}"\npassword = "{name}"\nsoft_limit = {most}\nhard_limit = {most}\n'

    poolhouse = pool(behind=with_users, file=f"""[[listener]]
protocol = "redis"
listen = "127.0.0.1:PORT"
newcomer_wait_time = "100ms"
[[database]]
url = "redis://127.0.0.1:{with_users.port}"
{user("alice", 2)}{user("bob", 1)}""")

    def inside():
        return [tenant(poolhouse, "clients", name, state="inside") for name in ("alice", "bob")]

    ways = [(2, ("AUTH", "bob", "bob")), (2, ("HELLO", "2", "AUTH", "bob", "bob")), (3, ("HELLO", "3", "AUTH", "bob", "bob"))]
    for protocol, hello in ways:
        first, second = (poolhouse.connect(username="alice", password="alice", protocol=protocol) for _ in range(2))
        assert first.ping() and second.ping() and inside() == [2, 0]
        assert first.execute_command(*hello) and first.execute_command("ACL", "WHOAMI") in ("bob", b"bob")
        assert inside() == [1, 1]
        with pytest.raises(redis.RedisError, match="max number of clients reached for user .bob. .hard_limit"):
            second.execute_command(*hello)
        eventually("it is gone", lambda: inside() == [0, 1])
        # A wrong password evicts no client: its own client is closed.
        with pytest.raises(redis.AuthenticationError):
            first.execute_command("AUTH", "alice", "wrong")
        eventually("it is gone", lambda: inside() == [0, 0])
        first.close()
        second.close()
    back = poolhouse.connect(username="bob", password="bob")
    assert back.ping() and back.execute_command("AUTH", "alice", "alice") and inside() == [1, 0]
    with poolhouse.connect(username="bob", password="bob") as another:
        assert another.ping() and inside() == [1, 1]
    back.close()
    assert tenant(poolhouse, "rejections_total", "bob") == 3


def test_over_http_a_request_is_told_to_come_later(rest):
    poolhouse = rest(listener='newcomer_wait_time = "100ms"\n', more="soft_limit = 2\nhard_limit = 2\n")
    here = [Rest(poolhouse.http) for _ in range(2)]
    assert [one.command("PING") for one in here] == ["PONG"] * 2
    status, answer, fields = Rest(poolhouse.http).ask("GET", "/ping")
    assert status == 503 and b"max number of clients reached for this database" in answer and fields["Retry-After"]
    here.pop().close()
    eventually("there is a place again", lambda: Rest(poolhouse.http).ask("GET", "/ping")[0] == 200)


@pytest.fixture
def mongodb(workspace):
    """Starts a Poolhouse in front of a MongoDB with this file."""
    JavaServer.prepare()
    made = JavaServer(directory(workspace, "mongodb")).start()
    poolhouse = MongoPoolhouse(directory(workspace, "mongo-pool"), made)
    yield lambda text: poolhouse.start_with(text.replace("{url}", made.url()))
    poolhouse.stop()
    made.stop()


def test_mongodb_one_user_with_too_many_is_refused_and_another_is_not(mongodb):
    poolhouse = mongodb("""[[listener]]
listen = "127.0.0.1:PORT"
newcomer_wait_time = "100ms"
[[database]]
url = "{url}"
[[user]]
name = "alice"
password = "alice"
soft_limit = 1
hard_limit = 1
[[user]]
name = "bob"
password = "bob"
""")

    def asks(client):
        # MongoDB does not know this user here, but Poolhouse has let it in.
        with pytest.raises(pymongo.errors.OperationFailure) as told:
            client.app.things.insert_one({"_id": 1})
        return told.value

    login = {"authSource": "admin", "retryWrites": False, "maxPoolSize": 1}
    with poolhouse.connect(username="alice", password="alice", **login) as first, \
            poolhouse.connect(username="bob", password="bob", **login) as other, \
            poolhouse.connect(username="alice", password="alice", **login) as second:
        assert "hard_limit" not in str(asks(first)) and "hard_limit" not in str(asks(other))
        told = asks(second)
        assert "too many connections of user \"alice\": the hard_limit of its [[user]] is 1" in str(told), told
        assert told.code == 365
        assert "hard_limit" not in str(asks(first)) and "hard_limit" not in str(asks(other))
    assert tenant(poolhouse, "rejections_total", "alice") >= 1
