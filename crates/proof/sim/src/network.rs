//! Simulated network: connections with delays, split reads, full windows, resets, half-closes and hosts that fall
//! silent. The caller sets the time. It knows no protocol, worker or database.
//!
//! It follows TCP: bytes arrive in order; closing an end with unread bytes resets the connection; bytes sent to a
//! closed end are answered by a reset; bytes that arrived before a reset can still be read.

mod reactor;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use pool::Time;

use crate::random::Rng;

pub use reactor::{ReactorView, Socket, VirtualReactor, VirtualWaker};

/// One end of a connection. The other end of `2n` is `2n + 1`.
pub type EndId = u32;

/// A host of the database: the port that it listens at, less one.
pub type HostId = u16;

#[derive(Clone, Debug)]
pub struct Conditions {
    /// Mean transmission time.
    pub delay: Duration,
    /// Percentage of sends that arrive in pieces.
    pub pieces: u64,
    /// Most bytes in flight or not yet read, in one direction.
    pub window: usize,
    /// Percentage of receives that return less than has arrived.
    pub short_reads: u64,
}

/// How a host treats connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostBehaviour {
    Accepts,
    Refuses,
    /// Connecting fails at once, as without free descriptors.
    Unreachable,
    /// The host answers neither connects nor what open connections send.
    Silent,
}

/// All connections. Clones are the same network.
#[derive(Clone)]
pub struct Network(Arc<Mutex<State>>);

pub(crate) struct State {
    now: Time,
    rng: Rng,
    conditions: Conditions,
    ends: Vec<End>,
    /// By arrival time and sequence number.
    in_flight: BTreeMap<(Time, u64), (EndId, Parcel)>,
    sent: u64,
    /// Clients' ends that wait at the listener to be accepted.
    backlog: VecDeque<EndId>,
    is_listener_closed: bool,
    /// The behaviour of each host whose behaviour was ever set. All others accept.
    hosts: BTreeMap<HostId, HostBehaviour>,
    /// New connections that the database has not accepted yet.
    new_server_connections: VecDeque<EndId>,
    /// Ends that have received something, or whose window has opened, since the last [`Network::take_changed`].
    changed: BTreeSet<EndId>,
    /// Parcels to and from silent hosts, in order.
    withheld: Vec<(EndId, Parcel)>,
}

