//! Thousands of clients over pools that share one budget, in virtual time, with everything that goes wrong: connects
//! that fail, servers that die, clients that leave at any moment, pauses, clears, changes of options, orders that
//! arrive late. After every step the pools, the budget and the gate are compared with what the world itself knows. It
//! reads no bytes and knows no protocol.

mod chaos;
mod clients;
mod door;
mod oracle;
mod orders;
mod plan;
mod trouble;

use std::{collections::VecDeque, time::Duration};

use pool::{Action, Budget, MemberId, PauseMode, Pool, ScopeId, ServerId, Time};

use self::{clients::Client, door::Door, oracle::Oracle, plan::Plan, trouble::Host};
use crate::{agenda::Agenda, random::Rng};

/// A defect of the driver built in on purpose, to prove that the checks can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// None.
    None,
    /// A grant is given to whoever waits next, too.
    GrantTwice,
    /// A failure never reaches its waiter.
    ForgetFailure,
    /// A permit is not given back.
    KeepPermit,
    /// The pool is permitted what the budget was not asked for.
    ConnectWithoutPermit,
    /// Time-outs are not handled.
    ForgetTimeouts,
    /// Somebody waiting is taken to be served in strict order.
    ExpectStrictOrder,
    /// A wish reaches the budget although a permit that fulfils it is on its way.
    RememberTooMuch,
    /// A client that has left does not check its server in.
    KeepServer,
    /// A server is checked in although a cancel request for it is under way.
    LendWithheld,
    /// A client that keeps its server checks it in all the same.
    LendPinned,
    /// The budget does not hear of those who have waited for long.
    ForgetInsisting,
    /// No server is closed for another pool when it comes back.
    KeepLast,
    /// The budget does not hear of those who have too few servers.
    ForgetPressing,
}

/// What happens at some time. A visit tells whether a client is still where it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Arrive(u32),
    /// A client wants a server.
    Ask(u32, u64),
    /// A client is done with its server.
    Done(u32, u64),
    /// A connection is open, or not.
    Dialled(usize, ServerId),
    /// A check or reset is over.
    Checked(usize, ServerId),
    Closed(usize, ServerId),
    /// A letter to or from a pool arrives.
    Mail,
    Timeout(usize),
    /// Something is done to the world.
    Chaos,
    /// Something befalls a database, or is ordered.
    Trouble,
    /// A database answers again, or has died.
    HostBack(usize),
    /// The end of a connection is noticed.
    Lost(usize, ServerId),
    /// A cancel request for a server that this waiter had is over.
    SideEnds(usize, ServerId, u64),
    /// A pool that is drained is looked after.
    Upkeep(usize),
    /// All options change, so many times.
    Reload(u32),
}

/// What is on its way between pool and budget and workers.
#[derive(Clone, Copy, Debug)]
enum Letter {
    Order(Action),
    Permit,
    /// A wish of the budget to have one back.
    Reclaim,
    /// The same, for one that nobody uses.
    ReclaimUnused,
}

struct Post {
    pool: Pool,
    oracle: Oracle,
    member: MemberId,
    scopes: Vec<usize>,
    /// Which database it is of.
    host: usize,
    /// Clients that keep their servers.
    pins: u32,
    /// It is to become empty.
    drained: bool,
    /// Its least number of servers while it is not.
    least: u32,
    /// In the order of sending.
    mail: VecDeque<(Time, Letter)>,
    /// Permits of the budget on their way to the pool.
    permits_sent: u32,
    /// Since when it has wished for more permits, and got none.
    wishes_since: Time,
    /// When a time-out is on the agenda.
    alarm: Time,
    closed: bool,
    /// Permits on their way that the pool has withdrawn its wish for. The next wish must not reach the budget: such a
    /// permit fulfils it, and the budget would remember one too many. Negative while a withdrawal is still on its way
    /// whose permit was refused.
    unasked: i32,
}

/// What a schedule came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    pub steps: u64,
    pub decided: [u64; 2],
    /// Check-outs that were given up by who made them.
    pub cancelled: u64,
}

