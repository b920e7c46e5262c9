//! Messages after the login. In most dialogues, input arrives whole, split at every position, and in small pieces.

use std::time::Duration;

use driver::PoolTimeouts;
use postgres_session::PoolMode;
use sim::{
    network::{EndId, HostBehaviour},
    rig::{
        Pieces,
        postgres::{TestDirectory, message, messages, server_welcome},
    },
};

use crate::support::{
    PostgresRig, add_client, add_client_with, add_server, assert_clean, assert_cleaned, assert_prefaced,
    assert_surveyed, error_code, in_all_pieces, one_of_each, text, trusting, whole,
};

/// Longer than clients wait for a server.
const TOO_LONG: Duration = Duration::from_secs(3);
/// The cancel key in [`server_welcome`].
const KEY: [u8; 8] = [0, 0, 0, 9, 1, 2, 3, 4];

fn cancel_request(key: &[u8]) -> Vec<u8> {
    [&(8 + key.len() as u32).to_be_bytes()[..], &80_877_102u32.to_be_bytes(), key].concat()
}

/// The cancel requests on new connections.
fn cancels(rig: &mut PostgresRig) -> Vec<Vec<u8>> {
    let arrivals: Vec<EndId> = std::iter::from_fn(|| rig.take_new_server()).collect();
    let said = arrivals.into_iter().map(|end| rig.take_received(end));
    said.filter(|said| said.get(4..8) == Some(&80_877_102u32.to_be_bytes())).collect()
}

/// The client sets its time zone, which the server reports and keeps.
fn set_time_zone(rig: &mut PostgresRig, client: EndId, server: EndId) {
    rig.exchange(client, server, "Q:SET", "C:SET~ S:TimeZone~CET~ Z:I");
    assert_surveyed(rig, server, &[["s", "TimeZone", "CET"]]);
}

#[test]
fn a_query_takes_a_server_and_its_answer_gives_it_back() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        let query = messages("Q:SELECT_1");
        rig.send(client, &query);
        assert_eq!(rig.take_received(server), query);
        assert_eq!((rig.client_counts().active, rig.server_counts().in_use), (1, 1));
        let answer = messages("T:~~ D:row D:row N:notice C:SELECT_2~ Z:I");
        rig.send(server, &answer);
        assert_eq!(rig.take_received(client), answer);
        assert_eq!(rig.client_counts().idle, 1);
        assert_clean(rig, server);
    });
}

#[test]
fn an_incomplete_message_takes_no_server() {
    let (mut rig, server, client) = one_of_each();
    let query = messages("Q:SELECT_1");
    for byte in &query[..query.len() - 1] {
        rig.send(client, &[*byte]);
        assert_eq!(rig.server_counts().in_use, 0);
    }
    rig.send(client, &query[query.len() - 1..]);
    assert_eq!(rig.take_received(server), query);
}

#[test]
fn a_message_larger_than_what_is_held_streams_through_in_both_directions() {
    let mut rig = TestDirectory::default().rig(100);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    rig.pieces = Pieces::Of(60);
    let query = message(b'Q', &[b'x'; 5000]);
    rig.send(client, &query[..300]);
    assert_eq!(rig.take_received(server).len(), 300);
    rig.send(client, &query[300..]);
    let row = message(b'D', &[b'y'; 5000]);
    rig.send(server, &row[..4000]);
    assert_eq!(rig.take_received(client).len(), 4000);
    rig.take_received(server);
    rig.send(server, &row[4000..]);
    rig.send(server, &messages("C:SELECT_1~ Z:I"));
    // The query was too long to be read, so the server is surveyed.
    assert_surveyed(&mut rig, server, &[]);
    assert_clean(&mut rig, server);
}

#[test]
fn unsynced_messages_keep_the_server() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.send(client, &messages("P:~~~ B:~~ E:~ H"));
        rig.send(server, &messages("1 2 C:SELECT_0~"));
        assert_eq!(rig.server_counts().in_use, 1);
        rig.send(client, &messages("S"));
        rig.send(server, &messages("Z:I"));
        assert_eq!(rig.take_received(server), messages("P:~~~ B:~~ E:~ H S"));
        assert_clean(rig, server);
    });
}

