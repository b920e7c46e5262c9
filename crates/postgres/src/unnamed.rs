//! The unnamed prepared statement. A client may parse it in one round trip and use it in the next, and in between the
//! server may have served somebody else. Then it is parsed again if its text was kept, else closed, so that the
//! server itself says that it does not exist. A client never meets the statement of another.
//!
//! The text is kept only of a statement that was not bound together with its parsing: most are, and those cost
//! nothing here. Named statements are followed elsewhere.
//!
//! What stands behind something else in its pipeline may be skipped because of an error there, and then the statement is what it was
//! before. Where that matters, what was before is remembered until the answers have come ([`Doubt`]).

use std::{collections::VecDeque, ops::Range};

use protocol::{ClientTag, Outbox, Peer, ServerTag};

use crate::{
    client::Client,
    directory::OnState,
    exchange::Note,
    named, plans,
    requests::note_bound_names,
    retold, sequences,
    server::Server,
    session::request::{Arrived, Step},
    sql::{
        deallocate::forgets_all,
        scan::{scan, scan_beginning},
        suspects::Suspects,
    },
    state::reject,
    wire::message::{HEADER, front, write},
};

/// Longest Parse that is kept for a client, in bytes.
const MAX_KEPT: usize = 16 * 1024;

/// Most bytes of Parses that are remembered of a pipeline in case what is behind them is skipped.
const MAX_DOUBTED: usize = 256 * 1024;

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

/// What a server has for an unnamed statement.
#[derive(Default)]
pub(crate) struct Unnamed {
    /// Whose statement it is, once all that was forwarded has been done. `None`: anybody's, perhaps one of ours. Of a client that has no
    /// statement the server has none, either.
    pub(crate) owner: Option<Owner>,
    /// Noted requests about it that have no answer yet, but for those of the doubt.
    pending: u32,
    doubt: Option<Box<Doubt>>,
}

/// Requests of one pipeline that may be skipped, and what there was before.
struct Doubt {
    /// Noted requests that come before these.
    earlier: u32,
    /// The server has the client's statement, as far as these are answered.
    at_hand: bool,
    /// The end of their pipeline was forwarded: what follows may find the one statement or the other.
    ended: bool,
    /// One of them was skipped, and with it all behind it.
    skipped: bool,
    /// Oldest first.
    asked: VecDeque<Asked>,
    /// Bytes of the texts in that.
    bytes: usize,
}

/// A noted request.
enum Asked {
    /// One of ours, which has the server have what the client has.
    Bring,
    /// The client's: it replaces or destroys its statement. The Parse of the one before, if that was kept.
    Replace(Option<Box<[u8]>>),
}

impl Unnamed {
    /// A client gets the server, which owes nothing.
    pub(crate) fn begin_lease(&mut self) {
        (self.pending, self.doubt) = (0, None);
    }

    /// The end of a pipeline is forwarded.
    #[inline]
    pub(crate) fn end_pipeline(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            doubt.ended = true;
        }
    }

    /// Which statement the client has depends on answers to an earlier pipeline.
    fn is_undecided(&self) -> bool {
        self.doubt.as_ref().is_some_and(|doubt| doubt.ended)
    }

    /// What is forwarded now is done for sure: nothing of what is in doubt matters any more.
    fn supersede(&mut self) {
        if let Some(doubt) = self.doubt.take() {
            self.pending = doubt.earlier + doubt.asked.len() as u32;
        }
    }

    /// What is noted next may be skipped.
    fn doubt(&mut self, at_hand: bool) -> &mut Doubt {
        let earlier = if self.doubt.is_none() { std::mem::take(&mut self.pending) } else { 0 };
        let new = || Doubt { earlier, at_hand, ended: false, skipped: false, asked: VecDeque::new(), bytes: 0 };
        self.doubt.get_or_insert_with(|| Box::new(new()))
    }

    /// A noted request was answered, or (not `done`) it failed, or was skipped because of an error before it; `reached`: it is not known
    /// to be the latter. `holder` has the server.
    pub(crate) fn settle(&mut self, done: bool, reached: bool, holder: Option<(ClientTag, &mut Client)>) {
        let Some(doubt) = &mut self.doubt else {
            self.pending -= 1;
            if let Some((_, client)) = holder
                && !done
                && self.pending == 0
            {
                client.unnamed = None;
            }
            return;
        };
        if doubt.earlier > 0 {
            doubt.earlier -= 1;
            if let Some(Asked::Replace(before)) = doubt.asked.front_mut()
                && !done
                && doubt.earlier == 0
            {
                *before = None;
            }
            return;
        }
        let asked = doubt.asked.pop_front().expect("only what was asked is settled");
        let Some((me, client)) = holder else { return };
        doubt.at_hand |= done;
        if let Asked::Replace(before) = asked
            && !done
            && !doubt.skipped
        {
            doubt.skipped = true;
            // Before a Parse that has something to replace stands a message that is answered if the Parse is read.
            let failed = reached && before.is_some();
            doubt.at_hand |= failed;
            client.unnamed = before.filter(|_| !failed);
        }
        if doubt.asked.is_empty() {
            self.owner = doubt.at_hand.then(|| Owner::of(me, client));
            self.doubt = None;
        }
    }
}