enum Parcel {
    /// The host has accepted (`true`) or refused a connection.
    Answer(bool),
    /// A client's connection reaches the listener.
    ClientConnect,
    /// A connection reaches the database.
    ServerConnect,
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

#[derive(Default)]
struct End {
    inbox: VecDeque<u8>,
    /// Bytes in flight to it.
    coming: usize,
    /// Arrival time of the last parcel sent to it, which no other overtakes.
    last: Time,
    /// The peer will send no more.
    fin: bool,
    reset: bool,
    open: bool,
    /// Whether the host has accepted the connection; `None` if it has not answered.
    answer: Option<bool>,
    /// It has ended its sending side.
    shut: bool,
    closed: bool,
    /// The host of a server connection.
    upstream: Option<HostId>,
}

impl Network {
    /// A network without connections. The seed decides every delay and split.
    pub fn new(seed: u64, conditions: Conditions) -> Self {
        let state = State {
            now: Time(0),
            rng: Rng::new(seed),
            conditions,
            ends: Vec::new(),
            in_flight: BTreeMap::new(),
            sent: 0,
            backlog: VecDeque::new(),
            is_listener_closed: false,
            hosts: BTreeMap::new(),
            new_server_connections: VecDeque::new(),
            changed: BTreeSet::new(),
            withheld: Vec::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next arrival time.
    pub fn next_at(&self) -> Option<Time> {
        self.lock().in_flight.keys().next().map(|(at, _)| *at)
    }

    /// Sets the time, and delivers what has arrived by then.
    pub fn advance(&self, now: Time) {
        self.lock().advance(now);
    }

    /// Begins to connect a client to the listener. It may send at once.
    pub fn connect(&self) -> EndId {
        let mut state = self.lock();
        let end = state.add_connection(None);
        state.ends[end as usize].open = true;
        state.post(end + 1, Parcel::ClientConnect);
        end
    }

    /// Whether a client waits at the listener to be accepted.
    pub fn has_pending_client(&self) -> bool {
        !self.lock().backlog.is_empty()
    }

    /// Accepts the next new connection to the database.
    pub fn accept(&self) -> Option<(EndId, HostId)> {
        let mut state = self.lock();
        let end = state.new_server_connections.pop_front()?;
        Some((end, state.ends[end as usize].upstream.expect("it has reached the database")))
    }

    /// Takes the ends that have changed since the last call, in order.
    pub fn take_changed(&self) -> Vec<EndId> {
        std::mem::take(&mut self.lock().changed).into_iter().collect()
    }

    /// Sends what the window takes, and returns its length. Bytes for a broken connection are dropped.
    pub fn send(&self, end: EndId, bytes: &[u8]) -> usize {
        self.lock().send(end, bytes).unwrap_or(bytes.len())
    }

    /// Receives at most `most` bytes.
    pub fn receive(&self, end: EndId, most: usize) -> Vec<u8> {
        let mut state = self.lock();
        let most = most.min(state.ends[end as usize].inbox.len());
        state.take(end, most)
    }

    /// Number of bytes that can be received now.
    pub fn readable(&self, end: EndId) -> usize {
        self.lock().ends[end as usize].inbox.len()
    }

    /// Whether nothing more can be received: the peer has ended its side, or the connection is broken.
    pub fn has_input_ended(&self, end: EndId) -> bool {
        let state = self.lock();
        let end = &state.ends[end as usize];
        end.inbox.is_empty() && (end.fin || end.reset)
    }

    /// Whether the peer has closed or ended its sending side. Its last bytes may still be in flight.
    pub fn has_peer_left(&self, end: EndId) -> bool {
        let state = self.lock();
        let peer = &state.ends[(end ^ 1) as usize];
        peer.closed || peer.shut
    }

    pub fn is_reset(&self, end: EndId) -> bool {
        self.lock().ends[end as usize].reset
    }

    pub fn close(&self, end: EndId) {
        self.lock().close(end);
    }

    /// Ends the sending side.
    pub fn shut(&self, end: EndId) {
        self.lock().shut(end);
    }

    /// Breaks a connection on both sides.
    pub fn reset(&self, end: EndId) {
        let mut state = self.lock();
        state.post(end, Parcel::Reset);
        state.post(end ^ 1, Parcel::Reset);
    }

    /// Changes how a host behaves. What a silent host withheld arrives when it is no longer silent.
    pub fn set_host(&self, id: HostId, behaviour: HostBehaviour) {
        self.lock().set_host(id, behaviour);
    }
}

impl State {
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(entry) = self.in_flight.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (end, parcel) = entry.remove();
            let silent =
                self.ends[end as usize].upstream.is_some_and(|host| self.behaviour_of(host) == HostBehaviour::Silent);
            if silent && !matches!(parcel, Parcel::Answer(_)) {
                self.withheld.push((end, parcel));
            } else {
                self.deliver(end, parcel);
            }
        }
    }

    fn behaviour_of(&self, id: HostId) -> HostBehaviour {
        self.hosts.get(&id).copied().unwrap_or(HostBehaviour::Accepts)
    }

    fn set_host(&mut self, id: HostId, behaviour: HostBehaviour) {
        self.hosts.insert(id, behaviour);
        if behaviour == HostBehaviour::Silent {
            return;
        }
        for (end, parcel) in std::mem::take(&mut self.withheld) {
            if self.ends[end as usize].upstream == Some(id) {
                self.deliver(end, parcel);
            } else {
                self.withheld.push((end, parcel));
            }
        }
    }

    /// Closes the listener, and resets the connections in its backlog.
    fn stop_listening(&mut self) {
        self.is_listener_closed = true;
        for end in std::mem::take(&mut self.backlog) {
            self.post(end ^ 1, Parcel::Reset);
        }
    }

