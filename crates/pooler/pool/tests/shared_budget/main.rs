//! Several pools under one budget, in virtual time. Orders, permits and reclaims take time on their way, and cross.
//!
//! Checked at every event: no cap is exceeded, every permit belongs to a server or is on its way, and the invariants of
//! pools and budget hold. Where there are fewer permits than pools that need one, every pool gets its turn within a
//! bounded time, without opening connections all the time. Where most pools sleep, none waits beside a server that has
//! been idle for long. In the end all pools close, and every permit is back.

mod plan;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use pool::{
    Action, Budget, BudgetAction, CapId, CheckIn, CheckOut, Claim, Clear, Grant, GrantSource, Home, LONG_IDLE_TURNS,
    MemberId, Need, Permit, Pool, Random, ServerId, Ticket, Time, WaiterId,
};

use plan::{Kind, MAX_CLOSING, Plan, Rng};

/// Schedules of each kind; each is drawn from its seed.
const SCHEDULES: u64 = 400;
/// Events before the clients leave.
const EVENTS: u32 = 4000;
/// Events after that, within which everything must have come to rest.
const MAX_CLOSING_EVENTS: u32 = 100_000;

/// What is on its way between a pool, the budget and the workers.
#[derive(Debug)]
enum Letter {
    Order(Action),
    Permit,
    Reclaim(Claim),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Event {
    /// A client wants a server.
    Ask(usize),
    Done(usize, ServerId),
    Connected(usize, ServerId),
    Closed(usize, ServerId),
    Checked(usize, ServerId),
    Letter(usize),
    Timeout(usize),
    Trouble,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Is {
    Connecting,
    Idle(Time),
    InUse,
    Checking,
    Closing,
}

#[derive(Clone, Copy)]
struct Waiting {
    client: usize,
    ticket: Ticket,
    since: Time,
}

struct Member {
    pool: Pool,
    id: MemberId,
    letters: VecDeque<(Time, Letter)>,
    /// Permits on their way to the pool.
    permits_sent: u32,
    /// Permits on their way for which the pool has withdrawn its request; a new request takes one instead of asking
    /// again. Negative while the withdrawal is on its way of a request whose permit the pool has refused.
    unwanted: i32,
    servers: BTreeMap<usize, (ServerId, Is)>,
    waiting: BTreeMap<u64, Waiting>,
    /// When a waiter last got a server.
    served: Time,
    /// Since when there have been waiters.
    queued: Time,
    connects: u64,
    timeout_at: Time,
}

struct Fleet {
    plan: Plan,
    rng: Rng,
    now: Time,
    agenda: BTreeMap<(Time, u64), Event>,
    events: u64,
    budget: Budget,
    cap: CapId,
    members: Vec<Member>,
    /// Numbers all waiters.
    waiters: u64,
    closing: bool,
}

impl Fleet {
    fn new(plan: Plan, mut rng: Rng) -> Self {
        let mut budget = Budget::new();
        let cap = budget.add_cap(plan.permits);
        let roomy = [budget.add_cap(0), budget.add_cap(0)];
        let member = |at: usize| Member {
            pool: Pool::new(plan.config.clone(), rng.0.bits(), Time(0)),
            id: budget.add_member(&[cap, roomy[at % 2]]),
            letters: VecDeque::new(),
            permits_sent: 0,
            unwanted: 0,
            servers: BTreeMap::new(),
            waiting: BTreeMap::new(),
            served: Time(0),
            queued: Time(0),
            connects: 0,
            timeout_at: Time::NEVER,
        };
        let members = (0..plan.pools).map(member).collect();
        let (now, agenda) = (Time(0), BTreeMap::new());
        let mut fleet = Self { plan, rng, now, agenda, events: 0, budget, cap, members, waiters: 0, closing: false };
        for at in 0..fleet.members.len() {
            fleet.members[at].pool.ready(fleet.now);
            fleet.send_orders(at);
        }
        for client in 0..fleet.plan.pools * fleet.plan.clients_of_each {
            fleet.ask_after(Duration::ZERO, client);
        }
        if fleet.plan.kind == Kind::Rough {
            fleet.after(Duration::from_micros(1), Event::Trouble);
        }
        fleet
    }

    fn after(&mut self, after: Duration, event: Event) {
        self.events += 1;
        self.agenda.insert((self.now + after, self.events), event);
    }

    fn run(mut self) {
        for _ in 0..EVENTS {
            assert!(self.step(), "nothing will happen any more");
        }
        self.check_connects();
        self.closing = true;
        for at in 0..self.members.len() {
            self.members[at].pool.close(self.now);
            self.send_orders(at);
        }
        for at in 0..self.members.len() {
            let used = self.members[at].servers.values().filter(|(_, is)| *is == Is::InUse);
            for server in used.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.after(Duration::from_nanos(1), Event::Done(at, server));
            }
        }
        for _ in 0..MAX_CLOSING_EVENTS {
            if !self.step() {
                break;
            }
        }
        assert_eq!(self.budget.usage(self.cap), (0, self.plan.permits), "permits are lost");
        let resting = |member: &Member| member.servers.is_empty() && member.waiting.is_empty();
        assert!(self.members.iter().all(resting), "a closed pool still has servers or waiters");
    }

    fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.agenda.pop_first() else { return false };
        self.now = at;
        match event {
            Event::Ask(client) => self.ask(client),
            Event::Done(at, server) => self.done(at, server),
            Event::Connected(at, server) => self.connected(at, server),
            Event::Checked(at, server) if self.state(at, server) == Some(Is::Checking) => {
                self.set(at, server, Is::Idle(self.now));
                let grant = self.members[at].pool.handle_checked(server, true, Home(0), self.now);
                self.granted_now(at, grant);
            }
            Event::Closed(at, server) if self.state(at, server).is_some() => {
                self.members[at].pool.handle_closed(server, self.now);
                self.gone(at, server);
            }
            Event::Timeout(at) if self.members[at].timeout_at <= self.now => {
                self.members[at].timeout_at = Time::NEVER;
                self.members[at].pool.handle_timeout(self.now);
                self.send_orders(at);
            }
            Event::Trouble if !self.closing => self.trouble(),
            Event::Closed(..) | Event::Checked(..) | Event::Timeout(_) | Event::Trouble | Event::Letter(_) => {}
        }
        self.deliver();
        for at in 0..self.members.len() {
            self.set_timeout(at);
        }
        self.check();
        true
    }

