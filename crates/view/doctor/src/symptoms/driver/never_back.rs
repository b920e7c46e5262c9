//! Connections of a driver's own pool that are taken and do not come back, throughout the window or from some time in
//! it on: a leak grows, too. By Little's law those who give connections back have as many at a time as come back in a
//! second, times the seconds that each was taken. Others are not given back, or not yet.

use admin_api::Pooler;

use super::hides_uses;
use crate::{
    finding::{Finding, Setting, Symptom, Undecided},
    symptoms::{MIN_WAITING_SHARE, Verdict, percent, time},
    window::{PoolWindow, Step},
};

/// Connections in use throughout that are never given back, as a share of the pool's size.
const MIN_KEPT_SHARE: f64 = 0.5;
/// The same as a number.
const MIN_KEPT: f64 = 2.0;
/// A statement that takes longer belongs to no application that other clients wait for.
const MAX_STATEMENT_S: f64 = 300.0;
/// The parts into which the window is cut to find since when connections have been kept.
const WINDOW_PARTS: usize = 20;
/// A kept connection has been in use for at least this many times as long as a use lasts.
const MIN_USES: f64 = 4.0;
/// Looks at which it was in use, at least: fewer may each have met a burst.
const MIN_LOOKS: usize = 8;

/// What was taken from some time on until the end.
struct Kept {
    /// Connections that were not given back in all of that time.
    connections: f64,
    /// That was the beginning of the window.
    is_throughout: bool,
    lasts_ms: f64,
    /// The fewest that were taken, and how many on average.
    least: u64,
    taken: f64,
    /// How many of these what came back explains, and how often something did.
    explained: f64,
    back: u64,
}

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let failed: u64 = pool.change.failed.values().fold(0, |sum, count| sum.saturating_add(*count));
    let waiting = pool.share(|step| step.waiters > 0);
    if hides_uses(pool.pooler, pool.last) || (waiting < MIN_WAITING_SHARE && failed == 0) {
        return Verdict::Absent;
    }
    let Some(kept) = kept(pool) else { return Verdict::Absent };
    let seen = vec![
        kept.told(pool.last.max_size),
        format!("somebody waited at {} of the looks, and {failed} gave up or failed", percent(waiting)),
    ];
    if kept.lasts_ms < MAX_STATEMENT_S * 1e3 {
        return undecided(pool, seen);
    }
    Verdict::Present(Finding {
        symptom: Symptom::Leak,
        of: pool.name(),
        evidence: seen,
        rules_out: format!(
            "the statements are not slow: what comes back was taken for {}, and these for all of {} (some that take so long the database would \
             show). And the pool is not too small: who gives \
             connections back has {:.1} of {} at a time",
            pool.change.hold.mean_ms().map_or_else(|| "no time at all".to_owned(), |ms| format!("{} on average", time(ms))),
            time(kept.lasts_ms),
            kept.explained,
            pool.last.max_size
        ),
        setting: (pool.pooler == Pooler::HikariCp).then(|| Setting {
            key: "leakDetectionThreshold",
            from: None,
            to: "60000".to_owned(),
        }),
        advice: match pool.pooler {
            Pooler::HikariCp => {
                "Find where connections are taken and not closed: the setting (in ms) writes the place into the log. Close them with \
                 try-with-resources."
            }
            _ => {
                "Find cursors, change streams and sessions that are not closed: each may keep its connection. A transaction keeps it until it ends \
                 where the server is a load balancer's."
            }
        }
        .to_owned(),
    })
}

/// In a short window a statement that takes long looks the same.
fn undecided(pool: &PoolWindow<'_>, seen: Vec<String>) -> Verdict {
    Verdict::Undecided(Undecided {
        between: vec![Symptom::Leak, Symptom::ServerSaturated],
        of: pool.name(),
        seen,
        needs: format!(
            "whether these connections carry out a statement or are forgotten: {} or more of this (--window 10m), or the database, which knows \
             (`poolhouse doctor {}",
            time(MAX_STATEMENT_S * 1e3),
            match pool.pooler {
                Pooler::HikariCp =>
                    "postgres://...`); leakDetectionThreshold = 60000 writes where they were taken into the log",
                _ => "mongodb://...`)",
            }
        ),
    })
}

/// The longest time up to the end for all of which half of the pool is not given back; as long as waits have to last,
/// at least. Only the time since connections could last be made counts.
fn kept(pool: &PoolWindow<'_>) -> Option<Kept> {
    let up = pool.course.iter().rposition(|step| step.is_down).map_or(0, |down| down + 1);
    let steps = &pool.course[up..];
    let enough = (MIN_KEPT_SHARE * pool.last.max_size as f64).max(MIN_KEPT);
    let use_ms = pool.change.hold.mean_ms().unwrap_or(0.0);
    let window_ms = pool.lasts.as_secs_f64() * 1e3;
    let starts = (0..WINDOW_PARTS).map(|part| part * steps.len() / WINDOW_PARTS);
    starts.filter_map(|start| Some((start, Kept::in_all_of(&steps[start..], pool.coarse_ms())?))).find_map(
        |(start, kept)| {
            let is_throughout = up + start == 0;
            let is_long = kept.lasts_ms >= (MIN_WAITING_SHARE * window_ms).max(MIN_USES * use_ms)
                && steps.len() - start >= MIN_LOOKS;
            (kept.connections >= enough && (is_throughout || is_long)).then_some(Kept { is_throughout, ..kept })
        },
    )
}

/// How many were taken on average, and how many of these what came back explains.
fn taken_in(steps: &[Step], coarse_ms: f64) -> (f64, f64) {
    let taken: f64 = steps.iter().map(|step| step.in_use as f64).sum();
    let back_ms: f64 = steps.iter().map(|step| step.hold.sum_ms + step.hold.count() as f64 * coarse_ms).sum();
    (taken / steps.len().max(1) as f64, (back_ms / milliseconds(steps).max(1.0)).max(0.0))
}

fn milliseconds(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.lasts.as_secs_f64() * 1e3).sum()
}

impl Kept {
    /// `None` if there are no steps.
    fn in_all_of(steps: &[Step], coarse_ms: f64) -> Option<Self> {
        let least = steps.iter().map(|step| step.in_use).min()?;
        let (taken, explained) = taken_in(steps, coarse_ms);
        // What is not given back becomes more: only what was not at the beginning, either, has been taken for so long.
        let (at_first, explained_at_first) = taken_in(&steps[..steps.len().div_ceil(4)], coarse_ms);
        Some(Self {
            connections: (taken - explained).min(at_first - explained_at_first).min(least as f64),
            is_throughout: false,
            lasts_ms: milliseconds(steps),
            least,
            taken,
            explained,
            back: steps.iter().fold(0, |sum, step| sum.saturating_add(step.hold.count())),
        })
    }

    fn told(&self, max: u64) -> String {
        let Self { connections: _, is_throughout, lasts_ms, least, taken, explained, back } = self;
        let since =
            if *is_throughout { "throughout".to_owned() } else { format!("for all of the last {}", time(*lasts_ms)) };
        format!(
            "{least} or more of at most {max} connections were taken {since}, {taken:.1} on average; what came back ({back} times) explains \
             {explained:.1} of these"
        )
    }
}
