//! The rules of the pool, one by one: service here; what others under the same limits get in `sharing`; failures,
//! pauses, clears and other limits in `trouble`.

mod fresh;
mod hold_times;
mod lasting;
mod requested_reset;
mod reserve;
mod sharing;
mod trouble;

use alloc::{vec, vec::Vec};
use core::time::Duration;

use super::*;
use crate::action::ConnectFault;

const MS: Duration = Duration::from_millis(1);
const A: Home = Home(0);
const B: Home = Home(1);

fn at(ms: u64) -> Time {
    Time(ms * 1_000_000)
}

fn config() -> PoolConfig {
    PoolConfig { max_size: 2, max_idle_time: None, max_life_time: None, ..PoolConfig::default() }
}

/// A pool that is ready, whose budget permits everything, and which checks itself after each step.
struct Bench {
    pool: Pool,
    connects: Vec<ServerId>,
    actions: Vec<Action>,
    waiter: u64,
}

impl Bench {
    fn new(config: PoolConfig) -> Self {
        let mut bench = Self { pool: Pool::new(config, 1, at(0)), connects: vec![], actions: vec![], waiter: 0 };
        bench.call(0, |pool, now| pool.ready(now));
        bench
    }

    fn run(&mut self, ms: u64) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                Action::AskPermit => assert!(self.pool.handle_permit(at(ms)), "a permit just asked for is not taken"),
                Action::WithdrawPermit => panic!("a permit is withdrawn although all were given"),
                Action::Connect { server, .. } => self.connects.push(server),
                other => self.actions.push(other),
            }
        }
        self.pool.check_invariants();
    }

    fn check_out(&mut self, home: Home, ms: u64) -> CheckOut {
        self.waiter += 1;
        let answer = self.pool.check_out(WaiterId(self.waiter), home, at(ms));
        self.run(ms);
        answer
    }

    fn queue(&mut self, home: Home, ms: u64) -> Ticket {
        match self.check_out(home, ms) {
            CheckOut::Queued(ticket) => ticket,
            other => panic!("expected a place in the queue, got {other:?}"),
        }
    }

    fn take(&mut self, home: Home, ms: u64) -> ServerId {
        match self.check_out(home, ms) {
            CheckOut::Granted(grant) => grant.server,
            other => panic!("expected a grant, got {other:?}"),
        }
    }

    fn check_in(&mut self, server: ServerId, home: Home, how: CheckIn, ms: u64) -> Option<Grant> {
        let grant = self.pool.check_in(server, home, how, at(ms));
        self.run(ms);
        grant
    }

    fn give(&mut self, server: ServerId, ms: u64) {
        assert_eq!(self.check_in(server, A, CheckIn::Clean, ms), None);
    }

    fn connected(&mut self, ms: u64) -> Option<Grant> {
        let server = self.connects.remove(0);
        let grant = self.pool.handle_connected(server, A, at(ms));
        self.run(ms);
        grant
    }

    fn connect_failed(&mut self, permanent: bool, ms: u64) {
        let server = self.connects.remove(0);
        self.pool.handle_connect_failed(server, permanent, at(ms));
        self.run(ms);
    }

    fn connect_refused(&mut self, fault: ConnectFault, ms: u64) {
        let server = self.connects.remove(0);
        self.pool.handle_connect_abandoned(server, fault, at(ms));
        self.call(ms, |pool, now| pool.handle_closed(server, now));
    }

    fn call(&mut self, ms: u64, call: impl FnOnce(&mut Pool, Time)) {
        call(&mut self.pool, at(ms));
        self.run(ms);
    }

    fn timeout(&mut self, ms: u64) {
        self.pool.handle_timeout(at(ms));
        self.run(ms);
        assert!(self.pool.poll_deadline().is_none_or(|next| next > at(ms)), "a dead-line is still due");
    }

    /// `n` servers in use, made at once.
    fn busy(&mut self, n: usize, ms: u64) -> Vec<ServerId> {
        (0..n)
            .map(|_| {
                self.queue(A, ms);
                self.connected(ms).expect("a grant for the waiter").server
            })
            .collect()
    }

    /// The budget permits nothing.
    fn timeout_without_permits(&mut self, ms: u64) {
        self.pool.handle_timeout(at(ms));
        self.run_withdrawn();
    }

    fn run_withdrawn(&mut self) {
        while let Some(action) = self.pool.poll_action() {
            self.actions.push(action);
        }
        self.pool.check_invariants();
    }

    fn give_to(&mut self, server: ServerId, waiter: u64, ms: u64) {
        let grant = self.check_in(server, A, CheckIn::Clean, ms);
        assert_eq!(grant.map(|grant| grant.waiter), Some(WaiterId(waiter)));
    }

    fn actions(&mut self) -> Vec<Action> {
        core::mem::take(&mut self.actions)
    }

    fn failures(&mut self) -> Vec<(u64, CheckOutFailed)> {
        let fails = self.actions().into_iter().filter_map(|action| match action {
            Action::Fail { waiter, reason, .. } => Some((waiter.0, reason)),
            _ => None,
        });
        fails.collect()
    }

    fn closes(&mut self) -> Vec<(ServerId, Closed)> {
        let closes = self.actions().into_iter().filter_map(|action| match action {
            Action::Close { server, reason, .. } => Some((server, reason)),
            _ => None,
        });
        closes.collect()
    }
}

