//! Random schedules against the pool, beside a naive model of it that knows each server and each waiter by name.

use std::{collections::BTreeMap, time::Duration};

use pool::{
    Action, CheckIn, CheckOut, CheckOutFailed, Claim, Clear, Closed, Grant, GrantSource, Home, LONG_IDLE_TURNS,
    PauseMode, Pool, PoolConfig, ServerId, Ticket, Time, WaiterId,
};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
const HOMES: u8 = 3;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Is {
    /// Since then.
    Connecting(Time),
    /// Since then.
    Idle(Time),
    InUse,
    Checking,
    Closing,
}

#[derive(Debug)]
struct Waiting {
    id: WaiterId,
    home: Home,
    ticket: Ticket,
    since: Time,
    overtaken: u32,
}

/// The model, and the driver that obeys the pool.
struct World {
    pool: Pool,
    config: PoolConfig,
    now: Time,
    servers: BTreeMap<usize, (ServerId, Is, Home)>,
    queue: Vec<Waiting>,
    /// Permits asked for and not yet answered.
    asked: u32,
    waiters: u64,
    granted: u64,
    failed: u64,
    left: u64,
    refused: u64,
    /// The budget has asked for a server and got none.
    in_vain: bool,
    /// The budget has got a server, and no client has come since.
    has_yielded: bool,
    /// Since when the queue has not been empty, if it is not.
    queued: Time,
    punctual: bool,
}

impl World {
    fn new(config: PoolConfig, seed: u64) -> Self {
        let pool = Pool::new(config.clone(), seed, Time(0));
        Self {
            pool,
            config,
            now: Time(0),
            servers: BTreeMap::new(),
            queue: vec![],
            asked: 0,
            waiters: 0,
            granted: 0,
            failed: 0,
            left: 0,
            refused: 0,
            in_vain: false,
            has_yielded: false,
            queued: Time(0),
            punctual: true,
        }
    }

    fn count(&self, is: impl Fn(&Is) -> bool) -> u32 {
        self.servers.values().filter(|(_, state, _)| is(state)).count() as u32
    }

    fn pick(&self, n: u8, is: impl Fn(&Is) -> bool) -> Option<ServerId> {
        let fit: Vec<_> = self.servers.values().filter(|(_, state, _)| is(state)).map(|(id, _, _)| *id).collect();
        (!fit.is_empty()).then(|| fit[usize::from(n) % fit.len()])
    }

    fn set(&mut self, server: ServerId, is: Is) {
        let entry = self.servers.get_mut(&server.slot()).expect("a server that the model knows");
        assert_eq!(entry.0, server);
        entry.1 = is;
    }

    fn idle(&mut self, server: ServerId, home: Home) {
        self.set(server, Is::Idle(self.now));
        self.servers.get_mut(&server.slot()).expect("present").2 = home;
    }

    /// A server in hand went to a waiter or is idle, unless the pool ordered something else.
    fn handed(&mut self, server: ServerId, home: Home, grant: Option<Grant>) {
        self.idle(server, home);
        self.obey();
        if let Some(grant) = grant {
            assert_eq!((grant.server, grant.home), (server, home));
            self.granted(grant);
        }
    }

    fn granted(&mut self, grant: Grant) {
        let (id, is, home) = self.servers[&grant.server.slot()];
        assert_eq!((id, home), (grant.server, grant.home));
        assert!(matches!(is, Is::Idle(_)), "{grant:?} while {is:?}");
        assert_ne!(grant.source, GrantSource::Idle);
        let at = self.queue.iter().position(|w| w.id == grant.waiter).expect("a waiter in the queue, once");
        let waiting = self.queue.remove(at);
        assert_eq!((waiting.home, self.now - waiting.since), (grant.waiter_home, grant.waited));
        for overtaken in &mut self.queue[..at] {
            assert_eq!(waiting.home, home, "only the server's own home may overtake");
            overtaken.overtaken += 1;
            assert!(overtaken.overtaken <= self.config.max_overtakes, "{overtaken:?}");
        }
        self.set(grant.server, Is::InUse);
        self.granted += 1;
    }

