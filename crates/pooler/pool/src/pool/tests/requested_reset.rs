//! Resets that the caller requests of any server.

use super::*;

fn request_reset(bench: &mut Bench, ms: u64) {
    bench.pool.request_reset(at(ms));
    bench.run(ms);
}

/// The servers that were reset since.
fn reset(bench: &mut Bench) -> Vec<ServerId> {
    let server = |action: &Action| if let Action::Reset { server, .. } = action { Some(*server) } else { None };
    let found = bench.actions.iter().filter_map(server).collect();
    bench.actions.clear();
    found
}

#[test]
fn an_idle_server_is_sent_at_once_and_another_is_left_to_others() {
    let mut bench = Bench::new(config());
    let servers = bench.busy(2, 1);
    bench.give(servers[0], 2);
    bench.give(servers[1], 3);
    request_reset(&mut bench, 4);
    assert_eq!(reset(&mut bench), [servers[0]], "the one used last is likely to be wanted next");
    assert_eq!(bench.take(A, 5), servers[1]);
    assert_eq!(bench.pool.handle_checked(servers[0], true, A, at(6)), None);
    bench.run(6);
    assert_eq!(reset(&mut bench), [], "one reset was requested");
}

#[test]
fn if_all_servers_are_busy_the_first_that_comes_back_is_reset_if_no_waiter_needs_it() {
    let mut bench = Bench::new(config());
    let servers = bench.busy(2, 1);
    request_reset(&mut bench, 2);
    assert!(bench.connects.is_empty() && reset(&mut bench).is_empty());
    bench.queue(A, 3);
    assert!(bench.check_in(servers[0], A, CheckIn::Clean, 4).is_some(), "the waiter goes first");
    bench.give(servers[1], 5);
    assert_eq!(reset(&mut bench), [servers[1]]);
}

#[test]
fn a_pool_without_a_server_connects_one_once() {
    let mut bench = Bench::new(config());
    request_reset(&mut bench, 1);
    assert_eq!(bench.connects.len(), 1);
    assert_eq!(bench.connected(2), None);
    assert_eq!(reset(&mut bench).len(), 1);
    let mut bench = Bench::new(config());
    request_reset(&mut bench, 1);
    bench.connect_failed(false, 2);
    bench.timeout(60_000);
    assert!(bench.connects.is_empty(), "no waiter needs it");
}

#[test]
fn a_server_that_is_kept_for_long_is_not_waited_for() {
    let mut bench = Bench::new(config());
    bench.pool.check_out_for(WaiterId(9), A, Need::Lasting, at(1));
    bench.run(1);
    assert!(bench.connected(1).is_some());
    request_reset(&mut bench, 2);
    assert_eq!(bench.connects.len(), 1);
}

#[test]
fn a_server_whose_life_is_over_is_not_reset() {
    let mut bench = Bench::new(PoolConfig { max_life_time: Some(MS * 100), ..config() });
    let servers = bench.busy(1, 1);
    bench.give(servers[0], 2);
    request_reset(&mut bench, 500);
    assert_eq!(reset(&mut bench), []);
    assert_eq!(bench.connects.len(), 1, "another is made");
}

#[test]
fn a_pool_that_is_paused_has_it_done_later() {
    let mut bench = Bench::new(config());
    let servers = bench.busy(1, 1);
    bench.give(servers[0], 2);
    bench.pool.pause(PauseMode::HoldWaiters, at(3));
    request_reset(&mut bench, 4);
    assert_eq!(reset(&mut bench), []);
    bench.call(5, |pool, now| pool.ready(now));
    assert_eq!(reset(&mut bench), servers);
}
