//! A driver in virtual time: hands bytes to sessions, executes their effects strictly in order, and asserts what the
//! seam promises. Which client gets which server is in `leasing` and `sharing`, who does what when in `workers`; what happens in `seam`.
//!
//! Order: a call's effects are all executed before the next call is made. Calls that an effect brings about (a grant, a
//! wake, a departure) queue up at the worker and run afterwards, first come, first served; only a client that asks for a server
//! may get it at once.

mod checks;
mod leasing;
mod sharing;
mod workers;

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

use pool::{CheckOutFailed, Grant, Pool, PoolConfig, ServerId, Time};
use protocol::{
    Bytes, ClientTag, CloseReason, Effect, Input, Origin, Outbox, Peer, Protocol, Refusal, ServerTag, Sessions,
    Standing,
};

use self::{
    sharing::{Mux, Place},
    workers::{Message, Worker},
};
use super::{
    Plan,
    app::App,
    books::Books,
    connection::{Asker, ClientConn, ServerConn, State, Use},
    host::Host,
    ledger::Ledger,
};
use crate::{agenda::Agenda, random::Rng};

/// Cancel requests under way for one server; further ones are dropped.
const MAX_SIDES: u32 = 4;

/// The longest that somebody may have to wait under these options, if nothing is late.
pub fn longest(config: &PoolConfig) -> Duration {
    let times = config.max_wait_time.zip(config.unavailable_wait_time).expect("nobody waits for ever here");
    times.0.max(times.1)
}

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
    /// The database has ended a connection, and the worker sees that.
    Broken(ServerTag, u64),
    /// Mail arrives, or a worker is no longer held up.
    Mail,
    /// A side connection's bytes reach the database.
    SideArrives(ServerTag, u64),
    /// A side connection has ended, seen by its worker or not.
    SideEnds(ServerTag, u64, bool),
    /// A database is reachable again.
    HostBack(usize),
    /// A pool that is drained is looked after.
    Upkeep(usize),
    /// All options change, so many times.
    Reload(u32),
    /// A server that clients share is wanted back.
    Yield,
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
    /// A waiter of this worker gets a server that lives here.
    Granted(usize, Grant),
    /// A server that lives here goes to a waiter of another worker.
    Bring(usize, Grant),
    /// A client joins those who share a server of this pool.
    Joined(ClientTag, u64, usize),
    /// What the clients of this worker share of this pool is wanted back.
    Yield(usize),
    /// A waiter gets none.
    Failed(u64, CheckOutFailed),
    /// A client's session ends.
    ClientGone(ClientTag, u64),
    /// A client's connection has ended.
    HungUp(ClientTag, u64),
    /// A client is to go.
    Refuse(ClientTag, u64, Refusal),
    /// A server's connection has ended.
    ServerGone(ServerTag, u64),
    /// A connection to a database is open, or cannot be made.
    Opened(usize, ServerId),
    /// A side connection has ended, seen or not.
    SideEnded(ServerTag, u64, bool),
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
    /// The database behind each pool.
    pub hosts: Vec<Host>,
    /// Print every step.
    pub trace: bool,
    pub(super) by_id: HashMap<(usize, ServerId), ServerTag>,
    /// Ordered, not open yet; by whom they are dialled.
    pub(super) dialling: HashMap<(usize, ServerId), u8>,
    /// Wishes that have not been answered, or whose answer is on its way.
    pub(super) waiters: BTreeMap<u64, Asker>,
    pub(super) muxes: BTreeMap<Place, Mux>,
    pub(super) workers: Vec<Worker<P::Server>>,
    pub(super) books: Books,
    /// No connection can be begun before that.
    pub(super) no_descriptors_until: Time,
    /// The storm is over.
    pub(super) calm: bool,
    /// The longest that somebody may have to wait for a server of each pool, under any options it ever had.
    pub(super) longest: Vec<Duration>,
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
        let (books, longest) = (Books::new(&plan.pools), plan.pools.iter().map(longest).collect());
        let workers = (0..plan.workers).map(|_| Worker::new()).collect();
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
            hosts: vec![Host::default(); pools.len()],
            pools,
            trace,
            by_id: HashMap::new(),
            dialling: HashMap::new(),
            waiters: BTreeMap::new(),
            muxes: BTreeMap::new(),
            workers,
            books,
            no_descriptors_until: Time(0),
            calm: false,
            longest,
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
            state: State::Login,
            waiter: serial,
            pool: 0,
            dead: false,
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
    fn opened(&mut self, worker: u8, pool: usize, id: ServerId) {
        // It may have been ordered to close in the meantime.
        if self.dialling.remove(&(pool, id)).is_none() {
            return;
        }
        if self.rng.percent(self.plan.unreachable) || self.hosts[pool].refuses() {
            self.tell(|| format!("pool {pool}: {id:?} cannot be reached"));
            self.operate(worker, pool, |pool, now| pool.connect_failed(id, false, now));
            return self.books.gone(pool, id);
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
            tainted: false,
            ending: false,
            broken: false,
            pinned: false,
            frozen_until: Time(0),
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

    /// Makes a call that was put off.
    pub(super) fn make(&mut self, worker: u8, call: Call) {
        match call {
            Call::ClientInput(tag) => self.client_input(tag),
            Call::ServerInput(tag) => self.server_input(tag),
            Call::Granted(pool, grant) => self.granted(worker, pool, grant),
            Call::Bring(pool, grant) => self.bring(worker, pool, grant),
            Call::Joined(client, serial, pool) => self.joined(client, serial, pool),
            Call::Yield(pool) => self.want_back((worker, pool)),
            Call::Failed(waiter, reason) => self.failed(waiter, reason),
            Call::ClientGone(tag, serial) => self.client_gone(tag, serial),
            Call::HungUp(tag, serial) => self.hung_up(tag, serial),
            Call::Refuse(tag, serial, why) => self.refuse(tag, serial, why),
            Call::ServerGone(tag, serial) => {
                if self.servers.get(&tag).is_some_and(|s| s.serial == serial) {
                    self.remove_server(tag);
                }
            }
            Call::Opened(pool, id) => self.opened(worker, pool, id),
            Call::SideEnded(tag, serial, seen) => self.side_ended(tag, serial, seen),
        }
    }

    fn client_input(&mut self, tag: ClientTag) {
        let Some(conn) = self.clients.get_mut(&tag) else { return };
        if conn.closing || !conn.asking.is_empty() || conn.blocked.is_some() || conn.input.is_empty() {
            return;
        }
        // Its next query must not be hit by a cancel request that is under way.
        if conn.holds.iter().any(|server| self.servers[server].sides > 0) {
            return;
        }
        if conn.session.is_none() || self.is_withheld(tag) {
            return;
        }
        self.note_heard(tag);
        let conn = self.clients.get_mut(&tag).expect("just seen");
        let mut session = conn.session.take().expect("just seen");
        let mut bytes = std::mem::take(&mut conn.input);
        let (full, unread) = (bytes.len() >= self.plan.cut.input, !conn.output.is_empty());
        let input = Input { bytes: &bytes, full, unread };
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
            self.call(tag.worker(), Call::ClientInput(tag));
        }
    }

    fn server_input(&mut self, tag: ServerTag) {
        let Some(conn) = self.servers.get_mut(&tag) else { return };
        // One that has been given back has nothing to say to anybody.
        if matches!(conn.usage, Use::Withheld(_)) || conn.ending || conn.blocked.is_some() || conn.input.is_empty() {
            return;
        }
        let mut session = conn.session.take().expect("a server has a session");
        let bytes = std::mem::take(&mut conn.input);
        let (full, unread) = (bytes.len() >= self.plan.cut.input, !conn.output.is_empty());
        let input = Input { bytes: &bytes, full, unread };
        let mut out = Outbox::new();
        let mut clients = Clients(&mut self.clients, tag.worker());
        let n = self.protocol.server_input(tag, &mut session, &mut clients, input, &mut out);
        assert!(n <= bytes.len(), "more is consumed than there was");
        let conn = self.servers.get_mut(&tag).expect("nobody removed it");
        conn.session = Some(session);
        conn.consumed += n as u64;
        // What is left over must be seen by whoever wants to move the server meanwhile.
        conn.input = bytes[n..].to_vec();
        let again = n > 0 && self.plan.again && n < bytes.len();
        self.execute(out, &bytes, Peer::Server(tag));
        if again {
            self.call(tag.worker(), Call::ServerInput(tag));
        }
    }

    /// The client's session ends, whoever ended it.
    fn client_gone(&mut self, tag: ClientTag, serial: u64) {
        let Some(conn) = self.clients.get_mut(&tag).filter(|c| c.serial == serial) else { return };
        conn.closing = true;
        self.withdraw(tag);
        let Some(mut session) = self.clients.get_mut(&tag).expect("just seen").session.take() else { return };
        self.tell(|| format!("client {serial} is gone"));
        let mut out = Outbox::new();
        let mut servers = Servers(&mut self.servers, tag.worker());
        self.protocol.client_gone(tag, &mut session, &mut servers, &mut out);
        self.execute(out, &[], Peer::Client(tag));
        let conn = &self.clients[&tag];
        assert!(conn.holds.is_empty(), "client {serial} is gone and keeps {:?}", conn.holds);
        assert!(conn.asking.is_empty(), "client {serial} is gone and asks for a lease");
        assert!(self.shares_of(tag).next().is_none(), "client {serial} is gone and keeps a share");
    }

    /// The application dies; its worker is told when it comes to that.
    pub fn kill_client(&mut self, tag: ClientTag) {
        let conn = self.clients.get_mut(&tag).expect("only the living are killed");
        conn.app.cut(&mut self.ledger);
        conn.dead = true;
        conn.output.clear();
        let serial = conn.serial;
        self.call(tag.worker(), Call::HungUp(tag, serial));
    }

    fn hung_up(&mut self, tag: ClientTag, serial: u64) {
        self.client_gone(tag, serial);
        if self.clients.get(&tag).is_some_and(|c| c.serial == serial) {
            self.clients.remove(&tag);
        }
    }

    /// A server's connection breaks, in whatever state it is. It is dealt with when the work at hand is done.
    pub fn end_server(&mut self, tag: ServerTag) {
        let Some(conn) = self.servers.get_mut(&tag) else { return };
        conn.ending = true;
        let serial = conn.serial;
        self.call(tag.worker(), Call::ServerGone(tag, serial));
    }

    /// A server's connection has ended; who holds it is told.
    pub(super) fn remove_server(&mut self, tag: ServerTag) {
        let Some(mut conn) = self.servers.remove(&tag) else { return };
        self.tell(|| format!("{tag:?} of pool {} breaks, {:?}", conn.pool, conn.usage));
        let mux = self.forget_holder(tag, &conn);
        let mut session = conn.session.take().expect("a server has a session");
        let mut out = Outbox::new();
        let mut clients = Clients(&mut self.clients, tag.worker());
        self.protocol.server_gone(tag, &mut session, &mut clients, &mut out);
        self.execute(out, &[], Peer::Server(tag));
        mux.iter().for_each(|mux| self.end_shares(mux));
        self.tell_lost(tag.worker(), &conn, false);
        if let Use::Lent(client) = conn.usage {
            self.call(client.worker(), Call::ClientInput(client));
        }
        if let Some(mux) = mux {
            self.share_anew(conn.pool, [mux.invited, mux.joining].concat());
        }
    }

    /// Says goodbye; the pool has given the server up already.
    pub(super) fn retire(&mut self, tag: ServerTag) {
        let Some(mut conn) = self.servers.remove(&tag) else { return };
        let usable = matches!(conn.usage, Use::Starting | Use::Idle | Use::Cleaning);
        assert!(usable, "a server is closed that somebody holds: {:?}", conn.usage);
        self.by_id.remove(&(conn.pool, conn.id));
        let mut out = Outbox::new();
        if conn.usage != Use::Starting {
            self.protocol.retire(tag, conn.session.as_mut().expect("a server has a session"), &mut out);
        }
        for effect in out.effects {
            let fine = matches!(effect, Effect::Send { to, .. } if to == Peer::Server(tag));
            assert!(fine, "a server that is closed can only say goodbye, not {effect:?}");
        }
    }

    pub(super) fn cancel(&mut self, target: ClientTag, secret: u64) {
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
    fn refuse(&mut self, tag: ClientTag, serial: u64, why: Refusal) {
        let Some(conn) = self.clients.get_mut(&tag).filter(|c| c.serial == serial && !c.closing) else { return };
        if matches!(why, Refusal::Evicted | Refusal::Drained) {
            if conn.state != State::Idle {
                return;
            }
            assert!(conn.asking.is_empty(), "client {serial} is sent away as idle, and asks for a server");
        }
        let mut out = Outbox::new();
        self.protocol.refuse(tag, conn.session.as_mut().expect("not closing"), why, &mut out);
        self.execute(out, &[], Peer::Client(tag));
        self.clients.get_mut(&tag).expect("nobody removed it").closing = true;
        self.refresh_state(tag);
        self.call(tag.worker(), Call::ClientGone(tag, serial));
    }

    /// Counts a client as what it is now.
    pub(super) fn refresh_state(&mut self, tag: ClientTag) {
        if let Some(conn) = self.clients.get_mut(&tag) {
            conn.state = conn.state();
        }
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
                Effect::Leave { client, server, verdict } => self.leave(client, server, verdict),
                Effect::Ready { server } => self.ready(server),
                Effect::Pinned { server, reason } => {
                    let conn = self.servers.get_mut(&server).expect("a server that has gone is pinned");
                    assert!(matches!(conn.usage, Use::Lent(_)), "only a lent server is pinned");
                    conn.pinned = reason.is_some();
                }
                Effect::Standing { client, standing } => {
                    self.clients.get_mut(&client).expect("a client that has gone stands nowhere").standing = standing;
                    self.refresh_state(client);
                    if standing == Standing::Idle {
                        idle.push(client);
                    }
                }
                Effect::Wake { client } => self.call(client.worker(), Call::ClientInput(client)),
                Effect::LoggedIn { client, pool } => {
                    self.clients.get_mut(&client).expect("a client that has gone logs in").pool = pool.0 as usize;
                }
                Effect::Authenticated { .. } | Effect::AuthFailed { .. } | Effect::Outdated { .. } => {}
                Effect::Cancel { target, secret, .. } => {
                    if usize::from(target.worker()) < self.workers.len() {
                        self.mail(target.worker(), Message::Cancel(target, secret));
                    }
                }
                Effect::Keep { .. } | Effect::Post { .. } | Effect::Survey { .. } | Effect::TellSent { .. } => {
                    unreachable!("no toy speaks to others, or asks what has left")
                }
                Effect::SideConnection { server, .. } => self.open_side(server),
                Effect::StartTls { .. } => unreachable!("the toys speak in the clear"),
                Effect::Withdraw { client } => self.withdraw(client),
                Effect::Close { peer: Peer::Client(tag), .. } => {
                    let conn = self.clients.get_mut(&tag).expect("a client that has gone is closed");
                    if !std::mem::replace(&mut conn.closing, true) {
                        let serial = conn.serial;
                        self.refresh_state(tag);
                        self.call(tag.worker(), Call::ClientGone(tag, serial));
                    }
                }
                Effect::Close { peer: Peer::Server(tag), reason } => self.close_server(tag, reason),
            }
        }
        for client in idle {
            let Some(conn) = self.clients.get(&client) else { continue };
            if conn.standing == Standing::Idle && conn.session.is_some() {
                let nothing = conn.holds.iter().all(|server| self.servers[server].pinned);
                assert!(nothing, "client {} is called idle and holds a server", conn.serial);
                let nothing = self.shares_of(client).next().is_none();
                assert!(nothing, "client {} is called idle and has a share", conn.serial);
            }
        }
    }

    /// Opens a connection beside a server's own. Where its end is not seen, what it carries may arrive later still.
    fn open_side(&mut self, server: ServerTag) {
        let conn = self.servers.get_mut(&server).expect("a side connection to a server that has gone");
        if conn.sides >= MAX_SIDES {
            return;
        }
        conn.sides += 1;
        let serial = conn.serial;
        let (first, then) = (self.soon(), self.soon());
        let seen = !self.rng.percent(15);
        let (arrives, ends) = if seen { (first, first + then) } else { (first + then, first) };
        self.agenda.after(arrives, Event::SideArrives(server, serial));
        self.agenda.after(ends, Event::SideEnds(server, serial, seen));
    }

    /// The session of a server has had enough of it. Whoever has it is told once the call at hand is over.
    fn close_server(&mut self, tag: ServerTag, reason: CloseReason) {
        if self.servers.get(&tag).is_some_and(|s| matches!(s.usage, Use::Lent(_) | Use::Shared)) {
            return self.end_server(tag);
        }
        let Some(conn) = self.servers.remove(&tag) else { return };
        self.forget_holder(tag, &conn);
        let start_failed = matches!(reason, CloseReason::StartFailed { .. });
        assert!(!start_failed || conn.usage == Use::Starting, "{tag:?} fails to start when it has long been started");
        let permanent = matches!(reason, CloseReason::StartFailed { permanent: true, .. });
        self.tell_lost(tag.worker(), &conn, permanent);
    }
}
