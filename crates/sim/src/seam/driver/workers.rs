//! Workers: each does one thing at a time, and which of them is next is chance. A pool is asked under a lock, by whoever needs
//! something of it; what it then wants done waits with that worker, or goes by mail to the one that it concerns. Mail is read in the
//! order of sending, but late, and a worker may be held up at any moment, in the middle of what it has to do as well. So
//! grants, servers on their way, withdrawals, deaths and orders cross each other as they can between real threads.

use std::{collections::VecDeque, time::Duration};

use pool::{Action, CheckOutFailed, Grant, Home, Pool, ServerId, Time};
use protocol::{ClientTag, Outbox, Peer, Protocol, ServerTag};

use super::{
    super::connection::{ServerConn, Use},
    Call, Driver, Event,
};

/// Things done in a row, without time passing, beyond which sessions and driver are feeding each other.
const MAX_TURNS: usize = 100_000;

/// What one worker tells another, or an operator tells one.
pub enum Message<S> {
    /// A server for a waiter of this worker.
    Server(Box<ServerConn<S>>, Grant),
    /// A server that lives here was granted to a waiter of another worker: send it there.
    Bring(usize, Grant),
    /// The server that was granted to a waiter of this worker is no more.
    GrantLost(usize, Grant),
    /// A waiter of this worker fails.
    Failed(u64, CheckOutFailed),
    /// Something that a pool wants done here.
    Act(usize, Action),
    /// Somebody wants to cancel what a client of this worker does.
    Cancel(ClientTag, u64),
}

/// One worker: what it has still to do.
pub struct Worker<S> {
    /// What pools want done; comes before everything else.
    actions: VecDeque<(usize, Action)>,
    /// What was put off until the call at hand was over.
    calls: VecDeque<Call>,
    /// When it arrives, and what; in the order of sending.
    mail: VecDeque<(Time, Message<S>)>,
    /// Until then it is held up.
    busy_until: Time,
}

impl<S> Worker<S> {
    /// One with nothing to do.
    pub fn new() -> Self {
        Self { actions: VecDeque::new(), calls: VecDeque::new(), mail: VecDeque::new(), busy_until: Time(0) }
    }

    fn can_turn(&self, now: Time) -> bool {
        let mail = self.mail.front().is_some_and(|m| m.0 <= now);
        self.busy_until <= now && (!self.actions.is_empty() || !self.calls.is_empty() || mail)
    }

    /// Servers on their way to it.
    pub fn coming(&mut self) -> impl Iterator<Item = &mut ServerConn<S>> {
        self.mail.iter_mut().filter_map(|m| match &mut m.1 {
            Message::Server(conn, _) => Some(&mut **conn),
            _ => None,
        })
    }

    /// Something was put off until it has the time.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// It has nothing to do, and nothing is on its way to it.
    pub fn is_at_rest(&self) -> bool {
        self.actions.is_empty() && self.calls.is_empty() && self.mail.is_empty()
    }
}

impl<P: Protocol> Driver<P> {
    /// Puts something off until this worker has finished what it is doing.
    pub fn call(&mut self, worker: u8, call: Call) {
        self.workers[usize::from(worker)].calls.push_back(call);
    }

    /// Leaves a message.
    pub(super) fn mail(&mut self, to: u8, message: Message<P::Server>) {
        let delay = Duration::from_nanos(self.rng.below(self.plan.delay.as_nanos() as u64 + 1));
        let mailbox = &mut self.workers[usize::from(to)].mail;
        let at = mailbox.back().map_or(Time(0), |m| m.0).max(self.agenda.now() + delay);
        mailbox.push_back((at, message));
        self.agenda.at(at, Event::Mail);
    }

    /// Somebody takes this worker's time.
    pub fn hold_up(&mut self, worker: u8) {
        let until = self.now() + Duration::from_nanos(self.rng.below(self.plan.stall.as_nanos() as u64 + 1));
        let busy = &mut self.workers[usize::from(worker)].busy_until;
        *busy = (*busy).max(until);
        self.agenda.at(until, Event::Mail);
    }

    /// When this worker can do something again.
    pub fn free_at(&self, worker: u8) -> Time {
        self.workers[usize::from(worker)].busy_until
    }

    /// The worker that looks after a pool's dead-lines.
    pub fn caretaker(&self, pool: usize) -> u8 {
        (pool % self.workers.len()) as u8
    }

