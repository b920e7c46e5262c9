//! A server's session: what it sends goes to the client that holds it, settles its exchange, and ends the lease. How it
//! logs in and what Poolhouse itself asks of it is told elsewhere.

use std::sync::Arc;

use protocol::{Blame, ClientTag, CloseReason, Effect, Input, Outbox, Peer, PoolId, ServerTag, Sessions, Verdict};

use crate::{
    Postgres,
    cleaning::Soil,
    client::{Client, Phase, may_release},
    directory::{PoolMode, StatePolicy},
    exchange::{Exchange, Note},
    listeners::Duty,
    named::{self, Answer},
    plans::Plans,
    replan::Replan,
    retold::Retold,
    sequences::Asker,
    server_login::Login,
    session::{prepared::Prepared, version::Version},
    sql::{
        catalogue::Catalogue,
        parameters::{Pairs, Settings, is_fact},
        suspects::Suspects,
    },
    unnamed::Unnamed,
    wire::{
        encryption::Wire,
        error::{Failure, Report, Severity, code},
        message::{HEADER, Header, back, take_text, write_ready},
    },
    work::Work,
};

/// The state of one server's connection.
pub struct Server {
    pub(crate) stage: Stage,
    pub(crate) pool: PoolId,
    pub(crate) mode: PoolMode,
    /// Its pool wants servers that take writes.
    pub(crate) for_writes: bool,
    /// Whose it is.
    pub(crate) holder: Option<ClientTag>,
    /// What it owes its holder.
    pub(crate) exchange: Exchange,
    /// A portal of its holder's transaction may be a COPY.
    pub(crate) copies: bool,
    /// What Poolhouse itself has asked of it; its answers are nobody else's.
    pub(crate) work: Option<Box<Work>>,
    /// For whom it was prepared last: what is left in it since is of that client.
    pub(crate) held_last: Option<(ClientTag, u64)>,
    /// Its unnamed statement.
    pub(crate) unnamed: Unnamed,
    /// Portals of statements that forget all prepared statements.
    pub(crate) forgetting: Vec<Box<[u8]>>,
    /// A message of the extended protocol was forwarded, and no Sync since: what comes next may be skipped.
    pub(crate) mid_pipeline: bool,
    /// Its named statements, once it has had any.
    pub(crate) prepared: Option<Box<Prepared>>,
    pub(crate) policy: StatePolicy,
    /// What has been forwarded since it was granted, or last surveyed, may have left this behind.
    pub(crate) suspects: Suspects,
    /// Names of custom parameters in those texts.
    pub(crate) custom: Vec<Box<[u8]>>,
    /// Names of parameters that those texts set back.
    pub(crate) resets: Vec<Box<[u8]>>,
    /// A COMMIT was answered since something may have set them back.
    pub(crate) committed: bool,
    /// An error came behind that: whether they were set back is asked when no transaction is open.
    pub(crate) reset_in_doubt: bool,
    /// Channels that those texts stop listening to, unless the transaction fails.
    pub(crate) unlistens: Vec<Box<[u8]>>,
    /// Whether it serves clients one by one.
    pub(crate) duty: Duty,
    /// Whose last values of sequences it knows, if of nobody else's.
    pub(crate) sequences_of: Option<Asker>,
    /// Its holder, which asks for last values, may have advanced a sequence since.
    pub(crate) advanced: bool,
    /// The last request, if it may have to be repeated.
    pub(crate) replan: Option<Box<Replan>>,
    /// What was forwarded in a form that is not the client's, if anything was.
    pub(crate) retold: Option<Box<Retold>>,
    /// A ReadyForQuery of this status is kept back until a survey is over.
    pub(crate) ready_withheld: Option<u8>,
    /// Its holder keeps it.
    pub(crate) pinned: bool,
    /// What may have been left in it since it was cleaned: it is cleaned before another client gets it.
    pub(crate) soil: Soil,
    /// What is known of its database.
    pub(crate) catalogue: Arc<Catalogue>,
    /// It has carried out steps, and not been sent a Sync since.
    pub(crate) unsynced: bool,
    /// Backslashes escape in text constants of the plain kind, or nobody knows.
    pub(crate) odd_strings: bool,
    /// By which settings its plans may have been made.
    pub(crate) plans: Plans,
    /// Functions that the configuration calls harmless.
    pub(crate) trusted: Arc<[String]>,
    /// The transaction that is open has changed what the database consists of.
    pub(crate) changes: bool,
    /// Names of custom parameters seen since it was cleaned.
    pub(crate) customs: Vec<Box<[u8]>>,
    /// What was set when its connection began, before any SQL.
    pub(crate) own: Arc<Settings>,
    /// The connect_query makes more than settings: it has to run again after a cleaning.
    pub(crate) connect_makes: bool,
    /// Its holder has discarded everything since the last survey.
    pub(crate) discarded: bool,
    /// Who it logged in as, in the server's spelling.
    pub(crate) user: Option<Box<[u8]>>,
    /// Bytes of its current message that are still to come.
    pub(crate) body: u32,
    /// They go to the client, otherwise nowhere.
    pub(crate) body_to_client: bool,
    /// The holder knows that it has received a part of a message.
    pub(crate) told_mid: bool,
    /// It has sent a FATAL error and will close.
    pub(crate) fatal: Option<Box<str>>,
    /// What is set in it now.
    pub(crate) settings: Arc<Settings>,
    /// What was set when it started.
    pub(crate) defaults: Arc<Settings>,
    /// What it reports about itself.
    pub(crate) facts: Arc<Pairs>,
    /// Which PostgreSQL it is.
    pub(crate) version: Version,
    /// What it reported about itself when it started.
    pub(crate) own_facts: Arc<Pairs>,
    pub(crate) key: CancelKey,
    /// SQL that it runs when it is new, and after everything in it was discarded.
    pub(crate) connect_query: Option<Arc<str>>,
    /// How its connection is encrypted.
    pub(crate) wire: Wire,
}

