"""A Redis with replicas and the sentinels that watch it. It knows no Poolhouse."""

import contextlib
import subprocess

import redis

from support.postgres_cluster import free_port
from support.redis_fixtures import own_redis
from support.waiting import eventually

NAME = "mymaster"
# In seconds. A sentinel whose own timer was late by two seconds, as on a busy machine, does nothing for 30 s ("TILT").
SENTINELS_ACT_WITHIN = 60


class Sentinels:
    """One master, one replica, and `count` sentinels. The master changes."""

    def __init__(self, workspace, count=1, password=None, sentinel_password=None):
        self.password, self.sentinel_password = password, sentinel_password
        more = {"masterauth": password} if password else {}
        self.servers = [own_redis(workspace, name, password=password, **more) for name in ("first", "second")]
        self.folders = [own_redis(workspace, f"sentinel{number}").directory for number in range(count)]
        self.ports = [free_port() for _ in range(count)]
        self.processes = [None] * count

    def __enter__(self):
        first, second = (server.start() for server in self.servers)
        second.connect().replicaof("127.0.0.1", first.port)
        eventually("the replica follows", lambda: second.connect().info("replication").get("master_link_status") == "up", 15)
        for number, (folder, port) in enumerate(zip(self.folders, self.ports)):
            lines = [f"port {port}", "bind 127.0.0.1", f"dir {folder}", f"sentinel monitor {NAME} 127.0.0.1 {first.port} {len(self.ports) // 2 + 1}",
                     f"sentinel down-after-milliseconds {NAME} 1000", f"sentinel failover-timeout {NAME} 5000"]
            if self.password:
                lines.append(f"sentinel auth-pass {NAME} {self.password}")
            if self.sentinel_password:
                lines += [f"requirepass {self.sentinel_password}", f"sentinel sentinel-pass {self.sentinel_password}"]
            (folder / "sentinel.conf").write_text("\n".join(lines) + "\n")
            self.start(number)
        others = len(self.ports) - 1
        knows = lambda master: master["num-slaves"] == 1 and master["num-other-sentinels"] == others
        eventually("the sentinels know each other and the replica", lambda: all(knows(self.ask(port)) for port in self.ports), SENTINELS_ACT_WITHIN)
        return self

    def __exit__(self, *_):
        for number in range(len(self.ports)):
            self.stop(number)
        for server in self.servers:
            server.stop()

    def start(self, number):
        folder = self.folders[number]
        with (folder / "log").open("ab") as log:
            command = ["redis-server", str(folder / "sentinel.conf"), "--sentinel"]
            self.processes[number] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self, number):
        if self.processes[number]:
            self.processes[number].kill()
            self.processes[number].wait()
            self.processes[number] = None

    def connect(self, port):
        return redis.Redis(port=port, password=self.sentinel_password, decode_responses=True)

    def ask(self, port):
        """The master that a sentinel reports; zeroes if the sentinel does not answer."""
        with contextlib.suppress(redis.ConnectionError):
            return self.connect(port).sentinel_master(NAME)
        return {"num-slaves": -1, "num-other-sentinels": -1}

    def master(self):
        """The port of the master, as the last running sentinel reports it."""
        running = [port for port, process in zip(self.ports, self.processes) if process]
        return self.ask(running[-1])["port"]

    def server(self, port):
        return next(server for server in self.servers if server.port == port)

    def fail_over(self):
        """Makes the replica the master by an orderly failover. Returns when the sentinels report it and the old master
        follows."""
        before = self.master()
        other = next(server for server in self.servers if server.port != before)
        eventually("the other one has all", lambda: other.connect().info("replication").get("master_link_status") == "up", 30)
        eventually("a failover begins", lambda: self.begin(), SENTINELS_ACT_WITHIN, 0.3)
        eventually("the sentinels call the other one the master", lambda: self.master() != before, SENTINELS_ACT_WITHIN, 0.05)
        eventually("the old one follows", lambda: self.server(before).connect().info("replication")["role"] == "slave", SENTINELS_ACT_WITHIN, 0.05)

    def begin(self):
        try:
            return self.connect(self.ports[-1]).sentinel_failover(NAME)
        except redis.ResponseError:
            # Sentinels refuse a failover soon after the last one.
            return False

    def url(self, **parameters):
        """The URL for Poolhouse."""
        login = f":{self.password}@" if self.password else ""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        query = "&".join(f"{key}={value}" for key, value in parameters.items())
        return f"redis+sentinel://{login}{hosts}/{NAME}" + (f"?{query}" if query else "")
