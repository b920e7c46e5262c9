//! Clients with a dedicated server, as replication connections have: what passes, and how each of them ends at each
//! point of the dialogue.

use std::time::Duration;

use postgres_session::PoolMode;
use sim::{
    network::EndId,
    rig::{
        Pieces,
        postgres::{message, messages, server_welcome, startup},
    },
};

use crate::support::{PostgresRig, all_pieces, error_code, text, trusting, whole};

/// A rig whose pool may have servers for several clients.
fn rig() -> PostgresRig {
    let mut rig = trusting(PoolMode::Dedicated);
    rig.configure(|pool| pool.max_size = 4);
    rig
}

/// A client that asks for replication and waits for its server.
fn add_client(rig: &mut PostgresRig) -> EndId {
    let client = rig.connect_client();
    let parameters = [("user", "app"), ("replication", "database"), ("application_name", "walreceiver")];
    whole(rig, |rig| rig.send(client, &startup(3 << 16, &parameters)));
    client
}

/// A client with its server, before the client's first request.
fn add_pair(rig: &mut PostgresRig) -> (EndId, EndId) {
    let client = add_client(rig);
    let server = rig.take_new_server().expect("a server is made for the client");
    whole(rig, |rig| rig.send(server, &server_welcome()));
    rig.take_received(server);
    rig.take_received(client);
    (client, server)
}

fn in_all_pieces(dialogue: impl Fn(&mut PostgresRig, EndId, EndId)) {
    for pieces in all_pieces() {
        let mut rig = rig();
        let (client, server) = add_pair(&mut rig);
        rig.pieces = pieces;
        dialogue(&mut rig, client, server);
    }
}

/// The client has left: the server has received no more than this, and is closed.
fn assert_given_up(rig: &mut PostgresRig, server: EndId, received: &[u8]) {
    assert_eq!(text(&rig.take_received(server)), text(received));
    assert!(rig.is_closed(server), "a dedicated server goes with its client");
    assert_eq!((rig.server_counts().total, rig.client_counts().active), (0, 0));
}

fn stream(rig: &mut PostgresRig, client: EndId, server: EndId) {
    rig.exchange(client, server, "Q:START_REPLICATION", "W:~~~ d:wal");
    assert_eq!(rig.take_received(client), messages("W:~~~ d:wal"));
}

#[test]
fn the_client_sees_what_its_own_server_reports() {
    for pieces in all_pieces() {
        let mut rig = rig();
        let client = add_client(&mut rig);
        rig.pieces = pieces;
        assert_eq!(rig.take_received(client), b"", "the login is answered when the server is ready");
        let server = rig.take_new_server().expect("a server is made for the client");
        let asked = text(&rig.take_received(server));
        assert!(asked.contains("user~app~database~db~"), "{asked}");
        rig.send(server, &server_welcome());
        let got = text(&rig.take_received(client));
        for part in ["application_name~ph~", "server_version~17.2~", "TimeZone~UTC~"] {
            assert!(got.contains(part), "{got}");
        }
        assert_eq!(rig.take_received(server), b"", "nothing is asked of a dedicated server");
        assert!(!got.contains("\u{1}\u{2}\u{3}\u{4}"), "the key is of Poolhouse");
    }
}

#[test]
fn messages_pass_unchanged_in_both_directions() {
    in_all_pieces(|rig, client, server| {
        let asked = messages("Q:IDENTIFY_SYSTEM P:a~SELECT_1~~~ B:~~~~~~~~ E:~~~~~ S: F:abc Q:PREPARE_TRANSACTION");
        rig.send(client, &asked);
        assert_eq!(rig.take_received(server), asked);
        let answered =
            messages("T:~~ D:x C:OK~ Z:I 1: 2: D:y C:OK~ Z:T A:abcdchannel~payload~ N:~ E:SERROR~C42601~~ Z:E");
        rig.send(server, &answered);
        assert_eq!(rig.take_received(client), answered);
        let stream = messages("W:~~~ d:first d:second S:TimeZone~CET~ d:third");
        rig.send(server, &stream);
        assert_eq!(rig.take_received(client), stream);
        let status = messages("d:r d:h");
        rig.send(client, &status);
        assert_eq!(rig.take_received(server), status);
        assert!(!rig.is_closed(client) && !rig.is_closed(server));
    });
}

