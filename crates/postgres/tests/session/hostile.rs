//! Clients and servers that break the rules on purpose, or by accident at the worst moment.

use postgres::{OnState, PoolMode, Proof, ResetPolicy, StatePolicy};
use protocol::{ClientTag, ServerTag, Verdict};

use crate::{
    dialogues::{add_client, add_server, assert_cleaned, assert_surveyed, error_code, text},
    statements::ours,
    world::{Doors, Pieces, World, message, messages, startup, survey_answer},
};

/// A pool that does so about session state.
fn with_state(mode: PoolMode, on_state: OnState) -> World {
    let state = StatePolicy { on_state, reset: ResetPolicy::Never, ..StatePolicy::default() };
    World::new(Doors { state, ..Doors::new(mode, Proof::Trust, None) })
}

/// A server and a client in transaction mode.
fn one_of_each() -> (World, ServerTag, ClientTag) {
    let mut world = World::trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    (world, server, client)
}

#[test]
fn the_rest_of_a_message_that_was_replaced_is_not_taken_for_messages() {
    // A Close with more behind its name, which arrives later and looks like a message of its own.
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    world.client_says(client, &messages("P:a~select_1~~~ S"));
    world.server_says(server, &messages("1 Z:T"));
    world.server_got(server);
    let smuggled = messages("Q:smuggled");
    let close = message(b'C', &[b"Sa\0", &smuggled[..]].concat());
    world.pieces = Pieces::SplitAt(8);
    world.client_says(client, &close);
    assert!(!text(&world.server_got(server)).contains("smuggled"));
}

#[test]
fn the_rest_of_a_long_query_that_was_rejected_is_not_taken_for_messages() {
    let mut world = with_state(PoolMode::Transaction, OnState::Reject);
    world.max_held = 64;
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    world.pieces = Pieces::Of(80);
    let filler = "x".repeat(75);
    let query = [filler.as_bytes(), &messages("Q:smuggled")].concat();
    world.client_says(client, &message(b'Q', &query));
    let sent = text(&world.server_got(server));
    assert!(sent.contains("on_session_state") && !sent.contains("smuggled"), "{sent}");
    world.server_says(server, &messages("E:SERROR~C0A000~Mno~~ Z:I"));
    world.client_says(client, &messages("Q:next"));
    assert!(text(&world.server_got(server)).contains("next"));
}

#[test]
fn a_server_lost_while_it_is_asked_what_was_left_behind_takes_its_client_along() {
    // The client has been told that its setting is made; nobody could bring it to another server.
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &messages("Q:SET_search_path_=_tenant"));
    world.server_says(server, &messages("C:SET~ Z:I"));
    world.client_got(client);
    world.server_dies(server);
    assert_eq!(error_code(&world.client_got(client)), "08006");
    assert!(world.clients.0[&client.0].closed.is_some());
}

#[test]
fn a_transaction_whose_server_is_lost_does_not_go_on_elsewhere() {
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    world.client_says(client, &messages("Q:RESET_work_mem"));
    world.server_says(server, &messages("C:RESET~ Z:T"));
    world.client_says(client, &messages("Q:DELETE_FROM_t"));
    let other = add_server(&mut world);
    world.client_got(client);
    world.server_dies(server);
    assert_eq!(world.server_got(other), b"");
    assert_eq!(error_code(&world.client_got(client)), "08006");
}

#[test]
fn a_refused_transaction_in_statement_mode_leaves_nothing_behind() {
    let mut world = World::trusting(PoolMode::Statement);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    // A lock of the session survives ROLLBACK.
    world.client_says(client, &message(b'Q', b"SELECT pg_advisory_lock(1); BEGIN\0"));
    world.server_got(server);
    world.server_says(server, &messages("T:~~ D:~~ C:SELECT_1~ C:BEGIN~ Z:T"));
    assert_eq!(error_code(&world.client_got(client)), "0A000");
    assert_cleaned(&mut world, server);
}

#[test]
fn a_refused_transaction_of_a_pinned_client_ends_its_pin() {
    let mut world = World::trusting(PoolMode::Statement);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    world.client_says(client, &messages("Q:CREATE_TEMP_TABLE_t(a_int)"));
    world.server_got(server);
    world.server_says(server, &messages("C:CREATE_TABLE~ Z:I"));
    assert_surveyed(&mut world, server, &[["p", "temporary", ""]]);
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_got(server);
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    assert_cleaned(&mut world, server);
    world.server_says(server, &messages("C:ROLLBACK~ Z:I C:COMMIT~ Z:I"));
    // Without a pin it gives the server back after each statement.
    world.releases.clear();
    world.client_says(client, &messages("Q:SELECT_1"));
    world.server_says(server, &messages("C:SELECT_1~ Z:I"));
    assert_eq!(world.releases, [(server, Verdict::Clean)]);
}

