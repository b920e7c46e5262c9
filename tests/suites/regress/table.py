"""Writes the part of docs/suites.md about PostgreSQL's regression suite from the results of a run."""

import reasons

from support import generated_docs

INTRODUCTION = """`make regress` runs PostgreSQL {version}'s own regression suite (`src/test/regress`) as `pg_regress` does, up to {at_once} files at
the same time. A file passes if psql prints exactly what PostgreSQL's authors expect.

| | files that pass |
|-|-|
"""
NAMES = {
    "direct": "directly",
    "transaction": "Poolhouse, transaction mode",
    "transaction-reset-always": "Poolhouse, transaction mode, `reset = \"always\"`",
    "transaction-pool-of-6": "Poolhouse, transaction mode, 6 servers, up to 6 files at the same time",
    "session": "Poolhouse, session mode",
    "pgbouncer-session": "{pgbouncer}, session mode",
    "pgbouncer-transaction": "{pgbouncer}, transaction mode",
}


def write(results, at_once):
    variants = results["variants"]
    text = INTRODUCTION.format(version=results["version"], at_once=at_once)
    for name, outcome in variants.items():
        text += f"| {NAMES[name].format(pgbouncer=results['pgbouncer'])} | {outcome['files'] - len(outcome['failed'])} of {outcome['files']} |\n"
    direct = variants.get("direct", {"failed": []})["failed"]
    through = {name: outcome["failed"] for name, outcome in variants.items() if NAMES[name].startswith("Poolhouse")}
    files = sorted({file for failed in through.values() for file in failed if file not in direct})
    if files:
        text += "\nThese files fail through Poolhouse and pass directly. Some failures depend on what a server was used for before,\nand so differ from run to run:\n\n| file | fails in | because it |\n|-|-|-|\n"
    for file in files:
        where = "; ".join(NAMES[name].removeprefix("Poolhouse, ") for name, failed in through.items() if file in failed)
        text += f"| `{file}.sql` | {where} | {reasons.why(file) or 'not known yet'} |\n"
    if any(name.startswith("pgbouncer") for name in variants):
        text += "\nPgBouncer takes few settings from the `options` with which a client connects, so others that the suite asks for in this\nway are missing. Some of its failures may have no other cause.\n"
    generated_docs.put("regress", text)
