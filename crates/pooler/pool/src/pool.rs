//! The pool of servers of one database and user: which waiter gets which server, and which connections are made and
//! closed. It holds ids, never sockets. It has no clock, does no I/O and knows no protocol.
//!
//! Its public methods are here (requests of the caller), in `connections` (reports about connections) and in `status`.
//! `supply` matches servers with waiters, and knows what is due when; `reserve` has the servers above `max_size`;
//! `backoff` pauses after failed connects; `sharing` has what other pools get, and what is asked of them; `lasting`
//! limits clients that hold a server for long; `invariants` checks the whole state.

mod backoff;
mod connections;
mod hold_times;
mod invariants;
mod lasting;
mod requested_reset;
mod reserve;
mod sharing;
mod status;
mod supply;

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::{
    action::{Action, CheckIn, CheckOut, Clear, Grant, Need, PauseMode},
    config::{Limits, PoolConfig},
    random::Random,
    reasons::{CheckOutFailed, Closed, GrantSource},
    slots::{Home, ServerId, Slots, State},
    time::Time,
    waiters::{Ticket, WaiterId, Waiters},
};

use self::{backoff::Backoff, sharing::Sharing};

/// The servers of one database and user, and the waiters for them: a state machine.
///
/// # Order of calls
///
/// 1. A new pool is paused: it queues waiters, and connects nothing. [`Pool::ready`] begins its work.
/// 2. A client calls [`Pool::check_out`]. It gets a [`Grant`] at once, or waits. The grant then comes from another call
///    (`check_in`, `handle_connected`, `handle_checked` return it), or as [`Action::Grant`].
/// 3. Each grant ends with [`Pool::check_in`]. A waiter that gives up calls [`Pool::cancel`].
/// 4. After *each* call that takes `&mut self` and `now`, poll [`Pool::poll_action`] until it has no more, then
///    [`Pool::poll_deadline`]. At that time or later, call [`Pool::handle_timeout`].
///
/// | the pool says | the caller answers with |
/// |-|-|
/// | [`Action::Connect`] | `handle_connected` or `handle_connected_in_use` |
/// | | `handle_connect_failed` or `handle_connect_abandoned` |
/// | [`Action::Check`], [`Action::Reset`] | `handle_checked` |
/// | [`Action::Close`] | `handle_closed` |
/// | [`Action::Interrupt`] | `check_in`, `handle_lost` or `handle_closed` |
/// | [`Action::RequestReturn`] | `check_in`, or `handle_lost` if the client was closed |
/// | [`Action::AskPermit`] | `handle_permit`, after it was polled: at once or later |
///
/// `handle_lost` may come instead of any answer. After it the id is void, and so are actions that name it. The two
/// `_abandoned` calls are for a connection that failed and has yet to be closed: `handle_closed` follows. An answer to
/// a connect or a check may cross an `Action::Close`: the pool ignores it (but takes `handle_connect_failed` and
/// `handle_lost` as `handle_closed`). Any other id of a server that is gone is the caller's mistake, and panics. A
/// `now` below that of an earlier call is clamped to it.
///
/// # Which waiter gets which server
///
/// - Of the idle servers, a client gets the one that was used last at its own home; if there is none, the one that was
///   used last of all. With `round_robin` it gets the one that has been idle longest, wherever that is. No server is
///   granted after its idle time or its life.
/// - A server that is checked in goes to the first waiter. It goes to the first waiter of its own home instead if that
///   one came at most `max_overtakes` places later. So no waiter is overtaken more often than that.
/// - [`Need::Fresh`]: the waiter needs a server that no client has used. Such waiters have a queue of their own. The
///   next connection that is made goes to the first of them. If the pool has `max_size` servers, an idle server, or one
///   that is checked in, is closed.
/// - [`Need::Lasting`]: the client will hold its server without a time limit. Together such clients get at most
///   `max_size - 1` servers, or one if that is all. Beyond that they wait in a queue of their own, and no other waiter
///   waits behind them. If the pool becomes smaller ([`Pool::reconfigure`], [`Pool::set_shared_limit`]), so that they
///   have all its servers while others wait, [`Action::RequestReturn`] asks for those in excess. A client that is asked
///   gives its server back or is closed. If neither happens, it is asked again.
///
/// # Connections
///
/// - Connections are made for waiters that no connecting or checking server is meant for, and up to `min_size`; never
///   beyond `max_size` in all (servers that are closing included), nor beyond `max_connecting` at a time.
/// - For a waiter that has waited for `reserve_wait_time`, a connection is made beyond `max_size`, up to `reserve_size`
///   more. While there are more servers than `max_size`, one that was idle for that time is closed. Waiters with
///   [`Need::Fresh`], and deferred ones, have no claim to the reserve.
/// - Each server, from its connect until it is gone, has one permit of the [`crate::Budget`], which the caller releases
///   then. Without a budget, answer each [`Action::AskPermit`] with `handle_permit`.
/// - If the upstream does not know the database ([`ConnectFault::UnknownDatabase`]), all waiters fail, and so does each
///   check-out until the next try.
///
/// # What other pools get
///
/// If the budget asks, an idle server is given up, down to `min_size`. The last one that is not lasting is given up
/// only after a `turn` in service, or after a small part of a turn without use. A server that is checked in may have to
/// be given up although clients of this pool wait: see [`Pool::can_spare`]. If clients of another pool have waited for
/// long, the budget asks for servers that were idle for [`crate::LONG_IDLE_TURNS`]: all such servers are given up, down
/// to `min_size`.
///
/// Check-out and check-in are O(1), and allocate nothing once the queues have their working size. At most one action
/// per waiter and a few per server are queued.
#[derive(Debug)]
pub struct Pool {
    limits: Limits,
    mode: Mode,
    /// The latest `now` ever given.
    now: Time,
    slots: Slots,
    waiters: Waiters,
    /// Waiters with [`Need::Lasting`], while such clients have as many servers as they may.
    deferred: Waiters,
    /// Waiters with [`Need::Fresh`].
    needing_fresh: Waiters,
    /// See [`Pool::request_reset`].
    reset_requested: bool,
    /// Incremented by each clear. Servers of earlier generations are stale.
    generation: u32,
    /// The generation of the last [`Pool::renew`].
    renewed_generation: u32,
    sharing: Sharing,
    permits_wanted: u32,
    /// [`Action::AskPermit`]s that were polled, without those that were permitted or withdrawn.
    permits_requested: u32,
    /// When waiters and servers were last matched: waiters that were overdue then count as overdue.
    settled_at: Time,
    /// The number of servers is never above this: `max_size` and the reserve, or more while a pool that was shrunk is
    /// still larger.
    ceiling: u32,
    /// See [`Pool::set_shared_limit`].
    shared_limit: u32,
    backoff: Backoff,
    /// A connection was made, and the upstream has known the database since.
    has_connected: bool,
    /// The upstream is unavailable, or the pool is paused and waiters are held.
    unavailable: bool,
    /// When the last unavailable period ended.
    available_since: Time,
    /// No server's life ends before this.
    next_expiry: Time,
    actions: VecDeque<Action>,
    random: Random,
    config: PoolConfig,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Ready,
    Paused(PauseMode),
    Closed,
}

