//! What scenario files mean, and what is said about their mistakes.

use std::time::Duration;

use arrivals::{Shape, Spacing, Stage, Window};
use proptest::prelude::*;

use super::*;
use crate::plan::QueryProtocol;

fn scenario(text: &str, full: bool) -> Scenario {
    from_text(Path::new("s.toml"), text, &|_| None, full).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(text: &str) -> String {
    from_text(Path::new("s.toml"), text, &|_| None, false).expect_err(text).to_string()
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

const STALLS: &str = r#"
[scenario]
name = "stalls"
about = "a stall at the database"
seed = 7
fail_if = ["p99>50ms"]

[target]
start = "postgres"
max_connections = 300
script = "tpcb-like"
protocol = "prepared"
scale = 10

[load]
stages = [{ duration = "6s", from = 10, to = 100 }, { duration = "6s", to = 300.5 }]
spacing = "poisson"
warmup = "2s"

[pool]
max_size = 100
max_wait_time = "5s"
max_idle_time = "off"

[[fault]]
kind = "delay"
delay = "4ms"
jitter = "1ms"
[[fault]]
kind = "stall"
delay = "200ms"
length = "1s"
every = "5s"

[full.load]
stages = [{ duration = "1m", to = 100 }]
[[full.fault]]
kind = "stall"
delay = "200ms"
first = "3s"
length = "2s"
every = "20s"

[[variant]]
name = "as it was"
[[variant]]
name = "larger"
pool = { max_size = 200 }
"#;

#[test]
fn a_file_holds_several_runs() {
    let scenario = scenario(STALLS, false);
    assert_eq!(
        (scenario.name.as_str(), scenario.start),
        ("stalls", Some(Start { kind: Kind::Postgres, max_connections: 300 }))
    );
    assert_eq!(scenario.largest_table_scale(), Some(10));
    let names: Vec<&str> = scenario.plans.iter().map(|plan| plan.name.as_str()).collect();
    assert_eq!(names, ["stalls: as it was", "stalls: larger"]);
    let sizes: Vec<u32> = scenario.plans.iter().map(|plan| plan.pool.config.max_size).collect();
    assert_eq!(sizes, [100, 200]);
    let plan = &scenario.plans[1];
    assert_eq!((plan.pool.config.max_wait_time, plan.pool.config.max_idle_time), (Some(secs(5)), None));
    assert_eq!((plan.warmup, plan.seed, plan.fail_if.as_slice()), (secs(2), 7, &["p99>50ms".to_owned()][..]));
    let stages =
        vec![Stage { duration: secs(6), from: 10.0, to: 100.0 }, Stage { duration: secs(6), from: 100.0, to: 300.5 }];
    assert_eq!(plan.shape, Shape::Open { stages, spacing: Spacing::Poisson, max_in_flight: 10_000 });
    let window = Window { first: secs(5), length: secs(1), every: Some(secs(5)) };
    let delay = Fault::Delay { delay: Duration::from_millis(4), jitter: Duration::from_millis(1) };
    assert_eq!(plan.faults, [delay, Fault::Stall { delay: Duration::from_millis(200), window }]);
}

#[test]
fn the_published_durations_replace_the_short_ones_and_leave_the_rest() {
    let scenario = scenario(STALLS, true);
    let plan = &scenario.plans[0];
    assert!(scenario.full);
    let Shape::Open { stages, spacing, .. } = &plan.shape else { panic!("{:?}", plan.shape) };
    assert_eq!(stages, &[Stage { duration: secs(60), from: 100.0, to: 100.0 }]);
    assert_eq!(*spacing, Spacing::Poisson);
    let window = Window { first: secs(3), length: secs(2), every: Some(secs(20)) };
    assert_eq!(plan.faults, [Fault::Stall { delay: Duration::from_millis(200), window }]);
}

#[test]
fn a_scenario_can_be_pointed_at_another_target() {
    let mut scenario = scenario(STALLS, false);
    scenario.point_at(&Secret::new("postgres://u:hunter2@h/d"));
    let Target::Postgres(target) = &scenario.plans[1].target else { panic!("PostgreSQL") };
    assert_eq!(&**target.url.reveal(), "postgres://u:hunter2@h/d");
    assert_eq!(target.protocol, QueryProtocol::Prepared);
    assert!(!format!("{scenario:?}").contains("hunter2"));
}

#[test]
fn bursts_closed_loops_and_plain_rates_are_read() {
    let head = "[scenario]\nname = \"x\"\n[target]\nurl = \"postgres://u@h/d\"\n";
    let shape = |load: &str| scenario(&format!("{head}[load]\n{load}"), false).plans[0].shape.clone();
    assert_eq!(
        shape("burst = 50\nidle = \"3s\"\nrounds = 4"),
        Shape::Burst { size: 50, at_once: 50, idle: secs(3), rounds: 4 }
    );
    assert_eq!(
        shape("clients = 5\nduration = \"3s\"\noperations = 9"),
        Shape::Closed { clients: 5, think: Duration::ZERO, duration: secs(3), operations: Some(9) }
    );
    let Shape::Open { stages, .. } = shape("rate = 12.5\nduration = \"3s\"") else { panic!("an open load") };
    assert_eq!(stages, [Stage { duration: secs(3), from: 12.5, to: 12.5 }]);
    let closed = scenario(&format!("{head}[load]\nclients = 5\nduration = \"3s\""), false);
    let config = &closed.plans[0].pool.config;
    assert_eq!(
        (config.max_size, config.min_size, config.max_connecting, config.max_idle_time),
        (5, 5, 16, None),
        "as on the command line"
    );
    assert!(closed.plans[0].pool.warm && closed.plans[0].pool.reuse);
}

#[test]
fn an_http_target_has_a_request() {
    let text = "[scenario]\nname = \"x\"\n[load]\nrate = 5\nduration = \"1s\"\n[target]\nurl = \"http://h/p\"\n\
                headers = [\"Content-Type: application/json\"]\nbody = '{\"n\": {{random 1 9}}}'\nexpect = [201, \
                             204]\n";
    let scenario = scenario(text, false);
    let Target::Http(target) = &scenario.plans[0].target else { panic!("HTTP") };
    assert_eq!((target.method.as_str(), target.expect.as_slice()), ("POST", &[201, 204][..]));
    assert_eq!(target.headers, [("Content-Type".to_owned(), "application/json".to_owned())]);
    assert_eq!(scenario.largest_table_scale(), None);
}

#[test]
fn mistakes_are_told_at_their_places() {
    let text = |from: &str, to: &str| {
        assert!(STALLS.contains(from), "{from}");
        problems(&STALLS.replace(from, to))
    };
    for (from, to, expected) in [
        ("spacing =", "spaceing =", "s.toml:17:1: error: unknown key `spaceing` in [load]"),
        ("spacing =", "spaceing =", "did you mean `spacing`?"),
        ("max_size = 100", "max_size = \"100\"", "s.toml:21:12: error: `max_size` must be a whole number"),
        ("max_size = 200", "max_size = 5, min_size = 6", "min_size (6) is above max_size (5)"),
        ("kind = \"stall\"\ndelay = \"200ms\"\nlength = \"1s\"", "kind = \"stal\"", "did you mean \"stall\"?"),
        ("length = \"1s\"\nevery = \"5s\"", "length = \"5s\"\nevery = \"5s\"", "`every` must be longer than `length`"),
        ("jitter = \"1ms\"", "every = \"1m\"", "a fault of the kind \"delay\" has no `every`"),
        ("spacing = \"poisson\"", "burst = 5", "several shapes: give one of `stages`, `burst`"),
        ("spacing = \"poisson\"", "think = \"1s\"", "`think` says nothing to a load with `stages`"),
        ("script = \"tpcb-like\"", "script = \"tpcb\"", "did you mean \"tpcb-like\"?"),
        ("script = \"tpcb-like\"", "sql = '''\nselect 1;\n\\shell x'''", "sql:2:1: the meta-command `\\shell`"),
        ("script = \"tpcb-like\"", "sql = '''select ':a';'''", "only works with --protocol simple"),
        ("start = \"postgres\"", "url = \"postgres://h/d\"", "`max_connections` is for a database that is started"),
        ("start = \"postgres\"", "body = \"x\"", "[target] needs a `url`, or start = \"postgres\" or"),
        ("name = \"larger\"", "", "[[variant]] needs a `name`"),
        ("name = \"stalls\"", "", "[scenario] needs a `name`"),
        ("duration = \"6s\", to = 300.5", "to = 300.5", "a stage needs `duration`"),
    ] {
        let problems = text(from, to);
        assert!(problems.contains(expected), "{to}: {problems}");
    }
    assert!(problems("[load]\nrate = 5").contains("there is no [scenario]"));
    let foreign = "[scenario]\nname=\"x\"\n[target]\nurl=\"http://h\"\nscale=5\n[load]\nrate=1\nduration=\"1s\"";
    assert!(problems(foreign).contains("says nothing to a target that speaks HTTP"));
    let secret =
        "[scenario]\nname=\"x\"\n[target]\nurl=\"postgres://a:hunter2@h:99999/d\"\n[load]\nrate=1\nduration=\"1s\"";
    assert!(!problems(secret).contains("hunter2"));
}

#[test]
fn the_scenarios_of_this_project_are_right_in_both_lengths() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = load_text(&path).unwrap();
            for full in [false, true] {
                let scenario = from_text(&path, &text, &|_| None, full).unwrap_or_else(|problems| panic!("{problems}"));
                assert!(
                    scenario.plans.is_empty() == scenario.sweep.is_some() && !scenario.about.is_empty(),
                    "{}",
                    path.display()
                );
            }
            found += 1;
        }
    }
    assert!(found >= 9, "{found} scenarios");
}

