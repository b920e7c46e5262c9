//! Clients and servers that break the rules on purpose, or by accident at the worst moment.

use postgres::{OnState, PoolMode, Proof, StatePolicy};

use crate::{
    dialogues::{add_client, add_server, error_code, text},
    world::{Doors, Pieces, World, message, messages},
};

/// A pool that does so about session state.
fn with_state(mode: PoolMode, on_state: OnState) -> World {
    let state = StatePolicy { on_state, ..StatePolicy::default() };
    World::new(Doors { state, ..Doors::new(mode, Proof::Trust, None) })
}

#[test]
fn the_rest_of_a_message_that_was_replaced_is_not_taken_for_messages() {
    // A Close with more behind its name, which arrives later and looks like a message of its own.
    let mut world = World::trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
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
    let mut world = World::trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    world.client_says(client, &messages("Q:SET_search_path_=_tenant"));
    world.server_says(server, &messages("C:SET~ Z:I"));
    world.client_got(client);
    world.server_dies(server);
    assert_eq!(error_code(&world.client_got(client)), "08006");
    assert!(world.clients.0[&client.0].closed.is_some());
}

#[test]
fn a_transaction_whose_server_is_lost_does_not_go_on_elsewhere() {
    let mut world = World::trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
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
