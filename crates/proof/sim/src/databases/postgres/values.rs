//! Values, their types, and how both are written in messages.

use super::{
    failure::Failure,
    wire::{message, text},
};

/// A type of PostgreSQL's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Type {
    Bool,
    Bytea,
    Name,
    Int8,
    Int4,
    Int2,
    Text,
    Float8,
    Varchar,
    Regclass,
    Void,
}

impl Type {
    const ALL: [(Self, u32, i16, &str); 11] = [
        (Self::Bool, 16, 1, "bool"),
        (Self::Bytea, 17, -1, "bytea"),
        (Self::Name, 19, 64, "name"),
        (Self::Int8, 20, 8, "int8"),
        (Self::Int2, 21, 2, "int2"),
        (Self::Int4, 23, 4, "int4"),
        (Self::Text, 25, -1, "text"),
        (Self::Float8, 701, 8, "float8"),
        (Self::Varchar, 1043, -1, "varchar"),
        (Self::Regclass, 2205, 4, "regclass"),
        (Self::Void, 2278, 4, "void"),
    ];

    fn row(self) -> (Self, u32, i16, &'static str) {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).expect("all types are listed")
    }

    pub(super) fn oid(self) -> u32 {
        self.row().1
    }

    pub(super) fn name(self) -> &'static str {
        self.row().3
    }

    pub(super) fn of_oid(oid: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, other, ..)| *other == oid).map(|(kind, ..)| kind)
    }

    /// Its name in messages of errors.
    pub(super) fn long_name(self) -> &'static str {
        match self {
            Self::Int8 => "bigint",
            Self::Int4 => "integer",
            Self::Int2 => "smallint",
            Self::Float8 => "double precision",
            Self::Bool => "boolean",
            other => other.name(),
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Null,
    Text(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    Bytes(Vec<u8>),
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
            Self::Bytes(bytes) => Some(bytes.iter().fold("\\x".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))),
            Self::Void => Some(String::new()),
        }
    }

    /// A text read as a value of this type.
    pub(super) fn read(text: &str, kind: Type) -> Result<Self, Failure> {
        let invalid = || {
            let name = kind.long_name();
            Failure::new("22P02", format!("invalid input syntax for type {name}: \"{text}\""))
        };
        let trimmed = text.trim();
        let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let integer = |min: i64, max: i64| {
            let out_of_range = || {
                let name = kind.long_name();
                Failure::new("22003", format!("value \"{text}\" is out of range for type {name}"))
            };
            if !is_number {
                return Err(invalid());
            }
            let number = trimmed.parse().ok().filter(|number| (min..=max).contains(number));
            number.map(Self::Int).ok_or_else(out_of_range)
        };
        match kind {
            Type::Int8 => integer(i64::MIN, i64::MAX),
            Type::Int4 => integer(i32::MIN.into(), i32::MAX.into()),
            Type::Int2 => integer(i16::MIN.into(), i16::MAX.into()),
            Type::Float8 => trimmed.parse().map(Self::Float).map_err(|_| invalid()),
            Type::Bool => read_bool(trimmed).map(Self::Bool).ok_or_else(invalid),
            _ => Ok(Self::Text(text.to_owned())),
        }
    }

    /// The same as another type.
    pub(super) fn cast(self, to: Type) -> Result<Self, Failure> {
        match (&self, to) {
            (Self::Null, _)
            | (Self::Int(_), Type::Int8 | Type::Int4 | Type::Int2)
            | (Self::Bool(_), Type::Bool)
            | (Self::Bytes(_), Type::Bytea) => Ok(self),
            (Self::Int(number), Type::Float8) => Ok(Self::Float(*number as f64)),
            (Self::Bool(truth), Type::Text) => Ok(Self::Text(truth.to_string())),
            _ => Self::read(&self.text().unwrap_or_default(), to),
        }
    }

    /// Reads what stands in a Bind in binary form.
    pub(super) fn read_binary(bytes: &[u8], kind: Type) -> Option<Self> {
        match kind {
            Type::Int8 => Some(Self::Int(i64::from_be_bytes(bytes.try_into().ok()?))),
            Type::Int4 => Some(Self::Int(i32::from_be_bytes(bytes.try_into().ok()?).into())),
            Type::Int2 => Some(Self::Int(i16::from_be_bytes(bytes.try_into().ok()?).into())),
            Type::Float8 => Some(Self::Float(f64::from_be_bytes(bytes.try_into().ok()?))),
            Type::Bool => Some(Self::Bool(*bytes.first()? != 0)),
            _ => None,
        }
    }

    fn write(&self, kind: Type, binary: bool, encode: &dyn Fn(&str) -> Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Self::Int(number) if binary => Some(match kind {
                Type::Int8 => number.to_be_bytes().to_vec(),
                Type::Int2 => (*number as i16).to_be_bytes().to_vec(),
                _ => (*number as i32).to_be_bytes().to_vec(),
            }),
            Self::Bool(truth) if binary => Some(vec![u8::from(*truth)]),
            Self::Float(number) if binary => Some(number.to_be_bytes().to_vec()),
            Self::Bytes(bytes) if binary => Some(bytes.clone()),
            _ => Some(encode(&self.text()?)),
        }
    }
}

