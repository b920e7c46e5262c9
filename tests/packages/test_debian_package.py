"""The Debian package: installed, upgraded under clients, removed, on a machine with systemd."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from support import pooler
from support.machine import machine
from support.waiting import eventually

pytestmark = pytest.mark.poolhouse_only

__all__ = ["machine"]
VERSION = "0.1.0"
NEXT_VERSION = "0.1.1"


@pytest.fixture(scope="module")
def manual(tmp_path_factory):
    """What `poolhouse manual` writes."""
    folder = tmp_path_factory.mktemp("manual")
    subprocess.run([pooler.BINARY, "manual", "--to", str(folder)], check=True, timeout=20)
    return folder


def make(binary, manual, version, to):
    """Makes the packages of a binary; returns the folder."""
    script = pooler.ROOT / "scripts/packages/debian.py"
    subprocess.run([sys.executable, str(script), "--binary", str(binary), "--manual", str(manual), "--version", version, "--to", str(to), "--quick"],
                   check=True, timeout=80, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": "1764460800"})
    return to


@pytest.fixture(scope="module")
def packages(tmp_path_factory, manual):
    """The packages of two versions, as name -> path. The binaries differ by a byte at the end."""
    folder = tmp_path_factory.mktemp("packages")
    stripped = folder / "poolhouse"
    subprocess.run(["strip", "-o", str(stripped), pooler.BINARY], check=True)
    make(stripped, manual, VERSION, folder)
    with stripped.open("ab") as file:
        file.write(b"\n")
    make(stripped, manual, NEXT_VERSION, folder)
    return {path.name: path for path in folder.glob("*.deb")}


class Psql:
    """A session of psql that stays."""

    def __init__(self, machine, *arguments):
        self.process = machine.start("psql", "-XqAt", "-h", "127.0.0.1", "-U", "postgres", *arguments, "postgres", stdin=subprocess.PIPE,
                                     stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def ask(self, statement):
        """The first line of the answer to one statement."""
        self.process.stdin.write(statement + ";\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(20) == 0


def start_postgres(machine):
    """A database server at the port that the example configuration names."""
    (programs,) = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
    machine.run("install", "-d", "-o", "postgres", "/srv/pg")
    machine.run(f"{programs}/initdb", "-D", "/srv/pg/data", "--auth=trust", user="postgres")
    machine.run(f"{programs}/pg_ctl", "-D", "/srv/pg/data", "-w", "-l", "/srv/pg/log", "-o", "-k /srv/pg -c fsync=off", "start", user="postgres")


def install(machine, *packages):
    for package in packages:
        (machine.shared / package.name).write_bytes(package.read_bytes())
    return machine.run("dpkg", "--install", *(f"/mnt/shared/{package.name}" for package in packages))


def properties(machine, *names):
    return [machine.says("systemctl", "show", "--value", "--property", name, "poolhouse.service") for name in names]


def test_the_package_serves_is_upgraded_under_clients_and_leaves_nothing(machine, packages):
    start_postgres(machine)
    before = machine.changed_files()
    install(machine, packages[f"poolhouse_{VERSION}_amd64.deb"])
    state, first = properties(machine, "ActiveState", "MainPID")
    assert state == "active", machine.run("journalctl", "-u", "poolhouse", check=False).stdout
    assert machine.says("ps", "-o", "user=", "-p", first) == "poolhouse"
    assert machine.says("stat", "-c", "%U:%G %a", "/etc/poolhouse/poolhouse.toml") == "root:poolhouse 640"
    assert machine.says("poolhouse", "check", "/etc/poolhouse/poolhouse.toml").endswith("0 errors, 0 warnings")
    machine.run("sh", "-c", "echo '# of the administrator' >> /etc/poolhouse/poolhouse.toml")

    client = Psql(machine, "-p", "6432")
    assert client.ask("BEGIN; CREATE TEMP TABLE kept AS SELECT 42 AS number; SELECT number FROM kept") == "42"
    install(machine, packages[f"poolhouse_{NEXT_VERSION}_amd64.deb"])
    (second,) = properties(machine, "MainPID")
    assert second != first and machine.says("readlink", f"/proc/{second}/exe").endswith("/usr/bin/poolhouse")
    assert client.ask("SELECT number FROM kept") == "42"
    newcomer = Psql(machine, "-p", "6432")
    assert newcomer.ask("SELECT 'served'") == "served"
    assert client.ask("COMMIT; SELECT 'still there'") == "still there"
    client.close()
    eventually("the first process has ended", lambda: machine.run("kill", "-0", first, check=False).returncode != 0)
    assert "of the administrator" in machine.says("tail", "-n", "1", "/etc/poolhouse/poolhouse.toml")
    assert properties(machine, "ActiveState", "MainPID") == ["active", second]
    newcomer.close()

    machine.run("dpkg", "--remove", "poolhouse")
    assert machine.run("pgrep", "-x", "poolhouse", check=False).returncode == 1
    assert [file for file in machine.changed_files() if file not in before] == ["/etc/group", "/etc/gshadow", "/etc/passwd", "/etc/poolhouse/poolhouse.toml", "/etc/shadow"]
    machine.run("dpkg", "--purge", "poolhouse")
    assert machine.run("getent", "passwd", "poolhouse", check=False).returncode != 0
    left = [file for file in machine.changed_files() if file not in before]
    assert all(re.fullmatch(r"/etc/(group|gshadow|passwd|shadow|subgid|subuid)", file) for file in left), left
    assert machine.run("grep", "-r", "poolhouse", *left, check=False).returncode == 1
    assert not machine.says("sh", "-c", "find /etc /usr /var/lib /run -xdev -name '*poolhouse*' -not -path '*/dpkg/*'")
