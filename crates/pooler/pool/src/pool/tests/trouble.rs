//! What happens when connects fail, the pool is paused, cleared or closed, or its limits change.

use super::*;
use crate::action::ConnectFault;

#[test]
fn after_a_failed_connect_the_next_waits_and_the_pause_doubles_within_bounds() {
    let mut bench = Bench::new(PoolConfig { backoff_min: MS * 100, backoff_max: MS * 400, ..config() });
    bench.queue(A, 0);
    let (mut now, bounds) = (0, [200, 400, 400, 400]);
    for bound in bounds {
        bench.connect_failed(false, now);
        assert!(bench.connects.is_empty() && bench.pool.unavailable_since() == Some(at(0)));
        let next = bench.pool.poll_deadline().expect("a next try").0.div_ceil(1_000_000);
        assert!((now + 100..=now + bound).contains(&next), "{next} after {now}");
        bench.timeout(next);
        now = next;
    }
    assert!(bench.connected(now).is_some());
    assert_eq!(bench.pool.unavailable_since(), None);
}

#[test]
fn a_pause_ends_when_another_pool_has_connected_unless_this_one_was_refused_for_itself() {
    for fault in [ConnectFault::Transient, ConnectFault::Permanent, ConnectFault::UnknownDatabase] {
        let mut bench = Bench::new(PoolConfig { backoff_min: MS * 1000, backoff_max: MS * 1000, ..config() });
        bench.queue(A, 0);
        let server = bench.connects.remove(0);
        bench.pool.handle_connect_abandoned(server, fault, at(0));
        bench.pool.handle_closed(server, at(0));
        if fault != ConnectFault::Transient {
            bench.run(0);
            assert_eq!(bench.failures().len(), 1);
            let _ = bench.check_out(A, 1);
        }
        assert_eq!(bench.pool.handle_upstream_recovered(at(10)), fault == ConnectFault::Transient, "{fault:?}");
        bench.run(10);
        assert_eq!(bench.connects.len(), usize::from(fault == ConnectFault::Transient), "{fault:?}");
        assert!(!bench.pool.handle_upstream_recovered(at(11)), "{fault:?}");
        bench.run(11);
        assert_eq!(bench.connects.len(), usize::from(fault == ConnectFault::Transient), "{fault:?}");
    }
}

#[test]
fn while_unavailable_waiters_wait_longer_and_a_recovery_does_not_fail_them() {
    let mut bench = Bench::new(PoolConfig {
        max_size: 1,
        max_wait_time: Some(MS * 1000),
        unavailable_wait_time: Some(MS * 30_000),
        ..config()
    });
    bench.queue(A, 0);
    bench.queue(A, 0);
    bench.connect_failed(false, 10);
    bench.timeout(5000);
    assert_eq!(bench.failures(), []);
    let server = bench.connected(10_000).expect("a grant").server;
    bench.timeout(10_999);
    assert_eq!(bench.failures(), []);
    bench.timeout(11_000);
    assert_eq!(bench.failures(), [(2, CheckOutFailed::Timeout)]);
    bench.give(server, 11_001);
}

#[test]
fn waiters_fail_when_the_upstream_stays_away() {
    let mut bench = Bench::new(PoolConfig { unavailable_wait_time: Some(MS * 3000), ..config() });
    bench.queue(A, 0);
    for ms in 1..3000 {
        while !bench.connects.is_empty() {
            bench.connect_failed(false, ms);
        }
        bench.timeout(ms);
    }
    assert_eq!(bench.failures(), []);
    bench.timeout(3000);
    assert_eq!(bench.failures(), [(1, CheckOutFailed::Unavailable)]);
}

#[test]
fn failing_connects_do_not_make_a_pool_unavailable_that_has_a_server() {
    let mut bench = Bench::new(config());
    bench.busy(1, 0);
    bench.queue(A, 0);
    bench.connect_failed(false, 1);
    assert_eq!(bench.pool.unavailable_since(), None);
    bench.timeout(2000);
    assert_eq!(bench.failures(), [(2, CheckOutFailed::Timeout)]);
}

#[test]
fn a_permanent_refusal_fails_all_waiters() {
    let mut bench = Bench::new(config());
    bench.queue(A, 0);
    bench.queue(A, 0);
    bench.queue(A, 0);
    bench.connect_failed(true, 1);
    let refused = CheckOutFailed::Refused;
    assert_eq!(bench.failures(), [(1, refused), (2, refused), (3, refused)]);
}

