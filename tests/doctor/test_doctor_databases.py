"""poolhouse doctor beside a MongoDB or a Redis without a pooler, and with the pool events of drivers. Real clients
cause trouble, and healthy runs that resemble it. Redis is real; MongoDB is scripted (mock_mongodb_statistics.py),
because the other servers of the tests lack its statistics. What HikariCP shows is invented here; test_doctor_hikaricp
has a real one.
"""

import contextlib
import http.server
import json
import statistics
import subprocess
import threading
import time

import pytest
import redis as redis_py

from support.doctor import look, symptoms
from support.mock_mongodb_statistics import Counted, Events, begins, bursts, chats, comes_and_goes, keep, one, pauses
from support.mongodb_server import JavaServer, directory
from support.pooler import BINARY
from support.postgres_cluster import free_port
from support.redis_fixtures import own_redis
from support.threads import running_threads

pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timing]

SECRET = "watch it"


@contextlib.contextmanager
def going_on(many, what, *, after=0.0):
    """Runs `many` threads that each repeat `what(over)`."""
    def work(over):
        if not over.wait(after):
            while not over.is_set():
                what(over)

    with running_threads(many, work):
        yield


def now_and_then(client):
    def once(over):
        one(client)
        over.wait(0.05)
    return once


# -- MongoDB


@pytest.fixture
def counted():
    """Starts a MongoDB with statistics."""
    started = []

    def start(**settings):
        started.append(Counted(**settings))
        return started[-1]

    yield start
    for made in started:
        made.stop()


def test_ordinary_work_on_a_mongodb_is_healthy(counted):
    server = counted()
    with server.client() as client, going_on(6, now_and_then(client)):
        said, done = look(server.look_at)
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), done
    assert said["of"] == "mongodb" and "MongoDB 7.0.14" in said["looked_at"]
    assert any("CMAP" in unseen for unseen in said["unseen"]) and not any("$currentOp" in unseen for unseen in said["unseen"])


def test_a_client_for_each_operation_is_named_and_whose_it_is(counted):
    server = counted()
    with going_on(3, lambda over: comes_and_goes(server)):
        said, done = look(server.look_at)
    assert symptoms(said) == ["ephemeral_clients"], said
    assert done.returncode == 1 and ("lambda from 127.0.0.1" in said["findings"][0]["of"] or said["findings"][0]["of"] == "all clients")


def test_a_deployment_whose_connections_stay_is_healthy_on_a_mongodb(counted):
    server = counted()
    with server.client() as client, going_on(2, now_and_then(client)), contextlib.ExitStack() as stack:
        coming = threading.Timer(1, lambda: [stack.callback(connection.close) for connection in keep(server, 100)])
        coming.start()
        said, done = look(server.look_at)
        coming.join()
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), said


@pytest.mark.parametrize("busy, found", [(2, "over_provisioned"), (40, None)])
def test_connections_that_fill_a_mongodb_are_named_unless_they_work(counted, busy, found):
    server = counted(room=60, tickets=60)
    server.server.takes = {"find": 0.5}
    with contextlib.ExitStack() as stack:
        for connection in keep(server, 52 - busy):
            stack.callback(connection.close)
        client = stack.enter_context(server.client())
        stack.enter_context(going_on(busy, lambda over: one(client)))
        time.sleep(1)
        said, done = look(server.look_at)
    assert symptoms(said) == ([found] if found else []), said
    if found:
        assert "of idle from 127.0.0.1" in " ".join(said["findings"][0]["evidence"])
        assert said["findings"][0]["setting"]["key"] == "maxPoolSize"


def test_connections_that_a_mongodb_refuses_although_it_works_are_named(counted):
    server = counted(room=40, tickets=60)
    server.server.takes = {"find": 0.5}

    def knock(over):
        for connection in keep(server, 1):
            connection.close()
        over.wait(0.1)

    with server.client() as client, contextlib.ExitStack() as stack:
        stack.enter_context(going_on(32, lambda over: one(client)))
        time.sleep(1)
        # Between the test's own connection and the last one that the server accepts.
        for connection in keep(server, 3):
            stack.callback(connection.close)
        looked = []
        looking = threading.Thread(target=lambda: looked.append(look(server.look_at)))
        looking.start()
        time.sleep(0.7)
        for connection in keep(server, 6):
            stack.callback(connection.close)
        stack.enter_context(going_on(1, knock))
        looking.join()
    said, done = looked[0]
    assert symptoms(said) == ["connections_refused"], said


