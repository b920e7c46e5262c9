//! Clients that go because there are too many, or have been idle for too long: which of them, and which never.

use std::{sync::Arc, time::Duration};

use driver::{TenantLimits, Timeouts};
use pool::GateConfig;
use postgres_session::{PoolMode, Postgres};
use sim::{
    network::EndId,
    stage::{
        Stage,
        postgres::{Doors, messages},
    },
};

use crate::cast::{HELD, Play, add_client, add_client_with, add_server, assert_surveyed, error_code};

/// A stage with a soft limit of one client and an idle time-out of one minute.
fn crowded(mode: PoolMode) -> Play {
    let gate = GateConfig { soft_limit: 1, hard_limit: 9, evict_min_idle: Duration::from_secs(5) };
    let timeouts = Timeouts { client_idle: Some(Duration::from_secs(60)), ..Timeouts::default() };
    Stage::with_gate(gate, timeouts, 1, Postgres::new(Arc::new(Doors { mode, ..Doors::default() })), HELD)
}

fn ask(stage: &mut Play, client: EndId, server: EndId) {
    stage.says(client, &messages("Q:SELECT_1"));
    stage.says(server, &messages("C:SELECT_1~ Z:I"));
    assert_eq!(stage.got(client), messages("C:SELECT_1~ Z:I"));
}

#[test]
fn who_listens_is_neither_evicted_nor_idle_for_too_long() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let stage = &mut crowded(mode);
        let (server, client) = (add_server(stage), add_client(stage));
        stage.says(client, &messages("Q:LISTEN_a"));
        stage.got(server);
        stage.says(server, &messages("C:LISTEN~ Z:I"));
        if mode == PoolMode::Transaction {
            assert_surveyed(stage, server, &[["l", "a", ""]]);
        }
        assert_eq!(stage.got(client), messages("C:LISTEN~ Z:I"));
        let other = add_client(stage);
        stage.wait(Duration::from_secs(6));
        assert!(stage.is_over(other) && !stage.is_over(client), "{mode:?}: the one that does not listen goes");
        stage.wait(Duration::from_secs(130));
        assert!(!stage.is_over(client), "{mode:?}: it waits for notifications");
        // When it listens no longer it is idle as any other.
        let unlistens = if mode == PoolMode::Transaction { add_server(stage) } else { server };
        stage.says(client, &messages("Q:UNLISTEN_*"));
        stage.says(unlistens, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(stage.got(client), messages("C:UNLISTEN~ Z:I"));
        stage.wait(Duration::from_secs(59));
        assert!(!stage.is_over(client), "{mode:?}");
        stage.wait(Duration::from_secs(2));
        assert!(stage.is_over(client), "{mode:?}");
    }
}

#[test]
fn who_holds_a_server_is_evicted_last() {
    let stage = &mut crowded(PoolMode::Session);
    let (server, holds) = (add_server(stage), add_client(stage));
    ask(stage, holds, server);
    let (other, third) = (add_client(stage), add_client(stage));
    stage.wait(Duration::from_secs(6));
    assert_eq!([holds, other, third].map(|client| stage.is_over(client)), [false, true, true]);
    ask(stage, holds, server);
    // Where it is the only one that may go, it goes.
    stage.wait(Duration::from_secs(10));
    let newcomer = add_client(stage);
    stage.wait(Duration::from_secs(1));
    assert!(stage.is_over(holds) && !stage.is_over(newcomer));
}

#[test]
fn who_is_in_a_transaction_or_waits_for_an_answer_stays() {
    let stage = &mut crowded(PoolMode::Transaction);
    let (first, second) = (add_server(stage), add_server(stage));
    let (begun, asks, idle) = (add_client(stage), add_client(stage), add_client(stage));
    stage.says(begun, &messages("Q:BEGIN"));
    let (of_begun, of_asks) = if stage.got(first).is_empty() { (second, first) } else { (first, second) };
    stage.says(of_begun, &messages("C:BEGIN~ Z:T"));
    stage.says(asks, &messages("Q:SELECT_1"));
    stage.wait(Duration::from_secs(50));
    assert_eq!([begun, asks, idle].map(|client| stage.is_over(client)), [false, false, true]);
    stage.says(of_asks, &messages("C:SELECT_1~ Z:I"));
    assert_eq!(stage.got(asks), messages("C:SELECT_1~ Z:I"));
}

