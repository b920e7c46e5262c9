//! Figures of a load on a server by arithmetic, without simulation: Little's law at the mean and in a stall, and how
//! long a pool takes to grow.

use std::time::Duration;

use arrivals::Fault;
use load::plan::{Plan, Shape};
use serde::Serialize;

use crate::{question::Question, server::Spec};

/// Factor of the rule of thumb "processors x utilisation x factor". With it the rule meets the published case of 32
/// processors, for which 300 to 500 connections are best.
pub const RULE_FACTOR: f64 = 15.0;
/// Utilisation of that rule.
pub const RULE_UTILISATION: f64 = 0.8;
/// Share of the best throughput that [`Facts::server_best`] may lose.
const MAX_SERVER_LOSS: f64 = 0.05;
/// Share of the moments in which more operations are concurrent than [`rare_peak`] says.
const MAX_EXCESS_SHARE: f64 = 0.001;

/// Times are in milliseconds; unknown figures are null.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Facts {
    /// The highest rate of arrivals per second, of all instances together; null for a closed loop or bursts.
    pub peak_rate: Option<f64>,
    /// How long an operation holds a connection, without stalls.
    pub held_ms: f64,
    /// The same during the worst stall, or the time for which operations pile up in it if that is shorter.
    pub held_in_stall_ms: Option<f64>,
    /// Mean number of connections in use at the highest rate, by Little's law.
    pub in_use_at_mean: Option<f64>,
    pub in_use_in_stall: Option<f64>,
    /// Time to make a connection, without stalls.
    pub connect_ms: f64,
    /// Connections per second that the server's processors can make.
    pub connects_per_s: Option<f64>,
    /// Time to make a connection in the worst stall, which delays each answer of the login.
    pub connect_in_stall_ms: Option<f64>,
    /// Connections by the rule "processors x utilisation x factor".
    pub by_processors: Option<f64>,
    /// Operations of a burst at once, or clients of a closed loop.
    pub at_once: Option<u32>,
    /// Quiet time before each burst, in seconds of the real service.
    pub idle_gap_s: Option<f64>,
    /// The highest throughput per second of the measured server or of its processors, and the smallest concurrency
    /// within 5% of that.
    pub server_best: Option<(f64, u32)>,
    /// The highest measured concurrency.
    pub measured_until: Option<u32>,
    /// The reliable range of concurrency of a curve with low confidence.
    pub server_safe: Option<(u32, u32)>,
    /// If no point of the curve is reliable: what would make it reliable. No settings are recommended then.
    pub server_doubt: Option<String>,
}

impl Facts {
    pub fn of(question: &Question, load: &Plan) -> Self {
        let spec = &question.spec;
        let peak_rate = peak_rate(&load.shape);
        let held = spec.mean_hold_time(&load.faults);
        let late = stall_delay(spec, load);
        let held_in_stall = late.map(|late| held + late);
        let in_use = |held: Duration| peak_rate.map(|rate| rate * held.as_secs_f64());
        let connect = spec.mean_connect_time(&load.faults);
        let curve = spec.curve.as_ref();
        Self {
            peak_rate,
            held_ms: ms(held),
            held_in_stall_ms: held_in_stall.map(ms),
            in_use_at_mean: in_use(held),
            in_use_in_stall: held_in_stall.and_then(in_use),
            connect_ms: ms(connect),
            connects_per_s: spec
                .processors
                .filter(|_| !spec.connect.work.is_zero())
                .map(|processors| f64::from(processors.count) / spec.connect.work.as_secs_f64()),
            connect_in_stall_ms: worst_stall(load).map(|WorstStall { delay, length }| {
                // The answers of the login come one after the other, and those within the stall are late.
                let late = length.as_nanos().div_ceil(delay.as_nanos().max(1));
                let late = u32::try_from(late).unwrap_or(u32::MAX).min(spec.connect.trips() - 1);
                ms(connect + delay * late)
            }),
            by_processors: question.cpus.map(|cpus| f64::from(cpus) * RULE_UTILISATION * RULE_FACTOR),
            at_once: match load.shape {
                Shape::Burst { at_once, .. } => Some(at_once),
                Shape::Closed { clients, .. } => Some(clients),
                Shape::Open { .. } => None,
            },
            idle_gap_s: match load.shape {
                Shape::Burst { idle, .. } => Some(idle.as_secs_f64() * question.compression),
                Shape::Closed { .. } | Shape::Open { .. } => None,
            },
            server_best: match (curve, spec.processors) {
                (Some(curve), _) => Some(curve.best(MAX_SERVER_LOSS)),
                (None, Some(processors)) => Some(processors.best(spec.service.mean())),
                (None, None) => None,
            },
            measured_until: curve.and_then(|curve| curve.measured_until()),
            server_safe: curve.and_then(|curve| curve.safe()),
            server_doubt: curve.and_then(|curve| curve.doubt()).map(ToOwned::to_owned),
        }
    }

