//! Unnamed prepared statements that are parsed in one round trip and bound in the next, on another server.

use sim::{
    network::EndId,
    stage::{
        Pieces,
        postgres::{messages, survey_answer},
    },
};

use crate::cast::{HELD, Play, add_client, add_server, assert_surveyed, error_code, one_of_each, text};

const USE: &str = "B:~~~~~~~~ E:~~~~~ S";

/// Parses a text of this length; returns the message.
fn parse(stage: &mut Play, client: EndId, server: EndId, length: usize) -> Vec<u8> {
    let parse = messages(&format!("P:~select_'{}'~~~", "x".repeat(length)));
    stage.pieces = Pieces::Of(5000);
    stage.says(client, &parse);
    stage.pieces = Pieces::Whole;
    stage.says(client, &messages("S"));
    assert_eq!(stage.got(server), [&parse[..], &messages("S")].concat());
    stage.says(server, &messages("1 Z:I"));
    answer_survey(stage, server);
    assert_eq!(stage.got(client), messages("1 Z:I"));
    parse
}

/// Where not all of a text was seen, the server is asked what it has left there.
fn answer_survey(stage: &mut Play, server: EndId) {
    if text(&stage.got(server)).contains("/* poolhouse */ SELECT") {
        stage.says(server, &survey_answer(&[]));
    }
}

/// A statement that another client executes takes the server's unnamed one.
fn use_by_another(stage: &mut Play, server: EndId) {
    let other = add_client(stage);
    stage.says(other, &messages(&format!("P:~select_2~~~ {USE}")));
    stage.got(server);
    stage.says(server, &messages("1 2 C:SELECT_1~ Z:I"));
    stage.got(other);
}

#[test]
fn a_statement_of_any_length_is_parsed_again_where_it_is_not_at_hand() {
    for length in [100, HELD - 100, HELD, 3 * HELD, 1 << 20] {
        let (mut stage, first, client) = one_of_each();
        let parse = parse(&mut stage, client, first, length);
        use_by_another(&mut stage, first);
        let second = add_server(&mut stage);
        // Before what has not been read is used again, the server is asked for more.
        for _ in 0..if parse.len() > 4 * HELD { 1 } else { 2 } {
            stage.says(client, &messages(USE));
            let got = stage.got(second);
            let again = [&parse[..], &messages(USE)].concat();
            assert!(got == again, "{length}: {} bytes", got.len());
            stage.says(second, &messages("1 2 C:SELECT_1~ Z:I"));
            answer_survey(&mut stage, second);
            assert_eq!(stage.got(client), messages("2 C:SELECT_1~ Z:I"));
            use_by_another(&mut stage, second);
        }
    }
}

#[test]
fn a_long_statement_that_is_bound_together_with_its_parse_is_not_kept() {
    let (mut stage, server, client) = one_of_each();
    let parse = messages(&format!("P:~select_'{}'~~~", "x".repeat(2 * HELD)));
    stage.pieces = Pieces::Of(5000);
    stage.says(client, &[&parse[..], &messages(USE)].concat());
    stage.pieces = Pieces::Whole;
    assert_eq!(stage.got(server), [&parse[..], &messages(USE)].concat());
    stage.says(server, &messages("1 2 C:SELECT_1~ Z:I"));
    assert_surveyed(&mut stage, server, &[]);
    assert_eq!(stage.got(client), messages("1 2 C:SELECT_1~ Z:I"));
    stage.says(client, &messages(USE));
    assert_eq!(text(&stage.got(server)), text(&messages(&format!("C:S~ {USE}"))));
}

#[test]
fn a_client_whose_statement_was_forgotten_is_told_so() {
    let (mut stage, server, client) = one_of_each();
    parse(&mut stage, client, server, 33 << 20);
    stage.says(client, &messages(USE));
    let sent = text(&stage.got(server));
    assert!(sent.contains("ERRCODE = '26000'") && sent.contains("Poolhouse has forgotten its text"), "{sent}");
    stage.says(server, &messages("1 2 E:SERROR~C26000~Munnamed~~ Z:I"));
    answer_survey(&mut stage, server);
    assert_eq!(error_code(&stage.got(client)), "26000");
    // Another one takes its place.
    parse(&mut stage, client, server, 100);
    stage.says(client, &messages(USE));
    assert_eq!(stage.got(server), messages(USE));
}