impl Doubt {
    /// The client's statement is replaced.
    fn replace(&mut self, before: Option<Box<[u8]>>) {
        let before = before.filter(|parse| self.bytes + parse.len() <= MAX_DOUBTED);
        self.bytes += before.as_ref().map_or(0, |parse| parse.len());
        self.asked.push_back(Asked::Replace(before));
    }
}

/// Whether the server has the client's unnamed statement, and nothing more need be known of it.
#[inline]
pub(crate) fn is_at_hand(me: ClientTag, client: &Client, server: &Server) -> bool {
    server.unnamed.owner == Some(Owner::of(me, client)) && client.unnamed.is_none() && server.unnamed.doubt.is_none()
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
            // What is answered to this tells whether the query is read.
            let before = client.unnamed.take();
            let at_hand = server.unnamed.owner == Some(Owner::of(me, client));
            out.insert(Peer::Server(tag), named::write_idle_close);
            server.unnamed.doubt(at_hand).replace(before);
            server.exchange.noted(Note::Hidden);
        }
    } else {
        server.unnamed.supersede();
        server.unnamed.owner = Some(Owner::of(me, client));
    }
    *kept = None;
    replaced(me, client, server);
    None
}

/// The client has another statement, or none, and so has the server, if it had the one before.
#[inline]
fn replaced(me: ClientTag, client: &mut Client, server: &mut Server) {
    let at_hand = server.unnamed.owner == Some(Owner::of(me, client));
    client.drop_unnamed();
    server.unnamed.owner = at_hand.then(|| Owner::of(me, client));
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
    let at_hand = server.unnamed.owner == Some(Owner::of(me, client));
    if server.mid_pipeline {
        keep(client, message, kept);
    } else {
        server.unnamed.supersede();
        *kept = None;
    }
    let loses = !at_hand || client.unnamed.is_some();
    if server.mid_pipeline && (loses || server.unnamed.doubt.is_some()) {
        let before = client.unnamed.take();
        if before.is_some() {
            out.insert(Peer::Server(tag), named::write_idle_close);
            server.exchange.noted(Note::Swallowed);
        }
        server.unnamed.doubt(at_hand).replace(before);
    } else {
        server.unnamed.pending += 1;
    }
    server.exchange.noted(Note::Unnamed);
    client.drop_unnamed();
    server.unnamed.owner = Some(Owner::of(me, client));
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
            if let Some(step) = named::deallocate(client, (tag, server), message, out) {
                if matches!(step, Step::Replaced(_)) {
                    // It stays with this server.
                    client.drop_unnamed();
                    client.unnamed_forgets = false;
                    server.unnamed.owner = Some(Owner::of(me, client));
                    *kept = None;
                }
                return step;
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
                named::write_named_parse(&mut parse, b"", &body);
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
                    server.retell_bind(message.body(), &text);
                }
                note_bound_names(server, message);
                server.note_bound(message, client.unnamed_forgets);
            }
            let owner = Owner::of(me, client);
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
        *amended = retold::parse(client, server, text, &mut findings);
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
    server.unnamed.doubt(false).asked.push_back(Asked::Bring);
    server.exchange.noted(Note::Hidden);
    server.unnamed.owner = Some(owner);
}
