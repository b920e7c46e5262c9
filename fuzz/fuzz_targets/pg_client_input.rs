//! A client that is logged in sends anything; a model server answers. The first byte says in which mode and in which
//! pieces.
#![no_main]

#[path = "../../crates/postgres/tests/session/backend.rs"]
mod backend;
#[path = "../../crates/postgres/tests/session/world.rs"]
mod world;

use backend::Backend;
use libfuzzer_sys::fuzz_target;
use postgres::PoolMode;
use world::{Pieces, World, server_welcome, startup};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mode = [PoolMode::Transaction, PoolMode::Session, PoolMode::Statement][usize::from(how % 3)];
    let mut world = World::trusting(mode);
    world.max_held = 256;
    let server = world.connect_server();
    world.server_got(server);
    world.server_says(server, &server_welcome());
    let client = world.connect_client();
    world.client_says(client, &startup(3 << 16, &[("user", "app")]));
    world.pieces = Pieces::Of(1 + usize::from(how >> 2));
    let mut backend = Backend::default();
    for part in data.chunks(64) {
        world.client_says(client, part);
        backend.receive(&world.server_got(server));
        let answer = std::mem::take(&mut backend.output);
        world.server_says(server, &answer);
        if backend.dead {
            world.server_dies(server);
            break;
        }
    }
    world.client_leaves(client);
});
