"""The Debian package: installed, upgraded under clients, removed, on a machine with systemd."""

import os
import re
import subprocess
import sys

import pytest

from support import pooler
from support.debian_packages import NEXT_VERSION, VERSION, Psql, commands, install, manual, packages, share, start_postgres
from support.machine import machine
from support.waiting import eventually

# Programs of Debian take their time where others test, too.
pytestmark = [pytest.mark.poolhouse_only, pytest.mark.timeout(240)]

__all__ = ["machine", "manual", "packages"]


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


def test_a_stop_after_an_upgrade_lets_the_transactions_of_both_processes_end(machine, packages):
    start_postgres(machine)
    install(machine, packages[f"poolhouse_{VERSION}_amd64.deb"])
    (first,) = properties(machine, "MainPID")
    of_first = Psql(machine, "-p", "6432")
    assert of_first.ask("BEGIN; SELECT 'open'") == "open"
    install(machine, packages[f"poolhouse_{NEXT_VERSION}_amd64.deb"])
    (second,) = properties(machine, "MainPID")
    assert second != first and machine.says("ps", "-o", "ppid=", "-p", second) == "1", "systemd notices only the end of its own children"
    of_second = Psql(machine, "-p", "6432")
    assert of_second.ask("BEGIN; SELECT 'open'") == "open"
    stop = machine.start("systemctl", "stop", "poolhouse")
    eventually("both drain", lambda: machine.says("journalctl", "--no-pager", "-u", "poolhouse").count("draining:") == 2)
    assert of_second.ask("COMMIT; SELECT 'done'") == "done"
    eventually("the second has ended", lambda: machine.run("kill", "-0", second, check=False).returncode != 0)
    assert of_first.ask("SELECT 'still open'") == "still open" and of_first.ask("COMMIT; SELECT 'done'") == "done"
    assert stop.wait(20) == 0
    assert properties(machine, "ActiveState", "Result") == ["inactive", "success"]


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
