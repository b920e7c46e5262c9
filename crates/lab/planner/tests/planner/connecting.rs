//! Where connections are made too few at a time, the sizes are looked for with more, and no larger than these need.

use std::path::Path;

use planner::{
    answer::predict,
    prediction::Prediction,
    question::{Wishes, from_text},
};

/// What is predicted of a PostgreSQL, a load, its pool and the rest.
fn ask(rest: &str) -> Prediction {
    let text = format!("[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\nmax_connections = 200\n{rest}");
    let question = from_text(Path::new("p.toml"), &text, &|_| None, false, &Wishes::default());
    predict(&question.unwrap_or_else(|problems| panic!("{problems}")), &mut |_, _| ())
}

fn said(prediction: &Prediction, about: &str) -> String {
    let texts = prediction.reasons.iter().filter(|reason| reason.about == about).map(|reason| reason.text.as_str());
    texts.collect::<Vec<_>>().join(" ")
}

/// Bursts of 20 operations of a second each, every two minutes, on connections of 50 ms.
fn bursts(connecting: u32) -> Prediction {
    ask(&format!(
        "[load]\nburst = 20\nidle = \"2m\"\nrounds = 8\n[pool]\nmax_size = 50\nmax_connecting = {connecting}\nmax_idle_time = \"1m\"\n\
         max_life_time = \"off\"\n[plan]\nservice = \"1s\"\nspread = \"constant\"\nconnect = {{ auth = \"50ms\" }}\n\
         objectives = [\"p99<1300ms\"]\nmargin = 0.0\n"
    ))
}

#[test]
fn no_connections_are_kept_that_can_be_made_in_time_if_more_are_made_at_a_time() {
    let prediction = bursts(1);
    let (best, settings) = (prediction.best.as_ref().unwrap(), prediction.settings.as_ref().unwrap());
    // Five turns of 50 ms are in time, so four at a time. One at a time is five connections: 15 would have to be there
    // before.
    assert!(best.met && (best.sizes.max_size, best.sizes.min_size) == (20, 0), "{:?}", best.sizes);
    assert_eq!(settings.max_connecting, 4);
    let held = best.held_back.unwrap();
    assert_eq!((held.max_connecting, held.lifted_to, held.met), (1, 4, true));
    assert_eq!((held.sizes.max_size, held.sizes.min_size), (20, 15));
    let told = said(&prediction, "connecting");
    assert!(told.contains("max_connecting 1 holds the pool back: with it max_size 20 and min_size 15"), "{told}");
    assert!(
        prediction.fragments[0].text.contains("min_size = 0\nmax_connecting = 4\n"),
        "{:?}",
        prediction.fragments[0]
    );
    // Others have no such setting.
    let warned = prediction.warnings.join(" ");
    assert!(warned.contains("The pools of PgBouncer and HikariCP have no max_connecting"), "{warned}");
    assert!(warned.contains("of 1, they need a max_size of 20 and a min_size of 15 at least."), "{warned}");
}

#[test]
fn what_no_size_meets_while_connections_are_made_one_by_one_is_met_with_more_at_a_time() {
    // All connections end every 5 s. One by one it takes a second until there are enough again, and another one until
    // nobody waits.
    let prediction = ask(
        "[load]\nrate = 200\nduration = \"30s\"\n[pool]\nmax_size = 20\nmax_connecting = 1\nmax_life_time = \"off\"\n\
         [[fault]]\nkind = \"cut\"\nevery = \"5s\"\n[plan]\nservice = \"50ms\"\nspread = \"constant\"\n\
         connect = { auth = \"100ms\" }\nobjectives = [\"pool_wait_p95<150ms\"]\n",
    );
    let best = prediction.best.as_ref().unwrap();
    assert!(best.met, "{:?}", best.cases[0].missed);
    let held = best.held_back.unwrap();
    assert!(!held.met && held.lifted_to > 1, "{held:?}");
    assert!(prediction.settings.as_ref().unwrap().max_connecting >= held.lifted_to);
    let told = said(&prediction, "connecting");
    assert!(told.contains("max_connecting 1 holds the pool back: with it no setting meets the objectives."), "{told}");
}

#[test]
fn where_it_holds_nothing_back_the_sizes_are_those_of_any_max_connecting() {
    let of = |connecting: u32| {
        ask(&format!(
            "[load]\nrate = 300\nduration = \"20s\"\nspacing = \"poisson\"\n[pool]\nmax_size = 20\nmax_connecting = {connecting}\n\
             [plan]\nservice = \"20ms\"\nobjectives = [\"pool_wait_p95<20ms\"]\n"
        ))
    };
    let (few, many) = (of(2).best.unwrap(), of(16).best.unwrap());
    assert!(few.held_back.is_none() && many.held_back.is_none(), "{:?}", few.held_back);
    assert_eq!(few.sizes, many.sizes);
    let more = few.simulations.abs_diff(many.simulations);
    assert!(more <= 12, "{} and {}", few.simulations, many.simulations);
}

#[test]
fn what_is_made_at_a_time_is_not_lifted_beyond_what_the_servers_processors_can_do() {
    // One processor needs 50 ms for each login: more at a time are made no faster.
    let prediction = ask(
        "[load]\nburst = 10\nidle = \"2m\"\nrounds = 4\n[pool]\nmax_size = 20\nmax_connecting = 1\nmax_idle_time = \"1m\"\n\
         max_life_time = \"off\"\n[plan]\nservice = \"1s\"\nspread = \"constant\"\ncpus = 1\nprocessor_time = \"1ms\"\n\
         connect = { auth = \"50ms\", processor_time = \"50ms\" }\nobjectives = [\"p99<1200ms\"]\nmargin = 0.0\n",
    );
    let best = prediction.best.as_ref().unwrap();
    assert!(best.held_back.is_none() && best.sizes.min_size > 0, "{:?}", best.sizes);
    assert_eq!(prediction.settings.as_ref().unwrap().max_connecting, 1);
}
