//! Named prepared statements across servers, as both sides see them on the wire.

use postgres_session::{PoolMode, StatePolicy};
use sim::{
    network::EndId,
    rig::{Pieces, postgres::messages},
};

use crate::support::{
    HELD, PostgresRig, add_client, add_server, assert_surveyed, error_code, in_all_pieces, one_of_each, text,
};

const PARSE: &str = "P:a~select_1~~~";
const USE: &str = "B:~a~~~~~~~ E:~~~~~ S";

pub fn name_of(sent: &[u8]) -> String {
    let sent = text(sent);
    let at = sent.find("poolhouse_").expect("a name of ours") + "poolhouse_".len();
    let digits: String = sent[at..].chars().take_while(char::is_ascii_digit).collect();
    format!("poolhouse#{digits}")
}

/// Messages in shorthand, in which `#` stands for an underscore, and `poolhouse#` for the prefix of our names.
pub fn ours(shorthand: &str) -> Vec<u8> {
    let shorthand = shorthand
        .replace('#', "\x7f")
        .replace("poolhouse\x7f", &postgres_session::STATEMENT_PREFIX.replace('_', "\x7f"));
    messages(&shorthand).into_iter().map(|byte| if byte == 0x7f { b'_' } else { byte }).collect()
}

/// Parses `a` on the server; returns our name of it.
fn parse(rig: &mut PostgresRig, client: EndId, server: EndId) -> String {
    rig.send(client, &messages(&format!("{PARSE} S")));
    let name = name_of(&rig.take_received(server));
    rig.send(server, &messages("1 Z:I"));
    assert_eq!(rig.take_received(client), messages("1 Z:I"));
    name
}

#[test]
fn a_statement_is_parsed_again_on_the_server_that_lacks_it() {
    in_all_pieces(PoolMode::Transaction, |rig, client, first| {
        let name = parse(rig, client, first);
        rig.send(client, &messages(USE));
        assert_eq!(rig.take_received(first), ours(&USE.replace("~a~", &format!("~{name}~"))));
        rig.send(first, &messages("2 C:SELECT_1~ Z:I"));
        assert_eq!(rig.take_received(client), messages("2 C:SELECT_1~ Z:I"));

        let second = add_server(rig);
        rig.send(client, &messages(USE));
        let expected = format!("P:{name}~select_1~~~ {}", USE.replace("~a~", &format!("~{name}~")));
        assert_eq!(rig.take_received(second), ours(&expected));
        rig.send(second, &messages("1 2 C:SELECT_1~ Z:I"));
        assert_eq!(rig.take_received(client), messages("2 C:SELECT_1~ Z:I"));
        assert_eq!(rig.server_counts().idle, 2);
    });
}

#[test]
fn a_close_that_may_be_skipped_is_waited_for_where_nothing_was_prepared_before() {
    let (mut rig, other, client) = one_of_each();
    parse(&mut rig, client, other);
    let server = add_server(&mut rig);
    rig.send(client, &messages("E:bad C:Sa~ S"));
    rig.send(client, &messages("P:a~select_2~~~ S"));
    assert!(!text(&rig.take_received(server)).contains("select 2"), "whether `a` is closed is not known");
    rig.send(server, &messages("E:SERROR~C34000~~ Z:I"));
    assert!(text(&rig.take_received(client)).contains("C34000"));
    // It is not closed, so the server is asked.
    let sent = text(&rig.take_received(server));
    rig.send(server, &messages("E:SERROR~C42P05~~ Z:I"));
    assert!(text(&rig.take_received(client)).contains("C42P05"), "{sent}");
}

#[test]
fn clients_with_the_same_text_share_a_statement() {
    in_all_pieces(PoolMode::Transaction, |rig, one, server| {
        let name = parse(rig, one, server);
        let two = add_client(rig);
        rig.send(two, &messages("P:other~select_1~~~ B:~other~~~~~~~ E:~~~~~ S"));
        // A Close of no statement replaces the Parse.
        assert_eq!(rig.take_received(server), ours(&format!("C:Spoolhouse#0~ B:~{name}~~~~~~~ E:~~~~~ S")));
        rig.send(server, &messages("3 2 C:SELECT_1~ Z:I"));
        assert_eq!(rig.take_received(two), messages("1 2 C:SELECT_1~ Z:I"));
    });
}

