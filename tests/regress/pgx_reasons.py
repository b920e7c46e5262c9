"""Why a test of pgx fails through Poolhouse though it passes directly, in a line each."""

import re

# Tests by what is between package and end of their names, and the reason.
REASONS = (
    (
        r"Test(FatalRxError|FatalTxError|PoolAcquireChecksIdleConns|CheckIdleConn)",
        "the test terminates the backend whose process id it was told at its login: that number is Poolhouse's own",
    ),
    (
        r"TestConnReleaseClosesConnIn(Failed)?Transaction",
        "the test expects that a new connection has another process id than the one before: Poolhouse may give the same again",
    ),
    (
        r"TestConnectProtocolVersion32",
        "the test expects a cancel key as long as that server's: Poolhouse's are its own, of 8 bytes with protocol 3.2",
    ),
    (
        r"TestStmtCacheInvalidationConn(WithBatch)?",
        "after `DROP COLUMN` a statement is parsed anew before a Bind that asks for the columns there were: 08P01 instead of 0A000",
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
