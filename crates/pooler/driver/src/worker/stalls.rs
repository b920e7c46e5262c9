//! Clients of a shared server that do not read what comes for them.
//!
//! Redis would keep what a client has not read; here a server is listened to no more from a bound on, and all whose
//! answers come behind wait. So from then on nobody joins those of that server any more: newcomers go to another one
//! (`relief`). If somebody is behind, what comes for the client is kept, as far as there is room; where there is none,
//! they wait for a bounded time in all, however many clients stall, however often, and however much they read in
//! between, and then those are disconnected. A client that keeps nobody waiting may take its time, as long as it reads
//! at all.

use std::time::Duration;

use pool::Time;
use seam::{Blame, CloseReason, Protocol};

use super::{Work, Worker, lease::Lease};
use crate::reactor::Reactor;

/// Bytes that a client may leave unread before the server that it shares is listened to no more.
pub(super) const MAX_BEHIND: usize = 256 << 10;

/// Bytes that a worker keeps for all clients that do not read while others wait behind them.
const MAX_KEPT: usize = 128 << 20;

/// So long, over all stalls of a shared server, do others wait for clients that do not read. The look at it comes up to
/// a tick later.
const OTHERS_WAIT: Duration = Duration::from_millis(40);

/// Once others have waited for so long, a client that begins to stall is disconnected at once.
const OTHERS_WAIT_AT_MOST: Duration = Duration::from_millis(80);

/// In this time a client that is behind has to read [`MIN_READ`] bytes, or all there is.
const PATIENCE: Duration = Duration::from_secs(1);
const MIN_READ: usize = 128 << 10;

/// A client that does not read what comes, or came, from a server that it shares.
pub(super) struct Stall {
    client: u32,
    server: u32,
    /// The server is not listened to on its account.
    holds: bool,
    since: Time,
    /// Bytes that it had to read at that time.
    unsent: usize,
}

/// What a shared server has seen of stalls.
#[derive(Default)]
pub(super) struct Stalled {
    clients: u32,
    /// Up to when the time is counted that others wait for these.
    counted: Time,
    others_waited: Duration,
    ever: bool,
}

impl Stalled {
    pub(super) fn is_any(&self) -> bool {
        self.clients > 0
    }

    /// Some client has stalled it.
    pub(super) fn ever(&self) -> bool {
        self.ever
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A client has not taken all that came for it.
    pub(super) fn note_unread(&mut self, slot: usize) {
        let Lease::Shared { server, .. } = self.clients[slot].lease else { return };
        let unsent = self.reactor.unsent(self.clients[slot].conn);
        if unsent < MAX_BEHIND {
            return;
        }
        let now = self.now;
        let at = self.stalls.iter().position(|stall| stall.client as usize == slot).unwrap_or_else(|| {
            self.stalls.push(Stall { client: slot as u32, server, holds: false, since: now, unsent });
            self.stalls.len() - 1
        });
        if self.stalls[at].holds {
            return;
        }
        self.stalls[at].server = server;
        self.share(server as usize).stalled.ever = true;
        let others = self.keeps_others_waiting(server as usize);
        if others && self.kept() <= MAX_KEPT {
            return;
        }
        self.stalls[at].holds = true;
        let stalled = &mut self.share(server as usize).stalled;
        if stalled.clients == 0 {
            stalled.counted = now;
        }
        stalled.clients += 1;
        if others && stalled.others_waited >= OTHERS_WAIT_AT_MOST {
            let (client, serial) = (slot as u32, self.clients[slot].serial);
            self.clients[slot].closing = true;
            self.work.push_back(Work::CloseClient { client, serial, reason: too_slow(unsent) });
        }
    }

    /// Bytes that are kept for clients though others' answers are behind.
    fn kept(&self) -> usize {
        let kept = self.stalls.iter().filter(|stall| !stall.holds);
        kept.map(|stall| self.reactor.unsent(self.clients[stall.client as usize].conn)).sum()
    }

    /// Others have a share of this server, or wait for servers of its pool.
    fn keeps_others_waiting(&mut self, server: usize) -> bool {
        let behind = self.share(server).sharers.len() > 1;
        behind || self.servers[server].pool.lock().pool.counts().waits_for_any()
    }

    /// The client has read all, has its last answer, or goes.
    pub(super) fn end_stall(&mut self, slot: usize) {
        let Some(at) = self.stalls.iter().position(|stall| stall.client as usize == slot) else { return };
        self.stop_holding(at);
        let client = &self.clients[slot];
        if client.closing || self.reactor.unsent(client.conn) < MAX_BEHIND {
            self.stalls.swap_remove(at);
        }
    }

    pub(super) fn forget_reader(&mut self, slot: usize) {
        self.stalls.retain(|stall| stall.client as usize != slot);
    }

    /// Its server is listened to again.
    fn stop_holding(&mut self, at: usize) {
        let server = self.stalls[at].server as usize;
        if !std::mem::take(&mut self.stalls[at].holds) {
            return;
        }
        if self.servers[server].usage.is_shared() {
            self.count_waiting(server);
            self.share(server).stalled.clients -= 1;
        }
        self.rearm_server(server);
    }

    pub(super) fn forget_stalls(&mut self, server: usize) {
        self.stalls.retain(|stall| !stall.holds || stall.server as usize != server);
    }

    /// Counts how long others have waited for those who stall a server. Returns the sum, if they wait now.
    fn count_waiting(&mut self, server: usize) -> Option<Duration> {
        let (now, others) = (self.now, self.keeps_others_waiting(server));
        let stalled = &mut self.share(server).stalled;
        if others {
            stalled.others_waited += now - stalled.counted;
        }
        stalled.counted = now;
        others.then_some(stalled.others_waited)
    }

    /// Keeps what comes for clients that keep others waiting, as far as there is room. Disconnects them otherwise, and
    /// clients that do not read at all.
    pub(super) fn look_at_stalls(&mut self) {
        let mut late = Vec::new();
        let now = self.now;
        for at in 0..self.stalls.len() {
            let Stall { client, server, holds, since, unsent: before } = self.stalls[at];
            let unsent = self.reactor.unsent(self.clients[client as usize].conn);
            let waited = if holds { self.count_waiting(server as usize) } else { None };
            if waited.is_some() && self.kept() + unsent <= MAX_KEPT {
                self.stop_holding(at);
            } else if waited.is_some_and(|waited| waited >= OTHERS_WAIT) {
                late.push((client as usize, unsent));
                continue;
            }
            if now - since >= PATIENCE {
                let conn = self.clients[client as usize].conn;
                self.reactor.try_to_send(conn);
                let unsent = self.reactor.unsent(conn);
                if unsent > 0 && unsent + MIN_READ > before {
                    late.push((client as usize, unsent));
                }
                (self.stalls[at].since, self.stalls[at].unsent) = (now, unsent);
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
