"""Names of hosts that cannot be looked up, in a mount namespace with an /etc/hosts of the test's own."""

import shutil
import subprocess
import time

import psycopg
import pytest

from support.pooler import BINARY
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

# The files of the test take the places of the system's.
MOUNT = "mount --bind hosts /etc/hosts && mount --bind nsswitch.conf /etc/nsswitch.conf && exec \"$@\""


def is_allowed():
    return shutil.which("unshare") and subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0


def outcome(pooler):
    try:
        with pooler.connect(connect_timeout=3) as client:
            return client.execute("SELECT 'found'").fetchone()[0]
    except psycopg.OperationalError as error:
        return str(error)


@pytest.mark.skipif(not is_allowed(), reason="needs the right to mount")
@pytest.mark.timing
@pytest.mark.parametrize("remembered", [False, True])
def test_a_name_that_was_not_found_is_not_asked_for_again_for_failure_ttl(start, cluster, remembered):
    pooler = start.unstarted()
    hosts = pooler.directory / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    (pooler.directory / "nsswitch.conf").write_text("hosts: files\npasswd: files\ngroup: files\n")
    url = cluster.url("bench").replace("127.0.0.1", "db.test")
    settings = {"unavailable_wait_time": "100ms", "login_retry_time": "100ms"}
    command, _ = pooler.command({"databases": {"bench": {"url": url}}, "failure_ttl": "6s" if remembered else "off", **settings})
    pooler.launch(["unshare", "--mount", "sh", "-c", MOUNT, "sh", BINARY, *command[1:]])
    assert "cannot resolve" in outcome(pooler)
    hosts.write_text("127.0.0.1 localhost db.test\n")
    began = time.monotonic()
    eventually("the name is found", lambda: outcome(pooler) == "found", seconds=15)
    assert (time.monotonic() - began > 3) == remembered


def test_names_that_are_followed_are_shown_at_the_console(start, cluster):
    url = cluster.url("bench").replace("127.0.0.1", "localhost")
    pooler = start(max_ttl="30s", databases={"bench": {"url": url}}, console={"name": "pgbouncer", "admins": ["app"]})
    with pooler.connect(database="pgbouncer") as console:
        eventually("the name is known", lambda: console.execute("SHOW DNS_HOSTS").fetchall())
        [(name, ttl, addresses)] = console.execute("SHOW DNS_HOSTS").fetchall()
        assert name == "localhost" and set(addresses.split(",")) <= {"127.0.0.1:0", "[::1]:0"} and 0 < ttl <= 30
        assert dict(console.execute("SHOW LISTS").fetchall())["dns_names"] == 1
        assert console.execute("SHOW DNS_ZONES").fetchall() == []
