//! `[sweep]`: at how many clients a database stops gaining, instead of a load.

use std::time::Duration;

use settings::Section;

use crate::plan::{SweepOptions, Target};

pub(super) const KEYS: &[&str] = &["from", "to", "rounds", "point_time", "warmup", "timeout", "through_clients"];

/// Most clients of a sweep.
const MAX_CLIENTS: u32 = 10_000;
/// What is not said is as on the command line of `poolhouse sweep`.
const TO: u32 = 256;
const ROUNDS: u32 = 7;
const POINT_TIME: Duration = Duration::from_secs(3);
const WARMUP: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(30);

/// A sweep that a scenario asks for.
#[derive(Clone, Debug)]
pub struct SweepPlan {
    pub target: Target,
    pub options: SweepOptions,
    /// Clients up to which a second curve is measured, through a pooler with the recommended number of connections.
    pub through_clients: Option<u32>,
    /// When an operation has failed.
    pub timeout: Duration,
}

/// The keys of one table, each as it is or absent.
#[derive(Clone, Default)]
pub(super) struct SweepKeys {
    from: Option<u32>,
    to: Option<u32>,
    rounds: Option<u32>,
    point_time: Option<Duration>,
    warmup: Option<Duration>,
    timeout: Option<Duration>,
    through_clients: Option<u32>,
}

impl SweepKeys {
    pub(super) fn read(section: &Section<'_>) -> Self {
        Self {
            from: section.number("from", 1..=MAX_CLIENTS),
            to: section.number("to", 2..=MAX_CLIENTS),
            rounds: section.number("rounds", 1..=100),
            point_time: section.duration_on("point_time"),
            warmup: section.duration_on("warmup"),
            timeout: section.duration_on("timeout"),
            through_clients: section.number("through_clients", 2..=MAX_CLIENTS),
        }
    }

    pub(super) fn over(self, below: &Self) -> Self {
        Self {
            from: self.from.or(below.from),
            to: self.to.or(below.to),
            rounds: self.rounds.or(below.rounds),
            point_time: self.point_time.or(below.point_time),
            warmup: self.warmup.or(below.warmup),
            timeout: self.timeout.or(below.timeout),
            through_clients: self.through_clients.or(below.through_clients),
        }
    }

    pub(super) fn plan(&self, target: Target, seed: u64) -> Result<SweepPlan, String> {
        let (from, to) = (self.from.unwrap_or(1), self.to.unwrap_or(TO));
        if from >= to {
            return Err(format!("the sweep goes from {from} to {to} clients: `to` must be larger than `from`"));
        }
        if let Some(through) = self.through_clients.filter(|&through| through < from) {
            return Err(format!(
                "the sweep begins at {from} clients, and through a pooler {through} are the most: `through_clients` \
                 must be at least `from`"
            ));
        }
        let options = SweepOptions {
            from,
            to,
            rounds: self.rounds.unwrap_or(ROUNDS),
            duration: self.point_time.unwrap_or(POINT_TIME),
            warmup: self.warmup.unwrap_or(WARMUP),
            seed,
        };
        let timeout = self.timeout.unwrap_or(TIMEOUT);
        Ok(SweepPlan { target, options, through_clients: self.through_clients, timeout })
    }
}
