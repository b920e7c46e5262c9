//! How threads talk to a worker: a queue and, if it sleeps, a knock. Knows no sockets.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc::SyncSender,
    },
    time::Duration,
};

use pool::{Action, CheckOutFailed, Grant, ServerId, Time};
use seam::{ClientTag, Peer, PoolId, Protocol};

use crate::{
    config::Address,
    orders::DatabaseName,
    reactor::{Reactor, Wake},
    registry::Demand,
    shared_pool::SharedPool,
    snapshot::{ClientFilter, ClientInfo, ServerInfo},
};

/// What a worker can be told. A mailbox has no limit of its own, because what cannot be told would be lost: each
/// message stands for a client (bounded by `hard_limit`, `MAX_SURPLUS` and `MAX_NEWCOMERS`; one has one lease request,
/// one cancel request or one survey under way, loses its place once, and ends monitoring once for each time it began),
/// for a server's slot in its pool (`max_size`, and `MAX_LOOKUPS` of the resolver), for the end of a pool, or for a
/// request of an operator, who waits for the answer; posts have `MAX_POSTED`.
pub(crate) enum Message<P: Protocol, R: Reactor> {
    /// A client that this worker shall serve.
    Client { accepted: Accepted<R::Socket>, listener: u32, admission: Admission },
    /// A server for a client of this worker.
    Server(Box<MovingServer<P, R>>, Grant),
    /// An idle server that lives here was granted to a client of another worker: send it there.
    Bring(PoolId, Grant),
    /// A server that was granted to a client of this worker has died on the way.
    GrantLost(PoolId, Grant),
    /// A waiter of this worker fails.
    Failed { pool: Arc<SharedPool>, waiter: pool::WaiterId, reason: CheckOutFailed, waited: Duration },
    /// A host name was resolved for one of this worker's dials.
    Resolved { lookup: DialLookup, result: Result<Vec<SocketAddr>, String>, took: Duration },
    /// Cancel what a client of this worker is doing.
    Cancel { asker: Asker, target: CancelTarget },
    /// What a client of this worker asked to cancel has been dealt with.
    CancelDone(Asker),
    /// A post from a session of another worker.
    Post(Post),
    /// Ask the clients here, and pass the question on.
    Survey(Box<Survey>),
    /// The answers to a survey of a client of this worker.
    SurveyDone(Box<Survey>),
    /// Another client has got the place of this one, the first of the clients of its address that have not logged in.
    Displaced { client: ClientKey, of_its_address: usize },
    /// Another client is a monitor instead of this one, the first of the monitors of its address.
    EndMonitoring { client: ClientKey, of_its_address: usize },
    /// Something that any thread of the process can ask for.
    Command(Command),
}

/// What a worker can be told by code that knows neither its protocol nor its reactor.
pub(crate) enum Command {
    /// Something the pool wants done where the server lives.
    Act(Arc<SharedPool>, Action),
    /// A pool is forgotten: there is nothing of it any more.
    Forget(PoolId),
    /// The budget wants something of a pool.
    Meet(Demand),
    /// List up to `limit` of these clients.
    Clients {
        which: ClientFilter,
        limit: usize,
        reply: SyncSender<Vec<ClientInfo>>,
    },
    /// List up to `limit` servers.
    Servers {
        limit: usize,
        reply: SyncSender<Vec<ServerInfo>>,
    },
    /// Add the counts of traffic to those of the pools.
    PublishTraffic {
        reply: SyncSender<Vec<()>>,
    },
    /// Close a client, and say whether there was one.
    Kill {
        client: u64,
        reply: SyncSender<bool>,
    },
    /// Close the clients of a database, or of all.
    KillClientsOf(Option<DatabaseName>),
    /// Accept no more clients, and end when the last one has gone.
    Leave,
    /// Send clients away one after the other, the last of them after this time.
    DrainOver(Duration),
    /// Accept no more clients, send idle clients away, and end when the last one has gone.
    Drain,
    Stop,
}

