//! Clients without settings of their own have the server's, and get new values before the first row under them.

use std::time::Duration;

use postgres_session::PoolMode;
use sim::{
    network::EndId,
    rig::postgres::{message, messages, server_welcome, survey_answer},
};

use crate::support::{
    PostgresRig, add_client, add_client_with, add_server, all_pieces, assert_clean, assert_surveyed, one_of_each, text,
    trusting, whole,
};

const STYLE: &str = "S:DateStyle~ISO,_DMY~";

/// The sources of all reported values: the server's configuration, except for these.
fn sources(others: &[(&str, &str)]) -> Vec<u8> {
    let source =
        |name: &str| others.iter().find(|(other, _)| *other == name).map_or("configuration file", |(_, it)| it);
    let names = ["application_name", "client_encoding", "DateStyle", "TimeZone"];
    survey_answer(&names.map(|name| [name, source(name), "t"]))
}

/// The same from a server that also reports a change.
fn sources_with(report: &str, others: &[(&str, &str)]) -> Vec<u8> {
    let answer = sources(others);
    let ready = messages("Z:I").len();
    [&answer[..answer.len() - ready], &messages(&format!("{report} Z:I"))].concat()
}

fn assert_asked(rig: &mut PostgresRig, server: EndId) {
    let asked = text(&rig.take_received(server));
    assert!(asked.contains("/* poolhouse: defaults */") && asked.contains("DateStyle"), "{asked}");
}

/// The server is asked, and answers that all values are from its configuration.
fn answer_sources(rig: &mut PostgresRig, server: EndId) {
    assert_asked(rig, server);
    rig.send(server, &sources(&[]));
}

/// A reload: the answer to a client's request reports another value, which is from the configuration.
fn reload(rig: &mut PostgresRig, client: EndId, server: EndId) {
    rig.send(client, &messages("Q:SELECT_1"));
    rig.take_received(server);
    rig.send(server, &messages(&format!("C:SELECT~ {STYLE} Z:I")));
    assert_eq!(rig.take_received(client), messages(&format!("C:SELECT~ {STYLE} Z:I")));
    answer_sources(rig, server);
    assert_clean(rig, server);
}

