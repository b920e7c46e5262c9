//! Which part of a load a candidate is judged by, and what is done where a part was not enough.

use super::*;
use crate::question::{Options, from_text};
use std::path::Path;

fn question(rest: &str) -> Question {
    let text = format!("[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n{rest}");
    from_text(Path::new("p.toml"), &text, &|_| None, false, &Options::default()).unwrap()
}

/// Which loads a candidate is judged by: for each, whether it is a part of the whole.
fn parts(rest: &str) -> Vec<bool> {
    let question = question(rest);
    let mut progress = |_: u32, _: &Sizes| ();
    let search = Search::new(&question, &mut progress).unwrap();
    search.short.iter().zip(&search.loads).map(|(short, load)| short.shape != load.shape).collect()
}

#[test]
fn candidates_are_judged_by_a_part_only_where_that_tells_what_the_whole_would() {
    let of = |more: &str, objective: &str| {
        let load = "[load]\nrate = 1000\nduration = \"1h\"\n";
        parts(&format!("{load}{more}[plan]\nservice = \"1ms\"\nobjectives = [\"{objective}\"]\n"))
    };
    let stall = |first: &str| {
        format!("[[fault]]\nkind = \"stall\"\ndelay = \"1s\"\nlength = \"1s\"\nevery = \"20s\"\nfirst = \"{first}\"\n")
    };
    let freeze = "[freeze]\nlength = \"1s\"\nfirst = \"50m\"\n";
    assert_eq!([of("", "p99<5ms"), of(&stall("20s"), "p99<5ms")], [[true], [true]]);
    // It begins when the part would be over, or counts what is less in a part.
    assert_eq!([of(&stall("50m"), "p99<5ms"), of(freeze, "p99<5ms")], [[false], [false]]);
    assert_eq!([of("", "created<9"), of("", "requests>=3000000"), of("", "errors<9")], [[false], [false], [false]]);
    assert_eq!(of("", "errors<9%"), [true]);
}

#[test]
fn a_load_whose_process_is_frozen_is_another_load() {
    let variants =
        "[[variant]]\nname = \"awake\"\n[[variant]]\nname = \"frozen\"\nfreeze = { length = \"1s\", every = \"3s\" }\n";
    assert_eq!(
        parts(&format!("[load]\nclients = 2\nduration = \"9s\"\n{variants}[plan]\nservice = \"1ms\"\n")).len(),
        2
    );
}

#[test]
fn where_a_part_was_much_too_easy_sizes_are_raised_until_one_is_enough_or_nobody_waits() {
    let of = |rate: u32, objective: &str| {
        question(&format!(
            "[load]\nrate = {rate}\nduration = \"3s\"\n[pool]\nmax_size = 30\n[plan]\nservice = \"20ms\"\n\
             spread = \"constant\"\nobjectives = [\"{objective}\"]\n"
        ))
    };
    let found = |objective: &str| {
        let (whole, part) = (of(990, objective), of(40, objective));
        let (mut progress, mut other) = (|_: u32, _: &Sizes| (), |_: u32, _: &Sizes| ());
        let mut search = Search::new(&whole, &mut progress).unwrap();
        search.short = Search::new(&part, &mut other).unwrap().loads;
        search.run().unwrap()
    };
    // 20 are needed, and one would do for the part.
    let enough = found("pool_wait_p99<5ms");
    assert!(enough.missed.is_empty() && enough.sizes.max_size == 20, "{:?}", enough.sizes);
    assert!(enough.too_small.is_some_and(|(size, _)| size == 19));
    let never = found("requests<140");
    assert!(!never.missed.is_empty() && never.sizes.max_size < 40, "{:?}", never.sizes);
}

#[test]
fn where_a_part_has_not_shown_what_a_small_minimum_does_it_is_looked_for_by_the_whole() {
    let stages = |quiet: u64| {
        format!(
            "[load]\nstages = [{{ duration = \"6s\", from = 0, to = 1000 }}, \
             {{ duration = \"{quiet}s\", from = 1, to = 1 }}, \
             {{ duration = \"6s\", from = 1000, to = 1000 }}]\n[pool]\nmax_size = 30\nmax_idle_time = \
             \"30s\"\n[plan]\nservice = \"10ms\"\nspread = \"constant\"\nmargin = 0.0\nobjectives = \
             [\"pool_wait_max<15ms\"]\n"
        )
    };
    // In 20 s no connection becomes idle for too long, and in 40 s all but one do.
    let (whole, part) = (question(&stages(40)), question(&stages(20)));
    let (mut progress, mut other) = (|_: u32, _: &Sizes| (), |_: u32, _: &Sizes| ());
    let mut search = Search::new(&whole, &mut progress).unwrap();
    search.short = Search::new(&part, &mut other).unwrap().loads;
    let found = search.run().unwrap();
    assert!(found.missed.is_empty() && found.sizes.min_size > 0, "{:?} {:?}", found.sizes, found.missed);
    // As large as the load needs, since that is not what was too small.
    assert!(found.sizes.max_size <= 11, "{:?}", found.sizes);
}

