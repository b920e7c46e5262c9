//! A stranger sends anything from the first byte on. The first byte of the input says how it has to prove itself and in
//! which pieces its bytes arrive.
#![no_main]

#[path = "../../crates/postgres/tests/session/world.rs"]
mod world;

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use postgres::{PoolMode, Proof, md5_hash};
use world::{Doors, Pieces, World, server_welcome};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let proof = match how % 3 {
        0 => Proof::Trust,
        1 => Proof::Md5(md5_hash("secret", "app").into()),
        _ => Proof::Scram(Arc::new(scram::Verifier::from_password("pencil", b"salt", 1))),
    };
    let mut world = World::new(Doors::new(PoolMode::Transaction, proof, None));
    let server = world.connect_server();
    world.server_says(server, &server_welcome());
    let client = world.connect_client();
    world.pieces = Pieces::Of(1 + usize::from(how >> 2));
    world.client_says(client, data);
    world.client_leaves(client);
});
