"""Writes docs/clients.md from the results of a run. What is not in the results is not in the table."""

import pathlib
import textwrap

import expectations

PATH = pathlib.Path(__file__).resolve().parents[3] / "docs" / "clients.md"

INTRODUCTION = """# Clients others wrote

`make clients` writes this page; do not edit it. A small program in `tests/suites/clients/` uses each client below, in the
client's own language, with {connections} connections at once through a pool of {servers} servers, with SCRAM. Every query contains a random
value that its answer must return.

- *TLS verified*: with `verify-full`, or what the driver calls that, the driver accepts the right certificate, and
  refuses one of another authority or for another name.
- *Channel binding*: the login is by SCRAM-SHA-256-PLUS.

{count} clients were run. In **session mode** a connection keeps a server, and everything works as without a pooler.

| client | version | language | works in transaction mode | run in session mode |
|-|-|-|-|-|
"""

DIFFERENT = """
## What behaves differently behind Poolhouse

"""


def words(checks):
    return ", ".join(check.replace("_", " ") for check in checks) or "–"


def item(text):
    """A line of a list, wrapped."""
    return textwrap.fill(text, 120, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) + "\n"


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
        text += item(f"Not supported in transaction mode yet: {reason}. Found with {', '.join(where)}.")
    text += "".join(item(f"{program.name}: {program.notes}.") for program in expectations.PROGRAMS if program.notes and program.name in run)
    for name, result in sorted(run.items()):
        for check, what in sorted(result["failed"].items()):
            text += f"- {name}, {check}: failed with `{what[:150]}`.\n"
    missing = [f"{name} ({result['not_run']})" for name, result in sorted(results.items()) if "not_run" in result]
    text += f"\n## Not run\n\n{''.join(f'- {one}' + chr(10) for one in missing)}- Npgsql: .NET was not available.\n"
    PATH.write_text(text)
