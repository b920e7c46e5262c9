//! Clients that listen share one server of their pool.

use postgres_session::PoolMode;
use sim::{
    network::EndId,
    rig::postgres::{messages, survey_answer},
};

use crate::support::{
    PostgresRig, SOON, add_client, add_server, assert_clean, assert_cleaned, assert_surveyed, error_code,
    in_all_pieces, one_of_each, text,
};

const NOTIFICATION: &str = "A:~~~~a~hello~";

/// The client's LISTEN runs on this server, which becomes the shared one.
fn begin(rig: &mut PostgresRig, client: EndId, server: EndId) {
    rig.exchange(client, server, "Q:LISTEN_a", "C:LISTEN~ Z:I");
    assert_eq!(rig.take_received(client), messages("C:LISTEN~"));
    assert_surveyed(rig, server, &[["l", "a", ""]]);
    assert_eq!(rig.take_received(client), messages("Z:I"));
}

/// Another client's LISTEN, on another server. Its ReadyForQuery is still to come.
fn join(rig: &mut PostgresRig, client: EndId, server: EndId, channel: &str) {
    rig.send(client, &messages(&format!("Q:LISTEN_{channel}")));
    rig.take_received(server);
    rig.send(server, &messages("C:LISTEN~ Z:I"));
    assert_surveyed(rig, server, &[["l", channel, ""]]);
    assert_eq!(text(&rig.take_received(server)), text(&messages("Q:UNLISTEN_*")));
    assert_eq!(rig.take_received(client), messages("C:LISTEN~"));
    rig.send(server, &messages("C:UNLISTEN~ Z:I"));
}

/// The shared server answers an empty query, which proves that all earlier notifications have arrived. Only then the
/// client gets its ReadyForQuery.
fn in_time(rig: &mut PostgresRig, client: EndId, hub: EndId, before: &str) {
    assert_eq!(text(&rig.take_received(hub)), text(&messages("Q:")));
    assert_eq!(rig.take_received(client), b"");
    let listening = rig.client_counts().subscribed;
    rig.send(hub, &messages(&format!("{before}I: Z:I")));
    assert_eq!(text(&rig.take_received(client)), text(&messages(&format!("{before}Z:I"))));
    assert_eq!(rig.client_counts().subscribed, listening + 1, "what listens is not idle");
}

