//! The servers of one pool: the state of each and since when, and which idle one was used last. It keeps the counts
//! right and refuses stale ids. It does not know why a server changes its state.

use alloc::vec::Vec;

use crate::{
    list::{Links, List, NONE},
    time::Time,
};

/// A server of one pool. Its slot is reused after the server is gone, with another generation. The use of an id whose
/// server is gone is a mistake of the caller, and panics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ServerId {
    slot: u32,
    generation: u32,
}

impl ServerId {
    /// A small number, for tables. No other present server of the pool has it.
    pub fn slot(self) -> usize {
        self.slot as usize
    }
}

/// The worker where a server lives or a waiter waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Home(pub u8);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Free,
    Connecting,
    Idle,
    InUse,
    Checking,
    Closing,
}

const STATES: usize = 6;

#[derive(Debug)]
pub(crate) struct Slot {
    /// Its place among servers in the same state, if that state has a list. Of a free slot, `next` is the next free
    /// one.
    links: Links,
    /// Its place among the idle servers of its home.
    home_links: Links,
    /// When this state began.
    pub(crate) since: Time,
    /// When its connection was ready.
    pub(crate) ready_at: Time,
    pub(crate) expires: Time,
    generation: u32,
    /// The pool's generation when its connect was ordered.
    pub(crate) pool_generation: u32,
    pub(crate) state: State,
    pub(crate) home: Home,
    /// It was checked out at least once.
    pub(crate) used: bool,
    /// It is in use, and ordered to be interrupted.
    pub(crate) interrupted: bool,
    /// It is in use by a client that holds it without a time limit.
    lasting: bool,
    /// When that client was last asked to give it back.
    pub(crate) return_requested_at: Option<Time>,
    /// It is in use, and held for another reason than a transaction.
    pub(crate) pinned: bool,
}

