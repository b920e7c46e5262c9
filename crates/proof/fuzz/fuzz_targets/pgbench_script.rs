//! A script may hold anything, whether it is for PostgreSQL or for Redis. A script that is read can be run; one that is
//! refused is refused with a position.
#![no_main]

use libfuzzer_sys::fuzz_target;
use load::{
    plan::{QueryProtocol, Script},
    script::{ScriptError, Scripts, Step},
};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let script = Script::File("x.sql".into(), text.to_owned());
    play(Scripts::new(&[(script, 1)], QueryProtocol::Simple, 10, &[], 1));
    play(Scripts::of_redis(&[(("x.redis".to_owned(), text), 1)], &[], 1));
});

fn play(read: Result<Scripts, ScriptError>) {
    let scripts = match read {
        Ok(scripts) => scripts,
        Err(error) => return assert!(!error.to_string().is_empty(), "a refusal says why"),
    };
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
            Step::Request(request) => {
                for word in 0..request.words() {
                    let _ = client.write_word(&scripts, request, word, &mut out);
                }
            }
            Step::Sleep(_) => {}
            Step::End | Step::Failed(_) => break,
        }
    }
}
