//! Invalid questions and their messages, and which of several options counts.

use std::path::Path;

use ::report::result::{
    BenchResult, ConnectPhases,
    sweep::{SweepResult, TwoSpeeds},
};
use load::plan::{PoolWishes, Spacing};
use planner::{
    question::{Options, Question, from_flags},
    server::Times,
};

use super::{fixed, flags, ms, near, open, read, seconds, with_curve};

const FILE: &str = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[load]\nrate = 10\nduration = \"5s\"\n";

/// The message about a scenario with this `[plan]`, which begins in line 9.
fn error(plan: &str) -> String {
    read(&format!("{FILE}[plan]\n{plan}\n"), &Options::default()).unwrap_err()
}

#[test]
fn a_wrong_key_or_value_is_named_with_its_place() {
    for (plan, place, why) in [
        ("servcie = \"1ms\"", "p.toml:9:1: error: unknown key `servcie` in [plan]", "did you mean `service`?"),
        ("service = \"1ms\"\nconnect = { aut = \"1ms\" }", "p.toml:10:13", "did you mean `auth`?"),
        ("service = \"1ms\"\nobjectives = [\"p98<5ms\"]", "p.toml:10:14", "unknown metric `p98`"),
        ("service = \"10ms\"\nservice_p99 = \"5ms\"", "p.toml:10:15", "99th percentile"),
        ("service = \"10ms\"\nserver_limit = 5\nreserved = 5", "p.toml:11:12", "none is left"),
        ("service = \"10ms\"\nprocessor_time = \"1ms\"", "p.toml:10:18", "how many processors are there?"),
        ("service = \"10ms\"\nprocessor_time = \"1ms\"\ncpus = 2\nparallel = 2", "p.toml:10:18", "give one of"),
        (
            "service = \"10ms\"\nprocessor_time = \"11ms\"\ncpus = 2",
            "p.toml:10:18",
            "processor_time is part of the service time",
        ),
        (
            "service = \"10ms\"\nconnect = { auth = \"10ms\", processor_time = \"1ms\" }",
            "p.toml:10:11",
            "is for a plan with `processor_time` and `cpus`",
        ),
        (
            "service = \"10ms\"\nconnect = { auth = \"10ms\", processor_time = \"11ms\" }\ncpus = 2\nprocessor_time \
             = \"1ms\"",
            "p.toml:10:11",
            "cannot be longer",
        ),
        ("measured = \"no-such.json\"", "p.toml:9:12", "no-such.json"),
        ("service = \"2d\"", "p.toml:9:11", "more than a day"),
        ("service = \"1ms\"\npause = \"100000000d\"", "p.toml:10:9", "more than a day"),
        ("service = \"1ms\"\nconnect = { auth = \"25h\" }", "p.toml:10:11", "more than a day"),
        ("server_limit = 100", "p.toml", "how long does the server take for one operation?"),
    ] {
        let error = error(plan);
        assert!(error.contains(place) && error.contains(why), "{plan}: {error}");
    }
    let text = format!("{FILE}[plan]\nservice = \"1ms\"\nconnect = {{ auth = \"25h\" }}\n");
    let measured = Options { measured: Some("no-such.json".into()), ..Options::default() };
    let error = read(&text, &measured).unwrap_err();
    assert!(error.contains("more than a day"), "the file's times stand in for times that were not measured: {error}");
    let error = read(FILE, &Options::default()).unwrap_err();
    assert!(error.contains("how long does the server take for one operation?"), "{error}");
}

#[test]
fn a_server_of_the_scenario_has_the_default_limit_of_postgresql() {
    let question = read(FILE, &Options { service: Some(ms(3)), ..Options::default() }).unwrap();
    assert_eq!(
        (question.spec.limit, question.spec.reserved, question.spec.max_pool_connections(0)),
        (Some(100), 3, Some(97))
    );
}

#[test]
fn the_command_line_takes_precedence_over_the_file() {
    let overrides = Options { service: Some(ms(7)), objectives: vec!["p50<9ms".to_owned()], ..Options::default() };
    let text = format!("{FILE}[plan]\nmeasured = \"no-such.json\"\nobjectives = [\"p99<5ms\"]\n");
    let question = read(&text, &overrides).unwrap();
    assert_eq!((question.spec.service.mean(), question.objectives[0].text()), (ms(7), "p50<9ms"));
    // A 99th percentile replaces the spread of the file.
    let overrides = Options { service: Some(ms(7)), service_p99: Some(ms(20)), ..Options::default() };
    let question = read(&format!("{FILE}[plan]\nservice = \"1ms\"\nspread = \"constant\"\n"), &overrides).unwrap();
    assert!(question.spec.service.words().contains("lognormally"), "{}", question.spec.service.words());
}

#[test]
fn a_run_ignores_the_plan_of_its_scenario() {
    let text = format!("{FILE}[plan]\nservice = \"1ms\"\n");
    assert!(load::scenario::from_text(Path::new("p.toml"), &text, &|_| None, false).is_ok());
}

#[test]
fn default_objectives_are_an_assumption() {
    let flags = flags(10.0, seconds(5), PoolWishes::default());
    let question = from_flags(&flags, Options { service: Some(ms(7)), ..Options::default() }).unwrap();
    let texts: Vec<&str> = question.objectives.iter().map(|objective| objective.text()).collect();
    assert_eq!(texts, ["pool_wait_p99<7ms", "errors<0.1%"]);
    assert!(question.assumptions.iter().any(|text| text.contains("No objective was given")));
}

