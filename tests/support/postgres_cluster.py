"""A private PostgreSQL cluster: made in a temporary directory, on a free port, as an unprivileged user. It knows no
pooler.

Environment: PG_BIN=folder with the initdb, pg_ctl and postgres to use. Programs that it lacks are the installed ones.
"""

import base64
import contextlib
import glob
import hashlib
import hmac
import os
import pathlib
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.parse

import psycopg

SUPERUSER = "postgres"
# Roles of the tests with their passwords. Each logs in with the method in its name; app and app2 use SCRAM.
PASSWORDS = {"app": "app secret", "app2": "app2-secret", "md5user": "md5-secret", "plainuser": "plain-secret"}
DATABASES = ("bench", "other")
MAX_CONNECTIONS = 100

HBA = """
local all postgres trust
host all md5user 127.0.0.1/32 md5
host all plainuser 127.0.0.1/32 password
host all all 127.0.0.1/32 scram-sha-256
local all all scram-sha-256
"""

# Tests need speed and no durability.
SETTINGS = f"""
listen_addresses = '127.0.0.1'
max_connections = {MAX_CONNECTIONS}
max_prepared_transactions = 10
fsync = off
synchronous_commit = off
full_page_writes = off
autovacuum = off
shared_buffers = 64MB
max_wal_size = 4GB
log_min_messages = warning
"""


# The number of this pytest process, and how many there are (from pytest-xdist).
PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PORTS = range(15000 + PROCESS, 30000, PROCESSES)
given_ports = set()


def free_port():
    """A port without a listener, below the range of ports for outgoing connections. Each port is returned once, and
    other test processes get other ports, so the caller may bind it at any later time, or never."""
    for _ in range(1000):
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            if port not in given_ports:
                probe.bind(("127.0.0.1", port))
                given_ports.add(port)
                return port
    raise RuntimeError("no free port")


def unprivileged():
    """Arguments for subprocess that drop root, because PostgreSQL and PgBouncer refuse to run as root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise RuntimeError("no unprivileged user to run PostgreSQL as")


def give_away(path):
    """Makes the unprivileged user the owner of `path`."""
    who = unprivileged()
    if who:
        os.chown(path, who["user"], who["group"])


def program(name):
    """The path of one of PostgreSQL's programs. Debian keeps them off PATH."""
    chosen = pathlib.Path(os.environ.get("PG_BIN", "/nowhere")) / name
    if chosen.exists():
        return str(chosen)
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda p: float(p.split("/")[4]))
    path = found[-1] if found else shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not installed; run scripts/setup.sh")
    return path


def md5_hash(user):
    """The user's password as PostgreSQL stores it for md5."""
    return "md5" + hashlib.md5((PASSWORDS[user] + user).encode()).hexdigest()