/// All workers, for code that knows neither their protocol nor their reactor.
pub(crate) trait Workers: Send + Sync {
    /// Tells one of them something.
    fn command(&self, worker: usize, command: Command);
}

/// A server on its way to another worker.
pub(crate) struct MovingServer<P: Protocol, R: Reactor> {
    pub(crate) session: P::Server,
    pub(crate) connection: R::Moved,
    pub(crate) pool: Arc<SharedPool>,
    pub(crate) id: ServerId,
    pub(crate) address: Address,
    pub(crate) soiled: bool,
    pub(crate) born: Time,
}

/// A client of one worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientKey {
    pub(crate) slot: u32,
    /// Tells the client from others that had the same slot.
    pub(crate) serial: u32,
}

/// Whose request is to be cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CancelTarget {
    /// Of its slot only the lowest bits are known.
    pub(crate) client: ClientTag,
    pub(crate) slot_bits: u32,
    /// Proof of the right to cancel.
    pub(crate) secret: u64,
}

/// A client that has asked something of others: to cancel what one does, or to be told of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    pub(crate) tag: ClientTag,
    /// Tells it from others that had the same slot.
    pub(crate) serial: u32,
}

impl Asker {
    pub(crate) fn key(self) -> ClientKey {
        ClientKey { slot: self.tag.slot() as u32, serial: self.serial }
    }
}

/// A question of one client's session to those of all clients, on its way from worker to worker.
pub(crate) struct Survey {
    pub(crate) asker: Asker,
    pub(crate) question: Vec<u8>,
    pub(crate) answer: Vec<u8>,
}

/// What one session leaves for another.
pub(crate) struct Post {
    pub(crate) to: Peer,
    pub(crate) key: u64,
    pub(crate) bytes: Arc<[u8]>,
}

/// For which dial a name was to be resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DialLookup {
    pub(crate) dial: u32,
    pub(crate) pool: PoolId,
    pub(crate) server: ServerId,
    /// How many hosts were left to it.
    pub(crate) left: usize,
}

/// A client's connection that no worker serves yet.
pub(crate) struct Accepted<S> {
    pub(crate) socket: S,
    /// The client's address; `None` on a Unix socket, or if it has gone.
    pub(crate) peer: Option<SocketAddr>,
    /// What has been received from the client already.
    pub(crate) received: Vec<u8>,
}

/// What the gate said of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    Admitted,
    /// Let in only to be told that there is no room.
    Surplus,
    /// Another one has its place by now.
    Displaced,
    /// It has one of the places that are kept for operators.
    Kept,
}

pub(crate) struct Mailbox<P: Protocol, R: Reactor> {
    queue: Mutex<VecDeque<Message<P, R>>>,
    sleeping: AtomicBool,
    waker: R::Waker,
    /// What the posts in it weigh, in bytes.
    pub(crate) posted: AtomicUsize,
}

impl<P: Protocol, R: Reactor> Mailbox<P, R> {
    pub(crate) fn new(waker: R::Waker) -> Self {
        Self { queue: Mutex::default(), sleeping: AtomicBool::new(false), waker, posted: AtomicUsize::new(0) }
    }

    /// Leaves a message. Wakes the worker if it sleeps.
    pub(crate) fn send(&self, message: Message<P, R>) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push_back(message);
        if self.sleeping.swap(false, SeqCst)
            && let Err(error) = self.waker.wake()
        {
            // The worker also wakes by its own tick.
            tracing::error!(%error, "cannot wake a worker");
        }
    }

    pub(crate) fn take(&self, into: &mut VecDeque<Message<P, R>>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut queue);
    }

    /// Announces that the worker is about to sleep. False if there is mail: then the worker stays awake.
    pub(crate) fn announce_sleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        if self.queue.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return true;
        }
        self.sleeping.store(false, SeqCst);
        false
    }

    /// The worker is awake: a message need not wake it.
    pub(crate) fn end_sleep(&self) {
        self.sleeping.store(false, SeqCst);
    }
}
