//! What all workers know of a listener: its gate, its rules and its counts. Knows no protocol.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use std::{net::IpAddr, time::Duration};

use pool::{Gate, GateConfig, Time};
use seam::ClientRules;

use crate::{
    client_total::ClientTotal,
    config::{ListenerSpec, Timeouts},
    evictions::Evictions,
    lobby::{Displaced, Lobby, LobbyClient, Monitoring, Net},
    network::Network,
    snapshot::ListenerSnapshot,
    tls::TlsAcceptor,
};

/// Clients that may wait for a place at a time.
pub(crate) const MAX_NEWCOMERS: usize = 256;

/// Clients above the hard limit that may be here at a time, only to be told that there is no room.
pub(crate) const MAX_SURPLUS: u64 = 256;

/// Clients that may be here at a time only to be told that other clients have got their places.
const MAX_DISPLACED: u64 = 256;

/// Why clients are sent away, as labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SentAway {
    Evicted,
    IdleTimeout,
    LoginTimeout,
    QueryTimeout,
    TransactionIdleTimeout,
    ShuttingDown,
    Drained,
    Crowded,
    Disabled,
    TransactionTimeout,
    ServerReplaced,
}

impl SentAway {
    pub(crate) fn label(self) -> &'static str {
        SENT_AWAY_LABELS[self as usize]
    }
}

const SENT_AWAY_LABELS: [&str; 11] = [
    "soft_limit",
    "client_idle_time",
    "login_time",
    "query_time",
    "transaction_idle_time",
    "shutdown",
    "drain",
    "not_logged_in",
    "disabled",
    "transaction_time",
    "fast_close",
];

pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) protocol: &'static str,
    pub(crate) tcp: bool,
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    /// Proxies there tell first whom they speak for.
    proxies: Vec<Network>,
    /// The rules that the protocol of its clients asks for.
    pub(crate) client_rules: ClientRules,
    /// The time-out that sockets inherit from the listening socket.
    pub(crate) user_timeout: Duration,
    gate: Mutex<Gate>,
    /// The clients of all listeners.
    total: Arc<ClientTotal>,
    /// Not read where bytes are relayed.
    rules: RwLock<(GateConfig, Timeouts)>,
    /// Clients that are being told that there is no room.
    pub(crate) surplus: AtomicU64,
    /// Clients that are being told that other clients have their places.
    displaced: AtomicU64,
    /// Clients that wait for a place.
    pub(crate) newcomers: AtomicUsize,
    lobby: Mutex<Lobby>,
    accepted: AtomicU64,
    logins: AtomicU64,
    rejected: AtomicU64,
    throttled: AtomicU64,
    accepts_failed: AtomicU64,
    sent_away: [AtomicU64; SENT_AWAY_LABELS.len()],
    /// Clients that were sent away and never ended their side of the connection.
    unanswered: [AtomicU64; SENT_AWAY_LABELS.len()],
    evictions: Mutex<Evictions>,
    /// How often clients came back as fast as they were evicted.
    loops: AtomicU64,
}

impl Listener {
    /// A listener as configured, and its sockets.
    pub(crate) fn new<S>(
        spec: ListenerSpec<S>,
        client_rules: ClientRules,
        total: Arc<ClientTotal>,
        user_timeout: Duration,
    ) -> (Self, Vec<S>) {
        let ListenerSpec { name, protocol, sockets, tcp, gate: limits, timeouts, tls, proxies } = spec;
        let listener = Self {
            name,
            protocol,
            tcp,
            tls,
            proxies,
            client_rules,
            user_timeout,
            gate: Mutex::new(Gate::new(limits)),
            total,
            rules: RwLock::new((limits, timeouts)),
            surplus: AtomicU64::new(0),
            displaced: AtomicU64::new(0),
            newcomers: AtomicUsize::new(0),
            lobby: Mutex::default(),
            accepted: AtomicU64::new(0),
            logins: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            accepts_failed: AtomicU64::new(0),
            sent_away: Default::default(),
            unanswered: Default::default(),
            evictions: Mutex::default(),
            loops: AtomicU64::new(0),
        };
        (listener, sockets)
    }

    /// Whether a connection from this address begins with a header of the PROXY protocol.
    pub(crate) fn takes_proxy_header(&self, address: IpAddr) -> bool {
        self.proxies.iter().any(|network| network.contains(address))
    }

