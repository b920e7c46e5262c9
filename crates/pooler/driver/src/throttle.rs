//! Slows down clients that guess passwords. A client of the same address that knows its password is not locked out.
//!
//! After more than `max_auth_failures` failures within a minute, at most [`MAX_LOGINS_PER_LANE`] clients of an address
//! may be logging in; the others wait for their turn, first come, first served. A login that succeeds ends its turn at
//! once. One that fails keeps it for [`FAILURE_DELAY`], and its answer is delayed as long. This bounds the guesses a
//! second, however many connections they come on, while a right password gets in as soon as it has its turn. A turn
//! ends by itself after [`MAX_TURN_TIME`]: no client can keep others waiting by saying nothing.
//!
//! Users whose logins have failed in that minute queue in a lane of their own: behind one address, such as that of a
//! NAT, a service with an old password does not keep other users waiting.

use std::{
    collections::{BTreeSet, HashMap, hash_map::RandomState},
    hash::BuildHasher,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use pool::Time;

/// How long the answer to a failed login is delayed.
pub(crate) const FAILURE_DELAY: Duration = Duration::from_secs(1);
/// How long the turn of a client may last; then it waits for another turn.
const MAX_TURN_TIME: Duration = Duration::from_secs(2);
/// Failures are counted over this time.
const FAILURE_WINDOW: Duration = Duration::from_secs(60);
/// Clients that may be logging in at a time, in each lane, from an address with too many failures.
const MAX_LOGINS_PER_LANE: usize = 16;
/// Users of one address that are known to have failed. A further one stays in the lane of the others.
const MAX_SUSPECTS: usize = 64;
/// Addresses that are counted one by one. Further ones are counted in [`ADDRESS_GROUPS`] groups, so that a limit holds
/// for them, too.
const MAX_ADDRESSES: usize = 4096;
const ADDRESS_GROUPS: u64 = 256;
/// How often the addresses whose window is over are dropped, once there are [`MAX_ADDRESSES`].
const PRUNE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Throttle {
    max_failures: AtomicU32,
    failures: AtomicU64,
    any_failure: AtomicBool,
    hasher: RandomState,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    records: HashMap<Key, Record>,
    pruned: Time,
    next: u64,
}

/// The clients that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    /// An IPv4 address, or the first half of an IPv6 address, whose second half its owner can choose.
    Net(IpAddr),
    /// A group of addresses that are not counted one by one.
    Group(u8),
}

struct Record {
    since: Time,
    failures: u32,
    /// Hashes of the users whose logins have failed.
    suspects: Vec<u64>,
    /// The lane of everyone else, then that of suspects.
    lanes: [Lane; 2],
}

#[derive(Default)]
struct Lane {
    /// The clients whose turn it is, by number, and the ends of their turns.
    turns: Vec<(u64, Time)>,
    /// The clients that wait, by number.
    waiting: BTreeSet<u64>,
}

/// A client's ticket among those of its address that log in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoginTicket {
    key: Key,
    lane: usize,
    number: u64,
}

/// Where a client comes from, and the user that it wants to be, as far as it has said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comer<'c> {
    pub(crate) address: Option<IpAddr>,
    pub(crate) user: Option<&'c str>,
}

impl Throttle {
    pub(crate) fn new(max_failures: u32) -> Self {
        Self {
            max_failures: AtomicU32::new(max_failures),
            failures: AtomicU64::new(0),
            any_failure: AtomicBool::new(false),
            hasher: RandomState::new(),
            table: Mutex::default(),
        }
    }

    /// Another limit from now on.
    pub(crate) fn set_max_failures(&self, max_failures: u32) {
        self.max_failures.store(max_failures, Relaxed);
    }

    /// All failures since the start.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Whether no login has failed since the start, so that no client waits for a turn.
    pub(crate) fn has_no_failures(&self) -> bool {
        !self.any_failure.load(Relaxed)
    }

    /// Counts a failure, by a client that may have a ticket. True when its answer is to be delayed.
    pub(crate) fn note_failure(&self, comer: Comer<'_>, ticket: Option<LoginTicket>, now: Time) -> bool {
        self.failures.fetch_add(1, Relaxed);
        let Some(address) = comer.address else { return false };
        self.any_failure.store(true, Relaxed);
        let table = &mut *self.lock();
        let key = ticket.map_or_else(|| self.key_to_count(table, address, now), |ticket| ticket.key);
        let number = ticket.map_or_else(|| table.number(), |ticket| ticket.number);
        let record = table.records.entry(key).or_insert_with(|| Record::new(now));
        record.begin_window(now);
        record.failures += 1;
        let user = comer.user.map(|user| self.hasher.hash_one(user));
        record.suspect(user);
        let lane = &mut record.lanes[ticket.map_or(record.lane_of(user), |ticket| ticket.lane)];
        let delay = record.failures > self.max_failures.load(Relaxed);
        if delay {
            lane.fail(number, now);
        } else {
            lane.leave(number);
        }
        delay
    }

