//! The load, as flags of the command line.

use std::time::Duration;

use ::load::plan::{
    DEFAULT_IN_FLIGHT, DEFAULT_ROUNDS, DEFAULT_TIMEOUT, MAX_CLIENTS, MAX_IN_FLIGHT, MAX_RATE, Shape, Spacing, Stage,
};
use clap::{Args, value_parser};

use crate::request_flags::warmup;

const DEFAULT_CLIENTS: u32 = 10;
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
const DEFAULT_IDLE: Duration = Duration::from_secs(30);

/// How operations arrive.
#[derive(Args, PartialEq, Default)]
#[command(next_help_heading = "Load")]
pub struct LoadFlags {
    /// Closed loop: number of clients [default: 10]
    #[arg(long, short, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)),
          conflicts_with_all = ["rate", "stage", "burst"])]
    clients: Option<u32>,

    /// Pause of a client between two operations
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, conflicts_with_all = ["rate", "stage",
          "burst"])]
    think: Option<Duration>,

    /// End after this many operations, if that is earlier
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..), conflicts_with_all = ["rate", "stage",
          "burst"])]
    operations: Option<u64>,

    /// Open loop: operations that arrive each second (with --stage: the rate at which the first stage begins)
    #[arg(long, value_name = "R", value_parser = rate, conflicts_with = "burst")]
    rate: Option<f64>,

    /// Open loop: one stage, as DURATION:RATE or DURATION:FROM..TO (see below). May be given several times
    #[arg(long, value_name = "STAGE", value_parser = stage, conflicts_with_all = ["burst", "duration"])]
    stage: Vec<StageText>,

    /// Open loop: operations arrive at random (Poisson), not evenly
    #[arg(long, conflicts_with_all = ["clients", "burst"])]
    poisson: bool,

    /// Open loop: most operations under way at a time; more are dropped, and counted [default: 10000]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_IN_FLIGHT)),
          conflicts_with = "burst")]
    max_in_flight: Option<u32>,

    /// Bursts: operations in a burst, each after an idle time
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)))]
    burst: Option<u32>,

    /// Bursts: the idle time before each [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on, requires = "burst")]
    idle: Option<Duration>,

    /// Bursts: how many there are [default: 5]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)),
          requires = "burst")]
    rounds: Option<u32>,

    /// Bursts: operations under way at once; 1 is one after the other [default: all]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MAX_CLIENTS)),
          requires = "burst")]
    at_once: Option<u32>,

    /// How long the measured load lasts, without the warm-up [default: 10s]
    #[arg(long, short, value_name = "TIME", value_parser = settings::parse_duration_on, conflicts_with = "burst")]
    duration: Option<Duration>,

    /// How long the load runs before that, unmeasured [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = warmup, conflicts_with = "burst")]
    warmup: Option<Duration>,

    /// An operation that takes longer has failed [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = settings::parse_duration_on)]
    timeout: Option<Duration>,
}

/// A stage as it was written: where it begins may depend on the one before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StageText {
    duration: Duration,
    from: Option<f64>,
    to: f64,
}

impl LoadFlags {
    /// The shape of load.
    pub fn shape(&self) -> Shape {
        if let Some(size) = self.burst {
            return Shape::Burst {
                size,
                at_once: self.at_once.unwrap_or(size),
                idle: self.idle.unwrap_or(DEFAULT_IDLE),
                rounds: self.rounds.unwrap_or(DEFAULT_ROUNDS),
            };
        }
        let duration = self.duration.unwrap_or(DEFAULT_DURATION);
        let stages = match (self.stage.as_slice(), self.rate) {
            ([], None) => {
                return Shape::Closed {
                    clients: self.clients.unwrap_or(DEFAULT_CLIENTS),
                    think: self.think.unwrap_or_default(),
                    duration,
                    operations: self.operations,
                };
            }
            ([], Some(rate)) => vec![Stage { duration, from: rate, to: rate }],
            (texts, start) => stages(texts, start),
        };
        let spacing = if self.poisson { Spacing::Poisson } else { Spacing::Even };
        Shape::Open { stages, spacing, max_in_flight: self.max_in_flight.unwrap_or(DEFAULT_IN_FLIGHT) }
    }

    /// The time before the measurement.
    pub fn warmup(&self) -> Duration {
        self.warmup.unwrap_or_default()
    }

    /// How long an operation may take.
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(DEFAULT_TIMEOUT)
    }
}

/// Each begins where it says, or at the rate of the one before; the first at `start`, or else at its own rate.
fn stages(texts: &[StageText], start: Option<f64>) -> Vec<Stage> {
    let mut before = start;
    let stage = |text: &StageText| {
        let from = text.from.or(before).unwrap_or(text.to);
        before = Some(text.to);
        Stage { duration: text.duration, from, to: text.to }
    };
    texts.iter().map(stage).collect()
}

/// Operations per second.
pub fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.trim_end_matches("/s").parse().map_err(|_| "a rate is a number of operations per second")?;
    if (0.0..=MAX_RATE).contains(&rate) { Ok(rate) } else { Err(format!("a rate is from 0 to {MAX_RATE}")) }
}

fn stage(text: &str) -> Result<StageText, String> {
    let (duration, rates) =
        text.split_once(':').ok_or("a stage is DURATION:RATE, for example 1m:300, or 1m:100..300")?;
    let duration = settings::parse_duration_on(duration)?;
    match rates.split_once("..") {
        Some((from, to)) => Ok(StageText { duration, from: Some(rate(from)?), to: rate(to)? }),
        None => Ok(StageText { duration, from: None, to: rate(rates)? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramps(texts: &[&str], start: Option<f64>) -> Vec<(f64, f64)> {
        let texts: Vec<StageText> = texts.iter().map(|text| stage(text).unwrap()).collect();
        stages(&texts, start).iter().map(|stage| (stage.from, stage.to)).collect()
    }

    #[test]
    fn a_stage_with_one_number_is_a_ramp_from_the_one_before() {
        assert_eq!(ramps(&["1m:100", "1m:300", "30s:300"], None), [(100.0, 100.0), (100.0, 300.0), (300.0, 300.0)]);
        assert_eq!(ramps(&["1m:100", "1m:300"], Some(0.0)), [(0.0, 100.0), (100.0, 300.0)]);
        assert_eq!(
            ramps(&["1m:100..100", "1m:500..500", "1m:5"], None),
            [(100.0, 100.0), (500.0, 500.0), (500.0, 5.0)]
        );
    }

    #[test]
    fn what_is_no_stage_is_explained() {
        for text in ["300", "1m", "1m:", "1m:a..b", "0s:300", "1m:-5", "1m:5..", "1m:NaN"] {
            assert!(stage(text).is_err(), "{text}");
        }
    }
}