#[test]
fn a_sync_and_a_flush_alone_need_no_server() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.send(client, &messages("Q:BEGIN"));
        let other = whole(rig, add_client);
        rig.send(other, &messages("S H S"));
        assert_eq!(rig.take_received(other), messages("Z:I Z:I"));
        assert_eq!(rig.take_received(server), messages("Q:BEGIN"));
    });
}

#[test]
fn a_server_waits_for_the_rest_of_a_message_before_it_is_given_back() {
    let (mut rig, server, client) = one_of_each();
    let data = messages("d:some_long_line");
    rig.send(client, &messages("Q:COPY"));
    rig.send(server, &messages("G:~~~"));
    rig.send(client, &data[..8]);
    rig.send(server, &messages("E:SERROR~~ Z:I"));
    assert_eq!(rig.server_counts().in_use, 1);
    rig.send(client, &data[8..]);
    assert_eq!(rig.take_received(server), [messages("Q:COPY"), data].concat());
    assert_clean(&mut rig, server);
}

#[test]
fn a_sync_behind_a_copy_is_sent_only_if_that_fails_at_once() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.send(client, &messages("P:~COPY_t~~~ B:~~ E:~ S Q:next"));
        assert_eq!(rig.take_received(server), messages("P:~COPY_t~~~ B:~~ E:~ H"));
        rig.send(server, &messages("1 2 G:~~~"));
        rig.send(server, &messages("E:SERROR~~"));
        let got = rig.take_received(server);
        assert!(got.ends_with(&messages("S Q:next")), "{}", text(&got));
        rig.send(server, &messages("Z:I C:OK~ Z:I"));
        assert_eq!(rig.take_received(client), messages("1 2 G:~~~ E:SERROR~~ Z:I C:OK~ Z:I"));
        assert_clean(rig, server);
    });
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.exchange(client, server, "P:~COPY_t~~~ B:~~ E:~ S", "1 2 G:~~~");
        rig.take_received(server);
        rig.send(client, &messages("d:bad c S"));
        assert_eq!(rig.take_received(server), messages("d:bad c S"));
        rig.send(server, &messages("E:SERROR~~ Z:I"));
        assert_clean(rig, server);
    });
}

#[test]
fn session_mode_keeps_the_server_until_the_client_leaves() {
    in_all_pieces(PoolMode::Session, |rig, client, server| {
        rig.exchange(client, server, "Q:one", "C:OK~ Z:I");
        assert_eq!((rig.client_counts().idle, rig.server_counts().in_use), (1, 1));
        rig.send(client, &messages("Q:two X"));
        assert_eq!(cancels(rig), [cancel_request(&KEY)]);
        rig.wait(Duration::from_secs(60));
        assert!(rig.is_closed(server));
    });
    in_all_pieces(PoolMode::Session, |rig, client, server| {
        rig.exchange(client, server, "Q:one", "C:OK~ Z:I");
        rig.take_received(server);
        rig.send(client, &messages("X"));
        assert!(rig.is_closed(client));
        assert_cleaned(rig, server);
        rig.send(server, &messages("C:COMMIT~ Z:I"));
        assert_eq!(rig.server_counts().idle, 1);
    });
}

#[test]
fn statement_mode_refuses_transactions_of_several_statements() {
    in_all_pieces(PoolMode::Statement, |rig, client, server| {
        rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
        let got = rig.take_received(client);
        assert!(got.starts_with(&messages("C:BEGIN~")) && got.ends_with(&messages("Z:I")));
        assert_eq!(error_code(&got), "0A000");
        assert_eq!(rig.take_received(server), messages("Q:ROLLBACK"));
        rig.send(server, &messages("C:ROLLBACK~ Z:I"));
        rig.send(client, &messages("Q:one"));
        rig.send(server, &messages("C:OK~ Z:I"));
        assert_clean(rig, server);
    });
    in_all_pieces(PoolMode::Statement, |rig, client, server| {
        rig.exchange(client, server, "Q:BEGIN Q:two Q:COMMIT", "C:BEGIN~ Z:T");
        assert_eq!(error_code(&rig.take_received(client)), "0A000");
        assert!(rig.is_closed(server));
    });
}