#[test]
fn a_parse_of_ours_that_an_error_discarded_is_sent_again() {
    in_all_pieces(PoolMode::Transaction, |rig, client, first| {
        let name = parse(rig, client, first);
        let second = add_server(rig);
        // The first of two pipelines fails before its Bind.
        rig.send(client, &messages(&format!("P:~wrong~~~ {USE} {USE}")));
        let sent = text(&rig.take_received(second));
        let plain = name.replace('#', "_");
        assert_eq!(sent.matches(&format!("{plain}~select 1")).count(), 2, "{sent}");
        assert_eq!(sent.matches(&format!("S{plain}~")).count(), 1, "{sent}");
        rig.send(second, &messages("E:SERROR~C42601~Mwrong~~ Z:I 3 1 2 C:SELECT_1~ Z:I"));
        assert_eq!(rig.take_received(client), messages("E:SERROR~C42601~Mwrong~~ Z:I 2 C:SELECT_1~ Z:I"));
        // The server has it now.
        rig.send(client, &messages(USE));
        assert_eq!(rig.take_received(second), ours(&USE.replace("~a~", &format!("~{name}~"))));
    });
}

#[test]
fn a_statement_is_deallocated_where_it_is_not_and_could_not_be_parsed() {
    in_all_pieces(PoolMode::Transaction, |rig, client, first| {
        parse(rig, client, first);
        let second = add_server(rig);
        rig.send(client, &messages("P:~DEALLOCATE_a~~~ B:~~~~~~~~ E:~~~~~ S"));
        let taken = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
        let rest = "P:~DEALLOCATE_poolhouse#00~~~ B:~~~~~~~~ E:~~~~~ S";
        assert_eq!(text(&rig.take_received(second)), text(&ours(&format!("{taken} {rest}"))));
        rig.send(second, &messages("3 1 1 2 C:DEALLOCATE~ Z:I"));
        assert_eq!(rig.take_received(client), messages("1 2 C:DEALLOCATE~ Z:I"));
        // The client does not have it any more.
        rig.send(client, &messages("P:a~select_2~~~ S"));
        assert!(!text(&rig.take_received(second)).contains("poolhouse_00"));
    });
}

#[test]
fn a_name_is_taken_until_it_is_closed() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        parse(rig, client, server);
        rig.send(client, &messages("P:a~select_2~~~ S"));
        let idle = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
        assert_eq!(rig.take_received(server), ours(&format!("{idle} P:poolhouse#00~select_2~~~ S")));
        let error = "3 1 E:SERROR~C42P05~Mprepared_statement_\"poolhouse#00\"_already_exists~~ Z:I";
        rig.send(server, &ours(error));
        let got = rig.take_received(client);
        assert_eq!(error_code(&got), "42P05");
        assert!(text(&got).contains("prepared statement \"a\" already exists"), "{}", text(&got));

        rig.send(client, &messages("C:Sa~ S"));
        assert_eq!(rig.take_received(server), ours("C:Spoolhouse#0~ S"));
        rig.send(server, &messages("3 Z:I"));
        assert_eq!(rig.take_received(client), messages("3 Z:I"));
        // Now the server answers that it does not exist.
        rig.send(client, &messages(USE));
        assert_eq!(rig.take_received(server), messages(USE));
    });
}

#[test]
fn a_lone_deallocate_is_answered_without_the_server() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        parse(rig, client, server);
        rig.send(client, &messages("Q:DEALLOCATE_a"));
        assert_eq!(rig.take_received(client), messages("C:DEALLOCATE~ Z:I"));
        assert_eq!((rig.take_received(server).len(), rig.server_counts().idle), (0, 1));
        rig.send(client, &messages("Q:DEALLOCATE_ALL"));
        assert_eq!(rig.take_received(client), messages("C:DEALLOCATE_ALL~ Z:I"));
        // This holds with any server.
        parse(rig, client, server);
        let other = add_server(rig);
        rig.send(client, &messages("Q:DEALLOCATE_ALL"));
        assert_eq!(rig.take_received(client), messages("C:DEALLOCATE_ALL~ Z:I"));
        assert_eq!(rig.take_received(other), b"");
    });
}

