//! One server holds the subscriptions of all clients of a pool: who has subscribed to what, and which server it is.
//! Knows no session; it is the same for all workers.
//!
//! A client says what it *wishes*, and waits until the session of that server has dealt with it: only there do
//! subscriptions begin and end. So for each client all that it is posted is in one order, in which nothing comes before
//! its subscription and nothing behind its end. A wish that Redis must hear of is done when Redis has confirmed it;
//! others at once.
//!
//! The server is sought by one of the clients, as any client asks for a server, and kept until nobody has a
//! subscription any more. When it is lost, one of the clients seeks another, and all names are subscribed to anew
//! there.

mod serving;

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use seam::{ClientTag, Effect, Outbox, Peer, PoolId, ServerTag};

use crate::{
    command::{Subscription, Topic},
    glob::{MAX_PATTERN, Pattern},
};

/// What is posted to clients carries keys that no other protocol of the process gives.
const FIRST_KEY: u64 = (b'R' as u64) << 56;

/// Keys of clients that hear messages as events have this bit, too. So they stand behind all others of a name.
const OF_EVENTS: u64 = 1 << 55;

/// Names of channels and patterns are kept once for all who subscribe to them.
pub(crate) type Name = Arc<[u8]>;

/// Clients that are asked to seek a server before one that is busy is waited for.
const MAX_PASSED_ON: usize = 64;

/// Patterns of a pool that are looked through for what is published.
const MAX_PATTERNS: usize = 1000;

/// Bytes of patterns that are read, and of names that are compared with them, for one message that is published.
const MAX_STEPS: usize = 1 << 20;

/// What is posted to a client begins with one of these, unless it is messages.
pub(crate) mod word {
    pub(crate) const DONE: u8 = b'=';
    /// It was refused; the reason follows.
    pub(crate) const REFUSED: u8 = b'-';
    /// Its subscriptions are lost; the reason follows.
    pub(crate) const LOST: u8 = b'!';
    /// It is to seek a server for all.
    pub(crate) const SEEK: u8 = b'?';
    /// Messages that are events already follow: see `rest::messages`.
    pub(crate) const EVENTS: u8 = b'd';
}

/// What a client wants of the server that holds its subscriptions. It has one wish at a time.
#[derive(Clone)]
pub(crate) struct Wish {
    /// The client's: tells what is posted to it from what was meant for another.
    pub(crate) key: u64,
    pub(crate) what: Subscription,
    pub(crate) names: Arc<[Name]>,
}

/// The subscriptions of all pools.
#[derive(Default)]
pub(crate) struct Hubs {
    by_pool: Mutex<HashMap<PoolId, Hub>>,
    next_key: AtomicU64,
}

pub(crate) struct Hub {
    key: u64,
    home: Home,
    /// The server's session has been told that there is something to do.
    notified: bool,
    /// By [`Topic`].
    names: [HashMap<Name, Listeners>; 3],
    /// Where they are, by their keys: all who have a subscription or a wish.
    clients: HashMap<u64, ClientTag>,
    wishes: VecDeque<Wish>,
    /// Names of which the last subscriber has gone.
    left: Vec<(Topic, Name)>,
    /// What the server has been asked and not answered, in order.
    asked: VecDeque<serving::Asked>,
    /// So many clients were busy when they were to seek a server.
    passed_on: usize,
    /// The server that comes next has to subscribe to all names.
    restores: bool,
    /// Questions for that which have not been answered.
    restoring: usize,
    /// The server did not unsubscribe as it was asked to: it is of no use to anybody else.
    pub(crate) stained: bool,
}

/// Where subscriptions are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// Nowhere: the client with this key seeks a server.
    Sought(u64),
    Server(ServerTag),
}

/// The key of a client, and where it is.
type Listener = (u64, ClientTag);

/// Who has subscribed to one name.
#[derive(Default)]
struct Listeners {
    /// The server has subscribed to it.
    heard: bool,
    /// Wishes for it that the server has been asked for and has not answered: it stays subscribed until then.
    asked: u32,
    /// Keys and places of clients, in the order of the keys.
    clients: Vec<Listener>,
    /// What a pattern says, once it has been read.
    pattern: Option<Box<Pattern>>,
}