    fn granted_at_once(&mut self, grant: Grant, waiter: WaiterId, home: Home) {
        assert_eq!(
            (grant.waiter, grant.waiter_home, grant.source, grant.waited),
            (waiter, home, GrantSource::Idle, Duration::ZERO)
        );
        assert!(self.queue.is_empty(), "a waiter was overtaken by a client that was not queued");
        let (_, Is::Idle(_), lives) = self.servers[&grant.server.slot()] else { panic!("a grant of a busy server") };
        assert_eq!(lives, grant.home);
        if self.config.check_after_idle.is_none() {
            let idle = self.servers.values().filter_map(|(id, is, home)| match is {
                Is::Idle(used) => Some((*used, *id, *home)),
                _ => None,
            });
            let idle: Vec<_> = idle.collect();
            let own = idle.iter().filter(|(_, _, lives)| *lives == home).max_by_key(|(used, _, _)| *used);
            let first = idle.iter().min_by_key(|(used, _, _)| *used).filter(|_| self.config.round_robin);
            let best =
                first.or(own).or(idle.iter().max_by_key(|(used, _, _)| *used)).expect("at least the one granted");
            assert_eq!(best.1, grant.server, "not the one whose turn it is");
        }
        self.set(grant.server, Is::InUse);
        self.granted += 1;
    }