/// A truth value, by any beginning of its words that is clear.
pub(super) fn read_bool(text: &str) -> Option<bool> {
    let text = text.to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match () {
        () if begins("true", 1) || begins("yes", 1) || text == "on" || text == "1" => Some(true),
        () if begins("false", 1) || begins("no", 1) || begins("off", 2) || text == "0" => Some(false),
        () => None,
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The table and the place in it, if it is of one.
    pub(super) of: (u32, u16),
    pub(super) kind: Type,
}

impl Column {
    pub(super) fn new(name: impl Into<String>, kind: Type) -> Self {
        Self { name: name.into(), of: (0, 0), kind }
    }
}

/// Whether the column at `place` is wanted in binary form.
pub(super) fn is_binary(formats: &[u16], place: usize) -> bool {
    let format = if formats.len() == 1 { formats.first() } else { formats.get(place) };
    format == Some(&1)
}

/// Appends a RowDescription.
pub(super) fn describe(to: &mut Vec<u8>, columns: &[Column], formats: &[u16], encode: &dyn Fn(&str) -> Vec<u8>) {
    message(to, b'T', |to| {
        to.extend((columns.len() as u16).to_be_bytes());
        for (place, column) in columns.iter().enumerate() {
            text(to, &encode(&column.name));
            to.extend(column.of.0.to_be_bytes());
            to.extend(column.of.1.to_be_bytes());
            let (_, oid, length, _) = column.kind.row();
            to.extend(oid.to_be_bytes());
            to.extend(length.to_be_bytes());
            to.extend((-1i32).to_be_bytes());
            to.extend(u16::from(is_binary(formats, place)).to_be_bytes());
        }
    });
}

/// Appends a DataRow.
pub(super) fn row(
    to: &mut Vec<u8>,
    columns: &[Column],
    values: &[Value],
    formats: &[u16],
    encode: &dyn Fn(&str) -> Vec<u8>,
) {
    message(to, b'D', |to| {
        to.extend((values.len() as u16).to_be_bytes());
        for (place, (value, column)) in values.iter().zip(columns).enumerate() {
            match value.write(column.kind, is_binary(formats, place), encode) {
                Some(bytes) => {
                    to.extend((bytes.len() as u32).to_be_bytes());
                    to.extend(bytes);
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
    fn numbers_are_read_as_postgresql_reads_them() {
        assert_eq!(Value::read(" -17 ", Type::Int8), Ok(Value::Int(-17)));
        let failure = Value::read("x", Type::Int8).unwrap_err();
        assert_eq!((&*failure.code, &*failure.message), ("22P02", "invalid input syntax for type bigint: \"x\""));
        assert_eq!(Value::read("3000000000", Type::Int4).unwrap_err().code, "22003");
    }

    #[test]
    fn truth_has_many_words() {
        for (text, expected) in
            [("t", Some(true)), ("ON", Some(true)), ("o", None), ("of", Some(false)), ("", None), ("maybe", None)]
        {
            assert_eq!(read_bool(text), expected, "{text}");
        }
    }

    #[test]
    fn a_row_has_each_value_in_its_form() {
        let columns = [Column::new("a", Type::Int8), Column::new("b", Type::Text)];
        let mut bytes = Vec::new();
        row(&mut bytes, &columns, &[Value::Int(1), Value::Null], &[1, 0], &|text| text.as_bytes().to_vec());
        assert_eq!(bytes, b"D\0\0\0\x16\0\x02\0\0\0\x08\0\0\0\0\0\0\0\x01\xff\xff\xff\xff");
    }
}
