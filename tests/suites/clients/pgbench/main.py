"""pgbench by each of its protocols, with scripts that check their own answers: a wrong one makes the script fail."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from checks import CONNECTIONS, TLS_CA, TLS_HOST, TLS_OTHER_CA, run

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent.parent.parent))
from support.postgres_cluster import program

TRANSACTIONS = 100

# 1/0 where the answer is not what was asked for.
ECHO = r"""
\set nonce random(1, 1000000000)
SELECT :nonce AS got \gset
\set checked 1 / (case when :got = :nonce then 1 else 0 end)
BEGIN;
SELECT :nonce + 1 AS next \gset
\set checked 1 / (case when :next = :nonce + 1 then 1 else 0 end)
END;
"""

PIPELINE = r"""
\set nonce random(1, 1000000000)
\startpipeline
BEGIN;
SELECT :nonce AS got;
SELECT 2;
END;
\endpipeline
"""


def bench(*arguments, script=None, status=0, **environment):
    # A thread for each client: pgbench prepares without returning to the others of its thread, which would then never
    # give their servers back.
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        if script:
            file.write(script)
            file.flush()
            arguments = (*arguments, "-n", "-f", file.name)
        done = subprocess.run([program("pgbench"), "-c", str(CONNECTIONS), "-j", str(CONNECTIONS), "-t", str(TRANSACTIONS), *arguments],
                              env={**os.environ, **environment}, text=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, done.stdout
    if status:
        return
    assert f"actually processed: {CONNECTIONS * TRANSACTIONS}/{CONNECTIONS * TRANSACTIONS}" in done.stdout, done.stdout
    failed = re.search(r"number of failed transactions: (\d+)", done.stdout)
    assert not failed or failed[1] == "0", done.stdout


def initialise():
    done = subprocess.run([program("pgbench"), "-i", "-q"], env=os.environ, text=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


def simple():
    initialise()
    bench("-M", "simple", script=ECHO)
    bench("-M", "simple")


def extended():
    initialise()
    bench("-M", "extended", script=ECHO)
    bench("-M", "extended")


def prepared():
    initialise()
    bench("-M", "prepared", script=ECHO)
    bench("-M", "prepared")


def pipelines():
    bench("-M", "extended", script=PIPELINE)


def prepared_pipelines():
    bench("-M", "prepared", script=PIPELINE)


def a_connection_for_each():
    bench("-C", "-S", "-n", "-M", "extended")


def tls_verified():
    for protocol in ("simple", "prepared"):
        bench("-M", protocol, script=ECHO, PGHOST=TLS_HOST, PGSSLMODE="verify-full", PGSSLROOTCERT=TLS_CA)
    for refused in ({"PGHOST": TLS_HOST, "PGSSLROOTCERT": TLS_OTHER_CA}, {"PGSSLROOTCERT": TLS_CA}):
        bench(script=ECHO, status=1, PGSSLMODE="verify-full", **refused)


def channel_binding():
    bench("-M", "extended", script=ECHO, PGSSLMODE="require", PGCHANNELBINDING="require")
    bench(script=ECHO, status=1, PGCHANNELBINDING="require")


run(subprocess.run([program("pgbench"), "--version"], text=True, stdout=subprocess.PIPE).stdout.split()[2],
    [simple, extended, prepared, pipelines, prepared_pipelines, a_connection_for_each, tls_verified, channel_binding])