/// Where a server's session is.
pub(crate) enum Stage {
    Login(Box<Login>),
    Ready,
    Closed,
}

/// BackendKeyData.
#[derive(Default)]
pub(crate) struct CancelKey {
    pub(crate) pid: u32,
    /// Four bytes, or more in newer protocol versions; empty if the server sent none.
    pub(crate) secret: Box<[u8]>,
}

/// Longest message of a server: the length is a signed number.
const MAX_LENGTH: u32 = i32::MAX as u32;

/// What to do with a message.
pub(crate) enum Step {
    /// More of it is needed.
    Wait,
    Forward,
    Drop,
    /// Everything up to its end has been handled.
    Handled,
    /// The server broke the protocol.
    Broken(String),
    /// The session is over.
    Over,
}

impl Server {
    /// A part of a message has been forwarded, and its client waits for the rest.
    pub(crate) fn owes_client(&self) -> bool {
        self.body > 0 && self.body_to_client
    }

    /// Remembers a ParameterStatus; returns false if it is malformed.
    pub(crate) fn record(&mut self, postgres: &Postgres, mut body: &[u8]) -> bool {
        let (Some(name), Some(value), []) = (take_text(&mut body), take_text(&mut body), body) else { return false };
        if is_fact(name) {
            if self.facts.get(name) != Some(value) {
                self.facts = Arc::new(self.facts.with(name, value));
            }
        } else if self.settings.reported.get(name) != Some(value) {
            self.note_reported(name);
            if name == b"standard_conforming_strings" {
                self.odd_strings = value != b"on";
            }
            let reported = self.settings.reported.with(name, value);
            self.settings = postgres.parameters.intern(Settings::new(reported, self.settings.extras.clone()));
        }
        true
    }
}

/// What a relay of one input shares between its steps.
pub(crate) struct Relay<'a, 'b> {
    pub(crate) me: ServerTag,
    pub(crate) clients: &'a mut dyn Sessions<ClientTag, Client>,
    pub(crate) bytes: &'b [u8],
    pub(crate) full: bool,
    /// Handled so far.
    pub(crate) at: usize,
    /// What is to be forwarded and has not been yet begins here and ends at `at`.
    pub(crate) run: usize,
    pub(crate) out: &'a mut Outbox,
}