    fn obey(&mut self) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                Action::AskPermit => self.asked += 1,
                Action::WithdrawPermit => self.asked = self.asked.checked_sub(1).expect("something to withdraw"),
                Action::Connect { server, home } => {
                    if self.servers.len() >= self.config.max_size as usize {
                        self.check_reserve_is_due();
                    }
                    assert!(self.count(|is| matches!(is, Is::Connecting(_))) < self.config.max_connecting);
                    let home = home.unwrap_or_default();
                    assert!(self.servers.insert(server.slot(), (server, Is::Connecting(self.now), home)).is_none());
                }
                Action::ReportStarvation => {
                    let first = self.queue.first().expect("a client that has waited for long");
                    assert!(self.asked > 0 && self.now - first.since >= self.config.turn, "{first:?}");
                }
                Action::ReportCongestion => {
                    assert!(self.asked > 0 && !self.queue.is_empty(), "no client needs more");
                    assert!(self.now - self.queued >= self.config.turn, "{:?}", self.queue[0]);
                }
                Action::ReportSpare => assert!(std::mem::take(&mut self.in_vain), "the budget did not ask in vain"),
                Action::Grant(grant) => self.granted(grant),
                Action::Fail { waiter, home, reason, waited } => self.fail(waiter, home, reason, waited),
                Action::Close { server, reason, .. } => {
                    self.set(server, Is::Closing);
                    let established = self.count(|is| !matches!(is, Is::Connecting(_) | Is::Closing));
                    if reason == Closed::Idle {
                        assert!(established >= self.config.min_size, "closed as idle below min_size");
                    }
                }
                Action::Check { server, .. } | Action::Reset { server, .. } => self.set(server, Is::Checking),
                Action::RequestReturn { .. } => panic!("no client here keeps a server for long"),
                Action::Interrupt { server, .. } => {
                    assert_eq!(self.servers[&server.slot()].1, Is::InUse);
                }
            }
        }
        self.pool.check_invariants();
    }

    /// A connection beyond `max_size` is for a waiter that has waited for long.
    fn check_reserve_is_due(&self) {
        assert!(self.servers.len() < self.config.most_servers() as usize, "more than the reserve has");
        let wait = self.config.reserve_wait_time.expect("there is a reserve");
        let overdue = self.queue.iter().filter(|waiting| self.now - waiting.since >= wait).count();
        let connecting = self.count(|is| matches!(is, Is::Connecting(_)));
        assert!(overdue as u32 > connecting, "{overdue} overdue waiters, {connecting} connections for them already");
    }

    fn fail(&mut self, waiter: WaiterId, home: Home, reason: CheckOutFailed, waited: Duration) {
        let at = self.queue.iter().position(|w| w.id == waiter).expect("a waiter in the queue, once");
        let waiting = self.queue.remove(at);
        assert_eq!((waiting.home, self.now - waiting.since), (home, waited));
        let (wait, unavailable) = (self.config.max_wait_time, self.config.unavailable_wait_time);
        match reason {
            CheckOutFailed::Timeout => assert!(waited >= wait.expect("a dead-line").min(unavailable.expect("too"))),
            CheckOutFailed::Unavailable => assert!(waited >= unavailable.expect("a dead-line")),
            _ => {}
        }
        self.failed += 1;
    }

    /// Time passes; a punctual driver calls at each dead-line.
    fn advance(&mut self, to: Time) {
        for _ in 0..10_000 {
            match self.pool.poll_deadline().filter(|at| *at <= to && self.punctual) {
                Some(at) => self.now = self.now.max(at),
                None => break,
            }
            self.timeout();
            assert!(self.pool.poll_deadline().is_none_or(|at| at > self.now), "a dead-line is still due");
        }
        self.now = self.now.max(to);
        self.timeout();
        let longest = self.config.max_wait_time.max(self.config.unavailable_wait_time).expect("a dead-line");
        for waiting in &self.queue {
            assert!(self.now - waiting.since < longest, "{waiting:?} is late at {:?}", self.now);
        }
        let established = self.count(|is| !matches!(is, Is::Connecting(_) | Is::Closing));
        let live = self.count(|is| *is != Is::Closing);
        let of_reserve = self
            .config
            .reserve_wait_time
            .filter(|_| live > self.config.max_size && self.config.effective_reserve() > 0);
        let max_idle = self.config.max_idle_time.into_iter().chain(of_reserve).min();
        let max_idle = max_idle.filter(|_| established > self.config.min_size);
        let long = |is: &Is| matches!(is, Is::Idle(since) if max_idle.is_some_and(|max| *since + max <= self.now));
        assert_eq!(self.count(long), 0, "a server is idle for too long");
        let slow = |is: &Is| matches!(is, Is::Connecting(since) if *since + self.config.connect_timeout <= self.now);
        assert_eq!(self.count(slow), 0, "a server is connecting for too long");
    }

    fn timeout(&mut self) {
        self.pool.handle_timeout(self.now);
        self.obey();
    }

    fn check_out(&mut self, home: Home) {
        self.has_yielded = false;
        self.waiters += 1;
        let id = WaiterId(self.waiters);
        match self.pool.check_out(id, home, self.now) {
            CheckOut::Granted(grant) => {
                self.obey();
                self.granted_at_once(grant, id, home);
            }
            CheckOut::Queued(ticket) => {
                if self.queue.is_empty() {
                    self.queued = self.now;
                }
                self.queue.push(Waiting { id, home, ticket, since: self.now, overtaken: 0 });
                self.obey();
            }
            CheckOut::Failed(_) => {
                self.refused += 1;
                self.obey();
            }
        }
    }

    fn cancel(&mut self, n: u8) {
        if self.queue.is_empty() {
            return;
        }
        let waiting = self.queue.remove(usize::from(n) % self.queue.len());
        assert!(self.pool.cancel(waiting.ticket, waiting.id, self.now).is_some());
        assert!(self.pool.cancel(waiting.ticket, waiting.id, self.now).is_none());
        self.left += 1;
        self.obey();
    }

    fn check_in(&mut self, n: u8, home: Home, how: CheckIn) {
        if let Some(server) = self.pick(n, |is| *is == Is::InUse) {
            let spare = self.pool.can_spare(server, self.now);
            assert!(!spare || self.in_vain, "the budget did not ask in vain");
            let how = if spare && n < 128 { CheckIn::Reclaim } else { how };
            let grant = self.pool.check_in(server, home, how, self.now);
            self.handed(server, home, grant);
        }
    }

    fn connected(&mut self, n: u8, home: Home) {
        if let Some(server) = self.pick(n, |is| matches!(is, Is::Connecting(_))) {
            let grant = self.pool.handle_connected(server, home, self.now);
            self.handed(server, home, grant);
        }
    }

    fn checked(&mut self, n: u8, ok: bool, home: Home) {
        if let Some(server) = self.pick(n, |is| *is == Is::Checking) {
            let grant = self.pool.handle_checked(server, ok, home, self.now);
            self.handed(server, home, grant);
        }
    }

    fn gone(&mut self, server: ServerId, call: impl Fn(&mut Pool, Time)) {
        self.servers.remove(&server.slot());
        call(&mut self.pool, self.now);
        self.obey();
    }

    fn permit(&mut self) {
        if self.asked > 0 {
            self.asked -= 1;
            assert!(self.pool.handle_permit(self.now));
            self.obey();
        } else {
            assert!(!self.pool.handle_permit(self.now), "a permit was taken that the pool did not ask for");
        }
    }

    fn reconfigure(&mut self, n: u8) {
        self.config.max_size = u32::from(n % 5 + 1);
        self.config.min_size = self.config.min_size.min(self.config.max_size);
        self.pool.reconfigure(self.config.clone(), self.now);
        self.obey();
    }

    fn step(&mut self, (op, n, m): (u8, u8, u8)) {
        let home = Home(m % HOMES);
        // No two things happen at the same time, so that "last" has a meaning.
        self.now.0 += 1;
        match op % 40 {
            0..=9 => self.check_out(home),
            10..=15 => self.check_in(n, home, CheckIn::Clean),
            16 => self.check_in(n, home, CheckIn::Reset),
            17 => self.check_in(n, home, CheckIn::Discard),
            18..=20 => self.permit(),
            21..=23 => self.connected(n, home),
            24 => {
                if let Some(server) = self.pick(n, |is| matches!(is, Is::Connecting(_))) {
                    self.gone(server, |pool, now| pool.handle_connect_failed(server, m % 4 == 0, now));
                }
            }
            25..=26 => self.checked(n, m % 4 != 0, home),
            27..=29 => {
                if let Some(server) = self.pick(n, |is| *is == Is::Closing) {
                    self.gone(server, |pool, now| pool.handle_closed(server, now));
                }
            }
            30 => {
                if let Some(server) = self.pick(n, |_| true) {
                    self.gone(server, |pool, now| pool.handle_lost(server, now));
                }
            }
            31 => self.cancel(n),
            32..=35 => self.advance(self.now + MS * u32::from(n % 32)),
            36 => {
                self.pool.pause(if m % 4 == 0 { PauseMode::FailWaiters } else { PauseMode::HoldWaiters }, self.now);
                self.obey();
            }
            37 => {
                self.pool.ready(self.now);
                self.obey();
            }
            38 if n % 4 == 0 => self.reconfigure(m),
            38 => {
                let clear = Clear { fail_waiters: m % 4 == 0, interrupt: m % 3 == 0 };
                self.pool.clear(clear, self.now);
                self.obey();
            }
            _ if m % 2 == 0 => {
                let claim = if m % 4 == 0 { Claim::Spare } else { Claim::Kept };
                let given = self.pool.reclaim(claim, self.now);
                self.in_vain |= !given;
                self.has_yielded |= given;
                self.obey();
            }
            _ => self.reclaim_long_idle(),
        }
        self.compare();
    }

    fn reclaim_long_idle(&mut self) {
        let established = self.count(|is| !matches!(is, Is::Connecting(_) | Is::Closing));
        let long_idle =
            |is: &Is| matches!(is, Is::Idle(since) if *since + self.config.turn * LONG_IDLE_TURNS <= self.now);
        let there = established > self.config.min_size && self.count(long_idle) > 0;
        let given = self.pool.reclaim(Claim::LongIdle, self.now);
        assert_eq!(given, there, "only a server that was idle for long is given up");
        self.in_vain |= !there;
        self.obey();
    }

    fn compare(&self) {
        let counts = self.pool.counts();
        assert_eq!(counts.connecting, self.count(|is| matches!(is, Is::Connecting(_))));
        assert_eq!(counts.idle, self.count(|is| matches!(is, Is::Idle(_))));
        assert_eq!(counts.in_use, self.count(|is| *is == Is::InUse));
        assert_eq!(counts.checking, self.count(|is| *is == Is::Checking));
        assert_eq!(counts.closing, self.count(|is| *is == Is::Closing));
        assert_eq!(counts.total as usize, self.servers.len());
        assert_eq!(counts.waiters as usize, self.queue.len());
        let oldest = self.queue.first().map(|waiting| self.now - waiting.since);
        assert_eq!(self.pool.oldest_wait(self.now), oldest);
        assert_eq!(self.waiters, self.granted + self.failed + self.left + self.refused + self.queue.len() as u64);
    }

    /// Everything works from now on: every waiter is served or has failed, and the pool comes to rest.
    fn finish(&mut self) {
        self.pool.ready(self.now);
        self.obey();
        for _ in 0..10_000 {
            let home = Home(0);
            self.check_in(0, home, CheckIn::Clean);
            self.connected(0, home);
            self.checked(0, true, home);
            while self.asked > 0 {
                self.permit();
            }
            if let Some(server) = self.pick(0, |is| *is == Is::Closing) {
                self.gone(server, |pool, now| pool.handle_closed(server, now));
            }
            self.compare();
            let busy = self.count(|is| !matches!(is, Is::Idle(_)));
            let missing = !self.has_yielded && self.servers.len() < self.config.min_size as usize;
            if self.queue.is_empty() && busy == 0 && !missing {
                return;
            }
            self.advance(self.now + MS);
        }
        panic!("the pool does not come to rest: {:?}", self.pool.counts());
    }
}

