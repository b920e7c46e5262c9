//! Clients that have logged in and wait for a place with their database or their user. Until they have it, their
//! sessions get no input, effects for them are deferred (the answer to the login first of all), and for the
//! listener they have yet to log in.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::Time;
use seam::{Blame, Bytes, ClientTag, CloseReason, Effect, Outbox, Peer, PoolId, Protocol, Refusal, Tenant};

use super::{ClientWork, Worker, calls::Source};
use crate::{
    kept_places::ClientRank,
    mailbox::Admission,
    reactor::Reactor,
    shared_pool::SharedPool,
    tenants::{Entrance, TenantIds, TenantTicket},
};

/// Effects that are deferred for one client: the answer to its login, and those that come with it.
const MAX_DEFERRED_EFFECTS: usize = 256;

/// The clients of a worker that wait for a place with their database or their user.
#[derive(Default)]
pub(super) struct TenantQueue(Vec<TenantWaiter>);

struct TenantWaiter {
    slot: usize,
    /// `None`: the client gets no place, since its database takes no clients or another client has its place at the
    /// listener.
    ticket: Option<TenantTicket>,
    since: Time,
    /// The client is refused at the next tick unless it has a place by then, because too many wait.
    in_vain: bool,
    /// The effects that are deferred for the client.
    deferred: Outbox,
}

impl TenantQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take(&mut self, slot: usize) -> TenantWaiter {
        let at = self.0.iter().position(|waiter| waiter.slot == slot).expect("the client waits");
        self.0.remove(at)
    }
}

impl<P: Protocol, R: Reactor> Worker<P, R> {
    /// A client has logged in. If it has done so anew and there is no place for it, later effects for it are dropped.
    pub(super) fn log_in(&mut self, out: &mut Outbox, at: usize) {
        let Effect::LoggedIn { client: who, pool, ref user } = out.effects[at] else { unreachable!("it is a login") };
        let slot = who.slot();
        let Some(client) = self.clients.get(slot) else { return };
        if client.pool.is_none() {
            self.on_logged_in(slot, pool, user);
        } else if !self.on_logged_in_anew(slot, pool, user) {
            drop_later_effects(out, at, who);
        }
    }

    /// Its session knows which pool it belongs to.
    fn on_logged_in(&mut self, slot: usize, pool: PoolId, user: &Arc<str>) {
        let shared = self.pools.find_or_make(pool, self.now);
        let Some(shared) = shared.filter(|shared| shared.enter()) else { return self.on_forgotten(slot) };
        let client = &mut self.clients[slot];
        client.pool = Some(pool);
        if client.places.admission() == Admission::Surplus && !client.life.is_closing() {
            return self.seat_at_kept_place(slot, &shared);
        }
        if !client.places.is_admitted() || client.life.is_closing() {
            return self.admit_logged_in(slot);
        }
        if let Some(why) = shared.refusal_of_newcomers(true) {
            // It hears that in the place of the answer to its login.
            self.join_tenant_queue(slot, None, false);
            self.admit_logged_in(slot);
            return self.push_client_work(slot, ClientWork::Refuse(why));
        }
        let process = Arc::clone(&self.process);
        let limits = |tenant: &Tenant| process.registry.limits(tenant);
        let tenants = match shared.spec().client_rank {
            ClientRank::Operator => [None, None],
            ClientRank::Application | ClientRank::Viewer => [shared.tenant.clone(), of_user(user)],
        };
        match process.tenants.enter(tenants, limits, self.now) {
            Entrance::Inside(tenants) => self.admit_for_tenants(slot, tenants),
            Entrance::Awaits { ticket, in_vain } => {
                self.join_tenant_queue(slot, Some(ticket), in_vain);
                // Other clients may have its turn to log in.
                self.end_turn(slot);
                self.requeue(slot, true);
            }
        }
    }

    /// A client for which there is no room has logged in all the same, as sessions let operators do. It has to go if
    /// there is no kept place for it.
    fn seat_at_kept_place(&mut self, slot: usize, shared: &SharedPool) {
        let process = Arc::clone(&self.process);
        let listener = &process.listeners[usize::from(self.clients[slot].listener)];
        if process.kept_places.try_take(shared.spec().client_rank) {
            listener.surplus.fetch_sub(1, Relaxed);
            self.clients[slot].places.take_kept();
            return self.admit_logged_in(slot);
        }
        // It hears that in the place of the answer to its login.
        self.join_tenant_queue(slot, None, false);
        let (limit, setting) = listener.client_limit();
        self.push_client_work(slot, ClientWork::Refuse(Refusal::TooManyClients { limit, setting }));
    }

