//! Values of settings that come from a forecast: the questions that it gets, and what is told of its answers. Here the
//! forecast is a formula.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use admin_api::{Client, Counts, Look, Observation, Pool, PoolServers, PoolSettings, Times};
use doctor::{
    Arrivals, Diagnosis, Effect, Finding, Forecast, ForecastPool, Load, PoolerWindow, Symptom, examine, examine_with,
};

use crate::support::{self, setting};

const BOUNDS: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0];

/// A forecast that answers by a formula, and keeps the questions.
struct Formula<F> {
    asked: RefCell<Vec<(Load, ForecastPool)>>,
    of: F,
}

impl<F: Fn(&Load, &ForecastPool) -> Option<Effect>> Formula<F> {
    fn new(of: F) -> Self {
        Self { asked: RefCell::default(), of }
    }

    fn sizes(&self) -> Vec<u32> {
        self.asked.borrow().iter().map(|(_, sizes)| sizes.max_size).collect()
    }
}

impl<F: Fn(&Load, &ForecastPool) -> Option<Effect>> Forecast for Formula<F> {
    fn predict(&self, load: &Load, pool: &ForecastPool) -> Option<Effect> {
        self.asked.borrow_mut().push((load.clone(), *pool));
        (self.of)(load, pool)
    }
}

fn times(ms: f64, count: u64) -> Times {
    support::times(&BOUNDS, ms, count)
}

/// A pool of ten for a quarter of the window lightly loaded, and then with these clients, of which `inside` have a
/// server or wait for one. A transaction takes 5 ms, and clients wait for 8 ms.
fn crowded(clients: u64, inside: u64, protocol: &str) -> PoolerWindow {
    let mut window = PoolerWindow::default();
    let (mut hold, mut queued, mut transactions) = (Times::default(), Times::default(), 0);
    for n in 0..=40u64 {
        let light = n < 10;
        let done = if light { 100 } else { 1_000 };
        transactions += done;
        hold.add(&times(5.0, done));
        queued.add(&times(8.0, if light { 0 } else { done }));
        let in_use = if light { 1 } else { 10 };
        let pool = Pool {
            database: "shop".into(),
            protocol: protocol.into(),
            clients: if light { 1 } else { clients },
            waiters: if light { 0 } else { inside - 10 },
            servers: PoolServers { in_use, total: 10, ..PoolServers::default() },
            max_size: 10,
            created: 10,
            transactions,
            checkout: BTreeMap::from([("queued".into(), queued.clone())]),
            hold: hold.clone(),
            ..Pool::default()
        };
        let look = Look { bucket_bounds_ms: BOUNDS.to_vec(), pools: vec![pool], ..Look::default() };
        let holder = |id| Client { id: id + n * 100, state: "active".into(), pool: Some(0), ..Client::default() };
        let holders = (0..in_use).map(holder).collect();
        window.add(Observation { at: Duration::from_millis(n * 500), look, holders });
    }
    window
}

fn effect(per_s: f64, wait_ms: f64) -> Effect {
    Effect { transactions_per_s: per_s, wait_p95_ms: Some(wait_ms), created_an_hour: None }
}

fn only(diagnosis: &Diagnosis, symptom: Symptom) -> &Finding {
    assert_eq!(diagnosis.findings.len(), 1, "{diagnosis:?}");
    assert_eq!(diagnosis.findings[0].symptom, symptom);
    &diagnosis.findings[0]
}

