//! A client sends any bytes to the console, in pieces whose length the first byte selects. Each command is answered.
#![no_main]

use console::{Answer, Command, Failure, Next, Role, Session};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&length, data)) = data.split_first() else { return };
    let (mut session, mut out) = (Session::default(), Vec::new());
    for part in data.chunks(1 + usize::from(length)) {
        session.receive(part);
        loop {
            match session.next(&mut out) {
                Next::Run(Command::Show(show)) => session.complete(Ok(Answer::table(show.table())), &mut out),
                Next::Run(_) => session.complete(Err(Failure::cancelled()), &mut out),
                Next::Login { .. } => session.admit(Role::Admin, &[], (1, 2), &mut out),
                Next::Cancel { .. } => {}
                Next::Input | Next::Close => break,
            }
        }
    }
});
