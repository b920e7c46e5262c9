//! Idle servers are closed, and made again for the next burst. That happens minutes apart, so it is told from the counts since the process's
//! start, and from what bursts paid.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom},
    window::PoolWindow,
};

/// Servers closed for idleness that are needed to speak of a habit.
const LEAST: u64 = 20;
/// The share of connections that idleness ends, from which on it is the reason why others are made.
const OF_MADE: f64 = 0.5;
/// From how many creations a transaction on clients or failures are the reason, and not quiet times.
const EPHEMERAL: f64 = 0.2;
/// A wait for a new connection that somebody notices.
const NOTICED_MS: f64 = 5.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let idle = pool.last.closed.get("idle").copied().unwrap_or(0);
    let made = pool.last.created;
    let share = idle as f64 / made.max(1) as f64;
    let a_transaction = made as f64 / pool.last.transactions.max(1) as f64;
    let paid = pool.last.checkout.get("created");
    let slow = paid.and_then(|times| times.quantile_ms(0.95, pool.bounds));
    let Some(slow) = slow.filter(|ms| *ms >= NOTICED_MS) else { return Verdict::Absent };
    if idle < LEAST || share < OF_MADE || a_transaction > EPHEMERAL {
        return Verdict::Absent;
    }
    let most = pool.steps.iter().map(|step| step.pool.servers.total).max().unwrap_or(0).max(pool.last.min_size + 1);
    let waited = paid.map_or(0, watch::Times::count);
    Verdict::Present(Finding {
        symptom: Symptom::IdleChurn,
        of: pool.name(),
        evidence: vec![
            format!("{idle} of the {made} connections made since the start were closed for idleness ({})", percent(share)),
            format!("{waited} clients had to wait for a new connection, one in twenty of them for over {}", time(slow)),
        ],
        rules_out: format!("clients do not connect for each transaction: {made} connections were made for {} transactions", pool.last.transactions),
        setting: Some(Setting { key: "min_size", from: Some(pool.last.min_size.to_string()), to: most.to_string() }),
        advice: "Keep as many servers as a burst needs, or make max_idle_time longer than the longest quiet time between bursts. Each kept \
                 connection costs the database about 1 MB and a descriptor, for each instance of Poolhouse."
            .to_owned(),
    })
}
