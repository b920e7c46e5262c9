"""Redis over HTTP/2: many requests at a time on one connection, each with its own answer."""

import asyncio
import signal

import httpx
import pytest

from support.redis_fixtures import own_redis, pool, server
from support.rest_fixtures import TOKEN, ask, hashed, rest
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.quick
def test_requests_on_one_connection_hear_their_own(rest):
    poolhouse = rest()

    async def talk(client):
        step = lambda n: client.post("/multi-exec", json=[["INCR", "n"], ["GET", "n"]]) if n % 3 else client.get(f"/echo/{n}")
        answers = await asyncio.gather(*[step(n) for n in range(400)])
        assert {(answer.http_version, answer.status_code) for answer in answers} == {("HTTP/2", 200)}
        for n, answer in enumerate(answers):
            told = answer.json()
            assert told == {"result": str(n)} if n % 3 == 0 else told[0]["result"] == int(told[1]["result"])

    ask(poolhouse, talk)
    assert poolhouse.metric("poolhouse_clients", state="idle") <= 1


def test_everything_but_monitor_is_as_in_http_1(rest):
    async def talk(client):
        assert (await client.post("/set/large", content=b"x" * 3_000_000)).json() == {"result": "OK"}
        assert (await client.get("/get/large")).json()["result"] == "x" * 3_000_000
        assert (await client.head("/get/large")).headers["content-length"] == "3000013"
        answer = await client.post("/", json=["MGET", "none", "n"], headers={"Upstash-Encoding": "base64"})
        assert answer.json() == {"result": [None, None]} and answer.headers["upstash-sync-token"]
        for method, target, more, status in [
            ("GET", "/get/a", {"headers": {"Authorization": "Bearer wrong"}}, 401),
            ("POST", "/set/large", {"content": b"x" * 10_500_000}, 413),
            ("DELETE", "/get/a", {}, 405),
            ("POST", "/", {"content": b"{"}, 400),
            ("GET", "/monitor", {}, 501),
            ("GET", "/ping", {}, 200),
        ]:
            assert (await client.request(method, target, **more)).status_code == status, (method, target)

    ask(rest(), talk)


def test_the_version_is_agreed_on_in_tls(rest, certificates):
    pair, authority = certificates.server, certificates.authority.certificate
    poolhouse = rest(listener=f'tls = "require"\ntls_cert = "{pair.certificate}"\ntls_key = "{pair.key}"\n')

    async def talk(client):
        answer = await client.get("/ping")
        assert (answer.http_version, answer.json()) == ("HTTP/2", {"result": "PONG"})

    ask(poolhouse, talk, tls=authority)


def test_tokens_of_different_rights_may_share_a_connection(rest):
    poolhouse = rest(tokens=f'[[token]]\nname = "a"\nhash = "{hashed(TOKEN)}"\n[[token]]\nname = "b"\ntoken = "{"b" * 32}"\ndatabase = 2\n')

    async def talk(client):
        other = {"Authorization": f"Bearer {'b' * 32}"}
        both = [client.get("/incr/n", headers=other if n % 2 else None) for n in range(100)]
        answers = [answer.json()["result"] for answer in await asyncio.gather(*both)]
        assert sorted(answers[::2]) == sorted(answers[1::2]) == list(range(1, 51))

    ask(poolhouse, talk)


@pytest.mark.timing
def test_all_requests_under_way_are_told_that_the_server_is_lost(rest, workspace):
    lost = own_redis(workspace, "lost").start()
    poolhouse = rest(behind=lost, more='unavailable_wait_time = "500ms"\n')

    async def talk(client):
        assert (await client.get("/ping")).status_code == 200
        lost.process.send_signal(signal.SIGSTOP)
        asks = [asyncio.create_task(client.get(f"/incr/n{n}")) for n in range(20)]
        await asyncio.sleep(0.3)
        lost.process.kill()
        answers = await asyncio.gather(*asks)
        assert {answer.status_code for answer in answers} <= {502, 503} and all("Poolhouse" in answer.text for answer in answers)
        lost.process.wait()
        lost.start()
        for _ in range(100):
            if (await client.get("/ping")).status_code == 200:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("it does not come back")

    ask(poolhouse, talk)
    lost.stop()


# Keeps Redis busy for longer than a server is shared before it is given back: from then on it takes no more commands of
# clients that share it.
SLOW = "local t = redis.call('time'); local e = t[1] * 1000000 + t[2] + 1600000; repeat t = redis.call('time') until t[1] * 1000000 + t[2] > e; return 1"


@pytest.mark.timing
def test_what_comes_behind_a_request_that_was_held_back_waits_with_it(rest):
    poolhouse = rest()

    async def talk(client):
        asked = []
        # The transaction needs a server of its own, once the reply before it has come.
        for target, body, pause in (("/", ["EVAL_RO", SLOW, 0], 0.1), ("/multi-exec", [["INCR", "n"], ["GET", "n"]], 1.3),
                                    ("/", ["ECHO", "x"], 0.05), ("/multi-exec", [["ECHO", "y"]], 0)):
            asked.append(asyncio.create_task(client.post(target, json=body)))
            await asyncio.sleep(pause)
        assert [(await answer).json() for answer in asked] == [
            {"result": 1}, [{"result": 1}, {"result": "1"}], {"result": "x"}, [{"result": "y"}]]

    ask(poolhouse, talk)


@pytest.mark.timing
def test_a_wrong_token_is_counted_and_ends_the_connection_when_all_has_been_answered(rest):
    poolhouse = rest(more="[serve]\nmax_auth_failures = 3\n")
    wrong = {"Authorization": "Bearer " + "x" * 32}

    async def talk(client):
        slow = asyncio.create_task(client.post("/", json=["EVAL_RO", SLOW, 0]))
        await asyncio.sleep(0.2)
        assert (await client.get("/ping", headers=wrong)).status_code == 401
        assert (await client.get("/ping")).status_code == 401, "nothing more is asked here"
        assert (await slow).json() == {"result": 1}
        # The connection has ended; a new one is let in.
        assert (await client.get("/ping")).status_code == 200

    ask(poolhouse, talk)

    async def guess(client):
        for _ in range(2):
            assert (await client.get("/ping", headers=wrong)).status_code == 401
        begin = asyncio.get_running_loop().time()
        assert (await client.get("/ping", headers=wrong)).status_code == 401
        assert asyncio.get_running_loop().time() - begin > 0.9, "it is not slowed down"

    ask(poolhouse, guess)


def test_a_refused_client_is_told_why(rest):
    poolhouse = rest(listener='soft_limit = 1\nhard_limit = 1\nnewcomer_wait_time = "100ms"\n')

    async def talk(client):
        assert (await client.get("/ping")).status_code == 200

        # Without a token, too; and more than once.
        async with httpx.AsyncClient(http1=False, http2=True, base_url=str(client.base_url)) as other:
            for _ in range(2):
                answer = await other.get("/ping")
                assert answer.status_code == 503 and answer.headers["retry-after"]
        assert (await client.get("/ping")).status_code == 200

    ask(poolhouse, talk)
    eventually("no client is connected", lambda: poolhouse.metric("poolhouse_clients", state="idle") == 0)
