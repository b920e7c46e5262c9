//! Clients and servers that break the rules on purpose, or by accident at the worst moment.

use postgres_session::{OnState, PoolMode, ResetPolicy, StatePolicy};
use sim::rig::{
    Pieces,
    postgres::{TestDirectory, message, messages, survey_answer},
};

use crate::{
    statements::ours,
    support::{
        add_client, add_client_with, add_server, assert_clean, assert_cleaned, assert_surveyed, error_code,
        one_of_each, text, trusting,
    },
};

#[test]
fn the_rest_of_a_message_that_was_replaced_is_not_taken_for_messages() {
    // A Close with bytes after its name that arrive later and look like a message.
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.exchange(client, server, "P:a~select_1~~~ S", "1 Z:T");
    rig.take_received(server);
    let smuggled = messages("Q:smuggled");
    let close = message(b'C', &[b"Sa\0", &smuggled[..]].concat());
    rig.pieces = Pieces::SplitAt(8);
    rig.send(client, &close);
    assert!(!text(&rig.take_received(server)).contains("smuggled"));
}

#[test]
fn the_rest_of_a_long_query_that_was_rejected_is_not_taken_for_messages() {
    let state = StatePolicy { on_state: OnState::Reject, reset: ResetPolicy::Never, ..StatePolicy::default() };
    let mut rig = TestDirectory { state, ..TestDirectory::default() }.rig(64);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    rig.pieces = Pieces::Of(80);
    let filler = "x".repeat(75);
    let query = [filler.as_bytes(), &messages("Q:smuggled")].concat();
    rig.send(client, &message(b'Q', &query));
    let sent = text(&rig.take_received(server));
    assert!(sent.contains("on_session_state") && !sent.contains("smuggled"), "{sent}");
    rig.send(server, &messages("E:SERROR~C0A000~Mno~~ Z:I"));
    rig.send(client, &messages("Q:next"));
    assert!(text(&rig.take_received(server)).contains("next"));
}

#[test]
fn a_message_longer_than_any_may_be_ends_its_client_alone() {
    for length in [0x8000_0000_u32, 0x8000_0004, 0xffff_fff0, 0xffff_ffff, 0, 3] {
        let (mut rig, server, client) = one_of_each();
        rig.send(client, &[&b"Q"[..], &length.to_be_bytes(), b"SELECT 1\0"].concat());
        assert!(rig.is_closed(client), "{length:x}");
        assert_eq!(rig.take_received(server), b"", "{length:x}");
        let another = add_client(&mut rig);
        rig.send(another, &messages("Q:one"));
        assert_eq!(rig.take_received(server), messages("Q:one"), "{length:x}");
    }
}

#[test]
fn an_error_of_a_server_without_a_code_is_passed_on() {
    let (mut rig, server, client) = one_of_each();
    rig.send(client, &messages("Q:one"));
    rig.take_received(server);
    for error in ["E:SERROR~Mno_code~~", "E:Mbare~~", "E:~"] {
        rig.send(server, &messages(error));
        assert_eq!(rig.take_received(client), messages(error));
    }
    rig.send(server, &messages("Z:I"));
    assert_eq!(rig.take_received(client), messages("Z:I"));
}

#[test]
fn a_refused_transaction_in_statement_mode_leaves_nothing_behind() {
    let mut rig = trusting(PoolMode::Statement);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    // A lock of the session survives ROLLBACK.
    rig.send(client, &message(b'Q', b"SELECT pg_advisory_lock(1); BEGIN\0"));
    rig.take_received(server);
    rig.send(server, &messages("T:~~ D:~~ C:SELECT_1~ C:BEGIN~ Z:T"));
    assert_eq!(error_code(&rig.take_received(client)), "0A000");
    assert_cleaned(&mut rig, server);
}

#[test]
fn a_refused_transaction_of_a_pinned_client_ends_its_pin() {
    let mut rig = trusting(PoolMode::Statement);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    rig.exchange(client, server, "Q:CREATE_TEMP_TABLE_t(a_int)", "C:CREATE_TABLE~ Z:I");
    assert_surveyed(&mut rig, server, &[["p", "temporary", ""]]);
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    assert_cleaned(&mut rig, server);
    rig.send(server, &messages("C:ROLLBACK~ Z:I C:COMMIT~ Z:I"));
    // Without a pin it gives the server back after each statement.
    rig.exchange(client, server, "Q:SELECT_1", "C:SELECT_1~ Z:I");
    assert_clean(&mut rig, server);
}