def test_pauses_within_transactions_are_named_on_a_mongodb(counted):
    server = counted()
    with server.client() as client, going_on(6, lambda over: pauses(client, over, 0.5)):
        time.sleep(0.7)
        said, done = look(server.look_at)
    assert symptoms(said) == ["transactions_left_open"], said
    assert "web from 127.0.0.1" in said["findings"][0]["of"]


@pytest.mark.parametrize("transaction, seconds", [(pauses, 0.01), (chats, 0.6)])
def test_transactions_of_short_pauses_on_a_mongodb_are_healthy(counted, transaction, seconds):
    server = counted()
    with server.client() as client, going_on(6, lambda over: transaction(client, over, seconds)):
        said, done = look(server.look_at)
    assert (done.returncode, said["findings"]) == (0, []), said


@pytest.mark.parametrize("refuses", [set(), {"aggregate"}])
def test_transactions_that_never_end_are_a_leak_on_a_mongodb(counted, refuses):
    server = counted()
    server.server.refuses = refuses
    with server.client() as client, going_on(2, now_and_then(client)):
        kept = [begins(client) for _ in range(3)]
        time.sleep(0.5)
        said, done = look(server.look_at)
        del kept
    assert symptoms(said) == ["leak"], said
    assert any("$currentOp is refused" in unseen and "clusterMonitor" in unseen for unseen in said["unseen"]) == bool(refuses)


def test_a_queue_within_a_mongodb_is_a_saturated_database(counted):
    server = counted(tickets=2)
    server.server.takes = {"find": 0.02}
    with server.client() as client, going_on(10, lambda over: one(client)):
        time.sleep(0.5)
        said, done = look(server.look_at)
    assert symptoms(said) == ["server_saturated"], said
    assert "own queue" in said["findings"][0]["evidence"][0]


def test_more_operations_than_processors_are_a_saturated_mongodb(counted):
    server = counted(cores=2)
    server.server.takes = {"find": 0.05}
    with server.client() as client, going_on(10, lambda over: one(client)):
        time.sleep(0.5)
        said, done = look(server.look_at)
    assert symptoms(said) == ["server_saturated"], said
    assert "2 processors" in said["findings"][0]["evidence"][0]


@pytest.mark.in_the_matrix
def test_a_driver_that_closes_idle_connections_before_each_burst_is_churn(counted):
    server = counted()
    server.server.takes = {"find": 0.02}
    # The driver checks once a second for connections that have been idle for too long.
    with server.client(maxIdleTimeMS=800) as client, going_on(1, lambda over: bursts(client, over, 12, 2.8)):
        said, done = look(server.look_at, window="16s")
    assert symptoms(said) == ["idle_churn"], said
    assert said["findings"][0]["setting"]["key"] == "minPoolSize"


def test_a_user_that_may_not_look_at_a_mongodb_is_told_what_would_help(counted):
    server = counted()
    server.server.refuses = {"serverstatus"}
    said, done = look(server.look_at, window="1s")
    assert done.returncode == 3 and "clusterMonitor" in done.stderr, done


def test_a_recording_of_a_mongodb_is_examined_as_what_was_seen(counted, tmp_path):
    server = counted()
    path = tmp_path / "looks.jsonl"
    with server.client() as client, going_on(6, lambda over: pauses(client, over, 0.5)):
        time.sleep(0.7)
        seen, done = look(server.look_at, "--record", path)
    assert symptoms(seen) == ["transactions_left_open"], seen
    told, again = look(path)
    assert told == seen and again.returncode == done.returncode == 1
    assert "things" not in path.read_text(), "no text of a command"
    looks = [line["mongodb"] for line in map(json.loads, path.read_text().splitlines()) if "mongodb" in line]
    late = {True: [], False: []}
    for one in looks:
        late[bool(one["look"]["sessions"])].append(one["at_us"] / 1e3 - one["look"]["uptime_ms"])
    assert abs(statistics.median(late[True]) - statistics.median(late[False])) < 60, "a look is as old as its figures, however long a list takes"


