//! What all made-up windows need.

use std::time::Duration;

use admin_api::{Client, Look, Observation, Times};
use doctor::{
    Diagnosis, MongoWindow, PoolerWindow, PostgresWindow, RedisWindow, Symptom, examine, examine_mongodb,
    examine_postgres, examine_redis,
};

pub trait Window {
    fn diagnosis(&self) -> Diagnosis;
}

impl Window for PoolerWindow {
    fn diagnosis(&self) -> Diagnosis {
        examine(self)
    }
}

impl Window for PostgresWindow {
    fn diagnosis(&self) -> Diagnosis {
        examine_postgres(self)
    }
}

impl Window for MongoWindow {
    fn diagnosis(&self) -> Diagnosis {
        examine_mongodb(self)
    }
}

impl Window for RedisWindow {
    fn diagnosis(&self) -> Diagnosis {
        examine_redis(self)
    }
}

/// A window of a pooler in which each look, and its clients that hold servers, are what `look_at` returns.
pub fn pooler_window(looks: u64, interval_ms: u64, look_at: impl Fn(u64) -> (Look, Vec<Client>)) -> PoolerWindow {
    let mut window = PoolerWindow::default();
    for n in 0..looks {
        let (look, holders) = look_at(n);
        assert!(window.add(Observation { at: Duration::from_millis(n * interval_ms), look, holders }), "look {n}");
    }
    window
}

pub fn symptoms(diagnosis: &Diagnosis) -> Vec<Symptom> {
    diagnosis.findings.iter().map(|finding| finding.symptom).collect()
}

/// The symptoms of a window in which nothing is undecided. Every finding must have what people need.
pub fn found(window: &impl Window) -> Vec<Symptom> {
    let diagnosis = window.diagnosis();
    assert_complete(&diagnosis);
    assert!(diagnosis.undecided.is_empty(), "{:?}", diagnosis.undecided);
    symptoms(&diagnosis)
}

pub fn assert_complete(diagnosis: &Diagnosis) {
    for finding in &diagnosis.findings {
        let is_complete = finding.evidence.len() >= 2 && !finding.rules_out.is_empty() && !finding.advice.is_empty();
        assert!(is_complete, "{finding:?}");
    }
}

/// The setting of the first finding: its key, its value in force, and the proposed one.
pub fn setting(diagnosis: &Diagnosis) -> Option<(&str, Option<&str>, &str)> {
    let setting = diagnosis.findings[0].setting.as_ref()?;
    Some((setting.key, setting.from.as_deref(), &setting.to))
}

/// Durations that are all alike, in a histogram with these bounds.
pub fn times(bounds_ms: &[f64], ms: f64, count: u64) -> Times {
    let mut buckets = vec![0; bounds_ms.len() + 1];
    buckets[bounds_ms.iter().position(|bound| ms <= *bound).unwrap_or(bounds_ms.len())] = count;
    Times { buckets, sum_ms: ms * count as f64 }
}

/// Random numbers, the same for the same seed (xorshift64*).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn unit(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        from + (to - from) * self.unit()
    }

    /// One of `0..bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.unit() * bound as f64) as usize
    }
}
