"""Which clients may log in, and what those that may not can learn."""

import concurrent.futures
import contextlib
import os
import threading
import time

import psycopg
import pytest

from support import postgres_wire as w
from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS, md5_hash, scram_verifier

ALL_METHODS = {"app": PASSWORDS["app"], "app2": scram_verifier("app2"), "md5user": md5_hash("md5user")}
# PgBouncer takes one method for all users: md5, which uses SCRAM for users with such a verifier.
INI = {"auth_type": "md5"}
# PgBouncer also logs in upstream with the keys that it learned from app2, although the user there is another.
USERS = ["app", "md5user", pytest.param("app2", marks=pytest.mark.poolhouse_only)]


def refused(pooler, user, password, database="bench"):
    """The error of a login that must fail."""
    with pooler.open() as client:
        with pytest.raises(w.ServerError) as raised:
            client.login(user, password, database)
        assert client.closed_within(5)
        return raised.value


@pytest.mark.quick
@pytest.mark.parametrize("user", USERS)
def test_a_client_with_the_right_password_gets_in(start, user):
    pooler = start(users=ALL_METHODS, ini=INI)
    with pooler.connect(user) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with pooler.wire(user) as client:
        assert client.query("SELECT 1") == [["1"]]
    connection = pooler.connect2(user)
    connection.close()


@pytest.mark.quick
@pytest.mark.parametrize("user", ALL_METHODS)
@pytest.mark.parametrize("password", ["wrong", " ", "x" * 900])
def test_a_wrong_password_is_refused(start, user, password):
    pooler = start(users=ALL_METHODS, ini=INI)
    error = refused(pooler, user, password)
    assert error.severity == "FATAL"
    if pooler.is_poolhouse:
        assert error.sqlstate == "28P01", error


@pytest.mark.poolhouse_only
def test_an_unknown_user_cannot_be_told_from_a_wrong_password(start):
    pooler = start(users=ALL_METHODS)
    wrong, unknown = refused(pooler, "app", "wrong"), refused(pooler, "nobody_known", "wrong")
    assert unknown.sqlstate == wrong.sqlstate == "28P01"
    assert unknown.text.replace("nobody_known", "app") == wrong.text


def challenge(pooler, user):
    """The login that a client with this user name is asked for: md5, or the salt and the iterations of SCRAM."""
    with pooler.open() as client:
        client.send(w.startup(user=user, database="bench"))
        body = client.expect(b"R")
        if body[:4] == b"\0\0\0\x05":
            return "md5"
        assert b"SCRAM-SHA-256\0" in body
        initial = b"n,,n=,r=abcdefgh"
        client.send(w.message(b"p", b"SCRAM-SHA-256\0" + w.struct.pack("!I", len(initial)) + initial))
        told = dict(part.split("=", 1) for part in client.expect(b"R")[4:].decode().split(","))
        return told["s"], told["i"]


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("stored", [PASSWORDS["app"], scram_verifier("app"), scram_verifier("app", 10_000), md5_hash("app")],
                         ids=["plain", "SCRAM", "other iterations", "md5"])
def test_an_unknown_user_is_asked_for_the_same_as_an_existing_one(start, stored):
    pooler = start(users={"app": stored})
    known, unknown = challenge(pooler, "app"), challenge(pooler, "nobody_known")
    assert challenge(pooler, "app") == known and challenge(pooler, "nobody_known") == unknown
    if known == "md5":
        assert unknown == "md5"
    else:
        assert unknown != known and unknown != challenge(pooler, "somebody_else")
        assert (len(unknown[0]), unknown[1]) == (len(known[0]), known[1])
    assert refused(pooler, "nobody_known", "wrong").text.replace("nobody_known", "app") == refused(pooler, "app", "wrong").text


@pytest.mark.poolhouse_only
def test_a_reload_changes_no_salt(start):
    pooler = start(users={"app": PASSWORDS["app"]})
    before = [challenge(pooler, user) for user in ("app", "nobody_known")]
    pooler.rewrite(users={"app": PASSWORDS["app"], "app2": PASSWORDS["app2"]})
    assert pooler.post("/api/reload")[0] == 200
    assert [challenge(pooler, user) for user in ("app", "nobody_known")] == before


@pytest.mark.poolhouse_only
def test_an_unknown_database_is_told_after_the_login(start):
    pooler = start()
    error = refused(pooler, "app", PASSWORDS["app"], "no_such")
    assert error.sqlstate == "3D000" and "no_such" in error.text


