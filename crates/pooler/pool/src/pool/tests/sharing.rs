//! What a pool gives up for others under the same limits, and when it reports starvation or congestion.

use super::*;
use crate::Claim;

/// A turn, in milliseconds.
const TURN: u64 = 250;
/// Milliseconds after which an idle server is given up for a congested pool.
const LONG_IDLE: u64 = 1_000;

impl Bench {
    fn reclaim(&mut self, ms: u64) -> bool {
        self.give_up(Claim::Spare, ms)
    }

    fn reclaim_long_idle(&mut self, ms: u64) -> bool {
        self.give_up(Claim::LongIdle, ms)
    }

    fn give_up(&mut self, claim: Claim, ms: u64) -> bool {
        let given = self.pool.reclaim(claim, at(ms));
        self.run(ms);
        given
    }

    fn reports_spare(&mut self) -> bool {
        self.actions().contains(&Action::ReportSpare)
    }

    fn reports_starvation(&mut self) -> bool {
        self.actions().contains(&Action::ReportStarvation)
    }
}

/// A pool whose budget permits no more than these servers, which are in use since then.
fn without_permits(servers: usize, ms: u64) -> (Bench, Vec<ServerId>) {
    let mut bench = Bench::new(PoolConfig { max_size: 9, ..config() });
    let busy = bench.busy(servers, ms);
    (bench, busy)
}

/// A client waits, and the budget permits nothing.
fn wait(bench: &mut Bench, ms: u64) {
    bench.waiter += 1;
    let answer = bench.pool.check_out(WaiterId(bench.waiter), A, at(ms));
    assert!(matches!(answer, CheckOut::Queued(_)));
    bench.run_withdrawn();
}

#[test]
fn the_budget_gets_an_idle_server_back_but_never_below_min_size() {
    let mut bench = Bench::new(PoolConfig { min_size: 1, ..config() });
    bench.connected(0);
    assert!(!bench.reclaim(1));
    let first = bench.take(A, 1);
    let second = bench.busy(1, 1)[0];
    assert!(!bench.reclaim(2), "all are busy");
    bench.give(second, 3);
    assert!(bench.reports_spare(), "there is one now, and another that comes free");
    assert!(bench.reclaim(4));
    assert_eq!(bench.closes(), [(second, Closed::Reclaimed)]);
    assert!(!bench.reclaim(500));
    assert!(!bench.pool.can_spare(first, at(999)));
    bench.give(first, 999);
    assert!(!bench.reclaim(9_999));
}

#[test]
fn a_busy_pool_gives_the_next_one_checked_in_though_others_wait_for_it() {
    let mut bench = Bench::new(config());
    let s = bench.busy(2, 0);
    bench.queue(A, 1);
    assert!(!bench.pool.can_spare(s[0], at(1)), "the budget has not asked");
    assert!(!bench.reclaim(2));
    assert!(bench.pool.can_spare(s[0], at(3)));
    assert_eq!(bench.check_in(s[0], A, CheckIn::Reclaim, 3), None);
    assert_eq!(bench.closes(), [(s[0], Closed::Reclaimed)]);
    assert!(bench.check_in(s[1], A, CheckIn::Clean, 4).is_some());
}

#[test]
fn the_last_server_of_a_busy_pool_is_given_up_when_its_turn_is_over() {
    let mut bench = Bench::new(config());
    let last = bench.busy(1, 0)[0];
    assert!(!bench.reclaim(1));
    assert!(!bench.pool.can_spare(last, at(TURN - 1)));
    assert!(bench.pool.can_spare(last, at(TURN)));
}

#[test]
fn the_last_server_is_given_up_early_if_it_is_idle() {
    let mut bench = Bench::new(config());
    let last = bench.busy(1, 0)[0];
    bench.give(last, 10);
    assert!(!bench.reclaim(10), "the next request may be on its way");
    let quiet = bench.pool.poll_deadline().expect("it is to be given up soon");
    assert!(quiet > at(20) && quiet < at(40), "{quiet:?}");
    bench.pool.handle_timeout(quiet);
    bench.run(40);
    assert!(bench.reports_spare());
    assert!(bench.reclaim(40));
}

#[test]
fn what_clients_keep_for_long_does_not_make_another_one_spare() {
    let mut bench = Bench::new(config());
    bench.busy(1, 0);
    let other = bench.busy(1, 600)[0];
    assert!(!bench.reclaim(601));
    assert!(!bench.pool.can_spare(other, at(602)), "the first has not come back for long");
    assert!(bench.pool.can_spare(other, at(600 + TURN)));
}

