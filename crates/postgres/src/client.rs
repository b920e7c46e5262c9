//! A client's session after login: its requests become leases, forwarded spans, and entries in the exchange of the
//! server it holds. How it logged in and how it ends is told elsewhere; what the server answers, too.

use std::{ops::Range, sync::Arc};

use protocol::{
    Blame, ClientTag, CloseReason, Effect, Input, LeaseKind, Outbox, Peer, PoolId, ServerTag, Sessions, Standing,
    Verdict,
};

use crate::{
    Postgres,
    client_login::Login,
    copies::{self, Copies},
    directory::PoolMode,
    exchange::Admission,
    listeners::Listening,
    preface::ends_request,
    requests::look,
    server::Server,
    session::{
        pins::Pin,
        request::{Arrived, Step},
        statements::Named,
    },
    sql::parameters::Settings,
    wire::{
        error::{Report, Severity, code},
        message::{HEADER, Header, IDLE, LARGE_LIMIT, SMALL_LIMIT, front, write, write_ready, write_text},
    },
};

/// The state of one client's connection. Small, since tens of thousands are idle; what only the login needs is in a
/// box that goes away with it.
pub struct Client {
    pub(crate) phase: Phase,
    /// The server it holds.
    pub(crate) lease: Option<ServerTag>,
    /// What it has set; known from the end of its login on.
    pub(crate) settings: Option<Arc<Settings>>,
    /// What it had when its login was over: RESET leads back there.
    pub(crate) start: Option<Arc<Settings>>,
    /// Its named statements, if it has any.
    pub(crate) named: Option<Box<Named>>,
    /// Why it keeps its server beyond its transactions.
    pub(crate) pin: Option<Pin>,
    /// Its next request waits for the answers to earlier ones.
    pub(crate) awaits_answers: bool,
    /// Which of its statements may be a COPY.
    pub(crate) copies: Copies,
    /// It asks for last values of sequences.
    pub(crate) last_values: bool,
    /// What it listens to on a server that it shares with others.
    pub(crate) listening: Option<Box<Listening>>,
    /// The pool it uses; meaningless during login.
    pub(crate) pool: PoolId,
    /// The Parse of its unnamed statement, if it may be needed again.
    pub(crate) unnamed: Option<Box<[u8]>>,
    /// That has the server forget all prepared statements.
    pub(crate) unnamed_forgets: bool,
    /// Counts its unnamed statements.
    pub(crate) unnamed_version: u32,
    /// Proof of the right to cancel its work.
    pub(crate) secret: u64,
    /// Bytes of the current message of the client that are still to come.
    pub(crate) body: u32,
    /// They go to the server, otherwise nowhere.
    pub(crate) body_to_server: bool,
    /// The client has received a part of a message of its server: nothing can be inserted now.
    pub(crate) mid_message: bool,
    /// What remains of a request that was answered with an error instead of being forwarded.
    pub(crate) skip: Skip,
    /// A server was lost before it got anything of the present request.
    pub(crate) retried: bool,
    /// Its next server has to be one that nobody has had.
    pub(crate) wants_unused: bool,
    /// Whether a lease was asked for by a Query or FunctionCall, which stand alone.
    pub(crate) asked_alone: bool,
    /// Bytes of its input that were sent ahead of the outcome of a preface, and are still with the driver.
    pub(crate) ahead: u32,
    /// No more may be sent ahead.
    pub(crate) ahead_ended: bool,
    /// Servers that failed to take its settings, one after the other.
    pub(crate) tries: u8,
    pub(crate) mode: PoolMode,
    pub(crate) standing: Standing,
}

/// Where a client's session is.
pub(crate) enum Phase {
    /// Not yet logged in.
    Login(Box<Login>),
    /// Its requests are handled as they come.
    Ready,
    /// A lease was asked for.
    Waiting,
    /// The server it was granted is being brought to the client's settings.
    Applying,
    /// It is to hear notifications, and the server that is to listen for it does not yet.
    Subscribing,
    /// It was told to go.
    Closed,
}

/// What is to be ignored of the client's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Skip {
    Nothing,
    /// One message.
    Message,
    /// Everything up to a Sync.
    ToSync,
}

