//! One server shared by many clients: requests of all go down one connection whole, replies come back in the same order
//! and are streamed to whom they belong. A client has its share while replies are due to it. One that leaves earlier is struck out of
//! the order; its replies are dropped. The nearest relative among real protocols is Redis.

use std::collections::VecDeque;

use protocol::{
    Blame, Bytes, ClientTag, CloseReason, Effect, Input, LeaseFailure, LeaseKind, Origin, Outbox, Peer, PoolId,
    Protocol, Refusal, ServerTag, Sessions, Standing, Verdict,
};

use super::{Fault, wire, words};

/// Requests of one client that a server may have before it.
pub const MAX_OUTSTANDING: usize = 4;

/// The protocol object.
pub struct Shared {
    /// The pools there are; a client uses one of them all its life.
    pub pools: u32,
    /// A client whose server has gone, and that has more to send, asks for another at once.
    pub eager: bool,
    /// A defect on purpose.
    pub fault: Fault,
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
    pool: PoolId,
    lease: Lease,
    /// Sent and not yet answered, oldest first.
    outstanding: VecDeque<u32>,
    skipping: usize,
    failing: bool,
    held_back: bool,
    closing: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Starting,
    /// Waiting until no reply is due.
    Draining,
    Checking,
    Ready,
}

/// The server's side.
#[derive(Debug)]
pub struct Server {
    phase: Phase,
    /// Whose replies are due, in order; `None` has left.
    due: VecDeque<(Option<ClientTag>, u32)>,
    /// The frame that is passing: bytes left and kind.
    passing: Option<(usize, u8)>,
}

impl Server {
    fn strike_out(&mut self, client: ClientTag) {
        for due in self.due.iter_mut().filter(|d| d.0 == Some(client)) {
            due.0 = None;
        }
    }
}

impl Shared {
    fn replied(
        &self,
        me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        let (to, _) = server.due.pop_front().expect("a reply was due");
        let Some(tag) = to else { return };
        let client = clients.get(tag).expect("who is not struck out lives");
        client.outstanding.pop_front();
        if client.outstanding.is_empty() {
            self.part(tag, client, me, out);
        }
        if std::mem::take(&mut client.held_back) {
            out.push(Effect::Wake { client: tag });
        }
    }

    /// Nothing is due to the client any more.
    fn part(&self, tag: ClientTag, client: &mut Client, me: ServerTag, out: &mut Outbox) {
        if self.fault != Fault::SitOnShare {
            out.push(Effect::Standing { client: tag, standing: Standing::Idle });
        }
        if !matches!(self.fault, Fault::KeepShare | Fault::SitOnShare) {
            client.lease = Lease::None;
            out.push(Effect::Leave { client: tag, server: me, verdict: Verdict::Clean });
        }
    }

    fn ask(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        client.lease = Lease::Asked;
        out.push(Effect::Standing { client: me, standing: Standing::Active });
        out.push(Effect::Lease { client: me, pool: client.pool, kind: LeaseKind::Shared });
    }

    /// Forwards one whole request. False: it has to wait.
    fn request(
        &self,
        me: ClientTag,
        client: &mut Client,
        servers: &mut dyn Sessions<ServerTag, Server>,
        (head, at): (wire::Header, usize),
        out: &mut Outbox,
    ) -> bool {
        match client.lease {
            Lease::Asked => panic!("input came before the lease that it waits for"),
            Lease::None => {
                self.ask(me, client, out);
                false
            }
            Lease::Held(_) if client.outstanding.len() >= MAX_OUTSTANDING => {
                client.held_back = true;
                false
            }
            Lease::Held(tag) => {
                let server = servers.get(tag).expect("a held server lives");
                server.due.push_back((Some(me), head.nonce));
                client.outstanding.push_back(head.nonce);
                let twice = self.fault == Fault::SendTwice && head.nonce.is_multiple_of(5);
                for _ in 0..1 + usize::from(twice) {
                    out.push(Effect::Send { to: Peer::Server(tag), bytes: Bytes::Span(at..at + head.len) });
                }
                true
            }
        }
    }
}

impl Protocol for Shared {
    type Client = Client;
    type Server = Server;

    fn client_start(&self, me: ClientTag, _origin: Origin, out: &mut Outbox) -> Client {
        out.push(Effect::Standing { client: me, standing: Standing::Login });
        Client {
            pool: PoolId(0),
            lease: Lease::None,
            outstanding: VecDeque::new(),
            skipping: 0,
            failing: false,
            held_back: false,
            closing: false,
        }
    }

