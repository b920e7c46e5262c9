//! The pools under test, one for each instance of the application. Turns their actions into changes that the engine
//! carries out, and knows why a connection is wanted. It knows an operation only by the number of its client.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use arrivals::Random;
use pool::{
    Action, Budget, BudgetAction, CheckIn, CheckOut, CheckOutFailed, Closed, Grant, Home, MAX_SERVERS, MemberId,
    Permit, Pool, ServerId, Ticket, Time, WaiterId,
};

use super::{ConnId, load::InstanceChoice};
use crate::{plan::PoolUnderTest, record::Cause};

const HOME: Home = Home(0);
/// Separates the random choice of instances from that of arrivals, which have the same seed.
const INSTANCE_SEED: u64 = 0x05ee_d0f5_a110;

/// A decision of a pool.
#[derive(Clone, Copy, Debug)]
pub enum Change {
    /// A connection is to be made. [`Instances::opened`] takes its number.
    Connect { instance: u32, server: ServerId, cause: Cause },
    /// A client gets a connection.
    Grant { conn: ConnId, client: u32, waited: Duration },
    /// A client gets none.
    Fail {
        client: u32,
        kind: &'static str,
        waited: Duration,
        /// Its wait was as long as it may be.
        timed_out: bool,
    },
    /// A connection is to be closed.
    Close { conn: ConnId, reason: &'static str },
}

#[derive(Debug)]
pub struct Instances {
    pools: Vec<Instance>,
    /// The limit of all pools together; `None`: each pool has only its own.
    budget: Option<Budget>,
    /// The instance of the next operation, where instances take turns.
    turn: u32,
    /// Draws the instance of an operation, where they do not.
    random: Random,
    /// The instance and the ticket of each waiting client, by client.
    tickets: Vec<(u32, Option<Ticket>)>,
    changes: VecDeque<Change>,
    /// Deadlines of pools, each pool at most once. The true deadline of a pool may be later.
    deadlines: BTreeSet<(Time, u32)>,
    /// Those whose time has come, while they are looked at.
    due_pools: Vec<u32>,
    /// How long an unneeded connection stays, which is how long the loss of one may be the reason of a new one.
    max_idle_time: Duration,
}

#[derive(Debug)]
struct Instance {
    pool: Pool,
    /// Its id in the budget.
    member: Option<MemberId>,
    /// The engine's numbers of its servers, by slot.
    conns: Vec<ConnId>,
    /// Connections that reached their life time or were lost, until when they would have been kept, and which of the
    /// two it was.
    losses: VecDeque<(Time, Cause)>,
    is_filled: bool,
    /// Its entry in [`Instances::deadlines`]; never: it has none.
    deadline: Time,
}

impl Instances {
    /// The pools, empty. They connect up to their minimum at once. `limit`: what they may have together, shared fairly,
    /// as the pools of one Poolhouse do.
    pub fn new(plan: &PoolUnderTest, limit: Option<u32>, seed: u64, now: Time) -> Self {
        let mut budget = limit.map(|limit| {
            let mut budget = Budget::new();
            let scope = budget.add_cap(limit);
            (budget, scope)
        });
        let instance = |n: u32| {
            let mut pool = Pool::new(plan.config.clone(), seed.wrapping_add(u64::from(n)), now);
            pool.ready(now);
            let member = budget.as_mut().map(|(budget, scope)| budget.add_member(&[*scope]));
            let is_filled = plan.config.min_size == 0;
            Instance { pool, member, conns: Vec::new(), losses: VecDeque::new(), is_filled, deadline: Time::NEVER }
        };
        let pools: Vec<Instance> = (0..plan.instances).map(instance).collect();
        let mut instances = Self {
            pools,
            budget: budget.map(|(budget, _)| budget),
            turn: 0,
            random: Random::new(seed ^ INSTANCE_SEED),
            tickets: Vec::new(),
            changes: VecDeque::new(),
            deadlines: BTreeSet::new(),
            due_pools: Vec::new(),
            max_idle_time: plan.config.max_idle_time.unwrap_or(Duration::MAX),
        };
        (0..plan.instances).for_each(|n| instances.drain(n, now));
        instances
    }