/// Longest message of this type that a client may send; 0 for a type that does not exist.
fn limit(kind: u8) -> u32 {
    match kind {
        front::QUERY | front::PARSE | front::BIND | front::FUNCTION_CALL | front::COPY_DATA => LARGE_LIMIT,
        front::DESCRIBE
        | front::EXECUTE
        | front::CLOSE
        | front::SYNC
        | front::FLUSH
        | front::COPY_DONE
        | front::COPY_FAIL
        | front::TERMINATE => SMALL_LIMIT,
        _ => 0,
    }
}

impl Client {
    /// A part of a message has been forwarded, and its server waits for the rest.
    pub(crate) fn owes_server(&self) -> bool {
        self.body > 0 && self.body_to_server
    }

    /// Changes its standing.
    #[inline]
    pub(crate) fn stand(&mut self, me: ClientTag, standing: Standing, out: &mut Outbox) {
        if self.standing != standing && !matches!(self.phase, Phase::Closed) {
            self.standing = standing;
            out.push(Effect::Standing { client: me, standing });
            if standing == Standing::Idle && self.listening.is_some() {
                self.tell_pending(me, out);
            }
        }
    }

    /// Gives the server back; if something may have been left behind in it, to be cleaned of everything.
    pub(crate) fn release(
        &mut self,
        me: ClientTag,
        tag: ServerTag,
        server: &mut Server,
        verdict: Verdict,
        out: &mut Outbox,
    ) {
        server.soil_at_release();
        let verdict = server.worse(verdict);
        self.part(server);
        server.give_back(tag, verdict, out);
        if !matches!(self.phase, Phase::Login(_)) {
            self.stand(me, Standing::Idle, out);
        }
    }

    /// It and its server have nothing more to do with each other.
    pub(crate) fn part(&mut self, server: &mut Server) {
        self.lease = None;
        server.holder = None;
        server.pinned = false;
        server.told_mid = false;
        server.copies = false;
        server.exchange.shrink();
        server.settle_change();
    }

    /// Tells the client why and closes its connection. The driver releases what it holds through `client_gone`.
    pub(crate) fn fail(&mut self, me: ClientTag, report: &Report<'_>, blame: Blame, out: &mut Outbox) {
        if !self.mid_message {
            out.insert(Peer::Client(me), |to| report.write(to));
        }
        self.close(me, CloseReason::Error(blame, report.message.to_owned()), out);
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self, me: ClientTag, reason: CloseReason, out: &mut Outbox) {
        self.phase = Phase::Closed;
        out.push(Effect::Close { peer: Peer::Client(me), reason });
    }

    /// Closes the connection because the client broke the protocol.
    pub(crate) fn violation(&mut self, me: ClientTag, message: &str, out: &mut Outbox) {
        let hint = "The client and Poolhouse no longer agree where a message begins.";
        let report = Report { severity: Severity::Fatal, code: code::PROTOCOL_VIOLATION, message, hint };
        self.fail(me, &report, Blame::Client, out);
    }

    /// The request the client waits with is answered with an error; the client stays. Its input is to be handed to
    /// it again, so that the request can be skipped.
    pub(crate) fn decline(&mut self, me: ClientTag, report: &Report<'_>, out: &mut Outbox) {
        assert!(matches!(self.phase, Phase::Waiting), "only a waiting request is declined");
        out.insert(Peer::Client(me), |to| report.write(to));
        self.skip = if self.asked_alone { Skip::Message } else { Skip::ToSync };
        self.phase = Phase::Ready;
        out.push(Effect::Wake { client: me });
    }
}

impl Postgres {
    /// Handles a client's input from `at` on; returns how much is consumed in all.
    pub(crate) fn relay_client(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        at: usize,
        out: &mut Outbox,
    ) -> usize {
        let prefaced = client.lease.and_then(|tag| servers.get(tag)).is_some_and(|server| server.is_prefaced());
        let from = at + client.ahead as usize;
        if !prefaced {
            // Whatever was sent ahead is sent for good.
            (client.ahead, client.ahead_ended) = (0, false);
        }
        let mut kept = None;
        let to = self.relay((me, client), servers, input, from, &mut kept, out);
        if let Some(parse) = kept {
            client.unnamed = Some(input.bytes[parse].into());
        }
        if !prefaced || matches!(client.phase, Phase::Closed) {
            return to;
        }
        if !client.ahead_ended
            && let Some(tag) = client.lease
            && let Some(server) = servers.get(tag)
        {
            // Nothing that makes PostgreSQL answer went ahead.
            server.hurry_preface(tag, out);
        }
        client.ahead = u32::try_from(to - at).expect("no more is held than that");
        at
    }
}

