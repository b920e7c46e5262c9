#!/usr/bin/env python3
"""Makes Debian packages of a binary that is built: `poolhouse`, `poolhouse-pgbouncer`, and with --symbols
`poolhouse-dbgsym`. The texts are in packaging/debian; this file says which file goes where. It compiles nothing, and the
same files and SOURCE_DATE_EPOCH give the same bytes.
"""

import argparse
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile

from tree import Tree, compress, epoch

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ROOT / "packaging/debian"
PAGES = ["guide", "operating", "postgresql", "redis", "mongodb", "rest", "from-pgbouncer", "doctor", "tuning", "plan",
         "how-many-connections", "measuring", "scenarios", "serverless", "questions", "installing"]
SCRIPTS = ["preinst", "postinst", "prerm", "postrm"]
UNITS = "/usr/lib/systemd/system"
COMPLETIONS = {"poolhouse.bash": "/usr/share/bash-completion/completions/poolhouse",
               "_poolhouse": "/usr/share/zsh/vendor-completions/_poolhouse",
               "poolhouse.fish": "/usr/share/fish/vendor_completions.d/poolhouse.fish"}


def libraries(binary):
    """What Debian calls the packages of the libraries that a binary needs."""
    with tempfile.TemporaryDirectory() as folder:
        control = pathlib.Path(folder, "debian/control")
        control.parent.mkdir()
        control.write_text("Source: poolhouse\n\nPackage: poolhouse\nArchitecture: any\n")
        done = subprocess.run(["dpkg-shlibdeps", "-O", str(binary)], cwd=folder, text=True, check=True, stdout=subprocess.PIPE)
    return re.search(r"^shlibs:Depends=(.*)$", done.stdout, re.MULTILINE)[1]


def build_id(binary):
    notes = subprocess.run(["readelf", "--notes", str(binary)], text=True, check=True, stdout=subprocess.PIPE).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes)[1]


def add_documentation(tree, package):
    folder = f"/usr/share/doc/{package}"
    tree.copy(TEXTS / "copyright", f"{folder}/copyright")
    tree.write(f"{folder}/changelog.gz", compress((ROOT / "CHANGELOG.md").read_bytes()))


def poolhouse(tree, args):
    """The program, its service, and what people read."""
    texts = TEXTS / "poolhouse"
    tree.copy(args.binary, "/usr/bin/poolhouse", 0o755)
    tree.copy(texts / "poolhouse.toml", "/etc/poolhouse/poolhouse.toml", 0o640)
    for unit in ("poolhouse.service", "poolhouse.socket", "poolhouse-pgbouncer.service"):
        tree.copy(texts / unit, f"{UNITS}/{unit}")
    # What its service in PgBouncer's place is called as: the package that enables that is configured later.
    tree.link("/usr/lib/poolhouse/pgbouncer", "../../bin/poolhouse")
    for script in ("reload", "stop"):
        tree.copy(texts / script, f"/usr/lib/poolhouse/{script}", 0o755)
    tree.copy(texts / "units", "/usr/lib/poolhouse/units")
    for page in sorted((args.manual / "man1").iterdir()):
        tree.write(f"/usr/share/man/man1/{page.name}.gz", compress(page.read_bytes()))
    for name, path in COMPLETIONS.items():
        tree.copy(args.manual / "completions" / name, path)
    for page in PAGES:
        if (ROOT / f"docs/{page}.md").exists():
            tree.copy(ROOT / f"docs/{page}.md", f"/usr/share/doc/poolhouse/{page}.md")
    for file in sorted((ROOT / "monitoring").iterdir()):
        tree.copy(file, f"/usr/share/doc/poolhouse/examples/{file.name}")
    add_documentation(tree, "poolhouse")


def poolhouse_pgbouncer(tree, _args):
    """Links, because the program knows what it is called as."""
    texts = TEXTS / "poolhouse-pgbouncer"
    tree.link("/usr/sbin/pgbouncer", "../bin/poolhouse")
    tree.link("/usr/share/man/man1/pgbouncer.1.gz", "poolhouse-pgbouncer.1.gz")
    for file in ("pgbouncer.ini", "userlist.txt"):
        tree.copy(texts / file, f"/usr/share/poolhouse-pgbouncer/{file}")
    add_documentation(tree, "poolhouse-pgbouncer")


def dbgsym(tree, args):
    """The debug symbols, where debuggers look for those of a build id."""
    identity = build_id(args.binary)
    tree.copy(args.symbols, f"/usr/lib/debug/.build-id/{identity[:2]}/{identity[2:]}.debug")
    add_documentation(tree, "poolhouse-dbgsym")


def fill(text, values):
    return re.sub(r"@([A-Z]+)@", lambda found: values[found[1]], text)


def add_control(tree, package, values):
    texts = TEXTS / package
    sums = [f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(tree.root)}\n" for file in tree.files()
            if not file.is_symlink() and not file.is_relative_to(tree.root / "etc")]
    control = fill((texts / "control").read_text(), {**values, "SIZE": str(tree.kilobytes())})
    tree.write("/DEBIAN/control", control)
    tree.write("/DEBIAN/md5sums", "".join(sums))
    if (texts / "conffiles").exists():
        tree.copy(texts / "conffiles", "/DEBIAN/conffiles")
    for script in SCRIPTS:
        if (texts / script).exists():
            tree.copy(texts / script, f"/DEBIAN/{script}", 0o755)


def build(package, content, args, values):
    """Makes one package; returns its path."""
    file = args.to / f"{package}_{values['VERSION']}_{values['ARCHITECTURE']}.deb"
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(pathlib.Path(folder, package))
        content(tree, args)
        add_control(tree, package, values)
        tree.seal()
        compression = ["-Zgzip", "-z1"] if args.quick else ["-Zxz", "--threads-max=1"]
        subprocess.run(["dpkg-deb", "--root-owner-group", *compression, "--build", str(tree.root), str(file)], check=True, stdout=subprocess.DEVNULL)
    print(file)
    return file


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=pathlib.Path, required=True, help="the stripped program")
    parser.add_argument("--symbols", type=pathlib.Path, help="its debug symbols")
    parser.add_argument("--manual", type=pathlib.Path, required=True, help="what `poolhouse manual --to` wrote")
    parser.add_argument("--version", required=True)
    parser.add_argument("--architecture", default="amd64")
    parser.add_argument("--to", type=pathlib.Path, required=True, help="the folder of the packages")
    parser.add_argument("--quick", action="store_true", help="compress weakly: for tests")
    args = parser.parse_args()
    values = {"VERSION": args.version, "ARCHITECTURE": args.architecture, "LIBRARIES": libraries(args.binary),
              "MAINTAINER": os.environ.get("MAINTAINER", "The Poolhouse authors <poolhouse@users.noreply.github.com>")}
    args.to.mkdir(parents=True, exist_ok=True)
    assert epoch() > 0
    build("poolhouse", poolhouse, args, values)
    build("poolhouse-pgbouncer", poolhouse_pgbouncer, args, values)
    if args.symbols:
        build("poolhouse-dbgsym", dbgsym, args, values)


if __name__ == "__main__":
    main()
