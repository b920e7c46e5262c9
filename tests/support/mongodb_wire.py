"""MongoDB's protocol byte by byte, for what no driver would send."""

import socket
import struct

import bson

from support.mock_mongodb import exactly, with_checksum

MORE_TO_COME = 2


class Raw:
    """A connection that has sent its hello."""

    def __init__(self, port, hello=True, source=None):
        """Connects, from the address `source` if one is given."""
        self.socket = socket.create_connection(("127.0.0.1", port), 10, (source, 0) if source else None)
        if hello:
            self.greeting = self.ask({"hello": 1, "$db": "admin"})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def read(self):
        """The id of the answered request, and the document."""
        length, _, answers, _ = struct.unpack("<iiii", exactly(self.socket, 16))
        body = exactly(self.socket, length - 16)
        return answers, bson.decode(body[5:])

    def ask(self, command, request=1):
        """The answer to a command."""
        self.send(message(command, request))
        return self.read()[1]

    def ask_with_checksum(self, command, request=1):
        """The answer to a command with a checksum, which has to have none itself."""
        self.send(with_checksum(message(command, request)))
        length, _, answers, _, flags = struct.unpack("<iiiiI", exactly(self.socket, 20))
        assert (answers, flags) == (request, 0)
        return bson.decode(exactly(self.socket, length - 20)[1:])

    def has_ended(self, seconds=5):
        """Whether the other side closes the connection. What it sends before is ignored."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
            return True
        except TimeoutError:
            return False
        except OSError:
            return True


def message(command, request=1, flags=0, before=b"", behind=b""):
    """An OP_MSG with further sections before and behind its body."""
    document = command if isinstance(command, bytes) else bson.encode(command)
    body = before + b"\0" + document + behind
    return struct.pack("<iiiiI", 20 + len(body), request, 0, 2013, flags) + body


def section(name, *documents):
    """A document sequence with this name."""
    body = name.encode() + b"\0" + b"".join(bson.encode(document) for document in documents)
    return b"\1" + struct.pack("<i", len(body) + 4) + body
