//! The unnamed prepared statement. A client may parse it in one round trip and use it in the next, and in between the
//! server may have served somebody else. Then it is parsed again if its text was kept, else closed, so that the
//! server itself says that it does not exist. A client never meets the statement of another.
//!
//! The text is kept only of a statement that was not bound together with its parsing: most are, and those cost
//! nothing here. Named statements are followed elsewhere.

use std::ops::Range;

use protocol::{ClientTag, Outbox, Peer, ServerTag};

use crate::{
    client::Client,
    exchange::Note,
    message::{HEADER, front, write},
    named, plans,
    requests::{Arrived, Step, note_bound_names},
    retold,
    scan::{scan, scan_beginning},
    sequences,
    server::Server,
    state::{OnState, reject},
    suspects::Suspects,
};

/// Longest Parse that is kept for a client, in bytes.
const MAX_KEPT: usize = 16 * 1024;

/// Whose statement a server has, and which of its statements: servers that it used before may have older ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Owner {
    client: ClientTag,
    /// A tag may be reused.
    secret: u64,
    version: u32,
}

impl Owner {
    #[inline]
    fn of(me: ClientTag, client: &Client) -> Self {
        Self { client: me, secret: client.secret, version: client.unnamed_version }
    }
}

impl Client {
    /// Its unnamed statement is gone, or another one now: servers that have the one it had no longer have its own.
    #[inline]
    pub(crate) fn drop_unnamed(&mut self) {
        self.unnamed = None;
        self.unnamed_version = self.unnamed_version.wrapping_add(1);
    }
}

/// Whether the server has the client's unnamed statement, and nothing more need be known of it.
#[inline]
pub(crate) fn is_at_hand(me: ClientTag, client: &Client, server: &Server) -> bool {
    server.unnamed == Some(Owner::of(me, client)) && client.unnamed.is_none()
}

/// Follows a message about the unnamed statement. `kept` is the span of a Parse that has not been bound.
pub(crate) fn follow(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Step {
    match message.header.kind {
        front::PARSE => {
            if message.may_wait() {
                return Step::Wait;
            }
            let text = if message.is_whole() { message.body().get(1..) } else { None };
            if let Some(step) = named::deallocate(client, (tag, server), message, out) {
                server.unnamed = None;
                client.drop_unnamed();
                *kept = None;
                return step;
            }
            let mut amended = None;
            if let Some(step) = suspect((me, client), (tag, server), (message, text), &mut amended, out) {
                return step;
            }
            client.drop_unnamed();
            server.unnamed = Some(Owner::of(me, client));
            if let Some(body) = amended {
                // It is kept in this form, so that its Bind is known as that of an amended statement.
                let mut parse = Vec::new();
                named::write_named_parse(&mut parse, b"", &body);
                out.insert(Peer::Server(tag), |to| to.extend_from_slice(&parse));
                client.unnamed = Some(parse.into());
                *kept = None;
                server.exchange.noted(Note::Unnamed);
                return Step::Replaced(message.end());
            }
            let span = message.at..message.end();
            *kept = (message.is_whole() && span.len() <= MAX_KEPT).then_some(span);
            server.exchange.noted(Note::Unnamed);
            return Step::Replaced(message.at);
        }
        front::CLOSE => {
            server.unnamed = None;
            client.drop_unnamed();
            *kept = None;
        }
        kind => {
            if kind == front::BIND {
                if let Some(parse) = &client.unnamed {
                    let text = parse[HEADER + 1..].to_vec();
                    if let Some(step) = suspect((me, client), (tag, server), (message, Some(&text)), &mut None, out) {
                        return step;
                    }
                    server.retell_bind(message.body(), &text);
                }
                note_bound_names(server, message);
            }
            let owner = Owner::of(me, client);
            if server.unnamed != Some(owner) {
                return bring(client, (tag, server), owner, out);
            }
            if kind == front::BIND {
                *kept = None;
            }
        }
    }
    Step::Forward
}

/// Looks at the text of a statement; `None` if it may be forwarded, and with `amended` in its place if that is set.
fn suspect(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    (message, text): (&Arrived<'_>, Option<&[u8]>),
    amended: &mut Option<Vec<u8>>,
    out: &mut Outbox,
) -> Option<Step> {
    if server.policy.on_state == OnState::Allow && server.prepared.is_none() && client.named.is_none() {
        return None;
    }
    // Of a text that is too long, what has arrived of it comes behind its name.
    let beginning = || scan_beginning(message.body().get(1..).unwrap_or_default());
    let mut findings = server.judge(text.map_or_else(beginning, scan), text.unwrap_or_default());
    if findings.suspects == Suspects::NONE {
        return None;
    }
    if let Some(step) = sequences::before((me, client), (tag, server), &findings, message, out) {
        return Some(step);
    }
    if let Some(step) = plans::before(client, (tag, server), &findings, out) {
        return Some(step);
    }
    if server.policy.on_state == OnState::Reject && findings.suspects.any(Suspects::VISIBLY_LASTING) {
        reject(tag, server, front::PARSE, out);
    }
    if let Some(text) = text.filter(|_| server.policy.on_state != OnState::Allow) {
        *amended = retold::parse(client, server, text, &mut findings);
    }
    server.suspect(&findings);
    None
}

/// Makes sure that the server has the client's unnamed statement, or none.
fn bring(client: &Client, (tag, server): (ServerTag, &mut Server), owner: Owner, out: &mut Outbox) -> Step {
    if !server.exchange.is_settled() {
        return if server.unnamed.is_none() && client.unnamed.is_none() { Step::Forward } else { Step::Lost };
    }
    out.insert(Peer::Server(tag), |to| match &client.unnamed {
        Some(parse) => to.extend_from_slice(parse),
        None => write(to, front::CLOSE, |to| to.extend_from_slice(b"S\0")),
    });
    server.exchange.noted(Note::Hidden);
    server.unnamed = Some(owner);
    Step::Forward
}
