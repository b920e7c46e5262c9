//! Questions at the edge of what makes sense: each is answered or refused, in words, and the answer ends.

use std::path::Path;

use ::report::result::sweep::{Curve, CurvePoint, FORMAT, SweepResult, TwoSpeeds, Verdict};
use load::plan::{PoolWishes, Spacing};
use planner::{
    answer::predict,
    prediction::Prediction,
    question::{ConnectWishes, Flags, Question, Spread, Wishes, from_flags, from_text},
    server::Times,
};

use super::{ms, seconds};

fn flags(pool: PoolWishes) -> Flags {
    Flags { rate: 10.0, duration: Some(seconds(1)), spacing: Spacing::Poisson, faults: Vec::new(), pool, seed: 1 }
}

fn ask(question: &Question) -> Prediction {
    predict(question, &mut |_, _| ())
}

/// The question of a curve with these points, by clients and throughput.
fn of_curve(name: &str, points: &[(u32, f64)], verdict: Option<Verdict>) -> Result<Question, String> {
    said_of_curve(name, points, verdict, 20.0, Wishes::default())
}

/// The same, with this 99th percentile of each point, and what is said besides.
fn said_of_curve(
    name: &str,
    points: &[(u32, f64)],
    verdict: Option<Verdict>,
    p99_ms: f64,
    wishes: Wishes,
) -> Result<Question, String> {
    let point = |(clients, throughput): &(u32, f64)| CurvePoint {
        clients: *clients,
        throughput: *throughput,
        p99_ms: Some(p99_ms),
        ..CurvePoint::default()
    };
    let direct = Curve { points: points.iter().map(point).collect(), ..Curve::default() };
    let sweep = SweepResult { format: FORMAT, kind: "sweep".to_owned(), direct, verdict, ..SweepResult::default() };
    let path = std::env::temp_dir().join(format!("poolhouse-edge-{name}-{}.json", std::process::id()));
    std::fs::write(&path, serde_json::to_string(&sweep).unwrap()).unwrap();
    let wishes = Wishes { curve: Some(path.clone()), ..wishes };
    let question = from_flags(&flags(PoolWishes::default()), wishes);
    std::fs::remove_file(&path).unwrap();
    question
}

#[test]
fn a_first_point_at_which_nothing_was_done_is_left_out() {
    for (name, least) in [("zero", 0.0), ("tiny", 1e-300)] {
        let question = of_curve(name, &[(1, least), (2, 100.0), (4, 150.0)], None).unwrap();
        assert_eq!(question.spec.service.mean().as_millis(), 20);
        assert!(question.spec.curve.unwrap().throughput(1) > 40.0);
    }
    assert!(of_curve("none", &[(1, 1e-300)], None).is_err());
}

#[test]
fn the_service_time_of_a_curve_is_that_of_the_slower_of_two_speeds() {
    let speeds = TwoSpeeds { clients: 1, slow: Some(100.0), fast: Some(400.0), ..TwoSpeeds::default() };
    let verdict = Verdict { two_speeds: vec![speeds], ..Verdict::default() };
    let question = of_curve("two", &[(1, 400.0), (2, 450.0)], Some(verdict)).unwrap();
    assert_eq!(question.spec.service.mean().as_millis(), 10);
}

#[test]
fn a_service_time_beside_a_curve_tells_how_times_vary_and_the_curve_how_long_they_are() {
    let said = |service| Wishes { service: Some(ms(service)), spread: Some(Spread::Constant), ..Wishes::default() };
    let of = |service| said_of_curve("beside", &[(1, 100.0), (2, 150.0)], None, 20.0, said(service)).unwrap();
    let question = of(15);
    assert_eq!(question.spec.service, Times::Constant(ms(10)));
    let assumed = question.assumed.join(" ");
    assert!(assumed.contains("an operation alone takes 10 ms, and not 15 ms"), "{assumed}");
    // What is played is what is told: the mean of operations that are alone.
    let prediction = ask(&question);
    let played = prediction.given[0].result.total.service_ms.as_ref().unwrap().p50;
    assert!((played - prediction.facts.held_ms).abs() < 0.1, "{played} {}", prediction.facts.held_ms);
    assert!(!of(10).assumed.join(" ").contains("By the curve"));
}

#[test]
fn times_that_vary_by_more_than_can_be_drawn_are_said_as_they_are_drawn() {
    let question = said_of_curve("wild", &[(1, 100.0)], None, 5000.0, Wishes::default()).unwrap();
    let (words, assumed) = (question.spec.service.words(), question.assumed.join(" "));
    assert!(words.contains("p99 140 ms, lognormally"), "{words}");
    assert!(assumed.contains("5 s at p99), as far as that goes: ") && assumed.contains(&words), "{assumed}");
}

