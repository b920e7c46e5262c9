"""The part of docs/mongodb.md that tells how many of pymongo's tests pass through Poolhouse."""

import reasons

from support import generated_docs

INTRODUCTION = """`make mongodb-suite` runs the tests of pymongo {version}, and with them the specifications' files that all of MongoDB's
drivers share: transactions, retryable reads and writes, sessions, load balancers, CRUD, versioned API, monitoring,
discovery. There is no MongoDB in this: a stand-in (`tests/support/mongodb_servers/stand_in`) has mongo-java-server keep the documents,
and adds `failCommand`, sessions, transactions and elections. The table counts the tests that pass in front of the
stand-in directly, and how many of these pass through Poolhouse. What mongo-java-server cannot do is in neither.

| driver and MongoDB | directly | through Poolhouse |
|-|-|-|
"""
NAMES = {
    "replica-set": "an ordinary URI, in front of a replica set",
    "sharded": "an ordinary URI, in front of a mongos",
    "load-balanced": "`loadBalanced=true`, in front of a replica set",
}


def write(version, results):
    text, tests = INTRODUCTION.format(version=version), {}
    for way, files in results.items():
        direct, missing = (sum(count) for count in zip(*((found["direct"], len(found["missing"])) for found in files.values())))
        text += f"| {NAMES[way]} | {direct} | {direct - missing} |\n"
        for file, found in files.items():
            for test in found["missing"]:
                tests.setdefault(reasons.why(way, file, test) or "not known yet", set()).add(f"{file}: {test}")
    text += "\nThese pass directly and fail through Poolhouse (`tests/suites/mongodb_suite/reasons.py` names them):\n\n| because | tests |\n|-|-|\n"
    text += "".join(f"| {reason} | {len(names)} |\n" for reason, names in sorted(tests.items()))
    generated_docs.put("mongodb-suite", text, "mongodb.md")
