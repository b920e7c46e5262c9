"""A session of PostgreSQL's wire protocol for asyncio, whose answers can be compared with those of another session.

It knows only the protocol. Answers leave out what differs between any two sessions without a meaning (process ids,
object ids of tables, source lines of errors).
"""

import asyncio
import base64
import functools
import hashlib
import hmac
import os
import re
import struct

from support import postgres_wire as w

NO_TEMPORARY_TABLE = re.compile(r'table "\w+" does not exist|relation "pg_temp\.\w+" does not exist')
# A larger answer is a mistake of the test.
MAX_ANSWER = 16 << 20


class Closed(Exception):
    """The other side has closed the connection. The exception has its last error."""


@functools.lru_cache(maxsize=4096)
def salted_password(password, salt, iterations):
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)


class Session(asyncio.Protocol):
    """One connection. `ask` sends a request and returns the messages up to the last ReadyForQuery that the request
    causes."""

    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.buffer = bytearray()
        self.messages, self.left, self.future, self.lost = [], 0, None, None
        # Messages between answers: the reported settings by name, and notifications as (channel, payload).
        self.parameters, self.notifications = {}, []
        # The transaction status of the last ReadyForQuery.
        self.status = "I"
        self.logging_in, self.queue = True, asyncio.Queue()

    @classmethod
    async def connect(cls, address, user, password, database, parameters):
        """`address` is (host, port). Raises Closed with the reason if the login is refused."""
        loop = asyncio.get_running_loop()
        _, session = await loop.create_connection(cls, *address)
        session.transport.write(w.startup(user=user, database=database, **parameters))
        await session.log_in(user, password)
        return session

    async def ask(self, data, syncs):
        """The messages that answer `data`, up to and with ReadyForQuery number `syncs`."""
        if self.lost is not None:
            raise Closed(self.lost)
        # Messages that arrived since the last answer are the beginning of this one.
        self.left = syncs
        self.future = self.loop.create_future()
        self.transport.write(data)
        return await self.future

    def leave(self, politely=True):
        if politely:
            self.transport.write(w.TERMINATE)
            self.transport.close()
        else:
            self.transport.abort()

    # -- callbacks of asyncio

    def connection_made(self, transport):
        self.transport = transport

    def connection_lost(self, exception):
        last = [m for m in self.messages if m[0] == "E"][-1:]
        self.lost = f"{exception or 'end of stream'}; last error: {last}"
        if self.logging_in:
            self.queue.put_nowait((b"!", b""))
        if self.future and not self.future.done():
            self.future.set_exception(Closed(self.lost))

    def data_received(self, data):
        buffer = self.buffer
        buffer += data
        at, end = 0, len(buffer)
        while end - at >= 5:
            length = int.from_bytes(buffer[at + 1 : at + 5], "big")
            assert length < MAX_ANSWER, f"a message of {length} bytes"
            if end - at < length + 1:
                break
            kind, body = chr(buffer[at]), bytes(buffer[at + 5 : at + 1 + length])
            at += length + 1
            self.message(kind, body)
        del buffer[:at]

    def message(self, kind, body):
        if kind == "S":
            name, value = body[:-1].split(b"\0")
            self.parameters[name.decode()] = value.decode(errors="replace")
        elif kind == "A":
            self.notifications.append(tuple(body[4:-1].decode().split("\0")))
        elif self.logging_in:
            self.queue.put_nowait((kind.encode(), body))
        elif kind == "Z":
            self.status = body.decode()
            self.messages.append(("Z", self.status))
            self.left -= 1
            if self.left == 0 and not self.future.done():
                self.future.set_result(self.messages)
                self.messages = []
        elif kind in "EN":
            fields = w.error_fields(body)
            # Of a statement that means something else now, the types of its parameters are told before it is found out
            # that it means nothing any more. A pooler that has to parse it first finds out a message earlier.
            if self.messages and self.messages[-1][0] == "t" and kind == "E":
                self.messages.pop()
            self.messages.append((kind, fields.get("S"), *told(fields.get("C"), fields.get("M")), fields.get("P")))
        elif kind == "T":
            self.messages.append(("T", *columns(body)))
        elif kind == "C":
            self.messages.append(("C", body[:-1].decode()))
        else:
            self.messages.append((kind, body))

    # -- logging in

    async def log_in(self, user, password):
        while True:
            kind, body = await self.queue.get()
            if kind == b"Z":
                self.logging_in = False
                return
            if kind == b"E":
                raise Closed(w.error_fields(body))
            if kind == b"!":
                raise Closed(self.lost)
            if kind != b"R":
                continue
            (code,) = struct.unpack_from("!I", body)
            if code == 3:
                self.transport.write(w.message(b"p", w.cstr(password)))
            elif code == 5:
                inner = hashlib.md5((password + user).encode()).hexdigest()
                self.transport.write(w.message(b"p", w.cstr("md5" + hashlib.md5(inner.encode() + body[4:8]).hexdigest())))
            elif code == 10:
                await self.scram(password)

    async def scram(self, password):
        """RFC 5802 without channel binding. The server's proof is not checked, because these tests are not about it."""
        nonce = base64.b64encode(os.urandom(18)).decode()
        first = f"n=,r={nonce}"
        initial = f"n,,{first}".encode()
        self.transport.write(w.message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(initial)) + initial))
        kind, body = await self.queue.get()
        if kind != b"R":
            raise Closed(w.error_fields(body) if kind == b"E" else self.lost)
        challenge = body[4:].decode()
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        salted = salted_password(password, base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        bare = f"c=biws,r={fields['r']}"
        signature = hmac.digest(hashlib.sha256(client_key).digest(), f"{first},{challenge},{bare}".encode(), "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        self.transport.write(w.message(b"p", f"{bare},p={base64.b64encode(proof).decode()}".encode()))


def told(code, text):
    """The text of an error. A session that has never had a temporary table lacks the schema for them; one that had one
    before it was handed on still has the empty schema. That is no difference."""
    if text == 'schema "pg_temp" does not exist' or (code == "42P01" and NO_TEMPORARY_TABLE.fullmatch(text)):
        return "3F000 or 42P01", "no such temporary table"
    return code, text


def columns(body):
    """Names and types of a RowDescription. The table's object id is left out, because it differs for temporary tables.
    """
    (count,) = struct.unpack_from("!H", body)
    at = 2
    for _ in range(count):
        end = body.index(b"\0", at)
        yield body[at:end].decode(errors="replace"), struct.unpack_from("!I", body, end + 7)[0]
        at = end + 19
