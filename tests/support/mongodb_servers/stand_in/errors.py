"""Errors as MongoDB's servers answer them, with the labels that tell drivers what to do."""

NAMES = {
    6: "HostUnreachable", 7: "HostNotFound", 11: "UserNotFound", 13: "Unauthorized", 20: "IllegalOperation", 26: "NamespaceNotFound", 43: "CursorNotFound",
    50: "MaxTimeMSExpired", 59: "CommandNotFound", 64: "WriteConcernFailed", 72: "InvalidOptions", 79: "UnknownReplWriteConcern", 89: "NetworkTimeout",
    91: "ShutdownInProgress", 100: "UnsatisfiableWriteConcern", 112: "WriteConflict", 117: "ConflictingOperationInProgress",
    134: "ReadConcernMajorityNotAvailableYet", 189: "PrimarySteppedDown", 225: "TransactionTooOld", 246: "SnapshotUnavailable", 251: "NoSuchTransaction",
    256: "TransactionCommitted", 262: "ExceededTimeLimit", 263: "OperationNotSupportedInTransaction", 322: "APIVersionError", 323: "APIStrictError",
    9001: "SocketException", 10107: "NotWritablePrimary", 11600: "InterruptedAtShutdown", 11601: "Interrupted",
    11602: "InterruptedDueToReplStateChange", 13388: "StaleConfig", 13435: "NotPrimaryNoSecondaryOk", 13436: "NotPrimaryOrSecondary",
}
# A write or a read may be repeated after these: see the drivers' specification "Retryable Writes".
RETRYABLE = {6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436}
# A transaction may be repeated after these, even if a commit fails with them.
TRANSIENT = {24, 112, 246, 251, 267}
# A change stream resumes after these.
RESUMABLE = RETRYABLE | {43, 63, 133, 150, 234, 13388}


def error(code, text, labels=None):
    told = {"ok": 0.0, "errmsg": text, "code": code, "codeName": NAMES.get(code, f"Location{code}")}
    return told | ({"errorLabels": list(labels)} if labels else {})


def labels_of(code, command, concern):
    """The labels that a server of version 4.4 or later adds to an error with this code, or to a `writeConcernError`
    with it."""
    name, in_transaction = next(iter(command)), command.get("autocommit") is False
    ends = name in ("commitTransaction", "abortTransaction")
    if in_transaction and code in TRANSIENT and not concern:
        return ["TransientTransactionError"]
    if in_transaction and not ends:
        return ["TransientTransactionError"] if code in RETRYABLE and not concern else []
    if "txnNumber" in command:
        return ["RetryableWriteError"] if code in RETRYABLE else []
    follows = name == "getMore" or any("$changeStream" in stage for stage in command.get("pipeline", []))
    return ["ResumableChangeStreamError"] if follows and code in RESUMABLE else []


def labelled(answer, command):
    """An answer with the labels that its code requires, unless it has some."""
    concern = bool(answer.get("ok"))
    code = dict(answer.get("writeConcernError") or {}).get("code") if concern else answer.get("code")
    if code is None or "errorLabels" in answer:
        return answer
    labels = labels_of(code, command, concern)
    return answer | ({"errorLabels": labels} if labels else {})
