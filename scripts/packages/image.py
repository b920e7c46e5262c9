#!/usr/bin/env python3
"""Makes an OCI image layout of static binaries, without a daemon: one layer with the program, the authorities of
certificates and a user that is not root. With binaries of several architectures the index names an image for each.

    skopeo copy oci:target/packages/image:0.1.0 docker://registry.example/poolhouse:0.1.0
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import shutil
import tempfile

from tree import Tree, compress, epoch

ROOT = pathlib.Path(__file__).resolve().parents[2]
USER = 65532
AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def fill(tree, binary):
    tree.copy(binary, "/usr/bin/poolhouse", 0o755)
    # Operators and scripts that were made for PgBouncer start it at either path.
    tree.link("/usr/bin/pgbouncer", "poolhouse")
    tree.link("/usr/sbin/pgbouncer", "../bin/poolhouse")
    tree.write("/etc/passwd", f"root:x:0:0:root:/root:/sbin/nologin\npoolhouse:x:{USER}:{USER}:Poolhouse:/nonexistent:/sbin/nologin\n")
    tree.write("/etc/group", f"root:x:0:\npoolhouse:x:{USER}:\n")
    tree.write("/etc/nsswitch.conf", "hosts: files dns\n")
    tree.copy(AUTHORITIES, str(AUTHORITIES))
    tree.folder("/etc/poolhouse")
    tree.folder("/etc/pgbouncer")
    tree.folder("/tmp", 0o1777)
    for text in ("LICENSE-MIT", "LICENSE-APACHE"):
        tree.copy(ROOT / text, f"/usr/share/doc/poolhouse/{text}")


class Layout:
    """The folder of the image: contents are named by their digests."""

    def __init__(self, folder):
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "blobs/sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}\n')

    def add(self, kind, content):
        """Stores a content; returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, kind, value):
        return self.add(kind, json.dumps(value, indent=1, sort_keys=True).encode())


def add_image(layout, architecture, binary, labels):
    created = datetime.datetime.fromtimestamp(epoch(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(pathlib.Path(folder, "tree"))
        fill(tree, binary)
        content = tree.tar()
    layer = layout.add("application/vnd.oci.image.layer.v1.tar+gzip", compress(content))
    config = layout.add_json("application/vnd.oci.image.config.v1+json", {
        "created": created, "architecture": architecture, "os": "linux",
        "config": {
            "User": f"{USER}:{USER}", "Entrypoint": ["/usr/bin/poolhouse"], "Cmd": ["serve"], "WorkingDir": "/",
            "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "ExposedPorts": {"6432/tcp": {}, "9930/tcp": {}}, "StopSignal": "SIGTERM", "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        "history": [{"created": created, "created_by": "scripts/packages/image.py"}]})
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": labels}
    return {**layout.add_json(MANIFEST, manifest), "platform": {"architecture": architecture, "os": "linux"}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", action="append", required=True, metavar="ARCHITECTURE=FILE", help="amd64=FILE, arm64=FILE")
    parser.add_argument("--version", required=True)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--to", type=pathlib.Path, required=True, help="the folder of the image")
    args = parser.parse_args()
    labels = {"org.opencontainers.image.title": "poolhouse", "org.opencontainers.image.version": args.version,
              "org.opencontainers.image.revision": args.commit, "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
              "org.opencontainers.image.source": "https://github.com/poolhouse/poolhouse"}
    layout = Layout(args.to)
    images = [add_image(layout, architecture, pathlib.Path(file), labels) for architecture, _, file in (word.partition("=") for word in args.binary)]
    # One reference to all of them, as registries have it.
    all_of_them = layout.add_json(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": images})
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**all_of_them, "annotations": {"org.opencontainers.image.ref.name": args.version}}]}
    (args.to / "index.json").write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")
    print(args.to)


if __name__ == "__main__":
    main()
