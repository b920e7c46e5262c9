//! Named prepared statements across servers, as both sides see them on the wire.

use postgres_session::{PoolMode, StatePolicy};
use sim::{
    network::EndId,
    stage::{Pieces, postgres::messages},
};

use crate::cast::{HELD, Play, add_client, add_server, assert_surveyed, error_code, in_all_pieces, one_of_each, text};

const PARSE: &str = "P:a~select_1~~~";
const USE: &str = "B:~a~~~~~~~ E:~~~~~ S";

fn name_of(sent: &[u8]) -> String {
    let sent = text(sent);
    let at = sent.find("poolhouse_").expect("a name of ours") + "poolhouse_".len();
    let digits: String = sent[at..].chars().take_while(char::is_ascii_digit).collect();
    format!("poolhouse#{digits}")
}

/// Messages in shorthand, in which a number sign stands for an underscore, and `poolhouse#` for what our names begin
/// with.
pub fn ours(shorthand: &str) -> Vec<u8> {
    let shorthand = shorthand
        .replace('#', "\x7f")
        .replace("poolhouse\x7f", &postgres_session::STATEMENT_PREFIX.replace('_', "\x7f"));
    messages(&shorthand).into_iter().map(|byte| if byte == 0x7f { b'_' } else { byte }).collect()
}

/// Parses `a` on the server; returns our name of it.
fn parse(stage: &mut Play, client: EndId, server: EndId) -> String {
    stage.says(client, &messages(&format!("{PARSE} S")));
    let name = name_of(&stage.got(server));
    stage.says(server, &messages("1 Z:I"));
    assert_eq!(stage.got(client), messages("1 Z:I"));
    name
}

#[test]
fn a_statement_is_parsed_again_on_the_server_that_lacks_it() {
    in_all_pieces(PoolMode::Transaction, |stage, client, first| {
        let name = parse(stage, client, first);
        stage.says(client, &messages(USE));
        assert_eq!(stage.got(first), ours(&USE.replace("~a~", &format!("~{name}~"))));
        stage.says(first, &messages("2 C:SELECT_1~ Z:I"));
        assert_eq!(stage.got(client), messages("2 C:SELECT_1~ Z:I"));

        let second = add_server(stage);
        stage.says(client, &messages(USE));
        let expected = format!("P:{name}~select_1~~~ {}", USE.replace("~a~", &format!("~{name}~")));
        assert_eq!(stage.got(second), ours(&expected));
        stage.says(second, &messages("1 2 C:SELECT_1~ Z:I"));
        assert_eq!(stage.got(client), messages("2 C:SELECT_1~ Z:I"));
        assert_eq!(stage.servers().idle, 2);
    });
}

#[test]
fn a_close_that_may_be_skipped_is_waited_for_where_nothing_was_prepared_before() {
    let (mut stage, other, client) = one_of_each();
    parse(&mut stage, client, other);
    let server = add_server(&mut stage);
    stage.says(client, &messages("E:bad C:Sa~ S"));
    stage.says(client, &messages("P:a~select_2~~~ S"));
    assert!(!text(&stage.got(server)).contains("select 2"), "whether `a` is closed is not known");
    stage.says(server, &messages("E:SERROR~C34000~~ Z:I"));
    assert!(text(&stage.got(client)).contains("C34000"));
    // It is not: so much the server itself is asked.
    let sent = text(&stage.got(server));
    stage.says(server, &messages("E:SERROR~C42P05~~ Z:I"));
    assert!(text(&stage.got(client)).contains("C42P05"), "{sent}");
}

#[test]
fn clients_with_the_same_text_share_a_statement() {
    in_all_pieces(PoolMode::Transaction, |stage, one, server| {
        let name = parse(stage, one, server);
        let two = add_client(stage);
        stage.says(two, &messages("P:other~select_1~~~ B:~other~~~~~~~ E:~~~~~ S"));
        // In place of the Parse goes a Close of nothing.
        assert_eq!(stage.got(server), ours(&format!("C:Spoolhouse#0~ B:~{name}~~~~~~~ E:~~~~~ S")));
        stage.says(server, &messages("3 2 C:SELECT_1~ Z:I"));
        assert_eq!(stage.got(two), messages("1 2 C:SELECT_1~ Z:I"));
    });
}

