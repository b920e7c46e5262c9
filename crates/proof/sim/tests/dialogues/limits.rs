//! Evictions and idle time-outs: which clients they meet, and which never.

use std::{sync::Arc, time::Duration};

use driver::{TenantLimits, Timeouts};
use pool::GateConfig;
use postgres_session::{PoolMode, Postgres};
use sim::{
    network::EndId,
    rig::{
        Rig,
        postgres::{TestDirectory, messages},
    },
};

use crate::support::{HELD, PostgresRig, add_client, add_client_with, add_server, assert_surveyed, error_code};

/// A rig with a soft limit of one client and an idle time-out of one minute.
fn crowded(mode: PoolMode) -> PostgresRig {
    let gate = GateConfig { soft_limit: 1, hard_limit: 9, evict_min_idle: Duration::from_secs(5) };
    let timeouts = Timeouts { client_idle: Some(Duration::from_secs(60)), ..Timeouts::default() };
    Rig::with_gate(gate, timeouts, 1, Postgres::new(Arc::new(TestDirectory { mode, ..TestDirectory::default() })), HELD)
}

fn ask(rig: &mut PostgresRig, client: EndId, server: EndId) {
    rig.exchange(client, server, "Q:SELECT_1", "C:SELECT_1~ Z:I");
    assert_eq!(rig.take_received(client), messages("C:SELECT_1~ Z:I"));
}

#[test]
fn a_listener_is_neither_evicted_nor_idle_for_too_long() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let rig = &mut crowded(mode);
        let (server, client) = (add_server(rig), add_client(rig));
        rig.exchange(client, server, "Q:LISTEN_a", "C:LISTEN~ Z:I");
        if mode == PoolMode::Transaction {
            assert_surveyed(rig, server, &[["l", "a", ""]]);
        }
        assert_eq!(rig.take_received(client), messages("C:LISTEN~ Z:I"));
        let other = add_client(rig);
        rig.wait(Duration::from_secs(6));
        assert!(rig.is_closed(other) && !rig.is_closed(client), "{mode:?}: the one that does not listen goes");
        rig.wait(Duration::from_secs(130));
        assert!(!rig.is_closed(client), "{mode:?}: it waits for notifications");
        // Without LISTEN it is idle.
        let unlistens = if mode == PoolMode::Transaction { add_server(rig) } else { server };
        rig.exchange(client, unlistens, "Q:UNLISTEN_*", "C:UNLISTEN~ Z:I");
        assert_eq!(rig.take_received(client), messages("C:UNLISTEN~ Z:I"));
        rig.wait(Duration::from_secs(59));
        assert!(!rig.is_closed(client), "{mode:?}");
        rig.wait(Duration::from_secs(2));
        assert!(rig.is_closed(client), "{mode:?}");
    }
}

#[test]
fn a_client_that_holds_a_server_is_evicted_last() {
    let rig = &mut crowded(PoolMode::Session);
    let (server, holds) = (add_server(rig), add_client(rig));
    ask(rig, holds, server);
    let (other, third) = (add_client(rig), add_client(rig));
    rig.wait(Duration::from_secs(6));
    assert_eq!([holds, other, third].map(|client| rig.is_closed(client)), [false, true, true]);
    ask(rig, holds, server);
    // It is evicted if no other client may be.
    rig.wait(Duration::from_secs(10));
    let newcomer = add_client(rig);
    rig.wait(Duration::from_secs(1));
    assert!(rig.is_closed(holds) && !rig.is_closed(newcomer));
}

#[test]
fn a_client_in_a_transaction_or_a_request_is_not_evicted() {
    let rig = &mut crowded(PoolMode::Transaction);
    let (first, second) = (add_server(rig), add_server(rig));
    let (begun, querying, idle) = (add_client(rig), add_client(rig), add_client(rig));
    rig.send(begun, &messages("Q:BEGIN"));
    let (of_begun, of_asks) = if rig.take_received(first).is_empty() { (second, first) } else { (first, second) };
    rig.send(of_begun, &messages("C:BEGIN~ Z:T"));
    rig.send(querying, &messages("Q:SELECT_1"));
    rig.wait(Duration::from_secs(50));
    assert_eq!([begun, querying, idle].map(|client| rig.is_closed(client)), [false, false, true]);
    rig.send(of_asks, &messages("C:SELECT_1~ Z:I"));
    assert_eq!(rig.take_received(querying), messages("C:SELECT_1~ Z:I"));
}

