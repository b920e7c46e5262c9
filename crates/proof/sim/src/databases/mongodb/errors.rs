//! Errors in answers.

use mongodb_session::bson::Writer;

/// Names of error codes.
const NAMES: [(i32, &str); 13] = [
    (9, "FailedToParse"),
    (13, "Unauthorized"),
    (16, "InvalidLength"),
    (20, "IllegalOperation"),
    (43, "CursorNotFound"),
    (59, "CommandNotFound"),
    (112, "WriteConflict"),
    (117, "ConflictingOperationInProgress"),
    (225, "TransactionTooOld"),
    (251, "NoSuchTransaction"),
    (10_107, "NotWritablePrimary"),
    (11_602, "InterruptedDueToReplStateChange"),
    (13_435, "NotPrimaryNoSecondaryOk"),
];

/// Writes an error. Its code must be in [`NAMES`].
pub fn write_error(error: &mut Writer<'_>, text: &str, code: i32) {
    let name = NAMES.iter().find(|(known, _)| *known == code).expect("a code that has a name").1;
    error.double("ok", 0.0).text("errmsg", text).int32("code", code).text("codeName", name);
}

/// Writes an error after which the whole transaction may be repeated.
pub fn write_transient_error(error: &mut Writer<'_>, text: &str, code: i32) {
    write_error(error, text, code);
    error.texts("errorLabels", &["TransientTransactionError"]);
}
