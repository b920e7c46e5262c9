"""A fake PostgreSQL that fails on command: it accepts every login, answers every statement, and records which
connection sent what. Use it only for what a real PostgreSQL cannot be made to do. It knows no pooler.
"""

import re
import socket
import struct
import threading

from support import postgres_wire as w
from support.postgres_cluster import free_port

PARAMETERS = {"server_version": "15.18", "server_encoding": "UTF8", "client_encoding": "UTF8", "DateStyle": "ISO, MDY", "TimeZone": "Etc/UTC", "IntervalStyle": "postgres",
              "integer_datetimes": "on", "standard_conforming_strings": "on", "is_superuser": "off", "session_authorization": "app", "application_name": "",
              "in_hot_standby": "off", "default_transaction_read_only": "off"}


def failure(severity="ERROR", code="57014", text="canceling statement due to user request"):
    return w.message(b"E", f"S{severity}\0V{severity}\0C{code}\0M{text}\0\0".encode())


class Mock:
    """`answer(connection, number, text)` decides about each statement: None for an ordinary answer, "error", "fatal",
    "close", "silence", or "late" for a time-out in the last microseconds of a step, which PostgreSQL reports in place
    of what it reads next. `seen` has (connection, number, text, outcome) of all statements in order."""

    def __init__(self, answer, **parameters):
        self.answer, self.seen, self.connections = answer, [], 0
        self.parameters = PARAMETERS | parameters
        self.port = free_port()
        self.listener = socket.create_server(("127.0.0.1", self.port))
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                number = self.connections
            # PostgreSQL sends its last message before it closes the connection, and so does this.
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(peer, number), daemon=True).start()

    def serve(self, peer, connection):
        try:
            with peer:
                self.talk(peer, connection)
        except (OSError, EOFError):
            pass

    def talk(self, peer, connection):
        def exactly(count):
            data = b""
            while len(data) < count:
                more = peer.recv(count - len(data))
                if not more:
                    raise EOFError
                data += more
            return data

        while True:
            body = exactly(struct.unpack("!I", exactly(4))[0] - 4)
            (code,) = struct.unpack_from("!I", body)
            if code == w.CANCEL_REQUEST:
                return
            if code not in (w.SSL_REQUEST, w.GSSENC_REQUEST):
                break
            peer.sendall(b"N")
        ready = w.message(b"Z", b"I")
        told = b"".join(w.message(b"S", w.cstr(name) + w.cstr(value)) for name, value in self.parameters.items())
        peer.sendall(w.message(b"R", struct.pack("!I", 0)) + told + w.message(b"K", struct.pack("!II", connection, 1)) + ready)
        statements, failed, late, parsed = 0, False, False, {}
        while True:
            kind, length = exactly(1), struct.unpack("!I", exactly(4))[0]
            body = exactly(length - 4)
            if kind == b"X":
                return
            if late:
                late, failed = False, kind not in b"QS"
                peer.sendall(failure(text="canceling statement due to statement timeout") + (b"" if failed else ready))
                continue
            if kind == b"S":
                failed = False
                peer.sendall(ready)
                continue
            if failed:
                continue
            if kind == b"P":
                name, text = body.split(b"\0")[:2]
                parsed[name] = text.decode(errors="replace")
                peer.sendall(w.message(b"1"))
            elif kind == b"B":
                bound = parsed.get(body.split(b"\0")[1], "")
                peer.sendall(w.message(b"2"))
            elif kind == b"C":
                peer.sendall(w.message(b"3"))
            elif kind == b"D" and body[:1] == b"S" and body[1:-1] and body[1:-1] not in parsed:
                failed = True
                peer.sendall(failure(code="26000", text="prepared statement does not exist"))
            elif kind == b"D":
                peer.sendall((w.message(b"t", b"\0\0") if body[:1] == b"S" else b"") + w.message(b"n"))
            elif kind in b"QE":
                text = body[:-1].decode(errors="replace") if kind == b"Q" else bound
                statements += 1
                outcome = self.answer(connection, statements, text)
                with self.lock:
                    self.seen.append((connection, statements, text, outcome))
                if outcome == "close":
                    return
                if outcome == "silence":
                    exactly(1 << 30)
                if outcome == "fatal":
                    peer.sendall(failure("FATAL", "57P01", "terminating connection due to administrator command"))
                    # Closing with unread input would reset the connection and discard what has not been sent.
                    peer.shutdown(socket.SHUT_WR)
                    while peer.recv(65536):
                        pass
                    return
                if outcome == "error":
                    failed = kind == b"E"
                    peer.sendall(failure() + (ready if kind == b"Q" else b""))
                    continue
                late = outcome == "late" and kind == b"E"
                # Statements that a text prepares exist only if the whole text succeeded.
                parsed.update((name.encode(), "") for name in re.findall(r"PREPARE (\w+) AS", text))
                tag = (text.split() or ["SELECT"])[0].upper()
                peer.sendall(w.message(b"C", w.cstr(tag)) + (ready if kind == b"Q" else b""))
