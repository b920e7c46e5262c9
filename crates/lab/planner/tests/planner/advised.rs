//! The recommended settings are those that were simulated, and do no harm.

use ::report::result::Measured;
use load::plan::{PoolConfig, PoolhouseWishes};
use planner::{
    prediction::Prediction,
    question::{Options, Question},
    report,
    run::run,
};

use super::{POSTGRES, ask, ms, plan_postgres, read, reasons, scenario, seconds, text};

/// The result of the first load with all recommended settings.
fn run_with_settings(question: &Question, prediction: &Prediction) -> Measured {
    let settings = prediction.settings.as_ref().unwrap();
    let mut plan = question.loads[0].clone();
    let load_time = |time: std::time::Duration| time.div_f64(question.compression);
    plan.pool.config = PoolConfig {
        max_size: settings.max_size,
        min_size: settings.min_size,
        max_connecting: settings.max_connecting,
        max_idle_time: settings.max_idle_time.map(load_time),
        max_life_time: settings.max_life_time.map(load_time),
        max_wait_time: settings.max_wait_time,
        ..plan.pool.config
    };
    plan.pool.warm = settings.min_size > 0;
    run(&plan, &question.spec).result.total
}

/// 50/s that are held for 100 ms, on connections that take a second each and are made one at a time.
fn slow_to_grow() -> Question {
    scenario(
        POSTGRES,
        "[load]\nrate = 50\nduration = \"150s\"\nspacing = \"poisson\"\n[pool]\nmax_size = 30\nmax_connecting = \
         1\nmax_wait_time = \"5s\"\nmax_life_time = \"off\"\n[plan]\nservice = \"100ms\"\nspread = \
         \"constant\"\nconnect = { auth = \"1s\" }\nobjectives = [\"pool_wait_p50<1ms\", \"errors<1%\"]\n",
    )
}

#[test]
fn the_result_of_the_best_settings_is_that_of_all_recommended_settings() {
    let question = slow_to_grow();
    let prediction = ask(&question);
    let (best, settings) = (prediction.best.as_ref().unwrap(), prediction.settings.as_ref().unwrap());
    assert!(best.met && settings.min_size < settings.max_size, "{settings:?}");
    // The rules differ from the given settings.
    assert!(settings.max_connecting > 1 && settings.max_life_time == Some(seconds(1800)), "{settings:?}");
    assert!(best.as_given.is_empty());
    let (shown, run) = (&best.cases[0].result.total, run_with_settings(&question, &prediction));
    assert_eq!((&shown.response_ms, &shown.connections), (&run.response_ms, &run.connections));
    assert_eq!((&shown.pool_wait_ms, &shown.errors), (&run.pool_wait_ms, &run.errors));
    let pool = &best.cases[0].result.about.pool;
    assert!(pool.contains(&format!("max_connecting {}", settings.max_connecting)), "{pool}");
}

#[test]
fn all_loads_run_with_the_same_recommended_settings() {
    let load = "[load]\nrate = 20\nduration = \"10s\"\n[pool]\nmax_size = 5\nmin_size = 5\nmax_connecting = \
                3\nmax_wait_time = \"500ms\"\n";
    let other = "[[variant]]\nname = \"one\"\n[[variant]]\nname = \"other\"\nload = { rate = 30 }\n\
                 pool = { max_connecting = 1, max_wait_time = \"20s\", max_life_time = \"20s\" }\n";
    let plan = "[plan]\nservice = \"10ms\"\nspread = \"constant\"\nobjectives = [\"p99<1s\"]\n";
    let prediction = plan_postgres(&format!("{load}{other}{plan}"));
    let best = prediction.best.as_ref().unwrap();
    let pools: Vec<&String> = best.cases.iter().map(|case| &case.result.about.pool).collect();
    assert!(pools.len() == 2 && pools[0] == pools[1], "{pools:?}");
}

/// 25/s of 100 ms for an hour and a half, compressed to 90 s, on connections that take half a second.
fn compressed(objective: &str) -> Question {
    let file = "[scenario]\nname = \"n\"\ncompression = 60\n[target]\nstart = \"postgres\"\n[load]\nrate = \
                25\nduration = \"90s\"\n[pool]\nmax_size = 10\nmax_life_time = \"off\"\nmax_idle_time = \
                \"off\"\n[plan]\nservice = \"100ms\"\nspread = \"constant\"\nconnect = { auth = \"500ms\" }\nmargin \
                = 0.0\n";
    read(&format!("{file}objectives = [{objective}]\n"), &Options::default()).unwrap()
}

