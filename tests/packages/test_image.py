"""The image: its layout is what registries take, and it serves from an unpacked root that cannot be written to."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile

import pytest

from support import pooler

pytestmark = pytest.mark.poolhouse_only

USER = 65532


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    folder = tmp_path_factory.mktemp("image")
    stripped = folder / "poolhouse"
    subprocess.run(["strip", "-o", str(stripped), pooler.BINARY], check=True)
    script = pooler.ROOT / "scripts/packages/image.py"
    subprocess.run([sys.executable, str(script), "--binary", f"amd64={stripped}", "--version", "1.2.3", "--commit", "abc", "--to", str(folder / "layout")],
                   check=True, timeout=60, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": "1764460800"})
    return folder / "layout"


def content(layout, descriptor):
    """The content that a descriptor names."""
    found = (layout / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes()
    assert len(found) == descriptor["size"] and hashlib.sha256(found).hexdigest() == descriptor["digest"].partition(":")[2]
    return found


def image(layout):
    """The configuration of the image, and the tar file of its only layer."""
    (reference,) = json.loads((layout / "index.json").read_text())["manifests"]
    assert reference["annotations"]["org.opencontainers.image.ref.name"] == "1.2.3"
    (descriptor,) = json.loads(content(layout, reference))["manifests"]
    manifest = json.loads(content(layout, descriptor))
    config = json.loads(content(layout, manifest["config"]))
    (layer,) = manifest["layers"]
    unpacked = gzip.decompress(content(layout, layer))
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]
    return config, unpacked


def test_the_layout_has_one_image_that_is_not_roots(layout):
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    config, unpacked = image(layout)
    assert (config["os"], config["architecture"], config["config"]["User"]) == ("linux", "amd64", f"{USER}:{USER}")
    entries = {entry.name: entry for entry in tarfile.open(fileobj=io.BytesIO(unpacked))}
    assert all((entry.uid, entry.gid) == (0, 0) for entry in entries.values())
    assert not [name for name, entry in entries.items() if entry.isreg() and entry.mode & 0o022]
    assert entries["usr/bin/pgbouncer"].linkname == "poolhouse" and entries["tmp"].mode == 0o1777
    # Nothing to start but the program.
    assert [name for name, entry in entries.items() if entry.isreg() and entry.mode & 0o111] == ["usr/bin/poolhouse"]


def unpack(unpacked, root):
    tarfile.open(fileobj=io.BytesIO(unpacked)).extractall(root, filter="fully_trusted")
    # A static program has these in itself, that of the tests is linked as it was built.
    linked = subprocess.run(["ldd", str(root / "usr/bin/poolhouse")], text=True, capture_output=True).stdout
    for library in re.findall(r"(/\S+) \(0x", linked):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)


# As a container's runtime starts it: its user, no privileges, a root that cannot be written to.
RUN = """
set -e
mount --make-rprivate /
mount --bind "$1" "$1"
mkdir -p "$1/proc"
mount -t proc proc "$1/proc"
mount -o remount,bind,ro "$1"
root=$1 user=$2
shift 2
exec setpriv --clear-groups --no-new-privs unshare --root="$root" --wd=/ --setgid="$user" --setuid="$user" "$@"
"""


@pytest.fixture
def container(layout, tmp_path, start):
    """Starts the image with these arguments and variables, in the network of the test."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("needs root and unshare")
    config, unpacked = image(layout)
    root = tmp_path / "root"
    root.mkdir(mode=0o755)
    unpack(unpacked, root)
    made = start.unstarted()

    def run(*arguments, **variables):
        words = [*config["config"]["Entrypoint"], *(arguments or config["config"]["Cmd"])]
        environment = [*config["config"]["Env"], *(f"{name}={value}" for name, value in variables.items())]
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child=TERM", "bash", "-c", RUN, "run", str(root), str(USER)]
        return [*command, *words], dict(word.split("=", 1) for word in environment)

    def launch(*arguments, **variables):
        command, environment = run(*arguments, **variables)
        made.launch(command, environment=environment)
        return made

    launch.pooler = made
    launch.root = root
    return launch


def test_the_image_serves_what_its_environment_says(container, cluster):
    served = container.pooler
    container(DATABASE_URL=cluster.url(), POOLHOUSE_LISTEN=f"127.0.0.1:{served.port}", POOLHOUSE_ADMIN=f"127.0.0.1:{served.admin_port}")
    served.settle()
    with served.connect() as connection:
        assert connection.execute("SELECT 'served'").fetchone() == ("served",)
    children = pathlib.Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    status = pathlib.Path(f"/proc/{children[0]}/status").read_text()
    assert re.search(rf"^Uid:\t{USER}\t{USER}\t{USER}\t{USER}$", status, re.MULTILINE)
    assert re.search(r"^CapEff:\t0+$", status, re.MULTILINE)
    assert os.readlink(f"/proc/{children[0]}/root") == str(container.root)
    os.kill(int(children[0]), signal.SIGTERM)
    assert served.wait(20) == 0


def test_the_image_serves_a_file_that_is_mounted(container, cluster):
    served = container.pooler
    served.rewrite()
    shutil.copy(served.config_path, container.root / "etc/poolhouse/poolhouse.toml")
    os.chown(container.root / "etc/poolhouse/poolhouse.toml", USER, USER)
    container("serve", "--config", "/etc/poolhouse/poolhouse.toml")
    with served.connect() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    (child,) = pathlib.Path(f"/proc/{served.process.pid}/task/{served.process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    assert served.wait(20) == 0
