//! Starting and steering the workers from outside.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Relaxed, SeqCst},
        },
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use protocol::Protocol;

use crate::{
    clock::Clock,
    config::{DriverConfig, ListenerSpec, Upstreams},
    listener::Listener,
    mailbox::{Mailbox, Message},
    reactor::{self, Reactor, Seed},
    registry::Registry,
    resolver::Resolver,
    snapshot::{ClientInfo, ServerInfo, Snapshot, WorkerSnapshot},
    socket,
    throttle::Throttle,
    worker::{Board, Shared, TICK, Worker},
};

/// How long an answer of a worker is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

/// A running driver.
pub struct Driver {
    handle: Handle,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// Watches and steers a driver from any thread.
#[derive(Clone)]
pub struct Handle(Arc<dyn Steering>);

impl Driver {
    /// Starts the workers. The sockets of `listeners` are bound and listening already.
    ///
    /// # Errors
    /// When a reactor or a thread cannot be made, or a socket cannot be watched.
    pub fn start<P: Protocol>(
        config: DriverConfig,
        protocol: Arc<P>,
        upstreams: Arc<dyn Upstreams>,
        listeners: Vec<ListenerSpec>,
    ) -> io::Result<Self> {
        assert!((1..=255).contains(&config.workers), "1 to 255 workers");
        let mut seeds = Vec::new();
        let mut mailboxes = Vec::new();
        for _ in 0..config.workers {
            let (seed, waker) = Seed::new(TICK)?;
            seeds.push(seed);
            mailboxes.push(Mailbox::new(waker));
        }
        let mut rules = Vec::new();
        let mut sockets = Vec::new();
        for spec in listeners {
            if spec.tcp {
                socket::prepare_listener(&spec.socket)?;
            } else {
                rustix::io::ioctl_fionbio(&spec.socket, true)?;
            }
            rules.push(Listener::new(spec.name, spec.tcp, spec.gate, spec.timeouts));
            sockets.push(spec.socket);
        }
        let shared = Arc::new(Shared {
            protocol,
            board: (0..config.workers).map(|_| Board::new(rules.len())).collect(),
            throttle: Throttle::new(config.max_auth_failures),
            listeners: rules,
            registry: Registry::new(upstreams),
            mailboxes,
            resolver: Resolver::start()?,
            clock: Clock::start(),
            draining: AtomicBool::new(false),
            config,
        });
        shared.registry.open_at_start(shared.clock.now());
        let mut threads = Vec::new();
        let mut sockets = Some(sockets);
        for (number, seed) in seeds.into_iter().enumerate() {
            let shared = Arc::clone(&shared);
            let sockets = sockets.take().unwrap_or_default();
            let run = move || {
                let _ended = Ended(Arc::clone(&shared), number);
                let result = work(number as u8, shared, seed, sockets);
                if let Err(error) = &result {
                    tracing::error!(%error, "a worker's reactor failed");
                }
                result
            };
            threads.push(std::thread::Builder::new().name(format!("worker-{number}")).spawn(run)?);
        }
        Ok(Self { handle: Handle(shared), threads })
    }

    /// To watch and steer it.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for all workers to end. False if one of them ended by a defect.
    pub fn join(self) -> bool {
        let failed = self.threads.into_iter().filter_map(|thread| match thread.join() {
            Ok(Ok(())) => None,
            _ => Some(()),
        });
        failed.count() == 0
    }
}

/// The life of one worker's thread.
fn work<P: Protocol>(number: u8, shared: Arc<Shared<P>>, seed: Seed, sockets: Vec<OwnedFd>) -> io::Result<()> {
    let reactor = Reactor::new(seed, shared.config.buffer_size);
    let mut worker = Worker::new(number, shared, reactor);
    for (listener, socket) in sockets.into_iter().enumerate() {
        worker.listen(listener as u32, socket)?;
    }
    worker.run()
}

/// Marks a worker as ended, however it ends.
struct Ended<P: Protocol>(Arc<Shared<P>>, usize);

impl<P: Protocol> Drop for Ended<P> {
    fn drop(&mut self) {
        self.0.board[self.1].ended.store(true, SeqCst);
        // The others cannot go on without it: its servers and its mail are gone.
        if std::thread::panicking() || !self.0.draining.load(SeqCst) {
            self.0.tell_all(|| Message::Stop);
        }
    }
}

impl Handle {
    /// Everything that is counted.
    pub fn snapshot(&self) -> Snapshot {
        self.0.snapshot()
    }