    fn deliver(&mut self, id: EndId, parcel: Parcel) {
        let end = &mut self.ends[id as usize];
        match parcel {
            Parcel::Answer(open) => {
                end.answer = Some(open);
                end.open = open;
            }
            Parcel::ClientConnect if self.is_listener_closed => return self.post(id ^ 1, Parcel::Reset),
            Parcel::ClientConnect => {
                end.open = true;
                self.backlog.push_back(id);
            }
            Parcel::ServerConnect => {
                end.open = true;
                self.new_server_connections.push_back(id);
            }
            Parcel::Bytes(bytes) => {
                end.coming -= bytes.len();
                if end.closed {
                    return self.post(id ^ 1, Parcel::Reset);
                }
                end.inbox.extend(bytes);
            }
            Parcel::Fin => end.fin = true,
            Parcel::Reset => end.reset = true,
        }
        self.changed.insert(id);
    }

    fn add_connection(&mut self, upstream: Option<HostId>) -> EndId {
        let id = u32::try_from(self.ends.len()).expect("a schedule has few connections");
        self.ends.push(End { upstream, ..End::default() });
        self.ends.push(End { upstream, ..End::default() });
        id
    }

    fn dial(&mut self, host: HostId) -> EndId {
        let end = self.add_connection(Some(host));
        match self.behaviour_of(host) {
            HostBehaviour::Accepts => {
                self.post(end, Parcel::Answer(true));
                self.post(end + 1, Parcel::ServerConnect);
            }
            HostBehaviour::Refuses => self.post(end, Parcel::Answer(false)),
            HostBehaviour::Silent | HostBehaviour::Unreachable => {}
        }
        end
    }

    fn post(&mut self, to: EndId, parcel: Parcel) {
        let delay = self.rng.exponential(self.conditions.delay);
        let end = &mut self.ends[to as usize];
        end.last = end.last.max(self.now + delay);
        if let Parcel::Bytes(bytes) = &parcel {
            end.coming += bytes.len();
        }
        self.sent += 1;
        self.in_flight.insert((end.last, self.sent), (to, parcel));
    }

    /// Returns the number of bytes that the window takes; `None` if the connection is broken.
    fn send(&mut self, from: EndId, bytes: &[u8]) -> Option<usize> {
        let end = &self.ends[from as usize];
        assert!(!end.closed && !end.shut, "a closed end does not send");
        if end.reset {
            return None;
        }
        let (taken, mut at) = (self.room(&self.ends[(from ^ 1) as usize]).min(bytes.len()), 0);
        while at < taken {
            let piece =
                if self.rng.percent(self.conditions.pieces) { 1 + self.rng.index(taken - at) } else { taken - at };
            self.post(from ^ 1, Parcel::Bytes(bytes[at..at + piece].to_vec()));
            at += piece;
        }
        Some(taken)
    }

    /// Free bytes of the window towards this end.
    fn room(&self, to: &End) -> usize {
        self.conditions.window.saturating_sub(to.inbox.len() + to.coming)
    }

    fn take(&mut self, from: EndId, most: usize) -> Vec<u8> {
        let end = &mut self.ends[from as usize];
        let bytes = end.inbox.drain(..most).collect();
        if most > 0 {
            // The window opens.
            self.changed.insert(from ^ 1);
        }
        bytes
    }

    fn shut(&mut self, id: EndId) {
        if !std::mem::replace(&mut self.ends[id as usize].shut, true) {
            self.post(id ^ 1, Parcel::Fin);
        }
    }

    fn close(&mut self, id: EndId) {
        let end = &mut self.ends[id as usize];
        if std::mem::replace(&mut end.closed, true) {
            return;
        }
        if !end.inbox.is_empty() {
            self.post(id ^ 1, Parcel::Reset);
        } else if !end.shut && !end.reset {
            end.shut = true;
            self.post(id ^ 1, Parcel::Fin);
        }
    }

    fn peer(id: EndId) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 20_000 + (id / 2 % 40_000) as u16))
    }
}
