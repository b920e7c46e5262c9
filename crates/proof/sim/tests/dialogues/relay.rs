//! What clients, servers and Poolhouse say to each other after login. Most dialogues are held with input arriving
//! whole, split at every position, and in small pieces.

use std::time::Duration;

use driver::PoolTimeouts;
use postgres_session::PoolMode;
use sim::{
    network::{EndId, Host},
    stage::{
        Pieces,
        postgres::{Doors, message, messages, server_welcome},
    },
};

use crate::cast::{
    Play, add_client, add_client_with, add_server, assert_clean, assert_cleaned, assert_prefaced, assert_surveyed,
    error_code, in_all_pieces, one_of_each, text, trusting, whole,
};

/// What a client waits for is not there for so long.
const TOO_LONG: Duration = Duration::from_secs(3);
/// That of a server of whom nothing else is said.
const KEY: [u8; 8] = [0, 0, 0, 9, 1, 2, 3, 4];

fn cancel_request(key: &[u8]) -> Vec<u8> {
    [&(8 + key.len() as u32).to_be_bytes()[..], &80_877_102u32.to_be_bytes(), key].concat()
}

/// The cancel requests among what new connections have said.
fn cancels(stage: &mut Play) -> Vec<Vec<u8>> {
    let arrivals: Vec<EndId> = std::iter::from_fn(|| stage.arrival()).collect();
    let said = arrivals.into_iter().map(|end| stage.got(end));
    said.filter(|said| said.get(4..8) == Some(&80_877_102u32.to_be_bytes())).collect()
}

/// The client sets its time zone, which the server reports and keeps.
fn set_time_zone(stage: &mut Play, client: EndId, server: EndId) {
    stage.says(client, &messages("Q:SET"));
    stage.got(server);
    stage.says(server, &messages("C:SET~ S:TimeZone~CET~ Z:I"));
    assert_surveyed(stage, server, &[["s", "TimeZone", "CET"]]);
}

#[test]
fn a_query_takes_a_server_and_its_answer_gives_it_back() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        let query = messages("Q:SELECT_1");
        stage.says(client, &query);
        assert_eq!(stage.got(server), query);
        assert_eq!((stage.clients().active, stage.servers().in_use), (1, 1));
        let answer = messages("T:~~ D:row D:row N:notice C:SELECT_2~ Z:I");
        stage.says(server, &answer);
        assert_eq!(stage.got(client), answer);
        assert_eq!(stage.clients().idle, 1);
        assert_clean(stage, server);
    });
}

#[test]
fn an_incomplete_message_takes_no_server() {
    let (mut stage, server, client) = one_of_each();
    let query = messages("Q:SELECT_1");
    for byte in &query[..query.len() - 1] {
        stage.says(client, &[*byte]);
        assert_eq!(stage.servers().in_use, 0);
    }
    stage.says(client, &query[query.len() - 1..]);
    assert_eq!(stage.got(server), query);
}

#[test]
fn a_message_larger_than_what_is_held_streams_through_in_both_directions() {
    let mut stage = Doors::default().stage(100);
    let (server, client) = (add_server(&mut stage), add_client(&mut stage));
    stage.pieces = Pieces::Of(60);
    let query = message(b'Q', &[b'x'; 5000]);
    stage.says(client, &query[..300]);
    assert_eq!(stage.got(server).len(), 300);
    stage.says(client, &query[300..]);
    let row = message(b'D', &[b'y'; 5000]);
    stage.says(server, &row[..4000]);
    assert_eq!(stage.got(client).len(), 4000);
    stage.got(server);
    stage.says(server, &row[4000..]);
    stage.says(server, &messages("C:SELECT_1~ Z:I"));
    // It could not be read, so the server is asked what it has left behind.
    assert_surveyed(&mut stage, server, &[]);
    assert_clean(&mut stage, server);
}

#[test]
fn unsynced_messages_keep_the_server() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("P:~~~ B:~~ E:~ H"));
        stage.says(server, &messages("1 2 C:SELECT_0~"));
        assert_eq!(stage.servers().in_use, 1);
        stage.says(client, &messages("S"));
        stage.says(server, &messages("Z:I"));
        assert_eq!(stage.got(server), messages("P:~~~ B:~~ E:~ H S"));
        assert_clean(stage, server);
    });
}

