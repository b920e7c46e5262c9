"""Starts the pooler under test: Poolhouse, or with POOLER=pgbouncer PgBouncer with equivalent settings, which shows
whether a test or Poolhouse is wrong. No other file knows how either is configured.

Environment: POOLHOUSE=path of the binary, POOLER=pgbouncer, PGBOUNCER=path, TEST_WORKERS=N for tests that set none.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import psycopg
import psycopg2

from support.postgres_cluster import PASSWORDS, free_port, give_away, unprivileged
from support.postgres_wire import Wire

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("POOLHOUSE", str(ROOT / "target/release/poolhouse"))
KIND = os.environ.get("POOLER", "poolhouse")

# The table of poolhouse.toml that a setting belongs to, and PgBouncer's name for it (None: it has none).
DATABASE_KEYS = {
    "reserve_size": "reserve_pool_size", "reserve_wait_time": "reserve_pool_timeout", "login_retry_time": "server_login_retry",
    "round_robin": "server_round_robin", "cancel_wait_time": "cancel_wait_timeout", "fast_close": "server_fast_close",
    "mode": "pool_mode", "max_size": "default_pool_size", "min_size": "min_pool_size", "max_connecting": None,
    "max_wait_time": "query_wait_timeout", "unavailable_wait_time": None, "max_idle_time": "server_idle_timeout",
    "max_life_time": "server_lifetime", "check_after_idle": "server_check_delay", "connect_time": "server_connect_timeout",
    "auto_min_size": None, "auto_max_size": None, "auto_start_size": None, "auto_window": None,
    "max_waiters": None, "pool_idle_time": None, "on_session_state": None, "reset": None, "max_replication_size": None, "max_connections": "max_db_connections", "max_user_connections": "max_user_connections",
}
LISTENER_KEYS = {
    "soft_limit": None, "hard_limit": "max_client_conn", "evict_min_idle": None, "client_idle_time": "client_idle_timeout",
    "max_message_size": "max_packet_size", "refuse_simple_queries": "disable_pqexec", "wait_notice_time": "query_wait_notify", "login_notice": "login_notify_message",
    "allow_startup_parameters": None, "ignore_startup_parameters": None,
    "newcomer_wait_time": None, "login_time": "client_login_timeout", "query_time": "query_timeout", "transaction_idle_time": "idle_transaction_timeout",
    "transaction_time": "transaction_timeout", "backlog": "listen_backlog", "reuse_port": "so_reuseport", "socket_mode": "unix_socket_mode", "socket_group": "unix_socket_group",
}
TLS_KEYS = ("tls", "tls_cert", "tls_key", "tls_client_ca", "tls_client_auth", "tls_protocols", "tls_ciphers", "tls_curves")
LISTENER_KEYS.update(dict.fromkeys((*TLS_KEYS, "proxy_protocol_from")))
SERVE_KEYS = {"workers": None, "drain_time": None, "stay_time": None, "max_auth_failures": None, "node_id": None, "log_connections": "log_connections", "log_disconnections": "log_disconnections", "log_client_errors": "log_pooler_errors", "compatible_with": None, "pid_file": "pidfile", "user": "user"}
LIMITS_KEYS = {
    "max_server_connections": None, "max_clients": "max_client_conn", "max_database_clients": "max_db_client_connections",
    "max_user_clients": "max_user_client_connections", "max_database_connections": "max_db_connections",
}
TCP_KEYS = {
    "keepalive": "tcp_keepalive", "keep_idle": "tcp_keepidle", "keep_interval": "tcp_keepintvl", "keep_count": "tcp_keepcnt",
    "user_timeout": "tcp_user_timeout", "socket_buffer": "tcp_socket_buffer",
}
DNS_KEYS = {"max_ttl": "dns_max_ttl", "failure_ttl": "dns_nxdomain_ttl"}
ADMIN_KEYS = {"token": None, "token_file": None, "user_label": None, "names": None, "view_needs_token": None}


def toml_value(value):
    return json.dumps(str(value) if isinstance(value, pathlib.Path) else value)


def toml_table(header, values):
    return "\n".join([header, *(f"{key} = {toml_value(value)}" for key, value in values.items()), "", ""])


def seconds(duration):
    """A duration of poolhouse.toml in seconds."""
    if duration == "off":
        return 0
    number, unit = re.fullmatch(r"(\d+)(ms|s|m|h)", duration).groups()
    return int(number) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[unit]


class Failed(Exception):
    """The pooler did not start: its exit status and output."""

    def __init__(self, status, output):
        super().__init__(f"exit status {status}:\n{output}")
        self.status, self.output = status, output


class Pooler:
    """What both poolers have in common. `start` and `stop` begin and end the process."""

    is_poolhouse = False
    # The signal that ends the process, whatever its clients do.
    end_signal = signal.SIGTERM

    def __init__(self, directory, cluster):
        self.directory = pathlib.Path(directory)
        self.cluster = cluster
        self.port, self.admin_port = free_port(), free_port()
        self.socket_directory = self.directory
        self.log_path = self.directory / "log"
        self.process = None
        # A test changes this if another exit status is right, for instance after a second SIGTERM.
        self.expected_status = 0

    # -- starting and stopping

    def command(self, settings):
        raise NotImplementedError

    def start(self, **settings):
        command, extra = self.command(settings)
        self.launch(command, **extra)
        return self

    def launch(self, command, environment=None, **extra):
        """Starts any command that will listen on `port`, and waits until it does."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory,
                                            env={**os.environ, **(environment or {})}, **extra)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self.process.poll() is not None:
                raise Failed(self.process.returncode, self.log())
            assert time.monotonic() < deadline, f"does not listen after 10 s:\n{self.log()}"
            time.sleep(0.005)

    def settle(self):
        """Waits until everything is ready. The clients' port accepts connections before that."""
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(OSError):
                if self.get("/health")[0] == 200:
                    return
            assert time.monotonic() < deadline, f"not in place after 10 s:\n{self.log()}"
            time.sleep(0.02)

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, seconds):
        """Its exit status, or None if it still runs after `seconds`."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self):
        """Ends the process. It must exit with the expected status, and its log must show no panic."""
        if self.process is None:
            return
        status = self.process.poll()
        if status is None:
            self.signal(self.end_signal)
            status = self.wait(10)
            if status is None:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"does not end within 10 s of SIGTERM:\n{self.log()[-4000:]}")
        self.process = None
        assert "panicked" not in self.log(), f"it panicked:\n{self.log()[-8000:]}"
        self.check_status(status)

    def check_status(self, status):
        assert status == self.expected_status, f"exit status {status}:\n{self.log()[-4000:]}"

    # -- connecting

    def target(self, user="app", password=None, database="bench"):
        """Keywords of a connection, as libpq's drivers take them."""
        return {"host": "127.0.0.1", "port": self.port, "user": user, "password": password or PASSWORDS.get(user),
                "dbname": database}

    def connect(self, user="app", password=None, database="bench", **more):
        """psycopg 3 in autocommit, without prepared statements."""
        more = {"autocommit": True, "prepare_threshold": None, "connect_timeout": 10, **more}
        return psycopg.connect(**{**self.target(user, password, database), **more})

    async def connect_async(self, user="app", password=None, database="bench", **more):
        more = {"autocommit": True, "prepare_threshold": None, "connect_timeout": 20, **more}
        return await psycopg.AsyncConnection.connect(**{**self.target(user, password, database), **more})

    def connect2(self, user="app", password=None, database="bench", **more):
        """psycopg2."""
        return psycopg2.connect(**self.target(user, password, database), connect_timeout=10, **more)

    def open(self, timeout=10):
        """A raw connection that has sent nothing yet."""
        return Wire(self.port, timeout)

    def wire(self, user="app", password=None, database="bench", timeout=10, **parameters):
        """A raw connection that is logged in."""
        return self.open(timeout).login(user, password or PASSWORDS.get(user), database, **parameters)

    def run(self, *command, **more):
        """Runs a client program, such as psql, with PGHOST and so on set."""
        target = self.target()
        environment = {**os.environ, "PGHOST": target["host"], "PGPORT": str(target["port"]), "PGUSER": target["user"],
                       "PGPASSWORD": target["password"], "PGDATABASE": target["dbname"], "PGCONNECT_TIMEOUT": "10"}
        return subprocess.run([str(part) for part in command], env=environment, text=True, timeout=80,
                              stdin=more.pop("stdin", subprocess.DEVNULL) if "input" not in more else None,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)

    # -- observing it

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def resident_kib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+)", status, re.MULTILINE)[1])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def get(self, path, timeout=5, headers=None):
        """GET from the admin listener: (status, text)."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", headers=headers or {})
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, headers=None, timeout=60):
        """POST to the admin listener with the headers of `poolhouse ctl`, unless others are given: (status, JSON or
        text)."""
        headers = {"X-Poolhouse": "test"} if headers is None else headers
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", b"", headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, text = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            status, text = error.code, error.read().decode()
        return status, json.loads(text) if text.startswith("{") else text

    def pools(self):
        """The pools of /api/pools."""
        return json.loads(self.get("/api/pools")[1])["pools"]

    def metrics(self):
        """Samples of /metrics: a dict from (name, sorted labels) to value."""
        status, text = self.get("/metrics")
        assert status == 200, text
        return parse_metrics(text)

    def metric(self, name, **labels):
        """Sum of the samples of a metric that have these labels."""
        wanted = set(labels.items())
        found = [value for (sample, has), value in self.metrics().items() if sample == name and wanted <= set(has)]
        return sum(found)


def parse_metrics(text):
    samples = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)(?: \S+)?", line)
        assert match, f"not a sample: {line!r}"
        labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")))
        samples[(match[1], labels)] = float(match[3])
    return samples


class Poolhouse(Pooler):
    """poolhouse serve --config."""

    is_poolhouse = True

    def config(self, settings):
        """The text of poolhouse.toml. Users and databases are dicts, every other setting goes by its key."""
        settings = dict(settings)
        users = settings.pop("users", {"app": PASSWORDS["app"]})
        databases = settings.pop("databases", {"bench": {}})
        auth, admin_tokens = settings.pop("auth", {}), settings.pop("admin_tokens", [])
        console, peers = settings.pop("console", None), settings.pop("peers", [])
        auth_file, listen = settings.pop("auth_file", None), settings.pop("listen", f"127.0.0.1:{self.port}")
        settings.pop("ini", None)

        def pick(keys):
            return {key: settings.pop(key) for key in list(settings) if key in keys}

        serve, limits, listener, database = pick(SERVE_KEYS), pick(LIMITS_KEYS), pick(LISTENER_KEYS), pick(DATABASE_KEYS)
        admin, tcp, dns = pick(ADMIN_KEYS), pick(TCP_KEYS), pick(DNS_KEYS)
        assert not settings, f"unknown settings {settings}"
        text = toml_table("[admin]", {"listen": f"127.0.0.1:{self.admin_port}", **admin})
        text += "".join(toml_table("[[admin_token]]", token) for token in admin_tokens)
        text += "".join(toml_table("[[peer]]", peer) for peer in peers)
        if "TEST_WORKERS" in os.environ:
            serve.setdefault("workers", int(os.environ["TEST_WORKERS"]))
        if serve:
            text += toml_table("[serve]", serve)
        if limits:
            text += toml_table("[limits]", limits)
        if console:
            text += toml_table("[console]", console)
        for header, values in (("[tcp]", tcp), ("[dns]", dns)):
            text += toml_table(header, values) if values else ""
        if auth_file:
            auth = {"file": str(auth_file), **auth}
        if auth:
            text += toml_table("[auth]", auth)
        for address in listen if isinstance(listen, list) else [listen]:
            on_tcp = listener if not str(address).startswith("unix:") else {k: v for k, v in listener.items() if k not in (*TLS_KEYS, "proxy_protocol_from", "reuse_port")}
            text += toml_table("[[listener]]", {"protocol": "postgres", "listen": address, **on_tcp})
        for name, more in databases.items():
            text += toml_table("[[database]]", {"name": name, "url": self.cluster.url("" if name == "*" else name), **database, **more})
        for name, password in users.items():
            more = password if isinstance(password, dict) else {"password": password}
            text += toml_table("[[user]]", {"name": name, **more})
        return text

    def command(self, settings):
        self.rewrite(**settings)
        return [BINARY, "serve", "--config", str(self.config_path)], {}

    @property
    def config_path(self):
        return self.directory / "poolhouse.toml"

    def rewrite(self, **settings):
        """Writes another configuration, for a reload."""
        self.config_path.write_text(self.config(settings))
        self.config_path.chmod(0o600)

    def ctl(self, *arguments, environment=None):
        """poolhouse ctl: the ended process, with its exit status and outputs."""
        command = [BINARY, "ctl", self.admin_url, *map(str, arguments)]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                              env={**os.environ, **(environment or {})})

    @property
    def admin_url(self):
        """The address of metrics and orders."""
        return f"http://127.0.0.1:{self.admin_port}"


class PgBouncer(Pooler):
    """PgBouncer, with those settings that it has, too."""

    # Since 1.23 it waits for its clients at SIGTERM.
    end_signal = signal.SIGQUIT

    @staticmethod
    def binary():
        installed = ROOT / ".venv/pgbouncer/run"
        if "PGBOUNCER" not in os.environ and installed.exists():
            return str(installed)
        return os.environ.get("PGBOUNCER") or shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"

    @classmethod
    @functools.cache
    def is_newest(cls):
        """Whether it is the version that Poolhouse is compared with, or a later one."""
        if not os.access(cls.binary(), os.X_OK):
            return False
        told = subprocess.run([cls.binary(), "--version"], capture_output=True, text=True, timeout=10).stdout
        version = re.search(r"PgBouncer (\d+)\.(\d+)", told)
        return version is not None and tuple(map(int, version.groups())) >= (1, 26)

    def command(self, settings):
        settings = dict(settings)
        users = settings.pop("users", {"app": PASSWORDS["app"]})
        databases = settings.pop("databases", {"bench": {}})
        auth_file, console = settings.pop("auth_file", None), settings.pop("console", {})
        ini = {
            "listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": self.socket_directory,
            "auth_type": "scram-sha-256", "auth_file": auth_file or self.directory / "userlist.txt",
            "pool_mode": "transaction", "max_client_conn": 2000, "server_login_retry": 1,
            "ignore_startup_parameters": "extra_float_digits,options", "log_connections": 0, "log_disconnections": 0,
            "admin_users": ",".join(console.get("admins", []) if console else ["app"]), "stats_users": ",".join(console.get("viewers", [])),
            **settings.pop("ini", {}),
        }
        names = {**DATABASE_KEYS, **LISTENER_KEYS, **SERVE_KEYS, **LIMITS_KEYS, **TCP_KEYS, **DNS_KEYS}
        for key, value in settings.items():
            name = names[key]
            if name:
                ini[name] = seconds(value) if re.fullmatch(r"\d+(ms|s|m|h)|off", str(value)) else int(value) if isinstance(value, bool) else value
        lines = ["[databases]"]
        for name, more in databases.items():
            where = "" if name == "*" else f" dbname={name}"
            login = "" if "url" in more else f" user=app password='{PASSWORDS['app']}'"
            lines.append(f"{name} = host=127.0.0.1 port={self.cluster.port}{where}{login}")
        lines += ["[pgbouncer]", *(f"{key} = {value}" for key, value in ini.items()), ""]
        (self.directory / "pgbouncer.ini").write_text("\n".join(lines))
        if not auth_file:
            text = "".join(f'"{name}" "{password}"\n' for name, password in users.items())
            (self.directory / "userlist.txt").write_text(text)
        for path in (self.directory, *self.directory.iterdir()):
            give_away(path)
        return [self.binary(), str(self.directory / "pgbouncer.ini")], unprivileged()

    def check_status(self, status):
        """Accepts any status: SIGTERM is an immediate shutdown there."""


def make(directory, cluster, kind=None):
    return {"poolhouse": Poolhouse, "pgbouncer": PgBouncer}[kind or KIND](directory, cluster)
