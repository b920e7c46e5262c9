"""Serves one pgbouncer.ini by the real PgBouncer of the newest suite, or by `poolhouse pgbouncer`."""

import signal
import subprocess

from support.pooler import BINARY, ROOT, Pooler
from support.postgres_cluster import PASSWORDS, give_away, md5_hash, scram_verifier, unprivileged

# Unpacked by scripts/pgbouncer.sh.
PGBOUNCER = ROOT / ".venv/pgbouncer/run"
KINDS = ["pgbouncer", "poolhouse"]


def command(kind, *arguments):
    program = [str(PGBOUNCER)] if kind == "pgbouncer" else [BINARY, "pgbouncer"]
    return [*program, *map(str, arguments)]


def run(kind, folder, *arguments, seconds=20):
    """Runs it to its end with these arguments: (exit status, all that it said)."""
    for path in (folder, *folder.iterdir()):
        give_away(path)
    done = subprocess.run(command(kind, *arguments), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=seconds, **unprivileged())
    return done.returncode, done.stdout


class IniPooler(Pooler):
    """A pooler of either kind that a pgbouncer.ini configures."""

    def __init__(self, kind, directory, cluster):
        super().__init__(directory, cluster)
        self.kind, self.is_poolhouse = kind, kind == "poolhouse"
        self.ini = self.directory / "pgbouncer.ini"

    def write(self, databases=None, users=None, auth=None, more="", **general):
        """Writes the ini and the user list. `databases` and `users` map names to connection strings."""
        databases = databases or {"bench": f"host=127.0.0.1 port={self.cluster.port} dbname=bench"}
        auth = auth or {"app": PASSWORDS["app"]}
        settings = {"listen_addr": "127.0.0.1", "listen_port": self.port, "unix_socket_dir": "", "auth_type": "md5",
                    "auth_file": "userlist.txt", **general}
        lines = ["[databases]", *(f"{name} = {text}" for name, text in databases.items())]
        if users:
            lines += ["[users]", *(f"{name} = {text}" for name, text in users.items())]
        lines += ["[pgbouncer]", *(f"{key} = {value}" for key, value in settings.items()), more, ""]
        self.ini.write_text("\n".join(lines))
        text = "".join(f'"{name}" "{password}"\n' for name, password in auth.items())
        (self.directory / "userlist.txt").write_text(text)
        for path in (self.directory, *self.directory.iterdir()):
            give_away(path)

    def command(self, settings):
        self.write(**settings)
        return command(self.kind, self.ini), unprivileged()

    def reload(self):
        self.signal(signal.SIGHUP)

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            # SIGTERM waits for clients in both.
            self.signal(signal.SIGQUIT)
        super().stop()

    def check_status(self, status):
        """PgBouncer exits with 0 or 1 after SIGQUIT, by version."""
        assert not self.is_poolhouse or status == self.expected_status, f"exit status {status}:\n{self.log()[-4000:]}"


def stored_passwords():
    """Users with a plain password, an md5 hash and a SCRAM verifier."""
    return {"app": PASSWORDS["app"], "md5user": md5_hash("md5user"), "app2": PASSWORDS["app2"]}
