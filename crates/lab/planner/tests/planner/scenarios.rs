//! The scenario files of the published cases can be planned, and the prediction shows the trouble.

use std::path::{Path, PathBuf};

use planner::{
    answer::predict,
    prediction::Prediction,
    question::{Options, from_file},
    report,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios")
}

fn plan(name: &str) -> Prediction {
    let question = from_file(&folder().join(name).with_extension("toml"), &Options::default());
    predict(&question.unwrap_or_else(|problems| panic!("{problems}")), &mut |_, _| ())
}

/// The first reason about a topic.
fn said<'p>(prediction: &'p Prediction, about: &str) -> &'p str {
    let reason = prediction.reasons.iter().find(|reason| reason.about == about);
    reason.map_or_else(|| panic!("nothing is said about {about}"), |reason| reason.text.as_str())
}

#[test]
fn exhaustion_begins_beyond_the_inflection_and_ends_with_a_pool_for_the_stall() {
    let prediction = plan("exhaustion-trouble");
    let steps = &prediction.given[0].result.steps;
    let p99 = |step: usize| steps[step].measured.response_ms.as_ref().unwrap().p99;
    // Up to 500/s the pool of 100 bridges the stall of 200 ms; beyond that operations queue.
    assert!(
        p99(0) < 215.0 && p99(1) < 215.0 && p99(3) > 500.0 && p99(4) > p99(3),
        "{:?}",
        [p99(0), p99(1), p99(3), p99(4)]
    );
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && (200..=230).contains(&best.sizes.max_size), "{:?}", best.sizes);
    assert!(said(&prediction, "inflection").starts_with("100 connections bridge the stall up to 478/s"));
}

#[test]
fn churn_makes_connections_in_each_burst_until_a_minimum_is_kept() {
    let prediction = plan("churn-trouble");
    let created = |case: usize| prediction.given[case].result.total.connections.created_for["burst"];
    assert!(created(0) > 20 && created(1) == 6, "{} {}", created(0), created(1));
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && best.sizes.min_size > 0, "{:?}", best.sizes);
    assert!(said(&prediction, "churn").contains("idle time of 60 s is shorter than the quiet of 5 min"));
}

#[test]
fn frozen_functions_fail_if_the_client_idle_time_is_shorter_than_the_freeze() {
    let prediction = plan("zombies");
    let failed: Vec<u64> = prediction.given.iter().map(|case| case.result.total.errors.values().sum()).collect();
    assert_eq!(failed, [10, 0, 0, 10]);
    assert_eq!(prediction.settings.as_ref().unwrap().client_idle_time, Some(std::time::Duration::from_secs(310)));
    assert!(!prediction.is_hopeless());
}

#[test]
fn a_flood_is_rejected_with_one_limit_and_served_with_two() {
    let prediction = plan("flood");
    let served: Vec<u64> = prediction.given.iter().map(|case| case.result.total.requests).collect();
    assert_eq!(served, [200, 200, 600]);
    assert_eq!(prediction.given[2].evicted, 450);
    assert!(prediction.best.is_none() && prediction.fragments[0].text.contains("soft_limit = "));
}

#[test]
fn many_small_pools_are_refused_by_the_server_and_one_pool_is_not() {
    let prediction = plan("pool-of-pools");
    assert!(prediction.given[0].refused > 0 && prediction.given[0].most_connections == 97);
    assert_eq!((prediction.given[1].refused, prediction.given[1].most_connections), (0, 10));
    assert!(prediction.shared.as_ref().unwrap().met);
}

#[test]
fn a_sweep_is_answered_with_its_own_curve() {
    let prediction = plan("connections");
    let best = prediction.best.as_ref().unwrap();
    assert_eq!((best.sizes.max_size, best.met), (3, true));
    assert!(
        prediction.assumed.iter().any(|text| text.contains("of the curve varies by 8.1")),
        "{:?}",
        prediction.assumed
    );
    let rates: Vec<f64> = prediction.given.iter().map(|case| case.result.total.rate().unwrap()).collect();
    assert!(
        rates[0] < 1800.0 && rates.iter().any(|rate| *rate > 3400.0) && rates[rates.len() - 1] < 1900.0,
        "{rates:?}"
    );
}

#[test]
fn every_scenario_can_be_planned_and_printed() {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut seen = 0;
    for path in files.filter(|path| path.extension().is_some_and(|ext| ext == "toml")) {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let prediction = plan(&name);
        let mut text = Vec::new();
        report::text::write(&mut text, &prediction).unwrap();
        let text = String::from_utf8(text).unwrap();
        let longest = text.lines().filter(|line| !line.starts_with("    ")).map(|line| line.chars().count()).max();
        assert!(longest <= Some(100), "{name}: {longest:?}\n{text}");
        let page = report::page::page(&prediction);
        assert!(page.contains("Plan: ") && page.contains("poolhouse.toml"), "{name}");
        seen += 1;
    }
    assert_eq!(seen, 9);
}
