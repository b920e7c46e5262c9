//! How a pool keeps servers and waiters matched: hand-over, how many connections are wanted, back-off after failures,
//! dead-lines, and what closes when. What is asked of the pool from outside is in the parent.

use crate::{
    action::{Action, Grant, Hold},
    event::{CheckOutFailed, Closed, Event, Path},
    slots::{Home, ServerId, State},
    time::Time,
    waiters::Waiter,
};

use super::{Mode, Pool};

/// How far the search for the home of a new connection's waiter goes.
const MAX_HOME_SEARCH: u32 = 16;
/// A permit that can be had is there sooner: in nanoseconds.
const PERMIT_TIME: u64 = 20_000_000;
/// Beyond this many doublings a pause is the longest anyway.
const MAX_DOUBLINGS: u32 = 32;

impl Pool {
    /// To be called whenever demand or supply may have changed: brings waiters and idle servers together and finds out
    /// how many connections are wanted.
    pub(super) fn settle(&mut self, now: Time) {
        if self.failures.retry_at.is_some_and(|at| at <= now) {
            self.failures.retry_at = None;
        }
        self.watch_times(now);
        self.let_in(now);
        if self.mode == Mode::Ready && self.waiters.len() > 0 && self.slots.count(State::Idle) > 0 {
            self.serve_from_idle(now);
            self.watch_times(now);
        }
        if self.demanding.len() > 0 {
            self.make_room(now);
            self.watch_times(now);
        }
        if self.errand {
            self.run_errand(now);
            self.watch_times(now);
        }
        self.ask_back(now);
        self.asked = self.wanted();
    }

    /// Closes idle servers for those who get none of them.
    #[cold]
    fn make_room(&mut self, now: Time) {
        while self.needs_room(now)
            && let Some(server) = self.slots.oldest_idle()
        {
            self.order_close(server, Closed::Discarded, now);
        }
    }

    /// Whether a waiter needs a new connection, and there is no room for it. Where there seems to be room, and no
    /// permit has come for long, this pool's own servers are in the way.
    #[inline]
    pub(super) fn needs_room(&self, now: Time) -> bool {
        self.demanding.front().is_some_and(|front| {
            self.mode == Mode::Ready && self.failures.retry_at.is_none() && {
                let coming = self.slots.count(State::Connecting) + self.slots.count(State::Closing);
                let patient = front.since.after(PERMIT_TIME) > now;
                let room = if patient { self.limits.max_size.saturating_sub(self.slots.total()) } else { 0 };
                self.demanding.len() > coming + room
            }
        })
    }

    /// Notices when waiting becomes waiting for an upstream that is down (or a pool on hold), and when that ends.
    pub(super) fn watch_times(&mut self, now: Time) {
        let hard = self.mode == Mode::Paused(Hold::Waiters) || self.is_unavailable().is_some();
        if self.hard_times && !hard {
            self.good_since = now;
        }
        self.hard_times = hard;
    }

    /// How many connections are wanted beyond those connecting. Servers in a check or reset will be free presently, so
    /// they count as an answer to a waiter.
    pub(super) fn wanted(&self) -> u32 {
        if self.mode != Mode::Ready || self.failures.retry_at.is_some() {
            return 0;
        }
        let kept = if self.config.on_proof && !self.proved { 0 } else { self.config.min_size };
        let missing = kept.saturating_sub(self.slots.live()).max(u32::from(self.misses_errand()));
        let demanding = self.demanding.len();
        if self.waiters.len() == 0 && demanding == 0 && missing == 0 {
            return 0;
        }
        let connecting = self.slots.count(State::Connecting);
        // What is being connected is for the demanding first.
        let for_others = connecting.saturating_sub(demanding) + self.slots.count(State::Checking);
        let uncovered = demanding.saturating_sub(connecting) + self.waiters.len().saturating_sub(for_others);
        let room = self.limits.max_size.saturating_sub(self.slots.total());
        uncovered.max(missing).min(room).min(self.config.max_connecting.saturating_sub(connecting))
    }