    fn set_timeout(&mut self, at: usize) {
        let deadline = self.members[at].pool.poll_deadline().unwrap_or(Time::NEVER);
        if deadline < self.members[at].timeout_at {
            let late = Duration::from_nanos(self.rng.within(0, self.plan.late.as_nanos() as u64));
            self.members[at].timeout_at = deadline;
            self.after((deadline - self.now) + late, Event::Timeout(at));
        }
    }

    // ---- clients ----

    /// The client asks for a server after this long, and the time that it thinks.
    fn ask_after(&mut self, busy: Duration, client: usize) {
        let sleepy = self.plan.kind == Kind::Sleepy && !client.is_multiple_of(self.plan.pools);
        let thinks = self.rng.around(if sleepy { self.plan.doze } else { self.plan.think });
        self.after(busy + thinks, Event::Ask(client));
    }

    fn ask(&mut self, client: usize) {
        if self.closing {
            return;
        }
        self.waiters += 1;
        let (at, id) = (client % self.plan.pools, WaiterId(self.waiters));
        let need = if self.plan.kind == Kind::Rough && self.rng.percent(3) { Need::Fresh } else { Need::Any };
        match self.members[at].pool.check_out_for(id, Home(0), need, self.now) {
            CheckOut::Granted(grant) => {
                self.send_orders(at);
                self.hold(at, client, grant.server);
                self.members[at].served = self.now;
            }
            CheckOut::Queued(ticket) => {
                let member = &mut self.members[at];
                if member.waiting.is_empty() {
                    member.queued = self.now;
                }
                member.waiting.insert(id.0, Waiting { client, ticket, since: self.now });
                self.send_orders(at);
            }
            CheckOut::Failed(why) => panic!("a client is refused: {why:?}"),
        }
    }

