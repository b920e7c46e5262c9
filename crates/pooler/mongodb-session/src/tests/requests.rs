//! Requests of clients: where they go, and when they are complete.

use super::*;

#[test]
fn a_host_that_a_new_configuration_adds_is_used_as_soon_as_it_has_said_what_it_is() {
    let mut stage = Stage::new();
    stage.pass(Duration::from_secs(10));
    stage.doors.0.lock().unwrap().push(1);
    let monitor = stage.watch(1, false);
    assert!(stage.mongodb.topology().is_up(1));
    stage.ask(finds);
    assert_eq!(stage.wanted(), Some(PoolId(1)));
    stage.pass(topology::HEARTBEAT_INTERVAL);
    assert!(stage.did(|effect| matches!(effect, Effect::Post { to, .. } if *to == Peer::Server(monitor))));
    // A host that is no longer configured is ignored.
    *stage.doors.0.lock().unwrap() = vec![0];
    stage.pass(topology::HEARTBEAT_INTERVAL);
    stage.watch(1, false);
    assert!(!stage.mongodb.topology().is_up(1));
}

#[test]
fn the_stall_timer_of_a_complete_request_does_not_run() {
    let (mut stage, server) = Stage::with_server();
    // A document sequence before the body, without which the route is unknown.
    let documents = [&[1][..], &14i32.to_le_bytes(), b"docs\0", &[5, 0, 0, 0, 0]].concat();
    let mut bytes = Vec::new();
    wire::request(&mut bytes, 1, |body| _ = body.text("insert", "things").text("$db", "app"));
    bytes.splice(wire::HEADER + 4..wire::HEADER + 4, documents);
    let length = i32::try_from(bytes.len()).unwrap();
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    stage.hear_full(&bytes[..30]);
    stage.pass(LONG / 3);
    stage.hear_full(&bytes[30..]);
    stage.grant(server, &[]);
    stage.pass(LONG);
    assert!(!stage.did(|effect| matches!(effect, Effect::Post { to: Peer::Client(_), .. })));
}

#[test]
fn a_pipeline_of_more_stages_than_there_may_be_is_not_looked_at_to_its_end() {
    for (stages, pool) in [(1_000, PoolId(1)), (1_001, PoolId(0))] {
        let mut stage = Stage::new();
        stage.doors.0.lock().unwrap().push(1);
        stage.pass(topology::HEARTBEAT_INTERVAL);
        stage.watch(1, false);
        stage.ask(|body| {
            body.text("aggregate", "things").text("$db", "app");
            body.array("pipeline", |pipeline| {
                for number in 0..stages {
                    pipeline.document(&number.to_string(), |one| _ = one.document("$match", |_| {}));
                }
            });
            prefers_secondary(body);
        });
        assert_eq!(stage.wanted(), Some(pool), "{stages}");
    }
}
