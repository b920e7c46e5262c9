"""The same files make the same packages, byte for byte, wherever and whenever they are made."""

import hashlib
import os
import shutil
import subprocess
import sys

import pytest

from support import pooler

pytestmark = pytest.mark.poolhouse_only

SCRIPTS = pooler.ROOT / "scripts/packages"


def digests(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def make(tmp_path):
    """Makes packages in a new folder, from copies of the same files with other times, under another umask."""

    def make(name, script, *arguments):
        source, to = tmp_path / f"{name}-source", tmp_path / name
        (source / "manual/man1").mkdir(parents=True)
        (source / "manual/completions").mkdir()
        shutil.copy("/bin/true", source / "poolhouse")
        for file in ("man1/poolhouse.1", "completions/poolhouse.bash", "completions/_poolhouse", "completions/poolhouse.fish"):
            (source / "manual" / file).write_text(f"{file}\n")
        words = [word.format(source=source, to=to) for word in arguments]
        mask = {"first": 0o022, "second": 0o077}[name]
        subprocess.run([sys.executable, str(SCRIPTS / script), *words], check=True, timeout=60, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                       umask=mask, env={**os.environ, "SOURCE_DATE_EPOCH": "1764460800", "TZ": {"first": "UTC", "second": "Asia/Tokyo"}[name]})
        return digests(to)

    return make


@pytest.mark.parametrize("script, arguments", [
    ("debian.py", ["--binary", "{source}/poolhouse", "--symbols", "{source}/poolhouse", "--manual", "{source}/manual", "--version", "1.2.3", "--quick"]),
    ("portable.py", ["--binary", "{source}/poolhouse", "--manual", "{source}/manual", "--name", "poolhouse-1.2.3-x86_64-linux-musl"]),
    ("image.py", ["--binary", "amd64={source}/poolhouse", "--binary", "arm64={source}/poolhouse", "--version", "1.2.3"]),
], ids=["debian", "portable", "image"])
def test_two_builds_of_a_package_are_the_same(make, script, arguments):
    first = make("first", script, *arguments, "--to", "{to}")
    assert first and make("second", script, *arguments, "--to", "{to}") == first


def test_the_bill_of_materials_names_the_crates_in_the_program(tmp_path):
    file = tmp_path / "bill.json"
    command = [sys.executable, str(SCRIPTS / "sbom.py"), "--to", str(file)]
    bills = []
    for _ in range(2):
        done = subprocess.run(command, text=True, timeout=60, capture_output=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1764460800"})
        if done.returncode and "No such file" in done.stderr:
            pytest.skip("no cargo")
        assert done.returncode == 0, done.stderr
        bills.append(file.read_text())
    assert bills[0] == bills[1]
    for present in ('"name": "rustls"', '"name": "clap"'):
        assert present in bills[0]
    # Those of tests are not in it.
    assert '"name": "proptest"' not in bills[0]


def test_a_signature_is_made_by_the_key_that_is_named(tmp_path):
    """As scripts/packages/build.sh signs."""
    text = (SCRIPTS / "build.sh").read_text()
    (command,) = [line.strip() for line in text.splitlines() if line.strip().startswith("gpg ")]
    home = tmp_path / "keys"
    home.mkdir(mode=0o700)
    environment = {**os.environ, "GNUPGHOME": str(home), "SIGNING_KEY": "releases@poolhouse.test", "to": str(tmp_path)}
    (tmp_path / "SHA256SUMS").write_text("…\n")
    run = lambda *words: subprocess.run(words, check=True, env=environment, capture_output=True, timeout=60)
    if not shutil.which("gpg"):
        pytest.skip("no gpg")
    try:
        run("gpg", "--batch", "--passphrase", "", "--quick-generate-key", "releases@poolhouse.test", "ed25519", "sign", "never")
        run("sh", "-c", command)
        run("gpg", "--verify", str(tmp_path / "SHA256SUMS.asc"), str(tmp_path / "SHA256SUMS"))
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], env=environment, check=False)


def test_the_version_of_the_chart_is_that_of_the_program():
    version = subprocess.run([pooler.BINARY, "-V"], text=True, capture_output=True, check=True).stdout.split()[1]
    chart = (pooler.ROOT / "packaging/helm/poolhouse/Chart.yaml").read_text()
    assert f"\nversion: {version}\n" in chart and f'\nappVersion: "{version}"\n' in chart
    assert f"image: poolhouse:{version}\n" in (pooler.ROOT / "packaging/compose/compose.yaml").read_text()
