"""Secrets that change while Poolhouse runs: two passwords of a user, programs that give passwords, and files that are
replaced."""

import json
import pathlib
import ssl
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS, md5_hash, scram_verifier
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def refused(pooler, user, password):
    with pytest.raises(psycopg.OperationalError) as raised:
        pooler.connect(user, password)
    return str(raised.value)


# ---- several passwords ----


@pytest.mark.quick
@pytest.mark.parametrize("kind", ["stored", "scram-sha-256", "md5", "plain"])
def test_each_of_a_users_passwords_lets_it_in(start, kind):
    app, app2 = PASSWORDS["app"], PASSWORDS["app2"]
    pooler = start(users={"app": {"passwords": [app, "the old one"]}, "app2": {"passwords": [app2]}}, auth={"type": kind})
    for user, password in [("app", app), ("app", "the old one"), ("app", app), ("app2", app2)]:
        with pooler.connect(user, password) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    for user, password in [("app", "another"), ("app", app2), ("app2", "the old one"), ("app2", app)]:
        assert "password authentication failed" in refused(pooler, user, password)


@pytest.mark.parametrize("first, second, types", [
    (scram_verifier("app"), "the old one", ["stored", "plain"]),
    (md5_hash("app"), "the old one", ["stored", "md5", "plain"]),
], ids=["verifier", "md5"])
def test_a_stored_hash_may_stand_beside_a_password(start, first, second, types):
    for kind in types:
        pooler = start(users={"app": {"passwords": [first, second]}}, auth={"type": kind})
        for password in [PASSWORDS["app"], second]:
            pooler.connect("app", password).close()
        assert "password authentication failed" in refused(pooler, "app", "another")
        pooler.stop()


def test_passwords_that_cannot_stand_together_are_refused(start):
    for keys, word in [({"passwords": [scram_verifier("app"), scram_verifier("app")]}, "same salt"),
                       ({"passwords": ["a", scram_verifier("app")]}, "first"), ({"passwords": []}, "1 to 8"),
                       ({"passwords": ["a", md5_hash("app")]}, "do not go together"),
                       ({"passwords": ["a"], "password": "b"}, "not both")]:
        pooler = start.unstarted()
        pooler.rewrite(users={"app": keys})
        told = pooler.run(BINARY, "check", pooler.config_path)
        assert told.returncode == 2 and word in told.stdout, told.stdout


def test_a_password_is_rotated_without_a_client_that_is_refused(start):
    """The steps of a rotation: old; old and new; new and old; new."""
    old, new = PASSWORDS["app"], "brand-new"
    pooler = start(users={"app": {"passwords": [old]}})
    for passwords, valid in [([old, new], [old, new]), ([new, old], [new, old]), ([new], [new])]:
        pooler.rewrite(users={"app": {"passwords": passwords}})
        assert pooler.ctl("reload").returncode == 0
        for password in valid:
            pooler.connect("app", password).close()
    assert "password authentication failed" in refused(pooler, "app", old)


# ---- programs that give passwords ----


def program(pooler, text):
    """A program that runs this text of a shell, and counts its runs in the file `runs`."""
    path = pooler.directory / "give-password"
    path.write_text(f"#!/bin/sh\necho run >>{pooler.directory}/runs\n{text}\n")
    path.chmod(0o755)
    return path


def runs(pooler):
    path = pooler.directory / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


def with_command(start, cluster, text, arguments=(), **keys):
    pooler = start.unstarted()
    command = [str(program(pooler, text)), *arguments]
    url = f"postgres://app@127.0.0.1:{cluster.port}/bench"
    return pooler.start(databases={"bench": {"url": url, "password_command": command, **keys}})


@pytest.mark.quick
def test_a_program_gives_the_password_of_a_database(start, cluster):
    pooler = with_command(start, cluster, 'printf "%s\\n" "$1 secret"', ["app"])
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert runs(pooler) == 1
    assert pooler.metric("poolhouse_password_command_failures_total", database="bench") == 0
    assert 800 < pooler.metric("poolhouse_password_command_valid_seconds", database="bench") <= 900
    assert PASSWORDS["app"] not in pooler.log()


def test_a_password_is_renewed_before_it_expires(start, cluster):
    answer = json.dumps({"password": PASSWORDS["app"], "expires_in": 4})
    pooler = with_command(start, cluster, f"echo '{answer}'")

    def is_renewed_in_time():
        assert pooler.metric("poolhouse_password_command_valid_seconds", database="bench") > 0
        return runs(pooler) >= 3

    eventually("the program has run again", is_renewed_in_time)
    pooler.connect().close()


