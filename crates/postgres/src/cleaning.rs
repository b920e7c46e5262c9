//! Making a server as it was when it had just started, whoever used it. It knows no session.
//!
//! All of it is one transaction: see `preface` for what that is good for.

use crate::sql::parameters::Settings;

/// With what the session may have as its defaults the transaction could wait.
pub(crate) const BEGIN: &[u8] = b"BEGIN ISOLATION LEVEL READ COMMITTED, NOT DEFERRABLE";

/// Ends a session's work, and sets back what belongs to it. RESET ALL leaves who acts alone, and who acts rules what may be set back.
pub(crate) const PIECES: [&[u8]; 8] = [
    b"RESET SESSION AUTHORIZATION",
    b"RESET ROLE",
    b"RESET ALL",
    b"CLOSE ALL",
    b"UNLISTEN *",
    b"DISCARD TEMP",
    b"DISCARD SEQUENCES",
    b"SELECT pg_catalog.pg_advisory_unlock_all()",
];

/// Appends the SQL that, within a transaction, cleans a session which began with the settings `own`, and gives it those of `start`. `statements`: prepared
/// statements go, too.
pub(crate) fn write(sql: &mut Vec<u8>, statements: bool, own: &Settings, start: &Settings) {
    for piece in PIECES {
        sql.extend_from_slice(piece);
        sql.push(b';');
    }
    if statements {
        sql.extend_from_slice(b"DEALLOCATE ALL;");
    }
    start.write_beyond(own, sql);
}

/// The same as a transaction of its own.
pub(crate) fn write_whole(sql: &mut Vec<u8>, statements: bool, own: &Settings, start: &Settings) {
    sql.extend_from_slice(BEGIN);
    sql.push(b';');
    write(sql, statements, own, start);
    sql.extend_from_slice(b"COMMIT");
}