    fn hold(&mut self, at: usize, client: usize, server: ServerId) {
        assert!(matches!(self.state(at, server), Some(Is::Idle(_))), "{server:?} is granted and is not idle");
        self.set(at, server, Is::InUse);
        let hold = self.rng.around(self.plan.hold);
        // The keepers are the first clients of the first pool.
        if !(client.is_multiple_of(self.plan.pools) && client / self.plan.pools < self.plan.keepers) {
            self.after(hold, Event::Done(at, server));
            self.ask_after(hold, client);
        }
    }

    fn done(&mut self, at: usize, server: ServerId) {
        if self.state(at, server) != Some(Is::InUse) {
            return;
        }
        let member = &mut self.members[at];
        let spares = member.pool.can_spare(server, self.now) && self.budget.offer_returning(member.id);
        let how = if spares { CheckIn::Reclaim } else { CheckIn::Clean };
        let how = if self.plan.kind == Kind::Rough && !spares && self.rng.percent(10) { CheckIn::Reset } else { how };
        self.set(at, server, Is::Idle(self.now));
        let grant = self.members[at].pool.check_in(server, Home(0), how, self.now);
        self.granted_now(at, grant);
    }

    /// A grant that a call of the pool returned.
    fn granted_now(&mut self, at: usize, grant: Option<Grant>) {
        if let Some(grant) = grant {
            self.granted(at, grant);
        }
        self.send_orders(at);
    }

    fn granted(&mut self, at: usize, grant: Grant) {
        let waiting = self.members[at].waiting.remove(&grant.waiter.0).expect("a grant for a waiter");
        self.members[at].served = self.now;
        self.hold(at, waiting.client, grant.server);
        if grant.source == GrantSource::Queued {
            self.check_long_idle(at);
        }
    }

    // ---- servers ----

    fn state(&self, at: usize, server: ServerId) -> Option<Is> {
        self.members[at].servers.get(&server.slot()).filter(|(id, _)| *id == server).map(|(_, is)| *is)
    }

    fn set(&mut self, at: usize, server: ServerId, is: Is) {
        assert!(self.state(at, server).is_some(), "{server:?} is gone");
        self.members[at].servers.insert(server.slot(), (server, is));
    }

    fn connected(&mut self, at: usize, server: ServerId) {
        let Some(is) = self.state(at, server) else { return };
        if self.plan.kind == Kind::Rough && self.rng.percent(10) {
            self.members[at].pool.handle_connect_failed(server, false, self.now);
            return self.gone(at, server);
        }
        if is == Is::Connecting {
            self.set(at, server, Is::Idle(self.now));
        }
        let grant = self.members[at].pool.handle_connected(server, Home(0), self.now);
        self.granted_now(at, grant);
    }

    /// A server is gone, and its permit goes back.
    fn gone(&mut self, at: usize, server: ServerId) {
        self.members[at].servers.remove(&server.slot());
        self.budget.release(self.members[at].id);
        self.send_orders(at);
    }

    /// A server dies, a waiter leaves, or a pool is cleared.
    fn trouble(&mut self) {
        let at = self.rng.within(0, self.plan.pools as u64 - 1) as usize;
        let lot = self.rng.0.bits() as usize;
        let member = &mut self.members[at];
        match lot % 8 {
            0 => member.pool.clear(Clear::default(), self.now),
            1..=3 if !member.waiting.is_empty() => {
                let id = *member.waiting.keys().nth(lot / 8 % member.waiting.len()).expect("in range");
                let Waiting { client, ticket, .. } = member.waiting[&id];
                if member.pool.cancel(ticket, WaiterId(id), self.now).is_some() {
                    member.waiting.remove(&id);
                    self.ask_after(Duration::ZERO, client);
                }
            }
            4..=5 if !member.servers.is_empty() => {
                let (server, is) = *member.servers.values().nth(lot / 8 % member.servers.len()).expect("in range");
                if is != Is::InUse {
                    member.pool.handle_lost(server, self.now);
                    self.gone(at, server);
                }
            }
            _ => {}
        }
        self.send_orders(at);
        let after = self.rng.micros(1, 100);
        self.after(after, Event::Trouble);
    }

