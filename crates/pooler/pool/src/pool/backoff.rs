//! Failed connects, and when the next one may be tried.

use crate::{random::Random, time::Time};

/// Doublings of the pause after which it is at its longest anyway.
const MAX_DOUBLINGS: u32 = 32;

/// What failed connects have led to. A connect that succeeds ends it all.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    /// When the first of the failures was, since which no connect has succeeded.
    failing_since: Option<Time>,
    /// How often the pause was doubled.
    doublings: u32,
    /// The pause lasts until then.
    retry_at: Option<Time>,
    last: LastFailure,
}

/// What the last failure says of the next try.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum LastFailure {
    #[default]
    Transient,
    /// The next try will fail, too, until something is changed.
    Permanent,
    /// The upstream does not know the database.
    UnknownDatabase,
}

impl Backoff {
    /// Since when connects have been failing.
    pub(super) fn failing_since(&self) -> Option<Time> {
        self.failing_since
    }

    pub(super) fn is_pausing(&self) -> bool {
        self.retry_at.is_some()
    }

    /// When the pause ends; [`Time::NEVER`] if there is none.
    pub(super) fn retry_at(&self) -> Time {
        self.retry_at.unwrap_or(Time::NEVER)
    }

    /// Ends a pause whose time is over.
    pub(super) fn end_pause_at(&mut self, now: Time) {
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
        }
    }

    /// Whether the upstream has said that it does not know the database, and the pause after that lasts.
    pub(super) fn is_database_unknown(&self, now: Time) -> bool {
        self.last == LastFailure::UnknownDatabase && self.retry_at.is_some_and(|at| at > now)
    }

    /// The upstream was reached by another pool. Returns whether that ends a pause: not if the last failure was this
    /// pool's own.
    pub(super) fn end_pause_early(&mut self) -> bool {
        self.last == LastFailure::Transient && self.retry_at.take().is_some()
    }

    /// A connect has failed, or took too long.
    pub(super) fn note_failure(&mut self, now: Time) {
        if self.last == LastFailure::UnknownDatabase {
            self.last = LastFailure::Transient;
        }
        self.failing_since.get_or_insert(now);
    }

    /// The upstream has said whether the next try will fail, too, until something is changed.
    pub(super) fn set_permanent(&mut self, permanent: bool) {
        self.last = if permanent { LastFailure::Permanent } else { LastFailure::Transient };
    }

    /// A connect has failed, because the upstream does not know the database. With `is_failure` the database should
    /// exist, so an outage begins.
    pub(super) fn note_unknown_database(&mut self, is_failure: bool, now: Time) {
        self.last = LastFailure::UnknownDatabase;
        if is_failure {
            self.failing_since.get_or_insert(now);
        }
    }

    /// Begins a pause: a random time between `shortest` and a bound that doubles with each pause, up to `longest`, in
    /// nanoseconds. A failure during a pause, of a connect that began before, does not lengthen it.
    pub(super) fn pause(&mut self, shortest: u64, longest: u64, random: &mut Random, now: Time) {
        if self.retry_at.is_some_and(|at| at > now) {
            return;
        }
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        let bound = shortest.saturating_mul(1 << self.doublings).min(longest);
        self.retry_at = Some(now.after(shortest + random.up_to(bound - shortest)));
    }
}
