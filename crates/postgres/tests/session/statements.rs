//! Named prepared statements across servers, as both sides see them on the wire.

use postgres::PoolMode;
use protocol::{ClientTag, ServerTag};

use crate::{
    dialogues::{add_client, add_server, error_code, in_all_pieces, text, verdicts},
    world::{Pieces, World, messages, whole},
};

const PARSE: &str = "P:a~select_1~~~";
const USE: &str = "B:~a~~~~~~~ E:~~~~~ S";

fn name_of(sent: &[u8]) -> String {
    let sent = text(sent);
    let at = sent.find("poolhouse_").expect("a name of ours") + "poolhouse_".len();
    let digits: String = sent[at..].chars().take_while(char::is_ascii_digit).collect();
    format!("poolhouse#{digits}")
}

/// Messages in shorthand, in which a number sign stands for an underscore, and `poolhouse#` for what our names begin with.
pub fn ours(shorthand: &str) -> Vec<u8> {
    let shorthand =
        shorthand.replace('#', "\x7f").replace("poolhouse\x7f", &postgres::STATEMENT_PREFIX.replace('_', "\x7f"));
    messages(&shorthand).into_iter().map(|byte| if byte == 0x7f { b'_' } else { byte }).collect()
}

/// Parses `a` on the server; returns our name of it.
fn parse(world: &mut World, client: ClientTag, server: ServerTag) -> String {
    world.client_says(client, &messages(&format!("{PARSE} S")));
    let name = name_of(&world.server_got(server));
    world.server_says(server, &messages("1 Z:I"));
    assert_eq!(world.client_got(client), messages("1 Z:I"));
    name
}

#[test]
fn a_statement_is_parsed_again_on_the_server_that_lacks_it() {
    in_all_pieces(PoolMode::Transaction, |world, client, first| {
        let name = parse(world, client, first);
        world.client_says(client, &messages(USE));
        assert_eq!(world.server_got(first), ours(&USE.replace("~a~", &format!("~{name}~"))));
        world.server_says(first, &messages("2 C:SELECT_1~ Z:I"));
        assert_eq!(world.client_got(client), messages("2 C:SELECT_1~ Z:I"));

        let second = whole(world, add_server);
        world.idle.retain(|tag| *tag == second);
        world.client_says(client, &messages(USE));
        let expected = format!("P:{name}~select_1~~~ {}", USE.replace("~a~", &format!("~{name}~")));
        assert_eq!(world.server_got(second), ours(&expected));
        world.server_says(second, &messages("1 2 C:SELECT_1~ Z:I"));
        assert_eq!(world.client_got(client), messages("2 C:SELECT_1~ Z:I"));
        assert_eq!(verdicts(world).len(), 3);
    });
}

#[test]
fn a_deallocate_is_executed_whatever_becomes_of_the_parse_before_it() {
    let mut world = World::trusting(PoolMode::Transaction);
    let other = add_server(&mut world);
    let client = add_client(&mut world);
    parse(&mut world, client, other);
    world.client_says(client, &messages("P:~first~~~ S"));
    world.server_says(other, &messages("1 Z:I"));
    let server = add_server(&mut world);
    world.idle.retain(|tag| *tag == server);
    world.client_says(client, &messages("E:bad P:~lost~~~ S"));
    // The Parse before it is skipped, which is told only when this one has been forwarded.
    world.client_says(client, &messages("P:~DEALLOCATE_a~~~"));
    world.server_says(server, &messages("E:SERROR~C34000~~ Z:I"));
    world.server_got(server);
    world.client_says(client, &messages("B:~~~~~~~~ E:~~~~~ S"));
    assert_eq!(world.server_got(server), messages("B:~~~~~~~~ E:~~~~~ S"), "no other statement takes its place");
}

