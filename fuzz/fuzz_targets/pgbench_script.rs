//! A script may hold anything; what is read can be run, and what is refused is refused at a place.
#![no_main]

use bench::{
    plan::{QueryProtocol, Script},
    script::{Scripts, Step},
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let script = Script::File("x.sql".into(), text.to_owned());
    match Scripts::new(&[(script, 1)], QueryProtocol::Simple, 10, &[], 1) {
        Ok(scripts) => {
            let mut client = scripts.client(0);
            client.begin(&scripts);
            let mut out = Vec::new();
            loop {
                match client.next(&scripts) {
                    Step::Send(statement) => {
                        let _ = client.write_query(&scripts, statement, &mut out);
                        for parameter in 0..statement.parameters() {
                            let _ = client.write_parameter(&scripts, statement, parameter, &mut out);
                        }
                    }
                    Step::Sleep(_) => {}
                    Step::End | Step::Failed(_) => break,
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "a refusal says why"),
    }
});