#[test]
fn a_name_that_the_upstream_does_not_know_fails_at_once_and_is_no_outage() {
    let mut bench = Bench::new(PoolConfig { min_size: 2, min_size_once_connected: true, ..config() });
    assert!(bench.connects.is_empty(), "nothing is kept of what may not exist");
    bench.queue(A, 0);
    bench.connect_refused(ConnectFault::UnknownDatabase, 1);
    assert_eq!(bench.failures(), [(1, CheckOutFailed::UnknownDatabase)]);
    assert_eq!(bench.check_out(A, 2), CheckOut::Failed(CheckOutFailed::UnknownDatabase));
    assert_eq!((bench.pool.unavailable_since(), bench.connects.len()), (None, 0));
    bench.timeout(10_000);
    assert!(bench.connects.is_empty(), "none is needed");
    // It may be there by now. The first connection proves it.
    bench.queue(A, 10_000);
    assert!(bench.connected(10_001).is_some());
    assert_eq!(bench.connects.len(), 1);
}

#[test]
fn a_name_that_is_configured_and_unknown_is_an_outage() {
    let mut bench = Bench::new(PoolConfig { min_size: 1, ..config() });
    bench.connect_refused(ConnectFault::UnknownDatabase, 1);
    assert!(bench.pool.unavailable_since().is_some());
    bench.timeout(10_000);
    assert_eq!(bench.connects.len(), 1, "it is tried again");
}

#[test]
fn a_server_that_is_given_up_has_its_place_until_it_is_closed() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, ..config() });
    let server = bench.busy(1, 0)[0];
    bench.queue(A, 1);
    bench.call(2, |pool, now| pool.handle_abandoned(server, now));
    assert_eq!((bench.connects.len(), bench.pool.counts().total), (0, 1));
    bench.call(3, |pool, now| pool.handle_closed(server, now));
    assert_eq!((bench.connects.len(), bench.pool.counts().total), (1, 1));
}

#[test]
fn a_connect_that_takes_too_long_is_given_up() {
    let mut bench = Bench::new(PoolConfig { connect_timeout: MS * 100, ..config() });
    bench.queue(A, 0);
    assert_eq!(bench.pool.poll_deadline(), Some(at(100)));
    bench.timeout(100);
    let server = bench.connects.remove(0);
    assert_eq!(bench.closes(), [(server, Closed::Error)]);
    assert!(bench.pool.unavailable_since().is_some());
    assert_eq!(bench.pool.handle_connected(server, A, at(101)), None, "too late");
    bench.pool.handle_connect_failed(server, false, at(102));
    assert_eq!(bench.pool.counts().total, 0);
}

#[test]
fn an_upstream_that_drops_new_connections_is_not_dialled_in_a_loop() {
    let mut bench = Bench::new(PoolConfig { min_size: 1, ..config() });
    let server = bench.connects[0];
    bench.connected(1);
    bench.call(2, |pool, now| pool.handle_lost(server, now));
    assert!(bench.connects.is_empty());
    bench.timeout(202);
    assert_eq!(bench.connects.len(), 1);
}

#[test]
fn a_pause_that_holds_grants_nothing_and_then_serves_all_it_can() {
    let mut bench = Bench::new(config());
    let s = bench.busy(2, 0);
    bench.pool.pause(PauseMode::HoldWaiters, at(1));
    bench.give(s[0], 2);
    bench.queue(A, 3);
    bench.queue(A, 4);
    assert!(bench.pool.is_paused() && bench.actions().is_empty());
    bench.call(5000, |pool, now| pool.ready(now));
    let actions = bench.actions();
    assert!(matches!(actions[..], [Action::Grant(Grant { waiter: WaiterId(3), source: GrantSource::Queued, .. })]));
    bench.timeout(6999);
    assert_eq!(bench.failures(), [], "the pause did not count");
    bench.timeout(7000);
    assert_eq!(bench.failures(), [(4, CheckOutFailed::Timeout)]);
}

#[test]
fn a_pause_that_lasts_too_long_fails_those_it_holds() {
    let mut bench = Bench::new(config());
    bench.pool.pause(PauseMode::HoldWaiters, at(1));
    bench.queue(A, 2);
    bench.timeout(30_002);
    assert_eq!(bench.failures(), [(1, CheckOutFailed::Paused)]);
}

#[test]
fn a_pause_that_fails_waiters_fails_queued_and_new_ones() {
    let mut bench = Bench::new(config());
    bench.queue(A, 0);
    bench.pool.pause(PauseMode::FailWaiters, at(1));
    bench.run_withdrawn();
    assert_eq!(bench.failures(), [(1, CheckOutFailed::Paused)]);
    assert_eq!(bench.check_out(A, 2), CheckOut::Failed(CheckOutFailed::Paused));
    assert_eq!(bench.connected(3), None, "what was connecting becomes idle");
    bench.pool.ready(at(4));
    bench.take(A, 5);
}