#[test]
fn a_parse_of_ours_that_an_error_discarded_is_sent_again() {
    in_all_pieces(PoolMode::Transaction, |stage, client, first| {
        let name = parse(stage, client, first);
        let second = add_server(stage);
        // Two pipelines at once; the first fails before its Bind.
        stage.says(client, &messages(&format!("P:~wrong~~~ {USE} {USE}")));
        let sent = text(&stage.got(second));
        let plain = name.replace('#', "_");
        assert_eq!(sent.matches(&format!("{plain}~select 1")).count(), 2, "{sent}");
        assert_eq!(sent.matches(&format!("S{plain}~")).count(), 1, "{sent}");
        stage.says(second, &messages("E:SERROR~C42601~Mwrong~~ Z:I 3 1 2 C:SELECT_1~ Z:I"));
        assert_eq!(stage.got(client), messages("E:SERROR~C42601~Mwrong~~ Z:I 2 C:SELECT_1~ Z:I"));
        // It is there now.
        stage.says(client, &messages(USE));
        assert_eq!(stage.got(second), ours(&USE.replace("~a~", &format!("~{name}~"))));
    });
}

#[test]
fn a_statement_is_deallocated_where_it_is_not_and_could_not_be_parsed() {
    in_all_pieces(PoolMode::Transaction, |stage, client, first| {
        parse(stage, client, first);
        let second = add_server(stage);
        stage.says(client, &messages("P:~DEALLOCATE_a~~~ B:~~~~~~~~ E:~~~~~ S"));
        let taken = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
        let rest = "P:~DEALLOCATE_poolhouse#00~~~ B:~~~~~~~~ E:~~~~~ S";
        assert_eq!(text(&stage.got(second)), text(&ours(&format!("{taken} {rest}"))));
        stage.says(second, &messages("3 1 1 2 C:DEALLOCATE~ Z:I"));
        assert_eq!(stage.got(client), messages("1 2 C:DEALLOCATE~ Z:I"));
        // It is gone for the client.
        stage.says(client, &messages("P:a~select_2~~~ S"));
        assert!(!text(&stage.got(second)).contains("poolhouse_00"));
    });
}

#[test]
fn a_name_is_taken_until_it_is_closed() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        parse(stage, client, server);
        stage.says(client, &messages("P:a~select_2~~~ S"));
        let idle = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
        assert_eq!(stage.got(server), ours(&format!("{idle} P:poolhouse#00~select_2~~~ S")));
        let error = "3 1 E:SERROR~C42P05~Mprepared_statement_\"poolhouse#00\"_already_exists~~ Z:I";
        stage.says(server, &ours(error));
        let got = stage.got(client);
        assert_eq!(error_code(&got), "42P05");
        assert!(text(&got).contains("prepared statement \"a\" already exists"), "{}", text(&got));

        stage.says(client, &messages("C:Sa~ S"));
        assert_eq!(stage.got(server), ours("C:Spoolhouse#0~ S"));
        stage.says(server, &messages("3 Z:I"));
        assert_eq!(stage.got(client), messages("3 Z:I"));
        // Now it is the server that does not know it.
        stage.says(client, &messages(USE));
        assert_eq!(stage.got(server), messages(USE));
    });
}

#[test]
fn a_lone_deallocate_is_answered_without_the_server() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        parse(stage, client, server);
        stage.says(client, &messages("Q:DEALLOCATE_a"));
        assert_eq!(stage.got(client), messages("C:DEALLOCATE~ Z:I"));
        assert_eq!((stage.got(server).len(), stage.servers().idle), (0, 1));
        stage.says(client, &messages("Q:DEALLOCATE_ALL"));
        assert_eq!(stage.got(client), messages("C:DEALLOCATE_ALL~ Z:I"));
        // Whatever server is at hand.
        parse(stage, client, server);
        let other = add_server(stage);
        stage.says(client, &messages("Q:DEALLOCATE_ALL"));
        assert_eq!(stage.got(client), messages("C:DEALLOCATE_ALL~ Z:I"));
        assert_eq!(stage.got(other), b"");
    });
}

