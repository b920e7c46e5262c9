//! The interface of a simulation that predicts what a pool does under a load that was seen. Predicts nothing itself.

use std::time::Duration;

use admin_api::Times;
use serde::Serialize;

/// A simulation. The same question always gets the same answer.
pub trait Forecast {
    /// What such a pool does under this load; `None`: nothing more is predicted, as that takes time.
    fn play(&self, load: &Load, pool: &Sizes) -> Option<Effect>;
}

#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// When transactions are begun.
    pub begins: Begins,
    /// How long they hold a server.
    pub held: Held,
    /// How long making a connection takes.
    pub connecting: Duration,
}

/// When transactions are begun.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Begins {
    /// Each client begins a transaction when `pause` has passed since the end of its last one.
    Clients { clients: u32, pause: Duration },
    /// Transactions of many clients arrive at random.
    AtRandom {
        /// Transactions a second.
        rate: f64,
    },
    /// Many at once, and nothing before the next such burst.
    Bursts {
        /// Transactions of a burst.
        size: u32,
        /// How many of them are under way at once.
        at_once: u32,
        /// From the end of one burst to the beginning of the next.
        quiet: Duration,
    },
}

/// How long servers are held.
#[derive(Clone, PartialEq, Debug)]
pub struct Held {
    pub times: Times,
    /// Upper bounds of the buckets, in milliseconds; empty: only the mean is known.
    pub bounds_ms: Vec<f64>,
}

/// A pool, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sizes {
    pub max_size: u32,
    pub min_size: u32,
    /// When an idle one is closed; `None`: never.
    pub max_idle_time: Option<Duration>,
    /// Most that are made at a time; `None`: as many as the pool core makes if nothing is said.
    pub max_connecting: Option<u32>,
}

/// What a pool does, or did. What is not known is null.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Effect {
    /// Transactions a second.
    pub transactions_per_s: f64,
    /// One transaction in twenty waits longer than this for a server, in milliseconds.
    pub wait_p95_ms: Option<f64>,
    /// Connections made an hour, after the start.
    pub created_an_hour: Option<f64>,
}
