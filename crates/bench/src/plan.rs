//! What is to be run, as plain values: from a scenario file or from the command line.

use std::{path::PathBuf, time::Duration};

use pool::PoolConfig;
use settings::Secret;
use workload::{Fault, Shape};

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
