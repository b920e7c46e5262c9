//! The sentences of a prediction are about the right loads, pools and limits, and claim no more than was computed.

use std::time::Duration;

use load::plan::{Fault, PoolWishes, Spacing, Window};
use planner::{
    facts::Facts,
    question::{Flags, Options, Platform, Question, from_flags},
};

use super::{ask, flags, ms, plan_postgres, read, reasons, seconds, sweep, with_curve};

/// The facts of 800/s that are held for 15 ms each, with a fault.
fn facts(fault: Fault) -> Facts {
    let flags = Flags { faults: vec![fault], ..flags(800.0, seconds(60), PoolWishes::default()) };
    let question = from_flags(&flags, Options { service: Some(ms(15)), ..Options::default() }).unwrap();
    Facts::of(&question, &question.loads[0])
}

#[test]
fn no_more_operations_pile_up_than_arrive_while_a_stall_lasts() {
    let window = |length| Window { first: seconds(20), length, every: Some(seconds(20)) };
    let in_use = |facts: &Facts| facts.in_use_in_stall.map(f64::round);
    assert_eq!(in_use(&facts(Fault::Stall { delay: ms(200), window: window(seconds(3)) })), Some(172.0));
    // Answers are late for 100 ms, in which 80 arrive.
    let short = facts(Fault::Stall { delay: ms(300), window: window(ms(100)) });
    assert_eq!((in_use(&short), short.max_rate_in_stall(46).map(f64::round)), (Some(92.0), Some(400.0)));
    // One answer of the login is within the stall: 10 ms and 300 ms. In a black hole all answers wait for its end.
    assert_eq!(short.connect_in_stall_ms, Some(310.0));
    assert_eq!(facts(Fault::BlackHole { window: window(seconds(1)) }).connect_in_stall_ms, Some(1010.0));
}

#[test]
fn a_sweep_that_misses_the_objective_is_not_said_to_meet_it() {
    let text = "[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n[sweep]\nto = 4\nthrough_clients = 8\n";
    let objectives = vec!["p99<2ms".to_owned()];
    let sweep = sweep(&[(1, 100.0), (2, 150.0)], 30.0);
    let (_file, options) = with_curve(&sweep, Options { objectives, ..Options::default() });
    let prediction = ask(&read(text, &options).unwrap());
    assert!(!prediction.best.as_ref().unwrap().met && reasons(&prediction, "found").is_empty());
    assert!(reasons(&prediction, "none").starts_with("No setting meets the objectives."));
    // Behind a smaller pool the server would be faster.
    let why = reasons(&prediction, "why");
    assert!(why.contains("with fewer at once it takes less") && !why.contains("no pool can make"), "{why}");
    assert!(why.contains("With more than 2 connections for each instance the server was not measured"), "{why}");
}

const STALL: &str =
    "[[fault]]\nkind = \"stall\"\ndelay = \"100ms\"\nlength = \"500ms\"\nevery = \"2s\"\n[plan]\nservice = \"5ms\"\n";

#[test]
fn each_given_pool_has_its_own_inflection() {
    let load = "[load]\nrate = 100\nduration = \"4s\"\n[pool]\ninstances = 10\nmax_size = 3\n";
    let one = "[[variant]]\nname = \"ten\"\n[[variant]]\nname = \"one\"\npool = { instances = 1, max_size = 7 }\n";
    let prediction = plan_postgres(&format!("{load}{one}{STALL}"));
    let text = reasons(&prediction, "inflection");
    assert!(text.contains("30 connections bridge") && text.contains("7 connections bridge"), "{text}");
    // Without a size the server's limit counts.
    let prediction = plan_postgres(&format!("[load]\nrate = 100\nduration = \"4s\"\n[pool]\nmax_size = 0\n{STALL}"));
    assert!(
        reasons(&prediction, "inflection").starts_with("197 connections bridge"),
        "{}",
        reasons(&prediction, "inflection")
    );
}

