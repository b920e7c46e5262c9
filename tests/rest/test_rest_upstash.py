"""The package upstash-redis over HTTP beside redis-py at the same Redis: every result must be the same."""

import pytest
import redis as direct_client
from upstash_redis import Redis
from upstash_redis.errors import UpstashError

from support.redis_fixtures import pool, server
from support.rest_fixtures import TOKEN, rest

pytestmark = pytest.mark.poolhouse_only

# Calls that both packages have under one name and with one meaning -> a function that makes their results comparable.
SAME = [
    ("set", "a", "1"), ("get", "a"), ("get", "none"), ("incr", "a"), ("incrby", "a", 10), ("decr", "a"), ("append", "a", "0"),
    ("strlen", "a"), ("getrange", "a", 0, 1), ("setrange", "a", 1, "9"), ("mset", {"b": "2", "c": "3"}), ("exists", "a", "b", "none"),
    ("expire", "a", 100), ("ttl", "a"), ("persist", "a"), ("type", "a"), ("getdel", "c"), ("rename", "b", "d"), ("touch", "a", "d"),
    ("set", "u", "žluťoučký 🐎 \"\\\n"), ("get", "u"), ("unlink", "u"), ("setbit", "bits", 3, 1), ("getbit", "bits", 3), ("bitcount", "bits"),
    ("hset", "h", "f", "1"), ("hget", "h", "f"), ("hincrby", "h", "f", 5), ("hgetall", "h"), ("hkeys", "h"), ("hvals", "h"), ("hlen", "h"),
    ("hexists", "h", "f"), ("hdel", "h", "f", "x"), ("hgetall", "h"),
    ("rpush", "l", "a", "b", "c"), ("lpush", "l", "z"), ("lrange", "l", 0, -1), ("lindex", "l", 1), ("llen", "l"), ("lset", "l", 0, "y"),
    ("lrem", "l", 1, "b"), ("ltrim", "l", 0, 1), ("lpop", "l"), ("rpop", "l"), ("rpop", "l"),
    ("sadd", "s", "a", "b"), ("scard", "s"), ("sismember", "s", "a"), ("smembers", "s"), ("srem", "s", "a"), ("sadd", "t", "b", "c"),
    ("sinter", "s", "t"), ("sdiff", "t", "s"), ("sunion", "s", "t"),
    ("zadd", "z", {"a": 1, "b": 2.5}), ("zscore", "z", "b"), ("zrank", "z", "b"), ("zcard", "z"), ("zincrby", "z", 2, "a"), ("zrange", "z", 0, -1),
    ("zcount", "z", 0, 9), ("zrem", "z", "a"), ("pfadd", "p", "a", "b"), ("pfcount", "p"),
    ("geoadd", "g", (13.361389, 38.115556, "Palermo"), (15.087269, 37.502669, "Catania")), ("geodist", "g", "Palermo", "Catania", "KM"),
    ("xadd", "x", "1-1", {"f": "v"}), ("xlen", "x"), ("eval", "return {1, 'two', {3}}", [], []), ("evalsha", "0" * 40, [], []),
    ("script_load", "return 7"), ("script_exists", "0" * 40), ("dbsize",), ("keys", "x*"), ("echo", "hello"), ("ping",),
]


def arguments(name, given):
    """The arguments in redis-py's form."""
    match name:
        case "geoadd":
            return [given[0], [part for place in given[1:] for part in place]]
        case "geodist":
            return [*given[:-1], given[-1].lower()]
        case "eval" | "evalsha":
            return [given[0], 0]
        case "xadd":
            return [given[0], given[2], given[1]]
        case _:
            return given


def ask(client, name, given):
    """The result, or the error."""
    try:
        return getattr(client, name)(*given)
    except (UpstashError, direct_client.RedisError) as error:
        return ("error", str(error).removeprefix("NOSCRIPT ").split(", command was")[0])


def normal(value):
    """The value without the differences between the two packages."""
    match value:
        case ("error", text):
            return "error", text.removeprefix("NOSCRIPT ")
        case bool():
            return int(value)
        case set():
            return sorted(value)
        case list() if value and all(isinstance(one, str) for one in value):
            return sorted(value)
        case list():
            return [normal(one) for one in value]
        case "OK" | "PONG":
            return 1
        case _:
            return value


def test_every_result_is_that_of_a_direct_connection(rest, server):
    over_http = Redis(url=f"http://127.0.0.1:{rest().http}", token=TOKEN, rest_retries=0, allow_telemetry=False)
    directly = server.connect(db=1, decode_responses=True)
    directly.flushdb()
    for name, *given in SAME:
        ours, theirs = ask(over_http, name, given), ask(directly, name, arguments(name, given))
        assert normal(ours) == normal(theirs), (name, given)


def test_pipelines_and_transactions(rest):
    over_http = Redis(url=f"http://127.0.0.1:{rest().http}", token=TOKEN, rest_retries=0)
    pipeline = over_http.pipeline()
    pipeline.set("a", "1").incr("a").get("a")
    assert pipeline.exec() in (["OK", 2, "2"], [True, 2, "2"])
    transaction = over_http.multi()
    transaction.incr("a").incr("a")
    assert transaction.exec() == [3, 4]
