//! What a command is answered with.

use crate::{
    table::{Table, Type, Value},
    wire::code,
};

/// The outcome of a command that succeeded.
#[derive(Debug)]
pub struct Answer {
    pub(crate) notice: Option<Notice>,
    pub(crate) table: Option<Table>,
    /// The command tag.
    pub(crate) tag: String,
}

/// A NOTICE before the answer.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) message: &'static str,
    pub(crate) detail: Option<&'static str>,
}

impl Answer {
    /// An order that was carried out.
    pub fn done(tag: impl Into<String>) -> Self {
        Self { notice: None, table: None, tag: tag.into() }
    }

    /// The answer behind a NOTICE.
    #[must_use]
    pub fn with_notice(self, message: &'static str) -> Self {
        Self { notice: Some(Notice { message, detail: None }), ..self }
    }

    /// The list that a SHOW asked for.
    pub fn table(table: Table) -> Self {
        Self { table: Some(table), ..Self::done("SHOW") }
    }

    /// One parameter's value, as SHOW answers for parameters that drivers ask for.
    pub(crate) fn parameter(name: &'static str, value: &str) -> Self {
        let mut table = Table::new(vec![(name, Type::Text)]);
        table.push([Value::from(value)]);
        Self::table(table)
    }

    pub(crate) fn notice(tag: &str, message: &'static str, detail: Option<&'static str>) -> Self {
        Self { notice: Some(Notice { message, detail }), ..Self::done(tag) }
    }
}

/// Why a command failed. The connection stays open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// A failure with the SQLSTATE of all failures of PgBouncer's console: 08P01.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: code::PROTOCOL_VIOLATION, message: message.into(), hint: None }
    }

    /// What to do about it.
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The configuration cannot be read again.
    pub fn of_configuration(message: impl Into<String>) -> Self {
        Self::with_code(code::CONFIG_FILE_ERROR, message)
    }

    /// The client has cancelled the command.
    pub fn cancelled() -> Self {
        Self { code: code::QUERY_CANCELED, ..Self::new("the client has cancelled the command") }
    }

    pub(crate) fn with_code(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, ..Self::new(message) }
    }
}
