//! The pool of servers for one (database, user): who gets which server, who waits, and which connections are made and
//! closed. It holds ids, never sockets; it has no clock, does no I/O and knows no protocol.
//!
//! Its parts: here what is asked of it; `supply` keeps servers and waiters matched, connections made and dead-lines
//! kept; `errands` has servers see to what nobody waits for; `sharing` deals with the budget; `holds` knows for how
//! long servers have been held; `lasting` bounds those who keep servers for long; `invariants` checks the whole state.

mod errands;
mod holds;
mod invariants;
mod lasting;
mod outage;
mod sharing;
mod supply;

use alloc::collections::VecDeque;
use core::time::Duration;

use crate::{
    action::{Action, CheckIn, CheckOut, Clear, Counts, Fault, Grant, Hold, Wish},
    config::{Limits, PoolConfig},
    event::{CheckOutFailed, Closed, Event, Events, Path},
    random::Random,
    slots::{Home, ServerId, Slots, State},
    time::Time,
    waiters::{Ticket, WaiterId, Waiters},
};

use self::sharing::Sharing;

/// A pool of servers: a state machine.
///
/// **Call order.** A new pool is paused (it queues waiters and connects nothing) until [`Pool::ready`]. After *every*
/// call that takes `now`, poll [`Pool::poll_action`] until it has no more, then [`Pool::poll_deadline`]; at that time
/// or later call [`Pool::handle_timeout`]. A `now` below an earlier one is read as the earlier one.
///
/// **Servers.** Each ordered [`Action::Connect`] is answered by one of `connected`, `connected_for_itself` and
/// `connect_failed`; each [`Action::Close`] by `closed`; each [`Action::Check`] and [`Action::Reset`] by `checked`;
/// each grant, in whatever form, by `check_in`. Instead of any of these, `lost` may come; after it the id is worth
/// nothing, and orders that still name it are void. `connect_given_up` and `given_up` are `connect_failed` and `lost`
/// for a connection that has yet to end: `closed` follows. A close may cross the answer of a connect or check: the pool
/// ignores such a late answer (but takes `connect_failed` and `lost` as `closed`). An id of a server that is gone is
/// the caller's mistake, and panics.
///
/// **Order of service.** Of idle servers the one last used goes first, at the waiter's own home if there is one, else
/// of all; none is handed out past its idle or life time. A server that is checked in goes to the first waiter of all,
/// but may go to the first one of its own home if that one came at most `max_overtakes` places later. So nobody is
/// overtaken more than `max_overtakes` times.
///
/// **A server that nobody has had** goes to waiters that cannot use another ([`Wish::Unused`]): they wait apart, the
/// next connection that is made goes to the first of them, and where there is no room for one, a server that is idle or
/// checked in is closed for it.
///
/// **The last server** is not for those who say that they keep it for long ([`Wish::Lasting`]): of `max_size` servers
/// they have one less in all, unless there is only one. Beyond that they wait apart, and nobody waits behind them.
/// Where the pool has become smaller ([`Pool::reconfigure`], [`Pool::note_room`]), and they have all servers that it
/// has while others wait, [`Action::GiveWay`] asks for those that are too many: the client gives its server back, or
/// goes, and if it does neither it is asked again.
///
/// **An errand** is for a server that nobody needs ([`Pool::errand`]): it gets an [`Action::Reset`]. Waiters go first.
///
/// **A name that the upstream does not know** ([`Fault::Unknown`]) fails all who wait, and who asks before the next
/// try.
///
/// **Connections** are wanted for waiters that no connecting or checking server is meant for yet, and up to `min_size`;
/// never beyond `max_size` in all (servers still closing included) nor beyond `max_connecting` at a time.
///
/// **Permits.** Each server, from its connect until `closed`, `lost` or `connect_failed`, stands for one permit of the
/// [`crate::Budget`], which the caller returns then. Without a budget, answer each [`Action::AskPermit`] with `permit`.
///
/// **What is given up** for other pools, when the budget asks: an idle server, down to `min_size`. The last one that is
/// not kept by a client for long is given up when it has been in service for a `turn`, or idle for a short part of one.
/// A server that comes back may have to be given up although others wait for it: see [`Pool::may_spare`]. Where clients
/// wait for long elsewhere, it asks for servers that nobody has used for [`crate::UNUSED_TURNS`]: those are given up
/// down to `min_size`, the last one too.
///
/// Check-out and check-in are O(1) and, once its queues have grown to their working size, allocate nothing. At most
/// one action per waiter and a few per server can be queued.
#[derive(Debug)]
pub struct Pool {
    limits: Limits,
    mode: Mode,
    /// The latest `now` ever given.
    now: Time,
    slots: Slots,
    waiters: Waiters,
    /// Those who would keep a server for long, while others like them have as many as they may.
    held_back: Waiters,
    /// Those who take no server that somebody else has had.
    demanding: Waiters,
    /// A server that nobody needs is to see to something.
    errand: bool,
    /// Incremented by each clear; servers of earlier ones are stale.
    generation: u32,
    /// Servers of earlier generations than this are made otherwise than new ones, or are to be replaced by an
    /// operator's order.
    renewed: u32,
    /// What it does for other pools, and asks of them.
    sharing: Sharing,
    /// Connections wanted from the budget.
    asked: u32,
    /// Of these, how many the caller has been told of.
    announced: u32,
    /// What the total may be: `max_size`, or more while a pool that was shrunk has not yet got there.
    ceiling: u32,
    /// What limits under which others are, too, leave room for.
    room: u32,
    failures: Failures,
    /// A connection has been made, and the upstream has not forgotten its name since.
    proved: bool,
    /// Waiters wait as for an upstream that is down (or on hold), not as for a busy one.
    hard_times: bool,
    good_since: Time,
    /// No server's life ends before this.
    next_expiry: Time,
    actions: VecDeque<Action>,
    events: Events,
    random: Random,
    config: PoolConfig,
}

