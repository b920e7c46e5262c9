"""Back-pressure: a slow client or server slows its other side down, and does not make the process grow."""

import concurrent.futures
import threading
import time

import pytest

from support import postgres_wire as w

MEGABYTE = 1 << 20
ALLOWED_GROWTH_KIB = 20 * 1024


class Peak:
    """The most resident memory while the body runs."""

    def __init__(self, pooler):
        self.pooler, self.base, self.most = pooler, pooler.resident_kib(), 0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.stop.wait(0.02):
            self.most = max(self.most, self.pooler.resident_kib())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()

    @property
    def growth_kib(self):
        return self.most - self.base


def read_all(client, most, pause=0.0):
    """Reads rows until ReadyForQuery without keeping them. Returns the bytes of DataRows."""
    total, buffer = 0, bytearray()
    while True:
        data = client.socket.recv(most)
        assert data, "closed in the middle of the result"
        buffer += data
        at = 0
        while len(buffer) - at >= 5:
            length = int.from_bytes(buffer[at + 1 : at + 5], "big") + 1
            if len(buffer) - at < length:
                break
            if buffer[at : at + 1] == b"D":
                total += length
            elif buffer[at : at + 1] == b"Z":
                return total
            elif buffer[at : at + 1] == b"E":
                raise w.ServerError(w.error_fields(bytes(buffer[at + 5 : at + length])))
            at += length
        del buffer[:at]
        if pause:
            time.sleep(pause)


@pytest.mark.timing
def test_a_slow_reader_of_a_huge_result_does_not_grow_the_process(start):
    pooler = start(max_size=2)
    with pooler.wire(timeout=60) as slow, pooler.wire() as other, Peak(pooler) as peak:
        other.query("SELECT 1")
        slow.send(w.query("SELECT repeat('x', 1000) FROM generate_series(1, 2150000)"))
        # It reads nothing for a while, so Poolhouse must stop reading from the server.
        time.sleep(1.5)
        assert other.query("SELECT 'alive'") == [["alive"]]
        for _ in range(20):
            assert slow.socket.recv(10_000)
            time.sleep(0.02)
            assert other.query("SELECT 'alive'") == [["alive"]]
        # The rest at full speed, more than 2 GB in all.
        rest = read_until_ready_roughly(slow)
        assert rest > 2048 * MEGABYTE
        assert other.query("SELECT 'alive'") == [["alive"]]
    assert peak.growth_kib < ALLOWED_GROWTH_KIB, f"grew by {peak.growth_kib} KiB"


def read_until_ready_roughly(client):
    """Reads until the bytes end with ReadyForQuery, for a reader that has lost count of messages."""
    total, tail, end = 0, b"", w.message(b"Z", b"I")
    while not tail.endswith(end):
        data = client.socket.recv(1 << 20)
        assert data, "closed in the middle of the result"
        total += len(data)
        tail = (tail + data)[-len(end):]
    return total


def test_one_huge_row_passes_without_growing_the_process(start):
    pooler = start(max_size=1)
    with pooler.wire(timeout=30) as client, Peak(pooler) as peak:
        client.query("SELECT 1")
        client.send(w.query(f"SELECT repeat('x', {200 * MEGABYTE})"))
        assert read_until_ready_roughly(client) > 200 * MEGABYTE
    assert peak.growth_kib < ALLOWED_GROWTH_KIB, f"grew by {peak.growth_kib} KiB"


def test_a_huge_statement_passes_without_growing_the_process(start):
    pooler = start(max_size=1)
    with pooler.wire(timeout=30) as client, Peak(pooler) as peak:
        size = 64 * MEGABYTE
        client.send(w.query("SELECT length('" + "x" * size + "')"))
        assert client.rows() == [[str(size)]]
    assert peak.growth_kib < ALLOWED_GROWTH_KIB, f"grew by {peak.growth_kib} KiB"