/// Events after the storm within which the world must come to rest.
const MAX_CALM: u64 = 1_000_000;
/// Letters in a moment beyond which pools and budget keep each other busy.
const MAX_LETTERS: usize = 100_000;

/// Of so many worlds one is a world in which pools take turns, and one is a world in which most pools sleep.
const SPECIAL: u64 = 32;

/// Runs one schedule of so many steps before the calm; panics if something is wrong.
pub fn run(seed: u64, steps: Option<u64>, fault: Fault, trace: bool) -> Tally {
    let mut rng = Rng::new(seed);
    let mut trouble_rng = Rng::new(seed ^ 0x5c1e5);
    let mut plan = match seed % SPECIAL {
        0 => plan::tight(&mut rng),
        1 => plan::drowsy(&mut rng),
        _ => Plan { trouble: plan::trouble(&mut trouble_rng), ..plan::plan(&mut rng) },
    };
    plan.steps = steps.unwrap_or(plan.steps);
    run_plan(plan, rng, trouble_rng, seed, fault, trace)
}

fn run_plan(plan: Plan, rng: Rng, trouble_rng: Rng, seed: u64, fault: Fault, trace: bool) -> Tally {
    if trace {
        println!("{plan:#?}");
    }
    World::new(plan, rng, trouble_rng, seed, fault, trace).run()
}

struct World {
    plan: Plan,
    rng: Rng,
    /// Chance for the trouble.
    trouble_rng: Rng,
    hosts: Vec<Host>,
    no_descriptors_until: Time,
    agenda: Agenda<Event>,
    posts: Vec<Post>,
    budget: Budget,
    /// The caps, their limits, and the most they may be used to (more than the limit after that was lowered).
    scopes: Vec<(ScopeId, u32, u32)>,
    door: Door,
    clients: Vec<Client>,
    /// Numbers all check-outs.
    waiters: u64,
    calm: bool,
    fault: Fault,
    trace: bool,
    cancelled: u64,
}

impl World {
    fn new(plan: Plan, mut rng: Rng, trouble_rng: Rng, seed: u64, fault: Fault, trace: bool) -> Self {
        let mut budget = Budget::new();
        let limits = [plan.caps.process].into_iter().chain(plan.caps.databases.clone()).chain(plan.caps.users.clone());
        let scopes: Vec<_> = limits.map(|limit| (budget.add_scope(limit), limit, limit)).collect();
        let now = Time(0);
        let mut posts = Vec::new();
        for pool in &plan.pools {
            let scopes_of = vec![0, 1 + pool.database, 1 + plan.caps.databases.len() + pool.user];
            let ids: Vec<_> = scopes_of.iter().map(|&s| scopes[s].0).collect();
            posts.push(Post {
                pool: Pool::new(pool.config.clone(), rng.next(), now),
                oracle: Oracle::new(pool.config.clone(), fault == Fault::ExpectStrictOrder, now),
                member: budget.add_member(&ids),
                scopes: scopes_of,
                host: pool.database,
                pins: 0,
                drained: false,
                least: pool.config.min_size,
                mail: VecDeque::new(),
                permits_sent: 0,
                wishes_since: now,
                alarm: Time::NEVER,
                closed: false,
                unasked: 0,
            });
        }
        let door = Door::new(plan.gate, plan.homes);
        let clients = (0..plan.clients).map(|_| Client::new(plan.check_outs)).collect();
        let agenda = Agenda::new(seed ^ 0xa9e4da);
        let hosts = vec![Host::new(); plan.caps.databases.len()];
        Self {
            plan,
            rng,
            trouble_rng,
            hosts,
            no_descriptors_until: Time(0),
            agenda,
            posts,
            budget,
            scopes,
            door,
            clients,
            waiters: 0,
            calm: false,
            fault,
            trace,
            cancelled: 0,
        }
    }

    fn tell(&self, line: impl FnOnce() -> String) {
        if self.trace {
            println!("{:>12} {}", self.now().0, line());
        }
    }

