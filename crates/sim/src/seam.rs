//! Toy protocols in a virtual driver, over real pools: cuts byte streams at random places, kills clients and servers at
//! random moments, and checks that every request is answered or fails exactly once, that no reply reaches another
//! client, that no server changes hands with anything of its last user in it. It knows the toys; they do not know it.

mod app;
mod books;
mod connection;
mod driver;
mod host;
mod ledger;
mod traffic;
mod upstream;
mod weather;

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use pool::{PoolConfig, TURN, Time};
use protocol::{ClientTag, Protocol, ServerTag};

use self::{
    app::{App, Habits},
    connection::Cut,
    driver::{Call, Driver, Event},
    upstream::Manners,
};
use crate::{
    random::Rng,
    toys::{Fault, exclusive::Exclusive, several::Several, shared::Shared, wire},
};

/// Which toy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Toy {
    /// One server for one client.
    Exclusive,
    /// Several servers at a time.
    Several,
    /// One server for many clients.
    Shared,
}

/// What kind of world a schedule is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Options of the pools.
    pub pools: Vec<PoolConfig>,
    /// Workers of the driver.
    pub workers: u8,
    /// Clients that ever connect.
    pub clients: u64,
    /// Requests of each.
    pub requests: u64,
    /// What they write.
    pub habits: Habits,
    /// What databases answer.
    pub manners: Manners,
    /// How bytes are cut.
    pub cut: Cut,
    /// Input that a session leaves is handed to it again at once if it took some of it.
    pub again: bool,
    /// Longest time that mail between workers takes.
    pub delay: Duration,
    /// Longest time for which a worker is held up; none is if zero.
    pub stall: Duration,
    /// Servers of a pool that clients may keep beyond their transactions.
    pub max_pinned: u32,
    /// Clients cancel what others are doing.
    pub cancels: bool,
    /// Percent of connects that fail.
    pub unreachable: u64,
    /// Mean time to connect.
    pub connect: Duration,
    /// Mean time between two things that are done to the world.
    pub chaos: Duration,
    /// Mean time after which a shared server is wanted back; none ever is if zero.
    pub yields: Duration,
    /// Clients that share a server keep it when none needs it, until it is wanted back.
    pub lingers: bool,
}

/// What a schedule came to.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tally {
    /// Events.
    pub steps: u64,
    /// Requests answered, failed, cut.
    pub ended: [u64; 3],
}

/// Events after the storm within which the world must come to rest.
const MAX_CALM: u64 = 400_000;

/// Runs one schedule of so many steps before the calm; panics if something is wrong.
pub fn run(seed: u64, steps: Option<u64>, toy: Option<Toy>, fault: Fault, trace: bool) -> Tally {
    let mut rng = Rng::new(seed);
    let drawn = rng.pick(&[Toy::Exclusive, Toy::Exclusive, Toy::Several, Toy::Shared]);
    let toy = toy.unwrap_or(drawn);
    let plan = plan(toy, &mut rng);
    let steps = steps.unwrap_or_else(|| 1 << rng.within(5..=10));
    if trace {
        println!("{toy:?} {plan:#?}");
    }
    let pools = plan.pools.len() as u32;
    match toy {
        Toy::Exclusive => {
            let exclusive = Exclusive::new(pools, plan.max_pinned, rng.percent(50), fault);
            let pins = Arc::clone(&exclusive.pins);
            let tally = Seam::new(exclusive, plan, seed, trace).run(steps);
            let kept = pins.iter().any(|n| n.load(Relaxed) > 0);
            assert!(!kept, "somebody who has left is counted as keeping a server");
            tally
        }
        Toy::Several => {
            let at_once = rng.percent(50);
            Seam::new(Several { pools, at_once, fault }, plan, seed, trace).run(steps)
        }
        Toy::Shared => {
            let eager = rng.percent(50);
            Seam::new(Shared { pools, eager, fault }, plan, seed, trace).run(steps)
        }
    }
}

fn micros(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_micros(rng.within(from..=to))
}

