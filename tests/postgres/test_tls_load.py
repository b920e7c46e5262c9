"""Much data through TLS on both sides, with slow readers: memory stays bounded."""

import threading
import time

import pytest

from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only
MEGABYTES = 200


@pytest.fixture
def pooler(start, secure_cluster, certificates):
    pair = certificates.server
    url = f"{secure_cluster.url()}?sslmode=require"
    return start(tls="require", tls_cert=pair.certificate, tls_key=pair.key, databases={"bench": {"url": url}}, max_size=4)


def copy_out(connection, megabytes):
    sql = f"COPY (SELECT repeat('z', 1023) FROM generate_series(1, {megabytes * 1024})) TO STDOUT"
    return connection.cursor().copy(sql)


@pytest.mark.timing
def test_a_slow_reader_of_much_data_costs_no_memory(pooler):
    connection = pooler.connect(sslmode="require")
    with pooler.connect(sslmode="require") as other:
        other.execute("SELECT 1")
        before = pooler.resident_kib()
        received = 0
        most = 0
        with copy_out(connection, MEGABYTES) as copy:
            time.sleep(1)
            for count, block in enumerate(copy):
                received += len(block)
                if count % 20000 == 0:
                    most = max(most, pooler.resident_kib())
                    # Other clients are served meanwhile.
                    assert other.execute("SELECT 2").fetchone() == (2,)
                    time.sleep(0.1)
    assert received == MEGABYTES << 20
    assert most - before < 16 * 1024, f"it grew by {most - before} KiB"
    connection.close()


def test_much_data_to_the_server_arrives_whole(pooler):
    with pooler.connect(sslmode="require") as connection, connection.transaction():
        cursor = connection.cursor()
        cursor.execute("CREATE TEMP TABLE t (x text) ON COMMIT DROP")
        with cursor.copy("COPY t FROM STDIN") as copy:
            for _ in range(800):
                copy.write(b"w" * 65535 + b"\n")
        assert cursor.execute("SELECT count(*), sum(length(x)) FROM t").fetchone() == (800, 800 * 65535)


@pytest.mark.timing
def test_a_reader_that_stops_for_ever_holds_little(pooler):
    before = pooler.resident_kib()
    connection = pooler.connect(sslmode="require")
    connection.pgconn.send_query(b"SELECT repeat('z', 1000) FROM generate_series(1, 1000000)")
    time.sleep(2)
    assert pooler.resident_kib() - before < 16 * 1024
    connection.close()
    eventually("its server is free again", lambda: pooler.metric("poolhouse_servers", state="in_use") == 0, seconds=10)


def test_many_idle_clients_with_tls_are_cheap(pooler):
    connections, lock = [], threading.Lock()

    def open_some():
        for _ in range(50):
            connection = pooler.connect(sslmode="require")
            with lock:
                connections.append(connection)

    pooler.connect(sslmode="require").close()
    before = pooler.resident_kib()
    threads = [threading.Thread(target=open_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    each = (pooler.resident_kib() - before) / len(connections)
    assert len(connections) == 200 and each < 16, f"{each:.1f} KiB for each idle client"
    print(f"{each:.1f} KiB for each idle client with TLS")
    for connection in connections:
        connection.close()
