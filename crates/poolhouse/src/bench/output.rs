//! What comes out of runs and of kept results: a table, JSON, a page, an exit status.

use std::{path::PathBuf, process::ExitCode};

use ::report::{files, html, result::BenchResult, run_text};
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::bad_usage;
use crate::output_file::{OutputFile, Outputs};

/// Exit status of a missed threshold.
const MISSED: u8 = 99;
/// Results that can be read at once.
const MAX_FILES: usize = 64;

/// What is to come out.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub struct OutputFlags {
    /// Name of the run [default: its URL, without password]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Seed of all random choices [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// Have `poolhouse doctor` look while it runs: at the Poolhouse that a scenario starts, or else at the PostgreSQL
    /// under load
    #[arg(long)]
    pub doctor: bool,

    /// A condition that makes the run a failure, for example 'p99>50ms' (see below). May be given several times
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,

    /// Write the result to a file, or with - to standard output instead of the table
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write an HTML page, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl OutputFlags {
    /// What the run is called.
    pub fn name(&self) -> Option<String> {
        self.name.clone()
    }

    /// Opens the files that will be written.
    ///
    /// # Errors
    /// What is wrong with a path, in words.
    pub fn open(&self) -> Result<Outputs, String> {
        Outputs::open(self.json.as_deref(), self.html.as_deref())
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// `poolhouse bench merge`
#[derive(Args)]
pub struct MergeArgs {
    /// The results
    #[arg(value_name = "RESULT.json", required = true, num_args = 2..=MAX_FILES)]
    results: Vec<PathBuf>,
    /// Where the joined result goes; - is standard output
    #[arg(long, value_name = "FILE")]
    json: PathBuf,
}

/// `poolhouse bench report`
#[derive(Args)]
pub struct ReportArgs {
    /// The results
    #[arg(value_name = "RESULT.json", required = true, num_args = 1..=MAX_FILES)]
    results: Vec<PathBuf>,
    /// Where the page goes
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
}

/// Shows results, and writes them. Several (the variants of a scenario) are a list in JSON.
pub fn show(outputs: Outputs, results: &[BenchResult]) -> anyhow::Result<()> {
    let json = || match results {
        [one] => json(one),
        several => json(&several),
    };
    outputs.write_all(|out| run_text::write(out, results), json, || html::page(results))
}

/// The exit status, after saying what was missed.
pub fn verdict(missed: &[String]) -> ExitCode {
    for text in missed {
        eprintln!("missed {text}");
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { MISSED.into() }
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("a result can be written as JSON")? + "\n")
}

/// Runs `poolhouse bench merge`.
pub fn merge(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    let results: Result<Vec<BenchResult>, _> = args.results.iter().map(|path| files::read(path)).collect();
    let results = match results {
        Ok(results) => results,
        Err(error) => return Ok(bad_usage(&error)),
    };
    let merged = match ::report::merge::merge(&results) {
        Ok(merged) => merged,
        Err(error) => return Ok(bad_usage(&error)),
    };
    match Outputs::open(Some(&args.json), None) {
        Ok(outputs) => show(outputs, std::slice::from_ref(&merged)).map(|()| ExitCode::SUCCESS),
        Err(message) => Ok(bad_usage(&message)),
    }
}

/// Runs `poolhouse bench report`.
pub fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let page = match files::page(&args.results) {
        Ok(page) => page,
        Err(error) => return Ok(bad_usage(&error)),
    };
    match OutputFile::open(&args.html) {
        Ok(file) => file.write(&page).map(|()| ExitCode::SUCCESS),
        Err(message) => Ok(bad_usage(&message)),
    }
}
