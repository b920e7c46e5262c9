"""A pgbouncer.ini with a mistake: the same exit status as PgBouncer's, and an error that names file and line."""

import pytest

from support.ini_pooler import run
from support.postgres_cluster import free_port

pytestmark = pytest.mark.poolhouse_only

GOOD = """[databases]
a = host=127.0.0.1
[pgbouncer]
auth_file = userlist.txt
unix_socket_dir =
listen_addr = 127.0.0.1
"""

BAD = {
    "an unknown setting": (GOOD + "nonsense = 1\n", 7, "nonsense"),
    "a word that is no number": (GOOD + "listen_port = many\n", 7, "many"),
    "a time with a unit": (GOOD + "server_lifetime = 5s\n", 7, "5s"),
    "an unknown mode": (GOOD + "pool_mode = polite\n", 7, "polite"),
    "a truth value in words": (GOOD + "log_connections = yes\n", 7, "yes"),
    "an unknown section": ("[nonsense]\n" + GOOD, 1, "nonsense"),
    "a value without a section": ("a = b\n" + GOOD, 1, "a"),
    "a line that says nothing": (GOOD + "\nnonsense\n", 8, "syntax error"),
    "an unknown key of a database": (GOOD.replace("127.0.0.1\n[", "127.0.0.1 nonsense=1\n["), 2, "nonsense"),
    "a quote that does not end": (GOOD.replace("127.0.0.1\n[", "'127.0.0.1\n["), 2, "syntax error"),
    "a port that is none": (GOOD.replace("127.0.0.1\n[", "127.0.0.1 port=0\n["), 2, "0"),
    "an unknown key of a user": (GOOD + "[users]\nu = min_pool_size=1\n", 8, "min_pool_size"),
    "the name of the console": (GOOD.replace("a = host", "pgbouncer = host"), 2, "pgbouncer"),
    "an included file that does not exist": (GOOD + "%include none.ini\n", 7, "none.ini"),
    "TLS without a key": (GOOD + "client_tls_sslmode = require\n", 7, "client_tls_key_file"),
}


@pytest.mark.parametrize("mistake", BAD)
def test_a_mistake_ends_the_start(kind, folder, mistake):
    text, line, part = BAD[mistake]
    (folder / "p.ini").write_text(f"{text}" if "listen_port" in text else text.replace(
        "listen_addr", f"listen_port = {free_port()}\nlisten_addr"))
    moved = 0 if "listen_port = many" in text or line < 6 else 1
    (folder / "userlist.txt").write_text('"a" "b"\n')
    status, said = run(kind, folder, "p.ini")
    assert status == 1, said
    assert part in said, said
    if kind == "poolhouse":
        assert f"p.ini:{line + moved}:" in said, said


def test_a_file_that_is_not_there_ends_the_start(kind, folder):
    status, said = run(kind, folder, "none.ini")
    assert status == 1 and "none.ini" in said, said


@pytest.mark.parametrize("arguments", [(), ("-R", "p.ini"), ("--nonsense", "p.ini"), ("a.ini", "b.ini")])
def test_a_wrong_command_line_ends_the_start(kind, folder, arguments):
    status, said = run(kind, folder, *arguments)
    assert status == 1 and said, said
    if "-R" in arguments and kind == "poolhouse":
        assert "--take-over" in said, said


@pytest.mark.parametrize("argument", ["-V", "--version", "-h", "--help"])
def test_version_and_help_are_shown(kind, folder, argument):
    status, said = run(kind, folder, argument)
    assert status == 0, said
    assert "PgBouncer" in said, said
