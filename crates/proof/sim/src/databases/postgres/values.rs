//! Values, their types, and how both are written in messages, always in text format.

use super::{
    failure::Failure,
    wire::{message, text},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    Bool,
    Int8,
    Int4,
    Text,
    Float8,
    Void,
}

impl Type {
    const ALL: [(Self, u32, i16, &str); 6] = [
        (Self::Bool, 16, 1, "boolean"),
        (Self::Int8, 20, 8, "bigint"),
        (Self::Int4, 23, 4, "integer"),
        (Self::Text, 25, -1, "text"),
        (Self::Float8, 701, 8, "double precision"),
        (Self::Void, 2278, 4, "void"),
    ];

    fn row(self) -> (Self, u32, i16, &'static str) {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).expect("all types are listed")
    }

    pub(super) fn oid(self) -> u32 {
        self.row().1
    }

    pub(super) fn of_oid(oid: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, other, ..)| *other == oid).map(|(kind, ..)| kind)
    }

    /// Its name in error messages.
    pub(super) fn name(self) -> &'static str {
        self.row().3
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Void,
}

impl Value {
    /// As a text; `None` is NULL.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            Self::Int(number) => Some(number.to_string()),
            Self::Float(number) => Some(number.to_string()),
            Self::Bool(truth) => Some(if *truth { "t" } else { "f" }.to_owned()),
            Self::Void => Some(String::new()),
        }
    }

    /// Reads a text as a value of this type.
    pub(super) fn read(text: &str, kind: Type) -> Result<Self, Failure> {
        let value = match kind {
            Type::Int8 => text.trim().parse().ok().map(Self::Int),
            Type::Int4 => text.trim().parse::<i32>().ok().map(|number| Self::Int(number.into())),
            Type::Float8 => text.trim().parse().ok().map(Self::Float),
            Type::Bool => text.parse().ok().map(Self::Bool),
            Type::Text | Type::Void => Some(Self::Text(text.to_owned())),
        };
        let name = kind.name();
        value.ok_or_else(|| Failure::new("22P02", format!("invalid input syntax for type {name}: \"{text}\"")))
    }

    /// The same value as another type.
    pub(super) fn cast(self, to: Type) -> Result<Self, Failure> {
        match (&self, to) {
            (Self::Null, _) | (Self::Int(_), Type::Int8 | Type::Int4) | (Self::Bool(_), Type::Bool) => Ok(self),
            _ => Self::read(&self.text().unwrap_or_default(), to),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// OID of the table and number of the column; zeros for an expression.
    pub(super) source: (u32, u16),
    pub(super) kind: Type,
}

impl Column {
    pub(super) fn new(name: impl Into<String>, kind: Type) -> Self {
        Self { name: name.into(), source: (0, 0), kind }
    }
}

/// Appends a RowDescription.
pub(super) fn describe(to: &mut Vec<u8>, columns: &[Column]) {
    message(to, b'T', |to| {
        to.extend((columns.len() as u16).to_be_bytes());
        for column in columns {
            text(to, column.name.as_bytes());
            to.extend(column.source.0.to_be_bytes());
            to.extend(column.source.1.to_be_bytes());
            let (_, oid, length, _) = column.kind.row();
            to.extend(oid.to_be_bytes());
            to.extend(length.to_be_bytes());
            to.extend((-1i32).to_be_bytes());
            to.extend(0u16.to_be_bytes());
        }
    });
}

/// Appends a DataRow.
pub(super) fn row(to: &mut Vec<u8>, values: &[Value]) {
    message(to, b'D', |to| {
        to.extend((values.len() as u16).to_be_bytes());
        for value in values {
            match value.text() {
                Some(text) => {
                    to.extend((text.len() as u32).to_be_bytes());
                    to.extend(text.as_bytes());
                }
                None => to.extend(u32::MAX.to_be_bytes()),
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_written_as_text() {
        assert_eq!(Value::read(" -17 ", Type::Int8), Ok(Value::Int(-17)));
        let failure = Value::read("x", Type::Int8).unwrap_err();
        assert_eq!((&*failure.code, &*failure.message), ("22P02", "invalid input syntax for type bigint: \"x\""));
        let mut bytes = Vec::new();
        row(&mut bytes, &[Value::Int(1), Value::Null]);
        assert_eq!(bytes, b"D\0\0\0\x0f\0\x02\0\0\0\x011\xff\xff\xff\xff");
    }
}
