//! Servers that the clients of a worker share. To the pool they are one holder: the worker's mux for that pool.
//!
//! Clients join and leave without a word to the pool, which is asked once for many of their requests. The pool's rules
//! (life times, generations, other waiters) are to apply all the same, so a mux gives its server back from time to
//! time: no client joins it any more, clients that have a share send nothing more, and when the last reply has come the
//! server is checked in and asked for anew.
//!
//! What clients send to a shared server is collected while their requests are taken one after another, and leaves in
//! one system call. Clients that do not read are the business of [`stalls`]; [`replacement`] finds another server for
//! newcomers while a shared one does not answer.

mod coalescing;
mod replacement;
mod round_trips;
mod stalls;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::{CheckOut, CheckOutFailed, Grant, Need, Time};
use seam::{Blame, CloseReason, LeaseFailure, PoolId, Protocol, Verdict};

pub(super) use self::stalls::MAX_UNREAD_BYTES;
use self::{
    coalescing::Coalescing,
    replacement::{Probe, Replacement},
    round_trips::RoundTrips,
    stalls::Stalls,
};
use super::{
    ClientWork, TICK, Work, Worker,
    calls::{Source, call},
    lease::Lease,
    servers::Link,
    share::Share,
    usage::Usage,
};
use crate::{
    by_pool::ByPool,
    mailbox::Message,
    reactor::{Data, Reactor, Submitted},
    shared_pool::SharedPool,
};

/// A mux gives its server back after this time at the latest.
const MAX_SERVER_TIME: Duration = Duration::from_secs(1);

/// What the clients of a worker share.
#[derive(Default)]
pub(super) struct Sharing {
    muxes: ByPool<Box<Mux>>,
    /// Shared servers for which bytes have been collected.
    unflushed: Vec<u32>,
    coalescing: Coalescing,
    stalls: Stalls,
    probes: Vec<Probe>,
    round_trips: RoundTrips,
}

impl Sharing {
    /// Prepares the thread that is to run the worker.
    pub(super) fn prepare_thread(&mut self) {
        self.coalescing.prepare_thread();
    }

    /// Pauses for some microseconds if more requests come meanwhile.
    pub(super) fn pause(&mut self, now: Time) {
        self.coalescing.pause(now);
    }

    pub(super) fn forget_pool(&mut self, pool: PoolId) {
        self.round_trips.forget(pool);
    }

    fn mux(&mut self, pool: PoolId) -> Option<&mut Mux> {
        self.muxes.get_mut(&pool).map(Box::as_mut)
    }

    /// The mux of a pool that has this server, if it has no other by now.
    fn mux_of(&mut self, pool: PoolId, server: usize) -> Option<&mut Mux> {
        self.mux(pool).filter(|mux| mux.server() == Some(server))
    }
}

/// The clients of this worker that share a server of a pool, or wait to.
struct Mux {
    state: MuxState,
    joining: Vec<Joiner>,
    /// Another server, which is to take the place of one that does not answer.
    replacement: Replacement,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MuxState {
    /// The mux waits for a server under this number: in the queue of the pool, or after that for one on its way.
    Waiting(u32),
    /// The server in this slot.
    Serving(usize),
}

impl Mux {
    fn server(&self) -> Option<usize> {
        if let MuxState::Serving(server) = self.state { Some(server) } else { None }
    }
}

/// A client that waits for a share.
pub(super) struct Joiner {
    client: u32,
    waiter: u32,
    since: Time,
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    fn share(&mut self, server: usize) -> &mut Share {
        self.servers[server].usage.share_mut().expect("a server of a mux is shared")
    }

    // ---- joining ----

