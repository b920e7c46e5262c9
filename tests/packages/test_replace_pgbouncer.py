"""Debian's package `pgbouncer` replaced by ours, and back, on a machine with systemd, under clients."""

import contextlib
import time

import pytest

from support.debian_packages import NEXT_VERSION, VERSION, Psql, block, commands, install, manual, packages, share, start_postgres
from support.machine import machine
from support.reconnecting_clients import ReconnectingClients
from support.waiting import eventually

# Programs of Debian take their time where others test, too.
pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timeout(240)]

__all__ = ["machine", "manual", "packages"]
URL = "postgres://postgres:secret@127.0.0.1:6432/postgres"
NAMES = ("poolhouse", "poolhouse-pgbouncer")
CLIENTS = 50
# Drivers try again after a second: the second attempt comes through, also on a busy machine.
MAX_GAP_SECONDS = 2.0
# Between the stop of ours and the start of Debian's, apt unpacks and configures that.
MAX_GAP_BACK_SECONDS = 10.0
# A package that is as Debian's, of its files on this machine.
REPACK = r"""
dpkg-query --listfiles pgbouncer | while read -r path; do [ -d "$path" ] || [ ! -e "$path" ] || echo "$path"; done >/srv/files
mkdir -p /srv/repack/DEBIAN
tar --create --absolute-names --files-from /srv/files | tar --extract -C /srv/repack
for part in preinst postinst prerm postrm conffiles; do cp "/var/lib/dpkg/info/pgbouncer.$part" "/srv/repack/DEBIAN/$part"; done
dpkg-query --status pgbouncer | awk '/^[^ ]/ { kept = !/^(Status|Conffiles|Config-Version):/ } kept' >/srv/repack/DEBIAN/control
dpkg-deb --build /srv/repack /mnt/shared/pgbouncer.deb
"""


def start_pgbouncer(machine):
    """Debian's own package, which the machine has from the host, in front of the database."""
    if machine.run("dpkg", "--status", "pgbouncer", check=False).returncode != 0:
        pytest.skip("Debian's pgbouncer is not installed")
    machine.run("sh", "-ec", REPACK)
    machine.run("install", "-d", "-o", "postgres", "-g", "postgres", "/run/postgresql", "/var/log/postgresql")
    ini = "\n".join(["[databases]", "* = host=127.0.0.1 port=5432", "[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = 6432", "unix_socket_dir =",
                     "auth_type = md5", "auth_file = /etc/pgbouncer/userlist.txt", "pool_mode = transaction", "logfile = /var/log/postgresql/pgbouncer.log",
                     "pidfile = /run/postgresql/pgbouncer.pid", ""])
    for name, text in {"pgbouncer.ini": ini, "userlist.txt": '"postgres" "secret"\n'}.items():
        (machine.shared / name).write_text(text)
        machine.run("cp", "--no-preserve=all", f"/mnt/shared/{name}", f"/etc/pgbouncer/{name}")
    machine.run("systemctl", "enable", "--now", "pgbouncer.service")


def ask(machine, statement):
    return machine.says("psql", "-XqAt", URL, "-c", statement)


def main_process(machine, unit="pgbouncer"):
    return machine.says("systemctl", "show", "--value", "--property", "MainPID", unit)


def program_of(machine, unit="pgbouncer"):
    return machine.says("readlink", f"/proc/{main_process(machine, unit)}/exe").removesuffix(" (deleted)").rpartition("/")[2]


def status(machine, package):
    return machine.says("dpkg-query", "-W", "-f", "${db:Status-Status}", package)


@contextlib.contextmanager
def clients(machine, noted):
    """Clients at work for the length of a `with`. What they noted is added to a dictionary, and compared with the table."""
    ask(machine, "DROP TABLE IF EXISTS work; CREATE TABLE work (client int, number int, PRIMARY KEY (client, number))")
    rows = lambda: int(machine.says("psql", "-XqAt", "-h", "/srv/pg", "-U", "postgres", "-c", "SELECT count(*) FROM work"))
    works_on = lambda more: eventually("the clients work", lambda start=rows(): rows() > start + more, 30)
    with ReconnectingClients(URL, CLIENTS, ["nsenter", "--target", machine.first_process(), "--net"]) as running:
        works_on(100)
        yield
        works_on(10 * CLIENTS)
        noted |= running.end()
    print({name: noted[name] for name in ("longest_gap", "longest_away")}, "refused", sum(map(len, noted["refused"])))
    assert not noted["aborted"], noted["aborted"][:3]
    assert rows() == sum(noted["committed"]) and min(noted["committed"]) > 10


def assert_disconnected_once(noted, max_gap=MAX_GAP_SECONDS):
    assert noted["disconnects"] == [1] * CLIENTS
    assert noted["longest_gap"] < max_gap, noted
    # One attempt a second.
    assert max(len(errors) for errors in noted["refused"]) <= max_gap + 1, noted["refused"]
    assert all("Connection refused" in error for errors in noted["refused"] for error in errors), noted["refused"]


def assert_not_noticed(noted):
    assert not any(noted["refused"]) and noted["disconnects"] == [0] * CLIENTS, noted


