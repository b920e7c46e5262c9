//! The unnamed prepared statement. A client may parse it in one round trip and use it in the next, and in between the
//! server may have served another client. Then it is parsed again if its text was kept, else closed, so that the server
//! itself says that it does not exist. Where the text was kept until there were too many long ones, the client is told
//! so. A client never meets the statement of another.
//!
//! The text is kept only of a statement that was not bound together with its parsing: most are, and those cost
//! nothing here. Named statements are followed elsewhere.

use std::ops::Range;

use seam::{ClientTag, Outbox, Peer, ServerTag};

use crate::{
    directory::OnState,
    exchange::Note,
    features::{
        plans,
        prepared::{named, told},
        rejection::{refuse, reject},
        sequences,
        settings::{bound_names::note_bound_names, reset},
    },
    session::{
        client::Client,
        prepared::Likeness,
        request::{Arrived, Step},
        server::Server,
        shared::Postgres,
        texts::{Text, Texts},
        unnamed::Owner,
    },
    sql::{
        deallocate::forgets_all,
        scan::{scan, scan_beginning},
        suspects::Suspects,
    },
    wire::message::{HEADER, front, write, write_parse},
};

/// Tells a client that its statement is gone, as PostgreSQL would, and why.
const FORGOTTEN: &[u8] = b"DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '26000', \
    MESSAGE = 'unnamed prepared statement does not exist', \
    DETAIL = 'Poolhouse has forgotten its text, which is long: it was bound too late, or is above 32 MB.', \
    HINT = 'Send Bind together with Parse, or prepare the statement under a name.'; END $poolhouse$";

/// Whether the server has the client's unnamed statement, and nothing more need be known of it.
#[inline]
pub(crate) fn is_at_hand(me: ClientTag, client: &Client, server: &Server) -> bool {
    server.unnamed.owner == Some(client.unnamed_owner(me))
        && client.unnamed.parse().is_none()
        && !server.unnamed.is_in_doubt()
}