    /// A client needs a share. True when it has one at once.
    pub(super) fn join(&mut self, slot: usize, pool: PoolId) -> bool {
        let Some(client) = self.clients.get_mut(slot).filter(|client| !client.life.is_closing()) else { return false };
        assert!(client.lease == Lease::None, "a client has one share, and no other server beside it");
        if let Some(server) = self.sharing.mux(pool).and_then(|mux| mux.server())
            && self.takes_more(server)
        {
            self.admit(slot, server);
            return true;
        }
        let client = &mut self.clients[slot];
        client.lease = Lease::Joining { pool };
        let joiner = Joiner { client: slot as u32, waiter: client.waiter, since: self.now };
        if self.sharing.mux(pool).is_none() {
            self.start_sharing(pool, vec![joiner]);
        } else if self.make_room_to_join(pool) {
            self.sharing.mux(pool).expect("just seen").joining.push(joiner);
        } else {
            let (waiter, reason) = (self.client_waiter(slot, joiner.waiter), CheckOutFailed::QueueFull);
            self.pools.used(pool).lock().stats.on_failed(reason);
            self.push_failed(pool, waiter, reason);
        }
        // Whatever it waits for, it is not idle.
        self.refresh_state(slot);
        !self.clients[slot].lease.is_waiting()
    }

    /// Forgets clients that wait no longer, if need be. True if one more client may wait for a share: as many may as
    /// may wait for servers of the pool.
    fn make_room_to_join(&mut self, pool: PoolId) -> bool {
        // A pool that is forgotten tells the clients that wait for it, in time.
        let most = self.pools.find_or_make(pool, self.now).map_or(0, |pool| pool.spec().config.max_waiters as usize);
        let (clients, mux) = (self.clients.len(), self.sharing.mux(pool).expect("a client waits with a mux"));
        if mux.joining.len() >= clients || (most > 0 && mux.joining.len() >= most) {
            let mut joining = std::mem::take(&mut mux.joining);
            joining.retain(|joiner| self.still_joins(pool, joiner));
            self.sharing.mux(pool).expect("just seen").joining = joining;
        }
        most == 0 || self.sharing.mux(pool).expect("just seen").joining.len() < most
    }

    /// Whether more clients may join those of a shared server.
    fn takes_more(&self, slot: usize) -> bool {
        let server = &self.servers[slot];
        let share = server.usage.share().expect("a server of a mux is shared");
        share.is_open() && !server.link.is_ending() && !self.reactor.is_sending(server.conn)
    }

    /// Asks the pool for a server for the clients that wait.
    fn start_sharing(&mut self, pool: PoolId, joining: Vec<Joiner>) {
        let waiter = self.new_serial();
        let mux = Mux { state: MuxState::Waiting(waiter), joining, replacement: Replacement::None };
        self.sharing.muxes.insert(pool, Box::new(mux));
        let id = self.mux_waiter(waiter);
        match self.pools.check_out(pool, id, Need::Any, self.now) {
            Some(CheckOut::Granted(grant)) if grant.home == self.home() => self.on_mux_granted(pool, waiter, &grant),
            Some(CheckOut::Granted(grant)) => self.mailbox(grant.home).send(Message::Bring(pool, grant)),
            // A mux never leaves the queue: a server that comes when its clients have gone is simply given back.
            Some(CheckOut::Queued(_)) => {}
            Some(CheckOut::Failed(reason)) => self.push_failed(pool, id, reason),
            None => self.work.push_back(Work::PoolGone { pool, waiter: id }),
        }
    }

    /// The server that was granted to a mux lives here.
    pub(super) fn on_mux_granted(&mut self, pool: PoolId, waiter: u32, grant: &Grant) {
        let slot = self.server_here(pool, grant.server).filter(|slot| !self.servers[*slot].link.is_ending());
        if !self.mux_waits(pool, waiter) {
            return self.on_replacement_granted(pool, waiter, slot);
        }
        let Some(slot) = slot else {
            // What ends a server gives it back. Nothing was sent, so the clients that wait simply ask again.
            return self.on_mux_grant_lost(pool, waiter);
        };
        self.set_mux_server(pool, slot);
        if grant.waited >= self.process.config.slow_wait
            && let Some(withheld) = self.paces.slow_wait.take_line(self.now)
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
        self.sharing.mux(pool).is_some_and(|mux| mux.state == MuxState::Waiting(waiter))
    }

