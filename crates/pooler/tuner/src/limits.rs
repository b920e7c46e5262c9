//! The limits of a tuner.

use std::time::Duration;

/// The sizes that a tuner may choose, and how long it measures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The smallest size; at least 1.
    pub min: u32,
    /// The largest size; at least `min`.
    pub max: u32,
    /// How long one size is measured before the other one has its turn, while the best one is searched for.
    pub window: Duration,
}

impl Limits {
    /// The nearest size within the limits.
    pub fn clamp(&self, size: u32) -> u32 {
        size.max(self.min).min(self.max)
    }
}
