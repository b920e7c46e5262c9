"""PostgreSQL's wire protocol by hand, for what no driver would send. It checks what it receives, and knows no pooler.
"""

import base64
import hashlib
import hmac
import os
import select
import socket
import struct
import time

PROTOCOL_3_0 = 3 << 16
PROTOCOL_3_2 = (3 << 16) | 2
SSL_REQUEST = (1234 << 16) | 5679
GSSENC_REQUEST = (1234 << 16) | 5680
CANCEL_REQUEST = (1234 << 16) | 5678


class Closed(Exception):
    """The other side has closed the connection."""


class ServerError(Exception):
    """An ErrorResponse, with its fields by letter."""

    def __init__(self, fields):
        super().__init__(f"{fields.get('S')} {fields.get('C')}: {fields.get('M')}")
        self.fields = fields
        self.severity, self.sqlstate, self.text = fields.get("S"), fields.get("C"), fields.get("M", "")


def message(kind, body=b""):
    return kind + struct.pack("!I", len(body) + 4) + body


def cstr(text):
    return text.encode() + b"\0"


def startup(version=PROTOCOL_3_0, **parameters):
    body = struct.pack("!I", version) + b"".join(cstr(k) + cstr(v) for k, v in parameters.items()) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def request(code, body=b""):
    """A message without a type: SSLRequest, GSSENCRequest, CancelRequest."""
    return struct.pack("!II", len(body) + 8, code) + body


def query(sql):
    return message(b"Q", cstr(sql))


def parse(sql, name="", types=()):
    return message(b"P", cstr(name) + cstr(sql) + struct.pack(f"!H{len(types)}I", len(types), *types))


def bind(values=(), portal="", name=""):
    body = cstr(portal) + cstr(name) + struct.pack("!HH", 0, len(values))
    for value in values:
        data = str(value).encode()
        body += struct.pack("!I", len(data)) + data
    return message(b"B", body + struct.pack("!H", 0))


def describe_portal(portal=""):
    return message(b"D", b"P" + cstr(portal))


def execute(portal="", rows=0):
    return message(b"E", cstr(portal) + struct.pack("!I", rows))


SYNC, FLUSH, TERMINATE = message(b"S"), message(b"H"), message(b"X")
COPY_DONE = message(b"c")


def copy_data(data):
    return message(b"d", data)


def copy_fail(why):
    return message(b"f", cstr(why))


def error_fields(body):
    return {part[:1].decode(): part[1:].decode(errors="replace") for part in body.split(b"\0") if part}


def row(body):
    """The values of a DataRow, as text."""
    count, at, values = struct.unpack_from("!H", body)[0], 2, []
    for _ in range(count):
        (length,) = struct.unpack_from("!i", body, at)
        at += 4
        if length < 0:
            values.append(None)
        else:
            values.append(body[at : at + length].decode())
            at += length
    return values


