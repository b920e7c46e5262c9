//! Extreme questions: each is answered or refused with a message, in bounded time.

use ::report::result::sweep::{SweepResult, TwoSpeeds, Verdict};
use load::plan::PoolWishes;
use planner::{
    prediction::Prediction,
    question::{ConnectOptions, Flags, Options, Question, Spread, from_flags},
    server::Times,
};

use super::{POSTGRES, ask, flags, ms, plan_postgres, read, scenario, seconds, sweep, with_curve};

/// The question of a load of one second on a server with this curve.
fn with_points(points: &[(u32, f64)], p99_ms: f64, options: Options) -> Result<Question, String> {
    let (_file, options) = with_curve(&sweep(points, p99_ms), options);
    from_flags(&short(PoolWishes::default()), options)
}

fn short(pool: PoolWishes) -> Flags {
    flags(10.0, seconds(1), pool)
}

#[test]
fn a_first_point_without_throughput_is_left_out() {
    for least in [0.0, 1e-300] {
        let question = with_points(&[(1, least), (2, 100.0), (4, 150.0)], 20.0, Options::default()).unwrap();
        assert_eq!(question.spec.service.mean().as_millis(), 20);
        assert!(question.spec.curve.unwrap().throughput(1) > 40.0);
    }
    assert!(with_points(&[(1, 1e-300)], 20.0, Options::default()).is_err());
}

#[test]
fn the_service_time_of_a_curve_is_that_of_the_slower_of_two_speeds() {
    let speeds = TwoSpeeds { clients: 1, slow: Some(100.0), fast: Some(400.0), ..TwoSpeeds::default() };
    let verdict = Some(Verdict { two_speeds: vec![speeds], ..Verdict::default() });
    let sweep = SweepResult { verdict, ..sweep(&[(1, 400.0), (2, 450.0)], 20.0) };
    let (_file, options) = with_curve(&sweep, Options::default());
    let question = from_flags(&short(PoolWishes::default()), options).unwrap();
    assert_eq!(question.spec.service.mean().as_millis(), 10);
}

#[test]
fn a_given_service_time_sets_the_distribution_and_the_curve_the_mean() {
    let of = |service| {
        let options = Options { service: Some(ms(service)), spread: Some(Spread::Constant), ..Options::default() };
        with_points(&[(1, 100.0), (2, 150.0)], 20.0, options).unwrap()
    };
    let question = of(15);
    assert_eq!(question.spec.service, Times::Constant(ms(10)));
    let assumptions = question.assumptions.join(" ");
    assert!(assumptions.contains("an operation alone takes 10 ms, and not 15 ms"), "{assumptions}");
    // The simulation uses the mean that the facts state.
    let prediction = ask(&question);
    let p50 = prediction.given[0].result.total.service_ms.as_ref().unwrap().p50;
    assert!((p50 - prediction.facts.held_ms).abs() < 0.1, "{p50} {}", prediction.facts.held_ms);
    assert!(!of(10).assumptions.join(" ").contains("By the curve"));
}

#[test]
fn times_beyond_a_lognormal_distribution_are_described_as_they_are_drawn() {
    let question = with_points(&[(1, 100.0)], 5000.0, Options::default()).unwrap();
    let (words, assumptions) = (question.spec.service.words(), question.assumptions.join(" "));
    assert!(words.contains("p99 140 ms, lognormally"), "{words}");
    assert!(assumptions.contains("5 s at p99), as far as that goes: ") && assumptions.contains(&words));
}

#[test]
fn the_default_objective_of_a_slow_curve_is_rounded_down() {
    let text = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[sweep]\nto = 4\n";
    let (_file, options) = with_curve(&sweep(&[(1, 0.4), (2, 0.8), (4, 0.9)], 9e3), Options::default());
    assert_eq!(read(text, &options).unwrap().objectives[0].text(), "rate>=0.855");
}

#[test]
fn a_stage_without_arrivals_misses_nothing() {
    let text = "[load]\nstages = [{ duration = \"5s\", to = 100 }, { duration = \"5s\", from = 0, to = 0 }, \
                { duration = \"5s\", from = 100, to = 100 }]\n[plan]\nservice = \"5ms\"\nobjectives = \
                [\"p99<100ms\", \"errors<0.1%\"]\n";
    let prediction = plan_postgres(text);
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
    let connect = ConnectOptions { tcp: Some(ms(300)), ..ConnectOptions::default() };
    let options = Options { service: Some(ms(15)), connect, ..Options::default() };
    let question = from_flags(&short(pool), options).unwrap();
    let prediction = ask_in_time(question).expect("the plan ends");
    let warnings = prediction.warnings.join(" ");
    assert!(warnings.contains("The load did not begin"), "{warnings}");
    // The nearest settings complete some operations.
    let best = prediction.best.unwrap();
    assert!(best.cases[0].result.total.requests > 0, "{:?}", best.sizes);
}

/// The prediction, if it takes less than a minute.
fn ask_in_time(question: Question) -> Option<Box<Prediction>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(Box::new(ask(&question))));
    receiver.recv_timeout(seconds(60)).ok()
}

