//! A drain over time: clients are sent away one after the other, each at the end of its transaction, so that they do
//! not all connect elsewhere at once. Meanwhile the worker goes on accepting: a balancer may not know yet that it
//! drains.

use std::time::Duration;

use pool::Time;
use seam::{Protocol, Refusal};

use super::{Worker, clients::ClientConn};
use crate::{client_state::State, reactor::Reactor};

/// Which clients are due to go.
pub(super) struct Departures {
    /// When the last one is to go.
    until: Time,
    /// When clients were last sent away.
    last: Time,
    /// Clients that are due and were not sent away yet, because their transactions go on; and a fraction of one.
    due: f64,
    /// The slot after that of the client that went last, so that each has its turn.
    next: usize,
}

impl Departures {
    fn new(over: Duration, now: Time) -> Self {
        Self { until: now + over, last: now, due: 0.0, next: 0 }
    }

    /// How many clients are to go now, of these that are here.
    fn due_now(&mut self, present: usize, now: Time) -> usize {
        let (passed, left) = (now - self.last, self.until - self.last);
        self.last = now;
        let part = if left <= passed { 1.0 } else { passed.as_secs_f64() / left.as_secs_f64() };
        // Those that are due already are no longer among the others.
        let others = (present as f64 - self.due).max(0.0);
        self.due = (self.due + others * part).min(present as f64);
        self.due as usize
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Begins to send clients away, the last of them after this time.
    pub(super) fn drain_over(&mut self, over: Duration) {
        self.departures = Some(Departures::new(over, self.now));
    }

    /// Sends clients away that are due and have nothing in progress.
    pub(super) fn send_due_away(&mut self) {
        let Some(departures) = &mut self.departures else { return };
        let due = departures.due_now(self.clients.len(), self.now);
        let next = departures.next;
        let may_go = |client: &ClientConn<P::Client>| client.state != State::Login && client.has_no_work();
        let (before, behind): (Vec<usize>, Vec<usize>) = self
            .clients
            .iter()
            .filter(|(_, client)| due > 0 && may_go(client))
            .map(|(slot, _)| slot)
            .partition(|slot| *slot < next);
        for slot in behind.into_iter().chain(before).take(due) {
            self.refuse(slot, Refusal::ShuttingDown);
            if let Some(departures) = &mut self.departures {
                departures.due -= 1.0;
                departures.next = slot + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_go_evenly_and_all_of_them() {
        let mut departures = Departures::new(Duration::from_secs(10), Time(0));
        let mut present = 100;
        let mut went = Vec::new();
        for second in 1..=10 {
            let due = departures.due_now(present, Time(0) + Duration::from_secs(second));
            departures.due -= due as f64;
            present -= due;
            went.push(due);
        }
        assert!(went.iter().all(|due| (9..=11).contains(due)), "{went:?}");
        assert_eq!(present, 0);
    }

    #[test]
    fn clients_that_cannot_go_yet_stay_due() {
        let mut departures = Departures::new(Duration::from_secs(10), Time(0));
        let due = |departures: &mut Departures, second| departures.due_now(10, Time(0) + Duration::from_secs(second));
        assert_eq!((due(&mut departures, 5), due(&mut departures, 10), due(&mut departures, 20)), (5, 10, 10));
    }
}