/// Options of a pool.
fn pool_config(rng: &mut Rng) -> PoolConfig {
    let some = |rng: &mut Rng, d: Duration| rng.percent(50).then_some(d);
    let max_size = rng.within(1..=4) as u32;
    let (idle, life) = (micros(rng, 100, 20_000), micros(rng, 100, 50_000));
    let (idle, life) = (some(rng, idle), some(rng, life));
    let backoff_min = micros(rng, 10, 1000);
    PoolConfig {
        max_size,
        min_size: rng.within(0..=u64::from(max_size)) as u32 * rng.below(2) as u32,
        max_connecting: rng.within(1..=3) as u32,
        max_idle_time: idle,
        max_life_time: life,
        life_time_jitter: 0.5,
        max_wait_time: Some(micros(rng, 200, 20_000)),
        unavailable_wait_time: Some(micros(rng, 200, 20_000)),
        max_waiters: if rng.percent(20) { 2 } else { 0 },
        max_overtakes: rng.within(0..=4) as u32,
        check_after_idle: rng.percent(30).then_some(Duration::from_micros(200)),
        backoff_min,
        backoff_max: backoff_min * 8,
        connect_timeout: micros(rng, 1000, 50_000),
        turn: TURN,
    }
}

fn plan(toy: Toy, rng: &mut Rng) -> Plan {
    let mut plan = common_plan(toy, rng);
    if toy == Toy::Shared {
        let wanted = rng.percent(50);
        plan.yields = if wanted { micros(rng, 50, 2000) } else { Duration::ZERO };
        plan.lingers = wanted && rng.percent(50);
        plan.manners.leaves = rng.within(0..=3);
    }
    plan
}

/// What all toys have in common.
fn common_plan(toy: Toy, rng: &mut Rng) -> Plan {
    let pools = (0..rng.within(1..=3)).map(|_| pool_config(rng)).collect();
    let flags = match toy {
        Toy::Exclusive => wire::TRANSACTION | wire::END | wire::SETTING | wire::PIN | wire::UNPIN,
        Toy::Several => wire::SETTING,
        Toy::Shared => 0,
    };
    let exclusive = toy == Toy::Exclusive;
    let input = if exclusive { rng.pick(&[16, 64, 1024]) } else { rng.pick(&[64, 1024]) };
    let trouble = rng.percent(60);
    Plan {
        pools,
        workers: rng.within(1..=3) as u8,
        clients: rng.within(1..=12),
        requests: rng.within(1..=12),
        habits: Habits {
            flags,
            filler: if exclusive { 240 } else { 70 },
            pipeline: rng.within(1..=6),
            parts: toy == Toy::Several,
            wrong_passwords: if exclusive { 5 } else { 0 },
        },
        manners: Manners {
            refuses: if trouble { rng.within(0..=30) } else { 0 },
            for_good: 20,
            notices: rng.within(0..=1) * 20,
            leaves: 0,
            filler: if exclusive || toy == Toy::Shared { 240 } else { 30 },
            parts: toy == Toy::Several,
        },
        cut: Cut { most: rng.pick(&[1, 5, 30, 1000]), input, output: rng.pick(&[32, 1000]) },
        again: rng.percent(50),
        delay: if rng.percent(30) { Duration::ZERO } else { micros(rng, 1, 500) },
        stall: if rng.percent(40) { Duration::ZERO } else { micros(rng, 1, 2000) },
        max_pinned: rng.within(0..=3) as u32,
        cancels: exclusive,
        unreachable: if trouble { rng.within(0..=40) } else { 0 },
        connect: micros(rng, 10, 2000),
        chaos: if trouble { micros(rng, 50, 2000) } else { Duration::from_millis(5) },
        yields: Duration::ZERO,
        lingers: false,
    }
}

struct Seam<P: Protocol> {
    driver: Driver<P>,
    to_come: u64,
    calm: bool,
}

impl<P: Protocol> Seam<P> {
    fn new(protocol: P, plan: Plan, seed: u64, trace: bool) -> Self {
        let to_come = plan.clients;
        Self { driver: Driver::new(protocol, plan, seed, trace), to_come, calm: false }
    }

    fn run(mut self, steps: u64) -> Tally {
        for _ in 0..self.to_come.div_ceil(2) {
            self.accept();
        }
        self.driver.agenda.after(Duration::from_micros(50), Event::Chaos);
        if !self.driver.plan.yields.is_zero() {
            self.driver.agenda.after(self.driver.plan.yields, Event::Yield);
        }
        let mut tally = Tally::default();
        self.settle();
        while tally.steps < steps {
            tally.steps += 1;
            self.step();
        }
        self.calm();
        while !self.driver.clients.is_empty() || !self.driver.waiters.is_empty() {
            tally.steps += 1;
            assert!(tally.steps < steps + MAX_CALM, "the world does not come to rest: {}", self.open());
            self.step();
        }
        self.close(steps + 2 * MAX_CALM, &mut tally);
        self.driver.ledger.check_all_ended();
        tally.ended = self.driver.ledger.ended;
        tally
    }

