//! If the given `max_connecting` makes the sizes too large, they are searched with a larger one.

use planner::prediction::Prediction;

use super::{plan_postgres, reasons};

/// Bursts of 20 operations of a second each, every two minutes, on connections of 50 ms.
fn bursts(connecting: u32) -> Prediction {
    plan_postgres(&format!(
        "[load]\nburst = 20\nidle = \"2m\"\nrounds = 8\n[pool]\nmax_size = 50\nmax_connecting = \
         {connecting}\nmax_idle_time = \"1m\"\nmax_life_time = \"off\"\n[plan]\nservice = \"1s\"\nspread = \
         \"constant\"\nconnect = {{ auth = \"50ms\" }}\nobjectives = [\"p99<1300ms\"]\nmargin = 0.0\n"
    ))
}

#[test]
fn a_larger_max_connecting_replaces_kept_connections() {
    let prediction = bursts(1);
    let (best, settings) = (prediction.best.as_ref().unwrap(), prediction.settings.as_ref().unwrap());
    // Five times 50 ms are in time. Four at a time make 20 connections by then, one at a time makes five.
    assert!(best.met && (best.sizes.max_size, best.sizes.min_size) == (20, 0), "{:?}", best.sizes);
    assert_eq!(settings.max_connecting, 4);
    let held = best.held_back.unwrap();
    assert_eq!((held.max_connecting, held.lifted_to, held.met), (1, 4, true));
    assert_eq!((held.sizes.max_size, held.sizes.min_size), (20, 15));
    let text = reasons(&prediction, "connecting");
    assert!(text.contains("max_connecting 1 holds the pool back: with it max_size 20 and min_size 15"), "{text}");
    assert!(
        prediction.fragments[0].text.contains("min_size = 0\nmax_connecting = 4\n"),
        "{:?}",
        prediction.fragments[0]
    );
    let warnings = prediction.warnings.join(" ");
    assert!(warnings.contains("The pools of PgBouncer and HikariCP have no max_connecting"), "{warnings}");
    assert!(warnings.contains("of 1, they need a max_size of 20 and a min_size of 15 at least."), "{warnings}");
}

#[test]
fn a_larger_max_connecting_meets_objectives_that_no_size_meets() {
    // All connections end every 5 s. One at a time, it takes a second until they are made again, and another until no
    // operation waits.
    let prediction = plan_postgres(
        "[load]\nrate = 200\nduration = \"30s\"\n[pool]\nmax_size = 20\nmax_connecting = 1\nmax_life_time = \"off\"\n\
         [[fault]]\nkind = \"cut\"\nevery = \"5s\"\n[plan]\nservice = \"50ms\"\nspread = \"constant\"\n\
         connect = { auth = \"100ms\" }\nobjectives = [\"pool_wait_p95<150ms\"]\n",
    );
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met, "{:?}", best.cases[0].missed);
    let held = best.held_back.unwrap();
    assert!(!held.met && held.lifted_to > 1, "{held:?}");
    assert!(prediction.settings.as_ref().unwrap().max_connecting >= held.lifted_to);
    let text = reasons(&prediction, "connecting");
    assert!(text.contains("max_connecting 1 holds the pool back: with it no setting meets the objectives."), "{text}");
}

#[test]
fn a_max_connecting_that_is_large_enough_changes_no_size() {
    let of = |connecting: u32| {
        plan_postgres(&format!(
            "[load]\nrate = 300\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\nmax_size = 20\nmax_connecting = \
             {connecting}\n[plan]\nservice = \"20ms\"\nobjectives = [\"pool_wait_p95<20ms\"]\n"
        ))
    };
    let (few, many) = (of(2).best.unwrap(), of(16).best.unwrap());
    assert!(few.held_back.is_none() && many.held_back.is_none(), "{:?}", few.held_back);
    assert_eq!(few.sizes, many.sizes);
    let more = few.simulations.abs_diff(many.simulations);
    assert!(more <= 12, "{} and {}", few.simulations, many.simulations);
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
    assert!(best.held_back.is_none() && best.sizes.min_size > 0, "{:?}", best.sizes);
    assert_eq!(prediction.settings.as_ref().unwrap().max_connecting, 1);
}
