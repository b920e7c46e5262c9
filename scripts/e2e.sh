#!/usr/bin/env bash
# Runs the end-to-end tests in parallel, with pytest's arguments: scripts/e2e.sh -n 4 tests. The few tests that fail there
# run a second time, one after the other: a test that fails beside others and passes alone is reported, and fails nothing.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# More failures than these are no matter of a busy machine.
MAX_TESTS_TO_REPEAT=12
PYTHON=.venv/bin/python

FAILED_TESTS_FILE=$(mktemp)
trap 'rm -f "$FAILED_TESTS_FILE"' EXIT
export FAILED_TESTS_FILE

"$PYTHON" -m pytest "$@"
status=$?
# The names are relative to the folder of pytest.ini.
mapfile -t failed < <(sed 's:^:tests/:' "$FAILED_TESTS_FILE")
# 1 is pytest's status for tests that failed; any other tells of a run that did not take place.
if [ $status -ne 1 ] || [ ${#failed[@]} -eq 0 ] || [ ${#failed[@]} -gt $MAX_TESTS_TO_REPEAT ]; then exit $status; fi

echo "Repeated alone: ${#failed[@]} tests that failed beside others."
"$PYTHON" -m pytest -n 0 "${failed[@]}" || exit $?
printf 'passed alone, failed beside others: %s\n' "${failed[@]}"
