"""Fetches PgBouncer's own tests into /regress, which is never committed, with the packages that they need.

They come with Debian's source package of the suite named here, by lists of apt's that know this suite only: nothing of
the machine's set-up changes, and nothing is installed. Knows nothing of poolers.
"""

import re
import shutil
import subprocess
import sys
import tarfile

from support import pooler

PLACE = pooler.ROOT / "regress"
SUITE = "trixie"
# What the tests are run with.
TOOLS = ("pytest==8.4.1", "pytest-asyncio==1.1.0", "pytest-timeout==2.4.0", "pytest-xdist==3.8.0", "filelock==3.20.0", "psycopg[binary]==3.2.3")
# The tests themselves, and the header that says how long a password may be.
WANTED = r"(test/|include/bouncer\.h$|pyproject\.toml$)"
# What the tests read of a build: whether it has TLS.
BUILD = "tls_support = yes\n"


class Unavailable(Exception):
    """The tests cannot be had here; says why."""


def suite():
    """The folder with the tests, their version, and the folder of the packages. Does nothing when all is there."""
    if not (known := sorted(PLACE.glob("pgbouncer-*/.complete"))):
        if shutil.which("apt-get") is None:
            raise Unavailable("there is no apt-get")
        fetch()
        known = sorted(PLACE.glob("pgbouncer-*/.complete"))
    folder = known[-1].parent
    packages = PLACE / "python-of-pgbouncer-suite"
    if not (packages / ".complete").exists():
        shutil.rmtree(packages, ignore_errors=True)
        run(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", packages, *TOOLS)
        (packages / ".complete").touch()
    return folder, folder.name.removeprefix("pgbouncer-"), packages


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if done.returncode:
        raise Unavailable(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}")
    return done.stdout


def fetch():
    work = PLACE / "pgbouncer-download"
    shutil.rmtree(work, ignore_errors=True)
    options = private_apt(work)
    run("apt-get", *options, "update")
    run("apt-get", *options, "source", "--download-only", "pgbouncer", cwd=work)
    archive, = work.glob("*.orig.tar.gz")
    version = re.search(r"_([\d.]+)\.orig", archive.name)[1]
    folder = PLACE / f"pgbouncer-{version}"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        wanted = [entry for entry in packed if re.match(rf"[^/]+/{WANTED}", entry.name)]
        for entry in wanted:
            entry.name = entry.name.split("/", 1)[1]
        packed.extractall(folder, wanted, filter="data")
    (folder / "config.mak").write_text(BUILD)
    (folder / ".complete").touch()
    shutil.rmtree(work)


def private_apt(work):
    """Options of apt-get under which it knows the sources of this suite only, from the archive that is configured."""
    for part in ("state/lists/partial", "cache/archives/partial", "none"):
        (work / part).mkdir(parents=True)
    (work / "status").touch()
    said = run("apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)|$(SIGNED_BY)", "Created-By: Packages")
    archives = [line.split("|") for line in said.splitlines()]
    archives = [(uri, signed) for origin, label, component, uri, signed in archives if (origin, label, component) == ("Debian", "Debian", "main")]
    if not archives:
        raise Unavailable("apt knows no archive of Debian")
    uri, signed = archives[0]
    keys = f" [signed-by={signed}]" if signed.startswith("/") else ""
    (work / "sources.list").write_text(f"deb-src{keys} {uri} {SUITE} main\n")
    places = {"State": "state", "State::status": "status", "Cache": "cache", "Etc::sourcelist": "sources.list", "Etc::sourceparts": "none",
              "Etc::preferencesparts": "none"}
    options = [f"Dir::{key}={work / name}" for key, name in places.items()]
    return ["-qq", *(part for option in [*options, "APT::Sandbox::User=root"] for part in ("-o", option))]
