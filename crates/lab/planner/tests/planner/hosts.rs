//! A driver of MongoDB has a pool and two more connections at each host, and each host has a limit of its own.

use load::plan::PoolWishes;
use planner::{
    prediction::Prediction,
    products::Product,
    question::{Options, from_flags},
};

use super::{ask, flags, ms, reasons, scenario, seconds};

/// The prediction for ten instances with 400/s of 20 ms, at a server with this limit.
fn plan(target: &str, limit: u32) -> Prediction {
    plan_with(target, &format!("server_limit = {limit}\n"))
}

/// The same with these options in `[plan]`.
fn plan_with(target: &str, more: &str) -> Prediction {
    let load = "[load]\nrate = 400\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\ninstances = 10\nmax_size = 9\n";
    let plan = "[plan]\nservice = \"20ms\"\nobjectives = [\"pool_wait_p95<20ms\"]\n";
    ask(&scenario(target, &format!("{load}{plan}{more}")))
}

const MONGODB: &str = "url = \"mongodb://127.0.0.1:1/shop\"\noperation = \"find-one\"";
const POSTGRES: &str = "start = \"postgres\"";

#[test]
fn each_instance_takes_two_monitoring_connections_of_a_hosts_limit() {
    let most = |target| plan(target, 60).best.unwrap().most;
    assert_eq!([most(POSTGRES), most(MONGODB)], [6, 4]);
    // 29 - 20 are too few for ten pools.
    let prediction = plan(MONGODB, 29);
    assert!(prediction.best.is_none() && plan(POSTGRES, 29).best.is_some());
    let why = prediction.forbidden.unwrap();
    assert!(why.contains("the server lets in 9 beside those that watch it"), "{why}");
}

#[test]
fn monitoring_connections_are_explained() {
    let prediction = plan(MONGODB, 500);
    let settings = prediction.settings.as_ref().unwrap();
    let (size, all) = (settings.max_size, settings.total_max_size());
    let text = reasons(&prediction, "each host");
    assert!(text.contains(&format!("at each 10 instances x ({size} + 2) = {} count", all + 20)), "{text}");
    let text = reasons(&prediction, "server's limit");
    assert!(text.contains(&format!("Watching it takes 20 connections more: {} (", all + 20)), "{text}");
    let text = reasons(&prediction, "server's memory");
    assert!(text.contains(&format!("MB for {}, those that watch it included", all + 20)), "{text}");
    let last = prediction.fragments.last().unwrap();
    assert!(last.of == "MongoDB's drivers" && last.place.ends_with("for the pool of each host"), "{last:?}");
    // Behind a Poolhouse, drivers poll with one connection each.
    assert_eq!(settings.soft_limit, Some(((all + 10) as f64 * 1.25).ceil() as u32));
    let prediction = plan(POSTGRES, 500);
    assert!(reasons(&prediction, "each host").is_empty() && !reasons(&prediction, "server's memory").contains("watch"));
}

#[test]
fn a_deployment_doubles_the_monitoring_connections() {
    let warned = |target, limit| plan(target, limit).warnings.iter().any(|text| text.contains("during a deployment"));
    let all = plan(MONGODB, 500).settings.unwrap().total_max_size() as u32;
    assert_eq!([warned(MONGODB, 2 * all + 40), warned(MONGODB, 2 * all + 39)], [false, true]);
    assert!(!warned(POSTGRES, 2 * all + 39));
}

#[test]
fn drivers_in_functions_monitor_with_one_connection_and_a_poolhouse_with_one_in_all() {
    let functions = "server_limit = 60\nplatform = { freeze_after = \"5s\", kill_after = \"5m\" }\n";
    assert_eq!(plan_with(MONGODB, functions).best.unwrap().most, 5);
    // Pools of one Poolhouse share one monitoring connection.
    let prediction = plan_with(MONGODB, "server_limit = 60\nbudget = 40\n");
    assert!(reasons(&prediction, "each host").is_empty());
    let text = reasons(&prediction, "server's limit");
    let all = prediction.settings.as_ref().unwrap().total_max_size().min(40) + 1;
    assert!(text.contains(&format!("Watching it takes 1 connection more: {all} (")), "{text}");
}

#[test]
fn a_database_that_may_be_a_mongodb_is_warned_of_if_its_limit_excludes_monitoring() {
    let plan = |limit: Option<u32>| {
        let pool = PoolWishes { instances: Some(10), max_size: Some(9), ..PoolWishes::default() };
        let flags = flags(400.0, seconds(20), pool);
        let objectives = vec!["pool_wait_p95<20ms".to_owned()];
        let options = Options {
            service: Some(ms(20)),
            server_limit: limit,
            objectives,
            products: vec![Product::MongoDb],
            ..Options::default()
        };
        ask(&from_flags(&flags, options).unwrap())
    };
    let settings = plan(None).settings.unwrap();
    let (size, all) = (settings.max_size, settings.total_max_size() as u32);
    let warning = |limit: u32| plan(Some(limit)).warnings.into_iter().find(|text| text.contains("driver of MongoDB"));
    let text = warning(all + 19).expect("a warning");
    assert!(text.contains(&format!("could want {}, and {} are free", all + 20, all + 19)), "{text}");
    assert!(text.contains(&format!("lower maxPoolSize to {}", size - 1)), "{text}");
    assert_eq!((warning(all + 20), warning(500)), (None, None));
}
