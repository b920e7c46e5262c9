//! Drivers' pools in front of a Poolhouse in front of a database: its pool bounds what reaches the database, and clients wait in it.

use bench::plan::{Fault, Plan, PoolhouseWishes};
use planner::server::{Curve, Processors, Spec, Times};
use workload::{Shape, Window};

use super::{fixed, ms, near, plan, response, seconds, simulate, spec};

/// So many clients that never pause, each with a connection of its own to a Poolhouse with so many servers.
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
fn as_many_reach_the_database_as_the_poolhouse_has_servers_and_the_others_wait_in_it() {
    let outcome = simulate(&through(20, 5), &constant());
    near(outcome.result.total.rate().unwrap(), 500.0, 0.01);
    near(response(&outcome.result).p50, 40.0, 0.01);
    assert_eq!((outcome.server.most, outcome.result.total.connections.most), (5, 20));
    // However the server is described.
    for (curve, processors) in
        [(Some(Curve::parallel(2, 0.010)), None), (None, Some(Processors { count: 2, work: ms(10) }))]
    {
        let spec = Spec { curve, processors, ..constant() };
        near(simulate(&through(20, 5), &spec).result.total.rate().unwrap(), 200.0, 0.01);
        near(simulate(&through(20, 1), &spec).result.total.rate().unwrap(), 100.0, 0.01);
    }
}

#[test]
fn a_server_is_free_when_the_database_is_done_and_not_when_the_client_has_the_answer() {
    let mut plan = through(10, 1);
    plan.faults = vec![Fault::Delay { delay: ms(20), jitter: ms(0) }];
    near(simulate(&plan, &constant()).result.total.rate().unwrap(), 100.0, 0.01);
    // Two statements: the server is kept for the client's way back and forth between them.
    let spec = Spec { trips: 2, ..constant() };
    assert!(simulate(&plan, &spec).result.total.rate().unwrap() < 20.0);
}

#[test]
fn whoever_has_waited_for_too_long_in_the_poolhouse_fails_and_keeps_the_connection() {
    let mut plan = through(30, 1);
    plan.poolhouse.as_mut().unwrap().max_wait_time = Some(Some(ms(100)));
    let result = simulate(&plan, &constant()).result;
    let failed = result.total.errors.get("sqlstate 53300").copied().unwrap_or(0);
    assert!(failed > 1000 && result.total.requests > 5900, "{failed} and {}", result.total.requests);
    assert_eq!(result.total.connections.created, 30);
    near(response(&result).max, 110.0, 0.1);
}

#[test]
fn the_servers_limit_is_for_the_poolhouse_and_not_for_its_clients() {
    let spec = Spec { limit: Some(6), reserved: 3, ..constant() };
    let outcome = simulate(&through(20, 5), &spec);
    assert_eq!(outcome.server.most, 3);
    assert!(outcome.server.refused > 0);
    near(outcome.result.total.rate().unwrap(), 300.0, 0.05);
}

#[test]
fn connections_that_are_cut_in_the_middle_cost_the_poolhouse_its_servers_and_nobody_is_forgotten() {
    let mut plan = through(20, 5);
    let window = Window { first: seconds(10), length: ms(0), every: Some(seconds(10)) };
    plan.faults = vec![Fault::Cut { window }];
    let outcome = simulate(&plan, &constant());
    // Five cuts of 20 connections, and 5 servers each time.
    assert!(outcome.result.total.connections.created >= 100, "{:?}", outcome.result.total.connections);
    assert_eq!(outcome.server.most, 5);
    near(outcome.result.total.rate().unwrap(), 500.0, 0.02);
}
