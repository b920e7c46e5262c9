//! Clients that go because there are more than the soft limit: as long as that is so, those that have been idle for longer than
//! `evict_min_idle`, the longest idle first, whichever worker they live on. Who holds a server goes last.
//!
//! Each worker publishes at each tick which of its clients could go. It evicts those of its own that are among the first of all, one
//! reservation of the gate for each, so that workers never evict too many together.

use pool::Time;
use protocol::{Protocol, Refusal};

use super::{Worker, lines::Line, turns::TICK};
use crate::{client_state::State, evictions::Rank, mailbox::Admitted, reactor::Reactor};

/// The most clients of a listener that are evicted in one tick.
const MAX_EVICTIONS_A_TICK: usize = 64;

/// A worker that has published nothing for this number of ticks does not run: its clients keep those of others from going no longer.
const TICKS_UNTIL_SILENT: u32 = 5;

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Sends clients away as long as there are more than the soft limit.
    pub(super) fn evict(&mut self) {
        for listener in 0..self.host.listeners.len() {
            self.evict_at(listener);
        }
    }

    fn evict_at(&mut self, listener: usize) {
        let host = std::sync::Arc::clone(&self.host);
        let rules = &host.listeners[listener];
        for _ in 0..MAX_EVICTIONS_A_TICK {
            let Some(displaced) = rules.displace_slow(self.now) else { break };
            self.tell_displaced(displaced);
        }
        let min = u64::try_from(rules.limits().evict_min_idle.as_nanos()).unwrap_or(u64::MAX);
        let until = self.now.0.checked_sub(min).map(Time);
        let mut own = until.map_or_else(Vec::new, |until| self.evictable(listener, until));
        let most = (rules.evictions_wanted() as usize).min(MAX_EVICTIONS_A_TICK);
        if most > 0 && !own.is_empty() {
            let mut first: Vec<Rank> = self.evictable_elsewhere(listener);
            first.extend(own.iter().map(|(rank, _)| *rank));
            first.sort_unstable();
            let last = first[most.min(first.len()) - 1];
            let mine = own.partition_point(|(rank, _)| *rank <= last);
            for (_, slot) in own.drain(..mine) {
                self.evict_one(slot);
            }
        }
        let mut published = host.board[usize::from(self.number)].evictable(listener);
        published.at = self.now;
        published.ranks.clear();
        published.ranks.extend(own.iter().map(|(rank, _)| *rank));
    }

    /// Clients of a listener that have been idle since `until` at least, in the order in which they are evicted.
    fn evictable(&self, listener: usize, until: Time) -> Vec<(Rank, usize)> {
        let lines = &self.lines[listener];
        let of = |line, holds| {
            let long = lines.all(line).take_while(move |(_, since)| *since <= until);
            // One that is only told that there is no room has no place that another could have.
            let welcome = long.filter(|(slot, _)| self.clients[*slot].admitted == Admitted::Welcome);
            welcome.map(move |(slot, since)| ((holds, since), slot))
        };
        of(Line::Idle, false).chain(of(Line::Pinned, true)).take(MAX_EVICTIONS_A_TICK).collect()
    }

    /// What other workers could evict at a listener.
    fn evictable_elsewhere(&self, listener: usize) -> Vec<Rank> {
        let mut all = Vec::new();
        for (number, board) in self.host.board.iter().enumerate() {
            if number != usize::from(self.number) {
                let published = board.evictable(listener);
                if self.now - published.at <= TICK * TICKS_UNTIL_SILENT {
                    all.extend_from_slice(&published.ranks);
                }
            }
        }
        all
    }

    fn evict_one(&mut self, slot: usize) {
        let Some(client) = self.clients.get(slot).filter(|client| !client.closing && client.state == State::Idle)
        else {
            return;
        };
        let host = std::sync::Arc::clone(&self.host);
        if !client.leaving && host.listeners[usize::from(client.listener)].reserve() {
            self.clients[slot].leaving = true;
            self.refuse(slot, Refusal::Evicted);
            self.refresh_state(slot);
        }
    }
}