#[test]
fn a_life_time_by_rule_is_simulated_and_stays_off_if_objectives_would_fail() {
    let question = compressed("\"p50<200ms\", \"errors<1%\"");
    let prediction = ask(&question);
    let settings = prediction.settings.as_ref().unwrap();
    // 30 minutes are 30 s of the load, which lasts for three times as long.
    let created = &prediction.best.as_ref().unwrap().cases[0].result.total.connections.created_for;
    assert!(settings.max_life_time == Some(seconds(1800)) && created["rotation"] > 0, "{created:?}");
    assert_eq!(created, &run_with_settings(&question, &prediction).connections.created_for);
    // Made once, and never again.
    let question = compressed("\"p50<200ms\", \"errors<1%\", \"created<6\"");
    let prediction = ask(&question);
    let (best, settings) = (prediction.best.as_ref().unwrap(), prediction.settings.as_ref().unwrap());
    assert!(best.met && settings.max_life_time.is_none(), "{settings:?}");
    assert!(best.as_given.contains(&"max_life_time"), "{:?}", best.as_given);
    assert!(prediction.fragments[0].text.contains("max_life_time = \"off\""), "{:?}", prediction.fragments[0]);
    let text = reasons(&prediction, "as given");
    assert!(
        text.contains("max_life_time off") && text.contains("30 min") && text.contains("created<6 comes to"),
        "{text}"
    );
    assert_eq!(best.cases[0].result.total.connections, run_with_settings(&question, &prediction).connections);
}

#[test]
fn the_same_question_has_the_same_answer() {
    let answer = || serde_json::to_string(&ask(&slow_to_grow())).unwrap();
    assert_eq!(answer(), answer());
}

#[test]
fn an_idle_time_that_makes_more_connections_is_not_recommended() {
    // Busy, quiet for 20 s, and busy again: an idle time of 10 s closes all but one connection. The objectives allow
    // the wait for new ones.
    let stages = "stages = [{ duration = \"5s\", from = 200, to = 200 }, { duration = \"20s\", from = 1, to = 1 }, \
                  { duration = \"5s\", from = 200, to = 200 }]\n";
    let plan = "[plan]\nservice = \"20ms\"\nspread = \"constant\"\nconnect = { auth = \"5ms\" }\nobjectives = \
                [\"p50<200ms\", \"errors<1%\"]\n";
    let prediction = plan_postgres(&format!("[load]\n{stages}[pool]\nmax_size = 20\nmax_idle_time = \"5m\"\n{plan}"));
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && best.sizes.min_size == 0, "{:?}", best.sizes);
    assert_eq!(best.sizes.max_idle_time, Some(seconds(30)));
    let connections = &best.cases[0].result.total.connections;
    assert_eq!(connections.created, u64::from(connections.most), "{connections:?}");
}

#[test]
fn the_growth_of_a_pool_does_not_count_as_connections_made_every_hour() {
    // 100 connections are made in the first stall of a minute, and used in each one after it.
    let fault = "[[fault]]\nkind = \"stall\"\ndelay = \"200ms\"\nlength = \"3s\"\nfirst = \"10s\"\nevery = \"20s\"\n";
    let load = "[load]\nrate = 800\nduration = \"60s\"\nspacing = \"poisson\"\n[pool]\nmax_size = 100\n";
    let prediction = plan_postgres(&format!("{load}{fault}[plan]\nservice = \"15ms\"\nobjectives = [\"p50<1s\"]\n"));
    assert_eq!(prediction.given[0].result.total.connections.created, 100);
    assert_eq!(reasons(&prediction, "created an hour"), "");
    // All connections are closed in each quiet time and made again in each burst.
    let load = "[load]\nburst = 10\nidle = \"10m\"\nrounds = 7\n[pool]\nmax_size = 10\nmax_idle_time = \
                \"1m\"\nmax_connecting = 10\n";
    let plan = "[plan]\nservice = \"1s\"\nspread = \"constant\"\nobjectives = [\"p50<5s\"]\n";
    let text = reasons(&plan_postgres(&format!("{load}{plan}")), "created an hour");
    assert!(text.starts_with("51 (burst 51) as given, once the pools have grown"), "60 in 70 minutes: {text}");
}