/// Sections of scenarios whose clients reconnect or fail without end.
fn restless() -> Vec<(&'static str, String)> {
    let closed = "clients = 50\nduration = \"1s\"\ntimeout = \"100ms\"";
    let open = "rate = 50\nduration = \"5s\"\nspacing = \"poisson\"\ntimeout = \"100ms\"";
    let of = |load: &str, pool: &str, more: &str, plan: &str| {
        format!("[load]\n{load}\n[pool]\n{pool}\n{more}\n[plan]\n{plan}\n")
    };
    let front = "[poolhouse]\nmax_size = 3\nclient_idle_time = \"50ms\"\n";
    let soon = "max_size = 40\nmin_size = 5\nmax_life_time = \"50ms\"\n";
    let hasty = "max_size = 1\nmax_wait_time = \"1ms\"\n";
    let service = "service = \"1ms\"\nfirst = \"30ms\"";
    let at_once = "service = \"1us\"\nconnect = { tcp = \"1us\", auth = \"1us\" }";
    vec![
        ("lives of 50 ms", of(open, soon, "", service)),
        ("lives of 50 ms and clients that do not pause", of(closed, soon, "", service)),
        ("lives of 50 ms in front of a Poolhouse with the same client idle time", of(open, soon, front, service)),
        ("a maximum wait of 1 ms", of(closed, hasty, "", service)),
        ("a maximum wait of 1 ms behind a Poolhouse", of(closed, hasty, front, service)),
        ("a server that never answers in time", of(closed, hasty, "", "service = \"1s\"\nspread = \"constant\"")),
        (NO_WAITING, of(closed, "max_size = 40\n", "[poolhouse]\nmax_size = 1\nmax_wait_time = \"1us\"\n", service)),
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

const NO_WAITING: &str = "a Poolhouse without waiting";
const MAX_STEPS: u64 = 2_100_000;

#[test]
fn clients_that_reconnect_or_fail_without_end_do_not_keep_the_plan_from_ending() {
    for (what, text) in restless() {
        let question = scenario(POSTGRES, &text);
        for load in &question.loads {
            let outcome = planner::run::run(load, &question.spec);
            assert!(outcome.steps <= MAX_STEPS, "{what}: {}", outcome.steps);
        }
        if what == NO_WAITING {
            // Each candidate takes long: operations fail at once, until there are enough to judge it by.
            continue;
        }
        let prediction = ask_in_time(question).unwrap_or_else(|| panic!("{what}: the plan does not end"));
        assert!(!prediction.reasons.is_empty());
    }
}

#[test]
fn a_simulation_in_which_clients_only_reconnect_is_cut_short_with_a_warning() {
    let (_, text) = restless().remove(8);
    let question = scenario(POSTGRES, &text);
    let outcome = planner::run::run(&question.loads[0], &question.spec);
    assert!(!outcome.is_complete && outcome.result.interrupted);
    assert_eq!(
        question.missed(&outcome.result, 0.0).len(),
        question.objectives.len(),
        "an incomplete result misses \
                                                                                        all objectives"
    );
    let prediction = ask(&question);
    assert!(prediction.warnings.iter().any(|text| text.starts_with("The simulation was cut short after")));
}

#[test]
fn a_simulation_of_rare_operations_on_many_connections_is_not_cut_short() {
    let text = "[load]\nrate = 0.5\nduration = \"1h\"\n[pool]\ninstances = 200\nmax_size = 20\nmin_size = \
                20\nmax_life_time = \"60s\"\n[plan]\nservice = \"5ms\"\n";
    let question = scenario("start = \"postgres\"\nmax_connections = 5000", text);
    let outcome = planner::run::run(&question.loads[0], &question.spec);
    assert!(outcome.is_complete && outcome.steps > 600_000, "{}", outcome.steps);
}

#[test]
fn a_margin_is_explained_only_for_upper_limits() {
    let margin = |objectives: &[&str]| {
        let objectives = objectives.iter().map(|text| (*text).to_owned()).collect();
        let options =
            Options { service: Some(ms(5)), spread: Some(Spread::Constant), objectives, ..Options::default() };
        let prediction = ask(&from_flags(&short(PoolWishes::default()), options).unwrap());
        assert!(prediction.best.unwrap().met);
        prediction.reasons.into_iter().find(|reason| reason.about == "margin").map(|reason| reason.text)
    };
    assert_eq!(margin(&["rate>=1"]), None);
    assert!(margin(&["p99<1s", "rate>=1"]).unwrap().starts_with("Each upper limit is kept"));
}

const LOAD: &str = "[load]\nrate = 100\nduration = \"5s\"\n[pool]\ninstances = 2\n";

#[test]
fn fragments_with_a_poolhouse_in_front_are_for_the_pools_before_it() {
    let plan = |front: &str| {
        plan_postgres(&format!(
            "{LOAD}{front}[[fault]]\nkind = \"stall\"\ndelay = \"50ms\"\nlength = \"1s\"\nfirst = \"1s\"\nevery = \
             \"2s\"\n[plan]\nservice = \"5ms\"\n"
        ))
    };
    let of = |prediction: &Prediction| prediction.fragments.iter().map(|one| one.of).collect::<Vec<_>>();
    let about = |prediction: &Prediction, what: &str| prediction.reasons.iter().any(|reason| reason.about == what);
    let without = plan("");
    assert_eq!(of(&without), ["Poolhouse", "PgBouncer", "HikariCP"]);
    assert!(about(&without, "one pool for all") && about(&without, "inflection"));
    let with = plan("[poolhouse]\nmax_size = 5\n");
    assert_eq!(of(&with), ["HikariCP"]);
    assert!(about(&with, "in front") && !about(&with, "one pool for all") && !about(&with, "inflection"));
}