#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Slot>,
    free: u32,
    counts: [u32; STATES],
    /// Servers whose clients hold them without a time limit.
    lasting: u32,
    /// Idle servers, the last used one first.
    idle: List,
    /// By home: its idle servers, the last used one first.
    homes: Vec<List>,
    /// In the order in which their connects began.
    connecting: List,
    /// In the order in which their checks began.
    checking: List,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: NONE,
            counts: [0; STATES],
            lasting: 0,
            idle: List::EMPTY,
            homes: Vec::new(),
            connecting: List::EMPTY,
            checking: List::EMPTY,
        }
    }

    /// The number of servers whose clients hold them without a time limit.
    #[inline]
    pub(crate) fn lasting(&self) -> u32 {
        self.lasting
    }

    /// The servers whose clients hold them without a time limit: O(n).
    pub(crate) fn all_lasting(&self) -> impl Iterator<Item = (ServerId, &Slot)> {
        self.all().filter(|(_, slot)| slot.lasting && slot.state == State::InUse)
    }

    /// The client of this server holds it without a time limit.
    pub(crate) fn set_lasting(&mut self, server: ServerId) {
        let slot = self.get_mut(server);
        assert!(slot.state == State::InUse, "{server:?} is held for long while {:?}", slot.state);
        if !core::mem::replace(&mut slot.lasting, true) {
            self.lasting += 1;
        }
    }

    #[inline]
    pub(crate) fn end_lasting(&mut self, server: ServerId) {
        if core::mem::replace(&mut self.get_mut(server).lasting, false) {
            self.lasting -= 1;
        }
    }

    /// Sets whether a server is held for another reason than a transaction. A server that is not in use is left as it
    /// is.
    pub(crate) fn set_pinned(&mut self, server: ServerId, pinned: bool) {
        let here = self.slots.get_mut(server.slot());
        let slot = here.filter(|slot| slot.generation == server.generation && slot.state == State::InUse);
        if let Some(slot) = slot {
            slot.pinned = pinned;
        }
    }

    /// Since when a server has been in use, the longest time of all that are held for a transaction: O(n).
    pub(crate) fn oldest_hold(&self) -> Option<Time> {
        let held = self.slots.iter().filter(|slot| slot.state == State::InUse && !slot.lasting && !slot.pinned);
        held.map(|slot| slot.since).min()
    }

    #[inline]
    pub(crate) fn count(&self, state: State) -> u32 {
        self.counts[state as usize]
    }

    /// All servers.
    #[inline]
    pub(crate) fn total(&self) -> u32 {
        self.live() + self.count(State::Closing)
    }

    /// All servers that are not closing.
    #[inline]
    pub(crate) fn live(&self) -> u32 {
        self.counts[State::Connecting as usize] + self.established()
    }

    /// All servers whose connection is ready and not closing.
    #[inline]
    pub(crate) fn established(&self) -> u32 {
        self.counts[State::Idle as usize] + self.counts[State::InUse as usize] + self.counts[State::Checking as usize]
    }

    /// Adds a server, which is connecting.
    pub(crate) fn create(&mut self, home: Home, pool_generation: u32, now: Time) -> ServerId {
        let slot = Slot {
            links: Links::NONE,
            home_links: Links::NONE,
            since: now,
            ready_at: Time::NEVER,
            expires: Time::NEVER,
            generation: 0,
            pool_generation,
            state: State::Free,
            home,
            used: false,
            interrupted: false,
            lasting: false,
            return_requested_at: None,
            pinned: false,
        };
        let at = if self.free == NONE {
            self.slots.push(slot);
            u32::try_from(self.slots.len() - 1).expect("fewer slots than MAX_SERVERS")
        } else {
            let at = self.free;
            let old = &self.slots[at as usize];
            self.free = old.links.next;
            self.slots[at as usize] = Slot { generation: old.generation, ..slot };
            at
        };
        self.change(at, State::Connecting, now);
        self.id(at)
    }

    /// Removes a server. Its id is void from now on.
    pub(crate) fn remove(&mut self, server: ServerId, now: Time) {
        self.assert_present(server);
        self.change(server.slot, State::Free, now);
        let slot = &mut self.slots[server.slot()];
        slot.generation = slot.generation.wrapping_add(1);
        slot.links.next = self.free;
        self.free = server.slot;
    }

    #[inline]
    pub(crate) fn get(&self, server: ServerId) -> &Slot {
        self.assert_present(server);
        &self.slots[server.slot()]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, server: ServerId) -> &mut Slot {
        self.assert_present(server);
        &mut self.slots[server.slot()]
    }

    #[inline]
    pub(crate) fn set_state(&mut self, server: ServerId, state: State, now: Time) {
        self.assert_present(server);
        self.change(server.slot, state, now);
    }

    /// The idle server of this home that was used last.
    #[inline]
    pub(crate) fn last_used_at(&self, home: Home) -> Option<ServerId> {
        self.some(self.homes.get(home.0 as usize)?.head)
    }

    /// The idle server that was used last.
    #[inline]
    pub(crate) fn last_used(&self) -> Option<ServerId> {
        self.some(self.idle.head)
    }

    /// The server that has been idle longest.
    #[inline]
    pub(crate) fn oldest_idle(&self) -> Option<ServerId> {
        self.some(self.idle.tail)
    }

    /// The server that has been connecting longest.
    #[inline]
    pub(crate) fn oldest_connecting(&self) -> Option<ServerId> {
        self.some(self.connecting.head)
    }

    /// The server that has been checked or reset longest.
    #[inline]
    pub(crate) fn oldest_checking(&self) -> Option<ServerId> {
        self.some(self.checking.head)
    }

    /// All present servers, in no useful order: O(n).
    pub(crate) fn all(&self) -> impl Iterator<Item = (ServerId, &Slot)> {
        let id = |(at, slot)| (ServerId { slot: at, generation: Slot::generation(slot) }, slot);
        (0..).zip(&self.slots).map(id).filter(|(_, slot)| slot.state != State::Free)
    }

    /// The server in this slot, if there is one. With [`slot_count`](Self::slot_count), the servers can be changed in a
    /// loop.
    pub(crate) fn at(&self, place: usize) -> Option<ServerId> {
        let at = u32::try_from(place).ok().filter(|_| self.slots[place].state != State::Free)?;
        Some(self.id(at))
    }

    /// The number of slots, free ones included.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    fn id(&self, at: u32) -> ServerId {
        ServerId { slot: at, generation: self.slots[at as usize].generation }
    }

    #[inline]
    fn some(&self, at: u32) -> Option<ServerId> {
        (at != NONE).then(|| self.id(at))
    }

    /// The slot of this server, if the server is not gone.
    pub(crate) fn find(&self, server: ServerId) -> Option<&Slot> {
        self.slots.get(server.slot()).filter(|slot| slot.generation == server.generation && slot.state != State::Free)
    }

    #[inline]
    fn assert_present(&self, server: ServerId) {
        let slot = &self.slots[server.slot()];
        assert!(slot.generation == server.generation && slot.state != State::Free, "{server:?} is gone");
    }

    #[inline]
    fn change(&mut self, at: u32, state: State, now: Time) {
        let slot = &mut self.slots[at as usize];
        let old = slot.state;
        slot.state = state;
        slot.since = now;
        (slot.pinned, slot.return_requested_at) = (false, None);
        if core::mem::replace(&mut slot.lasting, false) {
            self.lasting -= 1;
        }
        match old {
            State::Idle => {
                self.idle.remove(&mut self.slots, at, |s| &mut s.links);
                self.leave_home(at);
            }
            State::Connecting => self.connecting.remove(&mut self.slots, at, |s| &mut s.links),
            State::Checking => self.checking.remove(&mut self.slots, at, |s| &mut s.links),
            State::InUse | State::Closing | State::Free => {}
        }
        match state {
            State::Idle => {
                self.idle.push_front(&mut self.slots, at, |s| &mut s.links);
                let home = self.slots[at as usize].home;
                self.ensure_home(home);
                self.homes[home.0 as usize].push_front(&mut self.slots, at, |s| &mut s.home_links);
            }
            State::Connecting => self.connecting.push_back(&mut self.slots, at, |s| &mut s.links),
            State::Checking => self.checking.push_back(&mut self.slots, at, |s| &mut s.links),
            State::InUse | State::Closing | State::Free => {}
        }
        if old != State::Free {
            self.counts[old as usize] -= 1;
        }
        if state != State::Free {
            self.counts[state as usize] += 1;
        }
    }

    #[inline]
    fn leave_home(&mut self, at: u32) {
        let home = self.slots[at as usize].home;
        self.homes[home.0 as usize].remove(&mut self.slots, at, |s| &mut s.home_links);
    }

    /// Makes the list of this home, if there is none yet.
    #[inline]
    fn ensure_home(&mut self, home: Home) {
        if self.homes.len() <= home.0 as usize {
            self.homes.resize(home.0 as usize + 1, List::EMPTY);
        }
    }

    /// Checks that counts, lists and states agree: O(n).
    pub(crate) fn check_invariants(&self) {
        let mut counts = [0; STATES];
        for (_, slot) in self.all() {
            counts[slot.state as usize] += 1;
        }
        assert_eq!(counts, self.counts, "the counts of servers are wrong");
        let lasting = self.all().filter(|(_, slot)| slot.lasting && slot.state == State::InUse).count();
        assert_eq!(lasting, self.lasting as usize, "the count of lasting servers is wrong");
        assert!(
            self.slots.iter().all(|slot| !slot.pinned || slot.state == State::InUse),
            "a server is pinned that is not in use"
        );
        for (list, state) in [(self.connecting, State::Connecting), (self.checking, State::Checking)] {
            let (mut at, mut n, mut last) = (list.head, 0, Time(0));
            while at != NONE {
                let slot = &self.slots[at as usize];
                assert!(
                    slot.state == state && slot.since >= last,
                    "the list of servers that are {state:?} is wrong at {at}"
                );
                (at, n, last) = (slot.links.next, n + 1, slot.since);
            }
            assert_eq!(
                n,
                self.count(state),
                "the list of servers that are {state:?} has another length than their count"
            );
        }
        self.check_idle(self.idle, None, |s| s.links);
        for (home, list) in (0..).zip(&self.homes) {
            self.check_idle(*list, Some(Home(home)), |s| s.home_links);
        }
        let (mut at, mut free) = (self.free, 0);
        while at != NONE {
            assert!(self.slots[at as usize].state == State::Free, "a slot in the free list is not free");
            (at, free) = (self.slots[at as usize].links.next, free + 1);
        }
        assert_eq!(free + self.total() as usize, self.slots.len(), "a slot is neither free nor used");
    }

    fn check_idle(&self, list: List, home: Option<Home>, links: impl Fn(&Slot) -> Links) {
        let expected = self.all().filter(|(_, s)| s.state == State::Idle && home.is_none_or(|h| h == s.home)).count();
        let (mut at, mut n, mut last) = (list.head, 0, Time::NEVER);
        while at != NONE {
            let slot = &self.slots[at as usize];
            assert!(slot.state == State::Idle && slot.since <= last, "idle servers are not last used first at {at}");
            assert!(home.is_none_or(|home| home == slot.home), "an idle server is in the list of another home");
            (at, n, last) = (links(slot).next, n + 1, slot.since);
        }
        assert_eq!(n, expected, "an idle server is missing in the list of {home:?}");
    }
}

impl Slot {
    fn generation(&self) -> u32 {
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(slots: &mut Slots, home: u8, now: u64) -> ServerId {
        let server = slots.create(Home(home), 0, Time(now));
        slots.set_state(server, State::Idle, Time(now));
        slots.check_invariants();
        server
    }

    #[test]
    fn the_last_used_server_is_found_by_home_and_among_all() {
        let mut slots = Slots::new();
        let a = idle(&mut slots, 0, 1);
        let b = idle(&mut slots, 0, 2);
        let c = idle(&mut slots, 3, 3);
        assert_eq!(slots.last_used_at(Home(0)), Some(b));
        assert_eq!(slots.last_used_at(Home(1)), None);
        assert_eq!(slots.last_used_at(Home(9)), None);
        assert_eq!((slots.last_used(), slots.oldest_idle()), (Some(c), Some(a)));
        slots.set_state(a, State::InUse, Time(4));
        slots.set_state(a, State::Idle, Time(5));
        assert_eq!((slots.last_used_at(Home(0)), slots.oldest_idle()), (Some(a), Some(b)));
        slots.check_invariants();
    }
}
