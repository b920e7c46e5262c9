//! The simulator's command line: runs schedules, and prints how to replay one that fails.

use std::{process::ExitCode, time::Instant};

use sim::{
    crowd,
    product::{self, Bounds, Play},
    runner::{self, Violation},
    shrink::shrink,
};

const USAGE: &str = "\
usage: sim crowd|postgres|redis|mongodb [--schedules N] [--seed N] [--trace]
upper bounds, for all but crowd: [--clients N] [--connections N] [--requests N]
                                 [--no-faults] [--no-raw-clients] [--calm]";

struct Options {
    schedules: u64,
    seed: u64,
    trace: bool,
    bounds: Bounds,
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { schedules: 1, seed: 1, trace: false, bounds: Bounds::default() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--schedules" => options.schedules = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--trace" => options.trace = true,
            "--clients" => options.bounds.clients = number(value()?)? as usize,
            "--connections" => options.bounds.connections = number(value()?)?,
            "--requests" => options.bounds.requests = number(value()?)?,
            "--no-faults" => options.bounds.faults = false,
            "--no-raw-clients" => options.bounds.raw_clients = false,
            "--calm" => options.bounds.bad_network = false,
            other => return Err(format!("{other} is not understood")),
        }
    }
    Ok(options)
}

const REPLAY: &str = "cargo run -p sim --release --";

/// The options for bounds that differ from the defaults.
fn as_options(bounds: Bounds) -> String {
    let usual = Bounds::default();
    let numbers = [
        ("--clients", bounds.clients as u64, usual.clients as u64),
        ("--connections", bounds.connections, usual.connections),
        ("--requests", bounds.requests, usual.requests),
    ];
    let mut words: String = numbers
        .into_iter()
        .filter(|(_, value, usual)| value != usual)
        .map(|(name, value, _)| format!(" {name} {value}"))
        .collect();
    words.push_str(if bounds.faults { "" } else { " --no-faults" });
    words.push_str(if bounds.raw_clients { "" } else { " --no-raw-clients" });
    words.push_str(if bounds.bad_network { "" } else { " --calm" });
    words
}

/// The function that plays schedules of a protocol.
fn play(verb: &str) -> Option<Play> {
    match verb {
        "postgres" => Some(product::postgres::play),
        "redis" => Some(product::redis::play),
        "mongodb" => Some(product::mongodb::play),
        _ => None,
    }
}

/// Prints a violation, the command that replays it, and the smallest schedule that fails in the same way.
fn report(verb: &str, options: &Options, violation: Violation) {
    eprintln!("\nviolation: {}\nseed {}; replay with:", violation.what, violation.seed);
    eprintln!("{REPLAY} {verb} --seed {}{} --trace", violation.seed, as_options(options.bounds));
    let Some(play) = play(verb) else { return };
    if options.schedules > 1 {
        // Failures on the way would each print their panic.
        std::panic::set_hook(Box::new(|_| {}));
        let (small, within) = shrink(violation, options.bounds, |seed, bounds| _ = play(seed, bounds, None, false));
        eprintln!("\nthe smallest that was found: {}\nseed {}: replay it with", small.what, small.seed);
        eprintln!("{REPLAY} {verb} --seed {}{} --trace", small.seed, as_options(within));
    }
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let options = match options(words) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let begun = Instant::now();
    let (mut steps, mut counts) = (0, [0; 3]);
    let result = match verb.as_str() {
        "postgres" | "redis" | "mongodb" => {
            let play = play(&verb).expect("one of these");
            runner::run(
                options.seed,
                options.schedules,
                |seed| play(seed, options.bounds, None, options.trace),
                |done| {
                    steps += done.steps;
                    counts[0] += done.faults;
                    counts[1] += done.rolled_back;
                },
            )
        }
        "crowd" => runner::run(
            options.seed,
            options.schedules,
            |seed| crowd::play(seed, options.trace),
            |done| {
                steps += done.steps;
                (0..3).for_each(|n| counts[n] += done.counts[n]);
            },
        ),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => {
            let took = begun.elapsed().as_secs_f64();
            let [a, b, c] = counts;
            let counts = match verb.as_str() {
                "crowd" => format!("{a} served, {b} evicted, {c} refused"),
                _ => format!("{a} faults, {b} rolled back"),
            };
            println!("{verb}: {} schedules, {steps} steps, {counts} in {took:.1} s", options.schedules);
            ExitCode::SUCCESS
        }
        Err(violation) => {
            report(&verb, &options, violation);
            ExitCode::from(1)
        }
    }
}