#[test]
fn a_slow_curve_has_an_objective_that_not_every_size_meets() {
    let point = |(clients, throughput)| CurvePoint { clients, throughput, p99_ms: Some(9e3), ..CurvePoint::default() };
    let direct = Curve { points: [(1, 0.4), (2, 0.8), (4, 0.9)].map(point).into(), ..Curve::default() };
    let sweep = SweepResult { format: FORMAT, kind: "sweep".to_owned(), direct, ..SweepResult::default() };
    let path = std::env::temp_dir().join(format!("poolhouse-edge-slow-{}.json", std::process::id()));
    std::fs::write(&path, serde_json::to_string(&sweep).unwrap()).unwrap();
    let text = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[sweep]\nto = 4\n";
    let wishes = Wishes { curve: Some(path.clone()), ..Wishes::default() };
    let question = from_text(Path::new("p.toml"), text, &|_| None, false, &wishes);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(question.unwrap().objectives[0].text(), "rate>=0.855");
}

#[test]
fn a_stage_in_which_nothing_comes_misses_nothing() {
    let text = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[load]\nstages = [{ duration = \"5s\", to = 100 }, \
                { duration = \"5s\", from = 0, to = 0 }, { duration = \"5s\", from = 100, to = 100 }]\n[plan]\nservice = \"5ms\"\n\
                objectives = [\"p99<100ms\", \"errors<0.1%\"]\n";
    let question = from_text(Path::new("p.toml"), text, &|_| None, false, &Wishes::default()).unwrap();
    let prediction = ask(&question);
    assert!(prediction.best.as_ref().unwrap().met, "{:?}", prediction.best.unwrap().cases[0].missed);
    assert!(prediction.given[0].missed.is_empty(), "{:?}", prediction.given[0].missed);
}

#[test]
fn connections_that_expire_faster_than_they_are_made_end_the_plan_with_a_warning() {
    let pool = PoolWishes {
        max_size: Some(60),
        min_size: Some(60),
        max_life_time: Some(Some(seconds(1))),
        ..PoolWishes::default()
    };
    let connect = ConnectWishes { tcp: Some(ms(300)), ..ConnectWishes::default() };
    let wishes = Wishes { service: Some(ms(15)), connect, ..Wishes::default() };
    let question = from_flags(&flags(pool), wishes).unwrap();
    let (told, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || told.send(Box::new(ask(&question))));
    let prediction = answer.recv_timeout(seconds(60)).expect("the plan ends");
    assert!(
        prediction.warnings.iter().any(|text| text.contains("The load did not begin")),
        "{:?}",
        prediction.warnings
    );
    // The nearest is one with which something was done.
    let best = prediction.best.unwrap();
    assert!(best.cases[0].result.total.requests > 0, "{:?}", best.sizes);
}

/// Plans whose clients come and go or fail without end, once the load has begun.
fn restless() -> Vec<(&'static str, String)> {
    let closed = "clients = 50\nduration = \"1s\"\ntimeout = \"100ms\"";
    let open = "rate = 50\nduration = \"5s\"\nspacing = \"poisson\"\ntimeout = \"100ms\"";
    let of = |load: &str, pool: &str, more: &str, plan: &str| {
        format!(
            "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\nmax_connections = 100\n[load]\n{load}\n[pool]\n{pool}\n{more}\n[plan]\n{plan}\n"
        )
    };
    let front = "[poolhouse]\nmax_size = 3\nclient_idle_time = \"50ms\"\n";
    let soon = "max_size = 40\nmin_size = 5\nmax_life_time = \"50ms\"\n";
    let hasty = "max_size = 1\nmax_wait_time = \"1ms\"\n";
    let service = "service = \"1ms\"\nfirst = \"30ms\"";
    let at_once = "service = \"1us\"\nconnect = { tcp = \"1us\", auth = \"1us\" }";
    vec![
        ("lives of 50 ms", of(open, soon, "", service)),
        ("lives of 50 ms and clients who do not pause", of(closed, soon, "", service)),
        ("lives of 50 ms in front of a Poolhouse that keeps nobody for longer", of(open, soon, front, service)),
        ("clients who have waited for 1 ms", of(closed, hasty, "", service)),
        ("clients who have waited for 1 ms, behind a Poolhouse", of(closed, hasty, front, service)),
        ("a server that never answers in time", of(closed, hasty, "", "service = \"1s\"\nspread = \"constant\"")),
        (NOBODY_WAITS, of(closed, "max_size = 40\n", "[poolhouse]\nmax_size = 1\nmax_wait_time = \"1us\"\n", service)),
        (
            "lives of 1 us",
            of(open, "max_size = 5\nmin_size = 5\nmax_life_time = \"1us\"\nmax_idle_time = \"1us\"\n", "", at_once),
        ),
        (
            "lives of 20 us for an hour",
            of(
                "rate = 1\nduration = \"1h\"",
                "max_size = 5\nmin_size = 1\nmax_life_time = \"20us\"\nmax_connecting = 5\n",
                "",
                at_once,
            ),
        ),
        (
            "a frozen process",
            of(closed, soon, "[freeze]\nlength = \"500ms\"\nevery = \"1s\"\nfirst = \"300ms\"\n", service),
        ),
        ("cuts", of(closed, soon, "[[fault]]\nkind = \"cut\"\nevery = \"100ms\"\n", service)),
    ]
}

const NOBODY_WAITS: &str = "a Poolhouse in which nobody may wait";
/// A simulation of these takes no more.
const MAX_STEPS: u64 = 2_100_000;

#[test]
fn clients_that_come_and_go_or_fail_without_end_end_the_plan_all_the_same() {
    for (what, text) in restless() {
        let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default());
        let question = question.unwrap_or_else(|problems| panic!("{what}: {problems}"));
        for case in &question.cases {
            let outcome = planner::run::run(case, &question.spec);
            assert!(outcome.steps <= MAX_STEPS, "{what}: {}", outcome.steps);
        }
        if what == NOBODY_WAITS {
            // Each candidate fails as fast as it can, for as many operations as a candidate is judged by.
            continue;
        }
        let (told, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(Box::new(ask(&question))));
        let prediction = answer.recv_timeout(seconds(60)).unwrap_or_else(|_| panic!("{what}: the plan does not end"));
        assert!(!prediction.reasons.is_empty());
    }
}

#[test]
fn a_simulation_in_which_connections_do_nothing_but_come_and_go_is_cut_short_and_that_is_said() {
    let (_, text) = restless().remove(8);
    let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default()).unwrap();
    let outcome = planner::run::run(&question.cases[0], &question.spec);
    assert!(!outcome.is_complete && outcome.result.interrupted);
    assert_eq!(question.missed(&outcome.result, 0.0).len(), question.objectives.len(), "nothing is known to hold");
    let prediction = ask(&question);
    assert!(prediction.warnings.iter().any(|text| text.starts_with("The simulation was cut short after")));
}

