"""A faulty network between two ends: on command it delays, cuts, swallows or splits what passes. It knows no protocol.

    with Relay(port) as relay:      # connect to relay.port instead
        relay.delay = 0.05          # seconds, each way
        relay.black_hole()          # nothing passes and nothing is closed; pass_again() delivers what was held
        relay.cut()                 # all connections are reset
"""

import asyncio
import contextlib
import random
import socket
import struct
import threading

MAX_PIECE = 65536


class Relay:
    """Listens on `port` of 127.0.0.1 and passes everything to `target`, another port there, and back."""

    def __init__(self, target, seed=0):
        self.target, self.chance = target, random.Random(seed)
        # Seconds that each piece is delayed, each way. Pieces stay in order.
        self.delay = 0.0
        # The most bytes that pass at a time.
        self.piece = MAX_PIECE
        # While this is set, new connections are reset at once.
        self.refusing = False
        self.port, self.passed, self.links = None, 0, set()
        self.keep, self.recorded = False, []
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.started = threading.Event()

    def __enter__(self):
        self.thread.start()
        assert self.started.wait(5), "the relay did not start"
        return self

    def __exit__(self, *_):
        self.call(self.stop)
        self.thread.join(5)

    # -- commands

    def cut(self, share=1.0):
        """Resets this share of the connections, chosen at random."""
        self.call(lambda: [link.reset() for link in list(self.links) if self.chance.random() < share])

    def black_hole(self):
        """From now on nothing passes and nothing is closed. New connections are accepted and receive nothing."""
        self.call(self.open_gate.clear)

    def pass_again(self):
        self.call(self.open_gate.set)

    def segments(self):
        """The number of data segments that the connected client has sent, as TCP counts them: without delays of the
        relay, one for each short write."""
        count = []
        self.call(lambda: count.extend(segments_received(link.near) for link in self.links))
        return sum(count)

    # -- the loop's thread

    def call(self, work):
        """Runs `work` in the loop's thread and waits for it."""
        done = threading.Event()

        def run():
            try:
                work()
            finally:
                done.set()

        self.loop.call_soon_threadsafe(run)
        assert done.wait(5), "the relay hangs"

    def run(self):
        asyncio.set_event_loop(self.loop)

        async def main():
            self.open_gate, self.over = asyncio.Event(), asyncio.Event()
            self.open_gate.set()
            server = await asyncio.start_server(self.accept, "127.0.0.1", 0, backlog=512)
            self.port = server.sockets[0].getsockname()[1]
            self.started.set()
            async with server:
                await self.over.wait()

        self.loop.run_until_complete(main())
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0))

    def stop(self):
        for link in list(self.links):
            link.reset()
        self.over.set()

    async def accept(self, reader, writer):
        if self.refusing:
            reset(writer)
            return
        link = Link(writer)
        self.links.add(link)
        try:
            await self.open_gate.wait()
            far_reader, link.far = await asyncio.open_connection("127.0.0.1", self.target)
            await asyncio.gather(self.carry(reader, link.far, "->"), self.carry(far_reader, writer, "<-"))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            link.reset()
            self.links.discard(link)

    async def carry(self, reader, writer, way):
        while data := await reader.read(self.piece):
            await self.open_gate.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            if self.keep:
                self.recorded.append((way, data))
            self.passed += len(data)
            writer.write(data)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof()


class Link:
    """Both ends of a connection."""

    def __init__(self, near):
        self.near, self.far = near, None

    def reset(self):
        for writer in (self.near, self.far):
            if writer:
                reset(writer)


def segments_received(writer):
    # tcpi_data_segs_in of linux/tcp.h.
    return struct.unpack_from("I", writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160), 152)[0]


def reset(writer):
    """Closes with a reset. Data that was still to be sent is lost."""
    with contextlib.suppress(OSError, AttributeError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
