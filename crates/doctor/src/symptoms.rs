//! One file for each kind of trouble: what decides it. Thresholds stand at the head of each file, with the reason.

mod churn;
mod ephemeral;
mod held;
mod nested;
mod reach;
mod waiting;

use crate::{
    finding::{Finding, Undecided},
    window::{PoolWindow, Window},
};

/// What is known of one symptom, or of two that look alike.
pub(crate) enum Verdict {
    Absent,
    Present(Finding),
    Undecided(Undecided),
}

/// Clients wait at so many looks at least, or it is a burst that passes.
const WAITING: f64 = 0.3;

/// Of each pool, what explains it first: who cannot reach the database has no other trouble, and what is held for nothing is not wanting.
pub(crate) fn of_pool(pool: &PoolWindow<'_>) -> Vec<Verdict> {
    let first = |verdicts: [fn(&PoolWindow<'_>) -> Verdict; 3]| {
        verdicts
            .into_iter()
            .map(|of| of(pool))
            .find(|verdict| !matches!(verdict, Verdict::Absent))
            .unwrap_or(Verdict::Absent)
    };
    vec![first([reach::examine, held::examine, waiting::examine]), churn::examine(pool)]
}

/// Of what concerns all pools.
pub(crate) fn of_clients(window: &Window) -> Vec<Verdict> {
    vec![ephemeral::examine(window), nested::examine(window)]
}

/// A share as people say it.
fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// Milliseconds as people say them.
fn time(ms: f64) -> String {
    match ms {
        ms if ms < 10.0 => format!("{ms:.1} ms"),
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 120_000.0 => format!("{:.1} s", ms / 1e3),
        ms => format!("{:.0} min", ms / 60e3),
    }
}
