//! What clients were told of a statement: the types of its parameters, and its columns. Another server may make
//! something else of the same text.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::OnceLock,
};

use crate::wire::take_text;

/// Bytes that count of a description too long to be read whole.
const MAX_BEGINNING: usize = 8 * 1024;

/// What all clients that have a statement were told of it, if anything.
#[derive(Clone, Default)]
pub(crate) struct ToldDescription {
    columns: OnceLock<u64>,
    /// The body of its ParameterDescription, which also ends a Parse that names the types.
    parameters: OnceLock<Box<[u8]>>,
}

/// What a server says that a statement is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Description {
    pub(crate) columns: Option<u64>,
    /// As in [`ToldDescription`]; empty if it is too long.
    pub(crate) parameters: Option<Box<[u8]>>,
}

/// How a server's statement fits what was told of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fit {
    Same,
    Different,
    Unknown,
}

impl ToldDescription {
    pub(crate) fn new(description: &Description) -> Self {
        let told = Self::default();
        told.tell(description);
        told
    }

    /// A client is told this. False if something else was told before.
    pub(crate) fn tell(&self, description: &Description) -> bool {
        let parameters = description.parameters.as_ref().filter(|parameters| !parameters.is_empty());
        description.columns.is_none_or(|new| *self.columns.get_or_init(|| new) == new)
            && parameters.is_none_or(|new| self.parameters.get_or_init(|| new.clone()) == new)
    }

    /// Whether anything was told.
    pub(crate) fn is_some(&self) -> bool {
        self.columns.get().is_some()
    }

    pub(crate) fn has_columns(&self) -> bool {
        self.columns.get().is_some_and(|columns| *columns != hash_columns(None, 0))
    }

    /// Whether columns and parameters were told.
    pub(crate) fn is_complete(&self) -> bool {
        self.columns.get().is_some() && self.parameters.get().is_some()
    }

    /// The end of a Parse that names the types.
    pub(crate) fn parameters(&self) -> Option<&[u8]> {
        self.parameters.get().map(|parameters| &**parameters)
    }

    /// How the statement of a server fits.
    pub(crate) fn fit(&self, there: &Description) -> Fit {
        match (fit(self.columns.get(), there.columns.as_ref()), self.fit_of_parameters(there)) {
            (Fit::Different, _) | (_, Fit::Different) => Fit::Different,
            (Fit::Unknown, _) | (_, Fit::Unknown) => Fit::Unknown,
            (Fit::Same, Fit::Same) => Fit::Same,
        }
    }

    /// How the parameters of a server's statement fit.
    pub(crate) fn fit_of_parameters(&self, there: &Description) -> Fit {
        fit(self.parameters.get(), there.parameters.as_ref())
    }
}

fn fit<T: PartialEq>(told: Option<&T>, there: Option<&T>) -> Fit {
    match (told, there) {
        (None, _) => Fit::Same,
        (Some(_), None) => Fit::Unknown,
        (Some(told), Some(there)) if told == there => Fit::Same,
        (Some(_), Some(_)) => Fit::Different,
    }
}

impl PartialEq for ToldDescription {
    fn eq(&self, other: &Self) -> bool {
        self.columns.get() == other.columns.get() && self.parameters.get() == other.parameters.get()
    }
}

/// A hash of the columns of a RowDescription, but for their formats and tables; `None` stands for NoData. `length`: of
/// the whole body.
pub(crate) fn hash_columns(body: Option<&[u8]>, length: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    let Some(body) = body else { return hasher.finish() };
    if body.len() < length || read_columns(body, &mut hasher).is_none() {
        (length, &body[..body.len().min(MAX_BEGINNING)]).hash(&mut hasher);
    }
    hasher.finish()
}

fn read_columns(body: &[u8], hasher: &mut DefaultHasher) -> Option<()> {
    let (count, mut body) = body.split_first_chunk::<2>()?;
    count.hash(hasher);
    for _ in 0..u16::from_be_bytes(*count) {
        take_text(&mut body)?.hash(hasher);
        // A table and the number of a column there; then the type, its size and its modifier; then a format.
        let (column, rest) = body.split_first_chunk::<18>()?;
        column[6..16].hash(hasher);
        body = rest;
    }
    body.is_empty().then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(all: &[(&str, u32, u16)]) -> u64 {
        let mut body = (all.len() as u16).to_be_bytes().to_vec();
        for (name, kind, format) in all {
            body.extend(name.as_bytes());
            // Where it comes from differs, too.
            body.extend(
                [&[0, 0, 0, 0, *format as u8, 0, 1][..], &kind.to_be_bytes(), &[0, 4, 255, 255, 255, 255]].concat(),
            );
            body.extend(format.to_be_bytes());
        }
        hash_columns(Some(&body), body.len())
    }

    #[test]
    fn columns_are_the_same_whatever_their_formats() {
        assert_eq!(columns(&[("a", 23, 0), ("b", 25, 0)]), columns(&[("a", 23, 1), ("b", 25, 1)]));
        assert_ne!(columns(&[("a", 23, 0)]), columns(&[("a", 700, 0)]));
        assert_ne!(columns(&[("a", 23, 0)]), columns(&[("b", 23, 0)]));
        assert_ne!(columns(&[]), hash_columns(None, 0));
    }

    #[test]
    fn what_was_told_fits_only_itself() {
        let of = |columns, parameters: Option<&[u8]>| Description { columns, parameters: parameters.map(Box::from) };
        let told = ToldDescription::default();
        assert_eq!(told.fit(&of(None, None)), Fit::Same);
        assert!(told.tell(&of(Some(1), None)));
        assert_eq!(told.fit(&of(None, None)), Fit::Unknown);
        assert_eq!(told.fit(&of(Some(1), None)), Fit::Same);
        assert_eq!(told.fit(&of(Some(2), None)), Fit::Different);
        assert!(
            told.tell(&of(Some(1), Some(b"x"))) && !told.tell(&of(Some(2), None)) && !told.tell(&of(None, Some(b"y")))
        );
        assert_eq!(told.fit(&of(Some(1), None)), Fit::Unknown);
        assert_eq!(told.fit(&of(Some(1), Some(b"x"))), Fit::Same);
        assert_eq!(told.fit(&of(Some(1), Some(b"y"))), Fit::Different);
    }
}
