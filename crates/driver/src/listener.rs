//! What all workers know of a listener: its gate, its rules and its counts. Knows no protocol.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use std::time::Duration;

use pool::{Admission, Gate, GateConfig, Time};
use protocol::ClientRules;

use crate::{
    config::{ListenerSpec, Timeouts},
    evictions::Evictions,
    lobby::{Displaced, Lobby, Net},
    snapshot::ListenerSnapshot,
    socket,
    tls::TlsAcceptor,
};

/// Clients above the hard limit that are let in for the moment it takes to tell them so.
pub(crate) const MAX_SURPLUS: u64 = 256;

/// Clients whose places others have by now, and which are still here for the moment it takes to tell them so.
const MAX_GIVING_WAY: u64 = 256;

/// Why clients are sent away, as labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    Evicted,
    IdleTimeout,
    LoginTimeout,
    QueryTimeout,
    TransactionIdleTimeout,
    ShuttingDown,
    Drained,
    Crowded,
}

const EVICTIONS: [&str; 8] = [
    "soft_limit",
    "client_idle_time",
    "login_time",
    "query_time",
    "transaction_idle_time",
    "shutdown",
    "drain",
    "not_logged_in",
];

/// See the file's head.
pub(crate) struct Listener {
    pub(crate) name: String,
    pub(crate) protocol: &'static str,
    pub(crate) tcp: bool,
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    /// What its clients speak asks for these.
    pub(crate) client_rules: ClientRules,
    /// What its clients' sockets begin with.
    pub(crate) patience: Duration,
    gate: Mutex<Gate>,
    /// Read where time passes and where clients come, never where bytes do.
    rules: RwLock<(GateConfig, Timeouts)>,
    /// Clients that are being told that there is no room.
    pub(crate) surplus: AtomicU64,
    /// Clients that are being told that others have their places.
    giving_way: AtomicU64,
    lobby: Mutex<Lobby>,
    accepted: AtomicU64,
    logins: AtomicU64,
    rejected: AtomicU64,
    throttled: AtomicU64,
    sent_away: [AtomicU64; EVICTIONS.len()],
    /// Those of them whose side of the connection never ended.
    unanswered: [AtomicU64; EVICTIONS.len()],
    evictions: Mutex<Evictions>,
    /// How often clients were seen to come back as fast as they were evicted.
    loops: AtomicU64,
}

impl Listener {
    /// One as it was configured, and what it listens on.
    pub(crate) fn new<S>(spec: ListenerSpec<S>, client_rules: ClientRules) -> (Self, S) {
        let ListenerSpec { name, protocol, socket, tcp, gate: limits, timeouts, tls } = spec;
        let listener = Self {
            name,
            protocol,
            tcp,
            tls,
            client_rules,
            patience: socket::patience(timeouts.client_idle),
            gate: Mutex::new(Gate::new(limits)),
            rules: RwLock::new((limits, timeouts)),
            surplus: AtomicU64::new(0),
            giving_way: AtomicU64::new(0),
            lobby: Mutex::default(),
            accepted: AtomicU64::new(0),
            logins: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            sent_away: Default::default(),
            unanswered: Default::default(),
            evictions: Mutex::default(),
            loops: AtomicU64::new(0),
        };
        (listener, socket)
    }

    pub(crate) fn limits(&self) -> GateConfig {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).0
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Other rules from now on, for those who are here as well.
    pub(crate) fn reconfigure(&self, limits: GateConfig, timeouts: Timeouts) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = (limits, timeouts);
        self.gate().reconfigure(limits);
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Who has not logged in. To be held for one call.
    pub(crate) fn lobby(&self) -> MutexGuard<'_, Lobby> {
        self.lobby.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client asks to come in. Also says whose place it gets, if it gets somebody's: that one is to be told, and has
    /// [given way](Self::gave_way) when it is gone.
    pub(crate) fn admit(&self, net: impl FnOnce() -> Net, now: Time) -> (Admission, Option<Displaced>) {
        let (mut admission, over) = {
            let mut gate = self.gate();
            (gate.admit(), gate.clients() > gate.config().hard_limit)
        };
        let mut displaced = None;
        if admission != Admission::Accept {
            let full = admission == Admission::Reject;
            displaced = self.displace(net(), full, now);
            if displaced.is_some() {
                // The newcomer takes the place of the one that goes; or nobody does, where there are more clients than there may be, as
                // after a reload. Below the hard limit the newcomer has got a place of its own as well.
                if !(full && over) {
                    admission = Admission::Accept;
                }
                if !full || over {
                    self.left();
                }
            }
        }
        let counted = if admission == Admission::Reject { &self.rejected } else { &self.accepted };
        counted.fetch_add(1, Relaxed);
        (admission, displaced)
    }

    fn displace(&self, net: Net, full: bool, now: Time) -> Option<Displaced> {
        let displaced = if self.giving_way.fetch_add(1, Relaxed) < MAX_GIVING_WAY {
            self.lobby().make_room(net, full, now)
        } else {
            None
        };
        if displaced.is_none() {
            self.gave_way();
        }
        displaced
    }

    /// An admitted client has gone.
    pub(crate) fn left(&self) {
        self.gate().left();
    }

    /// A client has gone whose place another has.
    pub(crate) fn gave_way(&self) {
        self.giving_way.fetch_sub(1, Relaxed);
    }

    /// A client whose place another has got has logged in before it heard of that: it stays.
    pub(crate) fn readmit(&self) {
        self.gave_way();
        self.gate().readmit();
    }

    pub(crate) fn count_login(&self) {
        self.logins.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    pub(crate) fn count_sent_away(&self, why: Sent) {
        self.sent_away[why as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn count_unanswered(&self, why: Sent) {
        self.unanswered[why as usize].fetch_add(1, Relaxed);
    }

    /// A client that was here for so long is evicted. True if clients come back as fast as that happens, now and then.
    pub(crate) fn is_eviction_loop(&self, age: Duration, now: Time) -> bool {
        let found = self.evictions.lock().unwrap_or_else(PoisonError::into_inner).note(age, now);
        self.loops.fetch_add(u64::from(found), Relaxed);
        found
    }

    /// The counts that do not depend on a worker.
    pub(crate) fn snapshot(&self) -> ListenerSnapshot {
        let limits = self.limits();
        let by_reason = |counts: &[AtomicU64; EVICTIONS.len()]| {
            EVICTIONS.iter().zip(counts).map(|(name, n)| (*name, n.load(Relaxed))).collect()
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
            limits: (limits.soft_limit, limits.hard_limit),
            ..ListenerSnapshot::default()
        }
    }
}
