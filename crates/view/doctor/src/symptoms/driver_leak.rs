//! Connections of a driver's own pool that are taken and do not come back, throughout the window or from some time in
//! it on: a leak grows, too. By Little's law the clients that give connections back have as many at a time as come back
//! in a second, times the seconds that each was taken. The other connections are not given back, or not yet.

use admin_api::{Pool, Pooler};

use super::{MIN_WAITING_SHARE, Verdict, format_ms, format_percent};
use crate::{
    finding::{Finding, Setting, Symptom, Undecided},
    pooler::{PoolWindow, Step},
};

/// Connections in use throughout that are never given back, as a share of the pool's size.
const MIN_KEPT_SHARE: f64 = 0.5;
/// The same as a number.
const MIN_KEPT: f64 = 2.0;
/// A statement that takes longer belongs to no application that other clients wait for.
const MAX_STATEMENT_S: f64 = 300.0;
/// The parts into which the window is cut to find since when connections have been kept.
const WINDOW_PARTS: usize = 20;
/// A connection counts as kept only after this many times the mean time of a use.
const MIN_USES: f64 = 4.0;
/// Looks at which a kept connection was in use, at least: fewer looks may each have met a burst.
const MIN_KEPT_LOOKS: usize = 8;

/// Connections that were taken from some time on until the end.
struct Kept {
    /// Connections that were not given back in all of `duration_ms`.
    connections: f64,
    /// The connections were taken for the whole window.
    is_throughout: bool,
    duration_ms: f64,
    /// The fewest connections that were taken.
    min_taken: u64,
    mean_taken: f64,
    /// The part of `mean_taken` that is explained by the connections that came back.
    explained: f64,
    /// Connections that came back.
    returned: u64,
}

/// The pool does not tell how many connections come back, and after how long.
pub(super) fn hides_uses(pooler: Pooler, pool: &Pool) -> bool {
    pooler == Pooler::HikariCp && pool.hold.buckets.is_empty()
}

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let failed = admin_api::sum(pool.change.failed.values());
    let waiting = pool.share_with_waiters();
    if hides_uses(pool.pooler, pool.last) || (waiting < MIN_WAITING_SHARE && failed == 0) {
        return Verdict::Absent;
    }
    let Some(kept) = find_kept(pool) else { return Verdict::Absent };
    let max = pool.last.max_size;
    let seen = [
        kept.describe(max),
        format!("threads waited at {} of the looks, and {failed} gave up or failed", format_percent(waiting)),
    ];
    if kept.duration_ms < MAX_STATEMENT_S * 1e3 {
        return undecided(pool, seen);
    }
    let hold = pool.change.hold.mean_ms();
    let hold = hold.map_or_else(|| "no time at all".to_owned(), |ms| format!("{} on average", format_ms(ms)));
    let setting = Setting { key: "leakDetectionThreshold", from: None, to: "60000".to_owned() };
    Finding::new(Symptom::Leak, pool.name())
        .all_evidence(seen)
        .rules_out(format!(
            "the statements are not slow: what comes back was taken for {hold}, and these for all of {} (some that \
             take \
             so long the database would show). And the pool is not too small: clients that give connections back have \
             {:.1} of \
             {max} at a time",
            format_ms(kept.duration_ms),
            kept.explained
        ))
        .setting((pool.pooler == Pooler::HikariCp).then_some(setting))
        .advice(match pool.pooler {
            Pooler::HikariCp => {
                "Find where connections are taken and not closed: the setting (in ms) writes the place into the log. \
                 Close them with try-with-resources."
            }
            _ => {
                "Find cursors, change streams and sessions that are not closed: each may keep its connection. A \
                 transaction keeps it until it ends where the server is a load balancer's."
            }
        })
        .into()
}

/// In a short window a statement that takes long looks the same.
fn undecided(pool: &PoolWindow<'_>, seen: [String; 2]) -> Verdict {
    let database = match pool.pooler {
        Pooler::HikariCp => {
            "postgres://...`); leakDetectionThreshold = 60000 writes where they were taken into the log"
        }
        _ => "mongodb://...`)",
    };
    Undecided::new([Symptom::Leak, Symptom::ServerSaturated], pool.name())
        .all_seen(seen)
        .needs(format!(
            "whether these connections carry out a statement or are forgotten: {} or more of this (--window 10m), or \
             the \
             database, which knows (`poolhouse doctor {database}",
            format_ms(MAX_STATEMENT_S * 1e3)
        ))
        .into()
}

/// The longest time up to the end for all of which half of the pool is not given back; as long as waits have to last,
/// at least. Only the time since connections could last be made counts.
fn find_kept(pool: &PoolWindow<'_>) -> Option<Kept> {
    let up = pool.all_steps.iter().rposition(|step| step.is_down).map_or(0, |down| down + 1);
    let steps = &pool.all_steps[up..];
    let enough = (MIN_KEPT_SHARE * pool.last.max_size as f64).max(MIN_KEPT);
    let use_ms = pool.change.hold.mean_ms().unwrap_or(0.0);
    let min_ms = (MIN_WAITING_SHARE * pool.duration.as_secs_f64() * 1e3).max(MIN_USES * use_ms);
    (0..WINDOW_PARTS).map(|part| part * steps.len() / WINDOW_PARTS).find_map(|start| {
        let is_throughout = up + start == 0;
        let kept = Kept { is_throughout, ..Kept::in_all_of(&steps[start..], pool.hold_error_ms())? };
        let is_long = kept.duration_ms >= min_ms && steps.len() - start >= MIN_KEPT_LOOKS;
        (kept.connections >= enough && (is_throughout || is_long)).then_some(kept)
    })
}

/// The mean number of connections taken, and the part of it that the connections that came back explain.
fn mean_taken(steps: &[Step], hold_error_ms: f64) -> (f64, f64) {
    let taken: f64 = steps.iter().map(|step| step.in_use as f64).sum();
    let returned_ms: f64 = steps.iter().map(|step| step.hold.sum_ms + step.hold.count() as f64 * hold_error_ms).sum();
    (taken / steps.len().max(1) as f64, (returned_ms / duration_ms(steps).max(1.0)).max(0.0))
}

fn duration_ms(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.duration.as_secs_f64() * 1e3).sum()
}

impl Kept {
    /// `None` if there are no steps.
    fn in_all_of(steps: &[Step], hold_error_ms: f64) -> Option<Self> {
        let min_taken = steps.iter().map(|step| step.in_use).min()?;
        let (taken, explained) = mean_taken(steps, hold_error_ms);
        // A leak grows: only connections that were not given back at the beginning, either, have been taken for that
        // long.
        let (first_taken, first_explained) = mean_taken(&steps[..steps.len().div_ceil(4)], hold_error_ms);
        Some(Self {
            connections: (taken - explained).min(first_taken - first_explained).min(min_taken as f64),
            is_throughout: false,
            duration_ms: duration_ms(steps),
            min_taken,
            mean_taken: taken,
            explained,
            returned: steps.iter().fold(0, |sum, step| sum.saturating_add(step.hold.count())),
        })
    }

    fn describe(&self, max: u64) -> String {
        let Self { min_taken, mean_taken, explained, returned, .. } = self;
        let since = match self.is_throughout {
            true => "throughout".to_owned(),
            false => format!("for all of the last {}", format_ms(self.duration_ms)),
        };
        format!(
            "{min_taken} or more of at most {max} connections were taken {since}, {mean_taken:.1} on average; what \
             came \
             back ({returned} times) explains {explained:.1} of these"
        )
    }
}