impl Relay<'_, '_> {
    /// Forwards the run up to `end` and begins another there.
    pub(crate) fn flush(&mut self, server: &Server, end: usize) {
        if let Some(holder) = server.holder {
            self.out.span(Peer::Client(holder), self.run..end);
        }
        self.run = end;
    }

    /// A message that came in parts is complete. The client may have been done before it was.
    fn completed(&mut self, postgres: &Postgres, server: &mut Server) {
        if !(server.body_to_client && server.exchange.is_settled() && server.serves_client()) {
            return;
        }
        self.flush(server, self.at);
        let tag = server.holder.expect("a client is served");
        let client = self.clients.get(tag).expect("the holder of a server has a session");
        if may_release(client, server) {
            client.mid_message = false;
            postgres.finish(tag, client, self.me, server, self.out);
        }
    }

    /// Something was answered that the holder's next request may wait for.
    pub(crate) fn wake_holder(&mut self, server: &Server) {
        if let Some(tag) = server.holder
            && std::mem::take(&mut self.client(tag).awaits_answers)
        {
            self.out.push(Effect::Wake { client: tag });
        }
    }

    pub(crate) fn client(&mut self, tag: ClientTag) -> &mut Client {
        self.clients.get(tag).expect("the holder of a server has a session")
    }
}

impl Postgres {
    /// Handles a server's input from `at` on; returns how much is consumed in all.
    pub(crate) fn relay_server(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        at: usize,
        out: &mut Outbox,
    ) -> usize {
        let mut relay = Relay { me, clients, bytes: input.bytes, full: input.full, at, run: at, out };
        loop {
            if server.body > 0 {
                let part = (server.body as usize).min(relay.bytes.len() - relay.at);
                if !server.body_to_client {
                    relay.flush(server, relay.at);
                    relay.run += part;
                }
                relay.at += part;
                server.body -= part as u32;
                if server.body > 0 {
                    break;
                }
                relay.completed(self, server);
            }
            let Some(header) = Header::read(&relay.bytes[relay.at..]) else { break };
            let end = relay.at + header.total();
            if header.kind == back::DATA_ROW && (4..=MAX_LENGTH).contains(&header.length) && server.serves_client() {
                // Most messages are rows: they only have to be stepped over.
                let here = end.min(relay.bytes.len());
                server.body = (end - here) as u32;
                server.body_to_client = true;
                relay.at = here;
                continue;
            }
            let step = if !(4..=MAX_LENGTH).contains(&header.length) {
                Step::Broken(format!("a message of length {}", header.length))
            } else if server.work.is_some() {
                self.for_us(&mut relay, server, header, end)
            } else if server.holder.is_some() {
                self.for_client(&mut relay, server, header, end)
            } else {
                self.for_nobody(&mut relay, server, header, end)
            };
            let here = end.min(relay.bytes.len());
            if server.exchange.take_moved() {
                relay.wake_holder(server);
            }
            match step {
                Step::Forward => server.body_to_client = true,
                Step::Drop => {
                    relay.flush(server, relay.at);
                    relay.run = here;
                    server.body_to_client = false;
                }
                Step::Handled => {
                    assert!(relay.run == end, "a handled message leaves no run behind");
                    server.body_to_client = false;
                }
                Step::Wait => {
                    relay.out.need = if end > relay.bytes.len() { header.total() } else { 0 };
                    break;
                }
                Step::Broken(what) => {
                    relay.flush(server, relay.at);
                    self.broken(me, server, relay.clients, &what, relay.out);
                    return input.bytes.len();
                }
                Step::Over => return input.bytes.len(),
            }
            server.body = (end - here) as u32;
            relay.at = here;
        }
        relay.flush(server, relay.at);
        let mid = server.owes_client();
        if mid != server.told_mid
            && let Some(holder) = server.holder
        {
            server.told_mid = mid;
            relay.client(holder).mid_message = mid;
        }
        relay.at
    }

