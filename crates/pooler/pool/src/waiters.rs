//! The waiters for a server: one queue in order of arrival, and one for each home. It knows which waiter is next and
//! which one may overtake, but not what they wait for, and not for how long they may.

use alloc::vec::Vec;

use crate::{
    list::{Links, List, NONE},
    slots::Home,
    time::Time,
};

/// A waiter. The caller chooses the id, which no other present waiter of the pool has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WaiterId(pub u64);

/// A waiter's place in a queue, for [`crate::Pool::cancel`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket(pub u32);

/// A waiter as it left the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) id: WaiterId,
    pub(crate) home: Home,
    pub(crate) since: Time,
    /// It will hold its server without a time limit.
    pub(crate) lasting: bool,
}

#[derive(Debug)]
struct Entry {
    id: WaiterId,
    since: Time,
    /// The number of the waiter in order of arrival.
    sequence: u64,
    /// In the queue of all waiters. Of a free entry, `next` is the next free one.
    links: Links,
    /// In the queue of its home.
    home_links: Links,
    home: Home,
    lasting: bool,
    present: bool,
}

#[derive(Debug)]
pub(crate) struct Waiters {
    entries: Vec<Entry>,
    free: u32,
    all: List,
    homes: Vec<List>,
    len: u32,
    /// Waiters that will hold their server without a time limit.
    lasting: u32,
    arrivals: u64,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: NONE, all: List::EMPTY, homes: Vec::new(), len: 0, lasting: 0, arrivals: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline]
    pub(crate) fn lasting(&self) -> u32 {
        self.lasting
    }

    /// Adds a waiter at the end of the queue.
    pub(crate) fn push(&mut self, id: WaiterId, home: Home, lasting: bool, now: Time) -> Ticket {
        self.arrivals += 1;
        let entry = Entry {
            id,
            since: now,
            sequence: self.arrivals,
            links: Links::NONE,
            home_links: Links::NONE,
            home,
            lasting,
            present: true,
        };
        let at = if self.free == NONE {
            self.entries.push(entry);
            u32::try_from(self.entries.len() - 1).expect("fewer waiters than MAX_WAITERS")
        } else {
            let at = self.free;
            self.free = self.entries[at as usize].links.next;
            self.entries[at as usize] = entry;
            at
        };
        if self.homes.len() <= home.0 as usize {
            self.homes.resize(home.0 as usize + 1, List::EMPTY);
        }
        self.all.push_back(&mut self.entries, at, |e| &mut e.links);
        self.homes[home.0 as usize].push_back(&mut self.entries, at, |e| &mut e.home_links);
        self.len += 1;
        self.lasting += u32::from(lasting);
        Ticket(at)
    }

    /// The first waiter.
    #[inline]
    pub(crate) fn front(&self) -> Option<Waiter> {
        self.entries.get(self.all.head as usize).map(Entry::waiter)
    }

    /// The waiter that is `n` places behind the first: O(n).
    pub(crate) fn nth(&self, n: u32) -> Option<Waiter> {
        let mut at = self.all.head;
        for _ in 0..n {
            at = self.entries.get(at as usize)?.links.next;
        }
        self.entries.get(at as usize).map(Entry::waiter)
    }

    /// Removes the first waiter.
    pub(crate) fn pop_front(&mut self) -> Option<Waiter> {
        (self.all.head != NONE).then(|| self.take(self.all.head))
    }

    /// Removes the waiter that gets a server of this home: the first waiter of this home, if it arrived at most
    /// `max_overtakes` places behind the first waiter of all; otherwise the first of all.
    ///
    /// So a waiter with the number f is overtaken by waiters with numbers from f+1 to f+`max_overtakes` only, because
    /// the first waiter's number is at most f.
    #[inline]
    pub(crate) fn pop_for(&mut self, home: Home, max_overtakes: u32) -> Option<Waiter> {
        if self.all.head == NONE {
            return None;
        }
        let front = self.entries[self.all.head as usize].sequence;
        let own = self.homes.get(home.0 as usize).map_or(NONE, |list| list.head);
        let near = own != NONE && self.entries[own as usize].sequence <= front + u64::from(max_overtakes);
        Some(self.take(if near { own } else { self.all.head }))
    }

    /// Removes the waiter with this ticket, if it is there.
    pub(crate) fn remove(&mut self, ticket: Ticket, id: WaiterId) -> Option<Waiter> {
        let entry = self.entries.get(ticket.0 as usize)?;
        (entry.present && entry.id == id).then(|| self.take(ticket.0))
    }

    /// Removes a waiter that will hold its server without a time limit, by its id: O(n).
    pub(crate) fn remove_lasting(&mut self, id: WaiterId) -> Option<Waiter> {
        let mut at = if self.lasting > 0 { self.all.head } else { NONE };
        while at != NONE {
            let entry = &self.entries[at as usize];
            if entry.lasting && entry.id == id {
                return Some(self.take(at));
            }
            at = entry.links.next;
        }
        None
    }

    #[inline]
    fn take(&mut self, at: u32) -> Waiter {
        self.all.remove(&mut self.entries, at, |e| &mut e.links);
        let home = self.entries[at as usize].home;
        self.homes[home.0 as usize].remove(&mut self.entries, at, |e| &mut e.home_links);
        let entry = &mut self.entries[at as usize];
        entry.present = false;
        entry.links.next = self.free;
        self.free = at;
        self.len -= 1;
        self.lasting -= u32::from(entry.lasting);
        entry.waiter()
    }

    /// Checks that both orders have the same waiters, each in order of arrival: O(n).
    pub(crate) fn check_invariants(&self) {
        let present = self.entries.iter().filter(|e| e.present).count();
        assert_eq!(present, self.len as usize, "the count of waiters is wrong");
        let lasting = self.entries.iter().filter(|e| e.present && e.lasting).count();
        assert_eq!(lasting, self.lasting as usize, "the count of lasting waiters is wrong");
        assert_eq!(self.walk(self.all, None, |e| e.links), present, "a waiter is forgotten");
        let by_home = (0..).zip(&self.homes).map(|(home, list)| self.walk(*list, Some(Home(home)), |e| e.home_links));
        assert_eq!(by_home.sum::<usize>(), present, "a waiter is forgotten at its home");
    }

    fn walk(&self, list: List, home: Option<Home>, links: impl Fn(&Entry) -> Links) -> usize {
        let (mut at, mut n, mut last, mut since) = (list.head, 0, 0, Time(0));
        while at != NONE {
            let entry = &self.entries[at as usize];
            assert!(entry.present && entry.sequence > last && entry.since >= since, "waiters are out of order at {at}");
            assert!(home.is_none_or(|home| home == entry.home), "a waiter is in the queue of another home");
            (at, n, last, since) = (links(entry).next, n + 1, entry.sequence, entry.since);
        }
        n
    }
}