    /// Lets workers do what is due, one thing of one of them at a time, until nothing is.
    pub fn run(&mut self) {
        for _ in 0..MAX_TURNS {
            let now = self.now();
            let able = |w: &(u8, &Worker<P::Server>)| w.1.can_turn(now);
            let worker = match (0..).zip(&self.workers).filter(able).count() {
                0 => return,
                n => {
                    let which = if n == 1 { 0 } else { self.rng.index(n) };
                    (0..).zip(&self.workers).filter(able).nth(which).expect("just counted").0
                }
            };
            if !self.plan.stall.is_zero() && self.rng.per_myriad(100) && !self.calm {
                self.hold_up(worker);
                continue;
            }
            self.turn(worker);
        }
        panic!("driver and sessions keep each other busy for ever");
    }

    fn turn(&mut self, number: u8) {
        let worker = &mut self.workers[usize::from(number)];
        if let Some((pool, action)) = worker.actions.pop_front() {
            self.tell(|| format!("  worker {number}: pool {pool}: {action:?}"));
            self.perform(number, pool, action);
        } else if let Some(call) = worker.calls.pop_front() {
            self.tell(|| format!("  worker {number}: {call:?}"));
            self.make(number, call);
        } else if let Some((_, message)) = worker.mail.pop_front() {
            match message {
                Message::Server(conn, grant) => self.server_arrived(number, *conn, grant),
                Message::Bring(pool, grant) => self.bring(number, pool, grant),
                Message::GrantLost(pool, grant) => self.grant_lost(number, pool, grant),
                Message::Failed(waiter, reason) => self.call(number, Call::Failed(waiter, reason)),
                Message::Act(pool, action) => {
                    self.workers[usize::from(number)].actions.push_back((pool, action));
                }
                Message::Cancel(target, secret) => self.cancel(target, secret),
            }
        }
    }

    // ---- pools ----

    fn ask<R>(&mut self, pool: usize, f: impl FnOnce(&mut Pool, Time) -> R) -> (R, Vec<Action>) {
        let now = self.now();
        let result = f(&mut self.pools[pool], now);
        let actions: Vec<Action> = std::iter::from_fn(|| self.pools[pool].poll_action()).collect();
        actions.iter().for_each(|action| self.books.ordered(pool, action));
        (result, actions)
    }

    /// A worker asks a pool something, and remembers what that wants done.
    pub fn operate<R>(&mut self, worker: u8, pool: usize, f: impl FnOnce(&mut Pool, Time) -> R) -> R {
        let (result, actions) = self.ask(pool, f);
        self.workers[usize::from(worker)].actions.extend(actions.into_iter().map(|action| (pool, action)));
        result
    }

    /// Somebody from outside changes a pool; what it then wants done is left to the worker that looks after it.
    pub fn order(&mut self, pool: usize, f: impl FnOnce(&mut Pool, Time)) {
        let ((), actions) = self.ask(pool, f);
        for action in actions {
            self.mail(self.caretaker(pool), Message::Act(pool, action));
        }
    }

    /// Does what a pool wants, here or where it has to be done.
    fn perform(&mut self, here: u8, pool: usize, action: Action) {
        if let Some(Home(place)) = action.place().filter(|place| place.0 != here) {
            let message = match action {
                Action::Fail { waiter, reason, .. } => Message::Failed(waiter.0, reason),
                action => Message::Act(pool, action),
            };
            return self.mail(place, message);
        }
        match action {
            // It may have been withdrawn since; then it is not taken, and the withdrawal finds nothing to do.
            Action::AskPermit => {
                self.operate(here, pool, |pool, now| pool.permit(now));
            }
            Action::WithdrawPermit | Action::Insist | Action::Spare => {}
            Action::Connect { server, .. } => self.dial(here, pool, server),
            Action::Grant(grant) => self.deliver(here, pool, grant),
            Action::Fail { waiter, reason, .. } => self.call(here, Call::Failed(waiter.0, reason)),
            Action::Close { server, .. } => self.close_for_pool(here, pool, server),
            Action::Check { server, .. } => self.clean(here, pool, server, false),
            Action::Reset { server, .. } => self.clean(here, pool, server, true),
            Action::Interrupt { server, .. } => {
                if let Some(tag) = self.server_here(here, pool, server) {
                    self.remove_server(tag);
                }
            }
        }
    }

