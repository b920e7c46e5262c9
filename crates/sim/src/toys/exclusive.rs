//! One server for one client alone: a lease at the first request, kept through transactions and pins, given back when
//! the server says it is idle. Requests and replies are streamed, never collected. Pipelining up to a small depth.
//! The nearest relative among real protocols is PostgreSQL's.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use protocol::{
    Blame, ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId, Protocol,
    Refusal, ServerTag, Sessions, Standing, Verdict,
};

use super::{Fault, wire, words};

/// Requests of one client that a server may have before it.
pub const MAX_OUTSTANDING: usize = 3;

/// By pool, how many clients keep their servers beyond their transactions.
pub type Pins = Arc<Vec<AtomicU32>>;

/// The protocol object.
pub struct Exclusive {
    /// The pools there are; a client uses one of them all its life.
    pub pools: u32,
    /// A defect on purpose.
    pub fault: Fault,
    /// The most clients of a pool that may keep their servers.
    pub max_pinned: u32,
    /// A client that waits for its server is not called active before it has it.
    pub late_to_stand: bool,
    /// Who does.
    pub pins: Pins,
    /// Counts up; secrets are made of it.
    secrets: AtomicU64,
}

impl Exclusive {
    /// A toy over so many pools.
    pub fn new(pools: u32, max_pinned: u32, late_to_stand: bool, fault: Fault) -> Self {
        let pins = Arc::new((0..pools).map(|_| AtomicU32::new(0)).collect());
        Self { pools, fault, max_pinned, late_to_stand, pins, secrets: AtomicU64::new(1) }
    }

    fn pinned(&self, pool: PoolId) -> &AtomicU32 {
        &self.pins[pool.0 as usize]
    }

