//! Those who keep servers for long: how many they may have, and who gives one back where the pool has become too small
//! for all of them.

use alloc::vec::Vec;

use crate::{action::Action, slots::ServerId, time::Time};

use super::{Mode, Pool};

/// A server that was asked for and has not come back is asked for again after this time, in nanoseconds.
const ASKED_AGAIN: u64 = 5_000_000_000;

impl Pool {
    /// At most this many servers the pool can have under other limits than its own, if no other pool under these has
    /// any; `u32::MAX`: any number. Those who keep servers for long have one less. Holds from the next call on, which
    /// [`Pool::handle_timeout`] may be.
    pub fn note_room(&mut self, room: u32) {
        self.room = room;
    }

    /// How many servers there can be.
    fn most(&self) -> u32 {
        self.limits.max_size.min(self.room)
    }

    /// Whether one more may have a server for long, or wait for one.
    pub(super) fn takes_lasting(&self) -> bool {
        self.slots.lasting() + self.waiters.lasting() < self.most().saturating_sub(1).max(1)
    }

    /// Waiters for which there may be a server now wait with the others from here on. Their time begins anew.
    #[inline]
    pub(super) fn let_in(&mut self, now: Time) {
        while self.held_back.len() > 0 && self.takes_lasting() {
            let waiter = self.held_back.pop_front().expect("a waiter, just seen");
            self.begins_to_wait(now);
            self.waiters.push(waiter.id, waiter.home, true, now);
        }
    }

    /// How many servers that are kept for long are to come back: the pool has become smaller, all servers that it has
    /// are kept for long, and a waiter is there that would not keep one.
    #[inline]
    fn excess(&self) -> u32 {
        let lasting = self.slots.lasting();
        if lasting == 0 || self.slots.live() != lasting || self.waiters.len() == self.waiters.lasting() {
            return 0;
        }
        // The only server of a pool may be kept.
        let fits = self.mode != Mode::Ready || self.limits.max_size == 1;
        if fits { 0 } else { lasting.saturating_sub(self.most().saturating_sub(1)) }
    }

    /// Asks for servers that are kept for long, if there are too many of them. Each has been kept for a turn at least.
    #[inline]
    pub(super) fn ask_back(&mut self, now: Time) {
        let excess = self.excess();
        if excess > 0 {
            self.ask_for_some_back(excess, now);
        }
    }

    #[cold]
    fn ask_for_some_back(&mut self, excess: u32, now: Time) {
        for (server, due) in self.to_be_asked(excess, now) {
            if due <= now {
                let slot = self.slots.get_mut(server);
                slot.asked = Some(now);
                let home = slot.home;
                self.actions.push_back(Action::GiveWay { server, home });
            }
        }
    }

    /// When the next one is to be asked for.
    #[inline]
    pub(super) fn asks_back_at(&self) -> Time {
        match self.excess() {
            0 => Time::NEVER,
            excess => {
                let due = self.to_be_asked(excess, self.now).into_iter().map(|(_, due)| due).min();
                due.unwrap_or(Time::NEVER).min(self.asks_again_at())
            }
        }
    }

    /// Which servers are to be asked for beside those that have been, and when: those that were kept for longest, and
    /// last of all what is known to be kept for other reasons than a request.
    fn to_be_asked(&self, excess: u32, now: Time) -> Vec<(ServerId, Time)> {
        let (asked, mut others): (Vec<_>, Vec<_>) =
            self.slots.all_lasting().partition(|(_, slot)| slot.asked.is_some_and(|at| at.after(ASKED_AGAIN) > now));
        others.sort_by_key(|(_, slot)| (slot.kept, slot.since));
        let missing = (excess as usize).saturating_sub(asked.len());
        others.into_iter().take(missing).map(|(server, slot)| (server, slot.since.after(self.limits.turn))).collect()
    }

    /// When the first one is asked for again that has been asked for.
    fn asks_again_at(&self) -> Time {
        let asked = self.slots.all_lasting().filter_map(|(_, slot)| slot.asked).map(|at| at.after(ASKED_AGAIN));
        asked.filter(|at| *at > self.now).min().unwrap_or(Time::NEVER)
    }
}
