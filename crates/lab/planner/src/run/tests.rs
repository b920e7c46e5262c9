//! Simulations that are left when it is enough, and what they keep of what can no longer happen.

use super::*;
use load::plan::{Fault, PoolConfig, PoolWishes, Spacing, Stage};

use crate::server::{Connect, Times};

const MS: Duration = Duration::from_millis(1);

fn plan(shape: Shape) -> Plan {
    Plan {
        name: String::new(),
        target: Target::nowhere(),
        pool: PoolWishes::default().pool(&shape),
        shape,
        faults: Vec::new(),
        warmup: Duration::ZERO,
        timeout: MS,
        seed: 1,
        fail_if: Vec::new(),
        freeze: None,
        poolhouse: None,
    }
}

/// 500 operations a second of 5 ms, which give up after 100 ms, and from the second second on answers are an hour late,
/// or those of a server that they share, or of one behind a Poolhouse, or connections are cut.
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
fn answers_that_nobody_waits_for_take_no_room_until_they_come() {
    let outcome = run(&overload(false, false), &spec(None));
    let failed: u64 = outcome.result.total.errors.values().sum();
    assert!(failed > 1500, "{:?}", outcome.result.total.errors);
    // A hundred connections at most, each with an operation, or being made or closed; and what has piled up since it
    // was last looked for.
    assert!(outcome.most_events <= 1024, "{}", outcome.most_events);
}

#[test]
fn what_happens_is_the_same_however_soon_what_can_no_longer_happen_is_thrown_away() {
    let slow = || Some(crate::server::Curve::parallel(2, 0.005));
    for (front, cuts, curve) in
        [(false, false, None), (false, true, None), (true, true, None), (false, true, slow()), (true, false, slow())]
    {
        let (plan, spec) = (overload(front, cuts), spec(curve));
        let told = |least: usize| {
            let outcome = played(&plan, &spec, Events::keeping(least), &mut |_, _| false);
            let result = serde_json::to_string(&outcome.result).unwrap();
            (outcome.most_events, (result, outcome.server, outcome.gate, outcome.longest_wait, outcome.is_whole))
        };
        let ((most, kept), (few, thrown)) = (told(usize::MAX), told(2));
        assert_eq!(kept, thrown, "front {front}, cuts {cuts}");
        assert!(few < most, "{few} of {most}: there was nothing to throw away");
    }
}

#[test]
fn what_is_enough_is_played_no_further() {
    let (mut plan, spec) = (overload(false, false), spec(None));
    let stages = vec![Stage { duration: MS * 60_000, from: 500.0, to: 500.0 }];
    plan.shape = Shape::Open { stages, spacing: Spacing::Poisson, max_in_flight: 10_000 };
    let mut asked = 0;
    let whole = run_until(&plan, &spec, &mut |_, _| {
        asked += 1;
        false
    });
    assert!(whole.is_whole && !whole.is_enough && asked > 1, "{asked} times in {} moments", whole.moments);
    assert_eq!(
        serde_json::to_string(&whole.result).unwrap(),
        serde_json::to_string(&run(&plan, &spec).result).unwrap()
    );
    let left = run_until(&plan, &spec, &mut |_, _| true);
    assert!(left.is_enough && !left.is_whole && left.result.interrupted);
    assert_eq!(left.moments, patience::FIRST_LOOK);
}
