//! The options of LDAP may be anything. Errors tell no password: a byte 0x01 stands for an option with one.
#![no_main]

use libfuzzer_sys::fuzz_target;

const SECRET: &str = "s3cr3t0fFuzz";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match serve::LdapOptions::parse(&text.replace('\u{1}', &format!(" ldapbindpasswd={SECRET} "))) {
        Ok(options) => {
            assert!(!options.servers.is_empty() && options.port > 0);
            assert!(!format!("{options:?}").contains(SECRET), "a secret is shown as one");
        }
        Err(message) => assert!(!message.is_empty() && !message.contains(SECRET), "{message}"),
    }
});
