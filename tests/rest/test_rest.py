"""Redis over HTTP: the contract, tokens, limits, and what happens when something fails."""

import base64
import json
import signal
import socket
import ssl
import threading
import time

import pytest

from support.redis_fixtures import own_redis, pool, server, talk
from support.rest_fixtures import TOKEN, Rest, decoded, hashed, rest
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

BEARER = f"Authorization: Bearer {TOKEN}\r\n"


@pytest.mark.quick
def test_commands_come_as_a_body_a_path_or_both(rest):
    ask = Rest(rest().http)
    assert ask.post("/", ["SET", "a", "b c", "EX", 100]) == (200, {"result": "OK"})
    for method, target, body, result in [
        ("GET", "/get/a", None, "b c"),
        ("GET", "/set/k%2F1/v%20%C3%A9?EX=100", None, "OK"),
        ("GET", "/get/k%2F1", None, "v é"),
        ("POST", "/set/raw?EX=100", "the body, as it is: é \"", "OK"),
        ("GET", "/get/raw", None, "the body, as it is: é \""),
        ("PUT", "/ttl/raw", None, 100),
        ("GET", "/get/none", None, None),
        ("POST", "/", '["MGET","a","none"]', ["b c", None]),
        ("GET", "/ping", None, "PONG"),
    ]:
        status, answer, _ = ask.ask(method, target, body and body.encode())
        assert (status, json.loads(answer)) == (200, {"result": result}), target


def test_errors_are_answers(rest):
    ask = Rest(rest().http)
    for method, target, body, status, part in [
        ("POST", "/", '["INCR","text"]', 400, "not an integer"),
        ("POST", "/", '["NOSUCH"]', 400, "unknown command"),
        ("POST", "/", "{", 400, "JSON"),
        ("POST", "/", "[]", 400, "empty command"),
        ("POST", "/", '["BLPOP","a",0]', 400, "may wait"),
        ("POST", "/", '["SELECT",1]', 400, "connection"),
        ("POST", "/", '["SUBSCRIBE","a"]', 400, "/subscribe"),
        ("POST", "/pipeline", "[]", 400, "between 1 and"),
        ("GET", "/", None, 400, "JSON array"),
        ("DELETE", "/get/a", None, 405, "use GET"),
    ]:
        ask.command("SET", "text", "x")
        got, answer, _ = ask.ask(method, target, body)
        assert got == status and part in json.loads(answer)["error"], (target, body, answer)
        assert ask.command("PING") == "PONG"


def test_a_pipeline_has_a_result_for_each_command(rest):
    ask = Rest(rest().http)
    status, answer = ask.post("/pipeline", [["SET", "n", 1], ["INCR", "n"], ["WATCH", "n"], ["NOSUCH"], ["GET", "n"]])
    assert status == 200 and answer[0] == {"result": "OK"} and answer[1] == {"result": 2} and answer[4] == {"result": "2"}
    assert "connection ends" in answer[2]["error"] and "unknown command" in answer[3]["error"]
    # More than are sent at a time.
    status, answer = ask.post("/pipeline", [["INCR", "n"]] * 5000)
    assert [one["result"] for one in answer] == list(range(3, 5003))


