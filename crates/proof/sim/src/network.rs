//! Simulated network: connections with delays, split reads, full windows, resets, half-closes and hosts that fall
//! silent. The caller sets the time. The network knows ends of connections, and no protocol, worker or database.
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

pub use reactor::{Knock, Seat, Socket, VirtualReactor};

/// One end of a connection. The other end of `2n` is `2n + 1`.
pub type EndId = u32;

/// A host of the database: the port that it listens at, less one.
pub type HostId = u16;

#[derive(Clone, Debug)]
pub struct Conditions {
    /// Mean time that bytes take.
    pub delay: Duration,
    /// Percentage of sends that arrive in pieces.
    pub pieces: u64,
    /// Most bytes on the way or not yet read, in one direction.
    pub window: usize,
    /// Percentage of receives that return less than has arrived.
    pub short_reads: u64,
}

/// How a host treats connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host {
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
    /// What is on its way: when it arrives, in which order it was sent, and what it is.
    on_the_way: BTreeMap<(Time, u64), (EndId, Parcel)>,
    sent: u64,
    /// Clients' ends that wait at the listener to be accepted.
    backlog: VecDeque<EndId>,
    /// The listener is closed: clients that arrive are refused.
    deaf: bool,
    /// What each host of the database does, by its number; one that is not here accepts.
    hosts: BTreeMap<HostId, Host>,
    /// Ends at the database that it has not been told of.
    arrived: VecDeque<EndId>,
    /// Ends outside of the reactors to which something has happened.
    news: BTreeSet<EndId>,
    /// While a host is silent: what was to arrive there or come from there, in order.
    withheld: Vec<(EndId, Parcel)>,
}

enum Parcel {
    /// The connection is made, or refused.
    Answer(bool),
    /// A client's connection reaches the listener.
    Knock,
    /// A connection reaches the database.
    Call,
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

#[derive(Default)]
struct End {
    inbox: VecDeque<u8>,
    /// Sent to it and not yet in its inbox.
    coming: usize,
    /// The last of what was sent to it arrives then; nothing overtakes it.
    last: Time,
    /// The peer will send no more.
    fin: bool,
    reset: bool,
    open: bool,
    /// `Some(false)`: refused.
    answer: Option<bool>,
    /// It sends no more.
    shut: bool,
    closed: bool,
    /// The connection is one to this host of the database.
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
            on_the_way: BTreeMap::new(),
            sent: 0,
            backlog: VecDeque::new(),
            deaf: false,
            hosts: BTreeMap::new(),
            arrived: VecDeque::new(),
            news: BTreeSet::new(),
            withheld: Vec::new(),
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When something arrives next.
    pub fn next_at(&self) -> Option<Time> {
        self.lock().on_the_way.keys().next().map(|(at, _)| *at)
    }

    /// It is so late now: what has come meanwhile is there.
    pub fn advance(&self, now: Time) {
        self.lock().advance(now);
    }

    /// A client begins to connect to the listener; it may send at once.
    pub fn connect(&self) -> EndId {
        let mut state = self.lock();
        let end = state.wire(None);
        state.ends[end as usize].open = true;
        state.post(end + 1, Parcel::Knock);
        end
    }

    /// Whether a client waits at the listener to be accepted.
    pub fn is_knocked(&self) -> bool {
        !self.lock().backlog.is_empty()
    }

    /// A connection that has reached the database since this was asked last, and which of its hosts.
    pub fn accept(&self) -> Option<(EndId, HostId)> {
        let mut state = self.lock();
        let end = state.arrived.pop_front()?;
        Some((end, state.ends[end as usize].upstream.expect("it has reached the database")))
    }

    /// Ends outside of the reactors to which something has happened since this was asked last, in order.
    pub fn take_changed(&self) -> Vec<EndId> {
        std::mem::take(&mut self.lock().news).into_iter().collect()
    }

    /// Sends as much as the window takes; says how much. What is sent over a broken connection is lost.
    pub fn send(&self, end: EndId, bytes: &[u8]) -> usize {
        self.lock().send(end, bytes).unwrap_or(bytes.len())
    }

    /// What has come; at most so much of it.
    pub fn receive(&self, end: EndId, most: usize) -> Vec<u8> {
        let mut state = self.lock();
        let most = most.min(state.ends[end as usize].inbox.len());
        state.take(end, most)
    }

