"""A client of Redis over HTTP/2 that sends and reads only when a test tells it to."""

import socket

import h2.config
import h2.connection
import h2.events

from support.rest_fixtures import TOKEN


class Raw:
    """An HTTP/2 connection that opens its receive window only when a test tells it to."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(1 << 24)
        self.bodies, self.heard, self.statuses, self.ended, self.lost, self.unread = {}, {}, {}, set(), set(), {}
        self.flush()

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def get(self, target, at_once=True, token=TOKEN):
        """Sends a request and does not wait for the answer."""
        stream = self.h2.get_next_available_stream_id()
        fields = [(":method", "GET"), (":path", target), (":scheme", "http"), (":authority", "x"), ("authorization", f"Bearer {token}")]
        self.h2.send_headers(stream, fields, end_stream=True)
        if at_once:
            self.flush()
        return stream

    def give_up(self, stream):
        self.h2.reset_stream(stream)
        self.ended.add(stream)
        self.flush()

    def hear(self, stream, text):
        """Reads until the stream's body contains `text`."""
        while text.encode() not in self.heard.get(stream, b""):
            self.turn(lambda stream: True)

    def turn(self, reads):
        """Handles what has arrived. `reads(stream)` decides whether the window of a stream is opened again."""
        received = self.socket.recv(1 << 20)
        assert received, "the connection has ended"
        for event in self.h2.receive_data(received):
            if isinstance(event, h2.events.ResponseReceived):
                self.statuses[event.stream_id] = int(dict(event.headers)[b":status"])
            elif isinstance(event, h2.events.DataReceived):
                self.bodies[event.stream_id] = self.bodies.get(event.stream_id, 0) + len(event.data)
                self.heard[event.stream_id] = (self.heard.get(event.stream_id, b"") + event.data)[-1000:]
                self.unread[event.stream_id] = self.unread.get(event.stream_id, 0) + event.flow_controlled_length
            elif isinstance(event, h2.events.StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                self.lost.add(event.stream_id)
            elif isinstance(event, h2.events.ConnectionTerminated):
                return  # h2 sends nothing more after this.
        self.make_room(reads)

    def make_room(self, reads):
        for stream in [stream for stream in self.unread if reads(stream)]:
            length = self.unread.pop(stream)
            if length and stream not in self.ended | self.lost:
                self.h2.acknowledge_received_data(length, stream)
            elif length:
                self.h2.increment_flow_control_window(length)
        self.flush()
