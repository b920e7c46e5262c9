"""poolhouse ctl: orders from the command line, exit statuses, and answers for people and programs."""

import json

import pytest

pytestmark = pytest.mark.poolhouse_only

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.quick
def test_orders_are_carried_out(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("SELECT 1")
        for order, word in [("pause", "paused"), ("resume", "resumed"), ("reconnect", "reconnecting")]:
            done = pooler.ctl(order, "--database", "bench")
            assert done.returncode == 0 and done.stdout.startswith(word), done
        done = pooler.ctl("reload")
        assert done.returncode == 0 and "1 pool follows it" in done.stdout, done
        client.query("SELECT 1")


def test_what_is_there_is_shown(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("BEGIN")
        for what, word in [("pools", "TRANSACTIONS"), ("clients", "transaction"), ("servers", "in_use")]:
            done = pooler.ctl("show", what)
            assert done.returncode == 0 and word in done.stdout and "bench" in done.stdout, done
            parsed = json.loads(pooler.ctl("--json", "-", "show", what).stdout)
            assert len(parsed[what]) == 1
        client.query("COMMIT")


@pytest.mark.timing
def test_a_client_is_killed_by_its_id(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("BEGIN")
        (shown,) = json.loads(pooler.ctl("show", "clients", "--json", "-").stdout)["clients"]
        assert pooler.ctl("kill", shown["id"]).returncode == 0
        assert client.error().sqlstate == "57P01"
        assert client.closed_within(3)
    assert pooler.ctl("kill", shown["id"]).returncode == 1


def test_exit_statuses_tell_failure_from_bad_usage(start):
    pooler = start()
    with pooler.wire() as client:
        client.query("BEGIN")
        late = pooler.ctl("pause", "--time", "200ms", "--json", "-")
        assert late.returncode == 1 and json.loads(late.stdout)["paused"] is False
        pooler.ctl("resume")
        client.query("COMMIT")
    assert pooler.ctl("paus").returncode == 2
    assert pooler.ctl("pause", "--time", "5").returncode == 2
    unknown = pooler.ctl("pause", "--database", "nowhere")
    assert unknown.returncode == 1 and "no database of this name" in unknown.stderr
    for_all = start(databases={"*": {}})
    for order in ("pause", "drain", "resume", "reconnect"):
        unknown = for_all.ctl(order, "--database", "nowhere")
        assert unknown.returncode == 1 and "no pool has this name" in unknown.stderr, (order, unknown.stderr)
    pooler.config_path.write_text("[serv]\n")
    broken = pooler.ctl("reload")
    assert broken.returncode == 1 and "did you mean `serve`" in broken.stderr


def test_a_token_comes_from_a_file_or_the_environment_and_never_from_an_argument(start, tmp_path):
    pooler = start(token=TOKEN)
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    for told, said in [({}, "orders need the token"), ({"environment": {"POOLHOUSE_ADMIN_TOKEN": "wrong"}}, "this token is not the one")]:
        refused = pooler.ctl("resume", **told)
        assert refused.returncode == 1 and said in refused.stderr and "--token-file FILE" in refused.stderr, refused.stderr
    assert pooler.ctl("--token-file", path, "resume").returncode == 0
    assert pooler.ctl("resume", environment={"POOLHOUSE_ADMIN_TOKEN": TOKEN}).returncode == 0
    assert pooler.ctl("--token-file", tmp_path / "nowhere", "resume").returncode == 2
    assert "--token " not in pooler.ctl("--help").stdout


def test_no_proxy_of_the_environment_is_told_the_token(start):
    pooler = start(token="0123456789abcdef")
    gone = {name: "http://127.0.0.1:1" for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")}
    done = pooler.ctl("show", "pools", environment={"POOLHOUSE_ADMIN_TOKEN": "0123456789abcdef", **gone})
    assert done.returncode == 0, done.stderr


def test_an_address_without_a_listener_is_a_failure(start):
    pooler = start()
    pooler.admin_port -= 1
    done = pooler.ctl("show", "pools")
    assert done.returncode == 1 and "cannot ask http://127.0.0.1" in done.stderr
    assert "nothing listens there" in done.stderr and "[admin] listen" in done.stderr, done.stderr


def test_a_port_of_clients_is_told_to_be_no_admin_address(start):
    pooler = start()
    pooler.admin_port = pooler.port
    done = pooler.ctl("show", "pools")
    assert done.returncode == 1 and "This port speaks the PostgreSQL protocol" in done.stderr, done.stderr