    /// Requests a connection for a client.
    #[inline]
    pub fn check_out(&mut self, client: u32, choice: InstanceChoice, now: Time) {
        let count = self.pools.len() as u32;
        let instance = match choice {
            _ if count == 1 => 0,
            InstanceChoice::ByClient => client % count,
            InstanceChoice::RoundRobin => {
                let next = (self.turn + 1) % count;
                std::mem::replace(&mut self.turn, next)
            }
            InstanceChoice::Random => self.random.below(u64::from(count)) as u32,
        };
        let mut ticket = None;
        match self.pools[instance as usize].pool.check_out(WaiterId(u64::from(client)), HOME, now) {
            CheckOut::Granted(grant) => self.grant(instance, grant),
            CheckOut::Queued(queued) => ticket = Some(queued),
            CheckOut::Failed(reason) => self.fail(client, reason, Duration::ZERO),
        }
        if ticket.is_some() {
            if self.tickets.len() <= client as usize {
                self.tickets.resize(client as usize + 1, (0, None));
            }
            self.tickets[client as usize] = (instance, ticket);
        }
        self.drain(instance, now);
    }

    /// Ends the wait of a client. Returns false if it did not wait.
    pub fn cancel(&mut self, client: u32, now: Time) -> bool {
        let Some((instance, Some(ticket))) = self.tickets.get(client as usize).copied() else { return false };
        let left = self.pools[instance as usize].pool.cancel(ticket, WaiterId(u64::from(client)), now);
        self.drain(instance, now);
        left.is_some()
    }

    /// Notes the number of the connection of a server.
    pub fn opened(&mut self, instance: u32, server: ServerId, conn: ConnId) {
        let conns = &mut self.pools[instance as usize].conns;
        if conns.len() <= server.slot() {
            conns.resize(server.slot() + 1, ConnId(u32::MAX));
        }
        conns[server.slot()] = conn;
    }

    /// See [`Pool::handle_connected`].
    pub fn connected(&mut self, instance: u32, server: ServerId, now: Time) {
        let grant = self.pools[instance as usize].pool.handle_connected(server, HOME, now);
        self.granted(instance, grant, now);
    }

    /// See [`Pool::handle_connect_failed`].
    pub fn connect_failed(&mut self, instance: u32, server: ServerId, permanent: bool, now: Time) {
        self.pools[instance as usize].pool.handle_connect_failed(server, permanent, now);
        self.release_permit(instance);
        self.drain(instance, now);
    }

    /// See [`Pool::check_in`].
    #[inline]
    pub fn check_in(&mut self, instance: u32, server: ServerId, reusable: bool, now: Time) {
        let how = if !reusable {
            CheckIn::Discard
        } else if self.offer_to_budget(instance, server, now) {
            CheckIn::Reclaim
        } else {
            CheckIn::Clean
        };
        let grant = self.pools[instance as usize].pool.check_in(server, HOME, how, now);
        self.granted(instance, grant, now);
    }

    /// See [`Pool::handle_lost`].
    pub fn lost(&mut self, instance: u32, server: ServerId, now: Time) {
        self.pools[instance as usize].note_loss(Cause::Replacement, self.max_idle_time, now);
        self.pools[instance as usize].pool.handle_lost(server, now);
        self.release_permit(instance);
        self.drain(instance, now);
    }

    /// See [`Pool::handle_closed`].
    pub fn closed(&mut self, instance: u32, server: ServerId, now: Time) {
        self.pools[instance as usize].pool.handle_closed(server, now);
        self.release_permit(instance);
        self.drain(instance, now);
    }

