//! The types of the JSON files of runs. Times are in milliseconds; unknown values are null, never zero. Histograms are
//! stored whole (HdrHistogram's V2 encoding, deflated, in base64), so that results can be merged and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub mod sweep;

/// The version of this format.
pub const FORMAT: u32 = 1;
/// Most different texts of errors in a result.
pub const MAX_ERROR_TEXTS: usize = 32;
/// [`About::way`] without any fault between generator and target.
pub const STRAIGHT: &str = "straight";

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BenchResult {
    pub format: u32,
    pub name: String,
    pub about: About,
    /// The whole run after the warm-up.
    #[serde(flatten)]
    pub total: Measured,
    /// Each stage, burst or point.
    pub steps: Vec<Step>,
    /// Second by second, the warm-up included.
    pub series: Vec<Second>,
    /// The first different texts of errors from the target, and their counts.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_texts: BTreeMap<String, u64>,
    /// The run was interrupted, and the result covers the time until then.
    pub interrupted: bool,
    /// Warnings for the reader, one sentence each.
    pub warnings: Vec<String>,
}

/// Circumstances of a measurement.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// Beginning, in seconds since 1970.
    pub started: u64,
    pub seed: u64,
    /// `closed`, `open` or `burst`.
    pub shape: String,
    /// The load, for people.
    pub load: String,
    /// What each operation asks: scripts, protocol and scale, or method, path and statuses.
    #[serde(default)]
    pub asks: Option<String>,
    /// Faults between generator and target; `straight` without any.
    #[serde(default)]
    pub way: Option<String>,
    /// The pool under test.
    pub pool: String,
    pub target: String,
    /// The command line, without passwords.
    #[serde(default)]
    pub command: Option<String>,
    /// The description in the scenario's file.
    #[serde(default)]
    pub scenario: Option<String>,
    /// Seconds of the published experiment for which one second of the scenario stands.
    #[serde(default)]
    pub compression: Option<f64>,
    /// The figures in which the runs of the scenario are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// Findings of `poolhouse doctor` during the run, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doctor: Vec<String>,
    /// Name and version of the server, as it reports them.
    pub server: Option<String>,
    pub version: String,
    /// The machine: processors and their name, memory, kernel.
    pub machine: String,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Step {
    /// `100/s to 300/s`, `burst 3`.
    pub name: String,
    /// Seconds from the beginning of the run.
    pub from_s: f64,
    #[serde(flatten)]
    pub measured: Measured,
}

/// Measurements over some time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Successful operations. In a step: of the operations that arrived in it.
    pub requests: u64,
    /// Operations that succeeded within [`Measured::duration_s`], regardless of the step of their arrival.
    pub finished: u64,
    /// Errors by kind: `sqlstate 40001`, `connect refused`, `check-out timeout`, `status 503`.
    pub errors: BTreeMap<String, u64>,
    /// Arrivals that were not started, because `max_in_flight` operations were running.
    pub dropped: u64,
    /// Planned seconds, without the time in which the last operations end. Without a planned length (a number of
    /// operations, a burst): seconds until the last operation has ended.
    pub duration_s: f64,
    /// From the scheduled arrival, or in a closed loop from the moment a client was free, to the end. Of successful
    /// operations, of those that timed out, and of those that failed slowly.
    pub response_ms: Option<Percentiles>,
    /// From sending to the end, of successful operations.
    pub service_ms: Option<Percentiles>,
    /// From the scheduled arrival to sending, of successful operations.
    #[serde(default)]
    pub issue_ms: Option<Percentiles>,
    /// From requesting a connection of the pool to getting it, including [`Self::front_wait_ms`].
    pub pool_wait_ms: Option<Percentiles>,
    /// The wait in the pool of a Poolhouse in front, which only a simulation can see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_wait_ms: Option<Percentiles>,
    /// The phases of making a connection.
    pub connect_ms: ConnectPhases,
    /// Connections made and closed.
    pub connections: Connections,
    /// Processor time of the load generator itself, in seconds.
    pub generator_cpu_s: Option<f64>,
}

impl Measured {
    /// Successful operations per second. `None` if no time has passed.
    pub fn rate(&self) -> Option<f64> {
        (self.duration_s > 0.0).then(|| self.finished as f64 / self.duration_s)
    }
}

/// The phases of connecting. `None` if a phase did not occur.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectPhases {
    pub dns: Option<Percentiles>,
    pub tcp: Option<Percentiles>,
    /// TLS, including the request for it.
    pub tls: Option<Percentiles>,
    /// From the start-up message until the client is authenticated.
    pub auth: Option<Percentiles>,
    /// From the end of authentication to ReadyForQuery.
    pub ready: Option<Percentiles>,
    pub total: Option<Percentiles>,
}

/// Connections made and closed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Connections {
    pub created: u64,
    /// By cause: `burst` (an operation waited), `minimum` (to keep `min_size`), `rotation` (end of a life time),
    /// `replacement` (of a lost connection), `ephemeral` (for one operation), `start` (before the measured time).
    pub created_for: BTreeMap<String, u64>,
    /// By reason: `idle`, `life`, `error`, `discarded`, `pool_closed`, ...
    pub closed: BTreeMap<String, u64>,
    /// Connections that could not be made, by kind of error.
    #[serde(default)]
    pub failed: BTreeMap<String, u64>,
    pub most: u32,
    pub last: u32,
}

/// Percentiles of a histogram, in milliseconds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Percentiles {
    pub count: u64,
    pub min: f64,
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// The histogram of microseconds (see the module); null if it was not kept.
    pub histogram: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the beginning of the run.
    pub at_s: f64,
    /// Scheduled arrivals; in a closed loop, started operations.
    pub arrived: u64,
    /// Successful operations.
    pub requests: u64,
    pub errors: u64,
    pub dropped: u64,
    /// Response time, in milliseconds.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// Open connections at the end of the second.
    pub connections: u32,
    pub in_use: u32,
    pub waiting: u32,
    /// Connections made in the second.
    pub created: u32,
}
