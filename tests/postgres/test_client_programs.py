"""Those programs of tests/suites/clients that need no download, through a pool of two servers. `make clients` runs all
programs.
"""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "suites/clients"))
import expectations
import running

NAMES = ["psql", "pgbench", "psycopg", "psycopg2", "asyncpg"]


@pytest.mark.poolhouse_only
@pytest.mark.parametrize("name", NAMES)
def test_it_gets_the_right_answers_in_transaction_mode(start, certificates, name):
    program = expectations.by_name(name)
    checks = [check for check in running.checks_of(program) if not expectations.not_yet(program, check)]
    pair = certificates.by_name_only
    pooler = start(max_size=2, max_wait_time="60s", tls_cert=pair.certificate, tls_key=pair.key)
    outcome = running.run(program, pooler.target(), checks, certificates)
    assert not outcome.failed, outcome.output
    assert outcome.passed == checks


@pytest.mark.parametrize("program", expectations.PROGRAMS, ids=lambda program: program.name)
def test_every_program_has_checks_and_each_exception_is_of_one(program):
    checks = running.checks_of(program)
    assert len(checks) >= 5 and len(checks) == len(set(checks))
    assert set(expectations.NOT_YET_OF.get(program.name, {})) <= set(checks)
