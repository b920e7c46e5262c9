//! Clients that listen share one server of their pool.

use postgres::PoolMode;
use protocol::{ClientTag, ServerTag, Standing, Verdict};

use crate::{
    dialogues::{add_client, add_server, assert_surveyed, error_code, in_all_pieces, standing, text, verdicts},
    world::{Pieces, World, messages},
};

const NOTIFICATION: &str = "A:~~~~a~hello~";

fn whole<T>(world: &mut World, act: impl FnOnce(&mut World) -> T) -> T {
    let pieces = std::mem::replace(&mut world.pieces, Pieces::Whole);
    let result = act(world);
    world.pieces = pieces;
    result
}

/// The client's LISTEN runs on this server, which nobody shared until then.
fn begin(world: &mut World, client: ClientTag, server: ServerTag) {
    world.client_says(client, &messages("Q:LISTEN_a"));
    world.server_got(server);
    world.server_says(server, &messages("C:LISTEN~ Z:I"));
    assert_eq!(world.client_got(client), messages("C:LISTEN~"));
    assert_surveyed(world, server, &[["l", "a", ""]]);
    assert_eq!(world.client_got(client), messages("Z:I"));
}

/// Another client's LISTEN, on another server, while `hub` is shared. Its ReadyForQuery is still to come.
fn join(world: &mut World, client: ClientTag, server: ServerTag, channel: &str) {
    world.client_says(client, &messages(&format!("Q:LISTEN_{channel}")));
    world.server_got(server);
    world.server_says(server, &messages("C:LISTEN~ Z:I"));
    assert_surveyed(world, server, &[["l", channel, ""]]);
    assert_eq!(text(&world.server_got(server)), text(&messages("Q:UNLISTEN_*")));
    assert_eq!(world.client_got(client), messages("C:LISTEN~"));
    world.server_says(server, &messages("C:UNLISTEN~ Z:I"));
}

/// The shared server is asked for what was committed before, and answers; only then is the client told that it may go on.
fn in_time(world: &mut World, client: ClientTag, hub: ServerTag, before: &str) {
    assert_eq!(text(&world.server_got(hub)), text(&messages("Q:")));
    assert_eq!(world.client_got(client), b"");
    assert_eq!(standing(world, client), Standing::Active);
    world.server_says(hub, &messages(&format!("{before}I: Z:I")));
    assert_eq!(text(&world.client_got(client)), text(&messages(&format!("{before}Z:I"))));
    assert_eq!(standing(world, client), Standing::Idle);
}