#[test]
fn a_new_pool_holds_waiters_until_it_is_ready() {
    let mut pool = Pool::new(config(), 1, at(0));
    assert!(pool.is_paused());
    assert!(matches!(pool.check_out(WaiterId(1), A, at(0)), CheckOut::Queued(_)));
    assert_eq!(pool.poll_action(), None);
    pool.ready(at(1));
    assert_eq!(pool.poll_action(), Some(Action::AskPermit));
    assert_eq!(pool.poll_action(), None);
    assert!(pool.handle_permit(at(1)));
    assert!(matches!(pool.poll_action(), Some(Action::Connect { home: Some(A), .. })));
}

#[test]
fn a_created_an_idle_and_a_queued_grant_say_so() {
    let mut bench = Bench::new(config());
    bench.queue(B, 0);
    let created = bench.connected(30).expect("a grant");
    assert_eq!(
        (created.source, created.waited, created.home, created.waiter_home),
        (GrantSource::Created, MS * 30, A, B)
    );
    assert_eq!(bench.check_in(created.server, B, CheckIn::Clean, 40), None);
    let CheckOut::Granted(idle) = bench.check_out(A, 50) else { panic!("an idle server is there") };
    assert_eq!((idle.source, idle.waited, idle.home, idle.waiter_home), (GrantSource::Idle, Duration::ZERO, B, A));
    bench.queue(B, 60);
    let queued = bench.check_in(idle.server, A, CheckIn::Clean, 70).expect("a grant");
    assert_eq!((queued.source, queued.waited, queued.server), (GrantSource::Queued, MS * 10, idle.server));
}

#[test]
fn a_waiter_who_leaves_withdraws_the_wish_for_a_connection() {
    let mut pool = Pool::new(config(), 1, at(0));
    pool.ready(at(0));
    let CheckOut::Queued(ticket) = pool.check_out(WaiterId(1), A, at(0)) else { panic!("nothing is there yet") };
    assert_eq!(pool.poll_action(), Some(Action::AskPermit));
    assert_eq!(pool.cancel(ticket, WaiterId(1), at(1)), Some(Duration::from_millis(1)));
    assert!(pool.cancel(ticket, WaiterId(1), at(1)).is_none());
    assert_eq!(pool.poll_action(), Some(Action::WithdrawPermit));
    assert!(!pool.handle_permit(at(2)), "a permit that crossed its withdrawal goes back");
    assert_eq!(pool.poll_action(), None);
}

#[test]
fn a_permit_that_comes_before_the_withdrawal_was_heard_of_goes_back() {
    let mut pool = Pool::new(config(), 1, at(0));
    pool.ready(at(0));
    let CheckOut::Queued(ticket) = pool.check_out(WaiterId(1), A, at(0)) else { panic!("nothing is there yet") };
    assert_eq!(pool.poll_action(), Some(Action::AskPermit));
    pool.cancel(ticket, WaiterId(1), at(1));
    assert!(!pool.handle_permit(at(1)));
    assert_eq!(pool.poll_action(), None, "there is nothing to withdraw any more");
}

#[test]
fn a_check_in_that_serves_the_last_waiter_withdraws_the_wish() {
    let mut bench = Bench::new(config());
    let server = bench.busy(1, 0)[0];
    assert!(matches!(bench.pool.check_out(WaiterId(2), A, at(1)), CheckOut::Queued(_)));
    assert_eq!(bench.pool.poll_action(), Some(Action::AskPermit));
    assert!(bench.pool.check_in(server, A, CheckIn::Clean, at(2)).is_some());
    assert_eq!(bench.pool.poll_action(), Some(Action::WithdrawPermit));
}

#[test]
fn a_request_that_was_not_polled_is_not_withdrawn() {
    let mut pool = Pool::new(config(), 1, at(0));
    pool.ready(at(0));
    let CheckOut::Queued(ticket) = pool.check_out(WaiterId(1), A, at(0)) else { panic!("nothing is there yet") };
    pool.cancel(ticket, WaiterId(1), at(1));
    assert_eq!(pool.poll_action(), None);
}

