//! What clients, servers and Poolhouse say to each other after login. Each dialogue is held with input arriving whole,
//! split at every position, and in small pieces.

use std::time::Duration;

use postgres::{Client, PoolMode};
use protocol::{Blame, ClientTag, CloseReason, LeaseFailure, Refusal, ServerTag, Standing, Verdict};

use crate::world::{Pieces, World, message, messages, server_welcome, startup, survey_answer, whole};

const PIECES_OF: [usize; 3] = [1, 2, 7];

/// Holds a dialogue with a client and a server in every manner of arrival.
pub fn in_all_pieces(mode: PoolMode, dialogue: impl Fn(&mut World, ClientTag, ServerTag)) {
    let splits = (1..48).map(Pieces::SplitAt);
    let small = PIECES_OF.into_iter().map(Pieces::Of);
    for pieces in [Pieces::Whole].into_iter().chain(splits).chain(small) {
        let mut world = World::trusting(mode);
        let server = add_server(&mut world);
        let client = add_client(&mut world);
        world.log.clear();
        world.releases.clear();
        world.pieces = pieces;
        dialogue(&mut world, client, server);
    }
}

pub fn add_server(world: &mut World) -> ServerTag {
    let tag = world.connect_server();
    world.server_got(tag);
    world.server_says(tag, &server_welcome());
    tag
}

pub fn add_client(world: &mut World) -> ClientTag {
    let tag = world.connect_client();
    world.client_says(tag, &startup(3 << 16, &[("user", "app")]));
    assert!(world.clients.0[&tag.0].logged_in);
    world.client_got(tag);
    tag
}

/// The server is asked what was left behind in it, and answers.
pub fn assert_surveyed(world: &mut World, server: ServerTag, rows: &[[&str; 3]]) {
    let asked = world.server_got(server);
    assert!(text(&asked).contains("/* poolhouse */ SELECT"), "{}", text(&asked));
    world.server_says(server, &survey_answer(rows));
}

pub fn verdicts(world: &World) -> Vec<Verdict> {
    world.releases.iter().map(|(_, verdict)| *verdict).collect()
}

pub fn standing(world: &World, client: ClientTag) -> Standing {
    world.clients.0[&client.0].standing
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "~").replace(postgres::STATEMENT_PREFIX.as_str(), "poolhouse_")
}

/// The server has just been sent this ahead of this query.
pub fn assert_prefaced(world: &mut World, server: ServerTag, sql: &str, query: &str) {
    let sent = text(&world.server_got(server));
    let parts = ["BEGIN", sql, "COMMIT~", query];
    let places: Vec<_> =
        parts.iter().map(|part| sent.find(part).unwrap_or_else(|| panic!("no {part} in {sent}"))).collect();
    assert!(places.is_sorted(), "{sent}");
}

/// The server has just been told to forget everything.
pub fn assert_cleaned(world: &mut World, server: ServerTag) {
    let sent = text(&world.server_got(server));
    for part in ["BEGIN", "RESET ALL", "DISCARD TEMP", "pg_advisory_unlock_all", "DEALLOCATE ALL", "COMMIT"] {
        assert!(sent.contains(part), "{sent}");
    }
}

pub fn error_code(bytes: &[u8]) -> String {
    // Where the severity, which is the first field, ends in an error's body.
    let at = bytes.windows(3).position(|w| w == b"R\0C" || w == b"L\0C").expect("an error") + 3;
    String::from_utf8_lossy(&bytes[at..at + 5]).into_owned()
}

#[test]
fn a_client_is_small() {
    assert!(size_of::<Client>() <= 112, "{}", size_of::<Client>());
}

#[test]
fn a_query_takes_a_server_and_its_answer_gives_it_back() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        let query = messages("Q:SELECT_1");
        world.client_says(client, &query);
        assert_eq!(world.server_got(server), query);
        assert_eq!(standing(world, client), Standing::Active);
        let answer = messages("T:~~ D:row D:row N:notice C:SELECT_2~ Z:I");
        world.server_says(server, &answer);
        assert_eq!(world.client_got(client), answer);
        assert_eq!(standing(world, client), Standing::Idle);
        assert_eq!(verdicts(world), [Verdict::Clean]);
        assert_eq!(world.log.len(), 2, "{:?}", world.log);
    });
}

#[test]
fn an_incomplete_message_takes_no_server() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = add_client(&mut world);
    world.log.clear();
    let query = messages("Q:SELECT_1");
    for end in 1..query.len() {
        world.client_says(client, &query[end - 1..end]);
        assert!(world.log.is_empty());
    }
    world.client_says(client, &query[query.len() - 1..]);
    assert_eq!(world.server_got(server), query);
}