#[test]
fn the_published_settings_of_a_variant_lie_over_those_of_the_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scenarios/churn-cure.toml");
    let text = load_text(&path).unwrap();
    let (minutes, millis) = (|n: u64| Some(secs(60 * n)), |n| Some(Duration::from_millis(n)));
    for (full, usual, cured) in
        [(false, millis(800), (millis(4_000), millis(24_000))), (true, minutes(1), (minutes(5), minutes(30)))]
    {
        let scenario = from_text(&path, &text, &|_| None, full).unwrap();
        let mut as_cured = 0;
        for plan in &scenario.plans {
            let times = (plan.pool.config.max_idle_time, plan.pool.config.max_life_time);
            if plan.name.contains("as cured") {
                as_cured += 1;
                assert_eq!(times, cured, "{}", plan.name);
            } else {
                assert_eq!(times, (usual, None), "{}", plan.name);
            }
        }
        assert_eq!(as_cured, 2);
        assert_eq!(scenario.compression, Some(if full { 1.0 } else { 75.0 }));
    }
}

#[test]
fn a_variant_may_have_published_values_of_its_own_and_mistakes_in_them_are_told() {
    let own = "name = \"larger\"\nfull = { pool = { max_size = 300 }, load = { warmup = \"9s\" } }\n";
    let text = STALLS.replace("name = \"larger\"\n", own);
    let sizes = |full| scenario(&text, full).plans.iter().map(|plan| plan.pool.config.max_size).collect::<Vec<_>>();
    assert_eq!((sizes(false), sizes(true)), (vec![100, 200], vec![100, 300]));
    assert_eq!(scenario(&text, true).plans[1].warmup, secs(9));
    assert!(problems(&text.replace("max_size = 300", "max_sise = 300")).contains("did you mean `max_size`?"));
}