#[test]
fn the_first_one_leaves_its_server_to_all_and_goes_on_without() {
    in_all_pieces(PoolMode::Transaction, |rig, client, hub| {
        begin(rig, client, hub);
        assert_eq!((rig.client_counts().subscribed, rig.server_counts().in_use), (1, 1));
        rig.send(hub, &messages(NOTIFICATION));
        assert_eq!(rig.take_received(client), messages(NOTIFICATION));
        // Its next request takes another server.
        let other = add_server(rig);
        rig.send(client, &messages("Q:SELECT_1"));
        assert_eq!(rig.take_received(other), messages("Q:SELECT_1"));
        rig.send(other, &messages("C:SELECT_1~ Z:I"));
        assert_eq!(rig.server_counts().idle, 1);
        assert_eq!(rig.take_received(client), messages("C:SELECT_1~"));
        in_time(rig, client, hub, &format!("{NOTIFICATION} "));
        // Without listeners the server goes back to the pool.
        rig.exchange(client, other, "Q:UNLISTEN_a", "C:UNLISTEN~ Z:I");
        assert_eq!(text(&rig.take_received(hub)), text(&messages("Q:UNLISTEN_*")));
        rig.send(hub, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(rig.server_counts().idle, 2);
    });
}

#[test]
fn a_later_one_is_told_that_it_listens_when_the_shared_server_does() {
    in_all_pieces(PoolMode::Transaction, |rig, one, hub| {
        begin(rig, one, hub);
        let other = add_server(rig);
        let two = add_client(rig);
        join(rig, two, other, "b\"c");
        assert_eq!(text(&rig.take_received(hub)), text(&messages("Q:LISTEN_\"b\"\"c\";")));
        // The client waits, and its next request does, too.
        rig.send(two, &messages("Q:next"));
        assert_eq!((rig.take_received(two).len(), rig.client_counts().active), (0, 1));
        rig.send(hub, &messages("C:LISTEN~ Z:I"));
        assert_eq!(rig.take_received(two), messages("Z:I"));
        assert_eq!(rig.take_received(other), messages("Q:next"));
        rig.send(other, &messages("C:OK~ Z:I"));
        assert_eq!(rig.take_received(two), messages("C:OK~"));
        in_time(rig, two, hub, "");
        rig.send(hub, &messages("A:~~~~b\"c~x~ A:~~~~a~y~ A:~~~~none~z~"));
        assert_eq!(text(&rig.take_received(two)), text(&messages("A:~~~~b\"c~x~")));
        assert_eq!(text(&rig.take_received(one)), text(&messages("A:~~~~a~y~")));
        // The shared server listens to this channel already.
        join(rig, two, other, "a");
        in_time(rig, two, hub, "");
        rig.send(hub, &messages(NOTIFICATION));
        assert_eq!((rig.take_received(one), rig.take_received(two)), (messages(NOTIFICATION), messages(NOTIFICATION)));
        // The channel of the second client ends when that has left.
        rig.close(two);
        assert_eq!(text(&rig.take_received(hub)), text(&messages("Q:UNLISTEN_\"b\"\"c\";")));
        rig.send(hub, &messages("C:UNLISTEN~ Z:I"));
        rig.send(hub, &messages(NOTIFICATION));
        assert_eq!(rig.take_received(one), messages(NOTIFICATION));
    });
}

#[test]
fn an_unlisten_that_is_rolled_back_has_not_been() {
    in_all_pieces(PoolMode::Transaction, |rig, client, hub| {
        begin(rig, client, hub);
        let other = add_server(rig);
        rig.take_received(hub);
        for end in ["C:ROLLBACK~ Z:I", "E:SERROR~C42601~~ Z:I"] {
            rig.send(client, &messages("Q:BEGIN;_UNLISTEN_a;_more"));
            rig.send(other, &messages(&format!("C:BEGIN~ C:UNLISTEN~ {end}")));
            rig.take_received(client);
            in_time(rig, client, hub, "");
            rig.send(hub, &messages(NOTIFICATION));
            assert_eq!(rig.take_received(client), messages(NOTIFICATION));
        }
        rig.exchange(client, other, "Q:DISCARD_ALL", "C:DISCARD_ALL~ Z:I");
        assert_eq!(text(&rig.take_received(hub)), text(&messages("Q:UNLISTEN_*")));
    });
}

#[test]
fn a_listener_that_comes_while_the_shared_server_goes_back_keeps_it() {
    in_all_pieces(PoolMode::Transaction, |rig, one, hub| {
        begin(rig, one, hub);
        let other = add_server(rig);
        let two = add_client(rig);
        rig.close(one);
        assert_eq!(text(&rig.take_received(hub)), text(&messages("Q:UNLISTEN_*")));
        // The server remains the shared one until it is back in the pool.
        join(rig, two, other, "a");
        assert_eq!(rig.take_received(two), b"");
        rig.send(hub, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(text(&rig.take_received(hub)), text(&messages("Q:LISTEN_\"a\";")));
        rig.send(hub, &messages("C:LISTEN~ Z:I"));
        assert_eq!(rig.take_received(two), messages("Z:I"));
        rig.send(hub, &messages(NOTIFICATION));
        assert_eq!(rig.take_received(two), messages(NOTIFICATION));
        assert_clean(rig, other);
    });
}

#[test]
fn all_listeners_get_an_error_when_the_shared_server_is_lost() {
    in_all_pieces(PoolMode::Transaction, |rig, one, hub| {
        begin(rig, one, hub);
        let other = add_server(rig);
        let two = add_client(rig);
        join(rig, two, other, "b");
        rig.take_received(two);
        rig.close(hub);
        for client in [one, two] {
            assert_eq!(error_code(&rig.take_received(client)), "08006");
            assert!(rig.is_closed(client));
        }
        // The next listener begins anew.
        let three = add_client(rig);
        begin(rig, three, other);
    });
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    in_all_pieces(PoolMode::Transaction, |rig, one, hub| {
        begin(rig, one, hub);
        let other = add_server(rig);
        let two = add_client(rig);
        join(rig, two, other, "b");
        rig.take_received(two);
        rig.take_received(hub);
        rig.send(hub, &messages("E:SERROR~C55000~Mno~~ Z:I"));
        assert!(text(&rig.take_received(two)).contains("no (SQLSTATE 55000)"));
        rig.send(hub, &messages(NOTIFICATION));
        assert_eq!(rig.take_received(one), messages(NOTIFICATION));
    });
}

#[test]
fn a_client_with_a_server_of_its_own_listens_there() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.exchange(client, server, "Q:CREATE_TEMP_TABLE_t();_LISTEN_a", "C:CREATE_TABLE~ C:LISTEN~ Z:I");
        assert_surveyed(rig, server, &[["p", "temporary", ""], ["l", "a", ""]]);
        rig.take_received(client);
        rig.send(server, &messages(NOTIFICATION));
        assert_eq!(rig.take_received(client), messages(NOTIFICATION));
        rig.send(client, &messages("Q:FROM_t"));
        assert_eq!(rig.take_received(server), messages("Q:FROM_t"));
    });
}

