//! What was measured, as it is written to JSON and read back. Times are in milliseconds, as their names say; what is
//! not known is null, never zero. Histograms are kept whole (HdrHistogram's V2 encoding, deflated, in base64), so that
//! results can be merged and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub mod sweep;

/// The version of this format.
pub const FORMAT: u32 = 1;
/// Different texts of errors that a result keeps.
pub const MAX_ERROR_TEXTS: usize = 32;
/// [`About::way`] without any fault between generator and target.
pub const STRAIGHT: &str = "straight";

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct BenchResult {
    /// [`FORMAT`].
    pub format: u32,
    pub name: String,
    pub about: About,
    /// The whole run after the warm-up.
    #[serde(flatten)]
    pub total: Measured,
    /// The same for each stage, burst or point.
    pub steps: Vec<Step>,
    /// Second by second, the warm-up included.
    pub series: Vec<Second>,
    /// What the target said of errors, and how often: the first texts that differ.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub error_texts: BTreeMap<String, u64>,
    /// It was interrupted: what there is until then.
    pub interrupted: bool,
    /// What the reader must know to read it rightly, one sentence each.
    pub warnings: Vec<String>,
}

/// Where and with what something was measured.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// Seconds since 1970, when it began.
    pub started: u64,
    /// The seed.
    pub seed: u64,
    /// `closed`, `open` or `burst`.
    pub shape: String,
    /// The load in words, for people.
    pub load: String,
    /// What each operation asks, in words: scripts, protocol and scale, or method, path and statuses.
    #[serde(default)]
    pub asks: Option<String>,
    /// What goes wrong on the way, in words; `straight`: nothing.
    #[serde(default)]
    pub way: Option<String>,
    /// The pool under test in words.
    pub pool: String,
    pub target: String,
    /// The command line, without passwords.
    #[serde(default)]
    pub command: Option<String>,
    /// What the scenario shows, in the words of its file.
    #[serde(default)]
    pub scenario: Option<String>,
    /// How many seconds of the published experiment a second of the scenario stands for.
    #[serde(default)]
    pub compression: Option<f64>,
    /// The figures in which the runs of its scenario stand beside one another.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// What `poolhouse doctor` found while it ran, a line each; empty: it did not look.
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
    /// What people call it: `100/s to 300/s`, `burst 3`.
    pub name: String,
    /// Seconds from the beginning of the run.
    pub from_s: f64,
    #[serde(flatten)]
    pub measured: Measured,
}

/// What was measured over some time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// Operations that ended well. In a step: of those that arrived in it.
    pub requests: u64,
    /// Operations that ended well within [`Measured::duration_s`], whichever step they had arrived in.
    pub finished: u64,
    /// Kinds of errors, and how many of each: `sqlstate 40001`, `connect refused`, `check-out timeout`, `status 503`.
    pub errors: BTreeMap<String, u64>,
    /// Arrivals that were never begun, because `max_in_flight` operations had not ended.
    pub dropped: u64,
    /// Seconds, as planned: without the time that the last operations took to end after it. Without a plan for the time
    /// (a number of operations, a burst) until the last one had ended.
    pub duration_s: f64,
    /// From the scheduled arrival to the end. In a closed loop: from the moment a client was free. Of operations that
    /// ended well, and of those that failed because their time was up or that failed slowly (with the time they had
    /// taken by then).
    pub response_ms: Option<Percentiles>,
    /// From sending to the end: what the target took. Of operations that ended well.
    pub service_ms: Option<Percentiles>,
    /// From the scheduled arrival to sending: what it took until the target was asked. Of operations that ended well.
    #[serde(default)]
    pub issue_ms: Option<Percentiles>,
    /// From asking the pool for a connection to getting it; where waits in front are told, these included.
    pub pool_wait_ms: Option<Percentiles>,
    /// The part of it in the pool of a Poolhouse in front. Only a simulation can tell: a client does not see what it
    /// waits for there.
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
    /// Throughput: operations per second that ended well; `None` if no time has passed.
    pub fn rate(&self) -> Option<f64> {
        (self.duration_s > 0.0).then(|| self.finished as f64 / self.duration_s)
    }
}

/// The phases of making a connection; `None`: there was no such phase.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectPhases {
    pub dns: Option<Percentiles>,
    pub tcp: Option<Percentiles>,
    /// That of TLS, the request for it included.
    pub tls: Option<Percentiles>,
    /// From the start-up message until the server has let us in.
    pub auth: Option<Percentiles>,
    /// From there to ReadyForQuery.
    pub ready: Option<Percentiles>,
    pub total: Option<Percentiles>,
}

/// Connections made and closed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Connections {
    pub created: u64,
    /// Of these: `burst` (an operation waited for it), `minimum` (to keep `min_size`), `rotation` (one had reached its
    /// life time), `replacement` (one was lost), `ephemeral` (for one operation), `start` (before the measured time).
    pub created_for: BTreeMap<String, u64>,
    /// Closed, by reason: `idle`, `life`, `error`, `discarded`, `pool_closed`, ...
    pub closed: BTreeMap<String, u64>,
    /// Connections that could not be made, by kind of error. What operations failed for is in [`Measured::errors`].
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
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    pub max: f64,
    /// The histogram of microseconds in HdrHistogram's V2 encoding, deflated, base64; null where it was not kept.
    pub histogram: Option<String>,
}

/// One second of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Seconds from the beginning of the run.
    pub at_s: f64,
    /// Arrivals that were scheduled in it; in a closed loop, operations that were begun.
    pub arrived: u64,
    /// Operations that ended well.
    pub requests: u64,
    /// Operations that failed.
    pub errors: u64,
    pub dropped: u64,
    /// Response time, in milliseconds.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// Open connections at its end.
    pub connections: u32,
    pub in_use: u32,
    pub waiting: u32,
    /// Connections made in it.
    pub created: u32,
}