#[test]
fn another_name_is_that_of_all_runs() {
    let mut scenario = scenario(STALLS, false);
    scenario.rename("mine");
    let names: Vec<&str> = scenario.plans.iter().map(|plan| plan.name.as_str()).collect();
    assert_eq!((scenario.name.as_str(), names), ("mine", vec!["mine: as it was", "mine: larger"]));
}

proptest! {
    #[test]
    fn any_change_of_a_file_is_read_or_refused(
        at in 0usize..STALLS.len(),
        length in 0usize..20,
        put in "[a-z\"=\\[\\]{}0-9.\n]{0,6}",
    ) {
        let end = (at + length).min(STALLS.len());
        let text = format!("{}{put}{}", &STALLS[..at], &STALLS[end..]);
        for full in [false, true] {
            let _ = from_text(Path::new("s.toml"), &text, &|_| None, full);
        }
    }
}

#[test]
fn the_examples_of_the_manual_are_read_in_both_lengths() {
    let page = include_str!("../../../../../docs/scenarios.md");
    let examples: Vec<&str> =
        page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().expect("it has an end")).collect();
    let whole: Vec<&&str> = examples.iter().filter(|text| text.contains("[scenario]")).collect();
    assert!(!whole.is_empty());
    for text in whole {
        assert!(!scenario(text, false).plans.is_empty() && !scenario(text, true).plans.is_empty());
    }
}

