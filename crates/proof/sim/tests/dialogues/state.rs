//! State that outlives transactions: settings, which follow the client, and state that pins it to its server.

use std::sync::Arc;

use postgres_session::{PoolMode, Postgres, ResetPolicy, StatePolicy};
use seam::{ClientTag, Effect, Outbox, Protocol, ServerTag, Verdict};
use sim::{
    network::EndId,
    rig::{
        POOL,
        postgres::{TestDirectory, messages, server_welcome, startup},
    },
};

use crate::support::{
    HELD, NoSessions, PostgresRig, UNKNOWN_ORIGIN, add_client, add_client_with, add_server, assert_clean,
    assert_cleaned, assert_prefaced, assert_surveyed, in_all_pieces, input, one_of_each, text, trusting,
};

/// A client with a time zone in its start-up message, and a server that has served it.
fn with_a_time_zone(mode: PoolMode) -> (PostgresRig, EndId, EndId) {
    let mut rig = trusting(mode);
    let server = add_server(&mut rig);
    let client = add_client_with(&mut rig, &[("TimeZone", "CET")]);
    rig.take_received(server);
    rig.send(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    rig.take_received(client);
    (rig, client, server)
}

#[test]
fn a_setting_that_was_discarded_goes_back_to_the_clients_start() {
    let (mut rig, client, server) = with_a_time_zone(PoolMode::Transaction);
    rig.send(client, &messages("Q:DISCARD_ALL"));
    assert_eq!(rig.take_received(server), messages("Q:DISCARD_ALL"));
    // The next request of the client has to wait, even a Sync.
    rig.send(client, &messages("S Q:next"));
    assert_eq!(rig.take_received(server), b"");
    rig.send(server, &messages("S:TimeZone~UTC~ C:DISCARD_ALL~ Z:I"));
    // The client gets its ReadyForQuery after the true value.
    assert_eq!(rig.take_received(client), messages("S:TimeZone~UTC~ C:DISCARD_ALL~"));
    assert_surveyed(&mut rig, server, &[]);
    assert_eq!(rig.take_received(client), messages("S:TimeZone~CET~ Z:I Z:I"));
    assert!(text(&rig.take_received(server)).contains("SET \"TimeZone\" = 'CET'"));
}

#[test]
fn a_reset_within_a_text_is_followed_by_the_clients_start_without_a_trace() {
    for mode in [PoolMode::Transaction, PoolMode::Session] {
        let (mut rig, client, server) = with_a_time_zone(mode);
        rig.send(client, &messages("Q:BEGIN;_RESET_ALL;_SET_a_=_1;_wrong"));
        let sent = text(&rig.take_received(server));
        assert!(sent.contains("BEGIN; RESET ALL;SET \"TimeZone\" = 'CET'; SET a = 1; wrong"), "{sent}");
        let wrong = "E:SERROR~C42601~P59~Mwrong~~";
        rig.send(server, &messages(&format!("C:BEGIN~ C:RESET~ C:SET~ C:SET~ {wrong} Z:E")));
        let expected = format!("C:BEGIN~ C:RESET~ C:SET~ {} Z:E", wrong.replace("P59", "P36"));
        assert_eq!(text(&rig.take_received(client)), text(&messages(&expected)));
    }
}

#[test]
fn what_a_time_out_of_the_clients_ends_of_ours_is_done_again() {
    let (mut rig, server, client) = one_of_each();
    rig.send(client, &messages("Q:SELECT_lastval()"));
    assert_eq!(rig.take_received(server), messages("Q:DISCARD_SEQUENCES;"));
    rig.send(server, &messages("E:SERROR~C57014~Mtoo_slow~~ Z:I"));
    for _ in 0..3 {
        let again = text(&rig.take_received(server));
        assert!(again.contains("BEGIN;SET LOCAL statement_timeout = 0;DISCARD SEQUENCES;;COMMIT"), "{again}");
        // The guard is too slow itself, and its transaction is rolled back.
        rig.send(server, &messages("C:BEGIN~ E:SERROR~C57014~Mtoo_slow~~ Z:E C:ROLLBACK~ Z:I"));
    }
    rig.take_received(server);
    rig.send(server, &messages("C:BEGIN~ C:SET~ C:DISCARD_SEQUENCES~ C:COMMIT~ Z:I C:ROLLBACK~ Z:I"));
    assert_eq!(rig.take_received(client), b"");
    assert_eq!(rig.take_received(server), messages("Q:SELECT_lastval()"));
}

#[test]
fn a_discard_of_ours_that_fails_in_a_transaction_ends_the_client_with_the_servers_error() {
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.take_received(client);
    rig.send(client, &messages("Q:SELECT_lastval()"));
    assert_eq!(rig.take_received(server), messages("Q:DISCARD_SEQUENCES;"));
    rig.send(server, &messages("E:SERROR~C57014~Mtoo_slow~~ Z:E"));
    let told = text(&rig.take_received(client));
    assert!(told.contains("FATAL") && told.contains("Mtoo slow") && !told.contains("broke the protocol"), "{told}");
    let sent = text(&rig.take_received(server));
    assert!(sent.contains("ROLLBACK") && sent.contains("DISCARD SEQUENCES"), "{sent}");
}

#[test]
fn a_pinned_client_that_leaves_has_everything_discarded() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.exchange(client, server, "Q:CREATE_TEMP_TABLE_t(a_int)", "C:CREATE_TABLE~ Z:I");
        assert_surveyed(rig, server, &[["p", "temporary", ""]]);
        assert_eq!(rig.server_counts().in_use, 1);
        rig.close(client);
        assert_cleaned(rig, server);
    });
}

