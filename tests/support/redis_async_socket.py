"""A connection that speaks Redis's protocol byte by byte, for asyncio. It shows what a client library would hide."""

import asyncio


def encoded(words):
    """A command as an array of bulk strings."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class RedisWire:
    """One connection. A reply is (type, value); the value of an aggregate is a list of replies."""

    # Whether a part of a reply has arrived.
    begun = False

    @classmethod
    async def connect(cls, port):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
        return self

    async def send(self, data, pieces=()):
        """`pieces`: how the bytes are divided into separate writes."""
        begin = 0
        for end in [*pieces, len(data)]:
            self.writer.write(data[begin:end])
            await self.writer.drain()
            if end < len(data):
                await asyncio.sleep(0)
            begin = end

    async def reply(self):
        line = (await self.reader.readuntil(b"\r\n"))[:-2]
        self.begun = True
        kind, rest = chr(line[0]), line[1:]
        if kind in "+-:_#,(":
            return kind, rest
        if kind in "$!=":
            return (kind, None) if rest == b"-1" else (kind, (await self.reader.readexactly(int(rest) + 2))[:-2])
        assert kind in "*~>%|", f"a reply begins with {line!r}"
        if rest == b"-1":
            return kind, None
        count = int(rest) * (2 if kind in "%|" else 1)
        return kind, [await self.reply() for _ in range(count)]

    def close(self):
        self.writer.close()