#[test]
fn a_pinned_server_that_refuses_the_clients_settings_is_cleaned() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app"), ("TimeZone", "CET")]));
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    world.client_says(client, &messages("Q:RESET_TimeZone;_CREATE_TEMP_TABLE_t(a_int)_--\\"));
    world.server_got(server);
    world.server_says(server, &messages("S:TimeZone~UTC~ C:RESET~ C:CREATE_TABLE~ Z:I"));
    assert_surveyed(&mut world, server, &[["p", "temporary", ""]]);
    assert!(text(&world.server_got(server)).contains("SET \"TimeZone\" = 'CET'"));
    world.releases.clear();
    world.server_says(server, &messages("E:SERROR~C22023~Mno_such_zone~~ Z:I"));
    assert_eq!(world.releases, [(server, Verdict::Reset)]);
    assert_cleaned(&mut world, server);
}

#[test]
fn a_client_cannot_touch_statements_by_our_names_of_them() {
    for (sends, begins) in [("C:Spoolhouse#1~ S", b'C'), ("D:Spoolhouse#1~ S", b'D'), ("B:~poolhouse#1~~~~~~~ S", b'B')]
    {
        for before in ["S", "P:~select_2~~~"] {
            let mut world = World::trusting(PoolMode::Transaction);
            let (server, client, other) = (add_server(&mut world), add_client(&mut world), add_client(&mut world));
            world.client_says(client, &messages("P:a~select_1~~~ S"));
            assert!(text(&world.server_got(server)).contains("poolhouse_1~"));
            world.server_says(server, &messages("1 Z:I"));
            world.client_says(other, &messages("Q:BEGIN"));
            world.server_says(server, &messages("C:BEGIN~ Z:T"));
            world.server_got(server);
            world.client_says(other, &ours(&format!("{before} {sends}")));
            let sent = world.server_got(server);
            assert!(!text(&sent).contains("poolhouse_1"), "{}", text(&sent));
            assert!(sent.contains(&begins) && sent.ends_with(&messages("S")), "{}", text(&sent));
        }
    }
}

#[test]
fn a_statement_that_sql_may_have_deallocated_by_our_name_is_parsed_again() {
    let mut world = World::trusting(PoolMode::Transaction);
    let (server, client, other) = (add_server(&mut world), add_client(&mut world), add_client(&mut world));
    world.client_says(client, &messages("P:a~select_1~~~ S"));
    world.server_says(server, &messages("1 Z:I"));
    world.client_says(other, &ours("Q:DEALLOCATE_poolhouse#1"));
    world.server_says(server, &messages("C:DEALLOCATE~ Z:I"));
    world.server_got(server);
    world.client_says(client, &messages("B:~a~~~~~~~ E:~~~~~ S"));
    assert!(text(&world.server_got(server)).contains("poolhouse_1~select 1~"));
}

#[test]
fn a_statement_too_long_to_be_kept_does_not_stay_under_a_name_of_ours() {
    let mut world = World::trusting(PoolMode::Transaction);
    world.max_held = 64;
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    world.pieces = Pieces::Of(80);
    world.client_says(client, &ours(&format!("P:poolhouse#1~select_{}~~~ S", "x".repeat(99))));
    world.pieces = Pieces::Whole;
    world.server_got(server);
    world.server_says(server, &messages("1 Z:I"));
    assert_surveyed(&mut world, server, &[]);
    assert_cleaned(&mut world, server);
}

#[test]
fn a_pipeline_longer_than_what_is_held_waits_for_what_it_has_parsed() {
    let mut world = World::trusting(PoolMode::Transaction);
    world.max_held = 256;
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    let pipeline = format!("P:a~select_1~~~ S {}", "B:~a~~~~~~~ E:~~~~~ S ".repeat(20));
    world.client_says(client, &messages(&pipeline));
    let sent = text(&world.server_got(server));
    assert!(sent.starts_with('P') && !sent.contains('B'), "{sent}");
    world.server_says(server, &messages("1 Z:I"));
    let sent = text(&world.server_got(server));
    assert!(sent.contains("~poolhouse_1~") && !sent.contains("~a~"), "{sent}");
}

#[test]
fn what_a_server_leaves_unanswered_is_not_charged_to_the_next_client() {
    let mut world = World::trusting(PoolMode::Transaction);
    let server = add_server(&mut world);
    let clients = [(); 2].map(|()| add_client(&mut world));
    for client in clients {
        world.client_says(client, &messages("P:a~select_1~~~ S"));
        world.server_says(server, &messages("Z:I"));
    }
    world.client_says(clients[1], &messages("Q:wrong"));
    world.server_says(server, &messages("E:SERROR~C42601~Mwrong~~ Z:I"));
    assert_eq!(error_code(&world.client_got(clients[1])[6..]), "42601");
}