    fn now(&self) -> Time {
        self.agenda.now()
    }

    /// The time that a caller of a pool believes it to be.
    fn clock(&mut self, pool: usize) -> Time {
        let mut now = self.now();
        if self.plan.skewed && self.rng.percent(20) {
            now = Time(now.0.saturating_sub(self.rng.below(5_000)));
        }
        self.posts[pool].oracle.tick(now)
    }

    fn run(mut self) -> Tally {
        let mut tally = Tally::default();
        for client in 0..self.plan.clients {
            let after = self.rng.around(self.plan.think);
            self.agenda.after(after, Event::Arrive(client));
        }
        for pool in 0..self.posts.len() {
            if self.plan.fair_within.is_some() || self.rng.percent(90) {
                self.ready(pool);
            }
        }
        if let Some(mean) = self.plan.chaos {
            let after = self.rng.around(mean);
            self.agenda.after(after, Event::Chaos);
        }
        if let Some(trouble) = self.plan.trouble {
            let after = self.trouble_rng.around(trouble.every);
            self.agenda.after(after, Event::Trouble);
        }
        self.settle();
        while tally.steps < self.plan.steps && self.step() {
            tally.steps += 1;
        }
        self.check_connects();
        self.calm(&mut tally);
        for post in &self.posts {
            tally.decided = [0, 1].map(|i| tally.decided[i] + post.oracle.decided[i]);
        }
        tally.cancelled = self.cancelled;
        tally
    }

    /// One event. False: nothing will ever happen again.
    fn step(&mut self) -> bool {
        let Some(event) = self.agenda.pop() else { return false };
        self.tell(|| format!("{event:?}"));
        match event {
            Event::Arrive(client) => self.arrive(client),
            Event::Ask(client, visit) => self.ask(client, visit),
            Event::Done(client, visit) => self.done(client, visit),
            Event::Dialled(pool, server) => self.dialled(pool, server),
            Event::Checked(pool, server) => self.checked(pool, server),
            Event::Closed(pool, server) => self.closed(pool, server),
            Event::Mail => {}
            Event::Timeout(pool) => self.timeout(pool),
            Event::Trouble => self.trouble(),
            Event::HostBack(host) => self.host_back(host),
            Event::Lost(pool, server) => self.lost(pool, server),
            Event::SideEnds(pool, server, waiter) => self.side_ends(pool, server, waiter),
            Event::Upkeep(pool) => self.upkeep(pool),
            Event::Reload(left) => self.reload(left),
            Event::Chaos if self.calm => {}
            Event::Chaos => {
                self.chaos();
                let after = self.rng.around(self.plan.chaos.expect("chaos has a rate"));
                self.agenda.after(after, Event::Chaos);
            }
        }
        self.settle();
        true
    }

    /// Delivers what is due, sets the alarms, and checks everything.
    fn settle(&mut self) {
        self.deliver();
        for pool in 0..self.posts.len() {
            self.set_alarm(pool);
        }
        self.check();
    }

    fn set_alarm(&mut self, pool: usize) {
        let deadline = self.posts[pool].pool.poll_deadline().unwrap_or(Time::NEVER);
        if deadline < self.posts[pool].alarm && self.fault != Fault::ForgetTimeouts {
            self.posts[pool].alarm = deadline;
            let late = self.rng.below(self.plan.late.as_nanos() as u64 + 1);
            self.agenda.at(deadline + Duration::from_nanos(late), Event::Timeout(pool));
        }
    }

    fn timeout(&mut self, pool: usize) {
        let now = self.now();
        // Only the alarm that was set last is due; those before it were for later dead-lines.
        let post = &mut self.posts[pool];
        if post.alarm > now {
            return;
        }
        post.alarm = Time::NEVER;
        let due = post.pool.poll_deadline();
        let now = post.oracle.tick(now);
        post.pool.handle_timeout(now);
        self.pump(pool, None);
        if self.plan.late.is_zero() && due.is_some_and(|d| d <= now) {
            let next = self.posts[pool].pool.poll_deadline();
            assert!(next.is_none_or(|d| d > now), "pool {pool}: a dead-line does not pass: {next:?} at {now:?}");
        }
    }