    /// Orders one connection, for the first waiter that has none under way.
    pub(super) fn connect(&mut self, now: Time) {
        assert!(self.slots.total() < self.limits.max_size, "a connection was permitted beyond max_size");
        let (connecting, demanding) = (self.slots.count(State::Connecting), self.demanding.len());
        let waiter = match connecting.checked_sub(demanding) {
            None => self.demanding.nth(connecting.min(MAX_HOME_SEARCH)),
            Some(left) => self.waiters.nth((left + self.slots.count(State::Checking)).min(MAX_HOME_SEARCH)),
        };
        let home = waiter.map(|waiter| waiter.home);
        let server = self.slots.create(home.unwrap_or_default(), self.generation, now);
        self.events.push(Event::ConnectionCreated);
        self.actions.push_back(Action::Connect { server, home });
    }

    /// A server in hand goes to the next waiter, or becomes idle.
    #[inline]
    pub(super) fn offer(&mut self, server: ServerId, home: Home, path: Path, now: Time) -> Option<Grant> {
        if path == Path::Created && self.mode == Mode::Ready && self.demanding.len() > 0 {
            self.expire_waiters(now);
            if let Some(waiter) = self.demanding.pop_front() {
                return Some(self.grant(server, waiter, path, now));
            }
        }
        if self.mode == Mode::Ready && self.waiters.len() > 0 {
            self.expire_waiters(now);
            if let Some(waiter) = self.waiters.pop_for(home, self.config.max_overtakes) {
                if path == Path::Queued {
                    self.press(now);
                }
                return Some(self.grant(server, waiter, path, now));
            }
        }
        self.slots.set_state(server, State::Idle, now);
        if self.errand {
            self.settle(now);
        }
        self.tell_spare(now);
        None
    }

    fn grant(&mut self, server: ServerId, waiter: Waiter, path: Path, now: Time) -> Grant {
        self.slots.set_state(server, State::InUse, now);
        if waiter.lasting {
            self.slots.set_lasting(server);
        }
        self.sharing.served = now;
        let slot = self.slots.get_mut(server);
        slot.used = true;
        let waited = now - waiter.since;
        self.events.push(Event::CheckedOut { path, duration: waited });
        Grant { waiter: waiter.id, server, home: slot.home, waiter_home: waiter.home, path, waited }
    }

    /// Waiters and idle servers are both there: after a pause, or because these servers need a check first.
    #[cold]
    fn serve_from_idle(&mut self, now: Time) {
        self.expire_waiters(now);
        while let Some(front) = self.waiters.front() {
            if let Some(server) = self.take_idle(front.home, now) {
                let home = self.slots.get(server).home;
                let waiter = self.waiters.pop_for(home, self.config.max_overtakes).expect("a waiter, just seen");
                let grant = self.grant(server, waiter, Path::Queued, now);
                self.actions.push_back(Action::Grant(grant));
                continue;
            }
            let connecting = self.slots.count(State::Connecting).saturating_sub(self.demanding.len());
            let covered = self.slots.count(State::Checking) + connecting;
            let Some(server) = self.slots.last_used().filter(|_| covered < self.waiters.len()) else { break };
            self.slots.set_state(server, State::Checking, now);
            self.actions.push_back(Action::Check { server, home: self.slots.get(server).home });
        }
    }

    /// The idle server for somebody at `home`, if one can be had without a check. Those past their time are closed on
    /// the way.
    #[inline]
    pub(super) fn take_idle(&mut self, home: Home, now: Time) -> Option<ServerId> {
        loop {
            let last = self.slots.last_used()?;
            let mut server = self.slots.last_used_at(home).unwrap_or(last);
            if self.slots.get(server).since.after(self.limits.check_after) < now {
                server = last;
            }
            let (since, expires) = (self.slots.get(server).since, self.slots.get(server).expires);
            if expires <= now {
                self.order_close(server, Closed::Life, now);
            } else if since.after(self.limits.idle) > now || !self.close_long_idle(now) {
                return (since.after(self.limits.check_after) >= now).then_some(server);
            }
            self.asked = self.wanted();
        }
    }

