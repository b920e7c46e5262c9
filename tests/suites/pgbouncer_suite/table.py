"""The part of docs/suites.md that tells how many of PgBouncer's own tests pass with Poolhouse in its place."""

import reasons

from support import generated_docs

INTRODUCTION = """`make pgbouncer-suite` runs the tests of PgBouncer {version} with Poolhouse under the name `pgbouncer`, and with PgBouncer
1.26.1. Tests that need `iptables` and root are skipped. Their certificates are made with extensions: Poolhouse refuses
those of X.509 version 1, which the tests would make.

| file | Poolhouse: pass | fail | PgBouncer 1.26.1: pass | fail | skipped |
|-|-|-|-|-|-|
"""


def write(results):
    ours, theirs = (results["variants"].get(name, {}) for name in ("poolhouse", "pgbouncer"))
    text = INTRODUCTION.format(version=results["version"])
    for file in sorted({*ours, *theirs}):
        here, there = ours.get(file), theirs.get(file)
        skipped = (here or there)["skipped"]
        text += f"| `{file}` | {cells(here)} | {cells(there)} | {skipped} |\n"
    because = {}
    for file, counts in ours.items():
        for name in counts["failed"]:
            because.setdefault(reasons.why(f"{file}::{name}") or "not known yet", []).append(f"`{file}::{name}`")
    if because:
        text += "\nThese fail with Poolhouse:\n\n| because | tests |\n|-|-|\n"
    text += "".join(f"| {reason} | {', '.join(sorted(tests))} |\n" for reason, tests in sorted(because.items()))
    generated_docs.put("pgbouncer-suite", text)


def cells(counts):
    return f"{counts['passed']} | {len(counts['failed'])}" if counts else "– | –"