#[test]
fn a_message_larger_than_what_is_held_streams_through_in_both_directions() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = add_client(&mut world);
    world.max_held = 100;
    world.pieces = Pieces::Of(60);
    let query = message(b'Q', &[b'x'; 5000]);
    world.client_says(client, &query[..300]);
    assert_eq!(world.server_got(server).len(), 300);
    assert!(world.clients.0[&client.0].held.is_empty());
    world.client_says(client, &query[300..]);
    let row = message(b'D', &[b'y'; 5000]);
    world.server_says(server, &row[..4000]);
    assert_eq!(world.client_got(client).len(), 4000);
    world.server_says(server, &row[4000..]);
    world.server_says(server, &messages("C:SELECT_1~ Z:I"));
    // It could not be read, so the server is asked what it has left behind.
    assert_surveyed(&mut world, server, &[]);
    assert_eq!(verdicts(&world), [Verdict::Clean]);
}

#[test]
fn a_transaction_keeps_its_server() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:BEGIN"));
        world.server_says(server, &messages("C:BEGIN~ Z:T"));
        assert_eq!(standing(world, client), Standing::InTransaction);
        world.client_says(client, &messages("Q:wrong"));
        assert_eq!(standing(world, client), Standing::Active);
        world.server_says(server, &messages("E:SERROR~~ Z:E"));
        assert!(world.releases.is_empty());
        world.client_says(client, &messages("Q:ROLLBACK"));
        world.server_says(server, &messages("C:ROLLBACK~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Clean]);
    });
}

#[test]
fn unsynced_messages_keep_the_server() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("P:~~~ B:~~ E:~ H"));
        world.server_says(server, &messages("1 2 C:SELECT_0~"));
        assert!(world.releases.is_empty());
        world.client_says(client, &messages("S"));
        world.server_says(server, &messages("Z:I"));
        assert_eq!(verdicts(world), [Verdict::Clean]);
        assert_eq!(world.server_got(server), messages("P:~~~ B:~~ E:~ H S"));
    });
}

#[test]
fn a_sync_and_a_flush_alone_need_no_server() {
    in_all_pieces(PoolMode::Transaction, |world, client, _| {
        world.client_says(client, &messages("S H S"));
        assert_eq!(world.client_got(client), messages("Z:I Z:I"));
        assert!(world.log.is_empty());
    });
}

#[test]
fn copy_data_after_a_failed_copy_takes_no_server() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:COPY d:line"));
        world.server_says(server, &messages("G:~~~"));
        world.client_says(client, &messages("d:bad"));
        world.server_got(server);
        world.server_says(server, &messages("E:SERROR~~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Clean]);
        world.client_says(client, &messages("d:more d:more c"));
        assert_eq!(world.server_got(server), b"");
        assert_eq!(verdicts(world), [Verdict::Clean]);
        world.client_says(client, &messages("Q:next"));
        assert_eq!(world.server_got(server), messages("Q:next"));
    });
}

#[test]
fn copy_data_in_a_failed_transaction_is_dropped() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:BEGIN Q:COPY"));
        world.server_says(server, &messages("C:BEGIN~ Z:T G:~~~"));
        world.client_says(client, &messages("d:bad"));
        world.server_says(server, &messages("E:SERROR~~ Z:E"));
        world.server_got(server);
        world.client_says(client, &messages("d:more c Q:ROLLBACK"));
        assert_eq!(world.server_got(server), messages("Q:ROLLBACK"));
        world.server_says(server, &messages("C:ROLLBACK~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Clean]);
    });
}

#[test]
fn a_server_waits_for_the_rest_of_a_message_before_it_is_given_back() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = add_client(&mut world);
    world.releases.clear();
    let data = messages("d:some_long_line");
    world.client_says(client, &messages("Q:COPY"));
    world.server_says(server, &messages("G:~~~"));
    world.client_says(client, &data[..8]);
    world.server_says(server, &messages("E:SERROR~~ Z:I"));
    assert!(world.releases.is_empty());
    world.client_says(client, &data[8..]);
    assert_eq!(verdicts(&world), [Verdict::Clean]);
    assert_eq!(world.server_got(server), [messages("Q:COPY"), data].concat());
}

#[test]
fn a_sync_behind_a_copy_is_sent_only_if_that_fails_at_once() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("P:~COPY_t~~~ B:~~ E:~ S Q:next"));
        assert_eq!(world.server_got(server), messages("P:~COPY_t~~~ B:~~ E:~ H"));
        world.server_says(server, &messages("1 2 G:~~~"));
        world.server_says(server, &messages("E:SERROR~~"));
        let got = world.server_got(server);
        assert!(got.ends_with(&messages("S Q:next")), "{}", text(&got));
        world.server_says(server, &messages("Z:I C:OK~ Z:I"));
        assert_eq!(world.client_got(client), messages("1 2 G:~~~ E:SERROR~~ Z:I C:OK~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Clean]);
    });
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("P:~COPY_t~~~ B:~~ E:~ S"));
        world.server_says(server, &messages("1 2 G:~~~"));
        world.server_got(server);
        world.client_says(client, &messages("d:bad c S"));
        assert_eq!(world.server_got(server), messages("d:bad c S"));
        world.server_says(server, &messages("E:SERROR~~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Clean]);
    });
}

