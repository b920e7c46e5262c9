"""What lies between a service and its database: a network that takes time or forgets who is silent, a database that stalls, and one that lets
in only so many.

    with SlowRelay(port, latency=0.005, opening=0.02, limit=100) as relay:      # connect to relay.port instead
        relay.begin(stalls=[(5.0, 2.0)], stall=0.2)     # from 5 s on, for 2 s, answers come 0.2 s later
        relay.figures()                                 # what was opened, closed and refused since

Knows no protocol: an answer is what comes from the database.
"""

import asyncio
import contextlib
import threading
import time

MAX_PIECE = 65536


class SlowRelay:
    """Listens on a port of 127.0.0.1 and passes everything to `target`, another port there, and back."""

    def __init__(self, target, latency=0.0, opening=0.0, limit=None, forget=None):
        # Seconds: of each answer; of the first answer on a connection besides, in place of TLS and a login.
        self.target, self.latency, self.opening = target, latency, opening
        # The most connections at a time; a further one is closed at once, as mongod does.
        self.limit = limit
        # Seconds of silence after which nothing passes on a connection any more, and neither side is told.
        self.forget = forget
        self.stall, self.stalls, self.origin = 0.0, [], time.monotonic()
        self.open, self.most = 0, 0
        # When they happened (time.monotonic).
        self.opened, self.closed, self.refused = [], [], []
        self.port, self.tasks, self.ended = None, set(), None
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.serve(),), daemon=True)
        self.started = threading.Event()

    def __enter__(self):
        self.thread.start()
        assert self.started.wait(5), "the relay did not start"
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(5)

    def begin(self, stalls=(), stall=0.0):
        """From now on the figures count, and so do the seconds of these windows: (after so many, for so many)."""
        self.stall, self.stalls, self.origin = stall, list(stalls), time.monotonic()
        self.most = self.open

    def figures(self):
        """Connections since `begin`."""
        count = lambda times: sum(at >= self.origin for at in times)
        return {"seconds": time.monotonic() - self.origin, "opened": count(self.opened), "closed": count(self.closed),
                "refused": count(self.refused), "most": self.most, "open": self.open}

    # -- the loop's thread

    async def serve(self):
        self.ended = asyncio.Event()
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self.started.set()
        await self.ended.wait()
        server.close()
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def accept(self, reader, writer):
        task = asyncio.current_task()
        self.tasks.add(task)
        try:
            await self.pass_on(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self.tasks.discard(task)

    async def pass_on(self, reader, writer):
        if self.limit is not None and self.open >= self.limit:
            self.refused.append(time.monotonic())
            return
        self.open += 1
        self.most = max(self.most, self.open)
        self.opened.append(time.monotonic())
        far = None
        try:
            far_reader, far = await asyncio.open_connection("127.0.0.1", self.target)
            way = Way(self.forget)
            there, back = asyncio.ensure_future(carry(reader, far, way)), asyncio.ensure_future(self.answer(far_reader, writer, way))
            # An end of either ends both: nobody here half-closes.
            try:
                await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            finally:
                there.cancel()
                back.cancel()
                await asyncio.gather(there, back, return_exceptions=True)
        finally:
            self.open -= 1
            self.closed.append(time.monotonic())
            if far:
                far.transport.abort()

    async def answer(self, reader, writer, way):
        """Answers, each late; what comes while one waits goes with it."""
        opening = self.opening
        while data := await way.read(reader):
            late = self.latency + opening + self.stalled()
            opening = 0.0
            if late:
                await asyncio.sleep(late)
            writer.write(data)
            await writer.drain()

    def stalled(self):
        since = time.monotonic() - self.origin
        return self.stall if any(first <= since < first + length for first, length in self.stalls) else 0.0


class Way:
    """What a network remembers of a connection, until that has been silent for so many seconds."""

    def __init__(self, forget):
        self.forget, self.heard, self.forgotten = forget, time.monotonic(), False

    async def read(self, reader):
        """What is to be passed on; nothing at the end."""
        data = await reader.read(MAX_PIECE)
        silent, self.heard = time.monotonic() - self.heard, time.monotonic()
        # From then on in both directions.
        self.forgotten |= self.forget is not None and silent > self.forget
        if not self.forgotten:
            return data
        while data:
            data = await reader.read(MAX_PIECE)
        # Not even its end.
        return await asyncio.get_running_loop().create_future()


async def carry(reader, writer, way):
    while data := await way.read(reader):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()