    /// A message while a client holds the server.
    #[inline]
    fn for_client(&self, relay: &mut Relay<'_, '_>, server: &mut Server, header: Header, end: usize) -> Step {
        let whole = end <= relay.bytes.len();
        match header.kind {
            back::COPY_DATA | back::NOTICE_RESPONSE => Step::Forward,
            back::NOTIFICATION_RESPONSE => notification(relay, server, whole, end),
            back::READY_FOR_QUERY => match ready_status(relay, header, whole) {
                Ok(status) if server.exchange.ready(status) => {
                    server.unsynced = false;
                    if server.repeat(relay.me, relay.out) {
                        relay.wake_holder(server);
                        Step::Drop
                    } else {
                        self.ready(relay, server, status, end)
                    }
                }
                Ok(_) => Step::Broken("a ReadyForQuery that nobody asked for".to_owned()),
                Err(step) => step,
            },
            back::PARAMETER_STATUS => self.parameter(relay, server, whole, end),
            back::ERROR_RESPONSE if !whole && !relay.full => Step::Wait,
            back::ERROR_RESPONSE => self.error(relay, server, whole, end),
            back::PARSE_COMPLETE | back::CLOSE_COMPLETE => {
                let Some(note) = server.exchange.answered(header.kind) else { return Step::Forward };
                let client = server.holder.and_then(|tag| relay.clients.get(tag));
                match named::settle(note, true, client, server) {
                    Answer::Same => Step::Forward,
                    Answer::Nothing => Step::Drop,
                    Answer::ParseComplete => {
                        relay.flush(server, relay.at);
                        relay.run = end;
                        let tag = server.holder.expect("a client is served");
                        relay.out.insert(Peer::Client(tag), named::write_parse_complete);
                        if whole { Step::Handled } else { Step::Broken("a CloseComplete with a body".to_owned()) }
                    }
                }
            }
            back::COMMAND_COMPLETE if server.suspects.any(Suspects::TELLING) || !server.unlistens.is_empty() => {
                if !whole && !relay.full {
                    return Step::Wait;
                }
                self.done(relay, server, end)
            }
            back::BIND_COMPLETE => match server.exchange.answered(header.kind) {
                None => Step::Forward,
                Some(Note::Swallowed) => Step::Drop,
                Some(_) => Step::Broken("a Parse or Close answered by a BindComplete".to_owned()),
            },
            back::COPY_IN_RESPONSE if server.exchange.copy_begins() => Step::Forward,
            back::COPY_IN_RESPONSE => Step::Broken("a COPY that no request has begun".to_owned()),
            back::COMMAND_COMPLETE
            | back::COPY_DONE
            | back::COPY_OUT_RESPONSE
            | back::EMPTY_QUERY_RESPONSE
            | back::FUNCTION_CALL_RESPONSE
            | back::NO_DATA
            | back::PARAMETER_DESCRIPTION
            | back::PORTAL_SUSPENDED
            | back::ROW_DESCRIPTION => passed_on(server, header.kind),
            kind => Step::Broken(unexpected(kind)),
        }
    }

    /// A ParameterStatus: it holds for the server and for who holds it.
    fn parameter(&self, relay: &mut Relay<'_, '_>, server: &mut Server, whole: bool, end: usize) -> Step {
        match (whole, relay.full) {
            (false, false) => return Step::Wait,
            (false, true) => return Step::Broken("a ParameterStatus without an end".to_owned()),
            (true, _) => {}
        }
        if !server.record(self, &relay.bytes[relay.at + HEADER..end]) {
            return Step::Broken("a malformed ParameterStatus".to_owned());
        }
        match server.holder {
            Some(tag) if server.work.is_none() => {
                let client = relay.client(tag);
                if let Some(start) = client.start.as_ref().filter(|start| !Arc::ptr_eq(start, &server.defaults)) {
                    let settings = server.settings.with_defaults_set(start, &server.defaults);
                    server.settings = self.parameters.intern(settings);
                }
                client.settings = Some(server.settings.clone());
                Step::Forward
            }
            _ => Step::Drop,
        }
    }

