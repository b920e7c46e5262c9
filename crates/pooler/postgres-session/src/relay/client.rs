//! A client's session after login: its requests become leases, forwarded spans, and entries in the exchange of the
//! server that it holds.

use seam::{Blame, ClientTag, CloseReason, Input, Outbox, Peer, ServerTag, Sessions, Standing};

use crate::{
    exchange::Admission,
    features::{
        preface::ends_request,
        prepared::unnamed::{self, Inspection},
    },
    relay::requests::inspect,
    session::{
        Arrived, Client, Link, Occasion, PartialMessage, Phase, Postgres, Server, client::Skip, copy,
        listener_rules::Restrictions, request::Step,
    },
    wire::{
        HEADER, Header, IDLE, Report, SMALL_LIMIT, Severity, code, front,
        message::{LARGE_LIMIT, write},
        write_ready, write_text,
    },
};

/// The length of a message that has no body: that of the length itself.
const NO_BODY: u32 = 4;

/// Longest message of this type that a client may send; 0 for an unknown type.
fn limit(kind: u8) -> u32 {
    match kind {
        front::QUERY | front::PARSE | front::BIND | front::FUNCTION_CALL | front::COPY_DATA => LARGE_LIMIT,
        front::DESCRIBE | front::EXECUTE | front::CLOSE | front::COPY_DONE | front::COPY_FAIL | front::TERMINATE => {
            SMALL_LIMIT
        }
        front::SYNC | front::FLUSH => NO_BODY,
        _ => 0,
    }
}

impl Postgres {
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
        let from = at + client.ahead.bytes();
        if !prefaced {
            // Whatever was sent ahead is sent for good.
            client.ahead.clear();
        }
        let lease = client.lease.map(|tag| (tag, servers.get(tag).expect("a leased server has a session")));
        let Input { bytes, full, .. } = input;
        let (inspection, rules) =
            (Inspection { postgres: self, unbound: None }, self.rules.of(client.entrance.listener()));
        let mut relay = Relay { me, client, lease, bytes, full, at: from, rules, inspection, out };
        let to = relay.run();
        relay.inspection.keep_unbound(relay.client, bytes);
        if !prefaced || matches!(client.phase, Phase::Closed) {
            if let Phase::Refused(unaware) = &mut client.phase {
                *unaware = unaware.saturating_sub(to as u32);
            }
            return to;
        }
        if !client.ahead.has_ended()
            && let Some(tag) = client.lease
            && let Some(server) = servers.get(tag)
        {
            // Nothing that makes PostgreSQL answer went ahead.
            server.hurry_preface(tag, out);
        }
        client.ahead.set_bytes(to - at);
        at
    }
}

/// One input of a client on its way to the server that it holds, if it holds one.
pub(super) struct Relay<'a> {
    pub(super) me: ClientTag,
    pub(super) client: &'a mut Client,
    lease: Option<(ServerTag, &'a mut Server)>,
    pub(super) bytes: &'a [u8],
    full: bool,
    /// Everything before this position is dealt with.
    pub(super) at: usize,
    /// The rules of the client's listener, if it has some.
    pub(super) rules: Option<Restrictions>,
    pub(super) inspection: Inspection<'a>,
    pub(super) out: &'a mut Outbox,
}

/// What was decided about a message, or about the part of it that has arrived.
enum Decision {
    /// The message is forwarded, and so is its rest.
    Forward,
    /// The message is dealt with, and its rest is dropped.
    Drop,
    /// No more of this input is taken: this number of bytes is consumed.
    Stop(usize),
}

