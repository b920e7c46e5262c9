#!/usr/bin/env python3
"""Writes the bill of materials of the program as CycloneDX JSON: every crate that is linked into it, with its licence and
the checksum that Cargo.lock has. Taken from `cargo metadata`, and the same for the same Cargo.lock."""

import argparse
import datetime
import json
import pathlib
import subprocess
import tomllib
import uuid

from tree import epoch

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = "poolhouse"


def metadata(target):
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def linked(graph, target):
    """The ids of the crates in the program: id -> ids that it uses. Those of tests and build scripts are not there, nor
    those of features that are off, which only `cargo tree` knows."""
    command = ["cargo", "tree", "--locked", "--package", PROGRAM, "--edges", "normal", "--target", target, "--prefix", "none", "--format", "{p}"]
    lines = subprocess.run(command, cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE).stdout.splitlines()
    there = {tuple(line.split()[:2]) for line in lines if line}
    found = {package["id"] for package in graph["packages"] if (package["name"], f"v{package['version']}") in there}
    uses = lambda node: {dep["pkg"] for dep in node["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])}
    return {node["id"]: sorted(uses(node) & found) for node in graph["resolve"]["nodes"] if node["id"] in found}


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    made = {"type": "application" if package["name"] == PROGRAM else "library", "bom-ref": reference(package), "name": package["name"],
            "version": package["version"], "purl": reference(package), "licenses": [{"expression": (package["license"] or "NOASSERTION").replace("/", " OR ")}]}
    if checksum := checksums.get((package["name"], package["version"])):
        made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return made


def bill(target):
    graph = metadata(target)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    checksums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    packages = {package["id"]: package for package in graph["packages"]}
    uses = linked(graph, target)
    parts = sorted((component(packages[name], checksums) for name in uses), key=lambda part: part["bom-ref"])
    (program,) = [part for part in parts if part["name"] == PROGRAM]
    dependencies = [{"ref": reference(packages[name]), "dependsOn": sorted({reference(packages[used]) for used in used_ones})} for name, used_ones in uses.items()]
    created = datetime.datetime.fromtimestamp(epoch(), datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"timestamp": created, "component": program},
            "components": [part for part in parts if part is not program], "dependencies": sorted(dependencies, key=lambda entry: entry["ref"])}
    made["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))}"
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="x86_64-unknown-linux-gnu")
    parser.add_argument("--to", type=pathlib.Path, required=True, help="the file")
    args = parser.parse_args()
    args.to.parent.mkdir(parents=True, exist_ok=True)
    args.to.write_text(json.dumps(bill(args.target), indent=1, sort_keys=True) + "\n")
    print(args.to)


if __name__ == "__main__":
    main()