#[test]
fn a_sync_and_a_flush_alone_need_no_server() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("Q:BEGIN"));
        let other = whole(stage, add_client);
        stage.says(other, &messages("S H S"));
        assert_eq!(stage.got(other), messages("Z:I Z:I"));
        assert_eq!(stage.got(server), messages("Q:BEGIN"));
    });
}

#[test]
fn a_server_waits_for_the_rest_of_a_message_before_it_is_given_back() {
    let (mut stage, server, client) = one_of_each();
    let data = messages("d:some_long_line");
    stage.says(client, &messages("Q:COPY"));
    stage.says(server, &messages("G:~~~"));
    stage.says(client, &data[..8]);
    stage.says(server, &messages("E:SERROR~~ Z:I"));
    assert_eq!(stage.servers().in_use, 1);
    stage.says(client, &data[8..]);
    assert_eq!(stage.got(server), [messages("Q:COPY"), data].concat());
    assert_clean(&mut stage, server);
}

#[test]
fn a_sync_behind_a_copy_is_sent_only_if_that_fails_at_once() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("P:~COPY_t~~~ B:~~ E:~ S Q:next"));
        assert_eq!(stage.got(server), messages("P:~COPY_t~~~ B:~~ E:~ H"));
        stage.says(server, &messages("1 2 G:~~~"));
        stage.says(server, &messages("E:SERROR~~"));
        let got = stage.got(server);
        assert!(got.ends_with(&messages("S Q:next")), "{}", text(&got));
        stage.says(server, &messages("Z:I C:OK~ Z:I"));
        assert_eq!(stage.got(client), messages("1 2 G:~~~ E:SERROR~~ Z:I C:OK~ Z:I"));
        assert_clean(stage, server);
    });
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("P:~COPY_t~~~ B:~~ E:~ S"));
        stage.says(server, &messages("1 2 G:~~~"));
        stage.got(server);
        stage.says(client, &messages("d:bad c S"));
        assert_eq!(stage.got(server), messages("d:bad c S"));
        stage.says(server, &messages("E:SERROR~~ Z:I"));
        assert_clean(stage, server);
    });
}

#[test]
fn session_mode_keeps_the_server_until_the_client_leaves() {
    in_all_pieces(PoolMode::Session, |stage, client, server| {
        stage.says(client, &messages("Q:one"));
        stage.says(server, &messages("C:OK~ Z:I"));
        assert_eq!((stage.clients().idle, stage.servers().in_use), (1, 1));
        stage.says(client, &messages("Q:two X"));
        assert_eq!(cancels(stage), [cancel_request(&KEY)]);
        stage.wait(Duration::from_secs(60));
        assert!(stage.is_over(server));
    });
    in_all_pieces(PoolMode::Session, |stage, client, server| {
        stage.says(client, &messages("Q:one"));
        stage.says(server, &messages("C:OK~ Z:I"));
        stage.got(server);
        stage.says(client, &messages("X"));
        assert!(stage.is_over(client));
        assert_cleaned(stage, server);
        stage.says(server, &messages("C:COMMIT~ Z:I"));
        assert_eq!(stage.servers().idle, 1);
    });
}

#[test]
fn statement_mode_refuses_transactions_of_several_statements() {
    in_all_pieces(PoolMode::Statement, |stage, client, server| {
        stage.says(client, &messages("Q:BEGIN"));
        stage.got(server);
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        let got = stage.got(client);
        assert!(got.starts_with(&messages("C:BEGIN~")) && got.ends_with(&messages("Z:I")));
        assert_eq!(error_code(&got), "0A000");
        assert_eq!(stage.got(server), messages("Q:ROLLBACK"));
        stage.says(server, &messages("C:ROLLBACK~ Z:I"));
        stage.says(client, &messages("Q:one"));
        stage.says(server, &messages("C:OK~ Z:I"));
        assert_clean(stage, server);
    });
    in_all_pieces(PoolMode::Statement, |stage, client, server| {
        stage.says(client, &messages("Q:BEGIN Q:two Q:COMMIT"));
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        assert_eq!(error_code(&stage.got(client)), "0A000");
        assert!(stage.is_over(server));
    });
}

