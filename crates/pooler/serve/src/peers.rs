//! Hands cancel requests on to the processes behind the same address whose keys they carry. This is the only place that
//! knows how. It runs on the admin thread, so that no worker waits for a peer: sessions hand requests over, and take
//! the clients whose requests have been dealt with.
//!
//! Of each peer as many connections are open at a time as its `max_size` says; further requests wait for their turn,
//! within the time that each has in all.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{
            AtomicU64, AtomicUsize,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use driver::{Address, Pace, resolver::Resolver};
use pool::Time;
use postgres_session::{CancelDealtWith, ForeignCancel};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    runtime::Handle,
    sync::{Semaphore, oneshot},
};

use crate::{
    config::{Config, Peer},
    outcomes::Outcomes,
};

/// Requests that may be on their way or wait at a time, for all peers together. One that comes beyond it is dropped.
const MAX_REQUESTS: usize = 10_000;

/// Bytes of an answer that are read at a time. A peer answers nothing: the end of its connection says that it is done.
const ANSWER_BYTES: usize = 64;

/// The peers of a process.
pub struct Peers {
    runtime: Handle,
    resolver: Arc<Resolver>,
    /// The number of this process.
    own: u16,
    known: RwLock<BTreeMap<u16, Arc<Link>>>,
    /// Requests for nodes that are no peers, or beyond [`MAX_REQUESTS`].
    dropped: AtomicU64,
    log: Arc<PacedLog>,
    requests: Arc<AtomicUsize>,
    dealt_with: Arc<Outcomes<CancelDealtWith>>,
}

/// A peer, and what has been handed on to it.
struct Link {
    peer: Peer,
    /// How long a request may take in all.
    timeout: Duration,
    places: Semaphore,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    waiting: AtomicUsize,
    connecting: AtomicUsize,
    under_way: AtomicUsize,
    delivered: AtomicU64,
    failed: AtomicU64,
}

/// What is shown of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerStatus {
    pub node: u16,
    /// Requests that wait for a connection.
    pub waiting: usize,
    /// Connections that are being made.
    pub connecting: usize,
    /// Requests that have been sent and are not answered.
    pub under_way: usize,
    /// Requests that the peer has dealt with.
    pub delivered: u64,
    pub failed: u64,
}

/// Warnings, of which a flood of requests writes a few a second.
struct PacedLog {
    began: Instant,
    pace: Mutex<Pace>,
}

impl Default for PacedLog {
    fn default() -> Self {
        Self { began: Instant::now(), pace: Mutex::default() }
    }
}

impl PacedLog {
    fn warn(&self, message: &str) {
        let now = Time(self.began.elapsed().as_nanos() as u64);
        let withheld = self.pace.lock().unwrap_or_else(PoisonError::into_inner).take_line(now);
        if let Some(withheld) = withheld {
            tracing::warn!(withheld, "{message}");
        }
    }
}

/// Whether nothing but the place in the file has changed of a peer. Then it keeps its connections, and their limit.
fn is_same(before: &Peer, now: &Peer) -> bool {
    (before.node, &before.address, before.max_size) == (now.node, &now.address, now.max_size)
}

impl Peers {
    /// The peers of a configuration, reached with the help of this runtime.
    pub fn new(config: &Config, runtime: Handle) -> Self {
        let peers = Self {
            runtime,
            resolver: Arc::new(Resolver::start()),
            own: config.serve.node_id,
            known: RwLock::default(),
            dropped: AtomicU64::new(0),
            log: Arc::default(),
            requests: Arc::default(),
            dealt_with: Arc::default(),
        };
        peers.follow(config);
        peers
    }

    /// Takes over the peers of a configuration. Requests that are on their way go on. What was counted of a peer stays.
    pub fn follow(&self, config: &Config) {
        self.resolver.set_failure_ttl(config.dns.failure_ttl);
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        let others = config.peers.iter().filter(|peer| peer.node != self.own);
        let links = others.map(|peer| {
            let before = known.get(&peer.node);
            let timeout = config.pool.cancel_wait_time;
            let link = match before {
                Some(link) if is_same(&link.peer, peer) && link.timeout == timeout => Arc::clone(link),
                _ => Arc::new(Link {
                    peer: peer.clone(),
                    timeout,
                    places: Semaphore::new(peer.max_size as usize),
                    counts: before.map(|link| Arc::clone(&link.counts)).unwrap_or_default(),
                }),
            };
            (peer.node, link)
        });
        *known = links.collect();
    }

