"""Why a test of pgx fails through Poolhouse though it passes directly, in a line each."""

import re

# Tests by what is between package and end of their names, and the reason.
REASONS = (
    (
        r"Test(FatalRxError|FatalTxError|ConnReleaseClosesConnInTransaction|PoolAcquireChecksIdleConns|CheckIdleConn)",
        "the test terminates the backend whose process id it was told at its login: that number is Poolhouse's own",
    ),
    (
        r"TestCompositeCodecTranscodeStructWrapper(ForTable)?|TestEnumCodecValues|TestStmtCacheInvalidation(Tx|TxWithBatch|Exec)|TestConnCopyFromLarge",
        "a statement that a server has from before a type or table was changed, or from another client's temporary table of the same name, answers a client that prepares its text anew",
    ),
    (
        r"TestPrepare(WithDigestedName)?HandlesTimeoutBetweenParseAndDescribe",
        "the test expects `statement_timeout` to run from a Parse on: one of a text that the server knows is not sent",
    ),
    (
        r"TestConnMultiplePrepareAndDeallocate(/\w+)?",
        "the test looks for its statement in `pg_prepared_statements`: a server keeps it for other clients when one gives it up",
    ),
)


def why(test):
    name = test.split(": ")[1]
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, name)), None)
