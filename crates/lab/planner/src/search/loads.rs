//! Loads for judging candidates: with the settings advised for all sizes, with the sizes of a candidate, and shortened
//! where a part is representative.

use std::time::Duration;

use arrivals::{Fault, Spacing, Stage, Window};
use load::plan::{Plan, PoolConfig, Shape};

use crate::{question::Question, sizes::Sizes, upkeep::Upkeep};

/// Approximate number of operations of each load by which a candidate is judged. The answer is judged by all.
const MAX_CANDIDATE_OPERATIONS: f64 = 300_000.0;
/// Chernoff bound of the number of Poisson arrivals: the expected number, plus this many standard deviations, plus the
/// offset.
const POISSON_BOUND_SIGMAS: f64 = 12.0;
const POISSON_BOUND_OFFSET: f64 = 80.0;
/// Minimum number of fault periods in a shortened load.
const MIN_FAULT_PERIODS: u32 = 4;

/// The load with the settings advised for all sizes: the upkeep settings of the first load, and a client idle time of
/// the Poolhouse above the time for which the platform keeps a frozen function.
pub(super) fn with_advised_settings(question: &Question, first: &Plan, original: &Plan) -> Plan {
    let mut load = original.clone();
    Upkeep::given(&first.pool.config).apply_to(&mut load.pool.config);
    if let (Some(platform), Some(poolhouse)) = (question.platform, &mut load.poolhouse) {
        poolhouse.client_idle_time = Some(Some(platform.safe_client_idle_time().div_f64(question.compression)));
    }
    load
}

/// The load with these sizes of its pools.
pub(super) fn with_sizes(load: &Plan, sizes: &Sizes, seed: u64) -> Plan {
    let mut plan = load.clone();
    let Sizes { max_size, min_size, max_idle_time } = *sizes;
    plan.pool.config = PoolConfig { max_size, min_size, max_idle_time, ..plan.pool.config };
    plan.pool.warm = min_size > 0;
    plan.seed = load.seed.wrapping_add(seed.wrapping_mul(0x9e37_79b9));
    plan
}

/// Shortens a long load in which no fault is singular. The part covers whole fault periods, so that faults take the
/// same share of the time.
pub(super) fn shortened(load: &Plan) -> Plan {
    let mut plan = load.clone();
    let windows: Vec<Window> = load.faults.iter().filter_map(window).chain(load.freeze).collect();
    // A singular or late fault has another share in a part of the load.
    if windows.iter().any(|window| window.every.is_none_or(|every| window.first > every)) {
        return plan;
    }
    match &mut plan.shape {
        Shape::Open { stages, .. } => {
            let operations: f64 = stages.iter().map(Stage::expected).sum();
            let part = MAX_CANDIDATE_OPERATIONS / operations;
            let period = windows.iter().filter_map(|window| window.every).max().unwrap_or(Duration::from_secs(1));
            for stage in stages.iter_mut().filter(|_| part < 1.0) {
                let periods = (stage.duration.as_secs_f64() * part / period.as_secs_f64()).ceil() as u32;
                stage.duration = (period * periods.max(MIN_FAULT_PERIODS)).min(stage.duration);
            }
        }
        // Faults are scheduled by time. With faults, a load bounded by operations is not shortened.
        Shape::Closed { operations, .. } if windows.is_empty() => {
            *operations = Some(operations.unwrap_or(u64::MAX).min(MAX_CANDIDATE_OPERATIONS as u64));
        }
        Shape::Burst { size, rounds, .. } if windows.is_empty() => {
            *rounds = (*rounds).min(((MAX_CANDIDATE_OPERATIONS / f64::from(*size)) as u32).max(MIN_FAULT_PERIODS));
        }
        Shape::Closed { .. } | Shape::Burst { .. } => {}
    }
    plan
}

/// An upper bound of the number of operations of a load, exceeded by chance less than once in 10^30 runs.
pub(super) fn max_operations(load: &Plan) -> u64 {
    match &load.shape {
        Shape::Open { stages, spacing, .. } => {
            let warmup = stages.first().map_or(0.0, |stage| stage.from) * load.warmup.as_secs_f64();
            let expected = stages.iter().map(Stage::expected).sum::<f64>() + warmup;
            let chance = if *spacing == Spacing::Poisson {
                POISSON_BOUND_SIGMAS * expected.sqrt() + POISSON_BOUND_OFFSET
            } else {
                1.0
            };
            (expected + chance).ceil() as u64
        }
        Shape::Closed { operations, .. } => operations.unwrap_or(u64::MAX),
        Shape::Burst { size, rounds, .. } => u64::from(*size) * u64::from(*rounds),
    }
}

/// The window of a fault. `None` if it is always active.
fn window(fault: &Fault) -> Option<Window> {
    match fault {
        Fault::Stall { window, .. } | Fault::BlackHole { window } | Fault::Cut { window } => Some(*window),
        Fault::Delay { .. } | Fault::Forget { .. } => None,
    }
}

/// The highest mean rate of a stage. `None` if the load is not open-loop.
pub(super) fn highest_rate(load: &Plan) -> Option<f64> {
    let Shape::Open { stages, .. } = &load.shape else { return None };
    Some(stages.iter().map(|stage| f64::midpoint(stage.from, stage.to)).fold(0.0, f64::max))
}
