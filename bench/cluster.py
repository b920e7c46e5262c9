"""A private PostgreSQL cluster for the bench, with pgbench's tables loaded.

Refuses to know poolers.
"""

import glob
import os
import shutil
import signal
import subprocess

import processes
import wire

DATABASE = "bench"
USER = "bench"
SETTINGS = {
    # Enough for all poolers' servers and for those that open one per client.
    "max_connections": "300",
    "shared_buffers": "1GB",
    # Disks are not what is measured, and nothing of this need survive.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "listen_addresses": "127.0.0.1",
}


def find_programs():
    """The directory of initdb, postgres and pgbench."""
    candidates = []
    initdb = shutil.which("initdb")
    if initdb:
        candidates.append(os.path.dirname(os.path.realpath(initdb)))
    if shutil.which("pg_config"):
        candidates.append(subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True).stdout.strip())
    candidates += sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: path.split("/")[4].zfill(4))[::-1]
    for path in candidates:
        if all(os.path.isfile(os.path.join(path, name)) for name in ("initdb", "postgres", "pgbench")):
            return path
    raise SystemExit("bench: no PostgreSQL found (initdb, postgres, pgbench); on Debian: apt-get install postgresql")


class Cluster:
    """A running cluster."""

    def __init__(self, directory, scale):
        self.bin = find_programs()
        self.port = processes.free_port()
        self.scale = scale
        data = os.path.join(directory, "data")
        initdb = [self.program("initdb"), "-D", data, "-U", USER, "-A", "trust"]
        processes.run(initdb + ["--no-sync", "--locale=C", "-E", "UTF8"], unprivileged=True)
        command = [self.program("postgres"), "-D", data, "-p", str(self.port), "-k", directory]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        log = os.path.join(directory, "postgres.log")
        self.process = processes.start(command, log, farewell=signal.SIGINT)
        if not processes.wait_until(lambda: wire.answers(self.port, USER, "postgres"), 30, self.process):
            raise SystemExit(f"bench: PostgreSQL did not start:\n{open(log, errors='replace').read()}")
        self.sql("create database " + DATABASE, "postgres")
        pgbench = [self.program("pgbench"), "-i", "-q", "-s", str(scale)]
        processes.run(pgbench + ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, DATABASE])

    def program(self, name):
        """Path of one of PostgreSQL's programs."""
        return os.path.join(self.bin, name)

    def sql(self, statement, database=DATABASE):
        """Runs a statement directly."""
        psql = [self.program("psql"), "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        return processes.run(psql + ["-c", statement, database]).strip()

    def tidy(self):
        """Takes the dead rows of an updating run away, so that the next one starts alike."""
        self.sql("vacuum pgbench_branches")
        self.sql("vacuum pgbench_tellers")
        self.sql("truncate pgbench_history")

    def version(self):
        """What the server calls itself."""
        return self.sql("show server_version")

    def stop(self):
        """Ends it (fast shutdown)."""
        processes.stop(self.process)
