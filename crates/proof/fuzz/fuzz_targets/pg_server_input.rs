//! A server sends anything to a real worker: during its start-up, or while two clients want something of it. The first
//! byte says which, and in which pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sim::stage::{
    Pieces,
    postgres::{Doors, messages, server_welcome, startup},
};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut stage = Doors { password: Some("pencil".into()), ..Doors::default() }.stage(256);
    let server = stage.server();
    stage.pieces = Pieces::Of(1 + usize::from(how >> 3));
    let requests =
        ["", "Q:SELECT_1", "P:~~~ B:~~ D:P E:~ S", "Q:COPY d:x c", "P:~~~ B:~~ E:~ S d:x c S Q:x", "Q:BEGIN"];
    let Some(request) = requests.get(usize::from(how & 7)) else {
        stage.says(server, data);
        return stage.leaves(server);
    };
    stage.says(server, &server_welcome());
    let clients = [(); 2].map(|()| {
        let client = stage.client();
        stage.says(client, &startup(3 << 16, &[("user", "app"), ("TimeZone", "cet")]));
        client
    });
    stage.says(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    stage.says(clients[0], &messages(request));
    stage.says(clients[1], &messages("Q:other"));
    stage.says(server, data);
    stage.leaves(clients[0]);
    stage.says(server, data);
    stage.leaves(server);
});
