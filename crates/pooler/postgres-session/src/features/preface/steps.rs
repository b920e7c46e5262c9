//! Statements of ours that are executed one by one, by the extended protocol and without a Sync: ahead of a client's
//! request, which brings one. A step that fails has PostgreSQL discard all that follows, up to that Sync, so that
//! nothing of the request is carried out, whatever it is; and a step costs the database neither a ReadyForQuery nor a
//! system call of its own. It knows no session.
//!
//! What is executed here reports no parameters: PostgreSQL does so with the next ReadyForQuery, which is the client's.

use std::sync::LazyLock;

use crate::{
    features::cleaning::{BEGIN, RESET_STATEMENTS},
    session::PREFIX,
    wire::{front, message::write, write_bind, write_execute, write_parse},
};

/// Appends steps and counts them.
pub(crate) struct Steps<'a> {
    to: &'a mut Vec<u8>,
    /// One CommandComplete or CloseComplete answers each step.
    pub(crate) count: u16,
}

/// The cleaning as statements that a server keeps and need not parse again: with their Parses, and without.
static CLEANING_MESSAGES: LazyLock<(Vec<u8>, Vec<u8>)> = LazyLock::new(|| {
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for (number, sql) in std::iter::once(BEGIN).chain(RESET_STATEMENTS).enumerate() {
        // Digits, as in all names of ours (`session::survey`); no statement of a client has a number that begins with
        // 0.
        let name = format!("{}000{number}", *PREFIX);
        // One by one: a transaction cannot begin as this one does after a Parse that has taken a snapshot.
        write_parse(&mut first, name.as_bytes(), &without_types(sql));
        for bytes in [&mut first, &mut again] {
            write_bind(bytes, name.as_bytes());
            write_execute(bytes);
        }
    }
    (first, again)
});

impl<'a> Steps<'a> {
    pub(crate) fn new(to: &'a mut Vec<u8>) -> Self {
        Self { to, count: 0 }
    }

    pub(crate) fn step(&mut self, sql: &[u8]) {
        write_parse(self.to, b"", &without_types(sql));
        write_bind(self.to, b"");
        write_execute(self.to);
        self.count += 1;
    }

    /// Appends the last statement, and a step that closes it: a client without an unnamed statement must find none. The
    /// Close also shields the request: a time-out of the former holder that is due in the last microseconds of the
    /// statement is reported in place of whatever PostgreSQL (`ProcessInterrupts`) reads next.
    pub(crate) fn last(&mut self, sql: &[u8]) {
        self.step(sql);
        write(self.to, front::CLOSE, |to| to.extend_from_slice(b"S\0"));
        self.count += 1;
    }

    /// Begins a transaction that cleans all of a session but its prepared statements. `there`: the server has the
    /// statements for this.
    pub(crate) fn clean(&mut self, there: bool) {
        let (first, again) = &*CLEANING_MESSAGES;
        self.to.extend_from_slice(if there { again } else { first });
        self.count += 1 + RESET_STATEMENTS.len() as u16;
    }
}

/// The body of a Parse behind its name: the text, and no types of parameters.
fn without_types(sql: &[u8]) -> Vec<u8> {
    [sql, &[0; 3]].concat()
}
