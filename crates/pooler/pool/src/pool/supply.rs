//! How a pool keeps servers and waiters matched: which server a waiter gets, how many connections are wanted, and what
//! is due at which time. The requests that lead here are in the parent.

use crate::{
    action::{Action, Grant, PauseMode},
    reasons::{CheckOutFailed, Closed, GrantSource},
    slots::{Home, ServerId, State},
    time::Time,
    waiters::{Waiter, Waiters},
};

use super::{Mode, Pool};

/// Waiters that are passed over to find the home of a new connection.
const MAX_HOME_SEARCH: u32 = 16;
/// Nanoseconds within which a free permit arrives.
const PERMIT_NANOS: u64 = 20_000_000;

impl Pool {
    /// Brings waiters and idle servers together, and updates how many connections are wanted. To be called whenever
    /// either may have changed.
    pub(super) fn settle(&mut self, now: Time) {
        self.settled_at = now;
        self.backoff.end_pause_at(now);
        self.update_availability(now);
        self.admit_deferred(now);
        if self.mode == Mode::Ready && self.waiters.len() > 0 && self.slots.count(State::Idle) > 0 {
            self.serve_from_idle(now);
            self.update_availability(now);
        }
        if self.needing_fresh.len() > 0 {
            self.close_idle_for_fresh(now);
            self.update_availability(now);
        }
        if self.reset_requested {
            self.reset_oldest_idle(now);
            self.update_availability(now);
        }
        self.request_excess_returns(now);
        self.permits_wanted = self.wanted();
    }

    /// Closes idle servers, so that connections can be made for waiters that need a fresh one.
    #[cold]
    fn close_idle_for_fresh(&mut self, now: Time) {
        while self.needs_slot_for_fresh(now)
            && let Some(server) = self.slots.oldest_idle()
        {
            self.order_close(server, Closed::Discarded, now);
        }
    }

    /// Whether a waiter needs a new connection, and `max_size` permits none. If `max_size` permits one, and the budget
    /// has granted no permit for long, a server of this pool has to return its own.
    #[inline]
    pub(super) fn needs_slot_for_fresh(&self, now: Time) -> bool {
        self.needing_fresh.front().is_some_and(|front| {
            self.mode == Mode::Ready && !self.backoff.is_pausing() && {
                let coming = self.slots.count(State::Connecting) + self.slots.count(State::Closing);
                let may_get_permit = front.since.after(PERMIT_NANOS) > now;
                let free = if may_get_permit { self.limits.max_size.saturating_sub(self.slots.total()) } else { 0 };
                self.needing_fresh.len() > coming + free
            }
        })
    }

    /// Notes when the upstream becomes unavailable (or the pool is paused), and when that ends: different time-outs
    /// apply to waiters.
    pub(super) fn update_availability(&mut self, now: Time) {
        let unavailable = self.mode == Mode::Paused(PauseMode::HoldWaiters) || self.unavailable_since().is_some();
        if self.unavailable && !unavailable {
            self.available_since = now;
        }
        self.unavailable = unavailable;
    }

    /// How many connections are wanted beyond those connecting. A server in a check or reset will soon be free, so it
    /// counts as one for a waiter.
    pub(super) fn wanted(&self) -> u32 {
        if self.mode != Mode::Ready || self.backoff.is_pausing() {
            return 0;
        }
        let is_wanted = !self.config.min_size_once_connected || self.has_connected;
        let applies = is_wanted && !self.sharing.yields_minimum;
        let min_size = if applies { self.config.min_size } else { 0 };
        let missing = min_size.saturating_sub(self.slots.live()).max(u32::from(self.needs_server_for_reset()));
        let needing_fresh = self.needing_fresh.len();
        if self.waiters.len() == 0 && needing_fresh == 0 && missing == 0 {
            return 0;
        }
        let connecting = self.slots.count(State::Connecting);
        // New connections go first to waiters that need a fresh server.
        let covered = self.covered_waiters();
        let uncovered = needing_fresh.saturating_sub(connecting) + self.waiters.len().saturating_sub(covered);
        let free = self.limits.max_size.saturating_sub(self.slots.total());
        let wanted = uncovered.max(missing).min(free) + self.wanted_of_reserve(covered, free);
        wanted.min(self.config.max_connecting.saturating_sub(connecting))
    }

