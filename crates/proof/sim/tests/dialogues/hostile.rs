//! Clients and servers that break the rules on purpose, or by accident at the worst moment.

use postgres_session::{OnState, PoolMode, ResetPolicy, StatePolicy};
use sim::stage::{
    Pieces,
    postgres::{Doors, message, messages, survey_answer},
};

use crate::{
    cast::{
        add_client, add_client_with, add_server, assert_clean, assert_cleaned, assert_surveyed, error_code,
        one_of_each, text, trusting,
    },
    statements::ours,
};

#[test]
fn the_rest_of_a_message_that_was_replaced_is_not_taken_for_messages() {
    // A Close with more behind its name, which arrives later and looks like a message of its own.
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(server, &messages("C:BEGIN~ Z:T"));
    stage.says(client, &messages("P:a~select_1~~~ S"));
    stage.says(server, &messages("1 Z:T"));
    stage.got(server);
    let smuggled = messages("Q:smuggled");
    let close = message(b'C', &[b"Sa\0", &smuggled[..]].concat());
    stage.pieces = Pieces::SplitAt(8);
    stage.says(client, &close);
    assert!(!text(&stage.got(server)).contains("smuggled"));
}

#[test]
fn the_rest_of_a_long_query_that_was_rejected_is_not_taken_for_messages() {
    let state = StatePolicy { on_state: OnState::Reject, reset: ResetPolicy::Never, ..StatePolicy::default() };
    let mut stage = Doors { state, ..Doors::default() }.stage(64);
    let (server, client) = (add_server(&mut stage), add_client(&mut stage));
    stage.pieces = Pieces::Of(80);
    let filler = "x".repeat(75);
    let query = [filler.as_bytes(), &messages("Q:smuggled")].concat();
    stage.says(client, &message(b'Q', &query));
    let sent = text(&stage.got(server));
    assert!(sent.contains("on_session_state") && !sent.contains("smuggled"), "{sent}");
    stage.says(server, &messages("E:SERROR~C0A000~Mno~~ Z:I"));
    stage.says(client, &messages("Q:next"));
    assert!(text(&stage.got(server)).contains("next"));
}

#[test]
fn a_message_longer_than_any_may_be_ends_its_client_alone() {
    for length in [0x8000_0000_u32, 0x8000_0004, 0xffff_fff0, 0xffff_ffff, 0, 3] {
        let (mut stage, server, client) = one_of_each();
        stage.says(client, &[&b"Q"[..], &length.to_be_bytes(), b"SELECT 1\0"].concat());
        assert!(stage.is_over(client), "{length:x}");
        assert_eq!(stage.got(server), b"", "{length:x}");
        let another = add_client(&mut stage);
        stage.says(another, &messages("Q:one"));
        assert_eq!(stage.got(server), messages("Q:one"), "{length:x}");
    }
}

#[test]
fn an_error_of_a_server_without_a_code_is_passed_on() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:one"));
    stage.got(server);
    for error in ["E:SERROR~Mno_code~~", "E:Mbare~~", "E:~"] {
        stage.says(server, &messages(error));
        assert_eq!(stage.got(client), messages(error));
    }
    stage.says(server, &messages("Z:I"));
    assert_eq!(stage.got(client), messages("Z:I"));
}

#[test]
fn a_refused_transaction_in_statement_mode_leaves_nothing_behind() {
    let mut stage = trusting(PoolMode::Statement);
    let (server, client) = (add_server(&mut stage), add_client(&mut stage));
    // A lock of the session survives ROLLBACK.
    stage.says(client, &message(b'Q', b"SELECT pg_advisory_lock(1); BEGIN\0"));
    stage.got(server);
    stage.says(server, &messages("T:~~ D:~~ C:SELECT_1~ C:BEGIN~ Z:T"));
    assert_eq!(error_code(&stage.got(client)), "0A000");
    assert_cleaned(&mut stage, server);
}

#[test]
fn a_refused_transaction_of_a_pinned_client_ends_its_pin() {
    let mut stage = trusting(PoolMode::Statement);
    let (server, client) = (add_server(&mut stage), add_client(&mut stage));
    stage.says(client, &messages("Q:CREATE_TEMP_TABLE_t(a_int)"));
    stage.got(server);
    stage.says(server, &messages("C:CREATE_TABLE~ Z:I"));
    assert_surveyed(&mut stage, server, &[["p", "temporary", ""]]);
    stage.says(client, &messages("Q:BEGIN"));
    stage.got(server);
    stage.says(server, &messages("C:BEGIN~ Z:T"));
    assert_cleaned(&mut stage, server);
    stage.says(server, &messages("C:ROLLBACK~ Z:I C:COMMIT~ Z:I"));
    // Without a pin it gives the server back after each statement.
    stage.says(client, &messages("Q:SELECT_1"));
    stage.says(server, &messages("C:SELECT_1~ Z:I"));
    assert_clean(&mut stage, server);
}