#[test]
fn a_stray_copy_done_never_reaches_a_server() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("P:~SELECT~~~ H"));
        world.server_says(server, &messages("1"));
        world.client_says(client, &messages("c B:~~ E:~ S"));
        assert_eq!(world.server_got(server), messages("P:~SELECT~~~ H B:~~ E:~ S"));
    });
}

#[test]
fn who_waits_in_a_pipeline_is_woken_by_the_error_that_skips_it() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("P:a~SELECT~~~ S"));
        world.server_says(server, &messages("1 Z:I"));
        world.client_got(client);
        world.server_got(server);
        world.client_says(client, &messages("P:~WRONG~~~ Q:SELECT Q:DEALLOCATE_a S"));
        world.server_says(server, &messages("E:SERROR~~"));
        assert!(world.server_got(server).ends_with(&messages("S")));
        world.server_says(server, &messages("Z:I"));
        assert_eq!(world.client_got(client), messages("E:SERROR~~ Z:I"));
    });
}

#[test]
fn session_mode_keeps_the_server_until_the_client_leaves() {
    in_all_pieces(PoolMode::Session, |world, client, server| {
        world.client_says(client, &messages("Q:one"));
        world.server_says(server, &messages("C:OK~ Z:I"));
        assert_eq!(standing(world, client), Standing::Idle);
        assert!(world.releases.is_empty());
        world.client_says(client, &messages("Q:two X"));
        world.server_says(server, &messages("C:OK~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Discard]);
    });
    in_all_pieces(PoolMode::Session, |world, client, server| {
        world.client_says(client, &messages("Q:one"));
        world.server_says(server, &messages("C:OK~ Z:I"));
        world.server_got(server);
        world.client_says(client, &messages("X"));
        assert_eq!(world.clients.0[&client.0].closed, Some(CloseReason::Goodbye));
        assert_eq!(verdicts(world), [Verdict::Reset]);
        assert_cleaned(world, server);
        world.server_says(server, &messages("C:COMMIT~ Z:I"));
        assert_eq!(world.idle, [server]);
    });
}

#[test]
fn statement_mode_refuses_transactions_of_several_statements() {
    in_all_pieces(PoolMode::Statement, |world, client, server| {
        world.client_says(client, &messages("Q:BEGIN"));
        world.server_got(server);
        world.server_says(server, &messages("C:BEGIN~ Z:T"));
        let got = world.client_got(client);
        assert!(got.starts_with(&messages("C:BEGIN~")) && got.ends_with(&messages("Z:I")));
        assert_eq!(error_code(&got), "0A000");
        assert_eq!(verdicts(world), [Verdict::Reset]);
        assert_eq!(world.server_got(server), messages("Q:ROLLBACK"));
        world.server_says(server, &messages("C:ROLLBACK~ Z:I"));
        world.client_says(client, &messages("Q:one"));
        world.server_says(server, &messages("C:OK~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Reset, Verdict::Clean]);
    });
    in_all_pieces(PoolMode::Statement, |world, client, server| {
        world.client_says(client, &messages("Q:BEGIN Q:two Q:COMMIT"));
        world.server_says(server, &messages("C:BEGIN~ Z:T"));
        assert_eq!(error_code(&world.client_got(client)), "0A000");
        assert_eq!(verdicts(world), [Verdict::Discard]);
    });
}

#[test]
fn a_client_that_vanishes_in_a_transaction_leaves_a_server_to_roll_back() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:BEGIN"));
        world.server_says(server, &messages("C:BEGIN~ Z:T"));
        world.server_got(server);
        world.client_leaves(client);
        assert_eq!(verdicts(world), [Verdict::Reset]);
        assert_eq!(world.server_got(server), messages("Q:ROLLBACK"));
        world.server_says(server, &messages("C:ROLLBACK~ Z:I"));
        assert_eq!(world.idle, [server]);
        assert!(world.side.is_empty());
    });
}

#[test]
fn a_client_that_vanishes_in_mid_query_has_it_cancelled_and_its_server_closed() {
    for requests in ["Q:slow", "P:~~~ B:~~ E:~ S", "Q:COPY d:line"] {
        in_all_pieces(PoolMode::Transaction, |world, client, server| {
            world.client_says(client, &messages(requests));
            world.client_leaves(client);
            assert_eq!(verdicts(world), [Verdict::Discard]);
            let mut cancel = 16u32.to_be_bytes().to_vec();
            cancel.extend(80_877_102u32.to_be_bytes());
            cancel.extend([0, 0, 0, 9, 1, 2, 3, 4]);
            assert_eq!(world.side, [(server, cancel)]);
            // What it still sends reaches nobody.
            world.server_says(server, &messages("D:row C:OK~ Z:I"));
        });
    }
}

#[test]
fn a_client_that_vanishes_in_mid_message_leaves_a_server_to_be_closed() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = add_client(&mut world);
    world.releases.clear();
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    world.client_says(client, &messages("Q:longer")[..7]);
    world.client_leaves(client);
    // Nothing of it was forwarded.
    assert_eq!(verdicts(&world), [Verdict::Reset]);
}