def test_a_mongodb_that_counts_hardly_anything_is_looked_at_all_the_same(workspace):
    JavaServer.prepare()
    server = JavaServer(directory(workspace, "mongodb")).start()
    try:
        with server.connect() as client, going_on(3, now_and_then(client)):
            said, done = look(server.url())
    finally:
        server.stop()
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), done
    assert any("does not count those it has made" in unseen for unseen in said["unseen"]), said


def test_a_mongodb_that_cannot_be_looked_at_says_why_without_the_password():
    said, done = look(f"mongodb://app:hunter2@127.0.0.1:{free_port()}/", window="1s")
    assert done.returncode == 3 and "refused" in done.stderr and "hunter2" not in done.stderr, done
    said, done = look("mongodb://app:hunter2@one,two/", window="1s")
    assert done.returncode == 3 and "hunter2" not in done.stderr, done


# -- Redis


@pytest.fixture
def server(workspace):
    """Starts a Redis."""
    started = []

    def start(**settings):
        started.append(own_redis(workspace, "doctor-redis", **settings).start())
        return started[-1]

    yield start
    for made in started:
        made.stop()


def asks(client):
    def once(over):
        client.get("hunter2-key")
        over.wait(0.05)
    return once


def sit(server, stack, many, name="web"):
    """Connections that send nothing more."""
    clients = [stack.enter_context(contextlib.closing(server.connect(client_name=name, single_connection_client=True))) for _ in range(many)]
    for client in clients:
        client.ping()
    return clients


def test_ordinary_work_on_a_redis_is_healthy(server):
    made = server()
    with contextlib.ExitStack() as stack:
        for client in sit(made, stack, 6):
            stack.enter_context(going_on(1, asks(client)))
        said, done = look(made.url())
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), done
    assert said["of"] == "redis" and "6 connections of Redis" in said["looked_at"], said


def test_a_connection_for_each_command_is_named_on_a_redis(server):
    made = server()

    def visit(over):
        with contextlib.closing(made.connect()) as client:
            client.get("a")

    with going_on(2, visit):
        said, done = look(made.url())
    assert symptoms(said) == ["ephemeral_clients"], said


def test_a_deployment_whose_connections_stay_is_healthy_on_a_redis(server):
    made = server()
    with contextlib.ExitStack() as stack:
        (client,) = sit(made, stack, 1)
        stack.enter_context(going_on(1, asks(client)))
        coming = threading.Timer(1, lambda: sit(made, stack, 100))
        coming.start()
        said, done = look(made.url())
        coming.join()
    assert (done.returncode, said["findings"], said["undecided"]) == (0, [], []), said


def test_connections_that_fill_a_redis_are_named(server):
    made = server(maxclients=60)
    with contextlib.ExitStack() as stack:
        clients = sit(made, stack, 54)
        stack.enter_context(going_on(1, asks(clients[0])))
        time.sleep(1.5)
        said, done = look(made.url())
    assert symptoms(said) == ["over_provisioned"], said
    (finding,) = said["findings"]
    assert "of web from 127.0.0.1" in " ".join(finding["evidence"]) and 2 <= int(finding["setting"]["to"]) <= 10


def test_subscribers_and_consumers_that_fill_a_redis_are_not_kept_for_nothing(server):
    # A subscriber has a connection of its own.
    made = server(maxclients=95)
    with contextlib.ExitStack() as stack:
        clients = sit(made, stack, 54)
        for n, client in enumerate(clients[:-1]):
            if n % 2:
                stack.enter_context(contextlib.closing(client.pubsub())).subscribe("news")
            else:
                client.connection.send_command("BLPOP", "queue", "0")
        time.sleep(1.5)
        said, done = look(made.url())
    assert (done.returncode, symptoms(said)) == (0, []), said


def test_connections_that_a_redis_refuses_although_it_works_are_named(server):
    made = server(maxclients=30)

    def knock(over):
        with contextlib.suppress(redis_py.RedisError, OSError), contextlib.closing(made.connect()) as client:
            client.ping()
        over.wait(0.1)

    with contextlib.ExitStack() as stack:
        looked = []
        for client in sit(made, stack, 26):
            stack.enter_context(going_on(1, asks(client)))
        looking = threading.Thread(target=lambda: looked.append(look(made.url())))
        looking.start()
        time.sleep(0.7)
        with contextlib.suppress(redis_py.RedisError):
            sit(made, stack, 3)
        stack.enter_context(going_on(3, knock))
        looking.join()
    said, done = looked[0]
    assert symptoms(said) == ["connections_refused"], said