    pub(crate) fn limits(&self) -> GateConfig {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Puts other rules in force, also for clients that are here.
    pub(crate) fn reconfigure(&self, limits: GateConfig, timeouts: Timeouts) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = (limits, timeouts);
        self.gate().reconfigure(limits);
    }

    /// The most clients that may be here, and the setting that says so.
    pub(crate) fn client_limit(&self) -> (u32, &'static str) {
        let (own, of_all) = (self.limits().hard_limit, self.total.limit());
        if of_all < own { (of_all, "max_clients") } else { (own, "hard_limit") }
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The clients that have not logged in. Held for one call only; taken before the gate if both are needed.
    fn lobby(&self) -> MutexGuard<'_, Lobby> {
        self.lobby.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has come in, and has not logged in.
    pub(crate) fn enter_lobby(&self, client: LobbyClient, net: Net, now: Time) {
        self.lobby().enter(client, net, now);
    }

    /// A client has logged in, or goes. False if another client has got its place.
    pub(crate) fn leave_lobby(&self, client: LobbyClient) -> bool {
        let mut lobby = self.lobby();
        let was_there = lobby.leave(client);
        let mut gate = self.gate();
        gate.set_monitors(lobby.monitor_count());
        if was_there {
            gate.note_login();
        }
        was_there
    }

    /// A client that has not logged in wants to be a monitor. Half of these clients may.
    pub(crate) fn begin_monitoring(&self, client: LobbyClient, now: Time) -> Monitoring {
        let most = (self.limits().hard_limit / 2).max(1) as usize;
        let mut lobby = self.lobby();
        let monitoring = lobby.begin_monitoring(client, most, now);
        self.gate().set_monitors(lobby.monitor_count());
        monitoring
    }

    /// A client is a monitor no longer, and is to log in.
    pub(crate) fn end_monitoring(&self, client: LobbyClient, now: Time) {
        let mut lobby = self.lobby();
        lobby.end_monitoring(client, now);
        self.gate().set_monitors(lobby.monitor_count());
    }

    /// Whether a new client is admitted, and which client loses its place to it, if any: that client is to be told, and
    /// [`displaced_left`](Self::displaced_left) called when it has gone.
    pub(crate) fn admit(&self, net: Net, now: Time) -> (bool, Option<Displaced>) {
        let (admitted, crowded, over) = {
            let mut gate = self.gate();
            let admitted = self.take_place(&mut gate, Gate::admit);
            let over = gate.clients() > gate.config().hard_limit || self.total.is_over();
            (admitted, gate.evictions_wanted() > 0, over)
        };
        let mut welcome = admitted;
        let mut displaced = None;
        if !admitted || crowded {
            displaced = self.displace(net, !admitted, now);
            if displaced.is_some() {
                // At the hard limit the newcomer takes the place of the one that goes, unless there are more clients
                // than there may be, as after a reload: then the place is gone. Below the limit the newcomer has got a
                // place of its own as well.
                welcome |= !over;
                if admitted || over {
                    self.unauthenticated_left();
                }
            }
        }
        self.accepted.fetch_add(u64::from(welcome), Relaxed);
        (welcome, displaced)
    }

    /// Takes a place at the gate, and one among the clients of all listeners. False if it lacks either.
    fn take_place(&self, gate: &mut Gate, take: fn(&mut Gate) -> bool) -> bool {
        let among_all = self.total.try_take();
        let taken = among_all && take(gate);
        if among_all && !taken {
            self.total.give_back();
        }
        taken
    }

    /// There is no place for a client. True if it is let in to be told so: [`MAX_SURPLUS`] clients at a time are, and
    /// all clients that have waited in vain.
    pub(crate) fn turn_away(&self, waited: bool) -> bool {
        self.rejected.fetch_add(1, Relaxed);
        let most = if waited { MAX_SURPLUS + MAX_NEWCOMERS as u64 } else { MAX_SURPLUS };
        let told = self.surplus.fetch_add(1, Relaxed) < most;
        if !told {
            self.surplus.fetch_sub(1, Relaxed);
        }
        told
    }

    /// The client that gets the next place, among those that wait: the first whose address has fewest clients that have
    /// not logged in.
    pub(crate) fn next_of(&self, newcomers: impl Iterator<Item = Net>) -> Option<usize> {
        let lobby = self.lobby();
        newcomers.enumerate().min_by_key(|(number, net)| (lobby.logins_of(*net), *number)).map(|(number, _)| number)
    }

    /// If there are more clients than the soft limit: a client whose login takes too long, and which is to be told that
    /// it goes.
    pub(crate) fn displace_slow(&self, now: Time) -> Option<Displaced> {
        if !self.reserve_eviction() {
            return None;
        }
        let displaced = self.displace(None, false, now);
        self.cancel_eviction();
        if displaced.is_some() {
            self.unauthenticated_left();
        }
        displaced
    }

    fn displace(&self, net: Net, full: bool, now: Time) -> Option<Displaced> {
        let displaced = if self.displaced.fetch_add(1, Relaxed) < MAX_DISPLACED {
            self.lobby().make_room(net, full, now)
        } else {
            None
        };
        if displaced.is_none() {
            self.displaced_left();
        }
        displaced
    }

    /// Reserves an eviction, if there are more clients than the soft limit: one of them is about to be evicted.
    pub(crate) fn reserve_eviction(&self) -> bool {
        self.gate().reserve_eviction()
    }

    /// How many clients are to be evicted.
    pub(crate) fn evictions_wanted(&self) -> u32 {
        self.gate().evictions_wanted()
    }

    /// Gives up the eviction that [`reserve_eviction`](Self::reserve_eviction) has reserved: the client stays.
    pub(crate) fn cancel_eviction(&self) {
        self.gate().cancel_eviction();
    }

    /// A client leaves for which no eviction was reserved, and is here for a while yet.
    pub(crate) fn note_leaving(&self) {
        self.gate().note_leaving();
    }

    /// An admitted client has gone. `leaving`: it was counted among the clients that leave.
    pub(crate) fn left(&self, leaving: bool) {
        self.gate().left(leaving);
        self.total.give_back();
    }

    /// An admitted client that has not logged in has gone, or another client has its place.
    pub(crate) fn unauthenticated_left(&self) {
        let mut gate = self.gate();
        gate.note_login();
        gate.left(false);
        self.total.give_back();
    }

    /// A client has gone that had lost its place to another.
    pub(crate) fn displaced_left(&self) {
        self.displaced.fetch_sub(1, Relaxed);
    }

    /// A client has logged in before it heard that another has got its place. It stays if there is another place.
    pub(crate) fn readmit(&self) -> bool {
        let readmitted = self.take_place(&mut self.gate(), Gate::readmit);
        if readmitted {
            self.displaced_left();
        }
        readmitted
    }

    pub(crate) fn count_login(&self) {
        self.logins.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_accept_failed(&self) {
        self.accepts_failed.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_sent_away(&self, why: SentAway) {
        self.sent_away[why as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_unanswered(&self, why: SentAway) {
        self.unanswered[why as usize].fetch_add(1, Relaxed);
    }

    /// A client of this age is evicted. True, once in a while, if clients come back as fast as they are evicted.
    pub(crate) fn record_eviction(&self, age: Duration, now: Time) -> bool {
        let found = self.evictions.lock().unwrap_or_else(PoisonError::into_inner).note(age, now);
        self.loops.fetch_add(u64::from(found), Relaxed);
        found
    }

    /// The counts that do not depend on a worker.
    pub(crate) fn snapshot(&self) -> ListenerSnapshot {
        let limits = self.limits();
        let by_reason = |counts: &[AtomicU64; SENT_AWAY_LABELS.len()]| {
            SENT_AWAY_LABELS.iter().zip(counts).map(|(name, n)| (*name, n.load(Relaxed))).collect()
        };
        ListenerSnapshot {
            name: self.name.clone(),
            protocol: self.protocol,
            accepted: self.accepted.load(Relaxed),
            logins: self.logins.load(Relaxed),
            rejections: vec![
                ("hard_limit", self.rejected.load(Relaxed)),
                ("auth_failures", self.throttled.load(Relaxed)),
            ],
            evictions: by_reason(&self.sent_away),
            unanswered: by_reason(&self.unanswered),
            eviction_loops: self.loops.load(Relaxed),
            accepts_failed: self.accepts_failed.load(Relaxed),
            limits: (limits.soft_limit, limits.hard_limit),
            ..ListenerSnapshot::default()
        }
    }
}