#[test]
fn a_clear_closes_idle_ones_now_and_those_in_use_at_check_in() {
    let mut bench = Bench::new(PoolConfig { max_size: 3, ..config() });
    let s = bench.busy(2, 0);
    bench.queue(A, 1);
    let connecting = bench.connects.remove(0);
    bench.give_to(s[0], 3, 2);
    bench.call(3, |pool, now| pool.clear(Clear::default(), now));
    assert_eq!(bench.pool.generation(), 1);
    assert_eq!(bench.closes(), [(connecting, Closed::Stale)]);
    assert_eq!(bench.check_in(s[0], A, CheckIn::Clean, 4), None);
    assert_eq!(bench.check_in(s[1], A, CheckIn::Reset, 4), None);
    assert_eq!(bench.closes(), [(s[0], Closed::Stale), (s[1], Closed::Stale)]);
}

#[test]
fn a_clear_keeps_waiters_for_new_servers_or_fails_them() {
    let mut bench = Bench::new(PoolConfig { max_size: 2, ..config() });
    bench.busy(1, 0);
    bench.queue(A, 1);
    bench.call(2, |pool, now| pool.clear(Clear::default(), now));
    assert_eq!(bench.pool.counts().waiters, 1);
    bench.pool.clear(Clear { fail_waiters: true, interrupt: false }, at(3));
    bench.run_withdrawn();
    assert_eq!(bench.failures(), [(2, CheckOutFailed::PoolCleared)]);
}

#[test]
fn a_clear_that_interrupts_cuts_those_in_use_once() {
    let mut bench = Bench::new(PoolConfig { max_size: 3, ..config() });
    let s = bench.busy(3, 0);
    let clear = Clear { fail_waiters: false, interrupt: true };
    bench.call(1, |pool, now| pool.clear(clear, now));
    assert_eq!(bench.actions().len(), 3);
    bench.call(2, |pool, now| pool.clear(clear, now));
    assert_eq!(bench.actions(), []);
    bench.pool.handle_lost(s[0], at(3));
    bench.pool.handle_closed(s[1], at(3));
    assert_eq!(bench.check_in(s[2], A, CheckIn::Clean, 3), None);
    assert_eq!(bench.closes(), [(s[2], Closed::Interrupted)]);
    assert_eq!(bench.pool.counts().total, 1);
}

#[test]
fn a_closed_pool_closes_everything_and_stays_closed() {
    let mut bench = Bench::new(config());
    let s = bench.busy(2, 0);
    bench.give(s[0], 1);
    bench.call(2, |pool, now| pool.close(now));
    assert_eq!(bench.closes(), [(s[0], Closed::PoolClosed)]);
    assert_eq!(bench.check_out(A, 3), CheckOut::Failed(CheckOutFailed::PoolClosed));
    bench.pool.ready(at(4));
    assert_eq!(bench.check_in(s[1], A, CheckIn::Clean, 5), None);
    assert_eq!(bench.closes(), [(s[1], Closed::PoolClosed)]);
    assert!(bench.pool.is_closed());
}

#[test]
fn a_smaller_max_size_closes_idle_ones_now_and_busy_ones_at_check_in() {
    let mut bench = Bench::new(PoolConfig { max_size: 4, ..config() });
    let s = bench.busy(4, 0);
    bench.give(s[0], 1);
    bench.give(s[1], 2);
    bench.pool.reconfigure(PoolConfig { max_size: 1, ..config() }, at(3));
    bench.run(3);
    assert_eq!(bench.closes(), [(s[0], Closed::Shrunk), (s[1], Closed::Shrunk)]);
    bench.queue(A, 4);
    assert_eq!(bench.check_in(s[2], A, CheckIn::Clean, 5), None);
    assert_eq!(bench.closes(), [(s[2], Closed::Shrunk)]);
    assert!(bench.check_in(s[3], A, CheckIn::Clean, 6).is_some());
}

#[test]
fn new_life_times_apply_to_servers_already_there() {
    let mut bench = Bench::new(config());
    let server = bench.busy(1, 100)[0];
    bench.give(server, 200);
    let life = Some(MS * 1000);
    bench.pool.reconfigure(PoolConfig { max_life_time: life, life_time_jitter: 0.0, ..config() }, at(300));
    assert_eq!(bench.pool.poll_deadline(), Some(at(1100)));
}

#[test]
fn a_pool_that_is_emptied_keeps_nothing_until_a_client_waits_again() {
    let mut bench = Bench::new(PoolConfig { min_size: 2, min_size_once_connected: true, ..config() });
    bench.queue(A, 0);
    let used = bench.connected(1).expect("its waiter gets it").server;
    assert!(!bench.pool.is_empty());
    let second = bench.connects[0];
    assert!(bench.connected(1).is_none());
    bench.give(used, 2);
    bench.call(3, |pool, now| pool.close_until_needed(now));
    for server in [used, second] {
        assert!(!bench.pool.is_empty());
        bench.pool.handle_closed(server, at(4));
    }
    bench.run(4);
    assert!(bench.connects.is_empty() && bench.pool.is_empty());
    bench.timeout(10_000);
    assert!(bench.pool.is_empty(), "nothing is kept for its own sake");
    bench.queue(A, 10_000);
    assert!(bench.connected(10_001).is_some());
}