def test_a_transaction_is_one_and_on_one_connection(rest):
    poolhouse = rest()
    ask = Rest(poolhouse.http)
    assert ask.post("/multi-exec", [["SET", "n", 1], ["INCR", "n"], ["LPUSH", "n", "x"]])[1][1] == {"result": 2}
    assert "WRONGTYPE" in ask.post("/multi-exec", [["LPUSH", "n", "x"]])[1][0]["error"]
    for wrong in (["NOSUCH"], ["BLPOP", "a", 0], ["GET"]):
        status, answer = ask.post("/multi-exec", [["INCR", "n"], wrong])
        assert status == 400 and answer["error"].startswith("EXECABORT"), answer
    assert ask.command("GET", "n") == "2"
    problems = []

    def step():
        mine = Rest(poolhouse.http)
        for _ in range(100):
            _, answer = mine.post("/multi-exec", [["INCR", "n"], ["INCR", "m"], ["GET", "n"]])
            if answer[0]["result"] != int(answer[2]["result"]):
                problems.append(answer)

    threads = [threading.Thread(target=step) for _ in range(10)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not problems and ask.command("MGET", "n", "m") == ["1002", "1000"]


def test_results_may_be_in_base64_or_as_redis_wrote_them(rest, server):
    ask = Rest(rest().http)
    every = bytes(range(256))
    server.connect().set("bytes", every)
    _, answer = ask.post("/", ["MGET", "bytes", "none"], Upstash_Encoding="base64")
    assert decoded(answer["result"]) == [every, None]
    _, answer = ask.post("/pipeline", [["SET", "a", "1"], ["INCR", "a"], ["NOSUCH"]], Upstash_Encoding="base64")
    assert answer[0] == {"result": "T0s="} and answer[1] == {"result": 2} and "unknown" in answer[2]["error"]
    status, answer, fields = ask.ask("POST", "/", '["MGET","bytes","none"]', Upstash_Response_Format="resp2")
    assert (status, answer) == (200, b"*2\r\n$256\r\n" + every + b"\r\n$-1\r\n")
    assert fields["Content-Type"] == "application/octet-stream"
    status, answer, _ = ask.ask("POST", "/multi-exec", '[["PING"]]', Upstash_Response_Format="resp2")
    assert status == 400
    ask.close()
    status, answer, _ = ask.ask("POST", "/", '["PING"]', Upstash_Response_Format="resp2", Upstash_Encoding="base64")
    assert status == 400


def test_the_sync_token_changes_with_writes(rest):
    ask = Rest(rest().http)
    token = lambda *words: ask.ask("POST", "/", json.dumps(words))[2]["Upstash-Sync-Token"]
    first = token("SET", "a", "1")
    assert token("GET", "a") == first and token("SET", "a", "2") != first


def test_what_is_large_comes_and_goes_in_pieces(rest):
    poolhouse = rest()
    ask = Rest(poolhouse.http)
    large = "x" * 5_000_000
    assert ask.command("SET", "large", large) == "OK" and ask.command("GET", "large") == large
    pieces = (piece.encode() for piece in ('["SE', 'T","chun', 'ked",', '"é"]'))
    # Without a length the body is sent as chunks.
    status, answer, _ = ask.ask("POST", "/", pieces)
    assert json.loads(answer) == {"result": "OK"} and ask.command("GET", "chunked") == "é"
    status, answer, _ = ask.ask("POST", "/set/large", b"x" * 10_485_761)
    assert status == 413 and b"max_request" in answer
    request = f"POST / HTTP/1.1\r\n{BEARER}Content-Length: 8\r\nConnection: close\r\n\r\n[\"PING\"]".encode()
    with socket.create_connection(("127.0.0.1", poolhouse.http)) as slow:
        for byte in request:
            slow.sendall(bytes([byte]))
        assert slow.makefile("rb").read().endswith(b'{"result":"PONG"}')
    waits = f"POST / HTTP/1.1\r\n{BEARER}Content-Length: 8\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", poolhouse.http)) as slow:
        slow.sendall(waits)
        assert slow.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        slow.sendall(b'["PING"]')
        assert b"PONG" in slow.makefile("rb").read()


@pytest.mark.timing
def test_a_pipeline_may_have_more_bytes_than_redis_takes_at_a_time(rest, server):
    """The data that waits for one connection is bounded, so the rest of a request waits for the replies to its
    beginning."""
    client = Rest(rest(listener="max_request = 300000000\n").http, timeout=60)
    status, answer, _ = client.ask("POST", "/pipeline", b"[%s]" % b",".join([b'["APPEND","a","%s"]' % (b"x" * 8_000_000)] * 30))
    assert (status, json.loads(answer)) == (200, [{"result": (number + 1) * 8_000_000} for number in range(30)])
    server.connect().delete("a")


def test_requests_may_follow_each_other_without_waiting(rest):
    poolhouse = rest()
    one = lambda n, more="": f"GET /incrby/n/{n} HTTP/1.1\r\n{BEARER}{more}\r\n".encode()
    answers = talk(poolhouse.http, b"".join(one(1) for _ in range(99)) + one(1, "Connection: close\r\n"))
    bodies = [part.split(b"\r\n\r\n")[1] for part in answers.split(b"HTTP/1.1 200 OK")[1:]]
    assert bodies == [b'{"result":%d}' % n for n in range(1, 101)]