#[test]
fn a_bind_of_what_the_client_never_parsed_leaves_its_other_statements_as_they_are() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        let name = parse(rig, client, server);
        rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
        rig.exchange(
            client,
            server,
            "B:~nothing~~~~~~~ S",
            "E:SERROR~C26000~Mprepared_statement_\"nothing\"_does_not_exist~~ Z:E",
        );
        rig.take_received(server);
        rig.send(client, &messages("D:Sa~ S"));
        assert_eq!(
            text(&rig.take_received(server)),
            text(&ours(&format!("D:S{name}~ S"))),
            "no Parse, which would fail"
        );
    });
}

#[test]
fn a_lone_deallocate_takes_the_unnamed_statement_and_in_a_transaction_the_portal() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        parse(rig, client, server);
        rig.exchange(client, server, "P:~select_2~~~ S", "1 Z:I");
        rig.take_received(server);
        rig.send(client, &messages("Q:DEALLOCATE_a B:~~~~~~~~ S"));
        assert_eq!(rig.take_received(server), messages("C:S~ B:~~~~~~~~ S"), "the server answers that there is none");
        rig.send(server, &messages("3 E:SERROR~C26000~~ Z:I"));
        assert_eq!(rig.take_received(client), messages("1 Z:I C:DEALLOCATE~ Z:I E:SERROR~C26000~~ Z:I"));

        parse(rig, client, server);
        rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
        rig.take_received(server);
        rig.take_received(client);
        rig.send(client, &messages("Q:DEALLOCATE_a"));
        assert_eq!(rig.take_received(client), b"");
        assert_eq!(rig.take_received(server), messages("C:P~ S"));
        rig.send(server, &messages("3 Z:T"));
        assert_eq!(rig.take_received(client), messages("C:DEALLOCATE~ Z:T"));
    });
}

#[test]
fn a_statement_parsed_after_a_change_of_meaning_is_not_shared() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        let name = parse(rig, client, server);
        rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
        rig.exchange(client, server, "Q:SET_LOCAL_DateStyle_=_German", "C:SET~ Z:T");
        rig.take_received(server);
        rig.take_received(client);
        rig.send(client, &messages("P:b~select_1~~~ S"));
        assert_ne!(name_of(&rig.take_received(server)), name);
    });
}

#[test]
fn what_comes_while_a_request_is_about_to_be_repeated_is_asked_behind_it() {
    for next in ["Q:select_2", "S", "H S", "B:~a~~~~~~~ E:~~~~~ S"] {
        let (mut rig, server, client) = one_of_each();
        let name = parse(&mut rig, client, server);
        rig.send(client, &messages(USE));
        rig.take_received(server);
        // PostgreSQL sends its ReadyForQuery a moment after the error.
        rig.send(server, &messages("E:SERROR~C0A000~Mno~RRevalidateCachedQuery~~"));
        rig.send(client, &messages(next));
        assert_eq!(text(&rig.take_received(server)), "", "{next}");
        rig.send(server, &messages("Z:I"));
        let renamed = |request: &str| request.replace("~a~", &format!("~{name}~"));
        let again = format!("C:S{name}~ P:{name}~select_1~~~ {}", renamed(USE));
        let got = text(&rig.take_received(server));
        assert!(got.starts_with(&text(&ours(&again))) && got.len() > text(&ours(&again)).len(), "{next}: {got}");
        rig.send(server, &messages("3 1 2 C:SELECT_1~ Z:I"));
        assert_eq!(rig.take_received(client), messages("2 C:SELECT_1~ Z:I"), "{next}");
    }
}

