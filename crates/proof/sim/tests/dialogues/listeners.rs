//! Clients that listen share one server of their pool.

use postgres_session::PoolMode;
use sim::{
    network::EndId,
    stage::postgres::{messages, survey_answer},
};

use crate::cast::{
    Play, SOON, add_client, add_server, assert_clean, assert_cleaned, assert_surveyed, error_code, in_all_pieces,
    one_of_each, text,
};

const NOTIFICATION: &str = "A:~~~~a~hello~";

/// The client's LISTEN runs on this server, which nobody shared until then.
fn begin(stage: &mut Play, client: EndId, server: EndId) {
    stage.says(client, &messages("Q:LISTEN_a"));
    stage.got(server);
    stage.says(server, &messages("C:LISTEN~ Z:I"));
    assert_eq!(stage.got(client), messages("C:LISTEN~"));
    assert_surveyed(stage, server, &[["l", "a", ""]]);
    assert_eq!(stage.got(client), messages("Z:I"));
}

/// Another client's LISTEN, on another server, while `hub` is shared. Its ReadyForQuery is still to come.
fn join(stage: &mut Play, client: EndId, server: EndId, channel: &str) {
    stage.says(client, &messages(&format!("Q:LISTEN_{channel}")));
    stage.got(server);
    stage.says(server, &messages("C:LISTEN~ Z:I"));
    assert_surveyed(stage, server, &[["l", channel, ""]]);
    assert_eq!(text(&stage.got(server)), text(&messages("Q:UNLISTEN_*")));
    assert_eq!(stage.got(client), messages("C:LISTEN~"));
    stage.says(server, &messages("C:UNLISTEN~ Z:I"));
}

/// The shared server is asked for what was committed before, and answers; only then is the client told that it may go
/// on.
fn in_time(stage: &mut Play, client: EndId, hub: EndId, before: &str) {
    assert_eq!(text(&stage.got(hub)), text(&messages("Q:")));
    assert_eq!(stage.got(client), b"");
    let listening = stage.clients().subscribed;
    stage.says(hub, &messages(&format!("{before}I: Z:I")));
    assert_eq!(text(&stage.got(client)), text(&messages(&format!("{before}Z:I"))));
    assert_eq!(stage.clients().subscribed, listening + 1, "what listens is not idle");
}

