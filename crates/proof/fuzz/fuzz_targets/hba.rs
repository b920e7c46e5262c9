//! An ident file, an HBA file and a list of names that it includes, with 0xFF bytes between them, may hold anything.
//! Errors lie in the text, and tell no password: a byte 0x01 stands for an option with one.
#![no_main]

use libfuzzer_sys::fuzz_target;

const SECRET: &str = "s3cr3t0fFuzz";

fuzz_target!(|data: &[u8]| {
    let option = format!(" ldapbindpasswd={SECRET} ");
    let text = |part: &[u8]| String::from_utf8_lossy(part).replace('\u{1}', &option);
    let mut parts = data.splitn(3, |byte| *byte == 0xFF).map(text);
    let mut next = || parts.next().unwrap_or_default();
    let (hba, ident, names) = (next(), next(), next());
    let maps = serve::IdentMaps::parse(&ident);
    let rules = serve::parse_hba(&hba, maps.as_ref().ok(), &mut |_| Ok(names.clone()));
    for (text, wrongs) in [(&ident, maps.err()), (&hba, rules.err())] {
        for wrong in wrongs.into_iter().flatten() {
            assert!(text.get(wrong.span).is_some(), "errors lie in the text");
            assert!(!wrong.message.is_empty() && !wrong.message.contains(SECRET), "{}", wrong.message);
        }
    }
});
