//! After an outage a pool creates all its connections at once, and each login takes long because the database handles
//! all of them together. Visible only if the outage is in the window.

use std::time::Duration;

use super::{Verdict, format_duration, format_ms};
use crate::{
    finding::{Finding, Setting, Symptom},
    pooler::{PoolWindow, Step},
};

/// Connections created after the outage, at least.
const MIN_CREATED_AFTER_OUTAGE: u64 = 8;
/// Looks within this time after an outage belong to it.
const AFTERMATH: Duration = Duration::from_secs(10);
/// Creating a connection takes this many times as long as otherwise.
const MIN_SLOWDOWN: f64 = 2.0;
/// A shorter time to connect troubles no client.
const MIN_CONNECT_MS: f64 = 50.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let Some((down, after)) = find_last_outage(pool.all_steps) else { return Verdict::Absent };
    let made = admin_api::sum(after.iter().map(|step| &step.created));
    // Until the first of them is made the database counts as out of reach, and often all are made before the next look.
    let connect_ms: f64 = down.iter().chain(after).map(|step| step.connect_ms).sum();
    let last_down_and_after = || down.last().into_iter().chain(after);
    let waiters = last_down_and_after().map(|step| step.waiters).max().unwrap_or(0);
    // Some may have been made in the look at which the database went away.
    let made_around = made.saturating_add(admin_api::sum(down.iter().map(|step| &step.created)));
    // All other connections since the start.
    let others = pool.last.created.saturating_sub(made_around);
    if made < MIN_CREATED_AFTER_OUTAGE || others == 0 || waiters == 0 {
        return Verdict::Absent;
    }
    let all_ms: f64 = pool.last.connect.values().map(|times| times.sum_ms).sum();
    let (each_ms, usual_ms) = (connect_ms / made_around as f64, (all_ms - connect_ms).max(0.0) / others as f64);
    if each_ms < MIN_CONNECT_MS || each_ms < MIN_SLOWDOWN * usual_ms {
        return Verdict::Absent;
    }
    Finding::new(Symptom::Stampede, pool.name())
        .evidence(format!(
            "the database could not be reached for {}, and {made} connections were made within {} after that, up to {} \
             at a look",
            format_duration(down.iter().map(|step| step.duration).sum()),
            format_duration(duration_until_last_made(after)),
            last_down_and_after().map(|step| step.connecting).max().unwrap_or(0)
        ))
        .evidence(format!(
            "making each of them took {} on average, and {} otherwise",
            format_ms(each_ms),
            format_ms(usual_ms)
        ))
        .evidence(format!("up to {waiters} clients waited meanwhile"))
        .rules_out(
            "the pool is not too small, and the database is not slow as such: otherwise connections are made quickly, \
             and it was the outage that they began after",
        )
        .setting(propose_fewer(pool, usual_ms / each_ms))
        .advice(
            "Let fewer connections be made at a time after an outage: then each is quick, and its first transactions \
             come before the last login. Applications with pools of their own need the same there, and a pause at \
             random before they connect again.",
        )
        .into()
}

/// The number of connections created at a time that, by Little's law, keeps the database fully busy with logins of the
/// usual length.
fn propose_fewer(pool: &PoolWindow<'_>, share: f64) -> Option<Setting> {
    let now = pool.last.settings.max_connecting?;
    let to = ((now as f64 * share).ceil() as u64).max(1);
    (to < now).then(|| Setting { key: "max_connecting", from: Some(now.to_string()), to: to.to_string() })
}

/// The last outage that is over, and the steps right after it.
fn find_last_outage(steps: &[Step]) -> Option<(&[Step], &[Step])> {
    let end = steps.iter().rposition(|step| step.is_down)? + 1;
    let begin = steps[..end].iter().rposition(|step| !step.is_down).map_or(0, |before| before + 1);
    let after = steps[end..].partition_point(|step| step.at <= steps[end - 1].at + AFTERMATH);
    (after > 0).then(|| (&steps[begin..end], &steps[end..end + after]))
}

fn duration_until_last_made(steps: &[Step]) -> Duration {
    let last = steps.iter().rposition(|step| step.created > 0);
    last.map_or(Duration::ZERO, |last| steps[..=last].iter().map(|step| step.duration).sum())
}
