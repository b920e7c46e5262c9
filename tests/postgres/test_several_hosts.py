"""Several hosts in a URL: which one is used, and what happens when they change roles."""

import pathlib
import shutil
import tempfile
import time

import pytest

from support import postgres_wire as w
from support.pooler import PASSWORDS
from support.postgres_cluster import Cluster, free_port, give_away
from support.postgres_standby import Standby
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only


@pytest.fixture(scope="module")
def pair():
    """A primary and a standby that follows it."""
    made = []
    root = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-"))
    root.chmod(0o755)
    try:
        for name in ("a", "b"):
            (root / name).mkdir()
        primary = Cluster(root / "a")
        made.append(primary)
        primary.make()
        standby = Standby(root / "b", primary)
        give_away(standby.directory)
        made.append(standby)
        standby.make()
        yield primary, standby
    finally:
        for cluster in made:
            if cluster.running():
                cluster.stop("immediate")
        shutil.rmtree(root, ignore_errors=True)


def url(*ports, **parameters):
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return f"postgres://app:{PASSWORDS['app'].replace(' ', '%20')}@{hosts}/bench?{query}"


def port_of(client):
    return int(client.query("SELECT current_setting('port')")[0][0])


def connected_to(start, *ports, **parameters):
    pooler = start(databases={"bench": {"url": url(*ports, **parameters)}})
    with pooler.wire() as client:
        return port_of(client)


def test_each_wish_finds_its_host_whatever_the_order(start, pair):
    a, b = (cluster.port for cluster in pair)
    for ports in [(a, b), (b, a)]:
        for wish, expected in [("read-write", a), ("primary", a), ("standby", b), ("read-only", b), ("prefer-standby", b),
                               ("any", ports[0])]:
            assert connected_to(start, *ports, target_session_attrs=wish) == expected, (ports, wish)


def test_a_host_that_is_not_there_is_passed_over(start, pair):
    a, b = (cluster.port for cluster in pair)
    assert connected_to(start, free_port(), a) == a
    assert connected_to(start, free_port(), a, target_session_attrs="prefer-standby") == a
    assert connected_to(start, free_port(), b, a, target_session_attrs="read-write") == a


def test_when_no_host_will_do_the_client_hears_why(start, pair):
    _, b = (cluster.port for cluster in pair)
    gone = free_port()
    pooler = start(databases={"bench": {"url": url(gone, b, target_session_attrs="read-write")}}, unavailable_wait_time="500ms")
    with pytest.raises(w.ServerError) as refused:
        pooler.wire()
    assert f"127.0.0.1:{gone}" in refused.value.text and "a standby" in refused.value.text, refused.value.text


def test_a_primary_that_takes_no_writes_any_more_is_left_for_one_that_does(start, pair, cluster):
    primary, _ = pair
    first = cluster
    # With one server: if it were busy with a question of Poolhouse's own, a second one would connect to the other host.
    pooler = start(databases={"bench": {"url": url(first.port, primary.port, target_session_attrs="read-write"),
                                        "max_size": 1, "max_wait_time": "10s"}})
    with pooler.wire() as client:
        assert port_of(client) == first.port
        let_writes(first, False)
        refused = False
        try:
            # The server reports the change itself: Poolhouse may have left it before a write is refused.
            def noticed():
                nonlocal refused
                refused = refuses_writes(pooler)
                return refused or on_port(pooler, primary.port)

            eventually("the change is noticed", noticed)
            eventually("new servers are on the other host", lambda: on_port(pooler, primary.port))
        finally:
            let_writes(first, True)
    assert not refused or "takes no writes any more" in pooler.log()


def let_writes(cluster, let):
    with cluster.superuser() as db:
        db.execute("SET default_transaction_read_only = off")
        db.execute("ALTER SYSTEM RESET default_transaction_read_only" if let
                   else "ALTER SYSTEM SET default_transaction_read_only = on")
        db.execute("SELECT pg_reload_conf()")


def refuses_writes(pooler):
    with pooler.wire() as client:
        try:
            client.query("CREATE TABLE IF NOT EXISTS t_failover (v int)")
        except w.ServerError as error:
            assert error.sqlstate == "25006"
            return True
    return False


def on_port(pooler, port):
    with pooler.wire() as client:
        return port_of(client) == port


def test_a_promoted_standby_is_found_when_the_primary_has_died(start, pair):
    """This test comes last because it changes the pair for good."""
    primary, standby = pair
    pooler = start(databases={"bench": {"url": url(primary.port, standby.port, target_session_attrs="read-write")}},
                   unavailable_wait_time="20s")
    with pooler.wire() as client:
        assert port_of(client) == primary.port
    primary.stop("immediate")
    standby.promote()
    began = time.monotonic()
    with pooler.wire() as client:
        assert port_of(client) == standby.port
        client.query("CREATE TABLE t_promoted (v int); DROP TABLE t_promoted")
    assert time.monotonic() - began < 10