#[test]
fn a_client_that_vanishes_in_a_transaction_leaves_a_server_to_roll_back() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
        rig.take_received(server);
        // No part of an incomplete message is forwarded.
        rig.send(client, &messages("Q:longer")[..7]);
        rig.close(client);
        assert_eq!(rig.take_received(server), messages("Q:ROLLBACK"));
        rig.send(server, &messages("C:ROLLBACK~ Z:I"));
        assert_clean(rig, server);
        assert!(rig.take_new_server().is_none(), "there is nothing to be cancelled");
    });
}

#[test]
fn a_client_that_vanishes_in_mid_query_has_it_cancelled_and_its_server_closed() {
    for requests in ["Q:slow", "P:~~~ B:~~ E:~ S", "Q:COPY d:line"] {
        in_all_pieces(PoolMode::Transaction, |rig, client, server| {
            rig.send(client, &messages(requests));
            rig.close(client);
            assert_eq!(cancels(rig), [cancel_request(&KEY)]);
            // Further output of the server is dropped.
            rig.send(server, &messages("D:row C:OK~ Z:I"));
            rig.wait(Duration::from_secs(60));
            assert!(rig.is_closed(server));
        });
    }
}

#[test]
fn a_server_that_says_why_it_dies_is_quoted_once() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        let last = messages("E:SFATAL~VFATAL~C57P01~Mterminating~~");
        rig.send(client, &messages("Q:slow"));
        rig.send(server, &last);
        rig.close(server);
        assert_eq!(rig.take_received(client), last);
        assert!(rig.is_closed(client));
    });
}

#[test]
fn nothing_is_inserted_into_half_a_row() {
    let row = message(b'D', &[b'x'; 40]);
    for server_dies in [true, false] {
        let (mut rig, server, client) = one_of_each();
        rig.send(client, &messages("Q:slow"));
        rig.send(server, &row[..20]);
        if server_dies {
            rig.close(server);
        } else {
            rig.send(client, b"?????");
        }
        assert_eq!(rig.take_received(client), &row[..20]);
        assert!(rig.is_closed(client));
    }
}