    /// Whether the pool has been [renewed](Pool::renew) since this server was asked for.
    pub fn is_outdated(&self, server: ServerId) -> bool {
        self.slots.get(server).epoch.wrapping_sub(self.renewed) > u32::MAX / 2
    }

    /// Why this server must not be used again, if so.
    #[inline]
    pub(super) fn unfit(&self, server: ServerId, now: Time) -> Option<Closed> {
        let slot = self.slots.get(server);
        let fit = !slot.cut
            && slot.epoch == self.generation
            && slot.expires > now
            && self.mode != Mode::Closed
            && self.slots.live() <= self.limits.max_size;
        if fit { None } else { Some(self.why_unfit(server)) }
    }

    #[cold]
    fn why_unfit(&self, server: ServerId) -> Closed {
        let slot = self.slots.get(server);
        if self.mode == Mode::Closed {
            Closed::PoolClosed
        } else if slot.cut {
            Closed::Interrupted
        } else if slot.epoch != self.generation {
            Closed::Stale
        } else if self.slots.live() > self.limits.max_size {
            Closed::Shrunk
        } else {
            Closed::Life
        }
    }

    #[cold]
    pub(super) fn order_close(&mut self, server: ServerId, reason: Closed, now: Time) {
        self.slots.set_state(server, State::Closing, now);
        let slot = self.slots.get_mut(server);
        slot.cut = false;
        let home = slot.home;
        self.events.push(Event::ConnectionClosed { reason });
        self.actions.push_back(Action::Close { server, home, reason });
    }

    /// The server ends without an order, for this reason, or with one that is on its way.
    pub(super) fn ends(&mut self, server: ServerId, reason: Closed, now: Time) {
        if self.slots.get(server).state != State::Closing {
            self.events.push(Event::ConnectionClosed { reason });
            self.slots.set_state(server, State::Closing, now);
            self.slots.get_mut(server).cut = false;
        }
        self.settle(now);
    }

    /// The server is gone, on order or by itself (then for this reason).
    pub(super) fn gone(&mut self, server: ServerId, reason: Closed, now: Time) {
        if self.slots.get(server).state != State::Closing {
            self.events.push(Event::ConnectionClosed { reason });
        }
        self.slots.free(server, now);
        self.ceiling = self.ceiling.min(self.limits.max_size.max(self.slots.total()));
        self.settle(now);
    }

    /// Closes all that are neither in use nor closing.
    pub(super) fn close_unused(&mut self, reason: Closed, now: Time) {
        for place in 0..self.slots.places() {
            let Some(server) = self.slots.at(place) else { continue };
            if matches!(self.slots.get(server).state, State::Connecting | State::Idle | State::Checking) {
                self.order_close(server, reason, now);
            }
        }
    }

    /// Orders all in use to be cut.
    pub(super) fn interrupt_all(&mut self) {
        for place in 0..self.slots.places() {
            let Some(server) = self.slots.at(place) else { continue };
            let slot = self.slots.get_mut(server);
            if slot.state == State::InUse && !slot.cut {
                slot.cut = true;
                self.actions.push_back(Action::Interrupt { server, home: slot.home });
            }
        }
    }

    pub(super) fn fail_waiters(&mut self, reason: CheckOutFailed, now: Time) {
        let next = |pool: &mut Self| {
            let first = pool.demanding.pop_front().or_else(|| pool.waiters.pop_front());
            first.or_else(|| pool.held_back.pop_front())
        };
        while let Some(waiter) = next(self) {
            self.fail(waiter, reason, now);
        }
    }

    pub(super) fn waiting(&self) -> u32 {
        self.waiters.len() + self.held_back.len() + self.demanding.len()
    }

