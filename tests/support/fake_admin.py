"""A fake admin address that serves the admin page and answers as a test wants: strange names, thousands of pools, late
answers, another process. It needs no database and no Poolhouse.
"""

import http.server
import json
import pathlib
import threading
import time

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "crates/pooler/serve/assets"
BOUNDS_MS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000]


def page():
    text = (ASSETS / "dashboard.html").read_text()
    for part, file in (("{style}", "dashboard.css"), ("{script}", "dashboard.js")):
        text = text.replace(part, (ASSETS / file).read_text())
    return text.encode()


def times(beyond=0):
    """A histogram whose values are all above the last bound."""
    return {"count": beyond, "mean_ms": None, "buckets": [0] * len(BOUNDS_MS) + [beyond], "sum_ms": 0.0}


def pool(number=0, **own):
    return {
        "id": number, "protocol": "postgres", "database": f"database{number}", "user": "app", "address": "10.0.0.5:5432", "clients": 1, "waiters": 0,
        "oldest_wait_ms": None, "servers": {"connecting": 0, "idle": 1, "in_use": 0, "checking": 0, "closing": 0, "total": 1}, "max_size": 20,
        "min_size": 0, "settings": {"max_size": 20, "max_idle_time": None}, "created": 1, "closed": {}, "checkout_failed": {}, "pinned": {},
        "suspicious": [], "tuning": None, "transactions": 0, "checkout": {path: times() for path in ("idle", "created", "queued")},
        "connect": {phase: times() for phase in ("dns", "tcp", "tls", "auth", "ready")}, "hold": times(), "unavailable_ms": None, "last_error": None,
        "paused": False, "drained": False, **own,
    }


def listener(**own):
    clients = {"login": 0, "idle": 1, "active": 0, "waiting": 0, "subscribed": 0}
    return {"name": "127.0.0.1:6432", "protocol": "postgres", "clients": clients, "soft_limit": 800, "hard_limit": 1000, "accepted": 1, "logins": 1,
            "rejections": {}, "evictions": {}, "unanswered": {}, "eviction_loops": 0, **own}


class Admin:
    """`look(n)` returns what the nth answer of /api/pools has that is unusual; its `delay` is how long that answer
    takes. `past(path)` does the same for /api/history; None is an error."""

    def __init__(self, look=lambda n: {}, past=lambda path: {}):
        self.look, self.past, self.asked, self.refusal = look, past, 0, None
        admin = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                admin.answer(self)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def pools(self):
        self.asked += 1
        usual = {"version": "0.1.0", "instance": "a", "uptime_ms": 2000.0 * self.asked, "bucket_bounds_ms": BOUNDS_MS, "reactor": "epoll", "draining": False,
                 "auth_failures": 0, "listeners": [listener()], "pools": [pool()], "workers": [{"cpu_ms": 0.0, "clients": 1, "transactions": 0, "moves": 0}]}
        told = {**usual, **self.look(self.asked)}
        time.sleep(told.pop("delay", 0))
        return told

    def answer(self, handler):
        path = handler.path.partition("?")[0]
        status, kind, body = 200, "application/json", None
        if path == "/":
            kind, body = "text/html; charset=utf-8", page()
        elif self.refusal:
            status, told = self.refusal
        elif path == "/api/findings":
            told = {"state": "looking", "window_s": 0.0, "needs_s": 10.0, "looks": 0, "needs_looks": 4}
        elif path == "/api/history":
            own = self.past(handler.path)
            status, told = (503, "busy") if own is None else (200, {"uptime_ms": 2000.0 * self.asked, "pools": [], **own})
        else:
            told = self.pools() if path == "/api/pools" else {"clients": []}
        body = body or json.dumps(told).encode()
        try:
            handler.send_response(status)
            for name, value in (("Content-Type", kind), ("Content-Length", len(body))):
                handler.send_header(name, str(value))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:
            pass  # The browser has given up waiting for this answer.
