"""A Redis whose master changes: Poolhouse asks the sentinels and connects to the present master."""

import contextlib
import signal
import socket
import ssl
import threading

import pytest
import redis

from support.postgres_cluster import free_port
from support.redis_fixtures import own_redis, pool, server
from support.redis_sentinels import SENTINELS_ACT_WITHIN, Sentinels
from support.verified_redis_load import RedisLoad
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


class Behind:
    """What Poolhouse connects to."""

    def __init__(self, url, password=None):
        self.url, self.password = lambda: url, password


@pytest.fixture(scope="module")
def three(workspace):
    """A master, a replica and three sentinels, all with passwords."""
    with Sentinels(workspace, 3, password="red", sentinel_password="watch") as made:
        yield made


def write(client, value):
    try:
        return client.set("k", value)
    except redis.RedisError:
        return False


def test_clients_are_served_by_the_master(pool, three):
    poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"))
    client = poolhouse.connect()
    assert client.set("k", "through sentinels")
    assert three.server(three.master()).connect().get("k") == b"through sentinels"
    status, servers = poolhouse.get("/api/servers")
    assert status == 200 and f"127.0.0.1:{three.master()}" in str(servers)
    log = poolhouse.log()
    assert "mymaster by 127.0.0.1" in log and "watch" not in log


def test_a_failover_in_good_order_under_load(pool, three):
    poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"), max_size=8, max_wait_time="20s", unavailable_wait_time="20s")
    # Redis itself undoes what the old master took after its replica had become the master.
    with RedisLoad(poolhouse.port, clients=6, large=False, lossy=True, password="red") as load:
        for _ in range(2):
            three.fail_over()
            load.flows(30)
    load.check(three.server(three.master()))


def test_a_master_that_dies_is_left_for_the_new_one(pool, three):
    poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"), unavailable_wait_time=f"{SENTINELS_ACT_WITHIN}s")
    client = poolhouse.connect(socket_timeout=SENTINELS_ACT_WITHIN + 10)
    assert client.set("k", "before")
    dead = three.server(three.master())
    dead.stop()
    # The client waits, and the new master executes its command.
    assert client.set("k", "after")
    # The test may ask another sentinel than Poolhouse does.
    eventually("all sentinels know of it", lambda: three.master() != dead.port, SENTINELS_ACT_WITHIN)
    assert three.server(three.master()).connect().get("k") == b"after"
    # The old master comes back, and takes itself for the master at first. Sentinels make it a replica, which can take
    # them minutes on a busy machine: here the test does it.
    dead.start()
    assert client.get("k") == b"after"
    dead.connect().replicaof("127.0.0.1", three.master())
    eventually("it follows", lambda: dead.connect().info("replication")["role"] == "slave")
    assert client.get("k") == b"after"


def test_a_sentinel_that_does_not_answer_is_passed_over(pool, three):
    three.stop(0)
    try:
        poolhouse = pool(Behind(three.url(sentinel_password="watch"), "red"))
        assert poolhouse.connect().set("k", "v")
    finally:
        three.start(0)


@pytest.mark.parametrize("change, told", [
    (("/mymaster", "/nomaster"), "knows no master called `nomaster`"),
    (("sentinel_password=watch", "sentinel_password=wrong"), "WRONGPASS"),
    (("?sentinel_password=watch", ""), "NOAUTH"),
])
def test_what_is_wrong_with_the_url_is_told(pool, three, change, told):
    url = three.url(sentinel_password="watch").replace(*change)
    poolhouse = pool(Behind(url, "red"), unavailable_wait_time="1s")
    with pytest.raises(redis.RedisError):
        poolhouse.connect().ping()
    eventually("the log says why", lambda: told in poolhouse.log())
    assert "wrong" not in poolhouse.log()


def test_a_redis_is_no_sentinel_and_that_is_told(pool, server):
    poolhouse = pool(Behind(f"redis+sentinel://127.0.0.1:{server.port}/mymaster"), unavailable_wait_time="1s")
    with pytest.raises(redis.RedisError, match="unknown command"):
        poolhouse.connect().ping()


# -- faulty sentinels


