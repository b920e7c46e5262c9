"""Fixtures for Poolhouse serving Redis over HTTP, and clients of it."""

import asyncio
import base64
import hashlib
import http.client
import json
import secrets
import ssl

import httpx
import pytest

from support.postgres_cluster import free_port

TOKEN = secrets.token_hex(32)


def hashed(token):
    """A token's hash in the format of the configuration file."""
    return "sha256:" + hashlib.sha256(token.encode()).hexdigest()


class Rest:
    """A keep-alive connection."""

    def __init__(self, port, token=TOKEN, tls=None, timeout=10):
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        more = {"context": ssl.create_default_context(cafile=str(tls))} if tls else {}
        self.http = kind("localhost" if tls else "127.0.0.1", port, timeout=timeout, **more)
        self.token = token

    def ask(self, method, target, body=None, **fields):
        """Status, body and header fields."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        headers |= {name.replace("_", "-"): value for name, value in fields.items()}
        self.http.request(method, target, body, headers)
        answer = self.http.getresponse()
        return answer.status, answer.read(), answer.headers

    def post(self, target, body, **fields):
        """Sends a JSON body: the status and the parsed answer."""
        status, answer, _ = self.ask("POST", target, json.dumps(body), **fields)
        return status, json.loads(answer)

    def command(self, *words):
        """The result of one command."""
        status, answer = self.post("/", list(words))
        assert status == 200, answer
        return answer["result"]

    def close(self):
        self.http.close()


def ask(poolhouse, talk, tls=None):
    """Runs `talk(client)` with a client that has one HTTP/2 connection, with prior knowledge or agreed on in TLS."""

    async def run():
        verify = ssl.create_default_context(cafile=str(tls)) if tls else True
        base = f"https://localhost:{poolhouse.http}" if tls else f"http://127.0.0.1:{poolhouse.http}"
        async with httpx.AsyncClient(http1=bool(tls), http2=True, verify=verify, base_url=base, timeout=10, limits=httpx.Limits(max_connections=1),
                                     headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            return await talk(client)

    return asyncio.run(run())


def decoded(value):
    """A result whose texts are in base64."""
    if isinstance(value, str):
        return base64.b64decode(value)
    return [decoded(one) for one in value] if isinstance(value, list) else value


def file_with(server, tokens, listener="", more=""):
    """A configuration with a listener for HTTP at HTTPPORT and one for Redis's protocol at PORT. `Pool.start_with`
    waits for the latter."""
    return (f'[[listener]]\nprotocol = "http"\nlisten = "127.0.0.1:HTTPPORT"\n{listener}'
            f'[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n'
            f'[[database]]\nurl = "{server.url()}"\nmax_size = 8\n{more}{tokens}')


@pytest.fixture
def rest(pool, server):
    """Starts a Poolhouse with an HTTP listener; `rest(...).http` is its port."""

    def start(behind=server, tokens=f'[[token]]\nname = "app"\nhash = "{hashed(TOKEN)}"\n', listener="", more=""):
        port = free_port()
        made = pool(behind=behind, file=file_with(behind, tokens, listener, more).replace("HTTPPORT", str(port)))
        made.http = port
        return made

    return start