    /// The pool that a client has logged in to is forgotten.
    fn on_forgotten(&mut self, slot: usize) {
        let message = "its pool was forgotten before it had logged in: it took too long for that".to_owned();
        self.push_close(slot, CloseReason::Error(Blame::Exhausted, message));
    }

    pub(super) fn join_tenant_queue(&mut self, slot: usize, ticket: Option<TenantTicket>, in_vain: bool) {
        self.clients[slot].places.set_in_tenant_queue(true);
        self.tenant_queue.0.push(TenantWaiter { slot, ticket, since: self.now, in_vain, deferred: Outbox::new() });
    }

    /// The client has logged in as another user: its place moves there. False if there is none: then it has to go.
    fn on_logged_in_anew(&mut self, slot: usize, pool: PoolId, user: &Arc<str>) -> bool {
        let client = &self.clients[slot];
        if client.places.is_admitted() && !client.life.is_closing() {
            let process = Arc::clone(&self.process);
            let limits = |tenant: &Tenant| process.registry.limits(tenant);
            let Some(shared) = self.pools.find_or_make(pool, self.now) else {
                self.on_forgotten(slot);
                return false;
            };
            let tenants = [shared.tenant.clone(), of_user(user)];
            match process.tenants.move_to(tenants, self.clients[slot].places.tenants(), limits, self.now) {
                Ok(tenants) => {
                    self.leave_tenant_queues(slot);
                    self.assign_tenants(slot, tenants);
                    if let Some(queue) = self.clients[slot].queued.queue() {
                        self.join_tenant_queues(slot, queue, self.now);
                    }
                }
                Err((of, limit)) => {
                    self.note_full(slot, &of, limit);
                    self.refuse(slot, Refusal::Full { of, limit });
                    return false;
                }
            }
        }
        self.on_uses_pool(slot, pool)
    }

    fn assign_tenants(&mut self, slot: usize, tenants: TenantIds) {
        self.clients[slot].places.set_tenants(tenants);
        for id in tenants.into_iter().flatten().filter(|id| self.process.tenants.is_limited(*id)) {
            self.queues.add_tenant(id);
        }
    }

    fn admit_for_tenants(&mut self, slot: usize, tenants: TenantIds) {
        self.assign_tenants(slot, tenants);
        self.admit_logged_in(slot);
    }

    fn note_full(&mut self, slot: usize, of: &Tenant, limit: u32) {
        if let Some(withheld) = self.paces.tenant_full.take_line(self.now) {
            let client = self.client_address(slot);
            tracing::warn!(withheld, %client, hard_limit = limit, "too many clients of {of}");
        }
    }

    /// Defers an effect for a client that waits. False if the effect is to be executed.
    pub(super) fn try_defer(&mut self, out: &Outbox, at: usize, source: Source<'_>) -> bool {
        let Some(slot) = client_of(&out.effects[at]).map(ClientTag::slot) else { return false };
        if !self.clients.get(slot).is_some_and(|client| client.places.is_in_tenant_queue()) {
            return false;
        }
        let Some(waiting) = self.tenant_queue.0.iter_mut().find(|waiting| waiting.slot == slot) else { return false };
        let deferred = &mut waiting.deferred;
        if deferred.effects.len() >= MAX_DEFERRED_EFFECTS {
            return true;
        }
        let inserted = |range: &std::ops::Range<usize>| &out.inserted[range.clone()];
        match &out.effects[at] {
            Effect::Send { to, bytes: Bytes::Span(span) } => {
                deferred.insert(*to, |to| to.extend_from_slice(source.slice(span.clone())));
            }
            Effect::Send { to, bytes: Bytes::Insert(range) } => {
                deferred.insert(*to, |to| to.extend_from_slice(inserted(range)));
            }
            Effect::Survey { client, question } => {
                let begin = deferred.inserted.len();
                deferred.inserted.extend_from_slice(inserted(question));
                deferred.push(Effect::Survey { client: *client, question: begin..deferred.inserted.len() });
            }
            other => deferred.push(other.clone()),
        }
        true
    }

    /// Hands on the input of clients that have got their places, and refuses clients that have waited too long.
    pub(super) fn tend_tenant_queue(&mut self) {
        if self.tenant_queue.is_empty() {
            return;
        }
        let process = Arc::clone(&self.process);
        let all = self.tenant_queue.0.iter().filter_map(|waiting| Some((waiting.slot, waiting.ticket?)));
        for (slot, tenants) in process.tenants.take_placed(all) {
            let deferred = self.leave_tenant_queue(slot).deferred;
            self.admit_tenant_waiter(slot, tenants, deferred);
        }
        let late = |waiting: &TenantWaiter| {
            let listener = &process.listeners[usize::from(self.clients[waiting.slot].listener)];
            let most = listener.timeouts().newcomer_wait.unwrap_or(Duration::ZERO);
            waiting.ticket.is_some() && (waiting.in_vain || self.now - waiting.since >= most)
        };
        let late: Vec<usize> =
            self.tenant_queue.0.iter().filter(|waiting| late(waiting)).map(|waiting| waiting.slot).collect();
        late.into_iter().for_each(|slot| self.refuse_tenant_waiter(slot));
    }

