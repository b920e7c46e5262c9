//! A configuration file may hold anything; each problem is reported with its position.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data)
        && let Err(problems) = serve::from_text(Path::new("poolhouse.toml"), text, &|_| None)
    {
        assert!(!problems.to_string().is_empty(), "a refusal says why");
    }
});