#[test]
fn an_answer_of_ours_does_not_land_in_half_a_message() {
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    world.client_says(client, &messages("P:a~select_1~~~ S"));
    world.server_says(server, &messages("1 Z:T"));
    world.client_got(client);
    let notice = messages("N:SNOTICE~Mhello~~");
    world.server_says(server, &notice[..9]);
    world.client_says(client, &messages("Q:DEALLOCATE_a"));
    world.server_says(server, &notice[9..]);
    assert!(world.client_got(client).starts_with(&notice));
}

#[test]
fn a_function_that_is_called_without_sql_may_leave_something_behind() {
    let (mut world, server, client) = one_of_each();
    // It may be pg_advisory_lock.
    world.client_says(client, &message(b'F', &[0; 10]));
    world.server_got(server);
    world.server_says(server, &messages("V:~~~~ Z:I"));
    assert_surveyed(&mut world, server, &[["p", "lock", ""]]);
    assert!(world.releases.is_empty());
}

#[test]
fn all_statements_are_deallocated_whatever_server_is_at_hand() {
    let mut world = with_state(PoolMode::Transaction, OnState::Allow);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    world.client_says(client, &messages("P:a~select_1~~~ S"));
    world.server_says(server, &messages("1 Z:I"));
    world.client_got(client);
    let other = add_server(&mut world);
    world.idle.retain(|tag| *tag == other);
    world.client_says(client, &messages("Q:DEALLOCATE_ALL"));
    assert_eq!(world.client_got(client), messages("C:DEALLOCATE_ALL~ Z:I"));
}

#[test]
fn a_client_that_prepares_without_end_in_one_transaction_is_bounded() {
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    let (mut parsed, mut closed) = (0, 0);
    for number in 0..5000 {
        world.client_says(client, &messages(&format!("P:a~select_{number}~~~ C:Sa~ S")));
        let sent = text(&world.server_got(server));
        parsed += sent.matches("~select").count();
        let ours = sent.matches("Spoolhouse_").count() - sent.matches("Spoolhouse_0~").count();
        closed += ours;
        world.server_says(server, &messages(if ours > 0 { "1 3 3 Z:T" } else { "1 3 Z:T" }));
    }
    assert!(parsed - closed <= 2048, "{parsed} parsed, {closed} closed");
}

#[test]
fn texts_that_are_asked_for_and_not_answered_are_bounded() {
    let (mut world, server, client) = one_of_each();
    let long = "x".repeat(10_000);
    for number in 0..2000 {
        world.client_says(client, &messages(&format!("P:{number}~{long}~~~")));
        world.server_got(server);
        if world.clients.0[&client.0].closed.is_some() {
            assert_eq!(error_code(&world.client_got(client)), "54000");
            return;
        }
    }
    panic!("20 MB of texts are held");
}

#[test]
fn names_of_parameters_set_in_one_transaction_are_bounded() {
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    for number in 0..2000 {
        world.client_says(client, &messages(&format!("Q:SET_a.b{number}_=_1")));
        world.server_says(server, &messages("C:SET~ Z:T"));
    }
    world.server_got(server);
    world.client_says(client, &messages("Q:COMMIT"));
    world.server_says(server, &messages("C:COMMIT~ Z:I"));
    assert!(world.server_got(server).len() < 64 * 1024);
    world.server_says(server, &survey_answer(&[]));
    // Not all names are known any more: the client keeps its server.
    world.releases.clear();
    world.client_says(client, &messages("Q:SELECT_1"));
    world.server_says(server, &messages("C:SELECT_1~ Z:I"));
    assert!(world.releases.is_empty());
}

#[test]
fn a_text_that_ends_a_failed_transaction_is_suspected_like_any_other() {
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(server, &messages("C:BEGIN~ Z:T"));
    world.client_says(client, &messages("Q:wrong"));
    world.server_says(server, &messages("E:SERROR~C42601~Mwrong~~ Z:E"));
    world.client_says(client, &messages("Q:ROLLBACK;SELECT_lastval();SET_role_=_boss"));
    world.server_got(server);
    world.server_says(server, &messages("C:ROLLBACK~ T:~~ D:~~ C:SELECT_1~ C:SET~ Z:I"));
    assert_surveyed(&mut world, server, &[["s", "role", "boss"]]);
}

#[test]
fn tables_created_where_temporary_ones_are_keep_the_server() {
    // CREATE TABLE says nothing of it then.
    let (mut world, server, client) = one_of_each();
    world.client_says(client, &ours("Q:SET_search#path_=_pg#temp,_public"));
    world.server_got(server);
    world.server_says(server, &messages("C:SET~ Z:I"));
    assert_surveyed(&mut world, server, &[["s", "search_path", "pg_temp, public"]]);
    assert!(world.releases.is_empty());
    world.client_says(client, &ours("Q:RESET_search#path"));
    world.server_got(server);
    world.server_says(server, &messages("C:RESET~ Z:I"));
    assert_surveyed(&mut world, server, &[]);
    assert_eq!(world.releases, [(server, Verdict::Clean)]);
}
