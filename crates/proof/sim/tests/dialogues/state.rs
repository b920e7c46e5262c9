//! What sessions leave behind beyond their transactions: settings that follow, and what ties a client to its server.

use std::sync::Arc;

use postgres_session::{PoolMode, Postgres, ResetPolicy, StatePolicy};
use seam::{ClientTag, Effect, Outbox, Protocol, ServerTag, Verdict};
use sim::{
    network::EndId,
    stage::{
        POOL,
        postgres::{Doors, messages, server_welcome, startup},
    },
};

use crate::cast::{
    HELD, NOWHERE, Nobody, Play, add_client, add_client_with, add_server, assert_clean, assert_cleaned,
    assert_prefaced, assert_surveyed, in_all_pieces, input, one_of_each, text, trusting,
};

/// A client that asked for a time zone at its start, and a server that has served it.
fn with_a_time_zone(mode: PoolMode) -> (Play, EndId, EndId) {
    let mut stage = trusting(mode);
    let server = add_server(&mut stage);
    let client = add_client_with(&mut stage, &[("TimeZone", "CET")]);
    stage.got(server);
    stage.says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    stage.got(client);
    (stage, client, server)
}

#[test]
fn a_setting_that_was_discarded_goes_back_to_the_clients_start() {
    let (mut stage, client, server) = with_a_time_zone(PoolMode::Transaction);
    stage.says(client, &messages("Q:DISCARD_ALL"));
    assert_eq!(stage.got(server), messages("Q:DISCARD_ALL"));
    // What the client says next has to wait for that, be it a Sync alone.
    stage.says(client, &messages("S Q:next"));
    assert_eq!(stage.got(server), b"");
    stage.says(server, &messages("S:TimeZone~UTC~ C:DISCARD_ALL~ Z:I"));
    // It is not told that the server is ready before it has been told what is true for it.
    assert_eq!(stage.got(client), messages("S:TimeZone~UTC~ C:DISCARD_ALL~"));
    assert_surveyed(&mut stage, server, &[]);
    assert_eq!(stage.got(client), messages("S:TimeZone~CET~ Z:I Z:I"));
    assert!(text(&stage.got(server)).contains("SET \"TimeZone\" = 'CET'"));
}

#[test]
fn a_reset_within_a_text_is_followed_by_the_clients_start_which_nobody_sees() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let (mut stage, client, server) = with_a_time_zone(mode);
        stage.says(client, &messages("Q:BEGIN;_RESET_ALL;_SET_a_=_1;_wrong"));
        let sent = text(&stage.got(server));
        assert!(sent.contains("BEGIN; RESET ALL;SET \"TimeZone\" = 'CET'; SET a = 1; wrong"), "{sent}");
        let wrong = "E:SERROR~C42601~P59~Mwrong~~";
        stage.says(server, &messages(&format!("C:BEGIN~ C:RESET~ C:SET~ C:SET~ {wrong} Z:E")));
        let expected = format!("C:BEGIN~ C:RESET~ C:SET~ {} Z:E", wrong.replace("P59", "P36"));
        assert_eq!(text(&stage.got(client)), text(&messages(&expected)));
    }
}

#[test]
fn what_a_time_out_of_the_clients_ends_of_ours_is_done_again() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:SELECT_lastval()"));
    assert_eq!(stage.got(server), messages("Q:DISCARD_SEQUENCES;"));
    stage.says(server, &messages("E:SERROR~C57014~Mtoo_slow~~ Z:I"));
    for _ in 0..3 {
        let again = text(&stage.got(server));
        assert!(again.contains("BEGIN;SET LOCAL statement_timeout = 0;DISCARD SEQUENCES;;COMMIT"), "{again}");
        // The guard is too slow itself; what stays open of it is ended.
        stage.says(server, &messages("C:BEGIN~ E:SERROR~C57014~Mtoo_slow~~ Z:E C:ROLLBACK~ Z:I"));
    }
    stage.got(server);
    stage.says(server, &messages("C:BEGIN~ C:SET~ C:DISCARD_SEQUENCES~ C:COMMIT~ Z:I C:ROLLBACK~ Z:I"));
    assert_eq!(stage.got(client), b"");
    assert_eq!(stage.got(server), messages("Q:SELECT_lastval()"));
}

#[test]
fn a_pinned_client_that_leaves_has_everything_discarded() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("Q:CREATE_TEMP_TABLE_t(a_int)"));
        stage.got(server);
        stage.says(server, &messages("C:CREATE_TABLE~ Z:I"));
        assert_surveyed(stage, server, &[["p", "temporary", ""]]);
        assert_eq!(stage.servers().in_use, 1);
        stage.leaves(client);
        assert_cleaned(stage, server);
    });
}

#[test]
fn a_transaction_that_rolls_back_leaves_the_server_to_others() {
    in_all_pieces(PoolMode::Transaction, |stage, client, server| {
        stage.says(client, &messages("Q:BEGIN"));
        stage.says(server, &messages("C:BEGIN~ Z:T"));
        stage.says(client, &messages("Q:LISTEN_a"));
        stage.says(server, &messages("C:LISTEN~ Z:T"));
        stage.says(client, &messages("Q:ROLLBACK"));
        stage.got(server);
        stage.says(server, &messages("C:ROLLBACK~ Z:I"));
        assert_surveyed(stage, server, &[]);
        assert_clean(stage, server);
    });
}