impl Entry {
    #[inline]
    fn waiter(&self) -> Waiter {
        Waiter { id: self.id, home: self.home, since: self.since, lasting: self.lasting }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn waiters(homes: &[u8]) -> Waiters {
        let mut waiters = Waiters::new();
        for (id, home) in (0..).zip(homes) {
            waiters.push(WaiterId(id), Home(*home), false, Time(id));
        }
        waiters.check_invariants();
        waiters
    }

    fn served(waiters: &mut Waiters, home: u8, max_overtakes: u32) -> Vec<u64> {
        let mut order = vec![];
        while let Some(waiter) = waiters.pop_for(Home(home), max_overtakes) {
            order.push(waiter.id.0);
            waiters.check_invariants();
        }
        order
    }

    #[test]
    fn the_servers_own_home_comes_first_within_the_limit() {
        assert_eq!(served(&mut waiters(&[1, 0, 0, 0, 1]), 0, 2), [1, 2, 0, 3, 4]);
        assert_eq!(served(&mut waiters(&[1, 0, 1, 0]), 0, 99), [1, 3, 0, 2]);
    }

    #[test]
    fn a_waiter_who_left_is_not_served_and_its_ticket_is_worth_nothing() {
        let mut waiters = waiters(&[0, 0]);
        let ticket = waiters.push(WaiterId(7), Home(0), false, Time(9));
        assert!(waiters.remove(ticket, WaiterId(8)).is_none());
        assert!(waiters.remove(ticket, WaiterId(7)).is_some());
        assert!(waiters.remove(ticket, WaiterId(7)).is_none());
        assert!(waiters.remove(Ticket(99), WaiterId(7)).is_none());
        assert_eq!(served(&mut waiters, 0, 0), [0, 1]);
    }

    #[test]
    fn places_in_the_queue_are_used_again() {
        let mut waiters = Waiters::new();
        for id in 0..100 {
            waiters.push(WaiterId(id), Home(2), false, Time(id));
            assert_eq!(waiters.pop_front().map(|w| w.id), Some(WaiterId(id)));
        }
        assert_eq!(waiters.entries.len(), 1);
        assert!(waiters.nth(0).is_none());
    }
}
