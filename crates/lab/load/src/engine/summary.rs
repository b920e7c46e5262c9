//! The result of a run: the metrics, the plan in words, and warnings that a reader needs.

use std::time::Duration;

use arrivals::{Shape, Spacing};
use pool::{PoolConfig, Time};

use super::{Engine, load::Lateness};
use crate::{
    describe,
    plan::{Plan, PoolUnderTest, Target},
    record::MAX_SECONDS,
};
use report::{
    histogram::Histogram,
    result::{About, BenchResult, FORMAT, Measured},
};

/// Arrivals for each late one, below which the report warns.
const MIN_ARRIVALS_PER_LATE: u64 = 100;
/// Ratio of the 99th percentile corrected for coordinated omission to the measured one, above which the report warns
/// that a closed loop is blind.
const MAX_OMISSION_RATIO: f64 = 2.0;
/// Operations that percentiles need.
const MIN_OPERATIONS: u64 = 100;

/// The plan in words.
#[derive(Debug)]
pub struct RunDescription {
    name: String,
    about: About,
}

impl RunDescription {
    /// Describes a plan. The target's URL is left out: it may contain a password.
    pub fn new(plan: &Plan) -> Self {
        let (shape, load) = describe_shape(&plan.shape);
        let load = match plan.warmup {
            Duration::ZERO => load,
            warmup => format!("{load}, after {warmup:?} of warm-up"),
        };
        let target = match &plan.target {
            Target::Postgres(_) => "postgres",
            Target::Redis(_) => "redis",
            Target::MongoDb(_) => "mongodb",
            Target::Http(_) => "http",
        };
        let about = About {
            seed: plan.seed,
            shape: shape.to_owned(),
            load,
            asks: Some(describe::requests(&plan.target)),
            way: Some(describe::path(plan)),
            pool: describe_pool(&plan.pool),
            target: target.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..About::default()
        };
        Self { name: plan.name.clone(), about }
    }
}

impl Engine {
    /// The measurements until now. The caller adds what the engine does not know: the server's version, the machine,
    /// the time of day, processor time.
    pub fn result(&self, now: Time) -> BenchResult {
        let total = self.metrics.total_result(now);
        let warnings = self.warnings(&total);
        BenchResult {
            format: FORMAT,
            name: self.description.name.clone(),
            about: self.description.about.clone(),
            total,
            steps: self.metrics.step_results(now),
            series: self.metrics.series().to_vec(),
            error_texts: self.metrics.error_texts().clone(),
            interrupted: self.interrupted,
            warnings,
        }
    }

    fn warnings(&self, total: &Measured) -> Vec<String> {
        let mut warnings = Vec::new();
        let failed: u64 = total.errors.values().sum();
        if total.requests == 0 {
            warnings.push("No operation ended well.".to_owned());
        } else if total.requests < MIN_OPERATIONS {
            let requests = total.requests;
            warnings.push(format!("Only {requests} operations ended well: high percentiles of so few say little."));
        }
        if failed > 0 && failed * 100 > total.requests {
            warnings.push(format!("{failed} operations failed; percentiles leave out those that failed quickly."));
        }
        if total.dropped > 0 {
            let dropped = total.dropped;
            warnings.push(format!("{dropped} arrivals were dropped, as too many operations had not ended."));
        }
        if self.load.is_closed() {
            warnings.extend(stall_warning(&self.metrics.all_responses()));
        }
        let Lateness { arrivals, late, worst } = self.load.lateness();
        if late * MIN_ARRIVALS_PER_LATE > arrivals {
            warnings.push(format!(
                "The load generator itself was late for {late} of {arrivals} arrivals, by up to {:.1} ms; response \
                 times count from the schedule nevertheless.",
                worst.as_secs_f64() * 1e3
            ));
        }
        if self.metrics.series().len() == MAX_SECONDS {
            warnings.push(format!("The series by second ends after {MAX_SECONDS} s; the percentiles are of all."));
        }
        warnings
    }
}

/// Warns if a closed loop has overlooked a stall: a client that waits for an answer sends no request.
fn stall_warning(responses: &Histogram) -> Option<String> {
    let (seen, max) = (responses.quantile_ms(0.99)?, responses.max_ms()?);
    let likely = responses.corrected().quantile_ms(0.99)?;
    (likely > MAX_OMISSION_RATIO * seen).then(|| {
        format!(
            "A closed loop is blind to stalls: for up to {max:.0} ms clients waited and asked nothing. Had they kept \
             asking as often as before, p99 would be about {likely:.1} ms, not {seen:.1}. Measure with an open loop \
             (--rate)."
        )
    })
}

fn describe_shape(shape: &Shape) -> (&'static str, String) {
    match shape {
        Shape::Closed { clients, think, duration, operations } => {
            let mut text = format!("{clients} clients for {duration:?}");
            if let Some(operations) = operations {
                text += &format!(", at most {operations} operations");
            }
            if !think.is_zero() {
                text += &format!(", each pausing for {think:?}");
            }
            ("closed", text)
        }
        Shape::Open { stages, spacing, max_in_flight } => {
            let stage = |stage| format!("{} for {:?}", super::load::stage_name(stage), stage.duration);
            let stages: Vec<String> = stages.iter().map(stage).collect();
            let spacing = match spacing {
                Spacing::Even => "evenly spaced",
                Spacing::Poisson => "at random (Poisson)",
            };
            ("open", format!("{}, {spacing}, at most {max_in_flight} in flight", stages.join(", then ")))
        }
        Shape::Burst { size, at_once, idle, rounds } => (
            "burst",
            format!("{rounds} bursts of {size} operations, {at_once} at once, each after {idle:?} of idleness"),
        ),
    }
}

fn describe_pool(pool: &PoolUnderTest) -> String {
    if !pool.reuse {
        let unclosed = if pool.goodbye { "" } else { ", which is not closed" };
        return format!("none: a connection for each operation{unclosed}");
    }
    let PoolConfig { max_size, min_size, max_connecting, .. } = pool.config;
    let limit = |time: Option<Duration>| time.map_or("off".to_owned(), |time| format!("{time:?}"));
    let instances = match pool.instances {
        1 => String::new(),
        n => format!("{n} instances, each with "),
    };
    let blind = if pool.blind { ", does not look at idle connections" } else { "" };
    format!(
        "{instances}max_size {max_size}, min_size {min_size}, max_idle_time {}, max_life_time {}, max_wait_time {}, \
         max_connecting {max_connecting}{blind}",
        limit(pool.config.max_idle_time),
        limit(pool.config.max_life_time),
        limit(pool.config.max_wait_time),
    )
}