#[test]
fn a_client_that_vanishes_in_a_transaction_leaves_a_server_to_roll_back() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("Q:BEGIN"));
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        stage.got(server);
        // Of an incomplete message nothing is forwarded.
        stage.says(client, &messages("Q:longer")[..7]);
        stage.leaves(client);
        assert_eq!(stage.got(server), messages("Q:ROLLBACK"));
        stage.says(server, &messages("C:ROLLBACK~ Z:I"));
        assert_clean(stage, server);
        assert!(stage.arrival().is_none(), "there is nothing to be cancelled");
    });
}

#[test]
fn a_client_that_vanishes_in_mid_query_has_it_cancelled_and_its_server_closed() {
    for requests in ["Q:slow", "P:~~~ B:~~ E:~ S", "Q:COPY d:line"] {
        in_all_pieces(PoolMode::Transaction, |stage, client, server| {
            stage.says(client, &messages(requests));
            stage.leaves(client);
            assert_eq!(cancels(stage), [cancel_request(&KEY)]);
            // What it still sends reaches nobody.
            stage.says(server, &messages("D:row C:OK~ Z:I"));
            stage.wait(Duration::from_secs(60));
            assert!(stage.is_over(server));
        });
    }
}

#[test]
fn a_server_that_says_why_it_dies_is_quoted_once() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        let last = messages("E:SFATAL~VFATAL~C57P01~Mterminating~~");
        stage.says(client, &messages("Q:slow"));
        stage.says(server, &last);
        stage.leaves(server);
        assert_eq!(stage.got(client), last);
        assert!(stage.is_over(client));
    });
}

#[test]
fn nothing_is_inserted_into_half_a_row() {
    let row = message(b'D', &[b'x'; 40]);
    for server_dies in [true, false] {
        let (mut stage, server, client) = one_of_each();
        stage.says(client, &messages("Q:slow"));
        stage.says(server, &row[..20]);
        if server_dies {
            stage.leaves(server);
        } else {
            stage.says(client, b"?????");
        }
        assert_eq!(stage.got(client), &row[..20]);
        assert!(stage.is_over(client));
    }
}

