//! Clients that have set nothing have what their server has, and are told before they get rows that were made under it.

use std::time::Duration;

use postgres_session::PoolMode;
use sim::{
    network::EndId,
    stage::postgres::{message, messages, server_welcome, survey_answer},
};

use crate::cast::{
    Play, add_client, add_client_with, add_server, all_pieces, assert_clean, assert_surveyed, one_of_each, text,
    trusting, whole,
};

const STYLE: &str = "S:DateStyle~ISO,_DMY~";

/// An answer to the question whose the reported values are: all are the server's own but for these, of which it says
/// where they come from.
fn sources(others: &[(&str, &str)]) -> Vec<u8> {
    let source =
        |name: &str| others.iter().find(|(other, _)| *other == name).map_or("configuration file", |(_, it)| it);
    let names = ["application_name", "client_encoding", "DateStyle", "TimeZone"];
    survey_answer(&names.map(|name| [name, source(name), "t"]))
}

/// The same from a server that reports something with it.
fn sources_with(report: &str, others: &[(&str, &str)]) -> Vec<u8> {
    let answer = sources(others);
    let ready = messages("Z:I").len();
    [&answer[..answer.len() - ready], &messages(&format!("{report} Z:I"))].concat()
}

fn assert_asked(stage: &mut Play, server: EndId) {
    let asked = text(&stage.got(server));
    assert!(asked.contains("/* poolhouse: defaults */") && asked.contains("DateStyle"), "{asked}");
}

/// The server has just been asked, and says that all it reports is its own.
fn answer_sources(stage: &mut Play, server: EndId) {
    assert_asked(stage, server);
    stage.says(server, &sources(&[]));
}

fn query(stage: &mut Play, client: EndId, server: EndId) {
    stage.says(client, &messages("Q:SELECT_1"));
    assert_eq!(text(&stage.got(server)), text(&messages("Q:SELECT_1")));
    stage.says(server, &messages("C:SELECT~ Z:I"));
    assert_eq!(stage.got(client), messages("C:SELECT~ Z:I"));
}

/// A client's request is answered with another value of a parameter, and it is learned that this is everybody's.
fn reload(stage: &mut Play, client: EndId, server: EndId) {
    stage.says(client, &messages("Q:SELECT_1"));
    stage.got(server);
    stage.says(server, &messages(&format!("C:SELECT~ {STYLE} Z:I")));
    assert_eq!(stage.got(client), messages(&format!("C:SELECT~ {STYLE} Z:I")));
    answer_sources(stage, server);
    assert_clean(stage, server);
}