def test_the_last_password_stays_while_the_program_fails(start, cluster):
    answer = json.dumps({"password": PASSWORDS["app"], "expires_in": 2})
    text = f"[ -e {{}}/broken ] && {{ echo no luck today >&2; exit 3; }}\necho '{answer}'"
    pooler = start.unstarted()
    text = text.replace("{}", str(pooler.directory)).replace("{{", "{").replace("}}", "}")
    url = f"postgres://app@127.0.0.1:{cluster.port}/bench"
    pooler.start(databases={"bench": {"url": url, "password_command": [str(program(pooler, text))]}})
    # From now on there is a password.
    pooler.connect().execute("SELECT 1")
    (pooler.directory / "broken").touch()
    failures = lambda: pooler.metric("poolhouse_password_command_failures_total", database="bench")
    eventually("the program fails", lambda: failures() >= 2)
    assert "no luck today" in pooler.log() and "the last password is kept" in pooler.log()
    cluster.terminate("app")
    pooler.connect().close()
    (pooler.directory / "broken").unlink()
    before = failures()
    eventually("it works again", lambda: pooler.metric("poolhouse_password_command_valid_seconds", database="bench") > 0)
    assert failures() <= before + 1


def test_a_program_that_takes_too_long_or_writes_nonsense_is_no_obstacle(start, cluster):
    for text, word in [("sleep 60", "longer than password_command_time"), ("echo '{}'", "JSON"), ("exit 0", "writes nothing")]:
        pooler = start.unstarted()
        begin = time.monotonic()
        url = f"postgres://app@127.0.0.1:{cluster.port}/bench"
        pooler.start(databases={"bench": {"url": url, "password_command": [str(program(pooler, text))], "password_command_time": "300ms"}})
        assert time.monotonic() - begin < 8
        eventually("the failure is told", lambda: word in pooler.log())
        pooler.stop()


# ---- files that are replaced ----


@pytest.mark.quick
def test_a_file_with_a_password_is_read_again_when_it_changes(start):
    pooler = start.unstarted()
    secret = pooler.directory / "secret"
    secret.write_text(PASSWORDS["app"] + "\n")
    pooler.start(users={"app": {"password_file": "secret"}})
    pooler.connect().close()
    secret.write_text("another one\n")
    eventually("the new password lets in", lambda: connects(pooler, "another one"))
    assert "password authentication failed" in refused(pooler, "app", PASSWORDS["app"])
    secret.write_text("")
    eventually("an unusable file is told", lambda: "stays in force" in pooler.log())
    assert connects(pooler, "another one")


def connects(pooler, password):
    try:
        pooler.connect("app", password).close()
    except psycopg.OperationalError:
        return False
    return True


def serial_number(pooler):
    with w.Wire(pooler.port) as client:
        client.send(w.request(w.SSL_REQUEST))
        assert client.receive(1) == b"S"
        tls = ssl._create_unverified_context().wrap_socket(client.socket)
        try:
            return tls.getpeercert(binary_form=True)
        finally:
            tls.close()


def test_a_certificate_is_renewed_as_kubernetes_does_it(start, certificates):
    """A mounted secret: links into `..data`, which is a link to a folder, and is replaced as a whole."""
    pooler = start.unstarted()
    mount = pooler.directory / "tls"
    mount.mkdir()

    def put(name, pair):
        folder = mount / name
        folder.mkdir()
        (folder / "tls.crt").write_bytes(pathlib.Path(pair.certificate).read_bytes())
        (folder / "tls.key").write_bytes(pathlib.Path(pair.key).read_bytes())
        (mount / "..data_tmp").symlink_to(name)
        (mount / "..data_tmp").rename(mount / "..data")

    put("..2026_1", certificates.server)
    for name in ["tls.crt", "tls.key"]:
        (mount / name).symlink_to(f"..data/{name}")
    pooler.start(tls_cert="tls/tls.crt", tls_key="tls/tls.key")
    before = serial_number(pooler)
    put("..2026_2", certificates.by_name_only)
    eventually("the new certificate is shown", lambda: serial_number(pooler) != before)
    with pooler.connect(sslmode="require") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_the_configuration_itself_waits_for_a_reload(start):
    pooler = start.unstarted()
    secret = pooler.directory / "secret"
    secret.write_text(PASSWORDS["app"] + "\n")
    pooler.start(users={"app": {"password_file": "secret"}}, max_size=5)
    pooler.connect().close()
    pooler.config_path.write_text("this is no TOML")
    secret.write_text("another one\n")
    eventually("the new password lets in", lambda: connects(pooler, "another one"))
    assert [pool["max_size"] for pool in pooler.pools() if pool["user"] == "app"] == [5]
