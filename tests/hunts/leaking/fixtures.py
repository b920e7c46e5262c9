"""Fixtures of the tests for leaks: clients that share one server, and objects that are taken away again."""

import contextlib

import psycopg
import pytest

from . import world
from .sharing import Sharing


@pytest.fixture
def share(start, cluster):
    """Makes clients that share one server, with the database and the settings given."""
    return lambda *arguments, **settings: Sharing(start, cluster, *arguments, **settings)


@pytest.fixture
def removed(cluster):
    """Drops what a test has made, whether it got as far or not."""
    drops = []
    yield drops.append
    with cluster.superuser(world.QUIET) as db:
        for sql in drops:
            with contextlib.suppress(psycopg.Error):
                db.execute(sql)
