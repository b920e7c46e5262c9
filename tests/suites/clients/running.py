"""Builds and runs the programs of this directory against a pooler, and reads what they say. Knows no pooler's
configuration.
"""

import dataclasses
import os
import re
import shutil
import subprocess
import sys

CONNECTIONS = 8
# The only name in the certificate that is shown.
TLS_HOST = "localhost"
BUILD_SECONDS = 1200
RUN_SECONDS = 240


@dataclasses.dataclass
class Outcome:
    """`failed`: check -> what it said."""

    version: str
    passed: list
    failed: dict
    output: str


class Unavailable(Exception):
    """The program cannot be run here; says why."""


def missing(program):
    return [name for name in program.needs if shutil.which(name) is None]


def build(program):
    if lacking := missing(program):
        raise Unavailable(f"not installed: {', '.join(lacking)}")
    for command in program.build:
        done = subprocess.run(command, cwd=program.directory, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=BUILD_SECONDS)
        if done.returncode:
            raise Unavailable(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}")


def checks_of(program):
    """The names of a program's checks, read from its source: those it prints are found in no other way before it runs.
    """
    source = next(path for path in (program.directory / name for name in ("main.py", "main.mjs", "main.go", "Main.java", "src/main.rs")) if path.exists())
    text = source.read_text()
    pattern = {".mjs": r"^  async (\w+)\(\)", ".go": r'^\t\{"(\w+)", \w+\}', ".java": r'checks\.put\("(\w+)"', ".rs": None, ".py": None}[source.suffix]
    if pattern:
        return re.findall(pattern, text, re.MULTILINE)
    listed = re.search(r"checks!\(((?:\w+,? ?)+)\)", text) if source.suffix == ".rs" else re.search(r"^run\(.*?,\s*\[([\w,\s]+)\]\)", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"\w+", listed[1])


def run(program, target, checks, certificates):
    """Runs these checks. `target`: keywords host, port, user, password, dbname. What listens there shows
    `certificates.by_name_only`, and lets clients in without TLS, too.
    """
    environment = {**os.environ, "PGHOST": target["host"], "PGPORT": str(target["port"]), "PGUSER": target["user"], "PGPASSWORD": target["password"],
                   "PGDATABASE": target["dbname"], "CONNECTIONS": str(CONNECTIONS), "CHECKS": ",".join(checks), "PGCONNECT_TIMEOUT": "20",
                   # Drivers of libpq's kind would use TLS everywhere; the checks that want it say so.
                   "PGSSLMODE": "disable", "TLS_HOST": TLS_HOST, "TLS_CA": str(certificates.authority.certificate),
                   "TLS_OTHER_CA": str(certificates.other_authority.certificate)}
    command = [part.format(python=sys.executable) for part in program.run]
    try:
        done = subprocess.run(command, cwd=program.directory, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=RUN_SECONDS)
        output = done.stdout
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode(errors="replace") + f"\nnot done within {RUN_SECONDS} s"
    version = re.search(r"^version v?(\S+)", output, re.MULTILINE)
    passed = re.findall(r"^ok (\w+)$", output, re.MULTILINE)
    failed = dict(re.findall(r"^failed (\w+): (.*)$", output, re.MULTILINE))
    for check in checks:
        if check not in passed and check not in failed:
            failed[check] = f"it was not heard of: {output[-500:]}"
    return Outcome(version[1] if version else "?", passed, failed, output)
