"""What the tests of faults share: a table without a unique key, in which a write that was executed twice would show."""

import contextlib

from support.verified_load import Load


@contextlib.contextmanager
def load(cluster, port, table="t_faults", **more):
    """A Load on an empty table; checked when it is over, with the cluster running."""
    with cluster.superuser("bench") as db:
        db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute(f"CREATE TABLE {table} (key text)")
        db.execute(f"GRANT ALL ON {table} TO PUBLIC")
    with Load(port, table, **more) as running:
        running.flows()
        yield running
    # A backend that was killed may have been noticed only now.
    cluster.wait_until_up()
    running.check(cluster)