@pytest.mark.poolhouse_only
def test_an_unknown_database_is_not_told_before_the_login(start):
    pooler = start()
    assert refused(pooler, "app", "wrong", "no_such").sqlstate == "28P01"


@pytest.mark.poolhouse_only
def test_clients_that_cannot_log_in_use_up_no_names_of_the_star_database(start):
    pooler = start(databases={"*": {}})
    for n in range(4200):
        with pooler.open() as client:
            client.send(w.startup(user="app", database=f"no password for {n}"))
            client.take()
    with pooler.wire() as client:
        assert client.query("SELECT current_database()") == [["bench"]]


@pytest.mark.poolhouse_only
def test_without_users_every_client_on_this_machine_gets_in(start):
    pooler = start(users={})
    with pooler.wire("anybody") as client:
        assert client.query("SELECT current_user") == [["app"]]


@pytest.mark.poolhouse_only
def test_a_login_upstream_for_which_only_an_md5_hash_is_known_says_so(start, cluster):
    pooler = start(users={"app": md5_hash("app")}, databases={"bench": {"url": cluster.url("bench", None)}})
    text = refused(pooler, "app", PASSWORDS["app"]).text
    assert "only an md5 hash is known" in text and "none is configured" not in text, text


@pytest.mark.poolhouse_only
def test_clients_own_users_log_in_upstream_when_the_url_has_none(start, cluster):
    url = cluster.url(user=None)
    users = {name: PASSWORDS[name] for name in ("app", "app2", "md5user", "plainuser")}
    pooler = start(users=users, databases={"bench": {"url": url}})
    for user in users:
        with pooler.connect(user) as connection:
            assert connection.execute("SELECT current_user").fetchone() == (user,)


def userlist(pooler, users):
    path = pooler.directory / "users.txt"
    path.write_text("".join('"{}" "{}"\n'.format(name, password.replace('"', '""')) for name, password in users.items()))
    path.chmod(0o600)
    return path


def test_users_from_a_userlist_file(start):
    pooler = start.unstarted()
    pooler.start(users={}, auth_file=userlist(pooler, ALL_METHODS), ini=INI)
    for user in ALL_METHODS if pooler.is_poolhouse else ["app", "md5user"]:
        with pooler.connect(user) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
    with pytest.raises(psycopg.OperationalError):
        pooler.connect("app", "wrong")
    with pytest.raises(psycopg.OperationalError):
        pooler.connect("plainuser")


@pytest.mark.poolhouse_only
def test_comments_and_quotes_in_a_userlist_file(start):
    pooler = start.unstarted()
    path = pooler.directory / "users.txt"
    path.write_text(f';a comment\n\n"app" "{PASSWORDS["app"]}" ignored\n"od""d" "pass""word"\n')
    pooler.start(users={}, auth_file=path)
    with pooler.connect("app") as connection, pooler.wire('od"d', 'pass"word') as odd:
        assert connection.execute("SELECT 1").fetchone() == (1,)
        assert odd.query("SELECT 1") == [["1"]]


@pytest.mark.poolhouse_only
def test_guessing_passwords_is_slowed_down_and_others_are_not_locked_out(start):
    pooler = start(max_auth_failures=3, users={"app": PASSWORDS["app"]})
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        def guess(_):
            try:
                with pooler.open(30) as client:
                    client.login("app", "guess")
            except (w.ServerError, w.Closed) as error:
                return error
            raise AssertionError("a wrong password was let in")

        guesses = [threads.submit(guess, n) for n in range(24)]
        time.sleep(0.3)
        with pooler.connect() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        for guess in guesses:
            guess.result(timeout=60)
    assert time.monotonic() - began > 1.5, "24 guesses were answered at once"
    assert pooler.metric("poolhouse_auth_failures_total") >= 4


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_a_right_password_gets_in_while_others_at_the_address_guess_without_end(start):
    pooler = start(max_auth_failures=3, users={"app": PASSWORDS["app"]})
    over = threading.Event()

    def guess():
        while not over.is_set():
            try:
                with pooler.open(30) as client:
                    client.login("app", "guess")
            except (w.ServerError, w.Closed) as error:
                assert "password authentication failed" in str(error), error
            else:
                raise AssertionError("a wrong password was let in")

    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(40) as threads:
        guessers = [threads.submit(guess) for _ in range(40)]
        try:
            time.sleep(2)
            for _ in range(3):
                asked = time.monotonic()
                with pooler.connect() as connection:
                    assert connection.execute("SELECT 1").fetchone() == (1,)
                assert time.monotonic() - asked < 10
        finally:
            over.set()
        for guesser in guessers:
            guesser.result(timeout=60)
    assert pooler.metric("poolhouse_auth_failures_total") <= 3 + 16 * (time.monotonic() - began + 1)


