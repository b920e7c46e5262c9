//! A MongoDB server sends any bytes to a requester: during the login, or in answer to a request. The first byte of the
//! input selects which of the two and the pieces.
#![no_main]

use clients::mongodb::{Requester, Verdict};
use libfuzzer_sys::fuzz_target;
use mongodb_session::{KeyCache, ServerLogin, bson::Writer, wire};

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let user = (how & 1 == 1).then(|| ("app".into(), "pencil".into()));
    let (keys, mut out) = (KeyCache::default(), Vec::new());
    let mut requester = Requester::new(ServerLogin { user, source: "admin".into(), ..ServerLogin::default() });
    let mut hello = Vec::new();
    wire::answer(&mut hello, wire::Answers { id: 1, old: true }, |answer| {
        answer.bool("ismaster", true).int32("maxWireVersion", 21).double("ok", 1.0);
    });
    let mut ping = Vec::new();
    Writer::new(&mut ping).int32("ping", 1).text("$db", "admin");
    assert_eq!(requester.take(&keys, &mut &[][..], &mut out), Ok(Verdict::More));
    if how & 2 != 0 && requester.take(&keys, &mut &hello[..], &mut out) == Ok(Verdict::Ready) {
        requester.request_reply(&ping, &mut out);
    }
    for mut piece in data.chunks(1 + usize::from(how >> 2)) {
        loop {
            match requester.take(&keys, &mut piece, &mut out) {
                Ok(Verdict::More) => break,
                Ok(Verdict::Answered | Verdict::Ready) => requester.request(&ping, &mut out),
                Ok(Verdict::Greeted) => {}
                Ok(Verdict::StartTls) => unreachable!("no TLS was asked for"),
                Err(_) => return,
            }
        }
        assert!(piece.is_empty(), "all input is taken");
    }
});