impl Pool {
    /// A paused pool. The seed is for jitter; the configuration must be valid.
    pub fn new(config: PoolConfig, seed: u64, now: Time) -> Self {
        if let Err(error) = config.validate() {
            panic!("an invalid configuration reached a pool: {error}");
        }
        let limits = Limits::new(&config);
        Self {
            limits,
            mode: Mode::Paused(PauseMode::HoldWaiters),
            now,
            slots: Slots::new(),
            waiters: Waiters::new(),
            deferred: Waiters::new(),
            needing_fresh: Waiters::new(),
            reset_requested: false,
            generation: 0,
            renewed_generation: 0,
            sharing: Sharing::new(now),
            permits_wanted: 0,
            permits_requested: 0,
            settled_at: now,
            ceiling: limits.max_size.saturating_add(limits.reserve),
            shared_limit: u32::MAX,
            backoff: Backoff::default(),
            has_connected: false,
            unavailable: true,
            available_since: now,
            next_expiry: Time::NEVER,
            actions: VecDeque::new(),
            random: Random::new(seed),
            config,
        }
    }

    /// The pool grants and connects from now on. A closed pool stays closed.
    pub fn ready(&mut self, now: Time) {
        let now = self.tick(now);
        if let Mode::Paused(_) = self.mode {
            self.mode = Mode::Ready;
            self.settle(now);
        }
    }

    /// The pool neither grants nor connects from now on. Servers in use stay so until they are checked in.
    pub fn pause(&mut self, mode: PauseMode, now: Time) {
        let now = self.tick(now);
        if self.mode == Mode::Closed {
            return;
        }
        self.mode = Mode::Paused(mode);
        if mode == PauseMode::FailWaiters {
            self.fail_waiters(CheckOutFailed::Paused, now);
        }
        self.settle(now);
    }