impl Postgres {
    /// Does what [`Postgres::relay_client`] says; leaves in `kept` the span of a Parse to be kept.
    fn relay(
        &self,
        (me, client): (ClientTag, &mut Client),
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        mut at: usize,
        kept: &mut Option<Range<usize>>,
        out: &mut Outbox,
    ) -> usize {
        let bytes = input.bytes;
        let mut lease = client.lease.map(|tag| (tag, servers.get(tag).expect("a leased server has a session")));
        loop {
            if client.body > 0 {
                let part = (client.body as usize).min(bytes.len() - at);
                if client.body_to_server {
                    let (tag, _) = lease.as_ref().expect("a message under way has a server");
                    out.span(Peer::Server(*tag), at..at + part);
                }
                at += part;
                client.body -= part as u32;
                if client.body > 0 {
                    return at;
                }
                // The server may have been done before the message was.
                if let Some((tag, server)) = &mut lease
                    && may_release(client, server)
                {
                    if self.finish(me, client, *tag, server, out) {
                        lease = None;
                    } else if !matches!(client.phase, Phase::Ready) {
                        return at;
                    }
                }
            }
            let Some(header) = Header::read(&bytes[at..]) else { return at };
            if !(4..=limit(header.kind)).contains(&header.length) {
                client.violation(me, &unacceptable(header), out);
                return bytes.len();
            }
            if header.kind == front::TERMINATE {
                client.close(me, CloseReason::Goodbye, out);
                return bytes.len();
            }
            let end = at + header.total();
            let here = end.min(bytes.len());
            let rest_follows = if let Some((tag, server)) = &mut lease {
                let message = Arrived { header, bytes, at, full: input.full };
                if server.is_prefaced() && (client.ahead_ended || !client.may_go_ahead(server, &message)) {
                    return at;
                }
                match client.admit((*tag, server), header.kind, out) {
                    Admission::Forward => {}
                    Admission::Drop => {
                        client.body_to_server = false;
                        client.body = (end - here) as u32;
                        at = here;
                        continue;
                    }
                    Admission::Wait | Admission::Ask | Admission::Break => return at,
                }
                let (forward, from) = match look(self, (me, client), (*tag, server), &message, kept, out) {
                    Step::Forward => {
                        enter(server, &message);
                        (true, at)
                    }
                    Step::Replaced(to) => (true, to),
                    Step::Answered => {
                        // A transaction that is open holds the server.
                        if may_release(client, server) && self.finish(me, client, *tag, server, out) {
                            lease = None;
                        } else if !matches!(client.phase, Phase::Ready) {
                            return end;
                        }
                        (false, here)
                    }
                    Step::Wait => {
                        out.need = if end > bytes.len() { header.total() } else { 0 };
                        return at;
                    }
                    Step::Later => return at,
                    Step::TooMany => return too_many_outstanding(me, client, bytes.len(), out),
                };
                if let Some((tag, server)) = &mut lease {
                    if server.exchange.is_full() {
                        return too_many_outstanding(me, client, bytes.len(), out);
                    }
                    if forward {
                        server.mid_pipeline |= matches!(
                            header.kind,
                            front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE
                        );
                        client.ahead_ended = server.is_prefaced() && ends_request(header);
                        client.retried = false;
                        client.stand(me, Standing::Active, out);
                        out.span(Peer::Server(*tag), from..here);
                    }
                }
                // What was replaced up to its end has none.
                forward && from < end
            } else if client.answer_alone(me, header.kind, out) {
                false
            } else {
                // A message that needs a server is shown to one only when it is complete.
                if end == here || input.full {
                    client.ask(me, header.kind, out);
                } else {
                    out.need = header.total();
                }
                return at;
            };
            client.body_to_server = rest_follows;
            client.body = (end - here) as u32;
            at = here;
        }
    }
}

