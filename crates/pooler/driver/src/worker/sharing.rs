//! Servers that the clients of a worker share. To the pool they are one holder: the worker's mux for that pool.
//!
//! Clients join and leave without a word to the pool, so it is asked once for many of their requests. So that it can
//! apply its rules all the same (life times, generations, others who wait), a mux gives its server back from time to
//! time: nobody joins it any more, who has a share sends nothing more, and when the last reply has come the server is
//! checked in and asked for anew.
//!
//! What clients send to a shared server is collected while their requests are taken one after another, and leaves in
//! one system call. What becomes of clients that do not read is in `stalls`, and of those who come while a server is
//! silent in `relief`.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::{CheckOut, CheckOutFailed, Grant, Time, Wish};
use seam::{Blame, CloseReason, LeaseFailure, PoolId, Protocol, Verdict};

use super::{
    TICK, Work, Worker,
    calls::{Source, call},
    lease::Lease,
    servers::Link,
    silence::Silence,
    stalls::Stalled,
    usage::Usage,
};
use crate::{
    mailbox::Message,
    reactor::{Data, Reactor, Submitted},
    shared_pool::SharedPool,
};

/// A mux gives its server back this often at least.
pub(super) const TURN: Duration = Duration::from_secs(1);

/// Bytes for a shared server that are collected before they are sent.
const MAX_COLLECTED: usize = 16 << 10;

/// The clients of this worker that share a server of a pool, or wait to.
pub(super) struct Mux {
    /// Its number as a waiter.
    pub(super) waiter: u32,
    pub(super) place: Place,
    pub(super) joining: Vec<Joiner>,
    /// Another server, which is to take the place of one that is silent.
    pub(super) relief: Relief,
}

/// Another server for a mux.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Relief {
    None,
    /// The pool was asked for one under this number.
    Asked(u32),
    /// The server in this slot was asked whether it answers.
    Probed(u32),
}

#[derive(Clone, Copy)]
pub(super) enum Place {
    /// In the queue of the pool, or between that and a server that is on its way.
    Waiting,
    /// The server in this slot.
    Serving(u32),
}

/// A client that waits for a share.
pub(super) struct Joiner {
    pub(super) client: u32,
    waiter: u32,
    pub(super) since: Time,
}

/// What a server is to those who share it.
pub(super) struct Share {
    /// The clients that have a share, by slot.
    pub(super) sharers: Vec<u32>,
    /// The worst verdict of those who left.
    worst: Verdict,
    /// Since when the mux has the server.
    pub(super) since: Time,
    /// No client joins any more, and those that have a share send nothing.
    pub(super) yielding: bool,
    /// Somebody has joined since the last look.
    used: bool,
    /// Requests that have been answered since the last look.
    pub(super) served: u64,
    /// Bytes for the server.
    collected: Vec<u8>,
    /// Whether it owes an answer, and since when.
    pub(super) silence: Silence,
    /// Its clients that do not read.
    pub(super) stalled: Stalled,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    pub(super) fn mux(&mut self, pool: PoolId) -> Option<&mut Mux> {
        self.muxes.get_mut(&pool).map(Box::as_mut)
    }

    pub(super) fn share(&mut self, server: usize) -> &mut Share {
        self.servers[server].usage.share_mut().expect("a server of a mux is shared")
    }

    // ---- joining ----

    /// A client needs a share. True when it has one at once.
    pub(super) fn join(&mut self, slot: usize, pool: PoolId) -> bool {
        let Some(client) = self.clients.get_mut(slot).filter(|client| !client.closing) else { return false };
        assert!(client.lease == Lease::None, "a client has one share, and no other server beside it");
        if let Some(Mux { place: Place::Serving(server), .. }) = self.mux(pool) {
            let server = *server as usize;
            if self.takes_more(server) {
                self.admit(slot, server);
                return true;
            }
        }
        let client = &mut self.clients[slot];
        client.lease = Lease::Joining { pool };
        let joiner = Joiner { client: slot as u32, waiter: client.waiter, since: self.now };
        if self.mux(pool).is_none() {
            self.start_sharing(pool, vec![joiner]);
        } else if self.has_room(pool) {
            self.mux(pool).expect("just seen").joining.push(joiner);
        } else {
            let (waiter, reason) = (self.client_waiter(slot, joiner.waiter), CheckOutFailed::QueueFull);
            self.pools.used(pool).lock().stats.on_failed(reason);
            self.push_failed(pool, waiter, reason);
        }
        // Whatever it waits for, it is not idle.
        self.refresh_state(slot);
        !self.clients[slot].lease.is_waiting()
    }

