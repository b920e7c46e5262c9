//! Clients that hold a server of their own and do not read what comes from it: while others wait for that server, their
//! time is bounded. (`stalls` does the same, in another way, for servers that are shared.)

use std::{collections::HashMap, sync::Arc, time::Duration};

use pool::Time;
use seam::{Blame, CloseReason, Protocol};

use super::Worker;
use crate::reactor::Reactor;

/// A client that takes nothing for this long is disconnected if others wait for its server.
const UNREAD_TIME: Duration = Duration::from_secs(30);

/// A client that does not read, as the last look saw it.
pub(super) struct Unread {
    serial: u32,
    /// See [`Reactor::left_late`].
    taken: u32,
    /// It has taken nothing since then.
    since: Time,
}

/// The clients that do not read, by slot.
pub(super) type AllUnread = HashMap<u32, Unread>;

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Looks at the clients whose servers wait for them, and disconnects those that have not read for long, where
    /// others wait.
    pub(super) fn look_at_unread(&mut self) {
        let before = std::mem::take(&mut self.unread);
        let (now, mut late) = (self.now, Vec::new());
        for (_, server) in &self.servers {
            let Some(slot) = server.usage.holder() else { continue };
            let client = &self.clients[slot];
            if client.life.is_closing() || !self.is_behind_its_server(slot) {
                continue;
            }
            let (serial, conn) = (client.serial, client.conn);
            self.reactor.try_to_send(conn);
            let taken = self.reactor.left_late(conn);
            let known = before.get(&(slot as u32)).filter(|seen| seen.serial == serial && seen.taken == taken);
            let since = known.map_or(now, |seen| seen.since);
            if now - since >= UNREAD_TIME {
                late.push((slot, Arc::clone(&server.pool)));
            }
            self.unread.insert(slot as u32, Unread { serial, taken, since });
        }
        for (slot, pool) in late {
            // One that goes may make room enough.
            if !pool.lock().pool.is_stuck(now) {
                continue;
            }
            let message = format!(
                "the client has read nothing for {} s: {} bytes wait for it, and others wait for its server",
                UNREAD_TIME.as_secs(),
                self.reactor.unsent(self.clients[slot].conn)
            );
            self.close_client(slot, &CloseReason::Error(Blame::Client, message));
        }
    }
}