    /// The client keeps its server from now on, or no longer. False: too many do.
    fn set_pin(&self, client: &Client, tag: ServerTag, server: &mut Server, pin: bool, out: &mut Outbox) -> bool {
        if server.pinned == pin {
            return true;
        }
        let pinned = self.pinned(client.pool);
        if pin && pinned.load(Relaxed) >= self.max_pinned && self.fault != Fault::PinWithoutBound {
            return false;
        }
        if pin {
            pinned.fetch_add(1, Relaxed);
        } else if self.fault != Fault::KeepPin {
            pinned.fetch_sub(1, Relaxed);
        }
        server.pinned = pin;
        out.push(Effect::Pinned { server: tag, reason: pin.then_some("asked") });
        true
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lease {
    None,
    Asked,
    Held(ServerTag),
}

/// The client's side.
#[derive(Debug)]
pub struct Client {
    logged_in: bool,
    pool: PoolId,
    secret: u64,
    lease: Lease,
    /// Forwarded, not yet answered, oldest first.
    outstanding: VecDeque<u32>,
    /// Bytes of a begun request still to be forwarded.
    forwarding: usize,
    /// Bytes of a failed request still to be thrown away.
    skipping: usize,
    /// The next request fails.
    failing: bool,
    /// Input waits for us, and we have to say when.
    held_back: bool,
    closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Starting,
    Cleaning,
    Free,
    Held(ClientTag),
}

/// The server's side.
#[derive(Debug)]
pub struct Server {
    phase: Phase,
    /// The frame that is passing: bytes left, kind, flags, and whether it goes to the holder.
    passing: Option<(usize, u8, u8, bool)>,
    in_transaction: bool,
    dirty: bool,
    pinned: bool,
}

impl Server {
    fn holder(&self) -> Option<ClientTag> {
        match self.phase {
            Phase::Held(client) => Some(client),
            _ => None,
        }
    }

    fn verdict(&self, broken: bool) -> Verdict {
        match (broken, self.dirty || self.in_transaction) {
            (true, _) => Verdict::Discard,
            (_, true) => Verdict::Reset,
            _ => Verdict::Clean,
        }
    }

    fn let_go(&mut self) {
        self.phase = Phase::Free;
        self.pinned = false;
        // What is left of a passing frame was meant for this client and for nobody after it.
        if let Some(passing) = &mut self.passing {
            passing.3 = false;
        }
    }
}

fn close(peer: Peer, blame: Blame, why: &str, out: &mut Outbox) {
    out.push(Effect::Close { peer, reason: CloseReason::Error(blame, why.into()) });
}

impl Exclusive {
    /// Forwards a request as far as it has come. `None`: it has to wait.
    fn request(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        (head, span): (wire::Header, core::ops::Range<usize>),
        out: &mut Outbox,
    ) -> Option<()> {
        let tag = match client.lease {
            Lease::Held(tag) => tag,
            Lease::Asked => panic!("input came before the lease that it waits for"),
            Lease::None => {
                client.lease = Lease::Asked;
                if !self.late_to_stand {
                    out.push(Effect::Standing { client: me, standing: Standing::Active });
                }
                out.push(Effect::Lease { client: me, pool: client.pool, kind: LeaseKind::Exclusive });
                return None;
            }
        };
        if client.outstanding.len() >= MAX_OUTSTANDING {
            client.held_back = true;
            return None;
        }
        let server = servers.get(tag).expect("a held server lives");
        assert_eq!(server.holder(), Some(me), "a held server knows its holder");
        if head.flags & (wire::PIN | wire::UNPIN) != 0
            && !self.set_pin(client, tag, server, head.flags & wire::PIN != 0, out)
        {
            words::hang_up(
                me,
                &mut client.closing,
                CloseReason::Error(Blame::Exhausted, "too many keep their servers".into()),
                out,
            );
            return None;
        }
        server.dirty |= head.flags & wire::SETTING != 0;
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        client.outstanding.push_back(head.nonce);
        client.forwarding = head.len - span.len();
        let twice = self.fault == Fault::SendTwice && head.nonce.is_multiple_of(5) && client.forwarding == 0;
        for _ in 0..1 + usize::from(twice) {
            out.push(Effect::Send { to: Peer::Server(tag), bytes: protocol::Bytes::Span(span.clone()) });
        }
        Some(())
    }

    /// A whole frame that is no request.
    fn heard(&self, me: ClientTag, client: &mut Client, head: wire::Header, frame: &[u8], out: &mut Outbox) {
        let reason = match head.kind {
            wire::LOGIN if !client.logged_in => return self.login(me, client, head, out),
            wire::CANCEL if !client.logged_in && head.len == wire::HEADER + 8 => {
                let secret = u64::from_le_bytes(frame[wire::HEADER..].try_into().expect("eight bytes"));
                out.push(Effect::Cancel { asker: me, target: ClientTag(head.nonce), secret });
                CloseReason::Done
            }
            wire::GOODBYE => CloseReason::Goodbye,
            _ => CloseReason::Error(Blame::Client, "an unexpected frame".into()),
        };
        words::hang_up(me, &mut client.closing, reason, out);
    }

    fn login(&self, me: ClientTag, client: &mut Client, head: wire::Header, out: &mut Outbox) {
        if head.flags & wire::PERMANENT != 0 {
            out.push(Effect::AuthFailed { client: me });
            client.closing = true;
            return close(Peer::Client(me), Blame::Client, "wrong password", out);
        }
        client.logged_in = true;
        client.pool = PoolId(head.nonce % self.pools);
        client.secret = self.secrets.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed);
        let secret = client.secret.to_le_bytes();
        out.insert(Peer::Client(me), |b| wire::frame_with(b, wire::WELCOME, me.0, 0, &secret, 0));
        out.push(Effect::LoggedIn { client: me, pool: client.pool });
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
    }

    /// A reply has passed in full: maybe the server can go back.
    fn replied(&self, me: ServerTag, server: &mut Server, tag: ClientTag, client: &mut Client, out: &mut Outbox) {
        client.outstanding.pop_front();
        let busy = !client.outstanding.is_empty() || client.forwarding > 0;
        if !busy && !server.in_transaction && !server.pinned {
            let verdict = if self.fault == Fault::DirtyRelease { Verdict::Clean } else { server.verdict(false) };
            server.let_go();
            client.lease = Lease::None;
            out.push(Effect::Standing { client: tag, standing: Standing::Idle });
            out.push(Effect::Release { server: me, verdict });
        } else if !busy {
            // Who only keeps its server has nothing in progress, and may be sent away.
            let standing = if server.in_transaction { Standing::InTransaction } else { Standing::Idle };
            out.push(Effect::Standing { client: tag, standing });
        }
        if std::mem::take(&mut client.held_back) {
            out.push(Effect::Wake { client: tag });
        }
    }
}

impl Protocol for Exclusive {
    type Client = Client;
    type Server = Server;