    /// Whether a client from there may go on with its login now; otherwise it waits, and asks again soon. `ticket` is
    /// its own.
    pub(crate) fn try_take_turn(&self, comer: Comer<'_>, ticket: &mut Option<Box<LoginTicket>>, now: Time) -> bool {
        let Some(address) = comer.address else { return true };
        let table = &mut *self.lock();
        let key = match ticket {
            Some(ticket) => ticket.key,
            None => self.key_known(table, address),
        };
        let Some(record) = table.records.get_mut(&key) else { return true };
        record.begin_window(now);
        let is_free = record.failures <= self.max_failures.load(Relaxed);
        let number = record.lane_of(comer.user.map(|user| self.hasher.hash_one(user)));
        if let Some(left) = ticket.take_if(|ticket| is_free || ticket.lane != number) {
            record.lanes[left.lane].leave(left.number);
        }
        is_free || record.lanes[number].try_take_turn((key, number), ticket, &mut table.next, now)
    }

    /// The client has logged in, or has gone without having failed.
    pub(crate) fn end_turn(&self, ticket: LoginTicket) {
        if let Some(record) = self.lock().records.get_mut(&ticket.key) {
            record.lanes[ticket.lane].leave(ticket.number);
        }
    }

    /// Under which key an address is known, if it is.
    fn key_known(&self, table: &Table, address: IpAddr) -> Key {
        let key = Key::Net(net(address));
        match table.records.contains_key(&key) || table.records.len() < MAX_ADDRESSES {
            true => key,
            false => self.group_key(key),
        }
    }

    /// Under which key an address is to be counted. Makes room, if there can be any.
    fn key_to_count(&self, table: &mut Table, address: IpAddr, now: Time) -> Key {
        if table.records.len() >= MAX_ADDRESSES && now - table.pruned >= PRUNE_INTERVAL {
            table.pruned = now;
            table.records.retain(|_, record| !record.is_over(now));
        }
        self.key_known(table, address)
    }

    fn group_key(&self, key: Key) -> Key {
        Key::Group((self.hasher.hash_one(key) % ADDRESS_GROUPS) as u8)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Record {
    fn new(now: Time) -> Self {
        Self { since: now, failures: 0, suspects: Vec::new(), lanes: Default::default() }
    }

    fn begin_window(&mut self, now: Time) {
        if now - self.since >= FAILURE_WINDOW {
            (self.since, self.failures) = (now, 0);
            self.suspects.clear();
        }
    }

    fn suspect(&mut self, user: Option<u64>) {
        let new = user.filter(|user| self.suspects.len() < MAX_SUSPECTS && !self.suspects.contains(user));
        self.suspects.extend(new);
    }

    /// The lane of a user.
    fn lane_of(&self, user: Option<u64>) -> usize {
        usize::from(user.is_some_and(|user| self.suspects.contains(&user)))
    }

    fn is_over(&self, now: Time) -> bool {
        now - self.since >= FAILURE_WINDOW && !self.lanes.iter().any(|lane| lane.is_busy(now))
    }
}

impl Lane {
    /// Whether the client with this ticket for the lane may go on; one without gets a ticket.
    fn try_take_turn(
        &mut self,
        (key, lane): (Key, usize),
        ticket: &mut Option<Box<LoginTicket>>,
        next: &mut u64,
        now: Time,
    ) -> bool {
        self.turns.retain(|(_, until)| now < *until);
        let number = match ticket.as_ref().map(|ticket| ticket.number) {
            Some(number) if self.turns.iter().any(|(other, _)| *other == number) => return true,
            Some(number) if self.waiting.contains(&number) => number,
            // It is new, or has let its turn pass.
            _ => {
                *next += 1;
                *ticket = Some(Box::new(LoginTicket { key, lane, number: *next }));
                self.waiting.insert(*next);
                *next
            }
        };
        let free = MAX_LOGINS_PER_LANE.saturating_sub(self.turns.len());
        let is_next = self.waiting.iter().take(free).any(|other| *other == number);
        if is_next {
            self.waiting.remove(&number);
            self.turns.push((number, now + MAX_TURN_TIME));
        }
        is_next
    }

    /// A client failed: its turn lasts until it is told. One that had none counts all the same.
    fn fail(&mut self, number: u64, now: Time) {
        self.waiting.remove(&number);
        self.turns.retain(|(other, until)| *other != number && now < *until);
        self.turns.push((number, now + FAILURE_DELAY));
    }

    fn leave(&mut self, number: u64) {
        self.waiting.remove(&number);
        self.turns.retain(|(other, _)| *other != number);
    }

    fn is_busy(&self, now: Time) -> bool {
        !self.waiting.is_empty() || self.turns.iter().any(|(_, until)| now < *until)
    }
}

/// What counts as one address.
pub(crate) fn net(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests;
