//! What all workers share.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
};

use protocol::Protocol;

use crate::{
    client_state::STATES,
    clock::Clock,
    config::{DriverConfig, ListenerSpec, Upstreams},
    listener::Listener,
    mailbox::{Mailbox, Message},
    reactor::Reactor,
    registry::Registry,
    resolver::Resolver,
    throttle::Throttle,
};

/// See the file's head.
pub(crate) struct Shared<P: Protocol, R: Reactor> {
    pub(crate) protocol: Arc<P>,
    pub(crate) config: DriverConfig,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) registry: Registry,
    pub(crate) mailboxes: Vec<Mailbox<P, R>>,
    pub(crate) board: Vec<Board>,
    pub(crate) throttle: Throttle,
    pub(crate) resolver: Resolver,
    pub(crate) clock: Clock,
    pub(crate) draining: AtomicBool,
    /// Another process listens now.
    pub(crate) leaving: AtomicBool,
    /// Sockets that a worker still accepts from: until there is none, each worker may get clients.
    pub(crate) listening: AtomicUsize,
    /// The clients of some database are to go.
    pub(crate) any_drained: AtomicBool,
    /// Calls into sessions that panicked.
    pub(crate) panics: AtomicU64,
}

impl<P: Protocol, R: Reactor> Shared<P, R> {
    /// What the workers share whom these wake, one each; and the sockets on which they listen.
    pub(crate) fn new(
        config: DriverConfig,
        protocol: Arc<P>,
        upstreams: Arc<dyn Upstreams>,
        listeners: Vec<ListenerSpec<R::Socket>>,
        wakers: Vec<R::Waker>,
        clock: Clock,
    ) -> (Self, Vec<R::Socket>) {
        assert!((1..=255).contains(&config.workers), "1 to 255 workers");
        assert_eq!(wakers.len(), config.workers, "each worker is woken by its own");
        let listening = |(number, spec)| Listener::new(spec, protocol.client_rules(number));
        let (rules, sockets): (Vec<_>, Vec<_>) = (0..).zip(listeners).map(listening).unzip();
        let shared = Self {
            protocol,
            board: (0..config.workers).map(|_| Board::new(rules.len())).collect(),
            throttle: Throttle::new(config.max_auth_failures),
            listeners: rules,
            registry: Registry::new(upstreams, config.workers),
            mailboxes: wakers.into_iter().map(Mailbox::new).collect(),
            resolver: Resolver::start(),
            clock,
            draining: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            listening: AtomicUsize::new(sockets.len()),
            any_drained: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            config,
        };
        shared.registry.open_at_start(shared.clock.now());
        (shared, sockets)
    }

    /// A worker has ended, meant or not.
    pub(crate) fn on_ended(&self, number: usize, failed: bool) {
        self.board[number].ended.store(true, SeqCst);
        // The others cannot go on without it: its servers and its mail are gone.
        let meant = self.draining.load(SeqCst) || self.leaving.load(SeqCst);
        if failed || !meant {
            self.tell_all(|| Message::Stop);
        }
    }
}

/// What one worker publishes for everybody: written by it alone, once per turn of its loop.
pub(crate) struct Board {
    /// Clients it serves or will serve; the acceptor adds, the worker subtracts.
    pub(crate) clients: AtomicU64,
    pub(crate) transactions: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) cpu_ns: AtomicU64,
    /// Per listener: clients by state.
    pub(crate) states: Vec<[AtomicU64; STATES]>,
    /// Per listener: since when its longest idle client has been idle.
    pub(crate) oldest_idle: Vec<AtomicU64>,
    pub(crate) ended: AtomicBool,
}

impl Board {
    pub(crate) fn new(listeners: usize) -> Self {
        Self {
            clients: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            cpu_ns: AtomicU64::new(0),
            states: (0..listeners).map(|_| Default::default()).collect(),
            oldest_idle: (0..listeners).map(|_| AtomicU64::new(u64::MAX)).collect(),
            ended: AtomicBool::new(false),
        }
    }
}
