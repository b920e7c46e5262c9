//! A SCRAM client sends any bytes; any bytes may be given as a verifier.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let verifier = Arc::new(scram::Verifier::from_password("pencil", b"salt", 1));
    let mut parts = data.splitn(2, |&b| b == b'\n');
    let (first, last) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let mut server = scram::Server::new(verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into());
    if server.first(first).is_ok() {
        assert!(server.last(last).is_err(), "a proof cannot be guessed");
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(verifier) = scram::Verifier::parse(text)
    {
        assert_eq!(scram::Verifier::parse(&verifier.format()).as_ref(), Ok(&verifier));
    }
});
