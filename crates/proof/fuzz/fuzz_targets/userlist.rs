//! A user list in PgBouncer's format may hold anything.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let (_, errors) = serve::parse_userlist(text);
        assert!(errors.iter().all(|error| error.span.start <= text.len()), "errors lie in the text");
    }
});
