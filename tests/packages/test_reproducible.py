"""The same files make the same packages, byte for byte, wherever and whenever they are made."""

import hashlib
import os
import pathlib
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


# A program with what could tell one folder from another: a panic, a crate beside it, C and assembler, debug symbols.
PROGRAM = {
    "src/main.rs": "fn main() {\n    let random = ring::rand::SystemRandom::new();\n    println!(\"{}\", part::first(&random).expect(file!()));\n}\n",
    "part/src/lib.rs": "pub fn first(random: &dyn ring::rand::SecureRandom) -> Option<u8> {\n    let mut bytes = [0];\n"
                       "    random.fill(&mut bytes).unwrap_or_else(|_| panic!(\"none\"));\n    bytes.first().copied()\n}\n",
    "part/Cargo.toml": '[package]\nname = "part"\nversion = "1.0.0"\nedition = "2024"\n[dependencies]\nring = "0.17"\n',
    "Cargo.toml": '[workspace]\nmembers = ["part"]\n[package]\nname = "program"\nversion = "1.0.0"\nedition = "2024"\n'
                  '[dependencies]\nring = "0.17"\npart = { path = "part" }\n',
}


def profiles():
    """Those of releases and of packages."""
    text = (pooler.ROOT / "Cargo.toml").read_text()
    return "\n" + "\n\n".join(block for block in text.split("\n\n") if "[profile.release]" in block or "[profile.dist]" in block)


def build_program(folder):
    """Builds the program in a folder as build.sh builds Poolhouse, and returns the digest of its stripped executable. The
    crates of others are in a folder there, too.
    """
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    if not (home / "registry").exists():
        pytest.skip("no crates on this machine")
    (folder / "home").mkdir()
    (folder / "home/registry").symlink_to(home / "registry")
    for name, text in PROGRAM.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + (profiles() if name == "Cargo.toml" else ""))
    shutil.copy(pooler.ROOT / "Cargo.lock", folder / "Cargo.lock")
    target = subprocess.run(["rustc", "--print", "host-tuple"], text=True, capture_output=True, check=True).stdout.strip()
    script = f". {SCRIPTS}/reproducible.sh && cargo build --offline --profile dist --target {target} && strip --strip-all target/{target}/dist/program"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO_TARGET", "CARGO_INCREMENTAL"))}
    done = subprocess.run(["bash", "-c", script], cwd=folder, text=True, capture_output=True, timeout=300,
                          env={**environment, "CARGO_HOME": str(folder / "home"), "SOURCE_DATE_EPOCH": "1764460800", "POOLHOUSE_COMMIT": "abc"})
    if done.returncode and ("no matching package" in done.stderr or "attempting to make an HTTP request" in done.stderr):
        pytest.skip("its crates are not on this machine")
    assert done.returncode == 0, done.stderr
    executable = (folder / f"target/{target}/dist/program").read_bytes()
    assert str(folder).encode() not in executable
    return hashlib.sha256(executable).hexdigest()


@pytest.mark.at_length
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which("cargo"), reason="no cargo")
def test_a_program_is_the_same_in_whatever_folder_it_is_built(tmp_path):
    folders = [tmp_path / "here", tmp_path / "at/another/place"]
    for folder in folders:
        folder.mkdir(parents=True)
    first, second = map(build_program, folders)
    assert first == second


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
