//! State that may have been left behind in a server.

/// State that may have been left behind in a server since its last cleaning.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Soil(u8);

impl Soil {
    /// Anything but prepared statements.
    pub(crate) const STATE: Self = Self(1);
    /// Anything, prepared statements included.
    pub(crate) const ALL: Self = Self(1 | 1 << 1);
    /// State that no SQL takes back.
    pub(crate) const IRREVERSIBLE: Self = Self(1 | 1 << 1 | 1 << 2);

    pub(crate) fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(crate) fn is_clean(self) -> bool {
        self.0 == 0
    }

    /// All of `other` may be there.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