#[test]
fn a_pinned_server_that_refuses_the_clients_settings_is_cleaned() {
    let mut stage = trusting(PoolMode::Transaction);
    let server = add_server(&mut stage);
    let client = add_client_with(&mut stage, &[("TimeZone", "CET")]);
    stage.says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    stage.says(client, &messages("Q:RESET_TimeZone;_CREATE_TEMP_TABLE_t(a_int)_--\\"));
    stage.got(server);
    stage.says(server, &messages("S:TimeZone~UTC~ C:RESET~ C:CREATE_TABLE~ Z:I"));
    assert_surveyed(&mut stage, server, &[["p", "temporary", ""]]);
    assert!(text(&stage.got(server)).contains("SET \"TimeZone\" = 'CET'"));
    stage.says(server, &messages("E:SERROR~C22023~Mno_such_zone~~ Z:I"));
    assert_cleaned(&mut stage, server);
}

#[test]
fn a_client_cannot_touch_statements_by_our_names_of_them() {
    for (sends, begins) in [("C:Spoolhouse#1~ S", b'C'), ("D:Spoolhouse#1~ S", b'D'), ("B:~poolhouse#1~~~~~~~ S", b'B')]
    {
        for before in ["S", "P:~select_2~~~"] {
            let mut stage = trusting(PoolMode::Transaction);
            let (server, client, other) = (add_server(&mut stage), add_client(&mut stage), add_client(&mut stage));
            stage.says(client, &messages("P:a~select_1~~~ S"));
            assert!(text(&stage.got(server)).contains("poolhouse_1~"));
            stage.says(server, &messages("1 Z:I"));
            stage.says(other, &messages("Q:BEGIN"));
            stage.says(server, &messages("C:BEGIN~ Z:T"));
            stage.got(server);
            stage.says(other, &ours(&format!("{before} {sends}")));
            let sent = stage.got(server);
            assert!(!text(&sent).contains("poolhouse_1"), "{}", text(&sent));
            assert!(sent.contains(&begins) && sent.ends_with(&messages("S")), "{}", text(&sent));
        }
    }
}

#[test]
fn a_statement_too_long_to_be_kept_does_not_stay_under_a_name_of_ours() {
    let mut stage = Doors::default().stage(64);
    let (server, client) = (add_server(&mut stage), add_client(&mut stage));
    stage.pieces = Pieces::Of(80);
    stage.says(client, &ours(&format!("P:poolhouse#1~select_{}~~~ S", "x".repeat(99))));
    stage.pieces = Pieces::Whole;
    stage.got(server);
    stage.says(server, &messages("1 Z:I"));
    assert_surveyed(&mut stage, server, &[]);
    assert_cleaned(&mut stage, server);
}

#[test]
fn a_pipeline_longer_than_what_is_held_waits_for_what_it_has_parsed() {
    let mut stage = Doors::default().stage(256);
    let (server, client) = (add_server(&mut stage), add_client(&mut stage));
    let pipeline = format!("P:a~select_1~~~ S {}", "B:~a~~~~~~~ E:~~~~~ S ".repeat(20));
    stage.says(client, &messages(&pipeline));
    let sent = text(&stage.got(server));
    assert!(sent.starts_with('P') && !sent.contains('B'), "{sent}");
    stage.says(server, &messages("1 Z:I"));
    let sent = text(&stage.got(server));
    assert!(sent.contains("~poolhouse_1~") && !sent.contains("~a~"), "{sent}");
}

#[test]
fn what_a_server_leaves_unanswered_is_not_charged_to_the_next_client() {
    let mut stage = trusting(PoolMode::Transaction);
    let server = add_server(&mut stage);
    let clients = [(); 2].map(|()| add_client(&mut stage));
    for client in clients {
        stage.says(client, &messages("P:a~select_1~~~ S"));
        stage.says(server, &messages("Z:I"));
    }
    stage.says(clients[1], &messages("Q:wrong"));
    stage.says(server, &messages("E:SERROR~C42601~Mwrong~~ Z:I"));
    assert_eq!(error_code(&stage.got(clients[1])[6..]), "42601");
}

