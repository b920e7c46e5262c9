"""Redis, the network on both sides of it, and Poolhouse itself fail under load: no client hangs or gets the reply of
another, no command is executed twice, and everything recovers.
"""

import contextlib
import os
import signal
import subprocess
import time

import pytest

from support.pooler import BINARY
from support.redis_fixtures import own_redis, pool, server
from support.relay import Relay
from support.rest_fixtures import TOKEN, rest
from support.verified_redis_load import Http, RedisLoad, Wire
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

LISTEN = '[[listener]]\nprotocol = "redis"\nlisten = "127.0.0.1:PORT"\n'
SPEECH = pytest.mark.parametrize("speech", ["redis", "http"])


class Asking(Http):
    token = TOKEN


@pytest.fixture
def durable(workspace):
    """A Redis that has written to disk what it answers, and reads it again at its start."""
    made = own_redis(workspace, "durable", appendonly="yes", appendfsync="no").start()
    yield made
    made.stop()


@pytest.fixture
def serving(pool, rest):
    """Starts a Poolhouse for clients that speak Redis or HTTP. Returns it and a load, which is checked at the end."""

    def start(speech, behind, **settings):
        settings = {"max_wait_time": "8s", "unavailable_wait_time": "8s", **settings}
        if speech == "redis":
            made = pool(behind=behind, max_size=8, workers=2, **settings)
            return made, lambda **more: checked(RedisLoad(made.port, **more), behind)
        made = rest(behind=behind, more="".join(f'{key} = "{value}"\n' for key, value in settings.items()))
        return made, lambda **more: checked(RedisLoad(made.http, connection=Asking, **more), behind)

    return start


@contextlib.contextmanager
def checked(load, behind):
    with load:
        yield load
    load.check(behind)


class Elsewhere:
    """A server as seen through a relay."""

    def __init__(self, server, relay):
        self.password, self.connect = server.password, server.connect
        self.url = lambda: f"redis://127.0.0.1:{relay.port}"


@SPEECH
def test_redis_killed_and_started_again(serving, durable, speech):
    _, load = serving(speech, durable)
    with load() as running:
        for _ in range(3):
            durable.stop()
            time.sleep(0.2)
            durable.start()
            running.flows()
    assert running.counts["answered"] > running.counts["lost"]


@SPEECH
def test_a_redis_that_is_stopped_for_a_while_costs_only_that_while(serving, durable, speech):
    _, load = serving(speech, durable)
    with load() as running:
        durable.process.send_signal(signal.SIGSTOP)
        time.sleep(1)
        durable.process.send_signal(signal.SIGCONT)
        running.flows()
    assert not any(running.counts[bad] for bad in ("lost", "refused", "torn")), running.counts


@SPEECH
def test_a_redis_that_is_stopped_for_longer_than_query_time(serving, durable, speech):
    """Redis executes what it had received when it continues, after the client was told that the outcome is unknown."""
    _, load = serving(speech, durable, query_time="300ms")
    with load() as running:
        durable.process.send_signal(signal.SIGSTOP)
        time.sleep(1.2)
        durable.process.send_signal(signal.SIGCONT)
        running.flows()


@SPEECH
@pytest.mark.parametrize("side", ["clients", "database"])
def test_a_slow_network_and_one_of_single_bytes(serving, server, speech, side):
    with Relay(server.port) as relay:
        relay.piece = 1
        behind = Elsewhere(server, relay) if side == "database" else server
        made, load = serving(speech, behind, max_wait_time="30s")
        if side == "database":
            context = load(clients=4, large=False)
        else:
            relay.target = made.port if speech == "redis" else made.http
            connection = Wire if speech == "redis" else Asking
            context = checked(RedisLoad(relay.port, clients=4, connection=connection, large=False), server)
        with context as running:
            running.flows(commands=20)
            relay.delay, relay.piece = 0.01, 65536
            running.flows(commands=50)
        assert not any(running.counts[bad] for bad in ("lost", "refused", "torn")), running.counts


@SPEECH
def test_connections_to_redis_cut_at_random(serving, server, speech):
    with Relay(server.port) as relay:
        _, load = serving(speech, Elsewhere(server, relay))
        with load() as running:
            for _ in range(20):
                relay.cut(0.5)
                time.sleep(0.05)
            running.flows()


def test_a_reply_that_is_cut_off_is_not_gone_on_with(pool, server):
    """Its client has the beginning of its own reply and nothing else. Clients that shared the server have nothing, and
    are closed, too."""
    value = os.urandom(1 << 19).hex().encode()
    server.connect().set("large", value)
    with Relay(server.port) as relay:
        poolhouse = pool(Elsewhere(server, relay), workers=1, max_size=1)
        other = poolhouse.connect()
        assert other.ping()
        relay.piece, relay.delay = 4096, 0.02
        with poolhouse.open() as torn, poolhouse.open() as behind:
            torn.socket.sendall(b"*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n")
            heard = torn.socket.recv(65536)
            behind.socket.sendall(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n")
            eventually("both are under way", lambda: poolhouse.metric("poolhouse_clients", state="active") == 2)
            relay.cut()
            while part := torn.socket.recv(65536):
                heard += part
            whole = b"$%d\r\n%s\r\n" % (len(value), value)
            assert len(heard) < len(whole) and whole.startswith(heard)
            relay.piece, relay.delay = 65536, 0
            assert behind.socket.recv(65536) == b""
        assert other.get("large") == value


@SPEECH
def test_terminated_under_load_and_started_again(serving, server, speech):
    made, load = serving(speech, server)
    command = made.process.args
    with load() as running:
        for _ in range(3):
            made.signal()
            assert made.wait(10) == 0
            made.launch(command)
            running.flows()
    assert not running.counts["torn"], running.counts


@SPEECH
def test_killed_under_load_and_started_again(serving, server, speech):
    made, load = serving(speech, server)
    with load() as running:
        for _ in range(3):
            made.process.kill()
            made.process.wait()
            made.launch(made.process.args)
            running.flows()


@SPEECH
def test_one_process_takes_over_from_the_other_and_no_client_notices(pool, rest, server, speech):
    """Clients that stay and clients that come and go."""
    made = rest() if speech == "http" else pool(file=f'{LISTEN}[[database]]\nurl = "{server.url()}"\nmax_size = 8\n')
    port, connection = (made.http, Asking) if speech == "http" else (made.port, Wire)
    eventually("it is ready", lambda: made.get("/ready")[0] == 200, 10)
    with checked(RedisLoad(port, 10, connection, steps=200), server) as staying, checked(RedisLoad(port, 10, connection, steps=3), server) as coming:
        old, log = made.process, made.directory / "successor.log"
        with log.open("ab") as to:
            made.process = subprocess.Popen([BINARY, "serve", "--config", str(made.path), "--take-over"], stdin=subprocess.DEVNULL, stdout=to, stderr=to)
        made.log_path = log
        try:
            eventually("it has taken over", lambda: "took over" in made.log(), 15)
            coming.flows()
            staying.flows()
            assert old.wait(30) == 0, "it ends with the last of its clients"
            staying.flows()
        finally:
            old.kill()
    for load in (staying, coming):
        assert not any(load.counts[bad] for bad in ("lost", "refused", "torn")), load.counts
