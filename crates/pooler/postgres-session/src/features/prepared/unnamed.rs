//! The unnamed prepared statement. A client may parse it in one round trip and use it in the next, and in between the
//! server may have served another client. Then it is parsed again if its text was kept, else closed, so that the server
//! itself says that it does not exist. Where the text was kept until there were too many long ones, the client is told
//! so. A client never meets the statement of another.
//!
//! The text is kept only of a statement that was not bound together with its parsing: most are, and those cost
//! nothing here. Named statements are followed elsewhere.

use std::ops::Range;

use seam::{ClientTag, Peer};

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
        Arrived, Client, Likeness, Link, Postgres, Server, kept_parses::KeptParse, request::Step, server_unnamed::Owner,
    },
    sql::{Suspects, deallocates_all, scan::scan, scan_beginning},
    wire::{HEADER, front, message::write, write_parse},
};

/// SQL that fails as PostgreSQL does without a statement, and says why it is gone.
const FORGOTTEN: &[u8] = b"DO $poolhouse$ BEGIN RAISE EXCEPTION USING ERRCODE = '26000', \
    MESSAGE = 'unnamed prepared statement does not exist', \
    DETAIL = 'Poolhouse has forgotten its text, which is long: it was bound too late, or is above 32 MB.', \
    HINT = 'Send Bind together with Parse, or prepare the statement under a name.'; END $poolhouse$";

/// The inspection of the messages of one input.
pub(crate) struct Inspection<'a> {
    pub(crate) postgres: &'a Postgres,
    /// The span of the unnamed Parse that has not been bound, if there is one.
    pub(crate) unbound: Option<Range<usize>>,
}

impl Inspection<'_> {
    /// Keeps the Parse that has not been bound, which is among these bytes.
    pub(crate) fn keep_unbound(&mut self, client: &mut Client, bytes: &[u8]) {
        if let Some(span) = self.unbound.take() {
            client.unnamed.keep(self.postgres.texts.keep(&bytes[span]));
        }
    }
}

/// Whether the server has the client's unnamed statement, and no more must be known of it.
#[inline]
pub(crate) fn is_at_hand(me: ClientTag, client: &Client, server: &Server) -> bool {
    server.unnamed.owner == Some(client.unnamed_owner(me))
        && client.unnamed.parse().is_none()
        && !server.unnamed.is_in_doubt()
}

/// A simple query is forwarded, which destroys the statement. `Some`: the query has to wait.
#[inline]
pub(crate) fn follow_query(
    inspection: &mut Inspection<'_>,
    link: &mut Link<'_>,
    message: &Arrived<'_>,
) -> Option<Step> {
    if link.server.lease().mid_pipeline {
        inspection.keep_unbound(link.client, message.bytes);
        if link.server.unnamed.is_undecided() {
            link.client.awaits_answers = true;
            return Some(Step::Wait);
        }
        if link.client.unnamed.parse().is_some() {
            doubt_next(link);
        }
    } else {
        link.server.unnamed.supersede();
        link.server.unnamed.owner = Some(link.client.unnamed_owner(link.client_tag));
    }
    inspection.unbound = None;
    note_replaced(link.client_tag, link.client, link.server);
    None
}

/// The next request replaces the statement, or is skipped: the answer to an idle Close ahead of it tells which.
fn doubt_next(link: &mut Link<'_>) {
    let before = link.client.unnamed.take_parse();
    let at_hand = link.server.unnamed.owner == Some(link.client.unnamed_owner(link.client_tag));
    link.write_to_server(named::write_idle_close);
    link.server.unnamed.doubt(at_hand).replace(before);
    link.server.exchange.note(Note::Hidden);
}

/// Forwards the Parse of a DEALLOCATE in another form. The statement stays with this server.
fn deallocate(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>, name: &[u8]) -> Step {
    if begin_replacement(inspection, link, message) {
        doubt_next(link);
    }
    link.client.unnamed.invalidate();
    link.client.unnamed.note_deallocate();
    link.server.unnamed.owner = Some(link.client.unnamed_owner(link.client_tag));
    named::deallocate(link, message, name)
}

/// The client has another statement, or none, and so has a server that had the one before.
#[inline]
fn note_replaced(me: ClientTag, client: &mut Client, server: &mut Server) {
    let at_hand = server.unnamed.owner == Some(client.unnamed_owner(me));
    client.unnamed.invalidate();
    server.unnamed.owner = at_hand.then(|| client.unnamed_owner(me));
}

