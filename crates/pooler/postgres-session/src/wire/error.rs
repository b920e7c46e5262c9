//! ErrorResponse: the errors Poolhouse sends, and reading those of a server. It knows no session.

use crate::wire::message::{back, take_text, write, write_text};

/// How bad an error is for the connection that receives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Severity {
    Error,
    /// The connection ends.
    Fatal,
}

pub(crate) mod code {
    pub(crate) const CONFIGURATION_LIMIT_EXCEEDED: &str = "53400";
    pub(crate) const ADMIN_SHUTDOWN: &str = "57P01";
    pub(crate) const CANNOT_CONNECT_NOW: &str = "57P03";
    pub(crate) const CONNECTION_FAILURE: &str = "08006";
    pub(crate) const FEATURE_NOT_SUPPORTED: &str = "0A000";
    pub(crate) const IDLE_SESSION_TIMEOUT: &str = "57P05";
    pub(crate) const IDLE_IN_TRANSACTION_TIMEOUT: &str = "25P03";
    pub(crate) const TRANSACTION_TIMEOUT: &str = "25P04";
    pub(crate) const INVALID_AUTHORIZATION: &str = "28000";
    pub(crate) const INVALID_CATALOG_NAME: &str = "3D000";
    pub(crate) const INVALID_PASSWORD: &str = "28P01";
    pub(crate) const INVALID_PARAMETER_VALUE: &str = "22023";
    pub(crate) const PROGRAM_LIMIT_EXCEEDED: &str = "54000";
    pub(crate) const PROTOCOL_VIOLATION: &str = "08P01";
    pub(crate) const READ_ONLY_SQL_TRANSACTION: &str = "25006";
    pub(crate) const INVALID_SQL_STATEMENT_NAME: &str = "26000";
    pub(crate) const QUERY_CANCELED: &str = "57014";
    pub(crate) const TOO_MANY_CONNECTIONS: &str = "53300";
}

pub(crate) struct Report<'a> {
    pub(crate) severity: Severity,
    pub code: &'a str,
    /// One sentence without a full stop, in PostgreSQL's manner.
    pub message: &'a str,
    /// What to do about it; may be empty.
    pub hint: &'a str,
}

impl Report<'_> {
    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let severity = match self.severity {
            Severity::Error => "ERROR",
            Severity::Fatal => "FATAL",
        };
        write(to, back::ERROR_RESPONSE, |to| {
            for (field, text) in
                [(b'S', severity), (b'V', severity), (b'C', self.code), (b'M', self.message), (b'H', self.hint)]
            {
                if !text.is_empty() {
                    to.push(field);
                    write_text(to, text);
                }
            }
            to.push(0);
        });
    }
}