#[test]
fn a_client_that_has_set_nothing_is_told_of_a_new_default_before_its_first_row() {
    for pieces in all_pieces() {
        let (mut rig, server, one) = one_of_each();
        let (two, three) = (add_client(&mut rig), add_client_with(&mut rig, &[("TimeZone", "CET")]));
        assert!(text(&rig.take_received(server)).contains("SET \"TimeZone\" = 'CET'"));
        rig.send(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
        rig.take_received(three);
        rig.pieces = pieces;
        rig.send(two, &messages("Q:SELECT_0"));
        assert!(text(&rig.take_received(server)).contains("RESET \"TimeZone\";"));
        rig.send(server, &messages("1 2 C:BEGIN~ C:RESET~ S:TimeZone~UTC~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
        rig.take_received(two);
        reload(&mut rig, one, server);
        rig.send(two, &messages("Q:SELECT_2"));
        assert_eq!(rig.take_received(two), messages(STYLE));
        let sent = text(&rig.take_received(server));
        assert!(
            sent.contains("DISCARD PLANS;COMMIT") && sent.ends_with("SELECT 2~") && !sent.contains("SET "),
            "{sent}"
        );
        rig.send(server, &messages("1 2 C:BEGIN~ C:DISCARD~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
        assert_eq!(rig.take_received(two), messages("C:SELECT~ Z:I"));
        // A client with a setting of its own keeps that, and gets the other new values.
        rig.send(three, &messages("Q:SELECT_3"));
        assert_eq!(rig.take_received(three), messages(STYLE));
        let sent = text(&rig.take_received(server));
        assert!(sent.contains("SET \"TimeZone\" = 'CET';") && !sent.contains("DateStyle"), "{sent}");
        // A new client gets the new value with its welcome.
        let late = whole(&mut rig, |rig| add_client_with(rig, &[]));
        assert!(text(&rig.take_received(late)).contains("DateStyle~ISO, DMY~"));
    }
}

#[test]
fn a_server_that_has_not_spoken_since_is_asked_before_it_serves() {
    let (mut rig, first, one) = one_of_each();
    let (second, two) = (add_server(&mut rig), add_client(&mut rig));
    rig.send(one, &messages("Q:BEGIN"));
    let (busy, idle) = if rig.take_received(second).is_empty() { (first, second) } else { (second, first) };
    rig.send(busy, &messages(&format!("C:BEGIN~ {STYLE} Z:T")));
    rig.exchange(one, busy, "Q:COMMIT", "C:COMMIT~ Z:I");
    answer_sources(&mut rig, busy);
    rig.exchange(one, busy, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.take_received(busy);
    // The next server reports only when it is asked something.
    rig.send(two, &messages("Q:SELECT_2"));
    assert_asked(&mut rig, idle);
    assert_eq!(rig.take_received(two), b"");
    rig.send(idle, &sources_with(STYLE, &[]));
    assert_eq!(rig.take_received(two), messages(STYLE));
    assert_eq!(text(&rig.take_received(idle)), text(&messages("Q:SELECT_2")));
    rig.send(idle, &messages("C:SELECT~ Z:I"));
    assert_clean(&mut rig, idle);
}

#[test]
fn what_a_client_has_set_is_set_back_for_the_next_and_not_set_otherwise() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client(&mut rig);
    rig.exchange(one, server, "Q:SET_TimeZone_=_'CET'", "C:SET~ S:TimeZone~CET~ Z:I");
    assert_surveyed(&mut rig, server, &[["s", "TimeZone", "CET"]]);
    rig.send(two, &messages("Q:SELECT_2"));
    let sent = text(&rig.take_received(server));
    assert!(sent.contains("RESET \"TimeZone\";") && !sent.contains("SET \"TimeZone\" ="), "{sent}");
    // The default has changed: the client gets the new value before its row, and its source is asked for afterwards.
    rig.send(server, &messages("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ S:TimeZone~EST~ Z:I"));
    assert_eq!(rig.take_received(two), messages("S:TimeZone~EST~"));
    rig.send(server, &messages("C:SELECT~ Z:I"));
    answer_sources(&mut rig, server);
    assert_clean(&mut rig, server);
}

#[test]
fn a_value_that_a_client_had_set_and_that_is_the_default_now_is_told_to_the_next() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client(&mut rig);
    rig.send(one, &messages("Q:SET_DateStyle_=_DMY"));
    rig.take_received(server);
    rig.send(server, &messages(&format!("C:SET~ {STYLE} Z:I")));
    assert_surveyed(&mut rig, server, &[["s", "DateStyle", "ISO, DMY"]]);
    rig.send(two, &messages("Q:SELECT_2"));
    assert!(text(&rig.take_received(server)).contains("RESET \"DateStyle\";"));
    // The default is the same by now, so PostgreSQL reports no change.
    rig.send(server, &messages("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
    assert_eq!(rig.take_received(two), messages(&format!("{STYLE} C:SELECT~ Z:I")));
    answer_sources(&mut rig, server);
    assert_clean(&mut rig, server);
    let late = add_client_with(&mut rig, &[]);
    assert!(text(&rig.take_received(late)).contains("DateStyle~ISO, DMY~"));
}

#[test]
fn what_was_set_to_the_value_of_the_moment_stays_when_that_changes() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client(&mut rig);
    rig.exchange(one, server, "Q:SET_DateStyle_=_'ISO,_MDY'", "C:SET~ Z:I");
    assert_surveyed(&mut rig, server, &[["s", "DateStyle", "ISO, MDY"]]);
    rig.take_received(one);
    rig.send(two, &messages("Q:SELECT_2"));
    assert!(text(&rig.take_received(server)).contains("RESET \"DateStyle\";"));
    rig.send(server, &messages(&format!("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ {STYLE} Z:I C:SELECT~ Z:I")));
    assert_eq!(rig.take_received(two), messages(&format!("{STYLE} C:SELECT~ Z:I")));
    answer_sources(&mut rig, server);
    rig.send(one, &messages("Q:SELECT_1"));
    assert!(text(&rig.take_received(server)).contains("SET \"DateStyle\" = 'ISO, MDY';"));
    rig.send(server, &messages("1 2 C:BEGIN~ C:SET~ C:COMMIT~ S:DateStyle~ISO,_MDY~ Z:I C:SELECT~ Z:I"));
    assert_eq!(rig.take_received(one), messages("C:SELECT~ Z:I"), "nothing is new to it");
    assert_clean(&mut rig, server);
}

#[test]
fn a_report_in_an_answer_to_a_question_of_ours_has_the_server_asked_before_it_goes_back() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client(&mut rig);
    rig.exchange(one, server, "Q:BEGIN;_LISTEN_a;_ROLLBACK", "C:BEGIN~ C:LISTEN~ C:ROLLBACK~ Z:I");
    let surveyed = text(&rig.take_received(server));
    assert!(surveyed.contains("/* poolhouse */ SELECT"), "{surveyed}");
    rig.send(server, &messages(&format!("T:~~ C:SELECT~ {STYLE} Z:I")));
    assert_asked(&mut rig, server);
    // The answer reports another reload.
    rig.send(server, &sources_with("S:TimeZone~CET~", &[]));
    assert_clean(&mut rig, server);
    for client in [one, two] {
        rig.take_received(client);
        rig.send(client, &messages("Q:SELECT_1"));
        let received = text(&rig.take_received(client));
        let news = [STYLE, "S:TimeZone~CET~"].map(|report| text(&messages(report)));
        assert!(news.iter().all(|report| received.contains(report) || client == one), "{received}");
        let sent = text(&rig.take_received(server));
        assert!(sent.ends_with("SELECT 1~") && !sent.contains("SET "), "{sent}");
        let ahead = if sent.contains("DISCARD PLANS") { "1 2 C:BEGIN~ C:DISCARD~ C:COMMIT~ Z:I" } else { "" };
        rig.send(server, &messages(&format!("{ahead} C:SELECT~ Z:I")));
        rig.take_received(client);
    }
}

#[test]
fn what_a_function_has_set_out_of_sight_stays_the_clients() {
    let (mut rig, server, one) = one_of_each();
    let two = add_client(&mut rig);
    rig.send(one, &messages("Q:SELECT_f()"));
    rig.take_received(server);
    rig.send(server, &messages(&format!("C:SELECT~ {STYLE} Z:I")));
    assert_asked(&mut rig, server);
    rig.send(server, &sources(&[("DateStyle", "session")]));
    assert_clean(&mut rig, server);
    rig.send(two, &messages("Q:SELECT_2"));
    assert!(text(&rig.take_received(server)).contains("RESET \"DateStyle\";"));
    rig.send(server, &messages("1 2 C:BEGIN~ C:RESET~ S:DateStyle~ISO,_MDY~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
    assert_eq!(rig.take_received(two), messages("C:SELECT~ Z:I"));
    rig.take_received(one);
    rig.send(one, &messages("Q:SELECT_1"));
    assert!(text(&rig.take_received(server)).contains("SET \"DateStyle\" = 'ISO, DMY';"));
}

#[test]
fn a_server_from_before_a_role_was_altered_is_closed_when_it_is_free() {
    let (mut rig, old, one) = one_of_each();
    let new = rig.next_server();
    rig.take_received(new);
    let welcome = text(&server_welcome()).replace("DateStyle~ISO, MDY", "DateStyle~ISO, DMY").replace('~', "\0");
    rig.send(new, welcome.as_bytes());
    assert_asked(&mut rig, new);
    rig.send(new, &sources(&[("DateStyle", "user")]));
    // The newest server is taken first.
    rig.send(one, &messages("Q:BEGIN"));
    assert_eq!(rig.take_received(one), messages(STYLE));
    assert_eq!(text(&rig.take_received(new)), text(&messages("Q:BEGIN")));
    rig.send(new, &messages("C:BEGIN~ Z:T"));
    let two = add_client_with(&mut rig, &[]);
    assert!(text(&rig.take_received(two)).contains("DateStyle~ISO, DMY~"));
    rig.send(two, &messages("Q:SELECT_2"));
    answer_sources(&mut rig, old);
    assert!(rig.is_closed(old));
    assert_eq!(rig.take_received(two), b"");
}

#[test]
fn that_a_server_takes_no_writes_is_asked_again_before_a_client_is_told() {
    let mut rig = trusting(PoolMode::Transaction);
    let server = rig.next_server();
    rig.take_received(server);
    let ready = messages("Z:I").len();
    let welcome = server_welcome();
    let standby = |value: &str| message(b'S', format!("in_hot_standby\0{value}\0").as_bytes());
    rig.send(server, &[&welcome[..welcome.len() - ready], &standby("on"), &messages("Z:I")].concat());
    let early = add_client_with(&mut rig, &[]);
    assert!(text(&rig.take_received(early)).contains("in_hot_standby~on~"));
    rig.wait(Duration::from_secs(2));
    // The server has been promoted, and reports that with any answer.
    rig.take_received(server);
    let late = add_client_with(&mut rig, &[]);
    assert_eq!(rig.take_received(late), b"");
    assert_eq!(text(&rig.take_received(server)), text(&messages("Q:")));
    rig.send(server, &[&message(b'I', b"")[..], &standby("off"), &messages("Z:I")].concat());
    assert!(text(&rig.take_received(late)).contains("in_hot_standby~off~"));
    let last = add_client_with(&mut rig, &[]);
    assert!(text(&rig.take_received(last)).contains("in_hot_standby~off~"), "from memory");
}