    /// Whether one more may wait for a share: as many as may wait for servers of the pool. Those who have gone are
    /// forgotten first.
    fn has_room(&mut self, pool: PoolId) -> bool {
        // A pool that is forgotten tells those who wait for it, in time.
        let most = self.pools.find(pool, self.now).map_or(0, |pool| pool.spec().config.max_waiters as usize);
        let (clients, mux) = (self.clients.len(), self.mux(pool).expect("somebody waits with a mux"));
        if mux.joining.len() >= clients || (most > 0 && mux.joining.len() >= most) {
            let mut joining = std::mem::take(&mut mux.joining);
            joining.retain(|joiner| self.still_joins(pool, joiner));
            self.mux(pool).expect("just seen").joining = joining;
        }
        most == 0 || self.mux(pool).expect("just seen").joining.len() < most
    }

    /// Whether more clients may join those of a shared server.
    pub(super) fn takes_more(&self, slot: usize) -> bool {
        let server = &self.servers[slot];
        let share = server.usage.share().expect("a server of a mux is shared");
        let open =
            !share.yielding && share.worst != Verdict::Discard && !share.silence.is_long() && !share.stalled.ever();
        open && !server.link.is_ending() && !self.reactor.is_sending(server.conn)
    }

    /// Asks the pool for a server for those who wait.
    fn start_sharing(&mut self, pool: PoolId, joining: Vec<Joiner>) {
        let waiter = self.new_serial();
        let mux = Mux { waiter, place: Place::Waiting, joining, relief: Relief::None };
        self.muxes.insert(pool, Box::new(mux));
        let id = self.mux_waiter(waiter);
        match self.pools.check_out(pool, id, Wish::Any, self.now) {
            Some(CheckOut::Granted(grant)) if grant.home == self.home() => self.on_mux_granted(pool, waiter, &grant),
            Some(CheckOut::Granted(grant)) => self.mailbox(grant.home).send(Message::Bring(pool, grant)),
            // Nobody leaves the queue for a mux: a server that comes when all have gone is simply given back.
            Some(CheckOut::Queued(_)) => {}
            Some(CheckOut::Failed(reason)) => self.push_failed(pool, id, reason),
            None => self.work.push_back(Work::PoolGone { pool, waiter: id }),
        }
    }

    /// The server that was granted to a mux lives here.
    pub(super) fn on_mux_granted(&mut self, pool: PoolId, waiter: u32, grant: &Grant) {
        let slot = self.server_here(pool, grant.server).filter(|slot| !self.servers[*slot].link.is_ending());
        if !self.mux_waits(pool, waiter) {
            return self.on_relief_granted(pool, waiter, slot);
        }
        let Some(slot) = slot else {
            // What ends a server gives it back. Nothing was sent, so the clients that wait simply ask again.
            return self.on_mux_grant_lost(pool, waiter);
        };
        self.serve(pool, slot);
        if grant.waited >= self.host.config.slow_wait
            && let Some(withheld) = self.paces.slow_wait.permits(self.now)
        {
            let spec = self.servers[slot].pool.spec();
            tracing::warn!(
                withheld,
                database = %spec.database, user = %spec.user,
                server = self.backend(slot), waited_ms = grant.waited.as_millis() as u64,
                "clients waited long for a server that they share"
            );
        }
        self.admit_joining(pool, slot);
        self.rearm_server(slot);
    }

    /// Whether it is the mux itself that waits under this number.
    fn mux_waits(&mut self, pool: PoolId, waiter: u32) -> bool {
        self.mux(pool).is_some_and(|mux| mux.waiter == waiter && matches!(mux.place, Place::Waiting))
    }

    /// From now on the mux has this server.
    pub(super) fn serve(&mut self, pool: PoolId, slot: usize) {
        let now = self.now;
        self.mux(pool).expect("a server is for a mux").place = Place::Serving(slot as u32);
        let server = &mut self.servers[slot];
        assert!(server.usage.is_free(), "a server has one holder");
        server.since = now;
        server.usage = Usage::Shared(Box::new(Share {
            sharers: Vec::new(),
            worst: Verdict::Clean,
            since: now,
            yielding: false,
            used: false,
            served: 0,
            collected: Vec::new(),
            silence: Silence::default(),
            stalled: Stalled::default(),
        }));
    }

    /// Gives a share to those who wait.
    pub(super) fn admit_joining(&mut self, pool: PoolId, server: usize) {
        let joining = self.mux(pool).map(|mux| std::mem::take(&mut mux.joining)).unwrap_or_default();
        for joiner in joining {
            if self.still_joins(pool, &joiner) {
                self.admit(joiner.client as usize, server);
                self.push_feed(joiner.client as usize);
            }
        }
    }