    /// Orders one connection, for the first waiter that no other connection is meant for.
    pub(super) fn connect(&mut self, now: Time) {
        assert!(self.slots.total() < self.size_with_reserve(), "a connection was permitted beyond max_size");
        let (connecting, needing_fresh) = (self.slots.count(State::Connecting), self.needing_fresh.len());
        let waiter = match connecting.checked_sub(needing_fresh) {
            None => self.needing_fresh.nth(connecting.min(MAX_HOME_SEARCH)),
            Some(left) => self.waiters.nth((left + self.slots.count(State::Checking)).min(MAX_HOME_SEARCH)),
        };
        let home = waiter.map(|waiter| waiter.home);
        let server = self.slots.create(home.unwrap_or_default(), self.generation, now);
        self.actions.push_back(Action::Connect { server, home });
    }

    /// Grants a server that is not in use to the next waiter, or makes it idle.
    #[inline]
    pub(super) fn offer(&mut self, server: ServerId, home: Home, source: GrantSource, now: Time) -> Option<Grant> {
        if source == GrantSource::Created && self.mode == Mode::Ready && self.needing_fresh.len() > 0 {
            self.expire_waiters(now);
            if let Some(waiter) = self.needing_fresh.pop_front() {
                return Some(self.grant(server, waiter, source, now));
            }
        }
        if self.mode == Mode::Ready && self.waiters.len() > 0 {
            self.expire_waiters(now);
            if let Some(waiter) = self.waiters.pop_for(home, self.config.max_overtakes) {
                if source == GrantSource::Queued {
                    self.note_congestion(now);
                }
                return Some(self.grant(server, waiter, source, now));
            }
        }
        self.slots.set_state(server, State::Idle, now);
        if self.reset_requested {
            self.settle(now);
        }
        self.report_spare(now);
        None
    }

    fn grant(&mut self, server: ServerId, waiter: Waiter, source: GrantSource, now: Time) -> Grant {
        self.slots.set_state(server, State::InUse, now);
        if waiter.lasting {
            self.slots.set_lasting(server);
        }
        self.sharing.last_grant = now;
        let slot = self.slots.get_mut(server);
        slot.used = true;
        let waited = now - waiter.since;
        Grant { waiter: waiter.id, server, home: slot.home, waiter_home: waiter.home, source, waited }
    }

    /// Gives idle servers to waiters. Both are there after a pause, or if the servers need a check first.
    #[cold]
    fn serve_from_idle(&mut self, now: Time) {
        self.expire_waiters(now);
        while let Some(front) = self.waiters.front() {
            if let Some(server) = self.take_idle(front.home, now) {
                let home = self.slots.get(server).home;
                let waiter = self.waiters.pop_for(home, self.config.max_overtakes).expect("a waiter, just seen");
                let grant = self.grant(server, waiter, GrantSource::Queued, now);
                self.actions.push_back(Action::Grant(grant));
                continue;
            }
            let connecting = self.slots.count(State::Connecting).saturating_sub(self.needing_fresh.len());
            let covered = self.slots.count(State::Checking) + connecting;
            let Some(server) = self.preferred_idle().filter(|_| covered < self.waiters.len()) else { break };
            self.slots.set_state(server, State::Checking, now);
            self.actions.push_back(Action::Check { server, home: self.slots.get(server).home });
        }
    }