#[test]
fn limits_for_an_unknown_number_of_clients_are_not_in_the_fragments() {
    let load = "[load]\nrate = 300\nduration = \"60s\"\n[pool]\nmax_size = 20\n[plan]\nservice = \"11ms\"\n";
    let prediction = plan_postgres(load);
    assert!(prediction.settings.as_ref().is_some_and(|settings| settings.hard_limit.is_some()));
    assert!(reasons(&prediction, "clients").contains("not among the settings to paste"), "{prediction:?}");
    for fragment in &prediction.fragments {
        let has = |word: &str| fragment.text.contains(word) || fragment.missing.contains(&word);
        assert!(!has("soft_limit") && !has("hard_limit") && !has("max_client_conn"), "{fragment:?}");
    }
}

#[test]
fn the_recommended_limits_reject_few_clients_with_random_arrivals() {
    // 2/s that may be evicted after 5 s: ten on average, and 18 or more in one moment of a hundred.
    let mut question = scenario(
        "start = \"redis\"\nmax_connections = 1000",
        "[load]\nrate = 2\nduration = \"15m\"\nspacing = \"poisson\"\n[pool]\nreuse = false\ngoodbye = false\n\
         [plan]\nservice = \"100ms\"\nobjectives = [\"errors<0.1%\"]\n",
    );
    let prediction = ask(&question);
    let limit = |name: &str| {
        let lines = prediction.fragments[0].text.lines();
        let value = lines.filter_map(|line| line.strip_prefix(&format!("{name} = "))).next();
        value.and_then(|value| value.parse::<u32>().ok()).unwrap_or_else(|| panic!("{:?}", prediction.fragments))
    };
    let wishes = PoolhouseWishes {
        soft_limit: Some(limit("soft_limit")),
        hard_limit: Some(limit("hard_limit")),
        ..PoolhouseWishes::default()
    };
    question.loads[0].poolhouse = Some(wishes);
    let outcome = run(&question.loads[0], &question.spec);
    assert!(outcome.front.evicted > 1000, "most are evicted in the end: {}", outcome.front.evicted);
    assert!(outcome.front.rejected <= 1, "{} of 1,800 are rejected", outcome.front.rejected);
    // The limits depend on `evict_min_idle`, so it is in the fragment, too.
    let sooner = PoolhouseWishes { evict_min_idle: Some(ms(500)), ..PoolhouseWishes::default() };
    question.loads[0].poolhouse = Some(sooner);
    assert!(ask(&question).fragments[0].text.contains("\nevict_min_idle = \"500ms\""));
    let text = reasons(&prediction, "clients");
    assert!(text.contains("seldom has to make room for more"), "{text}");
}

#[test]
fn pools_that_leave_no_connections_for_a_deployment_are_warned_of() {
    let warned = |reserved: u32| {
        let load =
            "[load]\nrate = 200\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\ninstances = 4\nmax_size = 9\n";
        let plan = format!(
            "[plan]\nservice = \"40ms\"\nspread = \"constant\"\nserver_limit = 100\nreserved = \
             {reserved}\nobjectives = [\"pool_wait_p99<20ms\"]\n"
        );
        let prediction = plan_postgres(&format!("{load}{plan}"));
        let all = prediction.settings.as_ref().unwrap().total_max_size();
        assert!(prediction.best.as_ref().unwrap().met && (17..50).contains(&all), "{all}");
        let text = prediction.warnings.iter().find(|text| text.contains("during a deployment")).cloned();
        (all, text)
    };
    let (all, text) = warned(62);
    let part = format!("take {all} of the 38 connections that are free");
    assert!(text.as_ref().is_some_and(|text| text.contains(&part)), "{all}: {text:?}");
    assert_eq!(warned(0).1, None);
}

