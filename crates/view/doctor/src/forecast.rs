//! The interface of a simulation that predicts what a pool does under a load that was seen. Predicts nothing itself.

use std::time::Duration;

use admin_api::Times;
use serde::Serialize;

/// A simulation. The same question always gets the same answer.
pub trait Forecast {
    /// What a pool does under this load; `None` where the simulation would take too long.
    fn predict(&self, load: &Load, pool: &ForecastPool) -> Option<Effect>;
}

#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// When transactions begin.
    pub arrivals: Arrivals,
    /// How long transactions hold a server.
    pub hold: HoldTimes,
    /// How long making a connection takes.
    pub connect_time: Duration,
}

/// When transactions begin.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Arrivals {
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
        /// Transactions of a burst that are under way at once.
        at_once: u32,
        /// The time from the end of a burst to the beginning of the next.
        quiet: Duration,
    },
}

/// How long servers are held.
#[derive(Clone, PartialEq, Debug)]
pub struct HoldTimes {
    pub times: Times,
    /// Upper bounds of the buckets, in milliseconds; empty: only the mean is known.
    pub bounds_ms: Vec<f64>,
}

/// The settings of a pool that matter for a forecast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForecastPool {
    pub max_size: u32,
    pub min_size: u32,
    /// When an idle connection is closed; `None`: never.
    pub max_idle_time: Option<Duration>,
    /// Most connections that are made at a time; `None`: the default of the pool core.
    pub max_connecting: Option<u32>,
}

/// What a pool does, or did. A figure that is not known is null.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Effect {
    pub transactions_per_s: f64,
    /// One transaction in twenty waits longer than this for a server.
    pub wait_p95_ms: Option<f64>,
    /// Connections made an hour, after the start.
    pub created_an_hour: Option<f64>,
}