    fn fail(&mut self, waiter: Waiter, reason: CheckOutFailed, now: Time) {
        let waited = now - waiter.since;
        self.events.push(Event::CheckOutFailed { reason, duration: waited });
        self.actions.push_back(Action::Fail { waiter: waiter.id, home: waiter.home, reason, waited });
    }

    /// Fails waiters that have waited too long. The first to come is also the first to be due, so only the front is
    /// looked at.
    #[inline]
    pub(super) fn expire_waiters(&mut self, now: Time) {
        while let Some(front) = self.waiters.front()
            && self.due(front.since) <= now
        {
            let waiter = self.waiters.pop_front().expect("a waiter, just seen");
            self.expire(waiter, now);
        }
        while let Some(front) = self.held_back.front()
            && self.due(front.since) <= now
        {
            let waiter = self.held_back.pop_front().expect("a waiter, just seen");
            self.expire(waiter, now);
        }
        while let Some(front) = self.demanding.front()
            && self.due(front.since) <= now
        {
            let waiter = self.demanding.pop_front().expect("a waiter, just seen");
            self.expire(waiter, now);
        }
    }

    #[cold]
    fn expire(&mut self, waiter: Waiter, now: Time) {
        let reason = match self.mode {
            Mode::Paused(_) => CheckOutFailed::Paused,
            _ if self.hard_times => CheckOutFailed::Unavailable,
            _ => CheckOutFailed::Timeout,
        };
        self.fail(waiter, reason, now);
    }

    /// When a waiter that came then has waited too long. It is later for waiters that came later.
    ///
    /// While times are hard (the upstream is down, or the pool on hold) that is `unavailable_wait_time` after they
    /// came. Else it is `max_wait_time` after they came; but those who came in hard times count from the end of these,
    /// so that a recovery does not fail them all at once, and wait no longer in all than the longer of the two.
    #[inline]
    fn due(&self, since: Time) -> Time {
        if self.hard_times {
            return since.after(self.limits.unavailable);
        }
        if since >= self.good_since {
            return since.after(self.limits.wait);
        }
        let longest = since.after(self.limits.wait.max(self.limits.unavailable));
        longest.min(self.good_since.after(self.limits.wait))
    }

    /// The same for somebody who takes only a new connection, for which room may have to be made before.
    fn due_or_impatient(&self, since: Time) -> Time {
        let impatient = Some(since.after(PERMIT_TIME)).filter(|at| *at > self.now);
        self.due(since).min(impatient.unwrap_or(Time::NEVER))
    }

    /// A connect failed, or took too long.
    pub(super) fn failed(&mut self, now: Time) {
        // Whoever needs a server goes on trying, and that is enough.
        self.errand = false;
        self.failures.unknown = false;
        self.failures.since.get_or_insert(now);
        self.back_off(now);
    }

    /// The upstream knows nothing under this name. It may later, and for what is configured it should.
    pub(super) fn unknown(&mut self, now: Time) {
        self.errand = false;
        self.proved = false;
        self.failures.unknown = true;
        if !self.config.on_proof {
            self.failures.since.get_or_insert(now);
        }
        self.back_off(now);
    }

    /// Whether the upstream has just said that it knows nothing under this name, and there is no server that works all
    /// the same.
    #[inline]
    pub(super) fn is_unknown(&self, now: Time) -> bool {
        self.failures.unknown && self.failures.retry_at.is_some_and(|at| at > now) && self.slots.established() == 0
    }

    /// No connect for a while: a random one between the shortest pause and a bound that doubles each time. Failures
    /// that come during a pause (of connects begun before) do not stretch it.
    pub(super) fn back_off(&mut self, now: Time) {
        if self.failures.retry_at.is_some_and(|at| at > now) {
            return;
        }
        self.failures.count = (self.failures.count + 1).min(MAX_DOUBLINGS);
        let shortest = self.limits.backoff_min;
        let bound = shortest.saturating_mul(1 << self.failures.count).min(self.limits.backoff_max);
        let pause = shortest + self.random.up_to(bound - shortest);
        self.failures.retry_at = Some(now.after(pause));
    }