    fn client_start(&self, me: ClientTag, _origin: Origin, out: &mut Outbox) -> Client {
        out.push(Effect::Standing { client: me, standing: Standing::Login });
        Client {
            logged_in: false,
            pool: PoolId(0),
            secret: 0,
            lease: Lease::None,
            outstanding: VecDeque::new(),
            forwarding: 0,
            skipping: 0,
            failing: false,
            held_back: false,
            closing: false,
        }
    }

    fn server_start(&self, me: ServerTag, _pool: PoolId, out: &mut Outbox) -> Server {
        words::say(me, wire::HELLO, out);
        Server { phase: Phase::Starting, passing: None, in_transaction: false, dirty: false, pinned: false }
    }

    fn client_input(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        input: Input<'_>,
        out: &mut Outbox,
    ) -> usize {
        assert!(!client.closing, "no input after Close");
        let mut at = 0;
        while at < input.bytes.len() {
            let rest = input.bytes.len() - at;
            if client.skipping > 0 {
                let n = rest.min(client.skipping);
                client.skipping -= n;
                at += n;
                continue;
            }
            if client.forwarding > 0 {
                let Lease::Held(tag) = client.lease else { panic!("a request is forwarded without a lease") };
                let n = rest.min(client.forwarding);
                out.span(Peer::Server(tag), at..at + n);
                client.forwarding -= n;
                at += n;
                continue;
            }
            let head = match wire::header(&input.bytes[at..]) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(why) => {
                    words::hang_up(me, &mut client.closing, CloseReason::Error(Blame::Client, why.into()), out);
                    return input.bytes.len();
                }
            };
            let here = rest.min(head.len);
            match head.kind {
                wire::REQUEST if client.logged_in && client.failing => {
                    client.failing = false;
                    client.skipping = head.len - here;
                    words::fail(me, head.nonce, out);
                }
                wire::REQUEST if client.logged_in => {
                    if self.request(me, client, servers, (head, at..at + here), out).is_none() {
                        if client.closing {
                            return input.bytes.len();
                        }
                        let lose = self.fault == Fault::LoseInput && here == head.len;
                        return if lose { at + here } else { at };
                    }
                }
                _ if here < head.len => break,
                _ => {
                    self.heard(me, client, head, &input.bytes[at..at + here], out);
                    if client.closing {
                        return input.bytes.len();
                    }
                }
            }
            at += here;
        }
        at
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
        while at < input.bytes.len() {
            let rest = input.bytes.len() - at;
            if server.passing.is_none() {
                let head = match wire::header(&input.bytes[at..]) {
                    Ok(Some(head)) => head,
                    Ok(None) => break,
                    Err(why) => {
                        self.server_gone(me, server, clients, out);
                        close(Peer::Server(me), Blame::Server, why, out);
                        return input.bytes.len();
                    }
                };
                match (head.kind, server.phase) {
                    (wire::REPLY, Phase::Held(_)) | (wire::NOTICE, _) => {}
                    (wire::DONE, Phase::Starting | Phase::Cleaning) => {}
                    (wire::REFUSED, Phase::Starting) => {
                        words::refused(me, head, out);
                        return input.bytes.len();
                    }
                    _ => panic!("{me:?} said {} in phase {:?}", head.kind as char, server.phase),
                }
                server.passing = Some((head.len, head.kind, head.flags, server.holder().is_some()));
            }
            let (left, kind, flags, forwarded) = server.passing.expect("set above");
            let n = rest.min(left);
            if forwarded && let Some(mut holder) = server.holder() {
                if self.fault == Fault::LeakReply && n == left && clients.get(ClientTag(0)).is_some() {
                    holder = ClientTag(0);
                }
                out.span(Peer::Client(holder), at..at + n);
            }
            at += n;
            if n < left {
                server.passing = Some((left - n, kind, flags, forwarded));
                continue;
            }
            server.passing = None;
            match kind {
                wire::REPLY => {
                    server.in_transaction = flags & wire::TRANSACTION != 0;
                    let tag = server.holder().expect("a reply passes to a holder");
                    let client = clients.get(tag).expect("a holder lives");
                    self.replied(me, server, tag, client, out);
                }
                wire::DONE => {
                    (server.phase, server.in_transaction, server.dirty) = (Phase::Free, false, false);
                    out.push(Effect::Ready { server: me });
                }
                _ => {}
            }
        }
        at
    }