    pub(super) fn still_joins(&self, pool: PoolId, joiner: &Joiner) -> bool {
        let client = self.clients.get(joiner.client as usize);
        client.is_some_and(|c| c.waiter == joiner.waiter && !c.closing && c.lease == Lease::Joining { pool })
    }

    fn admit(&mut self, slot: usize, server: usize) {
        let share = self.share(server);
        let place = share.sharers.len() as u32;
        share.sharers.push(slot as u32);
        share.used = true;
        self.gathering.begin(&mut self.clients[slot].counted);
        self.clients[slot].lease = Lease::Shared { server: server as u32, place, heard: false };
        self.refresh_state(slot);
        let mut out = self.outbox();
        let (client_tag, server_tag) = (self.client_tag(slot), self.server_tag(server));
        let protocol = Arc::clone(&self.shared.protocol);
        let (client, server) = (&mut self.clients[slot], &mut self.servers[server]);
        if call(|| protocol.granted(client_tag, &mut client.session, server_tag, &mut server.session, &mut out))
            .is_none()
        {
            return self.on_client_defect(slot, out);
        }
        self.execute(out, Source::NONE);
    }

    /// The server died between the grant and its arrival.
    pub(super) fn on_mux_grant_lost(&mut self, pool: PoolId, waiter: u32) {
        if !self.mux_waits(pool, waiter) {
            return self.on_relief_granted(pool, waiter, None);
        }
        let mux = self.muxes.remove(&pool).expect("a mux waits until it has an answer");
        self.share_anew(pool, mux.joining);
    }

    /// The pool that a mux has asked is forgotten.
    pub(super) fn on_mux_pool_gone(&mut self, pool: PoolId, waiter: u32) {
        if !self.mux_waits(pool, waiter) {
            return;
        }
        let mux = self.muxes.remove(&pool).expect("just seen");
        for joiner in mux.joining {
            if self.still_joins(pool, &joiner) {
                self.fail_lease(joiner.client as usize, LeaseFailure::Forgotten);
            }
        }
    }

    /// There is no server for a mux.
    pub(super) fn on_mux_failed(
        &mut self,
        pool: &Arc<SharedPool>,
        waiter: u32,
        reason: CheckOutFailed,
        waited: Duration,
    ) {
        if !self.mux_waits(pool.id, waiter) {
            return self.on_relief_failed(pool, waiter, reason);
        }
        let mux = self.muxes.remove(&pool.id).expect("a mux waits until it has an answer");
        if let Some(withheld) = self.paces.no_server.permits(self.now) {
            tracing::warn!(
                withheld,
                database = %pool.spec().database, user = %pool.spec().user,
                clients = mux.joining.len(), reason = reason.as_str(), waited_ms = waited.as_millis() as u64,
                "no server for clients that would share it"
            );
        }
        let now = self.now;
        // Clients that came late go on waiting: they have not had their time.
        let patient = matches!(reason, CheckOutFailed::Timeout | CheckOutFailed::Unavailable);
        let (late, failed): (Vec<_>, Vec<_>) =
            mux.joining.into_iter().partition(|joiner| patient && (now - joiner.since) * 2 < waited);
        for joiner in failed {
            if self.still_joins(pool.id, &joiner) {
                let why = self.lease_failure(pool, reason, now - joiner.since);
                self.fail_lease(joiner.client as usize, why);
            }
        }
        self.share_anew(pool.id, late);
    }

    /// The server that was shared has been given back or has gone, and the pool knows: those who wait ask for another.
    pub(super) fn share_anew(&mut self, pool: PoolId, mut joining: Vec<Joiner>) {
        joining.retain(|joiner| self.still_joins(pool, joiner));
        if joining.is_empty() {
            return;
        }
        // What others made of the end may have been such a wish already.
        let Some(mux) = self.mux(pool) else { return self.start_sharing(pool, joining) };
        mux.joining.extend(joining);
        if let Place::Serving(server) = mux.place
            && self.takes_more(server as usize)
        {
            self.admit_joining(pool, server as usize);
        }
    }

    // ---- leaving ----

