//! The unnamed prepared statement. A client may parse it in one round trip and use it in the next, and in between the
//! server may have served somebody else. Then it is parsed again if its text was kept, else closed, so that the
//! server itself says that it does not exist. A client never meets the statement of another.
//!
//! The text is kept only of a statement that was not bound together with its parsing: most are, and those cost
//! nothing here. Named statements are followed elsewhere.

use std::ops::Range;

use protocol::{ClientTag, Outbox, Peer, ServerTag};

use crate::{
    directory::OnState,
    exchange::Note,
    features::{
        plans,
        prepared::named,
        rejection::reject,
        sequences,
        settings::{bound_names::note_bound_names, reset},
    },
    session::{
        client::Client,
        request::{Arrived, Step},
        server::Server,
        unnamed::Owner,
    },
    sql::{
        deallocate::forgets_all,
        scan::{scan, scan_beginning},
        suspects::Suspects,
    },
    wire::message::{HEADER, front, write, write_parse},
};

/// Longest Parse that is kept for a client, in bytes.
const MAX_KEPT: usize = 16 * 1024;

/// Whether the server has the client's unnamed statement, and nothing more need be known of it.
#[inline]
pub(crate) fn is_at_hand(me: ClientTag, client: &Client, server: &Server) -> bool {
    server.unnamed.owner == Some(client.unnamed_owner(me)) && client.unnamed.is_none() && !server.unnamed.is_in_doubt()
}

