"""Writes docs/clients.md from the results of a run. What is not in the results is not in the table."""

import pathlib

import expectations

PATH = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "clients.md"

INTRODUCTION = """# Clients others wrote

Written by `make clients`; do not edit. Each client below is used by a small program of its own language in `tests/clients/`, on {connections} connections
at once through a pool of {servers} servers, with SCRAM; every query holds a random value that its answer must echo. *TLS verified*: with `verify-full`, or what the driver
calls that, the right certificate is accepted, and one of another authority or for another name is refused. *Channel binding*: the login is by SCRAM-SHA-256-PLUS.

{count} clients were run. In **session mode** a connection keeps a server, and everything works as without a pooler.

| client | version | language | works in transaction mode | run in session mode |
|-|-|-|-|-|
"""

DIFFERENT = """
## What behaves differently behind Poolhouse

"""


def words(checks):
    return ", ".join(check.replace("_", " ") for check in checks) or "–"


def write(results):
    run = {name: result for name, result in results.items() if "version" in result}
    text = INTRODUCTION.format(connections=8, servers=2, count=len(run))
    for program in expectations.PROGRAMS:
        if result := run.get(program.name):
            text += f"| {program.name} | {result['version']} | {program.language} | {words(result['transaction'])} | {words(result['session'])} |\n"
    reasons = {}
    for program in expectations.PROGRAMS:
        for check in run.get(program.name, {}).get("session", []):
            reasons.setdefault(expectations.not_yet(program, check), []).append(f"{program.name} ({check.replace('_', ' ')})")
    text += DIFFERENT
    for reason, where in sorted((reason, where) for reason, where in reasons.items() if reason):
        text += f"- In transaction mode not yet: {reason}. Met by {', '.join(where)}.\n"
    text += "".join(f"- {program.name}: {program.notes}.\n" for program in expectations.PROGRAMS if program.notes and program.name in run)
    for name, result in sorted(run.items()):
        for check, what in sorted(result["failed"].items()):
            text += f"- {name}, {check}: failed with `{what[:150]}`.\n"
    missing = [f"{name} ({result['not_run']})" for name, result in sorted(results.items()) if "not_run" in result]
    text += f"\n## Not run\n\n{''.join(f'- {one}' + chr(10) for one in missing)}- Npgsql: no .NET was at hand.\n"
    PATH.write_text(text)
