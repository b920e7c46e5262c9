//! What newcomers get while a shared server is silent: another one.
//!
//! Redis does one thing at a time, so behind one long command all who share its server wait. But some commands hold up
//! only their own connection: a script that runs for long (others are told `BUSY`), a write while writes are paused, a
//! value for a client that does not read. From outside these look the same. So when the first answer has been due for
//! longer than is usual, nobody joins any more, and one other server is asked for and asked (`Protocol::check`). Once
//! that answers, newcomers go there, and the silent server is left to those who have sent something to it. While that
//! is silent, too, they wait; no third is asked.
//!
//! The same goes for a server that is to be given back and is not, because what comes for somebody takes long: nobody
//! may join it, and for those who come meanwhile there may be another server.

use std::{sync::Arc, time::Duration};

use pool::{CheckOut, CheckOutFailed, ServerId, Time, Wish};
use seam::{Blame, CloseReason, PoolId, Protocol, Verdict};

use super::{
    Work, Worker,
    calls::Source,
    servers::Phase,
    sharing::{Place, Relief, Share, TURN},
    silence::PATIENCE,
};
use crate::{mailbox::Message, reactor::Reactor, shared_pool::SharedPool};

/// A server that has been asked, and does not answer though the other one does, is given up after this time.
const GIVEN_UP: Duration = Duration::from_secs(5);

impl Share {
    /// Whether it is of no use to newcomers, and nobody knows for how long.
    fn is_helpless(&self, now: Time) -> bool {
        self.is_silent() || (self.yielding && now - self.since >= TURN + PATIENCE)
    }