    /// How long a server may live, from its start-up on, in nanoseconds.
    pub(super) fn life(&mut self) -> u64 {
        match self.limits.life {
            u64::MAX => u64::MAX,
            life => life - self.random.up_to(self.limits.life_jitter),
        }
    }

    /// Gives all servers a life after the present options.
    pub(super) fn renew_lives(&mut self) {
        self.next_expiry = Time::NEVER;
        for place in 0..self.slots.places() {
            let life = self.life();
            let Some(server) = self.slots.at(place) else { continue };
            let slot = self.slots.get_mut(server);
            slot.expires = slot.ready_at.after(life);
            self.next_expiry = self.next_expiry.min(slot.expires);
        }
    }

    pub(super) fn upkeep(&mut self, now: Time) {
        self.expire_waiters(now);
        while let Some(server) = self.slots.oldest_connecting()
            && self.slots.get(server).since.after(self.limits.connect) <= now
        {
            self.order_close(server, Closed::Error, now);
            self.failed(now);
        }
        while let Some(server) = self.slots.oldest_checking()
            && self.slots.get(server).since.after(self.limits.connect) <= now
        {
            self.order_close(server, Closed::Error, now);
        }
        self.close_long_idle(now);
        if self.next_expiry <= now {
            self.close_old(now);
        }
        self.settle(now);
        // If times have just become hard, the dead-lines have changed.
        self.expire_waiters(now);
        self.settle(now);
        self.tell_spare(now);
        self.insist(now);
    }

    /// Closes what has been idle for too long, oldest first, down to `min_size`. Whether there was any.
    fn close_long_idle(&mut self, now: Time) -> bool {
        let before = self.slots.count(State::Idle);
        while let Some(at) = self.next_long_idle()
            && at <= now
        {
            let server = self.slots.oldest_idle().expect("an idle server, just seen");
            self.order_close(server, Closed::Idle, now);
        }
        self.slots.count(State::Idle) < before
    }

    /// When the next server will have been idle for too long.
    #[inline]
    fn next_long_idle(&self) -> Option<Time> {
        if self.slots.established() <= self.config.min_size {
            return None;
        }
        Some(self.slots.get(self.slots.oldest_idle()?).since.after(self.limits.idle))
    }

    /// Closes the idle ones that are too old; those in use or in a check close when that ends. O(n), but only once per
    /// server: when the first life ends that has not been looked at.
    fn close_old(&mut self, now: Time) {
        self.next_expiry = Time::NEVER;
        for place in 0..self.slots.places() {
            let Some(server) = self.slots.at(place) else { continue };
            let slot = self.slots.get(server);
            if slot.expires > now {
                self.next_expiry = self.next_expiry.min(slot.expires);
            } else if slot.state == State::Idle {
                self.order_close(server, Closed::Life, now);
            }
        }
    }

    /// When something is to be done next though nothing happens.
    pub(super) fn deadline(&self) -> Option<Time> {
        let since = |server: Option<ServerId>| server.map(|server| self.slots.get(server).since);
        let started = |at: Option<Time>| at.map_or(Time::NEVER, |at| at.after(self.limits.connect));
        let at = self
            .next_expiry
            .min(self.waiters.front().map_or(Time::NEVER, |waiter| self.due(waiter.since)))
            .min(self.held_back.front().map_or(Time::NEVER, |waiter| self.due(waiter.since)))
            .min(self.demanding.front().map_or(Time::NEVER, |waiter| self.due_or_impatient(waiter.since)))
            .min(self.next_long_idle().unwrap_or(Time::NEVER))
            .min(started(since(self.slots.oldest_connecting())))
            .min(started(since(self.slots.oldest_checking())))
            .min(self.failures.retry_at.unwrap_or(Time::NEVER))
            .min(self.spare_at())
            .min(self.starves_at())
            .min(self.asks_back_at());
        (at < Time::NEVER).then_some(at)
    }
}
