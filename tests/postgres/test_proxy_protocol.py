"""Clients behind a proxy that names them: the PROXY protocol, version 2."""

import os
import socket
import struct
import subprocess
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.postgres_cluster import PASSWORDS, free_port
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

HERE = {"proxy_protocol_from": ["127.0.0.0/8"]}


def header(client="10.1.2.3", port=45678, command=0x21):
    addresses = socket.inet_aton(client) + socket.inet_aton("127.0.0.1") + struct.pack("!HH", port, 6432)
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", command, 0x11, len(addresses)) + addresses


def proxied(pooler, head=None):
    client = pooler.open()
    client.send(header() if head is None else head)
    return client


@pytest.mark.quick
def test_the_address_in_the_header_is_the_clients(start):
    pooler = start(**HERE, log_connections=True)
    with proxied(pooler) as client:
        client.login("app", PASSWORDS["app"], "bench")
        assert client.query("SELECT 1") == [["1"]]
        assert "10.1.2.3:45678" in pooler.get("/api/clients")[1]
        eventually("the log names the client", lambda: "client=10.1.2.3:45678" in pooler.log())


def test_the_header_may_come_in_pieces_and_with_what_follows(start):
    pooler = start(**HERE)
    head, hello = header(), w.startup(user="app", database="bench")
    for cut in [1, 12, 16, 20, len(head)]:
        with pooler.open() as client:
            client.send(head[:cut])
            # The pieces are read apart.
            time.sleep(0.1)
            client.send(head[cut:] + hello)
            assert b"SCRAM-SHA-256" in client.expect(b"R")


# A proxy speaks for itself, or does not know for which client.
NAMELESS = {"local": header(command=0x20), "unspecified": b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0"}


@pytest.mark.parametrize("head", NAMELESS.values(), ids=NAMELESS)
def test_a_proxy_that_names_no_client_is_served(start, head):
    pooler = start(**HERE)
    with proxied(pooler, head) as client:
        client.login("app", PASSWORDS["app"], "bench")
        shown = pooler.get("/api/clients")[1]
        assert "0.0.0.0:" in shown and "10.1.2.3" not in shown


@pytest.mark.parametrize("head", NAMELESS.values(), ids=NAMELESS)
def test_a_client_that_its_proxy_does_not_name_has_no_rights_of_an_address(start, head):
    pooler = start.unstarted()
    (pooler.directory / "hba.conf").write_text("host all all 127.0.0.1/32 trust\nhost all all all scram-sha-256\n")
    pooler.start(**HERE, auth={"type": "hba", "hba_file": "hba.conf"})
    with proxied(pooler, head) as client:
        client.send(w.startup(user="app", database="bench"))
        assert b"SCRAM-SHA-256" in client.expect(b"R"), "the rule for the proxy's address is not for it"
    pooler.stop()
    open_to_this_machine = start(**HERE, users={})
    with proxied(open_to_this_machine, head) as client, pytest.raises(w.ServerError, match="may not connect"):
        client.login("app", None, "bench")


@pytest.mark.parametrize("head", [b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", w.startup(user="app", database="bench"), b"\r\n\r\n\0\r\nQUIT\n\x11",
                                  header()[:12] + b"\x21\x11\xff\xff"], ids=["version 1", "none", "other version", "too long"])
def test_anything_but_a_header_of_version_2_is_refused(start, head):
    pooler = start(**HERE)
    with proxied(pooler, head + bytes(20)) as client:
        assert client.closed_within(5)
    eventually("the log says so", lambda: "a header of the PROXY protocol was refused" in pooler.log())


def test_only_listed_senders_are_believed(start):
    pooler = start(proxy_protocol_from=["192.0.2.0/24"])
    with pooler.wire() as client:
        assert client.query("SELECT 1") == [["1"]]
    with proxied(pooler) as client:
        assert client.closed_within(5)


def test_a_header_that_never_comes_keeps_no_place(start):
    pooler = start(**HERE, hard_limit=1, soft_limit=1, newcomer_wait_time="off")
    with pooler.open() as silent, proxied(pooler) as client:
        client.login("app", PASSWORDS["app"], "bench")
        assert silent.closed_within(10)


def test_rules_of_an_hba_file_see_the_address_in_the_header(start):
    pooler = start.unstarted()
    (pooler.directory / "hba.conf").write_text("host all all 10.1.0.0/16 trust\nhost all all 127.0.0.1/32 reject\n")
    pooler.start(**HERE, auth={"type": "hba", "hba_file": "hba.conf"})
    with proxied(pooler) as client:
        client.login("app", "unused", "bench")
        assert client.query("SELECT 1") == [["1"]]
    with proxied(pooler, header("10.2.0.1")) as client:
        with pytest.raises(w.ServerError, match="no authentication method is found"):
            client.login("app", "unused", "bench")


def test_haproxy_names_its_clients(start, tmp_path, certificates):
    tls = {"tls_cert": certificates.server.certificate, "tls_key": certificates.server.key}
    pooler = start(**HERE, **tls)
    port = free_port()
    config = tmp_path / "haproxy.cfg"
    config.write_text(f"""
defaults
    mode tcp
    timeout connect 5s
    timeout client 30s
    timeout server 30s
listen pooler
    bind 127.0.0.1:{port}
    server one 127.0.0.1:{pooler.port} send-proxy-v2 check inter 200
""")
    haproxy = subprocess.Popen(["haproxy", "-f", str(config), "-db"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def connect(**more):
            return psycopg.connect(**{**pooler.target(), "port": port, "connect_timeout": 5, **more})

        def works():
            try:
                connect().close()
                return True
            except psycopg.OperationalError:
                return False

        eventually("HAProxy listens", works)
        for sslmode in ["disable", "require"]:
            with connect(sslmode=sslmode) as connection:
                with socket.socket(fileno=os.dup(connection.fileno())) as own:
                    local = "%s:%s" % own.getsockname()
                assert connection.execute("SELECT 1").fetchone() == (1,)
                assert local in pooler.get("/api/clients")[1]
        assert "PROXY protocol was refused" not in pooler.log()
    finally:
        haproxy.kill()
        haproxy.wait()