#[test]
fn a_transaction_that_rolls_back_leaves_the_server_to_others() {
    in_all_pieces(PoolMode::Transaction, |rig, client, server| {
        rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
        rig.exchange(client, server, "Q:LISTEN_a", "C:LISTEN~ Z:T");
        rig.exchange(client, server, "Q:ROLLBACK", "C:ROLLBACK~ Z:I");
        assert_surveyed(rig, server, &[]);
        assert_clean(rig, server);
    });
}

/// A server that is soiled whenever a client has used it.
fn soiled(reset: ResetPolicy) -> (PostgresRig, EndId) {
    soiled_among(1, reset)
}

fn soiled_among(workers: usize, reset: ResetPolicy) -> (PostgresRig, EndId) {
    let directory =
        TestDirectory { state: StatePolicy { reset, ..StatePolicy::default() }, ..TestDirectory::default() };
    let mut rig = directory.rig_with_workers(workers, HELD);
    let server = rig.next_server();
    rig.send(server, &server_welcome());
    // The catalogue shows no functions with side effects.
    assert!(text(&rig.take_received(server)).contains("pg_proc"));
    rig.send(server, &messages("C:COMMIT~ Z:I C:ROLLBACK~ Z:I"));
    (rig, server)
}

fn use_by(rig: &mut PostgresRig, client: EndId, server: EndId) {
    rig.exchange(client, server, "Q:SELECT_1", "C:OK~ Z:I");
    assert_surveyed(rig, server, &[]);
    rig.take_received(client);
    assert_eq!(rig.server_counts().idle, 1);
}

fn answer_preface(rig: &mut PostgresRig, server: EndId) {
    rig.send(server, &messages("1 2 C:BEGIN~ C:RESET~ C:COMMIT~ Z:I"));
}

#[test]
fn a_server_that_was_borrowed_to_log_in_is_cleaned_before_it_serves() {
    let (mut rig, server) = soiled(ResetPolicy::Always);
    let one = add_client(&mut rig);
    use_by(&mut rig, one, server);
    let other = add_client_with(&mut rig, &[("TimeZone", "CET")]);
    let learning = text(&rig.take_received(server));
    assert!(learning.contains("'CET'"), "{learning}");
    rig.send(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    rig.send(other, &messages("Q:SELECT_2"));
    assert_prefaced(&mut rig, server, "RESET ALL", "SELECT 2~");
    // The first client finds the server soiled as well.
    answer_preface(&mut rig, server);
    rig.send(server, &messages("C:OK~ Z:I"));
    assert_surveyed(&mut rig, server, &[]);
    rig.send(one, &messages("Q:SELECT_3"));
    assert_prefaced(&mut rig, server, "RESET ALL", "SELECT 3~");
}

#[test]
fn what_goes_ahead_of_a_cleaning_soils_the_server_again() {
    let (mut rig, server) = soiled(ResetPolicy::Auto);
    let (one, other) = (add_client(&mut rig), add_client(&mut rig));
    use_by(&mut rig, one, server);
    rig.send(other, &messages("Q:SELECT_f(1)"));
    assert_prefaced(&mut rig, server, "RESET ALL", "SELECT f(1)~");
    answer_preface(&mut rig, server);
    rig.send(server, &messages("C:OK~ Z:I"));
    assert_surveyed(&mut rig, server, &[]);
    // No client takes it.
    assert_cleaned(&mut rig, server);
}

#[test]
fn a_server_that_moves_to_a_client_that_has_left_meanwhile_is_cleaned_there() {
    let (mut rig, server) = soiled_among(2, ResetPolicy::Auto);
    // Each worker has one client.
    let (one, other) = (add_client(&mut rig), add_client(&mut rig));
    rig.send(one, &messages("Q:SELECT_1"));
    rig.take_received(server);
    rig.send(other, &messages("Q:SELECT_2"));
    assert_eq!(rig.server_counts().waiters, 1);
    rig.send(server, &messages("C:OK~ Z:I"));
    rig.while_halted(1, |rig| {
        // The server is on its way from one worker to the other.
        assert_surveyed(rig, server, &[]);
        rig.close(other);
        assert_eq!(rig.server_counts().in_use, 1);
    });
    assert_eq!((rig.server_counts().idle, text(&rig.take_received(server))), (1, String::new()));
    assert_cleaned(&mut rig, server);
}

#[test]
fn a_server_that_comes_too_late_goes_back_to_be_cleaned() {
    let state = StatePolicy { reset: ResetPolicy::Always, ..StatePolicy::default() };
    let postgres = Postgres::new(Arc::new(TestDirectory { state, ..TestDirectory::default() }));
    let (me, tag, mut out) = (ClientTag(1), ServerTag(2), Outbox::new());
    let mut server = postgres.server_start(tag, POOL, &mut out);
    postgres.server_input(tag, &mut server, &mut NoSessions, input(&server_welcome()), &mut out);
    postgres.server_input(
        tag,
        &mut server,
        &mut NoSessions,
        input(&messages("C:COMMIT~ Z:I C:ROLLBACK~ Z:I")),
        &mut out,
    );
    let mut client = postgres.client_start(me, UNKNOWN_ORIGIN, &mut out);
    postgres.client_input(me, &mut client, &mut NoSessions, input(&startup(3 << 16, &[("user", "app")])), &mut out);
    // The client needs no server, as after a cancel that came before the server.
    let mut out = Outbox::new();
    postgres.granted(me, &mut client, tag, &mut server, &mut out);
    assert!(out.effects.contains(&Effect::Release { server: tag, verdict: Verdict::Soiled }), "{:?}", out.effects);
    assert!(out.inserted.is_empty());
}