    fn granted(&self, me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, out: &mut Outbox) {
        assert_eq!(client.lease, Lease::Asked, "a grant that nobody asked for");
        assert_eq!(server.phase, Phase::Free, "a grant of a server that is not free");
        if self.late_to_stand {
            out.push(Effect::Standing { client: me, standing: Standing::Active });
        }
        client.lease = Lease::Held(tag);
        server.phase = Phase::Held(me);
    }

    fn lease_failed(&self, me: ClientTag, client: &mut Client, _why: LeaseFailure, out: &mut Outbox) {
        assert_eq!(client.lease, Lease::Asked, "a failure of what nobody asked for");
        client.lease = Lease::None;
        client.failing = true;
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
    }

    fn client_gone(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        out: &mut Outbox,
    ) {
        let Lease::Held(tag) = client.lease else { return };
        if self.fault == Fault::KeepServer {
            return;
        }
        let server = servers.get(tag).expect("a held server lives");
        assert_eq!(server.holder(), Some(me), "a held server knows its holder");
        let verdict = server.verdict(!client.outstanding.is_empty() || client.forwarding > 0);
        self.set_pin(client, tag, server, false, out);
        server.let_go();
        out.push(Effect::Release { server: tag, verdict });
    }

    fn server_gone(
        &self,
        _me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        let Some(tag) = server.holder() else { return };
        let client = clients.get(tag).expect("a holder lives");
        let in_the_middle = server.passing.is_some_and(|p| p.3);
        if std::mem::take(&mut server.pinned) {
            self.pinned(client.pool).fetch_sub(1, Relaxed);
        }
        server.let_go();
        client.lease = Lease::None;
        if self.fault == Fault::SilentLoss {
            client.outstanding.clear();
        } else if in_the_middle {
            client.closing = true;
            return close(Peer::Client(tag), Blame::Server, "the server died in the middle of a reply", out);
        }
        for nonce in client.outstanding.drain(..) {
            words::fail(tag, nonce, out);
        }
        client.skipping = std::mem::take(&mut client.forwarding);
        out.push(Effect::Standing { client: tag, standing: Standing::Idle });
        if std::mem::take(&mut client.held_back) {
            out.push(Effect::Wake { client: tag });
        }
    }

    fn refuse(&self, me: ClientTag, client: &mut Client, _why: Refusal, out: &mut Outbox) {
        client.closing = true;
        // Between frames only: in the middle of a reply the client would take it for filler.
        if !matches!(client.lease, Lease::Held(_)) {
            words::turn_away(me, out);
        }
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
        me: ClientTag,
        client: &mut Client,
        _servers: &mut dyn Sessions<ServerTag, Server>,
        secret: u64,
        waiting: bool,
        out: &mut Outbox,
    ) {
        if !client.logged_in || client.secret != secret || client.closing {
            return;
        }
        match client.lease {
            Lease::Asked => {
                assert!(waiting, "the driver says that nothing is waited for");
                client.lease = Lease::None;
                client.failing = true;
                out.push(Effect::Withdraw { client: me });
                out.push(Effect::Standing { client: me, standing: Standing::Idle });
                out.push(Effect::Wake { client: me });
            }
            Lease::Held(server) if !client.outstanding.is_empty() => {
                let start = out.inserted.len();
                wire::frame(&mut out.inserted, wire::CANCEL, 0, 0, 0);
                let bytes = start..out.inserted.len();
                out.push(Effect::SideConnection { server, bytes, upgrade: None });
            }
            _ => {}
        }
    }
}
