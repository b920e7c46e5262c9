//! Clients that hold a server of their own and do not read what comes from it: while others wait for that server, their time is bounded.
//! (`stalls` does the same, in another way, for servers that are shared.)

use std::{collections::HashMap, time::Duration};

use pool::Time;
use protocol::{Blame, CloseReason, Protocol};

use super::Worker;
use crate::reactor::Reactor;

/// A client that takes nothing for so long is disconnected if others wait for its server.
const UNREAD_TIME: Duration = Duration::from_secs(30);

/// A client that does not read, as it was seen last.
pub(super) struct Unread {
    serial: u32,
    /// Bytes that waited for it.
    unsent: usize,
    /// Since when it has taken nothing of these.
    since: Time,
}

/// The clients that do not read, by slot.
pub(super) type AllUnread = HashMap<u32, Unread>;

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// Looks at the clients whose servers wait for them, and disconnects those that have not read for long, where others wait.
    pub(super) fn look_at_unread(&mut self) {
        let before = std::mem::take(&mut self.unread);
        let (now, mut late) = (self.now, Vec::new());
        for (_, server) in &self.servers {
            let Some(slot) = server.holder else { continue };
            let client = &self.clients[slot as usize];
            if client.closing || !self.is_behind_its_server(slot as usize) {
                continue;
            }
            let (serial, unsent) = (client.serial, self.reactor.unsent(client.conn));
            let known = before.get(&slot).filter(|seen| seen.serial == serial);
            let since = known.filter(|seen| seen.unsent == unsent).map_or(now, |seen| seen.since);
            if now - since >= UNREAD_TIME && server.pool.lock().pool.is_stuck(now) {
                late.push((slot as usize, unsent));
                continue;
            }
            self.unread.insert(slot, Unread { serial, unsent, since });
        }
        for (slot, unsent) in late {
            let message = format!(
                "the client has read nothing for {} s: {unsent} bytes wait for it, and others wait for its server",
                UNREAD_TIME.as_secs()
            );
            self.close_client(slot, &CloseReason::Error(Blame::Client, message));
        }
    }
}