#[test]
fn the_first_one_leaves_its_server_to_all_and_goes_on_without() {
    in_all_pieces(PoolMode::Transaction, |stage, client, hub| {
        begin(stage, client, hub);
        assert_eq!((stage.clients().subscribed, stage.servers().in_use), (1, 1));
        stage.says(hub, &messages(NOTIFICATION));
        assert_eq!(stage.got(client), messages(NOTIFICATION));
        // Its next request takes another server.
        let other = add_server(stage);
        stage.says(client, &messages("Q:SELECT_1"));
        assert_eq!(stage.got(other), messages("Q:SELECT_1"));
        stage.says(other, &messages("C:SELECT_1~ Z:I"));
        assert_eq!(stage.servers().idle, 1);
        assert_eq!(stage.got(client), messages("C:SELECT_1~"));
        in_time(stage, client, hub, &format!("{NOTIFICATION} "));
        // Nobody listens any more: the server goes back.
        stage.says(client, &messages("Q:UNLISTEN_a"));
        stage.says(other, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(text(&stage.got(hub)), text(&messages("Q:UNLISTEN_*")));
        stage.says(hub, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(stage.servers().idle, 2);
    });
}

#[test]
fn a_later_one_is_told_that_it_listens_when_the_shared_server_does() {
    in_all_pieces(PoolMode::Transaction, |stage, one, hub| {
        begin(stage, one, hub);
        let other = add_server(stage);
        let two = add_client(stage);
        join(stage, two, other, "b\"c");
        assert_eq!(text(&stage.got(hub)), text(&messages("Q:LISTEN_\"b\"\"c\";")));
        // It waits, and what it asks for meanwhile does, too.
        stage.says(two, &messages("Q:next"));
        assert_eq!((stage.got(two).len(), stage.clients().active), (0, 1));
        stage.says(hub, &messages("C:LISTEN~ Z:I"));
        assert_eq!(stage.got(two), messages("Z:I"));
        assert_eq!(stage.got(other), messages("Q:next"));
        stage.says(other, &messages("C:OK~ Z:I"));
        assert_eq!(stage.got(two), messages("C:OK~"));
        in_time(stage, two, hub, "");
        stage.says(hub, &messages("A:~~~~b\"c~x~ A:~~~~a~y~ A:~~~~none~z~"));
        assert_eq!(text(&stage.got(two)), text(&messages("A:~~~~b\"c~x~")));
        assert_eq!(text(&stage.got(one)), text(&messages("A:~~~~a~y~")));
        // A channel that is heard already need not be asked for.
        join(stage, two, other, "a");
        in_time(stage, two, hub, "");
        stage.says(hub, &messages(NOTIFICATION));
        assert_eq!((stage.got(one), stage.got(two)), (messages(NOTIFICATION), messages(NOTIFICATION)));
        // What only the second wanted is not listened to when it has left.
        stage.leaves(two);
        assert_eq!(text(&stage.got(hub)), text(&messages("Q:UNLISTEN_\"b\"\"c\";")));
        stage.says(hub, &messages("C:UNLISTEN~ Z:I"));
        stage.says(hub, &messages(NOTIFICATION));
        assert_eq!(stage.got(one), messages(NOTIFICATION));
    });
}

#[test]
fn an_unlisten_that_is_rolled_back_has_not_been() {
    in_all_pieces(PoolMode::Transaction, |stage, client, hub| {
        begin(stage, client, hub);
        let other = add_server(stage);
        stage.got(hub);
        for end in ["C:ROLLBACK~ Z:I", "E:SERROR~C42601~~ Z:I"] {
            stage.says(client, &messages("Q:BEGIN;_UNLISTEN_a;_more"));
            stage.says(other, &messages(&format!("C:BEGIN~ C:UNLISTEN~ {end}")));
            stage.got(client);
            in_time(stage, client, hub, "");
            stage.says(hub, &messages(NOTIFICATION));
            assert_eq!(stage.got(client), messages(NOTIFICATION));
        }
        stage.says(client, &messages("Q:DISCARD_ALL"));
        stage.got(other);
        stage.says(other, &messages("C:DISCARD_ALL~ Z:I"));
        assert_eq!(text(&stage.got(hub)), text(&messages("Q:UNLISTEN_*")));
    });
}

#[test]
fn who_comes_while_the_shared_server_goes_back_keeps_it() {
    in_all_pieces(PoolMode::Transaction, |stage, one, hub| {
        begin(stage, one, hub);
        let other = add_server(stage);
        let two = add_client(stage);
        stage.leaves(one);
        assert_eq!(text(&stage.got(hub)), text(&messages("Q:UNLISTEN_*")));
        // It is known as the one that is shared until it has gone back: there may be room for no other.
        join(stage, two, other, "a");
        assert_eq!(stage.got(two), b"");
        stage.says(hub, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(text(&stage.got(hub)), text(&messages("Q:LISTEN_\"a\";")));
        stage.says(hub, &messages("C:LISTEN~ Z:I"));
        assert_eq!(stage.got(two), messages("Z:I"));
        stage.says(hub, &messages(NOTIFICATION));
        assert_eq!(stage.got(two), messages(NOTIFICATION));
        assert_clean(stage, other);
    });
}

#[test]
fn whoever_listens_is_told_when_the_shared_server_is_lost() {
    in_all_pieces(PoolMode::Transaction, |stage, one, hub| {
        begin(stage, one, hub);
        let other = add_server(stage);
        let two = add_client(stage);
        join(stage, two, other, "b");
        stage.got(two);
        stage.leaves(hub);
        for client in [one, two] {
            assert_eq!(error_code(&stage.got(client)), "08006");
            assert!(stage.is_over(client));
        }
        // The next one begins anew.
        let three = add_client(stage);
        begin(stage, three, other);
    });
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    in_all_pieces(PoolMode::Transaction, |stage, one, hub| {
        begin(stage, one, hub);
        let other = add_server(stage);
        let two = add_client(stage);
        join(stage, two, other, "b");
        stage.got(two);
        stage.got(hub);
        stage.says(hub, &messages("E:SERROR~C55000~Mno~~ Z:I"));
        assert!(text(&stage.got(two)).contains("no (SQLSTATE 55000)"));
        stage.says(hub, &messages(NOTIFICATION));
        assert_eq!(stage.got(one), messages(NOTIFICATION));
    });
}

#[test]
fn a_client_with_a_server_of_its_own_listens_there() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("Q:CREATE_TEMP_TABLE_t();_LISTEN_a"));
        stage.got(server);
        stage.says(server, &messages("C:CREATE_TABLE~ C:LISTEN~ Z:I"));
        assert_surveyed(stage, server, &[["p", "temporary", ""], ["l", "a", ""]]);
        stage.got(client);
        stage.says(server, &messages(NOTIFICATION));
        assert_eq!(stage.got(client), messages(NOTIFICATION));
        stage.says(client, &messages("Q:FROM_t"));
        assert_eq!(stage.got(server), messages("Q:FROM_t"));
    });
}