    /// A message while the server answers a query of ours.
    fn for_us(&self, relay: &mut Relay<'_, '_>, server: &mut Server, header: Header, end: usize) -> Step {
        let whole = end <= relay.bytes.len();
        let prefaces = server.is_prefaced();
        let work = server.work.as_mut().expect("the server is at work for us");
        match header.kind {
            back::READY_FOR_QUERY => match ready_status(relay, header, whole) {
                Ok(status) => {
                    relay.flush(server, relay.at);
                    relay.run = end;
                    self.work_ready(relay.me, server, relay.clients, status, relay.out);
                    if matches!(server.stage, Stage::Closed) { Step::Over } else { Step::Handled }
                }
                Err(step) => step,
            },
            back::PARAMETER_STATUS => self.parameter(relay, server, whole, end),
            back::ERROR_RESPONSE if !whole && !relay.full => Step::Wait,
            back::ERROR_RESPONSE => {
                work.answered = true;
                let failure = Failure::read(relay.bytes.get(relay.at + HEADER..end).unwrap_or_default());
                work.failure.get_or_insert(failure);
                if whole {
                    server.note_fatal(&relay.bytes[relay.at + HEADER..end]);
                }
                // Even a FATAL one tells that nothing behind it was carried out.
                if prefaces {
                    let failure = server.work.as_mut().and_then(|work| work.failure.take()).expect("just set");
                    self.preface_failed(relay.me, server, relay.clients, failure, relay.out);
                    return Step::Over;
                }
                Step::Drop
            }
            back::PARSE_COMPLETE | back::BIND_COMPLETE if prefaces => Step::Drop,
            back::PARSE_COMPLETE | back::BIND_COMPLETE | back::CLOSE_COMPLETE if work.is_lookup() => Step::Drop,
            back::CLOSE_COMPLETE if !prefaces => Step::Broken(unexpected(header.kind)),
            back::COMMAND_COMPLETE | back::CLOSE_COMPLETE if prefaces && !whole => Step::Wait,
            back::COMMAND_COMPLETE | back::EMPTY_QUERY_RESPONSE | back::CLOSE_COMPLETE => {
                work.answered = true;
                if !prefaces {
                    return Step::Drop;
                }
                relay.flush(server, relay.at);
                relay.run = end;
                self.stepped(relay.me, server, relay.clients, relay.out);
                Step::Handled
            }
            back::DATA_ROW if !whole && !relay.full && work.reads_rows() => Step::Wait,
            back::DATA_ROW => {
                if !work.row(relay.bytes.get(relay.at + HEADER..end)) {
                    return Step::Broken("a malformed DataRow".to_owned());
                }
                Step::Drop
            }
            back::NOTIFICATION_RESPONSE => self.heard(relay, server, whole, end),
            back::ROW_DESCRIPTION | back::NOTICE_RESPONSE => Step::Drop,
            kind => Step::Broken(unexpected(kind)),
        }
    }

    /// A message while nobody holds the server: it may only be asynchronous.
    fn for_nobody(&self, relay: &mut Relay<'_, '_>, server: &mut Server, header: Header, end: usize) -> Step {
        let whole = end <= relay.bytes.len();
        match header.kind {
            back::NOTIFICATION_RESPONSE => self.heard(relay, server, whole, end),
            back::NOTICE_RESPONSE => Step::Drop,
            back::PARAMETER_STATUS => self.parameter(relay, server, whole, end),
            back::ERROR_RESPONSE if !whole && !relay.full => Step::Wait,
            back::ERROR_RESPONSE => {
                let failure = Failure::read(relay.bytes.get(relay.at + HEADER..end).unwrap_or_default());
                server.fatal = Some(failure.text().into());
                server.stage = Stage::Closed;
                let reason = CloseReason::Error(Blame::Server, failure.text());
                relay.out.push(Effect::Close { peer: Peer::Server(relay.me), reason });
                Step::Over
            }
            kind => Step::Broken(unexpected(kind)),
        }
    }

