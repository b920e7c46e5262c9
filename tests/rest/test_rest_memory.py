"""Redis over HTTP: the memory for clients that do not read, or do not finish sending, is bounded for all together, and
other clients are served.
"""

import json
import selectors
import socket
import time

import h2.config
import h2.connection
import h2.events
import pytest

from support.postgres_cluster import free_port
from support.redis_fixtures import pool, server
from support.rest_fixtures import TOKEN, Rest, rest
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

MB = 1_000_000
HEAD = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n"

# All clients together hold 256 MB at most. The allocator's overhead and copies in transit come to about half as much.
MAX_RESIDENT_MB = 440


def get(key):
    return f"GET /get/{key} HTTP/1.1\r\n{HEAD}\r\n".encode()


class Crowd:
    """HTTP/1.1 clients that send, and read only when they are told to."""

    def __init__(self, port, count):
        self.sockets, self.waiting = [], {}
        for _ in range(count):
            connection = socket.socket()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", port))
            connection.setblocking(False)
            self.sockets.append(connection)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.sockets:
            connection.close()

    def send(self, data, seconds, look, settles=None):
        """Sends all of the data, as far as it is taken. `look` is called meanwhile, for `seconds`, or until the data
        has been sent for `settles` seconds."""
        left = {connection: memoryview(data) for connection in self.sockets}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for connection, rest in left.items():
                try:
                    left[connection] = rest[connection.send(rest[:200_000]):] if rest else rest
                except (BlockingIOError, ConnectionError):
                    pass
            look()
            if settles and not any(left.values()):
                deadline, settles = min(deadline, time.monotonic() + settles), None
            time.sleep(0.01)
        return sum(not rest for rest in left.values())

    def heads(self, seconds=20):
        """The first line of each client's answer, if it has one."""
        heads = []
        with selectors.DefaultSelector() as selector:
            for connection in self.sockets:
                selector.register(connection, selectors.EVENT_READ)
            for key, _ in selector.select(seconds):
                heads.append(key.fileobj.recv(4096).split(b"\r\n")[0])
        return heads


class Watch:
    """Records the most memory that a process has had, in MB, and checks that a client with a small request is served
    all the time."""

    def __init__(self, poolhouse):
        self.poolhouse, self.most = poolhouse, 0
        # The request may have to wait until Redis has sent what others asked for.
        self.small = Rest(poolhouse.http, timeout=30)

    def __call__(self):
        self.most = max(self.most, self.poolhouse.resident_kib() // 1024)
        assert self.small.command("SET", "small", "x" * 1000) == "OK"


def test_a_client_that_does_not_read_has_no_more_of_its_requests_carried_out(rest, server):
    server.connect().set("large", "x" * MB)
    poolhouse = rest()
    watch = Watch(poolhouse)
    with Crowd(poolhouse.http, 30) as crowd:
        crowd.send(get("large") * 100, 4, watch)
        executed = server.connect().info("commandstats")["cmdstat_get"]["calls"]
        assert watch.most < 150, f"{watch.most} MB"
        assert executed < 30 * 12, f"{executed} requests were carried out; the kernel keeps a few answers for each client"
        # A client that reads in the end gets all of it.
        late = crowd.sockets[0]
        late.setblocking(True)
        late.settimeout(10)
        late.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MB)
        heard = late.makefile("rb")
        for _ in range(100):
            lines = [heard.readline() for _ in range(5)]
            assert lines[0] == b"HTTP/1.1 200 OK\r\n" and lines[-1] == b"\r\n", lines
            assert heard.read(MB + 13) == b'{"result":"' + b"x" * MB + b'"}'


def test_answers_that_are_not_read_share_one_bound(rest, server):
    server.connect().set("large", "x" * 20 * MB)
    poolhouse = rest()
    watch = Watch(poolhouse)
    with Crowd(poolhouse.http, 40) as crowd:
        crowd.send(get("large"), 5, watch)
        assert watch.most < MAX_RESIDENT_MB, f"{watch.most} MB"
        told = crowd.heads()
        assert len(told) == 40, "each has been answered"
        assert told.count(b"HTTP/1.1 200 OK") > 5 and told.count(b"HTTP/1.1 507 Insufficient Storage") > 5, set(told)
    # What they held is available to others again.
    ask = Rest(poolhouse.http)
    eventually("there is room", lambda: ask.ask("GET", "/get/large")[0] == 200)


def test_bodies_that_are_not_finished_share_one_bound(rest):
    poolhouse = rest()
    watch = Watch(poolhouse)
    with Crowd(poolhouse.http, 100) as crowd:
        begin = f"POST /set/a HTTP/1.1\r\n{HEAD}Content-Length: 10000000\r\n\r\n".encode()
        assert crowd.send(begin + b"x" * 9 * MB, 10, watch, settles=1.5) > 90, "what comes of those that are refused is dropped"
        assert watch.most < MAX_RESIDENT_MB, f"{watch.most} MB"
        told = crowd.heads()
        assert told and set(told) == {b"HTTP/1.1 503 Service Unavailable"}, set(told)
    ask = Rest(poolhouse.http)
    eventually("there is room", lambda: ask.ask("POST", "/set/a", b"x" * 9 * MB)[0] == 200)


