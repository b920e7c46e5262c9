"""HBA rules, ident maps and the types of login that `[auth]` has besides passwords."""

import contextlib
import getpass
import os
import ssl
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.pooler import BINARY, PgBouncer
from support.postgres_cluster import PASSWORDS, md5_hash, scram_verifier

pytestmark = pytest.mark.poolhouse_only

USERS = {"app": PASSWORDS["app"], "app2": scram_verifier("app2"), "md5user": md5_hash("md5user")}
NO_RULE = "no authentication method is found"


@pytest.fixture
def hba(start, certificates):
    """Starts a pooler with these lines of an HBA file."""

    def start_with(lines, ident=None, users=USERS, **settings):
        pooler = start.unstarted()
        (pooler.directory / "hba.conf").write_text("\n".join(lines) + "\n")
        auth = {"type": "hba", "hba_file": "hba.conf"}
        if ident is not None:
            (pooler.directory / "ident.conf").write_text("\n".join(ident) + "\n")
            auth["ident_file"] = "ident.conf"
        listen = [f"127.0.0.1:{pooler.port}", f"unix:{pooler.directory}/.s.PGSQL.{pooler.port}"]
        return pooler.start(users=users, auth=auth, listen=listen, **settings)

    return start_with


def greeting(pooler, user, database="bench", unix=False, certificate=None, tls=False, **parameters):
    """What a client is first asked for: the number of the authentication request, or the error."""
    client = w.Wire(f"{pooler.directory}/.s.PGSQL.{pooler.port}" if unix else pooler.port)
    with client:
        if tls or certificate:
            client.send(w.request(w.SSL_REQUEST))
            assert client.receive(1) == b"S"
            context = ssl._create_unverified_context()
            if certificate:
                context.load_cert_chain(certificate.certificate, certificate.key)
            client.socket = context.wrap_socket(client.socket)
        client.send(w.startup(user=user, database=database, **parameters))
        try:
            return int.from_bytes(client.expect(b"R")[:4], "big")
        except w.ServerError as error:
            return f"{error.sqlstate} {error.text}"


TRUSTED, CLEARTEXT, MD5, SCRAM = 0, 3, 5, 10


@pytest.mark.quick
def test_the_first_rule_for_a_client_says_how_it_logs_in(hba):
    pooler = hba(["local all all trust", "host all banned all reject", "host bench app 127.0.0.1/32 scram-sha-256",
                  "host bench app2 127.0.0.0 255.0.0.0 md5", "host bench md5user,plain 127.0.0.0/8 password",
                  "host sameuser all all trust", "host bench all ::1/128 trust", "host bench app all trust"], databases={"bench": {}, "other": {}})
    assert greeting(pooler, "app", unix=True) == TRUSTED
    assert greeting(pooler, "app", unix=True, replication="true") == f"08P01 {NO_RULE}", "`all` is no replication"
    assert greeting(pooler, "app") == SCRAM
    assert greeting(pooler, "app2") == SCRAM, "md5 is no hindrance for a user with a SCRAM verifier"
    assert greeting(pooler, "md5user") == CLEARTEXT
    assert greeting(pooler, "banned") == "08P01 login rejected"
    assert greeting(pooler, "app", "other") == f"08P01 {NO_RULE}"
    assert greeting(pooler, "unknown") == f"08P01 {NO_RULE}"


@pytest.mark.quick
def test_passwords_are_checked_by_each_method(hba):
    for method in ["scram-sha-256", "md5", "password"]:
        pooler = hba([f"host all all all {method}"])
        for user in ["app", "app2", "md5user"]:
            if (method, user) == ("scram-sha-256", "md5user"):
                continue
            with pooler.connect(user) as connection:
                assert connection.execute("SELECT 1").fetchone() == (1,)
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                pooler.connect(user, "wrong")
        pooler.stop()


@pytest.mark.parametrize("method", ["scram-sha-256", "md5", "password"])
def test_an_unknown_user_looks_like_one_with_another_password(hba, method):
    pooler = hba([f"host all all all {method}"], users={"app": PASSWORDS["app"]})
    assert greeting(pooler, "unknown") == greeting(pooler, "app") in (SCRAM, MD5, CLEARTEXT)
    errors = []
    for user in ["app", "unknown"]:
        with pytest.raises(psycopg.OperationalError) as raised:
            pooler.connect(user, "wrong")
        errors.append(str(raised.value).replace(user, "USER"))
    assert errors[0].split("failed: ", 1)[1] == errors[1].split("failed: ", 1)[1]


def test_trust_is_for_users_that_exist(hba):
    pooler = hba(["host all all all trust"], users={"app": {"max_size": 5}})
    with pooler.connect("app", "whatever") as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("app",)
    assert greeting(pooler, "unknown") == '08P01 "trust" authentication failed'


