"""Several processes on one port."""

import pytest

from support.ini_pooler import IniPooler

pytestmark = pytest.mark.poolhouse_only


def test_two_processes_share_a_port(kind, folder, cluster):
    first, second = (IniPooler(kind, folder / name, cluster) for name in ("a", "b"))
    second.port = first.port
    try:
        for pooler in (first, second):
            pooler.directory.mkdir()
            pooler.start(so_reuseport=1)
        for _ in range(20):
            with first.connect() as client:
                assert client.execute("SELECT 1").fetchone() == (1,)
    finally:
        first.stop()
        second.stop()