#[test]
fn a_server_that_breaks_the_protocol_is_closed() {
    for nonsense in ["Z:I", "y", "R:~~~~", "Z:IX", "Z:Q", "S:x"] {
        in_all_pieces(PoolMode::Transaction, |rig, client, server| {
            rig.send(server, &messages(nonsense));
            assert!(rig.is_closed(server), "{nonsense}");
            assert!(!rig.is_closed(client));
        });
        in_all_pieces(PoolMode::Transaction, |rig, client, server| {
            rig.send(client, &messages("Q:one"));
            let answer = if nonsense == "Z:I" { "C:OK~ Z:I Z:I" } else { nonsense };
            rig.send(server, &messages(answer));
            assert!(rig.is_closed(server), "{nonsense}");
            assert_eq!(rig.is_closed(client), nonsense != "Z:I");
        });
    }
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_closed() {
    for nonsense in
        [&b"y\0\0\0\x04"[..], b"Q\0\0\0\x03", b"S\0\0\0\x05x", b"H\0\0\0\x05", b"p\0\0\0\x04", b"Q\xff\xff\xff\xff"]
    {
        in_all_pieces(PoolMode::Transaction, |rig, client, _| {
            rig.send(client, nonsense);
            assert_eq!(error_code(&rig.take_received(client)), "08P01");
            assert!(rig.is_closed(client));
        });
    }
}

#[test]
fn a_reported_parameter_follows_its_client_from_server_to_server() {
    in_all_pieces(PoolMode::Transaction, |rig, one, first| {
        rig.send(one, &messages("Q:SET"));
        let answer = messages("C:SET~ S:TimeZone~CET~ Z:I");
        rig.take_received(first);
        rig.send(first, &answer);
        assert_eq!(rig.take_received(one), answer);
        assert_surveyed(rig, first, &[["s", "TimeZone", "CET"]]);

        // Another client gets the same server: its own value goes first, in one write with its request.
        let two = add_client(rig);
        rig.send(two, &messages("Q:hello"));
        assert_prefaced(rig, first, "RESET \"TimeZone\"", "hello");
        rig.send(first, &messages("1 2 C:BEGIN~ C:SET~ C:COMMIT~ S:TimeZone~UTC~ Z:I"));
        assert_eq!(rig.take_received(two), b"");

        // The first client meanwhile gets another server.
        let second = add_server(rig);
        rig.send(one, &messages("Q:again"));
        assert_prefaced(rig, second, "SET \"TimeZone\" = 'CET'", "again");
        rig.send(first, &messages("C:OK~ Z:I"));
        rig.send(second, &messages("1 2 C:BEGIN~ S:TimeZone~CET~ C:COMMIT~ Z:I C:OK~ Z:I"));
        // The server has the settings of the client already.
        rig.send(one, &messages("Q:last"));
        assert_eq!(rig.take_received(second), messages("Q:last"));
    });
}

#[test]
fn what_goes_ahead_of_a_request_fails_and_the_request_goes_elsewhere() {
    in_all_pieces(PoolMode::Transaction, |rig, one, first| {
        set_time_zone(rig, one, first);
        let two = add_client(rig);
        rig.send(two, &messages("P:~hello~~~ B:~~~~~~~~ E:~~~~~ S"));
        let sent = text(&rig.take_received(first));
        assert!(sent.contains("RESET \"TimeZone\";DISCARD PLANS;COMMIT~P") && sent.contains("hello~"), "{sent}");
        let second = add_server(rig);
        rig.send(first, &messages("1 2 C:BEGIN~ E:SERROR~C57014~Mtoo_slow~~"));
        assert!(rig.is_closed(first));
        assert_eq!(rig.take_received(second), messages("P:~hello~~~ B:~~~~~~~~ E:~~~~~ S"));
        rig.send(second, &messages("1 2 C:OK~ Z:I"));
        assert_eq!(rig.take_received(two), messages("1 2 C:OK~ Z:I"));
    });
}

#[test]
fn what_ends_transactions_waits_for_the_outcome_of_what_goes_ahead() {
    in_all_pieces(PoolMode::Transaction, |rig, one, first| {
        set_time_zone(rig, one, first);
        let two = add_client(rig);
        rig.send(two, &messages("Q:ROLLBACK Q:hello"));
        assert!(!text(&rig.take_received(first)).contains("ROLLBACK"));
        rig.send(first, &messages("1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I"));
        assert!(rig.take_received(first).starts_with(&messages("Q:ROLLBACK")));
    });
}

#[test]
fn a_client_whose_settings_two_servers_refuse_is_told_so() {
    in_all_pieces(PoolMode::Transaction, |rig, one, first| {
        set_time_zone(rig, one, first);
        rig.take_received(one);
        rig.pieces = Pieces::Whole;
        let two = add_client(rig);
        rig.exchange(two, first, "Q:hello", "1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I C:OK~ Z:I");
        rig.exchange(one, first, "Q:hello", "E:SERROR~C22023~Mno_such_zone~~");
        assert!(rig.is_closed(first));
        assert!(rig.take_received(one).is_empty());
        // Another server might accept the setting. After a new server refuses it, too, no third one is tried.
        let second = add_server(rig);
        rig.send(second, &messages("E:SERROR~C22023~Mno_such_zone~~"));
        let got = rig.take_received(one);
        assert_eq!(error_code(&got), "22023");
        assert!(got.windows(12).any(|w| w == b"no such zone"));
        assert!(rig.is_closed(second));
    });
}

#[test]
fn a_request_cancelled_while_its_settings_are_applied_is_never_sent() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client_with(&mut rig, &[]);
    let welcome = rig.take_received(two);
    let key = &welcome[welcome.len() - messages("Z:I").len() - 8..][..8];
    set_time_zone(&mut rig, one, server);
    // The settings are sent alone, because the request might end their transaction.
    rig.send(two, &messages("Q:ROLLBACK"));
    let sent = text(&rig.take_received(server));
    let asker = rig.connect_client();
    rig.send(asker, &cancel_request(key));
    assert!(rig.is_closed(asker));
    rig.send(server, &messages("1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I"));
    assert!(cancels(&mut rig).is_empty() && rig.take_received(server).is_empty(), "{sent}");
    let got = rig.take_received(two);
    assert_eq!(error_code(&got), "57014");
    assert!(got.ends_with(&messages("Z:I")));
    rig.send(two, &messages("Q:next"));
    assert_eq!(rig.take_received(server), messages("Q:next"));
}

