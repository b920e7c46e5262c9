//! Questions that are asked wrongly, and what is said then.

use std::path::Path;

use ::report::result::{BenchResult, ConnectPhases};
use load::plan::{PoolWishes, Spacing};
use planner::{
    question::{Flags, Question, Wishes, from_flags, from_text},
    server::Times,
};

use super::{ms, seconds};

const FILE: &str = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[load]\nrate = 10\nduration = \"5s\"\n";

fn read(plan: &str) -> Result<Question, String> {
    let text = format!("{FILE}{plan}");
    from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default()).map_err(|problems| problems.to_string())
}

#[test]
fn a_mistake_in_the_plan_is_told_with_line_column_and_the_nearest_key() {
    let error = read("[plan]\nservcie = \"1ms\"\n").unwrap_err();
    assert!(error.starts_with("p.toml:9:1: error: unknown key `servcie` in [plan]"), "{error}");
    assert!(error.contains("did you mean `service`?"), "{error}");
    let error = read("[plan]\nservice = \"1ms\"\nconnect = { aut = \"1ms\" }\n").unwrap_err();
    assert!(error.contains("p.toml:10:13") && error.contains("did you mean `auth`?"), "{error}");
    let error = read("[plan]\nservice = \"1ms\"\nobjectives = [\"p98<5ms\"]\n").unwrap_err();
    assert!(error.contains("p.toml:10:14") && error.contains("unknown metric `p98`"), "{error}");
}

#[test]
fn what_does_not_go_together_is_told_at_its_place() {
    let error = read("[plan]\nservice = \"10ms\"\nservice_p99 = \"5ms\"\n").unwrap_err();
    assert!(error.contains("p.toml:10:15") && error.contains("99th percentile"), "{error}");
    let error = read("[plan]\nservice = \"10ms\"\nserver_limit = 5\nreserved = 5\n").unwrap_err();
    assert!(error.contains("p.toml:11:12") && error.contains("none is left"), "{error}");
    for (rest, place, why) in [
        ("processor_time = \"1ms\"\n", "p.toml:10:18", "how many processors are there?"),
        ("processor_time = \"1ms\"\ncpus = 2\nparallel = 2\n", "p.toml:10:18", "give one of"),
        ("processor_time = \"11ms\"\ncpus = 2\n", "p.toml:10:18", "processor_time is part of the service time"),
    ] {
        let error = read(&format!("[plan]\nservice = \"10ms\"\n{rest}")).unwrap_err();
        assert!(error.contains(place) && error.contains(why), "{error}");
    }
    for (more, why) in [
        ("", "is for a plan with `processor_time` and `cpus`"),
        ("cpus = 2\nprocessor_time = \"1ms\"\n", "cannot be longer"),
    ] {
        let work = if more.is_empty() { "1ms" } else { "11ms" };
        let connect = format!("connect = {{ auth = \"10ms\", processor_time = \"{work}\" }}\n");
        let error = read(&format!("[plan]\nservice = \"10ms\"\n{connect}{more}")).unwrap_err();
        assert!(error.contains("p.toml:10:11") && error.contains(why), "{error}");
    }
    let error = read("[plan]\nmeasured = \"no-such.json\"\n").unwrap_err();
    assert!(error.contains("p.toml:9:12") && error.contains("no-such.json"), "{error}");
}

#[test]
fn without_a_service_time_it_is_asked_for() {
    for plan in ["", "[plan]\nserver_limit = 100\n"] {
        let error = read(plan).unwrap_err();
        assert!(error.contains("how long does the server take for one operation?"), "{error}");
    }
    let said = Wishes { service: Some(ms(3)), ..Wishes::default() };
    let question = from_text(Path::new("p.toml"), FILE, &|_| None, false, &said).unwrap();
    // The scenario's own server: PostgreSQL's default, of which three are the superuser's.
    assert_eq!(
        (question.spec.limit, question.spec.reserved, question.spec.max_pool_connections(0)),
        (Some(100), 3, Some(97))
    );
}

#[test]
fn what_the_command_line_says_goes_before_the_file() {
    let over = Wishes { service: Some(ms(7)), objectives: vec!["p50<9ms".to_owned()], ..Wishes::default() };
    let text = format!("{FILE}[plan]\nmeasured = \"no-such.json\"\nobjectives = [\"p99<5ms\"]\n");
    let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &over).unwrap();
    assert_eq!(question.spec.service.mean(), ms(7));
    assert_eq!(question.objectives[0].text(), "p50<9ms");
}

#[test]
fn a_run_has_no_use_for_the_plan_of_its_scenario() {
    let text = format!("{FILE}[plan]\nservice = \"1ms\"\n");
    assert!(load::scenario::from_text(Path::new("p.toml"), &text, &|_| None, false).is_ok());
}

#[test]
fn without_objectives_there_are_some_and_that_is_said() {
    let flags = Flags {
        rate: 10.0,
        duration: Some(seconds(5)),
        spacing: Spacing::Poisson,
        faults: Vec::new(),
        pool: PoolWishes::default(),
        seed: 1,
    };
    let question = from_flags(&flags, Wishes { service: Some(ms(7)), ..Wishes::default() }).unwrap();
    let texts: Vec<&str> = question.objectives.iter().map(|objective| objective.text()).collect();
    assert_eq!(texts, ["pool_wait_p99<7ms", "errors<0.1%"]);
    assert!(question.own_objectives && question.assumed.iter().any(|text| text.contains("No objective was given")));
}