@pytest.mark.timing
def test_a_slow_server_that_receives_a_large_copy_does_not_grow_the_process(start, cluster):
    pooler = start(max_size=2)
    rows, row = 2050, b"y" * MEGABYTE + b"\n"
    with pooler.wire(timeout=60) as client, pooler.wire() as other, Peak(pooler) as peak, \
            concurrent.futures.ThreadPoolExecutor(1) as thread:
        other.query("DROP TABLE IF EXISTS t_slow; CREATE TABLE t_slow (s text)")
        # The server takes each row after a pause.
        other.query("""CREATE OR REPLACE FUNCTION nap() RETURNS trigger LANGUAGE plpgsql AS
                       $$ BEGIN PERFORM pg_sleep(0.001); NEW.s = ''; RETURN NEW; END $$""")
        other.query("CREATE TRIGGER nap BEFORE INSERT ON t_slow FOR EACH ROW EXECUTE FUNCTION nap()")
        client.send(w.query("COPY t_slow FROM STDIN"))
        client.expect(b"G")

        def send():
            for _ in range(rows):
                client.send(w.copy_data(row))
            client.send(w.COPY_DONE)

        sending = thread.submit(send)
        for _ in range(10):
            time.sleep(0.1)
            assert other.query("SELECT 'alive'") == [["alive"]]
        sending.result(timeout=60)
        assert client.expect(b"C") == f"COPY {rows}\0".encode()
        client.expect(b"Z")
        other.query("DROP TABLE t_slow; DROP FUNCTION nap")
    assert peak.growth_kib < ALLOWED_GROWTH_KIB, f"grew by {peak.growth_kib} KiB"


def test_a_client_that_never_reads_its_many_answers_stops_being_read(start):
    """It sends queries without end and reads nothing: what it may queue is bounded."""
    pooler = start(max_size=2)
    with pooler.wire() as greedy, pooler.wire() as other, Peak(pooler) as peak:
        greedy.socket.settimeout(1.0)
        block = w.query("SELECT repeat('z', 10000)") * 1000
        sent = 0
        try:
            while sent < 400 * MEGABYTE:
                sent += greedy.socket.send(block)
        except TimeoutError:
            pass
        assert sent < 100 * MEGABYTE, "back-pressure did not stop it"
        assert other.query("SELECT 'alive'") == [["alive"]]
    assert peak.growth_kib < ALLOWED_GROWTH_KIB, f"grew by {peak.growth_kib} KiB"


@pytest.mark.timing
def test_ten_slow_readers_do_not_block_the_others(start):
    pooler = start(max_size=12)
    slow = [pooler.wire() for _ in range(10)]
    for client in slow:
        client.send(w.query("SELECT repeat('x', 1000) FROM generate_series(1, 50000)"))
    time.sleep(0.5)
    with pooler.wire() as other, Peak(pooler) as peak:
        for n in range(200):
            began = time.monotonic()
            assert other.query(f"SELECT {n}") == [[str(n)]]
            assert time.monotonic() - began < 2
    assert peak.growth_kib < ALLOWED_GROWTH_KIB
    for client in slow:
        client.vanish()


@pytest.mark.timing
def test_a_client_that_reads_nothing_keeps_its_server_from_others_for_a_bounded_time(start):
    pooler = start(max_size=1, max_wait_time="60s", query_time="off")
    with pooler.wire() as idle, pooler.wire() as other:
        idle.send(w.query("SELECT repeat('x', 1000) FROM generate_series(1, 100000)"))
        # No other client waits, so it may take its time.
        time.sleep(3)
        other.socket.settimeout(60)
        assert other.query("SELECT 'alive'") == [["alive"]]
        assert "the client has read nothing for 30 s" in pooler.log()


@pytest.mark.timing
def test_a_client_that_reads_slowly_is_not_taken_for_one_that_reads_nothing(start):
    """It reads 20 KB a second. The socket's buffer holds megabytes, so the socket shows no progress for more than a
    minute."""
    pooler = start(max_size=1, max_wait_time="90s", query_time="off")
    with pooler.wire() as slow, pooler.wire() as other, concurrent.futures.ThreadPoolExecutor(1) as thread:
        slow.send(w.query("SELECT repeat('x', 1000) FROM generate_series(1, 100000)"))
        time.sleep(1)
        other.socket.settimeout(90)
        waits = thread.submit(other.query, "SELECT 'alive'")
        for _ in range(400):
            assert slow.socket.recv(2000)
            time.sleep(0.1)
        assert not waits.done() and "the client has read nothing" not in pooler.log()
        slow.vanish()
        assert waits.result() == [["alive"]]


def test_a_large_statement_in_pieces_of_one_byte_is_answered(start):
    pooler = start()
    with pooler.wire() as client:
        client.socket.setsockopt(w.socket.IPPROTO_TCP, w.socket.TCP_NODELAY, 1)
        # The first answer is held until it is complete; the second is larger than what can be held.
        for size in (50_000, 90_000):
            for byte in w.query(f"SELECT length('{'x' * size}')"):
                client.send(bytes([byte]))
            assert client.rows() == [[str(size)]]