    /// The idle server for a client at `home`, if there is one that needs no check. Servers past their idle time or
    /// life are closed.
    #[inline]
    pub(super) fn take_idle(&mut self, home: Home, now: Time) -> Option<ServerId> {
        loop {
            let last = self.preferred_idle()?;
            let own = self.slots.last_used_at(home).filter(|_| !self.config.round_robin);
            let mut server = own.unwrap_or(last);
            if self.slots.get(server).since.after(self.limits.check_after) < now {
                server = last;
            }
            let (since, expires) = (self.slots.get(server).since, self.slots.get(server).expires);
            if expires <= now {
                self.order_close(server, Closed::Life, now);
            } else if since.after(self.limits.idle) > now || !self.close_past_idle_time(now) {
                return (since.after(self.limits.check_after) >= now).then_some(server);
            }
            self.permits_wanted = self.wanted();
        }
    }

    /// The idle server that goes to a client of any home.
    #[inline]
    fn preferred_idle(&self) -> Option<ServerId> {
        if self.config.round_robin { self.slots.oldest_idle() } else { self.slots.last_used() }
    }

    /// Whether the pool has been cleared since this server was asked for, so that no other client gets it.
    pub fn is_stale(&self, server: ServerId) -> bool {
        self.slots.find(server).is_some_and(|slot| slot.pool_generation != self.generation)
    }

    /// Whether the pool has been [renewed](Pool::renew) since this server was asked for.
    pub fn is_outdated(&self, server: ServerId) -> bool {
        self.slots.get(server).pool_generation.wrapping_sub(self.renewed_generation) > u32::MAX / 2
    }

    /// Why this server must not be used again; `None` if it may.
    #[inline]
    pub(super) fn unfit(&self, server: ServerId, now: Time) -> Option<Closed> {
        let slot = self.slots.get(server);
        let fit = !slot.interrupted
            && slot.pool_generation == self.generation
            && slot.expires > now
            && self.mode != Mode::Closed
            && self.slots.live() <= self.size_with_reserve();
        if fit { None } else { Some(self.why_unfit(server)) }
    }

    #[cold]
    fn why_unfit(&self, server: ServerId) -> Closed {
        let slot = self.slots.get(server);
        if self.mode == Mode::Closed {
            Closed::PoolClosed
        } else if slot.interrupted {
            Closed::Interrupted
        } else if slot.pool_generation != self.generation {
            Closed::Stale
        } else if self.slots.live() > self.size_with_reserve() {
            Closed::Shrunk
        } else {
            Closed::Life
        }
    }

    #[cold]
    pub(super) fn order_close(&mut self, server: ServerId, reason: Closed, now: Time) {
        self.slots.set_state(server, State::Closing, now);
        let slot = self.slots.get_mut(server);
        slot.interrupted = false;
        let home = slot.home;
        self.actions.push_back(Action::Close { server, home, reason });
    }

    /// The connection of this server is closing, by order of the pool or by itself.
    pub(super) fn note_closing(&mut self, server: ServerId, now: Time) {
        if self.slots.get(server).state != State::Closing {
            self.slots.set_state(server, State::Closing, now);
            self.slots.get_mut(server).interrupted = false;
        }
        self.settle(now);
    }

    pub(super) fn remove_server(&mut self, server: ServerId, now: Time) {
        self.slots.remove(server, now);
        self.ceiling = self.ceiling.min(self.size_with_reserve().max(self.slots.total()));
        self.settle(now);
    }

    /// Closes all servers that are neither in use nor closing.
    pub(super) fn close_not_in_use(&mut self, reason: Closed, now: Time) {
        for slot in 0..self.slots.slot_count() {
            let Some(server) = self.slots.at(slot) else { continue };
            if matches!(self.slots.get(server).state, State::Connecting | State::Idle | State::Checking) {
                self.order_close(server, reason, now);
            }
        }
    }

    /// Interrupts all servers in use.
    pub(super) fn interrupt_all(&mut self) {
        for slot in 0..self.slots.slot_count() {
            let Some(server) = self.slots.at(slot) else { continue };
            let slot = self.slots.get_mut(server);
            if slot.state == State::InUse && !slot.interrupted {
                slot.interrupted = true;
                self.actions.push_back(Action::Interrupt { server, home: slot.home });
            }
        }
    }

