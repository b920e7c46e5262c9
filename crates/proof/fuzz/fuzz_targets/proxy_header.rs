//! A proxy sends any bytes to a real worker, in pieces whose length the first byte selects: in place of its header, or
//! behind a header, where they are those of the client that it speaks for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sim::rig::{
    Pieces,
    postgres::{TestDirectory, proxy_header, server_welcome, startup},
};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let mut rig = TestDirectory::default().rig_behind_proxies(16 * 1024);
    let server = rig.next_server();
    rig.send(server, &server_welcome());
    let [proxy, other] = [(); 2].map(|()| rig.connect_client());
    rig.pieces = Pieces::Of(1 + usize::from(how >> 1));
    if how & 1 == 1 {
        rig.send(proxy, &proxy_header());
    }
    rig.send(proxy, data);
    rig.close(proxy);
    rig.send(other, &[proxy_header(), startup(3 << 16, &[("user", "app")])].concat());
    assert!(rig.take_received(other).ends_with(b"Z\0\0\0\x05I"), "a client is served");
});