impl Client {
    /// Whether a message of this type can be dealt with yet, while a COPY may be under way.
    #[inline]
    fn admit(&mut self, (tag, server): (ServerTag, &mut Server), kind: u8, out: &mut Outbox) -> Admission {
        let admission = server.exchange.admit(kind);
        match admission {
            Admission::Forward | Admission::Drop => {}
            Admission::Wait => self.awaits_answers = true,
            Admission::Ask => {
                self.awaits_answers = true;
                out.insert(Peer::Server(tag), |to| write(to, front::FLUSH, |_| {}));
            }
            Admission::Break => {
                self.awaits_answers = true;
                out.insert(Peer::Server(tag), |to| {
                    let reason = format!("unexpected message type 0x{kind:02X} during COPY from stdin");
                    write(to, front::COPY_FAIL, |to| write_text(to, &reason));
                });
            }
        }
        admission
    }

    /// Handles a message that needs no server; false if it needs one.
    fn answer_alone(&mut self, me: ClientTag, kind: u8, out: &mut Outbox) -> bool {
        let ready = match (self.skip, kind) {
            (Skip::Message, _) => true,
            (Skip::ToSync, front::SYNC) | (Skip::Nothing, front::SYNC) => true,
            (Skip::ToSync, _) => false,
            // Leftovers of a COPY that failed, and nothing to flush.
            (Skip::Nothing, front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL | front::FLUSH) => false,
            (Skip::Nothing, _) => return false,
        };
        if ready {
            self.skip = Skip::Nothing;
            out.insert(Peer::Client(me), |to| write_ready(to, IDLE));
        }
        true
    }

    /// Asks for a server on account of a message of this type.
    fn ask(&mut self, me: ClientTag, kind: u8, out: &mut Outbox) {
        self.phase = Phase::Waiting;
        self.asked_alone = matches!(kind, front::QUERY | front::FUNCTION_CALL);
        self.stand(me, Standing::Active, out);
        out.push(self.wish(me));
    }

    /// Asks for a server.
    pub(crate) fn wish(&mut self, me: ClientTag) -> Effect {
        let unused = std::mem::take(&mut self.wants_unused);
        let kind = if unused { LeaseKind::Unused } else { LeaseKind::Exclusive };
        Effect::Lease { client: me, pool: self.pool, kind }
    }
}

/// Enters a message into the server's exchange.
#[inline]
fn enter(server: &mut Server, message: &Arrived<'_>) {
    let exchange = &mut server.exchange;
    match message.header.kind {
        front::QUERY => copies::enter_query(server, message.is_whole().then(|| message.body())),
        front::FUNCTION_CALL => exchange.query(),
        front::SYNC => exchange.sync(),
        front::EXECUTE if server.copies => exchange.copy_execute(),
        front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE => exchange.extended(),
        front::COPY_DATA => exchange.copy_data(),
        front::COPY_DONE | front::COPY_FAIL => exchange.copy_end(),
        _ => {}
    }
}

/// Whether a client may give its server back now: nobody owes anything, no message is under way, and no transaction is
/// open.
pub(crate) fn may_release(client: &Client, server: &Server) -> bool {
    client.mode != PoolMode::Session
        && !client.owes_server()
        && server.exchange.is_settled()
        && server.exchange.status() == IDLE
        && !server.owes_client()
        && server.work.is_none()
}

fn unacceptable(header: Header) -> String {
    let Header { kind, length } = header;
    let name = if kind.is_ascii_graphic() { format!("'{}'", char::from(kind)) } else { format!("0x{kind:02X}") };
    if limit(kind) == 0 {
        format!("unknown message type {name}")
    } else {
        format!("invalid length {length} of a message of type {name} (it is {} to {})", HEADER - 1, limit(kind))
    }
}

fn too_many_outstanding(me: ClientTag, client: &mut Client, consumed: usize, out: &mut Outbox) -> usize {
    let report = Report {
        severity: Severity::Fatal,
        code: code::PROGRAM_LIMIT_EXCEEDED,
        message: "too many requests sent without reading an answer",
        hint: "Use shorter pipelines.",
    };
    client.fail(me, &report, Blame::Client, out);
    consumed
}
