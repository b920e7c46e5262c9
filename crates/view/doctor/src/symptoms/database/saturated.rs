//! Statements that run get in each other's way: for want of processors, or because they wait for each other's locks.

use super::{Verdict, percent, time};
use crate::{
    database::DatabaseWindow,
    finding::{Finding, Symptom},
};

/// From this many sessions ready to run for each processor on, more of them gain nothing.
pub(in crate::symptoms) const READY_PER_PROCESSOR: f64 = 2.0;
/// The share of looks at which that holds.
pub(in crate::symptoms) const MIN_LOOK_SHARE: f64 = 0.5;
/// Sessions that wait for a lock, at least.
pub(in crate::symptoms) const MIN_LOCKED: f64 = 2.0;
/// The same as a share of the working sessions.
pub(in crate::symptoms) const MIN_LOCKED_SHARE: f64 = 0.5;

pub(super) fn examine(window: &DatabaseWindow, is_held: bool) -> Verdict {
    let Some((_, last)) = window.ends() else { return Verdict::Absent };
    let all = window.all();
    let (working, ready, locked) = (all.working.mean(), all.ready.mean(), all.locked.mean());
    let (ended, _) = window.counted();
    let rate = ended as f64 / window.lasts().as_secs_f64().max(1e-3);
    let per = match ended {
        0 => format!("no transaction ended, while {working:.1} sessions had a statement under way"),
        _ => format!(
            "{rate:.0} transactions ended a second, while {working:.1} sessions had a statement under way: {} for each transaction",
            time(working / rate.max(1e-3) * 1e3)
        ),
    };
    let of = "the whole server".to_owned();
    if !is_held && all.locked.share_from(MIN_LOCKED) >= MIN_LOOK_SHARE && locked >= MIN_LOCKED_SHARE * working {
        return Verdict::Present(Finding {
            symptom: Symptom::ServerSaturated,
            of,
            evidence: vec![
                format!(
                    "{locked:.1} of {working:.1} sessions with a statement waited for locks of others, two or more of them at {} of the looks",
                    percent(all.locked.share_from(MIN_LOCKED))
                ),
                per,
            ],
            rules_out: format!(
                "it is not short of processors: {ready:.1} sessions on average were ready to run; more connections would only wait, too"
            ),
            setting: None,
            advice: "Find the row or table that they contend for (pg_blocking_pids names who blocks whom). Fewer connections at once, by a \
                     pool in front, lose no throughput; shorter transactions gain some."
                .to_owned(),
        });
    }
    let Some(processors) = last.processors.filter(|count| *count > 0) else { return Verdict::Absent };
    let enough = READY_PER_PROCESSOR * processors as f64;
    if all.ready.share_from(enough) < MIN_LOOK_SHARE {
        return Verdict::Absent;
    }
    Verdict::Present(Finding {
        symptom: Symptom::ServerSaturated,
        of,
        evidence: vec![
            format!(
                "{ready:.1} sessions on average were ready to run on {processors} processors, {enough:.0} or more of them at {} of the looks",
                percent(all.ready.share_from(enough))
            ),
            per,
        ],
        rules_out: format!(
            "they do not wait for each other: {locked:.1} on average waited for locks. More connections would only share the same processors"
        ),
        setting: None,
        advice: format!(
            "Find the number of connections at which it stops gaining with `poolhouse sweep`, and keep it at that with a pool in front; look \
             first between {processors} and {enough:.0}."
        ),
    })
}