class Wire:
    """A raw connection. Every wait has a limit."""

    def __init__(self, address, timeout=10):
        """`address` is a port of 127.0.0.1 or the path of a Unix socket."""
        if isinstance(address, int):
            self.socket = socket.create_connection(("127.0.0.1", address), timeout)
            # libpq sets this, too.
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        else:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(str(address))
        self.buffer = bytearray()
        self.parameters, self.notices, self.key = {}, [], None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def vanish(self):
        """Closes with a reset, as a killed container's connection ends: data in flight is lost."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def receive(self, count):
        """Reads exactly `count` bytes."""
        while len(self.buffer) < count:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                raise Closed(f"closed with {len(self.buffer)} bytes of {count}")
            self.buffer += data
        taken = bytes(self.buffer[:count])
        del self.buffer[:count]
        return taken

    def message(self):
        """The next message as (type, body)."""
        kind = self.receive(1)
        (length,) = struct.unpack("!I", self.receive(4))
        assert 4 <= length < 1 << 30, f"a message of type {kind} claims {length} bytes"
        return kind, self.receive(length - 4)

    def take(self):
        """The next message that is an answer. Parameters, notices and keys are stored."""
        while True:
            kind, body = self.message()
            if kind == b"S":
                name, value = body[:-1].split(b"\0")
                self.parameters[name.decode()] = value.decode()
            elif kind == b"N":
                self.notices.append(error_fields(body))
            elif kind == b"K":
                self.key = body
            else:
                return kind, body

    def expect(self, *kinds):
        """The body of the next answer, which must have one of these types."""
        kind, body = self.take()
        if kind == b"E" and b"E" not in kinds:
            raise ServerError(error_fields(body))
        assert kind in kinds, f"got {kind} {body[:60]!r}, expected one of {kinds}"
        return body

    def error(self):
        """The next answer, which must be an error."""
        return ServerError(error_fields(self.expect(b"E")))

    def until_ready(self):
        """Answers up to ReadyForQuery: (list of (type, body), transaction status). Errors are in the list, except one
        that ends the connection, which is raised."""
        answers = []
        while True:
            try:
                kind, body = self.take()
            except Closed:
                if answers and answers[-1][0] == b"E":
                    raise ServerError(error_fields(answers[-1][1])) from None
                raise
            if kind == b"Z":
                return answers, body.decode()
            answers.append((kind, body))

    def query(self, sql):
        """The rows of a simple query. Raises its error after ReadyForQuery."""
        self.send(query(sql))
        return self.rows()

    def rows(self):
        answers, self.status = self.until_ready()
        for kind, body in answers:
            if kind == b"E":
                raise ServerError(error_fields(body))
        return [row(body) for kind, body in answers if kind == b"D"]

    def closed_within(self, seconds):
        """Whether the other side closes the connection within `seconds`. What it still sends is discarded."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.socket], [], [], left)[0]:
                try:
                    if not self.socket.recv(65536):
                        return True
                except OSError:
                    return True
        return False

    def login(self, user, password=None, database="bench", version=PROTOCOL_3_0, **parameters):
        """Start-up and authentication with the method that the other side asks for."""
        self.send(startup(version, user=user, database=database, **parameters))
        self.authenticate(user, password)
        answers, status = self.until_ready()
        for kind, body in answers:
            if kind == b"E":
                raise ServerError(error_fields(body))
        assert status == "I", f"status {status} after login"
        return self

    def authenticate(self, user, password):
        while True:
            kind, body = self.take()
            if kind == b"v":
                self.negotiated = body
                continue
            if kind == b"E":
                raise ServerError(error_fields(body))
            assert kind == b"R", f"got {kind} during authentication"
            (code,) = struct.unpack_from("!I", body)
            if code == 0:
                return
            if code == 3:
                self.send(message(b"p", cstr(password)))
            elif code == 5:
                inner = hashlib.md5((password + user).encode()).hexdigest()
                self.send(message(b"p", cstr("md5" + hashlib.md5(inner.encode() + body[4:8]).hexdigest())))
            elif code == 10:
                assert b"SCRAM-SHA-256\0" in body, f"no SCRAM-SHA-256 among {body!r}"
                self.scram(password)
            else:
                raise AssertionError(f"unknown authentication request {code}")

    def scram(self, password):
        nonce = base64.b64encode(os.urandom(18)).decode()
        first = f"n=,r={nonce}"
        initial = f"n,,{first}".encode()
        self.send(message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!I", len(initial)) + initial))
        body = self.expect(b"R")
        assert struct.unpack_from("!I", body)[0] == 11
        challenge = body[4:].decode()
        fields = dict(part.split("=", 1) for part in challenge.split(","))
        assert fields["r"].startswith(nonce) and len(fields["r"]) > len(nonce)
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        bare = f"c=biws,r={fields['r']}"
        signed = f"{first},{challenge},{bare}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        self.send(message(b"p", f"{bare},p={base64.b64encode(proof).decode()}".encode()))
        body = self.expect(b"R")
        assert struct.unpack_from("!I", body)[0] == 12
        server_key = hmac.digest(salted, b"Server Key", "sha256")
        expected = base64.b64encode(hmac.digest(server_key, signed, "sha256")).decode()
        assert body[4:].decode() == f"v={expected}", "the other side does not know the password"
