//! A server sends any bytes to a requester: during the login, or in answer to a request. The first byte of the input
//! selects which of the two and the pieces.
#![no_main]

use clients::postgres::{Parameters, Requester, Verdict};
use libfuzzer_sys::fuzz_target;
use postgres_session::{ServerLogin, SharedLogin};

const WELCOME: &[u8] = b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I";

fuzz_target!(|data: &[u8]| {
    let Some((&how, data)) = data.split_first() else { return };
    let login = SharedLogin::new(ServerLogin {
        user: "app".into(),
        database: "db".into(),
        password: Some("pencil".into()),
        ..ServerLogin::default()
    });
    let mut out = Vec::new();
    let mut requester = Requester::begin(&login, &mut out);
    if how & 3 != 0 {
        while requester.take(&login, &mut &WELCOME[..], &mut out) != Ok(Verdict::Ready) {}
        requester.prepared(0, "SELECT 1", &Parameters::default(), &mut out);
        if how & 3 == 2 {
            requester.keep_row();
        }
    }
    for mut piece in data.chunks(1 + usize::from(how >> 2)) {
        loop {
            match requester.take(&login, &mut piece, &mut out) {
                Ok(Verdict::More) => break,
                Ok(Verdict::Answered | Verdict::Ready) => requester.query("SELECT 1", &mut out),
                Ok(Verdict::Authenticated) => {}
                Ok(Verdict::StartTls) => unreachable!("no TLS was asked for"),
                Err(_) => return,
            }
        }
        assert!(piece.is_empty(), "all input is taken");
    }
});
