//! Runs pgbench and reads what it reports: throughput, percentiles from its per-transaction log, and failures.
//!
//! Refuses to know what it is pointed at.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, bail};

use super::{
    cleanup::TERMINATE,
    cluster::{DATABASE, USER},
    command::Shell,
};

/// Most log lines of one run that are read; a demo's run is far below.
const MAX_SAMPLES: usize = 5_000_000;
/// What connecting and finishing may take beyond the run itself.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which of pgbench's built-in scripts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// Five statements in a transaction.
    TpcB,
    /// One SELECT by primary key.
    SelectOnly,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What each client does.
    pub script: Script,
    /// Concurrent clients.
    pub clients: u32,
    /// How long.
    pub seconds: u32,
    /// Whether each transaction makes its own connection.
    pub reconnect: bool,
}

/// What came of a load; absent values are unknown.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Transactions per second.
    pub throughput: Option<f64>,
    /// Half of the transactions took no longer.
    pub p50: Option<Duration>,
    /// All but one in a hundred took no longer.
    pub p99: Option<Duration>,
    /// Clients that gave up and transactions that failed.
    pub failed: u64,
    /// pgbench's first complaint.
    pub complaint: Option<String>,
}

/// Runs `load` against `address`; `midway` is called once in the middle of it.
pub fn run(
    shell: &Shell,
    bin: &Path,
    address: SocketAddr,
    load: Load,
    midway: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Outcome> {
    let logs = tempfile::Builder::new().prefix("pgbench-").tempdir_in(&shell.directory)?;
    let mut command = shell.command(bin.join("pgbench"));
    command.args(["-n", "-h", "127.0.0.1", "-p", &address.port().to_string(), "-U", USER]);
    command.args(load.arguments()).arg("-l").arg(format!("--log-prefix={}/log", logs.path().display())).arg(DATABASE);
    let started = shell.start(&mut command, TERMINATE)?;
    let length = Duration::from_secs(u64::from(load.seconds));
    thread::sleep(length.mul_f64(0.6));
    midway()?;
    let output = shell.finish(&started, length + PATIENCE)?;
    let mut outcome = Outcome::parse(&output.stdout, &output.stderr, load.clients)?;
    let mut samples = latencies(logs.path())?;
    samples.sort_unstable();
    outcome.p50 = percentile(&samples, 0.5);
    outcome.p99 = percentile(&samples, 0.99);
    Ok(outcome)
}

impl Load {
    fn arguments(self) -> Vec<String> {
        let mut arguments = vec![
            "-c".to_owned(),
            self.clients.to_string(),
            "-j".to_owned(),
            self.clients.min(2).to_string(),
            "-T".to_owned(),
            self.seconds.to_string(),
        ];
        if self.script == Script::SelectOnly {
            arguments.push("-S".to_owned());
        }
        if self.reconnect {
            arguments.push("-C".to_owned());
        }
        arguments
    }
}

impl Outcome {
    fn parse(stdout: &str, stderr: &str, clients: u32) -> anyhow::Result<Outcome> {
        let complaint = stderr.lines().find(|line| line.contains("error:")).map(shorten);
        let number = |label: &str| -> Option<f64> {
            let rest = stdout.lines().find_map(|line| line.strip_prefix(label))?;
            rest.split_whitespace().next()?.parse().ok()
        };
        let Some(throughput) = number("tps = ") else {
            if complaint.is_none() {
                bail!("pgbench said nothing that is understood:\n{stdout}\n{stderr}");
            }
            // One refused connection and pgbench gives up before it starts.
            return Ok(Outcome { failed: u64::from(clients), complaint, ..Outcome::default() });
        };
        let aborted = stderr.matches(" aborted").count() as u64;
        let failed = number("number of failed transactions: ").unwrap_or(0.0) as u64;
        Ok(Outcome { throughput: Some(throughput), failed: failed + aborted, complaint, ..Outcome::default() })
    }
}

/// The part of a complaint behind who complains about what address.
fn shorten(line: &str) -> String {
    ["FATAL:", "ERROR:"]
        .iter()
        .find_map(|mark| line.find(mark))
        .map_or(line, |at| &line[at..])
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The third column of every log line: microseconds.
fn latencies(directory: &Path) -> anyhow::Result<Vec<u32>> {
    let mut samples = Vec::new();
    let files: Vec<PathBuf> = fs::read_dir(directory)?.flatten().map(|entry| entry.path()).collect();
    for file in files {
        let reader = BufReader::new(fs::File::open(&file).context("cannot read pgbench's log")?);
        for line in reader.lines().take(MAX_SAMPLES) {
            samples.extend(line?.split(' ').nth(2).and_then(|word| word.parse::<u32>().ok()));
        }
    }
    Ok(samples)
}

fn percentile(sorted: &[u32], share: f64) -> Option<Duration> {
    let rank = ((sorted.len() as f64 * share).ceil() as usize).max(1);
    sorted.get(rank - 1).map(|&micros| Duration::from_micros(u64::from(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "pgbench (15.18)\nnumber of failed transactions: 3 (0.100%)\nlatency average = 1.5 ms\n\
                          tps = 2345.678901 (without initial connection time)\n";

    #[test]
    fn a_report_gives_throughput_and_failures() {
        let outcome = Outcome::parse(REPORT, "pgbench: error: client 4 aborted in command 1\n", 10).unwrap();
        assert_eq!(outcome.throughput, Some(2345.678901));
        assert_eq!(outcome.failed, 4);
    }

    #[test]
    fn a_refused_connection_fails_every_client() {
        let stderr = "pgbench: error: connection to server at \"127.0.0.1\", port 5 failed: FATAL:  sorry, too many\n";
        let outcome = Outcome::parse("pgbench (15.18)\n", stderr, 1000).unwrap();
        assert_eq!((outcome.failed, outcome.throughput), (1000, None));
        assert_eq!(outcome.complaint.as_deref(), Some("FATAL: sorry, too many"));
    }

    #[test]
    fn a_percentile_is_the_sample_at_its_rank() {
        let samples: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&samples, 0.5), Some(Duration::from_micros(50)));
        assert_eq!(percentile(&samples, 0.99), Some(Duration::from_micros(99)));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
