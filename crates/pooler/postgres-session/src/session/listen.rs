//! Channels, the clients that listen to them, and the servers that listen for clients.

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

/// Keys of posts to clients of this protocol begin with this byte, and no others do.
const FIRST_KEY: u64 = (b'P' as u64) << 56;

/// Most channels that a client may listen to.
pub(crate) const MAX_CHANNELS: usize = 1000;

/// Bytes of notifications that may wait for the end of a transaction.
pub(crate) const MAX_PENDING_BYTES: usize = 1 << 20;

/// A post for a client whose channels are all listened to, or that has been sent what was committed before its
/// transaction ended.
pub(crate) const HEARD: u8 = b'+';

/// Begins a post for a client that cannot go on listening; the reason follows.
pub(crate) const LOST: u8 = b'!';

/// A post for a client whose hub is replaced: the client has to go at the end of its transaction.
pub(crate) const OUTDATED: u8 = b'~';

pub(crate) type Names = Vec<Box<[u8]>>;

pub(crate) struct Listening {
    /// Tells posts for this client from those for an earlier one.
    pub(crate) key: u64,
    pub(crate) channels: Vec<Box<[u8]>>,
    /// Notifications that wait for the end of the transaction.
    pub(crate) pending: Vec<u8>,
    /// The client has to go at the end of its transaction.
    pub(crate) outdated: bool,
}

#[derive(Default)]
pub(crate) struct Hubs {
    by_pool: Mutex<BTreeMap<PoolId, Hub>>,
    next_key: AtomicU64,
    /// The driver's clock, in milliseconds.
    now_ms: AtomicU64,
    /// A client may be waiting for its notifications.
    awaited: AtomicBool,
}

/// A server that listens for the clients of one pool, those clients, and their channels.
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
    /// Keys of the clients that listen to the channel.
    pub(crate) clients: Vec<u64>,
}

pub(crate) struct Subscriber {
    pub(crate) tag: ClientTag,
    /// Channels of the client that the server does not listen to yet.
    pub(crate) awaited: usize,
}

/// To how many channels a client listens when it listens to these, too.
pub(crate) fn count_with(listening: Option<&Listening>, channels: &[Box<[u8]>]) -> usize {
    let known = listening.map_or(&[][..], |listening| &listening.channels);
    known.len() + channels.iter().filter(|channel| !known.contains(channel)).count()
}

impl Hubs {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<PoolId, Hub>> {
        self.by_pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key for posts that no connection of this process has had.
    pub(crate) fn new_post_key(&self) -> u64 {
        FIRST_KEY | self.next_key.fetch_add(1, Relaxed)
    }

    /// A client waits for its notifications. False if it need not.
    pub(crate) fn wait(&self, hub: &mut Hub, key: u64, me: ClientTag, out: &mut Outbox) -> bool {
        let waits = hub.barrier.wait(key, me, self.now_ms.load(Relaxed));
        if waits {
            self.awaited.store(true, Relaxed);
            hub.wake_server(out);
        }
        waits
    }

    /// The driver's clock has reached this time: clients that have waited too long go on.
    pub(crate) fn on_tick(&self, now_ms: u64, out: &mut Outbox) {
        self.now_ms.fetch_max(now_ms, Relaxed);
        if !self.awaited.load(Relaxed) {
            return;
        }
        let mut hubs = self.lock();
        for hub in hubs.values_mut() {
            resume_all(hub.barrier.take_overdue(now_ms), out);
        }
        self.awaited.store(hubs.values().any(|hub| !hub.barrier.is_empty()), Relaxed);
    }
}

impl Hub {
    /// A client wants more channels. True if the server listens to all that the client wants.
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

    /// Channels that the server has to LISTEN to, and to UNLISTEN. The latter are forgotten.
    pub(crate) fn take_changes(&mut self) -> (Names, Names) {
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

/// Has these clients go on.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_to_which_a_client_listens_already_counts_once() {
        let channels = |names: &[&str]| names.iter().map(|name| Box::from(name.as_bytes())).collect::<Names>();
        let listening = Listening { key: 1, channels: channels(&["a", "b"]), pending: Vec::new(), outdated: false };
        assert_eq!(count_with(Some(&listening), &channels(&["b", "c"])), 3);
        assert_eq!(count_with(None, &channels(&["b", "c"])), 2);
    }
}