/// A stage on which the database may have two clients, for each worker, and a newcomer waits for three seconds.
fn full(workers: usize, soft_limit: u32) -> Play {
    let gate = GateConfig { soft_limit: 9, hard_limit: 9, evict_min_idle: Duration::from_secs(1) };
    let timeouts = Timeouts { newcomer_wait: Some(Duration::from_secs(3)), ..Timeouts::default() };
    let mut stage = Stage::with_gate(gate, timeouts, workers, Postgres::new(Arc::new(Doors::default())), HELD);
    stage.limit_clients(TenantLimits { soft_limit, hard_limit: 2 });
    stage
}

#[test]
fn who_has_logged_in_waits_for_a_place_with_its_database_and_is_refused_in_the_end() {
    let stage = &mut full(1, 2);
    add_server(stage);
    let here = [add_client(stage), add_client(stage)];
    let third = add_client_with(stage, &[]);
    stage.wait(Duration::from_millis(2_900));
    assert!(stage.got(third).is_empty() && !stage.is_over(third), "it is told nothing of its login");
    stage.wait(Duration::from_millis(200));
    let told = stage.got(third);
    assert_eq!(error_code(&told), "53300");
    let text = String::from_utf8_lossy(&told);
    assert!(text.contains("too many clients of database \"db\" (hard_limit = 2)"), "{text}");
    assert!(!told.starts_with(b"R"), "{text}");
    assert!(stage.is_over(third) && here.iter().all(|client| !stage.is_over(*client)));
}

#[test]
fn a_place_that_comes_free_goes_to_who_has_waited_longest_with_its_request() {
    for workers in [1, 2] {
        let stage = &mut full(workers, 2);
        let server = add_server(stage);
        let [first, _] = [add_client(stage), add_client(stage)];
        let third = add_client_with(stage, &[]);
        let fourth = add_client_with(stage, &[]);
        stage.says(third, &messages("Q:SELECT_1"));
        stage.wait(Duration::from_secs(1));
        assert!(stage.got(third).is_empty() && stage.got(server).is_empty(), "what it asks waits as well");
        stage.leaves(first);
        stage.wait(Duration::from_millis(100));
        stage.got(server);
        stage.says(server, &messages("C:SELECT_1~ Z:I"));
        let told = stage.got(third);
        assert!(told.starts_with(b"R") && told.ends_with(&messages("C:SELECT_1~ Z:I")));
        assert!(stage.got(fourth).is_empty() && !stage.is_over(fourth));
    }
}

#[test]
fn above_the_soft_limit_of_a_database_who_has_been_idle_longest_makes_room() {
    let stage = &mut full(1, 1);
    add_server(stage);
    let first = add_client(stage);
    stage.wait(Duration::from_millis(100));
    let second = add_client(stage);
    let third = add_client_with(stage, &[]);
    stage.wait(Duration::from_millis(950));
    assert_eq!([first, second, third].map(|client| stage.is_over(client)), [true, false, false]);
    assert!(stage.got(third).starts_with(b"R"), "it has the place");
}

#[test]
fn a_client_that_waits_and_goes_takes_no_place() {
    let stage = &mut full(1, 2);
    add_server(stage);
    let [first, _] = [add_client(stage), add_client(stage)];
    let third = add_client_with(stage, &[]);
    let fourth = add_client_with(stage, &[]);
    stage.leaves(third);
    stage.leaves(first);
    stage.wait(Duration::from_millis(100));
    assert!(stage.got(fourth).starts_with(b"R"), "the place is not lost");
}

#[test]
fn limits_of_a_reload_hold_for_clients_that_are_there() {
    let stage = &mut full(1, 2);
    add_server(stage);
    let here = [add_client(stage), add_client(stage)];
    let third = add_client_with(stage, &[]);
    stage.limit_clients(TenantLimits { soft_limit: 3, hard_limit: 3 });
    stage.wait(Duration::from_millis(100));
    assert!(stage.got(third).starts_with(b"R"), "it waits no longer");
    stage.limit_clients(TenantLimits { soft_limit: 1, hard_limit: 3 });
    stage.wait(Duration::from_millis(1_200));
    let over = [here[0], here[1], third].map(|client| stage.is_over(client));
    assert_eq!(over.iter().filter(|over| **over).count(), 2, "{over:?}");
}
