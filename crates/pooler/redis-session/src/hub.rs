//! One server connection holds the subscriptions of all clients of a pool: its hub. Here is which clients have
//! subscribed to what, and which server that is. It knows no session; all workers share it.
//!
//! A client requests a change, and waits until the session of the hub's server has made it: only there do subscriptions
//! begin and end. So all that is posted to a client is in one order, in which no message comes before its subscription
//! begins or after it ends. A change that Redis has to hear of is made when Redis has confirmed it; any other at once.
//!
//! One of the clients requests the server, as for any command, and the hub keeps it until no client has a subscription.
//! When the server is lost, one of the clients requests another one, where all names are subscribed to again.

mod names;
mod serving;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use seam::{ClientTag, Effect, Outbox, Peer, PoolId, ServerTag};

use crate::command::{SubscriptionCommand, Topic};
pub(crate) use names::Name;
use names::Names;
use serving::Restoration;

/// Keys of posts begin here, so that no other protocol of the process has the same.
const FIRST_KEY: u64 = (b'R' as u64) << 56;

/// This bit is set in the keys of clients to which messages are posted as events. So these come last in any order of
/// keys.
const OF_EVENTS: u64 = 1 << 55;

/// Clients that are asked to request the hub's server, and are busy, before the hub waits for one.
const MAX_DECLINED: usize = 64;

/// Bytes of patterns that are parsed, and of channels that are compared with them, for one published message.
const MAX_PATTERN_STEPS: usize = 1 << 20;

/// First bytes of posts to clients. A post that begins with another byte is messages.
pub(crate) mod notice {
    pub(crate) const CHANGED: u8 = b'=';
    /// The change was refused. The reason follows.
    pub(crate) const REFUSED: u8 = b'-';
    /// Subscriptions are lost. The reason follows.
    pub(crate) const LOST: u8 = b'!';
    /// The client is to request the hub's server.
    pub(crate) const SEEK: u8 = b'?';
    /// Messages as events follow: see `rest::messages`.
    pub(crate) const EVENTS: u8 = b'd';
}

/// What a client requests of the hub. It has one such request at a time.
#[derive(Clone)]
pub(crate) struct SubscriptionChange {
    /// The client's key in the hub, by which a post to another client is told apart.
    pub(crate) key: u64,
    pub(crate) what: SubscriptionCommand,
    pub(crate) names: Arc<[Name]>,
}

#[derive(Default)]
pub(crate) struct Hubs {
    by_pool: Mutex<HashMap<PoolId, Hub>>,
    next_key: AtomicU64,
}

pub(crate) struct Hub {
    key: u64,
    home: Home,
    names: Names,
    /// The tags of all clients that have a subscription or a pending request, by their keys.
    clients: HashMap<u64, ClientTag>,
    changes: VecDeque<SubscriptionChange>,
    /// Commands that Redis has not answered, in order.
    sent: VecDeque<serving::SentCommand>,
    restoration: Restoration,
}

/// Where the hub's subscriptions are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// Nowhere: the client with the key `by` requests a server, after `declined` clients that were busy.
    Sought { by: u64, declined: usize },
    Held {
        server: ServerTag,
        /// The server's session was told of changes, and has not seen to them.
        notified: bool,
        /// Redis has refused an UNSUBSCRIBE, so no other client can use the connection.
        unsubscribe_refused: bool,
    },
}

impl Hubs {
    fn lock(&self) -> MutexGuard<'_, HashMap<PoolId, Hub>> {
        self.by_pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Receivers of a message with this name that Redis does not count: to Redis, all clients of a hub are one
    /// connection. `None`: there are too many patterns to compare with, or they are too long.
    pub(crate) fn uncounted_receivers(&self, topic: Topic, name: &[u8]) -> Option<i32> {
        let mut steps = MAX_PATTERN_STEPS;
        self.lock().values_mut().map(|hub| hub.names.uncounted_receivers(topic, name, &mut steps)).sum()
    }

    /// Subscribers of this name that Redis does not count.
    pub(crate) fn uncounted_subscribers(&self, topic: Topic, name: &[u8]) -> i32 {
        self.lock().values().map(|hub| hub.names.uncounted_subscribers(topic, name)).sum()
    }

    /// A key that no other client or server has.
    pub(crate) fn new_key(&self) -> u64 {
        FIRST_KEY | self.next_key.fetch_add(1, Relaxed)
    }

    /// The same for a client to which messages are posted as events.
    pub(crate) fn new_key_for_events(&self) -> u64 {
        self.new_key() | OF_EVENTS
    }

    /// A client requests a change. [`notice::CHANGED`] or [`notice::REFUSED`] is posted to it. Returns whether it has
    /// to request a server for the hub.
    pub(crate) fn request(&self, pool: PoolId, me: ClientTag, change: SubscriptionChange, out: &mut Outbox) -> bool {
        let mut pools = self.lock();
        let (hub, seeks) = match pools.entry(pool) {
            Entry::Occupied(hub) => (hub.into_mut(), false),
            Entry::Vacant(entry) => (entry.insert(Hub::new(self.new_key(), change.key)), true),
        };
        hub.clients.insert(change.key, me);
        hub.changes.push_back(change);
        hub.notify(out);
        seeks
    }