    fn check(&mut self) {
        let now = self.now();
        // A clock that is behind lets time-outs be late, too.
        let skew = if self.plan.skewed { Duration::from_micros(5) } else { Duration::ZERO };
        for post in &mut self.posts {
            post.oracle.check(&post.pool, now, self.plan.late + skew);
            let (used, wishes) = self.budget.member_usage(post.member);
            if post.mail.is_empty() {
                assert!(post.unasked >= 0, "a permit was refused that the pool had asked for");
                post.oracle.check_wishes(wishes, post.permits_sent, post.unasked as u32);
            }
            assert_eq!(used, post.oracle.permits + post.permits_sent, "permits are lost or made up");
            if wishes == 0 {
                post.wishes_since = now;
            }
        }
        self.budget.check_invariants();
        for (scope, &mut (id, limit, ref mut ceiling)) in self.scopes.iter_mut().enumerate() {
            let posts = self.posts.iter().filter(|p| p.scopes.contains(&scope));
            let used: u32 = posts.map(|p| p.oracle.permits + p.permits_sent).sum();
            assert_eq!(self.budget.usage(id), (used, limit), "the budget counts otherwise under cap {scope}");
            *ceiling = limit.max((*ceiling).min(used));
            assert!(limit == 0 || used <= *ceiling, "{used} connections under a cap of {limit}");
        }
        self.door.check();
        self.check_pins();
        self.check_turns();
        self.check_unused();
    }

    /// No pool waits for a permit beside one that has a server which nobody uses: that one is being closed, or another.
    fn check_unused(&self) {
        if self.plan.doze.is_none() || self.calm {
            return;
        }
        let now = self.now();
        // A pool may press a moment after it could, and so may find another one awake that falls asleep in this moment.
        let turn = self.plan.pools[0].config.turn;
        let presses = |post: &Post| now - post.wishes_since > turn && post.oracle.clock == now && post.oracle.lacks();
        let coming = |post: &Post| post.permits_sent > 0 || post.pool.counts().closing > 0;
        if self.posts.iter().any(coming) {
            return;
        }
        let Some(poor) = self.posts.iter().position(presses) else { return };
        let sleeps = self.posts.iter().position(|post| post.oracle.has_unused(now, 1));
        assert_eq!(sleeps, None, "pool {poor} waits, and another does not use what it has");
    }

    /// No pool starves beside others that are served, and none opens connections for nothing.
    fn check_turns(&self) {
        let Some(longest) = self.plan.fair_within.filter(|_| !self.calm) else { return };
        for (pool, post) in self.posts.iter().enumerate().filter(|(_, post)| !post.oracle.on_hold) {
            let starved = post.oracle.waits_since().map_or(Duration::ZERO, |since| self.now() - since);
            assert!(starved <= longest, "pool {pool} starves: nobody there was served for {starved:?}");
        }
    }

    /// Taking turns does not mean opening connections all the time.
    fn check_connects(&self) {
        // A reset that fails costs a connection, too.
        if self.plan.fair_within.is_none() || self.plan.resets > 0 {
            return;
        }
        let turns = self.now().0 / self.plan.pools[0].config.turn.as_nanos() as u64 + 1;
        let connects: u64 = self.posts.iter().map(|post| post.oracle.connects).sum();
        let permits = u64::from(self.plan.caps.process - self.plan.keepers);
        let most = (turns + 1) * permits * 4;
        assert!(connects <= most, "{connects} connections are opened in {turns} turns of {permits} servers");
    }

    fn ready(&mut self, pool: usize) {
        let now = self.clock(pool);
        self.posts[pool].oracle.failing = false;
        self.posts[pool].oracle.on_hold = false;
        self.posts[pool].pool.ready(now);
        self.pump(pool, None);
    }

