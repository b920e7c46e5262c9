"""A part of the tests of MongoDB's driver teams (`make mongodb-suite` runs all): what passes directly passes through
Poolhouse.
"""

import re
import subprocess
import sys

import pytest

from support import pooler

RUN = pooler.ROOT / "tests/suites/mongodb_suite" / "run.py"
NOT_RUN_STATUS = 77


@pytest.mark.at_length
@pytest.mark.poolhouse_only
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", ["replica-set", "load-balanced"])
def test_what_drivers_expect_of_labels(way):
    command = [sys.executable, RUN, way, "--no-table", "--files", "transactions_unified", "--only", "ErrorLabels"]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if run.returncode == NOT_RUN_STATUS:
        pytest.skip(run.stdout.strip())
    through, direct = map(int, re.search(r"transactions_unified: (\d+) of (\d+)", run.stdout).groups())
    assert run.returncode == 0 and direct > 10, run.stdout
