"""Limits over all listeners, and for each database and user that has none of its own; several addresses of one listener;
the group and the queue of its socket."""

import contextlib
import os
import socket
import stat
import subprocess

import psycopg
import pytest

from support.pooler import BINARY
from support.postgres_cluster import PASSWORDS, free_port
from support.waiting import eventually

TWO = {"users": {"app": PASSWORDS["app"], "app2": PASSWORDS["app2"]}, "newcomer_wait_time": "off"}


def own_user(cluster, *names):
    return {name: {"url": cluster.url(name, user=None)} for name in names}


def refused(pooler, match="too many|connections", **more):
    with pytest.raises(psycopg.OperationalError, match=match):
        pooler.connect(**more)


@pytest.mark.quick
def test_no_more_clients_than_max_clients_come_in(start_either):
    pooler = start_either(max_clients=2, newcomer_wait_time="off")
    with pooler.connect(), pooler.connect():
        refused(pooler)
    eventually("there is room again", lambda: pooler.connect().close() is None)


@pytest.mark.poolhouse_only
def test_max_clients_holds_over_all_listeners_and_follows_a_reload(start):
    made = start.unstarted()
    path = made.directory / ".s.PGSQL.6432"
    settings = {"listen": [f"127.0.0.1:{made.port}", str(path)], "newcomer_wait_time": "off"}
    pooler = made.start(max_clients=2, **settings)

    def by_path():
        return psycopg.connect(host=str(made.directory), port=6432, user="app", password=PASSWORDS["app"], dbname="bench")

    with pooler.connect(), by_path():
        refused(pooler, match=r"max_clients = 2")
        with pytest.raises(psycopg.OperationalError, match="max_clients"):
            by_path()
        pooler.rewrite(max_clients=3, **settings)
        assert pooler.post("/api/reload")[0] == 200
        with by_path():
            refused(pooler, match=r"max_clients = 3")
    pooler.rewrite(**settings)
    assert pooler.post("/api/reload")[0] == 200
    with contextlib.ExitStack() as clients:
        for _ in range(5):
            clients.enter_context(pooler.connect())


@pytest.mark.poolhouse_only
def test_a_newcomer_waits_for_a_place_among_all(start):
    pooler = start(max_clients=1, newcomer_wait_time="5s")
    first = pooler.connect()
    with socket.create_connection(("127.0.0.1", pooler.port)):
        first.close()
    eventually("it comes in", lambda: pooler.connect().close() is None)


@pytest.mark.parametrize("limit", ["max_database_clients", "max_user_clients"])
def test_clients_of_each_database_or_user_are_limited(start_either, cluster, limit):
    pooler = start_either(databases=own_user(cluster, "bench", "other"), **{limit: 2}, **TWO)
    with pooler.connect(), pooler.connect():
        refused(pooler)
        if limit == "max_database_clients":
            refused(pooler, user="app2")
            pooler.connect(database="other").close()
        else:
            refused(pooler, database="other")
            pooler.connect(user="app2").close()


@pytest.mark.poolhouse_only
def test_a_database_of_its_own_limits_is_no_subject_of_the_general_ones(start, cluster):
    databases = own_user(cluster, "bench", "other")
    databases["other"].update(hard_limit=3, soft_limit=3)
    pooler = start(databases=databases, max_database_clients=1, **TWO)
    with pooler.connect(database="other"), pooler.connect(database="other"), pooler.connect(database="bench"):
        refused(pooler, database="bench")


def test_servers_of_each_database_are_limited(start_either, cluster):
    pooler = start_either(max_database_connections=2, max_size=10, max_wait_time="1s")
    with contextlib.ExitStack() as clients:
        for _ in range(2):
            clients.enter_context(pooler.connect(autocommit=False)).execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError), pooler.connect() as third:
            third.execute("SELECT 1")
        assert len(cluster.backends("app")) == 2


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("table", ["[limits]", '[[user]]\nname = "app"'])
def test_servers_of_each_user_are_limited_over_all_databases(start, cluster, table):
    pooler = start.unstarted()
    users = {"app2": PASSWORDS["app2"]} if "app" in table else TWO["users"]
    pooler.rewrite(databases=own_user(cluster, "bench", "other"), users=users, max_wait_time="1s")
    password = f'password = "{PASSWORDS["app"]}"\n' if "app" in table else ""
    with pooler.config_path.open("a") as config:
        config.write(f"\n{table}\n{password}max_user_connections = 1\n")
    pooler.launch([BINARY, "serve", "--config", str(pooler.config_path)])
    with pooler.connect(autocommit=False) as first:
        first.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError), pooler.connect(database="other") as second:
            second.execute("SELECT 1")
        pooler.connect("app2", PASSWORDS["app2"]).execute("SELECT 1")


