//! A message that comes in parts: how much is still to come, and where that goes.

#[derive(Clone, Copy, Default)]
pub(crate) struct PartialMessage(u32);

/// A bit beside the number of bytes, which is always smaller.
const FORWARDED: u32 = 1 << 31;

impl PartialMessage {
    /// `rest` bytes are to come, and are `forwarded` or dropped.
    #[inline]
    pub(crate) fn new(rest: usize, forwarded: bool) -> Self {
        debug_assert!(rest < FORWARDED as usize, "lengths of messages are signed");
        Self(rest as u32 | if forwarded { FORWARDED } else { 0 })
    }

    #[inline]
    pub(crate) fn rest(self) -> usize {
        (self.0 & !FORWARDED) as usize
    }

    #[inline]
    pub(crate) fn is_complete(self) -> bool {
        self.rest() == 0
    }

    /// The message is forwarded, or the last one was.
    #[inline]
    pub(crate) fn is_forwarded(self) -> bool {
        self.0 & FORWARDED != 0
    }

    /// More bytes are to be forwarded.
    #[inline]
    pub(crate) fn is_awaited(self) -> bool {
        self.0 > FORWARDED
    }

    #[inline]
    pub(crate) fn take(&mut self, part: usize) {
        debug_assert!(part <= self.rest(), "no more comes than is to come");
        self.0 -= part as u32;
    }
}