#[test]
fn the_smallest_size_with_which_hardly_any_client_waits_for_long_is_proposed() {
    let formula = Formula::new(|_, sizes| {
        Some(match sizes.max_size {
            10 => effect(2_000.0, 9.0),
            size => effect(200.0 * f64::from(size), 50.0 / f64::from(size)),
        })
    });
    let diagnosis = examine_with(&crowded(20, 18, "postgres"), Some(&formula));
    let told = only(&diagnosis, Symptom::PoolTooSmall);
    // 50 / 10 ms is as long as a transaction takes, and so is enough; the present ten are not.
    assert_eq!(setting(&diagnosis), Some(("max_size", Some("10"), "11")));
    let predicted = told.predicted.as_ref().unwrap();
    assert_eq!((predicted.now.transactions_per_s, predicted.after), (2_000.0, effect(2_200.0, 50.0 / 11.0)));
    assert_eq!(predicted.simulated, Some(effect(2_000.0, 9.0)));
    // Twenty clients of which eighteen are inside: the pause of the others is what two of them do not do at 2,000 a
    // second.
    let (load, sizes) = formula.asked.borrow()[0].clone();
    assert_eq!(load.arrivals, Arrivals::Clients { clients: 20, pause: Duration::from_millis(1) });
    assert_eq!((load.hold.times.mean_ms(), load.hold.bounds_ms), (Some(5.0), BOUNDS.to_vec()));
    assert_eq!((sizes.min_size, sizes.max_idle_time), (10, None));
    assert!(formula.sizes().iter().all(|size| (10..=20).contains(size)), "never more than twice as many");
    let text = diagnosis.text(str::to_owned);
    for part in [
        "  set       max_size = 11 (now 10)\n",
        "  now       2000 transactions a second, one in twenty waits over ",
        "  played    2000 transactions a second, one in twenty waits over 9.0 ms, with the present settings\n",
        "  then      2200 transactions a second, one in twenty waits over 4.5 ms: the smallest",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let json = serde_json::to_value(&diagnosis).unwrap();
    let finding = &json["findings"][0];
    assert_eq!((&finding["symptom"], &finding["setting"]["to"]), (&"pool_too_small".into(), &"11".into()));
    assert_eq!(finding["predicted"]["then"]["transactions_per_s"], 2_200.0);
    assert_eq!(finding["not_planned"], serde_json::Value::Null);
}

#[test]
fn many_clients_come_at_random_and_as_often_as_they_would_if_they_did_not_wait() {
    let formula = Formula::new(|_, _| Some(effect(2_000.0, 1.0)));
    let diagnosis = examine_with(&crowded(1_000, 20, "postgres"), Some(&formula));
    let predicted = only(&diagnosis, Symptom::PoolTooSmall).predicted.as_ref().unwrap();
    assert_eq!(predicted.simulated, None, "with the present size a queue would only grow");
    let Arrivals::AtRandom { rate } = formula.asked.borrow()[0].0.arrivals else { panic!("at random") };
    // 980 of them pause, for 490 ms each.
    assert!((rate - 1_000.0 / 0.495).abs() < 1.0, "{rate}");
}

#[test]
fn where_twice_the_size_is_not_enough_that_is_told() {
    let formula = Formula::new(|_, sizes| Some(effect(200.0 * f64::from(sizes.max_size), 9.0)));
    let diagnosis = examine_with(&crowded(20, 18, "postgres"), Some(&formula));
    let told = only(&diagnosis, Symptom::PoolTooSmall);
    assert_eq!(told.setting.as_ref().unwrap().to, "20");
    assert!(told.predicted.as_ref().unwrap().note.contains("look again"), "{told:?}");
    assert_eq!(formula.sizes(), [10, 20], "nothing in between can be enough");
}

#[test]
fn what_is_not_played_as_it_was_seen_keeps_the_value_of_the_rule() {
    let slow: fn(&Load, &ForecastPool) -> Option<Effect> = |_, _| Some(effect(900.0, 9.0));
    let waits: fn(&Load, &ForecastPool) -> Option<Effect> = |_, _| Some(effect(2_000.0, 80.0));
    let nothing: fn(&Load, &ForecastPool) -> Option<Effect> = |_, _| None;
    for (of, protocol, why) in [
        (slow, "postgres", "played at the present size 900 transactions end a second, and 2000 were seen"),
        (waits, "postgres", "one wait in twenty lasts over 80 ms"),
        (nothing, "postgres", "more than is played"),
        (waits, "redis", "share servers"),
    ] {
        let diagnosis = examine_with(&crowded(20, 18, protocol), Some(&Formula::new(of)));
        let told = only(&diagnosis, Symptom::PoolTooSmall);
        assert_eq!((told.setting.as_ref().unwrap().to.as_str(), &told.predicted), ("18", &None), "{why}");
        assert!(told.not_planned.as_ref().unwrap().contains(why), "{told:?}");
        assert!(
            diagnosis.text(str::to_owned).contains("  rule      the value is that of a rule, not of a plan: "),
            "{why}"
        );
    }
    let told = examine(&crowded(20, 18, "postgres"));
    assert!(only(&told, Symptom::PoolTooSmall).not_planned.as_ref().unwrap().contains("poolhouse doctor"));
}

/// Bursts of eight transactions at once, with two looks in which something happens and eight in which nothing does.
fn bursts(many: u64) -> PoolerWindow {
    let mut window = PoolerWindow::default();
    let (mut created, mut transactions, mut hold, mut paid) = (100, 5_000, Times::default(), times(40.0, 100));
    for n in 0..=many * 10 {
        let (burst, at) = ((n + 5) / 10, (n + 5) % 10);
        if at == 0 && burst > 0 {
            (created, transactions) = (created + 8, transactions + 8);
            hold.add(&times(20.0, 8));
            paid.add(&times(40.0, 8));
        }
        let servers = PoolServers { total: if at < 4 { 8 } else { 0 }, ..PoolServers::default() };
        let pool = Pool {
            database: "shop".into(),
            protocol: "postgres".into(),
            servers,
            max_size: 10,
            created,
            transactions,
            closed: Counts::from([("idle".into(), if at < 4 { created - 8 } else { created })]),
            checkout: BTreeMap::from([("created".into(), paid.clone())]),
            connect: BTreeMap::from([("tcp".into(), times(1.0, created)), ("auth".into(), times(30.0, created))]),
            hold: hold.clone(),
            settings: PoolSettings { max_idle_time: Some(1_500.0), max_connecting: Some(2), ..PoolSettings::default() },
            ..Pool::default()
        };
        let look =
            Look { bucket_bounds_ms: BOUNDS.to_vec(), uptime_ms: 600_000.0, pools: vec![pool], ..Look::default() };
        window.add(Observation { at: Duration::from_millis(n * 500), look, holders: Vec::new() });
    }
    window
}

fn churned(an_hour: f64) -> Effect {
    Effect { transactions_per_s: 1.6, wait_p95_ms: Some(35.0), created_an_hour: Some(an_hour) }
}

#[test]
fn as_few_servers_are_kept_as_end_the_churn_and_a_longer_idle_time_is_told_beside() {
    let formula = Formula::new(|_, sizes| {
        let idle = sizes.max_idle_time.unwrap().as_secs_f64();
        Some(churned(if idle > 5.0 { 0.0 } else { 720.0 * f64::from(8 - sizes.min_size.min(8)) }))
    });
    let diagnosis = examine_with(&bursts(4), Some(&formula));
    let told = only(&diagnosis, Symptom::IdleChurn);
    assert_eq!(setting(&diagnosis), Some(("min_size", Some("0"), "8")));
    let predicted = told.predicted.as_ref().unwrap();
    // Eight connections every five seconds.
    assert_eq!((predicted.now.created_an_hour, predicted.after.created_an_hour), (Some(5_760.0), Some(0.0)));
    let instead = predicted.instead.as_ref().unwrap();
    assert_eq!((instead.key, instead.to.as_str()), ("max_idle_time", "8s"));
    let (load, sizes) = formula.asked.borrow()[0].clone();
    let Arrivals::Bursts { size: 8, at_once: 8, quiet } = load.arrivals else { panic!("{:?}", load.arrivals) };
    assert!((4_900..5_000).contains(&quiet.as_millis()), "{quiet:?}");
    assert_eq!((load.connect_time, sizes.max_connecting), (Duration::from_millis(31), Some(2)));
    let text = diagnosis.text(str::to_owned);
    assert!(text.contains("  or set    max_idle_time = 8s: "), "{text}");
    assert!(text.contains("0 new connections an hour: the smallest with which"), "{text}");
}

#[test]
fn too_few_bursts_or_others_than_are_played_keep_the_value_of_the_rule() {
    let formula = Formula::new(|_, _| Some(churned(5_760.0)));
    let told = examine_with(&bursts(2), Some(&formula));
    let finding = only(&told, Symptom::IdleChurn);
    assert!(finding.not_planned.as_ref().unwrap().contains("2 bursts were seen"), "{finding:?}");
    assert_eq!((finding.setting.as_ref().unwrap().to.as_str(), formula.sizes().len()), ("8", 0));
    for (of, why) in [(5_760.0, "would still be made"), (100.0, "make 100 connections an hour, and 5760 were seen")] {
        let told = examine_with(&bursts(4), Some(&Formula::new(|_, _| Some(churned(of)))));
        let finding = only(&told, Symptom::IdleChurn);
        assert!(finding.not_planned.as_ref().unwrap().contains(why), "{finding:?}");
        assert_eq!(finding.setting.as_ref().unwrap().to, "8");
    }
}