@pytest.mark.poolhouse_only
def test_addresses_of_one_listener_share_its_limit(start):
    made = start.unstarted()
    other = free_port()
    pooler = made.start(listen=(f"127.0.0.1:{made.port}", f"127.0.0.2:{other}"), hard_limit=2, newcomer_wait_time="off")
    with pooler.connect(), pooler.connect(host="127.0.0.2", port=other):
        refused(pooler)
        refused(pooler, host="127.0.0.2", port=other)
    assert pooler.metric("poolhouse_clients_accepted_total", listener=f"127.0.0.1:{made.port},127.0.0.2:{other}") >= 2


@pytest.mark.poolhouse_only
def test_a_star_is_all_addresses_of_both_kinds(start):
    made = start.unstarted()
    pooler = made.start(listen=f"*:{made.port}")
    pooler.connect().close()
    if socket.has_ipv6:
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            pooler.connect(host="::1").close()


@pytest.mark.poolhouse_only
def test_both_addresses_survive_an_upgrade(start):
    first = start.unstarted()
    other = free_port()
    listen = (f"127.0.0.1:{first.port}", f"127.0.0.2:{other}")
    first.start(listen=listen)
    second = start.unstarted()
    second.port, second.admin_port = first.port, first.admin_port
    second.rewrite(listen=listen)
    command, extra = second.command({"listen": listen})
    second.launch([*command, "--take-over"], **extra)
    eventually("the first has left", lambda: first.wait(0.1) == 0)
    second.connect(host="127.0.0.2", port=other).close()
    second.connect().close()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files to another group")
@pytest.mark.poolhouse_only
def test_the_socket_belongs_to_its_group(start):
    made = start.unstarted()
    path = made.directory / ".s.PGSQL.6432"
    text = made.config({"listen": [f"127.0.0.1:{made.port}"]})
    text += f'[[listener]]\nprotocol = "postgres"\nlisten = "{path}"\nsocket_group = "daemon"\nsocket_mode = "0660"\nbacklog = 16\n'
    made.launch(command_of(made, text))
    eventually("the socket is there", path.exists)
    mode = lambda: (stat.S_IMODE(path.stat().st_mode), path.stat().st_gid)
    eventually("it belongs to the group", lambda: mode() == (0o660, 1))
    psycopg.connect(host=str(made.directory), port=6432, user="app", password=PASSWORDS["app"], dbname="bench").close()


def command_of(made, text):
    command, _ = made.command({})
    made.config_path.write_text(text)
    return command


@pytest.mark.poolhouse_only
def test_a_group_that_does_not_exist_is_named(start):
    made = start.unstarted()
    text = made.config({"listen": [f"127.0.0.1:{made.port}"]})
    text += f'[[listener]]\nprotocol = "postgres"\nlisten = "{made.directory}/s"\nsocket_group = "no-such-group"\n'
    ended = subprocess.run(command_of(made, text), capture_output=True, text=True, timeout=20)
    assert ended.returncode == 1 and "no group `no-such-group`" in ended.stderr


@pytest.mark.poolhouse_only
def test_two_processes_listen_at_one_address_if_both_want_that(start):
    first = start.unstarted()
    first.start(reuse_port=True)
    second = start.unstarted()
    second.port = first.port
    second.start(reuse_port=True)
    seen = set()
    for _ in range(60):
        with first.connect():
            seen |= {name for name, pooler in (("first", first), ("second", second)) if pooler.pools()}
    assert seen == {"first", "second"}