@pytest.mark.poolhouse_only
def test_wrong_passwords_of_one_user_keep_no_other_waiting(start):
    pooler = start(max_auth_failures=3)
    over = threading.Event()

    def guess():
        while not over.is_set():
            with contextlib.suppress(w.ServerError, w.Closed), pooler.open(30) as client:
                client.login("app2", "guess")

    with concurrent.futures.ThreadPoolExecutor(40) as threads:
        guessers = [threads.submit(guess) for _ in range(40)]
        try:
            time.sleep(2)
            took = []
            for _ in range(5):
                asked = time.monotonic()
                pooler.connect().close()
                took.append(time.monotonic() - asked)
        finally:
            over.set()
        for guesser in guessers:
            guesser.result(timeout=60)
    assert sorted(took)[2] < 1, took


@pytest.mark.timing
@pytest.mark.poolhouse_only
def test_unfinished_logins_lock_no_client_out(start):
    pooler = start(max_auth_failures=1, users={"app": PASSWORDS["app"]})
    for _ in range(3):
        refused(pooler, "app", "wrong")
    silent = [pooler.open() for _ in range(30)]
    for client in silent:
        client.send(w.startup(user="app", database="bench"))
    time.sleep(0.3)
    asked = time.monotonic()
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert time.monotonic() - asked < 8
    for client in silent:
        client.close()


@pytest.mark.poolhouse_only
def test_a_client_that_does_not_get_a_turn_in_time_is_told_so(start):
    pooler = start(max_auth_failures=1, login_time="1s", users={"app": PASSWORDS["app"]})

    def guess(until):
        told = set()
        while time.monotonic() < until:
            with contextlib.suppress(w.Closed), pooler.open(30) as client:
                try:
                    client.login("app", "guess")
                except w.ServerError as error:
                    told.add((error.sqlstate, error.text))
        return told

    with concurrent.futures.ThreadPoolExecutor(60) as threads:
        told = set().union(*threads.map(guess, [time.monotonic() + 4] * 60))
    texts = {text for _, text in told}
    assert any("too many failed logins from this address" in text for text in texts), told
    assert any("password authentication failed" in text for text in texts), told
    assert pooler.metric("poolhouse_client_rejections_total", reason="auth_failures") > 0


@pytest.mark.poolhouse_only
def test_a_verifier_with_other_iterations_is_honoured(start):
    pooler = start(users={"app": scram_verifier("app", 10_000)})
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("proof", ["", "x", "c=biws", "c=biws,r=abc,p=AAAA", "c=biws,r=,p=" + "A" * 44, "\0", "é" * 200])
def test_a_broken_scram_exchange_is_refused(start, proof):
    pooler = start()
    with pooler.open() as client:
        client.send(w.startup(user="app", database="bench"))
        client.expect(b"R")
        initial = b"n,,n=,r=abcdefghijkl"
        client.send(w.message(b"p", b"SCRAM-SHA-256\0" + w.struct.pack("!I", len(initial)) + initial))
        client.expect(b"R")
        client.send(w.message(b"p", proof.encode()))
        assert client.error().sqlstate in ("28P01", "08P01", "28000")
        assert client.closed_within(5)
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.poolhouse_only
def test_queries_before_the_password_are_not_answered(start):
    pooler = start()
    with pooler.open() as client:
        client.send(w.startup(user="app", database="bench"), w.query("SELECT 1"))
        client.expect(b"R")
        assert client.error().severity == "FATAL"
        assert client.closed_within(5)


@pytest.mark.poolhouse_only
def test_a_password_from_the_environment_and_from_a_file(start, cluster):
    pooler = start.unstarted()
    (pooler.directory / "secret").write_text(PASSWORDS["app"] + "\n")
    (pooler.directory / "secret").chmod(0o600)
    url = f"postgres://app:${{TEST_UPSTREAM_PASSWORD}}@127.0.0.1:{cluster.port}/bench"
    text = pooler.config({"databases": {"bench": {"url": url}}, "users": {}})
    text += '[[user]]\nname = "app"\npassword_file = "secret"\n'
    path = pooler.directory / "poolhouse.toml"
    path.write_text(text)
    environment = {"TEST_UPSTREAM_PASSWORD": PASSWORDS["app"]}
    pooler.launch([BINARY, "serve", "--config", str(path)], environment)
    with pooler.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert os.environ.get("TEST_UPSTREAM_PASSWORD") is None