    fn set_mux_server(&mut self, pool: PoolId, slot: usize) {
        let now = self.now;
        self.sharing.mux(pool).expect("a server is for a mux").state = MuxState::Serving(slot);
        let server = &mut self.servers[slot];
        assert!(server.usage.is_free(), "a server has one holder");
        server.since = now;
        server.usage = Usage::Shared(Box::new(Share::new(now)));
    }

    /// Gives a share to the clients that wait.
    fn admit_joining(&mut self, pool: PoolId, server: usize) {
        let joining = self.sharing.mux(pool).map(|mux| std::mem::take(&mut mux.joining)).unwrap_or_default();
        for joiner in joining {
            if self.still_joins(pool, &joiner) {
                self.admit(joiner.client as usize, server);
                self.push_feed(joiner.client as usize);
            }
        }
    }

    fn still_joins(&self, pool: PoolId, joiner: &Joiner) -> bool {
        let client = self.clients.get(joiner.client as usize);
        client.is_some_and(|c| c.waiter == joiner.waiter && !c.life.is_closing() && c.lease == Lease::Joining { pool })
    }

    fn admit(&mut self, slot: usize, server: usize) {
        let index = self.share(server).join(slot);
        self.sharing.coalescing.begin_request(&mut self.clients[slot].counted);
        self.clients[slot].lease = Lease::Shared { server: server as u32, index, heard: false };
        self.refresh_state(slot);
        let mut out = self.take_outbox();
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
            return self.on_replacement_granted(pool, waiter, None);
        }
        let mux = self.sharing.muxes.remove(&pool).expect("a mux waits until it has an answer");
        self.share_anew(pool, mux.joining);
    }