/// Appends a NoticeResponse.
pub(crate) fn write_notice(to: &mut Vec<u8>, message: &str) {
    write(to, back::NOTICE_RESPONSE, |to| {
        for (field, text) in [(b'S', "NOTICE"), (b'V', "NOTICE"), (b'C', "00000"), (b'M', message)] {
            to.push(field);
            write_text(to, text);
        }
        to.push(0);
    });
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Failure {
    /// FATAL or PANIC: the server closes the connection.
    pub fatal: bool,
    /// The SQLSTATE; empty if the server sent none.
    pub code: String,
    pub message: String,
    pub hint: String,
}

impl Failure {
    /// Reads the body of an ErrorResponse. Missing or malformed fields stay empty.
    pub fn read(mut body: &[u8]) -> Self {
        let mut failure = Self::default();
        let mut severity = String::new();
        while let Some((&field, rest)) = body.split_first() {
            body = rest;
            if field == 0 {
                break;
            }
            let Some(text) = take_text(&mut body) else { break };
            let text = String::from_utf8_lossy(text).into_owned();
            match field {
                // S may be translated; V, where there is one, is not.
                b'S' if severity.is_empty() => severity = text,
                b'V' => severity = text,
                b'C' => failure.code = text,
                b'M' => failure.message = text,
                b'H' => failure.hint = text,
                _ => {}
            }
        }
        failure.fatal = severity == "FATAL" || severity == "PANIC";
        failure
    }

    /// The SQLSTATE, if the server sent one that can be one.
    pub fn sqlstate(&self) -> Option<[u8; 5]> {
        self.code.as_bytes().try_into().ok().filter(|code: &[u8; 5]| code.iter().all(u8::is_ascii_alphanumeric))
    }

    /// Whether an ErrorResponse says that a prepared statement no longer fits its tables. The name of the routine is
    /// not translated, unlike the message.
    pub(crate) fn is_outdated_plan(body: &[u8]) -> bool {
        let routine = b"RRevalidateCachedQuery\0";
        body.windows(routine.len()).any(|part| part == routine)
    }

    /// Whether an ErrorResponse may come from a statement prepared before a change: its plan does not fit, or what it
    /// uses is gone. Codes: appendix "PostgreSQL Error Codes".
    pub(crate) fn may_be_stale(body: &[u8]) -> bool {
        const GONE: [&str; 9] = ["42P01", "42703", "42704", "42883", "42804", "42809", "3F000", "42P13", "22P02"];
        let code = Self::read(body).code;
        // A failed look-up of something in the catalogue is an internal error.
        Self::is_outdated_plan(body) || code == "XX000" || GONE.contains(&code.as_str())
    }

    /// Whether only a change of the database or the configuration can help: wrong credentials, no such database, a
    /// refused start-up parameter.
    pub(crate) fn is_permanent(&self) -> bool {
        ["28", "3D", "22", "42"].iter().any(|class| self.code.starts_with(class))
    }

    /// Whether the server lacks what the request needs, such as a free place for another connection.
    pub(crate) fn is_of_resources(&self) -> bool {
        self.code.starts_with("53")
    }

    /// The error for a client that has to go because of it.
    pub(crate) fn report(&self) -> Report<'_> {
        Report { severity: Severity::Fatal, code: &self.code, message: &self.message, hint: &self.hint }
    }

    /// The text for the log and for waiting clients.
    pub(crate) fn text(&self) -> String {
        match (self.message.as_str(), self.code.as_str()) {
            ("", "") => "the server sent an error without a text".to_owned(),
            (message, "") => message.to_owned(),
            (message, code) => format!("{message} (SQLSTATE {code})"),
        }
    }
}

/// The error for a request that was cancelled before a server received it, in PostgreSQL's words.
pub(crate) const CANCELLED: Report<'static> = Report {
    severity: Severity::Error,
    code: code::QUERY_CANCELED,
    message: "canceling statement due to user request",
    hint: "",
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::message::HEADER;

    #[test]
    fn a_report_can_be_read_back() {
        let mut bytes = Vec::new();
        Report { severity: Severity::Fatal, code: "53300", message: "too many", hint: "wait" }.write(&mut bytes);
        assert_eq!(&bytes[HEADER..], b"SFATAL\0VFATAL\0C53300\0Mtoo many\0Hwait\0\0");
        let failure = Failure::read(&bytes[HEADER..]);
        assert!(failure.fatal && !failure.is_permanent());
        assert_eq!(failure.text(), "too many (SQLSTATE 53300)");
    }

    #[test]
    fn a_zero_byte_in_a_text_does_not_break_the_message() {
        let mut bytes = Vec::new();
        Report { severity: Severity::Error, code: "0A000", message: "a\0b", hint: "" }.write(&mut bytes);
        assert_eq!(Failure::read(&bytes[HEADER..]).message, "ab");
    }

    #[test]
    fn wrong_credentials_are_permanent_and_a_full_server_is_not() {
        let permanent = |code: &str| Failure { code: code.into(), ..Failure::default() }.is_permanent();
        assert!(permanent("28P01") && permanent("28000") && permanent("3D000"));
        assert!(!permanent("53300") && !permanent("57P03") && !permanent(""));
    }

    #[test]
    fn a_malformed_error_is_read_as_far_as_it_goes() {
        assert_eq!(Failure::read(b"SFATAL\0Mno end").message, "");
        assert!(Failure::read(b"SFATAL\0Mno end").fatal);
        assert_eq!(Failure::read(b""), Failure::default());
    }
}