def test_a_peer_is_the_user_of_the_clients_process(hba):
    me = getpass.getuser()
    pooler = hba(["local all app,plainuser peer map=m", "local all app2 peer map=n", "local all all peer"],
                 ident=[f"m {me} app", "n another all"], users={**USERS, "plainuser": "unused", me: "unused"})
    assert greeting(pooler, "app", unix=True) == TRUSTED
    assert greeting(pooler, "app2", unix=True) == "08P01 unix socket login rejected"
    assert greeting(pooler, "plainuser", unix=True) == "08P01 unix socket login rejected", "the map is for app"
    assert greeting(pooler, me, unix=True) == TRUSTED
    assert greeting(pooler, "md5user", unix=True) == "08P01 unix socket login rejected"
    assert greeting(pooler, "unknown", unix=True) == "08P01 unix socket login rejected"


def test_rules_tell_encrypted_connections_and_certificates(hba, certificates):
    tls = {"tls_cert": certificates.server.certificate, "tls_key": certificates.server.key,
           "tls_client_ca": certificates.authority.certificate}
    lines = ["hostssl bench app all cert", "hostssl other app all cert map=m", "hostnossl bench app all md5",
             "hostssl all app2 all scram-sha-256", "hostnossl all md5user all md5"]
    pooler = hba(lines, ident=["m visitor app"], databases={"bench": {}, "other": {}}, **tls)
    failed = '28000 certificate authentication failed for user "app"'
    assert greeting(pooler, "app", certificate=certificates.client_app) == TRUSTED
    assert greeting(pooler, "app", certificate=certificates.client_other) == failed
    assert greeting(pooler, "app", tls=True) == failed
    assert greeting(pooler, "app") == MD5
    assert greeting(pooler, "app", "other", certificate=certificates.client_other) == TRUSTED
    assert greeting(pooler, "app", "other", certificate=certificates.client_app) == failed
    assert greeting(pooler, "app2", tls=True) == SCRAM
    assert greeting(pooler, "app2") == f"08P01 {NO_RULE}"
    assert greeting(pooler, "md5user") == MD5
    assert greeting(pooler, "md5user", tls=True) == f"08P01 {NO_RULE}"


def test_rules_are_read_again_at_a_reload_and_stay_if_the_new_ones_are_wrong(hba):
    pooler = hba(["host all all all trust"])
    assert greeting(pooler, "app") == TRUSTED
    rules = pooler.directory / "hba.conf"
    rules.write_text("host all app all reject\n")
    assert pooler.ctl("reload").returncode == 0
    assert greeting(pooler, "app") == "08P01 login rejected"
    rules.write_text("# rules\nhost all all all trust\nhost all all samenet gss\n")
    failed = pooler.ctl("reload")
    assert failed.returncode == 1 and "hba.conf:3:14" in failed.stderr and "samenet" in failed.stderr, failed.stderr
    assert greeting(pooler, "app") == "08P01 login rejected"


def test_check_names_file_and_line_of_a_wrong_rule(start):
    pooler = start.unstarted()
    (pooler.directory / "hba.conf").write_text("local all all peer\nhost all +staff all md5\nhost all all all pam\n")
    pooler.rewrite(auth={"type": "hba", "hba_file": "hba.conf"})
    told = pooler.run(BINARY, "check", pooler.config_path)
    assert told.returncode == 2
    assert "hba.conf:2:10" in told.stdout and "groups" in told.stdout and "host all +staff" in told.stdout
    assert "hba.conf:3:18" in told.stdout and "pam is not supported" in told.stdout


def test_pgbouncer_judges_the_same_clients_in_the_same_way(hba, cluster, workspace):
    """The same rules and users in the PgBouncer that is installed: each client is asked for the same, or told the same."""
    if not PgBouncer.is_newest():
        pytest.skip("PgBouncer is not installed")
    me = getpass.getuser()
    lines = ["local all rejected reject", "local all app peer map=m", "local all app2 peer map=n", "local all md5user peer",
             "local all all trust", "host replication all 127.0.0.1/32 reject", 'host "all" all 127.0.0.1/32 reject',
             "host bench app,md5user 127.0.0.1/32 md5", "host sameuser all all trust", "host other app 127.0.0.0 255.0.0.0 password",
             "host other all 127.0.0.1/32 scram-sha-256", "hostssl bench app2 all trust", "host bench app2 10.0.0.0/8 trust",
             'host "other, and bench" app2 all trust']
    ident = [f"m {me} app", "m root all", "n another app2"]
    users = {**USERS, "bench": "x", "rejected": "y"}
    databases = {"bench": {}, "other": {}}
    ours = hba(lines, ident=ident, users=users, databases=databases)
    directory = workspace / f"beside-{os.urandom(4).hex()}"
    directory.mkdir()
    for name in ["hba.conf", "ident.conf"]:
        (directory / name).write_text((ours.directory / name).read_text())
    theirs = PgBouncer(directory, cluster)
    theirs.start(users=users, databases=databases, ini={
        "auth_type": "hba", "auth_hba_file": directory / "hba.conf", "auth_ident_file": directory / "ident.conf"})
    try:
        clients = [(user, database, unix) for user in ["app", "app2", "md5user", "bench", "rejected", "unknown"]
                   for database in ["bench", "other", "all"] for unix in [True, False]]
        told = {client: (greeting(ours, *client), greeting(theirs, *client)) for client in clients if client[1] != "all" or not client[2]}
        assert all(our == their for our, their in told.values()), {client: pair for client, pair in told.items() if pair[0] != pair[1]}
        assert len({pair[0] for pair in told.values()}) >= 7, "the clients are treated in many ways"
    finally:
        theirs.stop()


