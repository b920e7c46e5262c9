"""The identity and login of a Redis client: ACL users, a configuration file, TLS on both sides, Unix sockets."""

import os
import signal
import subprocess

import pytest
import redis

from support.redis_fixtures import LISTEN, own_redis, pool, secure, server, talk, users, with_users
from support.silent_clients import silent_clients
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

@pytest.mark.quick
def test_each_user_logs_in_to_redis_as_itself(pool, with_users):
    file = f'{LISTEN}[[database]]\nurl = "redis://127.0.0.1:{with_users.port}"\n{users(alice="wonder", bob="build")}'
    poolhouse = pool(behind=with_users, file=file)
    alice = poolhouse.connect(username="alice", password="wonder")
    bob = poolhouse.connect(username="bob", password="build", protocol=3)
    for _ in range(3):
        assert alice.set("k", "v") and alice.execute_command("ACL", "WHOAMI") == b"alice"
        assert bob.get("k") == b"v" and bob.execute_command("ACL", "WHOAMI") == b"bob"
        with pytest.raises(redis.exceptions.NoPermissionError):
            bob.set("k", "w")
    # A client may log in as another user.
    assert bob.execute_command("AUTH", "alice", "wonder") in (True, b"OK") and bob.set("k", "x")
    with pytest.raises(redis.AuthenticationError):
        poolhouse.connect(username="bob", password="wonder").get("k")
    with pytest.raises(redis.AuthenticationError):
        poolhouse.connect(username="carol", password="x").get("k")
    with pytest.raises(redis.AuthenticationError):
        poolhouse.connect(password=None).get("k")
    assert {pool["user"] for pool in poolhouse.pools()} == {"alice", "bob"}
    assert "wonder" not in poolhouse.log() and "build" not in poolhouse.log()


def test_a_password_of_a_user_that_redis_does_not_take_is_told_with_its_place(pool, with_users):
    poolhouse = pool(behind=with_users, file=f'{LISTEN}[[database]]\nurl = "redis://127.0.0.1:{with_users.port}"\n{users(alice="other")}')
    with pytest.raises(redis.AuthenticationError, match=r"or, where that has none, of the \[\[user\]\]"):
        poolhouse.connect(username="alice", password="other").get("k")


def test_users_may_share_the_login_of_the_url(pool, with_users):
    file = f'{LISTEN}[[database]]\nurl = "redis://alice:wonder@127.0.0.1:{with_users.port}"\n{users(one="1", two="2")}'
    poolhouse = pool(behind=with_users, file=file)
    for name, password in (("one", "1"), ("two", "2")):
        assert poolhouse.connect(username=name, password=password).execute_command("ACL", "WHOAMI") == b"alice"
    assert {pool["user"] for pool in poolhouse.pools()} == {"alice"}


def test_a_file_is_read_again(pool, server):
    base = f'{LISTEN}[[database]]\nurl = "{server.url()}"\n'
    poolhouse = pool(file=base + "max_size = 3\n")
    client = poolhouse.connect()
    client.set("k", "v")
    assert poolhouse.metric("poolhouse_servers_max") == 3
    poolhouse.rewrite(base + "max_size = 5\n")
    poolhouse.signal(signal.SIGHUP)
    eventually("the new size holds", lambda: poolhouse.metric("poolhouse_servers_max") == 5)
    poolhouse.rewrite('[[database]]\nname = "x"\nurl = "postgres://a@127.0.0.1/x"\n')
    poolhouse.signal(signal.SIGHUP)
    eventually("that is refused", lambda: "another kind of database" in poolhouse.log())
    assert client.get("k") == b"v"


def test_both_sides_speak_tls(pool, secure, certificates):
    pair, authority = certificates.server, certificates.authority.certificate
    file = (f'{LISTEN}tls = "require"\ntls_cert = "{pair.certificate}"\ntls_key = "{pair.key}"\n'
            f'[[database]]\nurl = "rediss://127.0.0.1:{secure.port}?sslrootcert={authority}"\n')
    poolhouse = pool(behind=secure, file=file)
    for protocol in (2, 3):
        client = poolhouse.connect(ssl=True, ssl_ca_certs=str(authority), protocol=protocol)
        assert client.set("k", b"x" * 300_000) and client.get("k") == b"x" * 300_000
        with client.pipeline() as transaction:
            assert transaction.set("t", protocol).get("t").execute() == [True, b"%d" % protocol]
        listening = client.pubsub()
        listening.subscribe("news")
        assert listening.get_message(timeout=5)["type"] == "subscribe"
    assert b"clients have to use TLS here" in talk(poolhouse.port, b"PING\r\n", until=b"\r\n")
    printed = subprocess.run(["redis-cli", "-p", str(poolhouse.port), "--tls", "--cacert", str(authority), "GET", "t"], capture_output=True, text=True)
    assert printed.stdout == "3\n"
    phases = {dict(labels)["phase"] for (name, labels), value in poolhouse.metrics().items()
              if name == "poolhouse_connect_phase_seconds_count" and value}
    assert "tls" in phases


