"""A client that keeps its server gains nothing by it: it sees, ends and becomes no other client."""

import time

import pytest

from support.redis_fixtures import LISTEN, guarded, pool, server, users
from support.redis_socket import Raw, command
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


def line(client):
    """A reply of one line."""
    heard = b""
    while not heard.endswith(b"\r\n"):
        heard += client.hear(1) or pytest.fail(f"the connection ended after {heard}")
    return heard


@pytest.fixture
def shared_login(pool, guarded):
    """Two users that Redis cannot tell apart."""
    return pool(file=f'[serve]\nmax_auth_failures = 3\n{LISTEN}[[database]]\nurl = "{guarded.url()}"\n{users(one="1", two="2")}', behind=guarded)


def logged_in(poolhouse, user, password):
    client = Raw(poolhouse).say(command("AUTH", user, password))
    assert line(client) == b"+OK\r\n"
    return client


REFUSED = [
    ("CLIENT", "LIST"), ("client", "info"), ("CLIENT", "KILL", "SKIPME", "yes"), ("CLIENT", "UNBLOCK", "1", "ERROR"),
    ("AUTH", "guess"), ("AUTH", "one", "1"), ("HELLO", "3", "AUTH", "default", "guess"), ("HELLO", "2", "SETNAME", "n", "auth", "default", "guess"),
    ("CLIENT", "TRACKING", "ON", "REDIRECT", "1"), ("RESET",)]


def test_a_kept_server_tells_and_ends_no_other_client(shared_login, guarded):
    poolhouse, direct = shared_login, guarded.connect()
    other, transaction = logged_in(poolhouse, "two", "2"), logged_in(poolhouse, "two", "2")
    other.say(command("BLPOP", "jobs", 0))
    assert line(transaction.say(command("MULTI"))) == b"+OK\r\n"
    eventually("it blocks", lambda: direct.info("clients")["blocked_clients"] == 1)
    client = logged_in(poolhouse, "one", "1")
    assert line(client.say(command("CLIENT", "NO-EVICT", "ON"))) == b"+OK\r\n"
    blocked = next(int(one["id"]) for one in direct.client_list() if "b" in one["flags"])
    long = "x" * 20_000
    for words in [*REFUSED, ("CLIENT", "UNBLOCK", blocked, "ERROR")]:
        asked = command("ECHO", "a") + command(*words) + command("SET", "k", long) + command("STRLEN", "k")
        typed = (" ".join(map(str, words)) + "\r\n").encode()
        expected = [b"$1\r\n", b"a\r\n", b"-ERR unknown command '", b"+OK\r\n", b":20000\r\n", b"-ERR unknown command '"]
        # In one piece, and in pieces that end within words.
        for pieces in ([asked + typed], [asked[:31], asked[31:60], asked[60:9000], asked[9000:], typed[:3], typed[3:]]):
            for piece in pieces:
                client.say(piece)
            for wanted in expected:
                heard = line(client)
                assert heard.startswith(wanted) and (wanted[:1] != b"-" or b"Poolhouse" in heard), (words, heard)
    # Commands about the client itself pass.
    for words, said in ((("CLIENT", "SETNAME", "mine"), b"+OK\r\n"), (("SELECT", 1), b"+OK\r\n"), (("CLIENT", "CACHING", "x"), b"-ERR"), (("QUIT",), b"+OK\r\n")):
        assert line(client.say(command(*words))).startswith(said), words
    direct.rpush("jobs", "done")
    assert line(other) == b"*2\r\n", "it was not ended"
    assert line(transaction.say(command("EXEC"))) == b"*0\r\n"


def test_a_transaction_makes_no_other_user_of_a_client(shared_login):
    for words in (("AUTH", "guess"), ("HELLO", "3", "AUTH", "default", "guess")):
        client = logged_in(shared_login, "one", "1").say(command("MULTI"), command(*words), command("EXEC"), command("ECHO", "a"))
        assert line(client) == b"+OK\r\n"
        assert line(client).startswith(b"-ERR unknown command '" + words[0].encode())
        assert line(client).startswith(b"-EXECABORT")
        assert line(client) == b"$1\r\n"


def test_what_is_no_command_ends_the_connection_in_its_turn(pool):
    for wrong in (b"*1\r\n!3\r\n", b'ECHO "a\r\n', b"*x\r\n"):
        client = Raw(pool()).say(command("CLIENT", "NO-EVICT", "ON"), command("ECHO", "abc"), wrong, command("ECHO", "late"))
        assert client.hear(100_000).startswith(b"+OK\r\n$3\r\nabc\r\n-ERR Protocol error")


def test_a_logged_in_client_guesses_no_faster_than_others(shared_login):
    poolhouse = shared_login
    clients = [logged_in(poolhouse, "one", "1") for _ in range(32)]
    # Some clients execute something first, some log in again first.
    before = [b"", command("ECHO", "a"), command("RESET")]
    began = time.monotonic()
    for number, client in enumerate(clients):
        guess = command("AUTH", "two", "guess") if number % 2 else command("HELLO", 2, "AUTH", "two", "guess")
        client.say(before[number % 3], guess)
    for client in clients:
        assert b"-WRONGPASS" in client.hear(100_000)
    assert time.monotonic() - began > 1.5, "32 guesses were answered at once"
    assert poolhouse.metric("poolhouse_auth_failures_total") == 32
    # A right password is checked in its turn, and may be sent as often as the client likes.
    client = logged_in(poolhouse, "one", "1")
    for user, password in (("two", "2"), ("one", "1"), ("two", "2")):
        assert line(client.say(command("AUTH", user, password))) == b"+OK\r\n"


def test_a_connection_that_was_named_for_unblocking_serves_no_other_client(pool, server):
    """Redis may receive late the order to unblock the client of this connection: by then that must not be another
    client."""
    poolhouse, direct = pool(), server.connect()
    blocked, other = Raw(poolhouse), poolhouse.connect()
    number = int(line(blocked.say(command("CLIENT", "ID")))[1:])
    blocked.say(command("BLPOP", "nothing", 0))
    eventually("it blocks", lambda: direct.info("clients")["blocked_clients"] == 1)
    connection = next(int(one["id"]) for one in direct.client_list() if "b" in one["flags"])
    eventually("it is let go", lambda: other.execute_command("CLIENT", "UNBLOCK", number) == 1)
    assert blocked.hear(5) == b"*-1\r\n"
    eventually("its connection is gone", lambda: connection not in [int(one["id"]) for one in direct.client_list()])
    assert line(blocked.say(command("ECHO", "a"))) == b"$1\r\n"