    fn pause(&mut self, pool: usize, hold: PauseMode) {
        let now = self.clock(pool);
        self.posts[pool].oracle.failing = hold == PauseMode::FailWaiters;
        self.posts[pool].oracle.on_hold = true;
        self.posts[pool].pool.pause(hold, now);
        self.pump(pool, None);
    }

    /// The faults end, and everybody leaves when they have what they came for; then the pools are emptied.
    fn calm(&mut self, tally: &mut Tally) {
        self.tell(|| "the storm is over".into());
        self.calm = true;
        self.plan.unreachable = 0;
        for pool in 0..self.posts.len() {
            self.resume(pool);
        }
        self.settle();
        let busy = |world: &Self| world.posts.iter().any(|p| !p.oracle.waits.is_empty() || p.pool.counts().in_use > 0);
        for client in &mut self.clients {
            client.left = client.left.min(2);
        }
        self.end_keeping();
        self.rest(tally, |world| busy(world) || world.clients.iter().any(Client::is_inside));
        self.check_filled(tally);
        for pool in 0..self.posts.len() {
            self.close(pool);
        }
        self.settle();
        self.rest(tally, |world| world.posts.iter().any(|p| p.pool.counts().total > 0 || !p.mail.is_empty()));
        for post in &self.posts {
            assert_eq!(self.budget.member_usage(post.member), (0, 0), "a closed and empty pool wants or has permits");
            self.budget.remove_member(post.member);
        }
        for (scope, limit, _) in &self.scopes {
            assert_eq!(self.budget.usage(*scope), (0, *limit), "a permit has leaked");
        }
        self.budget.check_invariants();
    }

    /// Time passes until `busy` is false.
    fn rest(&mut self, tally: &mut Tally, busy: impl Fn(&Self) -> bool) {
        for _ in 0..MAX_CALM {
            if !busy(self) {
                return;
            }
            tally.steps += 1;
            if !self.step() {
                break;
            }
        }
        panic!("{}", self.restless());
    }

    /// Why the world does not come to rest.
    fn restless(&self) -> String {
        let mut why = String::from("the world does not come to rest");
        for (i, post) in self.posts.iter().enumerate() {
            let told = post.oracle.waits.values().any(|w| w.decided && post.mail.is_empty());
            let starves = post.oracle.waits.values().any(|w| !w.decided);
            let counts = post.pool.counts();
            for (is, words) in [
                (told, "the answer to a waiter is lost"),
                (starves, "a waiter waits for ever"),
                (counts.in_use > 0, "a server is kept"),
                (counts.connecting + counts.checking + counts.closing > 0, "servers come and go"),
            ] {
                if is {
                    why += &format!("; pool {i}: {words}");
                }
            }
            why +=
                &format!("; pool {i} has {counts:?}, permits and wishes {:?}", self.budget.member_usage(post.member));
        }
        why
    }

    /// A pool that nothing hinders has its least number of servers.
    fn check_filled(&mut self, tally: &mut Tally) {
        let free = self.scopes.iter().all(|s| s.1 == 0);
        let connect = self.plan.connect * 21;
        let bad = |post: &Post| {
            let (counts, config) = (post.pool.counts(), post.pool.config());
            // Servers that are renewed sooner than all of them can be connected are never all there.
            let shortest = config.max_life_time.map(|life| life.mul_f32(1.0 - config.life_time_jitter));
            let outlive = shortest.is_none_or(|life| life > connect * config.min_size);
            !post.closed && outlive && counts.total - counts.closing < config.min_size
        };
        if free && self.plan.pools.iter().all(|p| p.config.connect_timeout > connect) && !self.plan.changes {
            self.rest(tally, |world| world.posts.iter().any(bad));
        }
    }

    fn close(&mut self, pool: usize) {
        let now = self.clock(pool);
        self.posts[pool].closed = true;
        self.posts[pool].pool.close(now);
        self.pump(pool, None);
    }
}

#[cfg(test)]
mod tests;
