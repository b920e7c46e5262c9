//! Clients that hold a server of their own and do not read what comes from it: their time is bounded while other
//! clients wait for that server. (`sharing/stalls` does the same, in another way, for servers that are shared.)

use std::{collections::HashMap, sync::Arc, time::Duration};

use pool::Time;
use seam::{Blame, CloseReason, Protocol};

use super::Worker;
use crate::reactor::Reactor;

/// A client that reads nothing for this long is disconnected if others wait for its server.
const MAX_UNREAD_TIME: Duration = Duration::from_secs(30);

/// The clients that do not read, by slot, as the last check found them.
#[derive(Default)]
pub(super) struct SlowReaders(HashMap<u32, SlowReader>);

struct SlowReader {
    serial: u32,
    /// See [`Reactor::deferred_bytes_sent`].
    taken: u32,
    /// When the client was last seen to read.
    since: Time,
}

impl SlowReaders {
    /// Since when a client has read nothing, if the check before found it like this.
    fn since(&self, slot: usize, serial: u32, taken: u32) -> Option<Time> {
        let seen = self.0.get(&(slot as u32)).filter(|seen| seen.serial == serial && seen.taken == taken);
        seen.map(|seen| seen.since)
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Checks the clients whose servers wait for them. Disconnects those that have not read for long, if others wait.
    pub(super) fn check_slow_readers(&mut self) {
        let before = std::mem::take(&mut self.slow_readers);
        let (now, mut late) = (self.now, Vec::new());
        for (_, server) in &self.servers {
            let Some(slot) = server.usage.holder() else { continue };
            let client = &self.clients[slot];
            if client.life.is_closing() || !self.is_behind_its_server(slot) {
                continue;
            }
            let (serial, conn) = (client.serial, client.conn);
            self.reactor.try_to_send(conn);
            let taken = self.reactor.deferred_bytes_sent(conn);
            let since = before.since(slot, serial, taken).unwrap_or(now);
            if now - since >= MAX_UNREAD_TIME {
                late.push((slot, Arc::clone(&server.pool)));
            }
            self.slow_readers.0.insert(slot as u32, SlowReader { serial, taken, since });
        }
        for (slot, pool) in late {
            // The end of one client may make enough room.
            if !pool.lock().pool.is_stuck(now) {
                continue;
            }
            let message = format!(
                "the client has read nothing for {} s: {} bytes wait for it, and others wait for its server",
                MAX_UNREAD_TIME.as_secs(),
                self.reactor.unsent(self.clients[slot].conn)
            );
            self.close_client(slot, &CloseReason::Error(Blame::Client, message));
        }
    }
}