#[test]
fn an_answer_of_ours_does_not_land_in_half_a_message() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(server, &messages("C:BEGIN~ Z:T"));
    stage.says(client, &messages("P:a~select_1~~~ S"));
    stage.says(server, &messages("1 Z:T"));
    stage.got(client);
    let notice = messages("N:SNOTICE~Mhello~~");
    stage.says(server, &notice[..9]);
    stage.says(client, &messages("Q:DEALLOCATE_a"));
    stage.says(server, &notice[9..]);
    assert!(stage.got(client).starts_with(&notice));
}

#[test]
fn a_function_that_is_called_without_sql_may_leave_something_behind() {
    let (mut stage, server, client) = one_of_each();
    // It may be pg_advisory_lock.
    stage.says(client, &message(b'F', &[0; 10]));
    stage.got(server);
    stage.says(server, &messages("V:~~~~ Z:I"));
    assert_surveyed(&mut stage, server, &[["p", "lock", ""]]);
    assert_eq!(stage.servers().in_use, 1);
}

#[test]
fn a_client_that_prepares_without_end_in_one_transaction_is_bounded() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(server, &messages("C:BEGIN~ Z:T"));
    let (mut parsed, mut closed) = (0, 0);
    for number in 0..5000 {
        stage.says(client, &messages(&format!("P:a~select_{number}~~~ C:Sa~ S")));
        let sent = text(&stage.got(server));
        parsed += sent.matches("~select").count();
        let ours = sent.matches("Spoolhouse_").count() - sent.matches("Spoolhouse_0~").count();
        closed += ours;
        stage.says(server, &messages(if ours > 0 { "1 3 3 Z:T" } else { "1 3 Z:T" }));
    }
    assert!(parsed - closed <= 2048, "{parsed} parsed, {closed} closed");
}

#[test]
fn texts_that_are_asked_for_and_not_answered_are_bounded() {
    let (mut stage, server, client) = one_of_each();
    let long = "x".repeat(10_000);
    for number in 0..2000 {
        stage.says(client, &messages(&format!("P:{number}~{long}~~~")));
        stage.got(server);
        if stage.is_over(client) {
            assert_eq!(error_code(&stage.got(client)), "54000");
            return;
        }
    }
    panic!("20 MB of texts are held");
}

#[test]
fn names_of_parameters_set_in_one_transaction_are_bounded() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(server, &messages("C:BEGIN~ Z:T"));
    for number in 0..2000 {
        stage.says(client, &messages(&format!("Q:SET_a.b{number}_=_1")));
        stage.says(server, &messages("C:SET~ Z:T"));
    }
    stage.got(server);
    stage.says(client, &messages("Q:COMMIT"));
    stage.says(server, &messages("C:COMMIT~ Z:I"));
    assert!(stage.got(server).len() < 64 * 1024);
    stage.says(server, &survey_answer(&[]));
    // Not all names are known any more: the client keeps its server.
    stage.says(client, &messages("Q:SELECT_1"));
    stage.says(server, &messages("C:SELECT_1~ Z:I"));
    assert_eq!(stage.servers().in_use, 1);
}

#[test]
fn a_text_that_ends_a_failed_transaction_is_suspected_like_any_other() {
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &messages("Q:BEGIN"));
    stage.says(server, &messages("C:BEGIN~ Z:T"));
    stage.says(client, &messages("Q:wrong"));
    stage.says(server, &messages("E:SERROR~C42601~Mwrong~~ Z:E"));
    stage.says(client, &messages("Q:ROLLBACK;SELECT_lastval();SET_role_=_boss"));
    stage.got(server);
    stage.says(server, &messages("C:ROLLBACK~ T:~~ D:~~ C:SELECT_1~ C:SET~ Z:I"));
    assert_surveyed(&mut stage, server, &[["s", "role", "boss"]]);
}

#[test]
fn tables_created_where_temporary_ones_are_keep_the_server() {
    // CREATE TABLE says nothing of it then.
    let (mut stage, server, client) = one_of_each();
    stage.says(client, &ours("Q:SET_search#path_=_pg#temp,_public"));
    stage.got(server);
    stage.says(server, &messages("C:SET~ Z:I"));
    assert_surveyed(&mut stage, server, &[["s", "search_path", "pg_temp, public"]]);
    assert_eq!(stage.servers().in_use, 1);
    stage.says(client, &ours("Q:RESET_search#path"));
    stage.got(server);
    stage.says(server, &messages("C:RESET~ Z:I"));
    assert_surveyed(&mut stage, server, &[]);
    assert_clean(&mut stage, server);
}