/// A simple query is forwarded, which destroys the statement. `Some`: it has to wait.
#[inline]
pub(crate) fn query(
    texts: &Texts,
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Option<Step> {
    if server.lease().mid_pipeline {
        keep(texts, client, message, kept);
        if server.unnamed.is_undecided() {
            client.awaits_answers = true;
            return Some(Step::Wait);
        }
        if client.unnamed.parse().is_some() {
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

/// What is forwarded next takes the statement's place, or may be skipped: what is answered to an idle Close ahead of it
/// tells whether it is read.
fn doubt_next((me, client): (ClientTag, &mut Client), (tag, server): (ServerTag, &mut Server), out: &mut Outbox) {
    let before = client.unnamed.take_parse();
    let at_hand = server.unnamed.owner == Some(client.unnamed_owner(me));
    out.insert(Peer::Server(tag), named::write_idle_close);
    server.unnamed.doubt(at_hand).replace(before);
    server.exchange.noted(Note::Hidden);
}

/// The Parse of a DEALLOCATE is forwarded in another form, whose answer is that of the statement it is about. The
/// statement stays with this server.
fn deallocate(
    texts: &Texts,
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    name: &[u8],
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Step {
    if server.lease().mid_pipeline {
        keep(texts, client, message, kept);
        let loses = server.unnamed.owner != Some(client.unnamed_owner(me)) || client.unnamed.parse().is_some();
        if loses || server.unnamed.is_in_doubt() {
            doubt_next((me, client), (tag, server), out);
        }
    } else {
        server.unnamed.supersede();
        *kept = None;
    }
    client.unnamed.replace();
    client.unnamed.note_deallocate();
    server.unnamed.owner = Some(client.unnamed_owner(me));
    named::deallocate(client, (tag, server), message, name, out)
}

/// The client has another statement, or none, and so has the server, if it had the one before.
#[inline]
fn replaced(me: ClientTag, client: &mut Client, server: &mut Server) {
    let at_hand = server.unnamed.owner == Some(client.unnamed_owner(me));
    client.unnamed.replace();
    server.unnamed.owner = at_hand.then(|| client.unnamed_owner(me));
}

/// A query destroys the statement, and the server is not shown it.
pub(crate) fn lose(me: ClientTag, client: &mut Client, server: &mut Server) {
    if server.unnamed.owner == Some(client.unnamed_owner(me)) {
        server.unnamed.owner = None;
    }
    client.unnamed.replace();
}

/// Makes a span that was to be kept a Parse that is.
fn keep(texts: &Texts, client: &mut Client, message: &Arrived<'_>, kept: &mut Option<Range<usize>>) {
    if let Some(span) = kept.take() {
        client.unnamed.keep(texts.keep(&message.bytes[span]));
    }
}

/// A Parse or Close of the statement is about to be forwarded. What there was before is remembered if it
/// may be skipped.
fn replace(
    texts: &Texts,
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) {
    let at_hand = server.unnamed.owner == Some(client.unnamed_owner(me));
    let is_like = !server.lease().mid_pipeline || server.unnamed.likeness == Likeness::Same;
    server.unnamed.likeness = if is_like { Likeness::Same } else { Likeness::Unknown };
    if server.lease().mid_pipeline {
        keep(texts, client, message, kept);
    } else {
        server.unnamed.supersede();
        *kept = None;
    }
    let loses = !at_hand || client.unnamed.parse().is_some();
    if server.lease().mid_pipeline && (loses || server.unnamed.is_in_doubt()) {
        let before = client.unnamed.take_parse();
        if before.is_some() {
            out.insert(Peer::Server(tag), named::write_idle_close);
            server.exchange.noted(Note::Swallowed);
        }
        server.unnamed.doubt(at_hand).replace(before);
    } else {
        server.unnamed.ask();
    }
    server.exchange.noted(Note::Unnamed);
    client.unnamed.replace();
    server.unnamed.owner = Some(client.unnamed_owner(me));
}

/// Follows a message about the unnamed statement. `kept` is the span of a Parse that has not been bound.
pub(crate) fn follow(
    postgres: &Postgres,
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Step {
    let replaces = matches!(message.header.kind, front::PARSE | front::CLOSE);
    if server.unnamed.is_undecided() && (server.lease().mid_pipeline || !replaces) {
        client.awaits_answers = true;
        return Step::Wait;
    }
    match message.header.kind {
        front::PARSE => parse(postgres, (me, client), (tag, server), message, kept, out),
        front::CLOSE => {
            replace(&postgres.texts, (me, client), (tag, server), message, kept, out);
            Step::Replaced(message.at)
        }
        _ => refer(postgres, (me, client), (tag, server), message, kept, out),
    }
}

/// A Parse of the statement.
fn parse(
    postgres: &Postgres,
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Step {
    let texts = &postgres.texts;
    if message.may_wait() {
        return Step::Wait;
    }
    let whole = message.is_whole();
    let text = message.body().get(1..).unwrap_or_default();
    match named::deallocated(client, server, message) {
        None => {}
        Some(Err(step)) => return step,
        Some(Ok(name)) => return deallocate(texts, (me, client), (tag, server), message, &name, kept, out),
    }
    let mut amended = None;
    if let Some(step) = suspect(postgres, (me, client), (tag, server), (message, text, whole), &mut amended, out) {
        return step;
    }
    replace(texts, (me, client), (tag, server), message, kept, out);
    client.unnamed.note_parse(whole && forgets_all(text));
    if let Some(body) = amended {
        // It is kept in this form, so that its Bind is known as that of an amended statement.
        let mut parse = Vec::new();
        write_parse(&mut parse, b"", &body);
        out.insert(Peer::Server(tag), |to| to.extend_from_slice(&parse));
        client.unnamed.keep(Text::short(parse.into()));
        return Step::Replaced(message.end());
    }
    if whole {
        *kept = Some(message.at..message.end());
    } else {
        client.unnamed.begin_long(texts.begin(message.header.total(), &message.bytes[message.at..]));
    }
    Step::Replaced(message.at)
}

/// A Bind or Describe of the statement.
fn refer(
    postgres: &Postgres,
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    kept: &mut Option<Range<usize>>,
    out: &mut Outbox,
) -> Step {
    let kind = message.header.kind;
    if kind == front::BIND {
        if let Some(text) = client.unnamed.parse().cloned()
            && let Some(parse) = text.bytes()
        {
            let (text, whole) = (&parse.read()[HEADER + 1..], parse.is_read_whole());
            if let Some(step) = suspect(postgres, (me, client), (tag, server), (message, text, whole), &mut None, out) {
                return step;
            }
            server.note_amended_bind(message.body(), text);
        }
        note_bound_names(server, message);
        server.note_bound(message, client.unnamed.forgets());
    }
    let owner = client.unnamed_owner(me);
    let text = client.unnamed.parse().cloned();
    let told = text.as_ref().map(|text| &text.told);
    let relies = told.is_some_and(|told| told.has_columns()) && !told::learns(message);
    if server.unnamed.owner != Some(owner) {
        if relies && server.is_prefaced() {
            return Step::Wait;
        }
        bring(client, (tag, server), owner, out);
    } else if kind == front::BIND {
        *kept = None;
        client.unnamed.bind_at_once();
    }
    if relies && server.unnamed.likeness != Likeness::Same {
        return compare((me, client), (tag, server), message, out);
    }
    if kind == front::DESCRIBE && !told.is_some_and(|told| told.is_complete()) {
        server.exchange.noted(Note::DescribedUnnamed(client.unnamed.version()));
        return Step::Replaced(message.at);
    }
    Step::Forward
}

/// A Bind or Describe of a statement that is not known to be on this server what the client was told.
#[cold]
fn compare(
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    message: &Arrived<'_>,
    out: &mut Outbox,
) -> Step {
    match server.unnamed.likeness {
        Likeness::Different => {
            told::refuse_changed(tag, server, message.header.kind, out);
            Step::Forward
        }
        Likeness::Unknown => {
            server.unnamed.likeness = Likeness::Asked;
            told::ask((me, client), (tag, server), ("", Note::ProbeUnnamed), out)
        }
        Likeness::Same | Likeness::Asked => {
            client.awaits_answers = true;
            Step::Wait
        }
    }
}

/// A further part of a message is forwarded.
#[inline]
pub(crate) fn follow_part(client: &mut Client, part: &[u8]) {
    client.unnamed.append(part, client.partial.rest() > part.len());
}

/// Looks at the text of a statement, or if that is not `whole`, at its beginning; `None` if it may be forwarded, and
/// with `amended` in its place if that is set.
fn suspect(
    postgres: &Postgres,
    (me, client): (ClientTag, &mut Client),
    (tag, server): (ServerTag, &mut Server),
    (message, text, whole): (&Arrived<'_>, &[u8], bool),
    amended: &mut Option<Vec<u8>>,
    out: &mut Outbox,
) -> Option<Step> {
    if server.policy.on_state == OnState::Allow && server.statements.ours().is_none() && client.named.is_none() {
        return None;
    }
    let findings = if whole { scan(text) } else { scan_beginning(text) };
    let mut findings = server.judge(findings, if whole { text } else { b"" });
    if findings.suspects == Suspects::NONE {
        return None;
    }
    if let Some(step) = sequences::before((me, client), (tag, server), &findings, message, out) {
        return Some(step);
    }
    if let Some(step) = plans::before(client, (tag, server), &findings, out) {
        return Some(step);
    }
    if whole
        && message.header.kind == front::PARSE
        && let Some(step) = postgres.pin_before((me, client), (tag, server), (&findings, text), message, out)
    {
        return Some(step);
    }
    if server.policy.on_state == OnState::Reject && findings.suspects.any(Suspects::VISIBLY_LASTING) {
        reject(tag, server, front::PARSE, out);
    }
    if whole && server.policy.on_state != OnState::Allow {
        *amended = reset::parse(client, text, &mut findings);
    }
    server.suspect(&findings);
    None
}

/// Makes sure that the server has the client's unnamed statement, or none.
fn bring(client: &Client, (tag, server): (ServerTag, &mut Server), owner: Owner, out: &mut Outbox) {
    let parse = client.unnamed.parse().map(|text| text.bytes());
    if matches!(parse, Some(None)) {
        return refuse(tag, server, front::BIND, FORGOTTEN, None, out);
    }
    let told = client.unnamed.parse().map(|text| &text.told).filter(|told| told.is_some());
    server.unnamed.likeness = if told.is_some() { Likeness::Unknown } else { Likeness::Same };
    let types = told.and_then(|told| told.parameters());
    out.insert(Peer::Server(tag), |to| match (parse.flatten(), types) {
        (None, _) => write(to, front::CLOSE, |to| to.extend_from_slice(b"S\0")),
        (Some(parse), None) => to.extend_from_slice(&parse),
        (Some(parse), Some(types)) => {
            let text = &parse[HEADER + 1..];
            let end = text.iter().position(|byte| *byte == 0).map_or(text.len(), |end| end + 1);
            write_parse(to, b"", &[&text[..end], types].concat());
        }
    });
    server.unnamed.doubt(false).bring();
    server.exchange.noted(Note::Hidden);
    server.unnamed.owner = Some(owner);
}