/// A simple query is forwarded, which destroys the statement. `Some`: it has to wait.
#[inline]
pub(crate) fn query(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Option<Step> {
    if server.mid_pipeline {
        keep(client, message, kept);
        if server.unnamed.is_undecided() {
            client.awaits_answers = true;
            return Some(Step::Wait);
        }
        if client.unnamed.is_some() {
            doubt_next((me, client), (tag, server), out);
        }
    } else {
        server.unnamed.supersede();
        server.unnamed.owner = Some(client.unnamed_owner(me));
    }
    *kept = None;
    replaced(me, client, server);
    None
}

/// What is forwarded next takes the statement's place, or may be skipped: what is answered to an idle Close ahead of it tells whether it is read.
fn doubt_next((me, client): (ClientTag, &mut Client), (tag, server): (ServerTag, &mut Server), out: &mut Outbox) {
    let before = client.unnamed.take();
    let at_hand = server.unnamed.owner == Some(client.unnamed_owner(me));
    out.insert(Peer::Server(tag), named::write_idle_close);
    server.unnamed.doubt(at_hand).replace(before);
    server.exchange.noted(Note::Hidden);
}

/// The Parse of a DEALLOCATE is forwarded in another form, whose answer is that of the statement it is about. The statement stays with this
/// server.
fn deallocate(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    name: &[u8],
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Step {
    if server.mid_pipeline {
        keep(client, message, kept);
        let loses = server.unnamed.owner != Some(client.unnamed_owner(me)) || client.unnamed.is_some();
        if loses || server.unnamed.is_in_doubt() {
            doubt_next((me, client), (tag, server), out);
        }
    } else {
        server.unnamed.supersede();
        *kept = None;
    }
    client.drop_unnamed();
    client.unnamed_forgets = false;
    server.unnamed.owner = Some(client.unnamed_owner(me));
    named::deallocate(client, (tag, server), message, name, out)
}

/// The client has another statement, or none, and so has the server, if it had the one before.
#[inline]
fn replaced(me: ClientTag, client: &mut Client, server: &mut Server) {
    let at_hand = server.unnamed.owner == Some(client.unnamed_owner(me));
    client.drop_unnamed();
    server.unnamed.owner = at_hand.then(|| client.unnamed_owner(me));
}

/// A query destroys the statement, and the server is not shown it.
pub(crate) fn lose(me: ClientTag, client: &mut Client, server: &mut Server) {
    if server.unnamed.owner == Some(client.unnamed_owner(me)) {
        server.unnamed.owner = None;
    }
    client.drop_unnamed();
}

/// Makes a span that was to be kept a Parse that is.
fn keep(client: &mut Client, message: &Arrived<'_>, kept: &mut Option<Range<usize>>) {
    if let Some(span) = kept.take() {
        client.unnamed = Some(message.bytes[span].into());
    }
}

/// A Parse or Close of the statement is about to be forwarded. What there was before is remembered if it
/// may be skipped.
fn replace(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) {
    let at_hand = server.unnamed.owner == Some(client.unnamed_owner(me));
    if server.mid_pipeline {
        keep(client, message, kept);
    } else {
        server.unnamed.supersede();
        *kept = None;
    }
    let loses = !at_hand || client.unnamed.is_some();
    if server.mid_pipeline && (loses || server.unnamed.is_in_doubt()) {
        let before = client.unnamed.take();
        if before.is_some() {
            out.insert(Peer::Server(tag), named::write_idle_close);
            server.exchange.noted(Note::Swallowed);
        }
        server.unnamed.doubt(at_hand).replace(before);
    } else {
        server.unnamed.ask();
    }
    server.exchange.noted(Note::Unnamed);
    client.drop_unnamed();
    server.unnamed.owner = Some(client.unnamed_owner(me));
}

/// Follows a message about the unnamed statement. `kept` is the span of a Parse that has not been bound.
pub(crate) fn follow(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Step {
    let replaces = matches!(message.header.kind, front::PARSE | front::CLOSE);
    if server.unnamed.is_undecided() && (server.mid_pipeline || !replaces) {
        client.awaits_answers = true;
        return Step::Wait;
    }
    match message.header.kind {
        front::PARSE => {
            if message.may_wait() {
                return Step::Wait;
            }
            let text = if message.is_whole() { message.body().get(1..) } else { None };
            match named::deallocated(client, server, message) {
                None => {}
                Some(Err(step)) => return step,
                Some(Ok(name)) => return deallocate((me, client), (tag, server), message, &name, kept, out),
            }
            let mut amended = None;
            if let Some(step) = suspect((me, client), (tag, server), (message, text), &mut amended, out) {
                return step;
            }
            replace((me, client), (tag, server), message, kept, out);
            client.unnamed_forgets = text.is_some_and(forgets_all);
            if let Some(body) = amended {
                // It is kept in this form, so that its Bind is known as that of an amended statement.
                let mut parse = Vec::new();
                write_parse(&mut parse, b"", &body);
                out.insert(Peer::Server(tag), |to| to.extend_from_slice(&parse));
                client.unnamed = Some(parse.into());
                return Step::Replaced(message.end());
            }
            let span = message.at..message.end();
            *kept = (message.is_whole() && span.len() <= MAX_KEPT).then_some(span);
            return Step::Replaced(message.at);
        }
        front::CLOSE => {
            replace((me, client), (tag, server), message, kept, out);
            return Step::Replaced(message.at);
        }
        kind => {
            if kind == front::BIND {
                if let Some(parse) = &client.unnamed {
                    let text = parse[HEADER + 1..].to_vec();
                    if let Some(step) = suspect((me, client), (tag, server), (message, Some(&text)), &mut None, out) {
                        return step;
                    }
                    server.note_amended_bind(message.body(), &text);
                }
                note_bound_names(server, message);
                server.note_bound(message, client.unnamed_forgets);
            }
            let owner = client.unnamed_owner(me);
            if server.unnamed.owner != Some(owner) {
                bring(client, (tag, server), owner, out);
            } else if kind == front::BIND {
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
        *amended = reset::parse(client, server, text, &mut findings);
    }
    server.suspect(&findings);
    None
}

/// Makes sure that the server has the client's unnamed statement, or none.
fn bring(client: &Client, (tag, server): (ServerTag, &mut Server), owner: Owner, out: &mut Outbox) {
    out.insert(Peer::Server(tag), |to| match &client.unnamed {
        Some(parse) => to.extend_from_slice(parse),
        None => write(to, front::CLOSE, |to| to.extend_from_slice(b"S\0")),
    });
    server.unnamed.doubt(false).bring();
    server.exchange.noted(Note::Hidden);
    server.unnamed.owner = Some(owner);
}
