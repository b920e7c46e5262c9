//! Idle servers are closed, and made again for the next burst. That happens minutes apart: the counts since the
//! process's start tell whether it is a habit, and the window whether it still is.

use super::{Verdict, percent, time};
use crate::{
    finding::{Finding, Setting, Symptom},
    window::PoolWindow,
};

/// How many servers a burst leaves, how far bursts are apart, and when idle servers are closed.
fn bursts(pool: &PoolWindow<'_>, most: u64) -> String {
    let step = pool.lasts.as_secs_f64() * 1e3 / pool.steps.len().max(1) as f64;
    let making: Vec<usize> = (0..pool.steps.len()).filter(|at| pool.steps[*at].created > 0).collect();
    let apart = making.windows(2).map(|pair| pair[1] - pair[0]).max().filter(|steps| *steps > 1);
    let apart = apart.map_or(String::new(), |steps| format!(", up to {} apart", time(steps as f64 * step)));
    let closed =
        pool.last.settings.max_idle_time.map_or(String::new(), |ms| format!("; max_idle_time is {}", time(ms)));
    format!("up to {most} servers were open after a burst{apart}{closed}")
}

/// Servers closed for idleness, at least, before it is a habit.
const MIN_IDLE_CLOSES: u64 = 20;
/// The same in an hour.
const MIN_IDLE_CLOSES_PER_HOUR: f64 = 30.0;
/// From this share of the created connections on, closing idle ones is why others are created.
const MIN_IDLE_CLOSE_SHARE: f64 = 0.5;
/// From this many created connections a transaction on, clients or failures are the reason and not quiet times.
const MAX_CREATED_PER_TRANSACTION: f64 = 0.2;
/// A wait for a new connection that clients notice.
const MIN_CONNECT_MS: f64 = 5.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let (min, max) = (pool.last.min_size, pool.last.max_size);
    let idle = pool.last.closed.get("idle").copied().unwrap_or(0);
    let now = pool.change.closed.get("idle").copied().unwrap_or(0);
    let made = pool.last.created;
    let share = idle as f64 / made.max(1) as f64;
    let an_hour = idle as f64 / (pool.uptime.as_secs_f64() / 3600.0).max(1e-6);
    let a_transaction = made as f64 / pool.last.transactions.max(1) as f64;
    let paid = pool.last.checkout.get("created");
    let slow = paid.and_then(|times| times.quantile_ms(0.95, pool.bounds));
    let Some(slow) = slow.filter(|ms| *ms >= MIN_CONNECT_MS) else { return Verdict::Absent };
    if now == 0
        || idle < MIN_IDLE_CLOSES
        || an_hour < MIN_IDLE_CLOSES_PER_HOUR
        || share < MIN_IDLE_CLOSE_SHARE
        || a_transaction > MAX_CREATED_PER_TRANSACTION
        || min >= max
    {
        return Verdict::Absent;
    }
    // A burst may be over before the next look, but the servers that it made stay for a while.
    let most = pool.steps.iter().map(|step| step.open).max().unwrap_or(0).min(max);
    Verdict::Present(Finding {
        symptom: Symptom::IdleChurn,
        of: pool.name(),
        evidence: vec![
            format!(
                "{idle} of the {made} connections made since the start were closed for idleness ({}), {an_hour:.0} an hour, {now} of them \
                 while this was looked at",
                percent(share)
            ),
            format!(
                "{} clients had to wait for a new connection, one in twenty of them for over {}",
                paid.map_or(0, admin_api::Times::count),
                time(slow)
            ),
            bursts(pool, most),
        ],
        rules_out: format!("clients do not connect for each transaction: {made} connections were made for {} transactions", pool.last.transactions),
        // What a burst needs is known only if there was one meanwhile.
        setting: (most > min && pool.change.created > 0)
            .then(|| Setting { key: "min_size", from: Some(min.to_string()), to: most.to_string() }),
        advice: "Make max_idle_time longer than the quiet time between bursts, or keep as many servers as a burst needs (min_size; to see \
                 how many, the looks must have a burst among them). Each kept connection costs the database about 1 MB and a descriptor, for each instance of Poolhouse."
            .to_owned(),
    })
}