    /// See [`Pool::handle_timeout`]: handles all pools that are due, in their order. There may be thousands of others.
    pub fn handle_timeout(&mut self, now: Time) {
        let mut due_pools = std::mem::take(&mut self.due_pools);
        while self.deadline() <= now {
            let (_, instance) = self.deadlines.pop_first().expect("the one that is due");
            self.pools[instance as usize].deadline = Time::NEVER;
            due_pools.push(instance);
        }
        due_pools.sort_unstable();
        for instance in due_pools.drain(..) {
            let pool = &mut self.pools[instance as usize].pool;
            if pool.poll_deadline().is_some_and(|at| at <= now) {
                pool.handle_timeout(now);
            }
            self.drain(instance, now);
        }
        self.due_pools = due_pools;
    }

    /// See [`Pool::close`]: all of them.
    pub fn close(&mut self, now: Time) {
        for instance in 0..self.pools.len() {
            self.pools[instance].pool.close(now);
            self.drain(instance as u32, now);
        }
    }

    /// When [`Self::handle_timeout`] is to be called; perhaps before a pool has anything to do, never after.
    #[inline]
    pub fn deadline(&self) -> Time {
        self.deadlines.first().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Whether all pools have had their minimum.
    pub fn are_filled(&self) -> bool {
        self.pools.iter().all(|instance| instance.is_filled)
    }

    #[inline]
    pub fn next_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    #[inline]
    fn granted(&mut self, instance: u32, grant: Option<Grant>, now: Time) {
        if let Some(grant) = grant {
            self.grant(instance, grant);
        }
        self.drain(instance, now);
    }

    #[inline]
    fn grant(&mut self, instance: u32, grant: Grant) {
        let conn = self.pools[instance as usize].conns[grant.server.slot()];
        let client = u32::try_from(grant.waiter.0).expect("a client's number");
        self.changes.push_back(Change::Grant { conn, client, waited: grant.waited });
    }

    #[cold]
    fn fail(&mut self, client: u32, reason: CheckOutFailed, waited: Duration) {
        let (kind, timed_out) = match reason {
            CheckOutFailed::Timeout => ("check-out timeout", true),
            CheckOutFailed::Unavailable => ("check-out unavailable", true),
            CheckOutFailed::Refused | CheckOutFailed::UnknownDatabase => ("check-out refused", false),
            CheckOutFailed::QueueFull => ("check-out queue full", false),
            CheckOutFailed::Paused | CheckOutFailed::PoolCleared | CheckOutFailed::PoolClosed => {
                ("check-out from a closed pool", false)
            }
        };
        self.changes.push_back(Change::Fail { client, kind, waited, timed_out });
    }

    /// Takes the actions of a pool, and what follows from them for others.
    #[inline]
    fn drain(&mut self, at: u32, now: Time) {
        self.drain_one(at, now);
        if self.budget.is_some() {
            self.share(now);
        }
    }

    /// Takes the decisions of the budget.
    fn share(&mut self, now: Time) {
        while let Some(action) = self.budget.as_mut().and_then(Budget::poll_action) {
            let member = action.member();
            let at =
                self.pools.iter().position(|instance| instance.member == Some(member)).expect("a member is a pool");
            let (pool, budget) = (&mut self.pools[at].pool, self.budget.as_mut().expect("one that decides"));
            match action {
                BudgetAction::Grant(_) if !pool.handle_permit(now) => budget.release(member),
                BudgetAction::Reclaim(_, claim) if !pool.reclaim(claim, now) => budget.reclaim_failed(member, claim),
                BudgetAction::Grant(_) | BudgetAction::Reclaim(..) => {}
            }
            self.drain_one(at as u32, now);
        }
    }

    /// Gives the permit of a connection that is gone back to the budget.
    fn release_permit(&mut self, at: u32) {
        if let (Some(budget), Some(member)) = (&mut self.budget, self.pools[at as usize].member) {
            budget.release(member);
        }
    }

    /// Whether a returned connection is to be closed because another pool needs its permit.
    #[inline]
    fn offer_to_budget(&mut self, at: u32, server: ServerId, now: Time) -> bool {
        let instance = &self.pools[at as usize];
        match (&mut self.budget, instance.member) {
            (Some(budget), Some(member)) if instance.pool.can_spare(server, now) => budget.offer_returning(member),
            _ => false,
        }
    }

    #[inline]
    fn drain_one(&mut self, at: u32, now: Time) {
        while let Some(action) = self.pools[at as usize].pool.poll_action() {
            self.act(at, action, now);
        }
        let instance = &mut self.pools[at as usize];
        if !instance.is_filled {
            let counts = instance.pool.counts();
            instance.is_filled = counts.idle + counts.in_use >= instance.pool.config().min_size;
        }
        if let Some(deadline) = instance.pool.poll_deadline().filter(|deadline| *deadline < instance.deadline) {
            self.deadlines.remove(&(instance.deadline, at));
            self.deadlines.insert((deadline, at));
            instance.deadline = deadline;
        }
    }

    fn act(&mut self, at: u32, action: Action, now: Time) {
        let instance = &mut self.pools[at as usize];
        match action {
            Action::AskPermit
            | Action::WithdrawPermit
            | Action::ReportStarvation
            | Action::ReportCongestion
            | Action::ReportSpare => {
                let Some((budget, member)) = self.budget.as_mut().zip(instance.member) else {
                    assert!(matches!(action, Action::AskPermit | Action::WithdrawPermit), "nothing is asked back");
                    // If the pool needs no permit any more, nothing is to be undone: there is no budget.
                    _ = action == Action::AskPermit && instance.pool.handle_permit(now);
                    return;
                };
                match action {
                    Action::AskPermit if budget.request(member) == Permit::Denied => {}
                    Action::AskPermit if !instance.pool.handle_permit(now) => budget.release(member),
                    Action::WithdrawPermit => _ = budget.withdraw(member),
                    Action::ReportStarvation => budget.report_starvation(member),
                    Action::ReportCongestion => budget.report_congestion(member),
                    Action::ReportSpare => budget.report_spare(member),
                    _ => {}
                }
            }
            Action::Connect { server, .. } => {
                let cause = instance.cause(now);
                self.changes.push_back(Change::Connect { instance: at, server, cause });
                // Its number must be known before anything else is decided about it.
                self.opened(at, server, ConnId(u32::MAX));
            }
            Action::Grant(grant) => self.grant(at, grant),
            Action::Fail { waiter, reason, waited, .. } => {
                let client = u32::try_from(waiter.0).expect("a client's number");
                self.fail(client, reason, waited);
            }
            Action::Close { server, reason, .. } => {
                match reason {
                    Closed::Life => instance.note_loss(Cause::Rotation, self.max_idle_time, now),
                    Closed::Error | Closed::Discarded => {
                        instance.note_loss(Cause::Replacement, self.max_idle_time, now)
                    }
                    // There was one connection too many: no later one replaces an earlier one.
                    Closed::Idle => instance.losses.clear(),
                    _ => {}
                }
                let conn = instance.conns[server.slot()];
                self.changes.push_back(Change::Close { conn, reason: reason.as_str() });
            }
            // The engine has no order for these: connections are taken to be well until they turn out not to be.
            Action::Check { server, .. } | Action::Reset { server, .. } => {
                let grant = instance.pool.handle_checked(server, true, HOME, now);
                if let Some(grant) = grant {
                    self.grant(at, grant);
                }
            }
            Action::RequestReturn { .. } => unreachable!("no operation keeps a server for long"),
            Action::Interrupt { .. } => unreachable!("no pool under test is cleared"),
        }
    }
}

impl Instance {
    /// Notes the loss of a connection that was in use or would have been kept.
    fn note_loss(&mut self, cause: Cause, max_idle_time: Duration, now: Time) {
        if self.losses.len() < MAX_SERVERS as usize {
            self.losses.push_back((now + max_idle_time, cause));
        }
    }

    /// Why a connection is wanted now.
    fn cause(&mut self, now: Time) -> Cause {
        while self.losses.front().is_some_and(|(until, _)| *until <= now) {
            self.losses.pop_front();
        }
        if let Some((_, cause)) = self.losses.pop_front() {
            return cause;
        }
        // The new one is among those connecting already.
        let counts = self.pool.counts();
        if counts.waiters >= counts.connecting { Cause::Burst } else { Cause::Minimum }
    }
}
