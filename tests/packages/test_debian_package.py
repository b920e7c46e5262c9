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

# Programs of Debian take their time where others test, too.
pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timeout(240)]

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
    return {"binary": stripped, **{path.name: path for path in folder.glob("*.deb")}}


class Psql:
    """A session of psql that stays."""

    def __init__(self, machine, *arguments, password=""):
        self.process = machine.start("env", f"PGPASSWORD={password}", "psql", "-XqAt", "-h", "127.0.0.1", "-U", "postgres", *arguments, "postgres", stdin=subprocess.PIPE,
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


def share(machine, *packages):
    for package in packages:
        (machine.shared / package.name).write_bytes(package.read_bytes())


def install(machine, *packages):
    share(machine, *packages)
    return machine.run("dpkg", "--install", *(f"/mnt/shared/{package.name}" for package in packages))


def commands(section, number):
    """The commands of a block in a section of docs/installing.md. What an editor is for has been done."""
    text = (pooler.ROOT / "docs/installing.md").read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    block = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[number]
    return ["sh", "-exc", f"editor() {{ :; }}\ncd /mnt/shared\n{block}"]


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


def test_clients_can_connect_to_systemds_socket_before_the_service_runs(machine, packages):
    start_postgres(machine)
    install(machine, packages[f"poolhouse_{VERSION}_amd64.deb"])
    machine.run("systemctl", "stop", "poolhouse.service")
    machine.run("systemctl", "enable", "--now", "poolhouse.socket")
    assert properties(machine, "ActiveState") == ["inactive"]
    client = Psql(machine, "-p", "6432")
    assert client.ask("SELECT 'served'") == "served"
    (first,) = properties(machine, "MainPID")
    # The sockets go over to the next version as all others do.
    install(machine, packages[f"poolhouse_{NEXT_VERSION}_amd64.deb"])
    assert properties(machine, "MainPID") != [first]
    assert client.ask("SELECT 'kept'") == "kept"
    client.close()
    machine.run("sh", "-c", "sed -i 's/:6432/:6433/' /etc/poolhouse/poolhouse.toml")
    assert machine.run("systemctl", "restart", "poolhouse.service", check=False).returncode != 0
    assert "systemd passes sockets that no listener has: 127.0.0.1:6432" in machine.says("journalctl", "--no-pager", "-u", "poolhouse.service")
    machine.run("dpkg", "--purge", "poolhouse")
    assert not machine.says("ss", "-Hltn", "sport = :6432")


# -- in PgBouncer's place


def start_pgbouncer(machine):
    """Debian's own package, which the machine has from the host, in front of the database."""
    if machine.run("dpkg", "--status", "pgbouncer", check=False).returncode != 0:
        pytest.skip("Debian's pgbouncer is not installed")
    machine.run("install", "-d", "-o", "postgres", "-g", "postgres", "/run/postgresql", "/var/log/postgresql")
    ini = "\n".join(["[databases]", "* = host=127.0.0.1 port=5432", "[pgbouncer]", "listen_addr = 127.0.0.1", "listen_port = 6432", "unix_socket_dir =",
                     "auth_type = md5", "auth_file = /etc/pgbouncer/userlist.txt", "pool_mode = transaction", "logfile = /var/log/postgresql/pgbouncer.log",
                     "pidfile = /run/postgresql/pgbouncer.pid", ""])
    for name, text in {"pgbouncer.ini": ini, "userlist.txt": '"postgres" "secret"\n'}.items():
        (machine.shared / name).write_text(text)
        machine.run("cp", "--no-preserve=all", f"/mnt/shared/{name}", f"/etc/pgbouncer/{name}")
    machine.run("systemctl", "enable", "--now", "pgbouncer.service")


def ask(machine, statement):
    return machine.says("psql", "-XqAt", "postgres://postgres:secret@127.0.0.1:6432/postgres", "-c", statement)


def program_of(machine, unit):
    process = machine.says("systemctl", "show", "--value", "--property", "MainPID", unit)
    return machine.says("readlink", f"/proc/{process}/exe").removesuffix(" (deleted)").rpartition("/")[2]


def test_the_package_takes_the_place_of_debians_pgbouncer(machine, packages):
    start_postgres(machine)
    start_pgbouncer(machine)
    assert program_of(machine, "pgbouncer") == "pgbouncer" and ask(machine, "SELECT 1") == "1"
    names = ("poolhouse", "poolhouse-pgbouncer")
    share(machine, *(packages[f"{name}_{VERSION}_amd64.deb"] for name in names))
    machine.run(*commands("Debian and Ubuntu", 1))
    assert machine.says("dpkg-query", "-W", "-f", "${db:Status-Status}", "pgbouncer") == "config-files"
    assert machine.says("systemctl", "is-active", "pgbouncer") == "active", machine.says("journalctl", "-u", "poolhouse-pgbouncer")
    assert program_of(machine, "pgbouncer") == "poolhouse" and ask(machine, "SELECT 2") == "2"
    # Its files belong to this package now.
    machine.run("dpkg", "--purge", "pgbouncer")
    assert "secret" in machine.says("cat", "/etc/pgbouncer/userlist.txt")
    machine.run("systemctl", "reload", "pgbouncer")
    assert ask(machine, "SELECT 3") == "3"
    client = Psql(machine, "-p", "6432", password="secret")
    assert client.ask("BEGIN; SELECT 'open'") == "open"
    install(machine, *(packages[f"{name}_{NEXT_VERSION}_amd64.deb"] for name in names))
    assert client.ask("SELECT 'kept'") == "kept" and ask(machine, "SELECT 4") == "4"
    assert client.ask("COMMIT; SELECT 'done'") == "done"
    client.close()
    machine.run("dpkg", "--remove", "poolhouse-pgbouncer")
    assert machine.run("pgrep", "-x", "pgbouncer|poolhouse", check=False).returncode == 1
    assert "secret" in machine.says("cat", "/etc/pgbouncer/userlist.txt")
    machine.run("dpkg", "--purge", "poolhouse-pgbouncer", "poolhouse")
    assert machine.run("ls", "/etc/pgbouncer", check=False).returncode != 0
    assert "poolhouse" not in machine.says("dpkg-divert", "--list")


# -- the page about it


def test_the_commands_of_the_page_install_and_serve(machine, packages):
    start_postgres(machine)
    share(machine, packages[f"poolhouse_{VERSION}_amd64.deb"])
    machine.run(*commands("Debian and Ubuntu", 0))
    assert machine.says("psql", "-XqAt", "-h", "127.0.0.1", "-p", "6432", "-U", "postgres", "-c", "SELECT 'served'") == "served"
    assert machine.run("systemd-analyze", "verify", "/usr/lib/systemd/system/poolhouse.service", check=False).returncode == 0
    exposure = machine.says("systemd-analyze", "security", "--no-pager", "poolhouse.service").splitlines()[-1]
    assert float(re.search(r"level for poolhouse.service: ([\d.]+)", exposure)[1]) < 2.5, exposure


def test_the_commands_of_the_page_unpack_the_program(machine, packages, manual):
    script = pooler.ROOT / "scripts/packages/portable.py"
    name = f"poolhouse-{VERSION}-x86_64-linux-musl"
    subprocess.run([sys.executable, str(script), "--binary", str(packages["binary"]), "--manual", str(manual), "--name", name, "--to", str(machine.shared)],
                   check=True, timeout=60, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": "1764460800"})
    assert "\nreactor: " in machine.says(*commands("Any Linux", 0))