impl Listeners {
    fn add(&mut self, key: u64, tag: ClientTag) {
        if let Err(at) = self.clients.binary_search_by_key(&key, |client| client.0) {
            self.clients.insert(at, (key, tag));
        }
    }

    fn remove(&mut self, key: u64) {
        if let Ok(at) = self.clients.binary_search_by_key(&key, |client| client.0) {
            self.clients.remove(at);
        }
    }

    /// Those that are told in Redis's own words, and those that hear events.
    fn apart(&self) -> (&[Listener], &[Listener]) {
        self.clients.split_at(self.clients.partition_point(|(key, _)| key & OF_EVENTS == 0))
    }

    /// Whether this is a pattern that matches the name; `None` if `steps` do not suffice to find out.
    fn matches(&mut self, pattern: &[u8], name: &[u8], steps: &mut usize) -> Option<bool> {
        if self.pattern.is_none() {
            *steps = steps.checked_sub(pattern.len().min(MAX_PATTERN))?;
            self.pattern = Some(Box::new(Pattern::read(pattern)?));
        }
        self.pattern.as_ref().expect("just read").matches(name, steps)
    }

    /// See [`Hubs::more_told`].
    fn more(&self) -> i32 {
        if self.heard { self.clients.len() as i32 - 1 } else { 0 }
    }

    fn is_unwanted(&self) -> bool {
        self.clients.is_empty() && self.asked == 0
    }
}

impl Hubs {
    fn lock(&self) -> MutexGuard<'_, HashMap<PoolId, Hub>> {
        self.by_pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more are told of what is published under this name than connections of Redis: each of those that
    /// Poolhouse has for all its subscribers counts as one there. `None`: there are too many patterns to look through,
    /// or they are too long.
    pub(crate) fn more_told(&self, topic: Topic, name: &[u8]) -> Option<i32> {
        let mut pools = self.lock();
        let (mut more, mut steps) = (0, MAX_STEPS);
        for hub in pools.values_mut() {
            more += hub.names[topic as usize].get(name).map_or(0, Listeners::more);
            let patterns = &mut hub.names[Topic::Pattern as usize];
            if topic != Topic::Channel || patterns.is_empty() {
                continue;
            }
            if patterns.len() > MAX_PATTERNS {
                return None;
            }
            for (pattern, listeners) in patterns {
                if listeners.more() > 0 && listeners.matches(pattern, name, &mut steps)? {
                    more += listeners.more();
                }
            }
        }
        Some(more)
    }

    /// How many more have subscribed to this than Redis knows.
    pub(crate) fn more_subscribed(&self, topic: Topic, name: &[u8]) -> i32 {
        let of = |hub: &Hub| hub.names[topic as usize].get(name).map_or(0, Listeners::more);
        self.lock().values().map(of).sum()
    }

    /// A number that no other client or server has.
    pub(crate) fn key(&self) -> u64 {
        FIRST_KEY | self.next_key.fetch_add(1, Relaxed)
    }

    /// The same for a client to which messages are posted as events.
    pub(crate) fn key_of_events(&self) -> u64 {
        self.key() | OF_EVENTS
    }

    /// A client wants something; [`word::DONE`] or [`word::REFUSED`] is posted to it. True if it has to seek a server
    /// for that.
    pub(crate) fn wish(&self, pool: PoolId, me: ClientTag, wish: Wish, out: &mut Outbox) -> bool {
        let mut pools = self.lock();
        let (hub, seeks) = match pools.entry(pool) {
            Entry::Occupied(hub) => (hub.into_mut(), false),
            Entry::Vacant(place) => (place.insert(Hub::new(self.key(), wish.key)), true),
        };
        hub.clients.insert(wish.key, me);
        hub.wishes.push_back(wish);
        hub.notify(out);
        seeks
    }

