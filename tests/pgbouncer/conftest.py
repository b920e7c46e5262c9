"""Fixtures of the tests that serve the same pgbouncer.ini by PgBouncer and by Poolhouse."""

import os

import pytest

from support.ini_pooler import KINDS, PGBOUNCER, IniPooler


@pytest.fixture(params=KINDS)
def kind(request):
    if request.param == "pgbouncer" and not PGBOUNCER.exists():
        pytest.skip("PgBouncer 1.26 is missing: scripts/pgbouncer.sh unpacks it")
    return request.param


@pytest.fixture
def folder(workspace, request):
    """A folder that an unprivileged process may write in."""
    made = workspace / f"{request.node.name[:30].replace('/', '_')}-{os.urandom(4).hex()}"
    made.mkdir()
    return made


@pytest.fixture
def serve_ini(kind, folder, cluster):
    """Serves an ini with these settings; see `IniPooler.write`."""
    started = []

    def serve(**settings):
        made = IniPooler(kind, folder, cluster)
        started.append(made)
        return made.start(**settings)

    yield serve
    for made in started:
        made.stop()
