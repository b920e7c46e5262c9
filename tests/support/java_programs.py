"""Builds Java programs for tests: it fetches their jars with Maven, compares them with jars.sha256, and compiles. It
knows no program.
"""

import fcntl
import shutil
import subprocess

import pytest

NEEDS = ("java", "javac", "mvn")


def lacking():
    """The programs that are needed and not installed."""
    return [program for program in NEEDS if shutil.which(program) is None]


def prepare(folder, what):
    """Builds the program in `folder` (Main.java, pom.xml, jars.sha256) if it is not up to date. Skips the test if that
    is impossible; `what` names the program in the message."""
    if missing := lacking():
        pytest.skip(f"not installed: {', '.join(missing)}")
    # Several test processes may build the same program.
    with (folder / "pom.xml").open() as pom:
        fcntl.flock(pom, fcntl.LOCK_EX)
        built = folder / "classes" / "Main.class"
        sources = [folder / name for name in ("Main.java", "pom.xml", "jars.sha256")]
        if built.exists() and built.stat().st_mtime > max(source.stat().st_mtime for source in sources):
            return
        for left in ("lib", "classes"):
            shutil.rmtree(folder / left, ignore_errors=True)
        if subprocess.run(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"], cwd=folder, capture_output=True).returncode:
            pytest.skip(f"{what} cannot be fetched here")
        for step in (["sha256sum", "--check", "--quiet", "jars.sha256"], ["javac", "-cp", "lib/*", "-d", "classes", "Main.java"]):
            subprocess.run(step, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def command(folder, *arguments, options=("-Xmx256m",)):
    """The command that runs the program."""
    return ["java", *options, "-cp", f"{folder}/classes:{folder}/lib/*", "Main", *map(str, arguments)]