fn configs() -> impl Strategy<Value = PoolConfig> {
    let sizes = (1..6u32, 0..3u32, 1..4u32, prop_oneof![Just(0u32), Just(3u32)], 0..4u32, any::<bool>());
    let option = |ms: u32| prop_oneof![Just(None), Just(Some(MS * ms))];
    let times = (option(25), option(120), option(12), prop_oneof![Just(MS * 60), Just(MS * 400)]);
    let reserve = (prop_oneof![Just(0u32), 1..4u32], prop_oneof![Just(None), Just(Some(MS * 8)), Just(Some(MS * 30))]);
    (sizes, times, reserve).prop_map(|(sizes, (idle, life, check, unavailable), reserve)| PoolConfig {
        max_size: sizes.0,
        reserve_size: reserve.0,
        reserve_wait_time: reserve.1,
        min_size: sizes.1.min(sizes.0),
        min_size_once_connected: false,
        max_connecting: sizes.2,
        max_waiters: sizes.3,
        max_overtakes: sizes.4,
        round_robin: sizes.5,
        max_idle_time: idle,
        max_life_time: life,
        life_time_jitter: 0.5,
        max_wait_time: Some(MS * 100),
        unavailable_wait_time: Some(unavailable),
        check_after_idle: check,
        backoff_min: MS * 3,
        backoff_max: MS * 20,
        connect_timeout: MS * 50,
        turn: MS * 10,
    })
}