def test_the_upstream_may_want_a_certificate(pool, workspace, certificates):
    pair, own, authority = certificates.server, certificates.client_app, certificates.authority.certificate
    made = own_redis(workspace, "mutual", **{
        "tls-cert-file": pair.certificate, "tls-key-file": pair.key, "tls-ca-cert-file": authority, "tls-auth-clients": "yes"})
    made.settings["tls-port"], made.settings["port"] = made.port, 0
    made.connect = lambda **more: redis.Redis(port=made.port, ssl=True, ssl_ca_certs=str(authority), ssl_certfile=str(own.certificate),
                                              ssl_keyfile=str(own.key), **more)
    made.start()
    try:
        shown = f"&sslcert={own.certificate}&sslkey={own.key}"
        for more, works in ((shown, True), ("", False)):
            file = f'{LISTEN}[pool]\nunavailable_wait_time = "1s"\n[[database]]\nurl = "rediss://127.0.0.1:{made.port}?sslrootcert={authority}{more}"\n'
            client = pool(behind=made, file=file).connect()
            if works:
                assert client.ping()
            else:
                with pytest.raises(redis.RedisError):
                    client.ping()
    finally:
        made.stop()


def test_tls_may_be_left_to_the_client(pool, server, certificates):
    pair, authority = certificates.server, certificates.authority.certificate
    file = (f'{LISTEN}tls = "allow"\ntls_cert = "{pair.certificate}"\ntls_key = "{pair.key}"\n[[database]]\nurl = "{server.url()}"\n')
    poolhouse = pool(file=file)
    assert poolhouse.connect().ping()
    assert poolhouse.connect(ssl=True, ssl_ca_certs=str(authority)).ping()


@pytest.mark.parametrize(("url", "part"), [
    ("rediss://127.0.0.1:{port}?sslrootcert={other}", "TLS with"),
    ("rediss://127.0.0.1:{port}", "TLS with"),
    ("redis://127.0.0.1:{port}", "the connection"),
])
def test_an_upstream_with_a_wrong_certificate_gets_nothing(pool, secure, certificates, url, part):
    url = url.format(port=secure.port, other=certificates.other_authority.certificate)
    poolhouse = pool(behind=secure, file=f'{LISTEN}[pool]\nunavailable_wait_time = "1s"\n[[database]]\nurl = "{url}"\n')
    with pytest.raises(redis.RedisError):
        poolhouse.connect().ping()
    eventually("the log says why", lambda: part in poolhouse.log())


def test_unix_sockets_on_both_sides(pool, workspace):
    folder = workspace / f"sockets-{os.urandom(4).hex()}"
    folder.mkdir()
    made = own_redis(workspace, "local", unixsocket=folder / "redis.sock").start()
    try:
        file = (f'{LISTEN}[[listener]]\nlisten = "{folder}/pool.sock"\n'
                f'[[database]]\nurl = "redis://{str(folder / "redis.sock").replace("/", "%2F")}"\n')
        poolhouse = pool(behind=made, file=file)
        client = redis.Redis(unix_socket_path=str(folder / "pool.sock"))
        assert client.set("k", "v") and made.connect().get("k") == b"v"
        assert poolhouse.pools()[0]["address"] == str(folder / "redis.sock")
    finally:
        made.stop()


def test_where_no_user_has_a_password_logins_are_answered_as_by_redis(pool, server):
    poolhouse = pool()
    for words in (("AUTH", "default", "anything"), ("AUTH", "nobody", "anything"), ("AUTH", "anything"), ("AUTH", "a", "b", "c"),
                  ("HELLO", "2", "AUTH", "nobody", "x")):
        said = []
        for port in (server.port, poolhouse.port):
            said.append(talk(port, " ".join(words).encode() + b"\r\nPING\r\n", until=b"+PONG\r\n"))
        assert said[0] == said[1], words


def test_silent_clients_in_all_places_lock_no_client_out(pool, with_users):
    listen = f'{LISTEN}soft_limit = 10\nhard_limit = 10\nlogin_time = "60s"\n'
    poolhouse = pool(behind=with_users, file=f'{listen}[[database]]\nurl = "redis://127.0.0.1:{with_users.port}"\n{users(alice="wonder")}')
    with silent_clients(poolhouse, 10):
        eventually("all places are taken", lambda: poolhouse.metric("poolhouse_clients", state="login") >= 10)
        clients = [poolhouse.connect(username="alice", password="wonder") for _ in range(9)]
        assert all(client.ping() for client in clients)
        assert poolhouse.metric("poolhouse_client_evictions_total", reason="not_logged_in") == 9
        for client in clients:
            client.close()