impl Relay<'_> {
    fn run(&mut self) -> usize {
        loop {
            if !self.client.partial.is_complete() && !self.take_part() {
                return self.at;
            }
            let Some(header) = Header::read(&self.bytes[self.at..]) else { return self.at };
            let end = self.at + header.total();
            let here = end.min(self.bytes.len());
            let forwarded = match self.handle_message(header, end, here) {
                Decision::Forward => true,
                Decision::Drop => false,
                Decision::Stop(consumed) => return consumed,
            };
            self.client.partial = PartialMessage::new(end - here, forwarded);
            self.at = here;
        }
    }

    /// Takes more of a message that comes in parts. False if no more of this input can be taken.
    fn take_part(&mut self) -> bool {
        let part = self.client.partial.rest().min(self.bytes.len() - self.at);
        if self.client.partial.is_forwarded() {
            let (tag, _) = self.lease.as_ref().expect("a message under way has a server");
            self.out.span(Peer::Server(*tag), self.at..self.at + part);
            unnamed::follow_part(self.client, &self.bytes[self.at..self.at + part]);
        }
        self.at += part;
        self.client.partial.take(part);
        // The server may have been done before the message was.
        self.client.partial.is_complete() && self.give_back()
    }

    fn link(&mut self) -> Option<Link<'_>> {
        let (server_tag, server) = self.lease.as_mut()?;
        Some(Link { client_tag: self.me, client: self.client, server_tag: *server_tag, server, out: self.out })
    }

    /// Gives the server back if nothing is under way. False if the client's requests have to wait now.
    #[inline]
    fn give_back(&mut self) -> bool {
        let postgres = self.inspection.postgres;
        let Some(mut link) = self.link() else { return true };
        if !link.may_release() {
            return true;
        }
        if postgres.finish(&mut link) {
            self.lease = None;
            return true;
        }
        matches!(self.client.phase, Phase::Ready)
    }

    /// A message that ends at `end`, of which everything up to `here` has arrived.
    #[inline]
    fn handle_message(&mut self, header: Header, end: usize, here: usize) -> Decision {
        if !(4..=limit(header.kind)).contains(&header.length) {
            self.refuse_message(header);
            return Decision::Stop(self.bytes.len());
        }
        if let Some(rules) = self.rules
            && self.break_rules(rules, header)
        {
            return Decision::Stop(self.bytes.len());
        }
        if header.kind == front::TERMINATE {
            self.client.close(self.me, CloseReason::Goodbye, self.out);
            return Decision::Stop(self.bytes.len());
        }
        if self.lease.is_some() {
            return self.handle_message_with_server(header, end, here);
        }
        if self.client.answer_without_server(self.me, header.kind, self.out) {
            if self.client.skip == Skip::Nothing && self.client.end_refusal(self.bytes, end) {
                return Decision::Stop(refuse_dependent(self.me, self.client, self.bytes.len(), self.out));
            }
            return Decision::Drop;
        }
        // A message that needs a server is shown to one only when it is complete.
        if end == here || self.full {
            self.client.request_lease(self.me, header.kind, self.out);
            self.begin_wait_notice();
        } else {
            self.out.need = header.total();
        }
        Decision::Stop(self.at)
    }

    /// Handles a message of a client that holds a server.
    #[inline]
    fn handle_message_with_server(&mut self, header: Header, end: usize, here: usize) -> Decision {
        // What stands before it makes room when it is consumed.
        let message = Arrived { header, bytes: self.bytes, at: self.at, full: self.full && self.at == 0 };
        let (tag, server) = self.lease.as_mut().expect("the client holds a server");
        let (client, out) = (&mut *self.client, &mut *self.out);
        let link = &mut Link { client_tag: self.me, client, server_tag: *tag, server, out };
        let ahead = &link.client.ahead;
        if link.server.is_prefaced() && (ahead.has_ended() || !link.client.may_go_ahead(link.server, &message)) {
            return Decision::Stop(self.at);
        }
        match link.client.admit((link.server_tag, link.server), header.kind, link.out) {
            Admission::Forward => {}
            Admission::Drop => return Decision::Drop,
            Admission::Wait | Admission::Ask | Admission::Break => return Decision::Stop(self.at),
        }
        let from = match inspect(&mut self.inspection, link, &message) {
            Step::Forward => {
                enter(link.server, &message);
                self.at
            }
            Step::Replaced(to) => to,
            // A transaction that is open holds the server.
            Step::Answered => return if self.give_back() { Decision::Drop } else { Decision::Stop(end) },
            Step::Wait => {
                link.out.need = if end > self.bytes.len() { header.total() } else { 0 };
                return Decision::Stop(self.at);
            }
            Step::Later => return Decision::Stop(self.at),
            Step::TooMany => return self.too_many_outstanding(),
        };
        if link.server.exchange.is_full() {
            return self.too_many_outstanding();
        }
        link.server.lease_mut().mid_pipeline |=
            matches!(header.kind, front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE);
        link.client.ahead.set_ended(link.server.is_prefaced() && ends_request(header));
        link.client.retried = false;
        link.stand(Standing::Active);
        link.out.span(Peer::Server(link.server_tag), from..here);
        // What was replaced up to its end has no rest.
        if from < end { Decision::Forward } else { Decision::Drop }
    }

    /// The message is no message of a client, or of a length that its type cannot have.
    #[cold]
    fn refuse_message(&mut self, header: Header) {
        let occasion = match limit(header.kind) {
            0 => Occasion::UnknownMessage,
            _ => Occasion::BadHeader(&self.bytes[self.at..]),
        };
        self.client.close_for_violation(self.me, occasion, &unacceptable(header), self.out);
    }

    #[cold]
    fn too_many_outstanding(&mut self) -> Decision {
        let report = Report {
            severity: Severity::Fatal,
            code: code::PROGRAM_LIMIT_EXCEEDED,
            message: "too many requests sent without reading an answer",
            hint: "Use shorter pipelines.",
        };
        self.client.fail(self.me, &report, Blame::Client, self.out);
        Decision::Stop(self.bytes.len())
    }
}