/// Loads on pools that are too small in several ways, and one that is large enough.
fn loads() -> Vec<(&'static str, Question)> {
    let of = |load: &str, pool: &str, plan: &str| {
        question(&format!("[load]\n{load}\n[pool]\n{pool}\n[plan]\nservice = \"20ms\"\nmargin = 0.0\n{plan}\n"))
    };
    let open = "rate = 500\nduration = \"60s\"\nspacing = \"poisson\"";
    let stages = "stages = [{ duration = \"40s\", from = 20, to = 20 }, { duration = \"80s\", from = 400, to = 400 }]";
    let clients = "clients = 50\nduration = \"10m\"\noperations = 60000";
    vec![
        ("errors", of(open, "max_size = 5", "objectives = [\"errors<0.1%\"]")),
        ("a few errors", of(open, "max_size = 5\nmin_size = 5", "objectives = [\"errors<50\"]")),
        ("waits", of(open, "max_size = 9\nmax_wait_time = \"off\"", "objectives = [\"pool_wait_p99<20ms\"]")),
        (
            "responses in the second stage",
            of(stages, "max_size = 5\nmax_wait_time = \"off\"", "objectives = [\"p99<200ms\"]"),
        ),
        ("clients", of(clients, "max_size = 5", "objectives = [\"pool_wait_p99<20ms\"]")),
        (
            "bursts",
            of(
                "burst = 2000\nidle = \"1s\"\nrounds = 40",
                "max_size = 9\nmax_wait_time = \"4s\"",
                "objectives = [\"errors<1%\"]",
            ),
        ),
        ("created", of(open, "max_size = 40\nmax_life_time = \"2s\"", "objectives = [\"created<40\"]")),
        (ENOUGH, of(open, "max_size = 40\nmin_size = 40", "objectives = [\"errors<0.1%\", \"pool_wait_p99<20ms\"]")),
    ]
}

const ENOUGH: &str = "enough";

#[test]
fn whoever_is_left_early_is_known_to_miss_what_the_whole_misses() {
    for (what, question) in loads() {
        let (plan, mut progress) = (&question.cases[0], |_: u32, _: &Sizes| ());
        let most = max_operations(plan);
        let (mut looks, mut lost) = (0, 0);
        let whole = run_until(plan, &question.spec, &mut |engine, now| {
            looks += 1;
            lost += u32::from(question.is_certain_to_miss(&engine.result(now), most, 0.0));
            false
        });
        let missed = !question.missed(&whole.result, 0.0).is_empty();
        // What is lost stays lost, and is known before half of it has been played.
        assert_eq!((lost > 1, missed), (what != ENOUGH, what != ENOUGH), "{what}: {lost} of {looks}");
        let search = Search::new(&question, &mut progress).unwrap();
        let left = search.simulate(plan, Until::CertainMiss(0.0));
        assert_eq!(left.stopped_early, what != ENOUGH, "{what}");
        assert!(what == ENOUGH || left.steps * 2 < whole.steps, "{what}: {} of {}", left.steps, whole.steps);
        assert_eq!(search.missed(&[left], 0.0).is_empty(), what == ENOUGH, "{what}");
        let ended: u64 = whole.result.total.errors.values().sum::<u64>() + whole.result.total.requests;
        assert!(ended <= most, "{what}: {ended} of at most {most}");
    }
}

#[test]
fn the_nearest_of_sizes_that_miss_something_is_judged_by_the_whole() {
    // 500/s of 20 ms need ten connections, and eight may be had: of these the most fail least.
    let question = question(
        "[load]\nrate = 500\nduration = \"30s\"\nspacing = \"poisson\"\n[pool]\nmax_size = 5\nmin_size = \
         5\nmax_wait_time = \"100ms\"\n[plan]\nservice = \"20ms\"\nserver_limit = 8\nobjectives = [\"errors<0.1%\"]\n",
    );
    let mut progress = |_: u32, _: &Sizes| ();
    let found = Search::new(&question, &mut progress).unwrap().run().unwrap();
    assert_eq!((found.sizes.max_size, found.missed.len()), (8, 1), "{:?}", found.missed);
    assert!(found.outcomes[0].is_complete && found.missed[0].measured.ends_with('%'), "{:?}", found.missed);
}
