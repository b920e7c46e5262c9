#!/usr/bin/env python3
"""Runs the programs of this directory, each in its own language, through a Poolhouse with a pool of two servers, and
writes docs/clients.md from what they said.

    tests/suites/clients/run.py [NAME ...] [--all] [--only CHECK,...] [--direct] [--no-table]

Downloads what the programs are built with. Exit status 1: something that is expected to work does not.
"""

import argparse
import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import expectations
import running
import table

from support import pooler
from support.certificates import Certificates
from support.postgres_cluster import HBA, PASSWORDS, Cluster, SecureCluster

RESULTS = HERE / "results.json"
SERVERS = 2


class BothWays(SecureCluster):
    """PostgreSQL that lets everybody in with TLS and without, as the pooler does."""

    def configure(self):
        super().configure()
        (self.data / "pg_hba.conf").write_text(HBA)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of programs; default: all")
    parser.add_argument("--all", action="store_true", help="in transaction mode also what is not expected to work yet")
    parser.add_argument("--only", metavar="CHECK,...", help="no other checks")
    parser.add_argument("--direct", action="store_true", help="PostgreSQL itself: what fails there is the program's mistake; leaves the table alone")
    parser.add_argument("--no-table", action="store_true", help="leave results.json and docs/clients.md alone")
    chosen = parser.parse_args()
    programs = [expectations.by_name(name) for name in chosen.names] or expectations.PROGRAMS
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poolhouse-clients-"))
    directory.chmod(0o755)
    (directory / "pg").mkdir()
    certificates, failures = Certificates(directory), 0
    cluster = BothWays(directory / "pg", certificates.by_name_only) if chosen.direct else Cluster(directory / "pg")
    try:
        cluster.make()
        for program in programs:
            print(f"== {program.name}", flush=True)
            try:
                running.build(program)
            except running.Unavailable as reason:
                print(f"   not run: {reason}", flush=True)
                results.setdefault(program.name, {"not_run": str(reason).splitlines()[0]})
                continue
            results[program.name] = one(program, cluster, certificates, directory, chosen)
            failures += len(results[program.name]["failed"])
    finally:
        if cluster.running():
            cluster.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)
    if not (chosen.no_table or chosen.direct or chosen.only):
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        table.write(results)
    print(f"{failures} unexpected failures")
    return min(failures, 1)


def one(program, cluster, certificates, directory, chosen):
    """Runs a program in transaction mode with what is expected to work there, and with the rest in session mode."""
    checks = running.checks_of(program)
    if chosen.only:
        checks = [check for check in checks if check in chosen.only.split(",")]
    later = [] if chosen.all or chosen.direct else [check for check in checks if expectations.not_yet(program, check)]
    result = {"version": "?", "transaction": [], "session": [], "failed": {}}
    for mode, wanted in (("transaction", [check for check in checks if check not in later]), ("session", later)):
        if not wanted:
            continue
        if chosen.direct:
            outcome = running.run(program, direct(cluster), wanted, certificates)
        else:
            outcome = through_a_pooler(program, wanted, cluster, certificates, directory, mode)
        result["version"], result[mode] = outcome.version, outcome.passed
        for check, what in outcome.failed.items():
            result["failed"][f"{check} ({mode} mode)"] = what
            print(f"   FAILED {check} in {mode} mode: {what[:1500]}", flush=True)
        print(f"   {mode} mode: {len(outcome.passed)} passed, {len(outcome.failed)} failed: {', '.join(outcome.passed)}", flush=True)
    return result


def direct(cluster):
    return {"host": "127.0.0.1", "port": cluster.port, "user": "app", "password": PASSWORDS["app"], "dbname": "bench"}


def through_a_pooler(program, checks, cluster, certificates, directory, mode):
    place = directory / f"{program.name}-{mode}"
    place.mkdir()
    made = pooler.make(place, cluster)
    # In session mode each connection keeps a server, and a check may want one more.
    pair = certificates.by_name_only
    made.start(tls_cert=pair.certificate, tls_key=pair.key, mode=mode, max_size=SERVERS if mode == "transaction" else 2 * running.CONNECTIONS, max_wait_time="60s", users={"app": PASSWORDS["app"]})
    try:
        return running.run(program, made.target(), checks, certificates)
    finally:
        made.stop()


if __name__ == "__main__":
    sys.exit(main())