#[test]
fn a_server_that_breaks_the_protocol_is_closed() {
    for nonsense in ["Z:I", "y", "R:~~~~", "Z:IX", "Z:Q", "S:x"] {
        in_all_pieces(PoolMode::Transaction, |stage, client, server| {
            stage.says(server, &messages(nonsense));
            assert!(stage.is_over(server), "{nonsense}");
            assert!(!stage.is_over(client));
        });
        in_all_pieces(PoolMode::Transaction, |stage, client, server| {
            stage.says(client, &messages("Q:one"));
            let answer = if nonsense == "Z:I" { "C:OK~ Z:I Z:I" } else { nonsense };
            stage.says(server, &messages(answer));
            assert!(stage.is_over(server), "{nonsense}");
            assert_eq!(stage.is_over(client), nonsense != "Z:I");
        });
    }
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_closed() {
    for nonsense in
        [&b"y\0\0\0\x04"[..], b"Q\0\0\0\x03", b"S\0\0\0\x05x", b"H\0\0\0\x05", b"p\0\0\0\x04", b"Q\xff\xff\xff\xff"]
    {
        in_all_pieces(PoolMode::Transaction, |stage, client, _| {
            stage.says(client, nonsense);
            assert_eq!(error_code(&stage.got(client)), "08P01");
            assert!(stage.is_over(client));
        });
    }
}

#[test]
fn a_reported_parameter_follows_its_client_from_server_to_server() {
    in_all_pieces(PoolMode::Transaction, |stage, one, first| {
        stage.says(one, &messages("Q:SET"));
        let answer = messages("C:SET~ S:TimeZone~CET~ Z:I");
        stage.got(first);
        stage.says(first, &answer);
        assert_eq!(stage.got(one), answer);
        assert_surveyed(stage, first, &[["s", "TimeZone", "CET"]]);

        // Another client gets the same server: its own value comes first, in one write with its request.
        let two = add_client(stage);
        stage.says(two, &messages("Q:hello"));
        assert_prefaced(stage, first, "RESET \"TimeZone\"", "hello");
        stage.says(first, &messages("1 2 C:BEGIN~ C:SET~ C:COMMIT~ S:TimeZone~UTC~ Z:I"));
        assert_eq!(stage.got(two), b"");

        // The first client meanwhile gets another server.
        let second = add_server(stage);
        stage.says(one, &messages("Q:again"));
        assert_prefaced(stage, second, "SET \"TimeZone\" = 'CET'", "again");
        stage.says(first, &messages("C:OK~ Z:I"));
        stage.says(second, &messages("1 2 C:BEGIN~ S:TimeZone~CET~ C:COMMIT~ Z:I C:OK~ Z:I"));
        // It has the same settings as the server it had last: nothing is to be done.
        stage.says(one, &messages("Q:last"));
        assert_eq!(stage.got(second), messages("Q:last"));
    });
}

#[test]
fn what_goes_ahead_of_a_request_fails_and_the_request_goes_elsewhere() {
    in_all_pieces(PoolMode::Transaction, |stage, one, first| {
        set_time_zone(stage, one, first);
        let two = add_client(stage);
        stage.says(two, &messages("P:~hello~~~ B:~~~~~~~~ E:~~~~~ S"));
        let sent = text(&stage.got(first));
        assert!(sent.contains("RESET \"TimeZone\";DISCARD PLANS;COMMIT~P") && sent.contains("hello~"), "{sent}");
        let second = add_server(stage);
        stage.says(first, &messages("1 2 C:BEGIN~ E:SERROR~C57014~Mtoo_slow~~"));
        assert!(stage.is_over(first));
        assert_eq!(stage.got(second), messages("P:~hello~~~ B:~~~~~~~~ E:~~~~~ S"));
        stage.says(second, &messages("1 2 C:OK~ Z:I"));
        assert_eq!(stage.got(two), messages("1 2 C:OK~ Z:I"));
    });
}

#[test]
fn what_ends_transactions_waits_for_the_outcome_of_what_goes_ahead() {
    in_all_pieces(PoolMode::Transaction, |stage, one, first| {
        set_time_zone(stage, one, first);
        let two = add_client(stage);
        stage.says(two, &messages("Q:ROLLBACK Q:hello"));
        assert!(!text(&stage.got(first)).contains("ROLLBACK"));
        stage.says(first, &messages("1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I"));
        assert!(stage.got(first).starts_with(&messages("Q:ROLLBACK")));
    });
}

#[test]
fn a_client_whose_settings_two_servers_refuse_is_told_so() {
    in_all_pieces(PoolMode::Transaction, |stage, one, first| {
        set_time_zone(stage, one, first);
        stage.got(one);
        stage.pieces = Pieces::Whole;
        let two = add_client(stage);
        stage.says(two, &messages("Q:hello"));
        stage.says(first, &messages("1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I C:OK~ Z:I"));
        stage.says(one, &messages("Q:hello"));
        stage.says(first, &messages("E:SERROR~C22023~Mno_such_zone~~"));
        assert!(stage.is_over(first));
        assert!(stage.got(one).is_empty());
        // Another server might take it. That is new, so there is no hope of a third.
        let second = add_server(stage);
        stage.says(second, &messages("E:SERROR~C22023~Mno_such_zone~~"));
        let got = stage.got(one);
        assert_eq!(error_code(&got), "22023");
        assert!(got.windows(12).any(|w| w == b"no such zone"));
        assert!(stage.is_over(second));
    });
}

#[test]
fn a_request_cancelled_while_its_settings_are_applied_is_never_sent() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client_with(&mut stage, &[]);
    let welcome = stage.got(two);
    let key = &welcome[welcome.len() - messages("Z:I").len() - 8..][..8];
    set_time_zone(&mut stage, one, server);
    // What goes ahead goes alone, because the request might end its transaction.
    stage.says(two, &messages("Q:ROLLBACK"));
    let sent = text(&stage.got(server));
    let asker = stage.client();
    stage.says(asker, &cancel_request(key));
    assert!(stage.is_over(asker));
    stage.says(server, &messages("1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I"));
    assert!(cancels(&mut stage).is_empty() && stage.got(server).is_empty(), "{sent}");
    let got = stage.got(two);
    assert_eq!(error_code(&got), "57014");
    assert!(got.ends_with(&messages("Z:I")));
    stage.says(two, &messages("Q:next"));
    assert_eq!(stage.got(server), messages("Q:next"));
}