    // ---- letters ----

    /// Sends what the pool has ordered. What the checks know of servers changes at once.
    fn send_orders(&mut self, at: usize) {
        while let Some(action) = self.members[at].pool.poll_action() {
            match action {
                Action::Connect { server, .. } => {
                    let before = self.members[at].servers.insert(server.slot(), (server, Is::Connecting));
                    assert!(before.is_none(), "two servers in one slot");
                    self.members[at].connects += 1;
                }
                Action::Close { server, .. } => self.set(at, server, Is::Closing),
                Action::Check { server, .. } | Action::Reset { server, .. } => self.set(at, server, Is::Checking),
                // The grant counts from now on, or the pool would seem to serve no client while it is on its way.
                Action::Grant(grant) => {
                    self.granted(at, grant);
                    continue;
                }
                _ => {}
            }
            self.send(at, Letter::Order(action));
        }
    }

    fn send(&mut self, at: usize, letter: Letter) {
        let delay = Duration::from_nanos(self.rng.within(0, self.plan.delay.as_nanos() as u64));
        let before = self.members[at].letters.back().map_or(Time(0), |(at, _)| *at);
        let due = before.max(self.now + delay);
        self.members[at].letters.push_back((due, letter));
        self.after(due - self.now, Event::Letter(at));
    }

    /// Delivers what has arrived, and what comes of it.
    fn deliver(&mut self) {
        loop {
            while let Some(action) = self.budget.poll_action() {
                let at = self.members.iter().position(|member| member.id == action.member()).expect("a member");
                match action {
                    BudgetAction::Grant(_) => self.send_permit(at),
                    BudgetAction::Reclaim(_, claim) => self.send(at, Letter::Reclaim(claim)),
                }
            }
            let now = self.now;
            let due = |member: &Member| member.letters.front().is_some_and(|(at, _)| *at <= now);
            let Some(at) = self.members.iter().position(due) else { return };
            let (_, letter) = self.members[at].letters.pop_front().expect("a letter that is due");
            self.open(at, letter);
        }
    }

    fn send_permit(&mut self, at: usize) {
        self.members[at].permits_sent += 1;
        self.send(at, Letter::Permit);
    }

    fn open(&mut self, at: usize, letter: Letter) {
        let now = self.now;
        let member = &mut self.members[at];
        match letter {
            Letter::Order(action) => return self.execute(at, action),
            Letter::Permit => {
                member.permits_sent -= 1;
                if !member.pool.handle_permit(now) {
                    member.unwanted -= 1;
                    self.budget.release(member.id);
                }
            }
            Letter::Reclaim(claim) => {
                if !member.pool.reclaim(claim, now) {
                    self.budget.reclaim_failed(member.id, claim);
                }
            }
        }
        self.send_orders(at);
    }

    fn execute(&mut self, at: usize, action: Action) {
        let member = &mut self.members[at];
        match action {
            Action::AskPermit if member.unwanted > 0 => member.unwanted -= 1,
            Action::AskPermit => {
                if self.budget.request(member.id) == Permit::Granted {
                    self.send_permit(at);
                }
            }
            Action::WithdrawPermit => {
                // A request that cannot be withdrawn has been granted, and its permit is on its way.
                let withdrawn = self.budget.withdraw(member.id);
                member.unwanted += i32::from(!withdrawn);
            }
            Action::ReportStarvation => self.budget.report_starvation(member.id),
            Action::ReportCongestion => self.budget.report_congestion(member.id),
            Action::ReportSpare => self.budget.report_spare(member.id),
            Action::Connect { server, .. } => {
                let after = self.rng.around(self.plan.connect);
                self.after(after, Event::Connected(at, server));
            }
            Action::Close { server, .. } => {
                let after = self.rng.around(MAX_CLOSING / 2);
                self.after(after, Event::Closed(at, server));
            }
            Action::Check { server, .. } | Action::Reset { server, .. } => {
                let after = self.rng.around(self.plan.connect);
                self.after(after, Event::Checked(at, server));
            }
            Action::Fail { waiter, .. } => {
                assert!(self.closing, "a waiter fails");
                member.waiting.remove(&waiter.0).expect("a waiter that fails once");
            }
            Action::Grant(_) => unreachable!("a grant is not sent"),
            Action::Interrupt { .. } | Action::RequestReturn { .. } => panic!("nothing asks for {action:?}"),
        }
    }