#[test]
fn the_first_one_leaves_its_server_to_all_and_goes_on_without() {
    in_all_pieces(PoolMode::Transaction, |world, client, hub| {
        begin(world, client, hub);
        assert_eq!(standing(world, client), Standing::Idle);
        assert!(world.log.contains(&format!("keep {}", hub.0)) && verdicts(world).is_empty());
        world.server_says(hub, &messages(NOTIFICATION));
        assert_eq!(world.client_got(client), messages(NOTIFICATION));
        // Its next request takes another server.
        let other = whole(world, add_server);
        world.client_says(client, &messages("Q:SELECT_1"));
        assert_eq!(world.server_got(other), messages("Q:SELECT_1"));
        world.server_says(other, &messages("C:SELECT_1~ Z:I"));
        assert_eq!(verdicts(world), [Verdict::Clean]);
        assert_eq!(world.client_got(client), messages("C:SELECT_1~"));
        in_time(world, client, hub, &format!("{NOTIFICATION} "));
        // Nobody listens any more: the server goes back.
        world.client_says(client, &messages("Q:UNLISTEN_a"));
        world.server_says(other, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(text(&world.server_got(hub)), text(&messages("Q:UNLISTEN_*")));
        world.server_says(hub, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(world.releases.last(), Some(&(hub, Verdict::Clean)));
    });
}

#[test]
fn a_later_one_is_told_that_it_listens_when_the_shared_server_does() {
    in_all_pieces(PoolMode::Transaction, |world, one, hub| {
        begin(world, one, hub);
        let other = whole(world, add_server);
        let two = whole(world, add_client);
        join(world, two, other, "b\"c");
        assert_eq!(verdicts(world), [Verdict::Clean]);
        assert_eq!(text(&world.server_got(hub)), text(&messages("Q:LISTEN_\"b\"\"c\";")));
        // It waits, and what it asks for meanwhile does, too.
        world.client_says(two, &messages("Q:next"));
        assert_eq!(world.client_got(two), b"");
        assert_eq!(standing(world, two), Standing::Active);
        world.server_says(hub, &messages("C:LISTEN~ Z:I"));
        assert_eq!(world.client_got(two), messages("Z:I"));
        assert_eq!(world.server_got(other), messages("Q:next"));
        world.server_says(other, &messages("C:OK~ Z:I"));
        assert_eq!(world.client_got(two), messages("C:OK~"));
        in_time(world, two, hub, "");
        world.server_says(hub, &messages("A:~~~~b\"c~x~ A:~~~~a~y~ A:~~~~none~z~"));
        assert_eq!(text(&world.client_got(two)), text(&messages("A:~~~~b\"c~x~")));
        assert_eq!(text(&world.client_got(one)), text(&messages("A:~~~~a~y~")));
        // A channel that is heard already need not be asked for.
        join(world, two, other, "a");
        in_time(world, two, hub, "");
        world.server_says(hub, &messages(NOTIFICATION));
        assert_eq!((world.client_got(one), world.client_got(two)), (messages(NOTIFICATION), messages(NOTIFICATION)));
        // What only the second wanted is not listened to when it has left.
        world.client_leaves(two);
        assert_eq!(text(&world.server_got(hub)), text(&messages("Q:UNLISTEN_\"b\"\"c\";")));
        world.server_says(hub, &messages("C:UNLISTEN~ Z:I"));
        world.server_says(hub, &messages(NOTIFICATION));
        assert_eq!(world.client_got(one), messages(NOTIFICATION));
    });
}

#[test]
fn notifications_wait_for_the_end_of_a_transaction() {
    in_all_pieces(PoolMode::Transaction, |world, client, hub| {
        begin(world, client, hub);
        let other = whole(world, add_server);
        world.client_says(client, &messages("Q:BEGIN"));
        world.server_says(other, &messages("C:BEGIN~ Z:T"));
        world.client_got(client);
        world.server_says(hub, &messages("A:~~~~a~1~ A:~~~~a~2~"));
        assert_eq!(world.client_got(client), b"");
        world.client_says(client, &messages("Q:COMMIT"));
        world.server_says(other, &messages("C:COMMIT~ Z:I"));
        assert_eq!(text(&world.client_got(client)), text(&messages("C:COMMIT~ A:~~~~a~1~ A:~~~~a~2~")));
        in_time(world, client, hub, "A:~~~~a~3~ ");
    });
}

#[test]
fn an_unlisten_that_is_rolled_back_has_not_been() {
    in_all_pieces(PoolMode::Transaction, |world, client, hub| {
        begin(world, client, hub);
        let other = whole(world, add_server);
        world.server_got(hub);
        for end in ["C:ROLLBACK~ Z:I", "E:SERROR~C42601~~ Z:I"] {
            world.client_says(client, &messages("Q:BEGIN;_UNLISTEN_a;_more"));
            world.server_says(other, &messages(&format!("C:BEGIN~ C:UNLISTEN~ {end}")));
            world.client_got(client);
            in_time(world, client, hub, "");
            world.server_says(hub, &messages(NOTIFICATION));
            assert_eq!(world.client_got(client), messages(NOTIFICATION));
        }
        world.client_says(client, &messages("Q:DISCARD_ALL"));
        world.server_got(other);
        world.server_says(other, &messages("C:DISCARD_ALL~ Z:I"));
        assert_eq!(text(&world.server_got(hub)), text(&messages("Q:UNLISTEN_*")));
    });
}

#[test]
fn who_comes_while_the_shared_server_goes_back_keeps_it() {
    in_all_pieces(PoolMode::Transaction, |world, one, hub| {
        begin(world, one, hub);
        let other = whole(world, add_server);
        let two = whole(world, add_client);
        world.client_leaves(one);
        assert_eq!(text(&world.server_got(hub)), text(&messages("Q:UNLISTEN_*")));
        // It is known as the one that is shared until it has gone back: there may be room for no other.
        join(world, two, other, "a");
        assert_eq!(world.client_got(two), b"");
        world.server_says(hub, &messages("C:UNLISTEN~ Z:I"));
        assert_eq!(text(&world.server_got(hub)), text(&messages("Q:LISTEN_\"a\";")));
        world.server_says(hub, &messages("C:LISTEN~ Z:I"));
        assert_eq!(world.client_got(two), messages("Z:I"));
        world.server_says(hub, &messages(NOTIFICATION));
        assert_eq!(world.client_got(two), messages(NOTIFICATION));
        assert_eq!(world.releases.last(), Some(&(other, Verdict::Clean)));
    });
}

#[test]
fn whoever_listens_is_told_when_the_shared_server_is_lost() {
    in_all_pieces(PoolMode::Transaction, |world, one, hub| {
        begin(world, one, hub);
        let other = whole(world, add_server);
        let two = whole(world, add_client);
        join(world, two, other, "b");
        world.client_got(two);
        world.server_dies(hub);
        for client in [one, two] {
            assert_eq!(error_code(&world.client_got(client)), "08006");
            assert!(world.clients.0[&client.0].closed.is_some());
        }
        // The next one begins anew.
        let three = whole(world, add_client);
        begin(world, three, other);
    });
}

#[test]
fn a_server_that_cannot_listen_says_why() {
    in_all_pieces(PoolMode::Transaction, |world, one, hub| {
        begin(world, one, hub);
        let other = whole(world, add_server);
        let two = whole(world, add_client);
        join(world, two, other, "b");
        world.client_got(two);
        world.server_got(hub);
        world.server_says(hub, &messages("E:SERROR~C55000~Mno~~ Z:I"));
        assert!(text(&world.client_got(two)).contains("no (SQLSTATE 55000)"));
        world.server_says(hub, &messages(NOTIFICATION));
        assert_eq!(world.client_got(one), messages(NOTIFICATION));
    });
}

#[test]
fn a_client_with_a_server_of_its_own_listens_there() {
    in_all_pieces(PoolMode::Transaction, |world, client, server| {
        world.client_says(client, &messages("Q:CREATE_TEMP_TABLE_t();_LISTEN_a"));
        world.server_got(server);
        world.server_says(server, &messages("C:CREATE_TABLE~ C:LISTEN~ Z:I"));
        assert_surveyed(world, server, &[["p", "temporary", ""], ["l", "a", ""]]);
        assert!(verdicts(world).is_empty() && !world.log.contains(&format!("keep {}", server.0)));
        world.client_got(client);
        world.server_says(server, &messages(NOTIFICATION));
        assert_eq!(world.client_got(client), messages(NOTIFICATION));
    });
}

#[test]
fn what_waits_during_a_transaction_is_bounded() {
    let mut world = World::trusting(PoolMode::Transaction);
    let hub = add_server(&mut world);
    let client = add_client(&mut world);
    begin(&mut world, client, hub);
    let other = add_server(&mut world);
    world.client_says(client, &messages("Q:BEGIN"));
    world.server_says(other, &messages("C:BEGIN~ Z:T"));
    world.client_got(client);
    let long = messages(&format!("A:~~~~a~{}~", "x".repeat(8000)));
    for _ in 0..140 {
        world.server_says(hub, &long);
    }
    assert_eq!(error_code(&world.client_got(client)), "54000");
    assert!(world.clients.0[&client.0].closed.is_some());
    assert_eq!(world.releases.last().unwrap().0, other);
}

#[test]
fn channels_of_a_client_are_bounded() {
    let mut world = World::trusting(PoolMode::Transaction);
    let (server, client) = (add_server(&mut world), add_client(&mut world));
    world.client_says(client, &messages("Q:LISTEN_many"));
    world.server_says(server, &messages("C:LISTEN~ Z:I"));
    world.client_got(client);
    let names: Vec<String> = (0..1001).map(|number| format!("c{number}")).collect();
    let rows: Vec<[&str; 3]> = names.iter().map(|name| ["l", name.as_str(), ""]).collect();
    assert_surveyed(&mut world, server, &rows);
    let got = world.client_got(client);
    assert_eq!(error_code(&got), "54000");
    assert_eq!(verdicts(&world), [Verdict::Reset]);
}
