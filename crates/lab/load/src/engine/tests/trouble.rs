//! What goes wrong: time-outs, refusals, interruptions.

use std::time::Duration;

use arrivals::{Shape, Spacing};
use pool::{PoolConfig, Time};

use super::{
    closed, fixed, ms, open, plan, seconds,
    simulated_target::{Fate, SimulatedTarget, always},
};
use crate::record::RunMetrics;
use report::result::MAX_ERROR_TEXTS;

fn at(second: u64) -> Time {
    Time(0) + seconds(second)
}

#[test]
fn an_operation_that_takes_too_long_fails_and_its_connection_is_replaced() {
    let mut n = 0;
    let mut target = SimulatedTarget::new(move |_| {
        n += 1;
        Fate::Served(if n % 50 == 0 { seconds(1000) } else { ms(10) })
    });
    let mut plan = plan(closed(5, seconds(10)), fixed(5));
    plan.timeout = ms(200);
    let result = target.run(&plan);
    let timeouts = result.total.errors["timeout"];
    assert!(timeouts > 20, "{timeouts}");
    assert_eq!(result.total.connections.closed["discarded"], timeouts);
    // Who gave up after 200 ms is among the response times, and not among the service times.
    let response = result.total.response_ms.unwrap();
    assert_eq!(response.count, result.total.requests + timeouts);
    assert!((response.max - 200.0).abs() < 0.5, "{}", response.max);
    assert!(result.total.service_ms.unwrap().max < 10.1);
}

#[test]
fn errors_are_counted_by_kind_and_their_connections_are_used_again() {
    let mut n = 0;
    let mut target = SimulatedTarget::new(move |_| {
        n += 1;
        if n % 10 == 0 { Fate::Failed(ms(1)) } else { Fate::Served(ms(10)) }
    });
    let result = target.run(&plan(open(100.0, seconds(10), Spacing::Even), fixed(10)));
    assert_eq!((result.total.requests, result.total.errors["sqlstate 40001"]), (900, 100));
    assert_eq!(result.total.response_ms.unwrap().count, 900);
    assert_eq!(result.total.connections.created, 10);
    assert_eq!(result.series.iter().map(|second| second.errors).sum::<u64>(), 100);
}

#[test]
fn texts_of_errors_are_counted_up_to_so_many_that_differ_and_are_long() {
    let mut metrics = RunMetrics::new();
    (0..100).for_each(|n| metrics.note_error_text(&format!("{n}: {}", "é".repeat(1_000))));
    metrics.note_error_text(&format!("0: {}", "é".repeat(2_000)));
    let texts = metrics.error_texts();
    assert_eq!((texts.len(), texts.values().max()), (MAX_ERROR_TEXTS, Some(&2)));
    assert!(texts.keys().all(|text| text.chars().count() == 300));
}

#[test]
fn a_wrong_password_ends_the_run_at_once() {
    for reuse in [true, false] {
        for warm in [true, false] {
            let mut plan = plan(closed(10, seconds(60)), PoolConfig { max_connecting: 1, ..fixed(10) });
            (plan.pool.reuse, plan.pool.warm) = (reuse, warm);
            let mut target = SimulatedTarget::new(always(ms(1)));
            (target.connect, target.permanent) = (None, true);
            let engine = target.run_engine(&plan);
            assert_eq!(engine.failure().map(|failure| failure.kind.0.as_ref()), Some("connect refused"));
            assert!(target.over < at(2), "{:?}", target.over);
        }
    }
}

#[test]
fn a_pool_that_cannot_be_filled_ends_the_run() {
    let mut target = SimulatedTarget::new(always(ms(1)));
    // The first connections work; after a second no more.
    (target.connect, target.refuses_from) = (Some(ms(400)), at(1));
    let engine = target.run_engine(&plan(closed(10, seconds(60)), PoolConfig { max_connecting: 1, ..fixed(10) }));
    let failure = engine.failure().expect("it says why");
    assert!((1..10).contains(&failure.made) && failure.wanted == 10, "{failure:?}");
    assert!(target.over < at(30), "{:?}", target.over);
}

