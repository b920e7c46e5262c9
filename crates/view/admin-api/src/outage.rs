//! How long a pool has had no connection although one is wanted.

/// After this time the database is out of reach. Until then the pool is cold.
const MIN_OUTAGE_MS: f64 = 1_000.0;

#[derive(Debug, Default)]
pub(crate) struct Outage {
    since_ms: Option<f64>,
}

impl Outage {
    pub fn has_begun(&self) -> bool {
        self.since_ms.is_some()
    }

    /// Notes whether the pool lacks a wanted connection now. Returns for how long the database has been out of reach.
    pub fn observe(&mut self, lacks_connection: bool, at_ms: f64) -> Option<f64> {
        self.since_ms = lacks_connection.then(|| self.since_ms.unwrap_or(at_ms));
        self.since_ms.map(|since| at_ms - since).filter(|ms| *ms >= MIN_OUTAGE_MS)
    }
}
