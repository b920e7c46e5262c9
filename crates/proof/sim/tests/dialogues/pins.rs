//! Clients that would pin a server when no more servers may be pinned.

use postgres_session::{PoolMode, ResetPolicy, StatePolicy};
use sim::{
    network::EndId,
    rig::postgres::{TestDirectory, messages},
};

use crate::support::{
    HELD, PostgresRig, add_client, add_server, all_pieces, assert_cleaned, assert_surveyed, error_code, text, whole,
};

const REFUSED: &str = "E:SERROR~C53400~Mno_room~~";

/// A rig in which one server may be pinned, and is.
fn with_one_pin(policy: StatePolicy) -> PostgresRig {
    let state = StatePolicy { max_pinned: 1, ..policy };
    let mut rig = TestDirectory { mode: PoolMode::Transaction, state, ..TestDirectory::default() }.rig(HELD);
    let (server, keeper) = (add_server(&mut rig), add_client(&mut rig));
    rig.send(keeper, &messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_1"));
    assert_eq!(rig.take_received(server), messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_1"));
    rig.send(server, &messages("C:DECLARE_CURSOR~ Z:I"));
    assert_eq!(rig.take_received(keeper), messages("C:DECLARE_CURSOR~ Z:I"));
    assert_surveyed(&mut rig, server, &[["p", "cursor", ""]]);
    rig
}

fn never() -> StatePolicy {
    StatePolicy { reset: ResetPolicy::Never, ..StatePolicy::default() }
}

/// The client goes on without a pin.
fn assert_goes_on(rig: &mut PostgresRig, client: EndId, server: EndId) {
    rig.send(client, &messages("Q:SELECT_1"));
    assert_eq!(text(&rig.take_received(server)), text(&messages("Q:SELECT_1")));
    rig.send(server, &messages("C:SELECT_1~ Z:I"));
    assert_eq!(rig.take_received(client), messages("C:SELECT_1~ Z:I"));
    assert_eq!((rig.server_counts().in_use, rig.server_counts().idle), (1, 1));
}

#[test]
fn a_statement_that_would_pin_fails_before_it_has_run() {
    for sql in ["declare b cursor with hold for select 1", " PREPARE p AS SELECT 1", "CREATE TEMP TABLE t (a int)"] {
        for pieces in all_pieces() {
            let rig = &mut with_one_pin(never());
            let (server, client) = (add_server(rig), add_client(rig));
            rig.pieces = pieces;
            rig.send(client, &messages(&format!("Q:{}", sql.replace(' ', "_"))));
            let sent = text(&rig.take_received(server));
            assert!(sent.contains("ERRCODE = '53400'") && sent.contains("max_pinned = 1 have one"), "{sent}");
            assert!(!sent.contains(sql), "{sent}");
            rig.send(server, &messages(&format!("{REFUSED} Z:I")));
            assert_eq!(rig.take_received(client), messages(&format!("{REFUSED} Z:I")));
            whole(rig, |rig| assert_goes_on(rig, client, server));
        }
    }
}

#[test]
fn the_same_by_the_extended_protocol_is_skipped_to_its_sync() {
    let rig = &mut with_one_pin(never());
    let (server, client) = (add_server(rig), add_client(rig));
    rig.send(client, &messages("P:~DECLARE_b_CURSOR_WITH_HOLD_FOR_SELECT_1~~~ B:~~~~~~~~ E:~~~~~ S"));
    let sent = text(&rig.take_received(server));
    assert!(sent.find("ERRCODE = '53400'") < sent.find("DECLARE b"), "{sent}");
    rig.send(server, &messages(&format!("1 2 {REFUSED} Z:I")));
    assert_eq!(text(&rig.take_received(client)), text(&messages(REFUSED)));
    // A failed statement is surveyed as well.
    assert_surveyed(rig, server, &[]);
    assert_eq!(rig.take_received(client), messages("Z:I"));
    assert_goes_on(rig, client, server);
}

#[test]
fn a_pin_that_is_discovered_too_late_ends_the_client() {
    for pieces in all_pieces() {
        let rig = &mut with_one_pin(never());
        let (server, client) = (add_server(rig), add_client(rig));
        rig.pieces = pieces;
        rig.exchange(
            client,
            server,
            "Q:BEGIN;_DECLARE_b_CURSOR_WITH_HOLD_FOR_SELECT_1",
            "C:BEGIN~ C:DECLARE_CURSOR~ Z:T",
        );
        assert_eq!(rig.take_received(client), messages("C:BEGIN~ C:DECLARE_CURSOR~ Z:T"));
        rig.exchange(client, server, "Q:COMMIT", "C:COMMIT~ Z:I");
        assert_eq!(rig.take_received(client), messages("C:COMMIT~"));
        whole(rig, |rig| assert_surveyed(rig, server, &[["p", "cursor", ""]]));
        let received = rig.take_received(client);
        assert_eq!(error_code(&received), "53400");
        assert!(text(&received).contains("FATAL") && rig.is_closed(client), "{}", text(&received));
        whole(rig, |rig| assert_cleaned(rig, server));
    }
}

#[test]
fn a_client_that_turns_out_to_need_no_pin_goes_on() {
    let rig = &mut with_one_pin(never());
    let (server, client) = (add_server(rig), add_client(rig));
    rig.exchange(
        client,
        server,
        "Q:DECLARE_b_CURSOR_WITH_HOLD_FOR_SELECT_1;_CLOSE_b",
        "C:DECLARE_CURSOR~ C:CLOSE_CURSOR~ Z:I",
    );
    assert_eq!(rig.take_received(client), messages("C:DECLARE_CURSOR~ C:CLOSE_CURSOR~"));
    assert_surveyed(rig, server, &[]);
    assert_eq!(rig.take_received(client), messages("Z:I"));
    assert_goes_on(rig, client, server);
}

#[test]
fn a_statement_that_would_have_pinned_and_fails_leaves_the_pin_to_others() {
    let state = StatePolicy { max_pinned: 1, ..never() };
    let rig = &mut TestDirectory { mode: PoolMode::Transaction, state, ..TestDirectory::default() }.rig(HELD);
    let (server, client) = (add_server(rig), add_client(rig));
    for _ in 0..3 {
        rig.send(client, &messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_x"));
        assert_eq!(text(&rig.take_received(server)), text(&messages("Q:DECLARE_a_CURSOR_WITH_HOLD_FOR_SELECT_x")));
        rig.send(server, &messages("E:SERROR~C42703~Mno_column~~ Z:I"));
        assert_eq!(rig.take_received(client), messages("E:SERROR~C42703~Mno_column~~ Z:I"));
        assert_surveyed(rig, server, &[]);
        assert_eq!((rig.server_counts().in_use, rig.server_counts().idle), (0, 1));
    }
}
