"""Fixtures of the Redis tests. A test file imports those that it uses, so that their short names mean nothing
elsewhere."""

import os
import socket

import pytest
import redis

from support.redis_server import RedisPoolhouse, RedisServer

PASSWORD = "red is/secret"
LISTEN = '[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n'


def own_redis(workspace, name, **settings):
    """A separate Redis, not started yet."""
    directory = workspace / f"{name}-{os.urandom(4).hex()}"
    directory.mkdir()
    return RedisServer(directory, **settings)


@pytest.fixture(scope="module")
def server(workspace):
    """A Redis for all tests of a file."""
    made = own_redis(workspace, "redis").start()
    yield made
    made.stop()


@pytest.fixture
def pool(server, workspace, request):
    """Starts a Poolhouse in front of Redis."""
    server.connect().flushall()
    started = []

    def start(behind=server, file=None, **settings):
        directory = workspace / f"redis-{request.node.name[:30].replace('/', '_')}-{os.urandom(4).hex()}"
        directory.mkdir()
        started.append(RedisPoolhouse(directory, behind))
        return started[-1].start_with(file) if file else started[-1].start(**settings)

    yield start
    for made in started:
        made.stop()


@pytest.fixture
def guarded(workspace):
    """A Redis with a password."""
    directory = workspace / f"guarded-{os.urandom(4).hex()}"
    directory.mkdir()
    made = RedisServer(directory, PASSWORD)
    made.url = lambda: f"redis://:red%20is%2Fsecret@127.0.0.1:{made.port}"
    yield made.start()
    made.stop()


@pytest.fixture
def secure(workspace, certificates):
    """A Redis that accepts TLS only."""
    pair = certificates.server
    made = own_redis(workspace, "secure", **{
        "tls-port": 0, "tls-cert-file": pair.certificate, "tls-key-file": pair.key, "tls-ca-cert-file": certificates.authority.certificate,
        "tls-auth-clients": "no"})
    made.settings["tls-port"], made.settings["port"] = made.port, 0
    made.connect = lambda **more: redis.Redis(port=made.port, ssl=True, ssl_ca_certs=str(certificates.authority.certificate), **more)
    yield made.start()
    made.stop()


def talk(port, data, until=None, seconds=5):
    """Sends `data` and returns what a raw connection receives, until that ends with `until` or nothing more comes."""
    with socket.create_connection(("127.0.0.1", port), seconds) as connection:
        connection.sendall(data)
        heard = b""
        connection.settimeout(seconds)
        while until is None or not heard.endswith(until):
            part = connection.recv(65536)
            if not part:
                break
            heard += part
        return heard


@pytest.fixture
def with_users(workspace):
    """A Redis with ACL users: alice may do everything, bob may only read."""
    made = own_redis(workspace, "users").start()
    direct = made.connect()
    direct.execute_command("ACL", "SETUSER", "alice", "on", ">wonder", "~*", "&*", "+@all")
    direct.execute_command("ACL", "SETUSER", "bob", "on", ">build", "~*", "+@read", "+hello", "+ping", "+select", "+acl|whoami")
    yield made
    made.stop()


def users(**passwords):
    return "".join(f'[[user]]\nname = "{name}"\npassword = "{password}"\n' for name, password in passwords.items())