def test_a_redis_without_a_connection_left_is_itself_the_answer(server):
    made = server(maxclients=20)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(redis_py.RedisError):
            sit(made, stack, 25)
        said, done = look(made.url(), window="1s")
    assert done.returncode == 3 and "every connection that it takes is taken" in done.stderr, done


def test_a_replica_that_has_lost_its_primary_is_named(server):
    made = server()
    made.connect().execute_command("REPLICAOF", "127.0.0.1", free_port())
    said, done = look(made.url(), window="2s")
    assert symptoms(said) == ["out_of_reach"] and said["findings"][0]["of"] == "its primary", said


def test_a_user_that_may_not_see_the_clients_of_a_redis_is_told_what_would_help(server):
    made = server(maxclients=60)
    with contextlib.ExitStack() as stack:
        (client, *_) = sit(made, stack, 54)
        client.execute_command("ACL", "SETUSER", "watcher", "on", f">{SECRET}", "+info", "+ping")
        said, done = look(f"redis://watcher:${{SECRET}}@127.0.0.1:{made.port}", SECRET=SECRET)
    assert (done.returncode, symptoms(said)) == (2, []), done
    assert said["undecided"][0]["between"] == ["over_provisioned", "connections_refused"]
    assert any("client|list" in unseen for unseen in said["unseen"]), said


def test_a_recording_of_a_redis_is_examined_as_what_was_seen(server, tmp_path):
    made = server(maxclients=60)
    path = tmp_path / "looks.jsonl"
    with contextlib.ExitStack() as stack:
        clients = sit(made, stack, 54)
        stack.enter_context(going_on(1, asks(clients[0])))
        time.sleep(1.5)
        seen, done = look(made.url(), "--record", path)
    assert symptoms(seen) == ["over_provisioned"], seen
    told, again = look(path)
    assert told == seen and again.returncode == done.returncode == 1
    assert "hunter2" not in path.read_text(), "no arguments of commands"


def test_a_restart_of_a_redis_is_told_and_what_follows_counts(server):
    made = server()
    looked = []
    looking = threading.Thread(target=lambda: looked.append(look(made.url(), window="6s")))
    looking.start()
    time.sleep(1.5)
    made.stop()
    made.start()
    looking.join()
    said, done = looked[0]
    assert done.returncode == 0 and "restarted" in done.stderr and said["window_s"] < 5.5, done


def test_a_redis_that_cannot_be_looked_at_says_why_without_the_password(server):
    made = server(password="right")
    for url, part in [(f"redis://:hunter2@127.0.0.1:{made.port}", "WRONGPASS"), (f"redis://:hunter2@127.0.0.1:{free_port()}", "refused")]:
        said, done = look(url, window="1s")
        assert done.returncode == 3 and part in done.stderr and "hunter2" not in done.stderr, done


# -- drivers' own pools


@pytest.mark.in_the_matrix
def test_events_of_a_driver_tell_that_its_pool_is_too_small(counted, tmp_path):
    server = counted()
    server.server.takes = {"find": 0.02}
    path = tmp_path / "events.jsonl"
    events = Events(path)
    with server.client(maxPoolSize=4, event_listeners=[events]) as client:
        with going_on(1, lambda over: one(client)):
            time.sleep(5)
        with going_on(12, lambda over: one(client)):
            time.sleep(5)
    events.file.close()
    said, done = look(path)
    assert symptoms(said) == ["pool_too_small"], (said, done.stderr)
    assert said["of"] == "mongodb_driver" and said["findings"][0]["setting"] == {"key": "maxPoolSize", "from": "4", "to": "8"}


@pytest.mark.in_the_matrix
def test_events_of_a_driver_that_closes_idle_connections_are_churn(counted, tmp_path):
    server = counted()
    server.server.takes = {"find": 0.02}
    path = tmp_path / "events.jsonl"
    events = Events(path)
    with server.client(maxIdleTimeMS=800, event_listeners=[events]) as client, going_on(1, lambda over: bursts(client, over, 8, 2.8)):
        time.sleep(16)
    events.file.close()
    said, done = look(path)
    assert symptoms(said) == ["idle_churn"], (said, done.stderr)
    assert said["findings"][0]["setting"]["key"] == "minPoolSize"


