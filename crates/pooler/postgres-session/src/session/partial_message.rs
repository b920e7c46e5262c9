//! A message that comes in parts: how much of it is still to come, and where that goes.

/// What is still to come of a message whose beginning has been dealt with.
#[derive(Clone, Copy, Default)]
pub(crate) struct PartialMessage(u32);

/// Stands beside the number of bytes, of which a message has fewer.
const FORWARDED: u32 = 1 << 31;

impl PartialMessage {
    /// `rest` bytes are to come, and are `forwarded` or dropped.
    #[inline]
    pub(crate) fn new(rest: usize, forwarded: bool) -> Self {
        debug_assert!(rest < FORWARDED as usize, "lengths of messages are signed");
        Self(rest as u32 | if forwarded { FORWARDED } else { 0 })
    }

    /// Bytes that are still to come.
    #[inline]
    pub(crate) fn rest(self) -> usize {
        (self.0 & !FORWARDED) as usize
    }

    #[inline]
    pub(crate) fn is_complete(self) -> bool {
        self.rest() == 0
    }

    /// What comes is forwarded, or what came last was.
    #[inline]
    pub(crate) fn is_forwarded(self) -> bool {
        self.0 & FORWARDED != 0
    }

    /// More is to be forwarded.
    #[inline]
    pub(crate) fn is_awaited(self) -> bool {
        self.0 > FORWARDED
    }

    /// The next `part` bytes have come.
    #[inline]
    pub(crate) fn take(&mut self, part: usize) {
        debug_assert!(part <= self.rest(), "no more comes than is to come");
        self.0 -= part as u32;
    }
}