#[test]
fn a_target_that_dies_in_the_middle_fails_what_waits_and_the_run_ends_in_time() {
    let mut target = SimulatedTarget::new(|now| if now < at(5) { Fate::Served(ms(10)) } else { Fate::Lost(ms(1)) });
    target.refuses_from = at(5);
    let config = PoolConfig { unavailable_wait_time: Some(seconds(1)), ..fixed(10) };
    let result = target.run(&plan(open(100.0, seconds(10), Spacing::Even), config));
    assert!(result.total.requests.abs_diff(499) <= 2);
    assert_eq!(result.total.requests + result.total.errors.values().sum::<u64>(), 1000);
    assert!(result.total.errors["check-out unavailable"] > 400, "{:?}", result.total.errors);
    assert!(result.total.connections.failed["connect refused"] > 0);
    assert!(target.over < at(12));
}

#[test]
fn connects_of_operations_without_a_pool_fail_with_them() {
    let mut plan = plan(open(100.0, seconds(10), Spacing::Even), PoolConfig::default());
    plan.pool.reuse = false;
    let mut target = SimulatedTarget::new(always(ms(1)));
    target.refuses_from = at(5);
    let result = target.run(&plan);
    assert!(result.total.errors["connect refused"].abs_diff(500) <= 1);
    assert!(result.total.requests.abs_diff(500) <= 1);
}

#[test]
fn an_interrupted_run_says_so_and_keeps_what_there_is() {
    for shape in [closed(10, seconds(60)), open(1000.0, seconds(60), Spacing::Even)] {
        let mut target = SimulatedTarget::new(always(ms(10)));
        target.stop_at = Some(at(3) + ms(500));
        let result = target.run(&plan(shape, fixed(10)));
        assert!(result.interrupted);
        assert!(result.total.requests.abs_diff(3500) <= 20, "{}", result.total.requests);
        assert!((result.total.duration_s - 3.5).abs() < 0.03, "{}", result.total.duration_s);
        assert!(target.over < at(4));
        assert!(result.total.errors.is_empty(), "{:?}", result.total.errors);
    }
}

#[test]
fn an_interrupted_run_does_not_wait_for_what_hangs() {
    for shape in [closed(10, seconds(60)), Shape::Burst { size: 5, at_once: 5, idle: seconds(1), rounds: 9 }] {
        let mut target = SimulatedTarget::new(always(seconds(1000)));
        target.stop_at = Some(at(3));
        let mut plan = plan(shape, fixed(10));
        plan.timeout = seconds(500);
        let result = target.run(&plan);
        assert!(result.interrupted && result.total.requests == 0);
        assert!(target.over <= at(4) + ms(1), "{:?}", target.over);
        assert!(result.warnings.iter().any(|warning| warning.contains("No operation ended well")));
    }
}

#[test]
fn what_does_not_end_in_time_after_the_last_arrival_is_counted_as_unfinished() {
    let mut plan = plan(open(10.0, seconds(10), Spacing::Even), fixed(1));
    plan.timeout = seconds(20);
    // One connection, a second each: 100 arrivals need 100 s, but only 10 + 20 are given.
    let result = SimulatedTarget::new(always(seconds(1))).run(&plan);
    assert!(result.total.requests.abs_diff(30) <= 1, "{}", result.total.requests);
    assert_eq!(result.total.errors["unfinished"] + result.total.requests, 100);
}

#[test]
fn a_full_queue_does_not_make_clients_ask_without_end() {
    let config = PoolConfig { max_waiters: 1, ..fixed(1) };
    let result = SimulatedTarget::new(always(ms(100))).run(&plan(closed(10, seconds(1)), config));
    // Eight clients are refused, and come back after a millisecond each.
    assert!(result.total.errors["check-out queue full"] <= 8 * 1000);
    assert!(result.total.requests >= 9);
}

#[test]
fn operations_that_take_no_time_do_not_follow_one_another_without_end() {
    for fate in [Fate::Served(Duration::ZERO), Fate::Failed(Duration::ZERO)] {
        let result = SimulatedTarget::new(move |_| fate).run(&plan(closed(10, seconds(1)), fixed(10)));
        let ended = result.total.requests + result.total.errors.values().sum::<u64>();
        assert!((9_000..=10_010).contains(&ended), "ten clients, each once in a millisecond: {ended}");
    }
    let mut plan = plan(closed(10, seconds(1)), fixed(10));
    plan.pool.reuse = false;
    let mut target = SimulatedTarget::new(always(ms(1)));
    // The first connects work, or the run would end at once.
    target.refuses_from = Time(0) + ms(10);
    let result = target.run(&plan);
    assert!(result.total.errors["connect refused"] <= 10_010, "{:?}", result.total.errors);
}