#[test]
fn a_server_is_cancelled_with_its_whole_key_however_long() {
    for length in [1, 4, 32, 256] {
        let mut stage = trusting(PoolMode::Transaction);
        let server = stage.server();
        let key = [&[0, 0, 0, 9], &vec![7; length][..]].concat();
        let (mut welcome, usual) = (server_welcome(), message(b'K', &KEY));
        let at = welcome.windows(usual.len()).position(|bytes| bytes == usual).unwrap();
        welcome.splice(at..at + usual.len(), message(b'K', &key));
        stage.says(server, &welcome);
        let client = add_client(&mut stage);
        stage.says(client, &messages("Q:slow"));
        stage.leaves(client);
        assert_eq!(cancels(&mut stage), [cancel_request(&key)]);
    }
}

#[test]
fn a_server_lost_before_the_request_was_sent_costs_the_client_nothing() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client(&mut stage);
    set_time_zone(&mut stage, one, server);
    stage.says(two, &messages("Q:ROLLBACK"));
    // The server dies while it is given the settings of the next client.
    assert!(text(&stage.got(server)).contains("RESET \"TimeZone\""));
    stage.leaves(server);
    assert!(!stage.is_over(two));
    let other = stage.server();
    stage.says(other, &server_welcome());
    assert!(stage.got(other).ends_with(&messages("Q:ROLLBACK")));
    stage.says(other, &messages("C:OK~ Z:I"));
    assert_eq!(stage.got(two), messages("C:OK~ Z:I"));
}

#[test]
fn a_server_that_shuts_down_right_after_an_answer_does_not_take_the_next_client_with_it() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client(&mut stage);
    stage.says(one, &messages("Q:one"));
    stage.says(two, &messages("Q:two"));
    stage.says(server, &messages("C:OK~ Z:I E:SFATAL~VFATAL~C57P01~Mbye~~"));
    stage.leaves(server);
    assert_eq!(stage.got(one), messages("C:OK~ Z:I"));
    assert!(!stage.is_over(two));
    let other = stage.server();
    stage.says(other, &server_welcome());
    assert!(stage.got(other).ends_with(&messages("Q:two")));
}

#[test]
fn a_client_survives_a_wait_that_is_too_long() {
    in_all_pieces(PoolMode::Transaction, |stage, holder, server| {
        stage.says(holder, &messages("Q:BEGIN"));
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        let client = add_client(stage);
        stage.says(client, &messages("Q:one"));
        stage.wait(TOO_LONG);
        let got = stage.got(client);
        assert_eq!(error_code(&got), "53300");
        assert!(got.ends_with(&messages("Z:I")));
        assert_eq!(stage.clients().idle, 1);

        stage.says(client, &messages("P:~~~ B:~~"));
        stage.wait(TOO_LONG);
        assert_eq!(error_code(&stage.got(client)), "53300");
        stage.says(client, &messages("E:~ Q:no"));
        assert_eq!(stage.got(client), b"");
        stage.says(client, &messages("S"));
        assert_eq!(stage.got(client), messages("Z:I"));

        stage.says(holder, &messages("Q:COMMIT"));
        stage.says(server, &messages("C:COMMIT~ Z:I"));
        stage.got(server);
        stage.says(client, &messages("Q:three"));
        assert_eq!(stage.got(server), messages("Q:three"));
    });
}

#[test]
fn what_stands_behind_a_refused_request_is_not_done_without_it() {
    let (mut stage, server, holder) = one_of_each();
    stage.says(holder, &messages("Q:BEGIN"));
    let client = add_client(&mut stage);
    stage.says(client, &messages("Q:BEGIN Q:two"));
    stage.wait(TOO_LONG);
    let got = stage.got(client);
    assert_eq!(error_code(&got), "53300");
    assert!(text(&got).contains("FATAL") && text(&got).contains("behind a refused one"), "{}", text(&got));
    assert!(stage.is_over(client));
    assert_eq!((stage.servers().waiters, stage.got(server)), (0, messages("Q:BEGIN")));
}

