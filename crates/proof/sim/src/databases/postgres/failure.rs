//! Errors and warnings in the words of PostgreSQL: an ErrorResponse or a NoticeResponse.

use super::wire::message;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Severity {
    Warning,
    Error,
    Fatal,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) severity: Severity,
    pub(super) code: String,
    pub(super) message: String,
    /// In characters of the text, counted from 1.
    position: Option<usize>,
}

impl Failure {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { severity: Severity::Error, code, message, position: None }
    }

    pub(super) fn warning(code: &str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(code, message) }
    }

    pub(super) fn fatal(self) -> Self {
        Self { severity: Severity::Fatal, ..self }
    }

    /// `at`: a byte offset in the text.
    pub(super) fn at(mut self, text: &str, at: usize) -> Self {
        self.position = Some(text.char_indices().take_while(|(place, _)| *place < at).count() + 1);
        self
    }

    pub(super) fn write(&self, to: &mut Vec<u8>) {
        let (kind, severity) = match self.severity {
            Severity::Warning => (b'N', "WARNING"),
            Severity::Error => (b'E', "ERROR"),
            Severity::Fatal => (b'E', "FATAL"),
        };
        let position = self.position.map(|position| position.to_string());
        let fields = [
            (b'S', Some(severity)),
            (b'V', Some(severity)),
            (b'C', Some(&*self.code)),
            (b'M', Some(&*self.message)),
            (b'P', position.as_deref()),
        ];
        message(to, kind, |to| {
            for (letter, text) in fields {
                let Some(text) = text else { continue };
                to.push(letter);
                to.extend(text.as_bytes());
                to.push(0);
            }
            to.push(0);
        });
    }
}

pub(super) fn unknown_syntax(text: &str) -> Failure {
    Failure::new("42601", format!("syntax error: the model does not know: {text}"))
}

pub(super) fn protocol_violation(message: impl Into<String>) -> Failure {
    Failure::new("08P01", message)
}

pub(super) fn in_failed_transaction() -> Failure {
    Failure::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

pub(super) fn no_relation(name: &str) -> Failure {
    Failure::new("42P01", format!("relation \"{name}\" does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_in_characters() {
        let mut bytes = Vec::new();
        no_relation("t").at("ä t", 3).write(&mut bytes);
        let expected = b"SERROR\0VERROR\0C42P01\0Mrelation \"t\" does not exist\0P3\0\0";
        assert_eq!(&bytes[5..], expected);
    }
}
