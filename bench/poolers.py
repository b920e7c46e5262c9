"""The programs under test: how each is found, configured, started and asked for its version.

All pool 20 server connections in transaction mode, except the two that cannot: HAProxy forwards bytes and pgpool2
keeps a server per client. Refuses to know what is measured.
"""

import http.client
import os
import re
import shutil
import subprocess
import urllib.request

import processes
import wire
from cluster import DATABASE, USER

POOL_SIZE = 20
CLIENT_LIMIT = 20_000


class Pooler:
    """One target. Subclasses say how to find and start it."""

    name = ""
    program = ""
    variable = ""
    # Whether it must not, or need not, run as root.
    unprivileged = True

    def __init__(self, directory, cluster):
        self.directory = directory
        self.cluster = cluster
        self.port = None
        self.process = None

    def path(self):
        """The executable, or None if it is missing."""
        named = os.environ.get(self.variable) if self.variable else None
        if named:
            return os.path.abspath(named) if os.path.isfile(named) else None
        return shutil.which(self.program, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")

    def version(self):
        """What it calls itself, in one line."""
        done = subprocess.run([self.path(), "--version"], capture_output=True, text=True, check=False)
        return ((done.stdout or done.stderr).strip().splitlines() or ["unknown"])[0]

    def start(self):
        """Starts it and waits until a query is answered."""
        self.port = processes.free_port()
        log = os.path.join(self.directory, f"{self.name}.log")
        self.process = processes.start(self.command(), log, self.unprivileged)
        if not processes.wait_until(lambda: wire.answers(self.port, USER, DATABASE), 20, self.process):
            self.stop()
            raise RuntimeError(f"{self.name} did not come up:\n" + open(log, errors="replace").read()[-2000:])
        return self

    def stop(self):
        """Ends it."""
        if self.process:
            processes.stop(self.process)
            self.process = None

    def pid(self):
        """The root of its processes."""
        return self.process.pid

    def command(self):
        """The command line; writes configuration files first."""
        raise NotImplementedError

    def write(self, name, text):
        """Writes a configuration file that the target may read."""
        path = os.path.join(self.directory, name)
        with open(path, "w") as file:
            file.write(text)
        processes.give_away(path)
        return path


class Poolhouse(Pooler):
    """Poolhouse with one worker."""

    name = "poolhouse-1"
    variable = "POOLHOUSE"
    program = "poolhouse"
    unprivileged = False
    workers = 1

    def path(self):
        """`POOLHOUSE`, or the release build of this tree."""
        if os.environ.get(self.variable):
            return super().path()
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        built = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(root, "target")), "release", "poolhouse")
        return built if os.path.isfile(built) else None

    def command(self):
        """Soft and hard limit are the same, so that none of the crowd is evicted; waiting as long as PgBouncer's."""
        self.admin = processes.free_port()
        url = f"postgres://{USER}@127.0.0.1:{self.cluster.port}/{DATABASE}"
        limits = ["--soft-limit", str(CLIENT_LIMIT), "--hard-limit", str(CLIENT_LIMIT)]
        listen = ["--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        size = ["--max-size", str(POOL_SIZE), "--workers", str(self.workers), "--max-wait-time", "120s"]
        return [self.path(), "serve", url, *listen, *size, *limits]

    def reactor(self):
        """The reactor that the running process names in its metrics, or None."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=5) as answer:
                found = re.search(r'^poolhouse_build_info\{[^}]*reactor="([^"]*)"', answer.read().decode(), re.M)
            return found.group(1) if found else None
        except (OSError, http.client.HTTPException):
            return None


class PoolhouseTwo(Poolhouse):
    """Poolhouse with two workers."""

    name = "poolhouse-2"
    workers = 2


class PgBouncer(Pooler):
    """PgBouncer: the one that `PGBOUNCER` names, or that `scripts/pgbouncer.sh` has unpacked, or else the installed one."""

    name = "pgbouncer"
    variable = "PGBOUNCER"
    program = "pgbouncer"
    unpacked = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), ".venv", "pgbouncer")

    def path(self):
        """What was unpacked is copied to where an unprivileged account can run it."""
        if os.environ.get(self.variable) or not os.path.isfile(os.path.join(self.unpacked, "run")):
            return super().path()
        copy = os.path.join(self.directory, "pgbouncer")
        if not os.path.isdir(copy):
            shutil.copytree(self.unpacked, copy)
        return os.path.join(copy, "run")

    def version(self):
        """The installed one is named as such: it can be years older than the newest."""
        installed = os.path.dirname(self.path()) in ("/usr/sbin", "/usr/bin")
        return super().version() + (", the one that is installed here" if installed else "")

    def tracks_statements(self):
        """Whether prepared statements follow a client in transaction mode: since 1.21."""
        found = re.search(r"(\d+)\.(\d+)", self.version())
        return bool(found) and (int(found[1]), int(found[2])) >= (1, 21)

    def command(self):
        """Its defaults, but for the pool, the limits and the log."""
        path = self.write(
            "pgbouncer.ini",
            f"""[databases]
{DATABASE} = host=127.0.0.1 port={self.cluster.port} dbname={DATABASE} user={USER}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {POOL_SIZE}
max_client_conn = {CLIENT_LIMIT}
listen_backlog = 4096
log_connections = 0
log_disconnections = 0
""",
        )
        return [self.path(), "-q", path]


class HAProxy(Pooler):
    """HAProxy as a plain TCP forwarder: what the least possible work costs."""

    name = "haproxy"
    variable = "HAPROXY"
    program = "haproxy"

    def version(self):
        """It has no long option for this."""
        done = subprocess.run([self.path(), "-v"], capture_output=True, text=True, check=False)
        return done.stdout.splitlines()[0]

    def command(self):
        """One thread, like the others."""
        path = self.write(
            "haproxy.cfg",
            f"""global
    nbthread 1
    maxconn 8000
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen bench
    bind 127.0.0.1:{self.port}
    server postgres 127.0.0.1:{self.cluster.port}
""",
        )
        return [self.path(), "-db", "-f", path]


class Pgpool(Pooler):
    """pgpool2: a process and a server connection per client."""

    name = "pgpool2"
    variable = "PGPOOL"
    program = "pgpool"

    def command(self):
        """Only pooling: no load balancing, no checks."""
        empty = self.write("pgpool_empty.conf", "")
        path = self.write(
            "pgpool.conf",
            f"""listen_addresses = '127.0.0.1'
port = {self.port}
socket_dir = '{self.directory}'
pcp_listen_addresses = ''
pcp_port = {processes.free_port()}
pcp_socket_dir = '{self.directory}'
backend_clustering_mode = 'raw'
backend_hostname0 = '127.0.0.1'
backend_port0 = {self.cluster.port}
num_init_children = 64
max_pool = 1
connection_cache = on
load_balance_mode = off
enable_pool_hba = off
sr_check_period = 0
health_check_period = 0
pid_file_name = '{self.directory}/pgpool.pid'
logdir = '{self.directory}'
work_dir = '{self.directory}'
""",
        )
        return [self.path(), "-n", "-f", path, "-F", empty, "-a", empty]


KINDS = {kind.name: kind for kind in (PgBouncer, Poolhouse, PoolhouseTwo, HAProxy, Pgpool)}