#[test]
fn an_expired_waiter_gets_no_server() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, max_wait_time: Some(MS * 10), ..config() });
    let server = bench.busy(1, 0)[0];
    bench.queue(A, 1);
    bench.queue(A, 5);
    assert_eq!(bench.pool.poll_deadline(), Some(at(11)));
    let grant = bench.check_in(server, A, CheckIn::Clean, 11).expect("a grant for the second");
    assert_eq!(grant.waiter, WaiterId(3));
    assert_eq!(bench.failures(), [(2, CheckOutFailed::Timeout)]);
}

#[test]
fn a_full_queue_refuses() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, max_waiters: 1, max_wait_time: Some(MS), ..config() });
    bench.busy(1, 0);
    bench.queue(A, 1);
    assert_eq!(bench.check_out(A, 1), CheckOut::Failed(CheckOutFailed::QueueFull));
    bench.queue(A, 2);
}

#[test]
fn a_reset_orders_a_reset_and_serves_the_waiter_afterwards() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, ..config() });
    let server = bench.busy(1, 0)[0];
    bench.queue(A, 1);
    assert_eq!(bench.check_in(server, B, CheckIn::Reset, 2), None);
    assert_eq!(bench.actions(), [Action::Reset { server, home: B }]);
    assert_eq!(bench.pool.counts().checking, 1);
    let grant = bench.pool.handle_checked(server, true, B, at(3)).expect("a grant");
    assert_eq!((grant.server, grant.source), (server, GrantSource::Queued));
}

#[test]
fn a_discarded_server_closes_and_its_room_is_used_when_it_has() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, ..config() });
    let server = bench.busy(1, 0)[0];
    bench.queue(A, 1);
    assert_eq!(bench.check_in(server, A, CheckIn::Discard, 2), None);
    assert_eq!(bench.closes(), [(server, Closed::Discarded)]);
    assert_eq!((bench.connects.len(), bench.pool.counts().closing), (0, 1));
    bench.call(3, |pool, now| pool.handle_closed(server, now));
    assert!(bench.connected(4).is_some());
}

#[test]
fn a_server_that_was_idle_for_long_is_checked_before_it_is_handed_out() {
    let mut bench = Bench::new(PoolConfig { check_after_idle: Some(MS * 10), ..config() });
    let s = bench.busy(2, 0);
    bench.give(s[0], 1);
    bench.check_in(s[1], B, CheckIn::Clean, 20);
    assert_eq!(bench.take(A, 25), s[1], "the fresh one of another home comes before a check");
    bench.queue(A, 26);
    assert_eq!(bench.actions(), [Action::Check { server: s[0], home: A }]);
    assert!(bench.connects.is_empty(), "a check under way is an answer to the waiter");
    assert_eq!(bench.pool.handle_checked(s[0], true, A, at(27)).map(|g| g.server), Some(s[0]));
}

#[test]
fn a_failed_check_closes_the_server_and_the_next_is_checked() {
    let mut bench = Bench::new(PoolConfig { check_after_idle: Some(MS * 10), ..config() });
    let s = bench.busy(2, 0);
    bench.give(s[0], 1);
    bench.give(s[1], 2);
    bench.queue(A, 50);
    assert_eq!(bench.actions(), [Action::Check { server: s[1], home: A }]);
    assert_eq!(bench.pool.handle_checked(s[1], false, A, at(51)), None);
    bench.run(51);
    let orders =
        [Action::Close { server: s[1], home: A, reason: Closed::Error }, Action::Check { server: s[0], home: A }];
    let mut actions = bench.actions();
    actions.sort_by_key(|action| !matches!(action, Action::Close { .. }));
    assert_eq!(actions, orders);
}

#[test]
fn a_check_that_never_ends_is_given_up() {
    let mut bench = Bench::new(PoolConfig { connect_timeout: MS * 100, ..config() });
    let server = bench.busy(1, 0)[0];
    assert_eq!(bench.check_in(server, A, CheckIn::Reset, 1), None);
    bench.actions();
    bench.timeout(101);
    assert_eq!(bench.closes(), [(server, Closed::Error)]);
    assert_eq!(bench.pool.handle_checked(server, true, A, at(102)), None, "too late");
    bench.pool.handle_closed(server, at(103));
    assert_eq!(bench.pool.counts().total, 0);
}

#[test]
fn idle_servers_close_oldest_first_but_never_below_min_size() {
    let mut bench = Bench::new(PoolConfig { max_size: 3, min_size: 1, max_idle_time: Some(MS * 100), ..config() });
    let first = bench.connects.remove(0);
    assert_eq!(bench.pool.handle_connected(first, A, at(0)), None);
    let s: Vec<_> = [bench.take(A, 0)].into_iter().chain(bench.busy(2, 0)).collect();
    for (ms, server) in (1..).zip(&s) {
        bench.give(*server, ms);
    }
    bench.timeout(101);
    assert_eq!(bench.closes(), [(s[0], Closed::Idle)]);
    bench.timeout(500);
    assert_eq!(bench.closes(), [(s[1], Closed::Idle)]);
    assert_eq!(bench.pool.poll_deadline(), None);
    assert_eq!(bench.take(A, 1000), s[2], "what min_size keeps is handed out");
}