#[test]
fn a_client_of_a_server_that_dies_gets_an_error() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:slow"));
        world.server_says(server, &messages("T:~~ D:row"));
        world.server_dies(server);
        let got = world.client_got(client);
        assert!(got.starts_with(&messages("T:~~ D:row")));
        assert_eq!(error_code(&got), "08006");
        assert!(matches!(world.clients.0[&client.0].closed, Some(CloseReason::Error(Blame::Server, _))));
        assert!(world.releases.is_empty());
    });
}

#[test]
fn a_server_that_says_why_it_dies_is_quoted_once() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        let last = messages("E:SFATAL~VFATAL~C57P01~Mterminating~~");
        world.client_says(client, &messages("Q:slow"));
        world.server_says(server, &last);
        world.server_dies(server);
        assert_eq!(world.client_got(client), last);
        let Some(CloseReason::Error(_, text)) = &world.clients.0[&client.0].closed else { panic!() };
        assert!(text.contains("terminating"));
    });
}

#[test]
fn nothing_is_inserted_into_half_a_row() {
    let row = message(b'D', &[b'x'; 40]);
    let half_a_row = |world: &mut World| {
        let server = add_server(world);
        let client = add_client(world);
        world.client_says(client, &messages("Q:slow"));
        world.server_says(server, &row[..20]);
        (client, server)
    };
    let mut world = World::trusting(PoolMode::Transaction);
    let (client, server) = half_a_row(&mut world);
    world.server_dies(server);
    assert_eq!(world.client_got(client), &row[..20]);
    assert!(world.clients.0[&client.0].closed.is_some());

    let mut world = World::trusting(PoolMode::Transaction);
    let (client, server) = half_a_row(&mut world);
    world.client_says(client, b"?????");
    assert_eq!(world.client_got(client), &row[..20]);
    world.server_says(server, &row[20..]);
}

#[test]
fn a_server_that_breaks_the_protocol_is_closed() {
    for nonsense in ["Z:I", "y", "R:~~~~", "Z:IX", "Z:Q", "S:x"] {
        in_all_pieces(PoolMode::Transaction, |world, client, server| {
            world.server_says(server, &messages(nonsense));
            assert!(world.servers.0[&server.0].closed.is_some(), "{nonsense}");
            assert!(world.clients.0[&client.0].closed.is_none());
        });
        in_all_pieces(PoolMode::Transaction, |world, client, server| {
            world.client_says(client, &messages("Q:one"));
            let answer = if nonsense == "Z:I" { "C:OK~ Z:I Z:I" } else { nonsense };
            world.server_says(server, &messages(answer));
            assert!(world.servers.0[&server.0].closed.is_some(), "{nonsense}");
            assert_eq!(world.clients.0[&client.0].closed.is_none(), nonsense == "Z:I");
        });
    }
}

