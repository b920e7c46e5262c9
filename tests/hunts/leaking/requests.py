"""What a client sends at once, as bytes of any encoding, with a line that a person can read in a history. Knows the
wire protocol only.
"""

import dataclasses
import struct

from support import postgres_wire as w

# Of a long text a history shows the beginning and the end.
SHOWN = 300


@dataclasses.dataclass(frozen=True)
class Request:
    """`data` causes `syncs` ReadyForQuery messages; `statements` counts what was asked for in it; `aside`: another
    client sends it.
    """

    data: bytes
    text: str
    syncs: int = 1
    statements: int = 1
    aside: bool = False

    def naming(self, placeholder, name):
        """The same with a name in the place of one as long."""
        assert len(placeholder) == len(name), f"{name} is not as long as {placeholder}"
        return dataclasses.replace(self, data=self.data.replace(encoded(placeholder), encoded(name)), text=self.text.replace(placeholder, name))

    def __add__(self, other):
        """Both sent at once."""
        return Request(self.data + other.data, f"{self.text} ++ {other.text}", self.syncs + other.syncs, self.statements + other.statements)


def encoded(text):
    return text if isinstance(text, bytes) else text.encode()


def shown(text):
    if isinstance(text, bytes):
        try:
            text = text.decode("ascii")
        except UnicodeDecodeError:
            text = repr(text)
    return text if len(text) <= SHOWN else f"{text[:SHOWN // 2]}[... {len(text)} in all ...]{text[-SHOWN // 2:]}"


def zero(text):
    return encoded(text) + b"\0"


def simple(sql):
    return Request(w.message(b"Q", zero(sql)), f"Query: {shown(sql)}")


def aside(sql):
    """The Query of another client."""
    return Request(w.message(b"Q", zero(sql)), f"another client's Query: {shown(sql)}", aside=True)


def copy_in(sql, data):
    return Request(w.message(b"Q", zero(sql)) + w.copy_data(data) + w.COPY_DONE, f"Query: {sql} << {data!r}")


def call(oid, *arguments):
    """FunctionCall with everything as text."""
    body = struct.pack("!IHH", oid, 0, len(arguments))
    for argument in arguments:
        body += struct.pack("!I", len(encoded(argument))) + encoded(argument)
    return Request(w.message(b"F", body + struct.pack("!H", 0)), f"FunctionCall {oid}({', '.join(shown(a) for a in arguments)})")


class Batch:
    """Messages of the extended protocol up to one Sync."""

    def __init__(self):
        self.data, self.text, self.statements = [], [], 0

    def parse(self, sql, name=""):
        return self.add(w.message(b"P", zero(name) + zero(sql) + b"\0\0"), f"Parse({name}: {shown(sql)})")

    def bind(self, values=(), name="", portal=""):
        body = zero(portal) + zero(name) + struct.pack("!HH", 0, len(values))
        for value in values:
            body += struct.pack("!I", len(encoded(value))) + encoded(value)
        return self.add(w.message(b"B", body + b"\0\0"), f"Bind({name}{[shown(v) for v in values]})")

    def execute(self, portal="", rows=0):
        self.statements += 1
        return self.add(w.execute(portal, rows), f"Execute({rows or ''})")

    def close(self, name):
        return self.add(w.message(b"C", b"S" + zero(name)), f"Close({name})")

    def run(self, sql, values=(), name=""):
        return self.parse(sql, name).bind(values, name).execute()

    def add(self, data, text):
        self.data.append(data)
        self.text.append(text)
        return self

    def sync(self):
        return Request(b"".join(self.data) + w.SYNC, " ".join(self.text) + " Sync", 1, max(1, self.statements))