@pytest.mark.parametrize(("data", "status"), [
    (b"PING\r\n\r\n", b"400"),
    (b"*1\r\n$4\r\nPING\r\n", b"400"),
    (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n", b"431"),
    (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n", b"431"),
    (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
    (f"POST / HTTP/1.1\r\n{BEARER}Transfer-Encoding: chunked\r\n\r\nzz\r\n".encode(), b"400"),
    (f"POST / HTTP/1.1\r\n{BEARER}Content-Length: 99999999999999999999\r\n\r\n".encode(), b"400"),
])
def test_what_is_no_request_is_answered_and_ends(rest, data, status):
    poolhouse = rest()
    assert talk(poolhouse.http, data).startswith(b"HTTP/1.1 " + status)
    assert Rest(poolhouse.http).command("PING") == "PONG"


def test_http_at_redis_and_redis_at_http_are_told_apart(rest):
    poolhouse = rest()
    assert b"HTTP" in talk(poolhouse.port, b"POST / HTTP/1.1\r\n\r\n")
    assert poolhouse.connect().ping()


def test_pages_may_ask_if_they_are_listed(rest):
    ask = Rest(rest(listener='origins = ["https://shop.example"]\n').http)
    for origin, allowed in (("https://shop.example", "https://shop.example"), ("https://evil.example", None)):
        status, answer, fields = ask.ask("OPTIONS", "/pipeline", Origin=origin, Access_Control_Request_Method="POST")
        assert status == 204 and answer == b"" and fields["Access-Control-Allow-Origin"] == allowed
        assert ("authorization" in (fields["Access-Control-Allow-Headers"] or "")) == bool(allowed)
        status, _, fields = ask.ask("GET", "/ping", Origin=origin)
        assert status == 200 and fields["Access-Control-Allow-Origin"] == allowed
    anybody = Rest(rest(listener='origins = ["*"]\n').http)
    assert anybody.ask("GET", "/ping", Origin="https://a")[2]["Access-Control-Allow-Origin"] == "*"


# -- tokens


def test_a_token_is_needed_and_may_do_what_its_rules_say(rest):
    tokens = (f'[[token]]\nname = "all"\nhash = "{hashed(TOKEN)}"\n'
              f'[[token]]\nname = "reader"\ntoken = "{"r" * 32}"\nread_only = true\ndatabase = 3\n'
              f'[[token]]\nname = "few"\ntoken = "{"f" * 32}"\nallow = ["get", "script load"]\ndeny = ["GET"]\n')
    poolhouse = rest(tokens=tokens, listener="token_in_query = true\n")
    everything, reader, few = Rest(poolhouse.http), Rest(poolhouse.http, "r" * 32), Rest(poolhouse.http, "f" * 32)
    assert everything.command("SET", "a", "1") == "OK"
    # It is in another logical database.
    assert reader.command("GET", "a") is None and reader.command("DBSIZE") == 0
    for words in (["SET", "a", "1"], ["EVAL", "return 1", 0], ["FLUSHALL"]):
        status, answer = reader.post("/", words)
        assert status == 400 and answer["error"].startswith("NOPERM"), answer
    assert few.post("/pipeline", [["SCRIPT", "LOAD", "return 1"], ["GET", "a"], ["SET", "a", 1]])[1][0]["result"]
    assert all("NOPERM" in one["error"] for one in few.post("/pipeline", [["GET", "a"], ["SET", "a", 1]])[1])
    assert Rest(poolhouse.http, None).ask("GET", f"/get/a?_token={TOKEN}")[0] == 200
    for token in (None, "wrong", TOKEN[:-1], TOKEN + "x"):
        status, answer, fields = Rest(poolhouse.http, token).ask("GET", "/get/a")
        assert status == 401 and "Unauthorized" in json.loads(answer)["error"] and fields["WWW-Authenticate"] == "Bearer"
    assert TOKEN not in poolhouse.log() and "rrrr" not in poolhouse.log()


def test_a_token_in_the_url_is_taken_only_where_that_is_switched_on(rest):
    status, answer, _ = Rest(rest().http, None).ask("GET", f"/get/a?_token={TOKEN}")
    assert status == 401 and b"logs" in answer


def test_a_client_that_guesses_tokens_is_slowed_down(rest):
    poolhouse = rest(more="[serve]\nmax_auth_failures = 3\n")
    for _ in range(3):
        assert Rest(poolhouse.http, "x" * 32).ask("GET", "/ping")[0] == 401
    begin = time.monotonic()
    assert Rest(poolhouse.http, "x" * 32).ask("GET", "/ping")[0] == 401
    # Only the answers to wrong tokens are late; others are not delayed.
    assert time.monotonic() - begin > 0.9
    assert Rest(poolhouse.http).command("PING") == "PONG"


def test_a_question_for_permission_is_never_a_command(rest, server):
    poolhouse = rest()
    for target, length in (("/set/key/value", 0), ("/set/key", 5)):
        status, body, _ = Rest(poolhouse.http).ask("OPTIONS", target, b"x" * length)
        assert (status, body) == (204, b"")
    assert server.connect().get("key") is None
    assert Rest(poolhouse.http).ask("HEAD", "/subscribe/c")[0] == 405


def test_a_result_that_would_be_too_large_as_json_is_refused(rest, server):
    poolhouse = rest()
    server.connect().setrange("nulls", 22_500_000, "x")
    server.connect().set("text", "x" * 22_500_000)
    ask = Rest(poolhouse.http)
    status, body, _ = ask.ask("GET", "/get/nulls")
    assert status == 507 and b"was executed, but its results were dropped, because they have more than" in body
    assert len(ask.command("GET", "text")) == 22_500_000
    status, body, _ = ask.ask("GET", "/get/nulls", Upstash_Encoding="base64")
    assert status == 200 and len(base64.b64decode(json.loads(body)["result"])) == 22_500_001


def test_a_rate_limit_counts_commands(rest):
    poolhouse = rest(tokens=f'[[token]]\nname = "app"\nhash = "{hashed(TOKEN)}"\nrate_limit = 2\n')
    ask = Rest(poolhouse.http)
    assert ask.post("/pipeline", [["PING"]] * 2)[0] == 200
    status, answer, fields = ask.ask("GET", "/ping")
    assert status == 429 and "rate_limit" in json.loads(answer)["error"] and fields["Retry-After"] == "1"
    eventually("room for a command", lambda: ask.ask("GET", "/ping")[0] == 200)


@pytest.mark.parametrize("listener", ["http", "port"])
def test_the_log_names_a_client_that_speaks_tls_where_it_is_off(rest, listener):
    poolhouse = rest()
    with socket.create_connection(("127.0.0.1", getattr(poolhouse, listener)), 10) as plain, pytest.raises(ssl.SSLError):
        ssl._create_unverified_context().wrap_socket(plain)
    eventually("the log says so", lambda: "a TLS handshake, and TLS is off here: see `tls` of the [[listener]]" in poolhouse.log())


@pytest.mark.parametrize("path", ["/pipeline", "/multi-exec"])
def test_what_a_rate_limit_never_allows_is_refused_whole_and_locks_no_other_out(rest, path):
    ask = Rest(rest(tokens=f'[[token]]\nname = "app"\nhash = "{hashed(TOKEN)}"\nrate_limit = 5\n').http)
    status, answer, fields = ask.ask("POST", path, json.dumps([["INCR", "counted"]] * 50_000).encode())
    error = json.loads(answer)["error"]
    assert status == 400 and "50000 commands" in error and "rate_limit = 5" in error and "send 5 at most" in error, error
    assert "Retry-After" not in fields
    # The token still has its whole burst, and none of the commands was executed.
    status, results = ask.post(path, [["PING"]] * 4 + [["GET", "counted"]])
    assert status == 200 and results[-1] == {"result": None}, results


def test_a_token_asks_as_a_user(rest, workspace):
    users = own_redis(workspace, "users").start()
    try:
        users.connect().execute_command("ACL", "SETUSER", "bob", "on", ">build", "~*", "+@read", "+hello", "+ping", "+acl|whoami")
        more = '[[user]]\nname = "bob"\npassword = "build"\n'
        poolhouse = rest(behind=users, more=more, tokens=f'[[token]]\nname = "app"\nhash = "{hashed(TOKEN)}"\nuser = "bob"\n')
        ask = Rest(poolhouse.http)
        assert ask.command("ACL", "WHOAMI") == "bob"
        assert ask.post("/", ["SET", "a", 1])[1]["error"].startswith("NOPERM")
        # Redis itself refuses a command in the middle of a transaction.
        status, answer = ask.post("/multi-exec", [["GET", "a"], ["SET", "a", 1]])
        assert status == 400 and "NOPERM" in answer["error"]
    finally:
        users.stop()


def test_tokens_come_and_go_with_a_reload(rest, server):
    poolhouse = rest()
    ask = Rest(poolhouse.http)
    assert ask.command("PING") == "PONG"
    poolhouse.path.write_text(poolhouse.path.read_text().replace(hashed(TOKEN), hashed("n" * 32)))
    assert poolhouse.post("/api/reload")[0] == 200
    assert ask.ask("GET", "/ping")[0] == 401
    assert Rest(poolhouse.http, "n" * 32).command("PING") == "PONG"


# -- limits and faults


def test_many_clients_share_few_servers_and_hear_their_own(rest):
    poolhouse = rest()
    wrong = []

    def client(number):
        mine = Rest(poolhouse.http)
        for step in range(20):
            echo = f"{number}/{step}"
            if mine.command("ECHO", echo) != echo or mine.command("INCR", f"n{number}") != step + 1:
                wrong.append(echo)
        mine.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(200)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert not wrong
    assert poolhouse.metric("poolhouse_servers_created_total") <= 8


def test_at_the_hard_limit_a_request_is_told_to_come_later(rest):
    poolhouse = rest(listener='soft_limit = 2\nhard_limit = 2\nnewcomer_wait_time = "100ms"\n')
    here = [Rest(poolhouse.http) for _ in range(2)]
    assert [one.command("PING") for one in here] == ["PONG"] * 2
    status, answer, fields = Rest(poolhouse.http).ask("GET", "/ping")
    assert status == 503 and b"max number of clients" in answer and fields["Retry-After"]


def test_the_idle_are_evicted_between_requests(rest):
    poolhouse = rest(listener='soft_limit = 2\nhard_limit = 10\nevict_min_idle = "1ms"\n')
    here = [Rest(poolhouse.http) for _ in range(3)]
    for one in here:
        assert one.command("PING") == "PONG"
        time.sleep(0.05)
    # The first client's connection is closed without an answer, and the client connects again.
    eventually("one is evicted", lambda: poolhouse.metric("poolhouse_client_evictions_total") >= 1)
    here[0].close()
    assert here[0].command("PING") == "PONG"


@pytest.mark.timing
def test_a_lost_server_is_an_error_and_the_next_request_works(rest, workspace):
    lost = own_redis(workspace, "lost").start()
    poolhouse = rest(behind=lost, more='unavailable_wait_time = "500ms"\n')
    ask = Rest(poolhouse.http)
    assert ask.command("PING") == "PONG"
    lost.process.send_signal(signal.SIGSTOP)
    answers = []
    asks = [("/", ["INCR", "n"]), ("/pipeline", [["INCR", "n"], ["BLPOP"], ["GET", "n"]]), ("/multi-exec", [["INCR", "n"]])]
    threads = [threading.Thread(target=lambda it=it: answers.append(Rest(poolhouse.http).post(*it))) for it in asks]
    [thread.start() for thread in threads]
    eventually("they wait", lambda: poolhouse.metric("poolhouse_clients", state="active") + poolhouse.metric("poolhouse_clients", state="waiting") == 3)
    time.sleep(0.2)
    lost.process.kill()
    lost.process.wait()
    [thread.join() for thread in threads]
    for status, answer in answers:
        told = json.dumps(answer)
        assert status in (200, 502, 503) and "Poolhouse" in told, answer
    assert Rest(poolhouse.http).post("/", ["PING"])[0] == 503
    lost.start()
    assert eventually("it is back", lambda: Rest(poolhouse.http).post("/", ["PING"])[0] == 200)
    lost.stop()


def test_a_request_that_takes_too_long_is_told_so(rest, workspace):
    frozen = own_redis(workspace, "frozen").start()
    try:
        poolhouse = rest(behind=frozen, more='query_time = "2s"\n')
        ask = Rest(poolhouse.http)
        assert ask.command("PING") == "PONG"
        frozen.process.send_signal(signal.SIGSTOP)
        status, answer, _ = ask.ask("GET", "/ping")
        assert status == 504 and b"query_time" in answer
    finally:
        frozen.process.send_signal(signal.SIGCONT)
        frozen.stop()


def test_it_works_in_tls(rest, certificates):
    pair, authority = certificates.server, certificates.authority.certificate
    poolhouse = rest(listener=f'tls = "require"\ntls_cert = "{pair.certificate}"\ntls_key = "{pair.key}"\n')
    assert Rest(poolhouse.http, tls=authority).command("PING") == "PONG"
    assert b"TLS" in talk(poolhouse.http, b"GET /ping HTTP/1.1\r\n\r\n")


# -- messages


def test_messages_come_as_events(rest, server):
    poolhouse = rest()
    heard = []
    for target in ("/subscribe/news/more", "/psubscribe/n*"):
        connection = socket.create_connection(("127.0.0.1", poolhouse.http), 5)
        connection.sendall(f"GET {target} HTTP/1.1\r\n{BEARER}\r\n".encode())
        heard.append((connection, connection.makefile("rb")))
    lines = [stream for _, stream in heard]
    for stream in lines:
        assert stream.readline() == b"HTTP/1.1 200 OK\r\n"
        while (line := stream.readline()) != b"\r\n":
            assert not line.lower().startswith(b"content-length")
    event = lambda stream: (stream.readline(), stream.readline())[0].rstrip()
    assert [event(lines[0]), event(lines[0])] == [b"data: subscribe,news,1", b"data: subscribe,more,2"]
    assert event(lines[1]) == b"data: psubscribe,n*,1"
    Rest(poolhouse.http).command("PUBLISH", "news", "hello, you")
    assert event(lines[0]) == b"data: message,news,hello, you" and event(lines[1]) == b"data: pmessage,n*,news,hello, you"
    for connection, stream in heard:
        stream.close()
        connection.close()
    eventually("they are gone", lambda: server.connect().pubsub_numsub("news") == [(b"news", 0)])


def test_a_transaction_that_may_not_begin_changes_nothing(rest, workspace):
    users = own_redis(workspace, "users").start()
    try:
        users.connect().execute_command("ACL", "SETUSER", "eve", "on", ">build", "~*", "+@all", "-multi")
        more = '[[user]]\nname = "eve"\npassword = "build"\n'
        poolhouse = rest(behind=users, more=more, tokens=f'[[token]]\nname = "app"\nhash = "{hashed(TOKEN)}"\nuser = "eve"\n')
        client = Rest(poolhouse.http)
        status, answer = client.post("/multi-exec", [["SET", "a", 1], ["INCR", "n"]])
        assert status == 400 and "NOPERM" in answer["error"] and "EXECABORT" in answer["error"]
        assert client.command("EXISTS", "a", "n") == 0
        users.connect().execute_command("ACL", "SETUSER", "eve", "+multi")
        assert client.post("/multi-exec", [["SET", "a", 1], ["INCR", "n"]]) == (200, [{"result": "OK"}, {"result": 1}])
    finally:
        users.stop()


def test_heads_that_others_may_read_differently_are_refused(rest):
    poolhouse = rest()
    head = f"Authorization: Bearer {TOKEN}\r\n"
    for data in (f"POST / HTTP/1.0\r\n{head}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", f"GET /ping HTTP/1.1\n{head}\r\n", f"GET /ping HTTP/1.1\r\n{head}\n"):
        assert talk(poolhouse.http, data.encode()).startswith(b"HTTP/1.1 400 "), data