/// A server that is soiled whenever a client has used it.
fn soiled(reset: ResetPolicy) -> (Play, EndId) {
    soiled_among(1, reset)
}

/// The same with so many workers.
fn soiled_among(workers: usize, reset: ResetPolicy) -> (Play, EndId) {
    let doors = Doors { state: StatePolicy { reset, ..StatePolicy::default() }, ..Doors::default() };
    let mut stage = doors.stage_with_workers(workers, HELD);
    let server = stage.server();
    stage.says(server, &server_welcome());
    // Nothing in its database does anything out of sight.
    assert!(text(&stage.got(server)).contains("pg_proc"));
    stage.says(server, &messages("C:COMMIT~ Z:I C:ROLLBACK~ Z:I"));
    (stage, server)
}

fn use_by(stage: &mut Play, client: EndId, server: EndId) {
    stage.says(client, &messages("Q:SELECT_1"));
    stage.got(server);
    stage.says(server, &messages("C:OK~ Z:I"));
    assert_surveyed(stage, server, &[]);
    stage.got(client);
    assert_eq!(stage.servers().idle, 1);
}

fn answer_preface(stage: &mut Play, server: EndId) {
    stage.says(server, &messages("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ Z:I"));
}

#[test]
fn a_server_that_was_borrowed_to_log_in_is_cleaned_before_it_serves() {
    let (mut stage, server) = soiled(ResetPolicy::Always);
    let one = add_client(&mut stage);
    use_by(&mut stage, one, server);
    let other = add_client_with(&mut stage, &[("TimeZone", "CET")]);
    let learning = text(&stage.got(server));
    assert!(learning.contains("'CET'"), "{learning}");
    stage.says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    stage.says(other, &messages("Q:SELECT_2"));
    assert_prefaced(&mut stage, server, "RESET ALL", "SELECT 2~");
    // The first one's is not its own any more, either.
    answer_preface(&mut stage, server);
    stage.says(server, &messages("C:OK~ Z:I"));
    assert_surveyed(&mut stage, server, &[]);
    stage.says(one, &messages("Q:SELECT_3"));
    assert_prefaced(&mut stage, server, "RESET ALL", "SELECT 3~");
}

#[test]
fn what_goes_ahead_of_a_cleaning_soils_the_server_again() {
    let (mut stage, server) = soiled(ResetPolicy::Auto);
    let (one, other) = (add_client(&mut stage), add_client(&mut stage));
    use_by(&mut stage, one, server);
    stage.says(other, &messages("Q:SELECT_f(1)"));
    assert_prefaced(&mut stage, server, "RESET ALL", "SELECT f(1)~");
    answer_preface(&mut stage, server);
    stage.says(server, &messages("C:OK~ Z:I"));
    assert_surveyed(&mut stage, server, &[]);
    // Nobody takes it.
    assert_cleaned(&mut stage, server);
}

#[test]
fn a_server_that_moves_to_a_client_that_has_left_meanwhile_is_cleaned_there() {
    let (mut stage, server) = soiled_among(2, ResetPolicy::Auto);
    // Each worker has one of them.
    let (one, other) = (add_client(&mut stage), add_client(&mut stage));
    stage.says(one, &messages("Q:SELECT_1"));
    stage.got(server);
    stage.says(other, &messages("Q:SELECT_2"));
    assert_eq!(stage.servers().waiters, 1);
    stage.says(server, &messages("C:OK~ Z:I"));
    stage.while_halted(1, |stage| {
        // It is on its way from one worker to the other.
        assert_surveyed(stage, server, &[]);
        stage.leaves(other);
        assert_eq!(stage.servers().in_use, 1);
    });
    assert_eq!((stage.servers().idle, text(&stage.got(server))), (1, String::new()));
    assert_cleaned(&mut stage, server);
}

#[test]
fn a_server_that_comes_too_late_goes_back_to_be_cleaned() {
    let state = StatePolicy { reset: ResetPolicy::Always, ..StatePolicy::default() };
    let postgres = Postgres::new(Arc::new(Doors { state, ..Doors::default() }));
    let (me, tag, mut out) = (ClientTag(1), ServerTag(2), Outbox::new());
    let mut server = postgres.server_start(tag, POOL, &mut out);
    postgres.server_input(tag, &mut server, &mut Nobody, input(&server_welcome()), &mut out);
    postgres.server_input(tag, &mut server, &mut Nobody, input(&messages("C:COMMIT~ Z:I C:ROLLBACK~ Z:I")), &mut out);
    let mut client = postgres.client_start(me, NOWHERE, &mut out);
    postgres.client_input(me, &mut client, &mut Nobody, input(&startup(3 << 16, &[("user", "app")])), &mut out);
    // It wants none, as after a cancel that came before the server did.
    let mut out = Outbox::new();
    postgres.granted(me, &mut client, tag, &mut server, &mut out);
    assert!(out.effects.contains(&Effect::Release { server: tag, verdict: Verdict::Soiled }), "{:?}", out.effects);
    assert!(out.inserted.is_empty());
}