const SWEEP: &str = r#"
[scenario]
name = "how many"
seed = 7
[target]
start = "postgres"
script = "tpcb-like"
scale = 50
[sweep]
to = 40
rounds = 3
point_time = "2s"
through_clients = 500
[full.sweep]
to = 200
point_time = "20s"
"#;

#[test]
fn a_sweep_stands_in_the_place_of_a_load() {
    let read = scenario(SWEEP, false);
    let sweep = read.sweep.as_ref().expect("it has a sweep");
    assert!(read.plans.is_empty() && read.start.is_some() && read.largest_table_scale() == Some(50));
    let options = sweep.options;
    assert_eq!((options.from, options.to, options.rounds, options.seed), (1, 40, 3, 7));
    assert_eq!((options.duration, options.warmup, sweep.through_clients), (secs(2), secs(1), Some(500)));
    let published = scenario(SWEEP, true).sweep.expect("it has a sweep").options;
    assert_eq!((published.to, published.rounds, published.duration), (200, 3, secs(20)));
}

#[test]
fn what_does_not_go_with_a_sweep_is_refused_at_its_place() {
    let with = |more: &str| format!("{SWEEP}\n{more}");
    let changed = |from: &str, to: &str| SWEEP.replace(from, to);
    let head = "[scenario]\nname = \"x\"\n[target]\n";
    for (text, said) in [
        (with("[load]\nclients = 3\n"), "with [sweep] there is no `load`"),
        (with("[[variant]]\nname = \"x\"\n"), "with [sweep] there is no `variant`"),
        (with("[pool]\nmax_size = 3\n"), "with [sweep] there is no `pool`"),
        (changed("seed = 7", "compression = 7"), "a sweep has no rates per hour"),
        (changed("rounds = 3", "from = 40"), "from 40 to 40 clients: `to` must be larger"),
        (
            changed("through_clients = 500", "through_clients = 2\nfrom = 4"),
            "`through_clients` must be at least `from`",
        ),
        (
            format!("{head}url = \"http://127.0.0.1:1/\"\n[sweep]\nto = 5\n"),
            "a sweep asks a database: PostgreSQL, MongoDB or Redis",
        ),
        (
            format!("{head}start = \"postgres\"\n[load]\nclients = 1\nduration = \"1s\"\n[full.sweep]\nto = 5\n"),
            "there is no [sweep] whose durations",
        ),
    ] {
        let told = problems(&text);
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_sweep_asks_a_mongodb_or_a_redis_like_a_postgresql() {
    let of =
        |target: &str| scenario(&format!("[scenario]\nname = \"x\"\n[target]\n{target}\n[sweep]\nto = 9\n"), false);
    let mut built_in = of("url = \"mongodb://127.0.0.1:1/shop\"\noperation = \"find-one\"\ndocuments = 50");
    let sweep = built_in.sweep.as_ref().expect("it has a sweep");
    assert!(matches!(sweep.target, Target::MongoDb(_)) && sweep.options.to == 9);
    assert!(built_in.largest_table_scale().is_none() && built_in.needs_making(), "--init makes the documents");
    built_in.point_at(&Secret::new("mongodb://127.0.0.1:2/shop"));
    assert_eq!(built_in.sweep.unwrap().target.url(), "mongodb://127.0.0.1:2/shop");
    let of_script = of("url = \"mongodb://127.0.0.1:1/shop\"\ncommands = '{\"ping\": 1}'");
    assert!(!of_script.needs_making());
    let redis = of("start = \"redis\"");
    assert!(matches!(redis.sweep.as_ref().unwrap().target, Target::Redis(_)) && !redis.needs_making());
    assert!(scenario(SWEEP, false).needs_making());
}

const FUNCTIONS: &str = r#"
[scenario]
name = "functions"
columns = ["done", "why"]
[target]
start = "redis"
commands = "SET a:b :value"
variables = ["value=7"]
[load]
rate = 5
duration = "2s"
[pool]
reuse = false
goodbye = false
[poolhouse]
hard_limit = 20
[freeze]
length = "1s"
[[variant]]
name = "one"
[[variant]]
name = "two"
poolhouse = { soft_limit = 15, client_idle_time = "off" }
freeze = { length = "2s", every = "3s" }
full = { poolhouse = { evict_min_idle = "5s" } }
"#;

#[test]
fn a_redis_of_one_s_own_has_commands_and_each_variant_a_poolhouse_and_a_freezer() {
    let read = scenario(FUNCTIONS, false);
    assert_eq!(read.start, Some(Start { kind: Kind::Redis, max_connections: 10_000 }));
    assert_eq!(
        (read.columns.as_slice(), read.largest_table_scale()),
        (&["done".to_owned(), "why".to_owned()][..], None)
    );
    let Target::Redis(target) = &read.plans[0].target else { panic!("Redis") };
    assert!(matches!(&target.work, crate::plan::RedisWork::Scripts(all) if all[0].text == "SET a:b :value"));
    let limits = |plan: &Plan| {
        let wishes = plan.poolhouse.unwrap();
        (wishes.hard_limit, wishes.soft_limit, wishes.client_idle_time, wishes.evict_min_idle)
    };
    assert_eq!(limits(&read.plans[0]), (Some(20), None, None, None));
    assert_eq!(limits(&read.plans[1]), (Some(20), Some(15), Some(None), None), "over those of the file");
    assert_eq!(limits(&scenario(FUNCTIONS, true).plans[1]).3, Some(secs(5)));
    let windows: Vec<_> = read.plans.iter().map(|plan| plan.freeze.unwrap()).collect();
    assert_eq!(windows[0], Window { first: secs(5), length: secs(1), every: None });
    assert_eq!(windows[1], Window { first: secs(3), length: secs(2), every: Some(secs(3)) });
    assert!(!read.plans[0].pool.goodbye && !read.plans[0].pool.blind);
}

#[test]
fn mistakes_about_redis_and_what_stands_around_it_are_told_at_their_places() {
    let said = |from: &str, to: &str| {
        assert!(FUNCTIONS.contains(from), "{from}");
        problems(&FUNCTIONS.replace(from, to))
    };
    for (from, to, expected) in [
        ("commands = \"SET a:b :value\"", "commands = \"SUBSCRIBE a\"", "cannot be used here"),
        ("commands = \"SET a:b :value\"", "commands = \"GET a\"\nkeys = 5", "give one of `commands`, `keys`"),
        ("commands = \"SET a:b :value\"", "scale = 5", "`scale` says nothing to a target that speaks Redis"),
        ("start = \"redis\"", "start = \"postgres\"", "`commands` says nothing to a target that speaks PostgreSQL"),
        ("start = \"redis\"", "url = \"redis://:hunter2@h\"", "give [target] a `start`"),
        ("\"done\", \"why\"", "\"donne\"", "there is no column `donne`"),
        ("hard_limit = 20", "hart_limit = 20", "did you mean `hard_limit`?"),
        ("length = \"1s\"", "first = \"1s\"", "[freeze] needs a `length`"),
        ("length = \"2s\", every", "length = \"4s\", every", "`every` must be longer than `length`"),
        ("rate = 5", "clients = 5", "`operations`"),
    ] {
        let said = said(from, to);
        assert!(said.contains(expected) && !said.contains("hunter2"), "{to}: {said}");
    }
}