#[test]
fn what_a_sweep_says_of_two_speeds_is_among_what_is_assumed() {
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../bench/results/connections-2026-11-22.json");
    let speeds = r#""verdict": { "two_speeds": [{ "clients": 1, "seen": "between", "slow": 1200.0, "fast": 5500.0, "slow_times": 2,
        "fast_times": 3, "p50_ms": null, "expected_p50_ms": null }],"#;
    let text = std::fs::read_to_string(known).unwrap().replacen("\"verdict\": {", speeds, 1);
    let path = std::env::temp_dir().join(format!("poolhouse-two-speeds-{}.json", std::process::id()));
    std::fs::write(&path, text).unwrap();
    let wishes = Wishes { curve: Some(path.clone()), ..Wishes::default() };
    let question = from_text(Path::new("p.toml"), FILE, &|_| None, false, &wishes);
    std::fs::remove_file(&path).unwrap();
    let assumed = question.unwrap().assumed.join("\n");
    assert!(assumed.contains("1 client has two speeds: 1,200/s in 2 of 5"), "{assumed}");
}

#[test]
fn times_and_loads_that_cannot_be_played_are_refused() {
    for (plan, place) in [
        ("service = \"2d\"\n", "p.toml:9:11"),
        ("service = \"1ms\"\npause = \"100000000d\"\n", "p.toml:10:9"),
        ("service = \"1ms\"\nconnect = { auth = \"25h\" }\n", "p.toml:10:11"),
    ] {
        let error = read(&format!("[plan]\n{plan}")).unwrap_err();
        assert!(error.contains(place) && error.contains("more than a day"), "{error}");
    }
    let refused = |load: &str| {
        let text = format!("{}[load]\n{load}\n[plan]\nservice = \"1ms\"\n", FILE.split("[load]").next().unwrap());
        let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default());
        question.map(|_| ()).map_err(|problems| problems.to_string())
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
fn who_gives_a_percentile_on_the_command_line_means_no_spread_of_the_file() {
    let over = Wishes { service: Some(ms(7)), service_p99: Some(ms(20)), ..Wishes::default() };
    let text = format!("{FILE}[plan]\nservice = \"1ms\"\nspread = \"constant\"\n");
    let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &over).unwrap();
    assert!(question.spec.service.words().contains("lognormally"), "{}", question.spec.service.words());
}

#[test]
fn only_a_postgres_is_asked_for_tls_before_its_handshake() {
    let connecting = |start: &str| {
        let connect = "connect = { tcp = \"1ms\", tls = \"1ms\", auth = \"1ms\" }";
        let way = "[[fault]]\nkind = \"delay\"\ndelay = \"5ms\"\n";
        let text = format!("{}{way}[plan]\nservice = \"1ms\"\n{connect}\n", FILE.replace("postgres", start));
        let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default()).unwrap();
        question.spec.mean_connect_time(&question.cases[0].faults)
    };
    // TCP's, one or two for TLS, and those of the login: three of SCRAM, or one.
    assert_eq!((connecting("postgres"), connecting("redis")), (ms(63), ms(33)));
}

/// The question of a measurement of 10 ms each, after something was done to its file.
fn measured(name: &str, plan: &str, change: impl Fn(&mut BenchResult)) -> Result<Question, String> {
    let load = super::open(50.0, seconds(4), Spacing::Even);
    let mut result = super::simulate(&super::plan(load, super::fixed(5)), &super::spec(Times::Constant(ms(10)))).result;
    change(&mut result);
    let path = std::env::temp_dir().join(format!("poolhouse-measured-{name}-{}.json", std::process::id()));
    std::fs::write(&path, serde_json::to_string(&result).unwrap()).unwrap();
    let wishes = Wishes { measured: Some(path.clone()), ..Wishes::default() };
    let text = format!("{FILE}[plan]\n{plan}");
    let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &wishes);
    std::fs::remove_file(&path).unwrap();
    question.map_err(|problems| problems.to_string())
}

#[test]
fn a_measurement_without_what_is_needed_of_it_is_refused() {
    let question = measured("whole", "pause = \"4ms\"\n", |_| ()).unwrap();
    super::near(question.spec.service.mean().as_secs_f64(), 0.006, 0.01);
    let bare = |result: &mut BenchResult| result.total.service_ms.as_mut().unwrap().histogram = None;
    let error = measured("bare", "", bare).unwrap_err();
    assert!(error.contains("not the histogram behind them"), "{error}");
    let torn = |result: &mut BenchResult| result.total.service_ms.as_mut().unwrap().histogram = Some("AAAA".to_owned());
    let error = measured("torn", "", torn).unwrap_err();
    assert!(error.contains("a histogram cannot be read"), "{error}");
    let error = measured("paused", "pause = \"40ms\"\nparallel = 2\n", |_| ()).unwrap_err();
    assert!(error.contains("p.toml:9:9") && error.contains("nothing is left for the server"), "{error}");
}

#[test]
fn what_connecting_took_in_a_measurement_takes_the_place_of_what_the_file_assumes() {
    let assumes = "connect = { tcp = \"1ms\", auth = \"6ms\" }\n";
    let connecting = |question: Question| question.spec.mean_connect_time(&[]).as_secs_f64();
    let measures = |result: &mut BenchResult| {
        let ten = result.total.service_ms.clone();
        result.total.connect_ms = ConnectPhases { ready: ten.clone(), total: ten, ..ConnectPhases::default() };
    };
    super::near(connecting(measured("connects", assumes, measures).unwrap()), 0.010, 0.01);
    let unseen = |result: &mut BenchResult| result.total.connect_ms = ConnectPhases::default();
    super::near(connecting(measured("unseen", assumes, unseen).unwrap()), 0.007, 0.01);
}
