//! What must be true of the driver after every step: pools and workers agree on every server, nobody waits beyond their time,
//! who waits for a server or shares one is not counted as idle, who has a share has a reply to come, pins are bounded. It looks, and
//! changes nothing.

use std::time::Duration;

use protocol::{LeaseKind, Protocol};

use super::{
    super::connection::{State, Use},
    Driver,
    sharing::{Mux, Place},
};
use crate::toys::{shared::MAX_OUTSTANDING, wire::MAX_FRAME};

/// By how many of the longest delays an answer may be late: those of the dead-line, of the pool's caretaker, of mail, of the worker.
const LATE: u32 = 12;

/// The longest that a byte takes on average to its place, when all before it have gone.
const PER_BYTE: Duration = Duration::from_micros(300);

impl<P: Protocol> Driver<P> {
    /// To be called when all is done that is due.
    pub fn check(&mut self) {
        for number in 0..self.pools.len() {
            let connections = self.servers.values().filter(|c| c.pool == number).map(|c| (c.id, c.usage));
            let dialling = self.dialling.keys().filter(|d| d.0 == number).map(|d| d.1);
            self.books.check((number, &self.pools[number]), connections, dialling);
        }
        if self.servers.values().any(|c| c.pinned) {
            for number in 0..self.pools.len() {
                let pins = self.servers.values().filter(|c| c.pool == number && c.pinned).count();
                let most = self.plan.max_pinned;
                assert!(pins as u32 <= most, "{pins} servers of pool {number} are kept by their clients, of {most}");
            }
        }
        self.muxes.iter().for_each(|(place, mux)| self.check_sharing(*place, mux));
        let late = self.late();
        let now = self.agenda.now();
        for conn in self.clients.values() {
            let serial = conn.serial;
            assert_eq!(conn.state, conn.state(), "client {serial} is not counted as what it is");
            let wishes = !conn.asking.is_empty();
            assert!(!wishes || conn.state != State::Idle, "client {serial} wants a server and is counted as idle");
            for asking in conn.asking.iter().filter(|a| a.kind == LeaseKind::Exclusive) {
                let (waited, longest) = (now - asking.since, self.longest[asking.pool]);
                assert!(
                    waited <= longest + late,
                    "client {serial} has waited {waited:?} for a server and is forgotten"
                );
            }
        }
    }

    fn late(&self) -> Duration {
        (self.plan.delay + self.plan.stall) * LATE + Duration::from_millis(1)
    }

    /// Those who share a server have a reason to, and come to an end when it is wanted back.
    fn check_sharing(&self, (worker, pool): Place, mux: &Mux) {
        let Some(tag) = mux.server else { return };
        let conn = &self.servers[&tag];
        assert_eq!((conn.usage, conn.pool, tag.worker()), (Use::Shared, pool, worker), "a mux has {tag:?}");
        assert!(!mux.is_unused() || self.plan.lingers, "{tag:?} is shared by nobody, and not given back");
        for member in &mux.members {
            let client = &self.clients[member];
            let serial = client.serial;
            assert!(client.session.is_some(), "client {serial} is gone and keeps a share");
            assert!(client.state != State::Idle, "client {serial} has a share and is counted as idle");
        }
        // What its worker has put off may be what somebody waits for.
        let over = !conn.ending && conn.is_quiet() && !self.workers[usize::from(worker)].has_calls();
        let idlers: Vec<_> = mux.members.difference(&mux.fresh).collect();
        assert!(!over || idlers.is_empty(), "{idlers:?} have a share of {tag:?}, and nothing is due to them");
        let Some(since) = mux.yielding else { return };
        // More than can be due or under way; the time does not run while the database is silent.
        let since = since.max(conn.frozen_until).max(self.hosts[pool].silent_until);
        let bytes = self.plan.clients as u32 * (MAX_OUTSTANDING * 2 * MAX_FRAME) as u32;
        let waited = self.agenda.now().max(since) - since;
        assert!(waited <= PER_BYTE * bytes + self.late(), "{tag:?} is wanted back for {waited:?}: {mux:?}");
    }

    /// To be called when everybody has left and the pools are empty.
    pub fn check_nothing_is_left(&self) {
        self.books.check_empty();
        assert!(self.waiters.is_empty(), "a wish was never answered");
        assert!(self.servers.is_empty() && self.dialling.is_empty(), "a connection is left that no pool knows");
        assert!(self.muxes.is_empty(), "a server is shared by nobody");
    }
}
