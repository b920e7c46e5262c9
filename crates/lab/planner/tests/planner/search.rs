//! The best settings are the smallest that do, and that none do is said.

use std::{path::Path, time::Duration};

use ::report::result::sweep::{Curve, CurvePoint, FORMAT, Safe, SweepResult, TwoSpeeds, Verdict};
use load::plan::{Fault, PoolWishes, Spacing, Window};
use planner::{
    answer::predict,
    prediction::Prediction,
    question::{Flags, Question, Spread, Wishes, from_flags, from_text},
};

use super::{ms, seconds};

fn flags(rate: f64) -> Flags {
    Flags {
        rate,
        duration: Some(seconds(20)),
        spacing: Spacing::Even,
        faults: Vec::new(),
        pool: PoolWishes { max_size: Some(50), max_life_time: Some(None), ..PoolWishes::default() },
        seed: 1,
    }
}

fn constant(service: Duration, objectives: &[&str]) -> Wishes {
    Wishes {
        service: Some(service),
        spread: Some(Spread::Constant),
        objectives: objectives.iter().map(|text| (*text).to_owned()).collect(),
        ..Wishes::default()
    }
}

fn ask(question: &Question) -> Prediction {
    predict(question, &mut |_, _| ())
}

#[test]
fn evenly_spaced_operations_of_constant_length_need_exactly_as_many_connections_as_littles_law_says() {
    // 990/s x 20 ms = 19.8: with 20 nobody waits, with 19 the queue grows without end.
    let question = from_flags(&flags(990.0), constant(ms(20), &["pool_wait_p99<1ms", "errors<0.1%"])).unwrap();
    let best = ask(&question).best.unwrap();
    assert_eq!((best.sizes.max_size, best.met, best.too_small), (20, true, Some(19)));
    assert_eq!(best.other_seeds_that_met, 4);
}

#[test]
fn in_a_stall_the_smallest_size_is_that_of_the_stall_and_connections_made_in_it_come_too_late() {
    let mut flags = flags(300.0);
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
    assert_eq!(facts.inflection(50).map(f64::round), Some(238.0));
    let said =
        |about: &str| prediction.reasons.iter().find(|reason| reason.about == about).map(|reason| reason.text.clone());
    assert!(
        said("inflection").unwrap().starts_with("50 connections bridge the stall up to 238/s"),
        "{:?}",
        said("inflection")
    );
}

#[test]
fn an_objective_below_the_service_time_is_met_by_no_setting_and_the_reason_is_told() {
    let question = from_flags(&flags(100.0), constant(ms(20), &["p99<10ms"])).unwrap();
    let prediction = ask(&question);
    assert!(prediction.is_hopeless());
    let text: String = prediction.reasons.iter().map(|reason| reason.text.as_str()).collect();
    assert!(
        text.contains("No setting meets the objectives") && text.contains("no pool can make p99<10ms true"),
        "{text}"
    );
}

#[test]
fn a_server_that_more_connections_slow_down_gets_no_more_than_it_can_use() {
    let mut wishes = constant(ms(10), &["errors<0.1%", "p99<100ms"]);
    wishes.parallel = Some(8);
    let question = from_flags(&flags(700.0), wishes).unwrap();
    let prediction = ask(&question);
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && (7..=9).contains(&best.sizes.max_size), "{:?}", best.sizes);
    // More than it can serve is hopeless, whatever the size.
    let mut wishes = constant(ms(10), &["errors<0.1%", "p99<100ms"]);
    wishes.parallel = Some(8);
    let mut flags = flags(900.0);
    flags.pool.max_wait_time = Some(Some(seconds(1)));
    let prediction = ask(&from_flags(&flags, wishes).unwrap());
    assert!(prediction.is_hopeless());
    assert!(
        prediction.warnings.iter().any(|warning| warning.contains("no pool can help")),
        "{:?}",
        prediction.warnings
    );
    // Nor is one recommended in which all that piles up would reach the server.
    let best = prediction.best.unwrap();
    assert_eq!((best.sizes.max_size, prediction.settings.unwrap().max_size), (8, 8));
    // A connection is held on the way, too: 800/s for 40 ms more.
    flags.faults.push(Fault::Delay { delay: ms(20), jitter: ms(0) });
    let mut wishes = constant(ms(10), &["errors<0.1%", "p99<100ms"]);
    wishes.parallel = Some(8);
    let best = ask(&from_flags(&flags, wishes).unwrap()).best.unwrap();
    assert_eq!((best.met, best.sizes.max_size, best.too_small), (false, 40, None));
}