#[test]
fn a_server_is_cancelled_with_its_whole_key_however_long() {
    for length in [1, 4, 32, 256] {
        let mut rig = trusting(PoolMode::Transaction);
        let server = rig.next_server();
        let key = [&[0, 0, 0, 9], &vec![7; length][..]].concat();
        let (mut welcome, usual) = (server_welcome(), message(b'K', &KEY));
        let at = welcome.windows(usual.len()).position(|bytes| bytes == usual).unwrap();
        welcome.splice(at..at + usual.len(), message(b'K', &key));
        rig.send(server, &welcome);
        let client = add_client(&mut rig);
        rig.send(client, &messages("Q:slow"));
        rig.close(client);
        assert_eq!(cancels(&mut rig), [cancel_request(&key)]);
    }
}

#[test]
fn a_server_lost_before_the_request_was_sent_costs_the_client_nothing() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client(&mut rig);
    set_time_zone(&mut rig, one, server);
    rig.send(two, &messages("Q:ROLLBACK"));
    // The server fails while it is given the settings of the next client.
    assert!(text(&rig.take_received(server)).contains("RESET \"TimeZone\""));
    rig.close(server);
    assert!(!rig.is_closed(two));
    let other = rig.next_server();
    rig.send(other, &server_welcome());
    assert!(rig.take_received(other).ends_with(&messages("Q:ROLLBACK")));
    rig.send(other, &messages("C:OK~ Z:I"));
    assert_eq!(rig.take_received(two), messages("C:OK~ Z:I"));
}

#[test]
fn a_server_that_shuts_down_right_after_an_answer_does_not_take_the_next_client_with_it() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client(&mut rig);
    rig.send(one, &messages("Q:one"));
    rig.send(two, &messages("Q:two"));
    rig.send(server, &messages("C:OK~ Z:I E:SFATAL~VFATAL~C57P01~Mbye~~"));
    rig.close(server);
    assert_eq!(rig.take_received(one), messages("C:OK~ Z:I"));
    assert!(!rig.is_closed(two));
    let other = rig.next_server();
    rig.send(other, &server_welcome());
    assert!(rig.take_received(other).ends_with(&messages("Q:two")));
}

#[test]
fn a_client_survives_a_wait_that_is_too_long() {
    in_all_pieces(PoolMode::Transaction, |rig, holder, server| {
        rig.exchange(holder, server, "Q:BEGIN", "C:BEGIN~ Z:T");
        let client = add_client(rig);
        rig.send(client, &messages("Q:one"));
        rig.wait(TOO_LONG);
        let got = rig.take_received(client);
        assert_eq!(error_code(&got), "53300");
        assert!(got.ends_with(&messages("Z:I")));
        assert_eq!(rig.client_counts().idle, 1);

        rig.send(client, &messages("P:~~~ B:~~"));
        rig.wait(TOO_LONG);
        assert_eq!(error_code(&rig.take_received(client)), "53300");
        rig.send(client, &messages("E:~ Q:no"));
        assert_eq!(rig.take_received(client), b"");
        rig.send(client, &messages("S"));
        assert_eq!(rig.take_received(client), messages("Z:I"));

        rig.exchange(holder, server, "Q:COMMIT", "C:COMMIT~ Z:I");
        rig.take_received(server);
        rig.send(client, &messages("Q:three"));
        assert_eq!(rig.take_received(server), messages("Q:three"));
    });
}

#[test]
fn a_request_behind_a_refused_one_is_not_executed() {
    for requests in [&["Q:BEGIN Q:two"][..], &["Q:BEGIN", "Q:two"]] {
        let (mut rig, server, holder) = one_of_each();
        rig.send(holder, &messages("Q:BEGIN"));
        let client = add_client(&mut rig);
        requests.iter().for_each(|request| rig.send(client, &messages(request)));
        rig.wait(TOO_LONG);
        let received = rig.take_received(client);
        assert_eq!(error_code(&received), "53300");
        let received = text(&received);
        assert!(received.contains("FATAL") && received.contains("behind a refused one"), "{received}");
        assert!(rig.is_closed(client));
        assert_eq!((rig.server_counts().waiters, rig.take_received(server)), (0, messages("Q:BEGIN")));
    }
}