impl Client {
    /// Whether a message of this type can be forwarded yet, while a COPY may be under way.
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
    fn answer_without_server(&mut self, me: ClientTag, kind: u8, out: &mut Outbox) -> bool {
        let ready = match (self.skip, kind) {
            (Skip::Message, _) => true,
            (Skip::ToSync | Skip::Nothing, front::SYNC) => true,
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

    /// The skipped part ends at `end`: ends [`Phase::Refused`]. True if another request, which the client sent before
    /// it was told of the refusal, begins there. A Terminate is no request.
    fn end_refusal(&mut self, bytes: &[u8], end: usize) -> bool {
        let Phase::Refused(unaware) = self.phase else { return false };
        self.phase = Phase::Ready;
        let behind = (unaware as usize).saturating_sub(end);
        match bytes.get(end) {
            Some(kind) => behind > 0 && *kind != front::TERMINATE,
            None => behind > HEADER,
        }
    }

    /// Requests a server for a message of this type.
    fn request_lease(&mut self, me: ClientTag, kind: u8, out: &mut Outbox) {
        self.phase = Phase::Waiting;
        self.asked_alone = matches!(kind, front::QUERY | front::FUNCTION_CALL);
        self.stand(me, Standing::Active, out);
        out.push(self.take_lease_request(me));
    }
}

/// The former request got no server. The client did not know that when it sent this one, which may need the former: a
/// BEGIN or a SET.
#[cold]
fn refuse_dependent(me: ClientTag, client: &mut Client, all: usize, out: &mut Outbox) -> usize {
    let report = Report {
        severity: Severity::Fatal,
        code: code::TOO_MANY_CONNECTIONS,
        message: "a request that was sent behind a refused one is not carried out",
        hint: "Connect again. A request that depends on another is sent when that has been answered.",
    };
    client.fail(me, &report, Blame::Exhausted, out);
    all
}

#[inline]
fn enter(server: &mut Server, message: &Arrived<'_>) {
    let may_copy = server.lease().may_copy;
    let exchange = &mut server.exchange;
    match message.header.kind {
        front::QUERY => copy::enter_query(exchange, message.is_whole().then(|| message.body())),
        front::FUNCTION_CALL => exchange.enter_query(),
        front::SYNC => exchange.enter_sync(),
        front::EXECUTE if may_copy => exchange.enter_copy_execute(),
        front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE => exchange.enter_extended(),
        front::FLUSH => exchange.enter_flush(),
        front::COPY_DATA => exchange.enter_copy_data(),
        front::COPY_DONE | front::COPY_FAIL => exchange.enter_copy_end(),
        _ => {}
    }
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
