//! What comes out of runs and of kept results: a table, JSON, a page, an exit status.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use ::bench::{
    report::{self, files, html, table},
    result::BenchResult,
};
use anyhow::Context;
use clap::Args;
use serde::Serialize;

use super::bad_usage;

/// Exit status of a missed threshold.
const MISSED: u8 = 99;
/// Results that can be read at once.
const MAX_FILES: usize = 64;

/// What is to come out.
#[derive(Args)]
#[command(next_help_heading = "Output")]
pub struct OutputFlags {
    /// What the run is called [default: its URL, without password]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// For everything that chance decides [default: 1]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,

    /// A condition that makes the run a failure, for example 'p99>50ms' (see below). May be given several times
    #[arg(long, value_name = "CONDITION")]
    pub fail_if: Vec<String>,

    /// Write the result to a file, or with - to standard output, and no table there
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page to look at, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

impl OutputFlags {
    /// What the run is called.
    pub fn name(&self) -> Option<String> {
        self.name.clone()
    }

    /// Where the result goes.
    pub fn files(&self) -> crate::sweep::Files {
        crate::sweep::Files { json: self.json.clone(), html: self.html.clone() }
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or(1)
    }
}

/// `poolhouse bench compare`
#[derive(Args)]
pub struct CompareArgs {
    /// The first result
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// The second
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// Write the comparison to a file, or with - to standard output
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with both, which needs no network
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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

/// Shows and writes results. Several (the variants of a scenario) are a list in JSON.
pub fn show(flags: &OutputFlags, results: &[BenchResult]) -> anyhow::Result<()> {
    if let Some(path) = &flags.json {
        match results {
            [one] => write_json(path, one)?,
            several => write_json(path, &several)?,
        }
    }
    if let Some(path) = &flags.html {
        fs::write(path, html::page(results)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if flags.json.as_deref() != Some(Path::new("-")) {
        table::write(&mut io::stdout().lock(), results)?;
    }
    Ok(())
}

/// The exit status, after saying what was missed.
pub fn verdict(missed: &[String]) -> ExitCode {
    for text in missed {
        eprintln!("missed {text}");
    }
    if missed.is_empty() { ExitCode::SUCCESS } else { MISSED.into() }
}

fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("a result can be written as JSON")? + "\n";
    if path == Path::new("-") {
        return Ok(io::stdout().lock().write_all(text.as_bytes())?);
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The command line as it was given, without passwords: URLs lose theirs, headers their values.
pub fn command_line() -> String {
    let mut words = vec!["poolhouse".to_owned()];
    let mut hide = false;
    for word in std::env::args().skip(1) {
        words.push(shell_word(&without_secret(&word, hide)));
        hide = word == "-H" || word == "--header";
    }
    words.join(" ")
}

fn without_secret(word: &str, is_header: bool) -> String {
    let (flag, value) = match word.split_once('=') {
        Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value),
        _ => (String::new(), word),
    };
    if is_header || flag == "--header=" || (word.starts_with("-H") && word.len() > 2) {
        let name = value.split(':').next().unwrap_or_default();
        return format!("{flag}{name}: ***");
    }
    if value.contains("://") && !value.contains("${") {
        return format!("{flag}{}", ::bench::run::shown(value));
    }
    word.to_owned()
}

fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@,%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs `poolhouse bench compare`.
pub fn compare(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (a, b) = match (files::read(&args.a), files::read(&args.b)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => return Ok(bad_usage(&error)),
    };
    let mut comparison = ::bench::compare::compare(&a, &b);
    if let Some(path) = &args.json {
        write_json(path, &comparison)?;
    }
    comparison.a = format!("{} ({})", comparison.a, args.a.display());
    comparison.b = format!("{} ({})", comparison.b, args.b.display());
    if let Some(path) = &args.html {
        let page = html::comparison(&comparison, [a, b]);
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        report::compare::write(&mut io::stdout().lock(), &comparison)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `poolhouse bench merge`.
pub fn merge(args: &MergeArgs) -> anyhow::Result<ExitCode> {
    let results: Result<Vec<BenchResult>, _> = args.results.iter().map(|path| files::read(path)).collect();
    let results = match results {
        Ok(results) => results,
        Err(error) => return Ok(bad_usage(&error)),
    };
    let merged = match ::bench::merge::merge(&results) {
        Ok(merged) => merged,
        Err(error) => return Ok(bad_usage(&error)),
    };
    write_json(&args.json, &merged)?;
    if args.json != Path::new("-") {
        table::write(&mut io::stdout().lock(), std::slice::from_ref(&merged))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `poolhouse bench report`.
pub fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    match files::page(&args.results) {
        Ok(page) => {
            fs::write(&args.html, page).with_context(|| format!("cannot write {}", args.html.display()))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Ok(bad_usage(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_told_without_its_secrets() {
        assert_eq!(without_secret("postgres://a:hunter2@h/d?password=x", false), "postgres://a@h/d");
        assert_eq!(without_secret("--target=postgres://a:hunter2@h/d", false), "--target=postgres://a@h/d");
        assert_eq!(without_secret("postgres://a:${PW}@h/d", false), "postgres://a:${PW}@h/d");
        assert_eq!(without_secret("Authorization: Bearer hunter2", true), "Authorization: ***");
        assert_eq!(without_secret("--header=Authorization: hunter2", false), "--header=Authorization: ***");
        assert_eq!(without_secret("-HAuthorization: hunter2", false), "-HAuthorization: ***");
        assert_eq!(shell_word("p99>50ms"), "'p99>50ms'");
    }
}