#[test]
fn a_close_that_may_be_skipped_is_waited_for_where_nothing_was_prepared_before() {
    let mut world = World::trusting(PoolMode::Transaction);
    let other = add_server(&mut world);
    let client = add_client(&mut world);
    parse(&mut world, client, other);
    let server = add_server(&mut world);
    world.idle.retain(|tag| *tag == server);
    world.client_says(client, &messages("E:bad C:Sa~ S"));
    world.client_says(client, &messages("P:a~select_2~~~ S"));
    assert!(!text(&world.server_got(server)).contains("select 2"), "whether `a` is closed is not known");
    world.server_says(server, &messages("E:SERROR~C34000~~ Z:I"));
    assert!(text(&world.client_got(client)).contains("C34000"));
    // It is not: so much the server itself is asked.
    let sent = text(&world.server_got(server));
    world.server_says(server, &messages("E:SERROR~C42P05~~ Z:I"));
    assert!(text(&world.client_got(client)).contains("C42P05"), "{sent}");
}

#[test]
fn clients_with_the_same_text_share_a_statement() {
    in_all_pieces(PoolMode::Transaction, |world, one, server| {
        let name = parse(world, one, server);
        let two = whole(world, add_client);
        world.client_says(two, &messages("P:other~select_1~~~ B:~other~~~~~~~ E:~~~~~ S"));
        // In place of the Parse goes a Close of nothing.
        assert_eq!(world.server_got(server), ours(&format!("C:Spoolhouse#0~ B:~{name}~~~~~~~ E:~~~~~ S")));
        world.server_says(server, &messages("3 2 C:SELECT_1~ Z:I"));
        assert_eq!(world.client_got(two), messages("1 2 C:SELECT_1~ Z:I"));
    });
}

#[test]
fn a_parse_of_ours_that_an_error_discarded_is_sent_again() {
    in_all_pieces(PoolMode::Transaction, |world, client, first| {
        let name = parse(world, client, first);
        let second = whole(world, add_server);
        world.idle.retain(|tag| *tag == second);
        // Two pipelines at once; the first fails before its Bind.
        world.client_says(client, &messages(&format!("P:~wrong~~~ {USE} {USE}")));
        let sent = text(&world.server_got(second));
        let plain = name.replace('#', "_");
        assert_eq!(sent.matches(&format!("{plain}~select 1")).count(), 2, "{sent}");
        assert_eq!(sent.matches(&format!("S{plain}~")).count(), 1, "{sent}");
        world.server_says(second, &messages("E:SERROR~C42601~Mwrong~~ Z:I 3 1 2 C:SELECT_1~ Z:I"));
        assert_eq!(world.client_got(client), messages("E:SERROR~C42601~Mwrong~~ Z:I 2 C:SELECT_1~ Z:I"));
        // It is there now.
        world.client_says(client, &messages(USE));
        assert_eq!(world.server_got(second), ours(&USE.replace("~a~", &format!("~{name}~"))));
    });
}

#[test]
fn a_statement_is_deallocated_where_it_is_not_and_could_not_be_parsed() {
    in_all_pieces(PoolMode::Transaction, |world, client, first| {
        parse(world, client, first);
        let second = whole(world, add_server);
        world.idle.retain(|tag| *tag == second);
        world.client_says(client, &messages("P:~DEALLOCATE_a~~~ B:~~~~~~~~ E:~~~~~ S"));
        let taken = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
        let rest = "P:~DEALLOCATE_poolhouse#00~~~ B:~~~~~~~~ E:~~~~~ S";
        assert_eq!(text(&world.server_got(second)), text(&ours(&format!("{taken} {rest}"))));
        world.server_says(second, &messages("3 1 1 2 C:DEALLOCATE~ Z:I"));
        assert_eq!(world.client_got(client), messages("1 2 C:DEALLOCATE~ Z:I"));
        // It is gone for the client.
        world.client_says(client, &messages("P:a~select_2~~~ S"));
        assert!(!text(&world.server_got(second)).contains("poolhouse_00"));
    });
}

