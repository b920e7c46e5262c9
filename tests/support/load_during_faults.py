"""A load for tests of faults. Its table has no unique key, so a write that was executed twice is visible."""

import contextlib

from support.verified_load import Load


@contextlib.contextmanager
def load(cluster, port, table="t_faults", **more):
    """A load on an empty table. At the end the cluster must run again, and the load is checked."""
    with cluster.superuser("bench") as db:
        db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute(f"CREATE TABLE {table} (key text)")
        db.execute(f"GRANT ALL ON {table} TO PUBLIC")
    with Load(port, table, **more) as running:
        running.flows()
        yield running
    # PostgreSQL may notice only now that a backend was killed.
    cluster.wait_until_up()
    running.check(cluster)