    /// Fails all waiters and closes all servers; those in use when they are checked in. There is no way back.
    pub fn close(&mut self, now: Time) {
        let now = self.tick(now);
        if self.mode == Mode::Closed {
            return;
        }
        self.mode = Mode::Closed;
        self.fail_waiters(CheckOutFailed::PoolClosed, now);
        self.close_not_in_use(Closed::PoolClosed, now);
        self.settle(now);
    }

    /// Makes all present servers stale. Those not in use close now. Those in use close when they are checked in, or are
    /// interrupted now. The pool stays ready. CMAP's clear is this one with `fail_waiters`, and then [`Pool::pause`].
    pub fn clear(&mut self, how: Clear, now: Time) {
        let now = self.tick(now);
        self.generation = self.generation.wrapping_add(1);
        if how.fail_waiters {
            self.fail_waiters(CheckOutFailed::PoolCleared, now);
        }
        self.close_not_in_use(Closed::Stale, now);
        if how.interrupt {
            self.interrupt_all();
        }
        self.settle(now);
    }

    /// Clears the pool because new servers will be different, or because an operator wants new ones. Servers that no
    /// client checks in, such as those held by their own session, are [outdated](Pool::is_outdated) from now on.
    pub fn renew(&mut self, now: Time) {
        self.clear(Clear::default(), now);
        self.renewed_generation = self.generation;
    }

    /// Closes servers that are not in use, because no client has needed the pool for long. With
    /// `min_size_once_connected` no server is made before a client waits again.
    pub fn close_until_needed(&mut self, now: Time) {
        let now = self.tick(now);
        self.has_connected = false;
        self.close_not_in_use(Closed::Idle, now);
        self.settle(now);
    }

    /// Whether the pool has no server, no waiter, no request for a permit and no action that was not polled.
    pub fn is_empty(&self) -> bool {
        let servers = self.slots.total() + self.permits_wanted + self.permits_requested;
        servers == 0 && self.waiting() == 0 && self.actions.is_empty()
    }

    /// Changes the options. A pool above its new `max_size` closes servers that are not in use now, and servers in use
    /// when they are checked in.
    pub fn reconfigure(&mut self, config: PoolConfig, now: Time) {
        let now = self.tick(now);
        if let Err(error) = config.validate() {
            panic!("an invalid configuration reached a pool: {error}");
        }
        self.limits = Limits::new(&config);
        self.config = config;
        self.ceiling = self.slots.total().max(self.size_with_reserve());
        self.renew_lives();
        while self.slots.live() > self.limits.max_size {
            let of_reserve = self.slots.live() <= self.size_with_reserve();
            let connecting = self.slots.oldest_connecting().filter(|_| !of_reserve);
            let Some(server) = self.slots.oldest_idle().or(connecting) else { break };
            self.order_close(server, Closed::Shrunk, now);
        }
        self.settle(now);
    }

    /// A client at `home` needs a server. It gets an idle one, or waits.
    pub fn check_out(&mut self, waiter: WaiterId, home: Home, now: Time) -> CheckOut {
        self.check_out_for(waiter, home, Need::Any, now)
    }

    /// A client at `home` needs a server with these properties.
    pub fn check_out_for(&mut self, waiter: WaiterId, home: Home, need: Need, now: Time) -> CheckOut {
        let now = self.tick(now);
        if core::mem::take(&mut self.sharing.yields_minimum) {
            self.settle(now);
        }
        let lasting = need == Need::Lasting;
        let deferred = lasting && !self.admits_lasting();
        match self.mode {
            Mode::Ready if self.waiters.len() == 0 && !deferred && need != Need::Fresh => {
                if let Some(server) = self.take_idle(home, now) {
                    let grant = self.grant_idle(server, waiter, home, now);
                    if lasting {
                        self.slots.set_lasting(server);
                    }
                    return CheckOut::Granted(grant);
                }
            }
            Mode::Ready | Mode::Paused(PauseMode::HoldWaiters) => {}
            Mode::Paused(PauseMode::FailWaiters) => return CheckOut::Failed(CheckOutFailed::Paused),
            Mode::Closed => return CheckOut::Failed(CheckOutFailed::PoolClosed),
        }
        if self.is_database_unknown(now) {
            return CheckOut::Failed(CheckOutFailed::UnknownDatabase);
        }
        if self.waiting() >= self.limits.max_waiters {
            self.expire_waiters(now);
            self.settle(now);
            if self.waiting() >= self.limits.max_waiters {
                return CheckOut::Failed(CheckOutFailed::QueueFull);
            }
        }
        if !deferred {
            self.note_wait_begins(now);
        }
        let queue = match need {
            Need::Fresh => &mut self.needing_fresh,
            _ if deferred => &mut self.deferred,
            _ => &mut self.waiters,
        };
        let ticket = queue.push(waiter, home, lasting, now);
        self.settle(now);
        CheckOut::Queued(ticket)
    }

