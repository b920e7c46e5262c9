//! Early stops, and the removal of stale events.

use super::*;
use load::plan::{Fault, PoolConfig, PoolWishes, Spacing, Stage};

use crate::server::{Connect, Times};

const MS: Duration = Duration::from_millis(1);

fn plan(shape: Shape) -> Plan {
    let pool = PoolWishes::default().pool(&shape);
    Plan { timeout: MS, ..Plan::new(String::new(), Target::nowhere(), shape, pool) }
}

/// 500 operations a second of 5 ms each, with a time-out of 100 ms. After one second all answers are an hour late.
/// `front`: a Poolhouse stands before the server. `cuts`: connections are cut every 700 ms.
fn overload(front: bool, cuts: bool) -> Plan {
    let stages = vec![Stage { duration: MS * 5000, from: 500.0, to: 500.0 }];
    let mut plan = plan(Shape::Open { stages, spacing: Spacing::Poisson, max_in_flight: 10_000 });
    let late = Window { first: MS * 1000, length: MS * 4000, every: None };
    plan.faults = vec![Fault::Delay { delay: MS, jitter: MS }, Fault::Stall { delay: MS * 3_600_000, window: late }];
    if cuts {
        plan.faults
            .push(Fault::Cut { window: Window { first: MS * 700, length: Duration::ZERO, every: Some(MS * 700) } });
    }
    plan.timeout = MS * 100;
    plan.pool.config = PoolConfig { max_size: 100, max_connecting: 100, ..PoolConfig::default() };
    let wishes =
        PoolhouseWishes { max_size: Some(20), max_wait_time: Some(Some(MS * 50)), ..PoolhouseWishes::default() };
    plan.poolhouse = front.then_some(wishes);
    plan
}

fn spec(curve: Option<crate::server::Curve>) -> Spec {
    let connect = Connect { tcp: Some(Times::Constant(MS)), ..Connect::default() };
    Spec { curve, connect, ..Spec::new(Times::Exponential(MS * 5)) }
}

#[test]
fn answers_to_timed_out_operations_are_removed_from_the_queue() {
    let outcome = run(&overload(false, false), &spec(None));
    let failed: u64 = outcome.result.total.errors.values().sum();
    assert!(failed > 1500, "{:?}", outcome.result.total.errors);
    // At most 100 connections with one live event each, and the stale events since the last removal.
    assert!(outcome.max_pending_events <= 1024, "{}", outcome.max_pending_events);
}

#[test]
fn the_result_does_not_depend_on_when_stale_events_are_removed() {
    let slow = || Some(crate::server::Curve::parallel(2, 0.005));
    for (front, cuts, curve) in
        [(false, false, None), (false, true, None), (true, true, None), (false, true, slow()), (true, false, slow())]
    {
        let (plan, spec) = (overload(front, cuts), spec(curve));
        let run_with = |min_purge_len: usize| {
            let outcome = simulate(&plan, &spec, Events::with_min_purge_len(min_purge_len), &mut |_, _| false);
            let result = serde_json::to_string(&outcome.result).unwrap();
            (
                outcome.max_pending_events,
                (result, outcome.server, outcome.front, outcome.longest_wait, outcome.is_complete),
            )
        };
        let ((most, kept), (few, thrown)) = (run_with(usize::MAX), run_with(2));
        assert_eq!(kept, thrown, "front {front}, cuts {cuts}");
        assert!(few < most, "{few} of {most}: no stale event was removed");
    }
}

#[test]
fn a_simulation_stops_when_the_stop_check_says_so() {
    let (mut plan, spec) = (overload(false, false), spec(None));
    let stages = vec![Stage { duration: MS * 60_000, from: 500.0, to: 500.0 }];
    plan.shape = Shape::Open { stages, spacing: Spacing::Poisson, max_in_flight: 10_000 };
    let mut asked = 0;
    let whole = run_until(&plan, &spec, &mut |_, _| {
        asked += 1;
        false
    });
    assert!(whole.is_complete && !whole.stopped_early && asked > 1, "{asked} times in {} steps", whole.steps);
    assert_eq!(
        serde_json::to_string(&whole.result).unwrap(),
        serde_json::to_string(&run(&plan, &spec).result).unwrap()
    );
    let stopped = run_until(&plan, &spec, &mut |_, _| true);
    assert!(stopped.stopped_early && !stopped.is_complete && stopped.result.interrupted);
    assert_eq!(stopped.steps, step_limit::FIRST_EARLY_STOP_STEPS);
}