#[test]
fn a_name_is_taken_until_it_is_closed() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        parse(world, client, server);
        world.client_says(client, &messages("P:a~select_2~~~ S"));
        let idle = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
        assert_eq!(world.server_got(server), ours(&format!("{idle} P:poolhouse#00~select_2~~~ S")));
        let error = "3 1 E:SERROR~C42P05~Mprepared_statement_\"poolhouse#00\"_already_exists~~ Z:I";
        world.server_says(server, &ours(error));
        let got = world.client_got(client);
        assert_eq!(error_code(&got), "42P05");
        assert!(text(&got).contains("prepared statement \"a\" already exists"), "{}", text(&got));

        world.client_says(client, &messages("C:Sa~ S"));
        assert_eq!(world.server_got(server), ours("C:Spoolhouse#0~ S"));
        world.server_says(server, &messages("3 Z:I"));
        assert_eq!(world.client_got(client), messages("3 Z:I"));
        // Now it is the server that does not know it.
        world.client_says(client, &messages(USE));
        assert_eq!(world.server_got(server), messages(USE));
    });
}

#[test]
fn a_lone_deallocate_is_answered_without_the_server() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        parse(world, client, server);
        world.releases.clear();
        world.client_says(client, &messages("Q:DEALLOCATE_a"));
        assert_eq!(world.client_got(client), messages("C:DEALLOCATE~ Z:I"));
        assert_eq!(world.server_got(server), b"");
        assert_eq!(verdicts(world).len(), 1);
        world.client_says(client, &messages("Q:DEALLOCATE_ALL"));
        assert_eq!(world.client_got(client), messages("C:DEALLOCATE_ALL~ Z:I"));
    });
}

#[test]
fn a_lone_deallocate_takes_the_unnamed_statement_and_in_a_transaction_the_portal() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        parse(world, client, server);
        world.client_says(client, &messages("P:~select_2~~~ S"));
        world.server_says(server, &messages("1 Z:I"));
        world.server_got(server);
        world.client_says(client, &messages("Q:DEALLOCATE_a B:~~~~~~~~ S"));
        assert_eq!(world.server_got(server), messages("C:S~ B:~~~~~~~~ S"), "the server says that there is none");
        world.server_says(server, &messages("3 E:SERROR~C26000~~ Z:I"));
        assert_eq!(world.client_got(client), messages("1 Z:I C:DEALLOCATE~ Z:I E:SERROR~C26000~~ Z:I"));

        parse(world, client, server);
        world.client_says(client, &messages("Q:BEGIN"));
        world.server_says(server, &messages("C:BEGIN~ Z:T"));
        world.server_got(server);
        world.client_got(client);
        world.client_says(client, &messages("Q:DEALLOCATE_a"));
        assert_eq!(world.client_got(client), b"");
        assert_eq!(world.server_got(server), messages("C:P~ S"));
        world.server_says(server, &messages("3 Z:T"));
        assert_eq!(world.client_got(client), messages("C:DEALLOCATE~ Z:T"));
    });
}

#[test]
fn a_statement_parsed_after_a_change_of_meaning_is_nobody_elses() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        let name = parse(world, client, server);
        world.client_says(client, &messages("Q:BEGIN"));
        world.server_says(server, &messages("C:BEGIN~ Z:T"));
        world.client_says(client, &messages("Q:SET_LOCAL_DateStyle_=_German"));
        world.server_says(server, &messages("C:SET~ Z:T"));
        world.server_got(server);
        world.client_got(client);
        world.client_says(client, &messages("P:b~select_1~~~ S"));
        assert_ne!(name_of(&world.server_got(server)), name);
    });
}