#[test]
fn two_speeds_of_a_sweep_are_an_assumption() {
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench/results/connections-2026-11-22.json");
    let mut sweep: SweepResult = serde_json::from_str(&std::fs::read_to_string(known).unwrap()).unwrap();
    sweep.verdict.as_mut().unwrap().two_speeds = vec![TwoSpeeds {
        clients: 1,
        seen: "between".to_owned(),
        slow: Some(1200.0),
        fast: Some(5500.0),
        slow_times: 2,
        fast_times: 3,
        ..TwoSpeeds::default()
    }];
    let (_file, options) = with_curve(&sweep, Options::default());
    let assumptions = read(FILE, &options).unwrap().assumptions.join("\n");
    assert!(assumptions.contains("1 client has two speeds: 1,200/s in 2 of 5"), "{assumptions}");
}

#[test]
fn loads_that_take_too_long_to_simulate_are_refused() {
    let refused = |load: &str| {
        let text = format!("{}[load]\n{load}\n[plan]\nservice = \"1ms\"\n", FILE.split("[load]").next().unwrap());
        read(&text, &Options::default()).map(|_| ())
    };
    let long = "too long to be played: give a year at most";
    for (load, why) in [
        ("rate = 1\nduration = \"1000d\"", long),
        ("burst = 2\nidle = \"300000d\"", long),
        ("burst = 2\nidle = \"1s\"\ntimeout = \"1000000d\"", long),
        ("clients = 2\nduration = \"1s\"\nwarmup = \"1000d\"", long),
        ("rate = 20000\nduration = \"1d\"", "1,728,000,000 operations, and a plan plays 1,000,000,000 at most"),
        ("clients = 1000\nduration = \"1h\"", "3,600,000,000 operations"),
        (
            "rate = 1\nduration = \"1s\"\n[[fault]]\nkind = \"delay\"\ndelay = \"2d\"",
            "a delay on the way of more than a day",
        ),
    ] {
        let error = refused(load).unwrap_err();
        assert!(error.contains(why), "{load}: {error}");
    }
    assert_eq!(refused("clients = 1000\noperations = 5\nduration = \"1h\""), Ok(()));
    assert_eq!(refused("clients = 1000\nduration = \"1h\"\n[pool]\nmax_size = 10"), Ok(()));
}

#[test]
fn only_postgresql_takes_a_round_trip_before_the_tls_handshake() {
    let connecting = |start: &str| {
        let connect = "connect = { tcp = \"1ms\", tls = \"1ms\", auth = \"1ms\" }";
        let way = "[[fault]]\nkind = \"delay\"\ndelay = \"5ms\"\n";
        let text = format!("{}{way}[plan]\nservice = \"1ms\"\n{connect}\n", FILE.replace("postgres", start));
        let question = read(&text, &Options::default()).unwrap();
        question.spec.mean_connect_time(&question.loads[0].faults)
    };
    // TCP's, one or two for TLS, and those of the login: three of SCRAM, or one.
    assert_eq!((connecting("postgres"), connecting("redis")), (ms(63), ms(33)));
}

/// The question of a measurement of 10 ms each, whose result is changed.
fn measured(plan: &str, change: impl Fn(&mut BenchResult)) -> Result<Question, String> {
    let load = open(50.0, seconds(4), Spacing::Even);
    let mut result = super::run(&super::plan(load, fixed(5)), &super::spec(Times::Constant(ms(10)))).result;
    change(&mut result);
    let file = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(&file, &result).unwrap();
    let options = Options { measured: Some(file.path().to_owned()), ..Options::default() };
    read(&format!("{FILE}[plan]\n{plan}"), &options)
}

#[test]
fn a_measurement_without_usable_service_times_is_refused() {
    let question = measured("pause = \"4ms\"\n", |_| ()).unwrap();
    near(question.spec.service.mean().as_secs_f64(), 0.006, 0.01);
    let with_histogram = |histogram: Option<&str>| {
        let histogram = histogram.map(ToOwned::to_owned);
        move |result: &mut BenchResult| result.total.service_ms.as_mut().unwrap().histogram = histogram.clone()
    };
    let error = measured("", with_histogram(None)).unwrap_err();
    assert!(error.contains("not the histogram behind them"), "{error}");
    let error = measured("", with_histogram(Some("AAAA"))).unwrap_err();
    assert!(error.contains("a histogram cannot be read"), "{error}");
    let error = measured("pause = \"40ms\"\nparallel = 2\n", |_| ()).unwrap_err();
    assert!(error.contains("p.toml:9:9") && error.contains("nothing is left for the server"), "{error}");
}

#[test]
fn measured_times_to_connect_replace_those_of_the_file() {
    let connect = "connect = { tcp = \"1ms\", auth = \"6ms\" }\n";
    let connecting = |question: Question| question.spec.mean_connect_time(&[]).as_secs_f64();
    let measures = |result: &mut BenchResult| {
        let ten = result.total.service_ms.clone();
        result.total.connect_ms = ConnectPhases { ready: ten.clone(), total: ten, ..ConnectPhases::default() };
    };
    near(connecting(measured(connect, measures).unwrap()), 0.010, 0.01);
    let unseen = |result: &mut BenchResult| result.total.connect_ms = ConnectPhases::default();
    near(connecting(measured(connect, unseen).unwrap()), 0.007, 0.01);
}
