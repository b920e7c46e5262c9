"""A process that serves PostgreSQL, Redis, and Redis over HTTP under one budget, and what the tests need of it."""

import os

import pytest
import redis as redis_py
from redis.backoff import NoBackoff
from redis.retry import Retry

from support import pooler
from support.postgres_cluster import PASSWORDS, free_port
from support.redis_fixtures import own_redis
from support.rest_fixtures import TOKEN, Rest, hashed

PASSWORD = PASSWORDS["app"]


class MixedPooler(pooler.Poolhouse):
    """Its port is PostgreSQL's; there are one for Redis and one for HTTP besides."""

    def __init__(self, directory, cluster, redis):
        super().__init__(directory, cluster)
        self.redis, self.redis_port, self.http_port = redis, free_port(), free_port()

    def command(self, settings):
        self.path = self.directory / "poolhouse.toml"
        self.rewrite(**settings)
        return [pooler.BINARY, "serve", "--config", str(self.path)], {}

    def rewrite(self, limit=6, workers=2, kinds=("postgres", "redis", "http"), size=None, rules="", second=False, more=""):
        """`size` and `rules` hold for all databases. `second`: there is another one of PostgreSQL, `other`; `more` is
        what else stands there.
        """
        rules = f"max_size = {size or limit}\n{rules}"
        more += f'[[database]]\nname = "other"\nurl = "{self.cluster.url("other")}"\n{rules}' if second else ""
        sections = {
            "postgres": f'[[listener]]\nprotocol = "postgres"\nlisten = "127.0.0.1:{self.port}"\n'
                        f'[[database]]\nname = "bench"\nurl = "{self.cluster.url()}"\n{rules}',
            "redis": f'[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:{self.redis_port}"\n'
                     f'[[database]]\nurl = "{self.redis.url()}"\n{rules}',
            "http": f'[[listener]]\nprotocol = "http"\nlisten = "127.0.0.1:{self.http_port}"\n'
                    f'[[token]]\nname = "web"\nhash = "{hashed(TOKEN)}"\n',
        }
        self.path.write_text(
            f'[admin]\nlisten = "127.0.0.1:{self.admin_port}"\n[serve]\nworkers = {workers}\n'
            f'[limits]\nmax_server_connections = {limit}\n[[user]]\nname = "app"\npassword = "{PASSWORD}"\n'
            + "".join(sections[kind] for kind in kinds) + more)
        self.path.chmod(0o600)

    def redis_client(self, **more):
        """redis-py: one connection, and nothing is tried twice."""
        return redis_py.Redis(port=self.redis_port, username="app", password=PASSWORD, protocol=2, retry=Retry(NoBackoff(), 0),
                              single_connection_client=True, socket_timeout=10, **more)

    def rest(self):
        return Rest(self.http_port)

    def total(self):
        return sum(pool["servers"]["total"] for pool in self.pools())


@pytest.fixture(scope="module")
def redis(workspace):
    made = own_redis(workspace, "redis", password="secret").start()
    yield made
    made.stop()


@pytest.fixture
def start_mixed(cluster, redis, workspace):
    redis.connect().flushall()
    made = []

    def start(**settings):
        directory = workspace / f"mixed-{os.urandom(3).hex()}"
        directory.mkdir()
        made.append(MixedPooler(directory, cluster, redis))
        return made[-1].start(**settings)

    yield start
    for one in made:
        one.stop()