    /// Whether it says nothing, or cannot say it to somebody who does not read.
    fn is_silent(&self) -> bool {
        self.silence.is_long() || self.stalled.ever()
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A shared server says something. True if it was silent for long.
    pub(super) fn heard_from(&mut self, slot: usize) -> bool {
        let now = self.now;
        let server = &mut self.servers[slot];
        let share = server.usage.share_mut().expect("a server of a mux is shared");
        let (took, long) = share.silence.end(now);
        if let Some(took) = took {
            self.round_trips.note(server.pool.id, took);
        }
        long
    }

    /// Whether a mux's server is silent, by now. Then, or if it is not given back, it is relieved, if somebody waits.
    pub(super) fn look_at_silence(&mut self, pool: &Arc<SharedPool>, slot: usize) -> bool {
        let (now, limit) = (self.now, self.round_trips.limit(pool.id));
        let share = self.share(slot);
        share.silence.look(now, limit);
        let (silent, helpless) = (share.is_silent(), share.is_helpless(now));
        let mux = self.mux(pool.id).expect("its server was looked at");
        if helpless && mux.relief == Relief::None && !mux.joining.is_empty() {
            self.ask_relief(pool);
        }
        silent
    }

    fn ask_relief(&mut self, pool: &Arc<SharedPool>) {
        let waiter = self.new_serial();
        self.mux(pool.id).expect("seen by the caller").relief = Relief::Asked(waiter);
        let id = self.mux_waiter(waiter);
        match self.pools.check_out(pool.id, id, Wish::Any, self.now).expect("it has a server here") {
            CheckOut::Granted(grant) if grant.home == self.home() => {
                self.work.push_back(Work::Granted(pool.id, grant));
            }
            CheckOut::Granted(grant) => self.mailbox(grant.home).send(Message::Bring(pool.id, grant)),
            CheckOut::Queued(_) => {}
            CheckOut::Failed(reason) => self.on_relief_failed(pool, waiter, reason),
        }
    }

    /// Whether this is what the mux of a pool has of a relief.
    fn relief_is(&mut self, pool: PoolId, relief: Relief) -> bool {
        self.mux(pool).is_some_and(|mux| mux.relief == relief)
    }

    /// What the server that a mux has is to those who share it, if it has one.
    fn share_of(&mut self, pool: PoolId) -> Option<&Share> {
        let Place::Serving(server) = self.mux(pool)?.place else { return None };
        Some(self.share(server as usize))
    }

    /// Whether that server is still silent.
    fn is_silent(&mut self, pool: PoolId) -> bool {
        self.share_of(pool).is_some_and(Share::is_silent)
    }

    /// Whether it is still of no use to newcomers.
    fn needs_relief(&mut self, pool: PoolId) -> bool {
        let now = self.now;
        self.share_of(pool).is_some_and(|share| share.is_helpless(now))
    }

    /// The pool has granted another server; `None`: it died on its way here.
    pub(super) fn on_relief_granted(&mut self, pool: PoolId, waiter: u32, slot: Option<usize>) {
        let awaited = self.relief_is(pool, Relief::Asked(waiter));
        if awaited {
            self.mux(pool).expect("just seen").relief = Relief::None;
        }
        let Some(slot) = slot else { return };
        if !awaited || !self.needs_relief(pool) {
            return self.check_in(slot, Verdict::Clean);
        }
        self.mux(pool).expect("just seen").relief = Relief::Probed(slot as u32);
        let server = &mut self.servers[slot];
        server.phase = Phase::Probing;
        server.since = self.now;
        self.probes.push((slot as u32, server.id));
        let mut out = self.outbox();
        let tag = self.server_tag(slot);
        let protocol = Arc::clone(&self.shared.protocol);
        protocol.check(tag, &mut self.servers[slot].session, &mut out);
        self.execute(out, Source::NONE);
        self.rearm_server(slot);
    }

    /// There is no other server.
    pub(super) fn on_relief_failed(&mut self, pool: &Arc<SharedPool>, waiter: u32, reason: CheckOutFailed) {
        if !self.relief_is(pool.id, Relief::Asked(waiter)) {
            return;
        }
        let now = self.now;
        let mux = self.mux(pool.id).expect("just seen");
        mux.relief = Relief::None;
        // What the upstream says to everybody who connects is for them, too. Otherwise they wait for the one they know.
        if !matches!(reason, CheckOutFailed::Refused | CheckOutFailed::Unknown) {
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
    pub(super) fn on_probe_answered(&mut self, slot: usize, id: ServerId) {
        let Some(server) = self.servers.get_mut(slot).filter(|server| server.id == id && !server.link.is_ending())
        else {
            return;
        };
        server.phase = Phase::Live;
        let pool = server.pool.id;
        let awaited = self.relief_is(pool, Relief::Probed(slot as u32));
        if awaited {
            self.mux(pool).expect("just seen").relief = Relief::None;
        }
        if !awaited || !self.needs_relief(pool) {
            return self.check_in(slot, Verdict::Clean);
        }
        let Some(Place::Serving(silent)) = self.mux(pool).map(|mux| mux.place) else { return };
        let silent = silent as usize;
        self.share(silent).yielding = true;
        self.serve(pool, slot);
        if self.share(silent).sharers.is_empty() {
            self.give_back(silent);
        }
        self.admit_joining(pool, slot);
        self.rearm_server(slot);
    }

    /// Gives up servers that do not answer though others do.
    pub(super) fn look_at_probes(&mut self) {
        let now = self.now;
        for (slot, id) in std::mem::take(&mut self.probes) {
            let here = |server: &&mut super::servers::ServerConn<P::Server>| {
                server.id == id && matches!(server.phase, Phase::Probing) && !server.link.is_ending()
            };
            let Some(server) = self.servers.get_mut(slot as usize).filter(here) else { continue };
            let (pool, since) = (server.pool.id, server.since);
            if self.relief_is(pool, Relief::Probed(slot)) && self.is_silent(pool) {
                self.servers[slot as usize].since = now;
            } else if now - since >= GIVEN_UP {
                let message = "it does not answer, though others do".to_owned();
                self.end_server(slot as usize, CloseReason::Error(Blame::Server, message));
                continue;
            }
            self.probes.push((slot, id));
        }
    }

    /// A server that was asked has gone.
    pub(super) fn on_probe_gone(&mut self, slot: usize) {
        let pool = self.servers[slot].pool.id;
        if self.relief_is(pool, Relief::Probed(slot as u32)) {
            self.mux(pool).expect("just seen").relief = Relief::None;
        }
    }
}
