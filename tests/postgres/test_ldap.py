"""Logins whose passwords a directory server checks."""

import time

import psycopg
import pytest

from support import postgres_wire as w
from support.ldap_server import ADMIN, ADMIN_PASSWORD, BASE, LdapServer, binary
from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.skipif(not binary().exists(), reason="slapd is not installed")]

USERS = {"app": PASSWORDS["app"], "guest_user": "guest-secret"}


@pytest.fixture(scope="module")
def directory(workspace, certificates):
    server = LdapServer(workspace / "ldap", USERS, certificates.server)
    server.start()
    yield server
    server.stop()


def simple(directory):
    return f'ldapserver=127.0.0.1 ldapport={directory.port} ldapprefix="uid=" ldapsuffix=",{BASE}"'


def search(directory):
    return (f'ldapurl="ldap://127.0.0.1:{directory.port}/dc=example,dc=net?uid?sub" ldapbinddn="{ADMIN}" '
            f"ldapbindpasswd={ADMIN_PASSWORD}")


def by_mail(directory):
    return (f'ldapserver=127.0.0.1 ldapport={directory.port} ldapbasedn="{BASE}" ldapbinddn="{ADMIN}" '
            f'ldapbindpasswd={ADMIN_PASSWORD} ldapsearchfilter="(|(uid=$username)(mail=$username@example.net))"')


def refused(pooler, user, password):
    with pytest.raises(psycopg.OperationalError) as raised:
        pooler.connect(user, password)
    return str(raised.value).split("FATAL:", 1)[1].strip()


@pytest.mark.parametrize("options", [simple, search, by_mail])
def test_the_directory_says_whether_a_password_is_right(start, directory, options):
    pooler = start(auth={"type": "ldap", "ldap_options": options(directory)}, users={})
    for user, password in USERS.items():
        with pooler.connect(user, password) as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("app",), "the user of the url"
    wrong = refused(pooler, "app", "wrong")
    assert wrong.startswith('password authentication failed for user "app"'), wrong
    assert refused(pooler, "nowhere", "wrong") == wrong.replace("app", "nowhere")
    for user in ["*", "app)(uid=*", "app,ou=people", "a\\b"]:
        assert "password authentication failed" in refused(pooler, user, PASSWORDS["app"])
    assert "authentication failed" in refused(pooler, "app", " "), "a password of spaces"
    assert PASSWORDS["app"] not in pooler.log() and ADMIN_PASSWORD not in pooler.log()


def test_an_empty_password_is_no_login_of_a_guest(start, directory):
    pooler = start(auth={"type": "ldap", "ldap_options": simple(directory)}, users={})
    with pooler.open() as client:
        client.send(w.startup(user="app", database="bench"))
        assert client.expect(b"R")[:4] == b"\0\0\0\x03"
        client.send(w.message(b"p", b"\0"))
        with pytest.raises(w.ServerError, match="password authentication failed"):
            client.expect(b"R")


def test_servers_are_logged_in_to_with_the_clients_own_password(start, directory, cluster):
    url = f"postgres://127.0.0.1:{cluster.port}/bench"
    pooler = start(auth={"type": "ldap", "ldap_options": simple(directory)}, users={}, databases={"bench": {"url": url}})
    with pooler.connect("app") as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("app",)


def test_a_line_of_an_hba_file_asks_the_directory_over_tls(start, directory, certificates):
    pooler = start.unstarted()
    (pooler.directory / "hba.conf").write_text(
        f'host all app all ldap ldapserver=localhost ldapport={directory.tls_port} ldapscheme=ldaps ldapprefix="uid=" ldapsuffix=",{BASE}"\n'
        f'host all all all ldap {simple(directory)} ldaptls=1\n')
    pooler.rewrite(auth={"type": "hba", "hba_file": "hba.conf"}, users={})
    environment = {"SSL_CERT_FILE": str(certificates.authority.certificate)}
    pooler.launch([BINARY, "serve", "--config", str(pooler.config_path)], environment)
    pooler.connect("app").close()
    pooler.connect("guest_user", "guest-secret").close()
    assert "password authentication failed" in refused(pooler, "app", "wrong")


def test_a_directory_that_is_away_stops_no_other_client(start, directory):
    pooler = start.unstarted()
    (pooler.directory / "hba.conf").write_text(
        'host all slow all ldap ldapserver=192.0.2.1 ldapprefix="uid="\n'
        'host all gone all ldap ldapserver=127.0.0.1 ldapport=1 ldapprefix="uid="\nhost all all all scram-sha-256\n')
    pooler.start(auth={"type": "hba", "hba_file": "hba.conf"}, workers=1)
    told = refused(pooler, "gone", "x")
    assert told.startswith("authentication is not possible now"), told
    assert "127.0.0.1:1" in pooler.log()
    with pooler.open() as waiting:
        waiting.send(w.startup(user="slow", database="bench"))
        waiting.expect(b"R")
        waiting.send(w.message(b"p", b"secret-of-slow\0"))
        begin = time.monotonic()
        for _ in range(20):
            pooler.connect("app").close()
        assert time.monotonic() - begin < 3
    assert "secret-of-slow" not in pooler.log()
