"""Runs the handlers that docs/serverless.md shows."""

import json
import re
import urllib.parse

import pytest

from support import pooler
from support.postgres_cluster import PASSWORDS
from support.redis_fixtures import pool, server  # noqa: F401  (fixtures)
from support.rest_fixtures import TOKEN, rest  # noqa: F401  (a fixture)
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

PASSWORD = urllib.parse.quote(PASSWORDS["app"])


def handler(word):
    """The names that the Python example with this word defines."""
    text = (pooler.ROOT / "docs/serverless.md").read_text()
    (code,) = [block for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if word in block]
    names = {}
    exec(compile(code, "docs/serverless.md", "exec"), names)  # noqa: S102  (the page's own code)
    return names


def test_the_handler_for_postgresql_answers_and_keeps_its_connection(start, cluster, monkeypatch):
    with cluster.superuser("bench") as database:
        database.execute("CREATE TABLE IF NOT EXISTS items (id int, name text)")
        database.execute("TRUNCATE items")
        database.execute("INSERT INTO items VALUES (7, 'lamp')")
        database.execute("GRANT SELECT ON items TO app")
    made = start()
    monkeypatch.setenv("DATABASE_URL", f"postgres://app:{PASSWORD}@127.0.0.1:{made.port}/bench")
    names = handler("psycopg")
    assert [names["handler"]({"id": which}, None) for which in (7, 8, 7)] == ["lamp", None, "lamp"]
    kept = names["connection"]
    # Between two calls Poolhouse closes the connection, because it was idle for too long.
    (client,) = [client["id"] for client in json.loads(made.get("/api/clients")[1])["clients"] if client["user"] == "app"]
    assert made.ctl("kill", client).returncode == 0
    eventually("it has gone", lambda: made.metric("poolhouse_clients") == 0)
    assert names["handler"]({"id": 7}, None) == "lamp" and names["connection"] is not kept
    names["connection"].close()


def test_the_handler_for_redis_takes_its_address_from_the_environment(rest, monkeypatch):
    monkeypatch.setenv("UPSTASH_REDIS_REST_URL", f"http://127.0.0.1:{rest().http}")
    monkeypatch.setenv("UPSTASH_REDIS_REST_TOKEN", TOKEN)
    names = handler("upstash_redis")
    assert [names["handler"]({"page": "first"}, None) for _ in range(3)] == [1, 2, 3]