    /// A waiter gives up. Returns how long it has waited; `None` if it does not wait any more. Then its grant or
    /// failure is on its way, and a grant has to be checked in.
    pub fn cancel(&mut self, ticket: Ticket, waiter: WaiterId, now: Time) -> Option<Duration> {
        let now = self.tick(now);
        // A deferred waiter may have moved to the queue, where it has another ticket, which the caller does
        // not know.
        let left = self.waiters.remove(ticket, waiter).or_else(|| self.deferred.remove(ticket, waiter));
        let left = left.or_else(|| self.needing_fresh.remove(ticket, waiter));
        let left = left.or_else(|| self.waiters.remove_lasting(waiter))?;
        self.settle(now);
        Some(now - left.since)
    }

    /// A client gives its server back, at `home`. The returned grant is that of the waiter which gets it at once.
    #[must_use = "a grant that is dropped is a server lost"]
    pub fn check_in(&mut self, server: ServerId, home: Home, how: CheckIn, now: Time) -> Option<Grant> {
        let now = self.tick(now);
        let slot = self.slots.get_mut(server);
        assert!(slot.state == State::InUse, "{server:?} was checked in while {:?}", slot.state);
        slot.home = home;
        self.slots.end_lasting(server);
        self.admit_deferred(now);
        let closed = match how {
            CheckIn::Reclaim => Some(Closed::Reclaimed),
            CheckIn::Clean | CheckIn::Reset if !self.needs_slot_for_fresh(now) => None,
            CheckIn::Clean | CheckIn::Reset | CheckIn::Discard => Some(Closed::Discarded),
        };
        if let Some(reason) = self.unfit(server, now).or(closed) {
            self.order_close(server, reason, now);
            self.settle(now);
            return None;
        }
        if how == CheckIn::Reset {
            self.slots.set_state(server, State::Checking, now);
            self.actions.push_back(Action::Reset { server, home });
            self.settle(now);
            return None;
        }
        let grant = self.offer(server, home, GrantSource::Queued, now);
        if self.permits_wanted != 0 {
            self.settle(now);
        }
        grant
    }

    /// Resets this server, if it is idle.
    pub fn reset_idle(&mut self, server: ServerId, now: Time) {
        let now = self.tick(now);
        let Some(home) = self.slots.find(server).filter(|slot| slot.state == State::Idle).map(|slot| slot.home) else {
            return;
        };
        self.slots.set_state(server, State::Checking, now);
        self.actions.push_back(Action::Reset { server, home });
    }

    /// Expires waiters, closes servers that were idle for too long or are too old, gives up connects and checks that
    /// take too long, and connects again after a pause. To be called at the time of [`Pool::poll_deadline`]; a call at
    /// another time does no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        let now = self.tick(now);
        self.run_timers(now);
    }

    /// The next order to the caller.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.permits_requested < self.permits_wanted {
            self.permits_requested += 1;
            return Some(Action::AskPermit);
        }
        if self.permits_requested > self.permits_wanted {
            self.permits_requested -= 1;
            return Some(Action::WithdrawPermit);
        }
        // A report is about permits that the budget was asked for before.
        self.poll_report()
    }

    /// When [`Pool::handle_timeout`] is to be called, unless another call comes before. Each call may change it.
    pub fn poll_deadline(&self) -> Option<Time> {
        self.deadline()
    }

    /// Makes time monotonic: callers on several threads may pass an earlier `now` late.
    #[inline]
    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    #[inline]
    fn grant_idle(&mut self, server: ServerId, waiter: WaiterId, waiter_home: Home, now: Time) -> Grant {
        self.slots.set_state(server, State::InUse, now);
        self.sharing.last_grant = now;
        let slot = self.slots.get_mut(server);
        slot.used = true;
        let home = slot.home;
        Grant { waiter, server, home, waiter_home, source: GrantSource::Idle, waited: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests;