/// A query destroys the statement, and the server does not receive the query.
pub(crate) fn invalidate(me: ClientTag, client: &mut Client, server: &mut Server) {
    if server.unnamed.owner == Some(client.unnamed_owner(me)) {
        server.unnamed.owner = None;
    }
    client.unnamed.invalidate();
}

/// A request that replaces the statement is about to be forwarded: keeps the former Parse if the request may be
/// skipped. True if it may, and the former statement must be remembered.
fn begin_replacement(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) -> bool {
    if !link.server.lease().mid_pipeline {
        link.server.unnamed.supersede();
        inspection.unbound = None;
        return false;
    }
    inspection.keep_unbound(link.client, message.bytes);
    let at_hand = link.server.unnamed.owner == Some(link.client.unnamed_owner(link.client_tag));
    !at_hand || link.client.unnamed.parse().is_some() || link.server.unnamed.is_in_doubt()
}

/// A Parse or Close of the statement is about to be forwarded. The former statement is remembered if this may be
/// skipped.
fn replace(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) {
    let at_hand = link.server.unnamed.owner == Some(link.client.unnamed_owner(link.client_tag));
    let is_like = !link.server.lease().mid_pipeline || link.server.unnamed.likeness == Likeness::Same;
    link.server.unnamed.likeness = if is_like { Likeness::Same } else { Likeness::Unknown };
    if begin_replacement(inspection, link, message) {
        let before = link.client.unnamed.take_parse();
        if before.is_some() {
            link.write_to_server(named::write_idle_close);
            link.server.exchange.note(Note::Swallowed);
        }
        link.server.unnamed.doubt(at_hand).replace(before);
    } else {
        link.server.unnamed.note_certain_request();
    }
    link.server.exchange.note(Note::Unnamed);
    link.client.unnamed.invalidate();
    link.server.unnamed.owner = Some(link.client.unnamed_owner(link.client_tag));
}

/// Follows a message about the unnamed statement.
pub(crate) fn follow(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    let replaces = matches!(message.header.kind, front::PARSE | front::CLOSE);
    if link.server.unnamed.is_undecided() && (link.server.lease().mid_pipeline || !replaces) {
        link.client.awaits_answers = true;
        return Step::Wait;
    }
    match message.header.kind {
        front::PARSE => follow_parse(inspection, link, message),
        front::CLOSE => {
            replace(inspection, link, message);
            Step::Replaced(message.at)
        }
        _ => follow_bind_or_describe(inspection, link, message),
    }
}

fn follow_parse(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    if message.may_wait() {
        return Step::Wait;
    }
    let whole = message.is_whole();
    let text = message.body().get(1..).unwrap_or_default();
    match named::name_to_deallocate(link.client, link.server, message) {
        None => {}
        Some(Err(step)) => return step,
        Some(Ok(name)) => return deallocate(inspection, link, message, &name),
    }
    let mut amended = None;
    if let Some(step) = suspect(inspection.postgres, link, (message, text, whole), &mut amended) {
        return step;
    }
    replace(inspection, link, message);
    link.client.unnamed.note_parse(whole && deallocates_all(text));
    if let Some(body) = amended {
        // It is kept in this form, so that its Bind is known as that of an amended statement.
        let mut parse = Vec::new();
        write_parse(&mut parse, b"", &body);
        link.write_to_server(|to| to.extend_from_slice(&parse));
        link.client.unnamed.keep(KeptParse::short(parse.into()));
        return Step::Replaced(message.end());
    }
    if whole {
        inspection.unbound = Some(message.at..message.end());
    } else {
        let text = inspection.postgres.texts.begin(message.header.total(), &message.bytes[message.at..]);
        link.client.unnamed.begin_long(text);
    }
    Step::Replaced(message.at)
}