/// This number of cases, unless PROPTEST_CASES gives another one.
fn many() -> ProptestConfig {
    ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn no_schedule_breaks_a_promise(
        config in configs(),
        seed in any::<u64>(),
        ready in any::<bool>(),
        steps in prop::collection::vec(any::<(u8, u8, u8)>(), 0..300),
    ) {
        let mut world = World::new(config, seed);
        if ready {
            world.pool.ready(Time(0));
            world.obey();
        }
        for step in steps {
            world.step(step);
        }
        world.finish();
    }

    #[test]
    fn a_closed_pool_is_empty_once_all_has_come_back(
        config in configs(),
        steps in prop::collection::vec(any::<(u8, u8, u8)>(), 0..100),
    ) {
        let mut world = World::new(config, 1);
        world.pool.ready(Time(0));
        world.obey();
        for step in steps {
            world.step(step);
        }
        world.pool.close(world.now);
        world.obey();
        assert!(world.queue.is_empty());
        while let Some(server) = world.pick(0, |_| true) {
            if world.servers[&server.slot()].1 == Is::InUse {
                world.check_in(0, Home(0), CheckIn::Clean);
            } else {
                world.gone(server, |pool, now| pool.handle_closed(server, now));
            }
            world.compare();
        }
        assert_eq!((world.pool.counts().total, world.asked), (0, 0));
    }

    #[test]
    fn a_driver_that_is_late_breaks_no_promise_but_that_of_time(
        config in configs(),
        steps in prop::collection::vec(any::<(u8, u8, u8)>(), 0..300),
    ) {
        let mut world = World::new(config, 2);
        world.punctual = false;
        world.pool.ready(Time(0));
        world.obey();
        for step in steps {
            world.step(step);
        }
        world.punctual = true;
        world.finish();
    }
}