#[test]
fn a_bind_of_what_the_client_never_parsed_leaves_its_other_statements_as_they_are() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        let name = parse(stage, client, server);
        stage.says(client, &messages("Q:BEGIN"));
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        stage.says(client, &messages("B:~nothing~~~~~~~ S"));
        stage.says(server, &messages("E:SERROR~C26000~Mprepared_statement_\"nothing\"_does_not_exist~~ Z:E"));
        stage.got(server);
        stage.says(client, &messages("D:Sa~ S"));
        assert_eq!(text(&stage.got(server)), text(&ours(&format!("D:S{name}~ S"))), "no Parse, which would fail");
    });
}

#[test]
fn a_lone_deallocate_takes_the_unnamed_statement_and_in_a_transaction_the_portal() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        parse(stage, client, server);
        stage.says(client, &messages("P:~select_2~~~ S"));
        stage.says(server, &messages("1 Z:I"));
        stage.got(server);
        stage.says(client, &messages("Q:DEALLOCATE_a B:~~~~~~~~ S"));
        assert_eq!(stage.got(server), messages("C:S~ B:~~~~~~~~ S"), "the server says that there is none");
        stage.says(server, &messages("3 E:SERROR~C26000~~ Z:I"));
        assert_eq!(stage.got(client), messages("1 Z:I C:DEALLOCATE~ Z:I E:SERROR~C26000~~ Z:I"));

        parse(stage, client, server);
        stage.says(client, &messages("Q:BEGIN"));
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        stage.got(server);
        stage.got(client);
        stage.says(client, &messages("Q:DEALLOCATE_a"));
        assert_eq!(stage.got(client), b"");
        assert_eq!(stage.got(server), messages("C:P~ S"));
        stage.says(server, &messages("3 Z:T"));
        assert_eq!(stage.got(client), messages("C:DEALLOCATE~ Z:T"));
    });
}

#[test]
fn a_statement_parsed_after_a_change_of_meaning_is_nobody_elses() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        let name = parse(stage, client, server);
        stage.says(client, &messages("Q:BEGIN"));
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        stage.says(client, &messages("Q:SET_LOCAL_DateStyle_=_German"));
        stage.says(server, &messages("C:SET~ Z:T"));
        stage.got(server);
        stage.got(client);
        stage.says(client, &messages("P:b~select_1~~~ S"));
        assert_ne!(name_of(&stage.got(server)), name);
    });
}

#[test]
fn what_comes_while_a_request_is_about_to_be_repeated_is_asked_behind_it() {
    for next in ["Q:select_2", "S", "H S", "B:~a~~~~~~~ E:~~~~~ S"] {
        let (mut stage, server, client) = one_of_each();
        let name = parse(&mut stage, client, server);
        stage.says(client, &messages(USE));
        stage.got(server);
        // PostgreSQL sends an error at once, and that it is ready a moment later.
        stage.says(server, &messages("E:SERROR~C0A000~Mno~RRevalidateCachedQuery~~"));
        stage.says(client, &messages(next));
        assert_eq!(text(&stage.got(server)), "", "{next}");
        stage.says(server, &messages("Z:I"));
        let renamed = |request: &str| request.replace("~a~", &format!("~{name}~"));
        let again = format!("C:S{name}~ P:{name}~select_1~~~ {}", renamed(USE));
        let got = text(&stage.got(server));
        assert!(got.starts_with(&text(&ours(&again))) && got.len() > text(&ours(&again)).len(), "{next}: {got}");
        stage.says(server, &messages("3 1 2 C:SELECT_1~ Z:I"));
        assert_eq!(stage.got(client), messages("2 C:SELECT_1~ Z:I"), "{next}");
    }
}

