//! What must be true of the driver after every step: pools and workers agree on every server, nobody waits beyond their time,
//! who waits for a server is not counted as idle, pins are bounded. It looks, and changes nothing.

use std::time::Duration;

use pool::PoolConfig;
use protocol::{LeaseKind, Protocol};

use super::{connection::State, driver::Driver};

/// By how many of the longest delays an answer may be late: those of the dead-line, of the pool's caretaker, of mail, of the worker.
const LATE: u32 = 12;

/// The longest that somebody may have to wait under these options, if nothing is late.
pub fn longest(config: &PoolConfig) -> Duration {
    let times = config.max_wait_time.zip(config.unavailable_wait_time).expect("nobody waits for ever here");
    times.0.max(times.1)
}

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
        let late = (self.plan.delay + self.plan.stall) * LATE + Duration::from_millis(1);
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

    /// To be called when everybody has left and the pools are empty.
    pub fn check_nothing_is_left(&self) {
        self.books.check_empty();
        assert!(self.waiters.is_empty(), "a wish was never answered");
        assert!(self.servers.is_empty() && self.dialling.is_empty(), "a connection is left that no pool knows");
        assert!(self.muxes.is_empty(), "a server is shared by nobody");
    }
}
