//! A server sends anything: during its start-up, or while two clients want something of it. The first byte says which,
//! and in which pieces.
#![no_main]

#[path = "../../crates/postgres/tests/session/world.rs"]
mod world;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use postgres::{PoolMode, Proof};
use world::{Doors, Pieces, World, messages, server_welcome, startup};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let password = Some(Arc::from("pencil"));
    let mut world = World::new(Doors::new(PoolMode::Transaction, Proof::Trust, password));
    world.max_held = 256;
    let server = world.connect_server();
    world.pieces = Pieces::Of(1 + usize::from(how >> 3));
    let requests =
        ["", "Q:SELECT_1", "P:~~~ B:~~ D:P E:~ S", "Q:COPY d:x c", "P:~~~ B:~~ E:~ S d:x c S Q:x", "Q:BEGIN"];
    let Some(request) = requests.get(usize::from(how & 7)) else {
        world.server_says(server, data);
        return world.server_dies(server);
    };
    world.server_says(server, &server_welcome());
    let clients = [(); 2].map(|()| {
        let client = world.connect_client();
        world.client_says(client, &startup(3 << 16, &[("user", "app"), ("TimeZone", "cet")]));
        client
    });
    world.server_says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    world.client_says(clients[0], &messages(request));
    world.client_says(clients[1], &messages("Q:other"));
    world.server_says(server, data);
    world.client_leaves(clients[0]);
    world.server_says(server, data);
    world.server_dies(server);
});