#[test]
fn what_has_arrived_behind_a_refused_request_is_not_done_though_it_came_later() {
    let (mut stage, server, holder) = one_of_each();
    stage.says(holder, &messages("Q:BEGIN"));
    let client = add_client(&mut stage);
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(client, &messages("Q:two"));
    stage.wait(TOO_LONG);
    let got = stage.got(client);
    assert_eq!(error_code(&got), "53300");
    assert!(text(&got).contains("FATAL") && text(&got).contains("behind a refused one"), "{}", text(&got));
    assert!(stage.is_over(client));
    assert_eq!((stage.servers().waiters, stage.got(server)), (0, messages("Q:BEGIN")));
}

#[test]
fn what_is_sent_once_the_refusal_has_been_heard_is_done() {
    let (mut stage, server, holder) = one_of_each();
    stage.says(holder, &messages("Q:BEGIN"));
    let client = add_client(&mut stage);
    // A client that awaits the outcome before its Sync, and has its next request ready by then.
    stage.says(client, &messages("P:~select_1~~~ B:~~~~~~~~ E:~~~~~ H"));
    stage.wait(TOO_LONG);
    assert_eq!(error_code(&stage.got(client)), "53300");
    stage.says(server, &messages("C:BEGIN Z:T"));
    stage.says(holder, &messages("Q:COMMIT"));
    stage.says(server, &messages("C:COMMIT Z:I"));
    stage.says(client, &messages("S Q:two"));
    assert_eq!(stage.got(client), messages("Z:I"));
    assert!(!stage.is_over(client));
    assert!(stage.got(server).ends_with(&messages("Q:two")));
}

#[test]
fn a_client_of_an_unavailable_database_is_told_what_the_last_attempt_ended_with() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.set_database(Host::Refuses);
        stage.leaves(server);
        stage.says(client, &messages("Q:one"));
        stage.wait(Duration::from_secs(31));
        let got = stage.got(client);
        assert_eq!(error_code(&got), "57P03");
        assert!(text(&got).contains("refused") && text(&got).contains("unavailable_wait_time"));
        assert!(stage.is_over(client));
    });
}

#[test]
fn a_check_is_an_empty_query() {
    for (answer, stays) in [("N:notice I Z:I", true), ("E:SERROR~C57014~Mno~~ Z:I", false)] {
        in_all_pieces(PoolMode::Transaction, |stage, client, server| {
            stage.configure(|pool| pool.check_after_idle = Some(Duration::from_secs(1)));
            stage.wait(Duration::from_secs(2));
            stage.says(client, &messages("Q:next"));
            assert_eq!(stage.got(server), messages("Q"));
            stage.says(server, &messages(answer));
            assert_eq!((stage.got(server) == messages("Q:next"), stage.is_over(server)), (stays, !stays));
        });
    }
}

#[test]
fn an_idle_server_may_say_what_is_asynchronous_and_nothing_else() {
    in_all_pieces(PoolMode::Transaction, |stage, _, server| {
        stage.says(server, &messages("N:notice A:note S:TimeZone~CET~ S:in_hot_standby~on~"));
        assert!(!stage.is_over(server));
        stage.says(server, &messages("E:SFATAL~VFATAL~C57P01~Mbye~~"));
        assert!(stage.is_over(server));
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
        let (mut stage, server, client) = one_of_each();
        stage.limit(PoolTimeouts { query: Some(Some(Duration::from_millis(1500))), ..PoolTimeouts::default() });
        // Pools are asked for their times now and then.
        stage.wait(Duration::from_secs(1));
        stage.says(client, &messages(&pipeline));
        stage.says(server, &messages(parsed));
        for _ in 0..7 {
            stage.wait(Duration::from_millis(400));
            stage.says(server, &messages(answer));
        }
        assert!(!stage.is_over(client) && !text(&stage.got(client)).contains("57014"), "{pipeline}");
        // The last of them is too slow.
        stage.wait(Duration::from_secs(2));
        assert!(stage.is_over(client) && text(&stage.got(client)).contains("57014"), "{pipeline}");
    }
}
