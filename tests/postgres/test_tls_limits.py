"""Versions and ciphers of TLS, and certificates that expire."""

import os
import re
import ssl

import pytest

from support import postgres_wire as w
from support.certificates import KEY, openssl
from support.pooler import BINARY
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def keys(pair):
    return {"tls_cert": pair.certificate, "tls_key": pair.key}


def agreed(pooler, **limits):
    """The version and the cipher of a connection, or the error."""
    context = ssl._create_unverified_context()
    for name, value in limits.items():
        setattr(context, name, value) if name != "ciphers" else context.set_ciphers(value)
    with pooler.open() as client:
        client.send(w.request(w.SSL_REQUEST))
        assert client.receive(1) == b"S"
        try:
            tls = context.wrap_socket(client.socket)
        except (ssl.SSLError, ConnectionResetError) as error:
            return type(error)
        with tls:
            return tls.version(), tls.cipher()[0]


def test_a_version_of_which_no_cipher_is_listed_keeps_its_own(start, certificates):
    pooler = start(**keys(certificates.server), tls_ciphers=["ECDHE-ECDSA-AES256-GCM-SHA384"])
    assert agreed(pooler)[0] == "TLSv1.3"
    assert agreed(pooler, maximum_version=ssl.TLSVersion.TLSv1_2) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")


def test_a_listener_speaks_the_versions_and_ciphers_that_it_lists(start, certificates):
    pooler = start(**keys(certificates.server), tls_protocols=["tlsv1.3"], tls_ciphers=["TLS_AES_128_GCM_SHA256"])
    assert agreed(pooler) == ("TLSv1.3", "TLS_AES_128_GCM_SHA256")
    assert not isinstance(agreed(pooler, maximum_version=ssl.TLSVersion.TLSv1_2), tuple)
    pooler = start(**keys(certificates.server), tls_protocols=["tlsv1.2"], tls_ciphers=["ECDHE-ECDSA-AES256-GCM-SHA384"])
    assert agreed(pooler) == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")
    other = {"maximum_version": ssl.TLSVersion.TLSv1_2, "ciphers": "ECDHE-ECDSA-AES128-GCM-SHA256"}
    assert not isinstance(agreed(pooler, **other), tuple)


@pytest.mark.parametrize("limits, word", [
    ({"tls_protocols": ["tlsv1.0"]}, "`tlsv1.0` is not available"),
    ({"tls_ciphers": ["AES128-SHA"]}, "`AES128-SHA` is not available"),
])
def test_what_is_not_available_is_refused_by_name(start, certificates, limits, word):
    pooler = start.unstarted()
    pooler.rewrite(**keys(certificates.server), **limits)
    told = pooler.run(BINARY, "check", pooler.config_path)
    assert told.returncode == 2 and word in told.stdout, told.stdout


def test_a_database_is_asked_for_the_versions_in_its_url(start, secure_cluster):
    pooler = start.unstarted()
    url = f"postgres://app:app%20secret@localhost:{secure_cluster.port}/bench?sslmode=require"
    for limits, version in [("&tls_protocols=tlsv1.2", "TLSv1.2"), ("&tls_protocols=tlsv1.3&tls_ciphers=TLS_AES_256_GCM_SHA384", "TLSv1.3")]:
        pooler = start(databases={"bench": {"url": url + limits}})
        with pooler.connect() as connection:
            row = connection.execute("SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()
            assert row == (version,)
        pooler.stop()


# ---- certificates ----


def test_certificates_that_expire_are_told(start, certificates):
    soon = certificates.authority.issue("soon", "db.test", "DNS:localhost", days=10)
    pooler = start(**keys(soon))
    told = pooler.run(BINARY, "check", pooler.config_path)
    assert told.returncode == 0 and re.search(r"CN=db.test of `127.0.0.1:\d+` expires in (9|10) days", told.stdout), told.stdout
    seconds = pooler.metric("poolhouse_certificate_expiry_seconds", used_by="listener")
    assert 9 * 86400 < seconds <= 10 * 86400
    other = start(**keys(certificates.expired))
    eventually("the log says so", lambda: "has expired" in other.log())
    assert other.metric("poolhouse_certificate_expiry_seconds", used_by="listener") < 0


def test_a_certificate_of_version_1_is_named_as_what_it_is(start, certificates, tmp_path):
    key, request, made = tmp_path / "key", tmp_path / "request", tmp_path / "certificate"
    openssl("req", *KEY, "-subj", "/CN=old.test", "-keyout", key, "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", certificates.authority.certificate, "-CAkey", certificates.authority.key,
            "-days", 30, "-out", made)
    if "Version: 1" not in os.popen(f"openssl x509 -in {made} -noout -text").read():
        pytest.skip("this openssl makes certificates of version 3 even without extensions")
    pooler = start.unstarted()
    pooler.rewrite(tls_cert=made, tls_key=key)
    told = pooler.run(BINARY, "check", pooler.config_path)
    assert told.returncode == 2 and "X.509 version 1" in told.stdout and "CN=old.test" in told.stdout, told.stdout


# ---- check --connect ----


def test_check_tries_each_login_and_each_certificate(start, cluster, secure_cluster, certificates):
    pooler = start.unstarted()
    secure = f"postgres://app:app%20secret@localhost:{secure_cluster.port}/bench?sslmode=verify-full&sslrootcert="
    good = {"bench": {}, "secure": {"url": secure + str(certificates.authority.certificate)}}
    pooler.rewrite(databases=good)
    told = pooler.run(BINARY, "check", "--connect", pooler.config_path)
    assert told.returncode == 0, told.stdout
    assert "bench: logged in as app" in told.stdout and "secure: logged in as app" in told.stdout
    bad = {"wrong": {"url": f"postgres://app:wrong@127.0.0.1:{cluster.port}/bench"}, "closed": {"url": "postgres://app:x@127.0.0.1:1/bench"},
           "foreign": {"url": secure + str(certificates.other_authority.certificate)}}
    pooler.rewrite(databases={**good, **bad})
    told = pooler.run(BINARY, "check", "--connect", pooler.config_path)
    assert told.returncode == 1, told.stdout
    for word in ["wrong: cannot log in as app", "closed: cannot log in", "foreign: cannot log in", "bench: logged in"]:
        assert word in told.stdout, told.stdout
    assert "password authentication failed" in told.stdout and "certificate" in told.stdout