    pub(super) fn fail_waiters(&mut self, reason: CheckOutFailed, now: Time) {
        let next = |pool: &mut Self| {
            let first = pool.needing_fresh.pop_front().or_else(|| pool.waiters.pop_front());
            first.or_else(|| pool.deferred.pop_front())
        };
        while let Some(waiter) = next(self) {
            self.fail(waiter, reason, now);
        }
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiters.len() + self.deferred.len() + self.needing_fresh.len()
    }

    fn fail(&mut self, waiter: Waiter, reason: CheckOutFailed, now: Time) {
        let waited = now - waiter.since;
        self.actions.push_back(Action::Fail { waiter: waiter.id, home: waiter.home, reason, waited });
    }

    /// Fails waiters that have waited too long. In each queue, the first to come is also the first to expire.
    #[inline]
    pub(super) fn expire_waiters(&mut self, now: Time) {
        let queues: [fn(&mut Self) -> &mut Waiters; 3] =
            [|pool| &mut pool.waiters, |pool| &mut pool.deferred, |pool| &mut pool.needing_fresh];
        for queue in queues {
            while let Some(front) = queue(self).front()
                && self.wait_ends(front.since) <= now
            {
                let waiter = queue(self).pop_front().expect("a waiter, just seen");
                self.expire(waiter, now);
            }
        }
    }

    #[cold]
    fn expire(&mut self, waiter: Waiter, now: Time) {
        let reason = match self.mode {
            Mode::Paused(_) => CheckOutFailed::Paused,
            _ if self.unavailable => CheckOutFailed::Unavailable,
            _ => CheckOutFailed::Timeout,
        };
        self.fail(waiter, reason, now);
    }

    /// When the wait of a waiter ends that was queued at this time: the later it was queued, the later.
    ///
    /// While the upstream is unavailable, or the pool paused, a waiter may wait for `unavailable_wait_time`. Otherwise
    /// it may wait for `max_wait_time`, counted from the end of the last such period if it came before, so that a
    /// recovery does not fail all waiters at once; but never longer than the longer of the two in all.
    #[inline]
    fn wait_ends(&self, since: Time) -> Time {
        if self.unavailable {
            return since.after(self.limits.unavailable);
        }
        if since >= self.available_since {
            return since.after(self.limits.wait);
        }
        let longest = since.after(self.limits.wait.max(self.limits.unavailable));
        longest.min(self.available_since.after(self.limits.wait))
    }

    /// When something is due for a waiter with [`crate::Need::Fresh`]: that an idle server is closed for it, or the end
    /// of its wait.
    fn fresh_waiter_due(&self, since: Time) -> Time {
        let needs_slot = Some(since.after(PERMIT_NANOS)).filter(|at| *at > self.now);
        self.wait_ends(since).min(needs_slot.unwrap_or(Time::NEVER))
    }

    /// A connect has failed, or took too long.
    pub(super) fn note_connect_failure(&mut self, now: Time) {
        // Waiters that need a server make for more tries. A reset does not.
        self.reset_requested = false;
        self.backoff.note_failure(now);
        self.back_off(now);
    }

    /// The upstream does not know the database. It may be created later. For a pool from the configuration this counts
    /// as an outage; for one that a client named it does not.
    pub(super) fn note_unknown_database(&mut self, now: Time) {
        self.reset_requested = false;
        self.has_connected = false;
        self.backoff.note_unknown_database(!self.config.min_size_once_connected, now);
        self.back_off(now);
    }

    /// Whether the upstream has just said that it does not know the database, and no server works in spite of that.
    #[inline]
    pub(super) fn is_database_unknown(&self, now: Time) -> bool {
        self.backoff.is_database_unknown(now) && self.slots.established() == 0
    }

    /// No connect is tried for a while.
    pub(super) fn back_off(&mut self, now: Time) {
        self.backoff.pause(self.limits.backoff_min, self.limits.backoff_max, &mut self.random, now);
    }