#[test]
fn a_client_that_has_set_nothing_is_told_of_a_new_default_before_its_first_row() {
    for pieces in all_pieces() {
        let (mut stage, server, one) = one_of_each();
        let (two, three) = (add_client(&mut stage), add_client_with(&mut stage, &[("TimeZone", "CET")]));
        assert!(text(&stage.got(server)).contains("SET \"TimeZone\" = 'CET'"));
        stage.says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
        stage.got(three);
        stage.pieces = pieces;
        stage.says(two, &messages("Q:SELECT_0"));
        assert!(text(&stage.got(server)).contains("RESET \"TimeZone\";"));
        stage.says(server, &messages("1 2 C:BEGIN~ C:RESET~ S:TimeZone~UTC~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
        stage.got(two);
        reload(&mut stage, one, server);
        stage.says(two, &messages("Q:SELECT_2"));
        assert_eq!(stage.got(two), messages(STYLE));
        let sent = text(&stage.got(server));
        assert!(
            sent.contains("DISCARD PLANS;COMMIT") && sent.ends_with("SELECT 2~") && !sent.contains("SET "),
            "{sent}"
        );
        stage.says(server, &messages("1 2 C:BEGIN~ C:DISCARD~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
        assert_eq!(stage.got(two), messages("C:SELECT~ Z:I"));
        // One that has asked for something else has that, and is told of the rest.
        stage.says(three, &messages("Q:SELECT_3"));
        assert_eq!(stage.got(three), messages(STYLE));
        let sent = text(&stage.got(server));
        assert!(sent.contains("SET \"TimeZone\" = 'CET';") && !sent.contains("DateStyle"), "{sent}");
        // Who logs in now is told at once.
        let late = whole(&mut stage, |stage| add_client_with(stage, &[]));
        assert!(text(&stage.got(late)).contains("DateStyle~ISO, DMY~"));
    }
}

#[test]
fn a_server_that_has_not_spoken_since_is_asked_before_it_serves() {
    let (mut stage, first, one) = one_of_each();
    let (second, two) = (add_server(&mut stage), add_client(&mut stage));
    stage.says(one, &messages("Q:BEGIN"));
    let (busy, idle) = if stage.got(second).is_empty() { (first, second) } else { (second, first) };
    stage.says(busy, &messages(&format!("C:BEGIN~ {STYLE} Z:T")));
    stage.says(one, &messages("Q:COMMIT"));
    stage.got(busy);
    stage.says(busy, &messages("C:COMMIT~ Z:I"));
    answer_sources(&mut stage, busy);
    stage.says(one, &messages("Q:BEGIN"));
    stage.says(busy, &messages("C:BEGIN~ Z:T"));
    stage.got(busy);
    // It is the other one's turn, and that reports only when it is asked something.
    stage.says(two, &messages("Q:SELECT_2"));
    assert_asked(&mut stage, idle);
    assert_eq!(stage.got(two), b"");
    stage.says(idle, &sources_with(STYLE, &[]));
    assert_eq!(stage.got(two), messages(STYLE));
    assert_eq!(text(&stage.got(idle)), text(&messages("Q:SELECT_2")));
    stage.says(idle, &messages("C:SELECT~ Z:I"));
    assert_clean(&mut stage, idle);
}

#[test]
fn what_a_client_has_set_is_set_back_for_the_next_and_not_set_otherwise() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client(&mut stage);
    stage.says(one, &messages("Q:SET_TimeZone_=_'CET'"));
    stage.got(server);
    stage.says(server, &messages("C:SET~ S:TimeZone~CET~ Z:I"));
    assert_surveyed(&mut stage, server, &[["s", "TimeZone", "CET"]]);
    stage.says(two, &messages("Q:SELECT_2"));
    let sent = text(&stage.got(server));
    assert!(sent.contains("RESET \"TimeZone\";") && !sent.contains("SET \"TimeZone\" ="), "{sent}");
    // What it goes back to is another value by now: the client is told before its row, and whose it is is asked behind
    // that.
    stage.says(server, &messages("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ S:TimeZone~EST~ Z:I"));
    assert_eq!(stage.got(two), messages("S:TimeZone~EST~"));
    stage.says(server, &messages("C:SELECT~ Z:I"));
    answer_sources(&mut stage, server);
    assert_clean(&mut stage, server);
}

#[test]
fn a_value_that_a_client_had_set_and_that_is_the_default_now_is_told_to_the_next() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client(&mut stage);
    stage.says(one, &messages("Q:SET_DateStyle_=_DMY"));
    stage.got(server);
    stage.says(server, &messages(&format!("C:SET~ {STYLE} Z:I")));
    assert_surveyed(&mut stage, server, &[["s", "DateStyle", "ISO, DMY"]]);
    stage.says(two, &messages("Q:SELECT_2"));
    assert!(text(&stage.got(server)).contains("RESET \"DateStyle\";"));
    // The database's default has become the same meanwhile: for PostgreSQL there is nothing to report.
    stage.says(server, &messages("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
    assert_eq!(stage.got(two), messages(&format!("{STYLE} C:SELECT~ Z:I")));
    answer_sources(&mut stage, server);
    assert_clean(&mut stage, server);
    let late = add_client_with(&mut stage, &[]);
    assert!(text(&stage.got(late)).contains("DateStyle~ISO, DMY~"));
}

#[test]
fn what_was_set_to_the_value_of_the_moment_stays_when_that_changes() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client(&mut stage);
    stage.says(one, &messages("Q:SET_DateStyle_=_'ISO,_MDY'"));
    stage.got(server);
    stage.says(server, &messages("C:SET~ Z:I"));
    assert_surveyed(&mut stage, server, &[["s", "DateStyle", "ISO, MDY"]]);
    stage.got(one);
    stage.says(two, &messages("Q:SELECT_2"));
    assert!(text(&stage.got(server)).contains("RESET \"DateStyle\";"));
    stage.says(server, &messages(&format!("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ {STYLE} Z:I C:SELECT~ Z:I")));
    assert_eq!(stage.got(two), messages(&format!("{STYLE} C:SELECT~ Z:I")));
    answer_sources(&mut stage, server);
    stage.says(one, &messages("Q:SELECT_1"));
    assert!(text(&stage.got(server)).contains("SET \"DateStyle\" = 'ISO, MDY';"));
    stage.says(server, &messages("1 2 C:BEGIN~ C:SET~ C:COMMIT~ S:DateStyle~ISO,_MDY~ Z:I C:SELECT~ Z:I"));
    assert_eq!(stage.got(one), messages("C:SELECT~ Z:I"), "nothing is new to it");
    assert_clean(&mut stage, server);
}

#[test]
fn a_report_in_an_answer_to_a_question_of_ours_has_the_server_asked_before_it_goes_back() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client(&mut stage);
    stage.says(one, &messages("Q:BEGIN;_LISTEN_a;_ROLLBACK"));
    stage.got(server);
    stage.says(server, &messages("C:BEGIN~ C:LISTEN~ C:ROLLBACK~ Z:I"));
    let surveyed = text(&stage.got(server));
    assert!(surveyed.contains("/* poolhouse */ SELECT"), "{surveyed}");
    stage.says(server, &messages(&format!("T:~~ C:SELECT~ {STYLE} Z:I")));
    assert_asked(&mut stage, server);
    // Another reload, in the answer to that.
    stage.says(server, &sources_with("S:TimeZone~CET~", &[]));
    assert_clean(&mut stage, server);
    for client in [one, two] {
        stage.got(client);
        stage.says(client, &messages("Q:SELECT_1"));
        let told = text(&stage.got(client));
        let news = [STYLE, "S:TimeZone~CET~"].map(|report| text(&messages(report)));
        assert!(news.iter().all(|report| told.contains(report) || client == one), "{told}");
        let sent = text(&stage.got(server));
        assert!(sent.ends_with("SELECT 1~") && !sent.contains("SET "), "{sent}");
        let ahead = if sent.contains("DISCARD PLANS") { "1 2 C:BEGIN~ C:DISCARD~ C:COMMIT~ Z:I" } else { "" };
        stage.says(server, &messages(&format!("{ahead} C:SELECT~ Z:I")));
        stage.got(client);
    }
}

#[test]
fn what_a_function_has_set_out_of_sight_stays_the_clients() {
    let (mut stage, server, one) = one_of_each();
    let two = add_client(&mut stage);
    stage.says(one, &messages("Q:SELECT_f()"));
    stage.got(server);
    stage.says(server, &messages(&format!("C:SELECT~ {STYLE} Z:I")));
    assert_asked(&mut stage, server);
    stage.says(server, &sources(&[("DateStyle", "session")]));
    assert_clean(&mut stage, server);
    stage.says(two, &messages("Q:SELECT_2"));
    assert!(text(&stage.got(server)).contains("RESET \"DateStyle\";"));
    stage.says(server, &messages("1 2 C:BEGIN~ C:RESET~ S:DateStyle~ISO,_MDY~ C:COMMIT~ Z:I C:SELECT~ Z:I"));
    assert_eq!(stage.got(two), messages("C:SELECT~ Z:I"));
    stage.got(one);
    stage.says(one, &messages("Q:SELECT_1"));
    assert!(text(&stage.got(server)).contains("SET \"DateStyle\" = 'ISO, DMY';"));
}

#[test]
fn a_server_from_before_a_role_was_altered_is_closed_when_it_is_free() {
    let (mut stage, old, one) = one_of_each();
    let new = stage.server();
    stage.got(new);
    let welcome = text(&server_welcome()).replace("DateStyle~ISO, MDY", "DateStyle~ISO, DMY").replace('~', "\0");
    stage.says(new, welcome.as_bytes());
    assert_asked(&mut stage, new);
    stage.says(new, &sources(&[("DateStyle", "user")]));
    // The one that came last is taken first.
    stage.says(one, &messages("Q:BEGIN"));
    assert_eq!(stage.got(one), messages(STYLE));
    assert_eq!(text(&stage.got(new)), text(&messages("Q:BEGIN")));
    stage.says(new, &messages("C:BEGIN~ Z:T"));
    let two = add_client_with(&mut stage, &[]);
    assert!(text(&stage.got(two)).contains("DateStyle~ISO, DMY~"));
    stage.says(two, &messages("Q:SELECT_2"));
    answer_sources(&mut stage, old);
    assert!(stage.is_over(old));
    assert_eq!(stage.got(two), b"");
}

#[test]
fn that_a_server_takes_no_writes_is_asked_again_before_a_client_is_told() {
    let mut stage = trusting(PoolMode::Transaction);
    let server = stage.server();
    stage.got(server);
    let ready = messages("Z:I").len();
    let welcome = server_welcome();
    let standby = |value: &str| message(b'S', format!("in_hot_standby\0{value}\0").as_bytes());
    stage.says(server, &[&welcome[..welcome.len() - ready], &standby("on"), &messages("Z:I")].concat());
    let early = add_client_with(&mut stage, &[]);
    assert!(text(&stage.got(early)).contains("in_hot_standby~on~"));
    stage.wait(Duration::from_secs(2));
    // It has been promoted, and says so when it is asked anything.
    stage.got(server);
    let late = add_client_with(&mut stage, &[]);
    assert_eq!(stage.got(late), b"");
    assert_eq!(text(&stage.got(server)), text(&messages("Q:")));
    stage.says(server, &[&message(b'I', b"")[..], &standby("off"), &messages("Z:I")].concat());
    assert!(text(&stage.got(late)).contains("in_hot_standby~off~"));
    let last = add_client_with(&mut stage, &[]);
    assert!(text(&stage.got(last)).contains("in_hot_standby~off~"), "from memory");
}

#[test]
fn one_query_serves_as_before_where_nothing_changes() {
    let (mut stage, server, one) = one_of_each();
    query(&mut stage, one, server);
    assert_clean(&mut stage, server);
}