    /// The highest rate for which this number of connections suffices in the stall.
    pub fn max_rate_in_stall(&self, connections: u32) -> Option<f64> {
        self.held_in_stall_ms.map(|held| f64::from(connections) / (held / 1e3))
    }

    /// How long a pool takes to make the missing connections.
    pub fn growth_time(&self, missing: u32, at_a_time: u32) -> Duration {
        let turns = f64::from(missing.div_ceil(at_a_time.max(1)));
        let work = self.connects_per_s.map_or(0.0, |most| f64::from(missing) / most);
        Duration::from_secs_f64((turns * self.connect_ms / 1e3).max(work))
    }
}

/// The stall in which the most operations pile up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorstStall {
    /// The delay of each answer.
    pub delay: Duration,
    pub length: Duration,
}

pub fn worst_stall(load: &Plan) -> Option<WorstStall> {
    let end = match &load.shape {
        Shape::Open { stages, .. } => stages.iter().map(|stage| stage.duration).sum(),
        Shape::Closed { .. } | Shape::Burst { .. } => Duration::MAX,
    };
    let stalls = load.faults.iter().filter_map(|fault| match fault {
        Fault::Stall { delay, window } => Some((*window, *delay)),
        Fault::BlackHole { window } => Some((*window, window.length)),
        Fault::Delay { .. } | Fault::Forget { .. } | Fault::Cut { .. } => None,
    });
    // A stall after the end of the load counts only if none is within it.
    let worst = stalls.max_by_key(|(window, delay)| (window.first < end, (*delay).min(window.length), *delay));
    worst.map(|(window, delay)| WorstStall { delay, length: window.length })
}

/// Extra time for which an operation holds its connection in the worst stall. It is bounded by the stall's length,
/// because operations pile up only while the stall lasts.
fn stall_delay(spec: &Spec, load: &Plan) -> Option<Duration> {
    worst_stall(load).map(|stall| (stall.delay * spec.trips).min(stall.length))
}

fn peak_rate(shape: &Shape) -> Option<f64> {
    match shape {
        Shape::Open { stages, .. } => stages.iter().map(|stage| stage.from.max(stage.to)).reduce(f64::max),
        Shape::Closed { .. } | Shape::Burst { .. } => None,
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// The smallest number that a Poisson distribution with this mean exceeds with a probability of at most
/// [`MAX_EXCESS_SHARE`]. With random arrivals the number of concurrent operations has this distribution (M/G/infinity).
pub fn rare_peak(mean: f64) -> u32 {
    // With a large mean the distribution is nearly normal, and e^-mean underflows.
    if mean > 500.0 {
        // The normal quantile of the share is 3.1. The skewness adds 1.4 to the normal quantile (Cornish and Fisher
        // 1938), and rounding half a step.
        return (mean + 3.1 * mean.sqrt() + 2.0).ceil() as u32;
    }
    let (mut likely, mut sum, mut n) = ((-mean).exp(), (-mean).exp(), 0);
    while 1.0 - sum > MAX_EXCESS_SHARE && n < 10_000 {
        n += 1;
        likely *= mean / f64::from(n);
        sum += likely;
    }
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rare_peak_is_the_poisson_quantile_of_the_tables() {
        // P(N <= 12 | 5) = 0.9980, P(N <= 13 | 5) = 0.9993.
        assert_eq!([rare_peak(5.0), rare_peak(0.0)], [13, 0]);
        assert!((1090..1110).contains(&rare_peak(1000.0)));
        // Where the approximation begins it joins the sum, and never falls below it.
        let (sum, near) = (rare_peak(500.0), rare_peak(500.001));
        assert!((sum..=sum + 2).contains(&near), "{sum} and {near}");
    }
}
