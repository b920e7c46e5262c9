//! For how long servers have been held, while they still are.

use super::*;

fn oldest(bench: &Bench, ms: u64) -> Option<u64> {
    bench.pool.oldest_hold(at(ms)).map(|held| u64::try_from(held.as_millis()).expect("it is short"))
}

#[test]
fn the_oldest_hold_grows_until_that_server_comes_back() {
    let mut bench = Bench::new(config());
    assert_eq!(oldest(&bench, 0), None);
    let first = bench.busy(1, 10).remove(0);
    let second = bench.busy(1, 30).remove(0);
    assert_eq!(oldest(&bench, 500), Some(490), "of two, the one that has been held longer");
    bench.give(first, 500);
    assert_eq!(oldest(&bench, 500), Some(470));
    bench.give(second, 600);
    assert_eq!(oldest(&bench, 600), None);
    bench.take(A, 700);
    assert_eq!(oldest(&bench, 701), Some(1), "it counts from the check-out, and not from the start");
}

#[test]
fn a_server_that_goes_from_client_to_client_without_a_rest_is_held_anew_by_each() {
    let mut bench = Bench::new(PoolConfig { max_size: 1, ..config() });
    let server = bench.busy(1, 0).remove(0);
    bench.queue(A, 50);
    bench.give_to(server, 2, 100);
    assert_eq!(oldest(&bench, 130), Some(30));
}

#[test]
fn a_server_that_is_known_to_be_kept_does_not_count_until_it_has_come_back() {
    let mut bench = Bench::new(config());
    let server = bench.busy(1, 0).remove(0);
    bench.pool.set_pinned(server, true);
    bench.run(10);
    assert_eq!(oldest(&bench, 10), None);
    bench.pool.set_pinned(server, false);
    assert_eq!(oldest(&bench, 10), Some(10), "a pin ends, and the transaction goes on");
    bench.pool.set_pinned(server, true);
    bench.give(server, 20);
    bench.pool.set_pinned(server, true);
    bench.run(20);
    assert_eq!(bench.take(A, 30), server);
    assert_eq!(oldest(&bench, 31), Some(1), "what was said before, and while it was idle, is void");
}

#[test]
fn lasting_servers_and_servers_of_their_own_sessions_do_not_count() {
    let mut bench = Bench::new(config());
    let held = bench.busy(2, 0);
    held.into_iter().for_each(|server| bench.give(server, 1));
    bench.waiter += 1;
    let answer = bench.pool.check_out_for(WaiterId(bench.waiter), A, Need::Lasting, at(2));
    assert!(matches!(answer, CheckOut::Granted(_)), "{answer:?}");
    bench.run(2);
    assert_eq!(oldest(&bench, 9), None);

    let mut bench = Bench::new(PoolConfig { min_size: 1, ..config() });
    let server = bench.connects.remove(0);
    assert!(bench.pool.handle_connected_in_use(server, A, at(1)));
    bench.run(1);
    assert_eq!((bench.pool.counts().in_use, oldest(&bench, 9)), (1, None));
}
