"""Cases of doctor_matrix.py for a MongoDB or a Redis alone, and for the events of a driver's pool: faults made on
purpose, and healthy runs that resemble them. Each starts its load and returns what the doctor looks at, its further
arguments, and the length of the window.
"""

import contextlib
import pathlib
import tempfile
import threading
import time


def again(load, many, what, after=0.0, may_fail=False):
    """Starts `many` threads that each repeat `what()`."""
    def work():
        while not load.over.is_set():
            what()

    for _ in range(many):
        load.begin(work, after, may_fail)


# -- MongoDB: scripted, with statistics of what real clients do


def mongodb(stack, **settings):
    from support.mock_mongodb_statistics import Counted
    made = Counted(**settings)
    stack.callback(made.stop)
    return made


def client_of(server, stack, **more):
    return stack.enter_context(server.client(**more))


def finds_now_and_then(load, rng, client, many):
    from support.mock_mongodb_statistics import one
    pause = rng.uniform(0.05, 0.15)
    again(load, many, lambda: (one(client), load.over.wait(pause)))


def m_ephemeral(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import comes_and_goes
    server = mongodb(stack)
    again(load, rng.randint(2, 4), lambda: comes_and_goes(server))
    return server.look_at, [], "5s"


def m_kept(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import keep
    server = mongodb(stack, room=100)
    for connection in keep(server, rng.randint(84, 88)):
        stack.callback(connection.close)
    finds_now_and_then(load, rng, client_of(server, stack), rng.randint(1, 4))
    time.sleep(1)
    return server.look_at, [], "4s"


def m_left_open(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import pauses
    server = mongodb(stack)
    client, seconds = client_of(server, stack), rng.uniform(0.35, 0.9)
    again(load, rng.randint(4, 10), lambda: pauses(client, load.over, seconds))
    finds_now_and_then(load, rng, client, 2)
    time.sleep(1)
    return server.look_at, [], "5s"


def m_leak(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import begins
    server = mongodb(stack)
    client = client_of(server, stack)
    kept = [begins(client) for _ in range(rng.randint(3, 8))]
    stack.callback(kept.clear)
    finds_now_and_then(load, rng, client, 3)
    time.sleep(0.5)
    return server.look_at, [], "4s"


def m_queue(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import one
    server = mongodb(stack, tickets=rng.randint(2, 4))
    server.server.takes = {"find": rng.uniform(0.01, 0.04)}
    client = client_of(server, stack)
    again(load, rng.randint(10, 16), lambda: one(client))
    time.sleep(0.5)
    return server.look_at, [], "4s"


def m_processors(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import one
    server = mongodb(stack, cores=2)
    server.server.takes = {"find": rng.uniform(0.03, 0.08)}
    client = client_of(server, stack)
    again(load, rng.randint(8, 14), lambda: one(client))
    time.sleep(0.5)
    return server.look_at, [], "4s"


def m_churn(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import bursts
    server = mongodb(stack)
    server.server.takes = {"find": 0.02}
    client = client_of(server, stack, maxIdleTimeMS=800)
    load.begin(lambda: bursts(client, load.over, rng.randint(10, 14), rng.uniform(2.6, 3.2)))
    return server.look_at, [], "17s"


def m_quiet(lane, kind, rng, load, stack):
    server = mongodb(stack)
    finds_now_and_then(load, rng, client_of(server, stack), rng.randint(2, 6))
    return server.look_at, [], "4s"


def m_cron(lane, kind, rng, load, stack):
    """Now and then many clients come at once, work for a moment, and leave."""
    from support.mock_mongodb_statistics import one
    server = mongodb(stack)
    finds_now_and_then(load, rng, client_of(server, stack), 2)

    def job():
        with server.client(appName="cron") as client:
            crowd = [threading.Thread(target=lambda: [one(client) for _ in range(20)]) for _ in range(20)]
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join()

    load.begin(job, after=rng.uniform(1, 3))
    return server.look_at, [], "6s"


def m_deployment(lane, kind, rng, load, stack):
    """One instance after another leaves, and a new one comes."""
    server = mongodb(stack)
    from support.mock_mongodb_statistics import one
    finds_now_and_then(load, rng, client_of(server, stack), 2)
    instances = [server.client(appName=f"web-{n}", minPoolSize=5) for n in range(4)]

    def deploy():
        for n, instance in enumerate(instances):
            if load.over.wait(rng.uniform(0.6, 1.0)):
                break
            instance.close()
            instances[n] = server.client(appName=f"web-{n}", minPoolSize=5)
            one(instances[n])
        load.over.wait()

    load.begin(deploy)
    stack.callback(lambda: [instance.close() for instance in instances])
    return server.look_at, [], "5s"


def m_transactions(lane, kind, rng, load, stack):
    """Transactions in which the application itself works for a moment."""
    from support.mock_mongodb_statistics import pauses
    server = mongodb(stack)
    client, think = client_of(server, stack), rng.uniform(0.003, 0.02)
    again(load, rng.randint(3, 6), lambda: (pauses(client, load.over, think), load.over.wait(0.05)))
    return server.look_at, [], "4s"


# -- the pool of a MongoDB driver, by its events in a file


def driver(lane, stack, takes=0.02, **settings):
    """A client, and the file of its events, which must be closed before the doctor reads it."""
    from support.mock_mongodb_statistics import Events
    server = mongodb(stack)
    server.server.takes = {"find": takes}
    path = pathlib.Path(tempfile.mkdtemp(dir=lane.directory)) / "events.jsonl"
    events = Events(path)
    return client_of(server, stack, event_listeners=[events], **settings), events.file, path


def e_small(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import one
    size = rng.randint(3, 5)
    client, file, path = driver(lane, stack, rng.uniform(0.015, 0.03), maxPoolSize=size)
    again(load, 1, lambda: one(client))
    again(load, rng.randint(3 * size, 4 * size), lambda: one(client), after=4)
    time.sleep(8)
    file.close()
    return str(path), [], "1s"


def e_churn(lane, kind, rng, load, stack):
    from support.mock_mongodb_statistics import bursts
    client, file, path = driver(lane, stack, maxIdleTimeMS=800)
    load.begin(lambda: bursts(client, load.over, rng.randint(6, 10), rng.uniform(2.6, 3.2)))
    time.sleep(16)
    file.close()
    return str(path), [], "1s"


def e_quiet(lane, kind, rng, load, stack):
    client, file, path = driver(lane, stack, 0.005, maxPoolSize=10)
    finds_now_and_then(load, rng, client, rng.randint(2, 6))
    time.sleep(6)
    file.close()
    return str(path), [], "1s"


def e_burst(lane, kind, rng, load, stack):
    """A burst that passes, larger than the pool."""
    from support.mock_mongodb_statistics import one
    client, file, path = driver(lane, stack, 0.01, maxPoolSize=5)
    finds_now_and_then(load, rng, client, 2)

    def burst():
        crowd = [threading.Thread(target=lambda: [one(client) for _ in range(5)]) for _ in range(20)]
        for thread in crowd:
            thread.start()
        for thread in crowd:
            thread.join()

    load.begin(burst, after=rng.uniform(1, 4))
    time.sleep(8)
    file.close()
    return str(path), [], "1s"


# -- Redis


def redis(lane, stack, **settings):
    from support.redis_server import RedisServer
    directory = pathlib.Path(tempfile.mkdtemp(dir=lane.directory))
    made = RedisServer(directory, **settings).start()
    stack.callback(made.stop)
    return made


def sit(server, stack, many):
    """Opens connections that are kept."""
    clients = [stack.enter_context(contextlib.closing(server.connect(single_connection_client=True))) for _ in range(many)]
    for client in clients:
        client.ping()
    return clients


def ask(load, rng, clients, pause=None):
    pause = pause or rng.uniform(0.05, 0.15)
    for client in clients:
        again(load, 1, lambda client=client: (client.get("a"), load.over.wait(pause)))


def visit(server):
    with contextlib.closing(server.connect()) as client:
        client.get("a")


def r_ephemeral(lane, kind, rng, load, stack):
    server = redis(lane, stack)
    again(load, rng.randint(2, 4), lambda: visit(server))
    ask(load, rng, sit(server, stack, 2))
    return server.url(), [], "5s"


def r_kept(lane, kind, rng, load, stack):
    server = redis(lane, stack, maxclients=100)
    clients = sit(server, stack, rng.randint(86, 92))
    ask(load, rng, clients[:rng.randint(1, 4)])
    time.sleep(1.5)
    return server.url(), [], "4s"


def r_refused(lane, kind, rng, load, stack):
    """All accepted connections work, and further ones are refused."""
    server = redis(lane, stack, maxclients=40)
    ask(load, rng, sit(server, stack, 38), pause=0.1)
    looked = threading.Event()

    def knock():
        # The last connection but one is that of the doctor.
        if not looked.is_set():
            load.over.wait(1)
            looked.set()
        with contextlib.suppress(Exception):
            visit(server)
        load.over.wait(0.05)

    again(load, 3, knock, may_fail=True)
    return server.url(), [], "5s"


def r_replica(lane, kind, rng, load, stack):
    from support.postgres_cluster import free_port
    server = redis(lane, stack)
    server.connect().execute_command("REPLICAOF", "127.0.0.1", free_port())
    ask(load, rng, sit(server, stack, rng.randint(1, 5)))
    return server.url(), [], "3s"


def r_quiet(lane, kind, rng, load, stack):
    server = redis(lane, stack)
    ask(load, rng, sit(server, stack, rng.randint(3, 10)))
    return server.url(), [], "4s"


def r_cron(lane, kind, rng, load, stack):
    server = redis(lane, stack)
    ask(load, rng, sit(server, stack, 2))

    def job():
        with contextlib.ExitStack() as own:
            for client in sit(server, own, 60):
                client.get("a")

    load.begin(job, after=rng.uniform(1, 3))
    return server.url(), [], "6s"


def r_deployment(lane, kind, rng, load, stack):
    server = redis(lane, stack)
    ask(load, rng, sit(server, stack, 2))

    def come():
        for client in sit(server, stack, 100):
            client.get("a")

    load.begin(come, after=rng.uniform(0.5, 2))
    return server.url(), [], "5s"


def r_listeners(lane, kind, rng, load, stack):
    """Redis is nearly full of subscribers and of their other connections."""
    server = redis(lane, stack, maxclients=120)
    for client in sit(server, stack, rng.randint(50, 54)):
        stack.enter_context(contextlib.closing(client.pubsub())).subscribe("news")
    time.sleep(0.5)
    return server.url(), [], "4s"


FAULTS = {
    "mongodb": {
        "ephemeral_clients": m_ephemeral, "over_provisioned": m_kept, "transactions_left_open": m_left_open, "leak": m_leak,
        "server_saturated": m_queue, "server_saturated (processors)": m_processors, "idle_churn": m_churn,
    },
    "driver": {"pool_too_small": e_small, "idle_churn": e_churn},
    "redis": {
        "ephemeral_clients": r_ephemeral, "over_provisioned": r_kept, "connections_refused": r_refused, "out_of_reach": r_replica,
    },
}
HEALTHY = {
    "mongodb": {"quiet": m_quiet, "cron": m_cron, "deployment": m_deployment, "transactions": m_transactions},
    "driver": {"quiet": e_quiet, "burst": e_burst},
    "redis": {"quiet": r_quiet, "cron": r_cron, "deployment": r_deployment, "listeners": r_listeners},
}
