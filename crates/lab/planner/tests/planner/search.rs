//! The best settings are the smallest that meet the objectives; if none does, the prediction says so.

use std::time::Duration;

use ::report::result::sweep::{Safe, SweepResult, TwoSpeeds, Verdict};
use load::plan::{Fault, PoolWishes, Spacing, Window};
use planner::{
    prediction::Prediction,
    question::{Flags, Options, Spread, from_flags},
};
use tempfile::NamedTempFile;

use super::{ask, ms, plan_postgres, reasons, seconds, sweep, text, with_curve};

/// Evenly spaced arrivals for 20 s.
fn even(rate: f64) -> Flags {
    let pool = PoolWishes { max_size: Some(50), max_life_time: Some(None), ..PoolWishes::default() };
    Flags { spacing: Spacing::Even, ..super::flags(rate, seconds(20), pool) }
}

fn constant(service: Duration, objectives: &[&str]) -> Options {
    Options {
        service: Some(service),
        spread: Some(Spread::Constant),
        objectives: objectives.iter().map(|text| (*text).to_owned()).collect(),
        ..Options::default()
    }
}

#[test]
fn evenly_spaced_operations_of_constant_length_need_the_connections_of_littles_law() {
    // 990/s x 20 ms = 19.8: with 20 no operation waits, with 19 the queue grows without end.
    let question = from_flags(&even(990.0), constant(ms(20), &["pool_wait_p99<1ms", "errors<0.1%"])).unwrap();
    let best = ask(&question).best.unwrap();
    assert_eq!((best.sizes.max_size, best.met, best.too_small), (20, true, Some(19)));
    assert_eq!(best.other_seeds_that_met, 4);
}

#[test]
fn a_load_that_cannot_keep_the_margin_does_not_hide_what_another_load_needs() {
    // The first load meets the objective with any size, and the margin with none. The second needs 1000/s x 48 ms.
    let prediction = plan_postgres(
        "[load]\nrate = 1\nduration = \"20s\"\nspacing = \"even\"\n[pool]\nmax_size = 30\n[[variant]]\nname = \"few\"\n\
         [[variant]]\nname = \"many\"\nload = { rate = 1000, duration = \"5s\" }\n[plan]\nservice = \"48ms\"\n\
         spread = \"constant\"\nobjectives = [\"p99<50ms\"]\n",
    );
    let best = prediction.best.as_ref().unwrap();
    assert_eq!((best.met, best.with_margin), (true, false), "{:?}", best.sizes);
    assert!((46..=50).contains(&best.sizes.max_size), "{:?}", best.sizes);
    assert_eq!(best.too_small, Some(best.sizes.max_size - 1));
}

#[test]
fn a_stall_sets_the_size_and_connections_made_in_it_come_too_late() {
    let mut flags = even(300.0);
    let window = Window { first: seconds(5), length: seconds(2), every: Some(seconds(10)) };
    flags.faults = vec![Fault::Stall { delay: ms(200), window }];
    let question = from_flags(&flags, constant(ms(10), &["pool_wait_p99<5ms", "errors<0.1%"])).unwrap();
    let prediction = ask(&question);
    let best = prediction.best.as_ref().unwrap();
    // 300/s x 210 ms = 63.
    assert!((62..=64).contains(&best.sizes.max_size) && best.met, "{:?}", best.sizes);
    assert_eq!(best.sizes.min_size, best.sizes.max_size);
    let facts = &prediction.facts;
    assert_eq!((facts.in_use_at_mean, facts.in_use_in_stall.map(f64::round)), (Some(3.0), Some(63.0)));
    assert_eq!(facts.max_rate_in_stall(50).map(f64::round), Some(238.0));
    let text = reasons(&prediction, "inflection");
    assert!(text.starts_with("50 connections bridge the stall up to 238/s"), "{text}");
}

#[test]
fn an_objective_below_the_service_time_is_met_by_no_setting_for_a_stated_reason() {
    let question = from_flags(&even(100.0), constant(ms(20), &["p99<10ms"])).unwrap();
    let prediction = ask(&question);
    assert!(prediction.is_hopeless());
    assert!(reasons(&prediction, "none").contains("No setting meets the objectives"));
    assert!(reasons(&prediction, "why").contains("no pool can make p99<10ms true"));
}

#[test]
fn a_server_that_concurrency_slows_down_gets_no_more_connections_than_it_can_use() {
    let options = Options { parallel: Some(8), ..constant(ms(10), &["errors<0.1%", "p99<100ms"]) };
    let best = ask(&from_flags(&even(700.0), options.clone()).unwrap()).best.unwrap();
    assert!(best.met && (7..=9).contains(&best.sizes.max_size), "{:?}", best.sizes);
    // An overload is hopeless with any size.
    let mut flags = even(900.0);
    flags.pool.max_wait_time = Some(Some(seconds(1)));
    let prediction = ask(&from_flags(&flags, options.clone()).unwrap());
    let warnings = prediction.warnings.join(" ");
    assert!(prediction.is_hopeless() && warnings.contains("no pool can help"), "{warnings}");
    // The nearest size does not let the queue into the server.
    let best = prediction.best.unwrap();
    assert_eq!((best.sizes.max_size, prediction.settings.unwrap().max_size), (8, 8));
    // An operation holds its connection during network delays, too: 800/s for 40 ms more.
    flags.faults.push(Fault::Delay { delay: ms(20), jitter: ms(0) });
    let best = ask(&from_flags(&flags, options).unwrap()).best.unwrap();
    assert_eq!((best.met, best.sizes.max_size, best.too_small), (false, 40, None));
}

