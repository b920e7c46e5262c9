//! A client sends any bytes to a real worker, from the start-up on. The first byte of the input selects how the client
//! has to prove its identity and into which pieces its bytes are cut.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use postgres_session::{Proof, md5_hash};
use sim::rig::{
    Pieces,
    postgres::{TestDirectory, server_welcome},
};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let proof = match how % 3 {
        0 => Proof::Trust,
        1 => Proof::Md5([md5_hash("secret", "app").into()].into()),
        _ => Proof::Scram(Arc::new(scram::Verifier::from_password("pencil", b"salt", 1)).into()),
    };
    let mut rig = TestDirectory { proof, ..TestDirectory::default() }.rig(16 * 1024);
    let server = rig.next_server();
    rig.send(server, &server_welcome());
    let client = rig.connect_client();
    rig.pieces = Pieces::Of(1 + usize::from(how >> 2));
    rig.send(client, data);
    rig.close(client);
});