#[test]
fn a_client_never_meets_the_unnamed_statement_of_another() {
    let both = |world: &mut World| {
        let pieces = std::mem::replace(&mut world.pieces, Pieces::Whole);
        let two = add_client(world);
        world.pieces = pieces;
        two
    };
    // Parsed alone, and bound after somebody else: it is parsed again.
    in_all_pieces(PoolMode::Transaction, |world, one, server| {
        let two = both(world);
        world.client_says(one, &messages("P:~mine~~~ D:S~ S"));
        world.server_says(server, &messages("1 t:~~ T:~~ Z:I"));
        world.client_says(two, &messages("P:~theirs~~~ B:~~ E:~ S"));
        world.server_says(server, &messages("1 2 C:OK~ Z:I"));
        world.server_got(server);
        world.client_got(one);
        world.client_says(one, &messages("B:~~ E:~ S"));
        assert_eq!(text(&world.server_got(server)), text(&messages("P:~mine~~~ B:~~ E:~ S")));
        world.server_says(server, &messages("1 2 C:OK~ Z:I"));
        assert_eq!(text(&world.client_got(one)), text(&messages("2 C:OK~ Z:I")));
        // Bound on the same server again: nothing is to be done.
        world.client_says(one, &messages("B:~~ E:~ S"));
        assert_eq!(world.server_got(server), messages("B:~~ E:~ S"));
        world.server_says(server, &messages("2 C:OK~ Z:I"));
        // A simple query destroys it, here as there.
        world.client_says(one, &messages("Q:one"));
        world.server_says(server, &messages("C:OK~ Z:I"));
        world.server_got(server);
        world.client_says(one, &messages("B:~~ S"));
        assert_eq!(world.server_got(server), messages("B:~~ S"));
    });
    // Parsed and bound together, and bound again elsewhere: it does not exist.
    in_all_pieces(PoolMode::Transaction, |world, one, server| {
        let two = both(world);
        world.client_says(one, &messages("P:~mine~~~"));
        world.client_says(one, &messages("B:~~ E:~ S"));
        world.server_says(server, &messages("1 2 C:OK~ Z:I"));
        world.client_says(two, &messages("Q:other"));
        world.server_says(server, &messages("C:OK~ Z:I"));
        world.server_got(server);
        world.client_got(one);
        world.client_says(one, &messages("P:~mine~~~ B:~~ E:~ S"));
        world.server_says(server, &messages("1 2 C:OK~ Z:I"));
        world.client_says(two, &messages("P:~theirs~~~ S"));
        world.server_says(server, &messages("1 Z:I"));
        world.server_got(server);
        world.client_got(one);
        world.client_says(one, &messages("B:~~ E:~ S"));
        let sent = world.server_got(server);
        assert!(sent.ends_with(&messages("B:~~ E:~ S")) && sent.len() > messages("B:~~ E:~ S").len());
        // Where it arrived in pieces it was kept all the same.
        let hidden = if sent[0] == b'P' { "1" } else { "3" };
        world.server_says(server, &messages(&format!("{hidden} E:SERROR~C26000~~ Z:I")));
        assert!(text(&world.client_got(one)).starts_with("E"));
        assert_eq!(world.releases.last(), Some(&(server, Verdict::Clean)));
    });
}

#[test]
fn a_client_never_meets_an_older_unnamed_statement_of_its_own() {
    for destroyed in ["P:~new~~~ D:S~ S", "Q:anything"] {
        let mut world = World::trusting(PoolMode::Transaction);
        let first = add_server(&mut world);
        let one = add_client(&mut world);
        world.client_says(one, &messages("P:~old~~~ B:~~ E:~ S"));
        world.server_says(first, &messages("1 2 C:OK~ Z:I"));
        world.server_got(first);
        let second = add_server(&mut world);
        world.idle.retain(|tag| *tag == second);
        world.client_says(one, &messages(destroyed));
        assert_eq!(text(&world.server_got(second)), text(&messages(destroyed)));
        world.server_says(second, &messages(if destroyed.starts_with('P') { "1 t:~~ T:~~ Z:I" } else { "C:OK~ Z:I" }));
        world.idle.clear();
        world.idle.push_back(first);
        world.client_says(one, &messages("B:~~ E:~ S"));
        // Parsed again, or closed so that the server says itself that there is none.
        let before = if destroyed.starts_with('P') { "P:~new~~~" } else { "C:S~" };
        assert_eq!(text(&world.server_got(first)), text(&messages(&format!("{before} B:~~ E:~ S"))));
    }
}

#[test]
fn a_parse_that_was_discarded_does_not_count() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let one = add_client(&mut world);
    let two = add_client(&mut world);
    world.client_says(two, &messages("P:~theirs~~~ S"));
    world.server_says(server, &messages("1 Z:I"));
    world.client_says(one, &messages("E:bad P:~mine~~~ S"));
    world.server_says(server, &messages("E:SERROR~C34000~~ Z:I"));
    world.server_got(server);
    world.client_says(one, &messages("B:~~ S"));
    // It never was: the server is to say so itself.
    assert_eq!(world.server_got(server), messages("C:S~ B:~~ S"));
}

#[test]
fn a_client_that_breaks_the_protocol_is_told_and_closed() {
    for nonsense in [&b"y\0\0\0\x04"[..], b"Q\0\0\0\x03", b"S\0\0\x40\0", b"p\0\0\0\x04", b"Q\xff\xff\xff\xff"] {
        in_all_pieces(PoolMode::Transaction, |world, client, _| {
            world.client_says(client, nonsense);
            assert_eq!(error_code(&world.client_got(client)), "08P01");
            assert!(matches!(world.clients.0[&client.0].closed, Some(CloseReason::Error(Blame::Client, _))));
        });
    }
}

