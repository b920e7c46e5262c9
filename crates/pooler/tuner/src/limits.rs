//! The bounds of a tuner. Knows no trial.

use std::time::Duration;

/// Between which sizes a tuner may choose, and how long it looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The smallest size; at least 1.
    pub least: u32,
    /// The largest size; at least `least`.
    pub most: u32,
    /// How long one size is watched before the other one has its turn, while the best one is searched for.
    pub window: Duration,
}

impl Limits {
    /// The size within these bounds that is nearest.
    pub fn clamp(&self, size: u32) -> u32 {
        size.max(self.least).min(self.most)
    }
}
