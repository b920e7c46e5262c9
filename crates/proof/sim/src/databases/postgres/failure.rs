//! What goes wrong, as PostgreSQL words it: an ErrorResponse, or a NoticeResponse where it is only told. It knows no
//! session.

use super::wire::message;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Severity {
    Warning,
    Error,
    /// The session ends with it.
    Fatal,
}

/// An error, or a warning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Failure {
    pub(super) severity: Severity,
    pub(super) code: String,
    pub(super) message: String,
    more: Box<More>,
}

/// What else is told of it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct More {
    detail: Option<String>,
    hint: Option<String>,
    /// In characters of the text, counted from 1.
    position: Option<usize>,
    context: Option<String>,
}

impl Failure {
    pub(super) fn new(code: &str, message: impl Into<String>) -> Self {
        let (code, message) = (code.to_owned(), message.into());
        Self { severity: Severity::Error, code, message, more: Box::default() }
    }

    pub(super) fn warning(code: &str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::new(code, message) }
    }

    /// The same as the end of the session.
    pub(super) fn fatal(self) -> Self {
        Self { severity: Severity::Fatal, ..self }
    }

    pub(super) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.more.detail = Some(detail.into());
        self
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.more.hint = Some(hint.into());
        self
    }

    /// `at`: a place in bytes of the text.
    pub(super) fn at(mut self, text: &str, at: usize) -> Self {
        self.more.position = Some(text.char_indices().take_while(|(place, _)| *place < at).count() + 1);
        self
    }

    pub(super) fn context(mut self, context: impl Into<String>) -> Self {
        self.more.context = Some(context.into());
        self
    }

    /// Appends the message.
    pub(super) fn write(&self, to: &mut Vec<u8>, encode: impl Fn(&str) -> Vec<u8>) {
        let (kind, severity) = match self.severity {
            Severity::Warning => (b'N', "WARNING"),
            Severity::Error => (b'E', "ERROR"),
            Severity::Fatal => (b'E', "FATAL"),
        };
        let position = self.more.position.map(|position| position.to_string());
        let fields = [
            (b'S', Some(severity)),
            (b'V', Some(severity)),
            (b'C', Some(&*self.code)),
            (b'M', Some(&*self.message)),
            (b'D', self.more.detail.as_deref()),
            (b'H', self.more.hint.as_deref()),
            (b'P', position.as_deref()),
            (b'W', self.more.context.as_deref()),
        ];
        message(to, kind, |to| {
            for (letter, text) in fields {
                let Some(text) = text else { continue };
                to.push(letter);
                to.extend(encode(text));
                to.push(0);
            }
            to.push(0);
        });
    }
}

/// The text is none that the model knows.
pub(super) fn unknown_syntax(text: &str) -> Failure {
    Failure::new("42601", format!("syntax error: the model does not know: {text}"))
}

/// The peer does not keep to the protocol.
pub(super) fn protocol_violation(message: impl Into<String>) -> Failure {
    Failure::new("08P01", message)
}

/// Nothing is done in a transaction that has failed.
pub(super) fn in_failed_transaction() -> Failure {
    Failure::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

/// There is no table of this name.
pub(super) fn no_relation(name: &str) -> Failure {
    Failure::new("42P01", format!("relation \"{name}\" does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_in_characters() {
        let mut bytes = Vec::new();
        no_relation("t").at("ä t", 3).write(&mut bytes, |text| text.as_bytes().to_vec());
        let expected = b"SERROR\0VERROR\0C42P01\0Mrelation \"t\" does not exist\0P3\0\0";
        assert_eq!(&bytes[5..], expected);
    }
}