@pytest.mark.timing
def test_bodies_of_many_streams_that_are_not_finished_share_one_bound(rest):
    poolhouse = rest()
    watch = Watch(poolhouse)
    head = [(":method", "POST"), (":path", "/set/a"), (":scheme", "http"), (":authority", "x"), ("authorization", f"Bearer {TOKEN}")]
    connections = []
    refused = 0
    for _ in range(8):
        connection = socket.create_connection(("127.0.0.1", poolhouse.http), 5)
        connections.append(connection)
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        http.initiate_connection()
        left = {}
        for _ in range(95):
            stream = http.get_next_available_stream_id()
            http.send_headers(stream, head)
            left[stream] = 950_000
        connection.settimeout(0.5)
        while any(left.values()):
            for stream in left:
                while (size := min(left[stream], 16384, http.local_flow_control_window(stream))) > 0:
                    http.send_data(stream, b"x" * size)
                    left[stream] -= size
            connection.sendall(http.data_to_send())
            try:
                http.receive_data(connection.recv(1 << 16))
            except TimeoutError:
                break
        assert not any(left.values()), "the client may go on sending"
        # They are told once they have sent everything.
        if len(connections) == 8:
            for stream in left:
                http.end_stream(stream)
            connection.sendall(http.data_to_send())
            statuses = []
            while len(statuses) < 95:
                events = http.receive_data(connection.recv(1 << 16))
                statuses += [dict(event.headers)[b":status"] for event in events if isinstance(event, h2.events.ResponseReceived)]
            refused = statuses.count(b"503")
            assert refused and set(statuses) <= {b"200", b"503"}, statuses
        watch()
    assert watch.most < MAX_RESIDENT_MB, f"{watch.most} MB"
    for connection in connections:
        connection.close()
    ask = Rest(poolhouse.http)
    eventually("there is room", lambda: ask.ask("POST", "/set/a", b"x" * 9 * MB)[0] == 200)


def test_a_value_that_is_larger_than_what_goes_to_redis_at_a_time_is_refused(rest):
    ask = Rest(rest(listener="max_request = 300000000\n").http, timeout=60)
    for target, body in [("/set/large", b"x" * 200 * MB), ("/pipeline", json.dumps([["PING"], ["SET", "large", "x" * 200 * MB]]).encode())]:
        status, answer, _ = ask.ask("POST", target, body)
        assert status == 413 and "199229440 bytes" in json.loads(answer)["error"], (target, status, answer[:200])
        assert ask.command("EXISTS", "large") == 0
    assert ask.ask("POST", "/set/large", b"x" * 190 * MB)[0] == 200
    assert ask.command("STRLEN", "large") == 190 * MB


def test_a_client_that_sends_all_of_a_body_that_is_too_large_is_told_so(rest):
    poolhouse = rest()
    for size in (20 * MB, 250 * MB):
        ask = Rest(poolhouse.http, timeout=30)
        status, answer, _ = ask.ask("POST", "/set/large", b"x" * size)
        assert status == 413 and "10485760 bytes" in json.loads(answer)["error"], (size, status, answer)


def test_a_client_that_reads_gets_all_of_a_large_answer_though_it_is_sent_away(rest, server):
    size = 80 * MB
    server.connect().set("large", b"x" * size)
    poolhouse = rest(listener='client_idle_time = "1s"\n')
    with socket.create_connection(("127.0.0.1", poolhouse.http), timeout=10) as client:
        client.sendall(get("large"))
        heard = client.makefile("rb")
        head = [heard.readline() for _ in range(5)]
        assert head[0] == b"HTTP/1.1 200 OK\r\n" and head[-1] == b"\r\n", head
        # When the client has been idle for too long, more of the answer is still to come than Poolhouse holds for
        # clients that do not read.
        got = 0
        while piece := heard.read(MB):
            got += len(piece)
            time.sleep(0.03)
    assert got == size + 13


def test_each_listener_has_its_part_and_metrics_tell_what_is_held_at_each(rest):
    other = free_port()
    poolhouse = rest(listener=f'[[listener]]\nprotocol = "http"\nlisten = "127.0.0.1:{other}"\n')
    told = lambda what: [poolhouse.metric(f"poolhouse_http_held_bytes{what}", listener=f"127.0.0.1:{port}") for port in (poolhouse.http, other)]
    assert told("_limit") == [128 << 20] * 2
    with socket.create_connection(("127.0.0.1", other), 10) as client:
        client.sendall(f"POST /set/a HTTP/1.1\r\n{HEAD}Content-Length: 9000000\r\n\r\n".encode() + b"x" * 5 * MB)
        eventually("it is counted", lambda: told("")[1] > 4 * MB)
        assert told("")[0] == 0
    eventually("it is given back", lambda: told("") == [0, 0])
