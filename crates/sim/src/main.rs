//! The command line of the simulator: runs schedules, and says how to replay one that goes wrong.

use std::{process::ExitCode, time::Instant};

use sim::{
    product, runner,
    seam::{self, Toy},
    toys::Fault,
    world,
};

const USAGE: &str = "usage: sim world|seam|postgres|redis [--schedules N] [--seed N] [--steps N] [--trace]
            seam also: [--toy exclusive|several|shared]";

struct Options {
    schedules: u64,
    seed: u64,
    steps: Option<u64>,
    trace: bool,
    toy: Option<Toy>,
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options { schedules: 1, seed: 1, steps: None, trace: false, toy: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--schedules" => options.schedules = number(value()?)?,
            "--seed" => options.seed = number(value()?)?,
            "--steps" => options.steps = Some(number(value()?)?),
            "--trace" => options.trace = true,
            "--toy" => {
                options.toy = Some(match value()?.as_str() {
                    "exclusive" => Toy::Exclusive,
                    "several" => Toy::Several,
                    "shared" => Toy::Shared,
                    other => return Err(format!("there is no toy {other}")),
                });
            }
            other => return Err(format!("{other} is not understood")),
        }
    }
    Ok(options)
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
    let (mut steps, mut ended) = (0, [0; 3]);
    let result = match verb.as_str() {
        "seam" => runner::run(
            options.seed,
            options.schedules,
            |seed| seam::run(seed, options.steps, options.toy, Fault::None, options.trace),
            |tally| {
                steps += tally.steps;
                ended = [0, 1, 2].map(|i| ended[i] + tally.ended[i]);
            },
        ),
        "postgres" | "redis" => {
            let run = if verb == "redis" { product::redis::run } else { product::postgres::run };
            runner::run_on_all(
                options.seed,
                options.schedules,
                |seed| run(seed, options.trace),
                |done| {
                    steps += done.steps;
                    ended[0] += done.faults;
                },
            )
        }
        "world" => runner::run(
            options.seed,
            options.schedules,
            |seed| world::run(seed, options.steps, world::Fault::None, options.trace),
            |tally| {
                steps += tally.steps;
                ended = [ended[0] + tally.decided[0], ended[1] + tally.decided[1], ended[2] + tally.cancelled];
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
            println!("{verb}: {} schedules, {steps} steps, {ended:?} in {took:.1} s", options.schedules);
            ExitCode::SUCCESS
        }
        Err(violation) => {
            eprintln!("\nviolation: {}\nseed {}; replay with:", violation.what, violation.seed);
            let steps = options.steps.map_or(String::new(), |n| format!(" --steps {n}"));
            let toy = options.toy.map_or(String::new(), |toy| format!(" --toy {}", format!("{toy:?}").to_lowercase()));
            eprintln!("cargo run -p sim --release -- {verb} --seed {}{steps}{toy} --trace", violation.seed);
            ExitCode::from(1)
        }
    }
}
