//! A client's session after login: its requests become leases, forwarded spans, and entries in the exchange of the
//! server it holds. How it logged in and how it ends is told elsewhere; what the server answers, too.

use std::ops::Range;

use seam::{Blame, ClientTag, CloseReason, Input, Outbox, Peer, ServerTag, Sessions, Standing};

use crate::{
    exchange::Admission,
    features::{preface::ends_request, prepared::unnamed},
    relay::requests::look,
    session::{
        client::{Client, Phase, Skip, may_release},
        copy,
        request::{Arrived, Step},
        server::Server,
        shared::Postgres,
    },
    wire::{
        error::{Report, Severity, code},
        message::{HEADER, Header, IDLE, LARGE_LIMIT, SMALL_LIMIT, front, write, write_ready, write_text},
    },
};

/// The length of a message that has no body: that of the length itself.
const NO_BODY: u32 = 4;

/// Longest message of this type that a client may send; 0 for a type that does not exist.
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
            client.unnamed = Some(self.texts.keep(&input.bytes[parse]));
        }
        if !prefaced || matches!(client.phase, Phase::Closed) {
            if let Phase::Refused(unaware) = &mut client.phase {
                *unaware = unaware.saturating_sub(to as u32);
            }
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
                    unnamed::follow_part(client, &bytes[at..at + part]);
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
                // What stands before it makes room when it is consumed.
                let message = Arrived { header, bytes, at, full: input.full && at == 0 };
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
                if client.skip == Skip::Nothing && client.goes_on_unaware(bytes, end) {
                    return refused_before(me, client, bytes.len(), out);
                }
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

    /// What is ignored is over at `end`. True if that was a request that got no server, and another one begins there
    /// that was sent before the client was told: it may still be in the socket. A Terminate is no request.
    fn goes_on_unaware(&mut self, bytes: &[u8], end: usize) -> bool {
        let Phase::Refused(unaware) = self.phase else { return false };
        self.phase = Phase::Ready;
        let behind = (unaware as usize).saturating_sub(end);
        match bytes.get(end) {
            Some(kind) => behind > 0 && *kind != front::TERMINATE,
            None => behind > HEADER,
        }
    }

    /// Asks for a server on account of a message of this type.
    fn ask(&mut self, me: ClientTag, kind: u8, out: &mut Outbox) {
        self.phase = Phase::Waiting;
        self.asked_alone = matches!(kind, front::QUERY | front::FUNCTION_CALL);
        self.stand(me, Standing::Active, out);
        out.push(self.wish(me));
    }
}

/// The request before this one got no server, and this one was sent by who did not know that: it may need what that was
/// to do, a BEGIN or a SET.
#[cold]
fn refused_before(me: ClientTag, client: &mut Client, all: usize, out: &mut Outbox) -> usize {
    let report = Report {
        severity: Severity::Fatal,
        code: code::TOO_MANY_CONNECTIONS,
        message: "a request that was sent behind a refused one is not carried out",
        hint: "Connect again. A request that depends on another is sent when that has been answered.",
    };
    client.fail(me, &report, Blame::Exhausted, out);
    all
}

/// Enters a message into the server's exchange.
#[inline]
fn enter(server: &mut Server, message: &Arrived<'_>) {
    let exchange = &mut server.exchange;
    match message.header.kind {
        front::QUERY => copy::enter_query(&mut server.exchange, message.is_whole().then(|| message.body())),
        front::FUNCTION_CALL => exchange.query(),
        front::SYNC => exchange.sync(),
        front::EXECUTE if server.copies => exchange.copy_execute(),
        front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE => exchange.extended(),
        front::FLUSH => exchange.flush(),
        front::COPY_DATA => exchange.copy_data(),
        front::COPY_DONE | front::COPY_FAIL => exchange.copy_end(),
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