/// The client sends this to its own server, which gets a notification while it is surveyed.
fn hear_in_between(rig: &mut PostgresRig, client: EndId, server: EndId, asked: [&str; 2], rows: &[[&str; 3]]) {
    let [query, answer] = asked.map(messages);
    rig.send(client, &query);
    rig.take_received(server);
    rig.send(server, &answer);
    let survey = text(&rig.take_received(server));
    assert!(survey.contains("/* poolhouse */ SELECT"), "{survey}");
    rig.take_received(client);
    rig.send(server, &messages(NOTIFICATION));
    assert_eq!(text(&rig.take_received(client)), text(&messages(NOTIFICATION)));
    rig.send(server, &survey_answer(rows));
}

#[test]
fn a_client_that_listens_on_a_server_of_its_own_stays_there() {
    let temporary = ["p", "temporary", ""];
    let listens = ["l", "a", ""];
    for another in [false, true] {
        in_all_pieces(PoolMode::Transaction, |rig, client, server| {
            rig.exchange(client, server, "Q:CREATE_TEMP_TABLE_t()", "C:CREATE_TABLE~ Z:I");
            assert_surveyed(rig, server, &[temporary]);
            if another {
                let (hub, other) = (add_server(rig), add_client(rig));
                begin(rig, other, hub);
            }
            hear_in_between(rig, client, server, ["Q:LISTEN_a", "C:LISTEN~ Z:I"], &[temporary, listens]);
            let create = ["Q:CREATE_TEMP_TABLE_u()", "C:CREATE_TABLE~ Z:I"];
            hear_in_between(rig, client, server, create, &[temporary, listens]);
            hear_in_between(rig, client, server, ["Q:DROP_TABLE_t,_u", "C:DROP_TABLE~ Z:I"], &[listens]);
            rig.wait(SOON);
            assert_eq!(text(&rig.take_received(server)), "", "it is neither cleaned nor left");
            rig.take_received(client);
            rig.send(server, &messages(NOTIFICATION));
            assert_eq!(text(&rig.take_received(client)), text(&messages(NOTIFICATION)));
            // The client loses its server when it listens no longer.
            hear_in_between(rig, client, server, ["Q:UNLISTEN_a", "C:UNLISTEN~ Z:I"], &[]);
            rig.send(server, &messages(NOTIFICATION));
            assert_eq!(text(&rig.take_received(client)), "");
        });
    }
}

#[test]
fn what_waits_during_a_transaction_is_bounded() {
    let (mut rig, hub, client) = one_of_each();
    begin(&mut rig, client, hub);
    let other = add_server(&mut rig);
    rig.exchange(client, other, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.take_received(client);
    rig.take_received(other);
    let long = messages(&format!("A:~~~~a~{}~", "x".repeat(8000)));
    for _ in 0..140 {
        rig.send(hub, &long);
    }
    assert_eq!(error_code(&rig.take_received(client)), "54000");
    assert!(rig.is_closed(client));
    assert_eq!(rig.take_received(other), messages("Q:ROLLBACK"));
}

#[test]
fn channels_of_a_client_are_bounded() {
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:LISTEN_many", "C:LISTEN~ Z:I");
    rig.take_received(client);
    let names: Vec<String> = (0..1001).map(|number| format!("c{number}")).collect();
    let rows: Vec<[&str; 3]> = names.iter().map(|name| ["l", name.as_str(), ""]).collect();
    assert_surveyed(&mut rig, server, &rows);
    assert_eq!(error_code(&rig.take_received(client)), "54000");
    assert!(rig.is_closed(client));
    assert_cleaned(&mut rig, server);
}