#[test]
fn a_reported_parameter_follows_its_client_from_server_to_server() {
    in_all_pieces(PoolMode::Transaction, |world, one, first| {
        world.client_says(one, &messages("Q:SET"));
        let answer = messages("C:SET~ S:TimeZone~CET~ Z:I");
        world.server_says(first, &answer);
        assert_eq!(world.client_got(one), answer);
        assert_surveyed(world, first, &[["s", "TimeZone", "CET"]]);

        // Another client gets the same server: its own value comes first.
        let two = {
            let pieces = std::mem::replace(&mut world.pieces, Pieces::Whole);
            let two = add_client(world);
            world.pieces = pieces;
            two
        };
        world.client_says(two, &messages("Q:hello"));
        // In one write with its request.
        assert_prefaced(world, first, "SET \"TimeZone\" = 'UTC'", "hello");
        assert_eq!(standing(world, two), Standing::Active);
        world.server_says(first, &messages("1 2 C:BEGIN~ C:SET~ C:COMMIT~ S:TimeZone~UTC~ Z:I"));
        assert_eq!(world.client_got(two), b"");

        // The first client meanwhile gets another server.
        let second = {
            let pieces = std::mem::replace(&mut world.pieces, Pieces::Whole);
            let second = add_server(world);
            world.pieces = pieces;
            second
        };
        world.client_says(one, &messages("Q:again"));
        assert_prefaced(world, second, "SET \"TimeZone\" = 'CET'", "again");
        world.server_says(second, &messages("1 2 C:BEGIN~ S:TimeZone~CET~ C:COMMIT~ Z:I C:OK~ Z:I"));
        world.server_says(first, &messages("C:OK~ Z:I"));
        // It has the same settings as the server it had last: nothing is to be done.
        world.idle.retain(|tag| *tag == second);
        world.client_says(one, &messages("Q:last"));
        assert_eq!(world.server_got(second), messages("Q:last"));
    });
}

#[test]
fn what_goes_ahead_of_a_request_fails_and_the_request_goes_elsewhere() {
    in_all_pieces(PoolMode::Transaction, |world, one, first| {
        world.client_says(one, &messages("Q:SET"));
        world.server_says(first, &messages("C:SET~ S:TimeZone~CET~ Z:I"));
        assert_surveyed(world, first, &[["s", "TimeZone", "CET"]]);
        let two = whole(world, add_client);
        world.client_says(two, &messages("P:~hello~~~ B:~~~~~~~~ E:~~~~~ S"));
        let sent = text(&world.server_got(first));
        assert!(sent.contains("SET \"TimeZone\" = 'UTC';DISCARD PLANS;COMMIT~P") && sent.contains("hello~"), "{sent}");
        let second = whole(world, add_server);
        world.releases.clear();
        world.server_says(first, &messages("1 2 C:BEGIN~ E:SERROR~C57014~Mtoo_slow~~"));
        assert_eq!(world.releases, [(first, Verdict::Discard)]);
        assert_eq!(world.server_got(second), messages("P:~hello~~~ B:~~~~~~~~ E:~~~~~ S"));
        world.server_says(second, &messages("1 2 C:OK~ Z:I"));
        assert_eq!(world.client_got(two), messages("1 2 C:OK~ Z:I"));
    });
}

#[test]
fn what_ends_transactions_waits_for_the_outcome_of_what_goes_ahead() {
    in_all_pieces(PoolMode::Transaction, |world, one, first| {
        world.client_says(one, &messages("Q:SET"));
        world.server_says(first, &messages("C:SET~ S:TimeZone~CET~ Z:I"));
        assert_surveyed(world, first, &[["s", "TimeZone", "CET"]]);
        let two = whole(world, add_client);
        world.client_says(two, &messages("Q:ROLLBACK Q:hello"));
        assert!(!text(&world.server_got(first)).contains("ROLLBACK"));
        world.server_says(first, &messages("1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I"));
        assert!(world.server_got(first).starts_with(&messages("Q:ROLLBACK")));
    });
}

#[test]
fn a_client_whose_settings_two_servers_refuse_is_told_so() {
    in_all_pieces(PoolMode::Transaction, |world, one, first| {
        world.client_says(one, &messages("Q:SET"));
        world.server_says(first, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
        assert_surveyed(world, first, &[["s", "TimeZone", "CET"]]);
        world.client_got(one);
        world.pieces = Pieces::Whole;
        let two = add_client(world);
        world.client_says(two, &messages("Q:hello"));
        world.server_says(first, &messages("1 2 C:BEGIN~ S:TimeZone~UTC~ C:COMMIT~ Z:I C:OK~ Z:I"));
        world.releases.clear();
        world.client_says(one, &messages("Q:hello"));
        world.server_says(first, &messages("E:SERROR~C22023~Mno_such_zone~~"));
        assert_eq!(verdicts(world), [Verdict::Discard]);
        assert!(world.client_got(one).is_empty());
        // Another server might take it. That is new, so there is no hope of a third.
        let second = add_server(world);
        world.server_says(second, &messages("E:SERROR~C22023~Mno_such_zone~~"));
        let got = world.client_got(one);
        assert_eq!(error_code(&got), "22023");
        assert!(got.windows(12).any(|w| w == b"no such zone"));
        assert_eq!(verdicts(world), [Verdict::Discard, Verdict::Discard]);
    });
}

#[test]
fn a_request_cancelled_while_its_settings_are_applied_is_never_sent() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let one = add_client(&mut world);
    let two = world.connect_client();
    world.client_says(two, &startup(3 << 16, &[("user", "app")]));
    let welcome = world.client_got(two);
    let key = welcome.len() - messages("Z:I").len() - 4;
    let secret = u32::from_be_bytes(welcome[key..key + 4].try_into().unwrap());
    world.client_says(one, &messages("Q:SET"));
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    world.client_says(two, &messages("Q:hello"));
    world.server_got(server);
    world.cancel(two, secret.into());
    world.server_says(server, &messages("S:TimeZone~UTC~ C:SET~ Z:I"));
    assert!(world.side.is_empty() && world.server_got(server).is_empty());
    let got = world.client_got(two);
    assert_eq!(error_code(&got), "57014");
    assert!(got.ends_with(&messages("Z:I")));
    world.client_says(two, &messages("Q:next"));
    assert_eq!(world.server_got(server), messages("Q:next"));
}

