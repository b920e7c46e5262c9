//! What a prediction says is what was computed: of the right loads, pools and limits, and no more than that.

use std::{path::Path, time::Duration};

use ::report::result::sweep::{Curve, CurvePoint, FORMAT, SweepResult};
use load::plan::{Fault, PoolWishes, Spacing, Window};
use planner::{
    answer::predict,
    facts::Facts,
    prediction::Prediction,
    question::{Flags, Platform, Question, Wishes, from_flags, from_text},
};

use super::{ms, seconds};

/// The question of a file with these parts.
fn question(target: &str, rest: &str) -> Question {
    let text = format!("[scenario]\nname = \"n\"\n[target]\n{target}\n{rest}");
    from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn postgres(rest: &str) -> Question {
    question("start = \"postgres\"\nmax_connections = 200", rest)
}

fn ask(question: &Question) -> Prediction {
    predict(question, &mut |_, _| ())
}

/// All that is said about something.
fn said(prediction: &Prediction, about: &str) -> String {
    let texts = prediction.reasons.iter().filter(|reason| reason.about == about).map(|reason| reason.text.as_str());
    texts.collect::<Vec<_>>().join(" ")
}

/// The facts of 800/s that are held for 15 ms each, with something on the way.
fn facts(fault: Fault) -> Facts {
    let flags = Flags {
        rate: 800.0,
        duration: Some(seconds(60)),
        spacing: Spacing::Poisson,
        faults: vec![fault],
        pool: PoolWishes::default(),
        seed: 1,
    };
    let question = from_flags(&flags, Wishes { service: Some(ms(15)), ..Wishes::default() }).unwrap();
    Facts::of(&question, &question.cases[0])
}

#[test]
fn no_more_operations_pile_up_than_arrive_while_a_stall_lasts() {
    let window = |length| Window { first: seconds(20), length, every: Some(seconds(20)) };
    let in_use = |facts: &Facts| facts.in_use_in_stall.map(f64::round);
    assert_eq!(in_use(&facts(Fault::Stall { delay: ms(200), window: window(seconds(3)) })), Some(172.0));
    // Answers are late for 100 ms, in which 80 arrive.
    let short = facts(Fault::Stall { delay: ms(300), window: window(ms(100)) });
    assert_eq!((in_use(&short), short.inflection(46).map(f64::round)), (Some(92.0), Some(400.0)));
    // One answer of the login falls into it: 10 ms and 300 ms. In silence all wait for its end.
    assert_eq!(short.connect_in_stall_ms, Some(310.0));
    assert_eq!(facts(Fault::BlackHole { window: window(seconds(1)) }).connect_in_stall_ms, Some(1010.0));
}

#[test]
fn a_sweep_that_meets_nothing_is_not_said_to_meet_it() {
    let point = |(clients, throughput)| CurvePoint { clients, throughput, p99_ms: Some(30.0), ..CurvePoint::default() };
    let direct = Curve { points: [(1, 100.0), (2, 150.0)].map(point).into(), ..Curve::default() };
    let sweep = SweepResult { format: FORMAT, kind: "sweep".to_owned(), direct, ..SweepResult::default() };
    let path = std::env::temp_dir().join(format!("poolhouse-claims-{}.json", std::process::id()));
    std::fs::write(&path, serde_json::to_string(&sweep).unwrap()).unwrap();
    let text = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[sweep]\nto = 4\nthrough_clients = 8\n";
    let objectives = vec!["p99<2ms".to_owned()];
    let wishes = Wishes { curve: Some(path.clone()), objectives, ..Wishes::default() };
    let question = from_text(Path::new("p.toml"), text, &|_| None, false, &wishes);
    std::fs::remove_file(&path).unwrap();
    let prediction = ask(&question.unwrap());
    assert!(!prediction.best.as_ref().unwrap().met && said(&prediction, "found").is_empty());
    assert!(said(&prediction, "none").starts_with("No setting meets the objectives."));
    // Behind a smaller pool the server would be faster.
    let why = said(&prediction, "why");
    assert!(why.contains("with fewer at once it takes less") && !why.contains("no pool can make"), "{why}");
    assert!(why.contains("With more than 2 connections for each instance the server was not measured"), "{why}");
}

const STALL: &str =
    "[[fault]]\nkind = \"stall\"\ndelay = \"100ms\"\nlength = \"500ms\"\nevery = \"2s\"\n[plan]\nservice = \"5ms\"\n";

#[test]
fn an_inflection_is_that_of_each_pool_as_it_is_given() {
    let load = "[load]\nrate = 100\nduration = \"4s\"\n[pool]\ninstances = 10\nmax_size = 3\n";
    let one = "[[variant]]\nname = \"ten\"\n[[variant]]\nname = \"one\"\npool = { instances = 1, max_size = 7 }\n";
    let prediction = ask(&postgres(&format!("{load}{one}{STALL}")));
    let text = said(&prediction, "inflection");
    assert!(text.contains("30 connections bridge") && text.contains("7 connections bridge"), "{text}");
    // Without a size there are as many as the server lets in.
    let prediction = ask(&postgres(&format!("[load]\nrate = 100\nduration = \"4s\"\n[pool]\nmax_size = 0\n{STALL}")));
    assert!(
        said(&prediction, "inflection").starts_with("197 connections bridge"),
        "{}",
        said(&prediction, "inflection")
    );
}

#[test]
fn pools_without_a_size_could_want_any_number_and_where_there_is_no_pool_nothing_is_wanted() {
    let warned = |pool: &str| {
        let load = "[load]\nrate = 20\nduration = \"2s\"\nmax_in_flight = 100\n";
        let rest = format!("{load}[pool]\n{pool}[plan]\nservice = \"5ms\"\nserver_limit = 15\n");
        let text = ask(&postgres(&rest)).warnings.join(" ");
        text.contains("could be wanted").then_some(text)
    };
    let text = warned("max_size = 0\n").expect("a warning");
    assert!(
        text.contains("As given, any number of connections could be wanted by 1 instance without a max_size"),
        "{text}"
    );
    assert_eq!((warned("max_size = 15\n"), warned("reuse = false\n")), (None, None));
}

#[test]
fn what_meets_the_objectives_is_not_called_hopeless() {
    // For half a second more arrives than the 8 that work at a time can do.
    let stages = "stages = [{ duration = \"3s\", to = 100 }, { duration = \"500ms\", to = 900 }, { duration = \"3s\", from = 100, to = 100 }]\n";
    let plan =
        "[plan]\nservice = \"10ms\"\nspread = \"constant\"\nparallel = 8\nobjectives = [\"errors<1%\", \"p99<1s\"]\n";
    let prediction = ask(&postgres(&format!("[load]\n{stages}[pool]\nmax_size = 20\n{plan}")));
    assert!(prediction.best.as_ref().unwrap().met);
    let warned = prediction.warnings.join(" ");
    assert!(warned.contains("At the peak 900/s arrive") && !warned.contains("no pool can help"), "{warned}");
}

#[test]
fn connections_for_each_operation_are_compared_with_a_pool_under_the_same_load() {
    let of = |variant: &str| {
        let load = "[load]\nrate = 180\nduration = \"10s\"\n[pool]\nmax_size = 1\n";
        let plan = "[plan]\nservice = \"5ms\"\nconnect = { tcp = \"100us\" }\nobjectives = [\"p50<1s\"]\n";
        let variants = format!("[[variant]]\nname = \"kept\"\n[[variant]]\nname = \"each\"\n{variant}");
        said(&ask(&postgres(&format!("{load}{variants}{plan}"))), "ephemeral")
    };
    let text = of("pool = { reuse = false }\n");
    assert!(text.contains("shorter in the median"), "a single connection is busy most of the time: {text}");
    assert_eq!(of("pool = { reuse = false }\nload = { rate = 20 }\n"), "", "another load says nothing about it");
}

#[test]
fn where_all_have_a_connection_more_of_them_would_find_nothing_to_do() {
    let load = "[load]\nclients = 5\nduration = \"1s\"\n[plan]\nservice = \"10ms\"\nspread = \"constant\"\nobjectives = [\"p50<1ms\"]\n";
    let why = said(&ask(&postgres(load)), "why");
    assert!(why.contains("More than 5 connections for each instance would find nothing to do."), "{why}");
}

#[test]
fn nobody_waits_for_less_long_than_somebody_waited_in_the_simulation() {
    // Once in 480 s nothing arrives for 600 ms: 60 of 48,000 wait for that, the first one for all of it, and 999 of
    // 1,000 for half at most.
    let of = |pool: &str| {
        let fault = "[[fault]]\nkind = \"black-hole\"\nfirst = \"5s\"\nlength = \"600ms\"\n";
        let load = format!("[load]\nrate = 100\nduration = \"480s\"\n[pool]\nmax_size = 1\n{pool}{fault}");
        let plan = "[plan]\nservice = \"2ms\"\nspread = \"constant\"\nobjectives = [\"p50<20ms\", \"errors<1%\"]\n";
        let prediction = ask(&postgres(&format!("{load}{plan}")));
        let waits = prediction.best.unwrap().cases[0].result.total.pool_wait_ms.clone().unwrap();
        (waits.max, prediction.settings.unwrap().max_wait_time)
    };
    let (longest, advised) = of("");
    assert!(longest > 500.0 && advised == Some(seconds(1)), "{longest} {advised:?}");
    // Nor for longer than the given time, with which all was played.
    assert_eq!(of("max_wait_time = \"300ms\"\n").1, Some(ms(300)));
}

#[test]
fn clients_of_a_redis_that_need_connections_of_their_own_are_let_in_and_any_number_of_them_can_be_counted() {
    let of = |exclusive: &str| {
        let load = "[load]\nrate = 100\nduration = \"1s\"\n[pool]\nmax_size = 5\n[plan]\nservice = \"100us\"\n";
        let rest = format!("{load}exclusive = {{ {exclusive} }}\n");
        ask(&question("start = \"redis\"", &rest)).settings.unwrap()
    };
    let settings = of("blocking_rate = 10, blocking_time = \"500ms\"");
    assert_eq!((settings.max_size, settings.soft_limit), (14, Some(18)));
    let many =
        of("blocking_rate = 1000000, blocking_time = \"1d\", transaction_rate = 1000000, transaction_time = \"1d\"");
    assert_eq!(many.max_size, u32::MAX);
}

#[test]
fn a_server_outlives_the_freeze_and_the_time_until_it() {
    let outlived = |freeze, kill| Platform { freeze_after: seconds(freeze), kill_after: seconds(kill) }.outlived();
    assert_eq!([outlived(5, 300), outlived(60, 300)], [seconds(310), seconds(365)]);
}

#[test]
fn pools_that_share_a_limit_may_each_have_more_than_their_part_of_it() {
    // 60/s of 20 ms on 10 instances: with one connection each one in ten operations waits for longer than 5 ms, and
    // most pools can have two.
    let load = "[load]\nrate = 60\nduration = \"60s\"\nspacing = \"poisson\"\n[pool]\ninstances = 10\nmax_size = 5\n";
    let plan = "[plan]\nservice = \"20ms\"\nconnect = { tcp = \"100us\" }\nserver_limit = 24\nbudget = 18\nobjectives = [\"pool_wait_p95<5ms\"]\n";
    let prediction = ask(&postgres(&format!("{load}{plan}")));
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && (2..=18).contains(&best.sizes.max_size), "{:?}", best.sizes);
    assert!(best.sizes.min_size <= 1 && best.cases[0].most_connections <= 18, "{:?}", best.sizes);
    let limit = said(&prediction, "server's limit");
    assert!(limit.contains("and all of them together = 18 (75%)"), "{limit}");
    assert!(!prediction.warnings.iter().any(|text| text.contains("may want")), "{:?}", prediction.warnings);
}

