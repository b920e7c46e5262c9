//! Those who keep a server for long, and the last one that is left to others.

use super::*;

fn lasting(bench: &mut Bench, ms: u64) -> CheckOut {
    bench.waiter += 1;
    let answer = bench.pool.check_out_for(WaiterId(bench.waiter), A, Wish::Lasting, at(ms));
    bench.run(ms);
    answer
}

/// A pool of so many servers, all idle.
fn idle(max_size: u32) -> Bench {
    let mut bench = Bench::new(PoolConfig { max_size, min_size: max_size, max_connecting: max_size, ..config() });
    for server in core::mem::take(&mut bench.connects) {
        assert_eq!(bench.pool.connected(server, A, at(0)), None);
        bench.run(0);
    }
    bench
}

fn granted(answer: CheckOut) -> ServerId {
    match answer {
        CheckOut::Granted(grant) => grant.server,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[test]
fn who_keeps_a_server_for_long_never_gets_the_last() {
    let mut bench = idle(3);
    let first = granted(lasting(&mut bench, 1));
    granted(lasting(&mut bench, 1));
    assert!(matches!(lasting(&mut bench, 1), CheckOut::Queued(_)));
    let counts = bench.pool.counts();
    assert_eq!((counts.idle, counts.waiters, counts.held_back), (1, 1, 1));
    assert!(!counts.waits_for_any());
    // It is nobody's turn before others, who take what is left.
    let last = bench.take(A, 2);
    assert_eq!(bench.check_in(last, A, CheckIn::Clean, 3), None);
    // Only one of their own makes room, and its server is theirs at once.
    let grant = bench.check_in(first, A, CheckIn::Clean, 4).expect("somebody waits for it");
    assert_eq!((grant.server, grant.waiter), (first, WaiterId(3)));
    assert_eq!(bench.pool.counts().waiters, 0);
}

#[test]
fn where_there_is_one_server_it_is_theirs_too() {
    let mut bench = idle(1);
    let only = granted(lasting(&mut bench, 1));
    assert!(matches!(lasting(&mut bench, 1), CheckOut::Queued(_)));
    assert_eq!(bench.check_in(only, A, CheckIn::Clean, 2).map(|grant| grant.waiter), Some(WaiterId(2)));
}

#[test]
fn who_is_held_back_may_leave_before_and_after_it_was_let_in() {
    let mut bench = idle(2);
    let first = granted(lasting(&mut bench, 1));
    let CheckOut::Queued(early) = lasting(&mut bench, 1) else { panic!("it waits") };
    assert!(bench.pool.cancel(early, WaiterId(2), at(2)));
    bench.run(2);
    let CheckOut::Queued(late) = lasting(&mut bench, 3) else { panic!("it waits") };
    // The first one's server is lost: there is room, and a new server is on its way.
    let other = bench.take(A, 4);
    bench.pool.lost(first, at(5));
    bench.run(5);
    assert_eq!((bench.pool.counts().waiters, bench.pool.counts().held_back), (1, 0));
    assert!(bench.pool.cancel(late, WaiterId(3), at(6)));
    bench.run(6);
    assert!(!bench.pool.cancel(late, WaiterId(3), at(6)));
    bench.give(other, 7);
}

#[test]
fn who_is_held_back_waits_no_longer_than_others() {
    let mut bench = idle(2);
    granted(lasting(&mut bench, 1));
    assert!(matches!(lasting(&mut bench, 1), CheckOut::Queued(_)));
    let at_last = bench.pool.poll_deadline().expect("somebody waits");
    bench.pool.handle_timeout(at_last);
    bench.run(at_last.0 / 1_000_000);
    let failed =
        |action: &Action| matches!(action, Action::Fail { waiter: WaiterId(2), reason: CheckOutFailed::Timeout, .. });
    assert!(bench.actions.iter().any(failed), "{:?}", bench.actions);
}