#[test]
fn a_pooler_is_recommended_for_all_instances_and_fragments_that_miss_the_objectives_say_so() {
    let load = "[load]\nrate = 400\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\ninstances = 10\nmax_size = 9\n";
    let of = |objective: &str| {
        plan_postgres(&format!("{load}[plan]\nservice = \"20ms\"\ncpus = 8\nobjectives = [\"{objective}\"]\n"))
    };
    let prediction = of("pool_wait_p95<20ms");
    let (each, one) = (prediction.settings.as_ref().unwrap(), prediction.shared_settings.as_ref().unwrap());
    assert!(each.max_size < 8 && one.max_size >= 8, "{} {}", each.max_size, one.max_size);
    assert_eq!(one.max_size, prediction.shared.as_ref().unwrap().sizes.max_size);
    // Its clients are the given pools of all instances, ten of nine, and a quarter more.
    assert_eq!((one.soft_limit, one.hard_limit), (Some(113), Some(142)));
    let answer = prediction.answer.join("\n");
    assert!(answer.starts_with("Put one Poolhouse in front of all 10 instances, with\n"), "{answer}");
    assert!(answer.contains(&format!("max_size {}, ", one.max_size)) && answer.contains("hard_limit 142"), "{answer}");
    assert!(prediction.fragments[0].text.contains("\nhard_limit = 142\n"));
    assert!(prediction.fragments[0].text.contains(&format!("\nmax_size = {}\n", one.max_size)));
    assert!(prediction.fragments[1].text.contains(&format!("\ndefault_pool_size = {}\n", one.max_size)));
    assert!(prediction.fragments[2].text.contains(&format!("maximumPoolSize={}\n", each.max_size)));
    assert!(!text(&prediction).contains("which misses the objectives"));
    assert!(reasons(&prediction, "rule of thumb").contains("Found: "));
    let hopeless = of("p50<5ms");
    assert!(
        hopeless.is_hopeless()
            && hopeless.answer[0].starts_with("No setting meets the objectives; the nearest is one Poolhouse")
    );
    assert!(text(&hopeless).contains("poolhouse.toml of one in front of all instances, which misses the objectives:"));
    assert!(report::page::page(&hopeless).contains("which misses the objectives"));
    assert!(!reasons(&hopeless, "rule of thumb").contains("Found"), "{}", reasons(&hopeless, "rule of thumb"));
}

#[test]
fn one_poolhouse_in_front_is_the_answer_if_the_limit_is_too_low_for_a_pool_in_each_instance() {
    // 8 in use on average; of 45 connections each of 40 instances gets one, which is too few for a burst at any of
    // them.
    let sections = "[load]\nrate = 400\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\ninstances = 40\nmax_size = \
                10\n[plan]\nservice = \"20ms\"\nserver_limit = 45\nreserved = 3\nobjectives = \
                [\"pool_wait_p99<20ms\", \"errors<0.1%\"]\n";
    let prediction = plan_postgres(sections);
    assert!(
        !prediction.best.as_ref().unwrap().met && prediction.shared.as_ref().unwrap().met,
        "{:?}",
        prediction.answer
    );
    assert!(!prediction.is_hopeless() && prediction.needs_one_in_front());
    assert!(
        prediction.answer.len() <= 3 && prediction.answer[0].starts_with("Put one Poolhouse"),
        "{:?}",
        prediction.answer
    );
    // 400 connections of the given pools and a quarter more are 80% of the hard limit.
    assert!(
        prediction.answer[2].contains("hard_limit 625, soft_limit 500") && prediction.answer[2].contains("up to 400")
    );
    let [poolhouse, _, hikari] = &prediction.fragments[..] else { panic!("{:?}", prediction.fragments) };
    assert!(poolhouse.text.contains("hard_limit = 625") && hikari.text.contains("maximumPoolSize=10\n"), "{hikari:?}");
    assert!(text(&prediction).starts_with("Put one Poolhouse in front of all 40 instances, with max_size "));
}

#[test]
fn rules_that_equal_the_given_settings_are_not_simulated() {
    let of = |wait: &str| {
        let load = format!("[load]\nrate = 20\nduration = \"5s\"\n[pool]\nmax_size = 5\nmax_wait_time = \"{wait}\"\n");
        let plan = "[plan]\nservice = \"10ms\"\nspread = \"constant\"\nobjectives = [\"p99<1s\"]\n";
        plan_postgres(&format!("{load}{plan}")).best.unwrap().simulations
    };
    // One run of all loads, and four with other seeds.
    assert_eq!(of("2s"), of("500ms") + 5);
}

#[test]
fn max_connecting_is_not_raised_beyond_what_the_servers_processors_can_do() {
    // One processor needs 50 ms for each login, so a larger number at a time is no faster.
    let prediction = plan_postgres(
        "[load]\nburst = 10\nidle = \"2m\"\nrounds = 4\n[pool]\nmax_size = 20\nmax_connecting = 1\nmax_idle_time = \
         \"1m\"\nmax_life_time = \"off\"\n[plan]\nservice = \"1s\"\nspread = \"constant\"\ncpus = 1\nprocessor_time \
         = \"1ms\"\nconnect = { auth = \"50ms\", processor_time = \"50ms\" }\nobjectives = [\"p99<1200ms\"]\nmargin \
         = 0.0\n",
    );
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met && best.sizes.min_size > 0, "{:?}", best.sizes);
    assert_eq!(prediction.settings.as_ref().unwrap().max_connecting, 1);
}