#[test]
fn who_waits_longest_when_the_time_is_over_is_not_forgotten() {
    // The database dies in the middle; clients lose their operations, and wait for the pool until the end.
    let mut target = SimulatedTarget::new(|now| if now < at(5) { Fate::Served(ms(10)) } else { Fate::Lost(ms(1)) });
    target.refuses_from = at(5);
    let result = target.run(&plan(closed(10, seconds(10)), fixed(10)));
    assert_eq!(result.total.errors["unfinished"], 10, "{:?}", result.total.errors);
    let response = result.total.response_ms.unwrap();
    assert!((4_900.0..5_005.0).contains(&response.max), "{}", response.max);
    // Who waits no longer than others did is in the middle of an ordinary wait.
    let result = SimulatedTarget::new(always(ms(10))).run(&plan(closed(50, seconds(5)), fixed(10)));
    assert!(result.total.errors.is_empty(), "{:?}", result.total.errors);
}

#[test]
fn failures_that_are_slow_belong_to_the_response_times() {
    let mut n = 0;
    let target = move |_| {
        n += 1;
        match n % 10 {
            5 => Fate::Failed(seconds(2)),
            7 => Fate::Failed(ms(1)),
            _ => Fate::Served(ms(10)),
        }
    };
    let result = SimulatedTarget::new(target).run(&plan(closed(5, seconds(20)), fixed(5)));
    let (response, errors) = (result.total.response_ms.unwrap(), result.total.errors["sqlstate 40001"]);
    let slow = response.count - result.total.requests;
    assert!(slow.abs_diff(errors / 2) <= 1, "{slow} of {errors}");
    assert!((response.max - 2000.0).abs() < 2.0, "{}", response.max);
}

#[test]
fn one_operation_that_hangs_does_not_change_the_rate() {
    let mut n = 0;
    let target = move |_| {
        n += 1;
        Fate::Served(if n == 9_990 { seconds(1000) } else { ms(5) })
    };
    let mut plan = plan(open(1000.0, seconds(10), Spacing::Even), fixed(50));
    plan.timeout = seconds(30);
    let result = SimulatedTarget::new(target).run(&plan);
    assert_eq!(result.total.errors["timeout"], 1);
    assert_eq!((result.total.duration_s, result.total.requests), (10.0, 9_999));
    let rate = result.total.rate().unwrap();
    assert!((rate - 1000.0).abs() < 1.0, "{rate}");
}

#[test]
fn what_ends_after_the_time_is_no_throughput_of_it() {
    // One connection serves 100 in a second, and 200 arrive.
    let result = SimulatedTarget::new(always(ms(10))).run(&plan(open(200.0, seconds(10), Spacing::Even), fixed(1)));
    assert_eq!(result.total.requests, 2000);
    let rate = result.total.rate().unwrap();
    assert!((rate - 100.0).abs() < 0.5, "{rate}");
}

#[test]
fn a_target_that_lets_in_and_drops_ends_the_run() {
    let mut target = SimulatedTarget::new(always(ms(1)));
    target.drops_idle_after = Some(ms(1));
    let engine = target.run_engine(&plan(closed(10, seconds(60)), PoolConfig { max_connecting: 1, ..fixed(10) }));
    assert_eq!(engine.failure().map(|failure| failure.kind.0.as_ref()), Some("connection lost"));
    assert!(target.over < at(5), "{:?}", target.over);
}

#[test]
fn the_same_seed_gives_the_same_result() {
    let run = |seed| {
        let mut plan = plan(open(500.0, seconds(5), Spacing::Poisson), PoolConfig::default());
        plan.seed = seed;
        SimulatedTarget::new(always(ms(7))).run(&plan)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).total, run(2).total);
}

