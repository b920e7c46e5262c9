//! The reserve: who gets a server of it, and when such a server goes.

use super::*;

fn with_reserve(reserve_size: u32) -> PoolConfig {
    PoolConfig { max_size: 1, reserve_size, reserve_wait_time: Some(MS * 100), max_connecting: 9, ..config() }
}

#[test]
fn the_reserve_is_for_waiters_that_have_waited_for_long() {
    let mut bench = Bench::new(with_reserve(1));
    bench.busy(1, 0);
    bench.queue(A, 10);
    bench.queue(A, 20);
    assert_eq!(bench.pool.poll_deadline(), Some(at(110)));
    bench.timeout(109);
    assert!(bench.connects.is_empty());
    bench.timeout(110);
    assert_eq!(bench.connects.len(), 1);
    bench.timeout(120);
    assert_eq!(bench.connects.len(), 1, "the reserve has one server");
    assert_eq!(bench.connected(121).map(|grant| grant.waiter), Some(WaiterId(2)));
    bench.timeout(500);
    assert_eq!(bench.pool.counts().total, 2);
}

#[test]
fn as_many_servers_of_the_reserve_are_made_as_waiters_are_overdue() {
    let mut bench = Bench::new(with_reserve(5));
    bench.busy(1, 0);
    for ms in [10, 20, 90] {
        bench.queue(A, ms);
    }
    bench.timeout(120);
    assert_eq!(bench.connects.len(), 2);
    bench.timeout(190);
    assert_eq!(bench.connects.len(), 3);
}

#[test]
fn a_server_of_the_reserve_serves_while_clients_wait_and_goes_when_it_is_idle() {
    let mut bench = Bench::new(with_reserve(1));
    let first = bench.busy(1, 0).remove(0);
    bench.queue(A, 0);
    bench.timeout(100);
    let second = bench.connected(101).expect("a grant for the waiter").server;
    bench.queue(A, 102);
    bench.give_to(second, 3, 103);
    bench.give(first, 104);
    assert_eq!(bench.pool.poll_deadline(), Some(at(204)));
    bench.timeout(203);
    assert_eq!(bench.take(A, 203), first, "it serves until then");
    bench.give(first, 204);
    bench.give(second, 205);
    bench.timeout(304);
    assert_eq!(bench.closes(), [(first, Closed::Idle)]);
    bench.timeout(9999);
    assert_eq!(bench.closes(), [], "the last server is none of the reserve");
}

#[test]
fn a_waiter_that_is_served_withdraws_the_wish_for_the_reserve() {
    let mut bench = Bench::new(with_reserve(1));
    let server = bench.busy(1, 0).remove(0);
    bench.queue(A, 0);
    bench.pool.handle_timeout(at(100));
    assert_eq!(bench.pool.poll_action(), Some(Action::AskPermit));
    assert!(bench.pool.check_in(server, A, CheckIn::Clean, at(101)).is_some());
    assert_eq!(bench.pool.poll_action(), Some(Action::WithdrawPermit));
    assert_eq!(bench.pool.poll_action(), None);
    bench.pool.check_invariants();
}

#[test]
fn without_a_time_there_is_no_reserve() {
    let mut bench = Bench::new(PoolConfig { reserve_wait_time: None, max_wait_time: None, ..with_reserve(3) });
    bench.busy(1, 0);
    bench.queue(A, 0);
    bench.timeout(100_000);
    assert!(bench.connects.is_empty());
}

#[test]
fn a_reserve_that_is_taken_away_is_given_back_at_check_in() {
    let mut bench = Bench::new(with_reserve(1));
    let first = bench.busy(1, 0).remove(0);
    bench.queue(A, 0);
    bench.timeout(100);
    let second = bench.connected(101).expect("a grant for the waiter").server;
    bench.call(102, |pool, now| pool.reconfigure(PoolConfig { reserve_size: 0, ..with_reserve(1) }, now));
    bench.give(second, 103);
    assert_eq!(bench.closes(), [(second, Closed::Shrunk)]);
    bench.give(first, 104);
    assert_eq!(bench.closes(), []);
}