    /// A client goes, or gives up its subscriptions; these are their names.
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
            let Some(listeners) = hub.names[topic as usize].get_mut(name) else { continue };
            listeners.remove(key);
            if listeners.is_unwanted() {
                hub.left.push((topic, Arc::clone(name)));
            }
        }
        if hub.home == Home::Sought(key) && !hub.seek(out) {
            pools.remove(&pool);
            return;
        }
        if hub.clients.is_empty() || !hub.left.is_empty() {
            hub.notify(out);
        }
    }

    /// A client has the server that it sought. Returns the key under which that works for all from now on; `None` if it
    /// is not needed any more.
    pub(crate) fn arrive(&self, pool: PoolId, key: u64, server: ServerTag) -> Option<u64> {
        let mut pools = self.lock();
        let hub = pools.get_mut(&pool).filter(|hub| hub.home == Home::Sought(key))?;
        (hub.home, hub.passed_on) = (Home::Server(server), 0);
        // It is looked after at once.
        hub.notified = true;
        Some(hub.key)
    }

    /// A client that was to seek a server is busy: another is to do it. False if it is not worth the trouble to ask one
    /// more.
    pub(crate) fn pass_on(&self, pool: PoolId, key: u64, out: &mut Outbox) -> bool {
        let mut pools = self.lock();
        let Some(hub) = pools.get_mut(&pool).filter(|hub| hub.home == Home::Sought(key)) else { return true };
        hub.passed_on += 1;
        hub.passed_on < hub.clients.len().min(MAX_PASSED_ON) && hub.seek(out)
    }

    /// There is no server for the client that sought one: everybody who waits for it is told.
    pub(crate) fn sought_in_vain(&self, pool: PoolId, key: u64, why: &str, out: &mut Outbox) {
        let mut pools = self.lock();
        let Entry::Occupied(hub) = pools.entry(pool) else { return };
        if hub.get().home != Home::Sought(key) {
            return;
        }
        let hub = hub.remove();
        if hub.restores {
            tracing::warn!(clients = hub.clients.len(), "subscriptions could not be restored: {why}");
        }
        let start = out.inserted.len();
        out.inserted.push(word::LOST);
        out.inserted.extend_from_slice(why.as_bytes());
        let bytes = start..out.inserted.len();
        for (key, tag) in hub.clients {
            out.push(Effect::Post { to: Peer::Client(tag), key, bytes: bytes.clone() });
        }
    }

    /// Runs `f` with the hub that a server serves; false is returned if it is none any more, or if `f` says that it is
    /// over.
    pub(crate) fn serve(&self, pool: PoolId, key: u64, f: impl FnOnce(&mut Hub) -> bool) -> bool {
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
            home: Home::Sought(seeker),
            notified: false,
            names: Default::default(),
            clients: HashMap::new(),
            wishes: VecDeque::new(),
            left: Vec::new(),
            asked: VecDeque::new(),
            passed_on: 0,
            restores: false,
            restoring: 0,
            stained: false,
        }
    }

    /// Has the session of the server look what there is to do.
    fn notify(&mut self, out: &mut Outbox) {
        if let (Home::Server(server), false) = (self.home, std::mem::replace(&mut self.notified, true)) {
            let end = out.inserted.len();
            out.push(Effect::Post { to: Peer::Server(server), key: self.key, bytes: end..end });
        }
    }

    /// Has one of the clients seek a server. False if there is none.
    fn seek(&mut self, out: &mut Outbox) -> bool {
        let Some((&key, &tag)) = self.clients.iter().nth(self.passed_on).or(self.clients.iter().next()) else {
            return false;
        };
        self.home = Home::Sought(key);
        self.notified = false;
        post(tag, key, &[word::SEEK], out);
        true
    }
}

fn post(to: ClientTag, key: u64, bytes: &[u8], out: &mut Outbox) {
    let start = out.inserted.len();
    out.inserted.extend_from_slice(bytes);
    out.push(Effect::Post { to: Peer::Client(to), key, bytes: start..out.inserted.len() });
}

fn post_with_reason(to: ClientTag, key: u64, word: u8, why: &[u8], out: &mut Outbox) {
    post(to, key, &[&[word], why].concat(), out);
}

#[cfg(test)]
mod tests;