#[test]
fn no_password_of_the_plan_is_in_its_result_or_in_what_debug_shows() {
    let plan = plan(closed(1, ms(100)), fixed(1));
    let mut target = SimulatedTarget::new(always(ms(1)));
    let engine = target.run_engine(&plan);
    let result = engine.result(target.over);
    assert!(!format!("{plan:?} {engine:?} {result:?}").contains("hunter2"));
    assert!(!serde_json::to_string(&result).unwrap().contains("hunter2"));
}

#[test]
fn a_progress_is_there_from_the_first_moment() {
    let plan = plan(closed(1, seconds(3)), fixed(1));
    let engine = crate::engine::Engine::new(&plan, Time(0));
    let progress = engine.progress(Time(0));
    assert_eq!((progress.at, progress.length, progress.step), (Duration::ZERO, Some(seconds(3)), "warm-up"));
    assert_eq!(engine.result(Time(0)).total.requests, 0);
}

#[test]
fn a_blind_pool_meets_the_loss_of_an_idle_connection_when_it_uses_it_next() {
    for (blind, failed) in [(true, 1), (false, 0)] {
        let shape = Shape::Burst { size: 1, at_once: 1, idle: seconds(10), rounds: 3 };
        let mut plan = plan(shape, PoolConfig { min_size: 0, max_idle_time: None, max_life_time: None, ..fixed(1) });
        (plan.pool.warm, plan.pool.blind) = (false, blind);
        let mut target = SimulatedTarget::new(always(ms(1)));
        target.drops_idle_after = Some(seconds(15));
        // Made at 10 s and lost at 25 s; used at 20 s and 30 s.
        let result = target.run(&plan);
        assert_eq!(result.total.errors.get("connection lost").copied().unwrap_or(0), failed, "blind: {blind}");
        assert_eq!(result.total.requests, 3 - failed);
        assert_eq!(result.total.connections.closed.get("error"), Some(&1));
    }
}

#[test]
fn what_a_blind_pool_has_lost_is_gone_in_the_end() {
    let shape = Shape::Burst { size: 4, at_once: 4, idle: seconds(10), rounds: 1 };
    let mut plan = plan(shape, fixed(8));
    plan.pool.blind = true;
    let mut target = SimulatedTarget::new(always(ms(1)));
    target.drops_idle_after = Some(seconds(5));
    let result = target.run(&plan);
    assert_eq!((result.total.requests, result.total.errors["connection lost"]), (0, 4));
}

#[test]
fn connections_without_a_goodbye_stay_until_the_server_ends_them_or_the_run_is_over() {
    let left_open = |drops: Option<Duration>| {
        let mut plan = plan(open(10.0, seconds(3), Spacing::Even), PoolConfig::default());
        (plan.pool.reuse, plan.pool.warm, plan.pool.goodbye) = (false, false, false);
        let mut target = SimulatedTarget::new(always(ms(1)));
        target.drops_idle_after = drops;
        target.run(&plan)
    };
    let kept = left_open(None);
    assert_eq!((kept.total.requests, kept.total.connections.most), (30, 30));
    assert!(kept.total.connections.closed.is_empty(), "{:?}", kept.total.connections.closed);
    let ended = left_open(Some(seconds(1)));
    assert_eq!(ended.total.requests, 30);
    assert!((10..12).contains(&ended.total.connections.most), "{}", ended.total.connections.most);
    assert_eq!(ended.total.connections.closed.keys().collect::<Vec<_>>(), ["connection lost"], "the server's reason");
}

#[test]
fn the_time_until_an_operation_is_sent_is_that_of_its_connection_where_there_is_no_pool() {
    let mut plan = plan(closed(1, seconds(1)), fixed(1));
    (plan.pool.reuse, plan.pool.warm) = (false, false);
    let mut target = SimulatedTarget::new(always(ms(7)));
    target.connect = Some(ms(3));
    let total = target.run(&plan).total;
    let p50 = |all: Option<report::result::Percentiles>| all.unwrap().p50;
    let (issue, service, response) = (p50(total.issue_ms), p50(total.service_ms), p50(total.response_ms));
    assert!((issue - 3.0).abs() < 0.05 && (service - 7.0).abs() < 0.05 && (response - 10.0).abs() < 0.05);
}
