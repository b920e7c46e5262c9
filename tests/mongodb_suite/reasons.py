"""Why a test of pymongo fails through Poolhouse though it passes directly, in a line each."""

import re

# Tests by their names, and the reason.
REASONS = ()


def why(way, file, test):
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, f"{file}: {test}")), None)