/// A plan of 800/s of 15 ms each on 100 connections, with a stall of 200 ms for 3 s.
fn with_stall(window: Window, duration: Option<Duration>, objectives: &[&str]) -> Question {
    let stall = Fault::Stall { delay: ms(200), window };
    let pool = PoolWishes { max_size: Some(100), ..PoolWishes::default() };
    let flags = Flags { rate: 800.0, duration, spacing: Spacing::Poisson, faults: vec![stall], pool, seed: 1 };
    let objectives = objectives.iter().map(|&text| text.to_owned()).collect();
    from_flags(&flags, Wishes { service: Some(ms(15)), objectives, ..Wishes::default() }).unwrap()
}

#[test]
fn a_stall_that_is_rare_is_played_all_the_same() {
    let rare = Window { first: seconds(300), length: seconds(3), every: Some(seconds(300)) };
    let question = with_stall(rare, None, &[]);
    assert!(question.assumed.iter().any(|text| text.contains("A minute around one stall is played")));
    let prediction = ask(&question);
    assert!(!prediction.given[0].missed.is_empty(), "100 connections do not bridge it");
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && best.sizes.max_size > 150, "{:?}", best.sizes);
    // One that comes every 20 s does so in each minute.
    let often = Window { first: seconds(20), length: seconds(3), every: Some(seconds(20)) };
    assert!(!with_stall(often, None, &[]).assumed.iter().any(|text| text.contains("around one stall")));
}