    fn leave_tenant_queue(&mut self, slot: usize) -> TenantWaiter {
        self.clients[slot].places.set_in_tenant_queue(false);
        self.tenant_queue.take(slot)
    }

    fn admit_tenant_waiter(&mut self, slot: usize, tenants: TenantIds, deferred: Outbox) {
        self.admit_for_tenants(slot, tenants);
        self.requeue(slot, true);
        self.execute(deferred, Source::NONE);
        self.refresh_state(slot);
        self.push_feed(slot);
    }

    /// A client has waited for as long as it may.
    fn refuse_tenant_waiter(&mut self, slot: usize) {
        let TenantWaiter { ticket, deferred, .. } = self.leave_tenant_queue(slot);
        let process = Arc::clone(&self.process);
        let ticket = ticket.expect("it waits for a place");
        let (of, limit) = match process.tenants.give_up(ticket, self.now) {
            Ok(tenants) => return self.admit_tenant_waiter(slot, tenants, deferred),
            Err(full) => full,
        };
        self.note_full(slot, &of, limit);
        let told = self.send_refusal(slot, Refusal::Full { of, limit });
        let rules = &process.listeners[usize::from(self.clients[slot].listener)];
        let stays = rules.turn_away(false);
        if told || !stays {
            if stays {
                rules.surplus.fetch_sub(1, Relaxed);
            }
            if !self.clients[slot].life.is_closing() {
                self.push_close(slot, CloseReason::Done);
            }
            return;
        }
        if !self.leave_lobby(slot) {
            rules.surplus.fetch_sub(1, Relaxed);
            return self.push_displaced(slot);
        }
        // It hears why in answer to what it asks next, and goes when that takes as long as a login may.
        rules.left(self.clients[slot].places.become_surplus());
        let mut deferred = deferred;
        deferred.effects.retain(|effect| matches!(effect, Effect::Send { .. }));
        self.execute(deferred, Source::NONE);
        self.requeue(slot, true);
        self.push_feed(slot);
    }

    /// A client waits no longer, because it goes or is refused for another reason.
    pub(super) fn withdraw_from_tenants(&mut self, slot: usize) {
        if self.clients[slot].places.is_in_tenant_queue()
            && let Some(ticket) = self.leave_tenant_queue(slot).ticket
        {
            self.process.tenants.step_back(ticket, self.now);
        }
    }

    /// After limits were changed: has the clients of tenants that have limits join the queues of these.
    pub(super) fn follow_limits(&mut self) {
        if !self.queues.drop_outdated(self.process.tenants.version()) {
            return;
        }
        let mut idle = Vec::new();
        for (slot, client) in &mut self.clients {
            for id in client.places.tenants().into_iter().flatten() {
                if self.process.tenants.is_limited(id) {
                    self.queues.add_tenant(id);
                }
            }
            client.queued.forget_tenants();
            if let Some(queue) = client.queued.queue() {
                idle.push((client.since, slot, queue));
            }
        }
        idle.sort_unstable_by_key(|(since, slot, _)| (*since, *slot));
        for (since, slot, queue) in idle {
            self.join_tenant_queues(slot, queue, since);
        }
    }
}

/// Drops the effects for a client behind this one.
pub(super) fn drop_later_effects(out: &mut Outbox, at: usize, who: ClientTag) {
    let behind = out.effects.split_off(at + 1);
    out.effects.extend(behind.into_iter().filter(|effect| client_of(effect) != Some(who)));
}

fn of_user(name: &Arc<str>) -> Option<Tenant> {
    (!name.is_empty()).then(|| Tenant::User(Arc::clone(name)))
}

/// The client that an effect is for, if the effect waits while the client waits.
fn client_of(effect: &Effect) -> Option<ClientTag> {
    match effect {
        Effect::Send { to: Peer::Client(client), .. }
        | Effect::Lease { client, .. }
        | Effect::Standing { client, .. }
        | Effect::LoggedIn { client, .. }
        | Effect::UsesPool { client, .. }
        | Effect::Progress { client, .. }
        | Effect::Wake { client }
        | Effect::NotifyFlushed { client }
        | Effect::Survey { client, .. }
        | Effect::Withdraw { client } => Some(*client),
        _ => None,
    }
}
