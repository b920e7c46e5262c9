//! Newcomers: clients for which there is no place. They wait for one at the worker that accepts, which receives nothing
//! from them yet. A client that waits too long is let in to be told that there is no room.
//!
//! A place goes to the first whose address has fewest clients that have not logged in. Where all that may wait do, the
//! address with most of them loses the last one, if the newcomer's address has fewer, by two at least.

use std::{collections::HashMap, sync::atomic::Ordering::SeqCst, time::Duration};

use pool::Time;
use seam::Protocol;

use super::Worker;
use crate::{
    listener::{Listener, MAX_NEWCOMERS},
    lobby::Net,
    mailbox::{Accepted, Admission},
    reactor::Reactor,
};

/// A client that waits for a place.
pub(super) struct Newcomer<S> {
    pub(super) accepted: Accepted<S>,
    pub(super) net: Net,
    pub(super) since: Time,
}

/// The clients that wait, by listener, in the order in which they came.
pub(super) struct Newcomers<S>(Vec<Vec<Newcomer<S>>>);

impl<S> Newcomers<S> {
    pub(super) fn new(listeners: usize) -> Self {
        Self((0..listeners).map(|_| Vec::new()).collect())
    }

    /// Whether any wait at a listener.
    pub(super) fn any(&self, listener: u32) -> bool {
        !self.0[listener as usize].is_empty()
    }

    /// A newcomer waits. Gives back the one that does not, if there are too many or none may.
    pub(super) fn wait(&mut self, rules: &Listener, listener: u32, newcomer: Newcomer<S>) -> Option<Newcomer<S>> {
        if rules.timeouts().newcomer_wait.is_none() {
            return Some(newcomer);
        }
        let all = &mut self.0[listener as usize];
        if all.len() < MAX_NEWCOMERS {
            rules.newcomers.fetch_add(1, SeqCst);
            all.push(newcomer);
            return None;
        }
        let mut counts: HashMap<Net, usize> = HashMap::new();
        all.iter().for_each(|waiting| *counts.entry(waiting.net).or_default() += 1);
        let own = counts.get(&newcomer.net).copied().unwrap_or(0);
        let last = (0..all.len()).max_by_key(|number| (counts[&all[*number].net], *number));
        match last.filter(|number| counts[&all[*number].net] >= own + 2) {
            Some(last) => {
                let refused = all.remove(last);
                all.push(newcomer);
                Some(refused)
            }
            None => Some(newcomer),
        }
    }

    /// Removes a newcomer. It counts until it is a client or is refused.
    fn take(&mut self, listener: usize, number: usize) -> Newcomer<S> {
        self.0[listener].remove(number)
    }

    /// Whether the first newcomer in line has waited for `time`.
    fn waited(&self, listener: usize, time: Duration, now: Time) -> bool {
        self.0[listener].first().is_some_and(|first| now - first.since >= time)
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Gives places that have become free to clients that wait, and refuses clients that have waited too long.
    pub(super) fn let_newcomers_in(&mut self) {
        for listener in 0..self.process.listeners.len() {
            if self.newcomers.any(listener as u32) {
                self.let_in_at(listener);
            }
        }
    }

    fn let_in_at(&mut self, listener: usize) {
        let process = std::sync::Arc::clone(&self.process);
        let rules = &process.listeners[listener];
        // One that has given up takes no place.
        let before = self.newcomers.0[listener].len();
        self.newcomers.0[listener].retain(|newcomer| !R::has_hung_up(&newcomer.accepted.socket));
        rules.newcomers.fetch_sub(before - self.newcomers.0[listener].len(), SeqCst);
        while let Some(next) = rules.next_of(self.newcomers.0[listener].iter().map(|newcomer| newcomer.net)) {
            if !self.admit_newcomer(listener as u32, self.newcomers.0[listener][next].net) {
                break;
            }
            let Newcomer { accepted, .. } = self.newcomers.take(listener, next);
            self.assign_client(accepted, listener as u32, Admission::Admitted);
            rules.newcomers.fetch_sub(1, SeqCst);
        }
        let most = rules.timeouts().newcomer_wait.unwrap_or(Duration::ZERO);
        while self.newcomers.waited(listener, most, self.now) {
            self.refuse_newcomer(listener);
        }
    }

    fn refuse_newcomer(&mut self, listener: usize) {
        let Newcomer { accepted, .. } = self.newcomers.take(listener, 0);
        self.turn_away(accepted, listener as u32, true);
        self.process.listeners[listener].newcomers.fetch_sub(1, SeqCst);
    }

    pub(super) fn refuse_newcomers(&mut self) {
        for listener in 0..self.process.listeners.len() {
            while self.newcomers.any(listener as u32) {
                self.refuse_newcomer(listener);
            }
        }
    }
}