/// A rig whose database may have two clients, and in which a newcomer waits for three seconds.
fn full(workers: usize, soft_limit: u32) -> PostgresRig {
    let gate = GateConfig { soft_limit: 9, hard_limit: 9, evict_min_idle: Duration::from_secs(1) };
    let timeouts = Timeouts { newcomer_wait: Some(Duration::from_secs(3)), ..Timeouts::default() };
    let mut rig = Rig::with_gate(gate, timeouts, workers, Postgres::new(Arc::new(TestDirectory::default())), HELD);
    rig.limit_clients(TenantLimits { soft_limit, hard_limit: 2 });
    rig
}

#[test]
fn a_client_waits_for_a_place_with_its_database_and_is_refused_in_the_end() {
    let rig = &mut full(1, 2);
    add_server(rig);
    let here = [add_client(rig), add_client(rig)];
    let third = add_client_with(rig, &[]);
    rig.wait(Duration::from_millis(2_900));
    assert!(rig.take_received(third).is_empty() && !rig.is_closed(third), "the client gets no answer to its login");
    rig.wait(Duration::from_millis(200));
    let received = rig.take_received(third);
    assert_eq!(error_code(&received), "53300");
    let text = String::from_utf8_lossy(&received);
    assert!(text.contains("too many clients of database \"db\" (hard_limit = 2)"), "{text}");
    assert!(!received.starts_with(b"R"), "{text}");
    assert!(rig.is_closed(third) && here.iter().all(|client| !rig.is_closed(*client)));
}

#[test]
fn a_free_place_goes_to_the_client_that_has_waited_longest_with_its_request() {
    for workers in [1, 2] {
        let rig = &mut full(workers, 2);
        let server = add_server(rig);
        let [first, _] = [add_client(rig), add_client(rig)];
        let third = add_client_with(rig, &[]);
        let fourth = add_client_with(rig, &[]);
        rig.send(third, &messages("Q:SELECT_1"));
        rig.wait(Duration::from_secs(1));
        assert!(rig.take_received(third).is_empty() && rig.take_received(server).is_empty(), "its query waits as well");
        rig.close(first);
        rig.wait(Duration::from_millis(100));
        rig.take_received(server);
        rig.send(server, &messages("C:SELECT_1~ Z:I"));
        let received = rig.take_received(third);
        assert!(received.starts_with(b"R") && received.ends_with(&messages("C:SELECT_1~ Z:I")));
        assert!(rig.take_received(fourth).is_empty() && !rig.is_closed(fourth));
    }
}

#[test]
fn above_the_soft_limit_of_a_database_the_longest_idle_client_is_evicted() {
    let rig = &mut full(1, 1);
    add_server(rig);
    let first = add_client(rig);
    rig.wait(Duration::from_millis(100));
    let second = add_client(rig);
    let third = add_client_with(rig, &[]);
    rig.wait(Duration::from_millis(950));
    assert_eq!([first, second, third].map(|client| rig.is_closed(client)), [true, false, false]);
    assert!(rig.take_received(third).starts_with(b"R"), "it has the place");
}

#[test]
fn a_client_that_waits_and_goes_takes_no_place() {
    let rig = &mut full(1, 2);
    add_server(rig);
    let [first, _] = [add_client(rig), add_client(rig)];
    let third = add_client_with(rig, &[]);
    let fourth = add_client_with(rig, &[]);
    rig.close(third);
    rig.close(first);
    rig.wait(Duration::from_millis(100));
    assert!(rig.take_received(fourth).starts_with(b"R"), "the place is not lost");
}

#[test]
fn limits_of_a_reload_hold_for_clients_that_are_there() {
    let rig = &mut full(1, 2);
    add_server(rig);
    let here = [add_client(rig), add_client(rig)];
    let third = add_client_with(rig, &[]);
    rig.limit_clients(TenantLimits { soft_limit: 3, hard_limit: 3 });
    rig.wait(Duration::from_millis(100));
    assert!(rig.take_received(third).starts_with(b"R"), "it waits no longer");
    rig.limit_clients(TenantLimits { soft_limit: 1, hard_limit: 3 });
    rig.wait(Duration::from_millis(1_200));
    let over = [here[0], here[1], third].map(|client| rig.is_closed(client));
    assert_eq!(over.iter().filter(|over| **over).count(), 2, "{over:?}");
}
