//! A scenario file may hold anything; each problem is reported with its position.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for full in [false, true] {
        if let Err(problems) = load::scenario::from_text(Path::new("scenario.toml"), text, &|_| None, full) {
            assert!(!problems.to_string().is_empty(), "a refusal says why");
        }
    }
});
