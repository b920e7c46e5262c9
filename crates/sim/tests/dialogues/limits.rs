//! Clients that go because there are too many, or have been idle for too long: which of them, and which never.

use std::{sync::Arc, time::Duration};

use driver::Timeouts;
use pool::GateConfig;
use postgres::{PoolMode, Postgres};
use sim::{
    network::EndId,
    stage::{
        Stage,
        postgres::{Doors, messages},
    },
};

use crate::cast::{HELD, Play, add_client, add_server, assert_surveyed};

/// A stage on which one client is enough, and where no client may be idle for longer than a minute.
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