    /// How much there is to receive.
    pub fn readable(&self, end: EndId) -> usize {
        self.lock().ends[end as usize].inbox.len()
    }

    /// Nothing more will come: the peer has ended its side, or the connection is broken.
    pub fn is_over(&self, end: EndId) -> bool {
        let state = self.lock();
        let end = &state.ends[end as usize];
        end.inbox.is_empty() && (end.fin || end.reset)
    }

    /// The peer has closed, or sends no more: what it has sent may still be under way.
    pub fn has_peer_left(&self, end: EndId) -> bool {
        let state = self.lock();
        let peer = &state.ends[(end ^ 1) as usize];
        peer.closed || peer.shut
    }

    /// The connection was broken off.
    pub fn is_reset(&self, end: EndId) -> bool {
        self.lock().ends[end as usize].reset
    }

    pub fn close(&self, end: EndId) {
        self.lock().close(end);
    }

    /// Sends no more, and still receives.
    pub fn shut(&self, end: EndId) {
        self.lock().shut(end);
    }

    /// Breaks a connection off on both sides.
    pub fn reset(&self, end: EndId) {
        let mut state = self.lock();
        state.post(end, Parcel::Reset);
        state.post(end ^ 1, Parcel::Reset);
    }

    /// A host of the database is otherwise now. What a silent one withheld arrives when it speaks again.
    pub fn set_host(&self, id: HostId, host: Host) {
        self.lock().set_host(id, host);
    }
}

impl State {
    fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(entry) = self.on_the_way.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let (end, parcel) = entry.remove();
            let silent = self.ends[end as usize].upstream.is_some_and(|host| self.host(host) == Host::Silent);
            if silent && !matches!(parcel, Parcel::Answer(_)) {
                self.withheld.push((end, parcel));
            } else {
                self.deliver(end, parcel);
            }
        }
    }

    fn host(&self, id: HostId) -> Host {
        self.hosts.get(&id).copied().unwrap_or(Host::Accepts)
    }

    fn set_host(&mut self, id: HostId, host: Host) {
        self.hosts.insert(id, host);
        if host == Host::Silent {
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

    /// The listener is closed, and with it those who were not accepted.
    fn stop_listening(&mut self) {
        self.deaf = true;
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
            Parcel::Knock if self.deaf => return self.post(id ^ 1, Parcel::Reset),
            Parcel::Knock => {
                end.open = true;
                self.backlog.push_back(id);
            }
            Parcel::Call => {
                end.open = true;
                self.arrived.push_back(id);
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
        self.news.insert(id);
    }

    /// A connection with both of its ends.
    fn wire(&mut self, upstream: Option<HostId>) -> EndId {
        let id = u32::try_from(self.ends.len()).expect("a schedule has few connections");
        self.ends.push(End { upstream, ..End::default() });
        self.ends.push(End { upstream, ..End::default() });
        id
    }

    /// Begins to connect to a host of the database.
    fn dial(&mut self, host: HostId) -> EndId {
        let end = self.wire(Some(host));
        match self.host(host) {
            Host::Accepts => {
                self.post(end, Parcel::Answer(true));
                self.post(end + 1, Parcel::Call);
            }
            Host::Refuses => self.post(end, Parcel::Answer(false)),
            Host::Silent | Host::Unreachable => {}
        }
        end
    }

    fn post(&mut self, to: EndId, parcel: Parcel) {
        let delay = self.rng.around(self.conditions.delay);
        let end = &mut self.ends[to as usize];
        end.last = end.last.max(self.now + delay);
        if let Parcel::Bytes(bytes) = &parcel {
            end.coming += bytes.len();
        }
        self.sent += 1;
        self.on_the_way.insert((end.last, self.sent), (to, parcel));
    }

    /// How much of it was taken; `None` if the connection is broken.
    fn send(&mut self, from: EndId, bytes: &[u8]) -> Option<usize> {
        let end = &self.ends[from as usize];
        assert!(!end.closed && !end.shut, "only who has not closed sends");
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

    /// How much may be sent to this end now.
    fn room(&self, to: &End) -> usize {
        self.conditions.window.saturating_sub(to.inbox.len() + to.coming)
    }

    fn take(&mut self, from: EndId, most: usize) -> Vec<u8> {
        let end = &mut self.ends[from as usize];
        let bytes = end.inbox.drain(..most).collect();
        if most > 0 {
            // The window opens.
            self.news.insert(from ^ 1);
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
