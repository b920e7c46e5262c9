//! Which key has been idle longest: a queue of one worker for one purpose (eviction, idle time-out, login time-out). It
//! knows keys and times, not what the keys stand for. All operations are O(1). An entry takes 24 bytes.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    list::{Links, List, NONE},
    time::Time,
};

/// `prev` of an entry that is not in the queue.
const FREE: u32 = u32::MAX - 1;

/// A place in an [`IdleQueue`], by which a key is removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IdleTicket(u32);

/// Keys in the order in which they became idle.
#[derive(Debug)]
pub struct IdleQueue {
    entries: Vec<Entry>,
    list: List,
    /// The first free entry. `links.next` has the next one.
    free: u32,
    len: u32,
}

#[derive(Debug)]
struct Entry {
    since: Time,
    key: u32,
    links: Links,
}

impl Default for IdleQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl IdleQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { entries: Vec::new(), list: List::EMPTY, free: NONE, len: 0 }
    }

    /// `key` is idle from now on. An earlier `now` than the last one is taken for the last one.
    pub fn push(&mut self, key: u32, now: Time) -> IdleTicket {
        let since = match self.list.tail {
            NONE => now,
            tail => now.max(self.entries[tail as usize].since),
        };
        let entry = Entry { since, key, links: Links::NONE };
        let at = match self.free {
            NONE => {
                let at = u32::try_from(self.entries.len()).ok().filter(|at| *at < FREE);
                self.entries.push(entry);
                at.expect("fewer than 2^32 - 2 entries")
            }
            at => {
                self.free = self.entries[at as usize].links.next;
                self.entries[at as usize] = entry;
                at
            }
        };
        self.list.push_back(&mut self.entries, at, |e| &mut e.links);
        self.len += 1;
        IdleTicket(at)
    }

    /// Removes an entry, and returns its key.
    pub fn remove(&mut self, ticket: IdleTicket) -> u32 {
        let at = ticket.0;
        assert!(self.entries[at as usize].links.prev != FREE, "an idle ticket was used twice");
        self.list.remove(&mut self.entries, at, |e| &mut e.links);
        self.entries[at as usize].links = Links { prev: FREE, next: self.free };
        self.free = at;
        self.len -= 1;
        self.entries[at as usize].key
    }

    /// The key that has been idle longest, and the time since when.
    pub fn oldest(&self) -> Option<(u32, Time)> {
        let entry = self.entries.get(self.list.head as usize)?;
        Some((entry.key, entry.since))
    }

    /// All keys, and the times since when they have been idle. The longest idle one is first.
    pub fn iter(&self) -> impl Iterator<Item = (u32, Time)> {
        let entry = |at: u32| self.entries.get(at as usize);
        let first = entry(self.list.head);
        core::iter::successors(first, move |before| entry(before.links.next)).map(|entry| (entry.key, entry.since))
    }

    /// Removes the key that has been idle longest, if that is at least `min`.
    pub fn pop_idle_for(&mut self, min: Duration, now: Time) -> Option<u32> {
        let (_, since) = self.oldest()?;
        (since + min <= now).then(|| self.remove(IdleTicket(self.list.head)))
    }

    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no key is idle.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Time {
        Time(0) + SECOND * u32::try_from(seconds).expect("a small number")
    }

    #[test]
    fn entries_are_reused_and_take_24_bytes() {
        let mut queue = IdleQueue::new();
        for round in 0..1000 {
            let ticket = queue.push(round, at(u64::from(round)));
            queue.remove(ticket);
        }
        assert_eq!(queue.entries.len(), 1);
        assert_eq!(size_of::<Entry>(), 24);
    }

    #[test]
    fn a_clock_that_steps_back_keeps_the_order() {
        let mut queue = IdleQueue::new();
        queue.push(1, at(10));
        let second = queue.push(2, at(9));
        queue.pop_idle_for(SECOND, at(11));
        assert_eq!(queue.oldest(), Some((2, at(10))));
        queue.remove(second);
    }

    #[test]
    #[should_panic = "used twice"]
    fn a_ticket_cannot_be_used_twice() {
        let mut queue = IdleQueue::new();
        let ticket = queue.push(1, at(1));
        queue.remove(ticket);
        queue.remove(ticket);
    }
}
