//! What is to be run, as plain values: from a scenario file or from the command line.

mod defaults;

use std::{path::PathBuf, time::Duration};

pub use arrivals::{Fault, Shape, Spacing, Stage, Window};
pub use defaults::{DEFAULT_IN_FLIGHT, DEFAULT_ROUNDS, DEFAULT_TIMEOUT, PoolWishes, cut, window};
pub use pool::{ConfigError, PoolConfig};
use settings::Secret;

/// One run: everything that a result can be reproduced from.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What people call it: the scenario's name, or the command line's.
    pub name: String,
    pub target: Target,
    pub shape: Shape,
    pub pool: PoolUnderTest,
    /// On the way to the target; empty: straight to it.
    pub faults: Vec<Fault>,
    /// At the beginning of a run, not measured.
    pub warmup: Duration,
    /// An operation that has been under way for longer has failed (`timeout`).
    pub timeout: Duration,
    /// Seed of all random choices.
    pub seed: u64,
    /// Conditions that fail the run if they are true (`--fail-if`), as given: `p99>50ms`.
    pub fail_if: Vec<String>,
    /// The load runs in a process of its own, which is frozen in these windows: the server then sees a client that
    /// neither reads nor writes.
    pub freeze: Option<Window>,
    /// A Poolhouse is started in front of the target, for this run alone.
    pub poolhouse: Option<PoolhouseWishes>,
}

/// The keys that are given for a Poolhouse in front of a target; the others have Poolhouse's own defaults. `Some(None)`
/// is a time that is switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolhouseWishes {
    pub max_size: Option<u32>,
    /// How long a client waits for a server.
    pub max_wait_time: Option<Option<Duration>>,
    /// Number of clients from which on the longest idle ones are evicted.
    pub soft_limit: Option<u32>,
    /// Number of clients at which new ones are refused.
    pub hard_limit: Option<u32>,
    /// A client that has been idle for less is not evicted.
    pub evict_min_idle: Option<Duration>,
    /// Time after which an idle client is closed.
    pub client_idle_time: Option<Option<Duration>>,
}

impl PoolhouseWishes {
    /// These wishes, and those of `below` where these say nothing.
    #[must_use]
    pub fn over(self, below: &Self) -> Self {
        Self {
            max_size: self.max_size.or(below.max_size),
            max_wait_time: self.max_wait_time.or(below.max_wait_time),
            soft_limit: self.soft_limit.or(below.soft_limit),
            hard_limit: self.hard_limit.or(below.hard_limit),
            evict_min_idle: self.evict_min_idle.or(below.evict_min_idle),
            client_idle_time: self.client_idle_time.or(below.client_idle_time),
        }
    }
}

/// The most clients of a closed loop or of a burst.
pub const MAX_CLIENTS: u32 = 100_000;
/// The most operations of an open loop that have not ended.
pub const MAX_IN_FLIGHT: u32 = 1_000_000;
/// The most instances of the application.
pub const MAX_INSTANCES: u32 = 10_000;
/// The most connections of a run, which targets number.
pub const MAX_CONNECTIONS: u32 = 100_000;
/// The most stages of an open load.
pub const MAX_STAGES: usize = crate::record::MAX_STEPS;
/// The most operations per second.
pub const MAX_RATE: f64 = 10_000_000.0;

impl Plan {
    /// A run without faults, warm-up or conditions, with the default time-out.
    pub fn new(name: String, target: Target, shape: Shape, pool: PoolUnderTest) -> Self {
        Self {
            name,
            target,
            shape,
            pool,
            faults: Vec::new(),
            warmup: Duration::ZERO,
            timeout: DEFAULT_TIMEOUT,
            seed: 1,
            fail_if: Vec::new(),
            freeze: None,
            poolhouse: None,
        }
    }