def test_the_package_takes_the_place_of_debians_pgbouncer(machine, packages):
    start_postgres(machine)
    start_pgbouncer(machine)
    assert program_of(machine) == "pgbouncer" and ask(machine, "SELECT 1") == "1"
    share(machine, *(packages[f"{name}_{VERSION}_amd64.deb"] for name in NAMES))
    machine.run(*commands("Debian and Ubuntu", 1))
    assert status(machine, "pgbouncer") == "config-files"
    assert machine.says("systemctl", "is-active", "pgbouncer") == "active", machine.says("journalctl", "-u", "poolhouse-pgbouncer")
    assert program_of(machine) == "poolhouse" and ask(machine, "SELECT 2") == "2"
    assert machine.run("systemctl", "is-enabled", "pgbouncer", "poolhouse", check=False).stdout.split() == ["alias", "disabled"]
    # Its files belong to this package now.
    machine.run("dpkg", "--purge", "pgbouncer")
    assert "secret" in machine.says("cat", "/etc/pgbouncer/userlist.txt")
    machine.run("systemctl", "reload", "pgbouncer")
    assert ask(machine, "SELECT 3") == "3"
    client = Psql(machine, "-p", "6432", password="secret")
    assert client.ask("BEGIN; SELECT 'open'") == "open"
    install(machine, *(packages[f"{name}_{NEXT_VERSION}_amd64.deb"] for name in NAMES))
    assert client.ask("SELECT 'kept'") == "kept" and ask(machine, "SELECT 4") == "4"
    assert client.ask("COMMIT; SELECT 'done'") == "done"
    client.close()
    machine.run("dpkg", "--remove", "poolhouse-pgbouncer")
    assert machine.run("pgrep", "-x", "pgbouncer|poolhouse", check=False).returncode == 1
    assert "secret" in machine.says("cat", "/etc/pgbouncer/userlist.txt")
    # Installed again it serves again.
    install(machine, packages[f"poolhouse-pgbouncer_{NEXT_VERSION}_amd64.deb"])
    assert ask(machine, "SELECT 5") == "5"
    machine.run("dpkg", "--purge", "poolhouse-pgbouncer", "poolhouse")
    assert machine.run("ls", "/etc/pgbouncer", check=False).returncode != 0
    assert "poolhouse" not in machine.says("dpkg-divert", "--list")
    assert not machine.says("sh", "-c", "find /etc/systemd /var/lib/systemd -name '*poolhouse*' -o -name 'pgbouncer.service*'")


@pytest.mark.timing
def test_clients_are_disconnected_once_on_the_way_there_and_once_on_the_way_back(machine, packages):
    start_postgres(machine)
    start_pgbouncer(machine)
    there, upgrade, downgrade, back = {}, {}, {}, {}
    ours, next_ones = ([packages[f"{name}_{version}_amd64.deb"] for name in NAMES] for version in (VERSION, NEXT_VERSION))
    share(machine, *ours, *next_ones)
    with clients(machine, there):
        machine.run(*commands("Debian and Ubuntu", 1)[:-1], commands("Debian and Ubuntu", 1)[-1].replace("*", VERSION))
        assert program_of(machine) == "poolhouse"
    assert_disconnected_once(there)
    for packages_of_version, noted in ((next_ones, upgrade), (ours, downgrade)):
        before = main_process(machine)
        with clients(machine, noted):
            install(machine, *packages_of_version)
            assert main_process(machine) != before
        assert_not_noticed(noted)
    with clients(machine, back):
        machine.run("apt-get", "install", "--yes", "/mnt/shared/pgbouncer.deb")
        assert program_of(machine) == "pgbouncer" and status(machine, "poolhouse-pgbouncer") == "config-files"
    assert_disconnected_once(back, MAX_GAP_BACK_SECONDS)
    assert "secret" in machine.says("cat", "/etc/pgbouncer/userlist.txt")


@pytest.mark.timing
def test_apt_replaces_it_as_well(machine, packages):
    start_postgres(machine)
    start_pgbouncer(machine)
    share(machine, *(packages[f"{name}_{VERSION}_amd64.deb"] for name in NAMES))
    noted = {}
    with clients(machine, noted):
        for command in block("installing.md", "Debian and Ubuntu", 2).splitlines():
            machine.run("sh", "-ec", f"cd /mnt/shared; {command}")
        assert program_of(machine) == "poolhouse"
    assert_disconnected_once(noted)


@pytest.mark.timing
def test_the_commands_of_the_page_take_a_minute(machine, packages):
    start_postgres(machine)
    start_pgbouncer(machine)
    (machine.shared / "poolhouse").write_bytes(packages["binary"].read_bytes())
    machine.run("install", "/mnt/shared/poolhouse", "/usr/local/bin/poolhouse")
    script = block("from-pgbouncer.md", "The minute", 0)
    steps = [line.split("  #")[0].strip() for line in script.splitlines()]
    # The machine may lack sudo; and a person's psql knows who they are.
    setting = "sudo() { runuser -u \"$2\" -- \"$3\" \"$4\" \"$5\"; }\nexport PGHOST=127.0.0.1 PGUSER=postgres PGPASSWORD=secret PGDATABASE=postgres"
    began = time.monotonic()
    said = machine.says("bash", "-ec", "\n".join([setting, *steps]))
    assert time.monotonic() - began < 60, said
    assert "0 errors" in said and "LOG serving" in said, said
    eventually("PgBouncer serves again", lambda: program_of(machine) == "pgbouncer")
    assert ask(machine, "SELECT 1") == "1"