#[test]
fn a_server_is_cancelled_with_its_whole_key_however_long() {
    for length in [1, 4, 32, 256] {
        let mut world = World::trusting(PoolMode::Transaction);
        let server = world.connect_server();
        world.server_got(server);
        let key = [&[0, 0, 0, 9], &vec![7; length][..]].concat();
        let (mut welcome, usual) = (server_welcome(), message(b'K', &[0, 0, 0, 9, 1, 2, 3, 4]));
        let at = welcome.windows(usual.len()).position(|bytes| bytes == usual).unwrap();
        welcome.splice(at..at + usual.len(), message(b'K', &key));
        world.server_says(server, &welcome);
        let client = add_client(&mut world);
        world.client_says(client, &messages("Q:slow"));
        world.client_leaves(client);
        let request = [&(8 + key.len() as u32).to_be_bytes()[..], &80_877_102u32.to_be_bytes(), &key].concat();
        assert_eq!(world.side, [(server, request)]);
    }
}

#[test]
fn a_server_lost_before_the_request_was_sent_costs_the_client_nothing() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let one = add_client(&mut world);
    let two = add_client(&mut world);
    world.client_says(one, &messages("Q:SET"));
    world.client_says(two, &messages("Q:hello"));
    world.server_got(server);
    // The server dies while it is given the settings of the waiter.
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    assert!(world.server_got(server).starts_with(b"Q"));
    world.server_dies(server);
    assert!(world.clients.0[&two.0].closed.is_none());
    let other = add_server(&mut world);
    assert_eq!(world.server_got(other), messages("Q:hello"));
    world.server_says(other, &messages("C:OK~ Z:I"));
    assert_eq!(world.client_got(two), messages("C:OK~ Z:I"));
}

#[test]
fn a_server_that_shuts_down_right_after_an_answer_does_not_take_the_next_client_with_it() {
    in_all_pieces(PoolMode::Transaction, |world, one, server| {
        let two = {
            let pieces = std::mem::replace(&mut world.pieces, Pieces::Whole);
            let two = add_client(world);
            world.pieces = pieces;
            two
        };
        world.pieces = Pieces::Whole;
        world.client_says(one, &messages("Q:one"));
        world.client_says(two, &messages("Q:two"));
        world.server_says(server, &messages("C:OK~ Z:I E:SFATAL~VFATAL~C57P01~Mbye~~"));
        world.server_dies(server);
        assert_eq!(world.client_got(one), messages("C:OK~ Z:I"));
        assert!(world.clients.0[&two.0].closed.is_none());
        let other = add_server(world);
        assert_eq!(world.server_got(other), messages("Q:two"));
    });
}

#[test]
fn a_client_survives_a_wait_that_is_too_long() {
    let timeout = || LeaseFailure::WaitTimeout { waited: Duration::from_secs(2), servers: 1, limit: "max_size" };
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.idle.clear();
        world.client_says(client, &messages("Q:one"));
        world.fail_lease(client, timeout());
        let got = world.client_got(client);
        assert_eq!(error_code(&got), "53300");
        assert!(got.ends_with(&messages("Z:I")));
        assert_eq!(standing(world, client), Standing::Idle);

        world.client_says(client, &messages("P:~~~ B:~~"));
        world.fail_lease(client, timeout());
        assert_eq!(error_code(&world.client_got(client)), "53300");
        world.client_says(client, &messages("E:~ Q:no"));
        assert_eq!(world.client_got(client), b"");
        world.client_says(client, &messages("S"));
        assert_eq!(world.client_got(client), messages("Z:I"));

        world.idle.push_back(server);
        world.client_says(client, &messages("Q:three"));
        assert_eq!(world.server_got(server), messages("Q:three"));
    });
}