#[test]
fn a_pool_reports_starvation_when_its_waiters_got_no_server_for_a_turn() {
    let (mut bench, _) = without_permits(1, 0);
    wait(&mut bench, 100);
    assert_eq!(bench.pool.poll_deadline(), Some(at(100 + TURN)));
    bench.timeout_without_permits(100 + TURN - 1);
    assert!(!bench.reports_starvation());
    for turn in 1..3 {
        bench.timeout_without_permits(100 + turn * TURN);
        assert!(bench.reports_starvation(), "again after each turn");
    }
    assert!(bench.pool.handle_permit(at(700)));
    bench.run_withdrawn();
    bench.timeout_without_permits(999);
    assert!(!bench.reports_starvation(), "a connection is being made");
}

#[test]
fn a_pool_that_serves_its_waiters_reports_no_starvation() {
    let (mut bench, busy) = without_permits(1, 0);
    for ms in 1..9 {
        wait(&mut bench, ms);
    }
    for ms in (100..800).step_by(100) {
        bench.pool.handle_timeout(at(ms));
        let grant = bench.pool.check_in(busy[0], A, CheckIn::Clean, at(ms));
        assert!(grant.is_some());
        bench.run_withdrawn();
    }
    assert!(!bench.reports_starvation());
}

#[test]
fn a_server_that_was_idle_for_long_is_given_up_even_if_it_is_the_last() {
    let mut bench = Bench::new(config());
    let last = bench.busy(1, 0)[0];
    assert!(!bench.reclaim_long_idle(5), "it is in use");
    bench.give(last, 10);
    assert!(!bench.reports_spare(), "it was used just now");
    assert_eq!(bench.pool.poll_deadline(), Some(at(10 + LONG_IDLE)));
    bench.timeout(10 + LONG_IDLE - 1);
    assert!(!bench.reclaim_long_idle(10 + LONG_IDLE - 1));
    bench.timeout(10 + LONG_IDLE);
    assert!(bench.reports_spare());
    assert!(bench.reclaim_long_idle(10 + LONG_IDLE));
    assert_eq!(bench.closes(), [(last, Closed::Reclaimed)]);
}

#[test]
fn a_server_that_is_used_now_and_then_is_never_given_up_as_long_idle() {
    let mut bench = Bench::new(PoolConfig { max_size: 3, ..config() });
    let s = bench.busy(2, 0);
    bench.give(s[0], 1);
    bench.give(s[1], 2);
    for ms in (500..5_000).step_by(500) {
        assert_eq!(bench.take(A, ms), s[1]);
        bench.give(s[1], ms + 1);
        assert_eq!(bench.reclaim_long_idle(ms + 2), ms == 1_000, "only the other one, once");
    }
}

#[test]
fn a_server_that_comes_back_was_not_idle_for_long() {
    let mut bench = Bench::new(config());
    let s = bench.busy(2, 0);
    assert!(!bench.reclaim_long_idle(9_999));
    assert!(!bench.pool.can_spare(s[0], at(9_999)));
    bench.give(s[0], 9_999);
    assert!(!bench.reports_spare());
}

#[test]
fn a_pool_reports_congestion_when_it_always_had_waiters_for_a_turn_although_servers_come_back() {
    let (mut bench, busy) = without_permits(1, 0);
    for _ in 0..40 {
        wait(&mut bench, 5);
    }
    let mut pressed = Vec::new();
    for ms in (10..=300).step_by(10) {
        assert!(bench.pool.check_in(busy[0], A, CheckIn::Clean, at(ms)).is_some());
        bench.run_withdrawn();
        if bench.actions().contains(&Action::ReportCongestion) {
            pressed.push(ms);
        }
    }
    // No client has waited for a whole turn. The budget is told from time to time, not at each check-in.
    assert_eq!(pressed, [260, 280, 300]);
}

#[test]
fn a_queue_that_was_empty_for_a_moment_is_no_congestion() {
    let (mut bench, busy) = without_permits(1, 0);
    for ms in (0..2_000).step_by(200) {
        wait(&mut bench, ms + 1);
        wait(&mut bench, ms + 2);
        for back in [150, 151] {
            assert!(bench.pool.check_in(busy[0], A, CheckIn::Clean, at(ms + back)).is_some());
            bench.run_withdrawn();
        }
    }
    assert!(!bench.actions().contains(&Action::ReportCongestion));
}