    /// Whether it can be run: says what is wrong, and what to do.
    pub fn check(&self) -> Result<(), String> {
        self.pool.config.validate().map_err(|error| error.to_string())?;
        within("instances", self.pool.instances, MAX_INSTANCES)?;
        if self.timeout.is_zero() {
            return Err("the time-out of an operation is 0: give it a duration above nothing".to_owned());
        }
        if self.freeze.is_some() && !self.faults.is_empty() {
            return Err(
                "a load whose process is frozen goes straight to its target: faults on the way cannot be had beside it"
                    .to_owned(),
            );
        }
        self.check_goodbyes()?;
        self.check_connections()?;
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

impl Plan {
    /// Whether connections that stay open have numbers.
    fn check_goodbyes(&self) -> Result<(), String> {
        let PoolUnderTest { reuse, goodbye, blind, .. } = self.pool;
        match () {
            () if reuse && !goodbye => {
                return Err("a goodbye is left out only where each operation has a connection of its own".to_owned());
            }
            () if !reuse && blind => {
                return Err("only a pool with reuse has idle connections that are not looked at".to_owned());
            }
            () if goodbye => return Ok(()),
            () => {}
        }
        // Arrivals at random may be some more than are expected.
        let room = f64::from(MAX_CONNECTIONS) * 0.9;
        match self.operations() {
            Some(operations) if operations <= room => Ok(()),
            Some(operations) => {
                Err(format!("{operations:.0} connections that stay open: let {room:.0} operations arrive at most"))
            }
            None => Err(
                "clients that never say goodbye open connections without end: give the load a rate, or `operations`"
                    .to_owned(),
            ),
        }
    }

    /// How many operations are expected; `None`: as many as there is time for.
    fn operations(&self) -> Option<f64> {
        match &self.shape {
            Shape::Closed { operations, .. } => operations.map(|operations| operations as f64),
            Shape::Open { stages, .. } => {
                let first = stages.first().map_or(0.0, |stage| stage.from);
                Some(stages.iter().map(Stage::expected).sum::<f64>() + first * self.warmup.as_secs_f64())
            }
            Shape::Burst { size, rounds, .. } => Some(f64::from(*size) * f64::from(*rounds)),
        }
    }

    /// The most connections that are sure to be needed at one time.
    pub fn sure_connections(&self) -> u64 {
        match (&self.pool, self.operations()) {
            (PoolUnderTest { reuse: true, config, instances, .. }, _) => {
                u64::from(config.min_size) * u64::from(*instances)
            }
            (PoolUnderTest { goodbye: false, .. }, Some(operations)) => operations as u64,
            _ => 0,
        }
    }

    /// Whether the connections that there may be at one time have numbers.
    fn check_connections(&self) -> Result<(), String> {
        let PoolUnderTest { config, reuse, instances, .. } = &self.pool;
        let (at_once, limit) = match &self.shape {
            Shape::Closed { clients, .. } => (*clients, "clients"),
            Shape::Open { max_in_flight, .. } => (*max_in_flight, "max_in_flight"),
            Shape::Burst { at_once, .. } => (*at_once, "at_once"),
        };
        let most = u64::from(MAX_CONNECTIONS);
        let too_many = |what: String, advice: &str| Err(format!("{what}: give {advice}, {MAX_CONNECTIONS} at most"));
        if !reuse {
            return match u64::from(at_once) > most {
                true => too_many(
                    format!("{at_once} {limit}, each with a connection of its own"),
                    &format!("a smaller `{limit}`"),
                ),
                false => Ok(()),
            };
        }
        // A pool without `max_size` has as many connections as operations at once, and at least `min_size`.
        let (size, of) = match config.max_size {
            0 => {
                (u64::from(at_once.max(config.min_size)), format!("a pool without max_size, up to {at_once} ({limit})"))
            }
            size => (u64::from(size), format!("a max_size of {size}")),
        };
        let all = size * u64::from(*instances);
        match all > most {
            true => too_many(
                format!("{instances} instances with {of} are up to {all} connections"),
                "fewer instances or a smaller max_size",
            ),
            false => Ok(()),
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
    /// Instances of the application, each with such a pool. In a closed loop each client belongs to one; random
    /// arrivals choose one at random, others go to them in turn.
    pub instances: u32,
    /// Open `min_size` connections before the load begins.
    pub warm: bool,
    /// False, without reuse: a connection is not closed after its operation, but stays open until the run or the server
    /// ends it, as that of a frozen function does.
    pub goodbye: bool,
    /// Like a library that does not look at its idle connections: that one is lost is noticed when it is used next, and
    /// fails that operation.
    pub blind: bool,
}

#[derive(Clone, Debug)]
pub enum Target {
    /// A PostgreSQL, or a pooler in front of one.
    Postgres(PostgresTarget),
    /// A Redis, or a pooler in front of one.
    Redis(RedisTarget),
    /// A MongoDB, or a pooler in front of one.
    MongoDb(MongoTarget),
    Http(HttpTarget),
}

impl Target {
    pub fn url(&self) -> &str {
        match self {
            Self::Postgres(target) => target.url.reveal(),
            Self::Redis(target) => target.url.reveal(),
            Self::MongoDb(target) => target.url.reveal(),
            Self::Http(target) => target.url.reveal(),
        }
    }

    /// A PostgreSQL without an address, for a load that is only simulated.
    pub fn nowhere() -> Self {
        let target = PostgresTarget::new(Secret::new(""), vec![(Script::SelectOnly, 1)]);
        Self::Postgres(PostgresTarget { protocol: QueryProtocol::Prepared, ..target })
    }

    /// Directs the target to another server, which speaks the same protocol.
    pub fn point_at(&mut self, url: &Secret) {
        *match self {
            Self::Postgres(target) => &mut target.url,
            Self::Redis(target) => &mut target.url,
            Self::MongoDb(target) => &mut target.url,
            Self::Http(target) => &mut target.url,
        } = url.clone();
    }
}

/// What is asked of a PostgreSQL.
#[derive(Clone, Debug)]
pub struct PostgresTarget {
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

impl PostgresTarget {
    /// The schema of the built-in scripts' tables, where no other is given.
    pub const SCHEMA: &str = "poolhouse_bench";

    /// These scripts at scale 1, by simple queries.
    pub fn new(url: Secret, scripts: Vec<(Script, u32)>) -> Self {
        let (protocol, schema) = (QueryProtocol::Simple, Self::SCHEMA.to_owned());
        Self { url, scripts, protocol, scale: 1, schema, variables: Vec::new() }
    }
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

/// What is asked of a Redis.
#[derive(Clone, Debug)]
pub struct RedisTarget {
    pub url: Secret,
    /// What one operation does.
    pub work: RedisWork,
    /// `-D name=value` of the command line.
    pub variables: Vec<(String, String)>,
}

/// What one operation does.
#[derive(Clone, PartialEq, Debug)]
pub enum RedisWork {
    Ping,
    /// A read or a write of one key, each as likely as any other.
    GetSet {
        /// The share of writes, from 0 to 1.
        writes: f64,
        /// How many keys there are.
        keys: u32,
        /// Bytes of a value that is written.
        value_size: u32,
    },
    /// The commands of a script, one after the other.
    Scripts(Vec<CommandScript>),
}

impl RedisWork {
    /// Keys of [`RedisWork::GetSet`].
    pub const MAX_KEYS: u32 = 1_000_000_000;
    /// Bytes of a value.
    pub const MAX_VALUE: u32 = 16 << 20;

    /// Reads and writes; what is not said is one write in ten, 100,000 keys, and values of 100 bytes.
    pub fn get_set(writes: Option<f64>, keys: Option<u32>, value_size: Option<u32>) -> Self {
        Self::GetSet {
            writes: writes.unwrap_or(0.1),
            keys: keys.unwrap_or(100_000),
            value_size: value_size.unwrap_or(100),
        }
    }
}

/// What is asked of a MongoDB.
#[derive(Clone, Debug)]
pub struct MongoTarget {
    pub url: Secret,
    /// What one operation does.
    pub work: MongoWork,
    /// `-D name=value` of the command line.
    pub variables: Vec<(String, String)>,
}

/// What one operation does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MongoWork {
    Ping,
    /// One command of the built-in ones.
    BuiltIn {
        operation: MongoOperation,
        /// How many documents there are.
        documents: u32,
        /// Bytes of a value that is written.
        value_size: u32,
    },
    /// The commands of a script, one after the other.
    Scripts(Vec<CommandScript>),
}

impl MongoWork {
    /// Documents of the built-in commands.
    pub const MAX_DOCUMENTS: u32 = 100_000_000;
    /// Bytes of a value, so that a batch of documents fits a message.
    pub const MAX_VALUE: u32 = 40_000;

    /// A built-in command; what is not said is 10,000 documents, and values of 100 bytes.
    pub fn built_in(operation: MongoOperation, documents: Option<u32>, value_size: Option<u32>) -> Self {
        Self::BuiltIn { operation, documents: documents.unwrap_or(10_000), value_size: value_size.unwrap_or(100) }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MongoOperation {
    /// One document by its id.
    FindOne,
    Insert,
    /// A counter in one document.
    Update,
    /// A sum over a hundred documents.
    Aggregate,
}

impl MongoOperation {
    pub const ALL: [(&str, Self); 4] = [
        ("find-one", Self::FindOne),
        ("insert", Self::Insert),
        ("update", Self::Update),
        ("aggregate", Self::Aggregate),
    ];

    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, operation)| *operation == self).map_or("", |(name, _)| name)
    }
}

/// A script of commands: of Redis one in each line, of MongoDB documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandScript {
    /// What people call it: the file's name.
    pub name: String,
    pub text: String,
    /// How often it is chosen beside others.
    pub weight: u32,
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

/// How a sweep over numbers of clients measures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SweepOptions {
    pub from: u32,
    pub to: u32,
    /// Times that a point in question is measured.
    pub rounds: u32,
    /// What each measurement counts.
    pub duration: Duration,
    /// What it leaves out before.
    pub warmup: Duration,
    /// For the order of points and for resampling.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(shape: Shape, wishes: PoolWishes) -> Plan {
        let pool = wishes.pool(&shape);
        Plan::new("test".to_owned(), Target::nowhere(), shape, pool)
    }

    fn open(max_in_flight: u32) -> Shape {
        let stages = vec![Stage { duration: Duration::from_secs(1), from: 10.0, to: 10.0 }];
        Shape::Open { stages, spacing: Spacing::Even, max_in_flight }
    }

    #[test]
    fn more_connections_than_there_are_numbers_for_are_refused_with_what_to_do() {
        let large = PoolWishes { max_size: Some(150_000), min_size: Some(150_000), ..PoolWishes::default() };
        let said = plan(open(10), large).check().unwrap_err();
        assert!(said.contains("150000 connections") && said.contains("100000 at most"), "{said}");
        let many = PoolWishes { max_size: Some(1000), instances: Some(101), ..PoolWishes::default() };
        assert!(plan(open(10), many).check().unwrap_err().contains("101000 connections"));
        let many = PoolWishes { instances: Some(100), ..many };
        assert_eq!(plan(open(10), many).check(), Ok(()));
        let endless = PoolWishes { max_size: Some(0), ..PoolWishes::default() };
        assert_eq!(plan(open(100_000), endless).check(), Ok(()));
        assert!(plan(open(100_001), endless).check().unwrap_err().contains("max_in_flight"));
    }

    #[test]
    fn operations_with_a_connection_each_are_as_many_as_there_are_numbers_for() {
        let single = PoolWishes { reuse: Some(false), ..PoolWishes::default() };
        assert_eq!(plan(open(100_000), single).check(), Ok(()));
        let said = plan(open(100_001), single).check().unwrap_err();
        assert!(said.contains("a smaller `max_in_flight`, 100000 at most"), "{said}");
        assert_eq!(plan(open(100_001), PoolWishes::default()).check(), Ok(()), "a pool limits them");
    }

    #[test]
    fn connections_that_stay_open_are_as_many_as_there_are_numbers_for() {
        let open_left = PoolWishes { reuse: Some(false), goodbye: Some(false), ..PoolWishes::default() };
        assert_eq!(plan(open(100), open_left).check(), Ok(()));
        let stages = vec![Stage { duration: Duration::from_secs(100), from: 1000.0, to: 1000.0 }];
        let flood = Shape::Open { stages, spacing: Spacing::Even, max_in_flight: 100 };
        assert!(plan(flood, open_left).check().unwrap_err().contains("100000 connections that stay open"));
        let closed = |operations| Shape::Closed {
            clients: 1,
            think: Duration::ZERO,
            duration: Duration::from_secs(1),
            operations,
        };
        assert!(plan(closed(None), open_left).check().unwrap_err().contains("`operations`"));
        let limited = plan(closed(Some(500)), open_left);
        assert_eq!((limited.check(), limited.sure_connections()), (Ok(()), 500));
        let kept = PoolWishes { goodbye: Some(false), ..PoolWishes::default() };
        assert!(plan(open(10), kept).check().unwrap_err().contains("goodbye"));
        let blind = PoolWishes { reuse: Some(false), blind: Some(true), ..PoolWishes::default() };
        assert!(plan(open(10), blind).check().unwrap_err().contains("only a pool with reuse"));
    }

    #[test]
    fn a_frozen_load_goes_straight_to_its_target() {
        let mut plan = plan(open(10), PoolWishes::default());
        plan.freeze = Some(window(None, Duration::from_secs(1), None).unwrap());
        assert_eq!(plan.check(), Ok(()));
        plan.faults = vec![Fault::Delay { delay: Duration::from_millis(1), jitter: Duration::ZERO }];
        assert!(plan.check().unwrap_err().contains("frozen"));
    }
}