#[test]
fn what_is_sent_once_the_refusal_has_been_heard_is_done() {
    let (mut rig, server, holder) = one_of_each();
    rig.send(holder, &messages("Q:BEGIN"));
    let client = add_client(&mut rig);
    // A client that awaits the outcome before its Sync, and has its next request ready by then.
    rig.send(client, &messages("P:~select_1~~~ B:~~~~~~~~ E:~~~~~ H"));
    rig.wait(TOO_LONG);
    assert_eq!(error_code(&rig.take_received(client)), "53300");
    rig.send(server, &messages("C:BEGIN Z:T"));
    rig.send(holder, &messages("Q:COMMIT"));
    rig.send(server, &messages("C:COMMIT Z:I"));
    rig.send(client, &messages("S Q:two"));
    assert_eq!(rig.take_received(client), messages("Z:I"));
    assert!(!rig.is_closed(client));
    assert!(rig.take_received(server).ends_with(&messages("Q:two")));
}

#[test]
fn a_client_of_an_unavailable_database_is_told_what_the_last_attempt_ended_with() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.set_database(HostBehaviour::Refuses);
        rig.close(server);
        rig.send(client, &messages("Q:one"));
        rig.wait(Duration::from_secs(31));
        let got = rig.take_received(client);
        assert_eq!(error_code(&got), "57P03");
        assert!(text(&got).contains("refused") && text(&got).contains("unavailable_wait_time"));
        assert!(rig.is_closed(client));
    });
}

#[test]
fn a_check_is_an_empty_query() {
    for (answer, stays) in [("N:notice I Z:I", true), ("E:SERROR~C57014~Mno~~ Z:I", false)] {
        in_all_pieces(PoolMode::Transaction, |rig, client, server| {
            rig.configure(|pool| pool.check_after_idle = Some(Duration::from_secs(1)));
            rig.wait(Duration::from_secs(2));
            rig.send(client, &messages("Q:next"));
            assert_eq!(rig.take_received(server), messages("Q"));
            rig.send(server, &messages(answer));
            assert_eq!((rig.take_received(server) == messages("Q:next"), rig.is_closed(server)), (stays, !stays));
        });
    }
}

#[test]
fn an_idle_server_may_say_what_is_asynchronous_and_nothing_else() {
    in_all_pieces(PoolMode::Transaction, |rig, _, server| {
        rig.send(server, &messages("N:notice A:note S:TimeZone~CET~ S:in_hot_standby~on~"));
        assert!(!rig.is_closed(server));
        rig.send(server, &messages("E:SFATAL~VFATAL~C57P01~Mbye~~"));
        assert!(rig.is_closed(server));
    });
}

#[test]
fn query_time_counts_each_request_of_a_pipeline_from_when_it_is_first() {
    let run = "B:~~~~~~~~ E:~~~~~";
    for (pipeline, parsed, answer) in [
        (format!("P:~select_1~~~ {} S", [run; 8].join(" ")), "1", "2 C:SELECT_1~"),
        (["Q:select_1"; 8].join(" "), "", "C:SELECT_1~ Z:I"),
        ([format!("P:~select_1~~~ {run} S").as_str(); 8].join(" "), "", "1 2 C:SELECT_1~ Z:I"),
    ] {
        let (mut rig, server, client) = one_of_each();
        rig.set_timeouts(PoolTimeouts { query: Some(Some(Duration::from_millis(1500))), ..PoolTimeouts::default() });
        // The workers read the time-outs of pools from time to time.
        rig.wait(Duration::from_secs(1));
        rig.send(client, &messages(&pipeline));
        rig.send(server, &messages(parsed));
        for _ in 0..7 {
            rig.wait(Duration::from_millis(400));
            rig.send(server, &messages(answer));
        }
        assert!(!rig.is_closed(client) && !text(&rig.take_received(client)).contains("57014"), "{pipeline}");
        // The last request is too slow.
        rig.wait(Duration::from_secs(2));
        assert!(rig.is_closed(client) && text(&rig.take_received(client)).contains("57014"), "{pipeline}");
    }
}
