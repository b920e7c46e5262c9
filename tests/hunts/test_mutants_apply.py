"""Each known defect in `crates/proof/mutants` still applies to the code."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCHES = sorted(ROOT.glob("crates/proof/mutants/*/*.patch"))

pytestmark = pytest.mark.poolhouse_only


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: f"{patch.parent.name}-{patch.stem}")
def test_a_defect_can_be_put_back(patch):
    result = subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
