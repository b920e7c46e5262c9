"""A wrong configuration: exit status 2, and an error with the place and a suggestion."""

import re
import subprocess

import pytest

from support.pooler import BINARY
from support.postgres_cluster import free_port

pytestmark = pytest.mark.poolhouse_only

GOOD = """\
[admin]
listen = "127.0.0.1:9931"

[[listener]]
protocol = "postgres"
listen = "127.0.0.1:6433"
soft_limit = 80
hard_limit = 100

[[database]]
name = "bench"
url = "postgres://app:hunter2@127.0.0.1:5432/bench"
mode = "transaction"
max_size = 4
max_wait_time = "2s"

[[user]]
name = "app"
password = "hunter2"
"""


def poolhouse(*arguments, **more):
    return subprocess.run([BINARY, *map(str, arguments)], text=True, stdin=subprocess.DEVNULL, timeout=20,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


@pytest.fixture
def check(tmp_path):
    def run(text, verb=("check",)):
        path = tmp_path / "poolhouse.toml"
        path.write_text(text)
        path.chmod(0o600)
        return poolhouse(*verb, path)

    return run


@pytest.mark.quick
def test_a_good_configuration_passes(check):
    done = check(GOOD)
    assert done.returncode == 0, done.stderr


WRONG = {
    "unknown key": ("max_size = 4", "max_sise = 4", r"poolhouse\.toml:14:1: .*max_sise.*", "max_size"),
    "unknown table": ("[admin]", "[amdin]", r"poolhouse\.toml:1:", "admin"),
    "wrong unit": ('"2s"', '"2 seconds"', r"poolhouse\.toml:15:\d+: ", "seconds"),
    "no unit": ('"2s"', '"2"', r"poolhouse\.toml:15:\d+: ", "unit"),
    "wrong type": ("max_size = 4", 'max_size = "four"', r"poolhouse\.toml:14:\d+: ", "max_size"),
    "out of range": ("max_size = 4", "max_size = 0", r"poolhouse\.toml:14:\d+: ", "max_size"),
    "negative": ("max_size = 4", "max_size = -1", r"poolhouse\.toml:14:\d+: ", "max_size"),
    "unknown mode": ('"transaction"', '"transction"', r"poolhouse\.toml:13:\d+: ", '"transaction"'),
    "no toml": ("[[user]]", "[[user]", r"poolhouse\.toml:17:\d+: ", "TOML"),
    "unset variable": ("app:hunter2", "app:${NO_SUCH_VARIABLE_HERE}", r"poolhouse\.toml:12:\d+: ", "NO_SUCH_VARIABLE_HERE"),
    "bad url": ("postgres://app:hunter2@127.0.0.1:5432/bench", "postgres://app:hunter2@host:port/bench",
                r"poolhouse\.toml:12:\d+: ", "port"),
    "no database": ("[[database]]", "[[databse]]", r"poolhouse\.toml:\d+:\d+: ", "database"),
    "min above max": ("max_size = 4", "max_size = 4\nmin_size = 5", r"poolhouse\.toml:1\d:\d+: ", "min_size"),
    "soft above hard": ("soft_limit = 80", "soft_limit = 800", r"poolhouse\.toml:[78]:\d+: ", "soft_limit"),
    "soft above hard of a database": ("max_size = 4", "hard_limit = 4\nsoft_limit = 5", r"poolhouse\.toml:15:\d+: ", "write 4 or less"),
    "no client of a user": ('password = "hunter2"', 'password = "hunter2"\nhard_limit = 0', r"poolhouse\.toml:20:\d+: ", "hard_limit"),
    "twice": ("[[user]]", '[[user]]\nname = "app"\npassword = "x"\n[[user]]', r"poolhouse\.toml:\d+:\d+: ", "twice"),
}


@pytest.mark.parametrize("old, new, place, word", WRONG.values(), ids=list(WRONG))
@pytest.mark.parametrize("verb", [("check",), ("serve", "--config")], ids=["check", "serve"])
def test_an_error_names_file_line_column_and_remedy(check, old, new, place, word, verb):
    assert old in GOOD
    done = check(GOOD.replace(old, new, 1), verb)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert re.search(place, done.stderr), done.stderr
    assert word in done.stderr, done.stderr
    assert "hunter2" not in done.stderr + done.stdout
    assert "panicked" not in done.stderr


@pytest.mark.quick
def test_all_errors_are_told_at_once(check):
    done = check(GOOD.replace("max_size", "max_sise").replace("hard_limit", "hard_limt").replace('"2s"', '"2x"'))
    assert done.returncode == 2
    for word in ("max_sise", "hard_limt", "2x"):
        assert word in done.stderr, done.stderr


def test_files_and_addresses_are_looked_at_although_something_else_is_wrong(check):
    second = '[[listener]]\nlisten = "127.0.0.1:6433"\ntls_cert = "nowhere.pem"\ntls_key = "nowhere.key"\n'
    text = GOOD.replace("max_size = 4", "max_sise = 4").replace("[[database]]", second + "[[database]]")
    for verb in (("check",), ("serve", "--config")):
        done = check(text, verb)
        assert done.returncode == 2
        for said in ("max_sise", "two listeners have the address 127.0.0.1:6433", "nowhere.pem"):
            assert said in done.stderr, done.stderr


def test_a_key_that_is_written_twice_is_called_that_and_all_else_is_read(check):
    done = check(GOOD.replace("max_size = 4", "max_size = 4\nmax_size = 5\nmin_sise = 1"))
    assert done.returncode == 2
    assert "poolhouse.toml:15:1: error: `max_size` is written twice" in done.stderr and "min_size" in done.stderr, done.stderr
    assert "TOML" not in done.stderr


def test_settings_that_cannot_work_together_are_warned_of(check):
    done = check(GOOD.replace("max_size = 4", "max_size = 400\nmax_connecting = 1"))
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr
    assert "warning" in text and "max_wait_time" in text and "max_size" in text


@pytest.mark.parametrize("arguments", [("serve",), ("serve", "--config", "/nonexistent/p.toml"), ("check", "/nonexistent"),
                                       ("serve", "mysql://h/d"), ("serve", "postgres://h/d", "--max-size", "many"),
                                       ("serve", "postgres://h/d", "--no-such-flag"), ("no-such-verb",),
                                       ("serve", "postgres://h/d", "--listen", "nowhere")])
def test_bad_usage_is_exit_status_2(arguments):
    done = poolhouse(*arguments)
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stderr and "panicked" not in done.stderr


def test_listening_to_the_world_without_authentication_is_refused_unless_insisted_upon(start):
    refused = poolhouse("serve", "postgres://127.0.0.1:1/d", "--listen", "0.0.0.0:6439")
    assert refused.returncode == 2 and "--insecure-no-auth" in refused.stderr
    pooler = start.unstarted()
    pooler.launch([BINARY, "serve", "postgres://127.0.0.1:1/d", "--listen", f"0.0.0.0:{pooler.port}",
                   "--admin", f"127.0.0.1:{pooler.admin_port}", "--insecure-no-auth"])


def test_an_address_in_use_is_named(start):
    pooler = start()
    done = poolhouse("serve", "postgres://127.0.0.1:1/d", "--listen", f"127.0.0.1:{pooler.port}", "--admin",
                     f"127.0.0.1:{free_port()}")
    assert done.returncode in (1, 2) and f"127.0.0.1:{pooler.port}" in done.stderr, (done.returncode, done.stderr)


def test_help_and_version():
    assert poolhouse("--version").stdout.startswith("poolhouse ")
    text = poolhouse("serve", "--help").stdout
    for flag in ("--listen", "--max-size", "--min-size", "--mode", "--soft-limit", "--hard-limit", "--workers", "--admin",
                 "--config", "--url-file"):
        assert flag in text, flag
    assert poolhouse("--help").returncode == 0
