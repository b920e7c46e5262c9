#!/usr/bin/env python3
"""Makes a tar file of a static binary, for any Linux: the program, its manual, completions, an example configuration and
the licences. It compiles nothing; the same files and SOURCE_DATE_EPOCH give the same bytes."""

import argparse
import pathlib
import tempfile

from tree import Tree, compress

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-MIT", "LICENSE-APACHE"]


def fill(tree, binary, manual):
    tree.copy(binary, "/bin/poolhouse", 0o755)
    tree.link("/bin/pgbouncer", "poolhouse")
    for text in TEXTS:
        tree.copy(ROOT / text, f"/{text}")
    for page in sorted((ROOT / "docs").iterdir()):
        tree.copy(page, f"/docs/{page.name}")
    for file in sorted(manual.rglob("*")):
        if file.is_file():
            tree.copy(file, f"/share/{'man/' if file.parent.name == 'man1' else ''}{file.relative_to(manual)}")
    tree.copy(ROOT / "packaging/debian/poolhouse/poolhouse.toml", "/share/examples/poolhouse.toml")
    tree.copy(ROOT / "packaging/debian/poolhouse/poolhouse.service", "/share/examples/poolhouse.service")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the stripped static program")
    parser.add_argument("--manual", type=pathlib.Path, required=True, help="what `poolhouse manual --to` wrote")
    parser.add_argument("--name", required=True, help="poolhouse-VERSION-TARGET")
    parser.add_argument("--to", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    file = args.to / f"{args.name}.tar.gz"
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(pathlib.Path(folder, "tree"))
        fill(tree, args.binary, args.manual)
        file.write_bytes(compress(tree.tar(f"{args.name}/")))
    print(file)


if __name__ == "__main__":
    main()
