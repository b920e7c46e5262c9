//! Parses of unnamed statements, kept for Binds in later round trips. Long ones are counted over all clients: beyond a
//! limit the oldest go, and their clients are told when they use them.

use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::session::descriptions::ToldDescription;

/// Longest Parse that is kept without being counted.
const MAX_UNCOUNTED_BYTES: usize = 16 * 1024;

/// Longest Parse that is kept.
pub(crate) const MAX_PARSE_BYTES: usize = 32 << 20;

/// Most bytes of all long Parses that are kept.
const MAX_LONG_BYTES: usize = 128 << 20;

/// Longest Parse that is read whole when it is bound.
const MAX_READ_BYTES: usize = 64 * 1024;

#[derive(Clone, Default)]
pub(crate) struct KeptParses(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    /// The oldest has the lowest number.
    long: BTreeMap<u64, Arc<Vec<u8>>>,
    bytes: usize,
    last_number: u64,
    /// Parses that had to go though their clients might have used them.
    forgotten: u64,
}

/// A Parse that is kept, or was until there were too many.
pub(crate) struct KeptParse {
    place: Place,
    /// What its client was told of it.
    pub(crate) told: ToldDescription,
}

enum Place {
    Short(Box<[u8]>),
    Long(Long),
}

/// A Parse that is counted.
struct Long {
    number: u64,
    of: KeptParses,
}

pub(crate) enum Bytes<'a> {
    Short(&'a [u8]),
    Long(Arc<Vec<u8>>),
}

impl KeptParses {
    /// Bytes of all long Parses that are kept, and the number that had to go.
    pub(crate) fn totals(&self) -> (usize, u64) {
        let kept = self.lock();
        (kept.bytes, kept.forgotten)
    }

    pub(crate) fn keep(&self, parse: &[u8]) -> Arc<KeptParse> {
        if parse.len() <= MAX_UNCOUNTED_BYTES { KeptParse::short(parse.into()) } else { self.begin(parse.len(), parse) }
    }

    /// Keeps a long Parse of `total` bytes, of which this part has come.
    pub(crate) fn begin(&self, total: usize, part: &[u8]) -> Arc<KeptParse> {
        let mut kept = self.lock();
        kept.last_number += 1;
        let number = kept.last_number;
        if total <= MAX_PARSE_BYTES {
            kept.long.insert(number, Arc::default());
            kept.append(number, part);
        }
        Arc::new(KeptParse { place: Place::Long(Long { number, of: self.clone() }), told: ToldDescription::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// Adds to a Parse, unless it is gone.
    fn append(&mut self, number: u64, part: &[u8]) {
        let Some(parse) = self.long.get_mut(&number) else { return };
        Arc::make_mut(parse).extend_from_slice(part);
        self.bytes += part.len();
        while self.bytes > MAX_LONG_BYTES {
            let (_, oldest) = self.long.pop_first().expect("what has bytes is there");
            self.bytes -= oldest.len();
            self.forgotten += 1;
        }
    }
}

impl KeptParse {
    /// A Parse that is not counted, whatever its length.
    pub(crate) fn short(parse: Box<[u8]>) -> Arc<Self> {
        Arc::new(Self { place: Place::Short(parse), told: ToldDescription::default() })
    }

    pub(crate) fn append(&self, part: &[u8]) {
        if let Place::Long(long) = &self.place {
            long.of.lock().append(long.number, part);
        }
    }

    pub(crate) fn bytes(&self) -> Option<Bytes<'_>> {
        match &self.place {
            Place::Short(bytes) => Some(Bytes::Short(bytes)),
            Place::Long(long) => long.of.lock().long.get(&long.number).cloned().map(Bytes::Long),
        }
    }

    /// Bytes that are counted nowhere.
    pub(crate) fn uncounted(&self) -> usize {
        if let Place::Short(bytes) = &self.place { bytes.len() } else { 0 }
    }

    pub(crate) fn is_long(&self) -> bool {
        matches!(self.place, Place::Long(_))
    }
}

impl Drop for Long {
    fn drop(&mut self) {
        let mut kept = self.of.lock();
        if let Some(parse) = kept.long.remove(&self.number) {
            kept.bytes -= parse.len();
        }
    }
}

impl Bytes<'_> {
    /// The Parse is read whole, not only at its beginning.
    pub(crate) fn is_read_whole(&self) -> bool {
        self.len() <= MAX_READ_BYTES
    }

    /// The part that is read.
    pub(crate) fn read(&self) -> &[u8] {
        &self[..self.len().min(MAX_READ_BYTES)]
    }
}

impl Deref for Bytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parse_that_comes_in_parts_is_kept_and_counted_until_it_is_dropped() {
        let texts = KeptParses::default();
        let text = texts.begin(20_000, &[1; 15_000]);
        text.append(&[2; 5000]);
        assert_eq!(text.bytes().unwrap()[14_999..15_001], [1, 2]);
        assert_eq!(texts.totals(), (20_000, 0));
        drop(text);
        assert_eq!(texts.totals(), (0, 0));
        assert!(!texts.keep(&[1; MAX_UNCOUNTED_BYTES]).is_long());
    }

    #[test]
    fn the_oldest_goes_where_there_are_too_many_bytes() {
        let texts = KeptParses::default();
        let all: Vec<_> = (0..5).map(|_| texts.keep(&vec![0; MAX_PARSE_BYTES])).collect();
        assert_eq!(all.iter().map(|text| text.bytes().is_some()).collect::<Vec<_>>(), [false, true, true, true, true]);
        assert_eq!(texts.totals(), (MAX_LONG_BYTES, 1));
        // What is gone grows no more.
        all[0].append(&[0; 100]);
        assert_eq!(texts.totals(), (MAX_LONG_BYTES, 1));
        assert!(texts.begin(MAX_PARSE_BYTES + 1, &[0; 100]).bytes().is_none());
    }
}
