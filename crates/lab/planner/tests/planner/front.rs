//! Drivers' pools in front of a Poolhouse in front of a database: its pool bounds what reaches the database, and
//! clients wait in it.

use arrivals::{Shape, Window};
use load::plan::{Fault, Plan, PoolhouseWishes};
use planner::{
    prediction::Prediction,
    server::{Curve, Processors, Spec, Times},
};

use super::{fixed, ms, near, plan, plan_postgres, response, run, seconds, spec, text};

/// Clients that never pause, each with a connection of its own to a Poolhouse with `max_size` servers.
fn through(clients: u32, max_size: u32) -> Plan {
    let shape = Shape::Closed { clients, think: ms(0), duration: seconds(60), operations: None };
    let mut plan = plan(shape, fixed(clients));
    plan.poolhouse = Some(PoolhouseWishes { max_size: Some(max_size), ..PoolhouseWishes::default() });
    plan
}

fn constant() -> Spec {
    spec(Times::Constant(ms(10)))
}

#[test]
fn the_poolhouse_bounds_the_concurrency_at_the_database_and_other_operations_wait_in_it() {
    let outcome = run(&through(20, 5), &constant());
    near(outcome.result.total.rate().unwrap(), 500.0, 0.01);
    near(response(&outcome.result).p50, 40.0, 0.01);
    assert_eq!((outcome.server.max_open, outcome.result.total.connections.most), (5, 20));
    // So it does with a curve and with processors.
    for (curve, processors) in
        [(Some(Curve::parallel(2, 0.010)), None), (None, Some(Processors { count: 2, work: ms(10) }))]
    {
        let spec = Spec { curve, processors, ..constant() };
        near(run(&through(20, 5), &spec).result.total.rate().unwrap(), 200.0, 0.01);
        near(run(&through(20, 1), &spec).result.total.rate().unwrap(), 100.0, 0.01);
    }
}

#[test]
fn a_server_is_free_when_the_database_is_done_and_not_when_the_client_has_the_answer() {
    let mut plan = through(10, 1);
    plan.faults = vec![Fault::Delay { delay: ms(20), jitter: ms(0) }];
    near(run(&plan, &constant()).result.total.rate().unwrap(), 100.0, 0.01);
    // Two statements: the server is kept for the client's way back and forth between them.
    let spec = Spec { trips: 2, ..constant() };
    assert!(run(&plan, &spec).result.total.rate().unwrap() < 20.0);
}

#[test]
fn an_operation_that_waits_for_too_long_in_the_poolhouse_fails_and_keeps_its_connection() {
    let mut plan = through(30, 1);
    plan.poolhouse.as_mut().unwrap().max_wait_time = Some(Some(ms(100)));
    let result = run(&plan, &constant()).result;
    let failed = result.total.errors.get("sqlstate 53300").copied().unwrap_or(0);
    assert!(failed > 1000 && result.total.requests > 5900, "{failed} and {}", result.total.requests);
    assert_eq!(result.total.connections.created, 30);
    near(response(&result).max, 110.0, 0.1);
}

#[test]
fn the_servers_limit_is_for_the_poolhouse_and_not_for_its_clients() {
    let spec = Spec { limit: Some(6), reserved: 3, ..constant() };
    let outcome = run(&through(20, 5), &spec);
    assert_eq!(outcome.server.max_open, 3);
    assert!(outcome.server.refused > 0);
    near(outcome.result.total.rate().unwrap(), 300.0, 0.05);
}

#[test]
fn a_cut_of_all_connections_costs_the_poolhouse_its_servers_and_leaves_no_client_waiting() {
    let mut plan = through(20, 5);
    let window = Window { first: seconds(10), length: ms(0), every: Some(seconds(10)) };
    plan.faults = vec![Fault::Cut { window }];
    let outcome = run(&plan, &constant());
    // Five cuts of 20 connections, and 5 servers each time.
    assert!(outcome.result.total.connections.created >= 100, "{:?}", outcome.result.total.connections);
    assert_eq!(outcome.server.max_open, 5);
    near(outcome.result.total.rate().unwrap(), 500.0, 0.02);
}

