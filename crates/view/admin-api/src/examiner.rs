//! What `serve` asks of the doctor. `poolhouse` hands the doctor over, so that neither of the two depends on the other.

use std::time::Duration;

use serde_json::Value;

use crate::{Client, Look};

/// A look at a pooler.
#[derive(Clone, Debug)]
pub struct Observation {
    /// When, from the first look on.
    pub at: Duration,
    /// `/api/pools`.
    pub look: Look,
    /// `/api/clients?holders=true`: the clients that hold a server.
    pub holders: Vec<Client>,
}

/// Keeps looks at one process, in order, and says what is wrong with it.
pub trait Examiner: Send {
    /// Keeps a look. `clients`, the answer of `/api/clients`, replaces that of the look before.
    fn add(&mut self, observation: Observation, clients: Vec<Client>);

    /// The number of looks.
    fn looks(&self) -> usize;

    /// The time from the first look to the last.
    fn duration(&self) -> Duration;

    /// The answer of `/api/findings`.
    fn findings(&self) -> Value;
}

/// Makes an examiner without looks.
pub type NewExaminer = fn() -> Box<dyn Examiner>;