fn follow_bind_or_describe(inspection: &mut Inspection<'_>, link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    let kind = message.header.kind;
    if kind == front::BIND {
        if let Some(text) = link.client.unnamed.parse().cloned()
            && let Some(parse) = text.bytes()
        {
            let (text, whole) = (&parse.read()[HEADER + 1..], parse.is_read_whole());
            if let Some(step) = suspect(inspection.postgres, link, (message, text, whole), &mut None) {
                return step;
            }
            link.server.note_amended_bind(message.body(), text);
        }
        note_bound_names(link.server, message);
        link.server.note_bound(message, link.client.unnamed.deallocates_all());
    }
    let owner = link.client.unnamed_owner(link.client_tag);
    let text = link.client.unnamed.parse().cloned();
    let told = text.as_ref().map(|text| &text.told);
    let relies = told.is_some_and(|told| told.has_columns()) && !told::is_described_next(message);
    if link.server.unnamed.owner != Some(owner) {
        if relies && link.server.is_prefaced() {
            return Step::Wait;
        }
        ensure_on_server(link, owner);
    } else if kind == front::BIND {
        inspection.unbound = None;
        link.client.unnamed.drop_if_bound_at_once();
    }
    if relies && link.server.unnamed.likeness != Likeness::Same {
        return compare(link, message);
    }
    if kind == front::DESCRIBE && !told.is_some_and(|told| told.is_complete()) {
        link.server.exchange.note(Note::DescribedUnnamed(link.client.unnamed.version()));
        return Step::Replaced(message.at);
    }
    Step::Forward
}

/// A Bind or Describe of a statement that may be something else on this server than the client was told.
#[cold]
fn compare(link: &mut Link<'_>, message: &Arrived<'_>) -> Step {
    match link.server.unnamed.likeness {
        Likeness::Different => {
            told::refuse_changed(link, message.header.kind);
            Step::Forward
        }
        Likeness::Unknown => {
            link.server.unnamed.likeness = Likeness::Asked;
            told::probe(link, ("", Note::ProbeUnnamed))
        }
        Likeness::Same | Likeness::Asked => {
            link.client.awaits_answers = true;
            Step::Wait
        }
    }
}

#[inline]
pub(crate) fn follow_part(client: &mut Client, part: &[u8]) {
    client.unnamed.append(part, client.partial.rest() > part.len());
}

/// Looks at the text of a statement or, if it is not `whole`, at its beginning. `None`: it may be forwarded, in the
/// form of `amended` if that is set.
fn suspect(
    postgres: &Postgres,
    link: &mut Link<'_>,
    (message, text, whole): (&Arrived<'_>, &[u8], bool),
    amended: &mut Option<Vec<u8>>,
) -> Option<Step> {
    if link.server.policy.on_state == OnState::Allow
        && link.server.statements.ours().is_none()
        && link.client.named.is_none()
    {
        return None;
    }
    let findings = if whole { scan(text) } else { scan_beginning(text) };
    let mut findings = link.server.judge(findings, if whole { text } else { b"" });
    if findings.suspects == Suspects::NONE {
        return None;
    }
    if let Some(step) = sequences::discard_first(link, &findings, message) {
        return Some(step);
    }
    if let Some(step) = plans::discard_first(link, &findings) {
        return Some(step);
    }
    if whole
        && message.header.kind == front::PARSE
        && let Some(step) = postgres.pin_before(link, (&findings, text), message)
    {
        return Some(step);
    }
    if link.server.policy.on_state == OnState::Reject && findings.suspects.intersects(Suspects::VISIBLY_LASTING) {
        reject(link, front::PARSE);
    }
    if whole && link.server.policy.on_state != OnState::Allow {
        *amended = reset::amend_parse(link.client, text, &mut findings);
    }
    link.server.suspect(&findings);
    None
}

/// Has the server prepare the client's unnamed statement, or close its own if the client has none.
fn ensure_on_server(link: &mut Link<'_>, owner: Owner) {
    let parse = link.client.unnamed.parse().map(|text| text.bytes());
    if matches!(parse, Some(None)) {
        return refuse(link, front::BIND, FORGOTTEN, None);
    }
    let told = link.client.unnamed.parse().map(|text| &text.told).filter(|told| told.is_some());
    link.server.unnamed.likeness = if told.is_some() { Likeness::Unknown } else { Likeness::Same };
    let types = told.and_then(|told| told.parameters());
    link.out.insert(Peer::Server(link.server_tag), |to| match (parse.flatten(), types) {
        (None, _) => write(to, front::CLOSE, |to| to.extend_from_slice(b"S\0")),
        (Some(parse), None) => to.extend_from_slice(&parse),
        (Some(parse), Some(types)) => {
            let text = &parse[HEADER + 1..];
            let end = text.iter().position(|byte| *byte == 0).map_or(text.len(), |end| end + 1);
            write_parse(to, b"", &[&text[..end], types].concat());
        }
    });
    link.server.unnamed.doubt(false).restore();
    link.server.exchange.note(Note::Hidden);
    link.server.unnamed.owner = Some(owner);
}
