//! Starting the workers, and their end.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

use protocol::Protocol;

use crate::{
    clock::Clock,
    config::{DriverConfig, ListenerSpec, Upstreams},
    handle::Handle,
    listener::Listener,
    mailbox::{Mailbox, Message},
    reactor::{Reactor, Seed},
    registry::Registry,
    resolver::Resolver,
    socket,
    throttle::Throttle,
    worker::{Board, Shared, TICK, Worker},
};

/// A running driver.
pub struct Driver {
    handle: Handle,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

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
                socket::prepare_listener(&spec.socket, spec.timeouts.client_idle)?;
            } else {
                rustix::io::ioctl_fionbio(&spec.socket, true)?;
            }
            rules.push(Listener::new(spec.name, spec.tcp, spec.gate, spec.timeouts, spec.tls));
            sockets.push(spec.socket);
        }
        let shared = Arc::new(Shared {
            protocol,
            board: (0..config.workers).map(|_| Board::new(rules.len())).collect(),
            throttle: Throttle::new(config.max_auth_failures),
            listeners: rules,
            registry: Registry::new(upstreams),
            mailboxes,
            resolver: Resolver::start(),
            clock: Clock::start(),
            draining: AtomicBool::new(false),
            leaving: AtomicBool::new(false),
            listening: AtomicUsize::new(sockets.len()),
            any_drained: AtomicBool::new(false),
            panics: AtomicU64::new(0),
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
        Ok(Self { handle: Handle::new(shared), threads })
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
        let meant = self.0.draining.load(SeqCst) || self.0.leaving.load(SeqCst);
        if std::thread::panicking() || !meant {
            self.0.tell_all(|| Message::Stop);
        }
    }
}