#[test]
fn the_servers_limit_is_shared_by_the_instances_and_a_pool_for_all_needs_fewer() {
    let mut flags = flags(1000.0);
    flags.spacing = Spacing::Poisson;
    flags.pool.instances = Some(10);
    let wishes = Wishes { server_limit: Some(500), reserved: Some(10), ..constant(ms(20), &["pool_wait_p99<10ms"]) };
    let prediction = ask(&from_flags(&flags, wishes).unwrap());
    let (best, shared) = (prediction.best.as_ref().unwrap(), prediction.shared.as_ref().unwrap());
    assert!(best.met && shared.met);
    assert_eq!((best.most, best.instances, shared.instances), (49, 10, 1));
    assert!(shared.sizes.max_size < best.sizes.max_size * 10, "{:?} {:?}", shared.sizes, best.sizes);
    assert!(shared.sizes.max_size >= 20);
}

#[test]
fn the_minimum_is_the_lowest_that_prevents_churn_over_the_quiet_and_a_longer_idle_time_does_as_well() {
    let file = |idle: &str| {
        format!(
            "[scenario]\nname = \"churn\"\n[target]\nstart = \"postgres\"\n[load]\nburst = 20\nidle = \"2m\"\nrounds = 8\n\
             [pool]\nmax_size = 50\nmin_size = 0\nmax_idle_time = \"{idle}\"\nmax_life_time = \"off\"\n\
             [plan]\nservice = \"1s\"\nspread = \"constant\"\nconnect = {{ auth = \"50ms\" }}\nobjectives = [\"p99<1020ms\"]\nmargin = 0.0\n"
        )
    };
    let ask =
        |idle| ask(&from_text(Path::new("churn.toml"), &file(idle), &|_| None, false, &Wishes::default()).unwrap());
    let prediction = ask("1m");
    let (given, best) = (&prediction.given[0], prediction.best.as_ref().unwrap());
    assert_eq!(given.result.total.connections.created, 8 * 20);
    assert_eq!((best.sizes.max_size, best.sizes.min_size), (20, 20));
    assert!(best.cases[0].result.total.connections.created == 20 && best.met);
}

#[test]
fn what_needs_a_connection_of_its_own_at_a_redis_is_added_to_what_is_shared() {
    let file = "[scenario]\nname = \"queue\"\n[target]\nstart = \"redis\"\n[load]\nrate = 100\nduration = \"5s\"\n[pool]\nmax_size = 5\n[plan]\n\
                service = \"100us\"\nexclusive = { blocking_rate = 10, blocking_time = \"500ms\", transaction_rate = 100, \
                transaction_time = \"2ms\", subscribers = 50 }\n";
    let prediction = ask(&from_text(Path::new("queue.toml"), file, &|_| None, false, &Wishes::default()).unwrap());
    let settings = prediction.settings.unwrap();
    let needs = settings.exclusive.unwrap();
    // Five and 0.2 at once on average; more than 13 and 3 are so in less than one of 1,000 moments.
    assert_eq!((needs.blocking, needs.transactions, needs.subscribers, needs.max_size), (13, 3, 1, 18));
    assert_eq!(settings.max_size, 18);
    let of: Vec<&str> = prediction.fragments.iter().map(|fragment| fragment.of).collect();
    assert_eq!(of, ["Poolhouse"], "no other product here pools Redis");
}

#[test]
fn where_nobody_waits_the_search_ends_at_once() {
    let question = from_flags(&flags(50.0), constant(ms(20), &["p50<10ms"])).unwrap();
    let best = ask(&question).best.unwrap();
    assert!(!best.met && best.simulations < 25, "{}", best.simulations);
}

