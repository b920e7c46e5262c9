"""What a client sends at once, and a readable line about it for histories."""

import dataclasses

from support import postgres_wire as w


@dataclasses.dataclass(frozen=True)
class Request:
    """`data` causes `syncs` ReadyForQuery messages; `text` describes it to people."""

    data: bytes
    syncs: int
    text: str

    def __add__(self, other):
        """Both, sent at once."""
        return Request(self.data + other.data, self.syncs + other.syncs, f"{self.text} ++ {other.text}")


def simple(sql):
    return Request(w.query(sql), 1, sql)


def copy_in(sql, data):
    """A COPY with its data, which is sent whether or not the server asks for it."""
    return Request(w.query(sql) + w.copy_data(data) + w.COPY_DONE, 1, f"{sql} << {data!r}")


class Batch:
    """Messages of the extended protocol up to one Sync."""

    def __init__(self):
        self.data, self.text = [], []

    def parse(self, sql, name=""):
        return self.add(w.parse(sql, name), f"Parse({name}: {sql})")

    def describe(self, name=""):
        return self.add(w.message(b"D", b"S" + w.cstr(name)), f"Describe({name})")

    def bind(self, values=(), name="", portal=""):
        return self.add(w.bind(values, portal, name), f"Bind({portal}<-{name}{list(values)})")

    def describe_portal(self, portal=""):
        return self.add(w.describe_portal(portal), f"DescribePortal({portal})")

    def execute(self, portal="", rows=0):
        return self.add(w.execute(portal, rows), f"Execute({portal} {rows or ''})")

    def close(self, name):
        return self.add(w.message(b"C", b"S" + w.cstr(name)), f"Close({name})")

    def run(self, sql, values=()):
        """Parse, Bind and Execute without names."""
        return self.parse(sql).bind(values).execute()

    def add(self, data, text):
        self.data.append(data)
        self.text.append(text)
        return self

    def sync(self):
        return Request(b"".join(self.data) + w.SYNC, 1, " ".join(self.text) + " Sync")