    /// A client gives its share back.
    pub(super) fn leave_share(&mut self, slot: usize, server: usize, verdict: Verdict) {
        let client = &mut self.clients[slot];
        let Lease::Shared { server: shared, place, .. } = client.lease else {
            panic!("a client gives back a share that it does not have");
        };
        assert_eq!(shared as usize, server, "a client gives back its share of another server");
        client.lease = Lease::None;
        self.gathering.end(1);
        let serial = client.serial;
        let sending = self.reactor.is_sending(self.servers[server].conn) || self.reactor.is_sending(client.conn);
        let share = self.servers[server].usage.share_mut().expect("a server of a mux is shared");
        share.sharers.swap_remove(place as usize);
        if let Some(moved) = share.sharers.get(place as usize)
            && let Lease::Shared { place: its, .. } = &mut self.clients[*moved as usize].lease
        {
            *its = place;
        }
        share.worst = share.worst.max(verdict);
        share.served += 1;
        self.transactions += 1;
        let empty = share.sharers.is_empty();
        let gives_back = share.yielding || share.worst != Verdict::Clean;
        if share.yielding || sending {
            // It was not listened to on account of this server, or of what it has not read.
            self.work.push_back(Work::Feed { client: slot as u32, serial });
        }
        if !self.stalls.is_empty() {
            self.end_stall(slot);
        }
        if empty {
            self.share(server).silence = Silence::default();
        }
        if empty && gives_back {
            self.give_back(server);
        }
    }

    /// Somebody waits for a server of this pool: one that is shared, and needed by nobody at the moment, may be it.
    pub(super) fn offer(&mut self, pool: PoolId) {
        if let Some(Mux { place: Place::Serving(server), .. }) = self.mux(pool) {
            let server = *server as usize;
            if self.share(server).sharers.is_empty() {
                self.give_back(server);
            }
        }
    }

    /// Gives a shared server back to its pool.
    pub(super) fn give_back(&mut self, slot: usize) {
        self.flush_server(slot);
        let server = &mut self.servers[slot];
        let pool = Arc::clone(&server.pool);
        let share = server.usage.take_share().expect("a server of a mux is shared");
        assert!(share.sharers.is_empty(), "a shared server is given back by the last one");
        pool.lock().stats.transactions += share.served;
        let mux = self.take_mux(slot);
        if !self.servers[slot].link.is_ending() {
            self.check_in(slot, share.worst);
        }
        if let Some(mux) = mux {
            self.share_anew(pool.id, mux.joining);
        }
    }

    /// The mux that has this server, out of its place; `None` if it has another by now.
    fn take_mux(&mut self, server: usize) -> Option<Box<Mux>> {
        let pool = self.servers[server].pool.id;
        let its = |mux: &&mut Mux| matches!(mux.place, Place::Serving(slot) if slot as usize == server);
        self.mux(pool).filter(its)?;
        self.muxes.remove(&pool)
    }

    /// A shared server has gone, and its session has been told. Tells those who shared it.
    pub(super) fn end_share(&mut self, share: &Share) {
        let protocol = Arc::clone(&self.shared.protocol);
        self.gathering.end(share.sharers.len() as u32);
        for slot in share.sharers.iter().map(|slot| *slot as usize) {
            let mut out = self.outbox();
            let tag = self.client_tag(slot);
            let client = &mut self.clients[slot];
            if client.broken {
                self.outboxes.push(out);
                continue;
            }
            if call(|| protocol.share_ended(tag, &mut client.session, &mut out)).is_none() {
                self.on_client_defect(slot, out);
                continue;
            }
            self.execute(out, Source::NONE);
            self.refresh_state(slot);
            self.push_feed(slot);
        }
    }

    /// A shared server has gone. Returns its mux, whose place another one may take at once.
    pub(super) fn end_mux(&mut self, server: usize) -> Option<Box<Mux>> {
        self.forget_stalls(server);
        self.take_mux(server)
    }

    /// Whether a client's input must wait because of the server that it shares: that is to be given back, or does not
    /// take what it gets. A client that has just got its share, and was not `heard` yet, is heard before the server is
    /// given back.
    pub(super) fn is_share_withheld(&self, server: usize, heard: bool) -> bool {
        let server = &self.servers[server];
        let yielding = server.usage.share().is_some_and(|share| share.yielding);
        (yielding && heard) || self.reactor.is_sending(server.conn)
    }

    // ---- sending ----

    /// Keeps bytes for a shared server until they leave together.
    pub(super) fn collect(&mut self, slot: usize, data: &Data<'_>) {
        let share = self.share(slot);
        let first = share.collected.is_empty();
        share.collected.extend_from_slice(data.bytes());
        let enough = share.collected.len() >= MAX_COLLECTED;
        if first {
            self.unflushed.push(slot as u32);
        }
        if enough {
            self.flush_server(slot);
        }
    }

    /// Sends what was collected for shared servers.
    pub(super) fn flush(&mut self) {
        while let Some(slot) = self.unflushed.pop() {
            if self.servers.get(slot as usize).is_some_and(|server| server.usage.is_shared()) {
                self.flush_server(slot as usize);
            }
        }
    }

