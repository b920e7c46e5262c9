"""A connection to a Poolhouse of Redis that sends and reads only when a test tells it to."""

import socket


def command(*words):
    """A command as bytes."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Raw:
    """A connection that sends and reads only when a test tells it to."""

    def __init__(self, poolhouse, receive_buffer=None):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", poolhouse.port))
        self.heard = b""

    def say(self, *commands):
        self.socket.sendall(b"".join(commands))
        return self

    def hear(self, length):
        """Reads `length` bytes, or fewer if the connection ends."""
        while len(self.heard) < length and (part := self.socket.recv(1 << 20)):
            self.heard += part
        heard, self.heard = self.heard[:length], self.heard[length:]
        return heard

    def close(self):
        self.socket.close()