#[test]
fn what_stands_behind_a_refused_request_is_not_done_without_it() {
    let timeout = || LeaseFailure::WaitTimeout { waited: Duration::from_secs(2), servers: 1, limit: "max_size" };
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.idle.clear();
        world.client_says(client, &messages("Q:BEGIN Q:two"));
        world.fail_lease(client, timeout());
        let got = world.client_got(client);
        let text = String::from_utf8_lossy(&got);
        assert_eq!(error_code(&got), "53300");
        assert!(text.contains("FATAL") && text.contains("behind a refused one"), "{text}");
        assert!(world.clients.0[&client.0].closed.is_some());
        assert!(world.waiters.is_empty() && world.server_got(server).is_empty());
    });
}

#[test]
fn a_client_of_an_unavailable_database_is_told_what_the_last_attempt_ended_with() {
    in_all_pieces(PoolMode::Transaction, |world, client, _| {
        world.idle.clear();
        world.client_says(client, &messages("Q:one"));
        let waited = Duration::from_secs(30);
        world.fail_lease(client, LeaseFailure::Unavailable { waited, last_error: Some("refused".into()) });
        let got = String::from_utf8(world.client_got(client)).unwrap();
        assert_eq!(error_code(got.as_bytes()), "57P03");
        assert!(got.contains("refused") && got.contains("unavailable_wait_time"));
        assert!(world.clients.0[&client.0].closed.is_some());
    });
}

#[test]
fn cancelling_needs_the_secret() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    let welcome = world.client_got(client);
    let key = welcome.len() - messages("Z:I").len() - 8;
    assert_eq!(welcome[key..key + 4], (1 << 16 | client.0).to_be_bytes());
    let secret = u64::from(u32::from_be_bytes(welcome[key + 4..key + 8].try_into().unwrap()));

    world.cancel(client, secret);
    assert!(world.side.is_empty());
    world.client_says(client, &messages("Q:slow"));
    world.cancel(client, secret ^ 1);
    world.cancel(client, secret | 1 << 40);
    assert!(world.side.is_empty());
    world.cancel(client, secret);
    assert_eq!(world.side.len(), 1);
    world.server_says(server, &messages("E:SERROR~C57014~~ Z:I"));
    world.client_got(client);

    // A client that waits for a server is told at once.
    world.idle.clear();
    world.client_says(client, &messages("Q:slow"));
    world.cancel(client, secret);
    let got = world.client_got(client);
    assert_eq!(error_code(&got), "57014");
    assert!(got.ends_with(&messages("Z:I")));
    assert!(world.waiters.is_empty());
    world.idle.push_back(server);
    world.server_got(server);
    world.client_says(client, &messages("Q:next"));
    assert_eq!(world.server_got(server), messages("Q:next"));
}

#[test]
fn a_check_is_an_empty_query() {
    in_all_pieces(PoolMode::Transaction, |world, _, server| {
        world.check(server);
        assert_eq!(world.server_got(server), messages("Q"));
        world.server_says(server, &messages("N:notice I Z:I"));
        assert_eq!(world.idle, [server]);
    });
    in_all_pieces(PoolMode::Transaction, |world, _, server| {
        world.check(server);
        world.server_says(server, &messages("E:SERROR~C57014~Mno~~ Z:I"));
        assert!(world.servers.0[&server.0].closed.is_some());
    });
}

#[test]
fn an_idle_server_may_say_what_is_asynchronous_and_nothing_else() {
    in_all_pieces(PoolMode::Transaction, |world, _, server| {
        world.server_says(server, &messages("N:notice A:note S:TimeZone~CET~ S:in_hot_standby~on~"));
        assert!(world.servers.0[&server.0].closed.is_none());
        world.server_says(server, &messages("E:SFATAL~VFATAL~C57P01~Mbye~~"));
        let Some(CloseReason::Error(Blame::Server, text)) = &world.servers.0[&server.0].closed else { panic!() };
        assert_eq!(text, "bye (SQLSTATE 57P01)");
    });
}

#[test]
fn a_client_is_told_why_it_is_sent_away() {
    for (why, code) in [
        (Refusal::Evicted, "57P05"),
        (Refusal::IdleTimeout, "57P05"),
        (Refusal::QueryTimeout, "57014"),
        (Refusal::TransactionIdleTimeout, "25P03"),
        (Refusal::ShuttingDown, "57P01"),
        (Refusal::Killed, "57P01"),
    ] {
        let mut world = World::trusting(PoolMode::Transaction);
        add_server(&mut world);
        let client = add_client(&mut world);
        let mut out = protocol::Outbox::new();
        let session = &mut world.clients.0.get_mut(&client.0).unwrap().session;
        protocol::Protocol::refuse(&world.postgres, client, session, why, &mut out);
        assert_eq!(error_code(&out.inserted), code);
    }
}
