//! Requests that are not allowed: something that fails is put in their place.

use seam::{Outbox, Peer, ServerTag};

use crate::{
    exchange::Note,
    session::server::Server,
    wire::message::{front, write_bind, write_execute, write_parse, write_query},
};

/// Puts something that fails in the place of a request that is not allowed, or before it: so the refusal comes in its
/// turn, and the server treats what follows as it treats all that follows an error.
pub(crate) fn reject(tag: ServerTag, server: &mut Server, kind: u8, out: &mut Outbox) {
    const REJECTION: &[u8] = b"DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '0A000', \
        MESSAGE = 'this statement leaves something behind in the session, which on_session_state = \"reject\" forbids', \
        HINT = 'Use SET LOCAL, or mode = \"session\" for this database.'; END $poolhouse$";
    refuse(tag, server, kind, REJECTION, None, out);
}

/// Has a request fail with this SQL; `note` is noted of its Execute, unless the request is a Query.
pub(crate) fn refuse(
    tag: ServerTag,
    server: &mut Server,
    kind: u8,
    failing: &[u8],
    note: Option<Note>,
    out: &mut Outbox,
) {
    // PostgreSQL forgets its unnamed statement at both.
    server.unnamed.owner = None;
    if kind == front::QUERY {
        out.insert(Peer::Server(tag), |to| write_query(to, failing));
        server.exchange.query();
        return;
    }
    out.insert(Peer::Server(tag), |to| {
        write_parse(to, b"", &[failing, &[0; 3]].concat());
        write_bind(to, b"");
        write_execute(to);
    });
    server.lease_mut().mid_pipeline = true;
    server.exchange.noted(Note::Swallowed);
    server.exchange.noted(Note::Swallowed);
    match note {
        Some(note) => server.exchange.noted(note),
        None => server.exchange.extended(),
    }
}
