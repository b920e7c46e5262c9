//! A driver in virtual time: hands bytes to sessions, executes their effects strictly in order, and asserts what the
//! seam promises. Which client gets which server is in `leasing`; what happens when is in `seam`.
//!
//! Order: a call's effects are all executed before the next call is made. Calls that an effect brings about (a grant, a
//! wake, a departure) queue up and run afterwards, first come, first served.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    ops::Bound,
    time::Duration,
};

use pool::{Pool, ServerId, Time};
use protocol::{
    Bytes, ClientTag, CloseReason, Effect, Input, LeaseFailure, Origin, Outbox, Peer, Protocol, Refusal, ServerTag,
    Sessions, Standing,
};

use super::{
    Plan,
    app::App,
    connection::{ClientConn, ServerConn, Use},
    leasing::{Asker, Mux},
    ledger::Ledger,
};
use crate::{agenda::Agenda, random::Rng};

/// Calls in a row, without time passing, beyond which sessions and driver are feeding each other.
const MAX_CALLS: usize = 100_000;

/// What happens at some time. A serial tells whether a tag still means the same connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// Bytes move on a client's connection.
    Client(ClientTag, u64),
    /// Bytes move on a server's connection, or the database works.
    Server(ServerTag, u64),
    /// An application writes.
    Write(ClientTag, u64),
    /// A connection to a database is open.
    Opened(usize, ServerId),
    /// A connection has been closed as ordered.
    Closed(usize, ServerId),
    /// A granted server has reached its new worker.
    Arrived(ServerTag, u64, u64),
    /// A side connection's bytes reach the database.
    SideArrives(ServerTag, u64),
    /// A side connection has ended.
    SideEnds(ServerTag, u64),
    /// Something is done to the world.
    Chaos,
}

/// A call to the protocol that is due.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    /// Hand over its input.
    ClientInput(ClientTag),
    /// Hand over its input.
    ServerInput(ServerTag),
    /// A waiter gets a server.
    Granted(u64, ServerTag, u64),
    /// A client joins those who share a server.
    Joined(ClientTag, u64, ServerTag),
    /// A client gets none; by its serial, and the number of the waiter.
    Failed(ClientTag, u64, u64, LeaseFailure),
    /// A client's connection has ended.
    ClientGone(ClientTag),
    /// Clean a server.
    Reset(ServerTag),
    /// See whether a server answers.
    Check(ServerTag),
    /// Close a server that nobody uses.
    Retire(ServerTag),
    /// Cut a server although it is in use.
    Interrupt(ServerTag),
    /// Somebody wants to cancel.
    Cancel(ClientTag, u64),
}

struct Clients<'a, S>(&'a mut BTreeMap<ClientTag, ClientConn<S>>, u8);
struct Servers<'a, S>(&'a mut BTreeMap<ServerTag, ServerConn<S>>, u8);

impl<S> Sessions<ClientTag, S> for Clients<'_, S> {
    fn get(&mut self, tag: ClientTag) -> Option<&mut S> {
        // Another worker's sessions are out of reach.
        if tag.worker() != self.1 {
            return None;
        }
        self.0.get_mut(&tag)?.session.as_mut()
    }
}

impl<S> Sessions<ServerTag, S> for Servers<'_, S> {
    fn get(&mut self, tag: ServerTag) -> Option<&mut S> {
        if tag.worker() != self.1 {
            return None;
        }
        self.0.get_mut(&tag)?.session.as_mut()
    }
}

