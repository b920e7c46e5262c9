"""Peers: cancel requests find their process, whether it is a PgBouncer or a Poolhouse."""

import psycopg
import pytest

from support import postgres_wire as w
from support.ini_pooler import KINDS, PGBOUNCER, IniPooler, run
from support.waiting import query_under_way

# PgBouncer has peers since 1.19.
pytestmark = pytest.mark.skipif(not PGBOUNCER.exists(), reason="PgBouncer 1.26 is missing")


@pytest.fixture
def pair(folder, cluster):
    """Starts two processes, each with both as peers, by a host or by a folder with a Unix socket."""
    started = []

    def begin(kinds, at_folder, **settings):
        made = [IniPooler(kind, folder / name, cluster) for kind, name in zip(kinds, "ab")]
        hosts = [str(pooler.directory) if at_folder else "127.0.0.1" for pooler in made]
        peers = "".join(f"{number} = host={host} port={pooler.port} pool_size={number + 4}\n"
                        for number, (host, pooler) in enumerate(zip(hosts, made), 1))
        for number, pooler in enumerate(made, 1):
            pooler.directory.mkdir()
            started.append(pooler.start(peer_id=number, unix_socket_dir=pooler.directory, more=f"[peers]\n{peers}",
                                        **settings))
        return made

    yield begin
    for pooler in started:
        pooler.stop()


@pytest.mark.parametrize("at_folder", [False, True], ids=["host", "folder"])
@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_each_hands_on_the_requests_of_the_other(pair, cluster, first, second, at_folder):
    made = pair([first, second], at_folder)
    for owner, other in (made, made[::-1]):
        with owner.wire() as client:
            for _ in range(5):
                client.send(w.query("SELECT pg_sleep(30)"))
                query_under_way(cluster, "pg_sleep(30)")
                with other.open() as canceller:
                    canceller.send(w.request(w.CANCEL_REQUEST, client.key))
                    assert canceller.closed_within(5)
                answers, _ = client.until_ready()
                assert [w.error_fields(body)["C"] for kind, body in answers if kind == b"E"] == ["57014"]


def test_the_console_shows_the_same_of_peers(pair):
    shown = []
    for number, pooler in enumerate(pair(KINDS, True, admin_users="app"), 1):
        # PgBouncer shows a peer among PEER_POOLS once there has been a request for it.
        with pooler.open() as canceller:
            canceller.send(w.request(w.CANCEL_REQUEST, bytes([1, 3 - number, 0, 1, 0, 0, 0, 3])))
            assert canceller.closed_within(5)
        with psycopg.connect(**{**pooler.target(), "dbname": "pgbouncer"}, autocommit=True) as console:
            cursor = psycopg.ClientCursor(console)
            tables = [cursor.execute(command).fetchall() for command in ("SHOW PEERS", "SHOW PEER_POOLS")]
            lists = dict(cursor.execute("SHOW LISTS").fetchall())
            assert tables[1] == [(3 - number, 0, 0, 0, 0)]
            shown.append((tables[0], lists["peers"], lists["peer_pools"]))
    assert shown[0] == shown[1]


@pytest.mark.parametrize("peers", ["x = host=h", "0 = host=h", "2 = port=5", "2 = host=h port=x", "2 = host=h dbname=x"])
@pytest.mark.parametrize("kind", KINDS)
def test_both_refuse_peers_that_make_no_sense(kind, folder, cluster, peers):
    made = IniPooler(kind, folder, cluster)
    made.write(peer_id=1, more=f"[peers]\n{peers}\n")
    status, said = run(kind, folder, made.ini)
    assert status == 1, said
