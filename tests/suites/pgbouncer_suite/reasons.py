"""Why a test of PgBouncer's fails with Poolhouse in its place, in a line each."""

import re

DROPPED = "the test asks for what PgBouncer 1.26 has dropped, too (`-R`, SUSPEND)"

# Tests by their files and names, and the reason.
REASONS = (
    (r"test_operations::(test_online_restart|test_scram_takeover|test_suspend_resume)", DROPPED),
)


def why(test):
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, test)), None)