#[test]
fn a_name_is_taken_for_a_text_that_is_too_long_to_be_kept_as_well() {
    let (mut stage, server, client) = one_of_each();
    parse(&mut stage, client, server);
    let long = "x".repeat(2 * HELD);
    stage.pieces = Pieces::Of(5000);
    stage.says(client, &messages(&format!("P:a~{long}~~~ S")));
    let idle = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
    let got = stage.got(server);
    assert_eq!(got, ours(&format!("{idle} P:poolhouse#00~{long}~~~ S")));
    stage.says(server, &ours("3 1 E:SERROR~C42P05~Mprepared_statement_\"poolhouse#00\"_already_exists~~ Z:I"));
    let got = stage.got(client);
    assert_eq!(error_code(&got), "42P05");
    assert!(text(&got).contains("prepared statement \"a\" already exists"), "{}", text(&got));
}

#[test]
fn long_parses_of_a_pipeline_are_shared_as_those_that_come_alone() {
    let (mut stage, server, client) = one_of_each();
    let long = "x".repeat(HELD - 100);
    let names = ["a", "b", "c", "d"];
    let pipeline = names.map(|name| format!("P:{name}~{name}{long}~~~")).join(" ");
    stage.says(client, &messages(&format!("{pipeline} S")));
    let got = text(&stage.got(server));
    assert_eq!(got.matches("poolhouse_").count(), 4, "{} bytes", got.len());
    stage.says(server, &messages("1 1 1 1 Z:I"));
    assert_eq!(text(&stage.got(server)), "", "it is not asked what is left there");
    assert_eq!((stage.got(client), stage.servers().idle), (messages("1 1 1 1 Z:I"), 1));
}

#[test]
fn no_pipeline_and_no_long_lease_leaves_more_statements_on_a_server_than_it_is_to_have() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(server, &messages("C:BEGIN~ Z:T"));
    let most = StatePolicy::default().max_prepared as usize;
    for turn in 0..2 {
        stage.got(server);
        let parses = (0..most + 100).map(|n| format!("P:s{turn}.{n}~select_{turn},{n}~~~ ")).collect::<String>();
        stage.says(client, &messages(&format!("{parses} B:~s{turn}.0~~~~~~~ S")));
        let got = text(&stage.got(server));
        let (parsed, closed) = (got.matches("~select").count(), got.matches("Spoolhouse_").count());
        // The first was closed, and for its Bind it is closed and parsed again.
        assert_eq!((parsed, closed), (most + 101, if turn == 0 { 102 } else { most + 102 }), "{turn}");
        let answers = got.matches("Spoolhouse_").map(|_| "3 ").collect::<String>();
        stage.says(server, &messages(&format!("{} {answers} 2 Z:T", "1 ".repeat(parsed))));
    }
}

#[test]
fn the_name_of_a_text_that_is_too_long_to_be_kept_is_taken_for_a_short_one_as_well() {
    let (mut stage, server, client) = one_of_each();
    stage.pieces = Pieces::Of(5000);
    stage.says(client, &messages(&format!("P:a~{}~~~ S", "x".repeat(2 * HELD))));
    stage.pieces = Pieces::Whole;
    stage.got(server);
    stage.says(server, &messages("1 Z:I"));
    assert_surveyed(&mut stage, server, &[["p", "prepare", ""]]);
    stage.got(client);
    stage.says(client, &messages("P:a~select_1~~~ S"));
    assert_eq!(text(&stage.got(server)), text(&messages("P:a~select_1~~~ S")), "the server tells");
    stage.says(server, &messages("E:SERROR~C42P05~Mtaken~~ Z:I"));
    assert_surveyed(&mut stage, server, &[["p", "prepare", ""]]);
    assert_eq!(error_code(&stage.got(client)), "42P05");
    // It is free when it is closed.
    stage.says(client, &messages("C:Sa~ S"));
    stage.got(server);
    stage.says(server, &messages("3 Z:I"));
    assert_surveyed(&mut stage, server, &[]);
    assert_eq!(stage.got(client), messages("3 Z:I"));
    stage.says(client, &messages("P:a~select_1~~~ S"));
    assert!(text(&stage.got(server)).contains("poolhouse_"));
}
