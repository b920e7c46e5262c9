"""Redis over HTTP/2: a client that does not read its answers holds no server."""

import json
import socket

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from support.redis_fixtures import pool, server
from support.rest_fixtures import TOKEN, Rest, rest
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

# A command this long has a server of its own.
LONG = "x" * 20_000

# All clients share this one.
ONE_SERVER = "[limits]\nmax_server_connections = 1\n"

WIDE = 2**31 - 1


class Client:
    """A client that reads only when it is told to. `window`: the part of an answer that may arrive before the client
    acknowledges reading."""

    def __init__(self, port, window=65_535):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        self.socket.settimeout(15)
        self.socket.connect(("127.0.0.1", port))
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.h2.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window})
        if window == WIDE:
            self.h2.increment_flow_control_window(WIDE - 65_535)
        self.statuses, self.bodies, self.ended = {}, {}, set()

    def post(self, *requests):
        """Sends these requests (target, body), all at once. Returns their streams."""
        streams = []
        for target, body in requests:
            streams.append(self.h2.get_next_available_stream_id())
            fields = [(":method", "POST"), (":path", target), (":scheme", "http"), (":authority", "x"), ("authorization", f"Bearer {TOKEN}")]
            self.h2.send_headers(streams[-1], fields)
            body = json.dumps(body).encode()
            for at in range(0, len(body), 16_384):
                self.h2.send_data(streams[-1], body[at:at + 16_384])
            self.h2.end_stream(streams[-1])
        self.socket.sendall(self.h2.data_to_send())
        return streams

    def read(self, stream):
        """Reads until this stream has ended: status and body of its answer."""
        while stream not in self.ended:
            received = self.socket.recv(1 << 20)
            assert received, "the connection has ended"
            for event in self.h2.receive_data(received):
                if isinstance(event, h2.events.ResponseReceived):
                    self.statuses[event.stream_id] = int(dict(event.headers)[b":status"])
                elif isinstance(event, h2.events.DataReceived):
                    self.bodies[event.stream_id] = self.bodies.get(event.stream_id, b"") + event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    self.ended.add(event.stream_id)
            self.socket.sendall(self.h2.data_to_send())
        return self.statuses[stream], json.loads(self.bodies[stream])

    def close(self):
        self.socket.close()


def serves_others(poolhouse):
    """Waits until the only server is free."""

    def is_served():
        ask = Rest(poolhouse.http, timeout=15)
        status, _ = ask.post("/", ["ECHO", "served"])
        ask.close()
        return status == 200

    eventually("others are served", is_served, 15)


def test_a_transaction_that_has_begun_is_carried_out_though_its_client_does_not_read(rest, server):
    redis = server.connect()
    redis.set("large", "x" * 3_000_000)
    poolhouse = rest(more=ONE_SERVER)
    client = Client(poolhouse.http)
    large, transaction, behind = client.post(
        ("/", ["MGET", "large", LONG]),
        ("/multi-exec", [["SET", "a", 1], ["INCR", "n"], ["INCR", "n"]]),
        ("/", ["INCR", "behind"]),
    )
    serves_others(poolhouse)
    assert redis.mget("a", "n", "behind") == [b"1", b"2", None]
    # Later events of other connections do not affect it.
    redis.client_kill_filter(_type="normal", skipme=True)
    assert client.read(large)[0] == 200
    assert client.read(transaction) == (200, [{"result": "OK"}, {"result": 1}, {"result": 2}])
    assert client.read(behind) == (200, {"result": 1})
    assert redis.mget("a", "n", "behind") == [b"1", b"2", b"1"]
    client.close()


def test_the_server_of_a_client_that_does_not_read_gets_free(rest, server):
    redis = server.connect()
    redis.set("large", "x" * 8_000_000)
    poolhouse = rest(more=ONE_SERVER)
    client = Client(poolhouse.http, WIDE)
    streams = client.post(*[("/", ["MGET", "large", LONG])] * 2)
    serves_others(poolhouse)
    for stream in streams:
        status, answer = client.read(stream)
        assert status == 200 and len(answer["result"][0]) == 8_000_000
    client.close()
