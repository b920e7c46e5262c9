//! Rows, in the bytes of the DataRow messages in which they are sent.

use crate::wire::{Message, back, split_message, split_value};

/// A column's name and type.
pub type Column = (&'static str, Type);

/// The types of PostgreSQL that columns have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    Text,
    Int4,
    Int8,
    Numeric,
}

impl Type {
    pub(crate) fn oid(self) -> u32 {
        match self {
            Self::Text => 25,
            Self::Int4 => 23,
            Self::Int8 => 20,
            Self::Numeric => 1700,
        }
    }

    /// Bytes of a value; negative if they differ.
    pub(crate) fn length(self) -> i16 {
        match self {
            Self::Int4 => 4,
            Self::Int8 => 8,
            Self::Text | Self::Numeric => -1,
        }
    }
}

/// A value of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'v> {
    Null,
    Text(&'v str),
    Number(i64),
}

impl<'v> From<&'v str> for Value<'v> {
    fn from(text: &'v str) -> Self {
        Self::Text(text)
    }
}

impl<'v> From<&'v String> for Value<'v> {
    fn from(text: &'v String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Value<'_> {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value<'_> {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value<'_> {
    fn from(yes: bool) -> Self {
        Self::Number(yes.into())
    }
}

impl<'v, T: Into<Value<'v>>> From<Option<T>> for Value<'v> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The answer to a SHOW.
#[derive(Debug)]
pub struct Table {
    columns: Vec<Column>,
    /// DataRow messages in text format.
    rows: Vec<u8>,
    count: usize,
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new(), count: 0 }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a row. A number that its column's type cannot hold becomes the largest one.
    ///
    /// # Panics
    /// If the row has not one value for each column.
    pub fn push<'v>(&mut self, row: impl IntoIterator<Item = Value<'v>>) {
        let mut message = Message::begin(&mut self.rows, back::DATA_ROW);
        message.u16(self.columns.len() as u16);
        let mut columns = self.columns.iter();
        for value in row {
            let (_, of) = columns.next().expect("the row has no more values than the table has columns");
            match value {
                Value::Null => message.i32(-1),
                Value::Text(text) => message.value(text.as_bytes()),
                Value::Number(number) => message.value(within(number, *of).to_string().as_bytes()),
            }
        }
        assert!(columns.next().is_none(), "the row has a value for each column");
        message.end();
        self.count += 1;
    }

    /// The values of all rows as text; `None` is null.
    pub fn texts(&self) -> impl Iterator<Item = Vec<Option<&str>>> {
        let rows = std::iter::successors(split_message(&self.rows), |(_, after)| split_message(after));
        rows.map(|(row, _)| {
            let mut values = &row[2..];
            let mut next = || {
                let (value, after) = split_value(values);
                values = after;
                value.map(|value| std::str::from_utf8(value).expect("values are made of text"))
            };
            self.columns.iter().map(|_| next()).collect()
        })
    }

    /// Rows as messages, from number `first` on, in these formats: one for each column, true for binary.
    pub(crate) fn encode(&self, formats: &[bool], first: usize, count: usize, out: &mut Vec<u8>) {
        if count == self.count && !formats.contains(&true) {
            return out.extend_from_slice(&self.rows);
        }
        let rows = std::iter::successors(split_message(&self.rows), |(_, after)| split_message(after));
        for (row, _) in rows.skip(first).take(count) {
            let mut values = &row[2..];
            let mut message = Message::begin(out, back::DATA_ROW);
            message.u16(self.columns.len() as u16);
            for (index, (_, of)) in self.columns.iter().enumerate() {
                let (value, after) = split_value(values);
                values = after;
                match value {
                    None => message.i32(-1),
                    Some(value) if formats.get(index) == Some(&true) => message.value(&binary(value, *of)),
                    Some(value) => message.value(value),
                }
            }
            message.end();
        }
    }
}

/// A number, or the nearest that a type can hold.
fn within(number: i64, of: Type) -> i64 {
    match of {
        Type::Int4 => number.clamp(i32::MIN.into(), i32::MAX.into()),
        Type::Text | Type::Int8 | Type::Numeric => number,
    }
}

/// A value in binary format, from its text.
fn binary(text: &[u8], of: Type) -> Vec<u8> {
    let number = || std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or_default();
    match of {
        Type::Text => text.to_vec(),
        Type::Int4 => (number() as i32).to_be_bytes().to_vec(),
        Type::Int8 => number().to_be_bytes().to_vec(),
        Type::Numeric => binary_numeric(number()),
    }
}

/// A whole number as PostgreSQL's `numeric`: digits to the base of 10,000, the highest first.
fn binary_numeric(number: i64) -> Vec<u8> {
    const BASE: u64 = 10_000;
    const NEGATIVE: u16 = 0x4000;
    let mut digits = Vec::new();
    let mut rest = number.unsigned_abs();
    while rest > 0 {
        digits.push((rest % BASE) as u16);
        rest /= BASE;
    }
    let weight = digits.len().saturating_sub(1) as u16;
    let sign = if number < 0 { NEGATIVE } else { 0 };
    let header = [digits.len() as u16, weight, sign, 0];
    header.iter().chain(digits.iter().rev()).flat_map(|part| part.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_large_as_their_type_allows() {
        assert_eq!(within(1 << 40, Type::Int4), i32::MAX.into());
        assert_eq!(within(1 << 40, Type::Numeric), 1 << 40);
        assert_eq!(Value::from(u64::MAX), Value::Number(i64::MAX));
    }

    #[test]
    fn binary_values_are_as_postgresql_sends_them() {
        assert_eq!(binary(b"258", Type::Int4), [0, 0, 1, 2]);
        assert_eq!(binary(b"-1", Type::Int8), [0xff; 8]);
        assert_eq!(binary_numeric(0), [0; 8]);
        assert_eq!(binary_numeric(-10_002), [0, 2, 0, 1, 0x40, 0, 0, 0, 0, 1, 0, 2]);
    }
}
