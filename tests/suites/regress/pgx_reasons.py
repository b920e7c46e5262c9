"""Why a test of pgx fails through Poolhouse though it passes directly, in a line each."""

import re

# Tests by what is between package and end of their names, and the reason.
REASONS = (
    (
        r"Test(FatalRxError|FatalTxError|PoolAcquireChecksIdleConns|CheckIdleConn)",
        "the test terminates the backend with the process id of its BackendKeyData: Poolhouse sends a number of its own there",
    ),
    (
        r"TestConnReleaseClosesConnIn(Failed)?Transaction",
        "the test expects that a new connection has another process id than the one before: Poolhouse may send the same number again",
    ),
    (
        r"TestConnectProtocolVersion32",
        "the test expects a cancel key as long as that server's: Poolhouse sends a key of its own, of 8 bytes with protocol 3.2",
    ),
    (
        r"TestStmtCacheInvalidationConn(WithBatch)?",
        "after `DROP COLUMN` Poolhouse parses a statement anew before a Bind that asks for the earlier columns: 08P01 instead of 0A000",
    ),
    (
        r"TestPrepare(WithDigestedName)?HandlesTimeoutBetweenParseAndDescribe",
        "the test expects `statement_timeout` to run from a Parse on: Poolhouse does not send a Parse of a text that the server knows",
    ),
    (
        r"TestConnMultiplePrepareAndDeallocate(/\w+)?",
        "the test looks for its statement in `pg_prepared_statements`: a server keeps a statement for other clients when one client closes it",
    ),
)


def why(test):
    name = test.split(": ")[1]
    return next((reason for pattern, reason in REASONS if re.fullmatch(pattern, name)), None)
