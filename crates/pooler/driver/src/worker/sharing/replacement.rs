//! Another server for newcomers while a shared one does not answer.
//!
//! Redis does one thing at a time, so behind one long command all clients that share its server wait. But some commands
//! hold up only their own connection: a script that runs for long (others are told `BUSY`), a write while writes are
//! paused, a value for a client that does not read. From outside these look the same. So when the first answer is
//! overdue, no client joins any more, and the mux asks for one other server and asks that whether it answers
//! (`Protocol::check`). Once it does, newcomers go there, and the unresponsive server is left to the clients that have
//! sent something to it. While the other one does not answer either, newcomers wait; the mux asks for no third.
//!
//! The same goes for a server that is to be given back and is not, because the answer to some client takes long: no
//! client may join it, and there may be another server for those that come meanwhile.

use std::{sync::Arc, time::Duration};

use pool::{CheckOut, CheckOutFailed, Need, ServerId, Time};
use seam::{Blame, CloseReason, PoolId, Protocol, Verdict};

use super::{MAX_SERVER_TIME, round_trips::MIN_OVERDUE_TIME};
use crate::{
    mailbox::Message,
    reactor::Reactor,
    shared_pool::SharedPool,
    worker::{
        Work, Worker,
        calls::Source,
        servers::{Phase, ServerConn},
        share::{Answered, Share},
    },
};

/// A replacement that does not answer is closed after this time, unless the mux still waits for it.
const MAX_PROBE_TIME: Duration = Duration::from_secs(5);

/// Another server for a mux.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replacement {
    None,
    /// The pool was asked for one under this number.
    Asked(u32),
    /// The server in this slot was asked whether it answers.
    Probed(usize),
}

/// A server that was asked whether it answers.
pub(super) struct Probe {
    server: usize,
    id: ServerId,
}