#[test]
fn a_pinned_server_that_refuses_the_clients_settings_is_cleaned() {
    let mut rig = trusting(PoolMode::Transaction);
    let server = add_server(&mut rig);
    let client = add_client_with(&mut rig, &[("TimeZone", "CET")]);
    rig.send(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    rig.send(client, &messages("Q:RESET_TimeZone;_CREATE_TEMP_TABLE_t(a_int)_--\\"));
    rig.take_received(server);
    rig.send(server, &messages("S:TimeZone~UTC~ C:RESET~ C:CREATE_TABLE~ Z:I"));
    assert_surveyed(&mut rig, server, &[["p", "temporary", ""]]);
    assert!(text(&rig.take_received(server)).contains("SET \"TimeZone\" = 'CET'"));
    rig.send(server, &messages("E:SERROR~C22023~Mno_such_zone~~ Z:I"));
    assert_cleaned(&mut rig, server);
}

#[test]
fn a_client_cannot_touch_statements_by_our_names_of_them() {
    for (sends, begins) in [("C:Spoolhouse#1~ S", b'C'), ("D:Spoolhouse#1~ S", b'D'), ("B:~poolhouse#1~~~~~~~ S", b'B')]
    {
        for before in ["S", "P:~select_2~~~"] {
            let mut rig = trusting(PoolMode::Transaction);
            let (server, client, other) = (add_server(&mut rig), add_client(&mut rig), add_client(&mut rig));
            rig.send(client, &messages("P:a~select_1~~~ S"));
            assert!(text(&rig.take_received(server)).contains("poolhouse_1~"));
            rig.send(server, &messages("1 Z:I"));
            rig.send(other, &messages("Q:BEGIN"));
            rig.send(server, &messages("C:BEGIN~ Z:T"));
            rig.take_received(server);
            rig.send(other, &ours(&format!("{before} {sends}")));
            let sent = rig.take_received(server);
            assert!(!text(&sent).contains("poolhouse_1"), "{}", text(&sent));
            assert!(sent.contains(&begins) && sent.ends_with(&messages("S")), "{}", text(&sent));
        }
    }
}

#[test]
fn a_statement_too_long_to_be_kept_does_not_stay_under_a_name_of_ours() {
    let mut rig = TestDirectory::default().rig(64);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    rig.pieces = Pieces::Of(80);
    rig.send(client, &ours(&format!("P:poolhouse#1~select_{}~~~ S", "x".repeat(99))));
    rig.pieces = Pieces::Whole;
    rig.take_received(server);
    rig.send(server, &messages("1 Z:I"));
    assert_surveyed(&mut rig, server, &[]);
    assert_cleaned(&mut rig, server);
}

#[test]
fn a_pipeline_longer_than_what_is_held_waits_for_what_it_has_parsed() {
    let mut rig = TestDirectory::default().rig(256);
    let (server, client) = (add_server(&mut rig), add_client(&mut rig));
    let pipeline = format!("P:a~select_1~~~ S {}", "B:~a~~~~~~~ E:~~~~~ S ".repeat(20));
    rig.send(client, &messages(&pipeline));
    let sent = text(&rig.take_received(server));
    assert!(sent.starts_with('P') && !sent.contains('B'), "{sent}");
    rig.send(server, &messages("1 Z:I"));
    let sent = text(&rig.take_received(server));
    assert!(sent.contains("~poolhouse_1~") && !sent.contains("~a~"), "{sent}");
}

#[test]
fn what_a_server_leaves_unanswered_is_not_charged_to_the_next_client() {
    let mut rig = trusting(PoolMode::Transaction);
    let server = add_server(&mut rig);
    let clients = [(); 2].map(|()| add_client(&mut rig));
    for client in clients {
        rig.exchange(client, server, "P:a~select_1~~~ S", "Z:I");
    }
    rig.exchange(clients[1], server, "Q:wrong", "E:SERROR~C42601~Mwrong~~ Z:I");
    assert_eq!(error_code(&rig.take_received(clients[1])[6..]), "42601");
}

#[test]
fn an_answer_of_ours_does_not_land_in_half_a_message() {
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.exchange(client, server, "P:a~select_1~~~ S", "1 Z:T");
    rig.take_received(client);
    let notice = messages("N:SNOTICE~Mhello~~");
    rig.send(server, &notice[..9]);
    rig.send(client, &messages("Q:DEALLOCATE_a"));
    rig.send(server, &notice[9..]);
    assert!(rig.take_received(client).starts_with(&notice));
}

#[test]
fn a_function_that_is_called_without_sql_may_leave_something_behind() {
    let (mut rig, server, client) = one_of_each();
    // The function may be pg_advisory_lock.
    rig.send(client, &message(b'F', &[0; 10]));
    rig.take_received(server);
    rig.send(server, &messages("V:~~~~ Z:I"));
    assert_surveyed(&mut rig, server, &[["p", "lock", ""]]);
    assert_eq!(rig.server_counts().in_use, 1);
}

#[test]
fn a_client_that_prepares_without_end_in_one_transaction_is_bounded() {
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    let (mut parsed, mut closed) = (0, 0);
    for number in 0..5000 {
        rig.send(client, &messages(&format!("P:a~select_{number}~~~ C:Sa~ S")));
        let sent = text(&rig.take_received(server));
        parsed += sent.matches("~select").count();
        let ours = sent.matches("Spoolhouse_").count() - sent.matches("Spoolhouse_0~").count();
        closed += ours;
        rig.send(server, &messages(if ours > 0 { "1 3 3 Z:T" } else { "1 3 Z:T" }));
    }
    assert!(parsed - closed <= 2048, "{parsed} parsed, {closed} closed");
}

#[test]
fn texts_that_are_asked_for_and_not_answered_are_bounded() {
    let (mut rig, server, client) = one_of_each();
    let long = "x".repeat(10_000);
    for number in 0..2000 {
        rig.send(client, &messages(&format!("P:{number}~{long}~~~")));
        rig.take_received(server);
        if rig.is_closed(client) {
            assert_eq!(error_code(&rig.take_received(client)), "54000");
            return;
        }
    }
    panic!("20 MB of texts are held");
}

#[test]
fn names_of_parameters_set_in_one_transaction_are_bounded() {
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    for number in 0..2000 {
        rig.send(client, &messages(&format!("Q:SET_a.b{number}_=_1")));
        rig.send(server, &messages("C:SET~ Z:T"));
    }
    rig.take_received(server);
    rig.exchange(client, server, "Q:COMMIT", "C:COMMIT~ Z:I");
    assert!(rig.take_received(server).len() < 64 * 1024);
    rig.send(server, &survey_answer(&[]));
    // The pooler has forgotten some names, so the client keeps its server.
    rig.exchange(client, server, "Q:SELECT_1", "C:SELECT_1~ Z:I");
    assert_eq!(rig.server_counts().in_use, 1);
}

#[test]
fn a_text_that_ends_a_failed_transaction_is_suspected_like_any_other() {
    let (mut rig, server, client) = one_of_each();
    rig.exchange(client, server, "Q:BEGIN", "C:BEGIN~ Z:T");
    rig.exchange(client, server, "Q:wrong", "E:SERROR~C42601~Mwrong~~ Z:E");
    rig.exchange(
        client,
        server,
        "Q:ROLLBACK;SELECT_lastval();SET_role_=_boss",
        "C:ROLLBACK~ T:~~ D:~~ C:SELECT_1~ C:SET~ Z:I",
    );
    assert_surveyed(&mut rig, server, &[["s", "role", "boss"]]);
}

#[test]
fn tables_created_where_temporary_ones_are_keep_the_server() {
    // With this search_path, CREATE TABLE does not say that a table is temporary.
    let (mut rig, server, client) = one_of_each();
    rig.send(client, &ours("Q:SET_search#path_=_pg#temp,_public"));
    rig.take_received(server);
    rig.send(server, &messages("C:SET~ Z:I"));
    assert_surveyed(&mut rig, server, &[["s", "search_path", "pg_temp, public"]]);
    assert_eq!(rig.server_counts().in_use, 1);
    rig.send(client, &ours("Q:RESET_search#path"));
    rig.take_received(server);
    rig.send(server, &messages("C:RESET~ Z:I"));
    assert_surveyed(&mut rig, server, &[]);
    assert_clean(&mut rig, server);
}