/// The driver and all that it holds.
pub struct Driver<P: Protocol> {
    /// The protocol.
    pub protocol: P,
    /// The clock.
    pub agenda: Agenda<Event>,
    /// Chance.
    pub rng: Rng,
    /// What kind of world this is.
    pub plan: Plan,
    /// What became of the requests.
    pub ledger: Ledger,
    /// By tag.
    pub clients: BTreeMap<ClientTag, ClientConn<P::Client>>,
    /// By tag.
    pub servers: BTreeMap<ServerTag, ServerConn<P::Server>>,
    /// By number.
    pub pools: Vec<Pool>,
    /// Print every step.
    pub trace: bool,
    pub(super) by_id: HashMap<(usize, ServerId), ServerTag>,
    /// Ordered, not open yet; by whom they are dialled.
    pub(super) dialling: HashMap<(usize, ServerId), u8>,
    /// Ordered to close, not reported closed.
    pub(super) closing: HashSet<(usize, ServerId)>,
    pub(super) waiters: BTreeMap<u64, Asker>,
    pub(super) muxes: BTreeMap<(u8, usize), Mux>,
    pub(super) calls: VecDeque<Call>,
    serials: u64,
}

impl<P: Protocol> Driver<P> {
    /// A driver with its pools ready and nobody connected.
    pub fn new(protocol: P, plan: Plan, seed: u64, trace: bool) -> Self {
        let agenda = Agenda::new(seed);
        let mut rng = Rng::new(seed ^ 0x5ea4);
        let mut pools = Vec::new();
        for config in &plan.pools {
            let mut pool = Pool::new(config.clone(), rng.next(), agenda.now());
            pool.ready(agenda.now());
            pools.push(pool);
        }
        let mut ledger = Ledger::default();
        ledger.strict = !plan.habits.parts;
        Self {
            protocol,
            agenda,
            rng,
            plan,
            ledger,
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
            pools,
            trace,
            by_id: HashMap::new(),
            dialling: HashMap::new(),
            closing: HashSet::new(),
            waiters: BTreeMap::new(),
            muxes: BTreeMap::new(),
            calls: VecDeque::new(),
            serials: 0,
        }
    }