impl Share {
    /// Whether newcomers cannot join, and when they can is not known.
    fn needs_replacement(&self, now: Time) -> bool {
        self.is_unresponsive() || (self.is_yielding() && self.held_for(now) >= MAX_SERVER_TIME + MIN_OVERDUE_TIME)
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A shared server says something. True if that was overdue.
    pub(in crate::worker) fn note_answer(&mut self, slot: usize) -> bool {
        let now = self.now;
        let server = &mut self.servers[slot];
        let share = server.usage.share_mut().expect("a server of a mux is shared");
        let Answered { took, was_overdue } = share.due.end(now);
        if let Some(took) = took {
            self.sharing.round_trips.note(server.pool.id, took);
        }
        was_overdue
    }

    /// Asks for a replacement if clients wait that cannot join a mux's server. True if that server is unresponsive.
    pub(super) fn replace_if_unresponsive(&mut self, pool: &Arc<SharedPool>, slot: usize) -> bool {
        let (now, limit) = (self.now, self.sharing.round_trips.overdue_after(pool.id));
        let share = self.share(slot);
        share.due.check(now, limit);
        let (unresponsive, needs_replacement) = (share.is_unresponsive(), share.needs_replacement(now));
        let mux = self.sharing.mux(pool.id).expect("its server was looked at");
        if needs_replacement && mux.replacement == Replacement::None && !mux.joining.is_empty() {
            self.ask_replacement(pool);
        }
        unresponsive
    }

    fn ask_replacement(&mut self, pool: &Arc<SharedPool>) {
        let waiter = self.new_serial();
        self.sharing.mux(pool.id).expect("seen by the caller").replacement = Replacement::Asked(waiter);
        let id = self.mux_waiter(waiter);
        match self.pools.check_out(pool.id, id, Need::Any, self.now).expect("it has a server here") {
            CheckOut::Granted(grant) if grant.home == self.home() => {
                self.work.push_back(Work::Granted(pool.id, grant));
            }
            CheckOut::Granted(grant) => self.mailbox(grant.home).send(Message::Bring(pool.id, grant)),
            CheckOut::Queued(_) => {}
            CheckOut::Failed(reason) => self.on_replacement_failed(pool, waiter, reason),
        }
    }

    /// Whether this is what the mux of a pool has of a replacement. Then the mux has none any more.
    fn take_replacement(&mut self, pool: PoolId, replacement: Replacement) -> bool {
        let mux = self.sharing.mux(pool).filter(|mux| mux.replacement == replacement);
        mux.map(|mux| mux.replacement = Replacement::None).is_some()
    }

    /// The share of the server that a mux has, if it has one.
    fn share_of(&mut self, pool: PoolId) -> Option<&Share> {
        let server = self.sharing.mux(pool)?.server()?;
        Some(self.share(server))
    }

    /// Whether the server that a mux has still has to be replaced.
    fn needs_replacement(&mut self, pool: PoolId) -> bool {
        let now = self.now;
        self.share_of(pool).is_some_and(|share| share.needs_replacement(now))
    }

    /// The pool has granted another server; `None`: it died on its way here.
    pub(super) fn on_replacement_granted(&mut self, pool: PoolId, waiter: u32, slot: Option<usize>) {
        let awaited = self.take_replacement(pool, Replacement::Asked(waiter));
        let Some(slot) = slot else { return };
        if !awaited || !self.needs_replacement(pool) {
            return self.check_in(slot, Verdict::Clean);
        }
        self.sharing.mux(pool).expect("just seen").replacement = Replacement::Probed(slot);
        let server = &mut self.servers[slot];
        server.phase = Phase::Probing;
        server.since = self.now;
        self.sharing.probes.push(Probe { server: slot, id: server.id });
        if self
            .call_server(slot, Source::NONE, |protocol, tag, session, out| protocol.check(tag, session, out))
            .is_some()
        {
            self.rearm_server(slot);
        }
    }

    /// There is no other server.
    pub(super) fn on_replacement_failed(&mut self, pool: &Arc<SharedPool>, waiter: u32, reason: CheckOutFailed) {
        if !self.take_replacement(pool.id, Replacement::Asked(waiter)) {
            return;
        }
        let now = self.now;
        let mux = self.sharing.mux(pool.id).expect("just seen");
        // The clients that wait are told what the upstream says to each new connection. Otherwise they go on waiting
        // for the server that the mux has.
        if !matches!(reason, CheckOutFailed::Refused | CheckOutFailed::UnknownDatabase) {
            return;
        }
        for joiner in std::mem::take(&mut mux.joining) {
            if self.still_joins(pool.id, &joiner) {
                let why = self.lease_failure(pool, reason, now - joiner.since);
                self.fail_lease(joiner.client as usize, why);
            }
        }
    }

    /// The other server answers.
    pub(in crate::worker) fn on_probe_answered(&mut self, slot: usize, id: ServerId) {
        let Some(server) = self.servers.get_mut(slot).filter(|server| server.id == id && !server.link.is_ending())
        else {
            return;
        };
        server.phase = Phase::Live;
        let pool = server.pool.id;
        if !self.take_replacement(pool, Replacement::Probed(slot)) || !self.needs_replacement(pool) {
            return self.check_in(slot, Verdict::Clean);
        }
        let Some(unresponsive) = self.sharing.mux(pool).and_then(|mux| mux.server()) else { return };
        self.share(unresponsive).start_yielding();
        self.set_mux_server(pool, slot);
        if self.share(unresponsive).is_empty() {
            self.give_back(unresponsive);
        }
        self.admit_joining(pool, slot);
        self.rearm_server(slot);
    }

    /// Closes servers that do not answer though others do.
    pub(super) fn check_probes(&mut self) {
        let now = self.now;
        for probe in std::mem::take(&mut self.sharing.probes) {
            let Probe { server: slot, id } = probe;
            let here = |server: &&mut ServerConn<P::Server>| {
                server.id == id && matches!(server.phase, Phase::Probing) && !server.link.is_ending()
            };
            let Some(server) = self.servers.get_mut(slot).filter(here) else { continue };
            let (pool, since) = (server.pool.id, server.since);
            let mux = self.sharing.mux(pool);
            let is_awaited = mux.is_some_and(|mux| mux.replacement == Replacement::Probed(slot));
            if is_awaited && self.share_of(pool).is_some_and(Share::is_unresponsive) {
                self.servers[slot].since = now;
            } else if now - since >= MAX_PROBE_TIME {
                let message = "it does not answer, though others do".to_owned();
                self.end_server(slot, CloseReason::Error(Blame::Server, message));
                continue;
            }
            self.sharing.probes.push(probe);
        }
    }

    /// A server that was asked has gone.
    pub(in crate::worker) fn on_probe_gone(&mut self, slot: usize) {
        let pool = self.servers[slot].pool.id;
        self.take_replacement(pool, Replacement::Probed(slot));
    }
}