#[test]
fn a_pool_whose_servers_do_not_come_back_reports_starvation_and_no_congestion() {
    let (mut bench, _) = without_permits(2, 0);
    for _ in 0..3 {
        wait(&mut bench, 5);
    }
    for turn in 1..4 {
        bench.timeout_without_permits(5 + turn * TURN);
    }
    // A new server is no sign that those in use come back.
    assert!(bench.pool.handle_permit(at(800)));
    let new = bench.pool.poll_action();
    let Some(Action::Connect { server, .. }) = new else { panic!("{new:?}") };
    assert!(bench.pool.handle_connected(server, A, at(801)).is_some());
    bench.run_withdrawn();
    let reports = bench.actions();
    assert!(reports.contains(&Action::ReportStarvation) && !reports.contains(&Action::ReportCongestion), "{reports:?}");
}

#[test]
fn a_pool_is_stuck_when_a_client_has_waited_for_a_turn_and_no_server_came_free() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, ..config() });
    let server = bench.busy(1, 0)[0];
    assert!(!bench.pool.is_stuck(at(9_999)), "no client waits");
    bench.queue(A, 10_000);
    bench.queue(A, 10_001);
    assert!(
        !bench.pool.is_stuck(at(10_000 + TURN - 1)),
        "the server was granted long ago, but the client has just come"
    );
    assert!(bench.pool.is_stuck(at(10_000 + TURN)));
    bench.give_to(server, 2, 11_000);
    assert!(!bench.pool.is_stuck(at(11_000 + TURN - 1)), "a server came free");
    assert!(bench.pool.is_stuck(at(11_000 + TURN)));
}

#[test]
fn a_pool_is_not_stuck_while_a_server_is_coming() {
    let mut bench = Bench::new(PoolConfig { max_size: 3, max_connecting: 1, ..config() });
    let busy = bench.busy(1, 0)[0];
    bench.queue(A, 10_000);
    bench.queue(A, 10_000);
    assert!(!bench.pool.is_stuck(at(11_000)), "it is being connected");
    assert!(bench.connected(11_000).is_some());
    assert!(!bench.pool.is_stuck(at(11_500)), "the next one is");
    let second = bench.connected(11_500).expect("a grant for the second").server;
    bench.queue(A, 13_000);
    assert!(bench.pool.is_stuck(at(13_000 + TURN)));
    assert_eq!(bench.check_in(second, A, CheckIn::Reset, 14_000), None);
    assert!(!bench.pool.is_stuck(at(14_500)), "it is being reset");
    assert!(bench.pool.handle_checked(second, true, A, at(14_500)).is_some());
    bench.run(14_500);
    bench.queue(A, 15_001);
    assert_eq!(bench.check_in(busy, A, CheckIn::Discard, 16_000), None);
    assert!(!bench.pool.is_stuck(at(16_000 + TURN - 1)), "it is being closed, which makes room for another");
    assert!(bench.pool.is_stuck(at(16_000 + TURN)), "but its database does not end the session");
}

#[test]
fn a_pool_is_not_stuck_while_it_is_paused_nor_for_a_turn_after() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, ..config() });
    bench.busy(1, 0);
    bench.queue(A, 10_000);
    bench.call(10_001, |pool, now| pool.pause(PauseMode::HoldWaiters, now));
    assert!(!bench.pool.is_stuck(at(20_000)));
    bench.call(20_000, |pool, now| pool.ready(now));
    assert!(!bench.pool.is_stuck(at(20_000 + TURN - 1)));
    assert!(bench.pool.is_stuck(at(20_000 + TURN)));
}

#[test]
fn a_server_within_min_size_is_given_up_while_idle_if_another_pool_has_none() {
    let mut bench = Bench::new(PoolConfig { min_size: 1, ..config() });
    bench.connected(0);
    let server = bench.take(A, 1);
    assert!(!bench.give_up(Claim::Kept, 2), "it is in use");
    assert!(!bench.pool.can_spare(server, at(2 * TURN)), "one in use stays");
    bench.give(server, 2 * TURN);
    assert!(bench.reports_spare(), "it has served for a turn");
    assert!(!bench.reclaim(2 * TURN), "for others it is kept");
    assert!(bench.give_up(Claim::Kept, 2 * TURN));
    assert_eq!(bench.closes(), [(server, Closed::Reclaimed)]);
    bench.timeout(20 * TURN);
    assert!(bench.connects.is_empty(), "the other pool would have to give it back");
    bench.queue(A, 20 * TURN);
    assert_eq!(bench.connects.len(), 1);
}