class Oracle:
    """A fake sentinel that gives each client the answer it was told to give, in TLS if it has a certificate. `None`: it
    does not answer.
    """

    def __init__(self, *answers, certificate=None):
        self.answers, self.asked = list(answers), 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if certificate else None
        if certificate:
            self.context.load_cert_chain(certificate.certificate, certificate.key)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        if self.context:
            connection = self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        with contextlib.suppress(OSError), connection:
            while b"GET-MASTER-ADDR-BY-NAME" in connection.recv(1000):
                # The last answer is repeated for ever.
                answer = self.answers[min(self.asked, len(self.answers) - 1)]
                self.asked += 1
                if answer is not None:
                    connection.sendall(b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%d\r\n" % (len(str(answer)), answer))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def behind(*oracles, scheme="redis", more=""):
    return Behind(f"{scheme}+sentinel://" + ",".join(f"127.0.0.1:{oracle.port}" for oracle in oracles) + "/mymaster" + more)


def test_the_next_sentinel_is_asked_when_one_errs(pool, server, workspace):
    replica = own_redis(workspace, "replica").start()
    try:
        replica.connect().replicaof("127.0.0.1", server.port)
        for wrong in (replica.port, free_port(), None):
            with Oracle(wrong) as errs, Oracle(server.port) as right:
                # A silent sentinel costs half of connect_time once: from then on the sentinel that answered is asked
                # first.
                poolhouse = pool(behind(errs, right), max_wait_time="8s")
                assert poolhouse.connect().set("k", "v") and errs.asked == right.asked == 1
                pinned = [poolhouse.connect().pipeline() for _ in range(3)]
                for client in pinned:
                    client.watch("k")
                assert errs.asked == 1 and right.asked >= 3
                for client in pinned:
                    client.reset()
        # The sentinel reports its own address.
        with Oracle(1) as vain, Oracle(server.port) as right:
            vain.answers = [vain.port]
            assert pool(behind(vain, right)).connect().set("k", "v")
    finally:
        replica.stop()


def test_while_the_only_sentinel_errs_clients_wait(pool, server, workspace):
    replica = own_redis(workspace, "replica").start()
    try:
        replica.connect().replicaof("127.0.0.1", server.port)
        with Oracle(replica.port, free_port(), server.port) as oracle:
            poolhouse = pool(behind(oracle), unavailable_wait_time="20s")
            assert poolhouse.connect(socket_timeout=25).set("k", "v") and oracle.asked == 3
            assert "says it is `replica`" in poolhouse.log()
        with Oracle(replica.port) as oracle:
            poolhouse = pool(behind(oracle), unavailable_wait_time="1s")
            with pytest.raises(redis.ConnectionError, match="says it is `replica`"):
                poolhouse.connect().ping()
    finally:
        replica.stop()


def test_sentinel_and_master_in_tls(pool, workspace, certificates):
    pair = certificates.server
    secure = own_redis(workspace, "secure", **{"tls-cert-file": pair.certificate, "tls-key-file": pair.key, "tls-auth-clients": "no",
                                               "tls-ca-cert-file": certificates.authority.certificate})
    secure.settings["tls-port"], secure.settings["port"] = secure.port, 0
    secure.connect = lambda **more: redis.Redis(port=secure.port, ssl=True, ssl_ca_certs=str(certificates.authority.certificate), **more)
    secure.start()
    try:
        with Oracle(secure.port, certificate=pair) as oracle:
            trusted = f"?sslrootcert={certificates.authority.certificate}"
            assert pool(behind(oracle, scheme="rediss", more=trusted)).connect().set("k", "v")
            other_authority = f"?sslrootcert={certificates.other_authority.certificate}"
            with pytest.raises(redis.exceptions.BusyLoadingError, match="TLS"):
                pool(behind(oracle, scheme="rediss", more=other_authority), unavailable_wait_time="1s").connect().ping()
            assert oracle.asked == 1, "who is not trusted is asked nothing"
    finally:
        secure.stop()


def test_a_reload_may_name_another_master(pool, server, workspace):
    other = own_redis(workspace, "other").start()
    try:
        with Oracle(server.port, other.port) as oracle:
            text = f'[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n[[database]]\nurl = "redis+sentinel://127.0.0.1:{oracle.port}/NAME"\n'
            poolhouse = pool(file=text.replace("NAME", "one"))
            client = poolhouse.connect()
            assert client.set("k", "v") and server.connect().get("k") == b"v"
            poolhouse.rewrite(text.replace("NAME", "two"))
            poolhouse.signal(signal.SIGHUP)
            eventually("the other one is used", lambda: client.set("k", "w") and other.connect().get("k") == b"w")
    finally:
        other.stop()