#[test]
fn instances_share_the_servers_limit_and_one_pool_for_all_needs_fewer_connections() {
    let mut flags = even(1000.0);
    flags.spacing = Spacing::Poisson;
    flags.pool.instances = Some(10);
    let options = Options { server_limit: Some(500), reserved: Some(10), ..constant(ms(20), &["pool_wait_p99<10ms"]) };
    let prediction = ask(&from_flags(&flags, options).unwrap());
    let (best, shared) = (prediction.best.as_ref().unwrap(), prediction.shared.as_ref().unwrap());
    assert!(best.met && shared.met);
    assert_eq!((best.most, best.instances, shared.instances), (49, 10, 1));
    assert!(shared.sizes.max_size < best.sizes.max_size * 10, "{:?} {:?}", shared.sizes, best.sizes);
    assert!(shared.sizes.max_size >= 20);
}

#[test]
fn the_minimum_is_the_lowest_that_prevents_churn() {
    let prediction = plan_postgres(
        "[load]\nburst = 20\nidle = \"2m\"\nrounds = 8\n[pool]\nmax_size = 50\nmin_size = 0\nmax_idle_time = \"1m\"\n\
         max_life_time = \"off\"\n[plan]\nservice = \"1s\"\nspread = \"constant\"\nconnect = { auth = \"50ms\" }\n\
         objectives = [\"p99<1020ms\"]\nmargin = 0.0\n",
    );
    let (given, best) = (&prediction.given[0], prediction.best.as_ref().unwrap());
    assert_eq!(given.result.total.connections.created, 8 * 20);
    assert_eq!((best.sizes.max_size, best.sizes.min_size), (20, 20));
    assert!(best.cases[0].result.total.connections.created == 20 && best.met);
}

#[test]
fn the_search_ends_at_once_if_no_operation_waits() {
    let question = from_flags(&even(50.0), constant(ms(20), &["p50<10ms"])).unwrap();
    let best = ask(&question).best.unwrap();
    assert!(!best.met && best.simulations < 25, "{}", best.simulations);
}

/// A sweep whose single client has perhaps two speeds, and whose largest number looks like the best.
fn doubtful(confidence: &str, safe: Option<Safe>) -> (NamedTempFile, Options) {
    let (p50_ms, expected_p50_ms) = (Some(0.18), Some(0.19));
    let speeds =
        TwoSpeeds { clients: 1, seen: "neighbours".to_owned(), p50_ms, expected_p50_ms, ..TwoSpeeds::default() };
    let verdict = Verdict {
        confidence: confidence.to_owned(),
        advice: "range".to_owned(),
        safe,
        to_know: vec!["Sweep again in an hour.".to_owned()],
        two_speeds: vec![speeds],
        ..Verdict::default()
    };
    let points = [(1, 5500.0), (2, 3000.0), (4, 3100.0), (8, 2950.0), (64, 3200.0)];
    let sweep = SweepResult { verdict: Some(verdict), ..sweep(&points, 0.4) };
    with_curve(&sweep, Options { objectives: vec!["errors<0.1%".to_owned()], ..Options::default() })
}

fn planned(options: &Options, rate: f64) -> Prediction {
    let prediction = ask(&from_flags(&even(rate), options.clone()).unwrap());
    assert!(prediction.best.as_ref().unwrap().met);
    prediction
}

#[test]
fn of_a_sweep_with_low_confidence_no_extreme_is_recommended() {
    let safe = Some(Safe { from: 2, to: 8, throughput: 2900.0 });
    let ((_low, low), (_medium, medium)) = (doubtful("low", safe), doubtful("medium", None));
    let size = |prediction: &Prediction| prediction.best.as_ref().unwrap().sizes.max_size;
    let (doubted, believed) = (planned(&low, 1000.0), planned(&medium, 1000.0));
    assert_eq!((size(&believed), size(&doubted)), (1, 2));
    assert_eq!((doubted.facts.server_best, doubted.facts.server_safe), (Some((3100.0, 2)), Some((2, 8))));
    assert_eq!(doubted.best.as_ref().unwrap().most, 8);
    let range = reasons(&doubted, "safe range");
    assert!(range.contains("2 to 8 connections in all") && range.contains("fewer than 2 in none"), "{range}");
    assert!(reasons(&doubted, "found").contains("is the smallest reliable one that meets"));
    assert_eq!(reasons(&believed, "safe range"), "");
    let assumed = doubted.assumed.join("\n");
    assert!(assumed.contains("sweep is low. To know more: Sweep again in an hour."), "{assumed}");
}

#[test]
fn of_an_unreliable_sweep_no_setting_is_recommended() {
    let (_file, options) = doubtful("low", None);
    // The fewest connections would do for the first load, and none for the second.
    let (few, many) = (planned(&options, 100.0), ask(&from_flags(&even(4000.0), options.clone()).unwrap()));
    for prediction in [&few, &many] {
        let size = prediction.best.as_ref().unwrap().sizes.max_size;
        assert!((2..=8).contains(&size), "{size} is an extreme of what was measured");
        assert!(prediction.settings.is_none() && prediction.fragments.is_empty());
        assert_eq!((prediction.facts.server_safe, prediction.facts.server_best), (None, Some((3100.0, 2))));
        let warnings = prediction.warnings.join("\n");
        assert!(warnings.contains("no setting is recommended. To know more: Sweep again in an hour."), "{warnings}");
        let text = text(prediction);
        let answer = "No setting is recommended: nothing of the server's curve can be relied on";
        assert!(text.starts_with(answer), "{text}");
        assert!(!text.contains("Use max_size") && !text.contains("is the smallest"), "{text}");
        assert!(planner::report::page::page(prediction).contains("no setting is recommended"));
    }
}