    /// A client goes, or gives up all its subscriptions, which have these names.
    pub(crate) fn leave<'a>(
        &self,
        pool: PoolId,
        key: u64,
        names: impl Iterator<Item = (Topic, &'a Name)>,
        out: &mut Outbox,
    ) {
        let mut pools = self.lock();
        let Some(hub) = pools.get_mut(&pool) else { return };
        hub.clients.remove(&key);
        for (topic, name) in names {
            hub.names.remove(topic, name, key);
        }
        if let Home::Sought { by, declined } = hub.home
            && by == key
            && !hub.seek(declined, out)
        {
            pools.remove(&pool);
            return;
        }
        if hub.clients.is_empty() || hub.names.has_unwanted() {
            hub.notify(out);
        }
    }

    /// A client has the server that it requested for the hub. Returns the hub's key, under which the server's session
    /// is posted to; `None` if the hub needs no server any more.
    pub(crate) fn on_server_found(&self, pool: PoolId, key: u64, server: ServerTag) -> Option<u64> {
        let mut pools = self.lock();
        let hub = pools.get_mut(&pool).filter(|hub| hub.is_sought_by(key))?;
        // The caller has the session see to the changes at once.
        hub.home = Home::Held { server, notified: true, unsubscribe_refused: false };
        Some(hub.key)
    }

    /// A client that is to request the hub's server is busy: another client is to do it. Returns false if this one has
    /// to do it nevertheless.
    pub(crate) fn decline(&self, pool: PoolId, key: u64, out: &mut Outbox) -> bool {
        let mut pools = self.lock();
        let Some(hub) = pools.get_mut(&pool) else { return true };
        match hub.home {
            Home::Sought { by, declined } if by == key => {
                let declined = declined + 1;
                hub.home = Home::Sought { by, declined };
                declined < hub.clients.len().min(MAX_DECLINED) && hub.seek(declined, out)
            }
            _ => true,
        }
    }

    /// There is no server for the hub, for this reason. All its clients are told.
    pub(crate) fn on_no_server(&self, pool: PoolId, key: u64, why: &str, out: &mut Outbox) {
        let mut pools = self.lock();
        let Entry::Occupied(hub) = pools.entry(pool) else { return };
        if !hub.get().is_sought_by(key) {
            return;
        }
        let hub = hub.remove();
        if hub.restoration == Restoration::Due {
            tracing::warn!(clients = hub.clients.len(), "subscriptions could not be restored: {why}");
        }
        let start = out.inserted.len();
        out.inserted.push(notice::LOST);
        out.inserted.extend_from_slice(why.as_bytes());
        let bytes = start..out.inserted.len();
        for (key, tag) in hub.clients {
            out.push(Effect::Post { to: Peer::Client(tag), key, bytes: bytes.clone() });
        }
    }

    /// Runs `f` with the hub whose server has this key. `f` returns false to end the hub. Returns false if the hub has
    /// ended, now or before.
    pub(crate) fn with_hub(&self, pool: PoolId, key: u64, f: impl FnOnce(&mut Hub) -> bool) -> bool {
        let mut pools = self.lock();
        let Some(hub) = pools.get_mut(&pool).filter(|hub| hub.key == key) else { return false };
        let goes_on = f(hub);
        if !goes_on {
            pools.remove(&pool);
        }
        goes_on
    }
}

impl Hub {
    fn new(key: u64, seeker: u64) -> Self {
        Self {
            key,
            home: Home::Sought { by: seeker, declined: 0 },
            names: Names::default(),
            clients: HashMap::new(),
            changes: VecDeque::new(),
            sent: VecDeque::new(),
            restoration: Restoration::None,
        }
    }

    fn is_sought_by(&self, key: u64) -> bool {
        matches!(self.home, Home::Sought { by, .. } if by == key)
    }

    /// Has the session of the server see to the changes.
    fn notify(&mut self, out: &mut Outbox) {
        if let Home::Held { server, notified, .. } = &mut self.home
            && !std::mem::replace(notified, true)
        {
            let end = out.inserted.len();
            out.push(Effect::Post { to: Peer::Server(*server), key: self.key, bytes: end..end });
        }
    }

    /// Has one of the clients request a server, after `declined` clients that were busy. Returns false if there are no
    /// clients.
    fn seek(&mut self, declined: usize, out: &mut Outbox) -> bool {
        let Some((&key, &tag)) = self.clients.iter().nth(declined).or(self.clients.iter().next()) else {
            return false;
        };
        self.home = Home::Sought { by: key, declined };
        post(tag, key, &[notice::SEEK], out);
        true
    }
}

fn post(to: ClientTag, key: u64, bytes: &[u8], out: &mut Outbox) {
    let start = out.inserted.len();
    out.inserted.extend_from_slice(bytes);
    out.push(Effect::Post { to: Peer::Client(to), key, bytes: start..out.inserted.len() });
}

fn post_with_reason(to: ClientTag, key: u64, notice: u8, why: &[u8], out: &mut Outbox) {
    post(to, key, &[&[notice], why].concat(), out);
}

#[cfg(test)]
mod tests;