    // ---- checks ----

    fn check(&self) {
        self.budget.check_invariants();
        let mut used = 0;
        for member in &self.members {
            member.pool.check_invariants();
            let has = member.servers.len() as u32 + member.permits_sent;
            assert_eq!(self.budget.member_usage(member.id).0, has, "a permit belongs to no server");
            used += has;
        }
        assert_eq!(self.budget.usage(self.cap), (used, self.plan.permits));
        assert!(used <= self.plan.permits, "{used} connections under a cap of {}", self.plan.permits);
        if self.plan.kind != Kind::Rough && !self.closing {
            self.check_turns();
        }
    }

    /// Every pool whose clients wait is served within a bounded time.
    fn check_turns(&self) {
        for (at, member) in self.members.iter().enumerate() {
            let Some(first) = member.waiting.values().map(|waiting| waiting.since).min() else { continue };
            let unserved = self.now - first.max(member.served);
            assert!(unserved <= self.plan.longest_without_service(), "pool {at} starves: unserved for {unserved:?}");
        }
    }

    /// A pool whose servers come back, and whose clients have waited for long all the same, gets what others have not
    /// used for long.
    fn check_long_idle(&self, at: usize) {
        let poor = &self.members[at];
        let turn = self.plan.config.turn;
        let pressed = self.now - poor.queued > turn * 2 && !poor.waiting.is_empty();
        let coming = |member: &Member| {
            member.permits_sent > 0 || member.servers.values().any(|(_, is)| matches!(is, Is::Connecting | Is::Closing))
        };
        if self.plan.kind != Kind::Sleepy || self.closing || !pressed || self.members.iter().any(coming) {
            return;
        }
        // The pool presses now and then, and another may have begun to sleep since.
        let long_idle = |is: &Is| matches!(is, Is::Idle(since) if self.now - *since >= turn * (LONG_IDLE_TURNS + 1));
        let sleeps = self.members.iter().position(|member| member.servers.values().any(|(_, is)| long_idle(is)));
        assert_eq!(sleeps, None, "pool {at} waits, and another does not use what it has");
    }

    /// Pools that take turns do not open connections all the time.
    fn check_connects(&self) {
        if self.plan.kind == Kind::Rough {
            return;
        }
        let turns = self.now.0 / self.plan.config.turn.as_nanos() as u64 + 1;
        let connects: u64 = self.members.iter().map(|member| member.connects).sum();
        let most = (turns + 1) * u64::from(self.plan.permits) * 4;
        assert!(connects <= most, "{connects} connections are opened in {turns} turns");
    }
}

/// Tells the seed of a schedule that fails.
struct Seed(Kind, u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{:?}, seed {}", self.0, self.1);
        }
    }
}

fn play(kind: Kind) {
    for seed in 0..SCHEDULES {
        let _seed = Seed(kind, seed);
        let mut rng = Rng(Random::new(seed));
        Fleet::new(Plan::draw(kind, &mut rng), rng).run();
    }
}

#[test]
fn pools_with_fewer_permits_than_they_need_take_turns() {
    play(Kind::Scarce);
}

#[test]
fn a_busy_pool_gets_what_sleeping_pools_do_not_use() {
    play(Kind::Sleepy);
}

#[test]
fn no_permit_is_lost_or_exceeded_whatever_goes_wrong() {
    play(Kind::Rough);
}