    fn flush_server(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        let share = server.usage.share_mut().expect("a server of a mux is shared");
        if share.collected.is_empty() {
            return;
        }
        let sent = self.reactor.send(server.conn, Data::Bytes(&share.collected));
        share.collected.clear();
        share.silence.begin(self.now);
        if let Submitted::Broken(error) = sent {
            server.link = Link::Down;
            self.end_server(slot, CloseReason::Error(Blame::Server, format!("cannot send: {error}")));
        }
    }

    /// A shared server has taken all that was sent to it.
    pub(super) fn on_shared_sent(&mut self, slot: usize) {
        let pool = self.servers[slot].pool.id;
        let sharers = self.share(slot).sharers.clone();
        sharers.into_iter().for_each(|client| self.push_feed(client as usize));
        self.admit_if_open(pool, slot);
    }

    /// Gives a share to those who wait, if the server is the mux's and takes more.
    pub(super) fn admit_if_open(&mut self, pool: PoolId, slot: usize) {
        let current =
            self.mux(pool).is_some_and(|mux| matches!(mux.place, Place::Serving(its) if its as usize == slot));
        if current && self.takes_more(slot) {
            self.admit_joining(pool, slot);
        }
    }

    // ---- time ----

    /// Those who wait for a share of a server that takes nobody are in no queue of the pool: their time is looked at
    /// here.
    fn end_long_joining(&mut self, pool: &Arc<SharedPool>, silent: bool) {
        let takes_nobody = |mux: &&mut Mux| matches!(mux.place, Place::Serving(_)) && !mux.joining.is_empty();
        let Some(mux) = self.mux(pool.id).filter(takes_nobody) else { return };
        let Place::Serving(server) = mux.place else { unreachable!("just seen") };
        let mut joining = std::mem::take(&mut mux.joining);
        let silence = self.share(server as usize).silence;
        joining.retain(|joiner| self.still_joins(pool.id, joiner));
        let (config, now) = (&pool.spec().config, self.now);
        // Where the server is silent, it is Redis that they wait for; what they waited for that does not count
        // afterwards.
        let waited = |joiner: &Joiner| match silent {
            true => (now - joiner.since, config.unavailable_wait_time),
            false => (now - silence.others_since(joiner.since), config.max_wait_time),
        };
        let is_late = |joiner: &Joiner| matches!(waited(joiner), (waited, Some(limit)) if waited >= limit);
        let (late, patient): (Vec<_>, Vec<_>) = joining.into_iter().partition(is_late);
        self.mux(pool.id).expect("seen above").joining = patient;
        for joiner in late {
            pool.lock().stats.on_failed(CheckOutFailed::Timeout);
            let why = self.lease_failure(pool, CheckOutFailed::Timeout, now - joiner.since);
            self.fail_lease(joiner.client as usize, why);
        }
    }

    /// Has muxes give back what they do not need, or have had long enough.
    pub(super) fn look_after_muxes(&mut self) {
        self.look_at_stalls();
        self.look_at_probes();
        let serving = |mux: &Mux| if let Place::Serving(server) = mux.place { Some(server) } else { None };
        // In order of their ids, so that a schedule of the simulator can be played again.
        let mut pools: Vec<PoolId> = self.muxes.keys().copied().collect();
        pools.sort_unstable();
        for pool in pools {
            let Some(slot) = self.muxes.get(&pool).and_then(|mux| serving(mux)) else { continue };
            let slot = slot as usize;
            let (now, pool, id) = (self.now, Arc::clone(&self.servers[slot].pool), self.servers[slot].id);
            let share = self.share(slot);
            let (waiters, paused) = {
                let guarded = &mut *pool.lock();
                guarded.stats.transactions += std::mem::take(&mut share.served);
                // Those who wait may be in another pool under the same limits.
                let for_others = pool.awaits_idle.load(Relaxed) && guarded.pool.may_spare(id, now);
                (guarded.pool.counts().waits_for_any() || for_others, guarded.pool.is_paused())
            };
            let held = now - share.since;
            let unused = !std::mem::take(&mut share.used) && share.sharers.is_empty();
            let silent = self.look_at_silence(&pool, slot);
            let share = self.share(slot);
            let wanted = unused || paused || held >= TURN || (waiters && held >= TICK);
            if wanted {
                share.yielding = true;
                if share.sharers.is_empty() {
                    self.give_back(slot);
                }
            }
            self.end_long_joining(&pool, silent);
        }
    }
}