#[test]
fn requests_that_come_before_the_login_is_answered_wait_for_the_server() {
    let mut rig = rig();
    let client = rig.connect_client();
    let start = startup(3 << 16, &[("user", "app"), ("replication", "true")]);
    rig.send(client, &[start, messages("Q:early")].concat());
    let server = rig.take_new_server().expect("a server");
    rig.take_received(server);
    rig.send(server, &server_welcome());
    assert_eq!(rig.take_received(server), messages("Q:early"));
}

#[test]
fn a_client_that_leaves_takes_its_server_with_it() {
    in_all_pieces(|rig, client, server| {
        rig.exchange(client, server, "Q:SELECT", "C:OK~ Z:I");
        rig.send(client, &messages("X:"));
        assert_given_up(rig, server, &messages("X:"));
        assert!(rig.is_closed(client));
    });
    in_all_pieces(|rig, client, server| {
        stream(rig, client, server);
        rig.close(client);
        assert_given_up(rig, server, &messages("X:"));
    });
    // Inside its own message no Terminate can be sent.
    let mut rig = rig();
    let (client, server) = add_pair(&mut rig);
    stream(&mut rig, client, server);
    rig.send(client, &messages("d:status")[..7]);
    rig.close(client);
    assert_given_up(&mut rig, server, &messages("d:status")[..7]);
}

#[test]
fn a_query_of_a_client_that_leaves_is_cancelled() {
    let mut rig = rig();
    let (client, server) = add_pair(&mut rig);
    rig.send(client, &messages("Q:BASE_BACKUP"));
    rig.take_received(server);
    rig.close(client);
    let cancel = rig.take_new_server().expect("a connection for the cancel request");
    assert_eq!(rig.take_received(cancel)[8..], [0, 0, 0, 9, 1, 2, 3, 4]);
    rig.close(cancel);
    assert!(rig.is_closed(server));
}

#[test]
fn a_server_serves_one_client_only() {
    let mut rig = rig();
    let (one, first) = add_pair(&mut rig);
    let (two, second) = add_pair(&mut rig);
    rig.exchange(one, first, "Q:CREATE_TEMP", "C:OK~ Z:I");
    rig.close(one);
    assert!(rig.is_closed(first) && !rig.is_closed(second));
    let (three, third) = add_pair(&mut rig);
    rig.exchange(three, third, "Q:a", "C:a~ Z:I");
    rig.exchange(two, second, "Q:b", "C:b~ Z:I");
    assert_eq!((rig.take_received(three), rig.take_received(two)), (messages("C:a~ Z:I"), messages("C:b~ Z:I")));
}

#[test]
fn a_server_whose_client_left_before_it_was_ready_is_given_to_the_next_unless_it_says_something() {
    for says in [None, Some("N:SNOTICE~~"), Some("S:TimeZone~CET~"), Some("E:SFATAL~C57P01~Mbye~~")] {
        let mut rig = rig();
        let gone = add_client(&mut rig);
        let server = rig.take_new_server().expect("a server");
        rig.close(gone);
        rig.send(server, &server_welcome());
        if let Some(says) = says {
            rig.send(server, &messages(says));
            assert!(rig.is_closed(server), "{says}");
            continue;
        }
        let client = add_client(&mut rig);
        rig.take_received(client);
        rig.take_received(server);
        rig.exchange(client, server, "Q:a", "C:a~ Z:I");
        assert_eq!(rig.take_received(client), messages("C:a~ Z:I"));
    }
}

