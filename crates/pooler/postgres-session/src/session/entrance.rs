//! By which listener a client came, and whose words it expects, in one byte of its state.

use crate::session::wording::Wording;

/// Listeners that are told apart. Clients of further ones have no rules.
pub(crate) const MAX_LISTENERS: u16 = 127;

/// The bit beside the listener's number.
const PGBOUNCER: u8 = 1 << 7;

#[derive(Clone, Copy)]
pub(crate) struct Entrance(u8);

impl Entrance {
    pub(crate) fn new(listener: u16, wording: Wording) -> Self {
        let listener = listener.min(MAX_LISTENERS) as u8;
        Self(listener | if wording == Wording::PgBouncer { PGBOUNCER } else { 0 })
    }

    /// The number of the listener, at most [`MAX_LISTENERS`].
    #[inline]
    pub(crate) fn listener(self) -> u16 {
        u16::from(self.0 & !PGBOUNCER)
    }

    pub(crate) fn wording(self) -> Wording {
        if self.0 & PGBOUNCER == 0 { Wording::Poolhouse } else { Wording::PgBouncer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_and_wording_are_told_apart() {
        for (listener, kept) in [(0, 0), (126, 126), (127, MAX_LISTENERS), (u16::MAX, MAX_LISTENERS)] {
            for wording in [Wording::Poolhouse, Wording::PgBouncer] {
                let entrance = Entrance::new(listener, wording);
                assert_eq!((entrance.listener(), entrance.wording()), (kept, wording));
            }
        }
    }
}
