"""Fetches pymongo's own tests, which come with its source package, into /regress, and makes them an environment of
their own.
"""

import hashlib
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

from support import pooler

PLACE = pooler.ROOT / "regress"
# The version that our own tests use.
VERSION = re.search(r"^pymongo==(\S+)", (pooler.ROOT / "tests" / "requirements.txt").read_text(), re.MULTILINE)[1]
CHECKSUMS = {"4.15.5": "3a8d6bf2610abe0c97c567cf98bf5bba3e90ccc93cc03c9dde75fa11e4267b42"}
# What the tests themselves are run with.
TOOLS = ("pytest==8.4.1", "pytest-asyncio==1.1.0", "pytest-timeout==2.4.0")


def suite():
    """The folder with the tests, and the Python to run them with. Does nothing when all is there."""
    folder, environment = PLACE / f"pymongo-{VERSION}", PLACE / f"pymongo-{VERSION}-venv"
    python = environment / "bin" / "python"
    if not (folder / ".complete").exists():
        fetch(folder)
    if not (environment / ".complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", environment], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"pymongo=={VERSION}", *TOOLS]
        subprocess.run(install, check=True)
        (environment / ".complete").touch()
    return folder, python


def is_there():
    """Whether `suite` has nothing to fetch."""
    return all((PLACE / name / ".complete").exists() for name in (f"pymongo-{VERSION}", f"pymongo-{VERSION}-venv"))


def fetch(folder):
    PLACE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-binary", "pymongo",
                   "--dest", downloads, f"pymongo=={VERSION}"]
        subprocess.run(command, check=True)
        archive, = pathlib.Path(downloads).glob("*.tar.gz")
        found = hashlib.sha256(archive.read_bytes()).hexdigest()
        if found != CHECKSUMS[VERSION]:
            raise SystemExit(f"{archive.name} is not what it was: {found}")
        with tarfile.open(archive) as packed:
            # The driver itself is installed: with what is here its tests would run without its compiled part.
            wanted = [entry for entry in packed if re.match(r"[^/]+/(test/|tools/|pyproject\.toml$)", entry.name)]
            for entry in wanted:
                entry.name = entry.name.split("/", 1)[1]
            packed.extractall(folder, wanted, filter="data")
    (folder / ".complete").touch()