#[test]
fn what_the_server_refuses_reaches_the_client() {
    for (code, message) in [("42501", "must_be_superuser"), ("53300", "too_many_walsenders"), ("28000", "no_entry")] {
        let mut rig = rig();
        let client = add_client(&mut rig);
        let server = rig.take_new_server().expect("a server");
        rig.send(server, &messages(&format!("E:SFATAL~VFATAL~C{code}~M{message}~~")));
        rig.close(server);
        let got = text(&rig.take_received(client));
        assert!(got.contains(&message.replace('_', " ")) && got.contains(code), "{got}");
        assert!(rig.is_closed(client));
    }
}

#[test]
fn a_client_hears_of_the_end_of_its_server_between_two_messages_only() {
    in_all_pieces(|rig, client, server| {
        stream(rig, client, server);
        rig.close(server);
        assert_eq!(error_code(&rig.take_received(client)), "08006");
        assert!(rig.is_closed(client));
    });
    // The server has said why itself.
    in_all_pieces(|rig, client, server| {
        stream(rig, client, server);
        let error = messages("E:SFATAL~VFATAL~C57P01~Mterminating~~");
        rig.send(server, &error);
        rig.close(server);
        assert_eq!(rig.take_received(client), error);
        assert!(rig.is_closed(client));
    });
    let mut rig = rig();
    let (client, server) = add_pair(&mut rig);
    stream(&mut rig, client, server);
    let part = &messages("d:half_a_message")[..9];
    rig.send(server, part);
    rig.close(server);
    assert_eq!(rig.take_received(client), part);
    assert!(rig.is_closed(client));
}

#[test]
fn a_stream_ends_at_a_drain_and_a_query_is_finished_first() {
    let mut rig = rig();
    let (streaming, first) = add_pair(&mut rig);
    let (asking, second) = add_pair(&mut rig);
    stream(&mut rig, streaming, first);
    rig.send(asking, &messages("Q:BASE_BACKUP"));
    rig.take_received(second);
    rig.stop(true);
    rig.wait(Duration::from_millis(50));
    assert_eq!(error_code(&rig.take_received(streaming)), "57P01");
    assert!(rig.is_closed(streaming) && rig.is_closed(first) && !rig.is_closed(asking));
    rig.send(second, &messages("C:OK~ Z:I"));
    rig.wait(Duration::from_millis(50));
    assert!(text(&rig.take_received(asking)).starts_with("C"));
    assert!(rig.is_closed(asking) && rig.is_closed(second));
}

#[test]
fn the_idle_time_holds_while_nothing_is_streamed() {
    let mut rig = rig();
    rig.set_timeouts(driver::PoolTimeouts {
        client_idle: Some(Some(Duration::from_secs(2))),
        ..driver::PoolTimeouts::default()
    });
    let (streaming, first) = add_pair(&mut rig);
    let (idle, _) = add_pair(&mut rig);
    stream(&mut rig, streaming, first);
    rig.wait(Duration::from_secs(3));
    assert_eq!(error_code(&rig.take_received(idle)), "57P05");
    assert!(!rig.is_closed(streaming) && !rig.is_closed(first));
    // Behind the end of the stream the client is idle again.
    rig.send(streaming, &messages("c:"));
    rig.send(first, &messages("c: C:COPY~ Z:I"));
    rig.wait(Duration::from_secs(3));
    assert!(rig.is_closed(streaming));
}

#[test]
fn bytes_that_are_no_messages_end_both_connections() {
    let broken = [b'd', 0, 0, 0, 1];
    in_all_pieces(|rig, client, server| {
        rig.send(client, &broken);
        assert_eq!(error_code(&rig.take_received(client)), "08P01");
        assert!(rig.is_closed(client) && rig.is_closed(server));
    });
    in_all_pieces(|rig, client, server| {
        rig.send(server, &broken);
        assert_eq!(error_code(&rig.take_received(client)), "08006");
        assert!(rig.is_closed(client) && rig.is_closed(server));
    });
    let mut rig = rig();
    let (client, server) = add_pair(&mut rig);
    rig.pieces = Pieces::Whole;
    rig.send(server, &message(b'Z', b"no"));
    assert!(rig.is_closed(client) && rig.is_closed(server));
}
