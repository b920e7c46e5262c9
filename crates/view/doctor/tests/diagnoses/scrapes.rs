//! A file of scrapes of HikariCP's metrics, made up, and what is found in it.

use std::fmt::Write;

use doctor::{Diagnosis, FileReader, Symptom};

use crate::support::{assert_complete, symptoms};

/// HikariCP at one scrape.
#[derive(Clone, Copy, Default)]
pub struct Hikari {
    pub active: u64,
    pub pending: u64,
    pub total: u64,
    pub min: u64,
    pub made: u64,
    pub used: u64,
    pub used_s: f64,
    pub timeouts: u64,
}

pub const MAX: u64 = 10;
pub const INTERVAL_S: u64 = 5;

/// A file of scrapes, each of which shows what `of` says of it.
pub fn scrapes(count: u64, of: impl Fn(u64) -> Hikari) -> String {
    let mut text = String::new();
    for n in 0..count {
        let Hikari { active, pending, total, min, made, used, used_s, timeouts } = of(n);
        writeln!(text, "{}", 1_795_670_000 + n * INTERVAL_S).unwrap();
        text += "# TYPE hikaricp_connections_active gauge\n";
        for (name, value) in [
            ("", total as f64),
            ("_active", active as f64),
            ("_idle", total.saturating_sub(active) as f64),
            ("_pending", pending as f64),
            ("_max", MAX as f64),
            ("_min", min as f64),
            ("_creation_seconds_count", made as f64),
            ("_creation_seconds_sum", made as f64 * 0.02),
            ("_usage_seconds_count", used as f64),
            ("_usage_seconds_sum", used_s),
            ("_timeout_total", timeouts as f64),
        ] {
            writeln!(text, "hikaricp_connections{name}{{pool=\"shop\",}} {value:?}").unwrap();
        }
        text += "jvm_threads_live_threads 40.0\n";
    }
    text
}

pub fn read(text: &str) -> Result<Diagnosis, String> {
    let mut reader = FileReader::of(text.lines().next().unwrap_or_default());
    text.lines().try_for_each(|line| reader.read(line)).map_err(|error| error.to_string())?;
    let subject = reader.finish().map_err(|error| error.to_string())?;
    subject.examine().map_err(|error| error.to_string())
}

pub fn found(text: &str) -> (Vec<Symptom>, Vec<Vec<Symptom>>) {
    let diagnosis = read(text).unwrap();
    assert_complete(&diagnosis);
    (symptoms(&diagnosis), diagnosis.undecided.iter().map(|undecided| undecided.between.clone()).collect())
}

/// A pool that is used for a third.
pub fn quiet(n: u64) -> Hikari {
    Hikari {
        active: 2 + n % 3,
        total: 10,
        min: 10,
        made: 10,
        used: n * 500,
        used_s: n as f64 * 15.0,
        ..Hikari::default()
    }
}

/// How often these connections are given back from one scrape to the next, where a use takes so long and a part of a
/// millisecond, which is not told.
pub fn used(active: u64, use_ms: f64) -> u64 {
    (active as f64 * INTERVAL_S as f64 * 1e3 / (use_ms + 0.5)).round() as u64
}
