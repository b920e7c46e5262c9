//! Clients that hold a server without a time limit, and the last server, which other clients get.

use super::*;

fn lasting(bench: &mut Bench, ms: u64) -> CheckOut {
    bench.waiter += 1;
    let answer = bench.pool.check_out_for(WaiterId(bench.waiter), A, Need::Lasting, at(ms));
    bench.run(ms);
    answer
}

/// A pool of `max_size` idle servers.
fn idle(max_size: u32) -> Bench {
    let mut bench = Bench::new(PoolConfig { max_size, min_size: max_size, max_connecting: max_size, ..config() });
    for server in core::mem::take(&mut bench.connects) {
        assert_eq!(bench.pool.handle_connected(server, A, at(0)), None);
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
fn a_lasting_client_never_gets_the_last_server() {
    let mut bench = idle(3);
    let first = granted(lasting(&mut bench, 1));
    granted(lasting(&mut bench, 1));
    assert!(matches!(lasting(&mut bench, 1), CheckOut::Queued(_)));
    let counts = bench.pool.counts();
    assert_eq!((counts.idle, counts.waiters, counts.deferred), (1, 1, 1));
    assert!(!counts.waits_for_any());
    // Other waiters are served before the deferred ones.
    let last = bench.take(A, 2);
    assert_eq!(bench.check_in(last, A, CheckIn::Clean, 3), None);
    // Only one of their own makes room, and its server is theirs at once.
    let grant = bench.check_in(first, A, CheckIn::Clean, 4).expect("a waiter gets it");
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
fn a_deferred_waiter_may_leave_before_and_after_it_was_admitted() {
    let mut bench = idle(2);
    let first = granted(lasting(&mut bench, 1));
    let CheckOut::Queued(early) = lasting(&mut bench, 1) else { panic!("it waits") };
    assert!(bench.pool.cancel(early, WaiterId(2), at(2)).is_some());
    bench.run(2);
    let CheckOut::Queued(late) = lasting(&mut bench, 3) else { panic!("it waits") };
    // The first one's server is lost: there is room, and a new server is on its way.
    let other = bench.take(A, 4);
    bench.call(5, |pool, now| pool.handle_lost(first, now));
    assert_eq!((bench.pool.counts().waiters, bench.pool.counts().deferred), (1, 0));
    assert!(bench.pool.cancel(late, WaiterId(3), at(6)).is_some());
    bench.run(6);
    assert!(bench.pool.cancel(late, WaiterId(3), at(6)).is_none());
    bench.give(other, 7);
}

#[test]
fn a_deferred_waiter_waits_no_longer_than_others() {
    let mut bench = idle(2);
    granted(lasting(&mut bench, 1));
    assert!(matches!(lasting(&mut bench, 1), CheckOut::Queued(_)));
    let at_last = bench.pool.poll_deadline().expect("there is a waiter");
    bench.pool.handle_timeout(at_last);
    bench.run(at_last.0 / 1_000_000);
    let failed =
        |action: &Action| matches!(action, Action::Fail { waiter: WaiterId(2), reason: CheckOutFailed::Timeout, .. });
    assert!(bench.actions.iter().any(failed), "{:?}", bench.actions);
}

/// A pool of this many servers, of which all but one are held for long, each for a little longer than the next.
fn all_but_one_lasting(max_size: u32) -> (Bench, Vec<ServerId>) {
    let mut bench = idle(max_size);
    let held = (1..max_size).map(|n| granted(lasting(&mut bench, u64::from(n)))).collect();
    (bench, held)
}

/// The servers whose clients were asked to give way since the last call.
fn requested(bench: &mut Bench) -> Vec<ServerId> {
    let actions = core::mem::take(&mut bench.actions);
    let server = |action| if let Action::RequestReturn { server, .. } = action { Some(server) } else { None };
    actions.into_iter().filter_map(server).collect()
}

/// It has half of its servers from now on, for one reason or the other.
fn halve(bench: &mut Bench, by_size: bool, ms: u64) {
    let half = bench.pool.config().max_size / 2;
    if by_size {
        let config = PoolConfig { max_size: half, min_size: 0, ..bench.pool.config().clone() };
        bench.pool.reconfigure(config, at(ms));
    } else {
        bench.pool.set_shared_limit(half);
        bench.pool.handle_timeout(at(ms));
    }
    bench.run(ms);
}

#[test]
fn in_a_smaller_pool_the_client_that_held_its_server_for_longest_is_asked_to_give_way() {
    for by_size in [true, false] {
        let (mut bench, held) = all_but_one_lasting(6);
        halve(&mut bench, by_size, 1000);
        assert_eq!(requested(&mut bench), [], "no client waits");
        let last = if by_size { None } else { Some(bench.take(A, 1001)) };
        if let Some(last) = last {
            bench.queue(A, 1002);
            assert_eq!(requested(&mut bench), [], "another client has a server");
            assert!(bench.check_in(last, A, CheckIn::Discard, 1003).is_none());
            bench.pool.handle_closed(last, at(1003));
            bench.run_withdrawn();
        } else {
            bench.queue(A, 1002);
        }
        assert_eq!(requested(&mut bench), held[..3], "of three servers two may be held");
        bench.timeout_without_permits(1004);
        assert_eq!(requested(&mut bench), []);
        assert!(bench.check_in(held[0], A, CheckIn::Reclaim, 1005).is_none());
        assert!(bench.check_in(held[1], A, CheckIn::Reclaim, 1005).is_none());
        assert!(bench.check_in(held[2], A, CheckIn::Clean, 1005).is_some(), "it is for the waiter");
        assert!(matches!(lasting(&mut bench, 1006), CheckOut::Queued(_)));
        assert_eq!((bench.pool.counts().deferred, requested(&mut bench)), (1, vec![]));
    }
}

#[test]
fn a_server_that_does_not_come_back_is_asked_for_again() {
    let (mut bench, held) = all_but_one_lasting(4);
    halve(&mut bench, true, 1000);
    bench.queue(A, 1001);
    assert_eq!(requested(&mut bench), held[..2]);
    for again in 1..3 {
        let due = 1001 + again * 5000;
        bench.timeout(due - 1000);
        bench.queue(A, due - 1000);
        assert_eq!((requested(&mut bench), bench.pool.poll_deadline()), (vec![], Some(at(due))));
        bench.timeout(due);
        assert_eq!(requested(&mut bench), held[..2]);
    }
}

#[test]
fn a_server_is_kept_for_a_turn_at_least_and_the_only_one_for_good() {
    let mut bench = idle(2);
    bench.pool.set_shared_limit(1);
    let only = granted(lasting(&mut bench, 1000));
    let other = bench.take(A, 1000);
    assert!(bench.check_in(other, A, CheckIn::Reclaim, 1001).is_none());
    bench.pool.handle_closed(other, at(1001));
    bench.pool.check_out(WaiterId(99), A, at(1001));
    bench.run_withdrawn();
    assert_eq!(requested(&mut bench), []);
    assert_eq!(bench.pool.poll_deadline(), Some(at(1250)));
    bench.timeout_without_permits(1250);
    assert_eq!(requested(&mut bench), [only]);

    let mut bench = idle(1);
    granted(lasting(&mut bench, 1));
    bench.queue(A, 1000);
    bench.pool.handle_timeout(at(1500));
    bench.run(1500);
    assert_eq!(requested(&mut bench), []);
}
