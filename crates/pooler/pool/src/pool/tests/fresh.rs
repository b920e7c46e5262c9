//! Waiters that need a server which no client has used.

use super::*;

fn queue_fresh(bench: &mut Bench, ms: u64) -> WaiterId {
    bench.waiter += 1;
    let waiter = WaiterId(bench.waiter);
    let answer = bench.pool.check_out_for(waiter, A, Need::Fresh, at(ms));
    assert!(matches!(answer, CheckOut::Queued(_)), "expected a ticket, got {answer:?}");
    bench.run(ms);
    waiter
}

fn bench(max_size: u32) -> Bench {
    Bench::new(PoolConfig { max_size, max_connecting: max_size, ..config() })
}

#[test]
fn the_next_connection_goes_to_the_waiter_for_a_fresh_server() {
    let mut bench = bench(2);
    let used = bench.busy(1, 1)[0];
    bench.queue(A, 2);
    bench.queue(A, 3);
    let fresh_waiter = queue_fresh(&mut bench, 4);
    assert_eq!(bench.connected(5).map(|grant| grant.waiter), Some(fresh_waiter));
    // What was used is for the others, in their order.
    bench.give_to(used, 2, 6);
    bench.give_to(used, 3, 7);
}

#[test]
fn an_idle_server_makes_room_for_them() {
    let mut bench = bench(1);
    let only = bench.busy(1, 1)[0];
    bench.give(only, 2);
    let fresh_waiter = queue_fresh(&mut bench, 3);
    assert_eq!(bench.closes(), [(only, Closed::Discarded)]);
    bench.call(4, |pool, now| pool.handle_closed(only, now));
    assert_eq!(bench.connected(5).map(|grant| grant.waiter), Some(fresh_waiter));
}

#[test]
fn where_all_are_busy_the_next_that_comes_back_makes_room() {
    let mut bench = bench(2);
    let servers = bench.busy(2, 1);
    bench.queue(A, 2);
    let fresh_waiter = queue_fresh(&mut bench, 3);
    bench.give(servers[0], 4);
    assert_eq!(bench.closes(), [(servers[0], Closed::Discarded)]);
    // One is enough.
    bench.give_to(servers[1], 3, 5);
    bench.call(6, |pool, now| pool.handle_closed(servers[0], now));
    assert_eq!(bench.connected(7).map(|grant| grant.waiter), Some(fresh_waiter));
}

#[test]
fn they_wait_no_longer_than_others() {
    let mut bench = bench(1);
    bench.busy(1, 1);
    let fresh_waiter = queue_fresh(&mut bench, 2);
    let wait = config().max_wait_time.expect("it has a bound");
    bench.timeout(2 + wait.as_millis() as u64);
    assert_eq!(bench.failures(), [(fresh_waiter.0, CheckOutFailed::Timeout)]);
    assert_eq!(bench.pool.counts().waiters, 0);
}

#[test]
fn one_that_has_waited_too_long_gets_no_new_server() {
    let mut bench = bench(1);
    let fresh_waiter = queue_fresh(&mut bench, 1);
    let wait = config().max_wait_time.expect("it has a bound");
    assert_eq!(bench.connected(1 + wait.as_millis() as u64), None);
    assert_eq!(bench.failures(), [(fresh_waiter.0, CheckOutFailed::Timeout)]);
}

#[test]
fn a_waiter_that_leaves_needs_no_connection_any_more() {
    let mut bench = bench(1);
    let only = bench.busy(1, 1)[0];
    let waiter = WaiterId(9);
    let answer = bench.pool.check_out_for(waiter, A, Need::Fresh, at(2));
    let CheckOut::Queued(ticket) = answer else { panic!("it waits") };
    bench.run(2);
    assert!(bench.pool.cancel(ticket, waiter, at(3)).is_some());
    bench.run_withdrawn();
    bench.give(only, 4);
    assert!(bench.closes().is_empty());
}