    /// A line of the trace.
    pub fn tell(&self, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} {}", self.now().0, line());
        }
    }

    /// The present moment.
    pub fn now(&self) -> Time {
        self.agenda.now()
    }

    pub(super) fn serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    /// A short random delay.
    pub fn soon(&mut self) -> Duration {
        self.rng.around(Duration::from_micros(100))
    }

    /// An application connects to a worker.
    pub fn accept(&mut self, make: impl FnOnce(u64, &mut Rng) -> App) {
        let worker = self.rng.below(u64::from(self.plan.workers)) as u8;
        let slot = (0..).find(|&n| !self.clients.contains_key(&ClientTag::new(worker, n))).expect("slots without end");
        let (tag, serial) = (ClientTag::new(worker, slot), self.serial());
        let mut out = Outbox::new();
        let session = self.protocol.client_start(tag, Origin { listener: 0, address: None, port: 0 }, &mut out);
        let conn = ClientConn {
            session: Some(session),
            serial,
            input: Vec::new(),
            output: VecDeque::new(),
            asking: Vec::new(),
            holds: Default::default(),
            standing: Standing::Login,
            closing: false,
            blocked: None,
            stirred: false,
            app: make(serial, &mut self.rng),
        };
        self.tell(|| format!("client {serial} connects as {tag:?}"));
        self.clients.insert(tag, conn);
        self.execute(out, &[], Peer::Client(tag));
        let after = self.soon();
        self.agenda.after(after, Event::Write(tag, serial));
    }

    /// A connection to a database is open.
    pub(super) fn opened(&mut self, pool: usize, id: ServerId) {
        // It may have been ordered to close in the meantime.
        let Some(worker) = self.dialling.remove(&(pool, id)) else { return };
        if self.rng.percent(self.plan.unreachable) {
            let now = self.now();
            self.tell(|| format!("pool {pool}: {id:?} cannot be reached"));
            self.pools[pool].connect_failed(id, false, now);
            return;
        }
        let (tag, serial) = (self.free_server_tag(worker), self.serial());
        let mut out = Outbox::new();
        let session = self.protocol.server_start(tag, protocol::PoolId(pool as u32), &mut out);
        let conn = ServerConn {
            session: Some(session),
            serial,
            id,
            pool,
            usage: Use::Starting,
            input: Vec::new(),
            consumed: 0,
            output: VecDeque::new(),
            sides: 0,
            blocked: None,
            stirred: false,
            user: 0,
            upstream: Default::default(),
        };
        self.tell(|| format!("pool {pool}: {id:?} opens as {tag:?}"));
        self.by_id.insert((pool, id), tag);
        self.servers.insert(tag, conn);
        self.execute(out, &[], Peer::Server(tag));
    }

    pub(super) fn free_server_tag(&self, worker: u8) -> ServerTag {
        let slot = (0..).find(|&n| !self.servers.contains_key(&ServerTag::new(worker, n))).expect("slots without end");
        ServerTag::new(worker, slot)
    }

    /// Makes all calls that are due, and those that they bring about.
    pub fn run(&mut self) {
        self.pump();
        for _ in 0..MAX_CALLS {
            let Some(call) = self.calls.pop_front() else { return };
            self.tell(|| format!("  call {call:?}"));
            match call {
                Call::ClientInput(tag) => self.client_input(tag),
                Call::ServerInput(tag) => self.server_input(tag),
                Call::Granted(waiter, tag, serial) => self.arrived(waiter, tag, serial),
                Call::Joined(client, serial, server) => self.joined(client, serial, server),
                Call::Failed(client, serial, waiter, why) => self.failed(client, serial, waiter, why),
                Call::ClientGone(tag) => self.client_gone(tag),
                Call::Interrupt(tag) => self.lose_server(tag),
                Call::Retire(tag) => self.retire(tag),
                Call::Reset(tag) => self.with_server(tag, |p, s, out| p.reset(tag, s, out)),
                Call::Check(tag) => self.with_server(tag, |p, s, out| p.check(tag, s, out)),
                Call::Cancel(target, secret) => self.cancel(target, secret),
            }
            self.pump();
        }
        panic!("driver and sessions keep each other busy for ever");
    }

    fn with_server(&mut self, tag: ServerTag, call: impl FnOnce(&P, &mut P::Server, &mut Outbox)) {
        let Some(conn) = self.servers.get_mut(&tag) else { return };
        let mut out = Outbox::new();
        call(&self.protocol, conn.session.as_mut().expect("a server has a session"), &mut out);
        self.execute(out, &[], Peer::Server(tag));
    }

    fn client_input(&mut self, tag: ClientTag) {
        let Some(conn) = self.clients.get_mut(&tag) else { return };
        if conn.closing || !conn.asking.is_empty() || conn.blocked.is_some() || conn.input.is_empty() {
            return;
        }
        let Some(mut session) = conn.session.take() else { return };
        let mut bytes = std::mem::take(&mut conn.input);
        let input = Input { bytes: &bytes, full: bytes.len() >= self.plan.cut.input };
        let mut out = Outbox::new();
        let mut servers = Servers(&mut self.servers, tag.worker());
        let n = self.protocol.client_input(tag, &mut session, &mut servers, input, &mut out);
        assert!(n <= bytes.len(), "more is consumed than there was");
        self.clients.get_mut(&tag).expect("nobody removed it").session = Some(session);
        self.execute(out, &bytes, Peer::Client(tag));
        bytes.drain(..n);
        let again = n > 0 && self.plan.again && !bytes.is_empty();
        self.clients.get_mut(&tag).expect("departures wait for their call").input = bytes;
        if again {
            self.calls.push_back(Call::ClientInput(tag));
        }
    }

    fn server_input(&mut self, tag: ServerTag) {
        let Some(conn) = self.servers.get_mut(&tag) else { return };
        // One that has been given back, or is about to be closed, has nothing to say to anybody.
        let deaf = matches!(conn.usage, Use::Moving | Use::Withheld(_)) || self.closing.contains(&(conn.pool, conn.id));
        if deaf || conn.blocked.is_some() || conn.input.is_empty() {
            return;
        }
        let mut session = conn.session.take().expect("a server has a session");
        let mut bytes = std::mem::take(&mut conn.input);
        let input = Input { bytes: &bytes, full: bytes.len() >= self.plan.cut.input };
        let mut out = Outbox::new();
        let mut clients = Clients(&mut self.clients, tag.worker());
        let n = self.protocol.server_input(tag, &mut session, &mut clients, input, &mut out);
        assert!(n <= bytes.len(), "more is consumed than there was");
        let conn = self.servers.get_mut(&tag).expect("nobody removed it");
        conn.session = Some(session);
        conn.consumed += n as u64;
        self.execute(out, &bytes, Peer::Server(tag));
        bytes.drain(..n);
        let again = n > 0 && self.plan.again && !bytes.is_empty();
        if let Some(conn) = self.servers.get_mut(&tag) {
            conn.input = bytes;
            if again {
                self.calls.push_back(Call::ServerInput(tag));
            }
        }
    }

    /// The client's connection has ended, whoever ended it.
    pub(super) fn client_gone(&mut self, tag: ClientTag) {
        self.withdraw(tag);
        let Some(conn) = self.clients.get_mut(&tag) else { return };
        conn.closing = true;
        let Some(mut session) = conn.session.take() else { return };
        let serial = conn.serial;
        self.tell(|| format!("client {serial} is gone"));
        let mut out = Outbox::new();
        let mut servers = Servers(&mut self.servers, tag.worker());
        self.protocol.client_gone(tag, &mut session, &mut servers, &mut out);
        self.execute(out, &[], Peer::Client(tag));
        let conn = &self.clients[&tag];
        assert!(conn.holds.is_empty(), "client {serial} is gone and keeps {:?}", conn.holds);
        assert!(conn.asking.is_empty(), "client {serial} is gone and asks for a lease");
    }

    /// The application dies.
    pub fn kill_client(&mut self, tag: ClientTag) {
        let conn = self.clients.get_mut(&tag).expect("only the living are killed");
        conn.app.cut(&mut self.ledger);
        conn.output.clear();
        self.client_gone(tag);
        self.clients.remove(&tag);
    }

    /// A server's connection breaks, in whatever state it is.
    pub fn lose_server(&mut self, tag: ServerTag) {
        let Some(mut conn) = self.servers.remove(&tag) else { return };
        self.tell(|| format!("{tag:?} of pool {} breaks, {:?}", conn.pool, conn.usage));
        self.forget_server(tag, &conn);
        let now = self.now();
        match conn.usage {
            Use::Starting => self.pools[conn.pool].connect_failed(conn.id, false, now),
            _ => self.pools[conn.pool].lost(conn.id, now),
        }
        let mut session = conn.session.take().expect("a server has a session");
        let mut out = Outbox::new();
        let mut clients = Clients(&mut self.clients, tag.worker());
        self.protocol.server_gone(tag, &mut session, &mut clients, &mut out);
        self.execute(out, &[], Peer::Server(tag));
    }

    /// The pool wants a server closed that nobody uses.
    fn retire(&mut self, tag: ServerTag) {
        let Some(mut conn) = self.servers.remove(&tag) else { return };
        self.by_id.remove(&(conn.pool, conn.id));
        let session = conn.session.as_mut().expect("a server has a session");
        let mut out = Outbox::new();
        if conn.usage == Use::Idle {
            self.protocol.retire(tag, session, &mut out);
        } else {
            self.protocol.server_gone(tag, session, &mut Clients(&mut self.clients, tag.worker()), &mut out);
        }
        for effect in out.effects {
            let fine = matches!(effect, Effect::Send { to, .. } if to == Peer::Server(tag));
            assert!(fine, "a server that is closed can only say goodbye, not {effect:?}");
        }
        let after = self.soon();
        self.agenda.after(after, Event::Closed(conn.pool, conn.id));
    }

    fn cancel(&mut self, target: ClientTag, secret: u64) {
        let Some(conn) = self.clients.get_mut(&target) else { return };
        let waiting = !conn.asking.is_empty();
        if conn.closing {
            return;
        }
        let Some(mut session) = conn.session.take() else { return };
        let mut out = Outbox::new();
        let mut servers = Servers(&mut self.servers, target.worker());
        self.protocol.cancel(target, &mut session, &mut servers, secret, waiting, &mut out);
        self.clients.get_mut(&target).expect("nobody removed it").session = Some(session);
        self.execute(out, &[], Peer::Client(target));
    }

    /// A client is sent away.
    pub fn refuse(&mut self, tag: ClientTag, why: Refusal) {
        let conn = self.clients.get_mut(&tag).expect("only the present are sent away");
        if conn.closing {
            return;
        }
        let mut out = Outbox::new();
        self.protocol.refuse(tag, conn.session.as_mut().expect("not closing"), why, &mut out);
        self.execute(out, &[], Peer::Client(tag));
        self.clients.get_mut(&tag).expect("nobody removed it").closing = true;
        self.calls.push_back(Call::ClientGone(tag));
    }

    /// Executes the effects of one call. `input`: what its spans refer to.
    pub(super) fn execute(&mut self, out: Outbox, input: &[u8], source: Peer) {
        let mut idle = Vec::new();
        for effect in out.effects {
            self.tell(|| format!("    {effect:?}"));
            match effect {
                Effect::Send { to, bytes } => {
                    let bytes = match bytes {
                        Bytes::Span(range) => &input[range],
                        Bytes::Insert(range) => &out.inserted[range],
                    };
                    self.send(to, bytes, source);
                }
                Effect::Lease { client, pool, kind } => self.lease(client, pool.0 as usize, kind),
                Effect::Release { server, verdict } => self.release(server, verdict),
                Effect::Ready { server } => self.ready(server),
                Effect::Pinned { server, .. } => {
                    assert!(matches!(self.servers[&server].usage, Use::Lent(_)), "only a lent server is pinned");
                }
                Effect::Standing { client, standing } => {
                    self.clients.get_mut(&client).expect("a client that has gone stands nowhere").standing = standing;
                    if standing == Standing::Idle {
                        idle.push(client);
                    }
                }
                Effect::Wake { client } => self.calls.push_back(Call::ClientInput(client)),
                Effect::LoggedIn { .. }
                | Effect::Authenticated { .. }
                | Effect::AuthFailed { .. }
                | Effect::Outdated { .. } => {}
                Effect::Cancel { target, secret, .. } => self.calls.push_back(Call::Cancel(target, secret)),
                Effect::SideConnection { server, .. } => {
                    let conn = self.servers.get_mut(&server).expect("a side connection to a server that has gone");
                    conn.sides += 1;
                    let serial = conn.serial;
                    let (arrives, ends) = (self.soon(), self.soon());
                    self.agenda.after(arrives, Event::SideArrives(server, serial));
                    self.agenda.after(arrives + ends, Event::SideEnds(server, serial));
                }
                Effect::Keep { .. } | Effect::Post { .. } => unreachable!("no toy posts"),
                Effect::StartTls { .. } => unreachable!("the toys speak in the clear"),
                Effect::Withdraw { client } => self.withdraw(client),
                Effect::Close { peer: Peer::Client(tag), .. } => {
                    let conn = self.clients.get_mut(&tag).expect("a client that has gone is closed");
                    if !std::mem::replace(&mut conn.closing, true) {
                        self.calls.push_back(Call::ClientGone(tag));
                    }
                }
                Effect::Close { peer: Peer::Server(tag), reason } => self.close_server(tag, reason),
            }
        }
        for client in idle {
            let Some(conn) = self.clients.get(&client) else { continue };
            if conn.standing == Standing::Idle && conn.session.is_some() {
                let nothing = conn.holds.is_empty() && conn.asking.is_empty();
                assert!(nothing, "client {} is called idle and holds or asks for a server", conn.serial);
            }
        }
    }

    fn send(&mut self, to: Peer, bytes: &[u8], source: Peer) {
        let full = match to {
            Peer::Client(tag) => {
                let conn = self.clients.get_mut(&tag).filter(|c| c.session.is_some());
                let conn = conn.unwrap_or_else(|| panic!("{source:?} speaks to {tag:?}, who has gone"));
                if conn.closing && source != Peer::Client(tag) {
                    return;
                }
                conn.output.extend(bytes);
                conn.output.len() > self.plan.cut.output
            }
            Peer::Server(tag) => {
                let conn = self.servers.get_mut(&tag);
                let conn = conn.unwrap_or_else(|| panic!("{source:?} speaks to {tag:?}, who has gone"));
                if let Peer::Client(client) = source {
                    let right = conn.usage == Use::Lent(client) || conn.usage == Use::Shared;
                    assert!(right, "{client:?} writes to {tag:?}, which it does not hold: {:?}", conn.usage);
                }
                conn.output.extend(bytes);
                conn.output.len() > self.plan.cut.output
            }
        };
        if full && to != source {
            let blocked = match source {
                Peer::Client(tag) => self.clients.get_mut(&tag).map(|c| &mut c.blocked),
                Peer::Server(tag) => self.servers.get_mut(&tag).map(|s| &mut s.blocked),
            };
            if let Some(blocked) = blocked {
                *blocked = Some(to);
            }
        }
    }

    /// The session of a server has had enough of it.
    fn close_server(&mut self, tag: ServerTag, reason: CloseReason) {
        let Some(conn) = self.servers.remove(&tag) else { return };
        self.forget_server(tag, &conn);
        let now = self.now();
        match (conn.usage, reason) {
            (Use::Starting, CloseReason::StartFailed { permanent, .. }) => {
                self.pools[conn.pool].connect_failed(conn.id, permanent, now);
            }
            (Use::Starting, _) => self.pools[conn.pool].connect_failed(conn.id, false, now),
            (_, CloseReason::StartFailed { .. }) => panic!("{tag:?} fails to start when it has long been started"),
            _ => self.pools[conn.pool].lost(conn.id, now),
        }
    }

    /// Lets bytes move where they can, and blocked input where it can again.
    pub fn stir(&mut self) {
        let cut = self.plan.cut;
        let drained = |clients: &BTreeMap<ClientTag, ClientConn<P::Client>>,
                       servers: &BTreeMap<ServerTag, ServerConn<P::Server>>,
                       peer| match peer {
            Peer::Client(tag) => clients.get(&tag).is_none_or(|c| c.output.len() <= cut.output / 2),
            Peer::Server(tag) => servers.get(&tag).is_none_or(|s| s.output.len() <= cut.output / 2),
        };
        let mut at = Bound::Unbounded;
        while let Some((&tag, conn)) = self.clients.range((at, Bound::Unbounded)).next() {
            let open = conn.blocked.is_some_and(|peer| drained(&self.clients, &self.servers, peer));
            let step = !conn.stirred && conn.can_step(&cut);
            let conn = self.clients.get_mut(&tag).expect("just seen");
            if open {
                conn.blocked = None;
                self.calls.push_back(Call::ClientInput(tag));
            }
            if step {
                conn.stirred = true;
                let event = Event::Client(tag, conn.serial);
                let after = self.soon();
                self.agenda.after(after, event);
            }
            at = Bound::Excluded(tag);
        }
        let mut at = Bound::Unbounded;
        while let Some((&tag, conn)) = self.servers.range((at, Bound::Unbounded)).next() {
            let open = conn.blocked.is_some_and(|peer| drained(&self.clients, &self.servers, peer));
            let step = !conn.stirred && conn.can_step(&cut);
            let conn = self.servers.get_mut(&tag).expect("just seen");
            if open {
                conn.blocked = None;
                self.calls.push_back(Call::ServerInput(tag));
            }
            if step {
                conn.stirred = true;
                let event = Event::Server(tag, conn.serial);
                let after = self.soon();
                self.agenda.after(after, event);
            }
            at = Bound::Excluded(tag);
        }
    }
}
