//! What a pool gives up for others under the same limits, and when it insists on more for itself.

use super::*;

/// A turn, in milliseconds.
const TURN: u64 = 250;

impl Bench {
    fn reclaim(&mut self, ms: u64) -> bool {
        let given = self.pool.reclaim(at(ms));
        self.run(ms);
        given
    }

    /// Whether the budget was told that there is a server to spare.
    fn spares(&mut self) -> bool {
        self.actions().contains(&Action::Spare)
    }

    fn insists(&mut self) -> bool {
        self.actions().contains(&Action::Insist)
    }
}

/// A pool whose budget permits nothing beyond these servers, in use since then.
fn without_permits(servers: usize, ms: u64) -> (Bench, Vec<ServerId>) {
    let mut bench = Bench::new(PoolConfig { max_size: 9, ..config() });
    let busy = bench.busy(servers, ms);
    (bench, busy)
}

/// Somebody waits, and the budget says no.
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
    bench.take(A, 1);
    let second = bench.busy(1, 1)[0];
    assert!(!bench.reclaim(2), "all are busy");
    bench.give(second, 3);
    assert!(bench.spares(), "there is one now, and another that comes free");
    assert!(bench.reclaim(4));
    assert_eq!(bench.closes(), [(second, Closed::Reclaimed)]);
    assert!(!bench.reclaim(999));
}

#[test]
fn a_busy_pool_gives_the_next_one_checked_in_though_others_wait_for_it() {
    let mut bench = Bench::new(config());
    let s = bench.busy(2, 0);
    bench.queue(A, 1);
    assert!(!bench.pool.may_spare(s[0], at(1)), "nobody has asked");
    assert!(!bench.reclaim(2));
    assert!(bench.pool.may_spare(s[0], at(3)));
    assert_eq!(bench.check_in(s[0], A, CheckIn::Reclaim, 3), None);
    assert_eq!(bench.closes(), [(s[0], Closed::Reclaimed)]);
    assert!(bench.check_in(s[1], A, CheckIn::Clean, 4).is_some());
}

#[test]
fn the_last_server_of_a_busy_pool_is_given_up_when_its_turn_is_over() {
    let mut bench = Bench::new(config());
    let last = bench.busy(1, 0)[0];
    assert!(!bench.reclaim(1));
    assert!(!bench.pool.may_spare(last, at(TURN - 1)));
    assert!(bench.pool.may_spare(last, at(TURN)));
}

#[test]
fn the_last_server_is_given_up_early_if_nobody_uses_it() {
    let mut bench = Bench::new(config());
    let last = bench.busy(1, 0)[0];
    bench.give(last, 10);
    assert!(!bench.reclaim(10), "the next request may be on its way");
    let quiet = bench.pool.poll_deadline().expect("it is to be given up soon");
    assert!(quiet > at(20) && quiet < at(40), "{quiet:?}");
    bench.pool.handle_timeout(quiet);
    bench.run(40);
    assert!(bench.spares());
    assert!(bench.reclaim(40));
}

#[test]
fn what_clients_keep_for_long_does_not_make_another_one_spare() {
    let mut bench = Bench::new(config());
    bench.busy(1, 0);
    let other = bench.busy(1, 600)[0];
    assert!(!bench.reclaim(601));
    assert!(!bench.pool.may_spare(other, at(602)), "the first has not come back for long");
    assert!(bench.pool.may_spare(other, at(600 + TURN)));
}

#[test]
fn a_pool_insists_when_nobody_got_a_server_for_a_turn_while_somebody_waits() {
    let (mut bench, _) = without_permits(1, 0);
    wait(&mut bench, 100);
    assert_eq!(bench.pool.poll_deadline(), Some(at(100 + TURN)));
    bench.pool.handle_timeout(at(100 + TURN - 1));
    bench.run_withdrawn();
    assert!(!bench.insists());
    for turn in 1..3 {
        bench.pool.handle_timeout(at(100 + turn * TURN));
        bench.run_withdrawn();
        assert!(bench.insists(), "again after each turn");
    }
    assert!(bench.pool.permit(at(700)));
    bench.run_withdrawn();
    bench.pool.handle_timeout(at(999));
    bench.run_withdrawn();
    assert!(!bench.insists(), "a connection is being made");
}

#[test]
fn a_pool_that_serves_its_waiters_one_after_another_does_not_insist() {
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
    assert!(!bench.insists());
}
