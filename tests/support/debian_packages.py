"""Debian packages of the program under test, for tests that install them on a machine (support/machine.py)."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from support import pooler

VERSION = "0.1.0"
NEXT_VERSION = "0.1.1"
# An older program, for tests of an upgrade and of the way back. Without it both versions are the program under test.
BINARY_BEFORE = os.environ.get("POOLHOUSE_BEFORE")


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
    """The packages of two versions, as name -> path. Without an older program the two differ by a byte at the end."""
    folder = tmp_path_factory.mktemp("packages")
    before, after = folder / "before", folder / "after"
    subprocess.run(["strip", "-o", str(before), BINARY_BEFORE or pooler.BINARY], check=True)
    subprocess.run(["strip", "-o", str(after), pooler.BINARY], check=True)
    with after.open("ab") as file:
        file.write(b"\n")
    make(before, manual, VERSION, folder)
    make(after, manual, NEXT_VERSION, folder)
    return {"binary": after, **{path.name: path for path in folder.glob("*.deb")}}


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


def block(page, section, number):
    """A block of commands in a section of a page of docs/."""
    text = (pooler.ROOT / "docs" / page).read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[number]


def commands(section, number):
    """Those of docs/installing.md, as words. What an editor is for has been done."""
    return ["sh", "-exc", f"editor() {{ :; }}\ncd /mnt/shared\n{block('installing.md', section, number)}"]