#[test]
fn a_deallocate_behind_a_copy_is_answered_at_every_moment_of_that() {
    let told = ["G:~~~", "C:COPY~", "Z:I", "1 2 C:SELECT~", "Z:I"];
    for asked_after in 0..=told.len() {
        let mut world = World::trusting(PoolMode::Transaction);
        let (server, client) = (add_server(&mut world), add_client(&mut world));
        world.client_says(client, &messages(&format!("Q:COPY d:line c {PARSE} {USE}")));
        for (number, message) in told.iter().chain([&""]).enumerate() {
            if number == asked_after {
                world.client_says(client, &messages("Q:DEALLOCATE_a"));
            }
            if !message.is_empty() {
                world.server_says(server, &messages(message));
            }
        }
        let got = text(&world.client_got(client));
        assert!(got.contains("DEALLOCATE"), "after {asked_after} messages: {got}");
        assert!(!text(&world.server_got(server)).contains("DEALLOCATE"), "after {asked_after} messages");
    }
}

#[test]
fn a_deallocate_is_answered_though_the_beginning_of_a_copy_has_come_in_part() {
    let begins = messages("1 2 G:~~~");
    for part in 0..=begins.len() {
        let mut world = World::trusting(PoolMode::Transaction);
        let (server, client) = (add_server(&mut world), add_client(&mut world));
        parse(&mut world, client, server);
        world.client_says(client, &messages("P:~COPY~~~ B:~~~~~~~~ E:~~~~~ d:line c S"));
        world.server_says(server, &begins[..part]);
        world.client_says(client, &messages("Q:DEALLOCATE_a"));
        world.server_says(server, &begins[part..]);
        world.server_says(server, &messages("C:COPY~ Z:I"));
        let got = world.client_got(client);
        assert_eq!(got, messages("1 2 G:~~~ C:COPY~ Z:I C:DEALLOCATE~ Z:I"), "{part}: {}", text(&got));
        assert!(!text(&world.server_got(server)).contains("DEALLOCATE"), "{part}");
    }
}

#[test]
fn what_comes_while_a_request_is_about_to_be_repeated_is_asked_behind_it() {
    for next in ["Q:select_2", "S", "H S", "B:~a~~~~~~~ E:~~~~~ S"] {
        let mut world = World::trusting(PoolMode::Transaction);
        let (server, client) = (add_server(&mut world), add_client(&mut world));
        let name = parse(&mut world, client, server);
        world.client_says(client, &messages(USE));
        world.server_got(server);
        // PostgreSQL sends an error at once, and that it is ready a moment later.
        world.server_says(server, &messages("E:SERROR~C0A000~Mno~RRevalidateCachedQuery~~"));
        world.client_says(client, &messages(next));
        assert_eq!(text(&world.server_got(server)), "", "{next}");
        world.server_says(server, &messages("Z:I"));
        let renamed = |request: &str| request.replace("~a~", &format!("~{name}~"));
        let again = format!("C:S{name}~ P:{name}~select_1~~~ {}", renamed(USE));
        let got = text(&world.server_got(server));
        assert!(got.starts_with(&text(&ours(&again))) && got.len() > text(&ours(&again)).len(), "{next}: {got}");
        world.server_says(server, &messages("3 1 2 C:SELECT_1~ Z:I"));
        assert_eq!(world.client_got(client), messages("2 C:SELECT_1~ Z:I"), "{next}");
    }
}

#[test]
fn a_name_is_taken_for_a_text_that_is_too_long_to_be_kept_as_well() {
    let mut world = World::trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    parse(&mut world, client, server);
    let long = "x".repeat(2 * world.max_held);
    world.pieces = Pieces::Of(5000);
    world.client_says(client, &messages(&format!("P:a~{long}~~~ S")));
    let idle = "C:Spoolhouse#00~ P:poolhouse#00~~~~";
    let got = world.server_got(server);
    assert_eq!(got, ours(&format!("{idle} P:poolhouse#00~{long}~~~ S")));
    world.server_says(server, &ours("3 1 E:SERROR~C42P05~Mprepared_statement_\"poolhouse#00\"_already_exists~~ Z:I"));
    let got = world.client_got(client);
    assert_eq!(error_code(&got), "42P05");
    assert!(text(&got).contains("prepared statement \"a\" already exists"), "{}", text(&got));
}