def test_events_come_through_a_pipe_too():
    # Two hours: looks every half second would be too many, and what came through a pipe cannot be read again.
    lines = ['{"event":"poolCreated","time":1795670000,"address":"db:1","maxPoolSize":5}']
    for at in range(0, 7200, 10):
        lines += [f'{{"event":"{event}","time":{1795670000 + at + more},"address":"db:1","connectionId":1}}'
                  for event, more in [("connectionCheckedOut", 0), ("connectionCheckedIn", 0.1)]]
    done = subprocess.run([BINARY, "doctor", "/dev/stdin", "--json", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True,
                          timeout=60)
    said = json.loads(done.stdout or "null")
    assert done.returncode == 0 and (said["pools"], round(said["window_s"])) == (1, 7190), done


@pytest.fixture
def application():
    """An application that exposes metrics: the present value of `text`. `tokens`: the tokens of the requests."""
    class Shown(http.server.BaseHTTPRequestHandler):
        text = staticmethod(lambda: "")
        tokens = []

        def do_GET(self):
            self.tokens.append(self.headers.get("Authorization"))
            is_there = self.path == "/actuator/prometheus"
            self.send_response(200 if is_there else 404)
            self.end_headers()
            self.wfile.write(Shown.text().encode() if is_there else b"{}")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shown)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Shown.url = f"http://127.0.0.1:{server.server_port}/actuator/prometheus"
    yield Shown
    server.shutdown()
    server.server_close()


def hikari(**figures):
    """Metrics of a pool as Micrometer exposes them."""
    lines = [f'hikaricp_connections{name and "_" + name}{{pool="shop",}} {value}' for name, value in figures.items()]
    return "# TYPE hikaricp_connections gauge\n" + "\n".join(lines).replace("hikaricp_connections_total{", "hikaricp_connections{") + "\n"


def test_metrics_of_an_application_are_recognised_and_tell_that_its_pool_is_too_small(application, tmp_path):
    began = time.monotonic()

    def text():
        since = time.monotonic() - began
        calm, busy = min(since, 4), max(0, since - 4)
        used = int(100 * calm + 500 * busy)
        active, pending = (2, 0) if since < 4 else (10, 7)
        return hikari(total=10, active=active, idle=10 - active, pending=pending, max=10, min=10, usage_seconds_count=used,
                      usage_seconds_sum=used * 0.02, creation_seconds_count=10, timeout_total=0)

    application.text = staticmethod(text)
    path = tmp_path / "looks.jsonl"
    seen, done = look(application.url, "--record", path, window="9s")
    assert symptoms(seen) == ["pool_too_small"], (seen, done.stderr)
    assert seen["of"] == "hikaricp" and seen["findings"][0]["setting"]["key"] == "maximumPoolSize"
    assert look(path)[0] == seen


def test_scrapes_of_an_application_in_a_file_are_examined(application, tmp_path):
    path = tmp_path / "scrapes.txt"
    with path.open("w") as file:
        for n in range(100):
            file.write(f"{1_795_670_000 + 5 * n}\n")
            file.write(hikari(total=10, active=8, idle=2, pending=n % 2, max=10, min=10, usage_seconds_count=50 * n, usage_seconds_sum=0.5 * n,
                              creation_seconds_count=10, timeout_total=n))
    said, done = look(path)
    assert symptoms(said) == ["leak"] and said["window_s"] == 495, (said, done.stderr)


def test_metrics_of_an_unknown_source_are_reported_as_such(application, start):
    application.text = staticmethod(lambda: "up 1\n")
    said, done = look(application.url, window="1s", POOLHOUSE_ADMIN_TOKEN="hunter2")
    assert done.returncode == 3 and set(application.tokens) == {None}, (done, application.tokens)
    application.text = staticmethod(lambda: 'hikaricp_connections{pool="a"} 10\nhikaricp_active_connections{pool="a"} 9\n')
    said, done = look(application.url, window="1s")
    assert done.returncode == 3 and "those that Micrometer gives" in done.stderr, done
    said, done = look(application.url.replace("//", "//me:${SECRET}@").replace("prometheus", "health"), window="1s", SECRET="hunter2")
    assert done.returncode == 3 and "hunter2" not in done.stderr and "Basic bWU6aHVudGVyMg==" in application.tokens, (done, application.tokens)
    pooler = start(max_size=2)
    said, done = look(f"{pooler.admin_url}/metrics", window="1s")
    assert done.returncode == 3 and "without a path" in done.stderr, done