    /// A notification that no holder is to get: if the server listens for others, it is for them.
    fn heard(&self, relay: &mut Relay<'_, '_>, server: &Server, whole: bool, end: usize) -> Step {
        if matches!(server.duty, Duty::Listens(_)) {
            match (whole, relay.full) {
                (true, _) => self.fan_out(server, &relay.bytes[relay.at..end], relay.out),
                (false, false) => return Step::Wait,
                (false, true) => return Step::Broken("a notification without an end".to_owned()),
            }
        }
        Step::Drop
    }

    /// The server cannot be understood any more: it is closed, and its holder with it.
    pub(crate) fn broken(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        what: &str,
        out: &mut Outbox,
    ) {
        server.stage = Stage::Closed;
        server.work = None;
        let text = format!("the server broke the protocol: {what}");
        let Some(tag) = server.holder else {
            let reason = CloseReason::Error(Blame::Server, text);
            out.push(Effect::Close { peer: Peer::Server(me), reason });
            return;
        };
        let client = clients.get(tag).expect("the holder of a server has a session");
        // The server's last message was complete.
        client.mid_message = false;
        let hint = "The outcome of a transaction under way is unknown.";
        let report = Report { severity: Severity::Fatal, code: code::CONNECTION_FAILURE, message: &text, hint };
        if !matches!(client.phase, Phase::Closed) {
            client.fail(tag, &report, Blame::Server, out);
        }
        client.release(tag, me, server, Verdict::Discard, out);
    }
}

impl Server {
    /// What it sends is for a client.
    fn serves_client(&self) -> bool {
        self.holder.is_some() && self.work.is_none()
    }

    /// Sends the ReadyForQuery that was kept back, if one was.
    pub(crate) fn tell_ready(&mut self, holder: Option<ClientTag>, out: &mut Outbox) {
        if let (Some(status), Some(tag)) = (self.ready_withheld.take(), holder) {
            out.insert(Peer::Client(tag), |to| write_ready(to, status));
        }
    }

    pub(crate) fn note_fatal(&mut self, body: &[u8]) {
        let failure = Failure::read(body);
        if failure.fatal {
            self.fatal = Some(failure.text().into());
        }
    }
}

/// A notification for the holder, unless it gets the same from a server that listens for it.
fn notification(relay: &mut Relay<'_, '_>, server: &Server, whole: bool, end: usize) -> Step {
    let holder = server.holder.expect("a client is served");
    if relay.client(holder).listening.is_none() {
        return Step::Forward;
    }
    if !whole && !relay.full {
        return Step::Wait;
    }
    // The process that notifies comes before the channel.
    let mut body = relay.bytes.get(relay.at + HEADER + 4..end).unwrap_or_default();
    let known = take_text(&mut body).is_some_and(|channel| relay.client(holder).hears(channel));
    if known { Step::Drop } else { Step::Forward }
}

/// What becomes of an answer of this type, which is none to a Parse or Close.
#[inline]
fn passed_on(server: &mut Server, kind: u8) -> Step {
    match server.exchange.answered(kind) {
        None | Some(Note::Retold(_)) => Step::Forward,
        Some(_) => Step::Broken(format!("a Parse or Close answered by 0x{kind:02X}")),
    }
}

/// The status in a ReadyForQuery.
fn ready_status(relay: &Relay<'_, '_>, header: Header, whole: bool) -> Result<u8, Step> {
    if header.length != 5 {
        return Err(Step::Broken(format!("a ReadyForQuery of length {}", header.length)));
    }
    if !whole {
        return Err(Step::Wait);
    }
    match relay.bytes[relay.at + HEADER] {
        status @ (b'I' | b'T' | b'E') => Ok(status),
        status => Err(Step::Broken(format!("a ReadyForQuery of unknown status 0x{status:02X}"))),
    }
}

fn unexpected(kind: u8) -> String {
    if kind.is_ascii_graphic() {
        format!("an unexpected message of type '{}'", char::from(kind))
    } else {
        format!("an unexpected message of type 0x{kind:02X}")
    }
}
