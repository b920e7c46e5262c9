//! After an outage a pool creates all its connections at once, and each login takes long because the database handles
//! all of them together. Visible only if the outage is in the window.

use std::time::Duration;

use super::{Verdict, time};
use crate::{
    finding::{Finding, Setting, Symptom},
    window::{PoolWindow, Step},
};

/// Connections created after the outage, at least.
const MIN_CONNECTIONS: u64 = 8;
/// Looks within this time after an outage belong to it.
const AFTERMATH: Duration = Duration::from_secs(10);
/// Creating a connection takes this many times as long as otherwise.
const MIN_SLOWDOWN: f64 = 2.0;
/// A shorter time to connect troubles no client.
const MIN_CONNECT_MS: f64 = 50.0;

pub(super) fn examine(pool: &PoolWindow<'_>) -> Verdict {
    let Some((down, after)) = last_outage(pool.course) else { return Verdict::Absent };
    let made = admin_api::sum(after.iter().map(|step| &step.created));
    // Until the first of them is made the database counts as out of reach, and often all are made before the next look.
    let making_ms: f64 = down.iter().chain(after).map(|step| step.making_ms).sum();
    let around = || down.iter().rev().take(1).chain(after);
    let waiters = around().map(|step| step.waiters).max().unwrap_or(0);
    // Some may have been made in the look at which it went away.
    let before = admin_api::sum(down.iter().map(|step| &step.created));
    let around_it = made.saturating_add(before);
    // All that were made otherwise, since the start.
    let others = pool.last.created.saturating_sub(around_it);
    let all_ms: f64 = pool.last.connect.values().map(|times| times.sum_ms).sum();
    if made < MIN_CONNECTIONS || others == 0 || waiters == 0 {
        return Verdict::Absent;
    }
    let (each, usual) = (making_ms / around_it as f64, (all_ms - making_ms).max(0.0) / others as f64);
    if each < MIN_CONNECT_MS || each < MIN_SLOWDOWN * usual {
        return Verdict::Absent;
    }
    let at_once = around().map(|step| step.connecting).max().unwrap_or(0);
    Verdict::Present(Finding {
        symptom: Symptom::Stampede,
        of: pool.name(),
        evidence: vec![
            format!(
                "the database could not be reached for {}, and {made} connections were made within {} after that, up to {at_once} at a look",
                time(down.iter().map(|step| step.lasts).sum::<Duration>().as_millis() as f64),
                time(lasts(after).as_millis() as f64)
            ),
            format!("making each of them took {} on average, and {} otherwise", time(each), time(usual)),
            format!("up to {waiters} clients waited meanwhile"),
        ],
        rules_out: "the pool is not too small, and the database is not slow as such: otherwise connections are made quickly, and it was the \
                    outage that they began after"
            .to_owned(),
        setting: fewer(pool, usual / each),
        advice: "Let fewer connections be made at a time after an outage: then each is quick, and its first transactions come before the last \
                 login. Applications with pools of their own need the same there, and a pause at random before they connect again."
            .to_owned(),
    })
}

/// The number of connections created at a time that, by Little's law, keeps the database fully busy with logins of the
/// usual length.
fn fewer(pool: &PoolWindow<'_>, share: f64) -> Option<Setting> {
    let now = pool.last.settings.max_connecting?;
    let to = ((now as f64 * share).ceil() as u64).max(1);
    (to < now).then(|| Setting { key: "max_connecting", from: Some(now.to_string()), to: to.to_string() })
}

/// The last outage that is over, and the steps right after it.
fn last_outage(course: &[Step]) -> Option<(&[Step], &[Step])> {
    let end = course.iter().rposition(|step| step.is_down)? + 1;
    let begin = course[..end].iter().rposition(|step| !step.is_down).map_or(0, |before| before + 1);
    let after = course[end..].partition_point(|step| step.at <= course[end - 1].at + AFTERMATH);
    (after > 0).then(|| (&course[begin..end], &course[end..end + after]))
}

fn lasts(steps: &[Step]) -> Duration {
    steps
        .iter()
        .rposition(|step| step.created > 0)
        .map_or(Duration::ZERO, |last| steps[..=last].iter().map(|step| step.lasts).sum())
}
