//! Clients of a shared server that do not read what comes for them.
//!
//! Redis would keep what a client has not read. Here the worker receives from the server no more once a client has
//! [`MAX_UNREAD_BYTES`] bytes to read, and the clients whose answers come behind wait. From then on no client joins
//! that server; newcomers go to another one (`replacement`). If other clients wait, what comes for the client is kept
//! as long as there is room. Where there is no room, the others wait for a bounded time in all; then the clients that
//! stall are disconnected. Neither more stalls nor what is read in between make that time longer. A client that keeps
//! no others waiting may take its time, as long as it reads at all.

use std::time::Duration;

use pool::Time;
use seam::{Blame, CloseReason, Protocol};

use crate::{
    reactor::Reactor,
    worker::{Worker, lease::Lease},
};

/// Bytes that a client may leave unread before the worker receives no more from the server that it shares.
pub(in crate::worker) const MAX_UNREAD_BYTES: usize = 256 << 10;

/// Bytes that a worker keeps for all clients that do not read while others wait behind them.
const MAX_STALLED_BYTES: usize = 128 << 20;

/// How long others wait, over all stalls of a shared server, before the clients that stall it are disconnected. The
/// worker finds out up to a tick later.
const MAX_WAIT_FOR_STALLS: Duration = Duration::from_millis(40);

/// Once others have waited for this long, a client that begins to stall is disconnected at once.
const MAX_WAIT_FOR_NEW_STALLS: Duration = Duration::from_millis(80);

/// A client that stalls has to read [`MIN_READ`] bytes in this time, or all there is.
const READ_INTERVAL: Duration = Duration::from_secs(1);
const MIN_READ: usize = 128 << 10;

/// A client that does not read what comes, or came, from a server that it shares.
struct Stall {
    client: u32,
    server: u32,
    /// The worker receives nothing from the server on account of this client.
    holds: bool,
    /// When the client was last found to have read enough.
    since: Time,
    /// Bytes that it had to read at that time.
    unsent: usize,
}

/// The clients of a worker that do not read.
#[derive(Default)]
pub(super) struct Stalls(Vec<Stall>);

impl Stalls {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, client: usize) -> Option<usize> {
        self.0.iter().position(|stall| stall.client as usize == client)
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A client has not taken all that came for it.
    pub(in crate::worker) fn note_unread(&mut self, slot: usize) {
        let Lease::Shared { server, .. } = self.clients[slot].lease else { return };
        let unsent = self.reactor.unsent(self.clients[slot].conn);
        if unsent < MAX_UNREAD_BYTES {
            return;
        }
        let now = self.now;
        let stalls = &mut self.sharing.stalls;
        let at = stalls.position(slot).unwrap_or_else(|| {
            stalls.0.push(Stall { client: slot as u32, server, holds: false, since: now, unsent });
            stalls.0.len() - 1
        });
        if stalls.0[at].holds {
            return;
        }
        stalls.0[at].server = server;
        self.share(server as usize).stalls.note_stall();
        let others = self.keeps_others_waiting(server as usize);
        if others && self.stalled_bytes() <= MAX_STALLED_BYTES {
            return;
        }
        self.sharing.stalls.0[at].holds = true;
        let stalls = &mut self.share(server as usize).stalls;
        stalls.add(now);
        if others && stalls.others_waited() >= MAX_WAIT_FOR_NEW_STALLS {
            self.push_close(slot, too_slow(unsent));
        }
    }

    /// Bytes that are kept for clients though the answers of others are behind.
    fn stalled_bytes(&self) -> usize {
        let kept = self.sharing.stalls.0.iter().filter(|stall| !stall.holds);
        kept.map(|stall| self.reactor.unsent(self.clients[stall.client as usize].conn)).sum()
    }

    /// Whether other clients share this server, or wait for servers of its pool.
    fn keeps_others_waiting(&mut self, server: usize) -> bool {
        self.share(server).len() > 1 || self.servers[server].pool.lock().pool.counts().waits_for_any()
    }

    /// The client has read all, has its last answer, or goes.
    pub(in crate::worker) fn end_stall(&mut self, slot: usize) {
        let Some(at) = self.sharing.stalls.position(slot) else { return };
        self.stop_holding(at);
        let client = &self.clients[slot];
        if client.life.is_closing() || self.reactor.unsent(client.conn) < MAX_UNREAD_BYTES {
            self.sharing.stalls.0.swap_remove(at);
        }
    }

    pub(in crate::worker) fn forget_stalls_of_client(&mut self, slot: usize) {
        self.sharing.stalls.0.retain(|stall| stall.client as usize != slot);
    }

    pub(super) fn forget_stalls_of_server(&mut self, server: usize) {
        self.sharing.stalls.0.retain(|stall| !stall.holds || stall.server as usize != server);
    }

    /// The worker receives from the server of this stall again.
    fn stop_holding(&mut self, at: usize) {
        let stall = &mut self.sharing.stalls.0[at];
        let server = stall.server as usize;
        if !std::mem::take(&mut stall.holds) {
            return;
        }
        if self.servers[server].usage.is_shared() {
            self.count_waiting(server);
            self.share(server).stalls.remove();
        }
        self.rearm_server(server);
    }

    /// Counts how long others have waited for the clients that stall a server. Returns the sum, if they wait now.
    fn count_waiting(&mut self, server: usize) -> Option<Duration> {
        let (now, others) = (self.now, self.keeps_others_waiting(server));
        let stalls = &mut self.share(server).stalls;
        stalls.count_waiting(others, now);
        others.then_some(stalls.others_waited())
    }

    /// Keeps what comes for clients that keep others waiting, as far as there is room. Disconnects them otherwise, and
    /// clients that do not read at all.
    pub(super) fn check_stalls(&mut self) {
        let mut late = Vec::new();
        let now = self.now;
        for at in 0..self.sharing.stalls.0.len() {
            let Stall { client, server, holds, since, unsent: before } = self.sharing.stalls.0[at];
            let unsent = self.reactor.unsent(self.clients[client as usize].conn);
            let waited = if holds { self.count_waiting(server as usize) } else { None };
            if waited.is_some() && self.stalled_bytes() + unsent <= MAX_STALLED_BYTES {
                self.stop_holding(at);
            } else if waited.is_some_and(|waited| waited >= MAX_WAIT_FOR_STALLS) {
                late.push((client as usize, unsent));
                continue;
            }
            if now - since >= READ_INTERVAL {
                let conn = self.clients[client as usize].conn;
                self.reactor.try_to_send(conn);
                let unsent = self.reactor.unsent(conn);
                if unsent > 0 && unsent + MIN_READ > before {
                    late.push((client as usize, unsent));
                }
                let stall = &mut self.sharing.stalls.0[at];
                (stall.since, stall.unsent) = (now, unsent);
            }
        }
        for (slot, unsent) in late {
            self.close_client(slot, &too_slow(unsent));
        }
    }
}

fn too_slow(unsent: usize) -> CloseReason {
    let message = format!("the client does not read: {unsent} bytes of replies wait, and others share the server");
    CloseReason::Error(Blame::Client, message)
}
