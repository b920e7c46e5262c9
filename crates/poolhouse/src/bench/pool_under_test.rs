//! The pool under test, as flags of the command line.

use std::time::Duration;

use ::load::plan::{MAX_INSTANCES, PoolUnderTest, PoolWishes, Shape};
use clap::{Args, value_parser};

use crate::serve::{Off, time};

/// The pool under test.
#[derive(Args, PartialEq, Default)]
#[command(next_help_heading = "Pool under test (closed loop: by default a connection for each client)")]
pub struct PoolFlags {
    /// Most connections of a pool [default: 20; closed loop: --clients, shared by the instances]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    max_size: Option<u32>,

    /// Connections kept even when idle, and made before the load begins [default: 0; closed loop: as --max-size]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(..=1_000_000))]
    min_size: Option<u32>,

    /// When an idle connection is closed [default: 5m; closed loop: off]
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_idle_time: Option<Off<Duration>>,

    /// When a connection is replaced by a new one [default: 30m; closed loop: off]
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_life_time: Option<Off<Duration>>,

    /// How long an operation waits for a connection [default: 2s; closed loop: off]
    #[arg(long, value_name = "TIME", value_parser = time)]
    max_wait_time: Option<Off<Duration>>,

    /// Most connections being made at a time [default: 2; closed loop: 16]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_000_000))]
    max_connecting: Option<u32>,

    /// How long making a connection may take [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on)]
    connect_time: Option<Duration>,

    /// No pool: each operation opens a connection and closes it again
    #[arg(long, conflicts_with_all = ["max_size", "min_size", "max_idle_time", "max_life_time", "max_wait_time",
          "max_connecting",
                                      "instances"])]
    no_reuse: bool,

    /// With --no-reuse: do not close connections. Each stays open until the server or the run ends it, like that of a
    /// frozen function
    #[arg(long, requires = "no_reuse")]
    no_goodbye: bool,

    /// Like a library that does not look at idle connections: notice a lost one only at its next use, which then fails
    #[arg(long, conflicts_with = "no_reuse")]
    blind: bool,

    /// Instances of the application, each with a pool of its own [default: 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_INSTANCES)))]
    instances: Option<u32>,
}

impl PoolFlags {
    /// The pool for a load, with the defaults of a scenario file.
    pub fn pool(&self, shape: &Shape) -> PoolUnderTest {
        self.wishes().pool(shape)
    }

    /// The settings that are given.
    pub fn wishes(&self) -> PoolWishes {
        let time = |flag: Option<Off<Duration>>| flag.map(|Off(time)| time);
        PoolWishes {
            max_size: self.max_size,
            min_size: self.min_size,
            max_connecting: self.max_connecting,
            max_idle_time: time(self.max_idle_time),
            max_life_time: time(self.max_life_time),
            max_wait_time: time(self.max_wait_time),
            connect_time: self.connect_time,
            reuse: self.no_reuse.then_some(false),
            instances: self.instances,
            warm: None,
            goodbye: self.no_goodbye.then_some(false),
            blind: self.blind.then_some(true),
        }
    }
}
