"""A private Redis on a free port, and Poolhouse in front of it. It knows no PostgreSQL."""

import contextlib
import subprocess
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from support import pooler
from support.postgres_cluster import free_port


class RedisServer:
    """A redis-server without persistence."""

    def __init__(self, directory, password=None, **settings):
        self.directory, self.port, self.password = directory, free_port(), password
        self.settings = {"port": self.port, "bind": "127.0.0.1", "save": '""', "appendonly": "no", "dir": directory, **settings}
        if password:
            self.settings["requirepass"] = password
        self.process = None

    def start(self):
        arguments = [str(part) for key, value in self.settings.items() for part in (f"--{key}", value if value != '""' else "")]
        with (self.directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(["redis-server", *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + 10
        while True:
            with contextlib.suppress(redis.ConnectionError, redis.BusyLoadingError):
                self.connect().ping()
                return self
            assert self.process.poll() is None and time.monotonic() < deadline, (self.directory / "redis.log").read_text()
            time.sleep(0.02)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def connect(self, **more):
        """redis-py, without Poolhouse."""
        return redis.Redis(port=self.port, password=self.password, **more)

    def url(self):
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}127.0.0.1:{self.port}"


class RedisPoolhouse(pooler.Pooler):
    """poolhouse serve redis://..."""

    def __init__(self, directory, server):
        super().__init__(directory, None)
        self.server = server

    def command(self, settings):
        flags = [part for key, value in settings.items() for part in (f"--{key.replace('_', '-')}", str(value))]
        addresses = ["--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin_port}"]
        return [pooler.BINARY, "serve", self.server.url(), *addresses, *flags], {}

    def connect(self, **more):
        """redis-py through Poolhouse, with one connection and without retries."""
        more = {"password": self.server.password, "protocol": 2, "retry": Retry(NoBackoff(), 0), "single_connection_client": True, "socket_timeout": 10, **more}
        return redis.Redis(port=self.port, **more)

    def start_with(self, text):
        """Starts with a configuration file: an [admin] section and this text."""
        self.path = self.directory / "poolhouse.toml"
        self.rewrite(text)
        self.launch([pooler.BINARY, "serve", "--config", str(self.path)])
        return self

    def rewrite(self, text):
        """Writes another file, for a reload."""
        self.path.write_text(f'[admin]\nlisten = "127.0.0.1:{self.admin_port}"\n{text.replace("PORT", str(self.port))}')
        self.path.chmod(0o600)

    def cli(self, *arguments, **more):
        """The output of redis-cli."""
        command = ["redis-cli", "-p", str(self.port), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, **more).stdout
