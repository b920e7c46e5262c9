"""The smallest PostgreSQL client: logs in without a password and runs simple queries over plain sockets, many at once.

Refuses to know poolers; it sees what any application sees.
"""

import socket
import struct

TIMEOUT = 30.0
# Of Linux; Python has no name for it before 3.12.
IP_BIND_ADDRESS_NO_PORT = 24
QUERY = b"select 1\0"


def startup_message(user, database, application_name="bench"):
    """A StartupMessage of protocol 3.0."""
    words = ("user", user, "database", database, "application_name", application_name)
    body = struct.pack("!I", 196608) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
    return struct.pack("!I", len(body) + 4) + body


def query_message(text=QUERY):
    """A Query message."""
    return b"Q" + struct.pack("!I", len(text) + 4) + text


def connect(port, source=None):
    """A socket to a loopback port; `source` is another loopback address to come from."""
    stream = socket.socket()
    stream.settimeout(TIMEOUT)
    try:
        if source:
            # The port is to be chosen at connect, where it need only differ from others to the same place.
            stream.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            stream.bind((source, 0))
        stream.connect(("127.0.0.1", port))
    except OSError:
        stream.close()
        raise
    return stream


def drop(streams):
    """Closes sockets at once, leaving no trace in the kernel that the next crowd could stumble over."""
    for stream in streams:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        stream.close()


def until_ready(stream):
    """Reads messages up to ReadyForQuery; an ErrorResponse is an error."""
    data = b""
    while True:
        at = 0
        while len(data) - at >= 5:
            length = struct.unpack_from("!I", data, at + 1)[0] + 1
            if len(data) - at < length:
                break
            kind = data[at : at + 1]
            if kind == b"E":
                fields = data[at + 5 : at + length].split(b"\0")
                text = next((f[1:].decode(errors="replace") for f in fields if f[:1] == b"M"), "unknown error")
                raise ConnectionError(text)
            at += length
            if kind == b"Z":
                return
        data = data[at:]
        more = stream.recv(8192)
        if not more:
            raise ConnectionError("closed by the other side")
        data += more


def answers(port, user, database):
    """Whether a query gets an answer right now."""
    try:
        with connect(port) as stream:
            stream.sendall(startup_message(user, database))
            until_ready(stream)
            stream.sendall(query_message())
            until_ready(stream)
            stream.sendall(b"X\0\0\0\4")
        return True
    except OSError:
        return False


def crowd(port, user, database, count, first=0, batch=100):
    """Logs in `count` clients, each of which runs one query and stays; returns their sockets.

    Each has its own application_name, numbered from `first`: equal ones could be kept once for all.
    """
    clients = []
    for at in range(0, count, batch):
        # Another source address every 20,000 keeps clear of the end of the port range.
        source = f"127.0.0.{1 + at // 20_000}"
        fresh = [connect(port, source) for _ in range(min(batch, count - at))]
        clients.extend(fresh)
        for number, stream in enumerate(fresh, first + at):
            stream.sendall(startup_message(user, database, f"bench-{number:07}"))
        for stream in fresh:
            until_ready(stream)
        for stream in fresh:
            stream.sendall(query_message())
        for stream in fresh:
            until_ready(stream)
    return clients


def count_answering(clients, batch=100):
    """How many of these clients still get an answer to a query."""
    alive, query = 0, query_message()
    for first in range(0, len(clients), batch):
        asked = []
        for stream in clients[first : first + batch]:
            try:
                stream.sendall(query)
                asked.append(stream)
            except OSError:
                continue
        for stream in asked:
            try:
                until_ready(stream)
                alive += 1
            except OSError:
                continue
    return alive