# ---- one type for all ----


@pytest.mark.quick
def test_any_lets_each_client_in_as_the_user_of_the_database(start, cluster):
    pooler = start(auth={"type": "any"}, users={})
    for user in ["app", "any_name"]:
        with pooler.connect(user, "whatever") as connection:
            assert connection.execute("SELECT current_user").fetchone() == ("app",)


def test_any_needs_a_user_for_each_database(start):
    pooler = start.unstarted()
    pooler.rewrite(auth={"type": "any"}, users={}, databases={"bench": {"url": f"postgres://127.0.0.1:{pooler.cluster.port}/bench"}})
    told = pooler.run(BINARY, "check", pooler.config_path)
    assert told.returncode == 2 and "the url of `bench` has no user" in told.stdout, told.stdout


@pytest.mark.parametrize("kind, asked", [("trust", TRUSTED), ("plain", CLEARTEXT), ("md5", MD5), ("scram-sha-256", SCRAM)])
def test_one_type_holds_for_all_clients(start, kind, asked):
    pooler = start(auth={"type": kind})
    assert greeting(pooler, "app") == asked
    with pooler.connect("app") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_cert_is_for_all_users(start, certificates):
    tls = {"tls_cert": certificates.server.certificate, "tls_key": certificates.server.key,
           "tls_client_ca": certificates.authority.certificate}
    pooler = start(auth={"type": "cert"}, **tls)
    assert greeting(pooler, "app", certificate=certificates.client_app) == TRUSTED
    for client in [{"certificate": certificates.client_other}, {"tls": True}, {}]:
        assert greeting(pooler, "app", **client) == '28000 certificate authentication failed for user "app"'


def test_what_a_type_does_not_use_is_refused(start):
    for auth, word in [({"type": "pam"}, "pam is not supported"), ({"type": "md5", "hba_file": "x"}, "no effect"),
                       ({"type": "hba"}, "hba_file"), ({"type": "ldap"}, "ldap_options"), ({"hba_file": "x"}, "no effect"),
                       ({"type": "ldap", "ldap_options": "ldapserver=a"}, "ldapbasedn")]:
        pooler = start.unstarted()
        pooler.rewrite(auth=auth)
        told = pooler.run(BINARY, "check", pooler.config_path)
        assert told.returncode == 2 and word in told.stdout, told.stdout


@pytest.mark.timing
def test_passwords_that_take_long_to_compare_hold_up_no_client(start):
    users = {"app": PASSWORDS["app"], "app2": scram_verifier("app2", iterations=500_000)}
    pooler = start(users=users, auth={"type": "plain"}, workers=1)
    with pooler.wire() as client, contextlib.ExitStack() as held:
        client.query("SELECT 1")
        guesses = [held.enter_context(pooler.open(timeout=60)) for _ in range(12)]
        for guess in guesses:
            guess.send(w.startup(user="app2", database="bench"))
            assert int.from_bytes(guess.expect(b"R")[:4], "big") == CLEARTEXT
        for guess in guesses:
            guess.send(w.message(b"p", w.cstr("wrong")))
        longest = 0
        for _ in range(50):
            begin = time.monotonic()
            client.query("SELECT 1")
            longest = max(longest, time.monotonic() - begin)
        assert longest < 1, f"a query took {longest:.2f} s"
        for guess in guesses:
            assert guess.error().sqlstate == "28P01"


def test_a_password_that_takes_long_to_compare_lets_in(start):
    users = {"app": PASSWORDS["app"], "app2": scram_verifier("app2", iterations=20_000)}
    pooler = start(users=users, auth={"type": "plain"})
    with pooler.connect("app2") as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        pooler.connect("unknown", "any")
