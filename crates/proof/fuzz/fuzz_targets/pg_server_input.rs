//! A server sends any bytes to a real worker: during its start-up, or while two clients have requests on it. The first
//! byte of the input selects the start-up or the request of the first client, and the size of the pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sim::rig::{
    Pieces,
    postgres::{TestDirectory, messages, server_welcome, startup},
};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut rig = TestDirectory { password: Some("pencil".into()), ..TestDirectory::default() }.rig(256);
    let server = rig.next_server();
    rig.pieces = Pieces::Of(1 + usize::from(how >> 3));
    let requests =
        ["", "Q:SELECT_1", "P:~~~ B:~~ D:P E:~ S", "Q:COPY d:x c", "P:~~~ B:~~ E:~ S d:x c S Q:x", "Q:BEGIN"];
    let Some(request) = requests.get(usize::from(how & 7)) else {
        rig.send(server, data);
        return rig.close(server);
    };
    rig.send(server, &server_welcome());
    let clients = [(); 2].map(|()| {
        let client = rig.connect_client();
        rig.send(client, &startup(3 << 16, &[("user", "app"), ("TimeZone", "cet")]));
        client
    });
    rig.send(server, &messages("S:TimeZone~CET~ C:SET~ Z:I"));
    rig.send(clients[0], &messages(request));
    rig.send(clients[1], &messages("Q:other"));
    rig.send(server, data);
    rig.close(clients[0]);
    rig.send(server, data);
    rig.close(server);
});
