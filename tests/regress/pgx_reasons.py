"""Why a test of pgx fails through Poolhouse though it passes directly, in a line each."""

# (pattern of tests, reason)
REASONS = ()


def why(test):
    return next((reason for pattern, reason in REASONS if pattern.fullmatch(test)), None)