    /// The life time of a new server in nanoseconds.
    pub(super) fn life(&mut self) -> u64 {
        match self.limits.life {
            u64::MAX => u64::MAX,
            life => life - self.random.up_to(self.limits.life_jitter),
        }
    }

    /// Sets when the lives of all servers end, by the present options.
    pub(super) fn renew_lives(&mut self) {
        self.next_expiry = Time::NEVER;
        for slot in 0..self.slots.slot_count() {
            let life = self.life();
            let Some(server) = self.slots.at(slot) else { continue };
            let slot = self.slots.get_mut(server);
            slot.expires = slot.ready_at.after(life);
            self.next_expiry = self.next_expiry.min(slot.expires);
        }
    }

    pub(super) fn run_timers(&mut self, now: Time) {
        self.expire_waiters(now);
        while let Some(server) = self.slots.oldest_connecting()
            && self.slots.get(server).since.after(self.limits.connect) <= now
        {
            self.order_close(server, Closed::Error, now);
            self.note_connect_failure(now);
        }
        while let Some(server) = self.slots.oldest_checking()
            && self.slots.get(server).since.after(self.limits.connect) <= now
        {
            self.order_close(server, Closed::Error, now);
        }
        self.close_past_idle_time(now);
        if self.next_expiry <= now {
            self.close_old(now);
        }
        self.settle(now);
        // If the upstream has just become unavailable, other time-outs apply.
        self.expire_waiters(now);
        self.settle(now);
        self.report_spare(now);
        self.note_starvation(now);
    }

    /// Closes servers that have been idle for too long, down to `min_size`. Returns whether there were any.
    fn close_past_idle_time(&mut self, now: Time) -> bool {
        let before = self.slots.count(State::Idle);
        while let Some(at) = self.next_past_idle_time()
            && at <= now
        {
            let server = self.slots.oldest_idle().expect("an idle server, just seen");
            self.order_close(server, Closed::Idle, now);
        }
        self.slots.count(State::Idle) < before
    }

    /// When the next server will have been idle for too long.
    #[inline]
    fn next_past_idle_time(&self) -> Option<Time> {
        if self.slots.established() <= self.config.min_size {
            return None;
        }
        Some(self.slots.get(self.slots.oldest_idle()?).since.after(self.idle_limit()))
    }

    /// Closes idle servers that are too old. Others close when their use or their check ends. O(n), but once per server
    /// only: when its life ends.
    fn close_old(&mut self, now: Time) {
        self.next_expiry = Time::NEVER;
        for slot in 0..self.slots.slot_count() {
            let Some(server) = self.slots.at(slot) else { continue };
            let slot = self.slots.get(server);
            if slot.expires > now {
                self.next_expiry = self.next_expiry.min(slot.expires);
            } else if slot.state == State::Idle {
                self.order_close(server, Closed::Life, now);
            }
        }
    }

    /// The earliest time at which something is due.
    pub(super) fn deadline(&self) -> Option<Time> {
        let since = |server: Option<ServerId>| server.map(|server| self.slots.get(server).since);
        let started = |at: Option<Time>| at.map_or(Time::NEVER, |at| at.after(self.limits.connect));
        let at = self
            .next_expiry
            .min(self.waiters.front().map_or(Time::NEVER, |waiter| self.wait_ends(waiter.since)))
            .min(self.deferred.front().map_or(Time::NEVER, |waiter| self.wait_ends(waiter.since)))
            .min(self.needing_fresh.front().map_or(Time::NEVER, |waiter| self.fresh_waiter_due(waiter.since)))
            .min(self.next_past_idle_time().unwrap_or(Time::NEVER))
            .min(started(since(self.slots.oldest_connecting())))
            .min(started(since(self.slots.oldest_checking())))
            .min(self.backoff.retry_at())
            .min(self.reserve_due())
            .min(self.spare_at())
            .min(self.starvation_due())
            .min(self.next_return_request());
        (at < Time::NEVER).then_some(at)
    }
}