/// A sweep with little confidence: one client was seen at two speeds, and the largest number looks like the best.
fn doubtful(confidence: &str, safe: Option<Safe>) -> Wishes {
    let point = |(clients, throughput): (u32, f64)| CurvePoint {
        clients,
        throughput,
        p99_ms: Some(2.0 * f64::from(clients) / throughput * 1e3),
        ..CurvePoint::default()
    };
    let points = [(1, 5500.0), (2, 3000.0), (4, 3100.0), (8, 2950.0), (64, 3200.0)].map(point).to_vec();
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
    let direct = Curve { points, ..Curve::default() };
    let (format, kind) = (FORMAT, "sweep".to_owned());
    let sweep = SweepResult { format, kind, direct, verdict: Some(verdict), ..SweepResult::default() };
    let ranges = safe.is_some();
    let path =
        std::env::temp_dir().join(format!("poolhouse-doubtful-{confidence}-{ranges}-{}.json", std::process::id()));
    std::fs::write(&path, serde_json::to_string(&sweep).unwrap()).unwrap();
    Wishes { curve: Some(path), objectives: vec!["errors<0.1%".to_owned()], ..Wishes::default() }
}

fn planned(wishes: &Wishes, rate: f64) -> Prediction {
    let prediction = ask(&from_flags(&flags(rate), wishes.clone()).unwrap());
    assert!(prediction.best.as_ref().unwrap().met);
    prediction
}

#[test]
fn of_a_sweep_with_little_confidence_no_extreme_is_recommended_and_that_is_said() {
    let safe = Some(Safe { from: 2, to: 8, throughput: 2900.0 });
    let (low, medium) = (doubtful("low", safe), doubtful("medium", None));
    let size = |prediction: &Prediction| prediction.best.as_ref().unwrap().sizes.max_size;
    let (doubted, believed) = (planned(&low, 1000.0), planned(&medium, 1000.0));
    for wishes in [&low, &medium] {
        std::fs::remove_file(wishes.curve.as_ref().unwrap()).unwrap();
    }
    assert_eq!((size(&believed), size(&doubted)), (1, 2));
    assert_eq!((doubted.facts.server_best, doubted.facts.server_safe), (Some((3100.0, 2)), Some((2, 8))));
    assert_eq!(doubted.best.as_ref().unwrap().most, 8);
    let said =
        |prediction: &Prediction| prediction.reasons.iter().map(|reason| reason.text.clone()).collect::<String>();
    assert!(said(&doubted).contains("2 to 8 connections in all") && said(&doubted).contains("fewer than 2 in none"));
    assert!(said(&doubted).contains("is the smallest reliable one that meets"), "{}", said(&doubted));
    assert!(!said(&believed).contains("safe"), "{}", said(&believed));
    let assumed = doubted.assumed.join("\n");
    assert!(assumed.contains("sweep is low. To know more: Sweep again in an hour."), "{assumed}");
}

#[test]
fn of_a_sweep_that_relies_on_nothing_no_setting_is_recommended_and_it_is_said_what_would_help() {
    let wishes = doubtful("low", None);
    // The fewest would do for the one, and nothing for the other.
    let (few, many) = (planned(&wishes, 100.0), ask(&from_flags(&flags(4000.0), wishes.clone()).unwrap()));
    std::fs::remove_file(wishes.curve.as_ref().unwrap()).unwrap();
    for prediction in [&few, &many] {
        let size = prediction.best.as_ref().unwrap().sizes.max_size;
        assert!((2..=8).contains(&size), "{size} is an extreme of what was measured");
        assert!(prediction.settings.is_none() && prediction.fragments.is_empty());
        assert_eq!((prediction.facts.server_safe, prediction.facts.server_best), (None, Some((3100.0, 2))));
        let warned = prediction.warnings.join("\n");
        assert!(warned.contains("no setting is recommended. To know more: Sweep again in an hour."), "{warned}");
        let mut text = Vec::new();
        planner::report::text::write(&mut text, prediction).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.starts_with("No setting is recommended: nothing of the server's curve can be relied on"),
            "{text}"
        );
        assert!(!text.contains("Use max_size") && !text.contains("is the smallest"), "{text}");
        assert!(planner::report::page::page(prediction).contains("no setting is recommended"));
    }
}
