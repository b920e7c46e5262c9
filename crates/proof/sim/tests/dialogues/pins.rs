//! Clients that would keep their servers where no more may be kept: each is told so, in its turn.

use postgres_session::{PoolMode, ResetPolicy, StatePolicy};
use sim::{
    network::EndId,
    stage::postgres::{Doors, messages},
};

use crate::cast::{
    HELD, Play, add_client, add_server, all_pieces, assert_cleaned, assert_surveyed, error_code, text, whole,
};

const REFUSED: &str = "E:SERROR~C53400~Mno_room~~";

/// A stage on which one server may be kept, by a client that keeps it already.
fn with_one_pin(policy: StatePolicy) -> Play {
    let state = StatePolicy { max_pinned: 1, ..policy };
    let mut stage = Doors { mode: PoolMode::Transaction, state, ..Doors::default() }.stage(HELD);
    let (server, keeper) = (add_server(&mut stage), add_client(&mut stage));
    stage.says(keeper, &messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_1"));
    assert_eq!(stage.got(server), messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_1"));
    stage.says(server, &messages("C:DECLARE_CURSOR~ Z:I"));
    assert_eq!(stage.got(keeper), messages("C:DECLARE_CURSOR~ Z:I"));
    assert_surveyed(&mut stage, server, &[["p", "cursor", ""]]);
    stage
}

fn never() -> StatePolicy {
    StatePolicy { reset: ResetPolicy::Never, ..StatePolicy::default() }
}

/// The client goes on, on a server that is not kept for it.
fn assert_goes_on(stage: &mut Play, client: EndId, server: EndId) {
    stage.says(client, &messages("Q:SELECT_1"));
    assert_eq!(text(&stage.got(server)), text(&messages("Q:SELECT_1")));
    stage.says(server, &messages("C:SELECT_1~ Z:I"));
    assert_eq!(stage.got(client), messages("C:SELECT_1~ Z:I"));
    assert_eq!((stage.servers().in_use, stage.servers().idle), (1, 1));
}

#[test]
fn a_statement_that_would_pin_fails_before_it_has_run() {
    for sql in ["declare b cursor with hold for select 1", " PREPARE p AS SELECT 1", "CREATE TEMP TABLE t (a int)"] {
        for pieces in all_pieces() {
            let stage = &mut with_one_pin(never());
            let (server, client) = (add_server(stage), add_client(stage));
            stage.pieces = pieces;
            stage.says(client, &messages(&format!("Q:{}", sql.replace(' ', "_"))));
            let sent = text(&stage.got(server));
            assert!(sent.contains("ERRCODE = '53400'") && sent.contains("max_pinned = 1 have one"), "{sent}");
            assert!(!sent.contains(sql), "{sent}");
            stage.says(server, &messages(&format!("{REFUSED} Z:I")));
            assert_eq!(stage.got(client), messages(&format!("{REFUSED} Z:I")));
            whole(stage, |stage| assert_goes_on(stage, client, server));
        }
    }
}

#[test]
fn the_same_by_the_extended_protocol_is_skipped_to_its_sync() {
    let stage = &mut with_one_pin(never());
    let (server, client) = (add_server(stage), add_client(stage));
    stage.says(client, &messages("P:~DECLARE_b_CURSOR_WITH_HOLD_FOR_SELECT_1~~~ B:~~~~~~~~ E:~~~~~ S"));
    let sent = text(&stage.got(server));
    assert!(sent.find("ERRCODE = '53400'") < sent.find("DECLARE b"), "{sent}");
    stage.says(server, &messages(&format!("1 2 {REFUSED} Z:I")));
    assert_eq!(text(&stage.got(client)), text(&messages(REFUSED)));
    // What failed is asked about like anything else that may have left something behind.
    assert_surveyed(stage, server, &[]);
    assert_eq!(stage.got(client), messages("Z:I"));
    assert_goes_on(stage, client, server);
}

#[test]
fn what_is_known_only_afterwards_ends_the_client_before_it_is_told_that_it_may_go_on() {
    for pieces in all_pieces() {
        let stage = &mut with_one_pin(never());
        let (server, client) = (add_server(stage), add_client(stage));
        stage.pieces = pieces;
        stage.says(client, &messages("Q:BEGIN;_DECLARE_b_CURSOR_WITH_HOLD_FOR_SELECT_1"));
        stage.got(server);
        stage.says(server, &messages("C:BEGIN~ C:DECLARE_CURSOR~ Z:T"));
        assert_eq!(stage.got(client), messages("C:BEGIN~ C:DECLARE_CURSOR~ Z:T"));
        stage.says(client, &messages("Q:COMMIT"));
        stage.got(server);
        stage.says(server, &messages("C:COMMIT~ Z:I"));
        assert_eq!(stage.got(client), messages("C:COMMIT~"));
        whole(stage, |stage| assert_surveyed(stage, server, &[["p", "cursor", ""]]));
        let told = stage.got(client);
        assert_eq!(error_code(&told), "53400");
        assert!(text(&told).contains("FATAL") && stage.is_over(client), "{}", text(&told));
        whole(stage, |stage| assert_cleaned(stage, server));
    }
}

#[test]
fn who_turns_out_to_need_no_pin_goes_on() {
    let stage = &mut with_one_pin(never());
    let (server, client) = (add_server(stage), add_client(stage));
    stage.says(client, &messages("Q:DECLARE_b_CURSOR_WITH_HOLD_FOR_SELECT_1;_CLOSE_b"));
    stage.got(server);
    stage.says(server, &messages("C:DECLARE_CURSOR~ C:CLOSE_CURSOR~ Z:I"));
    assert_eq!(stage.got(client), messages("C:DECLARE_CURSOR~ C:CLOSE_CURSOR~"));
    assert_surveyed(stage, server, &[]);
    assert_eq!(stage.got(client), messages("Z:I"));
    assert_goes_on(stage, client, server);
}

#[test]
fn a_statement_that_would_have_pinned_and_fails_leaves_the_pin_to_others() {
    let state = StatePolicy { max_pinned: 1, ..never() };
    let stage = &mut Doors { mode: PoolMode::Transaction, state, ..Doors::default() }.stage(HELD);
    let (server, client) = (add_server(stage), add_client(stage));
    for _ in 0..3 {
        stage.says(client, &messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_x"));
        assert_eq!(text(&stage.got(server)), text(&messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_x")));
        stage.says(server, &messages("E:SERROR~C42703~Mno_column~~ Z:I"));
        assert_eq!(stage.got(client), messages("E:SERROR~C42703~Mno_column~~ Z:I"));
        assert_surveyed(stage, server, &[]);
        assert_eq!((stage.servers().in_use, stage.servers().idle), (0, 1));
    }
}
