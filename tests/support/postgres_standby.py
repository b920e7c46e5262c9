"""A streaming standby of a private cluster. It knows no pooler."""

import pathlib
import subprocess

from support.postgres_cluster import SUPERUSER, Cluster, program, unprivileged

REPLICATION = "local replication all trust\n"


class Standby(Cluster):
    """Follows `primary` until it is promoted."""

    def __init__(self, directory, primary):
        super().__init__(directory)
        self.primary = primary

    def make(self):
        with (pathlib.Path(self.primary.data) / "pg_hba.conf").open("a") as hba:
            hba.write(REPLICATION)
        self.primary.query("SELECT pg_reload_conf()")
        subprocess.run([program("pg_basebackup"), "-D", self.data, "-R", "-c", "fast", "-X", "stream", "-h",
                        str(self.primary.directory), "-p", str(self.primary.port), "-U", SUPERUSER], check=True,
                       cwd=self.directory, **unprivileged())
        with (pathlib.Path(self.data) / "postgresql.conf").open("a") as conf:
            conf.write(f"port = {self.port}\nunix_socket_directories = '{self.directory}'\n")
        self.start()

    def promote(self):
        self.query("SELECT pg_promote()")
