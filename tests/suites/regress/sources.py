"""Fetches PostgreSQL's own regression suite into /regress, which is never committed, and builds the library its tests
load.

The version is that of the installed server. Debian's source package is fetched with lists of its own, so nothing of the
machine's set-up changes, and nothing is installed. Knows nothing of poolers.
"""

import pathlib
import re
import shutil
import subprocess
import tarfile

from support.postgres_cluster import program

ROOT = pathlib.Path(__file__).resolve().parents[3]
PLACE = ROOT / "regress"


class Unavailable(Exception):
    """The suite cannot be had here; says why."""


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}")
    return done.stdout


def installed():
    """Package and version of the newest server: ("postgresql-15", "15.18-0+deb12u1")."""
    package = f"postgresql-{pathlib.Path(program('postgres')).parts[4]}"
    return package, run("dpkg-query", "-W", "-f", "${Version}", package)


def source_lists():
    """Options of apt-get under which it knows source packages, too, and needs no root."""
    apt = PLACE / "apt"
    (apt / "lists/partial").mkdir(parents=True, exist_ok=True)
    where = pathlib.Path("/etc/apt/sources.list.d")
    for path in sorted(where.glob("*.sources")):
        (apt / path.name).write_text(re.sub(r"^Types:.*", "Types: deb deb-src", path.read_text(), flags=re.MULTILINE))
    for path in [where.parent / "sources.list", *sorted(where.glob("*.list"))]:
        if path.exists():
            lines = [line for line in path.read_text().splitlines() if line.startswith("deb ")]
            lines += [line.replace("deb ", "deb-src ", 1) for line in lines]
            (apt / path.name).write_text("\n".join(lines) + "\n")
    return ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={apt}", "-o", f"Dir::State::lists={apt}/lists"]


def fetch():
    """The folders of the suite and of the library, after downloading and building what is missing."""
    package, version = installed()
    place = PLACE / version.split("-")[0]
    if not (place / "lib/regress.so").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        if shutil.which("gcc") is None or shutil.which("apt-get") is None:
            raise Unavailable("needs a Debian with gcc")
        options = source_lists()
        run("apt-get", *options, "update", "-qq")
        unpack_suite(place, package, version, options)
        build(place, package, version, options)
    return place / "suite", place / "lib"


def unpack_suite(place, package, version, options):
    run("apt-get", *options, "source", "-qq", "--download-only", f"{package}={version}", cwd=place)
    (archive,) = place.glob("*.orig.tar.*")
    with tarfile.open(archive) as tar:
        (top,) = {member.name.split("/")[0] for member in tar}
        wanted = [member for member in tar.getmembers() if member.name.startswith(f"{top}/src/test/regress/")]
        tar.extractall(place, wanted, filter="data")
    (place / top / "src/test/regress").rename(place / "suite")
    shutil.rmtree(place / top)


def build(place, package, version, options):
    """regress.so from its source; refint and autoinc are installed with the server."""
    headers = package.replace("postgresql-", "postgresql-server-dev-")
    run("apt-get", *options, "download", "-qq", f"{headers}={version}", cwd=place)
    run("dpkg", "-x", next(place.glob("*.deb")), place / "dev")
    (place / "lib").mkdir()
    installed_libraries = pathlib.Path(program("postgres")).parent.parent / "lib"
    for name in ("refint.so", "autoinc.so"):
        shutil.copy(installed_libraries / name, place / "lib")
    (include,) = (place / "dev/usr/include/postgresql").glob("*/server")
    run("gcc", "-O2", "-shared", "-fPIC", "-I", include, place / "suite/regress.c", "-o", place / "lib/regress.so")