    fn open(&self) -> String {
        let client = |c: &connection::ClientConn<P::Client>| {
            format!(
                "client {}: input {} asking {:?} blocked {:?} closing {} holds {:?} unresolved {:?} to write {}",
                c.serial,
                c.input.len(),
                c.asking,
                c.blocked,
                c.closing,
                c.holds,
                c.app.unresolved,
                c.app.written.len()
            )
        };
        let server = |s: &connection::ServerConn<P::Server>| {
            format!(
                "server {} of pool {}: {:?} input {} output {} blocked {:?} ending {} sides {} {:?}",
                s.serial,
                s.pool,
                s.usage,
                s.input.len(),
                s.output.len(),
                s.blocked,
                s.ending,
                s.sides,
                s.upstream
            )
        };
        let clients = self.driver.clients.values().map(client);
        clients.chain(self.driver.servers.values().map(server)).collect::<Vec<_>>().join("\n")
    }

    fn accept(&mut self) {
        if self.to_come > 0 {
            self.to_come -= 1;
            let (requests, habits) = (self.driver.plan.requests, self.driver.plan.habits);
            self.driver.accept(|serial, rng| App::new(serial, requests, &habits, rng));
        }
    }

    /// The faults end; everybody finishes what they have begun.
    fn calm(&mut self) {
        self.driver.tell(|| "the storm is over".into());
        (self.calm, self.driver.calm) = (true, true);
        self.driver.plan.unreachable = 0;
        self.driver.plan.manners.refuses = 0;
        let places: Vec<_> = self.driver.muxes.keys().copied().collect();
        places.into_iter().for_each(|(worker, pool)| self.driver.call(worker, Call::Yield(pool)));
        for pool in 0..self.driver.pools.len() {
            self.resume(pool);
        }
        self.settle();
    }

    /// All clients have left: nothing is lent, and the pools can be emptied.
    fn close(&mut self, limit: u64, tally: &mut Tally) {
        while self.driver.pools.iter().any(|p| p.counts().in_use > 0) {
            tally.steps += 1;
            assert!(tally.steps < limit, "a server is never given back");
            self.step();
        }
        assert!(self.driver.muxes.is_empty(), "a server is shared by nobody");
        for pool in 0..self.driver.pools.len() {
            let counts = self.driver.pools[pool].counts();
            assert_eq!((counts.waiters, counts.in_use), (0, 0), "nobody is left");
            self.driver.order(pool, |pool, now| pool.close(now));
        }
        self.settle();
        let busy = |driver: &Driver<P>| !driver.workers.iter().all(|worker| worker.is_at_rest());
        while self.driver.pools.iter().any(|p| p.counts().total > 0) || busy(&self.driver) {
            tally.steps += 1;
            assert!(tally.steps < limit, "a closed pool does not empty: {:?}", self.driver.books);
            self.step();
        }
        self.driver.check_nothing_is_left();
    }

    /// Makes all calls that are due, then checks everything.
    fn settle(&mut self) {
        self.driver.run();
        self.driver.stir();
        self.driver.run();
        self.driver.check();
    }

    fn step(&mut self) {
        let nothing_lent = self.driver.pools.iter().all(|p| p.counts().in_use == 0);
        let due = |driver: &Driver<P>, pool: usize| {
            let deadline = driver.pools[pool].poll_deadline()?;
            // Whoever looks after it may be held up.
            Some(deadline.max(driver.free_at(driver.caretaker(pool))))
        };
        let pools = 0..self.driver.pools.len();
        let deadline = pools.clone().filter_map(|pool| due(&self.driver, pool)).min().unwrap_or(Time::NEVER);
        let next = self.driver.agenda.next_at().unwrap_or(Time::NEVER);
        let over = deadline.min(next) == Time::NEVER;
        assert!(!over || nothing_lent || !self.driver.clients.is_empty(), "a server is never given back");
        assert!(!over, "nothing will ever happen again: {}", self.open());
        if deadline <= next {
            let now = self.driver.now().max(deadline);
            self.driver.agenda.advance(now);
            for pool in pools {
                if due(&self.driver, pool).is_some_and(|at| at <= now) {
                    let caretaker = self.driver.caretaker(pool);
                    self.driver.operate(caretaker, pool, |pool, now| pool.handle_timeout(now));
                }
            }
        } else {
            let event = self.driver.agenda.pop().expect("seen above");
            self.driver.tell(|| format!("{event:?}"));
            self.handle(event);
        }
        self.settle();
    }

