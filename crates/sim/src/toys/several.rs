//! Several servers at a time: a request names up to three pools in its filler, is sent to a server of each, and is
//! answered when all have answered. Whole frames only. Leases are asked for one after the other or all at once.
//! The nearest relative among real protocols is a sharded query.

use protocol::{
    Blame, ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol,
    Refusal, ServerTag, Sessions, Standing, Verdict,
};

use super::{Fault, wire, words};

/// Servers a request may ask for.
pub const MAX_PARTS: usize = 3;

/// The protocol object.
pub struct Several {
    /// The pools there are.
    pub pools: u32,
    /// All leases of a request are asked for at once.
    pub at_once: bool,
    /// A defect on purpose.
    pub fault: Fault,
}

#[derive(Debug)]
struct Part {
    pool: PoolId,
    lease: Option<ServerTag>,
    answered: bool,
}

#[derive(Debug)]
struct Request {
    nonce: u32,
    flags: u8,
    parts: Vec<Part>,
}

/// The client's side.
#[derive(Debug)]
pub struct Client {
    running: Option<Request>,
    held_back: bool,
    closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Starting,
    Cleaning,
    Free,
    /// Lent, or given back by a call in which this session was out of reach: what the client knows is the truth.
    Held(ClientTag),
}

/// The server's side.
#[derive(Debug)]
pub struct Server {
    pool: PoolId,
    phase: Phase,
    dirty: bool,
}

impl Several {
    /// Asks for the next lease, or for all of them; sends the request once it has them.
    fn proceed(&self, me: ClientTag, request: &Request, out: &mut Outbox) {
        let missing = request.parts.iter().filter(|p| p.lease.is_none());
        let mut missing = missing.take(if self.at_once { MAX_PARTS } else { 1 }).peekable();
        if missing.peek().is_none() {
            for (i, part) in request.parts.iter().enumerate() {
                let to = Peer::Server(part.lease.expect("none is missing"));
                out.insert(to, |b| wire::frame(b, wire::REQUEST, request.nonce, request.flags, i * 5));
            }
        }
        for part in missing {
            out.push(Effect::Lease { client: me, pool: part.pool, kind: LeaseKind::Exclusive });
        }
    }

    /// Gives back what the request holds. `sent`: a server that has not answered is in an unknown state.
    fn give_back(&self, request: &Request, servers: &mut dyn Sessions<ServerTag, Server>, out: &mut Outbox) {
        let sent = request.parts.iter().all(|p| p.lease.is_some());
        for part in &request.parts {
            let Some(tag) = part.lease else { continue };
            let Some(server) = servers.get(tag) else { continue };
            server.phase = Phase::Free;
            let verdict = match (sent && !part.answered, server.dirty) {
                (true, _) => Verdict::Discard,
                (_, true) if self.fault != Fault::DirtyRelease => Verdict::Reset,
                _ => Verdict::Clean,
            };
            out.push(Effect::Release { server: tag, verdict });
        }
    }

    fn over(me: ClientTag, client: &mut Client, out: &mut Outbox) {
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        if std::mem::take(&mut client.held_back) {
            out.push(Effect::Wake { client: me });
        }
    }
}

impl Protocol for Several {
    type Client = Client;
    type Server = Server;

    fn client_start(&self, me: ClientTag, _origin: Origin, out: &mut Outbox) -> Client {
        out.push(Effect::LoggedIn { client: me, pool: PoolId(0) });
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        Client { running: None, held_back: false, closing: false }
    }