/// Failed connects, and what follows from them.
#[derive(Debug, Default)]
struct Failures {
    /// When the first of an unbroken row of failures was.
    since: Option<Time>,
    /// How often the pause was stretched.
    count: u32,
    /// No connect before this.
    retry_at: Option<Time>,
    /// The last was because the upstream knows nothing under this name.
    unknown: bool,
    /// Another try will not cure the last one.
    refused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Ready,
    Paused(Hold),
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
            mode: Mode::Paused(Hold::Waiters),
            now,
            slots: Slots::new(),
            waiters: Waiters::new(),
            held_back: Waiters::new(),
            demanding: Waiters::new(),
            errand: false,
            generation: 0,
            renewed: 0,
            sharing: Sharing::new(now),
            asked: 0,
            announced: 0,
            ceiling: limits.max_size,
            room: u32::MAX,
            failures: Failures::default(),
            proved: false,
            hard_times: true,
            good_since: now,
            next_expiry: Time::NEVER,
            actions: VecDeque::new(),
            events: Events::new(),
            random: Random::new(seed),
            config,
        }
    }

    /// From now on the pool grants and connects. (A closed pool stays closed.)
    pub fn ready(&mut self, now: Time) {
        let now = self.tick(now);
        if let Mode::Paused(_) = self.mode {
            self.mode = Mode::Ready;
            self.events.push(Event::PoolReady);
            self.settle(now);
        }
    }

    /// From now on the pool neither grants nor connects. Servers in use stay so until they are checked in.
    pub fn pause(&mut self, hold: Hold, now: Time) {
        let now = self.tick(now);
        if self.mode == Mode::Closed {
            return;
        }
        self.mode = Mode::Paused(hold);
        if hold == Hold::FailWaiters {
            self.fail_waiters(CheckOutFailed::Paused, now);
        }
        self.settle(now);
    }

    /// Closes all servers, those in use when they are checked in, and fails all waiters; for ever.
    pub fn close(&mut self, now: Time) {
        let now = self.tick(now);
        if self.mode == Mode::Closed {
            return;
        }
        self.mode = Mode::Closed;
        self.events.push(Event::PoolClosed);
        self.fail_waiters(CheckOutFailed::PoolClosed, now);
        self.close_unused(Closed::PoolClosed, now);
        self.settle(now);
    }

    /// Makes all present servers stale: those not in use close now, those in use when they are checked in, or are cut
    /// now. It does not pause the pool; CMAP's clear is this one with `fail_waiters`, and a pause.
    pub fn clear(&mut self, how: Clear, now: Time) {
        let now = self.tick(now);
        self.generation = self.generation.wrapping_add(1);
        self.events.push(Event::PoolCleared);
        if how.fail_waiters {
            self.fail_waiters(CheckOutFailed::PoolCleared, now);
        }
        self.close_unused(Closed::Stale, now);
        if how.interrupt {
            self.interrupt_all();
        }
        self.settle(now);
    }

    /// The same, because servers are made otherwise from now on, or an operator wants other ones: those that no client
    /// gives back are to be replaced, too.
    pub fn renew(&mut self, now: Time) {
        self.clear(Clear::default(), now);
        self.renewed = self.generation;
    }

    /// It was unused for long: its idle servers close, and where `min_size` holds only once a connection has been made
    /// (`on_proof`), that has to happen anew, for a waiter.
    pub fn empty(&mut self, now: Time) {
        let now = self.tick(now);
        self.proved = false;
        self.close_unused(Closed::Idle, now);
        self.settle(now);
    }

    /// Whether there is nothing: no server, no waiter, no wish for a connection, and no order that has not been polled.
    pub fn is_empty(&self) -> bool {
        let servers = self.slots.total() + self.asked + self.announced;
        servers == 0 && self.waiting() == 0 && self.actions.is_empty()
    }

    /// Other options from now on. A pool above its new `max_size` closes servers that are not in use at once, and those
    /// in use when they are checked in.
    pub fn reconfigure(&mut self, config: PoolConfig, now: Time) {
        let now = self.tick(now);
        if let Err(error) = config.validate() {
            panic!("an invalid configuration reached a pool: {error}");
        }
        self.limits = Limits::new(&config);
        self.config = config;
        self.ceiling = self.slots.total().max(self.limits.max_size);
        self.renew_lives();
        while self.slots.live() > self.limits.max_size {
            let Some(server) = self.slots.oldest_idle().or(self.slots.oldest_connecting()) else { break };
            self.order_close(server, Closed::Shrunk, now);
        }
        self.settle(now);
    }

    /// Somebody at `home` wants a server: the one last used there, else the one last used of all, else a place in the
    /// queue.
    pub fn check_out(&mut self, waiter: WaiterId, home: Home, now: Time) -> CheckOut {
        self.check_out_for(waiter, home, Wish::Any, now)
    }

    /// The same for somebody with a wish.
    pub fn check_out_for(&mut self, waiter: WaiterId, home: Home, wish: Wish, now: Time) -> CheckOut {
        let now = self.tick(now);
        let lasting = wish == Wish::Lasting;
        let held_back = lasting && !self.takes_lasting();
        self.events.push(Event::CheckOutStarted);
        match self.mode {
            Mode::Ready if self.waiters.len() == 0 && !held_back && wish != Wish::Unused => {
                if let Some(server) = self.take_idle(home, now) {
                    let grant = self.grant_idle(server, waiter, home, now);
                    if lasting {
                        self.slots.set_lasting(server);
                    }
                    return CheckOut::Granted(grant);
                }
            }
            Mode::Ready | Mode::Paused(Hold::Waiters) => {}
            Mode::Paused(Hold::FailWaiters) => return self.refuse(CheckOutFailed::Paused),
            Mode::Closed => return self.refuse(CheckOutFailed::PoolClosed),
        }
        if self.is_unknown(now) {
            return self.refuse(CheckOutFailed::Unknown);
        }
        if self.waiting() >= self.limits.max_waiters {
            self.expire_waiters(now);
            self.settle(now);
            if self.waiting() >= self.limits.max_waiters {
                return self.refuse(CheckOutFailed::QueueFull);
            }
        }
        if !held_back {
            self.begins_to_wait(now);
        }
        let queue = match wish {
            Wish::Unused => &mut self.demanding,
            _ if held_back => &mut self.held_back,
            _ => &mut self.waiters,
        };
        let ticket = queue.push(waiter, home, lasting, now);
        self.settle(now);
        CheckOut::Queued(ticket)
    }

    /// A waiter has left. Returns how long it has waited; `None` if it was not waiting any more: its grant or failure
    /// is on its way, and if it is a grant, the server has to be checked in.
    pub fn cancel(&mut self, ticket: Ticket, waiter: WaiterId, now: Time) -> Option<Duration> {
        let now = self.tick(now);
        // A waiter that is let in gets another ticket, which its caller does not know: the ticket may name a place in
        // either queue.
        let left = self.waiters.remove(ticket, waiter).or_else(|| self.held_back.remove(ticket, waiter));
        let left = left.or_else(|| self.demanding.remove(ticket, waiter));
        let left = left.or_else(|| self.waiters.remove_lasting(waiter))?;
        self.settle(now);
        Some(now - left.since)
    }

    /// A server comes back, at `home`. A waiter may get it at once: that is the returned grant.
    #[must_use = "a grant that is dropped is a server lost"]
    pub fn check_in(&mut self, server: ServerId, home: Home, how: CheckIn, now: Time) -> Option<Grant> {
        let now = self.tick(now);
        let slot = self.slots.get_mut(server);
        assert!(slot.state == State::InUse, "{server:?} was checked in while {:?}", slot.state);
        slot.home = home;
        self.slots.end_lasting(server);
        self.let_in(now);
        self.events.push(Event::CheckedIn);
        let closed = match how {
            CheckIn::Reclaim => Some(Closed::Reclaimed),
            CheckIn::Clean | CheckIn::Reset if !self.needs_room(now) => None,
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
        let grant = self.offer(server, home, Path::Queued, now);
        if self.asked != 0 {
            self.settle(now);
        }
        grant
    }

    /// A server is to be cleaned before anybody gets it, unless it is not idle any more.
    pub fn reset_idle(&mut self, server: ServerId, now: Time) {
        let now = self.tick(now);
        let Some(home) = self.slots.find(server).filter(|slot| slot.state == State::Idle).map(|slot| slot.home) else {
            return;
        };
        self.slots.set_state(server, State::Checking, now);
        self.actions.push_back(Action::Reset { server, home });
    }

    /// A check or a reset has ended, at `home`. A waiter may get the server at once.
    #[must_use = "a grant that is dropped is a server lost"]
    pub fn checked(&mut self, server: ServerId, ok: bool, home: Home, now: Time) -> Option<Grant> {
        let now = self.tick(now);
        let slot = self.slots.get_mut(server);
        if slot.state == State::Closing {
            return None;
        }
        assert!(slot.state == State::Checking, "{server:?} was reported checked while {:?}", slot.state);
        slot.home = home;
        let failed = (!ok).then_some(Closed::Error);
        let grant = match self.unfit(server, now).or(failed) {
            Some(reason) => {
                self.order_close(server, reason, now);
                None
            }
            None => self.offer(server, home, Path::Queued, now),
        };
        self.settle(now);
        grant
    }

    /// A start-up has ended well, at `home`. A waiter may get the server at once.
    #[must_use = "a grant that is dropped is a server lost"]
    pub fn connected(&mut self, server: ServerId, home: Home, now: Time) -> Option<Grant> {
        let now = self.tick(now);
        if !self.start_up_ended(server, home, now) {
            return None;
        }
        let grant = self.offer(server, home, Path::Created, now);
        self.settle(now);
        grant
    }

    /// As [`connected`](Pool::connected), for a server that is in use at once, by itself: no waiter gets it before it
    /// is checked in. False if it is to be closed instead.
    pub fn connected_for_itself(&mut self, server: ServerId, home: Home, now: Time) -> bool {
        let now = self.tick(now);
        if !self.start_up_ended(server, home, now) {
            return false;
        }
        self.slots.set_state(server, State::InUse, now);
        self.slots.get_mut(server).used = true;
        self.slots.set_kept(server, true);
        self.settle(now);
        true
    }

    /// Whether a server may be used now that its start-up has ended. If not, its closing is ordered.
    fn start_up_ended(&mut self, server: ServerId, home: Home, now: Time) -> bool {
        let expires = now.after(self.life());
        let slot = self.slots.get_mut(server);
        if slot.state == State::Closing {
            return false;
        }
        assert!(slot.state == State::Connecting, "{server:?} was reported connected while {:?}", slot.state);
        slot.home = home;
        slot.ready_at = now;
        slot.expires = expires;
        let duration = now - slot.since;
        self.next_expiry = self.next_expiry.min(expires);
        self.events.push(Event::ConnectionReady { duration });
        self.failures = Failures::default();
        self.proved = true;
        self.watch_times(now);
        let Some(reason) = self.unfit(server, now) else { return true };
        self.order_close(server, reason, now);
        self.settle(now);
        false
    }

    /// A connection could not be made, and its server is gone. `permanent`: trying again will not cure it (a wrong
    /// password), so that all waiters fail now. Either way the next try comes after a pause.
    pub fn connect_failed(&mut self, server: ServerId, permanent: bool, now: Time) {
        self.connect_given_up(server, if permanent { Fault::Lasting } else { Fault::Passing }, now);
        self.gone(server, Closed::Error, now);
    }

    /// The same, but its connection has yet to end: the server has its place until it is reported `closed`.
    pub fn connect_given_up(&mut self, server: ServerId, fault: Fault, now: Time) {
        let now = self.tick(now);
        let state = self.slots.get(server).state;
        assert!(
            matches!(state, State::Connecting | State::Closing),
            "{server:?} was reported unable to connect while {state:?}"
        );
        if state == State::Connecting {
            match fault {
                Fault::Unknown => self.unknown(now),
                Fault::Passing | Fault::Lasting => self.failed(now),
            }
            self.failures.refused = fault == Fault::Lasting;
            match fault {
                Fault::Passing => {}
                Fault::Lasting => self.fail_waiters(CheckOutFailed::Refused, now),
                Fault::Unknown => self.fail_waiters(CheckOutFailed::Unknown, now),
            }
        }
        self.ends(server, Closed::Error, now);
    }

    /// A server's connection has died, in whatever state it was; it is gone. If it was in use, the lease is over.
    pub fn lost(&mut self, server: ServerId, now: Time) {
        self.given_up(server, now);
        self.gone(server, Closed::Error, now);
    }

    /// The same, but its connection has yet to end: the server has its place until it is reported `closed`.
    pub fn given_up(&mut self, server: ServerId, now: Time) {
        let now = self.tick(now);
        let slot = self.slots.get(server);
        let reason = if slot.cut { Closed::Interrupted } else { Closed::Error };
        match slot.state {
            State::Connecting => self.failed(now),
            // An upstream that accepts connections only to drop them is not to be dialled in a loop.
            State::Idle | State::Checking if !slot.used => self.back_off(now),
            _ => {}
        }
        self.ends(server, reason, now);
    }

    /// An ordered close (or interrupt) is done; the server is gone.
    pub fn closed(&mut self, server: ServerId, now: Time) {
        let now = self.tick(now);
        let slot = self.slots.get(server);
        assert!(
            slot.state == State::Closing || slot.cut,
            "{server:?} was reported closed while {:?}, without an order",
            slot.state
        );
        self.gone(server, Closed::Interrupted, now);
    }

    /// A server lives on another worker now.
    pub fn moved(&mut self, server: ServerId, home: Home) {
        self.slots.set_home(server, home);
    }

    /// The budget permits one of the connections asked for. False: it is wanted no more (the withdrawal crossed the
    /// permit), and the caller gives the permit back to the budget.
    #[must_use = "a permit that is not taken must be released to the budget"]
    pub fn permit(&mut self, now: Time) -> bool {
        let now = self.tick(now);
        if self.announced == 0 {
            return false;
        }
        self.announced -= 1;
        if self.asked == 0 {
            return false;
        }
        self.connect(now);
        self.settle(now);
        true
    }

    /// Expires waiters, closes what is unused for too long or too old, gives up connects and checks that take too long,
    /// and connects again after a pause. To be called at the time of [`Pool::poll_deadline`]; at any other it does no
    /// harm.
    pub fn handle_timeout(&mut self, now: Time) {
        let now = self.tick(now);
        self.upkeep(now);
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if self.announced < self.asked {
            self.announced += 1;
            return Some(Action::AskPermit);
        }
        if self.announced > self.asked {
            self.announced -= 1;
            return Some(Action::WithdrawPermit);
        }
        // Not before the wish that it is about.
        self.plea()
    }

    /// When [`Pool::handle_timeout`] is to be called next, unless something else happens before.
    pub fn poll_deadline(&self) -> Option<Time> {
        self.deadline()
    }

    /// The next recorded event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Whether events are recorded, at most [`crate::MAX_EVENTS`] unread ones. They are not until this is called; only
    /// the pool's creation always is.
    pub fn record_events(&mut self, on: bool) {
        self.events.record(on);
    }

    /// How many events were dropped because nobody read them.
    pub fn events_dropped(&self) -> u64 {
        self.events.dropped()
    }

    /// Whether the pool is paused.
    pub fn is_paused(&self) -> bool {
        matches!(self.mode, Mode::Paused(_))
    }

    /// Whether the pool is closed.
    pub fn is_closed(&self) -> bool {
        self.mode == Mode::Closed
    }

    /// Whether a server has been ordered to close and not yet been reported closed; `None` if it is gone. Where orders
    /// can overtake each other on their way, this tells which of them are void.
    pub fn is_closing(&self, server: ServerId) -> Option<bool> {
        self.slots.find(server).map(|slot| slot.state == State::Closing)
    }

    /// Whether a server is being checked or reset.
    pub fn is_checking(&self, server: ServerId) -> bool {
        self.slots.find(server).is_some_and(|slot| slot.state == State::Checking)
    }

    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// How often the pool was cleared.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Since when connects have been failing, if there is also no server left that works.
    pub fn is_unavailable(&self) -> Option<Time> {
        let usable = self.slots.count(State::Idle) + self.slots.count(State::InUse);
        self.failures.since.filter(|_| usable == 0)
    }

    /// Whether the last connection that was begun was not made, though servers of before may work.
    pub fn is_connecting_in_vain(&self) -> bool {
        self.failures.since.is_some()
    }

    /// How long the first waiter has been waiting.
    pub fn oldest_wait(&self, now: Time) -> Option<Duration> {
        let first = |waiters: &Waiters| waiters.front().map(|waiter| now - waiter.since);
        first(&self.waiters).max(first(&self.held_back)).max(first(&self.demanding))
    }

    /// How many servers are in which state, and how many waiters there are.
    pub fn counts(&self) -> Counts {
        Counts {
            connecting: self.slots.count(State::Connecting),
            idle: self.slots.count(State::Idle),
            in_use: self.slots.count(State::InUse),
            checking: self.slots.count(State::Checking),
            closing: self.slots.count(State::Closing),
            waiters: self.waiting(),
            held_back: self.held_back.len(),
            total: self.slots.total(),
        }
    }

    /// Time never runs backwards here, though callers on several threads may be late with theirs.
    #[inline]
    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    #[inline]
    fn grant_idle(&mut self, server: ServerId, waiter: WaiterId, waiter_home: Home, now: Time) -> Grant {
        self.slots.set_state(server, State::InUse, now);
        self.sharing.served = now;
        let slot = self.slots.get_mut(server);
        slot.used = true;
        let home = slot.home;
        self.events.push(Event::CheckedOut { path: Path::Idle, duration: Duration::ZERO });
        Grant { waiter, server, home, waiter_home, path: Path::Idle, waited: Duration::ZERO }
    }

    #[cold]
    fn refuse(&mut self, reason: CheckOutFailed) -> CheckOut {
        self.events.push(Event::CheckOutFailed { reason, duration: Duration::ZERO });
        CheckOut::Failed(reason)
    }
}

#[cfg(test)]
mod tests;
