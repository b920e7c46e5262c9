//! Starting the workers on threads and sockets, and their end.

use std::{io, os::fd::OwnedFd, sync::Arc, thread::JoinHandle};

use seam::Protocol;

use crate::{
    clock::Clock,
    config::{DriverConfig, ListenerSpec, Upstreams},
    handle::Handle,
    reactor::{
        Reactor,
        epoll::{Epoll, Seed},
    },
    shared::Shared,
    socket,
    worker::{TICK, Worker},
};

/// The name of the reactor that the workers of a [`Driver`] use.
pub const REACTOR: &str = Epoll::NAME;

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
        let mut seeds = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..config.workers {
            let (seed, waker) = Seed::new(TICK)?;
            seeds.push(seed);
            wakers.push(waker);
        }
        for spec in &listeners {
            if spec.tcp {
                for socket in &spec.sockets {
                    socket::prepare_listener(socket, spec.timeouts.client_idle, &config.tcp)?;
                }
            } else {
                for socket in &spec.sockets {
                    rustix::io::ioctl_fionbio(socket, true)?;
                }
            }
        }
        let (shared, sockets) = Shared::new(config, protocol, upstreams, listeners, wakers, Clock::start());
        let shared = Arc::new(shared);
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
        Ok(Self { handle: Handle::new(Arc::clone(&shared.process), shared), threads })
    }

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
fn work<P: Protocol>(
    number: u8,
    shared: Arc<Shared<P, Epoll>>,
    seed: Seed,
    sockets: Vec<(u32, OwnedFd)>,
) -> io::Result<()> {
    let config = &shared.process.config;
    let reactor = Epoll::new(seed, config.buffer_size).with_tcp_options(config.tcp);
    Worker::listening(number, shared, reactor, sockets)?.run()
}

/// Marks a worker as ended, however it ends.
struct Ended<P: Protocol>(Arc<Shared<P, Epoll>>, usize);

impl<P: Protocol> Drop for Ended<P> {
    fn drop(&mut self) {
        self.0.on_ended(self.1, std::thread::panicking());
    }
}