    fn server_start(&self, me: ServerTag, pool: PoolId, out: &mut Outbox) -> Server {
        words::say(me, wire::HELLO, out);
        Server { pool, phase: Phase::Starting, dirty: false }
    }

    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Client,
        _servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        assert!(!client.closing, "no input after Close");
        if client.running.is_some() {
            client.held_back = true;
            return if self.fault == Fault::LoseInput { input.bytes.len() } else { 0 };
        }
        let head = match wire::header(input.bytes) {
            Ok(Some(head)) if head.len <= input.bytes.len() => head,
            Ok(_) if !input.full => return 0,
            _ => {
                words::hang_up(
                    me,
                    &mut client.closing,
                    CloseReason::Error(Blame::Client, "a frame too long, or broken".into()),
                    out,
                );
                return input.bytes.len();
            }
        };
        match head.kind {
            wire::LOGIN => {
                out.insert(Peer::Client(me), |b| wire::frame_with(b, wire::WELCOME, me.0, 0, &[0; 8], 0));
                // What follows is handed in again at once; one frame a call is enough.
                if head.len < input.bytes.len() {
                    out.push(Effect::Wake { client: me });
                }
            }
            wire::GOODBYE => {
                words::hang_up(me, &mut client.closing, CloseReason::Goodbye, out);
            }
            wire::REQUEST => {
                let named = &input.bytes[wire::HEADER..head.len];
                let wanted = 1 + head.nonce as usize % MAX_PARTS;
                let pool = |i: usize| PoolId(u32::from(named.get(i).copied().unwrap_or(0)) % self.pools);
                let parts = (0..wanted).map(|i| Part { pool: pool(i), lease: None, answered: false }).collect();
                let request = Request { nonce: head.nonce, flags: head.flags & wire::SETTING, parts };
                out.push(Effect::Standing { client: me, standing: Standing::Active });
                self.proceed(me, &request, out);
                client.running = Some(request);
                // No word for the rest: it has to be asked for when this request is over.
                client.held_back = true;
            }
            _ => panic!("the client of the simulator never says {}", head.kind as char),
        }
        head.len
    }

    fn server_input(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        let mut at = 0;
        while let Ok(Some(head)) = wire::header(&input.bytes[at..])
            && input.bytes.len() - at >= head.len
        {
            at += head.len;
            match (head.kind, server.phase) {
                (wire::NOTICE, _) => {}
                (wire::DONE, Phase::Starting | Phase::Cleaning) => {
                    (server.phase, server.dirty) = (Phase::Free, false);
                    out.push(Effect::Ready { server: me });
                }
                (wire::REFUSED, Phase::Starting) => {
                    words::refused(me, head, out);
                    return input.bytes.len();
                }
                (wire::REPLY, Phase::Held(tag)) => {
                    let client = clients.get(tag).expect("a holder lives");
                    let request = client.running.as_mut().expect("a holder has a request");
                    assert_eq!(request.nonce, head.nonce, "a reply to another request");
                    let part = request.parts.iter_mut().find(|p| p.lease == Some(me));
                    part.expect("a holder knows what it holds").answered = true;
                    server.dirty |= request.flags & wire::SETTING != 0;
                    if request.parts.iter().all(|p| p.answered) {
                        self.finish(tag, client, me, server, out);
                    }
                }
                _ => panic!("{me:?} said {} in phase {:?}", head.kind as char, server.phase),
            }
        }
        at
    }

    fn granted(&self, me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        // `Held` may be left from a client before: see `Phase::Held`.
        assert!(matches!(server.phase, Phase::Free | Phase::Held(_)), "a grant of a server that is not free");
        let request = client.running.as_mut().expect("a grant that nobody asked for");
        let part = request.parts.iter_mut().find(|p| p.lease.is_none() && p.pool == server.pool);
        part.expect("a grant from a pool that nobody asked").lease = Some(tag);
        server.phase = Phase::Held(me);
        server.dirty = request.flags & wire::SETTING != 0;
        // All at once: the others are on their way; only the last one starts the request.
        if !self.at_once || request.parts.iter().all(|p| p.lease.is_some()) {
            self.proceed(me, request, out);
        }
    }

    fn lease_failed(&self, me: ClientTag, client: &mut Client, _why: LeaseFailure, out: &mut Outbox) {
        let request = client.running.take().expect("a failure of what nobody asked for");
        // Which of the leases failed is not said, so the rest are withdrawn together.
        out.push(Effect::Withdraw { client: me });
        for tag in request.parts.iter().filter_map(|p| p.lease) {
            // The sessions of the servers are out of reach here: they learn it at their next grant.
            out.push(Effect::Release { server: tag, verdict: Verdict::Reset });
        }
        words::fail(me, request.nonce, out);
        Self::over(me, client, out);
    }

    fn client_gone(
        &self,
        _me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        if let Some(request) = client.running.take()
            && self.fault != Fault::KeepServer
        {
            self.give_back(&request, servers, out);
        }
    }

    fn server_gone(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        let Phase::Held(tag) = server.phase else { return };
        let Some(client) = clients.get(tag) else { return };
        let holds = |r: &Request| r.parts.iter().any(|p| p.lease == Some(me));
        if !client.running.as_ref().is_some_and(holds) {
            return;
        }
        let request = client.running.take().expect("looked at above");
        let sent = request.parts.iter().all(|p| p.lease.is_some());
        if !sent {
            out.push(Effect::Withdraw { client: tag });
        }
        for part in request.parts.iter().filter(|p| p.lease != Some(me)) {
            let Some(server) = part.lease else { continue };
            // Other servers are out of reach here as well: unanswered means discard, answered means reset.
            let verdict = if sent && !part.answered { Verdict::Discard } else { Verdict::Reset };
            out.push(Effect::Release { server, verdict });
        }
        if self.fault != Fault::SilentLoss {
            words::fail(tag, request.nonce, out);
        }
        Self::over(tag, client, out);
    }

    fn refuse(&self, me: ClientTag, client: &mut Client, _why: Refusal, out: &mut Outbox) {
        client.closing = true;
        words::turn_away(me, out);
    }

    fn reset(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.phase = Phase::Cleaning;
        words::say(me, wire::RESET, out);
    }

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.phase = Phase::Cleaning;
        words::say(me, wire::PING, out);
    }

    fn retire(&self, me: ServerTag, _server: &mut Server, out: &mut Outbox) {
        words::say(me, wire::GOODBYE, out);
    }

    fn cancel(
        &self,
        _me: ClientTag,
        _client: &mut Client,
        _servers: &mut dyn Sessions<ServerTag, Server>,
        _secret: u64,
        _waiting: bool,
        _out: &mut Outbox,
    ) {
    }
}

impl Several {
    /// All parts have answered. Only the server that answered last is at hand; the others go back unseen.
    fn finish(&self, tag: ClientTag, client: &mut Client, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        let request = client.running.take().expect("a request is finished");
        let to = if self.fault == Fault::LeakReply && request.nonce.is_multiple_of(7) { ClientTag(0) } else { tag };
        out.insert(Peer::Client(to), |b| wire::frame(b, wire::REPLY, request.nonce, 0, request.parts.len() * 3));
        let dirty = request.flags & wire::SETTING != 0 && self.fault != Fault::DirtyRelease;
        let verdict = if dirty { Verdict::Reset } else { Verdict::Clean };
        for lease in request.parts.iter().filter_map(|p| p.lease) {
            out.push(Effect::Release { server: lease, verdict });
        }
        assert!(request.parts.iter().any(|p| p.lease == Some(me)), "the last answer came from a held server");
        server.phase = Phase::Free;
        Self::over(tag, client, out);
    }
}