    /// Hands a request on; does not block.
    pub fn hand_on(&self, cancel: ForeignCancel) {
        let ForeignCancel { client, serial, node, request } = cancel;
        let waits = CancelDealtWith { client, serial };
        let link = self.known.read().unwrap_or_else(PoisonError::into_inner).get(&node).cloned();
        let Some(link) = link else {
            self.drop_request(waits);
            return self.log.warn(&format!(
                "a cancel request for node {node} came to node {}: it is dropped, because no [[peer]] is that node",
                self.own
            ));
        };
        if self.requests.fetch_add(1, SeqCst) >= MAX_REQUESTS {
            self.requests.fetch_sub(1, SeqCst);
            self.drop_request(waits);
            return self.log.warn(&format!("{MAX_REQUESTS} cancel requests wait for peers: this one is dropped"));
        }
        let (requests, dealt_with) = (Arc::clone(&self.requests), Arc::clone(&self.dealt_with));
        let (resolver, log) = (Arc::clone(&self.resolver), Arc::clone(&self.log));
        self.runtime.spawn(async move {
            let outcome = tokio::time::timeout(link.timeout, link.deliver(&request, &resolver)).await;
            let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("it takes longer than cancel_wait_time")));
            match outcome {
                Ok(()) => link.counts.delivered.fetch_add(1, Relaxed),
                Err(error) => {
                    let address = &link.peer.address;
                    log.warn(&format!("a cancel request was not handed on to peer {node} at {address}: {error}"));
                    link.counts.failed.fetch_add(1, Relaxed)
                }
            };
            requests.fetch_sub(1, SeqCst);
            dealt_with.note(waits);
        });
    }

    fn drop_request(&self, waits: CancelDealtWith) {
        self.dropped.fetch_add(1, Relaxed);
        self.dealt_with.note(waits);
    }

    /// Takes the clients whose requests have been dealt with, well or not.
    pub fn dealt_with(&self) -> Vec<CancelDealtWith> {
        self.dealt_with.take()
    }

    /// Each peer but this process itself, in the order of their numbers.
    pub fn status(&self) -> Vec<PeerStatus> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|link| link.status()).collect()
    }

    /// Requests that were handed on to no peer.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }
}

/// One in a count for as long as it is there.
struct Counted<'c>(&'c AtomicUsize);

impl<'c> Counted<'c> {
    fn one(count: &'c AtomicUsize) -> Self {
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Link {
    fn status(&self) -> PeerStatus {
        let Counts { waiting, connecting, under_way, delivered, failed } = &*self.counts;
        PeerStatus {
            node: self.peer.node,
            waiting: waiting.load(Relaxed),
            connecting: connecting.load(Relaxed),
            under_way: under_way.load(Relaxed),
            delivered: delivered.load(Relaxed),
            failed: failed.load(Relaxed),
        }
    }

    /// Sends a request, and returns when the peer has dealt with it.
    async fn deliver(&self, request: &[u8], resolver: &Resolver) -> io::Result<()> {
        let waiting = Counted::one(&self.counts.waiting);
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        drop(waiting);
        let connecting = Counted::one(&self.counts.connecting);
        match &self.peer.address {
            // A path that begins with a zero byte is an abstract name.
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await?;
                drop(connecting);
                self.send(stream, request).await
            }
            Address::Tcp { host, port } => {
                let stream = connect(resolve(resolver, host, *port).await?).await?;
                drop(connecting);
                self.send(stream, request).await
            }
        }
    }

    async fn send(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &[u8]) -> io::Result<()> {
        let _under_way = Counted::one(&self.counts.under_way);
        stream.write_all(request).await?;
        let mut answer = [0; ANSWER_BYTES];
        while stream.read(&mut answer).await? > 0 {}
        Ok(())
    }
}

async fn resolve(resolver: &Resolver, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = oneshot::channel();
    resolver.resolve(host, port, move |(found, _)| drop(tell.send(found)));
    told.await.map_err(io::Error::other)?.map_err(io::Error::other)
}

/// Connects to the first address that lets it.
async fn connect(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the name has no address");
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}