#[test]
fn an_old_server_closes_when_idle_or_at_check_in_and_is_not_handed_out() {
    let life = Some(Duration::from_secs(1));
    let mut bench = Bench::new(PoolConfig { max_life_time: life, life_time_jitter: 0.0, max_size: 3, ..config() });
    let s = bench.busy(3, 0);
    bench.give(s[0], 1);
    bench.give(s[1], 2);
    let CheckOut::Queued(_) = bench.check_out(A, 1000) else { panic!("old servers were handed out") };
    assert_eq!(bench.closes(), [(s[1], Closed::Life), (s[0], Closed::Life)]);
    assert_eq!(bench.check_in(s[2], A, CheckIn::Clean, 1001), None);
    assert_eq!(bench.closes(), [(s[2], Closed::Life)]);
}

#[test]
fn lives_end_by_themselves_and_at_different_times() {
    let life = Some(Duration::from_secs(1));
    let mut bench = Bench::new(PoolConfig { max_life_time: life, life_time_jitter: 0.5, max_size: 8, ..config() });
    for server in bench.busy(8, 0) {
        bench.give(server, 1);
    }
    let mut ends = vec![];
    while let Some(next) = bench.pool.poll_deadline() {
        let ms = next.0.div_ceil(1_000_000);
        bench.timeout(ms);
        ends.push(ms);
    }
    assert_eq!(bench.pool.counts().idle, 0);
    assert!(ends.len() > 4 && ends.iter().all(|ms| (500..=1000).contains(ms)), "{ends:?}");
}

#[test]
fn a_late_clock_is_read_as_the_latest_one() {
    let mut bench = Bench::new(PoolConfig { max_idle_time: Some(MS * 100), ..config() });
    let server = bench.busy(1, 50)[0];
    bench.give(server, 20);
    assert_eq!(bench.pool.poll_deadline(), Some(at(150)));
}

#[test]
#[should_panic = "is gone"]
fn a_server_that_is_gone_cannot_be_lost_again() {
    let mut bench = Bench::new(config());
    let server = bench.busy(1, 0)[0];
    bench.pool.handle_lost(server, at(1));
    bench.pool.handle_lost(server, at(1));
}

#[test]
#[should_panic = "was checked in while Idle"]
fn a_server_cannot_be_checked_in_twice() {
    let mut bench = Bench::new(config());
    let server = bench.busy(1, 0)[0];
    bench.give(server, 1);
    bench.give(server, 1);
}

#[test]
#[should_panic = "min_size (3) is above max_size (2)"]
fn an_invalid_configuration_is_our_own_mistake() {
    Pool::new(PoolConfig { min_size: 3, ..config() }, 1, at(0));
}

#[test]
fn it_can_be_asked_whether_a_server_is_to_be_closed() {
    let mut bench = Bench::new(config());
    let _ = bench.queue(A, 0);
    let server = bench.connects[0];
    assert_eq!(bench.pool.is_closing(server), Some(false), "it is connecting");
    bench.pool.clear(Clear::default(), at(1));
    assert_eq!(bench.pool.is_closing(server), Some(true));
    bench.pool.handle_closed(server, at(1));
    assert_eq!(bench.pool.is_closing(server), None, "it is gone");
    bench.run(1);
    assert_eq!(bench.pool.is_closing(bench.connects[1]), Some(false), "its successor in the same place is another");
}

#[test]
fn a_server_in_use_by_its_own_session_goes_to_no_waiter_and_is_replaced_when_lost() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, min_size: 1, ..config() });
    let server = bench.connects.pop().expect("it is made at the start");
    bench.queue(A, 1);
    assert!(bench.pool.handle_connected_in_use(server, A, at(2)));
    bench.run(2);
    assert_eq!((bench.pool.counts().in_use, bench.pool.counts().waiters), (1, 1));
    bench.call(3, |pool, now| pool.handle_lost(server, now));
    assert_eq!(bench.connects.len(), 1);
    assert!(bench.connected(4).is_some(), "the waiter gets a server that no session holds");
}

#[test]
fn a_server_that_became_stale_while_it_was_made_is_not_in_use_by_itself() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, min_size: 1, ..config() });
    let server = bench.connects.pop().expect("it is made at the start");
    bench.call(1, |pool, now| pool.clear(Clear::default(), now));
    assert!(!bench.pool.handle_connected_in_use(server, A, at(2)));
    bench.run(2);
    assert_eq!(bench.closes().len(), 1);
}