    fn handle(&mut self, event: Event) {
        let driver = &mut self.driver;
        let now = driver.now();
        match event {
            Event::Client(tag, serial) => self.step_client(tag, serial),
            Event::Server(tag, serial) => self.step_server(tag, serial),
            Event::Write(tag, serial) => {
                let Some(conn) = driver.clients.get_mut(&tag).filter(|c| c.serial == serial) else { return };
                conn.app.write(&driver.plan.habits, &mut driver.ledger, &mut driver.rng);
                if !conn.app.finished {
                    // Now and then it has nothing to say for long, whatever it keeps meanwhile.
                    let pause = if !self.calm && driver.rng.percent(3) { 6_000 } else { 300 };
                    let after = driver.rng.around(Duration::from_micros(pause));
                    driver.agenda.after(after, event);
                }
            }
            Event::Opened(pool, id) => match driver.hosts[pool].silent_until(now).filter(|_| !self.calm) {
                Some(until) => driver.agenda.at(until, event),
                None => {
                    let Some(&worker) = driver.dialling.get(&(pool, id)) else { return };
                    driver.call(worker, Call::Opened(pool, id));
                }
            },
            Event::Broken(tag, serial) => {
                if driver.servers.get(&tag).is_some_and(|s| s.serial == serial) {
                    driver.end_server(tag);
                }
            }
            Event::Mail => {}
            Event::HostBack(pool) => self.host_back(pool),
            Event::Upkeep(pool) => self.upkeep(pool),
            Event::Reload(left) => self.reload(left),
            Event::SideArrives(tag, serial) => {
                let Some(conn) = driver.servers.get(&tag).filter(|s| s.serial == serial) else { return };
                if let Some(nonce) = conn.upstream.working_on() {
                    assert_eq!(driver.ledger.client(nonce), conn.user, "a cancel hits another client's request");
                }
            }
            Event::SideEnds(tag, serial, seen) => driver.call(tag.worker(), Call::SideEnded(tag, serial, seen)),
            Event::Yield | Event::Chaos if self.calm => {}
            Event::Yield => self.want_back(),
            Event::Chaos => {
                self.chaos();
                let after = self.driver.rng.around(self.driver.plan.chaos);
                self.driver.agenda.after(after, Event::Chaos);
            }
        }
    }

    fn step_client(&mut self, tag: ClientTag, serial: u64) {
        let driver = &mut self.driver;
        let Some(conn) = driver.clients.get_mut(&tag).filter(|c| c.serial == serial) else { return };
        conn.stirred = false;
        let piece = driver.plan.cut.take(&mut conn.output, &mut driver.rng);
        conn.app.read(piece.into_iter(), &mut driver.ledger);
        if conn.session.is_none() {
            if conn.output.is_empty() {
                conn.app.cut(&mut driver.ledger);
                driver.clients.remove(&tag);
                self.accept();
            }
            return;
        }
        // Without more bytes it is not handed again what it left: nobody but itself knows when it can do something with that.
        if driver.plan.cut.receive(&mut conn.app.written, &mut conn.input, &mut driver.rng) > 0 {
            driver.call(tag.worker(), Call::ClientInput(tag));
        }
    }

    fn step_server(&mut self, tag: ServerTag, serial: u64) {
        let driver = &mut self.driver;
        let Some(conn) = driver.servers.get_mut(&tag).filter(|s| s.serial == serial) else { return };
        let now = driver.agenda.now();
        let silent = driver.hosts[conn.pool].silent_until(now).unwrap_or(now).max(conn.frozen_until);
        if silent > now && !self.calm {
            return driver.agenda.at(silent, Event::Server(tag, serial));
        }
        conn.stirred = false;
        let piece = driver.plan.cut.take(&mut conn.output, &mut driver.rng);
        conn.upstream.read(piece.into_iter(), &driver.plan.manners);
        if driver.rng.percent(50) {
            conn.upstream.work(&driver.plan.manners, &mut driver.ledger, &mut driver.rng);
        }
        if driver.plan.cut.receive(&mut conn.upstream.sent, &mut conn.input, &mut driver.rng) > 0 {
            driver.call(tag.worker(), Call::ServerInput(tag));
        }
    }
}

#[cfg(test)]
mod tests;
