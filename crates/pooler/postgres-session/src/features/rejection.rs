//! Requests that are not allowed: SQL that fails is put in their place.

use crate::{
    exchange::Note,
    session::Link,
    wire::{front, write_bind, write_execute, write_parse, write_query},
};

/// Puts SQL that fails in the place of a forbidden request, or before it: so the refusal comes in its turn, and the
/// server skips what follows as after any error.
pub(crate) fn reject(link: &mut Link<'_>, kind: u8) {
    const REJECTION: &[u8] = b"DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '0A000', \
        MESSAGE = 'this statement leaves something behind in the session, which on_session_state = \"reject\" \
        forbids', \
        HINT = 'Use SET LOCAL, or mode = \"session\" for this database.'; END $poolhouse$";
    refuse(link, kind, REJECTION, None);
}

/// Has a request fail with this SQL; `note` is noted of its Execute, unless the request is a Query.
pub(crate) fn refuse(link: &mut Link<'_>, kind: u8, failing: &[u8], note: Option<Note>) {
    // PostgreSQL forgets its unnamed statement at both.
    link.server.unnamed.owner = None;
    if kind == front::QUERY {
        link.write_to_server(|to| write_query(to, failing));
        link.server.exchange.enter_query();
        return;
    }
    link.write_to_server(|to| {
        write_parse(to, b"", &[failing, &[0; 3]].concat());
        write_bind(to, b"");
        write_execute(to);
    });
    link.server.lease_mut().mid_pipeline = true;
    link.server.exchange.note(Note::Swallowed);
    link.server.exchange.note(Note::Swallowed);
    match note {
        Some(note) => link.server.exchange.note(note),
        None => link.server.exchange.enter_extended(),
    }
}
