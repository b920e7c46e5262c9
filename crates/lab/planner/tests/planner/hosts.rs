//! A driver of MongoDB has a pool and two more connections at each host, and each host has a limit of its own.

use std::path::Path;

use load::plan::{PoolWishes, Spacing};
use planner::{
    answer::predict,
    prediction::Prediction,
    products::Product,
    question::{Flags, Wishes, from_flags, from_text},
};

use super::{ms, seconds};

/// Ten instances, 400/s of 20 ms, at a server with this limit.
fn ask(target: &str, limit: u32) -> Prediction {
    ask_with(target, &format!("server_limit = {limit}\n"))
}

/// The same with this in `[plan]`.
fn ask_with(target: &str, more: &str) -> Prediction {
    let load = "[load]\nrate = 400\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\ninstances = 10\nmax_size = 9\n";
    let plan = "[plan]\nservice = \"20ms\"\nobjectives = [\"pool_wait_p95<20ms\"]\n";
    let text = format!("[scenario]\nname = \"n\"\n[target]\n{target}\n{load}{plan}{more}");
    let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default());
    predict(&question.unwrap_or_else(|problems| panic!("{problems}")), &mut |_, _| ())
}

const MONGODB: &str = "url = \"mongodb://127.0.0.1:1/shop\"\noperation = \"find-one\"";
const POSTGRES: &str = "start = \"postgres\"";

fn said(prediction: &Prediction, about: &str) -> String {
    let texts = prediction.reasons.iter().filter(|reason| reason.about == about).map(|reason| reason.text.as_str());
    texts.collect::<Vec<_>>().join(" ")
}

#[test]
fn of_a_hosts_limit_each_instance_needs_two_connections_that_watch_it() {
    let most = |target| ask(target, 60).best.unwrap().most;
    assert_eq!([most(POSTGRES), most(MONGODB)], [6, 4]);
    // Nine are left for ten pools.
    let prediction = ask(MONGODB, 29);
    assert!(prediction.best.is_none() && ask(POSTGRES, 29).best.is_some());
    let why = prediction.forbidden.unwrap();
    assert!(why.contains("the server lets in 9 beside those that watch it"), "{why}");
}

#[test]
fn what_counts_at_each_host_is_said() {
    let prediction = ask(MONGODB, 500);
    let settings = prediction.settings.as_ref().unwrap();
    let (size, all) = (settings.max_size, settings.in_all());
    let told = said(&prediction, "each host");
    assert!(told.contains(&format!("at each 10 instances x ({size} + 2) = {} count", all + 20)), "{told}");
    let told = said(&prediction, "server's limit");
    assert!(told.contains(&format!("Watching it takes 20 connections more: {} (", all + 20)), "{told}");
    let told = said(&prediction, "server's memory");
    assert!(told.contains(&format!("MB for {}, those that watch it included", all + 20)), "{told}");
    let last = prediction.fragments.last().unwrap();
    assert!(last.of == "MongoDB's drivers" && last.place.ends_with("for the pool of each host"), "{last:?}");
    // Through a Poolhouse they are its clients, which ask instead of having news streamed.
    assert_eq!(settings.soft_limit, Some(((all + 10) as f64 * 1.25).ceil() as u32));
    // Nobody else does that.
    let prediction = ask(POSTGRES, 500);
    assert!(said(&prediction, "each host").is_empty() && !said(&prediction, "server's memory").contains("watch"));
}

#[test]
fn room_for_a_deployment_is_room_for_those_who_watch_twice() {
    let warned = |target, limit| ask(target, limit).warnings.iter().any(|text| text.contains("during a deployment"));
    let all = ask(MONGODB, 500).settings.unwrap().in_all() as u32;
    assert_eq!([warned(MONGODB, 2 * all + 40), warned(MONGODB, 2 * all + 39)], [false, true]);
    assert!(!warned(POSTGRES, 2 * all + 39));
}

#[test]
fn drivers_in_functions_watch_by_one_connection_and_a_poolhouse_by_one_in_all() {
    let functions = "server_limit = 60\nplatform = { freeze_after = \"5s\", kill_after = \"5m\" }\n";
    assert_eq!(ask_with(MONGODB, functions).best.unwrap().most, 5);
    // Pools of one Poolhouse are no drivers, and it has one connection that watches.
    let prediction = ask_with(MONGODB, "server_limit = 60\nbudget = 40\n");
    assert!(said(&prediction, "each host").is_empty());
    let told = said(&prediction, "server's limit");
    let all = prediction.settings.as_ref().unwrap().in_all().min(40) + 1;
    assert!(told.contains(&format!("Watching it takes 1 connection more: {all} (")), "{told}");
}

#[test]
fn where_it_may_be_a_mongodb_it_is_warned_of_those_who_watch_if_there_is_no_room_for_them() {
    let ask = |limit: Option<u32>| {
        let flags = Flags {
            rate: 400.0,
            duration: Some(seconds(20)),
            spacing: Spacing::Poisson,
            faults: Vec::new(),
            pool: PoolWishes { instances: Some(10), max_size: Some(9), ..PoolWishes::default() },
            seed: 1,
        };
        let objectives = vec!["pool_wait_p95<20ms".to_owned()];
        let wishes = Wishes {
            service: Some(ms(20)),
            server_limit: limit,
            objectives,
            products: vec![Product::MongoDb],
            ..Wishes::default()
        };
        predict(&from_flags(&flags, wishes).unwrap(), &mut |_, _| ())
    };
    let settings = ask(None).settings.unwrap();
    let (size, all) = (settings.max_size, settings.in_all() as u32);
    let warned = |limit: u32| ask(Some(limit)).warnings.into_iter().find(|text| text.contains("driver of MongoDB"));
    let text = warned(all + 19).expect("a warning");
    assert!(text.contains(&format!("could want {}, and {} are free", all + 20, all + 19)), "{text}");
    assert!(text.contains(&format!("lower maxPoolSize to {}", size - 1)), "{text}");
    assert_eq!((warned(all + 20), warned(500)), (None, None));
}