/// The client asks this of its own server, which hears something while it is asked what was left behind in it.
fn hear_in_between(stage: &mut Play, client: EndId, server: EndId, asked: [&str; 2], rows: &[[&str; 3]]) {
    let [query, answer] = asked.map(messages);
    stage.says(client, &query);
    stage.got(server);
    stage.says(server, &answer);
    let survey = text(&stage.got(server));
    assert!(survey.contains("/* poolhouse */ SELECT"), "{survey}");
    stage.got(client);
    stage.says(server, &messages(NOTIFICATION));
    assert_eq!(text(&stage.got(client)), text(&messages(NOTIFICATION)));
    stage.says(server, &survey_answer(rows));
}

#[test]
fn who_began_to_listen_on_a_server_of_its_own_misses_nothing_and_stays_there() {
    let temporary = ["p", "temporary", ""];
    let listens = ["l", "a", ""];
    for another in [false, true] {
        in_all_pieces(PoolMode::Transaction, |stage, client, server| {
            stage.says(client, &messages("Q:CREATE_TEMP_TABLE_t()"));
            stage.got(server);
            stage.says(server, &messages("C:CREATE_TABLE~ Z:I"));
            assert_surveyed(stage, server, &[temporary]);
            if another {
                let (hub, other) = (add_server(stage), add_client(stage));
                begin(stage, other, hub);
            }
            hear_in_between(stage, client, server, ["Q:LISTEN_a", "C:LISTEN~ Z:I"], &[temporary, listens]);
            let create = ["Q:CREATE_TEMP_TABLE_u()", "C:CREATE_TABLE~ Z:I"];
            hear_in_between(stage, client, server, create, &[temporary, listens]);
            hear_in_between(stage, client, server, ["Q:DROP_TABLE_t,_u", "C:DROP_TABLE~ Z:I"], &[listens]);
            stage.wait(SOON);
            assert_eq!(text(&stage.got(server)), "", "it is neither cleaned nor left");
            stage.got(client);
            stage.says(server, &messages(NOTIFICATION));
            assert_eq!(text(&stage.got(client)), text(&messages(NOTIFICATION)));
            // It goes when it listens no longer.
            hear_in_between(stage, client, server, ["Q:UNLISTEN_a", "C:UNLISTEN~ Z:I"], &[]);
            stage.says(server, &messages(NOTIFICATION));
            assert_eq!(text(&stage.got(client)), "");
        });
    }
}

#[test]
fn what_waits_during_a_transaction_is_bounded() {
    let (mut stage, hub, client) = one_of_each();
    begin(&mut stage, client, hub);
    let other = add_server(&mut stage);
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(other, &messages("C:BEGIN~ Z:T"));
    stage.got(client);
    stage.got(other);
    let long = messages(&format!("A:~~~~a~{}~", "x".repeat(8000)));
    for _ in 0..140 {
        stage.says(hub, &long);
    }
    assert_eq!(error_code(&stage.got(client)), "54000");
    assert!(stage.is_over(client));
    assert_eq!(stage.got(other), messages("Q:ROLLBACK"));
}

#[test]
fn channels_of_a_client_are_bounded() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:LISTEN_many"));
    stage.says(server, &messages("C:LISTEN~ Z:I"));
    stage.got(client);
    let names: Vec<String> = (0..1001).map(|number| format!("c{number}")).collect();
    let rows: Vec<[&str; 3]> = names.iter().map(|name| ["l", name.as_str(), ""]).collect();
    assert_surveyed(&mut stage, server, &rows);
    assert_eq!(error_code(&stage.got(client)), "54000");
    assert!(stage.is_over(client));
    assert_cleaned(&mut stage, server);
}
