//! The loads that candidates are judged by: with what is advised whatever their sizes, with the sizes, and as a part of
//! the whole where that tells as much. Judges nothing.

use std::time::Duration;

use arrivals::{Fault, Spacing, Stage, Window};
use load::plan::{Plan, PoolConfig, Shape};

use crate::{question::Question, sizes::Sizes, upkeep::Upkeep};

/// A candidate is judged by at most about so many operations of each load; the answer itself by all.
const MOST_OPERATIONS: f64 = 300_000.0;
/// Arrivals at random are no more than are expected, this many standard deviations, and this many besides (Chernoff's
/// bound).
const SIGMAS: f64 = 12.0;
const FEW: f64 = 80.0;
/// Periods of what goes wrong that a candidate sees at least.
const LEAST_PERIODS: u32 = 4;

/// The load with what is advised whatever the sizes: a Poolhouse that waits for longer than the platform keeps a frozen
/// function; and with everything that is advised only once, as it is given with the first load.
pub(super) fn advised(question: &Question, first: &Plan, case: &Plan) -> Plan {
    let mut load = case.clone();
    Upkeep::given(&first.pool.config).set(&mut load.pool.config);
    if let (Some(platform), Some(poolhouse)) = (question.platform, &mut load.poolhouse) {
        poolhouse.client_idle_time = Some(Some(platform.outlived().div_f64(question.compression)));
    }
    load
}

/// A load on pools with these settings.
pub(super) fn with(load: &Plan, sizes: &Sizes, seed: u64) -> Plan {
    let mut plan = load.clone();
    let Sizes { max_size, min_size, max_idle_time } = *sizes;
    plan.pool.config = PoolConfig { max_size, min_size, max_idle_time, ..plan.pool.config };
    plan.pool.warm = min_size > 0;
    plan.seed = load.seed.wrapping_add(seed.wrapping_mul(0x9e37_79b9));
    plan
}

/// The same load for less long, where it is long and nothing happens in it only once: whole periods of what goes wrong
/// on the way, so that it goes wrong for the same share of the time.
pub(super) fn shortened(load: &Plan) -> Plan {
    let mut plan = load.clone();
    let windows: Vec<Window> = load.faults.iter().filter_map(window).chain(load.freeze).collect();
    // What happens once, or begins late, is in no part of the load as it is in the whole.
    if windows.iter().any(|window| window.every.is_none_or(|every| window.first > every)) {
        return plan;
    }
    match &mut plan.shape {
        Shape::Open { stages, .. } => {
            let operations: f64 = stages.iter().map(Stage::expected).sum();
            let part = MOST_OPERATIONS / operations;
            let period = windows.iter().filter_map(|window| window.every).max().unwrap_or(Duration::from_secs(1));
            for stage in stages.iter_mut().filter(|_| part < 1.0) {
                let periods = (stage.duration.as_secs_f64() * part / period.as_secs_f64()).ceil() as u32;
                stage.duration = (period * periods.max(LEAST_PERIODS)).min(stage.duration);
            }
        }
        // What goes wrong on the way begins after some time, and not after some operations: there the whole is played.
        Shape::Closed { operations, .. } if windows.is_empty() => {
            *operations = Some(operations.unwrap_or(u64::MAX).min(MOST_OPERATIONS as u64));
        }
        Shape::Burst { size, rounds, .. } if windows.is_empty() => {
            *rounds = (*rounds).min(((MOST_OPERATIONS / f64::from(*size)) as u32).max(LEAST_PERIODS));
        }
        Shape::Closed { .. } | Shape::Burst { .. } => {}
    }
    plan
}

/// So many operations a load does not exceed, if that is known; by chance not once in 10^30 times.
pub(super) fn most_operations(load: &Plan) -> u64 {
    match &load.shape {
        Shape::Open { stages, spacing, .. } => {
            let warmup = stages.first().map_or(0.0, |stage| stage.from) * load.warmup.as_secs_f64();
            let expected = stages.iter().map(Stage::expected).sum::<f64>() + warmup;
            let chance = if *spacing == Spacing::Poisson { SIGMAS * expected.sqrt() + FEW } else { 1.0 };
            (expected + chance).ceil() as u64
        }
        Shape::Closed { operations, .. } => operations.unwrap_or(u64::MAX),
        Shape::Burst { size, rounds, .. } => u64::from(*size) * u64::from(*rounds),
    }
}

/// When a fault happens; `None`: always.
fn window(fault: &Fault) -> Option<Window> {
    match fault {
        Fault::Stall { window, .. } | Fault::BlackHole { window } | Fault::Cut { window } => Some(*window),
        Fault::Delay { .. } | Fault::Forget { .. } => None,
    }
}

/// The highest mean rate of a stage; `None`: operations come when others have ended.
pub(super) fn highest_rate(load: &Plan) -> Option<f64> {
    let Shape::Open { stages, .. } = &load.shape else { return None };
    Some(stages.iter().map(|stage| f64::midpoint(stage.from, stage.to)).fold(0.0, f64::max))
}