#[test]
fn stalls_that_the_objectives_cannot_see_are_warned_of() {
    let rare = |first| Window { first: seconds(first), length: seconds(3), every: Some(seconds(300)) };
    let warned = |window, duration, objectives: &[&str], of: &str| {
        let prediction = ask(&with_stall(window, Some(seconds(duration)), objectives));
        prediction.warnings.iter().any(|text| text.contains(of))
    };
    assert!(warned(rare(300), 60, &[], "it never comes"));
    assert!(warned(rare(100), 400, &[], "Answers are late for 0.75% of the load: pool_wait_p99<15ms"), "one in 400 s");
    assert!(!warned(rare(100), 400, &["p999<300ms"], "hardly sees"));
    assert!(!warned(rare(20), 60, &[], "hardly sees") && !warned(rare(20), 60, &[], "it never comes"));
}

#[test]
fn more_connections_than_a_postgresql_lets_in_by_default_are_warned_of_where_nobody_said_its_limit() {
    let often = Window { first: seconds(20), length: seconds(3), every: Some(seconds(20)) };
    let warned = |limit: Option<u32>, objective: &str| {
        let mut question = with_stall(often, None, &[objective]);
        question.spec.limit = limit;
        let prediction = ask(&question);
        let size = prediction.settings.as_ref().unwrap().max_size;
        (size, prediction.warnings.join(" ").contains("a PostgreSQL lets in 100"))
    };
    let (many, told) = warned(None, "pool_wait_p99<15ms");
    assert!(many > 100 && told, "{many}");
    assert!(!warned(Some(300), "pool_wait_p99<15ms").1);
    let (few, told) = warned(None, "p50<1s");
    assert!(few < 97 && !told, "{few}");
}