#[test]
fn pools_without_a_size_are_warned_of_and_loads_without_a_pool_are_not() {
    let warned = |pool: &str| {
        let load = "[load]\nrate = 20\nduration = \"2s\"\nmax_in_flight = 100\n";
        let rest = format!("{load}[pool]\n{pool}[plan]\nservice = \"5ms\"\nserver_limit = 15\n");
        let text = plan_postgres(&rest).warnings.join(" ");
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
fn an_overload_at_the_peak_is_not_called_hopeless_if_the_objectives_are_met() {
    // For half a second more arrives than the 8 that work at a time can do.
    let stages = "stages = [{ duration = \"3s\", to = 100 }, { duration = \"500ms\", to = 900 }, \
                  { duration = \"3s\", from = 100, to = 100 }]\n";
    let plan =
        "[plan]\nservice = \"10ms\"\nspread = \"constant\"\nparallel = 8\nobjectives = [\"errors<1%\", \"p99<1s\"]\n";
    let prediction = plan_postgres(&format!("[load]\n{stages}[pool]\nmax_size = 20\n{plan}"));
    assert!(prediction.best.as_ref().unwrap().met);
    let warned = prediction.warnings.join(" ");
    assert!(warned.contains("At the peak 900/s arrive") && !warned.contains("no pool can help"), "{warned}");
}

#[test]
fn more_connections_than_clients_would_find_nothing_to_do() {
    let load = "[load]\nclients = 5\nduration = \"1s\"\n[plan]\nservice = \"10ms\"\nspread = \
                \"constant\"\nobjectives = [\"p50<1ms\"]\n";
    let why = reasons(&plan_postgres(load), "why");
    assert!(why.contains("More than 5 connections for each instance would find nothing to do."), "{why}");
}

#[test]
fn the_recommended_max_wait_time_is_at_least_the_longest_wait_and_at_most_the_given_one() {
    // Once in 480 s nothing arrives for 600 ms: 60 of 48,000 wait for that, the first one for all of it, and 999 of
    // 1,000 for half at most.
    let of = |pool: &str| {
        let fault = "[[fault]]\nkind = \"black-hole\"\nfirst = \"5s\"\nlength = \"600ms\"\n";
        let load = format!("[load]\nrate = 100\nduration = \"480s\"\n[pool]\nmax_size = 1\n{pool}{fault}");
        let plan = "[plan]\nservice = \"2ms\"\nspread = \"constant\"\nobjectives = [\"p50<20ms\", \"errors<1%\"]\n";
        let prediction = plan_postgres(&format!("{load}{plan}"));
        let waits = prediction.best.unwrap().cases[0].result.total.pool_wait_ms.clone().unwrap();
        (waits.max, prediction.settings.unwrap().max_wait_time)
    };
    let (longest, advised) = of("");
    assert!(longest > 500.0 && advised == Some(seconds(1)), "{longest} {advised:?}");
    assert_eq!(of("max_wait_time = \"300ms\"\n").1, Some(ms(300)));
}

#[test]
fn the_client_idle_time_is_longer_than_the_freeze_and_the_time_until_it() {
    let outlived =
        |freeze, kill| Platform { freeze_after: seconds(freeze), kill_after: seconds(kill) }.safe_client_idle_time();
    assert_eq!([outlived(5, 300), outlived(60, 300)], [seconds(310), seconds(365)]);
}

#[test]
fn pools_that_share_a_limit_may_each_have_more_than_their_part_of_it() {
    // 60/s of 20 ms on 10 instances: with one connection each one in ten operations waits for longer than 5 ms, and
    // most pools can have two.
    let load = "[load]\nrate = 60\nduration = \"60s\"\nspacing = \"poisson\"\n[pool]\ninstances = 10\nmax_size = 5\n";
    let plan = "[plan]\nservice = \"20ms\"\nconnect = { tcp = \"100us\" }\nserver_limit = 24\nbudget = \
                18\nobjectives = [\"pool_wait_p95<5ms\"]\n";
    let prediction = plan_postgres(&format!("{load}{plan}"));
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && (2..=18).contains(&best.sizes.max_size), "{:?}", best.sizes);
    assert!(best.sizes.min_size <= 1 && best.cases[0].most_connections <= 18, "{:?}", best.sizes);
    let limit = reasons(&prediction, "server's limit");
    assert!(limit.contains("and all of them together = 18 (75%)"), "{limit}");
    assert!(!prediction.warnings.iter().any(|text| text.contains("may want")), "{:?}", prediction.warnings);
}

/// A plan of 800/s of 15 ms each on 100 connections, with a stall of 200 ms for 3 s.
fn with_stall(window: Window, duration: Option<Duration>, objectives: &[&str]) -> Question {
    let stall = Fault::Stall { delay: ms(200), window };
    let pool = PoolWishes { max_size: Some(100), ..PoolWishes::default() };
    let flags = Flags { rate: 800.0, duration, spacing: Spacing::Poisson, faults: vec![stall], pool, seed: 1 };
    let objectives = objectives.iter().map(|&text| text.to_owned()).collect();
    from_flags(&flags, Options { service: Some(ms(15)), objectives, ..Options::default() }).unwrap()
}

#[test]
fn a_rare_stall_is_moved_into_the_load() {
    let rare = Window { first: seconds(300), length: seconds(3), every: Some(seconds(300)) };
    let question = with_stall(rare, None, &[]);
    assert!(question.assumptions.iter().any(|text| text.contains("A minute around one stall is played")));
    let prediction = ask(&question);
    assert!(!prediction.given[0].missed.is_empty(), "100 connections do not bridge it");
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && best.sizes.max_size > 150, "{:?}", best.sizes);
    // A stall every 20 s is within the load anyway.
    let often = Window { first: seconds(20), length: seconds(3), every: Some(seconds(20)) };
    assert!(!with_stall(often, None, &[]).assumptions.iter().any(|text| text.contains("around one stall")));
}

#[test]
fn stalls_that_the_objectives_cannot_show_are_warned_of() {
    let rare = |first| Window { first: seconds(first), length: seconds(3), every: Some(seconds(300)) };
    let warned = |window, duration, objectives: &[&str], of: &str| {
        let prediction = ask(&with_stall(window, Some(seconds(duration)), objectives));
        prediction.warnings.iter().any(|text| text.contains(of))
    };
    assert!(warned(rare(300), 60, &[], "it never comes"));
    assert!(warned(rare(100), 400, &[], "Answers are late for 0.75% of the load: pool_wait_p99<15ms"), "one in 400 s");
    assert!(!warned(rare(100), 400, &["p999<300ms"], "hardly sees"));
    assert!(!warned(rare(20), 60, &[], "hardly sees") && !warned(rare(20), 60, &[], "it never comes"));
    // A longer stall after the end of the load hides none within it.
    let mut question = with_stall(rare(20), Some(seconds(60)), &[]);
    let late = Window { length: seconds(9), ..rare(300) };
    question.loads[0].faults.push(Fault::Stall { delay: ms(200), window: late });
    let prediction = ask(&question);
    assert!(!prediction.warnings.iter().any(|text| text.contains("it never comes")), "{:?}", prediction.warnings);
    assert!(reasons(&prediction, "in the stall").contains("late for 3 s"));
}

#[test]
fn more_connections_than_the_default_limit_of_postgresql_are_warned_of_if_its_limit_is_not_given() {
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
