//! Places that are kept for operators, so that they get in just when there is no room for other clients. They are few,
//! for all listeners together, and only clients that have proved who they are get one. Such a client counts for no
//! limit.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The places that are kept.
const KEPT_PLACES: u32 = 16;

/// What the clients of a pool are to the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientRank {
    /// Applications.
    #[default]
    Application,
    /// They look at the process, and may have half of the kept places.
    Viewer,
    /// They steer the process: the limits of databases and users do not hold for them.
    Operator,
}

impl ClientRank {
    /// The kept places that clients of this rank may fill.
    fn most(self) -> u32 {
        match self {
            Self::Application => 0,
            Self::Viewer => KEPT_PLACES / 2,
            Self::Operator => KEPT_PLACES,
        }
    }
}

/// The kept places that are taken.
#[derive(Default)]
pub(crate) struct KeptPlaces(AtomicU32);

impl KeptPlaces {
    /// Takes a place for a client of this rank, if there is one for it.
    pub(crate) fn try_take(&self, rank: ClientRank) -> bool {
        self.0.fetch_update(SeqCst, SeqCst, |taken| (taken < rank.most()).then_some(taken + 1)).is_ok()
    }

    pub(crate) fn give_back(&self) {
        let before = self.0.fetch_sub(1, SeqCst);
        assert!(before > 0, "more clients have left kept places than took one");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn viewers_leave_half_of_the_places_to_operators() {
        let places = KeptPlaces::default();
        assert!(!places.try_take(ClientRank::Application));
        assert!((0..KEPT_PLACES / 2).all(|_| places.try_take(ClientRank::Viewer)));
        assert!(!places.try_take(ClientRank::Viewer));
        assert!((0..KEPT_PLACES / 2).all(|_| places.try_take(ClientRank::Operator)));
        assert!(!places.try_take(ClientRank::Operator));
        places.give_back();
        assert!(!places.try_take(ClientRank::Viewer) && places.try_take(ClientRank::Operator));
    }
}