    fn server_start(&self, me: ServerTag, _pool: PoolId, out: &mut Outbox) -> Server {
        words::say(me, wire::HELLO, out);
        Server { phase: Phase::Starting, due: VecDeque::new(), passing: None }
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
            let head = match wire::header(&input.bytes[at..]) {
                Ok(Some(head)) => head,
                Ok(None) => break,
                Err(_) => panic!("the clients of the simulator write no broken frames"),
            };
            match head.kind {
                wire::REQUEST if client.failing => {
                    client.failing = false;
                    words::fail(me, head.nonce, out);
                    client.skipping = head.len;
                    continue;
                }
                _ if rest < head.len => {
                    // At the start of the buffer and full: it will never be whole.
                    if input.full && at == 0 {
                        words::hang_up(
                            me,
                            &mut client.closing,
                            CloseReason::Error(Blame::Client, "a frame too long".into()),
                            out,
                        );
                        return input.bytes.len();
                    }
                    break;
                }
                wire::REQUEST => {
                    if !self.request(me, client, servers, (head, at), out) {
                        return if self.fault == Fault::LoseInput { at + head.len } else { at };
                    }
                }
                wire::LOGIN => {
                    client.pool = PoolId(head.nonce % self.pools);
                    out.insert(Peer::Client(me), |b| wire::frame_with(b, wire::WELCOME, me.0, 0, &[0; 8], 0));
                    out.push(Effect::LoggedIn { client: me, pool: client.pool });
                    out.push(Effect::Standing { client: me, standing: Standing::Idle });
                }
                wire::GOODBYE => {
                    words::hang_up(me, &mut client.closing, CloseReason::Goodbye, out);
                    return input.bytes.len();
                }
                other => panic!("the client of the simulator never says {}", other as char),
            }
            at += head.len;
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
            let rest = &input.bytes[at..];
            if server.passing.is_none() {
                let Ok(Some(head)) = wire::header(rest) else { break };
                if head.kind == wire::REPLY {
                    assert_eq!(server.due.front().map(|d| d.1), Some(head.nonce), "a reply out of order");
                }
                if head.kind == wire::REFUSED {
                    words::refused(me, head, out);
                    return input.bytes.len();
                }
                server.passing = Some((head.len, head.kind));
            }
            let (left, kind) = server.passing.expect("set above");
            let n = rest.len().min(left);
            if kind == wire::REPLY
                && let Some(mut to) = server.due.front().expect("a reply is due").0
            {
                if self.fault == Fault::LeakReply && clients.get(ClientTag(0)).is_some() {
                    to = ClientTag(0);
                }
                out.span(Peer::Client(to), at..at + n);
            }
            at += n;
            server.passing = (n < left).then_some((left - n, kind));
            if n < left {
                continue;
            }
            match kind {
                wire::REPLY => self.replied(me, server, clients, out),
                wire::GOODBYE => {
                    out.push(Effect::Close { peer: Peer::Server(me), reason: CloseReason::Goodbye });
                    return input.bytes.len();
                }
                wire::DONE => {
                    assert!(matches!(server.phase, Phase::Starting | Phase::Checking), "Done in {:?}", server.phase);
                    server.phase = Phase::Ready;
                    out.push(Effect::Ready { server: me });
                }
                _ => {}
            }
            if server.phase == Phase::Draining && server.due.is_empty() {
                server.phase = Phase::Ready;
                out.push(Effect::Ready { server: me });
            }
        }
        at
    }

    fn granted(&self, _me: ClientTag, client: &mut Client, tag: ServerTag, server: &mut Server, _out: &mut Outbox) {
        assert_eq!(client.lease, Lease::Asked, "a grant that nobody asked for");
        assert_eq!(server.phase, Phase::Ready, "a grant of a server that is not ready");
        client.lease = Lease::Held(tag);
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
        server.strike_out(me);
        let verdict = match client.outstanding.len() {
            _ if self.fault == Fault::DirtyRelease => Verdict::Clean,
            0 => Verdict::Clean,
            // Nobody waits for so much that nobody wants.
            MAX_OUTSTANDING => Verdict::Discard,
            _ => Verdict::Reset,
        };
        out.push(Effect::Leave { client: me, server: tag, verdict });
    }

    fn server_gone(
        &self,
        _me: ServerTag,
        server: &mut Server,
        clients: &mut dyn Sessions<ClientTag, Client>,
        out: &mut Outbox,
    ) {
        if server.passing.is_some_and(|p| p.1 == wire::REPLY)
            && let Some((Some(tag), _)) = server.due.front().copied()
        {
            clients.get(tag).expect("who is not struck out lives").closing = true;
            let reason = CloseReason::Error(Blame::Server, "the server died in the middle of a reply".into());
            out.push(Effect::Close { peer: Peer::Client(tag), reason });
        }
    }

    fn share_ended(&self, me: ClientTag, client: &mut Client, out: &mut Outbox) {
        assert!(matches!(client.lease, Lease::Held(_)), "the end of a share that the client does not have");
        client.lease = Lease::None;
        let lost = std::mem::take(&mut client.outstanding);
        if client.closing {
            return;
        }
        if self.fault != Fault::SilentLoss {
            lost.into_iter().for_each(|nonce| words::fail(me, nonce, out));
        }
        out.push(Effect::Standing { client: me, standing: Standing::Idle });
        if std::mem::take(&mut client.held_back) {
            if self.eager {
                self.ask(me, client, out);
            } else {
                out.push(Effect::Wake { client: me });
            }
        }
    }

    fn refuse(&self, me: ClientTag, client: &mut Client, _why: Refusal, out: &mut Outbox) {
        client.closing = true;
        if client.outstanding.is_empty() {
            words::turn_away(me, out);
        }
    }

    fn reset(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.phase = Phase::Draining;
        if server.due.is_empty() {
            server.phase = Phase::Ready;
            out.push(Effect::Ready { server: me });
        }
    }

    fn check(&self, me: ServerTag, server: &mut Server, out: &mut Outbox) {
        server.phase = Phase::Checking;
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
