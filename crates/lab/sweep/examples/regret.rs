//! Judges the sweep on synthetic databases whose best number of clients is known, beside rules of thumb, and writes a
//! JSON file with every sweep and a table in Markdown: `cargo run -p sweep --example regret -- [SEEDS [JSON
//! [MARKDOWN]]]`.
#![forbid(unsafe_code)]

use std::{error::Error, fmt::Write as _, fs};

use serde::Serialize;
use sweep::{
    judge::{JudgedSweep, judge},
    synthetic::{SyntheticDatabase, systems},
};

/// All that the table is made of.
#[derive(Serialize)]
struct Results {
    command: String,
    version: String,
    /// Median and worst regret over all sweeps, and the largest share of the exhaustive sweep's time.
    median_regret: f64,
    worst_regret: f64,
    most_time: f64,
    systems: Vec<OfSystem>,
}

#[derive(Serialize)]
struct OfSystem {
    name: String,
    planted_best: u32,
    sweeps: Vec<JudgedSweep>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seeds: u64 = arguments.next().map_or(Ok(100), |n| n.parse())?;
    let systems: Vec<OfSystem> = systems().iter().map(|system| of(system, seeds)).collect();
    let all = || systems.iter().flat_map(|s| &s.sweeps);
    let results = Results {
        command: format!("cargo run -p sweep --example regret -- {seeds}"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        median_regret: quantile(all().map(|j| j.regret), 0.5),
        worst_regret: quantile(all().map(|j| j.regret), 1.0),
        most_time: quantile(all().map(|j| j.time), 1.0),
        systems,
    };
    let table = table(&results);
    print!("{table}");
    if let Some(path) = arguments.next() {
        let mut value = serde_json::to_value(&results)?;
        shorten(&mut value);
        fs::write(path, serde_json::to_string(&value)? + "\n")?;
    }
    if let Some(path) = arguments.next() {
        fs::write(path, table)?;
    }
    Ok(())
}

fn of(system: &SyntheticDatabase, seeds: u64) -> OfSystem {
    let sweeps = (1..=seeds).map(|seed| judge(system, seed)).collect();
    OfSystem { name: system.name.to_owned(), planted_best: system.best().0, sweeps }
}

fn table(results: &Results) -> String {
    let mut text = String::from(
        "| system | best | found | recommended | regret, median | worst | time | 2 x CPUs + 1 | CPUs x use x factor \
         | always 10 | law alone |\n|-|-|-|-|-|-|-|-|-|-|-|\n",
    );
    for system in &results.systems {
        let of = |value: fn(&JudgedSweep) -> f64, share| quantile(system.sweeps.iter().map(value), share);
        let _ = writeln!(
            text,
            "| {} | {} | {:.0} | {:.0} | {:.1}% | {:.1}% | {:.2} | {:.0}% | {:.0}% | {:.0}% | {:.0}% ({:.0}%) |",
            system.name,
            system.planted_best,
            of(|j| f64::from(j.found), 0.5),
            of(|j| f64::from(j.recommended), 0.5),
            100.0 * of(|j| j.regret, 0.5).max(0.0),
            100.0 * of(|j| j.regret, 1.0),
            of(|j| j.time, 1.0),
            100.0 * of(|j| j.rules_regret.twice_processors, 0.5).max(0.0),
            100.0 * of(|j| j.rules_regret.utilisation, 0.5).max(0.0),
            100.0 * of(|j| j.rules_regret.fixed, 0.5).max(0.0),
            100.0 * of(|j| j.rules_regret.law, 0.5).max(0.0),
            100.0 * of(|j| j.rules_regret.law, 1.0).max(0.0),
        );
    }
    let _ = writeln!(
        text,
        "\nOver all: median regret {:.2}%, worst {:.2}%, at most {:.3} of the exhaustive sweep's time.",
        100.0 * results.median_regret,
        100.0 * results.worst_regret,
        results.most_time
    );
    text
}

/// Four decimals are enough.
fn shorten(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Number(number) if number.is_f64() => {
            let rounded = number.as_f64().map(|number| (number * 1e4).round() / 1e4);
            *value = rounded.into();
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(shorten),
        serde_json::Value::Object(values) => values.values_mut().for_each(shorten),
        _ => {}
    }
}

/// The value below which this share of the numbers lies.
fn quantile(numbers: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    numbers[((numbers.len() - 1) as f64 * share).round() as usize]
}
