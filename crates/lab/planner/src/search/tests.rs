//! Shortened loads, early stops, and corrections if a shortened load was not representative.

use super::*;
use crate::question::{Options, from_text};
use std::path::Path;

fn question(rest: &str) -> Question {
    let text = format!("[scenario]\nname = \"n\"\n[target]\nstart = \"postgres\"\n{rest}");
    from_text(Path::new("p.toml"), &text, &|_| None, false, &Options::default()).unwrap()
}

/// Whether each load is shortened to judge candidates.
fn are_shortened(rest: &str) -> Vec<bool> {
    let question = question(rest);
    let mut progress = |_: u32, _: &Sizes| ();
    let search = Search::new(&question, &mut progress).unwrap();
    search.short.iter().zip(&search.loads).map(|(short, load)| short.shape != load.shape).collect()
}

#[test]
fn only_loads_whose_part_is_representative_are_shortened() {
    let of = |more: &str, objective: &str| {
        let load = "[load]\nrate = 1000\nduration = \"1h\"\n";
        are_shortened(&format!("{load}{more}[plan]\nservice = \"1ms\"\nobjectives = [\"{objective}\"]\n"))
    };
    let stall = |first: &str| {
        format!("[[fault]]\nkind = \"stall\"\ndelay = \"1s\"\nlength = \"1s\"\nevery = \"20s\"\nfirst = \"{first}\"\n")
    };
    let freeze = "[freeze]\nlength = \"1s\"\nfirst = \"50m\"\n";
    assert_eq!([of("", "p99<5ms"), of(&stall("20s"), "p99<5ms")], [[true], [true]]);
    // A late fault is not in a part of the load, and counts are smaller there.
    assert_eq!([of(&stall("50m"), "p99<5ms"), of(freeze, "p99<5ms")], [[false], [false]]);
    assert_eq!([of("", "created<9"), of("", "requests>=3000000"), of("", "errors<9")], [[false], [false], [false]]);
    assert_eq!(of("", "errors<9%"), [true]);
}

#[test]
fn a_load_with_a_freeze_is_another_load() {
    let variants =
        "[[variant]]\nname = \"awake\"\n[[variant]]\nname = \"frozen\"\nfreeze = { length = \"1s\", every = \"3s\" }\n";
    assert_eq!(
        are_shortened(&format!("[load]\nclients = 2\nduration = \"9s\"\n{variants}[plan]\nservice = \"1ms\"\n")).len(),
        2
    );
}

#[test]
fn sizes_are_raised_for_the_whole_load_until_one_suffices_or_no_operation_waits() {
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
    // The whole load needs 20 connections, its part one.
    let enough = found("pool_wait_p99<5ms");
    assert!(enough.missed.is_empty() && enough.sizes.max_size == 20, "{:?}", enough.sizes);
    assert!(enough.too_small.is_some_and(|(size, _)| size == 19));
    let never = found("requests<140");
    assert!(!never.missed.is_empty() && never.sizes.max_size < 40, "{:?}", never.sizes);
}

#[test]
fn a_minimum_that_fails_the_whole_load_is_searched_again_with_it() {
    let stages = |quiet: u64| {
        format!(
            "[load]\nstages = [{{ duration = \"6s\", from = 0, to = 1000 }}, \
             {{ duration = \"{quiet}s\", from = 1, to = 1 }}, \
             {{ duration = \"6s\", from = 1000, to = 1000 }}]\n[pool]\nmax_size = 30\nmax_idle_time = \
             \"30s\"\n[plan]\nservice = \"10ms\"\nspread = \"constant\"\nmargin = 0.0\nobjectives = \
             [\"pool_wait_max<15ms\"]\n"
        )
    };
    // In 20 s no connection reaches its idle time, in 40 s all but one do.
    let (whole, part) = (question(&stages(40)), question(&stages(20)));
    let (mut progress, mut other) = (|_: u32, _: &Sizes| (), |_: u32, _: &Sizes| ());
    let mut search = Search::new(&whole, &mut progress).unwrap();
    search.short = Search::new(&part, &mut other).unwrap().loads;
    let found = search.run().unwrap();
    assert!(found.missed.is_empty() && found.sizes.min_size > 0, "{:?} {:?}", found.sizes, found.missed);
    // The maximum was large enough and stays.
    assert!(found.sizes.max_size <= 11, "{:?}", found.sizes);
}

/// Loads on pools that are too small in several ways, and one on a pool that is large enough.
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
fn a_candidate_that_is_stopped_early_misses_the_objective_with_the_whole_load() {
    for (what, question) in loads() {
        let (plan, mut progress) = (&question.loads[0], |_: u32, _: &Sizes| ());
        let most = max_operations(plan);
        let (mut checks, mut certain) = (0, 0);
        let whole = run_until(plan, &question.spec, &mut |engine, now| {
            checks += 1;
            certain += u32::from(question.is_certain_to_miss(&engine.result(now), most, 0.0));
            false
        });
        let missed = !question.missed(&whole.result, 0.0).is_empty();
        // A certain miss stays certain, and is found in the first half.
        assert_eq!((certain > 1, missed), (what != ENOUGH, what != ENOUGH), "{what}: {certain} of {checks}");
        let search = Search::new(&question, &mut progress).unwrap();
        let stopped = search.simulate(plan, Until::CertainMiss(0.0));
        assert_eq!(stopped.stopped_early, what != ENOUGH, "{what}");
        assert!(what == ENOUGH || stopped.steps * 2 < whole.steps, "{what}: {} of {}", stopped.steps, whole.steps);
        assert_eq!(search.missed(&[stopped], 0.0).is_empty(), what == ENOUGH, "{what}");
        let ended: u64 = whole.result.total.errors.values().sum::<u64>() + whole.result.total.requests;
        assert!(ended <= most, "{what}: {ended} of at most {most}");
    }
}

#[test]
fn the_nearest_size_is_judged_by_the_whole_load() {
    // 500/s of 20 ms need ten connections, and the limit is eight. Failures are fewest with eight.
    let question = question(
        "[load]\nrate = 500\nduration = \"30s\"\nspacing = \"poisson\"\n[pool]\nmax_size = 5\nmin_size = \
         5\nmax_wait_time = \"100ms\"\n[plan]\nservice = \"20ms\"\nserver_limit = 8\nobjectives = [\"errors<0.1%\"]\n",
    );
    let mut progress = |_: u32, _: &Sizes| ();
    let found = Search::new(&question, &mut progress).unwrap().run().unwrap();
    assert_eq!((found.sizes.max_size, found.missed.len()), (8, 1), "{:?}", found.missed);
    assert!(found.outcomes[0].is_complete && found.missed[0].measured.ends_with('%'), "{:?}", found.missed);
}