    /// Up to `limit` clients. Waits for the workers for up to 200 ms each.
    pub fn clients(&self, limit: usize) -> Vec<ClientInfo> {
        self.0.clients(limit)
    }

    /// Up to `limit` servers. Waits for the workers for up to 200 ms each.
    pub fn servers(&self, limit: usize) -> Vec<ServerInfo> {
        self.0.servers(limit)
    }

    /// Accepts nobody any more, sends idle clients away, lets transactions end; then the workers end.
    pub fn drain(&self) {
        self.0.drain();
    }

    /// Ends the workers at once.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Whether all workers have ended.
    pub fn is_drained(&self) -> bool {
        self.0.is_drained()
    }
}

/// What a handle can do, whatever the protocol.
trait Steering: Send + Sync {
    fn snapshot(&self) -> Snapshot;
    fn clients(&self, limit: usize) -> Vec<ClientInfo>;
    fn servers(&self, limit: usize) -> Vec<ServerInfo>;
    fn drain(&self);
    fn stop(&self);
    fn is_drained(&self) -> bool;
}

impl<P: Protocol> Shared<P> {
    fn tell_all(&self, message: impl Fn() -> Message<P>) {
        for mailbox in &self.mailboxes {
            mailbox.send(message());
        }
    }

    fn ask_all<T>(&self, limit: usize, question: impl Fn(SyncSender<Vec<T>>) -> Message<P>) -> Vec<T> {
        let (reply, answers) = sync_channel(self.mailboxes.len());
        self.tell_all(|| question(reply.clone()));
        let mut all = Vec::new();
        for _ in 0..self.mailboxes.len() {
            match answers.recv_timeout(PATIENCE) {
                Ok(answer) => all.extend(answer),
                Err(_) => break,
            }
        }
        all.truncate(limit);
        all
    }
}

impl<P: Protocol> Steering for Shared<P> {
    fn snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        let listeners = self.listeners.iter().enumerate().map(|(i, listener)| {
            let sum = |states: &[usize]| -> u64 {
                let of = |board: &Board| states.iter().map(|s| board.states[i][*s].load(Relaxed)).sum::<u64>();
                self.board.iter().map(of).sum()
            };
            let mut snapshot = listener.snapshot();
            snapshot.login = sum(&[0]);
            snapshot.idle = sum(&[1]);
            snapshot.waiting = sum(&[2]);
            snapshot.active = sum(&[3, 4]);
            snapshot
        });
        let workers = self.board.iter().map(|board| WorkerSnapshot {
            cpu: Duration::from_nanos(board.cpu_ns.load(Relaxed)),
            clients: board.clients.load(Relaxed),
            transactions: board.transactions.load(Relaxed),
            moves: board.moves.load(Relaxed),
        });
        Snapshot {
            listeners: listeners.collect(),
            pools: self.registry.all().iter().map(|pool| pool.snapshot(now)).collect(),
            workers: workers.collect(),
            auth_failures: self.throttle.failures(),
            reactor: reactor::NAME,
            draining: self.draining.load(Relaxed),
        }
    }

    fn clients(&self, limit: usize) -> Vec<ClientInfo> {
        self.ask_all(limit, |reply| Message::Clients { limit, reply })
    }

    fn servers(&self, limit: usize) -> Vec<ServerInfo> {
        self.ask_all(limit, |reply| Message::Servers { limit, reply })
    }

    fn drain(&self) {
        self.draining.store(true, SeqCst);
        self.tell_all(|| Message::Drain);
    }

    fn stop(&self) {
        self.tell_all(|| Message::Stop);
    }

    fn is_drained(&self) -> bool {
        self.board.iter().all(|board| board.ended.load(SeqCst))
    }
}