#[test]
fn the_wait_in_the_poolhouse_counts_with_that_before_it_and_is_shown_apart() {
    let waits = |plan: &Plan| {
        let outcome = run(plan, &constant());
        let total = &outcome.result.total;
        let p50 = [&total.pool_wait_ms, &total.front_wait_ms].map(|waits| waits.as_ref().unwrap().p50.round());
        (p50, outcome.longest_wait.unwrap().as_millis())
    };
    // 20 clients, 5 servers of 10 ms: each waits for 30 ms, all of it behind 20 connections.
    assert_eq!(waits(&through(20, 5)), ([30.0, 30.0], 0));
    // Behind 10 connections it waits for 20 ms before them, and for 10 ms in the Poolhouse.
    let mut narrow = through(20, 5);
    narrow.pool.config = super::fixed(10);
    let (p50, longest) = waits(&narrow);
    assert_eq!(p50, [30.0, 10.0]);
    assert!((15..=60).contains(&longest), "{longest}");
    // Without pools before it, all of the wait is in the Poolhouse.
    let mut alone = through(20, 5);
    (alone.pool.reuse, alone.pool.warm) = (false, false);
    let total = run(&alone, &constant()).result.total;
    assert_eq!(total.pool_wait_ms, total.front_wait_ms);
    assert!(total.pool_wait_ms.unwrap().p50 > 20.0);
    // Without a Poolhouse there is no wait in front.
    let straight = super::plan(through(20, 5).shape, super::fixed(5));
    let total = run(&straight, &constant()).result.total;
    assert!(total.pool_wait_ms.is_some() && total.front_wait_ms.is_none());
}

/// The prediction for operations of 5 ms, on pools in front of a Poolhouse.
fn plan_through(rate: u32, pool: &str, poolhouse: &str, plan: &str) -> Prediction {
    plan_postgres(&format!(
        "[load]\nrate = {rate}\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\nmax_size = \
         20\n{pool}\n[poolhouse]\n{poolhouse}\n[plan]\nservice = \"5ms\"\nspread = \"constant\"\n{plan}\n"
    ))
}

#[test]
fn no_pool_before_a_poolhouse_hides_the_wait_in_it() {
    // One server of 5 ms at 80%: a mean wait of 10 ms (Pollaczek and Khinchine), in either pool.
    let prediction = plan_through(160, "", "max_size = 1", "objectives = [\"pool_wait_p99<5ms\"]");
    let best = prediction.best.as_ref().unwrap();
    assert!(prediction.is_hopeless() && best.sizes.max_size < 30, "{:?}", best.sizes);
    let text = text(&prediction);
    assert!(text.contains("service ms wait ms in front per s errors"), "the table has a column for it: {text}");
    assert!(
        text.contains(
            "Behind larger pools the wait is in that of the Poolhouse in front, where 1 of 100 waits for up to"
        ),
        "{text}"
    );
    assert!(!text.contains("Even without any wait"), "{text}");
    // With four servers 1 of 100 waits for less.
    let prediction = plan_through(160, "", "max_size = 4", "objectives = [\"pool_wait_p99<5ms\"]");
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && best.cases[0].result.total.front_wait_ms.is_some(), "{:?}", best.sizes);
}

#[test]
fn sizes_above_the_hard_limit_are_no_candidates() {
    // 300/s x 40 ms need 12 connections and more, of which 10 are let in.
    let of = |instances: u32| {
        plan_postgres(&format!(
            "[load]\nrate = 300\nduration = \"5s\"\n[pool]\nmax_size = 60\n\
             instances = {instances}\n[poolhouse]\nmax_size = 20\nhard_limit = 10\n[plan]\nservice = \"40ms\"\n"
        ))
    };
    for (instances, most) in [(1, 10), (3, 3)] {
        let prediction = of(instances);
        let best = prediction.best.as_ref().unwrap();
        assert_eq!(best.most, most);
        assert!(!best.met && best.sizes.max_size <= most, "{:?}", best.sizes);
    }
    // No size is left if the limit is lower than the number of instances.
    let prediction = of(11);
    assert!(prediction.best.is_none() && prediction.settings.is_none() && prediction.is_hopeless());
    assert!(prediction.fragments.is_empty(), "{:?}", prediction.fragments);
    let text = text(&prediction);
    assert!(text.contains("No setting keeps to the limits."), "{text}");
    assert!(text.contains("Each of 11 instances needs a connection at least, and the hard_limit"), "{text}");
}

#[test]
fn connections_of_the_poolhouse_wait_for_processors_too() {
    let longest = |work: u64| {
        let shape = Shape::Burst { size: 20, at_once: 20, idle: ms(1), rounds: 1 };
        let mut plan = Plan { shape, ..through(20, 20) };
        plan.pool.config = super::fixed(20);
        let mut spec = spec(Times::Constant(seconds(1)));
        (spec.connect.tcp, spec.connect.auth, spec.connect.work) = (None, Some(Times::Constant(ms(10))), ms(work));
        spec.processors = Some(Processors { count: 1, work: std::time::Duration::from_nanos(1) });
        run(&plan, &spec).result.total.front_wait_ms.unwrap().max
    };
    // Two at a time, each for 10 ms; or one after the other.
    near(longest(0), 100.0, 0.01);
    near(longest(10), 200.0, 0.01);
}
