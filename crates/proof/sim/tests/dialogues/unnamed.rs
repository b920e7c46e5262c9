//! Unnamed prepared statements that are parsed in one round trip and bound in the next, on another server.

use sim::{
    network::EndId,
    rig::{
        Pieces,
        postgres::{messages, survey_answer},
    },
};

use crate::support::{HELD, PostgresRig, add_client, add_server, assert_surveyed, error_code, one_of_each, text};

const USE: &str = "B:~~~~~~~~ E:~~~~~ S";

/// Parses a text of this length; returns the message.
fn parse(rig: &mut PostgresRig, client: EndId, server: EndId, length: usize) -> Vec<u8> {
    let parse = messages(&format!("P:~select_'{}'~~~", "x".repeat(length)));
    rig.pieces = Pieces::Of(5000);
    rig.send(client, &parse);
    rig.pieces = Pieces::Whole;
    rig.send(client, &messages("S"));
    assert_eq!(rig.take_received(server), [&parse[..], &messages("S")].concat());
    rig.send(server, &messages("1 Z:I"));
    answer_survey(rig, server);
    assert_eq!(rig.take_received(client), messages("1 Z:I"));
    parse
}

/// Answers the survey that follows a text that was not read completely.
fn answer_survey(rig: &mut PostgresRig, server: EndId) {
    if text(&rig.take_received(server)).contains("/* poolhouse */ SELECT") {
        rig.send(server, &survey_answer(&[]));
    }
}

/// Another client replaces the server's unnamed statement.
fn use_by_another(rig: &mut PostgresRig, server: EndId) {
    let other = add_client(rig);
    rig.send(other, &messages(&format!("P:~select_2~~~ {USE}")));
    rig.take_received(server);
    rig.send(server, &messages("1 2 C:SELECT_1~ Z:I"));
    rig.take_received(other);
}

#[test]
fn a_statement_of_any_length_is_parsed_again_where_it_is_not_at_hand() {
    for length in [100, HELD - 100, HELD, 3 * HELD, 1 << 20] {
        let (mut rig, first, client) = one_of_each();
        let parse = parse(&mut rig, client, first, length);
        use_by_another(&mut rig, first);
        let second = add_server(&mut rig);
        // After a text that was not read completely the settings are unknown, and asked for before the next use.
        for _ in 0..if parse.len() > 4 * HELD { 1 } else { 2 } {
            rig.send(client, &messages(USE));
            let got = rig.take_received(second);
            let again = [&parse[..], &messages(USE)].concat();
            assert!(got == again, "{length}: {} bytes", got.len());
            rig.send(second, &messages("1 2 C:SELECT_1~ Z:I"));
            answer_survey(&mut rig, second);
            assert_eq!(rig.take_received(client), messages("2 C:SELECT_1~ Z:I"));
            use_by_another(&mut rig, second);
        }
    }
}

#[test]
fn a_long_statement_that_is_bound_together_with_its_parse_is_not_kept() {
    let (mut rig, server, client) = one_of_each();
    let parse = messages(&format!("P:~select_'{}'~~~", "x".repeat(2 * HELD)));
    rig.pieces = Pieces::Of(5000);
    rig.send(client, &[&parse[..], &messages(USE)].concat());
    rig.pieces = Pieces::Whole;
    assert_eq!(rig.take_received(server), [&parse[..], &messages(USE)].concat());
    rig.send(server, &messages("1 2 C:SELECT_1~ Z:I"));
    assert_surveyed(&mut rig, server, &[]);
    assert_eq!(rig.take_received(client), messages("1 2 C:SELECT_1~ Z:I"));
    rig.send(client, &messages(USE));
    assert_eq!(text(&rig.take_received(server)), text(&messages(&format!("C:S~ {USE}"))));
}

#[test]
fn a_client_whose_statement_was_forgotten_is_told_so() {
    let (mut rig, server, client) = one_of_each();
    parse(&mut rig, client, server, 33 << 20);
    rig.send(client, &messages(USE));
    let sent = text(&rig.take_received(server));
    assert!(sent.contains("ERRCODE = '26000'") && sent.contains("Poolhouse has forgotten its text"), "{sent}");
    rig.send(server, &messages("1 2 E:SERROR~C26000~Munnamed~~ Z:I"));
    answer_survey(&mut rig, server);
    assert_eq!(error_code(&rig.take_received(client)), "26000");
    // Another statement replaces it.
    parse(&mut rig, client, server, 100);
    rig.send(client, &messages(USE));
    assert_eq!(rig.take_received(server), messages(USE));
}