    /// The pool that a mux has asked is forgotten.
    pub(super) fn on_mux_pool_gone(&mut self, pool: PoolId, waiter: u32) {
        if !self.mux_waits(pool, waiter) {
            return;
        }
        let mux = self.sharing.muxes.remove(&pool).expect("just seen");
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
            return self.on_replacement_failed(pool, waiter, reason);
        }
        let mux = self.sharing.muxes.remove(&pool.id).expect("a mux waits until it has an answer");
        if let Some(withheld) = self.paces.no_server.take_line(self.now) {
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

    /// The server that was shared has been given back or has gone, and the pool knows: the clients that wait ask for
    /// another.
    pub(super) fn share_anew(&mut self, pool: PoolId, mut joining: Vec<Joiner>) {
        joining.retain(|joiner| self.still_joins(pool, joiner));
        if joining.is_empty() {
            return;
        }
        // Other clients may have asked already, when they heard of the end.
        let Some(mux) = self.sharing.mux(pool) else { return self.start_sharing(pool, joining) };
        mux.joining.extend(joining);
        if let Some(server) = mux.server()
            && self.takes_more(server)
        {
            self.admit_joining(pool, server);
        }
    }

    // ---- leaving ----

    /// A client gives its share back.
    pub(super) fn leave_share(&mut self, slot: usize, server: usize, verdict: Verdict) {
        let client = &mut self.clients[slot];
        let Lease::Shared { server: shared, index, .. } = client.lease else {
            panic!("a client gives back a share that it does not have");
        };
        assert_eq!(shared as usize, server, "a client gives back its share of another server");
        client.lease = Lease::None;
        self.sharing.coalescing.end_requests(1);
        let sending = self.reactor.is_sending(self.servers[server].conn) || self.reactor.is_sending(client.conn);
        let share = self.servers[server].usage.share_mut().expect("a server of a mux is shared");
        if let Some(moved) = share.leave(index, verdict)
            && let Lease::Shared { index: its, .. } = &mut self.clients[moved].lease
        {
            *its = index;
        }
        self.counters.add_transactions(1);
        let gives_back = share.is_empty() && share.is_to_be_returned();
        if share.is_yielding() || sending {
            // The worker did not receive from the client, on account of this server or of bytes that the client has not
            // read.
            self.push_client_work(slot, ClientWork::Feed);
        }
        if !self.sharing.stalls.is_empty() {
            self.end_stall(slot);
        }
        if gives_back {
            self.give_back(server);
        }
    }

    /// A client waits for a server of this pool: one that is shared, and has no client at the moment, may be it.
    pub(super) fn give_back_unused(&mut self, pool: PoolId) {
        if let Some(server) = self.sharing.mux(pool).and_then(|mux| mux.server())
            && self.share(server).is_empty()
        {
            self.give_back(server);
        }
    }

    /// Gives a shared server back to its pool.
    fn give_back(&mut self, slot: usize) {
        self.flush_server(slot);
        let server = &mut self.servers[slot];
        let pool = Arc::clone(&server.pool);
        let mut share = server.usage.take_share().expect("a server of a mux is shared");
        assert!(share.is_empty(), "a shared server is given back by its last client");
        pool.lock().stats.totals.transactions += share.take_answered();
        let mux = self.take_mux(slot);
        if !self.servers[slot].link.is_ending() {
            self.check_in(slot, share.verdict());
        }
        if let Some(mux) = mux {
            self.share_anew(pool.id, mux.joining);
        }
    }

    /// The mux that has this server, out of its place; `None` if it has another by now.
    fn take_mux(&mut self, server: usize) -> Option<Box<Mux>> {
        let pool = self.servers[server].pool.id;
        self.sharing.mux_of(pool, server)?;
        self.sharing.muxes.remove(&pool)
    }

    /// A shared server has gone, and its session has been told. Tells the clients that shared it.
    pub(super) fn end_share(&mut self, share: &Share) {
        self.sharing.coalescing.end_requests(share.len() as u32);
        for slot in share.clients() {
            if self.clients[slot].life.is_broken() {
                continue;
            }
            let called = self.call_client(slot, Source::NONE, |protocol, tag, session, out| {
                protocol.share_ended(tag, session, out);
            });
            if called.is_some() {
                self.refresh_state(slot);
                self.push_feed(slot);
            }
        }
    }

    /// A shared server has gone. Returns the clients that waited for a share of it, if its mux had no other by now:
    /// then another mux may take its place at once.
    pub(super) fn end_mux(&mut self, server: usize) -> Option<Vec<Joiner>> {
        self.forget_stalls_of_server(server);
        self.take_mux(server).map(|mux| mux.joining)
    }

    /// Whether a client's input must wait because of the server that it shares: that is to be given back, or does not
    /// take what it gets. A client that has just got its share, and was not `heard` yet, is heard before the server is
    /// given back.
    pub(super) fn is_share_paused(&self, server: usize, heard: bool) -> bool {
        let server = &self.servers[server];
        let yielding = server.usage.share().is_some_and(Share::is_yielding);
        (yielding && heard) || self.reactor.is_sending(server.conn)
    }

    // ---- sending ----

    /// Keeps bytes for a shared server until they leave together.
    pub(super) fn collect(&mut self, slot: usize, data: &Data<'_>) {
        let collected = self.share(slot).collect(data.bytes());
        if collected.first {
            self.sharing.unflushed.push(slot as u32);
        }
        if collected.full {
            self.flush_server(slot);
        }
    }

    /// Sends what was collected for shared servers.
    pub(super) fn flush(&mut self) {
        while let Some(slot) = self.sharing.unflushed.pop() {
            if self.servers.get(slot as usize).is_some_and(|server| server.usage.is_shared()) {
                self.flush_server(slot as usize);
            }
        }
    }

    fn flush_server(&mut self, slot: usize) {
        let server = &mut self.servers[slot];
        let share = server.usage.share_mut().expect("a server of a mux is shared");
        if share.collected().is_empty() {
            return;
        }
        let sent = self.reactor.send(server.conn, Data::Bytes(share.collected()));
        share.note_sent(self.now);
        if let Submitted::Broken(error) = sent {
            server.link = Link::Down;
            self.end_server(slot, CloseReason::Error(Blame::Server, format!("cannot send: {error}")));
        }
    }

    /// A shared server has taken all that was sent to it.
    pub(super) fn on_shared_sent(&mut self, slot: usize) {
        let pool = self.servers[slot].pool.id;
        let clients: Vec<usize> = self.share(slot).clients().collect();
        clients.into_iter().for_each(|client| self.push_feed(client));
        self.admit_if_open(pool, slot);
    }

    /// Gives a share to the clients that wait, if the server is the mux's and takes more.
    pub(super) fn admit_if_open(&mut self, pool: PoolId, slot: usize) {
        if self.sharing.mux_of(pool, slot).is_some() && self.takes_more(slot) {
            self.admit_joining(pool, slot);
        }
    }

    // ---- time ----

    /// Fails the clients that have waited for too long for a share of a server that takes no more clients: they are in
    /// no queue of the pool.
    fn end_long_joining(&mut self, pool: &Arc<SharedPool>, unresponsive: bool) {
        let Some(mux) = self.sharing.mux(pool.id).filter(|mux| !mux.joining.is_empty()) else { return };
        let Some(server) = mux.server() else { return };
        let mut joining = std::mem::take(&mut mux.joining);
        joining.retain(|joiner| self.still_joins(pool.id, joiner));
        let (config, now) = (&pool.spec().config, self.now);
        // While the server does not answer, it is the database that they wait for; that time does not count against
        // `max_wait_time` afterwards.
        let share = self.servers[server].usage.share().expect("a server of a mux is shared");
        let waited = |joiner: &Joiner| match unresponsive {
            true => (now - joiner.since, config.unavailable_wait_time),
            false => (now - share.due.others_since(joiner.since), config.max_wait_time),
        };
        let is_late = |joiner: &Joiner| matches!(waited(joiner), (waited, Some(limit)) if waited >= limit);
        let (late, patient): (Vec<_>, Vec<_>) = joining.into_iter().partition(is_late);
        self.sharing.mux(pool.id).expect("seen above").joining = patient;
        for joiner in late {
            pool.lock().stats.on_failed(CheckOutFailed::Timeout);
            let why = self.lease_failure(pool, CheckOutFailed::Timeout, now - joiner.since);
            self.fail_lease(joiner.client as usize, why);
        }
    }

    /// At each tick: has muxes give back what they do not need, or have had long enough.
    pub(super) fn tend_muxes(&mut self) {
        self.check_stalls();
        self.check_probes();
        // In order of their ids, so that a schedule of the simulator can be played again.
        let mut pools: Vec<PoolId> = self.sharing.muxes.keys().copied().collect();
        pools.sort_unstable();
        for pool in pools {
            if let Some(server) = self.sharing.mux(pool).and_then(|mux| mux.server()) {
                self.tend_mux(server);
            }
        }
    }

    fn tend_mux(&mut self, slot: usize) {
        let (now, pool, id) = (self.now, Arc::clone(&self.servers[slot].pool), self.servers[slot].id);
        let share = self.share(slot);
        let (waiters, paused) = {
            let guarded = &mut *pool.lock();
            guarded.stats.totals.transactions += share.take_answered();
            // Those that wait may be in another pool under the same limits.
            let for_others = pool.awaits_idle.load(Relaxed) && guarded.pool.can_spare(id, now);
            (guarded.pool.counts().waits_for_any() || for_others, guarded.pool.is_paused())
        };
        let (held, idle) = (share.held_for(now), share.take_idle());
        let unresponsive = self.replace_if_unresponsive(&pool, slot);
        let wanted = idle || paused || held >= MAX_SERVER_TIME || (waiters && held >= TICK);
        if wanted {
            let share = self.share(slot);
            share.start_yielding();
            if share.is_empty() {
                self.give_back(slot);
            }
        }
        self.end_long_joining(&pool, unresponsive);
    }
}
