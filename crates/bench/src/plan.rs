//! What is to be run, as plain values: from a scenario file or from the command line.

use std::{path::PathBuf, time::Duration};

pub use pool::{ConfigError, PoolConfig};
use settings::Secret;
pub use workload::{Fault, Shape, Spacing, Stage, Window};

/// One run: everything that a result can be reproduced from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What people call it: the scenario's name, or the command line's.
    pub name: String,
    /// What is asked.
    pub target: Target,
    /// How operations arrive.
    pub shape: Shape,
    /// The pool under test.
    pub pool: PoolUnderTest,
    /// On the way to the target; empty: straight to it.
    pub faults: Vec<Fault>,
    /// At the beginning of a run, not measured.
    pub warmup: Duration,
    /// An operation that has been under way for longer has failed (`timeout`).
    pub timeout: Duration,
    /// For everything that chance decides.
    pub seed: u64,
    /// Conditions that must hold of the result, as given: `p99>50ms`.
    pub fail_if: Vec<String>,
}

/// The most clients of a closed loop, and of a burst.
pub const MAX_CLIENTS: u32 = 100_000;
/// The most operations under way in an open loop.
pub const MAX_IN_FLIGHT: u32 = 1_000_000;
/// The most instances of the application.
pub const MAX_INSTANCES: u32 = 10_000;
/// The most stages of an open load.
pub const MAX_STAGES: usize = crate::record::MAX_STEPS;
/// The highest rate, in operations per second.
pub const MAX_RATE: f64 = 10_000_000.0;

impl Plan {
    /// Whether it can be run: says what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        self.pool.config.validate().map_err(|error| error.to_string())?;
        within("instances", self.pool.instances, MAX_INSTANCES)?;
        if self.timeout.is_zero() {
            return Err("the time-out of an operation is 0: give it a duration above nothing".to_owned());
        }
        match &self.shape {
            Shape::Closed { clients, duration, .. } => {
                within("clients", *clients, MAX_CLIENTS)?;
                above_zero("the duration", *duration)
            }
            Shape::Open { stages, max_in_flight, .. } => {
                within("max_in_flight", *max_in_flight, MAX_IN_FLIGHT)?;
                if stages.is_empty() || stages.len() > MAX_STAGES {
                    return Err(format!("{} stages: give 1 to {MAX_STAGES}", stages.len()));
                }
                for stage in stages {
                    above_zero("the duration of a stage", stage.duration)?;
                    if let Some(rate) = [stage.from, stage.to].into_iter().find(|rate| !(0.0..=MAX_RATE).contains(rate))
                    {
                        return Err(format!("a rate of {rate}/s: give one from 0 to {MAX_RATE}"));
                    }
                }
                if stages.iter().map(Stage::expected).sum::<f64>() < 1.0 {
                    return Err("not one operation would arrive: raise the rate or the duration".to_owned());
                }
                Ok(())
            }
            Shape::Burst { size, at_once, rounds, .. } => {
                within("operations of a burst", *size, MAX_CLIENTS)?;
                within("operations at once", *at_once, MAX_CLIENTS)?;
                within("rounds", *rounds, MAX_CLIENTS)
            }
        }
    }
}

fn within(what: &str, value: u32, most: u32) -> Result<(), String> {
    if (1..=most).contains(&value) { Ok(()) } else { Err(format!("{value} {what}: give 1 to {most}")) }
}

fn above_zero(what: &str, value: Duration) -> Result<(), String> {
    if value.is_zero() { Err(format!("{what} is 0: give it a duration above nothing")) } else { Ok(()) }
}

/// Connections as an application would keep them.
#[derive(Clone, Debug)]
pub struct PoolUnderTest {
    /// The options of the pool core, the one that the proxy uses.
    pub config: PoolConfig,
    /// False: each operation opens a connection of its own and closes it (ephemeral clients).
    pub reuse: bool,
    /// Instances of the application, each with such a pool; operations go to them in turn.
    pub instances: u32,
    /// Open `min_size` connections before the load begins.
    pub warm: bool,
}

/// What is asked.
#[derive(Clone, Debug)]
pub enum Target {
    /// A PostgreSQL, or a pooler in front of one.
    Postgres(PostgresTarget),
    /// An HTTP service.
    Http(HttpTarget),
}

impl Target {
    /// Its URL.
    pub fn url(&self) -> &str {
        match self {
            Self::Postgres(target) => target.url.reveal(),
            Self::Http(target) => target.url.reveal(),
        }
    }
}

/// What is asked of a PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresTarget {
    /// Its URL.
    pub url: Secret,
    /// The scripts, with their weights.
    pub scripts: Vec<(Script, u32)>,
    /// How statements are sent.
    pub protocol: QueryProtocol,
    /// pgbench's scale factor, for its built-in scripts: 100,000 accounts each.
    pub scale: u32,
    /// The schema of the built-in scripts' tables.
    pub schema: String,
    /// `-D name=value` of the command line.
    pub variables: Vec<(String, String)>,
}

/// What one operation does: pgbench's language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Script {
    /// One account by its key.
    SelectOnly,
    /// pgbench's transaction in the manner of TPC-B.
    TpcbLike,
    /// The same without the tables that clients contend for.
    SimpleUpdate,
    /// A file, and its text.
    File(PathBuf, String),
}

/// How statements are sent, in pgbench's words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueryProtocol {
    /// One Query message each.
    #[default]
    Simple,
    /// Parse, Bind, Execute each time.
    Extended,
    /// Parse once for each connection.
    Prepared,
}

/// What is asked of an HTTP service.
#[derive(Clone, Debug)]
pub struct HttpTarget {
    /// `http://` or `https://`.
    pub url: Secret,
    /// `GET`, `POST`, ...
    pub method: String,
    /// Names and values; the values are templates.
    pub headers: Vec<(String, String)>,
    /// A template: `{{random 1 100}}`, `{{now}}`, `{{uuid}}`, `{{seq}}`.
    pub body: Option<String>,
    /// Statuses that are no errors; empty: 200 to 399.
    pub expect: Vec<u16>,
}