#[test]
fn connections_that_nobody_needs_do_not_cut_short_what_is_soon_played() {
    let text = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\nmax_connections = 5000\n[load]\nrate = 0.5\nduration = \"1h\"\n\
                [pool]\ninstances = 200\nmax_size = 20\nmin_size = 20\nmax_life_time = \"60s\"\n[plan]\nservice = \"5ms\"\n";
    let question = from_text(Path::new("p.toml"), text, &|_| None, false, &Wishes::default()).unwrap();
    let outcome = planner::run::run(&question.cases[0], &question.spec);
    assert!(outcome.is_complete && outcome.steps > 600_000, "{}", outcome.steps);
}

#[test]
fn a_lower_limit_is_not_said_to_be_kept_by_a_margin() {
    let margin = |objectives: &[&str]| {
        let objectives = objectives.iter().map(|text| (*text).to_owned()).collect();
        let wishes = Wishes { service: Some(ms(5)), spread: Some(Spread::Constant), objectives, ..Wishes::default() };
        let prediction = ask(&from_flags(&flags(PoolWishes::default()), wishes).unwrap());
        assert!(prediction.best.unwrap().met);
        prediction.reasons.into_iter().find(|reason| reason.about == "margin").map(|reason| reason.text)
    };
    assert_eq!(margin(&["rate>=1"]), None);
    assert!(margin(&["p99<1s", "rate>=1"]).unwrap().starts_with("Each upper limit is kept"));
}

const FILE: &str = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[load]\nrate = 100\nduration = \"5s\"\n[pool]\ninstances = 2\n";

#[test]
fn what_is_pasted_with_a_poolhouse_in_front_is_for_the_pools_before_it() {
    let ask = |front: &str| {
        let text = format!(
            "{FILE}{front}[[fault]]\nkind = \"stall\"\ndelay = \"50ms\"\nlength = \"1s\"\nfirst = \"1s\"\nevery = \"2s\"\n[plan]\nservice = \"5ms\"\n"
        );
        let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default());
        ask(&question.unwrap_or_else(|problems| panic!("{problems}")))
    };
    let of = |prediction: &Prediction| prediction.fragments.iter().map(|one| one.of).collect::<Vec<_>>();
    let about = |prediction: &Prediction, what: &str| prediction.reasons.iter().any(|reason| reason.about == what);
    let without = ask("");
    assert_eq!(of(&without), ["Poolhouse", "PgBouncer", "HikariCP"]);
    assert!(about(&without, "one pool for all") && about(&without, "inflection"));
    let with = ask("[poolhouse]\nmax_size = 5\n");
    assert_eq!(of(&with), ["HikariCP"]);
    assert!(about(&with, "in front") && !about(&with, "one pool for all") && !about(&with, "inflection"));
}