#[test]
fn a_name_is_taken_for_a_text_that_is_too_long_to_be_kept_as_well() {
    let (mut rig, server, client) = one_of_each();
    parse(&mut rig, client, server);
    let long = "x".repeat(2 * HELD);
    rig.pieces = Pieces::Of(5000);
    rig.send(client, &messages(&format!("P:a~{long}~~~ S")));
    let idle = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
    let got = rig.take_received(server);
    assert_eq!(got, ours(&format!("{idle} P:poolhouse#00~{long}~~~ S")));
    rig.send(server, &ours("3 1 E:SERROR~C42P05~Mprepared_statement_\"poolhouse#00\"_already_exists~~ Z:I"));
    let got = rig.take_received(client);
    assert_eq!(error_code(&got), "42P05");
    assert!(text(&got).contains("prepared statement \"a\" already exists"), "{}", text(&got));
}

#[test]
fn long_parses_of_a_pipeline_are_shared_as_those_that_come_alone() {
    let (mut rig, server, client) = one_of_each();
    let long = "x".repeat(HELD - 100);
    let names = ["a", "b", "c", "d"];
    let pipeline = names.map(|name| format!("P:{name}~{name}{long}~~~")).join(" ");
    rig.send(client, &messages(&format!("{pipeline} S")));
    let got = text(&rig.take_received(server));
    assert_eq!(got.matches("poolhouse_").count(), 4, "{} bytes", got.len());
    rig.send(server, &messages("1 1 1 1 Z:I"));
    assert_eq!(text(&rig.take_received(server)), "", "it is not asked what is left there");
    assert_eq!((rig.take_received(client), rig.server_counts().idle), (messages("1 1 1 1 Z:I"), 1));
}

#[test]
fn no_pipeline_and_no_long_lease_leaves_more_statements_on_a_server_than_it_is_to_have() {
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    let most = StatePolicy::default().max_prepared as usize;
    for turn in 0..2 {
        rig.take_received(server);
        let parses = (0..most + 100).map(|n| format!("P:s{turn}.{n}~select_{turn},{n}~~~ ")).collect::<String>();
        rig.send(client, &messages(&format!("{parses} B:~s{turn}.0~~~~~~~ S")));
        let got = text(&rig.take_received(server));
        let (parsed, closed) = (got.matches("~select").count(), got.matches("Spoolhouse_").count());
        // The first was closed, and is parsed again for its Bind.
        assert_eq!((parsed, closed), (most + 101, if turn == 0 { 102 } else { most + 102 }), "{turn}");
        let answers = got.matches("Spoolhouse_").map(|_| "3 ").collect::<String>();
        rig.send(server, &messages(&format!("{} {answers} 2 Z:T", "1 ".repeat(parsed))));
    }
}

#[test]
fn the_name_of_a_text_that_is_too_long_to_be_kept_is_taken_for_a_short_one_as_well() {
    let (mut rig, server, client) = one_of_each();
    rig.pieces = Pieces::Of(5000);
    rig.send(client, &messages(&format!("P:a~{}~~~ S", "x".repeat(2 * HELD))));
    rig.pieces = Pieces::Whole;
    rig.take_received(server);
    rig.send(server, &messages("1 Z:I"));
    assert_surveyed(&mut rig, server, &[["p", "prepare", ""]]);
    rig.take_received(client);
    rig.send(client, &messages("P:a~select_1~~~ S"));
    assert_eq!(text(&rig.take_received(server)), text(&messages("P:a~select_1~~~ S")), "the server is asked");
    rig.send(server, &messages("E:SERROR~C42P05~Mtaken~~ Z:I"));
    assert_surveyed(&mut rig, server, &[["p", "prepare", ""]]);
    assert_eq!(error_code(&rig.take_received(client)), "42P05");
    // The name is free after a Close.
    rig.exchange(client, server, "C:Sa~ S", "3 Z:I");
    assert_surveyed(&mut rig, server, &[]);
    assert_eq!(rig.take_received(client), messages("3 Z:I"));
    rig.send(client, &messages("P:a~select_1~~~ S"));
    assert!(text(&rig.take_received(server)).contains("poolhouse_"));
}