def scram_verifier(user, iterations=4096):
    """The user's password as PostgreSQL stores it for SCRAM."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORDS[user].encode(), salt, iterations)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    b64 = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${iterations}:{b64[0]}${b64[1]}:{b64[2]}"


class Cluster:
    """A cluster that runs from `start` to `stop`."""

    locale = "C.UTF-8"

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.data = self.directory / "data"
        self.port = free_port()
        self.log = self.directory / "postgresql.log"

    def make(self):
        """Runs initdb, makes roles and databases, and leaves the cluster running."""
        give_away(self.directory)
        subprocess.run([program("initdb"), "-D", self.data, "-U", SUPERUSER, "-E", "UTF8", f"--locale={self.locale}",
                        "--no-sync", "--auth=trust"],
                       check=True, stdout=subprocess.DEVNULL, cwd=self.directory, **unprivileged())
        (self.data / "pg_hba.conf").write_text(HBA)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(SETTINGS)
            conf.write(f"port = {self.port}\nunix_socket_directories = '{self.directory}'\n")
        self.configure()
        self.start()
        with self.superuser() as db:
            for name, password in PASSWORDS.items():
                method = "md5" if name == "md5user" else "scram-sha-256"
                db.execute(f"SET password_encryption = '{method}'")
                db.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
            for name in DATABASES:
                db.execute(f"CREATE DATABASE {name} OWNER app")
        for name in DATABASES:
            with self.superuser(name) as db:
                db.execute("GRANT ALL ON SCHEMA public TO PUBLIC")

    def start(self):
        # -w waits until the cluster accepts connections.
        subprocess.run([program("pg_ctl"), "-D", self.data, "-l", self.log, "-w", "-t", "30", "start"], check=True,
                       stdout=subprocess.DEVNULL, cwd=self.directory, **unprivileged())

    def stop(self, mode="fast"):
        subprocess.run([program("pg_ctl"), "-D", self.data, "-m", mode, "-w", "stop"], check=True,
                       stdout=subprocess.DEVNULL, cwd=self.directory, **unprivileged())

    def running(self):
        """The same answer as `pg_ctl status`, without a process for each test."""
        try:
            os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), 0)
        except (OSError, IndexError):
            return False
        return True

    def url(self, database="bench", user="app", host=None):
        """A URL for a pooler's configuration. `user` None leaves the login out."""
        login = f"{user}:{urllib.parse.quote(PASSWORDS[user])}@" if user else ""
        return f"postgres://{login}{host or '127.0.0.1'}:{self.port}/{database}"

    def superuser(self, database="postgres"):
        """A connection that bypasses every pooler, through the Unix socket."""
        return psycopg.connect(host=str(self.directory), port=self.port, user=SUPERUSER, dbname=database,
                               autocommit=True, connect_timeout=10)

    def configure(self):
        """Additions to the configuration before the first start."""

    def query(self, sql, *parameters, database="postgres"):
        with self.superuser(database) as db:
            return db.execute(sql, parameters or None).fetchall()

    def backends(self, *users):
        """Rows of pg_stat_activity of these users' sessions, by default those of app."""
        with self.superuser() as db:
            cursor = db.cursor(row_factory=psycopg.rows.namedtuple_row)
            return cursor.execute("SELECT pid, datname, state, query, application_name, xact_start FROM pg_stat_activity"
                                  " WHERE backend_type = 'client backend' AND usename = ANY(%s) ORDER BY pid", [list(users or ("app",))]).fetchall()

    def terminate(self, user="app"):
        return self.query("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s", user)

    def kill_backend(self, pid):
        """Sends SIGKILL, as the kernel's out-of-memory killer does. The cluster restarts itself."""
        os.kill(pid, signal.SIGKILL)

    def wait_until_up(self, seconds=20):
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.query("SELECT 1")
                return
            except psycopg.OperationalError:
                assert time.monotonic() < deadline, f"PostgreSQL did not come back within {seconds} s"
                time.sleep(0.05)


# plainuser logs in without TLS only, all others with TLS only.
SECURE_HBA = """
local all postgres trust
hostssl all plainuser 127.0.0.1/32 reject
hostnossl all plainuser 127.0.0.1/32 scram-sha-256
hostssl all app2 127.0.0.1/32 cert
hostssl all all 127.0.0.1/32 scram-sha-256
"""


class SecureCluster(Cluster):
    """A cluster with TLS. app2 logs in with a certificate."""

    def __init__(self, directory, pair, authority=None):
        super().__init__(directory)
        self.pair, self.authority = pair, authority

    def configure(self):
        self.lay_down(self.pair)
        (self.data / "pg_hba.conf").write_text(SECURE_HBA)
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("ssl = on\nssl_cert_file = 'shown.pem'\nssl_key_file = 'shown.key'\n")
            conf.write("ssl_ca_file = 'authority.pem'\n")

    def lay_down(self, pair):
        authority = self.authority or pair.certificate.parent / "authority.pem"
        for source, name in ((pair.certificate, "shown.pem"), (pair.key, "shown.key"), (authority, "authority.pem")):
            path = self.data / name
            path.write_bytes(source.read_bytes())
            give_away(path)
            path.chmod(0o600)

    def show(self, pair):
        """Uses another certificate from now on."""
        if pair is self.pair:
            return
        (before,), = self.query("SELECT pg_conf_load_time()")
        self.lay_down(pair)
        self.pair = pair
        self.query("SELECT pg_reload_conf()")
        deadline = time.monotonic() + 10
        while self.query("SELECT pg_conf_load_time()")[0][0] == before:
            assert time.monotonic() < deadline, "PostgreSQL does not read its configuration again"
            time.sleep(0.02)
