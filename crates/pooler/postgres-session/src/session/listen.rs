//! Who listens to what, and which servers listen for others. What is done about it is told in the feature of the same
//! name. It neither reads nor asks anything.

mod barrier;
mod unlistened;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use seam::{ClientTag, Effect, Outbox, Peer, PoolId, ServerTag};

pub(crate) use barrier::NotificationBarrier;
pub(crate) use unlistened::Unlistened;

/// What is posted to clients carries keys that no other protocol of the process gives.
const FIRST_KEY: u64 = (b'P' as u64) << 56;

/// Most channels that a client may listen to.
pub(crate) const MAX_CHANNELS: usize = 1000;

/// Bytes of notifications that may wait for a client to end its transaction.
pub(crate) const MAX_PENDING_BYTES: usize = 1 << 20;

/// A post for a client whose channels are all heard, or that has been sent what was committed before its transaction
/// ended.
pub(crate) const HEARD: u8 = b'+';

/// A post for a client that cannot go on listening begins with this; the reason follows.
pub(crate) const LOST: u8 = b'!';

/// A post for a client that cannot go on listening either, and is to go when no transaction of its is open.
pub(crate) const OUTDATED: u8 = b'~';

pub(crate) type Names = Vec<Box<[u8]>>;

/// What a client listens to.
pub(crate) struct Listening {
    /// Tells what is posted to it from what was meant for another.
    pub(crate) key: u64,
    pub(crate) channels: Vec<Box<[u8]>>,
    /// Notifications that wait until its transaction is over.
    pub(crate) pending: Vec<u8>,
    /// It is to go when its transaction is over.
    pub(crate) outdated: bool,
}

/// The shared servers of all pools.
#[derive(Default)]
pub(crate) struct Hubs {
    by_pool: Mutex<BTreeMap<PoolId, Hub>>,
    next_key: AtomicU64,
    /// The driver's clock, in milliseconds.
    now_ms: AtomicU64,
    /// Some client may be waiting for its notifications.
    awaited: AtomicBool,
}

/// A server that listens for clients of its pool.
pub(crate) struct Hub {
    pub(crate) key: u64,
    pub(crate) server: ServerTag,
    pub(crate) channels: BTreeMap<Box<[u8]>, Channel>,
    pub(crate) clients: BTreeMap<u64, Subscriber>,
    /// Clients whose transactions have ended.
    pub(crate) barrier: barrier::NotificationBarrier,
}

#[derive(Default)]
pub(crate) struct Channel {
    /// The server listens to it.
    pub(crate) heard: bool,
    /// Keys of the clients that want it.
    pub(crate) clients: Vec<u64>,
}

pub(crate) struct Subscriber {
    pub(crate) tag: ClientTag,
    /// How many of its channels are not heard yet.
    pub(crate) awaited: usize,
}

impl Hubs {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<PoolId, Hub>> {
        self.by_pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn key(&self) -> u64 {
        FIRST_KEY | self.next_key.fetch_add(1, Relaxed)
    }

    /// A client waits until the shared server has told what is for it. False if it need not.
    pub(crate) fn wait(&self, hub: &mut Hub, key: u64, me: ClientTag, out: &mut Outbox) -> bool {
        let waits = hub.barrier.wait(key, me, self.now_ms.load(Relaxed));
        if waits {
            self.awaited.store(true, Relaxed);
            hub.wake_server(out);
        }
        waits
    }

    /// The driver's clock has reached this time: clients that have waited too long for their notifications go on.
    pub(crate) fn on_tick(&self, now_ms: u64, out: &mut Outbox) {
        self.now_ms.fetch_max(now_ms, Relaxed);
        if !self.awaited.load(Relaxed) {
            return;
        }
        let mut hubs = self.lock();
        for hub in hubs.values_mut() {
            resume_all(hub.barrier.overdue(now_ms), out);
        }
        self.awaited.store(hubs.values().any(|hub| !hub.barrier.is_empty()), Relaxed);
    }
}

impl Hub {
    /// A client wants these channels, too. True if all that it wants are heard.
    pub(crate) fn subscribe(&mut self, key: u64, tag: ClientTag, channels: &[Box<[u8]>], heard: bool) -> bool {
        let subscriber = self.clients.entry(key).or_insert(Subscriber { tag, awaited: 0 });
        for name in channels {
            let channel = self.channels.entry(name.clone()).or_default();
            channel.heard |= heard;
            if !channel.clients.contains(&key) {
                channel.clients.push(key);
                subscriber.awaited += usize::from(!channel.heard);
            }
        }
        subscriber.awaited == 0
    }

    /// A client wants this channel no more.
    pub(crate) fn unsubscribe(&mut self, key: u64, name: &[u8]) {
        let Some(channel) = self.channels.get_mut(name) else { return };
        let before = channel.clients.len();
        channel.clients.retain(|other| *other != key);
        if let Some(subscriber) = self.clients.get_mut(&key) {
            subscriber.awaited -= usize::from(!channel.heard && channel.clients.len() < before);
        }
    }

    /// What the server is to be asked for, and what it need not listen to any more.
    pub(crate) fn changes(&mut self) -> (Names, Names) {
        let (mut wanted, mut unwanted) = (Vec::new(), Vec::new());
        for (name, channel) in &self.channels {
            match (channel.heard, channel.clients.is_empty()) {
                (false, false) => wanted.push(name.clone()),
                (true, true) => unwanted.push(name.clone()),
                _ => {}
            }
        }
        self.channels.retain(|_, channel| !channel.clients.is_empty());
        (wanted, unwanted)
    }

    pub(crate) fn wake_server(&self, out: &mut Outbox) {
        let end = out.inserted.len();
        out.push(Effect::Post { to: Peer::Server(self.server), key: self.key, bytes: end..end });
    }
}

/// These clients may go on.
pub(crate) fn resume_all(clients: Vec<(u64, ClientTag)>, out: &mut Outbox) {
    clients.into_iter().for_each(|(key, tag)| post(tag, key, &[HEARD], out));
}

pub(crate) fn post(to: ClientTag, key: u64, bytes: &[u8], out: &mut Outbox) {
    let start = out.inserted.len();
    out.inserted.extend_from_slice(bytes);
    out.push(Effect::Post { to: Peer::Client(to), key, bytes: start..out.inserted.len() });
}

pub(crate) fn post_lost(to: ClientTag, key: u64, why: &str, out: &mut Outbox) {
    post(to, key, &[&[LOST], why.as_bytes()].concat(), out);
}