    /// Begins a connection.
    fn dial(&mut self, here: u8, pool: usize, server: ServerId) {
        self.books.connects.remove(&(pool, server));
        // An order to close it may have overtaken this one.
        if self.pools[pool].is_closing(server) != Some(false) {
            return;
        }
        if self.now() < self.no_descriptors_until && !self.calm {
            self.operate(here, pool, |pool, now| pool.connect_failed(server, false, now));
            return self.books.gone(pool, server);
        }
        self.dialling.insert((pool, server), here);
        let after = self.rng.around(self.plan.connect);
        self.agenda.after(after, Event::Opened(pool, server));
    }

    /// Closes a connection that the pool has given up.
    fn close_for_pool(&mut self, here: u8, pool: usize, server: ServerId) {
        if self.dialling.get(&(pool, server)) == Some(&here) {
            self.dialling.remove(&(pool, server));
        } else if let Some(tag) = self.server_here(here, pool, server) {
            self.retire(tag);
        } else if self.pools[pool].is_closing(server) != Some(true) {
            // It was lost meanwhile, and the pool has been told.
            assert!(!self.books.is_closing(pool, server), "an order to close {server:?} of pool {pool} reaches nobody");
            return;
        }
        self.operate(here, pool, |pool, now| pool.closed(server, now));
        self.books.gone(pool, server);
    }

    fn clean(&mut self, here: u8, pool: usize, server: ServerId, reset: bool) {
        self.books.cleans.remove(&(pool, server));
        let Some(tag) = self.server_here(here, pool, server) else { return };
        let conn = self.servers.get_mut(&tag).expect("just seen");
        conn.usage = Use::Cleaning;
        let session = conn.session.as_mut().expect("a server has a session");
        let mut out = Outbox::new();
        if reset {
            self.protocol.reset(tag, session, &mut out);
        } else {
            self.protocol.check(tag, session, &mut out);
        }
        self.execute(out, &[], Peer::Server(tag));
    }

    /// The tag of a server that lives at this worker.
    pub(super) fn server_here(&self, here: u8, pool: usize, server: ServerId) -> Option<ServerTag> {
        self.by_id.get(&(pool, server)).copied().filter(|tag| tag.worker() == here)
    }

    // ---- bringing waiters and servers together ----

    /// A pool gives a server to a waiter; either may be at another worker. A server leaves only when the outbox is done with, in which
    /// its session may go on to close it.
    pub(super) fn deliver(&mut self, here: u8, pool: usize, grant: Grant) {
        match (grant.home == Home(here), grant.waiter_home == Home(here)) {
            (true, true) => self.call(here, Call::Granted(pool, grant)),
            (true, false) => self.call(here, Call::Bring(pool, grant)),
            (false, _) => self.mail(grant.home.0, Message::Bring(pool, grant)),
        }
    }

    /// Sends a server that lives here to the worker of who gets it.
    pub(super) fn bring(&mut self, here: u8, pool: usize, grant: Grant) {
        if grant.waiter_home == Home(here) {
            return self.call(here, Call::Granted(pool, grant));
        }
        let moving = self.server_here(here, pool, grant.server).and_then(|tag| self.move_out(tag));
        let message = match moving {
            Some(conn) => Message::Server(Box::new(conn), grant),
            None => Message::GrantLost(pool, grant),
        };
        self.mail(grant.waiter_home.0, message);
    }

    fn move_out(&mut self, tag: ServerTag) -> Option<ServerConn<P::Server>> {
        let conn = self.servers.get(&tag).expect("seen by the caller");
        assert_eq!(conn.usage, Use::Idle, "a server moves that is not idle");
        if conn.ending {
            return None;
        }
        conn.check_untouched("move");
        if !conn.input.is_empty() {
            self.end_server(tag);
            return None;
        }
        let mut conn = self.servers.remove(&tag).expect("just seen");
        self.by_id.remove(&(conn.pool, conn.id));
        self.books.moving.insert((conn.pool, conn.id));
        (conn.stirred, conn.blocked) = (false, None);
        Some(conn)
    }

    fn server_arrived(&mut self, here: u8, conn: ServerConn<P::Server>, grant: Grant) {
        let (tag, pool, serial) = (self.free_server_tag(here), conn.pool, conn.serial);
        self.tell(|| format!("  worker {here}: {grant:?} arrives as {tag:?}"));
        self.books.moving.remove(&(pool, conn.id));
        self.by_id.insert((pool, conn.id), tag);
        if conn.broken {
            self.agenda.at(self.now(), Event::Broken(tag, serial));
        }
        self.servers.insert(tag, conn);
        self.granted(here, pool, grant);
    }
}
