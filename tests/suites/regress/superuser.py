"""A fresh cluster whose superuser comes in over TCP, and a pooler before it if one is wanted: suites others wrote need
a superuser.
"""

import contextlib
import pathlib
import shutil
import tempfile

from support.postgres_cluster import SUPERUSER, Cluster

PASSWORD = "suite secret"


class SuperuserCluster(Cluster):
    """With the settings under which pg_regress runs."""

    locale = "C"

    def configure(self):
        hba = self.data / "pg_hba.conf"
        hba.write_text(f"host all {SUPERUSER} 127.0.0.1/32 trust\n" + hba.read_text())
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write("autovacuum = on\nsynchronous_commit = on\nmax_prepared_transactions = 2\n")

    def url(self, database="bench", user=SUPERUSER, host=None):
        return f"postgres://{SUPERUSER}@{host or '127.0.0.1'}:{self.port}/{database}"


@contextlib.contextmanager
def way_to_a_server(database, kind, settings, entry, prepare):
    """Keywords of a connection, and a directory that the server can read.

    `kind`: a class of tests/support/pooler.py or None; `settings`: its own; `entry`: those of the database's entry;
    `prepare`: is given the cluster.
    """
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-suite-"))
    directory.chmod(0o755)
    for part in ("pg", "work", "pooler"):
        (directory / part).mkdir()
    cluster, between = SuperuserCluster(directory / "pg"), None
    try:
        cluster.make()
        prepare(cluster)
        target = {"host": "127.0.0.1", "port": cluster.port, "user": SUPERUSER, "password": PASSWORD, "dbname": database}
        if kind:
            between = kind(directory / "pooler", cluster)
            between.start(users={SUPERUSER: PASSWORD}, databases={database: {"url": cluster.url(database), **entry}}, **settings)
            target["port"] = between.port
        yield target, directory / "work"
    finally:
        if between:
            between.stop()
        if cluster.running():
            cluster.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)
